"""All records in key order, as they were at one moment.

Under the lock, `Scan` takes note of the sources and of how many rows each memory has; the rest
needs no lock: components never change, and neither do the rows a memory had. Holding the sources
keeps their memory and their maps alive, and `readers` keeps a memory from being used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.documents.types import Found
from tideline.index.records import Records, sorted_rows
from tideline.index.sorted import gather
from tideline.index.texts import Texts
from tideline.kernels.documents import layout as at
from tideline.kernels.documents import merge

__all__ = ["Scan"]

Words = NDArray[np.int64]


class Scan:
    """Sources at one moment, newest first; of those that are skipped nothing is wanted."""

    def __init__(self, sources: Sequence[Any], skipped: NDArray[np.uint8] | None) -> None:
        if skipped is None:
            skipped = np.zeros(len(sources), np.uint8)
        # What is older than everything that is wanted cannot replace any of it.
        wanted = np.flatnonzero(skipped == 0)
        count = int(wanted[-1]) + 1 if len(wanted) else 0
        self._held = list(sources[:count])
        self._skipped = skipped[:count].astype(bool)
        self._facts = [source.facts.copy() for source in self._held]
        self._rows: list[Words | None] = []
        self._keys: list[Texts] = []
        for source in self._held:
            memory = isinstance(source, Records)
            self._rows.append(source.newest() if memory else None)
            self._keys.append(source.row_texts("keys") if memory else source.keys)
            if memory:
                source.readers.add(id(self))
        self._begun = False

    def end(self) -> None:
        """Let go of the sources. Takes no lock: a garbage collector may call it anywhere."""
        for source in self._held:
            if isinstance(source, Records):
                source.readers.discard(id(self))
        self._held = []

    def _cursors(self, low: bytes | None, high: bytes | None) -> Words:
        if not self._begun:
            self._begun = True
            for number, rows in enumerate(self._rows):
                if rows is not None:
                    rows = sorted_rows(self._keys[number], rows)
                    self._rows[number] = rows
                    self._facts[number][at.X_ORDER] = address_of(rows)
                    self._facts[number][at.X_ROWS] = len(rows)
        cursors = np.zeros((len(self._facts), at.M_WORDS), np.int64)
        for number, facts in enumerate(self._facts):
            count, address = int(facts[at.X_ROWS]), address_of(facts)
            start = 0 if low is None else _seek(address, count, low)
            limit = count if high is None else max(start, _seek(address, count, high))
            cursors[number] = [address, start, limit, 0]
        return cursors

    def batches(
        self, low: bytes | None, high: bytes | None, batch: int
    ) -> Iterator[tuple[Found, int]]:
        """The records and the bytes of their documents, some at a time."""
        cursors = self._cursors(low, high)
        addresses = np.array([address_of(facts) for facts in self._facts], np.int64)
        sources, rows = np.empty((2, max(batch, 1)), np.int64)
        while len(cursors):
            count = int(merge.merge_next(address_of(cursors), len(cursors), False, sources, rows))
            if count == 0:
                return
            from_, which = sources[:count], rows[:count]
            if self._skipped.any():
                keep = ~self._skipped[from_]
                from_, which = from_[keep], which[keep]
            if len(which):
                made = gather(addresses, from_, which)
                found = Found(made.seqs, made.docs.to_list(), made.keys.to_list())
                yield found, made.docs.size_bytes

    def count(self) -> int:
        """How many records there are."""
        cursors = self._cursors(None, None)
        sources, rows = np.empty((2, 1 << 16), np.int64)
        total = 0
        while len(cursors):
            count = int(merge.merge_next(address_of(cursors), len(cursors), False, sources, rows))
            if count == 0:
                break
            total += int(np.count_nonzero(~self._skipped[sources[:count]]))
        return total


def _seek(address: int, rows: int, key: bytes) -> int:
    data = np.frombuffer(key + b"\0", np.uint8)
    return int(merge.seek(address, rows, address_of(data), len(key)))
