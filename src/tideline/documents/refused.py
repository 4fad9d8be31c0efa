"""Why a change does not fit a document, before it is known which document that is."""

from __future__ import annotations

from typing import Any

__all__ = ["Refused", "kind_of"]

_NAMES = {
    dict: "an object", list: "an array", str: "text", bool: "a boolean", int: "a number",
    float: "a number", type(None): "null",
}  # fmt: skip


class Refused(Exception):
    """`Update.apply` raises it as `InvalidRequest`, with the key of the document."""

    def __init__(self, message: str, **values: Any) -> None:
        super().__init__(message)
        self.message = message
        self.values = values


def kind_of(value: Any) -> str:
    """What a value is, in a message.

    >>> kind_of([1]), kind_of(None)
    ('an array', 'null')
    """
    return _NAMES.get(type(value), "nothing")
