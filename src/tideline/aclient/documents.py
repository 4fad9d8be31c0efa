"""A collection of a folder in this process, used from asyncio: see embedded.py.

Loaded when a collection is first asked for, as the library loads what documents need.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from tideline.aclient.embedded_live import AsyncEmbeddedLive
from tideline.aclient.threads import Run, streamed, threaded
from tideline.clock import Seconds
from tideline.documents import Changes
from tideline.live import Collection, Live
from tideline.model import Change

__all__ = ["AsyncChanges", "AsyncCollection"]

Names = str | Sequence[str] | None
_PART = 1_000  # documents that are fetched at once from an iterator


class AsyncCollection:
    """An open collection of documents. Made by `AsyncDatabase.collection`."""

    def __init__(self, collection: Collection, run: Run) -> None:
        self._sync = collection
        self._run = run
        self.name = collection.name
        self.key = collection.key
        """The field that every document is known by."""

    @property
    def identity(self) -> str:
        """What tells this collection from every other, of the same name too."""
        return self._sync.identity

    async def indexes(self) -> dict[str, str | dict[str, Any]]:
        """The indexed fields and the kind of each index, without one that is being built."""
        return self._sync.indexes

    async def unique(self) -> tuple[str, ...]:
        """The fields of which no two documents have one value."""
        return self._sync.unique

    put = threaded(Collection.put)
    put_many = threaded(Collection.put_many)
    check_many = threaded(Collection.check_many)
    insert = threaded(Collection.insert)
    insert_many = threaded(Collection.insert_many)
    update = threaded(Collection.update)
    update_many = threaded(Collection.update_many)
    replace = threaded(Collection.replace)
    delete = threaded(Collection.delete)
    delete_many = threaded(Collection.delete_many)
    delete_where = threaded(Collection.delete_where)
    get = threaded(Collection.get)
    get_many = threaded(Collection.get_many)
    versioned = threaded(Collection.versioned)
    lookup = threaded(Collection.lookup)
    range_lookup = threaded(Collection.range_lookup)
    find = threaded(Collection.find)
    find_one = threaded(Collection.find_one)
    find_lazily = threaded(Collection.find_lazily)
    find_iter = streamed(Collection.find_iter, _PART)
    find_batches = streamed(Collection.find_batches, 1)
    scan = streamed(Collection.scan, 1)
    count = threaded(Collection.count)
    distinct = threaded(Collection.distinct)
    aggregate = threaded(Collection.aggregate)
    aggregate_grid = threaded(Collection.aggregate_grid)
    nearest = threaded(Collection.nearest)
    explain = threaded(Collection.explain)
    explain_watch = threaded(Collection.explain_watch)
    landed = threaded(Collection.landed)
    position = threaded(Collection.position)
    earliest = threaded(Collection.earliest)
    drop_index = threaded(Collection.drop_index)
    advise = threaded(Collection.advise)
    forget_workload = threaded(Collection.forget_workload)
    stats = threaded(Collection.stats)

    async def create_index(
        self, field: str | Sequence[str], kind: str | Mapping[str, Any] | None = None, *,
        unique: bool = False, **settings: Any,
    ) -> None:  # fmt: skip
        """Index a field, and wait until it is done: `Collection.create_index`."""
        build = await self._run(self._sync.create_index, field, kind, unique=unique, **settings)
        await self._run(build.wait)

    def changes(self, after: int | None = None, *, before: bool = False) -> AsyncChanges:
        """Follow what is written, in order and without a gap: `Collection.changes`.

        >>> import asyncio
        >>> import tideline
        >>> async def main():
        ...     async with await tideline.aopen(":memory:") as db:
        ...         cars = await db.collection("cars", key="id")
        ...         async with cars.changes(after=0) as changes:
        ...             await cars.put({"id": 1})
        ...             async for change in changes:
        ...                 return change
        >>> asyncio.run(main())
        Change(seq=1, key=1, after={'id': 1})
        """
        return AsyncChanges(self._sync.changes(after, before=before), self._run)

    async def watch(
        self, where: dict[str, Any] | None = None, *, sort: Any = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None, ttl_s: Seconds | None = None,
        first: bool = True, queue: int = 10_000,
    ) -> AsyncEmbeddedLive:  # fmt: skip
        """Ask now and stay up to date: `Collection.watch`.

        >>> import asyncio
        >>> import tideline
        >>> async def main():
        ...     async with await tideline.aopen(":memory:") as db:
        ...         orders = await db.collection("orders", key="id")
        ...         async with await orders.watch({"shop": 7}) as live:
        ...             await orders.put({"id": 1, "shop": 7})
        ...             async for change in live:
        ...                 return change.kind, live.result
        >>> asyncio.run(main())
        ('add', [{'id': 1, 'shop': 7}])
        """
        found: Live = await self._run(
            self._sync.watch, where, sort=sort, limit=limit, offset=offset, slack=slack,
            ttl_s=ttl_s, first=first, queue=queue,
        )  # fmt: skip
        return AsyncEmbeddedLive(found, self._run)

    async def watch_groups(
        self, where: dict[str, Any] | None = None, *, by: str | Sequence[str], count: bool = False,
        sum: Names = None, avg: Names = None, min: Names = None, max: Names = None,
        ttl_s: Seconds | None = None,
    ) -> AsyncEmbeddedLive:  # fmt: skip
        """Groups of documents, kept up to date: `Collection.watch_groups`."""
        found: Live = await self._run(
            self._sync.watch_groups, where, by=by, count=count, sum=sum, avg=avg, min=min, max=max,
            ttl_s=ttl_s,
        )  # fmt: skip
        return AsyncEmbeddedLive(found, self._run)

    async def watch_again(
        self, token: str, *, ttl_s: Seconds | None = None, first: bool = True, queue: int = 10_000
    ) -> AsyncEmbeddedLive:
        """Go on where a handle stood that had this token: `Collection.watch_again`."""
        found: Live = await self._run(
            self._sync.watch_again, token, ttl_s=ttl_s, first=first, queue=queue
        )
        return AsyncEmbeddedLive(found, self._run)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


class AsyncChanges:
    """What is written to a collection, in order; `AsyncCollection.changes` makes one."""

    def __init__(self, changes: Changes, run: Run) -> None:
        self._sync = changes
        self._run = run
        self._seq = changes.seq
        self._left: deque[Change] = deque()  # taken by a call that was cancelled
        self._taking: asyncio.Task[list[Change]] | None = None

    @property
    def seq(self) -> int:
        """The seq of the change that was handed out last: go on after it with `after=`."""
        return max(self._seq, self._sync.seq) if not (self._left or self._taking) else self._seq

    async def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Change]:
        """What is there now, at most `limit` of it; waits up to `timeout_s` for the first."""
        await self._fetch(limit)
        if not self._left and timeout_s != 0:
            try:
                async with asyncio.timeout(timeout_s):
                    self._left.append(await self._sync.__anext__())
            except (TimeoutError, StopAsyncIteration):
                return []
            if limit != 1:
                self._left += self._sync.take(None if limit is None else limit - 1)
        count = len(self._left) if limit is None else min(limit, len(self._left))
        return [self._one() for _ in range(count)]

    async def _fetch(self, limit: int | None) -> None:
        """Have what is there in `_left`. A thread that was not waited for is waited for first."""
        if self._left:
            return
        if self._taking is None:
            self._taking = asyncio.ensure_future(self._run(self._sync.take, limit))
        try:
            found = await asyncio.shield(self._taking)
        except asyncio.CancelledError:
            if self._taking.cancelled():
                self._taking = None
            raise
        except BaseException:
            self._taking = None
            raise
        self._taking = None
        self._left += found

    def _one(self) -> Change:
        change = self._left.popleft()
        self._seq = change.seq
        return change

    def close(self) -> None:
        """Stop following; nothing is kept for it any more. Twice is allowed."""
        self._sync.close()

    async def __aiter__(self) -> AsyncIterator[Change]:
        while True:
            if self._taking is not None:
                await self._fetch(None)
            while self._left:
                yield self._one()
            try:
                change = await self._sync.__anext__()
            except StopAsyncIteration:
                return
            self._seq = change.seq
            yield change

    async def __aenter__(self) -> AsyncChanges:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"
