"""What every way in has: one protocol a kind of object, and the types of what it takes.

    embedded     tideline.open      Database         Channel         Collection   Subscription
    a server     tideline.connect   Remote           RemoteChannel   ...          satisfy the same

Code that takes one of these takes both:

>>> from tideline import protocols
>>> def alarm(db: protocols.Database, road: str) -> int:
...     told = db.channel("roads").publish(road, {"kind": "accident"}, ttl_s=600)
...     return len(told.subscriptions)

The twins for asyncio are in aprotocols.py. Protocols only say what is there; what each parameter
means is told here once, for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

from tideline.clock import Seconds
from tideline.model import (
    Advice,
    Appended,
    Applied,
    Change,
    ChannelStats,
    CollectionStats,
    Documents,
    Event,
    Explanation,
    LiveChange,
    Nearest,
    Pane,
    Stored,
    SubscriptionInfo,
    Told,
    Updated,
    Versioned,
    WatchPlan,
    WindowStats,
)
from tideline.space import Box, Circle, MultiPolygon, Polygon, Space

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Body", "Build", "Changes", "Channel", "Collection", "Database", "Document", "Durability",
    "Fields", "Given", "Indexes", "Key", "Live", "Names", "Panes", "Place", "Sort", "Subscription",
    "Where", "Window",
]  # fmt: skip

Place: TypeAlias = str | Sequence[float] | Circle | Box | Polygon | MultiPolygon | Mapping[str, Any]
"""Where: a name or path, (lon, lat), a shape, or a mapping: GeoJSON or {"lon", "lat"}."""
Body: TypeAlias = Mapping[str, Any] | Sequence[Any] | str | int | float | bool | datetime | None
"""What an event says: anything that has JSON."""
Durability: TypeAlias = Literal["os", "disk"]
"""What an acknowledged write survives: a killed process, or a power cut too."""
Where: TypeAlias = dict[str, Any]
"""A condition: a query document of MongoDB's."""
Key: TypeAlias = int | str
Document: TypeAlias = dict[str, Any]
Given: TypeAlias = Document | str | bytes
"""A document as it is given: a dict, or JSON text."""
Names: TypeAlias = str | Sequence[str] | None
"""A field, or several."""
Fields: TypeAlias = Sequence[str] | dict[str, int] | None
"""Which fields of documents are wanted: ["speed"], or {"text": 0} for all but these."""
Sort: TypeAlias = Any
"""[("time", -1), ...]: 1 up, -1 down."""
Indexes: TypeAlias = Mapping[str, str | Mapping[str, Any] | None] | Sequence[str]
"""Fields with the kind of their index, or fields alone."""


@runtime_checkable
class Subscription(Protocol):
    """A stored question, its past answers, and the stream of its live ones."""

    id: str
    user: str
    where: Where | None
    unseen: bool
    duplicate: bool
    """Whether the subscription was there already: the call was made twice."""

    @property
    def place(self) -> Any:
        """What is watched."""

    @property
    def since(self) -> datetime | None:
        """The window's start."""

    @property
    def until(self) -> datetime | None:
        """The window's limit; `None` for never."""

    @property
    def past(self) -> list[Event]:
        """What had already happened when it was made, in order of arrival."""

    @property
    def expired(self) -> bool:
        """Whether nothing new can come: expired, cancelled or closed."""

    def take(self, timeout_s: Seconds | None = None) -> list[Event]:
        """What arrived since the last take; waits up to `timeout_s` for the first."""

    def move(self, place: Place) -> None:
        """Watch another place from now on."""

    def cancel(self) -> None:
        """End the subscription. Cancelling one that has ended is allowed."""

    def __iter__(self) -> Iterator[Event]: ...


@runtime_checkable
class Channel(Protocol):
    """Events and subscriptions side by side."""

    @property
    def name(self) -> str:
        """What it is known by."""

    @property
    def space(self) -> Space:
        """How places relate."""

    @property
    def layout(self) -> str:
        """How it is stored: dual, two or poll."""

    @property
    def identity(self) -> str:
        """What tells it from every other, of the same name too."""

    @property
    def max_ahead_s(self) -> float:
        """How far ahead of the clock a row of a batch may be."""

    def publish(
        self, place: Place, body: Body, *, id: str | None = None, at: datetime | None = None,
        ttl_s: Seconds | None = None, until: datetime | None = None, related: bool = False,
        replace: bool = False,
    ) -> Told:  # fmt: skip
        """Store an event and return whom it answers.

        place: where it happened (`Place`). body: what is told (`Body`). id: makes a retry safe;
        one is made if there is none. at: when it happened, now by default. ttl_s, until: how long
        it is valid, for ever by default. related: also return the valid earlier events there.
        replace: end the valid event with this id, wherever it is.
        """

    def subscribe(
        self, place: Place, *, user: str, id: str | None = None, since_s: Seconds | None = None,
        since: datetime | None = None, until_s: Seconds | None = None,
        until: datetime | None = None, where: Where | None = None, unseen: bool = False,
        retractions: bool = False,
    ) -> Subscription:  # fmt: skip
        """Store a subscription; its `past` is there at once, what happens later is delivered.

        place: what is watched. user: whose it is. id: makes a retry safe. since_s, since: where the
        window begins, now by default; negative seconds are the past. until_s, until: where it
        ends, never by default. where: a condition on bodies. unseen: leave out what an earlier
        subscription of the user was answered with. retractions: be told when an event is retracted.
        """

    def retract(self, id: str) -> None:
        """End an event; `NotFound` if no valid one has this id."""

    def cancel(self, id: str) -> None:
        """End a subscription; `NotFound` if there is none (any more)."""

    def prolong(
        self, id: str, *, until_s: Seconds | None = None, until: datetime | None = None
    ) -> SubscriptionInfo:
        """Let a subscription's window end at another time, later or earlier."""

    def move(self, id: str, place: Place) -> SubscriptionInfo:
        """Have a subscription watch another place; its handle goes on."""

    def resume(
        self, id: str, after: str | None = None, *, retractions: bool = False
    ) -> Subscription:
        """A stored subscription given back, with what it missed.

        after: the token of the last event that was handled; all that is valid by default.
        """

    def get(self, id: str) -> Event | None:
        """The event with this id, if it is still valid."""

    def find(
        self, place: Place, *, since_s: Seconds | None = None, since: datetime | None = None,
        until_s: Seconds | None = None, until: datetime | None = None,
        where: Where | None = None, limit: int | None = None,
    ) -> list[Event]:  # fmt: skip
        """The valid events of a window, newest first, at most `limit`; stores nothing."""

    def subscriptions(
        self, user: str | None = None, *, limit: int | None = None, after: str | None = None
    ) -> list[SubscriptionInfo]:
        """The live subscriptions, in order of arrival, at most `limit` `after` a cursor."""

    def subscription(self, id: str) -> SubscriptionInfo:
        """One live subscription; `NotFound` if there is none with this id (any more)."""

    def apply(self, table: pa.Table, *, once: tuple[str, int] | None = None) -> Applied:
        """Run a table of operations in order; `once=(writer, number)` makes a retry safe."""

    def landed(self, writer: str, number: int) -> int | None:
        """How many rows of a writer's batch have landed by `apply`; None when it is done with."""

    def scan(
        self, kind: str, *, place: Place | None = None, since: datetime | None = None,
        until: datetime | None = None, where: Where | None = None,
    ) -> pa.Table:  # fmt: skip
        """The valid "events", or the live "subscriptions", as a table."""

    def times_between(self, parts: int) -> list[datetime]:
        """Times that cut the valid events into about so many parts."""

    def journal(
        self, kind: str, *, after: str | None = None, upto: str | None = None,
        limit: int = 1_000_000,
    ) -> tuple[pa.Table, str]:  # fmt: skip
        """What was written after a position, and the position reached."""

    def position(self) -> str:
        """Where the journal ends now."""

    def earliest(self) -> str:
        """The earliest position that the journal still reaches back to."""

    def stats(self) -> ChannelStats:
        """What the channel holds now and has done since it was made."""


class Build(Protocol):
    """An index that is being built."""

    field: str
    kind: str

    @property
    def done(self) -> bool:
        """Whether it is complete."""

    @property
    def progress(self) -> float:
        """How far it is, 0 to 1."""

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until it is complete."""


@runtime_checkable
class Changes(Protocol):
    """What is written to a collection, in order and without a gap."""

    @property
    def seq(self) -> int:
        """The seq of the change that was handed out last: go on after it with `after=`."""

    def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Change]:
        """What is there now, at most `limit` of it; waits up to `timeout_s` for the first."""

    def close(self) -> None:
        """Stop following. Twice is allowed."""

    def __iter__(self) -> Iterator[Change]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None: ...


@runtime_checkable
class Live(Protocol):
    """A live query: its result, and what changes in it."""

    @property
    def result(self) -> list[Document]:
        """The documents, in order, with all changes that were handed out."""

    @property
    def version(self) -> int:
        """The seq of the write that the result is of."""

    @property
    def token(self) -> str:
        """Where it stands, for `watch_again`."""

    @property
    def until(self) -> datetime | None:
        """When it ends by itself; None for never."""

    @property
    def was_reset(self) -> bool:
        """Whether what was missed could not be told, and the result of now was."""

    def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[LiveChange]:
        """What changed since, at most `limit` of it; waits up to `timeout_s` for the first."""

    def prolong(self, *, ttl_s: float | None) -> None:
        """Let it end so many seconds from now; None: not by itself."""

    def cancel(self) -> None:
        """End it. Cancelling one that has ended is allowed."""

    def close(self) -> None:
        """End it, as `cancel` does."""

    def __iter__(self) -> Iterator[LiveChange]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None: ...


@runtime_checkable
class Collection(Protocol):
    """Documents by primary key, with indexes on other fields."""

    name: str
    key: str
    """The field that every document is known by."""

    @property
    def identity(self) -> str:
        """What tells it from every other, of the same name too."""

    @property
    def indexes(self) -> dict[str, str | dict[str, Any]]:
        """The indexed fields and the kind of each index."""

    @property
    def unique(self) -> tuple[str, ...]:
        """The fields of which no two documents have one value."""

    def put(self, document: Given, *, ttl_s: Seconds | None = None) -> None:
        """Store a document, in place of the one with its key if there is one."""

    def put_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch, *,
        ttl_s: Seconds | None = None,
    ) -> Stored:  # fmt: skip
        """Store many: dicts, JSON texts, or a table. Bad rows come back with the reason."""

    def check_many(self, documents: Iterable[Given] | pa.Table | pa.RecordBatch) -> dict[int, str]:
        """Which documents `put_many` would reject, and why, by their row."""

    def insert(self, document: Given, *, ttl_s: Seconds | None = None) -> int:
        """Store a new document; its version. `Conflict` when there is one with its key."""

    def insert_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch, *,
        ttl_s: Seconds | None = None,
    ) -> Stored:  # fmt: skip
        """Store many new documents."""

    def update(
        self, key: Key, change: Document, *, upsert: bool = False,
        if_version: int | None = None, ttl_s: Seconds | None = None,
    ) -> Document:  # fmt: skip
        """Change a document by MongoDB's operators; what it is now.

        upsert: make one if there is none. if_version: the version it must have, else `Conflict`.
        ttl_s: how long it stays, as in every verb that stores.
        """

    def update_many(self, where: Where, change: Document) -> Updated:
        """Change all documents that meet a condition; how many met it, and changed."""

    def replace(
        self, key: Key, document: Given, *, if_version: int | None = None,
        ttl_s: Seconds | None = None,
    ) -> int:  # fmt: skip
        """Store a document in place of the one with this key; its version."""

    def delete(self, key: Key, *, if_version: int | None = None) -> None:
        """Delete the document with this key; `delete_where` also says whether there was one."""

    def delete_many(self, keys: Iterable[Key]) -> None:
        """Delete the documents with these keys; one bad key, and none is deleted."""

    def delete_where(self, where: Where) -> int:
        """Delete all documents that meet a condition; how many."""

    def get(self, key: Key) -> Document | None:
        """The document with this key, or None."""

    def get_many(self, keys: Iterable[Key]) -> list[Document | None]:
        """The documents with these keys, None for those that are not there."""

    def versioned(self, key: Key) -> Versioned | None:
        """The document with this key and its version, or None."""

    def lookup(self, field: str, value: Any, k: int | None = None) -> list[Document]:
        """The documents whose indexed field has this value, the newest `k`."""

    def range_lookup(
        self, field: str, low: Any = None, high: Any = None, k: int | None = None
    ) -> list[Document]:
        """The documents whose indexed field lies from `low` to `high`, the newest `k`."""

    def find(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> list[Document]:  # fmt: skip
        """The documents that meet a condition, newest first or sorted."""

    def find_one(
        self, where: Where | None = None, *, sort: Sort = None, skip: int = 0,
        fields: Fields = None,
    ) -> Document | None:  # fmt: skip
        """The first document that `find` would give, or None."""

    def find_lazily(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> Documents:  # fmt: skip
        """What `find` gives, each document decoded when it is looked at."""

    def find_iter(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> Iterator[Document]:  # fmt: skip
        """What `find` gives, one at a time."""

    def find_batches(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """What `find` gives as batches: key, seq, document."""

    def scan(
        self, where: Where | None = None, *, low: Any = None, high: Any = None,
        limit: Any = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """The documents with a key from `low` to `high` (before `limit`), as batches."""

    def count(self, where: Where | None = None) -> int:
        """How many documents meet a condition."""

    def distinct(self, field: str, where: Where | None = None) -> list[Any]:
        """The different values of a field, in order."""

    def aggregate(self, pipeline: Sequence[Document]) -> list[Document]:
        """What comes out of MongoDB's stages."""

    def nearest(
        self, point: Any, limit: int = 10, where: Where | None = None, *,
        field: str | None = None, max_distance_m: float | None = None,
        min_distance_m: float | None = None, fields: Fields = None,
    ) -> list[Nearest]:  # fmt: skip
        """The documents nearest to a point, and how far they are in metres."""

    def aggregate_grid(
        self, box: Any, *, rows: int = 50, cols: int = 50, where: Where | None = None,
        field: str | None = None,
    ) -> pa.Table:  # fmt: skip
        """How many documents are in each cell of a grid over a box: row, col, edges, count."""

    def explain(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None
    ) -> Explanation:
        """Find, and tell how."""

    def changes(self, after: int | None = None, *, before: bool = False) -> Changes:
        """Follow what is written, from the change `after` on; `before`: with old versions."""

    def watch(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None, ttl_s: float | None = None, first: bool = True,
        queue: int = 10_000,
    ) -> Live:  # fmt: skip
        """Ask now and stay up to date.

        where, sort, limit, offset: as for `find`, whose `skip` is `offset`. slack: documents that
        are kept beyond the limit. ttl_s: it ends by itself after so long. first: whether it begins
        with the result. queue: changes that wait to be taken; of more, the difference is told.
        """

    def watch_groups(
        self, where: Where | None = None, *, by: str | Sequence[str], count: bool = False,
        sum: Names = None, avg: Names = None, min: Names = None, max: Names = None,
        ttl_s: float | None = None,
    ) -> Live:  # fmt: skip
        """Group documents by some fields and stay up to date: one document a group."""

    def watch_again(
        self, token: str, *, ttl_s: float | None = None, first: bool = True, queue: int = 10_000
    ) -> Live:
        """Go on where a handle stood, by its `token`."""

    def explain_watch(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None,
    ) -> WatchPlan:  # fmt: skip
        """How a live query would be kept up to date, and what that costs."""

    def position(self) -> int:
        """The seq of the newest write."""

    def earliest(self) -> int:
        """The earliest seq that `changes` can begin after."""

    def landed(self, writer: str, number: int) -> int | None:
        """0 when a writer's batch has not landed yet, None when it has."""

    def create_index(
        self, field: str | Sequence[str], kind: str | Mapping[str, Any] | None = None, *,
        unique: bool = False, **settings: Any,
    ) -> Build:  # fmt: skip
        """Index a field while everything else goes on; returns at once."""

    def drop_index(self, field: str) -> None:
        """Drop the index on a field."""

    def advise(
        self, *, scarce: bool = False, where: Iterable[Where] = (), limit: int | None = None
    ) -> list[Advice]:
        """Which kind of index fits which field, from what was asked."""

    def forget_workload(self) -> None:
        """Let `advise` begin anew."""

    def stats(self) -> CollectionStats:
        """What it holds, and what was done since it was opened."""


@runtime_checkable
class Panes(Protocol):
    """What becomes of rows of a stream window, told at each slide: `Window.watch`."""

    def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Pane]:
        """The panes that are there; waits so long for the first."""

    def close(self) -> None:
        """Be told no more. Closing twice is allowed."""

    def __iter__(self) -> Iterator[Pane]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None: ...


@runtime_checkable
class Window(Protocol):
    """A stream window: rows of the last so many seconds, found by key."""

    name: str

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's fields."""

    @property
    def values(self) -> dict[str, str]:
        """The names and types of the values."""

    def append(self, rows: Any, *, once: tuple[str, int] | None = None) -> Appended:
        """Store rows: a table or batch of Arrow, columns by name, dicts, or one dict.

        once: a writer and a number that rises; a batch that has landed changes nothing.
        """

    def get(self, key: Any, *, last_s: Seconds | None = None) -> Any:
        """The newest row of a key, or None; with `keep="all"` a list of all of them."""

    def get_many(self, keys: Any, *, last_s: Seconds | None = None) -> pa.Table:
        """The newest row of each key, as a table."""

    def range(
        self, keys: Any = None, *, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any:  # fmt: skip
        """The rows whose keys begin like this, or lie in [low, high), or what a map makes of them.

        map: "mean(vel)", or several; in the process that has it also a function, with its
        `initial` state and what joins two states (`combine`). last_s: the last sub-windows, not
        all of them. closed: without the one that is open.
        """

    def find(
        self, where: Any = None, *, keys: Any = None, newest: bool = False,
        limit: int | None = None, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any:  # fmt: skip
        """The rows that meet a condition, as `range` gives them; with a `$near` the nearest first.

        where: a condition about the fields of a row. newest: of each key only its newest row
        counts. limit: how many. The others are those of `range`.
        """

    def moment(
        self, keys: Any = None, *, last_s: Seconds | None = None, closed: bool = False,
        parts: int = 0,
    ) -> tuple[str, list[list[Any]]]:  # fmt: skip
        """A moment to read a range of in parts, and the keys to cut at; 0: as the rows need."""

    def part(
        self, moment: str, keys: Any = None, *, low: Any = None, high: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> pa.Table:  # fmt: skip
        """The rows of a moment with keys in [low, high)."""

    def watch(
        self, keys: Any = None, *, map: Any, where: Any = None, newest: bool = False,
        initial: Any = None, combine: Any = None, last_s: Seconds | None = None,
    ) -> Panes:  # fmt: skip
        """What `range` gives, told at each slide; with `where` or `newest` what `find` gives."""

    def stats(self) -> WindowStats:
        """What it holds, and what was done since it was opened."""


@runtime_checkable
class Database(Protocol):
    """Channels and collections: a folder in this process, or a server."""

    def channel(
        self, name: str, *, space: Space | None = None, layout: str | None = None,
        poll_s: Seconds = 1.0, journal_s: Seconds | None = None,
        max_ahead_s: Seconds | None = None,
    ) -> Channel:  # fmt: skip
        """Open a channel, or create it.

        space: how places relate, `Flat()` by default. layout: how it is stored. poll_s: how often
        the layout "poll" asks. journal_s: how long what is written stays readable by `journal`.
        max_ahead_s: how far ahead of the clock rows of a batch may be.
        """

    def channels(self) -> list[str]:
        """The names of the channels."""

    def drop_channel(self, name: str) -> None:
        """Delete a channel with everything in it."""

    def collection(
        self, name: str, *, key: str | None = None, indexes: Indexes | None = None,
        policy: str | Mapping[str, Any] | None = None, filter: str | None = None,
        bloom_bits: int | None = None, journal_s: float | None = None,
        journal_before: bool | None = None, ttl_s: Seconds | None = None,
    ) -> Collection:  # fmt: skip
        """Open a collection of documents, or create it; a new one needs `key`.

        indexes: fields with the kind of their index. policy: which components merge. filter: a
        field whose range every component keeps. bloom_bits: of embedded indexes. journal_s,
        journal_before: how long `changes` reaches back, and whether with old versions. ttl_s: how
        long documents stay, unless a verb says otherwise.
        """

    def collections(self) -> list[str]:
        """The names of the collections."""

    def drop_collection(self, name: str) -> None:
        """Delete a collection with everything in it."""

    def window(
        self, name: str, *, span_s: Seconds | None = None, slide_s: Seconds | None = None,
        key: str | Sequence[str] | Mapping[str, Any] | None = None,
        values: Mapping[str, str] | None = None, keep: str | None = None, time: str | None = None,
        durable: bool | None = None, max_ahead_s: Seconds | None = None,
        indexes: Mapping[str, Any] | None = None,
    ) -> Window:  # fmt: skip
        """Open a stream window, or create it; a new one needs `span_s` and `key`.

        span_s, slide_s: what it keeps, and in which steps it forgets. key: the fields rows are
        found by. values: what else a row has, with its types. keep: "last" of a key in a
        sub-window, or "all". time: "clock", or the field with the time of a row. durable: False
        for memory only. max_ahead_s: how far ahead of the clock rows may be. indexes: the kind of
        index on each value that is a point or a text, for `find`.
        """

    def windows(self) -> list[str]:
        """The names of the stream windows."""

    def drop_window(self, name: str) -> None:
        """Delete a stream window with everything in it."""

    def stats(self) -> dict[str, ChannelStats | CollectionStats | WindowStats]:
        """The numbers of every channel, every collection and every window."""

    def close(self) -> None:
        """Let go of everything. Closing twice is allowed."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None: ...
