"""Target: a tree as a Python predicate on one body.

A tree becomes closures, one a comparison, specialised on the bracket of the value,
so that one comparison costs two Python calls and no dispatch (about 0.2 us).

The body is what decoding JSON gives; anything but an object meets no comparison.
A missing field reads as null, which is MongoDB's rule for every operator here.
An array field meets an operator when its whole value or any element does (one
level deep); `$ne` is the negation of that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tideline.where.tree import Compare, Node
from tideline.where.values import equal

__all__ = ["Predicate", "predicate"]

Predicate = Callable[[object], bool]
_NUMBERS = frozenset((int, float))


def predicate(node: Node) -> Predicate:
    """The tree as a function of a body.

    >>> fast = predicate(Compare("speed", "$gt", 50))
    >>> fast({"speed": 60}), fast({"speed": "60"}), fast({}), fast([60])
    (True, False, False, False)
    """
    if isinstance(node, Compare):
        return _on_field(node.field, TESTS[node.operator](node.value))
    parts = [predicate(part) for part in node.nodes]
    if not parts:
        return lambda body: True
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:  # the common range, without a loop
        first, second = parts
        return lambda body: first(body) and second(body)
    fixed = tuple(parts)

    def every(body: object) -> bool:
        for part in fixed:  # noqa: SIM110 - no generator to make for every body
            if not part(body):
                return False
        return True

    return every


def _on_field(field: str, test: Predicate) -> Predicate:
    def matches(body: object) -> bool:
        return type(body) is dict and test(body.get(field))

    return matches


def _any_element(test: Predicate) -> Predicate:
    """Let a test on a value hold for an array when it holds for an element."""

    def tested(value: object) -> bool:
        if type(value) is list:
            return any(map(test, value))
        return test(value)

    return tested


def _equals(wanted: object) -> Predicate:
    if type(wanted) in _NUMBERS:

        def number(value: object) -> bool:
            return type(value) in _NUMBERS and value == wanted

        return _any_element(number)
    if wanted is None or type(wanted) is bool:
        return _any_element(lambda value: value is wanted)
    if type(wanted) is str:
        return _any_element(lambda value: value == wanted)

    def deep(value: object) -> bool:
        if equal(value, wanted):
            return True
        return type(value) is list and any(equal(part, wanted) for part in value)

    return deep


def _differs(wanted: object) -> Predicate:
    test = _equals(wanted)
    return lambda value: not test(value)


def _ordered(compare: Callable[[Any, Any], bool], or_equal: bool) -> Callable[[object], Predicate]:
    def build(wanted: object) -> Predicate:
        if type(wanted) in _NUMBERS:

            def number(value: object) -> bool:
                return type(value) in _NUMBERS and compare(value, wanted)

            return _any_element(number)
        if wanted is None:  # null is only ever equal to null
            return _any_element(lambda value: or_equal and value is None)
        kind = type(wanted)

        def same_kind(value: object) -> bool:
            return type(value) is kind and compare(value, wanted)

        return _any_element(same_kind)

    return build


TESTS: dict[str, Callable[[object], Predicate]] = {
    "$eq": _equals,
    "$ne": _differs,
    "$gt": _ordered(operator.gt, or_equal=False),
    "$gte": _ordered(operator.ge, or_equal=True),
    "$lt": _ordered(operator.lt, or_equal=False),
    "$lte": _ordered(operator.le, or_equal=True),
}
