"""Plain Python values as JSON text: bodies and documents in one way, refused for one reason.

    JSON := dict with names that are text | list | tuple | str | int | float | bool | None

Subclasses of these count as what they are. Datetimes, dates and UUIDs become the texts of texts.py.
Everything else is refused: the encoder knows more types (bytes as base64, decimals, sets,
dataclasses, numbers as names), but what was stored that way would come back as something else. So
every value is looked at, by its type, which takes about 50 ns each.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tideline.errors import InvalidRequest
from tideline.where.texts import in_json

__all__ = ["encoded", "has_nan", "is_json", "plain_json", "refuse"]

_encode = msgspec.json.Encoder().encode
_SCALARS = frozenset((type(None), bool, int, float, str))


def plain_json(value: Any, name: str) -> bytes:
    """A value as JSON text; `InvalidRequest` with the value as `name` when it is not JSON.

    >>> plain_json({"a": [1, None]}, "body")
    b'{"a":[1,null]}'
    >>> plain_json({"a": float("nan")}, "body")
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: body is not JSON: it holds NaN or infinity. body={'a': nan}
    >>> plain_json({"a": [b"x"]}, "body")
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: body is not JSON: a.0 is of type bytes. body={'a': [b'x']}
    """
    try:
        text = _encode(value)
        if type(value) is dict:  # most are flat and hold what is seen here: no call for them
            for each, part in value.items():
                kind = type(part)
                if type(each) is not str or (kind is not str and kind is not int):
                    break
            else:
                return text
        if text.find(b"null") >= 0 and has_nan(value):  # `in` takes twice as long
            raise _refused_nan(value, name)
        if _is_json(value):
            return text
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"{name} is not JSON: {error}", **{name: value}) from None
    said = in_json(value, name)
    if said is not value:
        return plain_json(said, name)
    refuse(value, name)
    return text


def encoded(value: Any, name: str) -> bytes:
    """The text of a value as the encoder knows to write it, without NaN and infinity."""
    try:
        text = _encode(value)
        if text.find(b"null") >= 0 and has_nan(value):
            raise _refused_nan(value, name)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"{name} is not JSON: {error}", **{name: value}) from None
    return text


def _refused_nan(value: Any, name: str) -> InvalidRequest:
    return InvalidRequest(f"{name} is not JSON: it holds NaN or infinity", **{name: value})


def is_json(value: Any) -> bool:
    """Whether a value is made of what JSON has; what goes too deep is not.

    >>> is_json({"a": [1, (None, "x")]}), is_json({"a": {1, 2}}), is_json({1: 2})
    (True, False, False)
    """
    try:
        return _is_json(value)
    except RecursionError:
        return False


def _is_json(value: Any) -> bool:
    if type(value) is list or isinstance(value, (list, tuple)):
        for part in value:  # noqa: SIM110 (half as long as `all`)
            if type(part) not in _SCALARS and not _is_json(part):
                return False
        return True
    if type(value) is dict or isinstance(value, dict):
        for name, part in value.items():
            if type(name) is not str and not isinstance(name, str):
                return False
            if type(part) not in _SCALARS and not _is_json(part):
                return False
        return True
    return value is None or isinstance(value, (str, int, float))


def refuse(value: Any, name: str) -> None:
    """`InvalidRequest` for a value that is not JSON, saying where it is not."""
    try:
        odd = _odd(value, ())
    except RecursionError:
        odd = "it goes too deep"
    if odd is not None:
        raise InvalidRequest(f"{name} is not JSON: {odd}", **{name: value})


def _odd(value: Any, path: tuple[str, ...]) -> str | None:
    """What is wrong with the first part that is not JSON."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not isinstance(name, str):
                return f"the name {_shown(name)} is of type {type(name).__name__}, and not text"
            if odd := _odd(part, (*path, name)):
                return odd
        return None
    if isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            if odd := _odd(part, (*path, str(number))):
                return odd
        return None
    if value is None or isinstance(value, (str, int, float)):
        return None
    return f"{'.'.join(path) or 'it'} is of type {type(value).__name__}"


def _shown(name: Any) -> str:
    try:
        return repr(name)[:40]
    except Exception:  # an object of the caller's, whose repr fails
        return "in it"


def has_nan(value: Any) -> bool:
    """Whether NaN or infinity is inside: the encoder writes both as null.

    >>> has_nan({"a": [1.5, float("inf")]}), has_nan(None)
    (True, False)
    """
    if isinstance(value, float):
        return value != value or value in (float("inf"), float("-inf"))
    if isinstance(value, dict):
        return any(has_nan(item) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(has_nan(item) for item in value)
    return False
