"""A collection on a server, used in an event loop: the verbs of client/collection.py, awaited.

What is an iterator there is read by `async for` here; what is a property there and must ask the
server is a method here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from tideline.aclient.changes import AsyncRemoteChanges
from tideline.aclient.http import AsyncHttp
from tideline.client.arguments import as_question
from tideline.client.collection import CollectionFacts, CollectionVerbs, Document, Fields

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AsyncRemoteCollection"]


class AsyncRemoteCollection(CollectionVerbs):
    """Documents by primary key, on a server. Made by `AsyncRemote.collection`."""

    def __init__(self, http: AsyncHttp, facts: CollectionFacts) -> None:
        super().__init__(http, facts)
        self._http: AsyncHttp = http

    async def find_iter(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> AsyncIterator[Document]:  # fmt: skip
        """What `find` gives, one at a time, fetched in pages: `Collection.find_iter`."""
        body = as_question(where, sort, limit, skip, fields)
        found, cursor = await self._page(body, None)
        while True:
            for one in found:
                yield one
            if cursor is None:
                return
            found, cursor = await self._page(body, cursor)

    async def find_batches(  # type: ignore[override]
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> AsyncIterator[pa.RecordBatch]:  # fmt: skip
        """What `find` gives as batches: key, seq, document: `Collection.find_batches`."""
        options: Any = {"sort": sort, "limit": limit, "skip": skip, "fields": fields}
        for batch in await super().find_batches(where, **options):
            yield batch

    async def scan(  # type: ignore[override]
        self, where: Document | None = None, *, low: Any = None, high: Any = None,
        limit: Any = None,
    ) -> AsyncIterator[pa.RecordBatch]:  # fmt: skip
        """The documents with a key from `low` to `high` as batches: `Collection.scan`."""
        for batch in await super().scan(where, low=low, high=high, limit=limit):
            yield batch

    async def create_index(  # type: ignore[override]
        self, field: str, kind: str | None = None, *, unique: bool = False
    ) -> None:
        """Index a field, and wait until it is done: `Collection.create_index`."""
        build = await super().create_index(field, kind, unique=unique)
        await build.wait()

    def changes(self, after: int | None = None, *, before: bool = False) -> AsyncRemoteChanges:
        """Follow what is written, in order and without a gap: `Collection.changes`.

        Without `after` it begins when it is entered by `async with`, or first read. It goes on by
        itself after a lost connection: nothing comes twice, nothing is missed.
        """
        return AsyncRemoteChanges(self._http, self.name, self.identity, after, before)

    async def indexes(self) -> dict[str, str]:
        """The indexed fields and the kind of each index, without one that is being built."""
        return (await self.facts()).indexes

    async def unique(self) -> tuple[str, ...]:
        """The fields of which no two documents have one value."""
        return tuple((await self.facts()).unique)

    def __repr__(self) -> str:
        return f"AsyncRemoteCollection(name={self.name!r}, url={self._http.url!r})"
