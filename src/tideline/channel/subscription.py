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
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tideline.clock import from_us
from tideline.model import Event

if TYPE_CHECKING:
    from tideline.channel.channel import Channel

__all__ = ["Handles", "Subscription"]

_MAKING = threading.Lock()
_Follower = tuple[Callable[[Sequence[Event], str], None], Callable[[str], None] | None]


class Subscription:
    """A stored question, its past answers, and the stream of its live ones."""

    # Slots and few, cheap assignments: making this is a good part of what `subscribe` costs.
    __slots__ = (
        "__weakref__", "_arrived", "_channel", "_condition", "_ended", "_follower", "_load",
        "_past", "_waiters", "duplicate", "first_seq", "id", "place", "seq", "since_us", "unseen",
        "until_us", "user", "where",
    )  # fmt: skip

    def __init__(
        self, channel: Channel, id: str, user: str, place: Any, since_us: int, until_us: int,
        where: dict[str, Any] | None, unseen: bool, seq: int,
        past: Callable[[], Sequence[Event]] | None,
    ) -> None:  # fmt: skip
        self.id = id
        self.user = user
        self.place = place
        self.where = where
        self.unseen = unseen
        self.since_us = since_us
        self.until_us = until_us
        self.seq = self.first_seq = seq  # prolonging changes the first of them
        self._channel = channel
        self._load = past
        self._past: list[Event] | None = None if past else []
        self._arrived: deque[Event] = deque()
        # Made when somebody first waits: most subscriptions are never waited for.
        self._condition: threading.Condition | None = None
        self.duplicate = False
        self._ended = ""  # why, once it has
        self._follower: _Follower | None = None
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
            # By `iter`: a list would first ask how many there are, and that is a walk over them.
            self._past, self._load = list(iter(self._load())), None
        return self._past

    @property
    def expired(self) -> bool:
        """Whether nothing new can come: expired, cancelled or closed."""
        return self._over()

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
            self._look()
            with self._changed:
                event = self._arrived.popleft() if self._arrived else None
                done = event is None and self._over()
                if event is None and not done:
                    waiter: asyncio.Future[None] = loop.create_future()
                    self._waiters = [*(self._waiters or ()), (loop, waiter)]
            if event is not None:
                yield event
                continue
            if done:
                return
            self._alarm()
            await waiter

    def _next(self) -> Event | None:
        while True:
            self._look()
            with self._changed:
                if self._arrived:
                    return self._arrived.popleft()
                if self._over():
                    return None
                self._wait()

    # What iteration asks of where the events come from; a client's handle answers otherwise.

    def _look(self) -> None:
        """Fetch what does not come by itself."""
        self._channel._poll(self)

    def _over(self) -> bool:
        """Whether nothing new can come."""
        return bool(self._ended) or self._channel._now() >= self.until_us

    def _wait(self) -> None:
        """Wait (the condition is held) for an event, the end, or the next poll."""
        self._channel.clock.wait(self._changed, self._channel._wake_at(self))

    def _alarm(self) -> None:
        """Wake async readers by the clock, too: at the end of the window or the next poll."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        with self._changed:
            if not self._arrived and not self._over():
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

    def follow(
        self, deliver: Callable[[Sequence[Event], str], None],
        ended: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        """Have answers handed to a function from now on, instead of to `take` and iteration.

        `deliver(events, kind)` gets the past ones first ("past"), once and even if there are none,
        decoded as it looks at them; then the live ones ("live") in order, in the thread of whoever
        publishes and while the channel waits: it must be quick, must not raise and must not call
        the channel. `ended(reason)` is told once when the subscription was "cancelled", "replaced"
        by a retry or resume elsewhere, or "closed"; that it expired, the clock tells.

        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     roads = db.channel("roads")
        ...     sub = roads.subscribe("I-87", user="ann", until_s=60)
        ...     sub.follow(lambda events, kind: print(kind, [event.body for event in events]))
        ...     told = roads.publish("I-87", {"lanes": 2}, ttl_s=60)
        past []
        live [{'lanes': 2}]
        """
        deliver(self._load() if self._load is not None else self.past, "past")
        with self._channel._engine.lock:
            waiting = list(self._arrived)
            self._arrived.clear()
            if waiting:
                deliver(waiting, "live")
            self._follower = (deliver, ended)
        if self._ended:
            self._tell_end()

    def unfollow(self) -> None:
        """Stop: what comes later waits for `take` again."""
        self._follower = None

    def _deliver(self, events: list[Event]) -> None:
        follower = self._follower
        if follower is not None:
            follower[0](events, "live")
            return
        self._arrived.extend(events)
        self._notify()

    def _end(self, reason: str) -> None:
        self._ended = reason
        self._notify()
        self._tell_end()

    def _tell_end(self) -> None:
        with _MAKING:  # whoever gets the follower tells it, nobody else
            follower, self._follower = self._follower, None
        if follower is not None and follower[1] is not None:
            follower[1](self._ended)

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

    def let_go(self, handle: Subscription) -> None:
        """Stop feeding a handle, whoever still holds it; it stays stored, and may be resumed."""
        if self.get(handle.seq) is handle:
            self._held.pop(handle.seq, None)

    def end(self) -> None:
        """End all of them."""
        for ref in list(self._held.values()):
            handle = ref()
            if handle is not None:
                handle._end("closed")
        self._held.clear()
