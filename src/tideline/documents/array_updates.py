"""Update operators of arrays: $push, $addToSet, $pull, $pullAll and $pop.

Each function checks an operand and gives the edit of a value: the new array, from the old one.
`MISSING` is a field that is not there: $push and $addToSet begin an array, the others leave it
missing. Anything else than an array is `Refused`.

Elements are the same when `where.values.equal` says so: 1 and 1.0 are, and the order of the names
in an object counts for nothing. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tideline.documents.refused import Refused, kind_of
from tideline.errors import InvalidRequest
from tideline.near import nearest
from tideline.where import parse
from tideline.where.build import LOGIC
from tideline.where.order import sort_key
from tideline.where.values import MISSING, equal

__all__ = ["add_to_set", "pop", "pull", "pull_all", "push"]

Edit = Callable[[Any], Any]
_MODIFIERS = ("$each", "$position", "$sort", "$slice")


def push(operand: Any, place: str) -> Edit:
    """Add one value, or those of `$each`: at `$position`, then `$sort`, then `$slice`.

    >>> push({"$each": [5, 1], "$sort": 1, "$slice": -2}, "change.$push.a")([3])
    [3, 5]
    """
    values, modifiers = _each(operand, place, _MODIFIERS)
    position = _whole(modifiers, "$position", place)
    slice_ = _whole(modifiers, "$slice", place)
    order = _order(modifiers["$sort"], place) if "$sort" in modifiers else None

    def edit(old: Any) -> Any:
        array = _array(old, place)
        at = len(array) if position is None else position
        made = [*array[:at], *values, *array[at:]]
        if order is not None:
            order(made)
        if slice_ is not None:
            made = made[:slice_] if slice_ >= 0 else made[slice_:]
        return made

    return edit


def add_to_set(operand: Any, place: str) -> Edit:
    """Add a value, or those of `$each`, that are not there.

    >>> add_to_set({"$each": [1, 2, 2]}, "change.$addToSet.a")([1])
    [1, 2]
    """
    values, _ = _each(operand, place, ("$each",))

    def edit(old: Any) -> Any:
        array = _array(old, place)
        made = list(array)
        for value in values:
            if not any(equal(value, one) for one in made):
                made.append(value)
        return array if old is not MISSING and len(made) == len(array) else made

    return edit


def pull(operand: Any, place: str) -> Edit:
    """Take away what equals a value, or meets a condition.

    >>> pull({"$gte": 3}, "change.$pull.a")([1, 3, "x", 5])
    [1, 'x']
    >>> pull({"kind": "jam"}, "change.$pull.a")([{"kind": "jam", "n": 1}, {"kind": "ice"}])
    [{'kind': 'ice'}]
    """
    return _without(_met(operand, place), place)


def pull_all(operand: Any, place: str) -> Edit:
    """Take away what equals one of some values.

    >>> pull_all([1, 2], "change.$pullAll.a")([2, 1, 3, 2])
    [3]
    """
    if not isinstance(operand, list):
        raise InvalidRequest(f"{place} must be a list of values", given=operand)
    return _without(lambda one: any(equal(one, value) for value in operand), place)


def pop(operand: Any, place: str) -> Edit:
    """Take away the last element, or the first.

    >>> pop(1, "change.$pop.a")([1, 2, 3]), pop(-1, "change.$pop.a")([1, 2, 3])
    ([1, 2], [2, 3])
    """
    if type(operand) is bool or operand not in (1, -1):
        raise InvalidRequest(f"{place} must be 1 for the last or -1 for the first", given=operand)

    def edit(old: Any) -> Any:
        if old is MISSING:
            return old
        array = _array(old, place)
        return array[:-1] if operand == 1 else array[1:]

    return edit


# ---- inside ----------------------------------------------------------------------------------


def _array(old: Any, place: str) -> list[Any]:
    if old is MISSING:
        return []
    if type(old) is not list:
        raise Refused(f"{place}: the field holds {kind_of(old)} and no array", value=old)
    return old


def _without(holds: Callable[[Any], bool], place: str) -> Edit:
    def edit(old: Any) -> Any:
        if old is MISSING:
            return old
        array = _array(old, place)
        made = [one for one in array if not holds(one)]
        return array if len(made) == len(array) else made

    return edit


def _met(operand: Any, place: str) -> Callable[[Any], bool]:
    """Whether an element is to go."""
    if not isinstance(operand, dict):
        return lambda one: equal(one, operand)
    try:
        if any(name.startswith("$") and name not in LOGIC for name in operand):
            on_value = parse({"element": operand}).matches
            return lambda one: on_value({"element": one})
        on_object = parse(operand).matches
    except InvalidRequest as error:
        raise InvalidRequest(f"{place}: {error}") from None
    return lambda one: type(one) is dict and on_object(one)


def _each(operand: Any, place: str, allowed: tuple[str, ...]) -> tuple[list[Any], dict[str, Any]]:
    """The values to add, and the modifiers beside them."""
    if not isinstance(operand, dict):
        return [operand], {}
    if not any(name.startswith("$") for name in operand):
        if isinstance(operand.get("each"), list) and {f"${name}" for name in operand} <= {*allowed}:
            raise InvalidRequest(
                f"{place}.each is not a modifier: did you mean $each? To add this very object, put "
                "it into a list for $each", given=operand,
            )  # fmt: skip
        return [operand], {}
    odd = [name for name in operand if name not in allowed]
    if odd:
        meant = nearest(f"${odd[0].lstrip('$')}", allowed)
        hint = f": did you mean {meant}?" if meant else ""
        raise InvalidRequest(
            f"{place}.{odd[0]} is not one of {', '.join(allowed)}{hint}", given=operand
        )
    values = operand.get("$each")
    if not isinstance(values, list):
        raise InvalidRequest(f"{place} needs $each with a list of values", given=operand)
    return values, operand


def _whole(modifiers: dict[str, Any], name: str, place: str) -> int | None:
    value = modifiers.get(name)
    if name in modifiers and type(value) is not int:
        raise InvalidRequest(f"{place}.{name} must be a whole number", given=value)
    return value


def _order(given: Any, place: str) -> Callable[[list[Any]], None]:
    """Sorts an array in place."""
    spec = given if isinstance(given, dict) else {"": given}
    for direction in spec.values():
        if type(direction) is not int or direction not in (1, -1):
            raise InvalidRequest(
                f"{place}.$sort must be 1, -1 or fields with these, like {{'time': -1}}",
                given=given,
            )
    if not spec:
        raise InvalidRequest(f"{place}.$sort names no field", given=given)

    def order(array: list[Any]) -> None:
        for dotted, direction in reversed(spec.items()):
            path = dotted.split(".") if dotted else []
            array.sort(key=partial(_key, path), reverse=direction < 0)

    return order


def _key(path: list[str], value: Any) -> Any:
    for part in path:
        value = value.get(part) if type(value) is dict else None
    return sort_key(value)
