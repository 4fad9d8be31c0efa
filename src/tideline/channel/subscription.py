"""A subscription as its user holds it: what has happened, then what happens.

    channel --deliver--> inbox --> take(), for ..., async for ...

Iteration waits for the next event and ends when the subscription expires (by the
database's clock), is cancelled, or the database closes; what arrived before that is
still handed out. A handle is fed only while somebody holds it; after a restart, or when
it was let go, `Channel.resume` gives it back with what it missed.

Safe from any thread; several iterators share one queue, each event goes to one of them. How waiting
and delivering bear interrupts: inbox.py.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from tideline.channel.checks import wait_us
from tideline.channel.inbox import FORKED, Inbox
from tideline.clock import FOREVER, Seconds, from_us
from tideline.lsm.bell import Bell, LoopBell
from tideline.model import Event
from tideline.protocols import Place

__all__ = ["Source", "Subscription"]


class Source(Protocol):
    """What a handle asks of the channel that feeds it."""

    def check_open(self) -> None:
        """`Closed` when the channel is closed."""

    def now(self) -> int:
        """The channel's time."""

    def look(self, handle: Subscription) -> None:
        """Fetch what does not come by itself."""

    def wait(self, handle: Subscription, bell: Bell, limit_us: int = FOREVER) -> None:
        """Wait for the bell, the end of the window, the next moment to look, or a clock's time."""

    def clock_us(self) -> int:
        """The time of the clock that `wait` goes by."""
        ...

    def cancel_handle(self, handle: Subscription) -> None:
        """End the subscription of a handle."""

    def move_handle(self, handle: Subscription, place: Any) -> None:
        """Have the subscription of a handle watch another place."""

    def follow(self, inbox: Inbox, follower: Any, ended: Any) -> None:
        """`Inbox.follow`, while nobody delivers."""


class Subscription:
    """A stored question, its past answers, and the stream of its live ones."""

    # Slots and few, cheap assignments: making this is a good part of what `subscribe` costs.
    __slots__ = (
        "__weakref__", "_load", "_past", "_source", "duplicate", "first_seq", "id", "inbox",
        "place", "seq", "since_us", "unseen", "until_us", "user", "where",
    )  # fmt: skip

    def __init__(
        self, source: Source, id: str, user: str, place: Any, since_us: int, until_us: int,
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
        self.inbox = Inbox(seq)
        self.duplicate = False
        self._source = source
        self._load = past
        self._past: list[Event] | None = None

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
        load = self._load  # before `_past`: another thread may be loading it
        if self._past is None:
            # By `iter`: a list would first ask how many there are, and that is a walk over them.
            self._past, self._load = [] if load is None else list(iter(load())), None
        return self._past

    @property
    def has_decoded_past(self) -> bool:
        """Whether `past` is there at once: nothing of it is still to be decoded."""
        return self._load is None

    @property
    def expired(self) -> bool:
        """Whether nothing new can come: expired, cancelled or closed."""
        return self._over()

    def take(self, timeout_s: Seconds | None = None) -> list[Event]:
        """What arrived since the last take, in order.

        timeout_s: how long to wait for at least one event, by the database's clock. Nothing when
            none came in that time, or when the subscription ended. Without it: no waiting.

        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     roads = db.channel("roads")
        ...     sub = roads.subscribe("I-87", user="ann", until_s=60)
        ...     told = roads.publish("I-87", {"lanes": 2}, ttl_s=60)
        ...     [event.body for event in sub.take(timeout_s=5)], sub.take(timeout_s=0.01)
        ([{'lanes': 2}], [])
        """
        wait = wait_us(timeout_s)
        self.look()
        events = self.inbox.take()
        if events or not wait:
            return events
        limit_us = self._source.clock_us() + wait
        while True:
            bell = Bell()
            with self.inbox.hung(bell):
                self._look()
                events = self.inbox.take()
                if events or self._over() or self._source.clock_us() >= limit_us:
                    return events
                self._source.wait(self, bell, limit_us)

    def look(self) -> None:
        """Fetch what does not come by itself; `take` hands it out."""
        self._source.check_open()
        self._source.look(self)

    def move(self, place: Place) -> None:
        """Watch another place from now on; the window, the condition and the queue stay.

        What is valid at the new place and was no answer before is delivered, after what had
        arrived. `NotFound` when the subscription has ended.

        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     roads = db.channel("roads")
        ...     told = roads.publish("I-90", {"lanes": 1}, ttl_s=60)
        ...     sub = roads.subscribe("I-87", user="ann", since_s=-60, until_s=60)
        ...     sub.move("I-90")
        ...     [event.body for event in sub.take()], sub.place
        ([{'lanes': 1}], 'I-90')
        """
        if self.inbox.ended == FORKED:
            self._source.check_open()
        self._source.move_handle(self, place)

    def cancel(self) -> None:
        """End the subscription. Cancelling one that has ended is allowed."""
        if self.inbox.ended == FORKED:
            self._source.check_open()
        self._source.cancel_handle(self)

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
            with self.inbox.hung(bell):
                event = self.inbox.first()
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
            with self.inbox.hung(bell):
                event = self.inbox.first()
                if event is not None or self._over():
                    return event
                self._wait(bell)

    # What iteration asks of where the events come from; a client's handle answers otherwise.

    def _look(self) -> None:
        """Fetch what does not come by itself."""
        if self.inbox.ended == FORKED:
            self._source.check_open()
        self._source.look(self)

    def _over(self) -> bool:
        """Whether nothing new can come."""
        return bool(self.inbox.ended) or self._source.now() >= self.until_us

    def _wait(self, bell: Bell) -> None:
        """Wait for an event, the end, or the next moment to look."""
        self._source.wait(self, bell)

    def _alarm(self) -> None:
        """Wake async readers by the clock, too: at the end of the window or the next look."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        bell = Bell()
        with self.inbox.hung(bell):
            if not self.inbox.arrived and not self._over():
                self._wait(bell)
        self.inbox.ring()

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
        self._source.follow(self.inbox, deliver, ended)
        if self.inbox.ended:
            self.inbox.tell_end()

    def unfollow(self) -> None:
        """Stop: what comes later waits for `take` again."""
        self.inbox.unfollow()

    def __repr__(self) -> str:
        return f"Subscription(id={self.id!r}, user={self.user!r}, place={self.place!r})"
