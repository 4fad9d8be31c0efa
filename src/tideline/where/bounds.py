"""Target: what each field must be, for a planner or an index over many standing queries.

    Bounds := Box or Box or ...            at least one box must be met
    Box    := path: Need and Need ...      every need of every path, and every test
    Need   := Range or Range or ...        some entry of the path lies in a range

Invariants:
1. A body that meets the condition meets a box: the bounds are necessary. With `exact` they
   are also sufficient: an object that meets a box meets the condition.
2. The entries of a path are `order.entries`: each element of an array is one, and the array
   as a whole. Two needs of one path may be met by two entries; only who knows that a path never
   meets an array may take their common part (`common`).
3. There are at most `BOXES_LIMIT` boxes. A condition that would need more loses bounds, never
   answers.

Negations and `$delta` give no bound. A test that is no range of values (`$regex`, words, places,
`$type`, ...) stands in the box as it is, for an index that can serve it. A pattern that begins with
`^` and plain text is a range of text, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeVar

from tideline.where.parse import Condition
from tideline.where.patterns import prefix
from tideline.where.tree import (
    DELTA,
    All,
    At,
    ElemMatch,
    Equals,
    In,
    Node,
    Order,
    Regex,
    Some,
    Test,
    on_element,
)
from tideline.where.values import RANK, compare, index_of

__all__ = [
    "BOXES_LIMIT",
    "BRACKETS",
    "Bounds",
    "Box",
    "Need",
    "Range",
    "bounds",
    "common",
    "need_of",
]

T = TypeVar("T")
BOXES_LIMIT = 64
BRACKETS = ("null", "number", "text", "object", "array", "boolean")


@dataclass(frozen=True, slots=True)
class Range:
    """The values of one bracket from `low` to `high`; None is the end of the bracket."""

    bracket: str
    low: object = None
    high: object = None
    low_open: bool = False
    high_open: bool = False

    @property
    def point(self) -> bool:
        """Whether it holds one value alone: `low`."""
        if self.bracket == "null":
            return True
        return self.low is not None and self.high is not None and not compare(self.low, self.high)

    def holds(self, value: object) -> bool:
        """Whether the value lies in it.

        >>> Range("number", 5, low_open=True).holds(5.5)
        True
        """
        if BRACKETS[RANK[type(value)]] != self.bracket:
            return False
        if self.low is not None:
            side = compare(value, self.low)
            if side < 0 or (side == 0 and self.low_open):
                return False
        if self.high is not None:
            side = compare(value, self.high)
            if side > 0 or (side == 0 and self.high_open):
                return False
        return True


Need = tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """What must hold together: needs and tests by dotted path.

    A test holds when one of the candidates of its path meets it, as `At` says (tree.py).
    """

    needs: dict[str, tuple[Need, ...]] = field(default_factory=dict)
    tests: dict[str, tuple[Test, ...]] = field(default_factory=dict)

    @property
    def says_nothing(self) -> bool:
        """Whether everything meets it."""
        return not self.needs and not self.tests


@dataclass(frozen=True, slots=True)
class Bounds:
    """The boxes of a condition; see the module."""

    boxes: tuple[Box, ...]
    exact: bool
    whole: bool = False
    """Whether needs and tests together are sufficient: an object that meets all of a box meets the
    condition. Always when `exact`."""

    def __post_init__(self) -> None:
        if self.exact:
            object.__setattr__(self, "whole", True)


_ANYTHING = Bounds((Box(),), exact=False)


def bounds(condition: Condition) -> Bounds:
    """The normal form of a condition.

    >>> from tideline.where.parse import parse
    >>> found = bounds(parse({"kind": "jam", "speed": {"$gt": 50}}))
    >>> found.exact, found.boxes[0].needs["speed"]
    (True, ((Range(bracket='number', low=50, high=None, low_open=True, high_open=False),),))
    """
    return _bounds(condition.tree)


def common(needs: tuple[Need, ...]) -> Need:
    """The common part of needs, for a path that never meets an array.

    >>> common(((Range("number", 1),), (Range("number", high=5), Range("null"))))
    (Range(bracket='number', low=1, high=5, low_open=False, high_open=False),)
    """
    return reduce(_common, needs)


def _common(first: Need, second: Need) -> Need:
    found = []
    for a in first:
        for b in second:
            if a.bracket == b.bracket:
                low = max((a, b), key=_LowKey)
                high = min((a, b), key=_HighKey)
                both = replace(low, high=high.high, high_open=high.high_open)
                if not _empty(both):
                    found.append(both)
    return tuple(found)


def _empty(one: Range) -> bool:
    if one.low is None or one.high is None:
        return False
    side = compare(one.low, one.high)
    return side > 0 or (side == 0 and (one.low_open or one.high_open))


class _LowKey:
    """Orders ranges by where they start."""

    def __init__(self, one: Range) -> None:
        self.one = one

    def __lt__(self, other: _LowKey) -> bool:
        a, b = self.one, other.one
        if a.low is None or b.low is None:
            return a.low is None and b.low is not None
        side = compare(a.low, b.low)
        return side < 0 or (side == 0 and b.low_open and not a.low_open)


class _HighKey:
    """Orders ranges by where they end."""

    def __init__(self, one: Range) -> None:
        self.one = one

    def __lt__(self, other: _HighKey) -> bool:
        a, b = self.one, other.one
        if a.high is None or b.high is None:
            return b.high is None and a.high is not None
        side = compare(a.high, b.high)
        return side < 0 or (side == 0 and a.high_open and not b.high_open)


# --- nodes ---


def _bounds(node: Node, above: str = "") -> Bounds:
    if isinstance(node, At):
        return _at(node, above)
    if isinstance(node, All):
        return reduce(_both, [_bounds(part, above) for part in node.nodes], Bounds((Box(),), True))
    if isinstance(node, Some):
        parts = [_bounds(part, above) for part in node.nodes]
        boxes = tuple(box for part in parts for box in part.boxes)
        exact, whole = all(part.exact for part in parts), all(part.whole for part in parts)
        if any(box.says_nothing for box in boxes):
            return Bounds((Box(),), exact)
        if len(boxes) > BOXES_LIMIT:
            return _ANYTHING
        return Bounds(boxes, exact, whole)
    return _ANYTHING  # what an entry is not says nothing about another one


def _both(a: Bounds, b: Bounds) -> Bounds:
    if len(a.boxes) * len(b.boxes) > BOXES_LIMIT:
        fewer = min(a, b, key=lambda one: len(one.boxes))
        return Bounds(fewer.boxes, exact=False)
    boxes = tuple(_join(one, other) for one in a.boxes for other in b.boxes)
    return Bounds(boxes, a.exact and b.exact, a.whole and b.whole)


def _join(a: Box, b: Box) -> Box:
    return Box(_joined(a.needs, b.needs), _joined(a.tests, b.tests))


def _joined(a: dict[str, tuple[T, ...]], b: dict[str, tuple[T, ...]]) -> dict[str, tuple[T, ...]]:
    found = dict(a)
    for path, more in b.items():
        found[path] = found.get(path, ()) + tuple(n for n in more if n not in found.get(path, ()))
    return found


def _at(node: At, above: str) -> Bounds:
    if node.path[:1] == (DELTA,):
        return _ANYTHING
    path = ".".join((above, *node.path) if above else node.path)
    if isinstance(node.test, ElemMatch):
        return Bounds(_inside(node, node.test.node, path), exact=False)
    need, exact = need_of(node.test)
    tests: dict[str, tuple[Test, ...]] = {} if exact or above else {path: (node.test,)}
    if need is None and not tests:
        return _ANYTHING
    whole = bool(tests)
    return Bounds((Box({} if need is None else {path: (need,)}, tests),), exact, whole)


def _inside(node: At, inner: Node, path: str) -> tuple[Box, ...]:
    """The boxes of an ElemMatch: what an element or a field of it must be is an entry too.

    Not when the array is itself an element, or picked by number: then its elements are no
    entries. An array that is an element reads as an object inside ElemMatch but not on a
    path: it has numbers as fields there, and all else is missing.
    """
    if not node.path:
        return _ANYTHING.boxes
    if on_element(inner):
        picked = index_of(node.path[-1]) >= 0
        return _ANYTHING.boxes if picked else _bounds(inner, path).boxes
    if _starts_with_number(inner):
        return _ANYTHING.boxes
    return tuple(map(_not_null, _bounds(inner, path).boxes))


def _not_null(box: Box) -> Box:
    """The box without the needs that a missing field meets."""
    kept: dict[str, tuple[Need, ...]] = {}
    for path, needs in box.needs.items():
        sure = tuple(need for need in needs if not any(one.bracket == "null" for one in need))
        if sure:
            kept[path] = sure
    return Box(kept)


def _starts_with_number(node: Node) -> bool:
    if isinstance(node, At):
        return index_of(node.path[0]) >= 0
    if isinstance(node, (All, Some)):
        return any(map(_starts_with_number, node.nodes))
    return _starts_with_number(node.node)


# --- tests ---


def need_of(test: Test) -> tuple[Need | None, bool]:
    """The ranges one of which an entry must lie in, and whether that is enough.

    >>> need_of(Order("$gt", 5))
    ((Range(bracket='number', low=5, high=None, low_open=True, high_open=False),), True)
    """
    if isinstance(test, Equals):
        return (_point(test.value),), True
    if isinstance(test, Order):
        return _order(test), True
    if isinstance(test, In):
        found = [_point(value) for value in test.values]
        exact = True
        for pattern in test.patterns:
            need, enough = need_of(pattern)
            if need is None:
                return None, False
            found += need
            exact = exact and enough
        return tuple(found), exact
    if isinstance(test, Regex):
        start, only = prefix(test)
        if not start:
            return None, False
        after = _after(start)
        return (Range("text", start, after, high_open=after is not None),), only
    return None, False


def _point(value: object) -> Range:
    bracket = BRACKETS[RANK[type(value)]]
    return Range(bracket) if value is None else Range(bracket, value, value)


def _order(test: Order) -> Need:
    value = test.value
    bracket = BRACKETS[RANK[type(value)]]
    if value is None:  # null is only ever equal to null
        return (Range(bracket),) if test.operator in ("$gte", "$lte") else ()
    is_open = test.operator in ("$gt", "$lt")
    if test.operator in ("$gt", "$gte"):
        return (Range(bracket, low=value, low_open=is_open),)
    return (Range(bracket, high=value, high_open=is_open),)


def _after(start: str) -> str | None:
    """The first text after all that begin so, or None if nothing is."""
    while start:
        last = ord(start[-1])
        if last < 0x10FFFF:
            # Surrogates are no characters: the next after U+D7FF is U+E000.
            return start[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
        start = start[:-1]
    return None
