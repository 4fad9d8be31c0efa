"""A live query as the user of a client holds it.

The same as in a database (live/live.py), fed by the live connection's reader (live.py). `take` and
`result` hand out what has arrived; `take` asks the server first, one round trip, so that what was
written before the call is there. When the connection breaks, the reader makes another, and the
query goes on after the last version that arrived. When the server cannot tell what happened since,
it sends the latest result, and the handle tells the difference to what it had.

Safe from any thread: each change is handed out once.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from tideline.client.arguments import as_count, as_json, as_sort
from tideline.client.arriving import check_take
from tideline.client.feeds import WatchFeed
from tideline.client.kept import KeyOf, group_reader, key_reader
from tideline.client.watched import Watched
from tideline.clock import WAIT_S, Seconds, span_s
from tideline.errors import InvalidRequest
from tideline.lsm.bell import Bell, LoopBell
from tideline.model import LiveChange
from tideline.where.plain import plain_json

if TYPE_CHECKING:
    from tideline.client.live import Live

__all__ = ["ENDS", "Asked", "LiveFacts", "RemoteLive", "lasting_s"]

QUEUE = 10_000
"""Changes that wait to be handed out."""
ENDS = ("cancelled",)  # iteration is over; after any other end it raises


class LiveFacts:
    """What a handle says of its query, for one that blocks and one that waits."""

    feed: WatchFeed
    inbox: Watched

    def __init__(self, feed: WatchFeed) -> None:
        self.feed = feed
        self.inbox = feed.state

    @property
    def version(self) -> int:
        """The seq of the collection that the result is of."""
        return self.inbox.version

    @property
    def until(self) -> datetime | None:
        """When it ends by itself; `None` for never."""
        return self.feed.until

    @property
    def was_reset(self) -> bool:
        """Whether changes were told as the difference to the latest result."""
        return self.inbox.was_reset

    @property
    def token(self) -> str:
        """Where it stands, as text: for `watch_again`."""
        from tideline.live.query import Token

        inbox, text = self.inbox, self.feed.asked.text_of()
        # Within a version, another handle may be told the same in other steps.
        exact = inbox.done == 0
        return str(Token(self.feed.identity or "", text, inbox.version, inbox.done, exact))

    def fail(self, reason: str, error: Any) -> None:
        """End, and raise the error to whoever asks for more."""
        self.inbox.end(reason, error)


class RemoteLive(LiveFacts):
    """A live query on a server: its result, kept up to date. `RemoteCollection.watch` makes one.

    >>> import tideline
    >>> from tideline.server import running
    >>> with tideline.open(":memory:") as db, running(db) as url, tideline.connect(url) as remote:
    ...     orders = remote.collection("orders", key="id")
    ...     with orders.watch({"shop": 7}, sort=[("total", -1)], limit=2) as live:
    ...         orders.put({"id": 1, "shop": 7, "total": 20})
    ...         orders.put({"id": 2, "shop": 7, "total": 30})
    ...         for change in live.take():
    ...             print(change.kind, change.key, change.index)
    ...         print([order["id"] for order in live.result])
    add 1 0
    add 2 0
    [2, 1]
    """

    def __init__(self, live: Live, feed: WatchFeed) -> None:
        super().__init__(feed)
        self._live = live

    @property
    def result(self) -> list[dict[str, Any]]:
        """The documents, in order, with all changes that were handed out."""
        with self._live.feeding:
            return self.inbox.result

    def take(self, limit: int | None = None, *, timeout_s: Seconds = 0) -> list[LiveChange]:
        """What happened since, at most `limit` of it; waits up to `timeout_s` for the first.

        Asks the server: what was written before this call is there. `Unavailable` when it cannot
        be reached in time; nothing is lost by that, ask again.
        """
        wait_s = check_take(limit, timeout_s)
        until = time.monotonic() + wait_s
        if not self.inbox.ended:
            self._live.sync()
        while True:
            with self._live.feeding:
                self._live.reach(self.feed)
                found = self.inbox.take(limit)
            why = self.inbox.why()
            if found or (why is None and time.monotonic() >= until):
                return found
            if why is not None:
                raise why
            self._wait(until - time.monotonic())

    def _wait(self, wait_s: float) -> None:
        """Wait until something arrives, or ends, but not for long."""
        bell = Bell()
        with self.inbox.hung(bell):
            with self._live.feeding:
                ready = self.inbox.waits or self.inbox.ended
            if not ready:
                bell.wait(min(max(wait_s, 0.0), WAIT_S))

    def prolong(self, *, ttl_s: Seconds | None) -> None:
        """Let it end so many seconds from now, by the server's clock; None: not by itself."""
        self._live.prolong(self.feed, None if ttl_s is None else lasting_s(ttl_s))
        why = self.inbox.why()
        if why is not None:
            raise why

    def cancel(self) -> None:
        """End it. Cancelling one that has ended is allowed."""
        self._live.cancel(self)

    close = cancel

    def __iter__(self) -> RemoteLive:
        return self

    def __next__(self) -> LiveChange:
        while True:
            with self._live.feeding:
                found = self.inbox.next()
            if found is not None:
                return found
            why = self.inbox.why()
            if why is not None:
                if self.inbox.ended in ENDS:
                    raise StopIteration
                raise why
            self._wait(WAIT_S)

    async def __aiter__(self) -> AsyncIterator[LiveChange]:
        while True:
            with self._live.feeding:
                found = self.inbox.next()
            if found is not None:
                yield found
                continue
            why = self.inbox.why()
            if why is not None:
                if self.inbox.ended in ENDS:
                    return
                raise why
            bell = LoopBell()
            with self.inbox.hung(bell):
                if not (self.inbox.waits or self.inbox.ended):
                    await bell.rung(WAIT_S)

    def __enter__(self) -> RemoteLive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.cancel()

    def __repr__(self) -> str:
        return f"RemoteLive({self.feed.channel!r}, version={self.version})"


# ---- what is asked ---------------------------------------------------------------------------


class Asked:
    """A live query as it was asked: the request without its tag, and how its result is kept."""

    __slots__ = ("key_of", "ordered", "queue", "request", "text_of")

    def __init__(
        self, request: dict[str, Any], key_of: KeyOf, ordered: bool, queue: Any,
        text_of: Callable[[], bytes],
    ) -> None:  # fmt: skip
        """`text_of` gives its canonical text, for a token: few ask for one."""
        if type(queue) is not int or queue < 1:
            raise InvalidRequest("queue must be a whole number, 1 or more", queue=queue)
        self.request = request
        self.key_of = key_of
        self.ordered = ordered
        self.queue = queue
        self.text_of = text_of

    def state(self) -> Watched:
        """Where what arrives is kept."""
        return Watched(
            self.key_of, self.ordered, self.queue, keeps=self.request.get("first") is not False,
            skip=self.request.get("done", 0),
        )  # fmt: skip

    @classmethod
    def documents(
        cls, name: str, key: str, where: Any, *, sort: Any, limit: Any, offset: Any, slack: Any,
        ttl_s: Any, first: Any, queue: Any,
    ) -> Asked:  # fmt: skip
        """A query of documents; what is wrong with it, the server says."""
        if not isinstance(first, bool):
            raise InvalidRequest("first must be True or False", first=first)
        request = _request("watch", name, ttl_s, {
            "where": as_json(where, "where"), "sort": as_sort(sort),
            "limit": as_count(limit, "limit"), "offset": as_count(offset, "offset"),
            "slack": as_count(slack, "slack"),
        })  # fmt: skip
        if offset is None:
            request["offset"] = None  # the server says what is wrong with it
        ordered = sort is not None or limit is not None or offset != 0 or _is_by_distance(where)
        if not first and not ordered:  # with positions, a result is kept in any case
            request["first"] = False

        def text() -> bytes:
            from tideline.live.query import Query

            return Query.of(key, where, sort=sort, limit=limit, offset=offset).text

        return cls(request, key_reader(key), ordered, queue, text)

    @classmethod
    def groups(
        cls, name: str, where: Any, *, by: Any, count: Any, sum: Any, avg: Any, min: Any, max: Any,
        ttl_s: Any,
    ) -> Asked:  # fmt: skip
        """A query of groups."""
        measures = {"sum": sum, "avg": avg, "min": min, "max": max}
        request = _request("watch_groups", name, ttl_s, {
            "where": as_json(where, "where"), "count": as_json(count, "count"),
            **{kind: as_json(fields, kind) for kind, fields in measures.items()},
        })  # fmt: skip
        request["by"] = as_json(by, "by")

        def text() -> bytes:
            from tideline.live.query import GroupQuery

            return GroupQuery.of(where, by=by, count=count, **measures).text

        fields = by if isinstance(by, (str, list, tuple)) else ()  # else the server refuses it
        return cls(request, group_reader(fields), True, QUEUE, text)

    @classmethod
    def again(cls, name: str, key: str, given: Any, *, ttl_s: Any, first: Any, queue: Any) -> Asked:
        """The query of a token, after what was told until then."""
        from tideline.live.query import GroupQuery, Token, query_of

        if not isinstance(first, bool):
            raise InvalidRequest("first must be True or False", first=first)
        token = Token.parse(given)
        query = query_of(token.text)
        fields: dict[str, Any] = {"where": msgspec.Raw(query.where) if query.where else None}
        if isinstance(query, GroupQuery):
            fields["by"] = query.by[0] if query.single else query.by
            for measure in query.measures:
                if measure.kind == "count":
                    fields["count"] = True
                else:
                    fields.setdefault(measure.kind, []).append(measure.field)
            reader, ordered = group_reader(fields["by"]), True
        else:
            fields |= {"sort": query.asked_sort, "limit": query.limit, "offset": query.offset}
            reader, ordered = key_reader(key), not query.is_plain
        fields |= {
            "identity": token.identity, "after": token.version, "first": first or ordered,
            "done": token.done or None, "exact": None if token.exact else False,
        }  # fmt: skip
        do = "watch_groups" if isinstance(query, GroupQuery) else "watch"
        return cls(_request(do, name, ttl_s, fields), reader, ordered, queue, lambda: token.text)

    def resumed(self) -> dict[str, Any]:
        """The request on a new connection, by a client that has the result: without what was said
        of another begin."""
        begin = ("after", "identity", "done", "exact", "ttl_s")
        found = {name: value for name, value in self.request.items() if name not in begin}
        if found.get("first"):
            del found["first"]
        return found


def _is_by_distance(where: Any) -> bool:
    """Whether a condition has an order of its own: its documents come nearest first."""
    if b"$near" not in plain_json(where, "where"):
        return False
    from tideline.where import parse

    try:
        return parse(where).near is not None
    except InvalidRequest:  # the server says what is wrong
        return False


def lasting_s(ttl_s: Any) -> float:
    """How long a live query lasts, in seconds; `InvalidRequest` for what is no such time."""
    found = span_s(ttl_s, "ttl_s")
    if found <= 0:
        raise InvalidRequest("ttl_s must be above 0: the seconds a watch lasts", ttl_s=ttl_s)
    return found


def _request(do: str, name: str, ttl_s: Any, fields: dict[str, Any]) -> dict[str, Any]:
    if ttl_s is not None:
        fields["ttl_s"] = lasting_s(ttl_s)
    given = {field: value for field, value in fields.items() if value is not None}
    return {"do": do, "collection": name, **given}
