"""A collection, a live query on it, what is written to it, and an index that is being built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from tideline.clock import Seconds
from tideline.model import (
    Advice,
    Change,
    CollectionStats,
    Documents,
    Explanation,
    LiveChange,
    Nearest,
    Stored,
    Updated,
    Versioned,
    WatchPlan,
)
from tideline.protocols.given import Document, Fields, Given, Key, Names, Sort, Where

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Build", "Changes", "Collection", "Live"]


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
