"""What a test of the tree says of one value: half of the predicate target.

    whole(test)       function of a value; an array is tested as a whole
    candidate(test)   function of a candidate; an array is tested by its elements too,
                      where the test says so

Both are closures, specialised on the test and on the bracket of its value.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from tideline.where import geo, grams, patterns, words
from tideline.where.tree import (
    Contains,
    ElemMatch,
    Equals,
    Exists,
    Fuzzy,
    In,
    Inside,
    IsType,
    Jaccard,
    Mod,
    Order,
    Regex,
    Size,
    Test,
    Words,
)
from tideline.where.values import MISSING, compare, equal, types_of

__all__ = ["Predicate", "candidate", "field_order", "whole"]

Predicate = Callable[[object], bool]
_NUMBERS = frozenset((int, float))
_ALLOWED = {"$gt": (1,), "$gte": (0, 1), "$lt": (-1,), "$lte": (-1, 0)}


def whole(test: Test) -> Predicate:
    """The test as a function of one value, `MISSING` included.

    >>> whole(Equals(1))([1]), whole(Equals([1]))([1]), whole(Size(1))([[]])
    (False, True, True)
    """
    return _WHOLE[type(test)](test)


def candidate(test: Test) -> Predicate:
    """The test as a function of one candidate, `MISSING` included.

    >>> candidate(Equals(1))([1]), candidate(Equals(None))(MISSING)
    (True, True)
    """
    if isinstance(test, Order) and type(test.value) in _CHECKS:
        return _BY_ELEMENT[type(test.value)][test.operator](test.value)
    single = whole(test)
    if not test.elements:
        return single
    if not _may_hold_for_array(test):

        def by_element(value: object) -> bool:
            return any(map(single, value)) if type(value) is list else single(value)

        return by_element

    def tested(value: object) -> bool:
        return single(value) or (type(value) is list and any(map(single, value)))

    return tested


def _may_hold_for_array(test: Test) -> bool:
    """Whether a whole array can meet a test; if not, it need not be asked."""
    if isinstance(test, (Equals, Order)):
        return type(test.value) is list
    if isinstance(test, In):
        return any(type(value) is list for value in test.values)
    return isinstance(test, IsType) and "array" in test.names


# --- comparisons, written once for each sign: a call to compare would double the cost ---

_WHOLE_SOURCE = """
def build(wanted):
    def whole(value):
        kind = type(value)
        return ({check}) and value {sign} wanted
    return whole
"""

_ELEMENT_SOURCE = """
def build(wanted):
    def tested(value):
        kind = type(value)
        if {check}:
            return value {sign} wanted
        if kind is list:
            for value in value:
                kind = type(value)
                if ({check}) and value {sign} wanted:
                    return True
        return False
    return tested
"""

_FIELD_SOURCE = """
def build(field, wanted, tested):
    def matches(body):
        if type(body) is dict:
            value = body.get(field)
            kind = type(value)
            if {check}:
                return value {sign} wanted
            return kind is list and tested(value)
        return False
    return matches
"""

_SIGNS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_CHECKS = {
    int: "kind is int or kind is float",
    float: "kind is int or kind is float",
    str: "kind is str",
    bool: "kind is bool",
}


def _written(source: str) -> dict[type, dict[str, Callable[..., Predicate]]]:
    """A builder for every type of value and every operator."""
    builders: dict[type, dict[str, Callable[..., Predicate]]] = {}
    for kind, check in _CHECKS.items():
        builders[kind] = {}
        for operator, sign in _SIGNS.items():
            names: dict[str, Any] = {}
            exec(source.format(check=check, sign=sign), names)
            builders[kind][operator] = names["build"]
    return builders


_SCALAR = _written(_WHOLE_SOURCE)
_BY_ELEMENT = _written(_ELEMENT_SOURCE)
_AT_FIELD = _written(_FIELD_SOURCE)


def field_order(field: str, test: Order, tested: Predicate) -> Predicate | None:
    """A comparison with a scalar at a field of a body, in one call; None for other values.

    >>> field_order("speed", Order("$gt", 50), candidate(Order("$gt", 50)))({"speed": 60})
    True
    """
    builders = _AT_FIELD.get(type(test.value))
    return builders[test.operator](field, test.value, tested) if builders else None


# --- one function a test ---


def _is_null(value: object) -> bool:
    return value is None or value is MISSING


def _equals(test: Equals) -> Predicate:
    wanted = test.value
    if wanted is None:
        return _is_null
    if type(wanted) is bool:
        return lambda value: value is wanted
    if type(wanted) is str:
        return lambda value: value == wanted
    if type(wanted) in _NUMBERS:
        return lambda value: value == wanted and type(value) is not bool
    return lambda value: equal(value, wanted)


def _order(test: Order) -> Predicate:
    wanted, operator = test.value, test.operator
    if wanted is None:  # null is only ever equal to null
        return _is_null if operator in ("$gte", "$lte") else lambda value: False
    if type(wanted) in _CHECKS:
        return _SCALAR[type(wanted)][operator](wanted)
    kind = type(wanted)
    allowed = _ALLOWED[operator]
    return lambda value: type(value) is kind and compare(value, wanted) in allowed


def _in(test: In) -> Predicate:
    texts = frozenset(value for value in test.values if type(value) is str)
    numbers = frozenset(value for value in test.values if type(value) in _NUMBERS)
    bools = frozenset(value for value in test.values if type(value) is bool)
    deep = [value for value in test.values if type(value) in (list, dict)]
    null = any(value is None for value in test.values)
    found = [patterns.finds(pattern) for pattern in test.patterns]

    def one_of(value: object) -> bool:
        kind = type(value)
        if kind is str:
            return value in texts or (bool(found) and any(finds(value) for finds in found))
        if kind is int or kind is float:
            return value in numbers
        if kind is list or kind is dict:
            return any(equal(value, wanted) for wanted in deep)
        return value in bools if kind is bool else null and _is_null(value)

    return one_of


def _is_type(test: IsType) -> Predicate:
    names = frozenset(test.names)
    return lambda value: not names.isdisjoint(types_of(value))


def _mod(test: Mod) -> Predicate:
    divisor, remainder = abs(test.divisor), test.remainder

    def leaves(value: object) -> bool:
        if type(value) is float:
            if not isfinite(value):  # not JSON, but rows of other sources have it
                return False
            value = int(value)
        if type(value) is not int:
            return False
        left = value % divisor if value >= 0 else -(-value % divisor)
        return left == remainder

    return leaves


def _size(test: Size) -> Predicate:
    count = test.count
    return lambda value: type(value) is list and len(value) == count


def _elem_match(test: ElemMatch) -> Predicate:
    from tideline.where.predicate import element  # a circle: the test holds a node

    matches = element(test.node)
    return lambda value: type(value) is list and any(map(matches, value))


_WHOLE: dict[type, Callable[[Any], Predicate]] = {
    Equals: _equals,
    Order: _order,
    In: _in,
    Exists: lambda test: lambda value: value is not MISSING,
    IsType: _is_type,
    Regex: patterns.finds,
    Mod: _mod,
    Size: _size,
    ElemMatch: _elem_match,
    Inside: geo.inside,
    Words: words.has_words,
    Fuzzy: words.has_fuzzy,
    Contains: grams.contains,
    Jaccard: grams.is_similar,
}
