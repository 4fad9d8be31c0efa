"""The collection that a user of a server holds: the verbs of collection_verbs.py, blocking.

    RemoteCollection    what `Collection` is for a folder
    RemoteBuild         an index that is being built

Live queries and changes go over the WebSocket of the client (live.py, changes.py). Safe from any
thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tideline.client.arguments import as_question
from tideline.client.blocking import blocking, run
from tideline.client.changes import RemoteChanges
from tideline.client.collection_verbs import (
    BuildVerbs,
    CollectionFacts,
    CollectionVerbs,
    Document,
    Fields,
    Names,
    Ttl,
)
from tideline.client.http import Http
from tideline.client.watching import Asked, RemoteLive

if TYPE_CHECKING:
    from tideline.client.live import Live

__all__ = ["RemoteBuild", "RemoteCollection"]


class RemoteBuild:
    """An index that is being built on a server: `Build`."""

    def __init__(self, verbs: BuildVerbs) -> None:
        self.field = verbs.field
        self.kind = verbs.kind
        self._verbs = verbs

    @property
    def done(self) -> bool:
        """Whether it is complete: lookups use it."""
        return run(self._verbs.look())

    @property
    def progress(self) -> float:
        """1 when it is complete; a server does not tell how far it is before."""
        return 1.0 if self.done else 0.0

    wait = blocking(BuildVerbs.wait)

    def __repr__(self) -> str:
        return f"Build(field={self.field!r}, kind={self.kind!r})"


class RemoteCollection:
    """Documents by primary key, on a server. Made by `Remote.collection`."""

    def __init__(self, http: Http, live: Live, facts: CollectionFacts) -> None:
        self._http = http
        self._live = live
        self._verbs = CollectionVerbs(http, facts)
        self.name = self._verbs.name
        self.key = self._verbs.key
        """The field that every document is known by."""
        self.policy = self._verbs.policy
        self.filter = self._verbs.filter
        """The field whose range is kept for every component, if there is one."""
        self.identity = self._verbs.identity
        """What tells this collection from every other, of the same name too."""

    put = blocking(CollectionVerbs.put)
    put_many = blocking(CollectionVerbs.put_many)
    insert = blocking(CollectionVerbs.insert)
    insert_many = blocking(CollectionVerbs.insert_many)
    check_many = blocking(CollectionVerbs.check_many)
    update = blocking(CollectionVerbs.update)
    update_many = blocking(CollectionVerbs.update_many)
    replace = blocking(CollectionVerbs.replace)
    delete = blocking(CollectionVerbs.delete)
    delete_many = blocking(CollectionVerbs.delete_many)
    delete_where = blocking(CollectionVerbs.delete_where)
    get = blocking(CollectionVerbs.get)
    get_many = blocking(CollectionVerbs.get_many)
    versioned = blocking(CollectionVerbs.versioned)
    lookup = blocking(CollectionVerbs.lookup)
    range_lookup = blocking(CollectionVerbs.range_lookup)
    find = blocking(CollectionVerbs.find)
    find_one = blocking(CollectionVerbs.find_one)
    find_lazily = blocking(CollectionVerbs.find_lazily)
    find_batches = blocking(CollectionVerbs.find_batches)
    scan = blocking(CollectionVerbs.scan)
    count = blocking(CollectionVerbs.count)
    distinct = blocking(CollectionVerbs.distinct)
    aggregate = blocking(CollectionVerbs.aggregate)
    aggregate_grid = blocking(CollectionVerbs.aggregate_grid)
    nearest = blocking(CollectionVerbs.nearest)
    explain = blocking(CollectionVerbs.explain)
    explain_watch = blocking(CollectionVerbs.explain_watch)
    cuts = blocking(CollectionVerbs.cuts)
    drop_index = blocking(CollectionVerbs.drop_index)
    advise = blocking(CollectionVerbs.advise)
    forget_workload = blocking(CollectionVerbs.forget_workload)
    landed = blocking(CollectionVerbs.landed)
    position = blocking(CollectionVerbs.position)
    earliest = blocking(CollectionVerbs.earliest)
    stats = blocking(CollectionVerbs.stats)

    def find_iter(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        skip: int = 0, fields: Fields = None,
    ) -> Iterator[Document]:  # fmt: skip
        """What `find` gives, one at a time: `Collection.find_iter`.

        Pages are fetched as they are asked for. All are of one moment, if no page is asked for
        more than a minute after the one before; else what did not change comes exactly once.
        """
        body = as_question(where, sort, limit, skip, fields)
        return self._pages(body, *run(self._verbs._page(body, None)))

    def _pages(
        self, body: dict[str, Any], found: list[Document], cursor: str | None
    ) -> Iterator[Document]:
        yield from found
        while cursor is not None:
            found, cursor = run(self._verbs._page(body, cursor))
            yield from found

    def create_index(
        self, field: str | Sequence[str], kind: str | Mapping[str, Any] | None = None, *,
        unique: bool = False, **settings: Any,
    ) -> RemoteBuild:  # fmt: skip
        """Index a field; returns at once: `Collection.create_index`."""
        return RemoteBuild(run(self._verbs.create_index(field, kind, unique=unique, **settings)))

    def changes(self, after: int | None = None, *, before: bool = False) -> RemoteChanges:
        """Follow what is written: `Collection.changes`.

        It goes on by itself after a lost connection: nothing comes twice, nothing is missed.
        """
        return RemoteChanges(self._http, self.name, self.identity, after, before)

    def watch(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None, ttl_s: Ttl = None, first: bool = True,
        queue: int = 10_000,
    ) -> RemoteLive:  # fmt: skip
        """Ask now and stay up to date: `Collection.watch`.

        It goes on by itself after a lost connection. `queue` changes wait here at most; whoever is
        further behind is told the difference to the latest result.
        """
        asked = Asked.documents(
            self.name, self.key, where, sort=sort, limit=limit, offset=offset, slack=slack,
            ttl_s=ttl_s, first=first, queue=queue,
        )  # fmt: skip
        return self._watched(asked)

    def watch_groups(
        self, where: Document | None = None, *, by: str | Sequence[str], count: bool = False,
        sum: Names = None, avg: Names = None, min: Names = None, max: Names = None,
        ttl_s: Ttl = None,
    ) -> RemoteLive:  # fmt: skip
        """Groups of documents, kept up to date: `Collection.watch_groups`."""
        asked = Asked.groups(
            self.name, where, by=by, count=count, sum=sum, avg=avg, min=min, max=max, ttl_s=ttl_s,
        )  # fmt: skip
        return self._watched(asked)

    def watch_again(
        self, token: str, *, ttl_s: Ttl = None, first: bool = True, queue: int = 10_000
    ) -> RemoteLive:
        """Go on where a handle stood that had this token: `Collection.watch_again`."""
        asked = Asked.again(
            self.name, self.key, token, ttl_s=ttl_s, first=first, queue=queue
        )  # fmt: skip
        return self._watched(asked)

    def _watched(self, asked: Asked) -> RemoteLive:
        self._http.check_open()
        found: RemoteLive = self._live.watch(partial(RemoteLive, self._live), asked)
        return found

    @property
    def ttl_s(self) -> float | None:
        """How long documents last of which nothing is said; None: for ever."""
        return run(self._verbs.facts()).ttl_s

    @property
    def journal_s(self) -> float:
        """For how many seconds `changes` are kept."""
        return run(self._verbs.facts()).journal_s

    @property
    def journal_before(self) -> bool:
        """Whether they are kept with the old versions."""
        return run(self._verbs.facts()).journal_before

    @property
    def indexes(self) -> dict[str, str | dict[str, Any]]:
        """The indexed fields and the kind of each index, without one that is being built."""
        return run(self._verbs.facts()).indexes

    @property
    def unique(self) -> tuple[str, ...]:
        """The fields of which no two documents have one value."""
        return tuple(run(self._verbs.facts()).unique)

    def __repr__(self) -> str:
        return f"RemoteCollection(name={self.name!r}, key={self.key!r}, url={self._http.url!r})"
