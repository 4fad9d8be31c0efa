"""All records in key order, as they were at one moment.

No lock: components never change, and neither do the rows that a memory had at that moment. Holding
the sources keeps their maps alive, and their memories from being used again. For one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index.records import sorted_rows
from tideline.index.sorted import Gathered, gather
from tideline.kernels.documents import layout as at
from tideline.kernels.documents import merge

if TYPE_CHECKING:
    from tideline.documents.view import Now

__all__ = ["Scan"]

Words = NDArray[np.int64]


class Scan:
    """The records of a view that have not expired; of skipped sources nothing is wanted."""

    def __init__(self, now: Now, skipped: NDArray[np.uint8] | None, time: int) -> None:
        sources, active, _, table = self._now = now
        self._time = time
        if skipped is None:
            skipped = np.zeros(len(sources.all), np.uint8)
        # What is older than everything that is wanted cannot replace any of it.
        wanted = np.flatnonzero(skipped == 0)
        count = int(wanted[-1]) + 1 if len(wanted) else 0
        self._skipped = skipped[:count].astype(bool)
        self._facts = [facts.copy() for facts in sources.facts[:count]]
        self._rows: list[Words] = []  # of memories, in key order
        for memory, facts in zip(sources.memories, self._facts, strict=False):
            limit = sources.rows_of(memory, active)
            mine = table if memory is sources.active else memory.table
            rows = sorted_rows(memory.row_texts("keys", limit), memory.newest(limit, mine))
            facts[at.X_ORDER], facts[at.X_ROWS] = address_of(rows), len(rows)
            self._rows.append(rows)

    def _cursors(self, low: bytes | None, high: bytes | None) -> Words:
        cursors = np.zeros((len(self._facts), at.M_WORDS), np.int64)
        for number, facts in enumerate(self._facts):
            count, address = int(facts[at.X_ROWS]), address_of(facts)
            start = 0 if low is None else _seek(address, count, low)
            limit = count if high is None else max(start, _seek(address, count, high))
            cursors[number] = [address, start, limit, 0]
        return cursors

    def batches(self, low: bytes | None, high: bytes | None, batch: int) -> Iterator[Gathered]:
        """The records, some at a time."""
        cursors = self._cursors(low, high)
        addresses = np.array([address_of(facts) for facts in self._facts], np.int64)
        sources, rows = np.empty((2, max(batch, 1)), np.int64)
        while len(cursors):
            count = self._next(cursors, sources, rows)
            if count == 0:
                return
            from_, which = sources[:count], rows[:count]
            if self._skipped.any():
                keep = ~self._skipped[from_]
                from_, which = from_[keep], which[keep]
            if len(which):
                yield gather(addresses, from_, which)

    def _next(self, cursors: Words, sources: Words, rows: Words) -> int:
        at = address_of(cursors)
        return int(merge.merge_next(at, len(cursors), False, self._time, sources, rows))

    def count(self) -> int:
        """How many records there are."""
        cursors = self._cursors(None, None)
        sources, rows = np.empty((2, 1 << 16), np.int64)
        total = 0
        while len(cursors):
            count = self._next(cursors, sources, rows)
            if count == 0:
                break
            total += int(np.count_nonzero(~self._skipped[sources[:count]]))
        return total


def _seek(address: int, rows: int, key: bytes) -> int:
    data = np.frombuffer(key + b"\0", np.uint8)
    return int(merge.seek(address, rows, address_of(data), len(key)))
