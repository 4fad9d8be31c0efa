"""The changes of a collection as its user follows them.

    log -> Follower -> take(), for ..., async for ...

Iteration waits for the next change. It ends when the handle is closed, and with `Closed` when the
database is, or the collection was dropped: the message says which. Several threads may share a
handle: each change goes to one of them.

Whoever waits hangs up a bell, looks whether something is there, and waits for the bell (bell.py).
No wait is longer than a second: then it looks again, so that nothing is lost with a writer that was
cut between the log and the bell. Waiting in an event loop takes no thread.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from tideline.clock import FOREVER, WAIT_S, span_us
from tideline.documents import checks
from tideline.documents.feed import Feed
from tideline.documents.follower import Follower
from tideline.errors import Closed, InvalidRequest
from tideline.lsm.bell import Bell, LoopBell
from tideline.model import Change

__all__ = ["Changes"]

_MOST_SEQ = 1 << 62


class Changes:
    """What is written to a collection, in order; `Collection.changes` makes one."""

    def __init__(self, feed: Feed, after: Any, before: Any) -> None:
        if after is not None and (
            isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < _MOST_SEQ
        ):
            raise InvalidRequest("after must be the seq of a change, 0 or more", after=after)
        self._feed = feed
        self._closed = False
        self._follower = Follower(feed, after, checks.flag(before, "before"))

    @property
    def seq(self) -> int:
        """The seq of the change that was handed out last: go on after it with `after=`.

        Before the first, the seq that it began after.
        """
        return self._follower.seq

    def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Change]:
        """What is there now, at most `limit` of it; waits up to `timeout_s` for the first.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> cars = db.collection("cars", key="id")
        >>> changes = cars.changes()
        >>> done = cars.put_many([{"id": 1}, {"id": 2}])
        >>> [change.seq for change in changes.take()], changes.take()
        ([1, 2], [])
        >>> db.close()
        """
        most = checks.count(limit, "limit")
        wait_us = span_us(timeout_s, "timeout_s")
        if wait_us < 0:
            raise InvalidRequest("timeout_s must not be negative", timeout_s=timeout_s)
        self._require_open()
        found = self._follower.take(most)
        if not found and wait_us:
            until = self._feed.clock.now() + wait_us
            while not found and self._feed.clock.now() < until:
                self._wait(until)
                self._require_open()
                found = self._follower.take(most)
        return found

    def close(self) -> None:
        """Stop following, whoever waits; nothing is kept for it any more. Twice is allowed."""
        if not self._closed:
            self._closed = True
            self._follower.close()
            self._feed.ring()

    def __iter__(self) -> Changes:
        return self

    def __next__(self) -> Change:
        while True:
            found = self._next()
            if found is not None:
                return found
            if self._closed:
                raise StopIteration
            self._wait(FOREVER)

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> Change:
        while True:
            found = self._next()
            if found is not None:
                return found
            if self._closed:
                raise StopAsyncIteration
            bell = LoopBell()
            with self._feed.hung(bell):
                if not self._is_ready():
                    await bell.rung(WAIT_S)

    def __enter__(self) -> Changes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def __repr__(self) -> str:
        return f"Changes(seq={self.seq}, before={self._follower.before})"

    def _next(self) -> Change | None:
        try:
            found = self._follower.take(1)
        except Closed:
            if self._closed:  # by somebody else, while this one waited
                return None
            raise
        return found[0] if found else None

    def _wait(self, until: int) -> None:
        """Wait for a change, the end, or a time."""
        bell = Bell()
        with self._feed.hung(bell):
            if not self._is_ready():
                self._feed.clock.wait(bell, until)  # type: ignore[arg-type]

    def _is_ready(self) -> bool:
        return self._closed or self._follower.is_behind()

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("the feed was closed")
