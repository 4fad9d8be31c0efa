"""Staged rows into a channel: checked first, if asked for, then applied as one sequence.

The same for collections and stream windows: `DocumentLanding`, `WindowLanding`.

    spool.py   rows of many tasks, put aside under tokens
    here       tokens -> tables of `SLICE` rows in order -> `Channel.apply`, one after the other

A writer's batch of any size is therefore many calls of `Channel.apply`, numbered so that each is
at most once:

    number of a call := number of the batch << 20 | which table of it

The tables of a batch that is run again are the same, because the order of its rows is, so the calls
that landed are skipped one by one.

Only `apply` is asked of the channel, and `space`, `max_ahead_s` and `clock` to check rows.
Safe from any thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from tideline.channel.ahead import Ahead
from tideline.channel.checks import BODY_LIMIT_BYTES, ID_LIMIT_BYTES
from tideline.channel.landed import Landed, Once
from tideline.channel.operations import read_operations
from tideline.channel.spool import SLICE, Spool, merged
from tideline.errors import InvalidRequest

__all__ = ["DocumentLanding", "Landed", "Landing", "Once", "WindowLanding"]

_TABLES_BITS = 20
_REASONS = 5
_DOCUMENTS = 16_384  # rows that are landed in one step


class Landing:
    """A channel, and the spool with the rows for it. `go_on` is called before every step."""

    def __init__(
        self, channel: Any, spool: Spool, go_on: Callable[[], None] = lambda: None
    ) -> None:
        self._channel = channel
        self._spool = spool
        self._go_on = go_on

    def check(self, tokens: Sequence[str], keep: str | None = None) -> Landed:
        """What is wrong with staged rows, each by itself; `keep` stages the bad ones."""
        counts = _Counts()
        space, runs = self._channel.space, self._spool.runs(tokens)

        def bad() -> Iterator[pa.RecordBatch]:
            for run in runs:  # each row by itself: the order is all one
                self._go_on()
                table = pa.Table.from_batches([run])
                ahead = Ahead.of(self._channel.max_ahead_s, self._channel.clock.now())
                operations = read_operations(
                    table, space, lambda count: ["?"] * count, id_limit=ID_LIMIT_BYTES,
                    body_limit=BODY_LIMIT_BYTES, ahead=ahead,
                )  # fmt: skip
                counts.rows += table.num_rows
                rows = sorted(operations.rejected)
                yield from counts.reject(table, rows, [operations.rejected[row] for row in rows])

        return _keep_bad(bad(), counts, self._spool, keep)

    def commit(
        self, tokens: Sequence[str], *, once: Once | None = None, order: str = "time",
        keep: str | None = None,
    ) -> Landed:  # fmt: skip
        """Apply staged rows as one sequence; `keep` stages the rejected ones."""
        slices = merged(self._spool.runs(tokens), order, SLICE)
        with contextlib.closing(_ahead(slices)) as tables:
            return self._land(tables, once, keep)

    def _land(self, slices: Iterable[pa.Table], once: Once | None, keep: str | None) -> Landed:
        counts = _Counts()

        def bad() -> Iterator[pa.RecordBatch]:
            for i, table in enumerate(slices):
                self._go_on()
                if i >> _TABLES_BITS:
                    raise InvalidRequest("a batch has too many rows", limit=SLICE << _TABLES_BITS)
                if once is None:
                    applied = self._channel.apply(table)
                else:
                    number = once[1] << _TABLES_BITS | i
                    applied = self._channel.apply(table, once=(once[0], number))
                counts.rows += table.num_rows
                counts.repeated += table.num_rows if applied.repeated else 0
                counts.answers += applied.answers.num_rows
                rejected = applied.rejected
                yield from counts.reject(
                    table, rejected["row"].to_pylist(), rejected["reason"].to_pylist()
                )

        return _keep_bad(bad(), counts, self._spool, keep)


def _keep_bad(
    bad: Iterator[pa.RecordBatch], counts: _Counts, spool: Spool, keep: str | None
) -> Landed:
    """Run through the rows; stage the bad ones, if asked to."""
    token = None
    if keep is None:
        for _ in bad:
            pass
    else:
        token = spool.stage(keep, bad, "arrival")
    return Landed(
        counts.rows, counts.answers, counts.rejected, counts.reasons, counts.repeated,
        token if counts.rejected else None, counts.late,
    )  # fmt: skip


class DocumentLanding:
    """Staged rows into a collection; what `Landing` is for a channel.

    `begin(once)` begins a batch of it (documents/landing.py): one lands at a time, as `lock` says.
    """

    def __init__(
        self, begin: Callable[[Once | None], Any], lock: Any, spool: Spool,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._begin = begin
        self._lock = lock
        self._spool = spool
        self._go_on = go_on

    def check(self, tokens: Sequence[str], keep: str | None = None) -> Landed:
        """What is wrong with staged rows, each by itself; `keep` stages the bad ones."""
        counts, batch = _Counts(), self._begin(None)

        def bad() -> Iterator[pa.RecordBatch]:
            for table in merged(self._spool.runs(tokens), "arrival", _DOCUMENTS):
                self._go_on()
                counts.rows += table.num_rows
                wrong = batch.check(table)
                yield from counts.reject(table, sorted(wrong), [wrong[r] for r in sorted(wrong)])

        return _keep_bad(bad(), counts, self._spool, keep)

    def commit(
        self, tokens: Sequence[str], *, once: Once | None = None, keep: str | None = None
    ) -> Landed:
        """Land staged rows in the order of the tokens; `keep` stages the rejected ones."""
        counts, batch = _Counts(), self._begin(once)

        def bad() -> Iterator[pa.RecordBatch]:
            tables = merged(self._spool.runs(tokens), "arrival", _DOCUMENTS)
            table = next(tables, None)
            while table is not None:
                self._go_on()
                following = next(tables, None)
                counts.rows += table.num_rows
                wrong = batch.land(table, last=following is None)
                yield from counts.reject(table, sorted(wrong), [wrong[r] for r in sorted(wrong)])
                table = following

        with self._lock:
            if batch.is_repeated:
                rows = sum(run.num_rows for run in self._spool.runs(tokens))
                return Landed(rows=rows, repeated=rows)
            return _keep_bad(bad(), counts, self._spool, keep)


class WindowLanding:
    """Staged rows into a stream window; what `Landing` is for a channel.

    `batch` is a `stream.landing.Arriving`. A batch of any size is many appends, each numbered, so
    that one which was cut in the middle goes on where it stopped.
    """

    def __init__(
        self, batch: Any, spool: Spool, go_on: Callable[[], None] = lambda: None
    ) -> None:  # fmt: skip
        self._batch = batch
        self._spool = spool
        self._go_on = go_on

    def check(self, tokens: Sequence[str], keep: str | None = None) -> Landed:
        """What is wrong with staged rows, each by itself; `keep` stages the bad ones."""
        counts = _Counts()

        def bad() -> Iterator[pa.RecordBatch]:
            for _, table in self._tables(tokens):
                counts.rows += table.num_rows
                wrong = self._batch.check(table)
                yield from counts.reject(table, sorted(wrong), [wrong[r] for r in sorted(wrong)])

        return _keep_bad(bad(), counts, self._spool, keep)

    def commit(
        self, tokens: Sequence[str], *, once: Once | None = None, keep: str | None = None
    ) -> Landed:
        """Append staged rows, by time where rows have one; `keep` stages the rejected ones."""
        counts = _Counts()

        def bad() -> Iterator[pa.RecordBatch]:
            for i, table in self._tables(tokens):
                if i >> _TABLES_BITS:
                    raise InvalidRequest("a batch has too many rows", limit=SLICE << _TABLES_BITS)
                done = self._batch.land(
                    table, None if once is None else (once[0], once[1] << _TABLES_BITS | i)
                )
                counts.rows += table.num_rows
                counts.repeated += table.num_rows if done.repeated else 0
                counts.late += done.late
                rejected = done.rejected
                yield from counts.reject(
                    table, rejected["row"].to_pylist(), rejected["reason"].to_pylist()
                )

        return _keep_bad(bad(), counts, self._spool, keep)

    def _tables(self, tokens: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
        for i, table in enumerate(merged(self._spool.runs(tokens), self._batch.order, SLICE)):
            self._go_on()
            yield i, self._batch.named(table)


class _Counts:
    """What `Landed` tells, while it is being counted."""

    def __init__(self) -> None:
        self.rows = self.answers = self.rejected = self.repeated = self.late = 0
        self.reasons: list[str] = []

    def reject(
        self, table: pa.Table, rows: list[int], reasons: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Note rejected rows; gives them with the column `reason`."""
        if not rows:
            return
        self.rejected += len(rows)
        for reason in reasons:
            if len(self.reasons) == _REASONS:
                break
            if reason not in self.reasons:
                self.reasons.append(reason)
        taken = table.take(pa.array(rows, pa.int64()))
        yield from taken.append_column("reason", pa.array(reasons, pa.string())).to_batches()


def _ahead(tables: Iterator[pa.Table]) -> Generator[pa.Table, None, None]:
    """The same, the next one being made while one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, tables, None)
        while (table := coming.result()) is not None:
            coming = pool.submit(next, tables, None)
            yield table
