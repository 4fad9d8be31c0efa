"""What a caller is told when something does not work: a status, a kind, a message.

    {"error": {"kind": "InvalidRequest", "message": "place must be text. place=17"}}

Errors of the library keep their kind and message: they speak of the call alone. What only a server
refuses has a kind of its own. Anything else is a bug: it is logged with its traceback, and the
caller hears no more than that. No message of a refusal names a file.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tideline.errors import (
    Closed,
    Conflict,
    Corruption,
    InvalidRequest,
    NotFound,
    TidelineError,
    Unavailable,
)

__all__ = ["Refused", "error_body", "refusal"]

_STATUS: dict[type[TidelineError], int] = {
    InvalidRequest: 400,
    NotFound: 404,
    Conflict: 409,
    Unavailable: 503,
    Closed: 503,
}
_TOLD = ("earliest", "kept_after", "leader")
_PRIVATE = ("file", "path", "folder", "owner", "reason", "error")


class Refused(Exception):
    """What a server refuses beside the library: `status` and `kind` say which.

    >>> Refused(401, "Unauthorized", "a token is needed").status
    401
    """

    def __init__(self, status: int, kind: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.values: dict[str, Any] = {}
        """What a program may go by: the earliest seq that changes can be followed after."""
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def refusal(error: BaseException) -> Refused | None:
    """An error as what the caller is told; None when it is nobody's to know.

    >>> told = refusal(NotFound("no such channel", name="roads"))
    >>> told.status, told.kind, str(told)
    (404, 'NotFound', "no such channel. name='roads'")
    """
    if isinstance(error, Refused):
        return error
    if isinstance(error, Corruption):
        return Refused(503, "Corruption", "stored bytes are damaged: tell the operator")
    if isinstance(error, TidelineError):
        status = next((s for kind, s in _STATUS.items() if isinstance(error, kind)), 500)
        message = str(error)
        if any(name in error.values for name in _PRIVATE):
            message = message.partition(". ")[0]
        told = Refused(status, type(error).__name__, message)
        told.values = {name: error.values[name] for name in _TOLD if name in error.values}
        return told
    if isinstance(error, msgspec.MsgspecError):
        return Refused(400, "InvalidRequest", f"not a valid request: {error}")
    if isinstance(error, RecursionError):
        return Refused(400, "InvalidRequest", "not a valid request: nested too deeply")
    return None


def error_body(refused: Refused) -> dict[str, Any]:
    """The document of an error; `retry_after_s` also where no header can say it, on a WebSocket.

    >>> error_body(Refused(429, "TooMany", "slow down", retry_after="2"))
    {'error': {'kind': 'TooMany', 'message': 'slow down', 'retry_after_s': 2}}
    """
    error: dict[str, Any] = {"kind": refused.kind, "message": str(refused)}
    after = refused.headers.get("retry-after")
    if after is not None:
        error["retry_after_s"] = int(after)
    if refused.values:
        error["values"] = refused.values
    return {"error": error}
