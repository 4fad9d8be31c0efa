"""Parsing of what is asked most often, without looking at every value twice.

    {"user": 7, "price": {"$gte": 10, "$lt": 20}, "kind": {"$in": ["a", "b"]},
     "at": {"$geoWithin": {"$centerSphere": [[13.4, 52.5], 0.0001]}}}

A few fields that must be a value, be compared, or lie in a box or a circle; their values stand as
they stand in a canonical copy. The nodes are those that build.py gives. For everything else, what
is wrong included, there are none: the builder looks at it, and says what is wrong.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tideline.errors import InvalidRequest
from tideline.where.build import LOGIC, Path, path_of
from tideline.where.geo import check_radians, within
from tideline.where.tree import At, Equals, In, Node, Order

__all__ = ["quick_nodes"]

_MOST = 16  # fields, and operators of a field
_MOST_VALUES = 64
_WHOLE = 1 << 62
_LARGE = 1e300
_ORDERS = frozenset(("$gt", "$gte", "$lt", "$lte"))


def quick_nodes(document: dict[Any, Any], careful: bool) -> list[Node] | None:
    """The nodes that must hold together; None when that is not seen at a glance.

    >>> quick_nodes({"user": 7}, True)
    [At(path=('user',), test=Equals(value=7))]
    >>> quick_nodes({"$or": [{"user": 7}]}, True), quick_nodes({"user": 7.0}, True)
    (None, None)
    """
    if len(document) > _MOST:
        return None
    nodes: list[Node] = []
    for name in document if len(document) == 1 else _sorted(document):
        path = _path(name) if type(name) is str else None
        if path is None:
            return None
        asked = document[name]
        if type(asked) is not dict:
            if not _is_plain(asked):
                return None
            nodes.append(At(path, Equals(asked)))
            continue
        if not 0 < len(asked) <= _MOST:
            return None
        for operator in asked if len(asked) == 1 else _sorted(asked):
            node = _asked(path, name, operator, asked[operator], careful)
            if node is None:
                return None
            nodes.append(node)
    return nodes


def _asked(path: Path, name: str, operator: Any, operand: Any, careful: bool) -> Node | None:
    """What an operator asks of a field."""
    if operator == "$geoWithin":
        if not _is_round_or_box(operand):
            return None
        place = ("where", name), operator
        test = within(operand, place)
        if careful:
            check_radians(test, place)
        return At(path, test)
    if operator == "$in":
        if type(operand) is not list or len(operand) > _MOST_VALUES:
            return None
        return At(path, In(tuple(operand))) if all(map(_is_plain, operand)) else None
    if not _is_plain(operand):
        return None
    if operator in _ORDERS:
        return At(path, Order(operator, operand))
    return At(path, Equals(operand)) if operator == "$eq" else None


def _sorted(names: dict[Any, Any]) -> list[Any]:
    try:
        return sorted(names)
    except TypeError:  # of several types
        return list(names)


def _is_plain(value: object) -> bool:
    """Whether a value is no array or object, and its own canonical copy."""
    if type(value) is int:
        return -_WHOLE < value < _WHOLE
    if type(value) is str:
        return value.isascii()
    if type(value) is float:
        return -_LARGE < value < _LARGE and not value.is_integer()
    return type(value) is bool or value is None


def _is_round_or_box(operand: Any) -> bool:
    if type(operand) is not dict or len(operand) != 1:
        return False
    circle = operand.get("$centerSphere")
    pair = circle or operand.get("$box")
    if type(pair) is not list or len(pair) != 2:
        return False
    return _is_position(pair[0]) and (_is_plain if circle else _is_position)(pair[1])


def _is_position(value: Any) -> bool:
    if type(value) is not list or len(value) != 2:
        return False
    return _is_plain(value[0]) and _is_plain(value[1])


@lru_cache(4_096)
def _path(name: str) -> Path | None:
    """The path of a name that is nothing else."""
    if name.startswith("$") or f"${name}" in LOGIC or not name.isascii():
        return None
    try:
        return path_of(name, "where")
    except InvalidRequest:
        return None
