"""The spool: rows that Spark's tasks have staged, and one sequence made of them.

    spool/                       inside the store's folder, private to its owner
      <job>.<random>.arrow       one Arrow IPC file a task; its name is the token
      <job>.<random>.part        the same, while it is written
      <job>.over                 this job was given up: what it stages late is removed

A record batch of a file is a *run*: rows in order of time. `merged` joins the runs of
many files into tables of `SLICE` rows each:

    by `at`; rows of one time by `op` (subscribe, publish, cancel), then by every other column

That order depends on the rows alone, not on how Spark spread them over tasks: a batch that
is run again gives the same tables, so that what landed of it before can be skipped. With
order "arrival" rows stay as they came, tokens in the order given: right when one task wrote
them all.

Memory: a task holds one run, `merged` about `_HELD_BYTES` of rows at a time. Files are
mapped, not read. Nothing here is forced to disk: what was staged and not committed is
staged again by whoever failed to commit it.

Safe from any thread and process: every file has one writer, and a name of its own.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.errors import InvalidRequest, Unavailable

__all__ = ["SLICE", "Spool", "in_order", "merged"]

SLICE = 65_536
"""Rows that are applied in one call, and share one frame of the log."""

_RUN_ROWS = 65_536
_RUN_BYTES = 32 << 20
_HELD_BYTES = 64 << 20
_SAMPLE = 512  # one time in so many is looked at to cut runs into ranges
_OLD_S = 24 * 3600.0
_JOB = re.compile(r"[A-Za-z0-9_-]{1,100}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,100}\.[0-9a-f]{16}")
_END, _OVER = ".arrow", ".over"
_NEVER = np.iinfo(np.int64).min  # the time of a row that has none: it is rejected first


class Spool:
    """A folder of staged rows.

    >>> import tempfile
    >>> spool = Spool(tempfile.mkdtemp())
    >>> token = spool.stage("job", [pa.record_batch({"op": ["publish"] * 2, "at": [7, 5]})])
    >>> [table["at"].to_pylist() for table in merged(spool.runs([token]))]
    [[5, 7]]
    >>> spool.discard("job")
    >>> list(spool.folder.iterdir())
    []
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def stage(self, job: str, batches: Iterable[pa.RecordBatch], order: str = "time") -> str:
        """Write rows to a file of their own; its token. A failure leaves no file."""
        if not _JOB.fullmatch(job):
            raise InvalidRequest("a job's name must be letters, digits, - and _", job=job)
        token = f"{job}.{secrets.token_hex(8)}"
        path = self.folder / f"{token}{_END}"
        unfinished = path.with_suffix(".part")
        try:
            with contextlib.ExitStack() as stack:
                file: pa.RecordBatchFileWriter | None = None
                for run in _runs(batches, order):
                    if file is None:
                        file = stack.enter_context(pa.ipc.new_file(str(unfinished), run.schema))
                    file.write_batch(run)
                if file is None:
                    unfinished.touch()
            unfinished.rename(path)
            if (self.folder / f"{job}{_OVER}").exists():
                path.unlink(missing_ok=True)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise Unavailable(
                "rows cannot be staged beside the store: it was closed, or its disk is full",
                folder=str(self.folder), error=str(error),
            ) from error  # fmt: skip
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return token

    def runs(self, tokens: Sequence[str]) -> list[pa.RecordBatch]:
        """The runs of many files, mapped."""
        found: list[pa.RecordBatch] = []
        for token in tokens:
            if not isinstance(token, str) or not _TOKEN.fullmatch(token):
                raise InvalidRequest("this is no token of staged rows", token=token)
            path = self.folder / f"{token}{_END}"
            try:
                if path.stat().st_size == 0:
                    continue
                file = pa.ipc.open_file(pa.memory_map(str(path)))
            except OSError:
                raise Unavailable(
                    "the staged rows are gone: the store was closed in between; write them again",
                    token=token,
                ) from None
            found.extend(file.get_batch(i) for i in range(file.num_record_batches))
        return found

    def discard(self, job: str, over: bool = False) -> None:
        """Remove what a job staged, finished or not, and what nobody has asked for in a day.

        `over`: what a task of the job that still runs stages later is removed as well.
        """
        with contextlib.suppress(OSError):  # a folder that is gone holds nothing
            if over:
                (self.folder / f"{job}{_OVER}").touch()
            staged = [path for path in self.folder.iterdir() if not path.name.endswith(_OVER)]
            ended = {
                job,
                *(path.name.removesuffix(_OVER) for path in self.folder.glob(f"*{_OVER}")),
            }
            old = time.time() - _OLD_S
            for path in staged:
                with contextlib.suppress(OSError):
                    if path.name.split(".")[0] in ended or path.stat().st_mtime < old:
                        path.unlink()


def in_order(table: pa.Table) -> pa.Table:
    """The rows by time; rows of one time in an order that their content gives.

    >>> rows = {"op": ["cancel", "publish", "subscribe"], "at": [5, 5, 4], "id": ["a", "b", "c"]}
    >>> in_order(pa.table(rows))["id"].to_pylist()
    ['c', 'b', 'a']
    """
    times = _times(table["at"])
    indices = np.argsort(times, kind="stable")
    ordered = times[indices]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        tied = np.zeros(len(ordered), np.bool_)
        tied[1:] |= same
        tied[:-1] |= same
        where = indices[tied]
        others = sorted(set(table.column_names) - {"at", "op"})
        keys = [("at", "ascending"), ("op", "descending"), *((n, "ascending") for n in others)]
        among = (
            table.take(pa.array(where))
            .drop_columns("at")
            .append_column("at", pa.array(times[where]))
        )
        for place, field in enumerate(among.schema):  # of points: lists have no order of Arrow's
            if pa.types.is_nested(field.type):
                texts = pa.array(map(str, among.column(place).to_pylist()), pa.string())
                among = among.set_column(place, field.name, texts)
        part = pc.sort_indices(
            among, sort_keys=[key for key in keys if key[0] in among.column_names]
        )
        indices[tied] = where[part.to_numpy()]
    return table.take(pa.array(indices))


def merged(
    runs: Iterable[pa.RecordBatch], order: str = "time", rows: int = SLICE
) -> Iterator[pa.Table]:
    """All rows of the runs as one sequence, in tables of `rows` rows; the last may be shorter.

    In order "arrival" the runs may be any batches, and are taken one at a time.
    """
    held: list[pa.Table] = []
    count = 0
    arrived = (pa.Table.from_batches([run]) for run in runs)
    for part in arrived if order == "arrival" else _by_ranges(list(runs)):
        held.append(part)
        count += part.num_rows
        while count >= rows:
            table = pa.concat_tables(held)
            yield table.slice(0, rows).combine_chunks()
            held = [table.slice(rows)]
            count -= rows
    if count:
        yield pa.concat_tables(held).combine_chunks()


def _by_ranges(runs: Sequence[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in order, a range of time after the other: each is small enough to sort."""
    total = sum(run.num_rows for run in runs)
    if not total:
        return
    times = [_times(run.column("at")) for run in runs]
    row_bytes = sum(run.nbytes for run in runs) // total + 1
    samples = np.sort(np.concatenate([each[_SAMPLE - 1 :: _SAMPLE] for each in times]))
    step = max(1, _HELD_BYTES // row_bytes // _SAMPLE)
    # A range ends before its limit, so rows of one time are never in two ranges.
    starts = [0] * len(runs)
    for limit in [*np.unique(samples[step::step]).tolist(), None]:
        parts = []
        for i, run in enumerate(runs):
            end = run.num_rows if limit is None else int(np.searchsorted(times[i], limit))
            if end > starts[i]:
                parts.append(run.slice(starts[i], end - starts[i]))
                starts[i] = end
        if parts:
            yield in_order(pa.Table.from_batches(parts))


def _runs(batches: Iterable[pa.RecordBatch], order: str) -> Iterator[pa.RecordBatch]:
    """Rows gathered into runs that are worth sorting and small enough to hold."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
            size += batch.nbytes
        if count >= _RUN_ROWS or size >= _RUN_BYTES:
            yield _run(held, order)
            held, count, size = [], 0, 0
    if held:
        yield _run(held, order)


def _run(batches: list[pa.RecordBatch], order: str) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches)
    table = in_order(table) if order == "time" else table
    return table.combine_chunks().to_batches()[0]


def _times(column: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # combine_chunks of no chunk
        column = pa.array([], column.type)
    numbers = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column
    if numbers.null_count:
        numbers = numbers.fill_null(_NEVER)
    found: NDArray[np.int64] = numbers.to_numpy(zero_copy_only=False)
    return found
