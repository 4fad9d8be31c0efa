"""JSON values as conditions see them: brackets, equality, order, canonical form.

Values fall into brackets, as in MongoDB; values of different brackets are never
equal and never ordered by a condition:

    null | number (int and float together) | text | object | array | boolean

So `1` equals `1.0`, but not `True` and not `"1"`. That row is also the order of the
brackets when documents are sorted (`order.py`). Within a bracket: numbers by value, text
by code point, objects and arrays part by part, `false` before `true`.

A value is what decoding JSON gives: None, int, float, str, bool, list, dict. Values of
other types fall in no bracket. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from tideline.errors import InvalidRequest
from tideline.where.texts import text_of

__all__ = [
    "DEPTH_LIMIT", "MISSING", "RANK", "Place", "canonical", "compare", "equal", "index_of",
    "place_text", "text", "types_of",
]  # fmt: skip

DEPTH_LIMIT = 64  # arrays and objects inside one another; MongoDB stops at 100
INT_LIMIT = 1 << 64
_NUMBERS = frozenset((int, float))


class _Missing:
    """What lies at a path that leads nowhere."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()

# The bracket of a type, in the order of brackets.
RANK: dict[type, int] = {
    _Missing: 0, type(None): 0, int: 1, float: 1, str: 2, dict: 3, list: 4, bool: 5,
}  # fmt: skip


def equal(a: object, b: object) -> bool:
    """Whether two values are the same in every part; the order of keys is not a part.

    >>> equal({"a": [1, None]}, {"a": [1.0, None]})
    True
    >>> equal(1, True)
    False
    """
    kind = type(a)
    if kind in _NUMBERS:
        return type(b) in _NUMBERS and a == b
    if kind is not type(b):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(value, b[key]) for key, value in a.items())
    return a == b


def compare(a: object, b: object) -> int:
    """Less than, equal to or greater than 0, as `a` comes before, with or after `b`.

    It goes no deeper than the less deep of the two. 0 exactly when they are `equal`.

    >>> compare([1, 2], [1, "x"]), compare({"a": 1}, {}), compare(None, MISSING)
    (-1, 1, 0)
    """
    rank = RANK[type(a)]
    other = RANK[type(b)]
    if rank != other:
        return -1 if rank < other else 1
    if rank == 0:
        return 0
    if isinstance(a, list) and isinstance(b, list):
        return _first_difference(zip(a, b, strict=False)) or _sign(len(a), len(b))
    if isinstance(a, dict) and isinstance(b, dict):
        for key, name in zip(sorted(a), sorted(b), strict=False):
            value, against = a[key], b[name]
            # MongoDB: the bracket of the value first, then the name, then the value.
            found = (
                _sign(RANK[type(value)], RANK[type(against)])
                or _sign(key, name)
                or compare(value, against)
            )
            if found:
                return found
        return _sign(len(a), len(b))
    return _sign(a, b)


def types_of(value: object) -> tuple[str, ...]:
    """MongoDB's names of a value's type; a number has two.

    >>> types_of(3), types_of(1 << 31), types_of(3.0), types_of(None), types_of(MISSING)
    (('int', 'number'), ('long', 'number'), ('double', 'number'), ('null',), ())
    """
    if type(value) is int:
        return ("int", "number") if -(1 << 31) <= value < 1 << 31 else ("long", "number")
    return _TYPES.get(type(value), ())


_TYPES = {
    float: ("double", "number"), str: ("string",), dict: ("object",), list: ("array",),
    bool: ("bool",), type(None): ("null",),
}  # fmt: skip


def index_of(part: str) -> int:
    """The element a part of a path picks in an array, or -1.

    >>> index_of("12"), index_of("012"), index_of("x")
    (12, -1, -1)
    """
    digits = part.isascii() and part.isdigit() and len(part) < 10
    return int(part) if digits and (part == "0" or part[0] != "0") else -1


def _first_difference(pairs: Iterable[tuple[object, object]]) -> int:
    for a, b in pairs:
        found = compare(a, b)
        if found:
            return found
    return 0


def _sign(a: Any, b: Any) -> int:
    return -1 if a < b else int(a > b)


# --- checked copies ---

# Where a value stands in a condition: its name or number after where its holder stands.
# As text only when a message needs it, which is once for all the values of a condition.
Place = tuple[Any, str | int] | str


def place_text(place: Place) -> str:
    """The place as it stands in a message.

    >>> place_text(((("where", "$or"), 1), "speed"))
    'where.$or[1].speed'
    """
    parts: list[str] = []
    while not isinstance(place, str):
        place, name = place
        parts.append(f"[{name}]" if isinstance(name, int) else f".{name}")
    return place + "".join(reversed(parts))


def canonical(value: object, place: Place, budget: list[int], depth: int = 0) -> object:
    """A checked copy in which equal values have equal JSON text.

    Whole floats become ints, tuples become lists, keys are sorted. `budget` holds how many
    values the whole condition may still have, so that a list that contains itself
    ends in `InvalidRequest`.

    >>> canonical((1.0, {"a": -0.0}), "where", [9])
    [1, {'a': 0}]
    """
    budget[0] -= 1
    if budget[0] < 0 or depth > DEPTH_LIMIT:
        raise InvalidRequest(
            f"{_start(place)} holds too much: at most {DEPTH_LIMIT} levels and 16 KiB a condition"
        )
    if isinstance(value, str):
        return text(value, place)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -INT_LIMIT < value < INT_LIMIT:
            # No value in the message: Python refuses to print very long ints.
            raise InvalidRequest(f"{place_text(place)}: a whole number must fit 64 bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequest(f"{place_text(place)} must be a finite number", value=value)
        whole = value.is_integer() and abs(value) < INT_LIMIT
        return int(value) if whole else float(value)
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise InvalidRequest(f"{place_text(place)}: names of fields must be text", name=key)
        return {
            text(key, place): canonical(value[key], (place, key), budget, depth + 1)
            for key in sorted(value)
        }
    if isinstance(value, (list, tuple)):
        return [
            canonical(part, (place, number), budget, depth + 1) for number, part in enumerate(value)
        ]
    said = text_of(value, "where")
    if said is not None:
        return said
    raise InvalidRequest(f"{place_text(place)} must be a JSON value", type=type(value).__name__)


def _start(place: Place) -> str:
    """The start of a place that may be very deep: enough to find it."""
    text = place_text(place)
    return text if len(text) <= 60 else text[:57] + "..."


def text(value: str, place: Place) -> str:
    """A name or text, checked to be one that UTF-8 can hold."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"{place_text(place)}: text must be valid Unicode", value=value
            ) from error
    return str(value)
