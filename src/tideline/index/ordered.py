"""The first few of a range, in the order of its values: for a `sort` that an index on several
fields has the order of.

    how many entries does a part of the range have?  --bisect the bytes-->  a part with a few
    documents of that part -> the last one wanted -> everything up to its values -> sorted, cut

An index gives candidates newest first, whatever was asked. But it counts the entries of a range
without reading them, so the part of a range that has about the first hundred is found by halving
it. What is in there is sorted as documents; what is outside comes after all of it.

Only where no document has an array: an entry is then the one place of its document.

Pure functions of what they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tideline.index.compound import OTHER, part_of, parts_of, starts
from tideline.index.extract import of_document
from tideline.index.ranges import AFTER, RangeAsk
from tideline.where.keys import LIMIT

__all__ = ["Order", "first_part", "matched", "up_to"]

Order = Sequence[tuple[str, int]]
_WIDER = 12  # bytes behind what all of a range has in common
_ENOUGH = 4  # times what is wanted is near enough


def matched(field: str, ask: RangeAsk, order: Order) -> list[str]:
    """The fields of an order that the values of an ask are ordered by; none if they are not.

    >>> from tideline.where.keys import encode
    >>> road = part_of(encode("A1"))
    >>> matched("road,speed,lane", RangeAsk(road, road + AFTER), [("speed", -1), ("id", 1)])
    ['speed']
    """
    parts = parts_of(field)
    fixed = _fixed(ask)
    left = [(name, direction) for name, direction in order if name not in parts[:fixed]]
    found: list[str] = []
    for (name, direction), part in zip(left, parts[fixed:], strict=False):
        if name != part or direction != left[0][1]:
            break
        found.append(name)
    return found


def _fixed(ask: RangeAsk) -> int:
    """How many fields have one value in all of a range."""
    low, high = starts(ask.low), starts(ask.high)
    count = 0
    for end, other in zip(low[1:], high[1:], strict=False):
        if end != other or ask.low[:end] != ask.high[:end]:
            break
        count += 1
    return count


def first_part(
    entries: Callable[[bytes, bytes], float], ask: RangeAsk, count: int, *, down: bool
) -> tuple[RangeAsk, bool]:
    """A part of an ask with about its first `count` entries, and whether that is all of it."""
    if entries(ask.low, ask.high) <= _ENOUGH * count:
        return ask, True
    common = 0
    for a, b in zip(ask.low, ask.high, strict=False):
        if a != b:
            break
        common += 1
    width = min(common + _WIDER, LIMIT)
    least = int.from_bytes(ask.low[:width].ljust(width, b"\0"), "big")
    most = int.from_bytes(ask.high[:width].ljust(width, b"\xff"), "big")
    best = least if down else most
    while most - least > 1:
        middle = (least + most) // 2
        edge = middle.to_bytes(width, "big")
        has = entries(edge, ask.high) if down else entries(ask.low, edge)
        if has >= count:
            best = middle
            if has <= _ENOUGH * count:
                break
        if (has >= count) == down:
            least = middle
        else:
            most = middle
    edge = best.to_bytes(width, "big")
    if down:
        return ask._replace(low=max(edge, ask.low)), edge <= ask.low
    return ask._replace(high=min(edge, ask.high)), edge >= ask.high


def up_to(field: str, ask: RangeAsk, document: Any, names: Sequence[str], *, down: bool) -> Any:
    """The part of an ask up to a document in the order of these fields, and all equal to it."""
    parts = parts_of(field)
    fixed = _fixed(ask)
    start = ask.low[: starts(ask.low)[fixed]]
    for name in parts[fixed : fixed + len(names)]:
        start += part_of((of_document(document, name) or [OTHER])[0])
    if down:
        return ask._replace(low=max(ask.low, start[:LIMIT]))
    high = (start + AFTER)[:LIMIT]
    return ask._replace(high=high, high_open=False) if high < ask.high else ask
