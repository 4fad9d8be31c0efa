"""Asks for ranges of values: what every index on plain values serves.

    needs of a condition (where/bounds.py) -> ranges of bytes (where/keys.py), disjoint and in order

Invariant: two needs of one field are joined into one range only when no document has an array
there; else one value may meet the first and another the second, and either need alone leads to
all documents that meet both.

Pure functions; values.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from tideline.index.compound import part_of, shown
from tideline.index.kind import Asked
from tideline.where.bounds import Need, Range, common
from tideline.where.keys import LIMIT, decode, encode, high_of, is_cut, low_of

__all__ = ["AFTER", "CompoundAsk", "RangeAsk", "encoded", "serves"]

AFTER = b"\xff"
"""Comes after everything that the value of a next field can begin with."""
_MOST_ASKS = 64


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


class CompoundAsk(RangeAsk):
    """A range of values of several fields (compound.py).

    >>> from tideline.index.compound import joined
    >>> value = joined([encode("A1"), encode(7)])
    >>> str(CompoundAsk(value, value)), str(CompoundAsk(value, value + AFTER, high_open=True))
    ("('A1', 7)", "[('A1', 7), ('A1', 7, ...))")
    """

    __slots__ = ()

    def __str__(self) -> str:
        """The range as people write it."""
        if self.point:
            return str(shown(self.low))
        high = str(shown(self.high))
        if self.high.endswith(AFTER):
            high = high.rstrip(",)") + ", ...)"
        return f"[{shown(self.low)}, {high}{')' if self.high_open else ']'}"


def serves(asked: Asked) -> list[tuple[RangeAsk, ...]]:
    """The ranges to ask for: one list of them, or a choice of lists."""
    needs = asked.needs
    if asked.parts:
        return _of_parts(asked.parts, arrays=asked.arrays(), others=bool(asked.tests))
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


# ---- indexes on several fields ---------------------------------------------------------------


def _of_parts(
    needs: Sequence[tuple[Need, ...]], *, arrays: bool, others: bool
) -> list[tuple[RangeAsk, ...]]:
    """What to ask an index on several fields, given the needs of each: one list of asks or none.

    Points of the first fields, and a range of the next one. `arrays`: a document may have an array
    in one of the fields. `others`: more is asked of these fields than their needs.
    """
    exact = not others
    begins, used = [b""], 0
    for given in needs:
        ranges, alone = _ranges_of(given, arrays)
        if not ranges or len(begins) * len(ranges) > _MOST_ASKS:
            break
        used += 1
        exact = exact and alone
        if all(map(_is_one_value, ranges)):
            begins = [start + part_of(one.low) for start, one in product(begins, ranges)]
            continue
        exact = exact and all(one.exact for one in ranges) and not any(needs[used:])
        return [tuple(_between(s, one, exact=exact) for s, one in product(begins, ranges))]
    if not used:
        return []
    exact = exact and not any(needs[used:])
    if used == len(needs):
        return [tuple(_one(start, exact=exact) for start in begins)]
    return [tuple(_cut(start, start + AFTER, True, exact) for start in begins)]


def _is_one_value(one: RangeAsk) -> bool:
    return one.point and not (one.low_open or one.high_open or is_cut(one.low))


def _ranges_of(given: tuple[Need, ...], arrays: bool) -> tuple[tuple[RangeAsk, ...], bool]:
    """The ranges of a field, and whether they are all that is asked of it."""
    if len(given) > 1 and not arrays:
        given = (common(given),)
    for need in given:  # where there are arrays, each alone leads to all of them
        found = encoded(need)
        if found:
            return found, len(given) == 1
    return (), False


def _one(value: bytes, *, exact: bool) -> CompoundAsk:
    value = value[:LIMIT]
    return CompoundAsk(value, value, exact=exact and not is_cut(value))


def _between(start: bytes, one: RangeAsk, *, exact: bool) -> CompoundAsk:
    """A range of the field after those that `start` has the values of."""
    low, high = start + one.low, start + one.high
    if len(one.low) > 1 or one.low == b"\0":  # else where a bracket begins
        low = start + _beginning(one.low) + (AFTER if one.low_open else b"")
    if len(one.high) > 1 or not one.high_open:  # else where a bracket ends
        high = start + _beginning(one.high) + (b"" if one.high_open else AFTER)
    return _cut(low, high, True, exact)


def _beginning(value: bytes) -> bytes:
    """What the part of a value begins with; all of it, unless the value is cut."""
    return part_of(value)[: -2 if is_cut(value) else None]


def _cut(low: bytes, high: bytes, high_open: bool, exact: bool) -> CompoundAsk:
    """A range whose ends are as long as values are; what is cut belongs to it."""
    if len(low) < LIMIT and len(high) < LIMIT:
        return CompoundAsk(low, high, False, high_open, exact)
    return CompoundAsk(low[:LIMIT], high[:LIMIT], False, False, False)
