"""The values users hold: events, what verbs return, facts about channels and collections.

Times inside are integer microseconds (`at_us`); the properties give datetimes.
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
from tideline.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Advice",
    "Applied",
    "Change",
    "ChannelStats",
    "CollectionStats",
    "Considered",
    "Event",
    "Explanation",
    "IndexStats",
    "Report",
    "Stored",
    "Subscriber",
    "SubscriptionInfo",
    "Told",
    "Updated",
    "Versioned",
]


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


class Change(msgspec.Struct, eq=False, gc=False):
    """One write to a collection: what a key had before it and has after it.

    The texts are as they were stored; `before` and `after` decode them when they are first asked
    for.

    >>> change = Change(7, "a", b'{"id": "a", "n": 2}', None)
    >>> change.after, change.before, change.is_delete
    ({'id': 'a', 'n': 2}, None, False)
    """

    seq: int
    """The number of the write: 1, 2, 3 and so on."""
    key: int | str
    raw_after: bytes | None
    """The document as JSON text; None for a delete."""
    raw_before: bytes | msgspec.UnsetType | None = msgspec.UNSET
    """The document that it replaced or deleted, None if there was none; unset if not asked for."""
    _after: Any = msgspec.UNSET
    _before: Any = msgspec.UNSET

    @property
    def after(self) -> dict[str, Any] | None:
        """The document from this write on; None for a delete."""
        if self._after is msgspec.UNSET:
            self._after = None if self.raw_after is None else msgspec.json.decode(self.raw_after)
        found: dict[str, Any] | None = self._after
        return found

    @property
    def before(self) -> dict[str, Any] | None:
        """The document until this write; None if there was none. Asked for with before=True."""
        if self._before is msgspec.UNSET:
            raw = self.raw_before
            if isinstance(raw, msgspec.UnsetType):
                raise InvalidRequest("old versions were not asked for: use changes(before=True)")
            self._before = None if raw is None else msgspec.json.decode(raw)
        found: dict[str, Any] | None = self._before
        return found

    @property
    def is_delete(self) -> bool:
        """Whether there is no document after it."""
        return self.raw_after is None

    def __repr__(self) -> str:
        before = "" if self.raw_before is msgspec.UNSET else f", before={self.before!r}"
        return f"Change(seq={self.seq}, key={self.key!r}{before}, after={self.after!r})"


@dataclass(frozen=True)
class Stored:
    """What `Collection.put_many` returns."""

    stored: int
    """How many documents are stored now."""
    rejected: pa.Table
    """row, reason. The rows that are not in it are stored."""


class Versioned(NamedTuple):
    """A document with its version, from `Collection.versioned`."""

    document: dict[str, Any]
    version: int
    """The seq of the write that made it: every write gives a document another, greater one."""


@dataclass(frozen=True)
class Updated:
    """What `Collection.update_many` returns."""

    matched: int
    """How many documents met the condition."""
    changed: int
    """How many of them are different now: these have a new version."""


@dataclass(frozen=True)
class Considered:
    """A way to find documents that the planner weighed."""

    way: str
    """"key" or "keys" (by primary key, one or a range), "index" or "scan"."""
    field: str | None
    kind: str | None
    ranges: tuple[str, ...]
    documents: float
    """How many documents it would look at."""
    blocks: float
    """How many blocks of about 4 KiB it would read."""
    cost: float
    why: str
    """Why it was taken, or not."""


@dataclass(frozen=True)
class Explanation:
    """What `Collection.explain` tells: how a condition is answered, and what that took."""

    chosen: tuple[Considered, ...]
    """One way, or one for each part of an `$or`; none when nothing can meet the condition."""
    others: tuple[Considered, ...]
    blocks_expected: float
    blocks_read: int
    documents_expected: float
    looked_at: int
    found: int
    bloom_checks: int
    bloom_false: int
    """How often a bloom filter said yes and was wrong."""
    why: str | None = None
    """Why there is no way, when there is none."""

    def __str__(self) -> str:
        lines = [] if self.why is None else [f"* no way: {self.why}"]
        for mark, ways in (("*", self.chosen), (" ", self.others)):
            for way in ways:
                what = way.way if way.field is None else f"{way.way} on {way.field}"
                kind = "" if way.kind is None else f" ({way.kind})"
                ranges = f" in {', '.join(way.ranges[:3])}" if way.ranges else ""
                more = f" and {len(way.ranges) - 3} more" if len(way.ranges) > 3 else ""
                if way.way == "index" and way.kind is None:  # nothing was estimated
                    lines.append(f"{mark} {what}: {way.why}")
                    continue
                lines.append(f"{mark} {what}{kind}{ranges}{more}: about {way.documents:.0f} "
                             f"documents, {way.blocks:.0f} blocks; {way.why}")  # fmt: skip
        lines.append(f"  read {self.blocks_read} blocks, looked at {self.looked_at} documents, "
                     f"found {self.found}")  # fmt: skip
        return "\n".join(lines)


@dataclass(frozen=True)
class Advice:
    """What `Collection.advise` says of one field."""

    field: str
    now: str | None
    """The kind of its index, if it has one."""
    kind: str | None
    """The kind that fits best; None for no index."""
    why: str
    facts: dict[str, float | int | None]
    """What was measured: shares of the operations, the k used, the correlation with time."""


@dataclass(frozen=True)
class IndexStats:
    """An index of a collection."""

    field: str
    kind: str
    state: str
    """"ready", or "building" until everything that was there is in it."""
    components: int
    bytes_disk: int


@dataclass(frozen=True)
class CollectionStats:
    """What a collection holds and has done since it was opened."""

    versions: int
    """Puts and deletes that are stored. What was replaced or deleted, and the deletes themselves,
    count until they are merged away: how many documents there are is for `count()` to say."""
    components: int
    bytes_memory: int
    bytes_disk: int
    bytes_log: int
    puts: int
    deletes: int
    gets: int
    lookups: int
    finds: int
    primary_blocks: int
    index_blocks: int
    bloom_checks: int
    bloom_false: int
    indexes: tuple[IndexStats, ...]


@dataclass(frozen=True)
class Report:
    """What `Database.check` verified."""

    channels: int
    components: int
    bytes_checked: int
    collections: int = 0
