"""The values users hold: events, what verbs return, facts about channels and collections.

Times inside are integer microseconds (`at_us`); the properties give datetimes.
An event or a list of answers that came out of the store keeps the bytes it came in
and decodes them when asked: most callers look at few of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import msgspec

from tideline.clock import from_us
from tideline.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Advice",
    "Appended",
    "Applied",
    "Change",
    "ChannelStats",
    "CollectionStats",
    "ComponentsRead",
    "Considered",
    "Event",
    "Explanation",
    "IndexStats",
    "LiveChange",
    "Nearest",
    "Pane",
    "Report",
    "Stored",
    "Subscriber",
    "SubscriptionInfo",
    "Told",
    "Updated",
    "Versioned",
    "WatchPlan",
    "WindowStats",
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


class LiveChange(msgspec.Struct, eq=False, gc=False):
    """One step of the result of a live query.

    Apply them in order: "add" puts `document` at `index`; "remove" takes what is at `old_index`
    away; "change" puts `document` in the place of what is there; "changeIndex" does that and moves
    it. Without positions, an "add" and a "change" make their document the newest.

    >>> change = LiveChange("change", 1, 7, 0, 0, b'{"id": 1, "n": 2}', b'{"id": 1, "m": 0}')
    >>> change.document, change.fields, change.gone
    ({'id': 1, 'n': 2}, {'n': 2}, ['m'])
    """

    kind: Literal["add", "change", "changeIndex", "remove"]
    key: Any
    """The key of the document; of groups the value that they are grouped by, or a tuple of them."""
    version: int
    """The seq of the write that made it; one write may make several changes."""
    old_index: int | None
    """Where it was; None for "add", and for queries without positions."""
    index: int | None
    """Where it is; None for "remove", and for queries without positions."""
    raw: bytes | None
    """The document as JSON text; None for "remove"."""
    raw_before: bytes | None = None
    """What the result had before, as JSON text; None for "add"."""
    _document: Any = msgspec.UNSET
    _before: Any = msgspec.UNSET

    @property
    def document(self) -> dict[str, Any] | None:
        """The document from this version on; None for "remove"."""
        if self._document is msgspec.UNSET:
            self._document = None if self.raw is None else msgspec.json.decode(self.raw)
        found: dict[str, Any] | None = self._document
        return found

    @property
    def before(self) -> dict[str, Any] | None:
        """The document that the result had until this version; None for "add"."""
        if self._before is msgspec.UNSET:
            self._before = None if self.raw_before is None else msgspec.json.decode(self.raw_before)
        found: dict[str, Any] | None = self._before
        return found

    @property
    def known_document(self) -> Any:
        """The document if it was decoded before, else None."""
        return None if self._document is msgspec.UNSET else self._document

    @property
    def fields(self) -> dict[str, Any]:
        """What of the document is new or different: all of it for "add"."""
        document, before = self.document or {}, self.before or {}
        return {
            name: value for name, value in document.items()
            if name not in before or not _same(value, before[name])
        }  # fmt: skip

    @property
    def gone(self) -> list[str]:
        """The fields that the document had before and has no more; none for "remove"."""
        document = self.document
        return (
            [] if document is None else [name for name in self.before or {} if name not in document]
        )

    def __repr__(self) -> str:
        places = {"old_index": self.old_index, "index": self.index}
        shown = "".join(f", {name}={at}" for name, at in places.items() if at is not None)
        return (f"LiveChange({self.kind!r}, key={self.key!r}, version={self.version}{shown}, "
                f"document={self.document!r})")  # fmt: skip


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same: 1 is neither True nor 1.0."""
    return type(one) is type(other) and one == other and (
        not isinstance(one, (dict, list)) or msgspec.json.encode(one) == msgspec.json.encode(other)
    )  # fmt: skip


@dataclass(frozen=True)
class WatchPlan:
    """What `Collection.explain_watch` tells: how a live query is kept up to date, at what cost."""

    filed: str
    """What of a write leads to it, as "value on shop"; or that it is always looked at."""
    indexed: bool
    """Whether a write that does not concern it passes by without looking at it."""
    beside: int
    """How many queries, with this one, a write is held against that is filed in the same place."""
    standing: int
    """How many different queries stand now."""
    kept: int | None
    """How many documents are kept for it beside what its readers keep; None: all that it finds."""
    shared: int
    """How many watch this very query already."""

    def __str__(self) -> str:
        kept = "its whole result" if self.kept is None else f"{self.kept} documents"
        return (f"{self.filed}, with {self.beside - 1} others; keeps {kept}; "
                f"{self.standing} queries stand, {self.shared} watch this one")  # fmt: skip


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


class Nearest(NamedTuple):
    """A document that `Collection.nearest` found, and how far it is."""

    document: dict[str, Any]
    metres: float
    """To the nearest point of its place, along the great circle."""


@dataclass(frozen=True)
class Considered:
    """A way to find documents that the planner weighed."""

    way: str
    """"key" or "keys" (by primary key, one or a range), "index", "intersection" or "scan"."""
    field: str | None
    """Of an intersection, the fields of its indexes: "at and name"; so are the kinds."""
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
class ComponentsRead:
    """What was searched of an index, or of the documents, and what was skipped unread."""

    field: str | None
    """Of the index; None for the documents themselves."""
    searched: int
    """Components; what is in memory is searched beside them."""
    skipped: int
    why: tuple[str, ...] = ()
    """Why components were skipped."""
    candidates: int | None = None
    """Of an index that was intersected with others: how many it gave; None if it was not asked."""
    left: int | None = None
    """How many all of them gave together."""

    def __str__(self) -> str:
        """In a line.

        >>> print(ComponentsRead("at", 2, 5, ("5 by the filter: time in [7, 9]",), 40, 3))
        the index on at: 2 components searched, 5 skipped (5 by the filter: time in [7, 9]); \
40 candidates, 3 of them in all indexes
        """
        name = "the documents" if self.field is None else f"the index on {self.field}"
        why = f" ({'; '.join(self.why)})" if self.why else ""
        found = f"{name}: {self.searched} components searched, {self.skipped} skipped{why}"
        if self.candidates is None:
            return found
        return f"{found}; {self.candidates} candidates, {self.left} of them in all indexes"


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
    components: tuple[ComponentsRead, ...] = ()
    """Of each index, and of the documents, that was searched for them."""

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
        lines += [f"  {each}" for each in self.components if each.searched or each.skipped]
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
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Those that its kind was made with."""
    bytes_sealed: int = 0
    """Of components that were written first, since it was opened: sealed, or built."""
    bytes_merged: int = 0
    """Of components that were made of others."""

    @property
    def write_amplification(self) -> float | None:
        """How often a byte was written since it was opened; None before the first."""
        return _amplification(self.bytes_sealed, self.bytes_merged)


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
    standing_queries: int = 0
    """Different live queries that stand on it now."""
    bytes_sealed: int = 0
    """Of components of the documents that were written first, since it was opened."""
    bytes_merged: int = 0
    """Of those that were made of others."""

    @property
    def write_amplification(self) -> float | None:
        """How often a byte of the documents was written since it was opened; None before one."""
        return _amplification(self.bytes_sealed, self.bytes_merged)


def _amplification(sealed: int, merged: int) -> float | None:
    return (sealed + merged) / sealed if sealed else None


@dataclass(frozen=True)
class Appended:
    """What `StreamWindow.append` returns."""

    stored: int
    """How many rows are in the window now."""
    late: int
    """How many came after their sub-window had gone; they are counted, not stored."""
    rejected: pa.Table
    """row, reason: those that are not as declared, or too far ahead of the clock."""
    repeated: bool = False
    """Whether this was a writer's batch that had landed before: nothing was done."""


@dataclass(frozen=True)
class Pane:
    """What a range became over [since, until), told when the window slid."""

    since: datetime
    until: datetime
    value: Any
    missed: int = 0
    """How many panes were left out before this one: whoever watches was too slow."""


@dataclass(frozen=True)
class WindowStats:
    """What a stream window holds and has done since it was opened."""

    rows: int
    """Rows that are stored; of `keep="last"`, keys that came again count until they are sealed."""
    sub_windows: int
    """Sub-windows with rows in them."""
    components: int
    bytes_memory: int
    bytes_disk: int
    bytes_log: int
    appended: int
    late: int
    """Rows that came too late, ever."""
    dropped: int
    """Sub-windows that were let go of, whole."""
    watches: int
    until: datetime | None
    """When the open sub-window ends; None before the first row."""


@dataclass(frozen=True)
class Report:
    """What `Database.check` verified."""

    channels: int
    components: int
    bytes_checked: int
    collections: int = 0
    windows: int = 0
