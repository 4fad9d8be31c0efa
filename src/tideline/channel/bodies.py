"""Values that JSON does not have, in bodies and conditions, as the texts that stand for them.

They are those of where/texts.py. A condition that compares with a datetime compares with its text.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from typing import Any

from tideline.where import Condition, parse
from tideline.where.plain import plain_json
from tideline.where.texts import in_json

__all__ = ["body_json", "in_json", "parse_where"]


def body_json(body: Any) -> bytes:
    """A body as JSON text.

    >>> from datetime import datetime
    >>> body_json({"seen": datetime(2026, 1, 2, 3, 4, 5)})
    b'{"seen":"2026-01-02T03:04:05.000000Z"}'
    """
    return plain_json(body, "body")


def parse_where(where: Any, *, delta: bool = False) -> tuple[Condition, Any]:
    """A condition, and the document that says it.

    >>> from datetime import date
    >>> parse_where({"seen": {"$gt": date(2026, 1, 2)}})[1]
    {'seen': {'$gt': '2026-01-02'}}
    """
    return parse(where, delta=delta), in_json(where, "where")
