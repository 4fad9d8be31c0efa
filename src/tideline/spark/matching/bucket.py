"""One bucket: a channel in memory that runs packets of rows, and can be brought back from rows.

    run      packets -> rows in order of time -> the channel's kernels -> answers, bad rows
    lasting  the rows just run that still count, and who was told what -> what the state keeps
    replay   those rows again -> the same channel, without looking for answers

It is a channel as any other (`channel/engine.py`), only that nobody logs it: the rows a
kernel has run are what a log would hold, and Spark's state store holds them. What recovery
from a log guarantees therefore holds here: after `replay` every later row gets the answers
it would have got.

Rows run in the order of (`at`, kind, id), subscribe before publish before cancel. The
channel's time is the newest `at` it has seen, or what `advance` was told.

Runs in Spark's Python workers; one thread at a time; imports no pyspark.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.channel.answer_table import answers_columns
from tideline.channel.batch import why_repeated
from tideline.channel.engine import Engine
from tideline.channel.results import Done, Taken
from tideline.index.memory import Budget
from tideline.kernels import layout as at
from tideline.kernels import routing as kernel
from tideline.kernels import warm
from tideline.kernels.rows import UNKNOWN
from tideline.spark.matching.settings import Settings

__all__ = ["Bucket", "Ran", "in_order", "rows_of"]

Words = NDArray[np.int64]
_FIRST_ROWS = 4_096
_MOST_ROWS = 65_536
_MOST_ANSWERS = 1 << 20  # about so many are held in memory, however busy a place is


class Ran:
    """Rows after a run: what a log would hold."""

    def __init__(self, rows: Words, starts: Words) -> None:
        self.rows = rows
        self.starts = starts
        self.at: Words = rows[starts + at.R_NOW]
        """When each row says it happened; the run overwrites it with the channel's time."""
        self.rejected: list[tuple[int, str]] = []
        """Rows that did not land because of what was there before, and why."""
        self.told: Ran = self if not len(starts) else Ran(rows[:0], starts[:0])
        """What users were told by the run, as rows."""

    @property
    def kinds(self) -> Words:
        """What each row is; VOID when it did not land."""
        return self.rows[self.starts] & 0xFF

    def picked(self, rows: Words) -> Ran:
        """Some of the rows, by number, end to end."""
        if len(rows) == len(self.starts) and (np.diff(rows) > 0).all():
            return self
        sizes = self.rows[self.starts[rows]] >> 32
        out = np.empty(int(sizes.sum()), np.int64)
        kernel.gather(self.rows, self.starts, np.ascontiguousarray(rows), out)
        return Ran(out, np.cumsum(sizes) - sizes)

    def by_seq(self) -> Ran:
        """The rows in the order they once ran."""
        return self.picked(np.argsort(self.rows[self.starts + at.R_SEQ], kind="stable"))

    def parts(self, size_bytes: int) -> Iterator[Words]:
        """The rows in parts of about that size, cut between rows."""
        ends = np.append(self.starts[1:], len(self.rows))
        first = 0
        while first < len(self.rows):
            at_end = int(np.searchsorted(ends, first + size_bytes // 8))
            limit = int(ends[min(at_end, len(ends) - 1)])
            yield self.rows[first:limit]
            first = limit


class Bucket:
    """A channel in memory."""

    def __init__(self, settings: Settings, budget: Budget, lineage: bytes = b"") -> None:
        """`lineage`, 12 bytes or more, must be the same whenever it is brought back: the marks of
        what users were told depend on it."""
        warm.ensure()
        space = settings.space
        self._folder = Path(tempfile.mkdtemp(prefix="tideline-bucket-", dir=_spark_folder()))
        lineage = hashlib.sha256(lineage or secrets.token_bytes(12)).digest()
        seeds = [int.from_bytes(lineage[at : at + 8], "little") >> 2 for at in (0, 8)]
        facts = {"space": space.spec(), "layout": "dual", "poll_s": 1.0, "seeds": seeds}
        try:
            self.engine = Engine(
                self._folder, facts, mode=space.mode, layout="dual", budget=budget,
                durability="os", logged=False, remember=settings.unseen,
            )  # fmt: skip
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    # ---- time ------------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        """The channel's time."""
        return self.engine.newest

    def advance(self, now: int) -> None:
        """Let the channel's time be `now` if that is later."""
        self.engine.advance(now)

    # ---- rows ------------------------------------------------------------------------------

    def run(self, ran: Ran, *, deltas: bool = False) -> Iterator[pa.Table]:
        """Run rows in order; answers as tables with `row`, `subscription`, `event`, ..."""
        engine = self.engine
        if deltas:
            engine.watch_deltas()
        count, first, most = len(ran.starts), 0, _FIRST_ROWS
        marks: list[Words] = []
        while first < count:
            # A change is judged against what was valid then: no row after it may have run.
            limit = first + 1 if engine.deltas else min(first + most, count)
            begin = int(ran.starts[first])
            end = len(ran.rows) if limit == count else int(ran.starts[limit])
            starts = ran.starts[first:limit] - begin
            tables = self._run(ran, ran.rows[begin:end], starts, first, marks)
            answers = max(1, sum(table.num_rows for table in tables))
            most = min(max(_MOST_ANSWERS * (limit - first) // answers, 1), 2 * most, _MOST_ROWS)
            first = limit
            while tables:
                table = tables.pop(0)
                for at_row in range(0, table.num_rows, _MOST_ROWS):
                    yield table.slice(at_row, _MOST_ROWS)
        ran.told = rows_of(marks)

    def _run(
        self, ran: Ran, rows: Words, starts: Words, first: int, marks: list[Words]
    ) -> list[pa.Table]:
        engine = self.engine
        tables: list[pa.Table] = []

        def take(done: Done) -> Taken:
            """Take the answers of the rows done so far out of the engine's memory."""
            tables.append(answers_columns(engine, done.answers, starts))
            for at_row in np.flatnonzero(done.existing).tolist():
                row, existing = done.first + at_row, int(done.existing[at_row])
                # A cancel went to every bucket, and only a few have what it names.
                if existing != UNKNOWN and not rows[int(starts[row]) + at.R_SEQ]:
                    reason = why_repeated(engine, rows, starts, row, existing)
                    if reason:
                        ran.rejected.append((first + row, reason))
            self._note_cancels(rows, starts[done.first : done.limit], done.stored)
            if done.is_settled and len(left := engine.calls.marks_left()):
                marks.append(left)
            return Taken(len(done.answers.row))

        with engine.lock:
            engine.calls.write(rows, starts, take, offset=first)
        return tables

    def _note_cancels(self, rows: Words, starts: Words, refs: Words) -> None:
        """Let a cancel that landed end when its subscription would have: it counts as long."""
        landed = np.flatnonzero(rows[starts] & 0xFF == at.CANCEL)
        heap = self.engine.sides[0].memory.heap
        for row in landed.tolist():
            ref = int(refs[row])
            if ref < at.ON_DISK:
                rows[int(starts[row]) + at.R_UNTIL] = heap[ref + at.UNTIL]

    def replay(self, parts: list[Words], newest: int, next_seq: int) -> None:
        """Store rows again that `lasting` gave, up to where the channel stood then."""
        engine = self.engine
        with engine.lock:
            engine.replay(rows_of(parts).by_seq().rows, newest, next_seq)

    # ---- what counts ------------------------------------------------------------------------

    def lasting(self, ran: Ran, *, cancels: bool = True) -> Ran:
        """The rows that still count.

        Everything counts until it ends: events, subscriptions, what users were told. A cancel
        counts as long as the subscription it names: without `cancels`, `ran` holds all of that
        one's rows, and both go.
        """
        if len(ran.told.rows):
            ran = rows_of([ran.rows, ran.told.rows])
        rows, starts = ran.rows, ran.starts
        kinds = ran.kinds
        until = rows[starts + at.R_UNTIL]
        counts = (until > self.newest) & (kinds != at.VOID)
        subs, cancel = kinds == at.SUBSCRIBE, kinds == at.CANCEL
        some = bool(cancel.any()) and not cancels
        if some:
            counts &= ~(subs & np.isin(rows[starts + at.R_SEQ], rows[starts[cancel] + at.R_AT]))
        counts |= cancel
        if some:
            there = rows[starts[counts & subs] + at.R_SEQ]
            counts[cancel] = np.isin(rows[starts[cancel] + at.R_AT], there)
        return ran.picked(np.flatnonzero(counts))

    @property
    def size_bytes(self) -> int:
        """Bytes of memory in use."""
        return sum(side.memory.size_bytes for side in self.engine.sides)

    def close(self) -> None:
        """Let go of memory and files."""
        with contextlib.suppress(OSError):
            self.engine.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def in_order(packets: Iterable[bytes | memoryview | pa.Buffer]) -> Ran:
    """The rows of some packets, in the order they are to run."""
    given = rows_of([np.frombuffer(packet, np.int64) for packet in packets])
    rows, starts = given.rows, given.starts
    order = np.argsort(given.at, kind="stable")
    kernel.settle(rows, rows.view(np.uint8), starts, order, np.empty_like(order))
    out = np.empty_like(rows)
    kernel.gather(rows, starts, order, out)
    kernel.walk(out, starts)
    return Ran(out, starts)


def rows_of(parts: list[Words]) -> Ran:
    """Rows that lie end to end in some arrays; a copy."""
    rows = np.concatenate([np.zeros(0, np.int64), *parts])
    starts = np.empty(len(rows) // at.R_BODY, np.int64)
    return Ran(rows, starts[: int(kernel.walk(rows, starts))])


def _spark_folder() -> str | None:
    """A folder that Spark removes at its end, for what does not fit into memory."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return folder if folder and os.path.isdir(folder) else None
