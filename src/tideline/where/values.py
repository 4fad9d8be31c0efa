"""JSON values as conditions see them: brackets, equality, canonical form.

Values fall into brackets, as in MongoDB; values of different brackets are never
equal and never ordered:

    null | number (int and float together) | text | boolean | array | object

So `1` equals `1.0`, but not `True` and not `"1"`. A value is what decoding JSON
gives: None, int, float, str, bool, list, dict. Other types fall in no bracket.

Pure functions.
"""

from __future__ import annotations

import math

from tideline.errors import InvalidRequest

__all__ = ["DEPTH_LIMIT", "canonical", "equal"]

DEPTH_LIMIT = 64  # arrays and objects inside one another; MongoDB stops at 100
_NUMBERS = frozenset((int, float))
_INT_LIMIT = 1 << 64


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


def canonical(value: object, path: str, budget: list[int], depth: int = 0) -> object:
    """A checked copy in which equal values have equal JSON text.

    Whole floats become ints and tuples become lists. `budget` holds how many
    values the whole condition may still have, so that a list that contains itself
    ends in `InvalidRequest`.

    >>> canonical((1.0, {"a": -0.0}), "where.x", [9])
    [1, {'a': 0}]
    """
    budget[0] -= 1
    if budget[0] < 0 or depth > DEPTH_LIMIT:
        raise InvalidRequest(
            f"{path} holds too much: at most {DEPTH_LIMIT} levels and 16 KiB a condition"
        )
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value, path)
    if isinstance(value, int):
        if not -_INT_LIMIT < value < _INT_LIMIT:
            # No value in the message: Python refuses to print very long ints.
            raise InvalidRequest(f"{path}: a whole number must fit 64 bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequest(f"{path} must be a finite number", value=value)
        whole = value.is_integer() and abs(value) < _INT_LIMIT
        return int(value) if whole else float(value)
    if isinstance(value, (list, tuple)):
        return [
            canonical(part, f"{path}[{number}]", budget, depth + 1)
            for number, part in enumerate(value)
        ]
    if isinstance(value, dict):
        return {
            text(key, path): canonical(part, f"{path}.{key}", budget, depth + 1)
            for key, part in value.items()
        }
    raise InvalidRequest(f"{path} must be a JSON value", type=type(value).__name__)


def text(value: object, path: str) -> str:
    """A name or text, checked to be one that UTF-8 can hold."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{path}: names of fields must be text", name=value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{path}: text must be valid Unicode", value=value) from error
    return str(value)
