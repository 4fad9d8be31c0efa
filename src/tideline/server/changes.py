"""The changes of collections, delivered to connections.

    log --one read, in a thread--> Feeder --offer--> Following --put--> Outbox --> socket
    log --its own read----------------------------> one that is behind

A feeder reads the changes of one collection once, and makes them into messages once, for everybody
who is up to date. Whoever is not, because it began after an old seq or its socket takes no more,
reads the log on its own, as fast as its socket takes it, and joins the others when it has reached
them. So a slow reader makes nobody wait, is not cut off, and what waits for it is the log itself.
Only when the log that it needs is gone (documents/feed.py) it is told so.

`Following.queued` is the last change that was put into the outbox, `Feeder.seq` the last one that
was offered. Invariant: who is among `Feeder.followings` has queued >= seq, so the next offer leaves
no gap; what it has already is left out.

A caller may see part of a collection: `Visible` makes of a change what they may see of it. What
is sent is made in change_messages.py.

Everything here is on the event loop, except what says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tideline.clock import WAIT_S
from tideline.documents.follower import Follower
from tideline.errors import Closed, Conflict, InvalidRequest, NotFound
from tideline.lsm.bell import Bell
from tideline.model import Change
from tideline.server.access import Caller
from tideline.server.change_messages import Batch, Visible
from tideline.server.collection_limited import seen
from tideline.server.hub import Hub
from tideline.server.outbox import Outbox

__all__ = ["Following", "begin_after", "follow"]

OnEnd = Callable[["Following", str | Exception], None]
"""Told once when there will be no more changes: a reason, or what went wrong."""

_LINGER_S = 60.0
_PIECE, _PIECE_BYTES = 256, 64 << 10  # of changes in one message


def _read(follower: Follower) -> Batch | None:
    """The next changes, if there are any (in a thread)."""
    found = follower.take(_PIECE, _PIECE_BYTES)
    return Batch(found, found[-1].seq) if found else None


class Following:
    """One reader of the changes of a collection, on one connection."""

    __slots__ = (
        "_feeder", "_on_end", "_outbox", "_over", "_own", "_seen", "_shown", "_told", "_turn",
        "_waiting", "_wrap", "collection", "prefix", "queued", "token",
    )  # fmt: skip

    def __init__(
        self, feeder: Feeder, own: Follower, outbox: Outbox, turn: asyncio.Lock,
        wrap: Callable[[Sequence[Change]], bytes], *, prefix: bytes,
        seen: Callable[[Batch], Batch] | None, on_end: OnEnd,
    ) -> None:  # fmt: skip
        self.collection = feeder.collection
        self.prefix = prefix
        self.token: int = own.seq
        """The last change that was handed to the socket: where to go on."""
        self.queued = own.seq
        self._feeder = feeder
        self._own: Follower | None = own
        self._outbox = outbox
        self._turn = turn
        self._wrap = wrap
        self._seen = seen
        self._on_end = on_end
        self._told = self._shown = own.seq
        self._over = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def start(self) -> None:
        """Begin to deliver."""
        if not self._join():
            self._feeder.spawn(self._catch_up())

    def stop(self) -> None:
        """Deliver no more."""
        if self._over:
            return
        self._over = True
        self._feeder.leave(self)
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def end(self, why: str | Exception) -> None:
        """There will be no more: a reason, or what went wrong."""
        if not self._over:
            self.stop()
            self._on_end(self, why)

    def sent(self, token: int) -> None:
        """Changes were handed to the socket."""
        self.token = token

    def place(self) -> dict[str, Any]:
        """Where it stands, as its reader is told."""
        self._told = self.queued
        return {"seq": self.queued, "identity": self.collection.identity}

    @property
    def has_moved(self) -> bool:
        """Whether it passed changes that its reader may not see: they are not to be kept for it."""
        return self._seen is not None and self.queued > max(self._told, self._shown)

    async def caught_up(self) -> None:
        """Wait until what was written so far is on its way, or it has ended."""
        with contextlib.suppress(Closed):  # then it ends, and says why
            newest = await self._feeder.work(self.collection._engine.feed.newest)
            if self.queued < newest and not self._over:
                waiter = asyncio.get_running_loop().create_future()
                self._waiting.append((newest, waiter))
                await waiter

    def offer(self, batch: Batch, anchor: Follower) -> None:
        """Take changes if there is room; else read them later, from `anchor` on."""
        if self._outbox.has_room:
            self._put(batch)
        else:
            self._feeder.leave(self, own=True)
            self._own = anchor.twin()
            self._feeder.spawn(self._catch_up())

    def _put(self, batch: Batch) -> None:
        if self._over:
            return
        batch = batch.after(self.queued)
        if self._seen is not None:
            batch = self._seen(batch)
        if batch.changes:
            self._shown = batch.last
            wire = batch.wire(self._wrap)
            self._outbox.put(self, wire, len(self.prefix) + len(wire.data))
        self.queued = max(self.queued, batch.last)
        if self._waiting:
            for seq, waiter in self._waiting:
                if seq <= self.queued and not waiter.done():
                    waiter.set_result(None)
            self._waiting = [each for each in self._waiting if not each[1].done()]

    def _join(self) -> bool:
        """Go along with the others, if it has all that they were offered."""
        if self._over or self.queued < self._feeder.seq:
            return False
        own, self._own = self._own, None
        assert own is not None
        self._feeder.join(self)
        own.close()
        return True

    async def _catch_up(self) -> None:
        """Read the log up to where the others are, at the pace of the socket."""
        own, outbox = self._own, self._outbox
        assert own is not None
        try:
            while not self._over:
                async with self._turn:  # one of a connection at a time: little waits in memory
                    if not outbox.has_room:
                        own.rest()
                        await outbox.room()
                    batch = await self._feeder.work(_read, own)
                    if batch is not None:
                        self._put(batch)
                if batch is None and self._join():
                    return
        except Exception as error:
            self.end(self._feeder.why(error))
        own.close()


class _Wake(Bell):
    """A bell that wakes the loop once, however often it rings."""

    __slots__ = ("_event", "_loop", "_rung")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._rung = False

    def notify_all(self) -> None:
        """Ring it (any thread)."""
        if not self._rung:
            self._rung = True
            with contextlib.suppress(RuntimeError):  # the loop is gone
                self._loop.call_soon_threadsafe(self._event.set)

    def hush(self) -> None:
        """Before looking whether something is there."""
        self._event.clear()
        self._rung = False

    async def rung(self) -> None:
        """Wait for it, not for long: nothing is lost with a writer that was cut (bell.py)."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await self._event.wait()


class Feeder:
    """Reads the changes of one collection for all who are up to date.

    `before` says whether with old versions. It reads while somebody follows. With old versions it
    reads on for a while: they are kept only while somebody follows, and whoever comes back after
    a break needs those of the break, too.
    """

    def __init__(self, hub: Hub, collection: Any, before: bool) -> None:
        self.collection = collection
        self.before = before
        self.seq = 0
        """The last change that was offered."""
        self.followings: set[Following] = set()
        self._hub = hub
        self._key = collection, before
        self._wake = _Wake()
        self._failed: Exception | None = None
        self._left_s = 0.0  # when the last one went
        self._users = 0  # who follows or is about to
        self._stopped = False
        self._reading: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())

    @staticmethod
    async def of(hub: Hub, collection: Any, before: bool) -> Feeder:
        """The feeder of a collection, which reads; let go of it with `leave`."""
        key = collection, before
        found: Feeder | None = hub.feeders.get(key)
        if found is None:
            found = hub.feeders[key] = Feeder(hub, collection, before)
            found._reading = found.spawn(found._run())
        found._users += 1
        try:
            await asyncio.shield(found._ready)
        except BaseException:
            found.leave(None)
            raise
        return found

    def spawn(self, coroutine: Any) -> asyncio.Task[None]:
        """Run a part of it."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)  # the loop holds tasks weakly
        task.add_done_callback(self._tasks.discard)
        return task

    async def work(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call that may wait for the collection."""
        return await self._hub.work.beside(call, *arguments)

    def join(self, following: Following) -> None:
        """Offer changes to somebody."""
        if self._failed is None:
            self.followings.add(following)
        else:
            following.end(self.why(self._failed))

    def leave(self, following: Following | None, *, own: bool = False) -> None:
        """Offer them nothing any more; `own`: they read on their own."""
        if following is not None:
            self.followings.discard(following)
        if not own:
            self._users -= 1
            self._left_s = time.monotonic()
            if not self._wanted:
                self._forget()
                self._wake.notify_all()

    async def stop(self) -> None:
        """End, when the server does."""
        self._stopped = True
        self._forget()
        self._wake.notify_all()
        assert self._reading is not None
        await asyncio.wait([self._reading])

    @property
    def _wanted(self) -> bool:
        """Whether somebody follows, or may come back."""
        if self._stopped:
            return False
        lingers = self.before and time.monotonic() < self._left_s + _LINGER_S
        return self._users > 0 or (lingers and not self._hub.stopping)

    def why(self, error: Exception) -> str | Exception:
        """What somebody is told whose changes end with an error."""
        if isinstance(error, Closed):
            return "dropped" if self.collection._engine.feed.dropped else "closed"
        return error

    def _is_quick(self, reader: Follower) -> bool:
        """Whether what comes next is little, and nobody holds the collection: then it is read
        here, which takes less than waking a thread."""
        engine = self.collection._engine
        begin, end = reader.position, engine.store.log.committed
        little = begin.segment == end.segment and end.offset - begin.offset < _PIECE_BYTES
        return little and not engine.lock.locked()

    def _forget(self) -> None:
        if self._hub.feeders.get(self._key) is self:
            del self._hub.feeders[self._key]

    async def _run(self) -> None:
        feed = self.collection._engine.feed
        reader: Follower | None = None
        try:
            reader = await self.work(Follower, feed, None, self.before)
            anchor = reader.twin()  # where the batch that is offered begins
            self.seq = reader.seq
            self._ready.set_result(None)
            with feed.hung(self._wake):
                while self._wanted:
                    self._wake.hush()
                    if self._is_quick(reader):
                        batch = _read(reader)
                        await asyncio.sleep(0)  # others, too
                    else:
                        batch = await self.work(_read, reader)
                    if batch is None:
                        await self._wake.rung()
                        continue
                    self.seq = batch.last
                    for following in list(self.followings):
                        following.offer(batch, anchor)
                    anchor.move_to(reader)
        except Exception as error:
            self._forget()
            self._failed = error
            if not self._ready.done():
                self._ready.set_exception(error)
            for following in list(self.followings):
                following.end(self.why(error))
        finally:
            self._forget()
            if reader is not None:
                reader.close()
                anchor.close()


async def follow(
    hub: Hub, caller: Caller, name: str, after: int | None, before: bool, identity: str | None,
    outbox: Outbox, turn: asyncio.Lock, wrap: Callable[[Sequence[Change]], bytes],
    *, prefix: bytes, on_end: OnEnd,
) -> Following:  # fmt: skip
    """A following of a collection that a caller may read; start it."""
    collection, visible = _seen_by(hub, caller, name)
    if identity is not None and identity != collection.identity:
        raise hub.absent(Conflict(
            "the collection was dropped and made again since: read it anew",
            collection=name, identity=collection.identity,
        ))  # fmt: skip
    with_old = before or visible is not None
    feeder = await Feeder.of(hub, collection, with_old)
    try:
        own = await feeder.work(Follower, collection._engine.feed, after, with_old)
    except BaseException:
        feeder.leave(None)
        raise
    shown = None if visible is None else partial(Batch.seen, visible=visible, before=before)
    return Following(feeder, own, outbox, turn, wrap, prefix=prefix, seen=shown, on_end=on_end)


def _seen_by(hub: Hub, caller: Caller, name: str) -> tuple[Any, Visible | None]:
    """A collection that a caller may read, and what of its changes (None: all of them)."""
    caller.need("read", name)
    rule = caller.rule(name)
    found = hub.db._collections.get(name)
    if found is None:
        raise hub.absent(NotFound("no such collection", name=name))
    return found, None if rule is None else partial(seen, rule=rule)


def begin_after(text: str | None, given: int | None) -> int | None:
    """Where an event stream goes on: `Last-Event-ID`, else what the address says.

    >>> begin_after("17", 3), begin_after(None, 3)
    (17, 3)
    """
    if text is None:
        return given
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidRequest("Last-Event-ID must be the seq of a change", last_event_id=text)
    return int(text)
