"""What a component's values can be, so that a search may skip it unread.

`MinMax` is the closed range [low, high] of one field, integers or bytes, over all records of a
component; the one exception to `[start, limit)` in this code, because the
largest value that occurs is what a component knows.

Invariants:
1. A component holds no value outside its filter. The filter may be too wide, never too narrow.
2. The empty filter (no value at all) overlaps nothing and changes nothing when merged.

Values; safe from any thread.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from tideline.errors import InvalidRequest

__all__ = ["MinMax"]


@dataclass(frozen=True)
class MinMax:
    """The smallest and the largest value of a field, both included.

    >>> MinMax(10, 20).overlaps(20, 30), MinMax(10, 20).overlaps(21, 30)
    (True, False)
    >>> MinMax(10, 20).merge(MinMax(15, 40))
    MinMax(low=10, high=40)
    >>> MinMax.empty().merge(MinMax(1, 2))
    MinMax(low=1, high=2)
    >>> MinMax(b"a", b"c").overlaps(b"b", b"z")
    True
    """

    low: Any
    high: Any

    def __post_init__(self) -> None:
        if type(self.low) is bytes and type(self.high) is bytes:
            if self.low > self.high:
                raise InvalidRequest(
                    "a filter's low must not be above its high", low=self.low, high=self.high
                )
            return
        try:
            low, high = operator.index(self.low), operator.index(self.high)
        except TypeError:
            raise InvalidRequest(
                "a filter takes two integers, or two of bytes", low=self.low, high=self.high
            ) from None
        if low > high and (low, high) != (1, 0):
            raise InvalidRequest("a filter's low must not be above its high", low=low, high=high)
        # A numpy integer would not go into JSON.
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @classmethod
    def empty(cls) -> MinMax:
        """The filter of no values.

        >>> MinMax.empty().is_empty
        True
        """
        return MinMax(1, 0)

    @property
    def is_empty(self) -> bool:
        """Whether there is no value at all."""
        return bool(self.low > self.high)

    def overlaps(self, low: Any, high: Any) -> bool:
        """Whether a value in the closed range [low, high] may be in the component."""
        return bool(not self.is_empty and self.low <= high and low <= self.high and low <= high)

    def merge(self, other: MinMax) -> MinMax:
        """The filter of the values of both."""
        if self.is_empty:
            return other
        if other.is_empty:
            return self
        return MinMax(min(self.low, other.low), max(self.high, other.high))

    def to_json(self) -> list[int] | list[str]:
        """`[low, high]`, bytes as hexadecimal text; `[]` for the empty filter.

        >>> MinMax(1, 2).to_json(), MinMax(b"a", b"b").to_json(), MinMax.empty().to_json()
        ([1, 2], ['61', '62'], [])
        """
        if self.is_empty:
            return []
        if isinstance(self.low, bytes) and isinstance(self.high, bytes):
            return [self.low.hex(), self.high.hex()]
        return [int(self.low), int(self.high)]

    @classmethod
    def from_json(cls, value: Any) -> MinMax:
        """The filter that `to_json` wrote.

        >>> MinMax.from_json([1, 2]), MinMax.from_json(["61", "62"])
        (MinMax(low=1, high=2), MinMax(low=b'a', high=b'b'))
        """
        if value == []:
            return cls.empty()
        if not isinstance(value, list) or len(value) != 2:
            raise InvalidRequest("a filter is written as [low, high] or []", value=value)
        low, high = value
        if isinstance(low, str) and isinstance(high, str):
            try:
                return MinMax(bytes.fromhex(low), bytes.fromhex(high))
            except ValueError:
                raise InvalidRequest("a filter's bytes must be hexadecimal", value=value) from None
        return MinMax(low, high)
