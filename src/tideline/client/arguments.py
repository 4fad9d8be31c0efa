"""What callers give to the verbs of a collection, as JSON: `InvalidRequest` for what has none.

Checked only as far as it must be to become JSON, so that nothing becomes something else on the way
(NaN null, bytes text). What it means is for the server to check, with the library's words.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from tideline.clock import span_us
from tideline.errors import InvalidRequest
from tideline.near import check_no_directions
from tideline.where.plain import plain_json

__all__ = [
    "as_box", "as_count", "as_document", "as_fields", "as_index", "as_indexes", "as_json",
    "as_key", "as_list", "as_question", "as_scalar", "as_sort", "as_text", "check_condition",
    "lasting",
]  # fmt: skip

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def as_json(value: Any, name: str) -> Any:
    """A value as JSON text, None as None; `InvalidRequest` when it is no JSON."""
    return None if value is None else msgspec.Raw(plain_json(value, name))


def as_document(given: Any) -> msgspec.Raw:
    """A document, which may be JSON text."""
    if isinstance(given, (str, bytes)):
        try:
            text = given.encode() if isinstance(given, str) else given
            found = msgspec.json.decode(text)
        except UnicodeEncodeError:
            raise InvalidRequest("the document is not valid Unicode") from None
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidRequest(f"the document is not JSON: {error}", document=given) from None
    else:
        found, text = given, plain_json(given, "document")
    if not isinstance(found, dict):
        raise InvalidRequest("a document must be a JSON object", document=given)
    return msgspec.Raw(text)


def as_key(key: Any) -> Any:
    if type(key) is int and _LEAST <= key <= _MOST:
        return key
    if type(key) is int:
        raise InvalidRequest("a key that is a number must fit 64 bits", key=key)
    if type(key) is not str:
        raise InvalidRequest("a key must be a whole number or text", key=key)
    return as_text(key, "key")


def as_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be text", **{name: value})
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{name} must be valid Unicode", **{name: value}) from None
    return value


def as_box(box: Any) -> Any:
    """Four numbers; a `Box`, or two corners as `$box` has them, as such."""
    if isinstance(box, Mapping) and list(box) == ["$box"]:
        box = box["$box"]
    if hasattr(box, "west"):
        box = box.west, box.south, box.east, box.north
    elif isinstance(box, (list, tuple)) and all(
        isinstance(one, (list, tuple)) and len(one) == 2 for one in box
    ):
        box = [number for corner in box for number in corner]
    if box is None:
        raise InvalidRequest("box must be (west, south, east, north) in degrees", box=box)
    return as_json(list(box) if isinstance(box, tuple) else box, "box")


def as_count(value: Any, name: str) -> Any:
    """A number, also one of numpy's; what is none, the server says."""
    if value is not None and not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            value = operator.index(value)
    return as_json(value, name)


def as_scalar(value: Any, name: str) -> Any:
    if isinstance(value, str):
        value = str.__str__(value)
    if isinstance(value, float):
        value = float(value)
        if not math.isfinite(value):
            raise InvalidRequest(
                f"{name} must be null, a finite number, text or a boolean", **{name: value}
            )
    return as_json(value, name)


def as_list(given: Any, name: str) -> list[Any]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise InvalidRequest(f"{name} must be a list", **{name: given})
    return [as_key(one) for one in given] if name == "keys" else list(given)


def lasting(ttl_s: Any) -> Any:
    """How long a document lasts, as JSON has it: infinity is never.

    >>> lasting(timedelta(minutes=1)), lasting(math.inf)
    (60.0, 'never')
    """
    if isinstance(ttl_s, timedelta):
        ttl_s = ttl_s.total_seconds()
    if ttl_s is None or (isinstance(ttl_s, float) and ttl_s == math.inf):
        return None if ttl_s is None else "never"
    span_us(ttl_s, "ttl_s")
    return ttl_s


def as_index(field: Any) -> Any:
    """The field of an index, or several."""
    check_no_directions(field)
    if isinstance(field, (list, tuple)):
        return [as_text(part, "field") for part in field]
    return as_text(field, "field")


def as_indexes(given: Any) -> Any:
    """Indexes of a collection: those on several fields by their names.

    >>> as_indexes({("at", "name"): "lazy", "text": "lazy"})
    {'at,name': 'lazy', 'text': 'lazy'}
    """
    if not isinstance(given, Mapping):
        return given
    found = {}
    for field, kind in given.items():
        parts = as_index(field) if isinstance(field, (list, tuple)) else field
        found[",".join(parts) if isinstance(parts, list) else parts] = kind
    return found


def as_sort(sort: Any) -> Any:
    if sort is None or isinstance(sort, (str, bytes, Mapping)) or not isinstance(sort, Iterable):
        return as_json(sort, "sort")
    return as_json(list(sort), "sort")


def as_fields(fields: Any) -> Any:
    if fields is None or isinstance(fields, (str, bytes, Mapping)):
        return as_json(fields, "fields")
    return as_json(list(fields) if isinstance(fields, Iterable) else fields, "fields")


def as_question(where: Any, sort: Any, limit: Any, skip: Any, fields: Any) -> dict[str, Any]:
    if skip is None:
        raise InvalidRequest("skip must be a whole number, 0 or more", skip=skip)
    asked = {
        "where": as_json(where, "where"), "sort": as_sort(sort), "limit": as_count(limit, "limit"),
        "skip": as_count(skip, "skip"), "fields": as_fields(fields),
    }  # fmt: skip
    return {name: value for name, value in asked.items() if value is not None}


def check_condition(where: Any, verb: str) -> None:
    if where is None:
        raise InvalidRequest(f"{verb} needs a condition; {{}} is every document")
