"""A subscription as its user holds it: what has happened, then what happens.

    channel --deliver--> queue --> take(), for ..., async for ...

Iteration waits for the next event and ends when the subscription expires (by the
database's clock), is cancelled, or the database closes; what arrived before that is
still handed out. A handle is fed only while somebody holds it; after a restart, or when
it was let go, `Channel.resume` gives it back with what it missed.

Safe from any thread; several iterators share one queue, each event goes to one of them.

An exception may be thrown into whoever waits (Ctrl-C above all) and into whoever delivers, so no
lock is held here: a `threading.Condition` that is entered at the wrong moment stays locked for
ever. Whoever waits hangs up a bell, looks whether something is there, and waits for the bell.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tideline.clock import from_us
from tideline.lsm.bell import Bell, LoopBell
from tideline.model import Event

if TYPE_CHECKING:
    from tideline.channel.channel import Channel

__all__ = ["Handles", "Subscription"]

_MAKING = threading.Lock()
_FORKED = "forked"
_Follower = tuple[Callable[[Sequence[Event], str], None], Callable[[str], None] | None]


def _forked() -> None:
    global _MAKING
    _MAKING = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_forked)


class Subscription:
    """A stored question, its past answers, and the stream of its live ones."""

    # Slots and few, cheap assignments: making this is a good part of what `subscribe` costs.
    __slots__ = (
        "__weakref__", "_arrived", "_bells", "_channel", "_delivered", "_ended", "_follower",
        "_load", "_past", "duplicate", "first_seq", "id", "place", "seq", "since_us", "unseen",
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
        self._delivered = seq  # the number of the last delivery
        # Made when somebody first waits: most subscriptions are never waited for.
        self._bells: set[Bell] | None = None
        self.duplicate = False
        self._ended = ""  # why, once it has
        self._follower: _Follower | None = None

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
        fresh: deque[Event] = deque()
        # One step, without a call: no exception comes between, and no other thread.
        taken, self._arrived = self._arrived, fresh
        return [*taken]

    def cancel(self) -> None:
        """End the subscription. Cancelling one that has ended is allowed."""
        if self._ended == _FORKED:
            self._channel._check_open()
        self._channel._cancel_handle(self)

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self._next()
            if event is None:
                return
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            self._look()
            bell = LoopBell()
            with self._hung(bell):
                event = self._first()
                if event is None:
                    if self._over():
                        return
                    self._alarm()
                    await bell.rung()
            if event is not None:
                yield event

    def _next(self) -> Event | None:
        while True:
            self._look()
            bell = Bell()
            with self._hung(bell):
                event = self._first()
                if event is not None or self._over():
                    return event
                self._wait(bell)

    def _first(self) -> Event | None:
        try:
            return self._arrived.popleft()
        except IndexError:
            return None

    @contextlib.contextmanager
    def _hung(self, bell: Bell) -> Iterator[None]:
        """Have a bell rung at whatever happens."""
        # Whoever waits hangs it up first and looks into the queue afterwards; whoever delivers
        # fills the queue first and rings afterwards. So no event is slept over.
        if self._bells is None:
            with _MAKING:
                if self._bells is None:
                    self._bells = set()
        bells = self._bells
        bells.add(bell)
        try:
            yield
        finally:
            bells.discard(bell)

    # What iteration asks of where the events come from; a client's handle answers otherwise.

    def _look(self) -> None:
        """Fetch what does not come by itself."""
        if self._ended == _FORKED:
            self._channel._check_open()
        self._channel._poll(self)

    def _over(self) -> bool:
        """Whether nothing new can come."""
        return bool(self._ended) or self._channel._now() >= self.until_us

    def _wait(self, bell: Bell) -> None:
        """Wait for an event, the end, or the next poll."""
        self._channel.clock.wait(bell, self._channel._wake_at(self))  # type: ignore[arg-type]

    def _alarm(self) -> None:
        """Wake async readers by the clock, too: at the end of the window or the next poll."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        bell = Bell()
        with self._hung(bell):
            if not self._arrived and not self._over():
                self._wait(bell)
        self._notify()

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

    def _deliver(self, events: list[Event], number: int | None = None) -> None:
        """Hand out events. A delivery that has a number is taken once: numbers rise."""
        if number is not None and number <= self._delivered:
            self._notify()
            return
        follower = self._follower
        if follower is not None:
            follower[0](events, "live")
            if number is not None:
                self._delivered = number
            return
        # One step: no exception comes between assignments without a call.
        if number is None:
            self._arrived += events
        else:
            self._arrived += events; self._delivered = number  # noqa: E702 # fmt: skip
        self._notify()

    def _end(self, reason: str) -> None:
        self._close(reason)
        self._tell_end()

    def _close(self, reason: str) -> None:
        """Nothing comes any more; the follower is still to be told."""
        self._ended = reason
        self._notify()

    def _leave_to_parent(self) -> None:
        """In a forked child: what comes is the parent's."""
        self._ended = _FORKED
        self._arrived.clear()
        self._follower = self._bells = None

    def _tell_end(self) -> None:
        follower: _Follower | None = None
        try:
            with _MAKING:  # whoever gets the follower tells it, nobody else
                follower, self._follower = self._follower, None
            if follower is not None and follower[1] is not None:
                follower[1](self._ended)
        except BaseException:
            if follower is not None:
                self._follower = follower  # whoever tries again tells it
            raise

    def _notify(self) -> None:
        if self._bells:
            for bell in tuple(self._bells):
                bell.notify_all()

    def __repr__(self) -> str:
        return f"Subscription(id={self.id!r}, user={self.user!r}, place={self.place!r})"


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

    def leave_to_parent(self) -> list[Subscription]:
        """In a forked child: those that nobody feeds any more."""
        held, self._held = list(self._held.values()), {}
        return [handle for ref in held if (handle := ref()) is not None]

    def end(self) -> None:
        """End all of them."""
        for ref in list(self._held.values()):
            handle = ref()
            if handle is not None:
                handle._end("closed")
        self._held.clear()
