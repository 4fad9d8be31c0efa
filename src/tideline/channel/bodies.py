"""Values that JSON does not have, in bodies and conditions, as the texts that stand for them.

    datetime   "2026-01-02T03:04:05.000006Z": ISO 8601 in UTC, always with microseconds, so that
               the texts order as the times do. One without a zone is read as UTC
    date       "2026-01-02"
    UUID       "12345678-1234-5678-1234-567812345678"

They come back as these texts: what a body holds is JSON. A condition that compares with a datetime
compares with its text. Other types are refused. For a Decimal it is the caller who knows whether
it is a number (`float`) or exact digits (`str`), for a timedelta in which unit it is meant.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from tideline.errors import InvalidRequest
from tideline.where import Condition, parse
from tideline.where.plain import plain_json

__all__ = ["body_json", "in_json", "parse_where"]

_HINTS = {
    Decimal: "a Decimal is given as float(x), a number, or as str(x), its exact digits",
    timedelta: "a timedelta is given as x.total_seconds()",
}


def body_json(body: Any) -> bytes:
    """A body as JSON text.

    >>> body_json({"seen": datetime(2026, 1, 2, 3, 4, 5)})
    b'{"seen":"2026-01-02T03:04:05.000000Z"}'
    >>> body_json({"price": Decimal("9.90")})
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: a Decimal is given as float(x), a number, or as str(x), its ...
    """
    try:
        return plain_json(body, "body")
    except InvalidRequest:
        said = _said(body, "body")
        if said is body:
            raise
    return plain_json(said, "body")


def parse_where(where: Any, *, delta: bool = False) -> tuple[Condition, Any]:
    """A condition, and the document that says it.

    >>> parse_where({"seen": {"$gt": date(2026, 1, 2)}})[1]
    {'seen': {'$gt': '2026-01-02'}}
    """
    try:
        return parse(where, delta=delta), where
    except InvalidRequest:
        said = _said(where, "where")
        if said is where:
            raise
    return parse(said, delta=delta), said


def in_json(value: Any) -> Any:
    """A value with texts for what JSON does not have; the same object when there is none.

    >>> in_json([1, UUID(int=1)])
    [1, '00000000-0000-0000-0000-000000000001']
    """
    return _said(value, "value")


def _said(value: Any, name: str) -> Any:
    try:
        return _in_json(value, name)
    except RecursionError:
        return value  # whoever encodes it says what is wrong


def _in_json(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        changed = {each: _in_json(part, name) for each, part in value.items()}
        return changed if any(changed[each] is not part for each, part in value.items()) else value
    if isinstance(value, (list, tuple)):
        parts = [_in_json(part, name) for part in value]
        same = all(one is other for one, other in zip(parts, value, strict=True))
        return value if same else parts
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        try:
            moment = moment.astimezone(UTC)
        except OverflowError:
            raise InvalidRequest(f"a time in {name} is out of range", **{name: value}) from None
        return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    for kind, hint in _HINTS.items():
        if isinstance(value, kind):
            raise InvalidRequest(hint, **{name: value})
    return value
