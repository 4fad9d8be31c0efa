"""A subscription as its user holds it: what has happened, then what happens.

    channel --deliver--> queue --> take(), for ..., async for ...

Iteration waits for the next event and ends when the subscription expires (by the
database's clock), is cancelled, or the database closes; what arrived before that is
still handed out. A handle is fed only while somebody holds it; after a restart, or when
it was let go, `Channel.resume` gives it back with what it missed.

Safe from any thread; several iterators share one queue, each event goes to one of them.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tideline.clock import from_us
from tideline.model import Event

if TYPE_CHECKING:
    from tideline.channel.channel import Channel

__all__ = ["Handles", "Subscription"]

_MAKING = threading.Lock()


class Subscription:
    """A stored question, its past answers, and the stream of its live ones."""

    # Slots and few, cheap assignments: making this is a good part of what `subscribe` costs.
    __slots__ = (
        "__weakref__", "_arrived", "_channel", "_condition", "_ended", "_load", "_past",
        "_waiters", "id", "place", "seq", "since_us", "unseen", "until_us", "user", "where",
    )  # fmt: skip

    def __init__(
        self, channel: Channel, id: str, user: str, place: Any, since_us: int, until_us: int,
        where: dict[str, Any] | None, unseen: bool, seq: int,
        past: Callable[[], list[Event]] | None,
    ) -> None:  # fmt: skip
        self.id = id
        self.user = user
        self.place = place
        self.where = where
        self.unseen = unseen
        self.since_us = since_us
        self.until_us = until_us
        self.seq = seq
        self._channel = channel
        self._load = past
        self._past: list[Event] | None = None if past else []
        self._arrived: deque[Event] = deque()
        # Made when somebody first waits: most subscriptions are never waited for.
        self._condition: threading.Condition | None = None
        self._ended = False
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] | None = None

    @property
    def since(self) -> datetime | None:
        """The window's start."""
        return from_us(self.since_us)

    @property
    def until(self) -> datetime | None:
        """The window's limit; `None` for never."""
        return from_us(self.until_us)

    @property
    def past(self) -> list[Event]:
        """What had already happened when the subscription was made, in order of arrival."""
        if self._past is None:
            assert self._load is not None
            self._past, self._load = self._load(), None
        return self._past

    @property
    def expired(self) -> bool:
        """Whether nothing new can come: expired, cancelled or closed."""
        return self._ended or self._channel._now() >= self.until_us

    def take(self) -> list[Event]:
        """What arrived since the last take, without waiting."""
        self._channel._check_open()
        self._channel._poll(self)
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def cancel(self) -> None:
        """End the subscription. Cancelling one that has ended is allowed."""
        self._channel._cancel_handle(self)

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self._next()
            if event is None:
                return
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop = asyncio.get_running_loop()
        while True:
            self._channel._poll(self)
            with self._changed:
                event = self._arrived.popleft() if self._arrived else None
                done = event is None and self.expired
                if event is None and not done:
                    waiter: asyncio.Future[None] = loop.create_future()
                    self._waiters = [*(self._waiters or ()), (loop, waiter)]
            if event is not None:
                yield event
                continue
            if done:
                return
            # Wake up for an event, and by the clock at the end of the window or the next poll.
            timer = threading.Thread(target=self._watch, daemon=True)
            timer.start()
            await waiter

    def _next(self) -> Event | None:
        while True:
            self._channel._poll(self)
            with self._changed:
                if self._arrived:
                    return self._arrived.popleft()
                if self.expired:
                    return None
                self._wait()

    def _wait(self) -> None:
        """Wait (the condition is held) for an event, the end, or the next poll."""
        self._channel.clock.wait(self._changed, self._channel._wake_at(self))

    def _watch(self) -> None:
        with self._changed:
            if not self._arrived and not self.expired:
                self._wait()
            self._wake()

    @property
    def _changed(self) -> threading.Condition:
        # Whoever waits makes it first and looks into the queue afterwards; whoever delivers
        # fills the queue first and looks for it afterwards. So no event is slept over.
        if self._condition is None:
            with _MAKING:
                if self._condition is None:
                    self._condition = threading.Condition(threading.Lock())
        return self._condition

    def _deliver(self, events: list[Event]) -> None:
        self._arrived.extend(events)
        self._notify()

    def _end(self) -> None:
        self._ended = True
        self._notify()

    def _notify(self) -> None:
        if self._condition is not None:
            with self._condition:
                self._condition.notify_all()
                self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for loop, waiter in waiters or ():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, waiter)

    def __repr__(self) -> str:
        return f"Subscription(id={self.id!r}, user={self.user!r}, place={self.place!r})"


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Held(weakref.ref["Subscription"]):
    """A handle that goes when its user lets go of it."""

    __slots__ = ("seq",)
    seq: int


class Handles:
    """The handles somebody holds, by the seq of their subscription. One lets go by itself."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, handle: Subscription) -> None:
        """Feed a handle from now on."""
        ref = _Held(handle, self._gone)
        ref.seq = handle.seq
        self._held[handle.seq] = ref

    def _gone(self, ref: _Held) -> None:
        if self._held.get(ref.seq) is ref:
            del self._held[ref.seq]

    def get(self, seq: int) -> Subscription | None:
        """The handle of a subscription, if somebody holds it."""
        ref = self._held.get(seq)
        return None if ref is None else ref()

    def pop(self, seq: int) -> Subscription | None:
        """The same, and stop feeding it."""
        ref = self._held.pop(seq, None)
        return None if ref is None else ref()

    def end(self) -> None:
        """End all of them."""
        for ref in list(self._held.values()):
            handle = ref()
            if handle is not None:
                handle._end()
        self._held.clear()
