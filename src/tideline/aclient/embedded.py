"""A folder in this process, used from asyncio: what `Database` is, awaited.

    AsyncDatabase.channel -> AsyncChannel -> AsyncSubscription
                 .collection -> AsyncCollection -> AsyncChanges (documents.py)

A verb runs in one of a few threads of the database's own: it may wait for the disk, or for other
writers. Waiting for events and changes takes none of them. A task that is cancelled leaves its
verb, which goes on to its end in its thread.

The objects are those of the library inside; they are safe from any task of one event loop.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tideline.aclient.threads import Run, threaded
from tideline.channel import Channel, Subscription
from tideline.channel.checks import wait_us
from tideline.clock import SECOND, Clock, Seconds
from tideline.database import Database
from tideline.model import Event
from tideline.protocols import Durability, Indexes, Place
from tideline.space import Space

if TYPE_CHECKING:
    from tideline.aclient.documents import AsyncCollection
    from tideline.aclient.window import AsyncWindow

__all__ = ["AsyncChannel", "AsyncDatabase", "AsyncSubscription"]

_THREADS = 8
P = ParamSpec("P")
T = TypeVar("T")


class AsyncDatabase:
    """An open folder of channels and collections; close it, or use it as a context manager."""

    def __init__(self, database: Database) -> None:
        self._sync = database
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tideline-async")

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None,
        memory_mb: int,
        durability: Durability,
    ) -> AsyncDatabase:
        """Open a folder: the first time kernels are compiled, so not in the loop."""
        opening = functools.partial(
            Database, path, clock=clock, memory_mb=memory_mb, durability=durability
        )
        return cls(await asyncio.to_thread(opening))

    async def channel(
        self, name: str, *, space: Space | None = None, layout: str | None = None,
        poll_s: Seconds = 1.0, journal_s: Seconds | None = None,
        max_ahead_s: Seconds | None = None,
    ) -> AsyncChannel:  # fmt: skip
        """Open a channel, or create it: `Database.channel`."""
        found: Channel = await self._run(
            self._sync.channel, name, space=space, layout=layout, poll_s=poll_s,
            journal_s=journal_s, max_ahead_s=max_ahead_s,
        )  # fmt: skip
        return AsyncChannel(found, self._run)

    async def collection(
        self, name: str, *, key: str | None = None, indexes: Indexes | None = None,
        policy: str | Mapping[str, Any] | None = None, filter: str | None = None,
        bloom_bits: int | None = None, journal_s: float | None = None,
        journal_before: bool | None = None, ttl_s: Seconds | None = None,
    ) -> AsyncCollection:  # fmt: skip
        """Open a collection of documents, or create it: `Database.collection`."""
        found = await self._run(
            self._sync.collection, name, key=key, indexes=indexes, policy=policy, filter=filter,
            bloom_bits=bloom_bits, journal_s=journal_s, journal_before=journal_before, ttl_s=ttl_s,
        )  # fmt: skip
        from tideline.aclient.documents import AsyncCollection

        return AsyncCollection(found, self._run)

    async def window(
        self, name: str, *, span_s: Seconds | None = None, slide_s: Seconds | None = None,
        key: str | Sequence[str] | Mapping[str, Any] | None = None,
        values: Mapping[str, str] | None = None, keep: str | None = None, time: str | None = None,
        durable: bool | None = None, max_ahead_s: Seconds | None = None,
        indexes: Mapping[str, Any] | None = None,
    ) -> AsyncWindow:  # fmt: skip
        """Open a stream window, or create it: `Database.window`."""
        found = await self._run(
            self._sync.window, name, span_s=span_s, slide_s=slide_s, key=key, values=values,
            keep=keep, time=time, durable=durable, max_ahead_s=max_ahead_s,
            indexes=indexes,
        )  # fmt: skip
        from tideline.aclient.window import AsyncWindow

        return AsyncWindow(found, self._run)

    channels = threaded(Database.channels)
    drop_channel = threaded(Database.drop_channel)
    collections = threaded(Database.collections)
    drop_collection = threaded(Database.drop_collection)
    windows = threaded(Database.windows)
    drop_window = threaded(Database.drop_window)
    stats = threaded(Database.stats)
    check = threaded(Database.check)
    backup = threaded(Database.backup)

    async def close(self) -> None:
        """Close everything and let the folder go. Closing twice is allowed."""
        await asyncio.to_thread(self._sync.close)
        self._pool.shutdown(wait=False)

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"

    async def _run(self, call: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        """Run something in a thread."""
        loop = asyncio.get_running_loop()
        try:
            future = loop.run_in_executor(self._pool, functools.partial(call, *args, **options))
        except RuntimeError:  # it was closed, and says so itself
            return call(*args, **options)
        return await future


class AsyncChannel:
    """Events and subscriptions side by side. Made by `AsyncDatabase.channel`."""

    def __init__(self, channel: Channel, run: Run) -> None:
        self._sync = channel
        self._run = run
        self.name = channel.name
        self.space = channel.space
        self.layout = channel.layout

    @property
    def identity(self) -> str:
        """What tells this channel from every other, of the same name too."""
        return self._sync.identity

    @property
    def max_ahead_s(self) -> float:
        """How far ahead of the clock a row of a batch may be; `inf` when there is no limit."""
        return self._sync.max_ahead_s

    async def subscribe(
        self, place: Place, *, user: str, id: str | None = None, since_s: Seconds | None = None,
        since: datetime | None = None, until_s: Seconds | None = None,
        until: datetime | None = None, where: dict[str, Any] | None = None, unseen: bool = False,
        retractions: bool = False,
    ) -> AsyncSubscription:  # fmt: skip
        """Store a subscription; its `past` is there at once, what happens later is delivered."""
        found: Subscription = await self._run(
            self._sync.subscribe, place, user=user, id=id, since_s=since_s, since=since,
            until_s=until_s, until=until, where=where, unseen=unseen, retractions=retractions,
        )  # fmt: skip
        return AsyncSubscription(found, self._run)

    async def resume(
        self, id: str, after: str | None = None, *, retractions: bool = False
    ) -> AsyncSubscription:
        """A stored subscription given back, with what it missed since `after`."""
        found: Subscription = await self._run(self._sync.resume, id, after, retractions=retractions)
        return AsyncSubscription(found, self._run)

    publish = threaded(Channel.publish)
    retract = threaded(Channel.retract)
    cancel = threaded(Channel.cancel)
    prolong = threaded(Channel.prolong)
    move = threaded(Channel.move)
    get = threaded(Channel.get)
    find = threaded(Channel.find)
    subscriptions = threaded(Channel.subscriptions)
    subscription = threaded(Channel.subscription)
    apply = threaded(Channel.apply)
    landed = threaded(Channel.landed)
    scan = threaded(Channel.scan)
    times_between = threaded(Channel.times_between)
    journal = threaded(Channel.journal)
    position = threaded(Channel.position)
    earliest = threaded(Channel.earliest)
    stats = threaded(Channel.stats)
    seal = threaded(Channel.seal)
    maintain = threaded(Channel.maintain)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


class AsyncSubscription:
    """A stored question, its past answers, and the stream of its live ones."""

    def __init__(self, handle: Subscription, run: Run) -> None:
        self._sync = handle
        self._run = run
        self.id = handle.id
        self.user = handle.user
        self.where = handle.where
        self.unseen = handle.unseen
        self.duplicate = handle.duplicate

    @property
    def since(self) -> datetime | None:
        """The window's start."""
        return self._sync.since

    @property
    def until(self) -> datetime | None:
        """The window's limit; `None` for never."""
        return self._sync.until

    @property
    def place(self) -> Any:
        """What is watched."""
        return self._sync.place

    @property
    def past(self) -> list[Event]:
        """What had already happened when the subscription was made, in order of arrival."""
        return self._sync.past

    async def expired(self) -> bool:
        """Whether nothing new can come: expired, cancelled or closed."""
        return self._sync.expired

    async def take(self, timeout_s: Seconds | None = None) -> list[Event]:
        """What arrived since the last take; waits so long for the first: `Subscription.take`."""
        wait_s = wait_us(timeout_s) / SECOND
        await self._run(self._sync.look)
        # Here, not in the thread: a task that is cancelled leaves them for the next.
        found = self._sync.inbox.take()
        if found or not wait_s:
            return found
        events = self._sync.__aiter__()
        try:
            async with asyncio.timeout(wait_s):
                first = await anext(events)
        except (TimeoutError, StopAsyncIteration):
            return []
        return [first, *self._sync.inbox.take()]

    move = threaded(Subscription.move)
    cancel = threaded(Subscription.cancel)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._sync.__aiter__()

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"
