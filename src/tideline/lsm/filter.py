"""What a component's values can be, so that a search may skip it unread.

    MinMax    the closed range [low, high] of one field, integers or bytes: a time, a key, a seq
    Extent       a closed range in each of several dimensions: a bounding box

Ranges are closed, the one exception to `[start, limit)` in this code: the largest value that
occurs is what a component knows.

Invariants of every filter:
1. A component holds no value outside its filter. The filter may be too wide, never too narrow.
2. The empty filter (no value at all) meets nothing and changes nothing when merged.

Values; safe from any thread.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Protocol

from tideline.errors import InvalidRequest

__all__ = ["Extent", "Filter", "MinMax", "filter_from_json"]


class Filter(Protocol):
    """What every filter can do."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no value at all."""
        ...

    def meets(self, other: Any) -> bool:
        """Whether a value may lie in both; `other` is a filter of the same class."""
        ...

    def merge(self, other: Any) -> Any:
        """The filter of the values of both."""
        ...

    def to_json(self) -> Any:
        """As the manifest has it; `filter_from_json` reads it."""
        ...


def filter_from_json(value: Any) -> MinMax | Extent:
    """The filter that `to_json` of any filter wrote.

    >>> filter_from_json([1, 2]), filter_from_json({"box": [0.0, 1.5]})
    (MinMax(low=1, high=2), Extent(lows=(0.0,), highs=(1.5,)))
    """
    return Extent.from_json(value) if isinstance(value, dict) else MinMax.from_json(value)


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

    def meets(self, other: MinMax) -> bool:
        """Whether a value may lie in both.

        >>> MinMax(1, 5).meets(MinMax(5, 9)), MinMax(1, 5).meets(MinMax.empty())
        (True, False)
        """
        return not other.is_empty and self.overlaps(other.low, other.high)

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


@dataclass(frozen=True)
class Extent:
    """The smallest and the largest value in each dimension, all included.

    >>> city, street = Extent((0.0, 0.0), (9.0, 9.0)), Extent((4.0, 9.0), (5.0, 12.0))
    >>> city.meets(street), city.meets(Extent((10.0, 0.0), (11.0, 9.0)))
    (True, False)
    >>> city.merge(street)
    Extent(lows=(0.0, 0.0), highs=(9.0, 12.0))
    """

    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        lows, highs = tuple(map(float, self.lows)), tuple(map(float, self.highs))
        # Not `low > high`: a NaN is neither.
        right = all(low <= high for low, high in zip(lows, highs, strict=False))
        if len(lows) != len(highs) or not right:
            raise InvalidRequest("an extent has a low up to a high in each dimension", box=self)
        object.__setattr__(self, "lows", lows)
        object.__setattr__(self, "highs", highs)

    @property
    def is_empty(self) -> bool:
        """Whether there is no value at all: an extent without dimensions."""
        return not self.lows

    def meets(self, other: Extent) -> bool:
        """Whether a point may lie in both."""
        return bool(
            self.lows
            and other.lows
            and all(low <= high for low, high in zip(self.lows, other.highs, strict=True))
            and all(low <= high for low, high in zip(other.lows, self.highs, strict=True))
        )

    def merge(self, other: Extent) -> Extent:
        """The smallest box around both."""
        if self.is_empty:
            return other
        if other.is_empty:
            return self
        return Extent(
            tuple(map(min, self.lows, other.lows)), tuple(map(max, self.highs, other.highs))
        )

    def to_json(self) -> dict[str, list[float]]:
        """`{"box": [lows, then highs]}`."""
        return {"box": [*self.lows, *self.highs]}

    @classmethod
    def from_json(cls, value: Any) -> Extent:
        """The extent that `to_json` wrote.

        >>> Extent.from_json(Extent((1.0, 2.0), (3.0, 4.0)).to_json())
        Extent(lows=(1.0, 2.0), highs=(3.0, 4.0))
        """
        numbers = value.get("box") if isinstance(value, dict) else None
        good = isinstance(numbers, list) and not len(numbers) % 2
        if not good or not all(type(n) in (int, float) for n in numbers or ()):
            raise InvalidRequest("an extent is written as its lows, then its highs", value=value)
        assert isinstance(numbers, list)
        half = len(numbers) // 2
        return cls(tuple(numbers[:half]), tuple(numbers[half:]))
