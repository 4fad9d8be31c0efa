"""Live queries join the hub of their collection, and leave it, many in one go.

    Job                  a live query that somebody asked for
    join_plain, leave    many at once; also on the loop, when nobody has to be waited for
    run                  both, for as long as a thread does them in one go
    results_now          for whoever was too slow

In a thread or on the loop, as live_queries.py says; nothing here is said to anybody.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import msgspec

from tideline.errors import Closed
from tideline.live.hub import Joined
from tideline.server.collection_rules import Rule
from tideline.server.live_watch import OVER, Desk, Watch

__all__ = ["Job", "Outcome", "join_plain", "leave", "leave_all", "results_now", "run"]

_RUN_S = 0.02  # for how long a thread answers requests in one go


class Job(msgspec.Struct, eq=False):
    """A live query that somebody asked for."""

    watch: Watch
    request: Any
    rule: Rule | None
    is_plain: bool
    """Whether it wants changes from now on, most likely without positions."""
    is_little: bool
    query: Any = None

    def ask(self) -> Any:
        """What is asked, checked."""
        if self.query is None:
            self.query = self.request.query(self.watch.line.desk.queries.key, self.rule)
        return self.query

    def join(self) -> tuple[Joined, bool]:
        """Have it stand (in a thread); and whether a result is sent."""
        request, watch = self.request, self.watch
        queries, first, query = watch.line.desk.queries, request.first, self.ask()
        # Within a version that was told as a difference nobody can go on.
        after = request.after if request.exact or not request.done else None
        # A million queries that want no result must not be found a million times.
        found = first is not False or request.after is not None
        joined = queries.join(query, watch, after=after, result=bool(first), first=found)
        if joined.missed is not None and len(joined.missed) < request.done:
            queries.leave(joined.entry, watch)
            joined = queries.join(query, watch)
        # Nobody but this job touches the entry until it is back on the loop.
        watch.entry = joined.entry
        return joined, joined.missed is None if first is None else first


Outcome = tuple[Joined, bool] | int | Exception
"""Of a job: what somebody begins with, and whether a result is sent. Of a plain query without one:
the version that it begins with."""


def run(jobs: list[Job], leaving: deque[Watch]) -> list[Outcome]:
    """Leave and join (in a thread); what came of those that there was time for."""
    leave(leaving)
    done: list[Outcome] = []
    limit = time.monotonic() + _RUN_S
    while len(done) < len(jobs) and (not done or time.monotonic() < limit):
        done += join_plain(jobs[len(done) :], limit) or [_join(jobs[len(done)])]
    return done


def _join(job: Job) -> Outcome:
    try:
        if job.watch.state == OVER:  # cancelled meanwhile
            raise Closed("the watch was cancelled")
        return job.join()
    except Exception as error:
        return error


def join_plain(jobs: list[Job], limit: float, *, wait: bool = True) -> list[Outcome] | None:
    """Join the first jobs, if they are plain and of one collection: all of them at once.

    What came of those that there was time for. `wait=False`: None when somebody had to be waited
    for; nothing has happened then.
    """
    done: list[Any] = []
    asked = []
    first = jobs[0].watch.line.desk if jobs else None
    for job in jobs:
        if not job.is_plain or job.watch.line.desk is not first:
            break
        try:
            if job.watch.state == OVER:
                raise Closed("the watch was cancelled")
            query = job.ask()
        except Exception as error:
            done.append(error)
        else:
            if not query.is_plain:  # it asks for what is near
                break
            done.append(None)
            asked.append((query, job.watch))
        if time.monotonic() >= limit:
            break
    if asked:
        try:
            assert first is not None
            found = first.queries.join_many(asked, wait=wait)
        except Exception:  # of one of them: each by itself says what it is
            if not wait:
                return None
            return [_join(job) for job in jobs[: len(done)]]
        if found is None:
            return None
        version, entries = found
        for (_, watch), entry in zip(asked, entries, strict=True):
            watch.entry = entry
        done = [version if error is None else error for error in done]
    return done


def leave(leaving: deque[Watch], *, wait: bool = True) -> bool:
    """Have nothing more told; `wait=False`: says whether it could be done without waiting."""
    by_desk: dict[Desk, dict[Watch, None]] = {}  # one may be there twice
    for watch in leaving:
        if watch.entry is not None:
            by_desk.setdefault(watch.line.desk, {})[watch] = None
    for desk, watches in by_desk.items():
        if not desk.queries.leave_many([(w.entry, w) for w in watches], wait=wait):
            return False
        for watch in watches:
            watch.entry = None
    leaving.clear()
    return True


def leave_all(leaving: deque[Watch]) -> None:
    """The same, in a thread."""
    leave(leaving)


def results_now(batch: list[Watch]) -> list[tuple[int, Any] | Exception | None]:
    """The results of now (in a thread); None for what has ended, also while this looks."""
    found: list[tuple[int, Any] | Exception | None] = []
    for watch in batch:
        entry = watch.entry  # None once another thread let go of it
        try:
            found.append(None if entry is None else entry.result_now())
        except Closed:
            found.append(None)
        except Exception as error:  # the others must not wait for ever
            found.append(error)
    return found
