"""Which records of a memory or a component expire next.

    Growing    of a memory: a heap of runs of rows that expire at one time
    Sorted     of a component: its rows in the order of their times, made when the first is due

`next` is when the first of those expires that were not passed over yet. Whoever deals with what is
due takes rows (`upto`), and says when that is done (`passed`): what was taken and not passed over
comes again. Beginning again from the start does no harm, so nothing of this is stored.

Callers hold the owner's lock for writers.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from tideline.clock import FOREVER

__all__ = ["Growing", "Sorted"]

Words = NDArray[np.int64]
_NONE: Words = np.empty(0, np.int64)


class Growing:
    """Rows of a memory, which come one batch after the other.

    >>> due = Growing()
    >>> due.add(np.array([50, 0, 50, 40]), first=7)
    >>> due.next, due.upto(40, 10).tolist(), due.upto(50, 10).tolist()
    (40, [10], [10, 7, 9])
    >>> due.passed()
    >>> due.next == FOREVER
    True
    """

    def __init__(self) -> None:
        self.any = False
        """Whether there ever was a row that expires."""
        self._heap: list[tuple[int, int, Words]] = []
        self._taken: list[tuple[int, int, Words]] = []

    def add(self, untils: Words, first: int) -> None:
        """Rows from `first` on, with the times at which they expire, 0 for never."""
        for until in np.unique(untils[untils > 0]).tolist():
            rows = first + np.flatnonzero(untils == until)
            heapq.heappush(self._heap, (until, int(rows[0]), rows))
            self.any = True

    @property
    def next(self) -> int:
        """When the next one expires."""
        self._put_back()
        return self._heap[0][0] if self._heap else FOREVER

    def upto(self, now: int, most: int) -> Words:
        """Rows that have expired, the earliest first, at most so many."""
        self._put_back()
        while self._heap and self._heap[0][0] <= now and most > 0:
            until, _, rows = heapq.heappop(self._heap)
            self._taken.append((until, int(rows[0]), rows[:most]))
            if len(rows) > most:
                heapq.heappush(self._heap, (until, int(rows[most]), rows[most:]))
            most -= len(rows)
        return np.concatenate([rows for _, _, rows in self._taken]) if self._taken else _NONE

    def passed(self) -> None:
        """What was taken last is dealt with."""
        self._taken = []

    def _put_back(self) -> None:
        for each in self._taken:
            heapq.heappush(self._heap, each)
        self._taken = []


class Sorted:
    """Rows of a component.

    >>> due = Sorted(np.array([50, 0, 40]), first=40)
    >>> due.next, due.upto(60, 1).tolist()
    (40, [2])
    >>> due.passed()
    >>> due.next
    50
    """

    def __init__(self, untils: Words, first: int) -> None:
        self._untils = untils
        self._first = first
        self._rows: Words | None = None
        self._at = self._taken = 0

    @property
    def next(self) -> int:
        """When the next one expires."""
        if self._rows is None:
            return self._first
        at = self._at
        return int(self._untils[self._rows[at]]) if at < len(self._rows) else FOREVER

    def upto(self, now: int, most: int) -> Words:
        """Rows that have expired, the earliest first, at most so many."""
        if self._rows is None:
            rows = np.flatnonzero(self._untils)
            self._rows = rows[np.argsort(self._untils[rows], kind="stable")]
        some = self._rows[self._at : self._at + most]
        self._taken = int(np.searchsorted(self._untils[some], now, side="right"))
        return some[: self._taken]

    def passed(self) -> None:
        """What was taken last is dealt with."""
        self._at, self._taken = self._at + self._taken, 0
