"""The values users hold: events, what publish and apply return, facts about a channel.

Times inside are integer microseconds (`at_us`); the properties give datetimes.
An event or a list of answers that came out of the store keeps the bytes it came in
and decodes them when asked: most callers look at few of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tideline.clock import from_us

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Applied",
    "ChannelStats",
    "Event",
    "Report",
    "Subscriber",
    "SubscriptionInfo",
    "Told",
]

_MISSING: Any = object()


class Event:
    """Something that happened at a place and stays valid for a while.

    >>> event = Event("e1", "a/1", 1_000_000, 6_000_000, 7, body={"n": 1})
    >>> event.at.isoformat(), event.body, event.token
    ('1970-01-01T00:00:01+00:00', {'n': 1}, '000000000000000007')
    """

    __slots__ = ("_body", "_raw", "at_us", "id", "place", "seq", "until_us")

    def __init__(
        self, id: str, place: Any, at_us: int, until_us: int, seq: int,
        *, body: Any = _MISSING, raw: bytes = b"",
    ) -> None:  # fmt: skip
        self.id = id
        self.place = place
        self.at_us = at_us
        self.until_us = until_us
        self.seq = seq
        self._body = body
        self._raw = raw

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
        if self._body is _MISSING:
            self._body = msgspec.json.decode(self._raw)
        return self._body

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


class LateEvent(Event):
    """An event that became an answer after it had arrived: a prolonged window let it in.

    >>> event = Event("e1", "a/1", 1_000_000, 6_000_000, 7, body={"n": 1})
    >>> late = LateEvent.of(event, 9)
    >>> late.token, late == event
    ('000000000000000009.000000000000000007', True)
    """

    __slots__ = ("found",)
    found: int

    @classmethod
    def of(cls, event: Event, found: int) -> LateEvent:
        """An event, found by the record with a seq."""
        late = cls(
            event.id, event.place, event.at_us, event.until_us, event.seq,
            body=event._body, raw=event._raw,
        )  # fmt: skip
        late.found = found
        return late

    @property
    def token(self) -> str:
        """Where a subscriber stands after this event: after what came before it was let in."""
        return f"{self.found:018d}.{self.seq:018d}"


class Subscriber(NamedTuple):
    """Who must be told: a subscription and its user."""

    id: str
    user: str


class Told:
    """What `publish` returns."""

    __slots__ = ("_load", "_subscriptions", "duplicate", "event", "related")

    def __init__(
        self, event: Event, load: Callable[[], list[Subscriber]] | None, related: list[Event],
        duplicate: bool = False,
    ) -> None:  # fmt: skip
        self.event = event
        self.related = related
        self.duplicate = duplicate
        self._load = load
        self._subscriptions: list[Subscriber] | None = None if load else []

    @property
    def subscriptions(self) -> list[Subscriber]:
        """The subscriptions the event answers, in order of their arrival."""
        if self._subscriptions is None:
            assert self._load is not None
            self._subscriptions = self._load()
            self._load = None
        return self._subscriptions

    def __repr__(self) -> str:
        return f"Told(event={self.event!r}, subscriptions={self.subscriptions!r})"


@dataclass(frozen=True)
class SubscriptionInfo:
    """A stored subscription, as `Channel.subscriptions` lists it."""

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


@dataclass(frozen=True)
class Report:
    """What `Database.check` verified."""

    channels: int
    components: int
    bytes_checked: int
