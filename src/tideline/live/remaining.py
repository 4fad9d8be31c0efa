"""Where things of a row are among those that are left, while they are taken out one by one.

A Fenwick tree over the places: each `take` is a few steps, however long the row is.

Values; safe from one thread at a time.
"""

from __future__ import annotations

__all__ = ["Remaining"]


class Remaining:
    """The things of a row that were not taken yet.

    >>> left = Remaining(4)
    >>> left.take(0), left.take(2), left.take(3), left.take(1)
    (0, 1, 1, 0)
    """

    __slots__ = ("_before", "_first", "_taken")

    def __init__(self, count: int) -> None:
        self._taken = bytearray(count)
        self._first = 0  # all before it were taken
        self._before: list[int] | None = None  # the tree; None while each was the first one left

    def take(self, place: int) -> int:
        """Take the thing at a place; returns how many before it are left."""
        taken, first = self._taken, self._first
        taken[place] = 1
        if place == first:
            while first < len(taken) and taken[first]:
                first += 1
            self._first = first
            if self._before is not None:
                self._count(place)
            return 0
        if self._before is None:
            self._before = [0] * (len(taken) + 1)
            for each in range(first):
                self._count(each)
        before = self._before
        gone, at = 0, place
        while at:
            gone += before[at]
            at &= at - 1
        self._count(place)
        return place - gone

    def _count(self, place: int) -> None:
        before = self._before
        assert before is not None
        at = place + 1
        while at < len(before):
            before[at] += 1
            at += at & -at
