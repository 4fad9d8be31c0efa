"""Exact sums of numbers, to which numbers are added and from which they are taken away.

Whole numbers are summed as they are. A double is a whole number of 2**-1074: with one among them,
the sum is kept as such a number, and rounded once, when it is asked for. So the sum does not depend
on the order of what came and went, and is the double next to the true sum, as `math.fsum` gives
it.

Values; not safe from several threads.
"""

from __future__ import annotations

import math

__all__ = ["ExactSum"]

_SHIFT = 1074  # the least double is 2**-1074
_UNIT = 1 << _SHIFT


class ExactSum:
    """The sum of some numbers.

    >>> total = ExactSum()
    >>> for number in (1e16, 1, 0.5, -1e16):
    ...     total.add(number)
    >>> total.result(), total.count
    (1.5, 4)
    >>> total.remove(0.5); total.result()
    1.0
    """

    __slots__ = ("_floats", "_parts", "_whole", "count")

    def __init__(self) -> None:
        self._whole = 0
        self._parts = 0  # of doubles, in units of 2**-1074
        self._floats = 0  # how many doubles there are
        self.count = 0
        """How many numbers there are."""

    def add(self, number: int | float) -> None:
        """One number more."""
        self.count += 1
        if type(number) is int:
            self._whole += number
        else:
            self._floats += 1
            self._parts += _parts(number)

    def remove(self, number: int | float) -> None:
        """One number, which was added, less."""
        self.count -= 1
        if type(number) is int:
            self._whole -= number
        else:
            self._floats -= 1
            self._parts -= _parts(number)

    def result(self) -> int | float:
        """The sum: a whole number while all of them are."""
        if not self._floats:
            return self._whole
        try:
            return ((self._whole << _SHIFT) + self._parts) / _UNIT  # rounded correctly
        except OverflowError:  # beyond all doubles
            return math.copysign(math.inf, (self._whole << _SHIFT) + self._parts > 0 or -1)

    def mean(self) -> float | None:
        """The sum by the count; None without numbers."""
        if not self.count:
            return None
        try:
            if not self._floats:
                return self._whole / self.count
            return ((self._whole << _SHIFT) + self._parts) / (_UNIT * self.count)  # rounded once
        except OverflowError:  # beyond all doubles
            return math.inf if self.result() > 0 else -math.inf


def _parts(number: float) -> int:
    above, below = number.as_integer_ratio()
    return above << (_SHIFT + 1 - below.bit_length())
