"""A collection on a server, used in an event loop: the verbs of client/collection_verbs.py,
awaited.

What is an iterator there is read by `async for` here; what is a property there and must ask the
server is a method here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tideline.aclient.changes import AsyncRemoteChanges
from tideline.aclient.http import AsyncHttp
from tideline.aclient.live import AsyncLive
from tideline.aclient.watching import AsyncRemoteLive
from tideline.client.arguments import as_question
from tideline.client.collection_verbs import (
    CollectionFacts,
    CollectionVerbs,
    Document,
    Fields,
    Names,
    Ttl,
)
from tideline.client.watching import Asked

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AsyncRemoteCollection"]


class AsyncRemoteCollection(CollectionVerbs):
    """Documents by primary key, on a server. Made by `AsyncRemote.collection`."""

    def __init__(self, http: AsyncHttp, live: AsyncLive, facts: CollectionFacts) -> None:
        super().__init__(http, facts)
        self._http: AsyncHttp = http
        self._live = live

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
        self, field: str | Sequence[str], kind: str | Mapping[str, Any] | None = None, *,
        unique: bool = False, **settings: Any,
    ) -> None:  # fmt: skip
        """Index a field, and wait until it is done: `Collection.create_index`."""
        build = await super().create_index(field, kind, unique=unique, **settings)
        await build.wait()

    def changes(self, after: int | None = None, *, before: bool = False) -> AsyncRemoteChanges:
        """Follow what is written, in order and without a gap: `Collection.changes`.

        Without `after` it begins when it is entered by `async with`, or first read. It goes on by
        itself after a lost connection: nothing comes twice, nothing is missed.
        """
        return AsyncRemoteChanges(self._http, self.name, self.identity, after, before)

    async def watch(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None, ttl_s: Ttl = None, first: bool = True,
        queue: int = 10_000,
    ) -> AsyncRemoteLive:  # fmt: skip
        """Ask now and stay up to date: `Collection.watch`."""
        return await self._watched(Asked.documents(
            self.name, self.key, where, sort=sort, limit=limit, offset=offset, slack=slack,
            ttl_s=ttl_s, first=first, queue=queue,
        ))  # fmt: skip

    async def watch_groups(
        self, where: Document | None = None, *, by: str | Sequence[str], count: bool = False,
        sum: Names = None, avg: Names = None, min: Names = None, max: Names = None,
        ttl_s: Ttl = None,
    ) -> AsyncRemoteLive:  # fmt: skip
        """Groups of documents, kept up to date: `Collection.watch_groups`."""
        return await self._watched(Asked.groups(
            self.name, where, by=by, count=count, sum=sum, avg=avg, min=min, max=max, ttl_s=ttl_s,
        ))  # fmt: skip

    async def watch_again(
        self, token: str, *, ttl_s: Ttl = None, first: bool = True, queue: int = 10_000
    ) -> AsyncRemoteLive:
        """Go on where a handle stood that had this token: `Collection.watch_again`."""
        return await self._watched(
            Asked.again(self.name, self.key, token, ttl_s=ttl_s, first=first, queue=queue)
        )

    async def _watched(self, asked: Asked) -> AsyncRemoteLive:
        self._http.check_open()
        found: AsyncRemoteLive = await self._live.watch(partial(AsyncRemoteLive, self._live), asked)
        return found

    async def indexes(self) -> dict[str, str | dict[str, Any]]:
        """The indexed fields and the kind of each index, without one that is being built."""
        return (await self.facts()).indexes

    async def unique(self) -> tuple[str, ...]:
        """The fields of which no two documents have one value."""
        return tuple((await self.facts()).unique)

    def __repr__(self) -> str:
        return f"AsyncRemoteCollection(name={self.name!r}, url={self._http.url!r})"
