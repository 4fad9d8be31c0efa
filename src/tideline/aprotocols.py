"""The twins of protocols.py for asyncio: what `aconnect` and `aopen` give satisfies them.

A verb is awaited. What is an iterator there is read by `async for`. What is a property there and
must ask (`expired`, `indexes`, `unique`) is a method here. `create_index` waits until it is done.
What a verb does, and what each parameter means, is told there: `help` shows it here, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from tideline import protocols
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
    def place(self) -> Any: ...
    @property
    def since(self) -> datetime | None: ...
    @property
    def until(self) -> datetime | None: ...
    @property
    def past(self) -> list[Event]: ...
    async def expired(self) -> bool: ...
    async def take(self, timeout_s: Seconds | None = None) -> list[Event]: ...
    async def move(self, place: Place) -> None: ...
    async def cancel(self) -> None: ...
    def __aiter__(self) -> AsyncIterator[Event]: ...


@runtime_checkable
class AsyncChannel(Protocol):
    """Events and subscriptions side by side."""

    @property
    def name(self) -> str: ...
    @property
    def space(self) -> Space: ...
    @property
    def layout(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def max_ahead_s(self) -> float: ...
    async def publish(
        self, place: Place, body: Body, *, id: str | None = None, at: datetime | None = None,
        ttl_s: Seconds | None = None, until: datetime | None = None, related: bool = False,
        replace: bool = False,
    ) -> Told: ...  # fmt: skip
    async def subscribe(
        self, place: Place, *, user: str, id: str | None = None, since_s: Seconds | None = None,
        since: datetime | None = None, until_s: Seconds | None = None,
        until: datetime | None = None, where: Where | None = None, unseen: bool = False,
        retractions: bool = False,
    ) -> AsyncSubscription: ...  # fmt: skip
    async def retract(self, id: str) -> None: ...
    async def cancel(self, id: str) -> None: ...
    async def prolong(
        self, id: str, *, until_s: Seconds | None = None, until: datetime | None = None
    ) -> SubscriptionInfo: ...
    async def move(self, id: str, place: Place) -> SubscriptionInfo: ...
    async def resume(
        self, id: str, after: str | None = None, *, retractions: bool = False
    ) -> AsyncSubscription: ...
    async def get(self, id: str) -> Event | None: ...
    async def find(
        self, place: Place, *, since_s: Seconds | None = None, since: datetime | None = None,
        until_s: Seconds | None = None, until: datetime | None = None,
        where: Where | None = None, limit: int | None = None,
    ) -> list[Event]: ...  # fmt: skip
    async def subscriptions(
        self, user: str | None = None, *, limit: int | None = None, after: str | None = None
    ) -> list[SubscriptionInfo]: ...
    async def subscription(self, id: str) -> SubscriptionInfo: ...
    async def apply(self, table: pa.Table, *, once: tuple[str, int] | None = None) -> Applied: ...
    async def landed(self, writer: str, number: int) -> int | None: ...
    async def scan(
        self, kind: str, *, place: Place | None = None, since: datetime | None = None,
        until: datetime | None = None, where: Where | None = None,
    ) -> pa.Table: ...  # fmt: skip
    async def times_between(self, parts: int) -> list[datetime]: ...
    async def journal(
        self, kind: str, *, after: str | None = None, upto: str | None = None,
        limit: int = 1_000_000,
    ) -> tuple[pa.Table, str]: ...  # fmt: skip
    async def position(self) -> str: ...
    async def earliest(self) -> str: ...
    async def stats(self) -> ChannelStats: ...


@runtime_checkable
class AsyncChanges(Protocol):
    """What is written to a collection, in order and without a gap."""

    @property
    def seq(self) -> int: ...
    async def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Change]: ...
    def close(self) -> None: ...
    def __aiter__(self) -> AsyncIterator[Change]: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None: ...


@runtime_checkable
class AsyncLive(Protocol):
    """A live query: its result, and what changes in it."""

    @property
    def result(self) -> list[Document]: ...
    @property
    def version(self) -> int: ...
    @property
    def token(self) -> str: ...
    @property
    def until(self) -> datetime | None: ...
    @property
    def was_reset(self) -> bool: ...
    async def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[LiveChange]: ...
    async def prolong(self, *, ttl_s: float | None) -> None: ...
    async def cancel(self) -> None: ...
    async def close(self) -> None: ...
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
    def identity(self) -> str: ...
    async def indexes(self) -> dict[str, str | dict[str, Any]]: ...
    async def unique(self) -> tuple[str, ...]: ...
    async def put(self, document: Given, *, ttl_s: Seconds | None = None) -> None: ...
    async def put_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch, *,
        ttl_s: Seconds | None = None,
    ) -> Stored: ...  # fmt: skip
    async def check_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch
    ) -> dict[int, str]: ...
    async def insert(self, document: Given, *, ttl_s: Seconds | None = None) -> int: ...
    async def insert_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch, *,
        ttl_s: Seconds | None = None,
    ) -> Stored: ...  # fmt: skip
    async def update(
        self, key: Key, change: Document, *, upsert: bool = False,
        if_version: int | None = None, ttl_s: Seconds | None = None,
    ) -> Document: ...  # fmt: skip
    async def update_many(self, where: Where, change: Document) -> Updated: ...
    async def replace(
        self, key: Key, document: Given, *, if_version: int | None = None,
        ttl_s: Seconds | None = None,
    ) -> int: ...  # fmt: skip
    async def delete(self, key: Key, *, if_version: int | None = None) -> None: ...
    async def delete_many(self, keys: Iterable[Key]) -> None: ...
    async def delete_where(self, where: Where) -> int: ...
    async def get(self, key: Key) -> Document | None: ...
    async def get_many(self, keys: Iterable[Key]) -> list[Document | None]: ...
    async def versioned(self, key: Key) -> Versioned | None: ...
    async def lookup(self, field: str, value: Any, k: int | None = None) -> list[Document]: ...
    async def range_lookup(
        self, field: str, low: Any = None, high: Any = None, k: int | None = None
    ) -> list[Document]: ...
    async def find(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> list[Document]: ...  # fmt: skip
    async def find_one(
        self, where: Where | None = None, *, sort: Sort = None, skip: int = 0,
        fields: Fields = None,
    ) -> Document | None: ...  # fmt: skip
    async def find_lazily(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> Documents: ...  # fmt: skip
    def find_iter(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> AsyncIterator[Document]: ...  # fmt: skip
    def find_batches(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> AsyncIterator[pa.RecordBatch]: ...  # fmt: skip
    def scan(
        self, where: Where | None = None, *, low: Any = None, high: Any = None,
        limit: Any = None,
    ) -> AsyncIterator[pa.RecordBatch]: ...  # fmt: skip
    async def count(self, where: Where | None = None) -> int: ...
    async def distinct(self, field: str, where: Where | None = None) -> list[Any]: ...
    async def aggregate(self, pipeline: Sequence[Document]) -> list[Document]: ...
    async def nearest(
        self, point: Any, limit: int = 10, where: Where | None = None, *,
        field: str | None = None, max_distance_m: float | None = None,
        min_distance_m: float | None = None, fields: Fields = None,
    ) -> list[Nearest]: ...  # fmt: skip
    async def aggregate_grid(
        self, box: Any, *, rows: int = 50, cols: int = 50, where: Where | None = None,
        field: str | None = None,
    ) -> pa.Table: ...  # fmt: skip
    async def explain(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None
    ) -> Explanation: ...
    def changes(self, after: int | None = None, *, before: bool = False) -> AsyncChanges: ...
    async def watch(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None, ttl_s: float | None = None, first: bool = True,
        queue: int = 10_000,
    ) -> AsyncLive: ...  # fmt: skip
    async def watch_groups(
        self, where: Where | None = None, *, by: str | Sequence[str], count: bool = False,
        sum: Names = None, avg: Names = None, min: Names = None, max: Names = None,
        ttl_s: float | None = None,
    ) -> AsyncLive: ...  # fmt: skip
    async def watch_again(
        self, token: str, *, ttl_s: float | None = None, first: bool = True, queue: int = 10_000
    ) -> AsyncLive: ...
    async def explain_watch(
        self, where: Where | None = None, *, sort: Sort = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None,
    ) -> WatchPlan: ...  # fmt: skip
    async def position(self) -> int: ...
    async def earliest(self) -> int: ...
    async def landed(self, writer: str, number: int) -> int | None: ...
    async def create_index(
        self, field: str | Sequence[str], kind: str | Mapping[str, Any] | None = None, *,
        unique: bool = False, **settings: Any,
    ) -> None: ...  # fmt: skip
    async def drop_index(self, field: str) -> None: ...
    async def advise(
        self, *, scarce: bool = False, where: Iterable[Where] = (), limit: int | None = None
    ) -> list[Advice]: ...
    async def forget_workload(self) -> None: ...
    async def stats(self) -> CollectionStats: ...


@runtime_checkable
class AsyncPanes(Protocol):
    """What becomes of rows of a stream window, told at each slide: `AsyncWindow.watch`."""

    async def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Pane]: ...
    def close(self) -> None: ...
    def __aiter__(self) -> AsyncIterator[Pane]: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None: ...


@runtime_checkable
class AsyncWindow(Protocol):
    """A stream window: rows of the last so many seconds, found by key."""

    name: str

    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def values(self) -> dict[str, str]: ...
    async def append(self, rows: Any, *, once: tuple[str, int] | None = None) -> Appended: ...
    async def get(self, key: Any, *, last_s: Seconds | None = None) -> Any: ...
    async def get_many(self, keys: Any, *, last_s: Seconds | None = None) -> pa.Table: ...
    async def range(
        self, keys: Any = None, *, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any: ...  # fmt: skip
    async def find(
        self, where: Any = None, *, keys: Any = None, newest: bool = False,
        limit: int | None = None, map: Any = None, initial: Any = None, combine: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> Any: ...  # fmt: skip
    async def moment(
        self, keys: Any = None, *, last_s: Seconds | None = None, closed: bool = False,
        parts: int = 0,
    ) -> tuple[str, list[list[Any]]]: ...  # fmt: skip
    async def part(
        self, moment: str, keys: Any = None, *, low: Any = None, high: Any = None,
        last_s: Seconds | None = None, closed: bool = False,
    ) -> pa.Table: ...  # fmt: skip
    def watch(
        self, keys: Any = None, *, map: Any, where: Any = None, newest: bool = False,
        initial: Any = None, combine: Any = None, last_s: Seconds | None = None,
    ) -> AsyncPanes: ...  # fmt: skip
    async def stats(self) -> WindowStats: ...


@runtime_checkable
class AsyncDatabase(Protocol):
    """Channels and collections: a folder in this process, or a server."""

    async def channel(
        self, name: str, *, space: Space | None = None, layout: str | None = None,
        poll_s: Seconds = 1.0, journal_s: Seconds | None = None,
        max_ahead_s: Seconds | None = None,
    ) -> AsyncChannel: ...  # fmt: skip
    async def channels(self) -> list[str]: ...
    async def drop_channel(self, name: str) -> None: ...
    async def collection(
        self, name: str, *, key: str | None = None, indexes: Indexes | None = None,
        policy: str | Mapping[str, Any] | None = None, filter: str | None = None,
        bloom_bits: int | None = None, journal_s: float | None = None,
        journal_before: bool | None = None, ttl_s: Seconds | None = None,
    ) -> AsyncCollection: ...  # fmt: skip
    async def collections(self) -> list[str]: ...
    async def drop_collection(self, name: str) -> None: ...
    async def window(
        self, name: str, *, span_s: Seconds | None = None, slide_s: Seconds | None = None,
        key: str | Sequence[str] | Mapping[str, Any] | None = None,
        values: Mapping[str, str] | None = None, keep: str | None = None, time: str | None = None,
        durable: bool | None = None, max_ahead_s: Seconds | None = None,
        indexes: Mapping[str, Any] | None = None,
    ) -> AsyncWindow: ...  # fmt: skip
    async def windows(self) -> list[str]: ...
    async def drop_window(self, name: str) -> None: ...
    async def stats(self) -> dict[str, ChannelStats | CollectionStats | WindowStats]: ...
    async def close(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None: ...


for _name in __all__:
    _twin = getattr(protocols, _name.removeprefix("Async"))
    for _member, _made in vars(globals()[_name]).items():
        if _made is not None and not _member.startswith("_") and hasattr(_twin, _member):
            _made.__doc__ = getattr(_twin, _member).__doc__
