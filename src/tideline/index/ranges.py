"""Asks for ranges of values: what every index on plain values serves.

    needs of a condition (where/bounds.py) -> ranges of bytes (where/keys.py), disjoint and in order

Invariant: two needs of one field are joined into one range only when no document has an array
there; else one value may meet the first and another the second, and either need alone leads to
all documents that meet both.

Pure functions; values.
"""

from __future__ import annotations

from typing import NamedTuple

from tideline.index.kind import Asked
from tideline.where.bounds import Need, Range, common
from tideline.where.keys import decode, encode, high_of, is_cut, low_of

__all__ = ["RangeAsk", "encoded", "serves"]


class RangeAsk(NamedTuple):
    """A range of encoded values.

    >>> str(RangeAsk(encode(1), encode(5), high_open=True)), RangeAsk(b"a", b"a").point
    ('[1, 5)', True)
    """

    low: bytes
    high: bytes
    low_open: bool = False
    high_open: bool = False
    exact: bool = True

    @property
    def point(self) -> bool:
        """Whether it holds one value."""
        return self.low == self.high

    def __str__(self) -> str:
        """The range as people write it."""
        if self.point:
            return _side(self.low)
        left, right = "(" if self.low_open else "[", ")" if self.high_open else "]"
        return f"{left}{_side(self.low)}, {_side(self.high)}{right}"


def serves(asked: Asked) -> list[tuple[RangeAsk, ...]]:
    """The ranges to ask for: one list of them, or a choice of lists."""
    needs = asked.needs
    if not needs:
        return []
    several = len(needs) > 1
    if several and not asked.arrays():
        needs = (common(needs),)
    choices = []
    for need in needs:
        found = encoded(need)
        if found is not None:
            if several or asked.tests:  # there is more to be met
                found = tuple(one._replace(exact=False) for one in found)
            choices.append(found)
    return choices


def encoded(need: Need) -> tuple[RangeAsk, ...] | None:
    """The ranges of a need as bytes; None when it may be met by what no index holds."""
    for one in need:
        if one.bracket == "object" or one.bracket == "array":
            return None
    if len(need) == 1:
        return (_bytes(need[0]),)
    return _disjoint([_bytes(one) for one in need])


def _disjoint(ranges: list[RangeAsk]) -> tuple[RangeAsk, ...]:
    """The same in order, those that overlap made one: no document is found twice by its key.

    >>> [(one.low, one.high) for one in _disjoint(
    ...     [RangeAsk(b"c", b"d"), RangeAsk(b"a", b"b"), RangeAsk(b"a", b"a")])]
    [(b'a', b'b'), (b'c', b'd')]
    """
    found: list[RangeAsk] = []
    for one in sorted(ranges, key=lambda one: (one.low, one.low_open)):
        if found and one.low <= found[-1].high:
            last = found[-1]
            high, high_open = max((last.high, not last.high_open), (one.high, not one.high_open))
            found[-1] = _ask(last.low, high, last.low_open, not high_open)
        else:
            found.append(one)
    return tuple(found)


def _bytes(one: Range) -> RangeAsk:
    if one.bracket == "null":
        null = encode(None)
        return RangeAsk(null, null)
    low = low_of(one.bracket) if one.low is None else encode(one.low)
    if one.low is one.high and one.low is not None:
        return _ask(low, low)
    high = high_of(one.bracket) if one.high is None else encode(one.high)
    # What is cut stands for many values: an open end would lose those beyond it.
    return _ask(
        low, high,
        one.low is not None and one.low_open and not is_cut(low),
        one.high is None or (one.high_open and not is_cut(high)),
    )  # fmt: skip


def _ask(low: bytes, high: bytes, low_open: bool = False, high_open: bool = False) -> RangeAsk:
    """A range, which is not exact where it may hold texts that are cut: its ends are not sure."""
    sure = low[:1] != low_of("text") or (low == high and not is_cut(low))
    return RangeAsk(low, high, low_open, high_open, sure)


def _side(data: bytes) -> str:
    return repr(decode(data)) if len(data) > 1 or data == encode(None) else ""
