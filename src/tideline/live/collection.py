"""A collection with live queries: the verbs of documents/collection.py, and

    watch           a question that stays answered: documents, in order, some of them or all
    watch_groups    counts, sums, averages, least and greatest values by some fields
    watch_again     go on where a handle stood, also after a restart
    explain_watch   how a live query is kept up to date, and what that costs

Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tideline import documents
from tideline.documents import checks
from tideline.documents.feed import DROPPED
from tideline.errors import Conflict, InvalidRequest
from tideline.live.hub import Hub
from tideline.live.live import QUEUE, Live, check_ttl
from tideline.live.query import GroupQuery, Query, Token, query_of
from tideline.model import CollectionStats, WatchPlan

__all__ = ["Collection"]

Document = dict[str, Any]
Fields = str | Sequence[str] | None


class Collection(documents.Collection):
    """An open collection of documents; `Database.collection` makes one."""

    def __init__(self, name: str, engine: Any) -> None:
        super().__init__(name, engine)
        self.hub = Hub(name, engine, self._finder, self.key, self.identity)
        """What keeps live queries up to date: for servers (live/hub.py)."""

    def watch(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None, ttl_s: float | None = None, first: bool = True,
        queue: int = QUEUE,
    ) -> Live:  # fmt: skip
        """Find documents and stay up to date: `result` now, and what changes from then on.

        `where`, `sort` and `limit` are those of `find`, and `offset` is its `skip`: the result is
        what `find` gives, at every version. `slack` is how many documents beyond the limit are
        kept, so that one that leaves is replaced at once; without it, as many as the limit. After
        `ttl_s` seconds it ends, unless it is prolonged. With `first=False` it begins with what
        changes from now on, and keeps no result. A handle that is read seldom keeps at most
        `queue` changes: of more, it gets the difference.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> orders = db.collection("orders", key="id")
        >>> with orders.watch({"shop": 7}) as live:
        ...     orders.put({"id": 1, "shop": 7, "total": 20})
        ...     orders.put({"id": 1, "shop": 7, "total": 25})
        ...     orders.put({"id": 1, "shop": 8, "total": 25})
        ...     for change in live.take():
        ...         print(change.version, change.kind, change.key, change.fields)
        1 add 1 {'id': 1, 'shop': 7, 'total': 20}
        2 change 1 {'total': 25}
        3 remove 1 {}
        >>> db.close()
        """
        query = Query.of(self.key, where, sort=sort, limit=limit, offset=offset, slack=slack)
        return self._live(queue, ttl_s, first).begin(query)

    def watch_groups(
        self, where: Document | None = None, *, by: str | Sequence[str], count: bool = False,
        sum: Fields = None, avg: Fields = None, min: Fields = None, max: Fields = None,
        ttl_s: float | None = None,
    ) -> Live:  # fmt: skip
        """Group documents by some fields and stay up to date: one document a group.

        Each of `by`, `sum`, `avg`, `min` and `max` is a field, or a list of fields. The key of a
        change is the value of the group's field, or a tuple of values when `by` is a list. The
        result is what `aggregate` gives, at every version; sums are exact.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> orders = db.collection("orders", key="id")
        >>> live = orders.watch_groups({"state": "open"}, by="shop", count=True, sum="total")
        >>> done = orders.put_many([
        ...     {"id": n, "shop": n % 2, "state": "open", "total": 10 * n} for n in range(4)
        ... ])
        >>> len(live.take()), live.result[1]
        (4, {'shop': 1, 'count': 2, 'sum_total': 40})
        >>> db.close()
        """
        query = GroupQuery.of(where, by=by, count=count, sum=sum, avg=avg, min=min, max=max)
        return self._live(QUEUE, ttl_s, True).begin(query)

    def watch_again(
        self, token: str, *, ttl_s: float | None = None, first: bool = True, queue: int = QUEUE
    ) -> Live:
        """Go on where a handle stood, by its `token`; also after a restart.

        While what was written since is kept, with old versions (`journal_s`, `journal_before`),
        the handle begins with the result that the other one had, and `take` gives exactly what it
        missed. Otherwise it begins with the result of now, and `was_reset` is True. A token of
        another collection, of the same name too, is a `Conflict`.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> orders = db.collection("orders", key="id")
        >>> token = orders.watch({"total": {"$gt": 10}}).token
        >>> orders.put({"id": 1, "total": 20})
        >>> live = orders.watch_again(token)
        >>> live.was_reset, live.result, [change.kind for change in live.take()]
        (False, [], ['add'])
        >>> db.close()
        """
        found = Token.parse(token)
        live = self._live(queue, ttl_s, first)
        if found.identity != self.identity:
            raise Conflict(
                "the token is of another collection: watch this one anew", collection=self.name
            )
        return live.resume(found, query_of(found.text))

    def explain_watch(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None,
    ) -> WatchPlan:  # fmt: skip
        """How a live query would be kept up to date, and what that costs; nothing is registered.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> orders = db.collection("orders", key="id")
        >>> orders.explain_watch({"shop": 7}, sort=[("total", -1)], limit=10).kept
        20
        >>> db.close()
        """
        query = Query.of(self.key, where, sort=sort, limit=limit, offset=offset, slack=slack)
        return self.hub.sheltered(lambda: self.hub.explain(query))

    def hub_query(
        self, where: Document | None = None, *, sort: Any = None, limit: int | None = None,
        offset: int = 0, slack: int | None = None,
    ) -> Query:  # fmt: skip
        """What `watch` would ask, checked: for `hub.join`."""
        return Query.of(self.key, where, sort=sort, limit=limit, offset=offset, slack=slack)

    def stats(self) -> CollectionStats:
        """What is stored, what was done, and how many live queries stand."""
        return replace(super().stats(), standing_queries=self.hub.count)

    # ---- inside -------------------------------------------------------------------------------

    def _live(self, queue: Any, ttl_s: Any, first: Any) -> Live:
        if isinstance(queue, bool) or not isinstance(queue, int) or queue < 1:
            raise InvalidRequest("queue must be a whole number, 1 or more", queue=queue)
        return Live(
            self.hub, queue=queue, ttl_us=check_ttl(ttl_s),
            keeps=checks.flag(first, "first"),
        )  # fmt: skip

    def _shut(self, *, dropped: bool = False) -> None:
        self.hub.close(DROPPED if dropped else self._closed)
        super()._shut(dropped=dropped)

    def _leave_to_parent(self, why: str) -> None:
        self.hub.leave_to_parent(why)
        super()._leave_to_parent(why)
