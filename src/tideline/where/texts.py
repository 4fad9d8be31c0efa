"""Values that JSON does not have, as the texts that stand for them, wherever values are given.

    datetime   "2026-01-02T03:04:05.000006Z": ISO 8601 in UTC, always with microseconds, so that
               the texts order as the times do. One without a zone is read as UTC
    date       "2026-01-02"
    UUID       "12345678-1234-5678-1234-567812345678"

They come back as these texts: what is stored is JSON. Other types are refused. For a Decimal it is
the caller who knows whether it is a number (`float`) or exact digits (`str`), for a timedelta in
which unit it is meant.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from tideline.errors import InvalidRequest

__all__ = ["in_json", "text_of"]

_HINTS = {
    Decimal: "a Decimal is given as float(x), a number, or as str(x), its exact digits",
    timedelta: "a timedelta is given as x.total_seconds()",
}


def in_json(value: Any, name: str = "value") -> Any:
    """A value with texts for what JSON does not have; the same object when there is none.

    >>> in_json([1, UUID(int=1)])
    [1, '00000000-0000-0000-0000-000000000001']
    >>> in_json({"price": Decimal("9.90")})
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: value is not JSON: a Decimal is given as float(x), a number, ...
    """
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
    text = text_of(value, name)
    return value if text is None else text


def text_of(value: Any, name: str) -> str | None:
    """The text that stands for a value; None for a value that has none."""
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
            raise InvalidRequest(f"{name} is not JSON: {hint}", **{name: value})
    return None
