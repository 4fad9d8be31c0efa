"""Duplicates and late rows, decided in the driver, row by row, the same after any restart.

    watermark   the newest time of the batches before, less `within`; a row older than it is late
    duplicate   a row less than `within` before or after the last one of its key that was taken

A duplicate is not taken, so it does not put off the next: of a key that comes all the time, one
row in `within` gets through.

The keys are hashed by Spark (two times 64 bits) and kept here in one table (kernels/seen.py,
50 to 100 bytes a key), for as long as a row that is not late could still repeat them. What a
batch adds is kept in a file with the batch, so that after a restart the table is again what
it was before the first batch that is not done.

Spark's own `dropDuplicatesWithinWatermark` drops both kinds without saying which, and counts
them where a task that runs twice counts twice. See docs/decisions/0017.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.kernels import seen as kernel

__all__ = ["DUPLICATE", "LATE", "NEW", "PASSED", "Seen", "read_keys", "write_keys"]

NEW, LATE, DUPLICATE, PASSED = kernel.NEW, kernel.LATE, kernel.DUPLICATE, kernel.PASSED
Words = NDArray[np.int64]
Keys = tuple[Words, Words, Words]  # high, low, time
_LEAST = -(1 << 62)


class Seen:
    """The keys of the rows that were taken. One caller at a time.

    >>> seen = Seen(within_us=10)
    >>> def judge(keys, times):
    ...     verdict = np.zeros(len(keys), np.uint8)
    ...     high = np.array(keys, np.int64)
    ...     _ = seen.judge(high, high, np.array(times, np.int64), verdict)
    ...     return verdict.tolist()
    >>> judge([1, 2, 1], [100, 101, 105])       # the third repeats the first
    [0, 0, 2]
    >>> judge([3, 1, 4], [94, 100, 130])        # the first is older than 105 - 10
    [1, 2, 0]
    """

    def __init__(self, within_us: int, newest: int | None = None) -> None:
        self.within = within_us
        self.newest = newest
        """The newest time of the batches so far; None before the first."""
        self._count = 0
        self._table = _room(1 << 10)

    @property
    def oldest(self) -> int:
        """The watermark: a row older than this is late."""
        return _LEAST if self.newest is None else self.newest - self.within

    def judge(self, high: Words, low: Words, time: Words, verdict: NDArray[np.uint8]) -> Keys:
        """Set the verdict of every row that has none; returns the keys that are new."""
        among = verdict == NEW
        self._make_room(int(among.sum()))
        self._count += int(
            kernel.judge_rows(high, low, time, verdict, self.oldest, self.within, *self._table)
        )
        if among.any():
            newest = int(time[among].max())
            self.newest = newest if self.newest is None else max(self.newest, newest)
        new = verdict == NEW
        return high[new], low[new], time[new]

    def add(self, keys: Keys) -> None:
        """Take in keys of a batch that was judged before a restart."""
        self._make_room(len(keys[0]))
        self._count += int(kernel.move_keys(*keys, self._horizon, *self._table))

    @property
    def _horizon(self) -> int:
        """Keys up to here can no longer be repeated by a row that is not late."""
        return max(self.oldest - self.within, _LEAST)

    def _make_room(self, more: int) -> None:
        if 2 * (self._count + more) <= len(self._table[0]):
            return
        needed = int((self._table[2] > self._horizon).sum()) + more
        table = _room(1 << (4 * needed - 1).bit_length())
        self._count = int(kernel.move_keys(*self._table, self._horizon, *table))
        self._table = table


def _room(size: int) -> Keys:
    empty = np.full(size, kernel.EMPTY, np.int64)
    return np.zeros(size, np.int64), np.zeros(size, np.int64), empty


def write_keys(path: Path, keys: Keys) -> None:
    """Keep the keys of a batch in a file."""
    table = pa.table(dict(zip(("high", "low", "time"), map(pa.array, keys), strict=True)))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_keys(path: Path) -> Keys:
    """The keys of a batch."""
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
        table = reader.read_all()
    high, low, time = (np.array(table[name].to_numpy()) for name in ("high", "low", "time"))
    return high, low, time
