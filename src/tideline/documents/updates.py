"""MongoDB's update operators: a change of a document, as a function of the document.

    change  :=  {"$operator": {path: operand, ...}, ...}
    path    :=  names with dots between them; a whole number picks an element of an array

    $set $unset $inc $mul $min $max $rename $setOnInsert          here
    $push $addToSet $pull $pullAll $pop                           array_updates.py

Invariants:
1. A document is never changed: `Update.apply` makes a new one, which shares what did not change.
2. No two paths of a change touch one another, so the order of operators means nothing.
3. The key of a document stays what it is.

On the way of a path, what is missing is made where the operator makes something ($set, $inc, $push
and so on); an operator that only takes away ($unset, $pull, $pullAll, $pop) leaves it so. An array
is made longer with nulls where needed. An element that is unset becomes null.

Everything wrong is `InvalidRequest`: in the change itself by `parse_update`, with the path inside
(`change.$inc.speed`); in a document that it does not fit by `apply`. Pure; safe from any thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tideline.documents import array_updates
from tideline.documents.refused import Refused, kind_of
from tideline.errors import InvalidRequest
from tideline.near import nearest
from tideline.where.plain import plain_json
from tideline.where.values import MISSING, compare, index_of

__all__ = ["OPERATORS", "Update", "parse_update"]

Document = dict[str, Any]
Path = tuple[str, ...]
Edit = Callable[[Any], Any]
"""The new value, from the old one; `MISSING` for a field that is not there."""
Step = Callable[[Document], Document]

PARTS_LIMIT = 64  # of a path: documents are not deeper
_PADDING_LIMIT = 1_500_000  # elements that an array may become longer by, as in MongoDB
_INT_LIMIT = 1 << 64
_NUMBERS = frozenset((int, float))
_decode = msgspec.json.Decoder().decode


class Update:
    """A checked change; `parse_update` makes one."""

    __slots__ = ("_key", "_on_insert", "_steps")

    def __init__(self, key: str, steps: list[Step], on_insert: list[Step]) -> None:
        self._key = key
        self._steps = steps
        self._on_insert = on_insert

    def apply(self, document: Document, *, inserting: bool = False) -> Document:
        """The document after the change.

        `inserting`: it is a new one, so that `$setOnInsert` counts.
        """
        made = document
        try:
            for step in self._steps:
                made = step(made)
            if inserting:
                for step in self._on_insert:
                    made = step(made)
        except Refused as error:
            values = {self._key: document.get(self._key), **error.values}
            raise InvalidRequest(error.message, **values) from None
        before, after = document.get(self._key), made.get(self._key)
        if before is not after and (type(before) is not type(after) or before != after):
            raise InvalidRequest(
                f"the key of a document cannot change: {self._key}", before=before, after=after
            )
        return made


def parse_update(change: Any, key: str) -> Update:
    """Check a change of documents that are known by the field `key`.

    >>> faster = parse_update({"$inc": {"speed": 5}, "$push": {"seen.at": "A1"}}, "id")
    >>> faster.apply({"id": 1, "speed": 50})
    {'id': 1, 'speed': 55, 'seen': {'at': ['A1']}}
    >>> parse_update({"$sett": {"speed": 5}}, "id")
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: change.$sett is not an operator: did you mean $set?
    """
    if not isinstance(change, dict) or not change:
        raise InvalidRequest(_SHAPE, change=change)
    kept: Document = _decode(plain_json(change, "change"))
    steps: list[Step] = []
    on_insert: list[Step] = []
    touched: list[tuple[Path, str]] = []
    for name, fields in kept.items():
        if name not in OPERATORS:
            raise InvalidRequest(_unknown(name, fields))
        if not isinstance(fields, dict):
            raise InvalidRequest(
                f"change.{name} must be fields with what to do, like {_EXAMPLES.get(name, _SOME)}",
                given=fields,
            )
        for dotted, operand in fields.items():
            place = f"change.{name}.{dotted}"
            path = path_of(dotted, place)
            touched.append((path, place))
            if name == "$rename":
                target = _new_name(operand, path, place)
                touched.append((target, place))
                steps.append(_rename(path, target))
                continue
            made = OPERATORS[name](operand, place)
            step = _step(path, made.edit, made.creates, place)
            (on_insert if name == "$setOnInsert" else steps).append(step)
    _apart(touched)
    return Update(key, steps, on_insert)


def path_of(dotted: str, place: str) -> Path:
    """The parts of a path, checked."""
    parts = tuple(dotted.split("."))
    for part in parts:
        if part.startswith("$") and part != "$":
            raise InvalidRequest(
                f"{place}: {part} in a path is not supported; name the element by its number"
            )
        if not part or part == "$" or "\0" in part:
            raise InvalidRequest(
                f"{place} is not a path: a part of it must not be empty, "
                "start with $ or hold a null character"
            )
    if len(parts) > PARTS_LIMIT:
        raise InvalidRequest(f"{place[:60]}... has more than {PARTS_LIMIT} parts")
    return parts


def _apart(touched: list[tuple[Path, str]]) -> None:
    """`InvalidRequest` when a path is another one or leads through it."""
    for (path, place), (other, there) in itertools.pairwise(sorted(touched)):
        if other[: len(path)] == path:
            raise InvalidRequest(
                f"{there} touches what {place} changes; change a field once, or its parts"
            )


# ---- at a path ------------------------------------------------------------------------------


def _step(path: Path, edit: Edit, creates: bool, place: str) -> Step:
    """A change of what lies at a path."""
    if len(path) == 1:  # the common case, quick
        name = path[0]

        def at_top(document: Document) -> Document:
            return _with(document, name, edit(document.get(name, MISSING)))

        return at_top
    return lambda document: _walk(document, path, 0, edit, creates, place)


def _walk(holder: Any, path: Path, at: int, edit: Edit, creates: bool, place: str) -> Any:
    """A copy of `holder` in which what lies at path[at:] is changed."""
    part, is_last = path[at], at + 1 == len(path)
    if type(holder) is list:
        number = index_of(part)
        if number >= 0 and (number < len(holder) or creates):
            if number - len(holder) > _PADDING_LIMIT:
                raise Refused(f"{place}: the array would become too long", length=len(holder))
            old = holder[number] if number < len(holder) else MISSING
            new = edit(old) if is_last else _below(old, path, at, edit, creates, place)
            if new is old or (new is MISSING and old is MISSING):
                return holder
            longer = [*holder, *[None] * (number + 1 - len(holder))]
            longer[number] = None if new is MISSING else new
            return longer
    elif type(holder) is dict:
        old = holder.get(part, MISSING)
        new = edit(old) if is_last else _below(old, path, at, edit, creates, place)
        return _with(holder, part, new)
    if creates:
        dotted = ".".join(path[:at])
        raise Refused(
            f"{place}: {part} cannot be made in {dotted}, which holds {kind_of(holder)}",
            field=dotted,
        )
    return holder


def _below(old: Any, path: Path, at: int, edit: Edit, creates: bool, place: str) -> Any:
    if old is MISSING:
        if not creates:
            return MISSING
        old = {}
    return _walk(old, path, at + 1, edit, creates, place)


def _with(holder: Document, name: str, new: Any) -> Document:
    if new is not MISSING:
        return holder if holder.get(name, MISSING) is new else {**holder, name: new}
    if name not in holder:
        return holder
    return {each: value for each, value in holder.items() if each != name}


# ---- operators of one field ------------------------------------------------------------------


class Made(NamedTuple):
    """What an operator with its operand does to a value, and whether it makes what is missing."""

    edit: Edit
    creates: bool = True


def _set(operand: Any, place: str) -> Made:
    return Made(lambda old: operand)


def _unset(operand: Any, place: str) -> Made:
    return Made(lambda old: MISSING, creates=False)


def _arithmetic(calculate: Callable[[Any, Any], Any], of_missing: Callable[[Any], Any]) -> Any:
    def make(operand: Any, place: str) -> Made:
        if type(operand) not in _NUMBERS:
            raise InvalidRequest(f"{place} must be a number", given=operand)

        def edit(old: Any) -> Any:
            if old is MISSING:
                return of_missing(operand)
            if type(old) not in _NUMBERS:
                raise Refused(f"{place}: the field holds {kind_of(old)} and no number", value=old)
            return _checked(calculate, old, operand, place)

        return Made(edit)

    return make


def _checked(calculate: Callable[[Any, Any], Any], old: Any, operand: Any, place: str) -> Any:
    """The result, if a document can hold it."""
    try:
        found = calculate(old, operand)
    except OverflowError:  # a whole number beyond doubles
        found = float("inf")
    if type(found) is int:
        fits = -_INT_LIMIT < found < _INT_LIMIT
    else:
        fits = found - found == 0  # infinity less itself is not
    if not fits:
        raise Refused(f"{place}: the result is too large", value=old)
    return found


def _keep_if(sign: int) -> Any:
    def make(operand: Any, place: str) -> Made:
        def edit(old: Any) -> Any:
            return operand if old is MISSING or sign * compare(operand, old) > 0 else old

        return Made(edit)

    return make


def _taking(make: Callable[[Any, str], Edit]) -> Callable[[Any, str], Made]:
    return lambda operand, place: Made(make(operand, place), creates=False)


def _adding(make: Callable[[Any, str], Edit]) -> Callable[[Any, str], Made]:
    return lambda operand, place: Made(make(operand, place))


# ---- $rename ---------------------------------------------------------------------------------


def _new_name(operand: Any, path: Path, place: str) -> Path:
    if not isinstance(operand, str):
        raise InvalidRequest(f"{place} must be the new name of the field, as text", given=operand)
    return path_of(operand, f"{place}: {operand}")


def _rename(path: Path, target: Path) -> Step:
    place = f"change.$rename.{'.'.join(path)}"

    def step(document: Document) -> Document:
        value: Any = document
        for part in path:
            if type(value) is list:
                raise Refused(f"{place}: the path leads through an array")
            value = value.get(part, MISSING) if type(value) is dict else MISSING
        if value is MISSING:
            return document
        holder: Any = document
        for part in target[:-1]:
            holder = holder.get(part) if type(holder) is dict else None
            if type(holder) is list:
                raise Refused(f"{place}: the new path leads through an array")
        without = _walk(document, path, 0, lambda old: MISSING, False, place)
        made: Document = _walk(without, target, 0, lambda old: value, True, place)
        return made

    return step


def _no_edit(operand: Any, place: str) -> Made:
    raise AssertionError("$rename has a step of its own")


OPERATORS: dict[str, Callable[[Any, str], Made]] = {
    "$set": _set,
    "$unset": _unset,
    "$inc": _arithmetic(lambda old, more: old + more, lambda more: more),
    "$mul": _arithmetic(lambda old, times: old * times, lambda times: type(times)(0)),
    "$min": _keep_if(-1),
    "$max": _keep_if(1),
    "$rename": _no_edit,
    "$setOnInsert": _set,
    "$push": _adding(array_updates.push),
    "$addToSet": _adding(array_updates.add_to_set),
    "$pull": _taking(array_updates.pull),
    "$pullAll": _taking(array_updates.pull_all),
    "$pop": _taking(array_updates.pop),
}

_SOME = "{'speed': 5}"
_EXAMPLES = {"$rename": "{'old': 'new'}", "$pullAll": "{'tags': ['a', 'b']}"}
_SHAPE = "a change must be operators with fields, like {'$set': {'speed': 5}}"


def _unknown(name: str, fields: Any) -> str:
    """What is said of a name that is no operator."""
    known = {each.casefold(): each for each in OPERATORS}
    asked = name[:32].casefold()
    if not name.startswith("$"):
        meant = known.get("$" + asked)
        if meant is not None and isinstance(fields, dict):
            return f"change.{name} is not an operator: did you mean {meant}?"
        return (f"change.{name} is not an operator. {_SHAPE}; "
                "`replace` stores a whole document")  # fmt: skip
    meant = nearest(name, OPERATORS, 0.75)
    if meant:
        return f"change.{name} is not an operator: did you mean {meant}?"
    return f"change.{name} is not an operator; supported are {', '.join(OPERATORS)}"
