"""Plain Python values as JSON text: bodies and documents in one way, refused for one reason."""

from __future__ import annotations

from typing import Any

import msgspec

from tideline.errors import InvalidRequest

__all__ = ["has_nan", "plain_json"]

_encode = msgspec.json.Encoder().encode


def plain_json(value: Any, name: str) -> bytes:
    """A value as JSON text; `InvalidRequest` with the value as `name` when it is not JSON.

    >>> plain_json({"a": [1, None]}, "body")
    b'{"a":[1,null]}'
    >>> plain_json({"a": float("nan")}, "body")
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: body is not JSON: it holds NaN or infinity. body={'a': nan}
    """
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"{name} is not JSON: {error}", **{name: value}) from None
    if text.find(b"null") >= 0 and has_nan(value):  # `in` takes twice as long
        raise InvalidRequest(f"{name} is not JSON: it holds NaN or infinity", **{name: value})
    return text


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
