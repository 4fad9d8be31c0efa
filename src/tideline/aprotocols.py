"""The twins of protocols.py for asyncio: what `aconnect` and `aopen` give satisfies them.

A verb is awaited. What is an iterator there is read by `async for`. What is a property there and
must ask (`expired`, `indexes`, `unique`) is a method here. `create_index` waits until it is done.
What each parameter means is told in protocols.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

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
from tideline.protocols import (
    Body,
    Document,
    Fields,
    Given,
    Indexes,
    Key,
    Names,
    Place,
    Sort,
    Where,
)
from tideline.space import Space

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "AsyncChanges", "AsyncChannel", "AsyncCollection", "AsyncDatabase", "AsyncLive",
    "AsyncPanes", "AsyncSubscription", "AsyncWindow",
]  # fmt: skip


@runtime_checkable
class AsyncSubscription(Protocol):
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

    async def expired(self) -> bool:
        """Whether nothing new can come: expired, cancelled or closed."""

    async def take(self, timeout_s: Seconds | None = None) -> list[Event]:
        """What arrived since the last take; waits up to `timeout_s` for the first."""

    async def move(self, place: Place) -> None:
        """Watch another place from now on."""

    async def cancel(self) -> None:
        """End the subscription. Cancelling one that has ended is allowed."""

    def __aiter__(self) -> AsyncIterator[Event]: ...


@runtime_checkable
class AsyncChannel(Protocol):
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

    async def publish(
        self, place: Place, body: Body, *, id: str | None = None, at: datetime | None = None,
        ttl_s: Seconds | None = None, until: datetime | None = None, related: bool = False,
        replace: bool = False,
    ) -> Told:  # fmt: skip
        """Store an event and return whom it answers."""

    async def subscribe(
        self, place: Place, *, user: str, id: str | None = None, since_s: Seconds | None = None,
        since: datetime | None = None, until_s: Seconds | None = None,
        until: datetime | None = None, where: Where | None = None, unseen: bool = False,
        retractions: bool = False,
    ) -> AsyncSubscription:  # fmt: skip
        """Store a subscription; its `past` is there at once, what happens later is delivered."""

    async def retract(self, id: str) -> None:
        """End an event; `NotFound` if no valid one has this id."""

    async def cancel(self, id: str) -> None:
        """End a subscription; `NotFound` if there is none (any more)."""

    async def prolong(
        self, id: str, *, until_s: Seconds | None = None, until: datetime | None = None
    ) -> SubscriptionInfo:
        """Let a subscription's window end at another time, later or earlier."""

    async def move(self, id: str, place: Place) -> SubscriptionInfo:
        """Have a subscription watch another place; its handle goes on."""

    async def resume(
        self, id: str, after: str | None = None, *, retractions: bool = False
    ) -> AsyncSubscription:
        """A stored subscription given back, with what it missed."""

    async def get(self, id: str) -> Event | None:
        """The event with this id, if it is still valid."""

    async def find(
        self, place: Place, *, since_s: Seconds | None = None, since: datetime | None = None,
        until_s: Seconds | None = None, until: datetime | None = None,
        where: Where | None = None, limit: int | None = None,
    ) -> list[Event]:  # fmt: skip
        """The valid events of a window, newest first, at most `limit`; stores nothing."""

    async def subscriptions(
        self, user: str | None = None, *, limit: int | None = None, after: str | None = None
    ) -> list[SubscriptionInfo]:
        """The live subscriptions, in order of arrival, at most `limit` `after` a cursor."""

    async def subscription(self, id: str) -> SubscriptionInfo:
        """One live subscription; `NotFound` if there is none with this id (any more)."""

    async def apply(self, table: pa.Table, *, once: tuple[str, int] | None = None) -> Applied:
        """Run a table of operations in order; `once=(writer, number)` makes a retry safe."""

    async def landed(self, writer: str, number: int) -> int | None:
        """How many rows of a writer's batch have landed by `apply`; None when it is done with."""

    async def scan(
        self, kind: str, *, place: Place | None = None, since: datetime | None = None,
        until: datetime | None = None, where: Where | None = None,
    ) -> pa.Table:  # fmt: skip
        """The valid "events", or the live "subscriptions", as a table."""

    async def times_between(self, parts: int) -> list[datetime]:
        """Times that cut the valid events into about so many parts."""

    async def journal(
        self, kind: str, *, after: str | None = None, upto: str | None = None,
        limit: int = 1_000_000,
    ) -> tuple[pa.Table, str]:  # fmt: skip
        """What was written after a position, and the position reached."""

    async def position(self) -> str:
        """Where the journal ends now."""

    async def earliest(self) -> str:
        """The earliest position that the journal still reaches back to."""

    async def stats(self) -> ChannelStats:
        """What the channel holds now and has done since it was made."""


@runtime_checkable
class AsyncChanges(Protocol):
    """What is written to a collection, in order and without a gap."""

    @property
    def seq(self) -> int:
        """The seq of the change that was handed out last: go on after it with `after=`."""

    async def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Change]:
        """What is there now, at most `limit` of it; waits up to `timeout_s` for the first."""

    def close(self) -> None:
        """Stop following. Twice is allowed."""

    def __aiter__(self) -> AsyncIterator[Change]: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None: ...


@runtime_checkable
class AsyncLive(Protocol):
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

    async def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[LiveChange]:
        """What changed since, at most `limit` of it; waits up to `timeout_s` for the first."""

    async def prolong(self, *, ttl_s: float | None) -> None:
        """Let it end so many seconds from now; None: not by itself."""

    async def cancel(self) -> None:
        """End it. Cancelling one that has ended is allowed."""

    async def close(self) -> None:
        """End it, as `cancel` does."""

    def __aiter__(self) -> AsyncIterator[LiveChange]: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None: ...


@runtime_checkable
class AsyncCollection(Protocol):
    """Documents by primary key, with indexes on other fields."""

    name: str
    key: str
    """The field that every document is known by."""

    @property
    def identity(self) -> str:
        """What tells it from every other, of the same name too."""

    async def indexes(self) -> dict[str, str | dict[str, Any]]:
        """The indexed fields and the kind of each index."""

    async def unique(self) -> tuple[str, ...]:
        """The fields of which no two documents have one value."""

    async def put(self, document: Given, *, ttl_s: Seconds | None = None) -> None:
        """Store a document, in place of the one with its key if there is one."""

    async def put_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch, *,
        ttl_s: Seconds | None = None,
    ) -> Stored:  # fmt: skip
        """Store many: dicts, JSON texts, or a table. Bad rows come back with the reason."""

    async def check_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch
    ) -> dict[int, str]:
        """Which documents `put_many` would reject, and why, by their row."""

    async def insert(self, document: Given, *, ttl_s: Seconds | None = None) -> int:
        """Store a new document; its version. `Conflict` when there is one with its key."""

    async def insert_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch, *,
        ttl_s: Seconds | None = None,
    ) -> Stored:  # fmt: skip
        """Store many new documents."""

    async def update(
        self, key: Key, change: Document, *, upsert: bool = False,
        if_version: int | None = None, ttl_s: Seconds | None = None,
    ) -> Document:  # fmt: skip
        """Change a document by MongoDB's operators; what it is now."""

    async def update_many(self, where: Where, change: Document) -> Updated:
        """Change all documents that meet a condition; how many met it, and changed."""

    async def replace(
        self, key: Key, document: Given, *, if_version: int | None = None,
        ttl_s: Seconds | None = None,
    ) -> int:  # fmt: skip
        """Store a document in place of the one with this key; its version."""

    async def delete(self, key: Key, *, if_version: int | None = None) -> None:
        """Delete the document with this key; `delete_where` also says whether there was one."""

    async def delete_many(self, keys: Iterable[Key]) -> None:
        """Delete the documents with these keys; one bad key, and none is deleted."""

    async def delete_where(self, where: Where) -> int:
        """Delete all documents that meet a condition; how many."""

    async def get(self, key: Key) -> Document | None:
        """The document with this key, or None."""

    async def get_many(self, keys: Iterable[Key]) -> list[Document | None]:
        """The documents with these keys, None for those that are not there."""

    async def versioned(self, key: Key) -> Versioned | None:
        """The document with this key and its version, or None."""

    async def lookup(self, field: str, value: Any, k: int | None = None) -> list[Document]:
        """The documents whose indexed field has this value, the newest `k`."""

    async def range_lookup(
        self, field: str, low: Any = None, high: Any = None, k: int | None = None
    ) -> list[Document]:
        """The documents whose indexed field lies from `low` to `high`, the newest `k`."""

    async def find(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> list[Document]:  # fmt: skip
        """The documents that meet a condition, newest first or sorted."""

    async def find_one(
        self, where: Where | None = None, *, sort: Sort = None, skip: int = 0,
        fields: Fields = None,
    ) -> Document | None:  # fmt: skip
        """The first document that `find` would give, or None."""

    async def find_lazily(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> Documents:  # fmt: skip
        """What `find` gives, each document decoded when it is looked at."""

    def find_iter(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> AsyncIterator[Document]:  # fmt: skip
        """What `find` gives, one at a time."""

    def find_batches(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> AsyncIterator[pa.RecordBatch]:  # fmt: skip
        """What `find` gives as batches: key, seq, document."""

    def scan(
        self, where: Where | None = None, *, low: Any = None, high: Any = None,
        limit: Any = None,
    ) -> AsyncIterator[pa.RecordBatch]:  # fmt: skip
        """The documents with a key from `low` to `high` (before `limit`), as batches."""

    async def count(self, where: Where | None = None) -> int:
        """How many documents meet a condition."""

    async def distinct(self, field: str, where: Where | None = None) -> list[Any]:
        """The different values of a field, in order."""

    async def aggregate(self, pipeline: Sequence[Document]) -> list[Document]:
        """What comes out of MongoDB's stages."""

    async def nearest(
        self, point: Any, limit: int = 10, where: Where | None = None, *,
        field: str | None = None, max_distance_m: float | None = None,
        min_distance_m: float | None = None, fields: Fields = None,
    ) -> list[Nearest]:  # fmt: skip
        """The documents nearest to a point, and how far they are in metres."""

    async def aggregate_grid(
        self, box: Any, *, rows: int = 50, cols: int = 50, where: Where | None = None,
        field: str | None = None,
    ) -> pa.Table:  # fmt: skip
        """How many documents are in each cell of a grid over a box: row, col, edges, count."""

    async def explain(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None
    ) -> Explanation:
        """Find, and tell how."""

    def changes(self, after: int | None = None, *, before: bool = False) -> AsyncChanges:
        """Follow what is written, from the change `after` on; `before`: with old versions."""

    async def watch(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None, ttl_s: float | None = None, first: bool = True,
        queue: int = 10_000,
    ) -> AsyncLive:  # fmt: skip
        """Ask now and stay up to date.

        where, sort, limit, offset: as for `find`, whose `skip` is `offset`. slack: documents that
        are kept beyond the limit. ttl_s: it ends by itself after so long. first: whether it begins
        with the result. queue: changes that wait to be taken; of more, the difference is told.
        """

    async def watch_groups(
        self, where: Where | None = None, *, by: str | Sequence[str], count: bool = False,
        sum: Names = None, avg: Names = None, min: Names = None, max: Names = None,
        ttl_s: float | None = None,
    ) -> AsyncLive:  # fmt: skip
        """Group documents by some fields and stay up to date: one document a group."""

    async def watch_again(
        self, token: str, *, ttl_s: float | None = None, first: bool = True, queue: int = 10_000
    ) -> AsyncLive:
        """Go on where a handle stood, by its `token`."""

    async def explain_watch(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None,
    ) -> WatchPlan:  # fmt: skip
        """How a live query would be kept up to date, and what that costs."""

    async def position(self) -> int:
        """The seq of the newest write."""

    async def earliest(self) -> int:
        """The earliest seq that `changes` can begin after."""

    async def landed(self, writer: str, number: int) -> int | None:
        """0 when a writer's batch has not landed yet, None when it has."""

    async def create_index(
        self, field: str | Sequence[str], kind: str | Mapping[str, Any] | None = None, *,
        unique: bool = False, **settings: Any,
    ) -> None:  # fmt: skip
        """Index a field, and wait until it is complete."""

    async def drop_index(self, field: str) -> None:
        """Drop the index on a field."""

    async def advise(
        self, *, scarce: bool = False, where: Iterable[Where] = (), limit: int | None = None
    ) -> list[Advice]:
        """Which kind of index fits which field, from what was asked."""

    async def forget_workload(self) -> None:
        """Let `advise` begin anew."""

    async def stats(self) -> CollectionStats:
        """What it holds, and what was done since it was opened."""


@runtime_checkable
class AsyncPanes(Protocol):
    """What becomes of rows of a stream window, told at each slide: `AsyncWindow.watch`."""

    async def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Pane]:
        """The panes that are there; waits so long for the first."""

    def close(self) -> None:
        """Be told no more. Closing twice is allowed."""

    def __aiter__(self) -> AsyncIterator[Pane]: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None: ...


@runtime_checkable
class AsyncWindow(Protocol):
    """A stream window: rows of the last so many seconds, found by key."""

    name: str

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's fields."""

    @property
    def values(self) -> dict[str, str]:
        """The names and types of the values."""

    async def append(self, rows: Any, *, once: tuple[str, int] | None = None) -> Appended:
        """Store rows: a table or batch of Arrow, columns by name, dicts, or one dict.

        once: a writer and a number that rises; a batch that has landed changes nothing.
        """

    async def get(self, key: Any, *, last_s: Seconds | None = None) -> Any:
        """The newest row of a key, or None; with `keep="all"` a list of all of them."""

    async def get_many(self, keys: Any, *, last_s: Seconds | None = None) -> pa.Table:
        """The newest row of each key, as a table."""

    async def range(
        self, keys: Any = None, *, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any:  # fmt: skip
        """The rows whose keys begin like this, or lie in [low, high), or what a map makes of them.

        map: "mean(vel)", or several; in the process that has it also a function, with its
        `initial` state and what joins two states (`combine`). last_s: the last sub-windows, not
        all of them. closed: without the one that is open.
        """

    async def find(
        self, where: Any = None, *, keys: Any = None, newest: bool = False,
        limit: int | None = None, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any:  # fmt: skip
        """The rows that meet a condition, as `range` gives them; with a `$near` the nearest first.

        where: a condition about the fields of a row. newest: of each key only its newest row
        counts. limit: how many. The others are those of `range`.
        """

    async def moment(
        self, keys: Any = None, *, last_s: Seconds | None = None, closed: bool = False,
        parts: int = 0,
    ) -> tuple[str, list[list[Any]]]:  # fmt: skip
        """A moment to read a range of in parts, and the keys to cut at; 0: as the rows need."""

    async def part(
        self, moment: str, keys: Any = None, *, low: Any = None, high: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> pa.Table:  # fmt: skip
        """The rows of a moment with keys in [low, high)."""

    def watch(
        self, keys: Any = None, *, map: Any, where: Any = None, newest: bool = False,
        initial: Any = None, combine: Any = None, last_s: Seconds | None = None,
    ) -> AsyncPanes:  # fmt: skip
        """What `range` gives, told at each slide; with `where` or `newest` what `find` gives."""

    async def stats(self) -> WindowStats:
        """What it holds, and what was done since it was opened."""


@runtime_checkable
class AsyncDatabase(Protocol):
    """Channels and collections: a folder in this process, or a server."""

    async def channel(
        self, name: str, *, space: Space | None = None, layout: str | None = None,
        poll_s: Seconds = 1.0, journal_s: Seconds | None = None,
        max_ahead_s: Seconds | None = None,
    ) -> AsyncChannel:  # fmt: skip
        """Open a channel, or create it."""

    async def channels(self) -> list[str]:
        """The names of the channels."""

    async def drop_channel(self, name: str) -> None:
        """Delete a channel with everything in it."""

    async def collection(
        self, name: str, *, key: str | None = None, indexes: Indexes | None = None,
        policy: str | Mapping[str, Any] | None = None, filter: str | None = None,
        bloom_bits: int | None = None, journal_s: float | None = None,
        journal_before: bool | None = None, ttl_s: Seconds | None = None,
    ) -> AsyncCollection:  # fmt: skip
        """Open a collection of documents, or create it; a new one needs `key`."""

    async def collections(self) -> list[str]:
        """The names of the collections."""

    async def drop_collection(self, name: str) -> None:
        """Delete a collection with everything in it."""

    async def window(
        self, name: str, *, span_s: Seconds | None = None, slide_s: Seconds | None = None,
        key: str | Sequence[str] | Mapping[str, Any] | None = None,
        values: Mapping[str, str] | None = None, keep: str | None = None, time: str | None = None,
        durable: bool | None = None, max_ahead_s: Seconds | None = None,
        indexes: Mapping[str, Any] | None = None,
    ) -> AsyncWindow:  # fmt: skip
        """Open a stream window, or create it; a new one needs `span_s` and `key`.

        span_s, slide_s: what it keeps, and in which steps it forgets. key: the fields rows are
        found by. values: what else a row has, with its types. keep: "last" of a key in a
        sub-window, or "all". time: "clock", or the field with the time of a row. durable: False
        for memory only. max_ahead_s: how far ahead of the clock rows may be. indexes: the kind of
        index on each value that is a point or a text, for `find`.
        """

    async def windows(self) -> list[str]:
        """The names of the stream windows."""

    async def drop_window(self, name: str) -> None:
        """Delete a stream window with everything in it."""

    async def stats(self) -> dict[str, ChannelStats | CollectionStats | WindowStats]:
        """The numbers of every channel, every collection and every window."""

    async def close(self) -> None:
        """Let go of everything. Closing twice is allowed."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None: ...
