"""What channels give: events, who is told of them, subscriptions, what a batch did.

An event or a list of answers that came out of the store keeps the bytes it came in
and decodes them when asked: most callers look at few of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from tideline.clock import from_us

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = [
    "Applied", "ChannelStats", "Event", "LateEvent", "RetractedEvent", "Subscriber",
    "SubscriptionInfo", "Told",
]  # fmt: skip


class Event(msgspec.Struct, eq=False, gc=False, array_like=True):
    """Something that happened at a place and stays valid for a while.

    A struct of msgspec's: one is made for every publish, and in C that takes a fifth of the time.
    As an array, so that those that a subscription finds are made of MessagePack, all in one go.

    >>> event = Event("e1", "a/1", 1_000_000, 6_000_000, 7, b'{"n": 1}')
    >>> event.at.isoformat(), event.body, event.token
    ('1970-01-01T00:00:01+00:00', {'n': 1}, '000000000000000007')
    """

    id: str
    place: Any
    at_us: int
    until_us: int
    seq: int
    raw: bytes
    """The body as JSON text."""
    _body: Any = msgspec.UNSET

    @property
    def at(self) -> datetime:
        """When it happened."""
        found = from_us(self.at_us)
        assert found is not None
        return found

    @property
    def until(self) -> datetime | None:
        """When it stops being valid; `None` for never."""
        return from_us(self.until_us)

    @property
    def body(self) -> Any:
        """What was published."""
        if self._body is msgspec.UNSET:
            self._body = msgspec.json.decode(self.raw)
        return self._body

    @property
    def retracted(self) -> bool:
        """Whether this tells that the event is valid no more: `Channel.retract`."""
        return False

    @property
    def token(self) -> str:
        """Where a subscriber stands after this event: for `Channel.resume`."""
        return f"{self.seq:018d}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return (self.id, self.seq, self.at_us) == (other.id, other.seq, other.at_us)

    def __hash__(self) -> int:
        return hash((self.id, self.seq))

    def __repr__(self) -> str:
        return f"Event(id={self.id!r}, place={self.place!r}, at={self.at}, body={self.body!r})"


class LateEvent(Event, eq=False, gc=False, array_like=True):
    """An event that became an answer after it had arrived: a prolonged window let it in.

    >>> event = Event("e1", "a/1", 1_000_000, 6_000_000, 7, b'{"n": 1}')
    >>> late = LateEvent.of(event, 9)
    >>> late.token, late == event
    ('000000000000000009.000000000000000007', True)
    """

    found: int = -1
    """The seq of the record that let it in."""

    @classmethod
    def of(cls, event: Event, found: int) -> Self:
        """An event, found by the record with a seq."""
        return cls(
            event.id, event.place, event.at_us, event.until_us, event.seq, event.raw, found=found
        )

    @property
    def token(self) -> str:
        """Where a subscriber stands after this event: after what came before it was let in."""
        return f"{self.found:018d}.{self.seq:018d}"


class RetractedEvent(LateEvent, eq=False, gc=False, array_like=True):
    """An event that is valid no more, as whoever was told of it and asked for it is told.

    >>> event = Event("e1", "a/1", 1_000_000, 6_000_000, 7, b'{"n": 1}')
    >>> gone = RetractedEvent.of(event, 9)
    >>> gone.id, gone.retracted, event.retracted
    ('e1', True, False)
    """

    @property
    def retracted(self) -> bool:
        """Whether this tells that the event is valid no more."""
        return True

    def __repr__(self) -> str:
        return f"RetractedEvent(id={self.id!r}, place={self.place!r}, at={self.at})"


class Subscriber(NamedTuple):
    """Who must be told: a subscription and its user."""

    id: str
    user: str


class Told(msgspec.Struct, eq=False):
    """What `publish` returns."""

    event: Event
    _load: Callable[[], list[Subscriber]] | None
    related: list[Event]
    """The events at the same place that were valid, if they were asked for."""
    duplicate: bool = False
    """Whether the event was there already: the call was made twice."""
    _subscriptions: list[Subscriber] | None = None

    @property
    def subscriptions(self) -> list[Subscriber]:
        """The subscriptions the event answers, in order of their arrival."""
        if self._subscriptions is None:
            self._subscriptions = [] if self._load is None else self._load()
            self._load = None
        return self._subscriptions

    def __repr__(self) -> str:
        return f"Told(event={self.event!r}, subscriptions={self.subscriptions!r})"


@dataclass(frozen=True, repr=False)
class SubscriptionInfo:
    """A stored subscription, as `Channel.subscriptions` lists it.

    >>> SubscriptionInfo("s1", "ann", "I-87", 0, 60_000_000, None, False).until.minute
    1
    """

    id: str
    user: str
    place: Any
    since_us: int
    until_us: int
    where: dict[str, Any] | None
    unseen: bool
    cursor: str = field(default="", compare=False, repr=False)
    """Where a list that ends with this one goes on, for `Channel.subscriptions`."""

    @property
    def since(self) -> datetime | None:
        """The window's start."""
        return from_us(self.since_us)

    @property
    def until(self) -> datetime | None:
        """The window's limit; `None` for never."""
        return from_us(self.until_us)

    def __repr__(self) -> str:
        return (
            f"SubscriptionInfo(id={self.id!r}, user={self.user!r}, place={self.place!r}, "
            f"since={self.since}, until={self.until}, where={self.where!r}, unseen={self.unseen})"
        )


@dataclass(frozen=True)
class Applied:
    """What `Channel.apply` returns.

    `answers`: row, subscription, event, user, kind ("past" or "live"). Texts are dictionaries;
    those of a large batch come in chunks, each with dictionaries of its own (a file of Arrow's IPC
    format wants one: `answers.unify_dictionaries()`).
    `rejected`: row, reason. The rows that are not in `rejected` have landed.
    """

    answers: pa.Table
    rejected: pa.Table
    repeated: bool = False
    """Whether this was a writer's batch that had landed before: nothing was done."""


@dataclass(frozen=True)
class ChannelStats:
    """What a channel holds and has done."""

    events: int
    subscriptions: int
    windows: int
    components: int
    bytes_memory: int
    bytes_disk: int
    bytes_log: int
    answers: int
    dropped: int
    late: int
