"""Target: a tree as a Python predicate on one body.

A tree becomes closures, specialised when they are made: on the path (one field, two, or more
parts), on the test and on the bracket of its value (`candidates.py`). The common case, a
comparison with a number or a text at a field of the body that holds no array, is one call: a
`dict.get`, a test of the type, a comparison. Only an array on the way falls back to the walk
that `tree.py` describes.

`matches(body)` of every node is false for a body that is not an object. Inside an
`ElemMatch` on the element itself, it gets the element, whatever that is.
"""

from __future__ import annotations

from tideline.where.candidates import Predicate, candidate, field_order, whole
from tideline.where.tree import All, At, Equals, Node, Not, Order, Some, Test, on_element
from tideline.where.values import MISSING, index_of

__all__ = ["Predicate", "candidate", "element", "predicate", "whole"]

_NUMBERS = frozenset((int, float))


def predicate(node: Node) -> Predicate:
    """The tree as a function of a body.

    >>> fast = predicate(At(("speed",), Order("$gt", 50)))
    >>> fast({"speed": 60}), fast({"speed": [1, 60]}), fast({"speed": "60"}), fast([60])
    (True, True, False, False)
    """
    if node == All(()):
        return lambda body: True
    return _matches(node)


def element(node: Node) -> Predicate:
    """The node of an `ElemMatch` as a function of an element.

    >>> element(At(("0",), Equals(5)))([5]), element(At((), Equals(5)))(5)
    (True, True)
    """
    if on_element(node):
        return _matches(node, bare=True)
    matches = _matches(node)

    def object_or_array(value: object) -> bool:
        if type(value) is list:
            value = {str(number): part for number, part in enumerate(value)}
        return matches(value)

    return object_or_array


# --- nodes ---


def _matches(node: Node, bare: bool = False) -> Predicate:
    """A node as a function of a body or, `bare`, of whatever an element is."""
    if isinstance(node, At):
        return whole(node.test) if bare else _at(node.path, node.test)
    if isinstance(node, Not):
        inner = _matches(node.node, bare)
        if bare:
            return lambda body: not inner(body)
        return lambda body: type(body) is dict and not inner(body)
    parts = [_matches(part, bare) for part in node.nodes]
    if isinstance(node, Some):
        return _some(parts)
    if not parts:
        return lambda body: type(body) is dict
    return _all(parts)


def _all(parts: list[Predicate]) -> Predicate:
    if len(parts) == 1:
        return parts[0]
    first, second, *more = parts
    if not more:
        return lambda body: first(body) and second(body)
    if len(more) == 1:
        third = more[0]
        return lambda body: first(body) and second(body) and third(body)
    fixed = tuple(parts)

    def every(body: object) -> bool:
        for part in fixed:  # noqa: SIM110 - no generator to make for every body
            if not part(body):
                return False
        return True

    return every


def _some(parts: list[Predicate]) -> Predicate:
    if len(parts) == 2:
        first, second = parts
        return lambda body: first(body) or second(body)
    fixed = tuple(parts)

    def some(body: object) -> bool:
        for part in fixed:  # noqa: SIM110
            if part(body):
                return True
        return False

    return some


# --- paths ---


def _at(path: tuple[str, ...], test: Test) -> Predicate:
    if len(path) > 1:
        return _deep(path, test)
    field = path[0]
    tested = candidate(test)
    if isinstance(test, Order):
        ordered = field_order(field, test, tested)
        if ordered is not None:
            return ordered
    if isinstance(test, Equals) and type(test.value) is str:
        text = test.value

        def is_text(body: object) -> bool:
            if type(body) is dict:
                value = body.get(field)
                return value == text or (type(value) is list and text in value)
            return False

        return is_text
    if isinstance(test, Equals) and type(test.value) in _NUMBERS:
        number = test.value

        def is_number(body: object) -> bool:
            if type(body) is dict:
                value = body.get(field)
                if value == number:
                    return type(value) is not bool
                return type(value) is list and tested(value)
            return False

        return is_number
    return lambda body: type(body) is dict and tested(body.get(field, MISSING))


def _deep(path: tuple[str, ...], test: Test) -> Predicate:
    """A path of several parts."""
    tested = candidate(test)
    picked = whole(test)
    numbers = tuple(map(index_of, path))
    length = len(path)
    # An object in an array is entered both as the element picked by a number and as any element:
    # with several numbers one and the same would be reached in very many ways.
    many_ways = sum(number >= 0 for number in numbers) > 1

    def guarded(body: object) -> bool:
        if type(body) is not dict:
            return False
        known: set[tuple[int, int]] = set()
        return _once(path, numbers, tested, picked, body, 0, known)

    if many_ways:
        return guarded

    def walk(value: object, at: int) -> bool:
        while at < length:
            if type(value) is dict:
                value = value.get(path[at], MISSING)
                at += 1
            elif type(value) is list:
                return enter(value, at)
            else:
                return tested(MISSING)
        return tested(value)

    def enter(array: list[object], at: int) -> bool:
        number = numbers[at]
        if 0 <= number < len(array):
            value = array[number]
            if at + 1 == length:
                if picked(value):
                    return True
            elif type(value) is list:
                if enter(value, at + 1):
                    return True
            elif type(value) is dict and walk(value, at + 1):
                return True
        for value in array:  # noqa: SIM110
            if type(value) is dict and walk(value, at):
                return True
        return False

    if length > 2:
        return lambda body: type(body) is dict and walk(body, 0)
    first, second = path

    def two(body: object) -> bool:
        if type(body) is dict:
            value = body.get(first)
            if type(value) is dict:
                return tested(value.get(second, MISSING))
            return walk(value, 1)
        return False

    return two


def _once(
    path: tuple[str, ...], numbers: tuple[int, ...], tested: Predicate, picked: Predicate,
    value: object, at: int, known: set[tuple[int, int]],
) -> bool:  # fmt: skip
    """The walk of `_deep`, which comes to a value with a part of the path once."""
    length = len(path)
    while at < length:
        if type(value) is dict:
            value = value.get(path[at], MISSING)
            at += 1
            continue
        if type(value) is not list:
            return tested(MISSING)
        if (id(value), at) in known:
            return False
        known.add((id(value), at))
        number = numbers[at]
        if 0 <= number < len(value):
            found = value[number]
            if at + 1 == length:
                if picked(found):
                    return True
            elif type(found) in (list, dict) and _once(
                path, numbers, tested, picked, found, at + 1, known
            ):
                return True
        for found in value:
            if type(found) is dict and _once(path, numbers, tested, picked, found, at, known):
                return True
        return False
    return tested(value)
