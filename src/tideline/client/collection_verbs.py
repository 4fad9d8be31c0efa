"""A collection on a server: the verbs of `Collection`, one request each.

    put_many, insert_many      Arrow streams of up to 16,384 documents each
    find, find_lazily,         pages of up to 1,000 documents, by cursor
      find_iter
    find_batches, scan         one Arrow stream
    all else                   POST /v1/collections/{name}/{verb}, JSON

Each verb is written once, as a coroutine of `CollectionVerbs`: `RemoteCollection` (collection.py)
runs it blocking, `AsyncRemoteCollection` (aclient/collection.py) in an event loop. What only reads
is asked again when the connection breaks. What writes is not: `Unavailable` says that it may have
landed or not.

What the caller gave is checked here only as far as it must be to become JSON; what it means is for
the server to check, with the same words as the library.
"""

# Answers are decoded as the types that verbs name; mypy sees `Any`.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from tideline.client.arguments import (
    as_box,
    as_count,
    as_document,
    as_fields,
    as_index,
    as_json,
    as_key,
    as_list,
    as_question,
    as_scalar,
    as_sort,
    as_text,
    check_condition,
    lasting,
)
from tideline.client.batches import slices, stored_of, table_of_cells, table_of_stream
from tideline.client.http import Requests
from tideline.errors import InvalidRequest, Unavailable
from tideline.model import (
    Advice,
    CollectionStats,
    Documents,
    Explanation,
    Nearest,
    Stored,
    Updated,
    Versioned,
    WatchPlan,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BuildVerbs",
    "CollectionFacts",
    "CollectionVerbs",
    "Document",
    "Fields",
    "Given",
    "Key",
    "Names",
    "Ttl",
]

T = TypeVar("T")
Document = dict[str, Any]
Given = Document | str | bytes
Fields = Sequence[str] | dict[str, int] | None
Names = str | Sequence[str] | None
Key = int | str
Ttl = float | timedelta | None
_NULL = msgspec.Raw(b"null")
_KEYS = 1_000  # asked for in one request
_LOOK_S = 0.05
_LONG_S = 1e9


class CollectionFacts(msgspec.Struct):
    """A collection, as the server describes it."""

    name: str
    key: str
    indexes: dict[str, str | dict[str, Any]]
    unique: list[str]
    policy: dict[str, Any]
    filter: str | None
    bloom_bits: int
    journal_s: float
    ttl_s: float | None
    identity: str
    position: int
    earliest: int
    stats: CollectionStats | None
    """None for a token that may not see all documents."""
    journal_before: bool = False


class _Result(msgspec.Struct, Generic[T]):
    result: T


class _Page(msgspec.Struct):
    result: list[Document]
    next: str | None


class _Texts(msgspec.Struct):
    """A page whose documents are not decoded."""

    result: list[msgspec.Raw]
    next: str | None


class _Stored(msgspec.Struct):
    stored: int
    rejected: dict[int, str]


class _Built(msgspec.Struct):
    field: str
    kind: str
    done: bool
    progress: float


class CollectionVerbs:
    """What a collection on a server can do."""

    def __init__(self, http: Requests, facts: CollectionFacts) -> None:
        self.name = facts.name
        self.key = facts.key
        """The field that every document is known by."""
        self.policy = facts.policy
        self.filter = facts.filter
        """The field whose range is kept for every component, if there is one."""
        self.identity = facts.identity
        """What tells this collection from every other, of the same name too."""
        self._http = http
        self._path = ("v1", "collections", self.name)

    # ---- writing ------------------------------------------------------------------------------

    async def put(self, document: Given, *, ttl_s: Ttl = None) -> None:
        """Store a document, in place of the one with its key if there is one: `Collection.put`."""
        await self._write("put", None, document=as_document(document), ttl_s=lasting(ttl_s))

    async def put_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch, *, ttl_s: Ttl = None
    ) -> Stored:
        """Store many: dicts, JSON texts, or a table: `Collection.put_many`.

        They go in parts, in order; an error leaves those before it.
        """
        return await self._batches("put_many", documents, ttl_s)

    async def insert(self, document: Given, *, ttl_s: Ttl = None) -> int:
        """Store a new document; returns its version: `Collection.insert`."""
        return await self._write(
            "insert", int, document=as_document(document), ttl_s=lasting(ttl_s)
        )

    async def insert_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch, *, ttl_s: Ttl = None
    ) -> Stored:
        """Store many new documents, given as to `put_many`: `Collection.insert_many`."""
        return await self._batches("insert_many", documents, ttl_s)

    async def check_many(
        self, documents: Iterable[Given] | pa.Table | pa.RecordBatch
    ) -> dict[int, str]:
        """Which documents `put_many` would reject, and why: `Collection.check_many`."""
        rejected: dict[int, str] = {}
        for part in slices(documents):
            texts = [msgspec.Raw(text) for text in part.texts()]
            body = {"documents": texts}
            found = await self._read("check_many", dict[int, str], **body)
            rejected |= part.numbered(found)
        return rejected

    async def update(
        self, key: Key, change: Document, *, upsert: bool = False,
        if_version: int | None = None, ttl_s: Ttl = None,
    ) -> Document:  # fmt: skip
        """Change the document with this key; returns what it is now: `Collection.update`."""
        return await self._write(
            "update", Document, key=as_key(key), change=as_json(change, "change"), upsert=upsert,
            if_version=if_version, ttl_s=lasting(ttl_s),
        )  # fmt: skip

    async def update_many(self, where: Document, change: Document) -> Updated:
        """Change all documents that meet a condition: `Collection.update_many`."""
        check_condition(where, "update_many")
        return await self._write(
            "update_many", Updated, where=as_json(where, "where"), change=as_json(change, "change")
        )

    async def replace(
        self, key: Key, document: Given, *, if_version: int | None = None, ttl_s: Ttl = None
    ) -> int:
        """Store a document in place of another; returns its version: `Collection.replace`."""
        return await self._write(
            "replace", int, key=as_key(key), document=as_document(document), if_version=if_version,
            ttl_s=lasting(ttl_s),
        )  # fmt: skip

    async def delete(self, key: Key, *, if_version: int | None = None) -> None:
        """Delete the document with this key: `Collection.delete`."""
        await self._write("delete", None, key=as_key(key), if_version=if_version)

    async def delete_many(self, keys: Iterable[Key]) -> None:
        """Delete the documents with these keys: `Collection.delete_many`."""
        await self._write("delete_many", None, keys=as_list(keys, "keys"))

    async def delete_where(self, where: Document) -> int:
        """Delete all documents that meet a condition; how many: `Collection.delete_where`."""
        check_condition(where, "delete_where")
        return await self._write("delete_where", int, where=as_json(where, "where"))

    # ---- by key and by index ------------------------------------------------------------------

    async def get(self, key: Key) -> Document | None:
        """The document with this key, or None: `Collection.get`."""
        return await self._read("get", Document | None, key=as_key(key))

    async def get_many(self, keys: Iterable[Key]) -> list[Document | None]:
        """The documents with these keys, None for those that are not there.

        `Collection.get_many`; many keys are asked for in parts, each of one moment.
        """
        asked = as_list(keys, "keys")
        found: list[Document | None] = []
        for first in range(0, len(asked), _KEYS):
            part = asked[first : first + _KEYS]
            found += await self._read("get_many", list[Document | None], keys=part)
        return found

    async def versioned(self, key: Key) -> Versioned | None:
        """The document with this key and its version, or None: `Collection.versioned`."""
        found = await self._read("versioned", dict[str, Any] | None, key=as_key(key))
        return None if found is None else Versioned(found["document"], found["version"])

    async def lookup(self, field: str, value: Any, k: int | None = None) -> list[Document]:
        """The newest documents whose field has this value: `Collection.lookup`."""
        return await self._read(
            "lookup", list[Document], field=as_text(field, "field"),
            value=as_scalar(value, "value") or _NULL, k=as_count(k, "k"),
        )  # fmt: skip

    async def range_lookup(
        self, field: str, low: Any = None, high: Any = None, k: int | None = None
    ) -> list[Document]:
        """The newest documents whose field lies in a range: `Collection.range_lookup`."""
        return await self._read(
            "range_lookup", list[Document], field=as_text(field, "field"),
            low=as_scalar(low, "low"), high=as_scalar(high, "high"), k=as_count(k, "k"),
        )  # fmt: skip

    # ---- by condition -------------------------------------------------------------------------

    async def find(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> list[Document]:  # fmt: skip
        """The documents that meet a condition: `Collection.find`.

        More than 1,000 come in pages.
        """
        body = as_question(where, sort, limit, skip, fields)
        found, cursor = await self._page(body, None)
        while cursor is not None:
            more, cursor = await self._page(body, cursor)
            found += more
        return found

    async def find_lazily(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> Documents:  # fmt: skip
        """The same, each decoded when it is looked at: `Collection.find_lazily`."""
        body = as_question(where, sort, limit, skip, fields)
        found, cursor = await self._page(body, None, _Texts)
        while cursor is not None:
            more, cursor = await self._page(body, cursor, _Texts)
            found += more
        return Documents.of(map(bytes, found))

    async def _page(
        self, body: dict[str, Any], cursor: str | None, type: Any = _Page
    ) -> tuple[list[Any], str | None]:
        """One page, and where the next one begins."""
        asked = body if cursor is None else {**body, "cursor": cursor}
        found = await self._http.ask_json("POST", *self._path, "find", body=asked, type=type)
        return found.result, found.next

    async def find_one(
        self, where: Document | None = None, *, sort: Any = None, skip: int = 0,
        fields: Fields = None,
    ) -> Document | None:  # fmt: skip
        """The first document that `find` would give, or None: `Collection.find_one`."""
        body = as_question(where, sort, None, skip, fields)
        return await self._read("find_one", Document | None, **body)

    async def find_batches(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """What `find` gives as batches: key, seq, document: `Collection.find_batches`."""
        answer = await self._http.ask(
            "POST", *self._path, "find", query={"format": "arrow"},
            body=as_question(where, sort, limit, skip, fields),
        )  # fmt: skip
        return table_of_stream(answer.data)

    async def scan(
        self, where: Document | None = None, *, low: Any = None, high: Any = None,
        limit: Any = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """The documents with a key from `low` to `high` as batches: `Collection.scan`."""
        query = {
            name: bytes(as_json(value, name)).decode()
            for name, value in (("where", where), ("low", low), ("high", high), ("limit", limit))
            if value is not None
        }
        return table_of_stream((await self._http.ask("GET", *self._path, "documents",
                                                     query=query)).data)  # fmt: skip

    async def count(self, where: Document | None = None) -> int:
        """How many documents meet a condition: `Collection.count`."""
        return await self._read("count", int, where=as_json(where, "where"))

    async def distinct(self, field: str, where: Document | None = None) -> list[Any]:
        """The different values of a field: `Collection.distinct`."""
        return await self._read(
            "distinct", list[Any], field=as_text(field, "field"), where=as_json(where, "where")
        )

    async def aggregate(self, pipeline: Sequence[Document]) -> list[Document]:
        """What comes out of MongoDB's stages: `Collection.aggregate`."""
        return await self._read("aggregate", list[Document], pipeline=as_json(pipeline, "pipeline"))

    async def nearest(
        self, point: Any, limit: int = 10, where: Document | None = None, *,
        field: str | None = None, max_distance_m: float | None = None,
        min_distance_m: float | None = None, fields: Fields = None,
    ) -> list[Nearest]:  # fmt: skip
        """The documents nearest to a point, and how far they are: `Collection.nearest`."""
        found = await self._read(
            "nearest", list[dict[str, Any]], point=as_json(point, "point"),
            limit=_NULL if limit is None else as_count(limit, "limit"),
            where=as_json(where, "where"),
            field=None if field is None else as_text(field, "field"),
            max_distance_m=as_scalar(max_distance_m, "max_distance_m"),
            min_distance_m=as_scalar(min_distance_m, "min_distance_m"), fields=as_fields(fields),
        )  # fmt: skip
        return [Nearest(one["document"], one["metres"]) for one in found]

    async def aggregate_grid(
        self, box: Any, *, rows: int = 50, cols: int = 50, where: Document | None = None,
        field: str | None = None,
    ) -> pa.Table:  # fmt: skip
        """How many documents are in each cell of a grid: `Collection.aggregate_grid`."""
        found = await self._read(
            "aggregate_grid", dict[str, Any], box=as_box(box), rows=as_count(rows, "rows"),
            cols=as_count(cols, "cols"), where=as_json(where, "where"),
            field=None if field is None else as_text(field, "field"),
        )  # fmt: skip
        return table_of_cells(found)

    async def explain(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None
    ) -> Explanation:
        """Find, and tell how: `Collection.explain`."""
        return await self._read(
            "explain", Explanation, where=as_json(where, "where"), sort=as_sort(sort),
            limit=as_count(limit, "limit"),
        )  # fmt: skip

    async def explain_watch(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None,
    ) -> WatchPlan:  # fmt: skip
        """How a live query would be kept up to date, and its cost: `Collection.explain_watch`."""
        return await self._read(
            "explain_watch", WatchPlan, where=as_json(where, "where"), sort=as_sort(sort),
            limit=as_count(limit, "limit"), offset=as_count(offset, "offset"),
            slack=as_count(slack, "slack"),
        )  # fmt: skip

    async def cuts(self, parts: int) -> list[str]:
        """Keys that cut the documents into about so many parts: `Collection.cuts`."""
        found: list[str] = await self._http.ask_json(
            "GET", *self._path, "cuts", query={"parts": parts}, type=list[str]
        )
        return found

    # ---- indexes and facts --------------------------------------------------------------------

    async def create_index(
        self, field: str | Sequence[str], kind: str | Mapping[str, Any] | None = None, *,
        unique: bool = False, **settings: Any,
    ) -> BuildVerbs:  # fmt: skip
        """Index a field, or several; returns at once: `Collection.create_index`."""
        given = kind
        if settings or isinstance(kind, Mapping):
            given = as_json(
                {**(kind if isinstance(kind, Mapping) else {"kind": kind}), **settings}, "kind"
            )
        built = await self._write(
            "create_index", _Built, field=as_index(field), kind=given, unique=unique,
            wait_s=0.0,
        )  # fmt: skip
        return BuildVerbs(self, built)

    async def drop_index(self, field: str | Sequence[str]) -> None:
        """Drop the index on a field, or several: `Collection.drop_index`."""
        await self._write("drop_index", None, field=as_index(field))

    async def advise(
        self, *, scarce: bool = False, where: Iterable[Document] = (), limit: int | None = None
    ) -> list[Advice]:
        """Which kind of index fits which field: `Collection.advise`."""
        return await self._read(
            "advise", list[Advice], scarce=scarce, where=as_json(as_list(where, "where"), "where"),
            limit=as_count(limit, "limit"),
        )  # fmt: skip

    async def forget_workload(self) -> None:
        """Let `advise` begin anew: `Collection.forget_workload`."""
        await self._write("forget_workload", None)

    async def landed(self, writer: str, number: int) -> int | None:
        """0 when a writer's batch has not landed yet, None when it has: `Collection.landed`."""
        return await self._read(
            "landed", int | None, writer=as_text(writer, "writer"), number=number
        )

    async def position(self) -> int:
        """The seq of the newest write: `Collection.position`."""
        return (await self.facts()).position

    async def earliest(self) -> int:
        """The earliest seq that `changes` can begin after: `Collection.earliest`."""
        return (await self.facts()).earliest

    async def stats(self) -> CollectionStats:
        """What it holds, and what was done since it was opened: `Collection.stats`."""
        found = (await self.facts()).stats
        if found is None:
            raise Unavailable("the numbers are for tokens that may see all documents")
        return found

    async def facts(self) -> CollectionFacts:
        """What the server says of it now."""
        found: CollectionFacts = await self._http.ask_json("GET", *self._path, type=CollectionFacts)
        return found

    # ---- inside -------------------------------------------------------------------------------

    async def _read(self, verb: str, kind: Any, /, **body: Any) -> Any:
        return await self._call(verb, kind, body, again=True)

    async def _write(self, verb: str, kind: Any, /, **body: Any) -> Any:
        return await self._call(verb, kind, body, again=False)

    async def _call(self, verb: str, kind: Any, body: dict[str, Any], again: bool) -> Any:
        asked = {name: value for name, value in body.items() if value is not None}
        found = await self._http.ask_json(
            "POST", *self._path, verb, body=asked, again=again, type=_Result[kind]
        )
        return found.result

    async def _batches(self, verb: str, documents: Any, ttl_s: Ttl) -> Stored:
        count, query = 0, {"ttl_s": lasting(ttl_s)}
        rejected: dict[int, str] = {}
        for part in slices(documents):
            found = await self._http.ask_json(
                "POST", *self._path, verb, query=query, arrow=part.stream(), again=False,
                type=_Result[_Stored],
            )  # fmt: skip
            count += found.result.stored
            rejected |= part.numbered(found.result.rejected)
        return stored_of(count, rejected)


class BuildVerbs:
    """An index that is being built on a server."""

    def __init__(self, collection: CollectionVerbs, built: _Built) -> None:
        self.field = built.field
        self.kind = built.kind
        self._collection = collection

    async def look(self) -> bool:
        """Whether it is complete."""
        return self.field in (await self._collection.facts()).indexes

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the index answers; `Unavailable` when it does not after the time."""
        number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
        if timeout_s is not None and not (number and timeout_s >= 0):
            raise InvalidRequest(
                "timeout_s must be a number that is not negative", timeout_s=timeout_s
            )
        left_s = _LONG_S if timeout_s is None else min(timeout_s, _LONG_S)
        while not await self.look():
            if left_s <= 0:
                raise Unavailable("the index is not ready yet", field=self.field)
            await self._collection._http._sleep(min(_LOOK_S, left_s))
            left_s -= _LOOK_S
