"""Every error Tideline raises on purpose.

    TidelineError
    ├── InvalidRequest   the call is wrong: fix it; nothing was stored
    ├── Unauthorized     a server does not allow it: show another token
    ├── NotFound         no such channel, subscription, collection or document
    ├── Conflict         it exists with other content: re-read, decide, retry
    ├── Unavailable      not now (folder in use, disk full): retry later
    ├── Closed           the database or channel was closed: reopen it
    └── Corruption       bytes on disk are damaged: stop, tell the operator

A message says what is wrong first and carries the values last:
``subscription expired. id='s17', until=40.0, now=41.5``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = [
    "Closed",
    "Conflict",
    "Corruption",
    "InvalidRequest",
    "NotFound",
    "TidelineError",
    "Unauthorized",
    "Unavailable",
]


class TidelineError(Exception):
    """Base of every error Tideline raises on purpose.

    >>> str(InvalidRequest("radius must be positive", radius_m=-1))
    'radius must be positive. radius_m=-1'
    """

    def __init__(self, message: str, **values: Any) -> None:
        self.values = values
        shown = ", ".join(f"{name}={_short(name, value)}" for name, value in values.items())
        end = "" if message.endswith("?") else "."
        super().__init__(f"{message}{end} {shown}" if shown else message)


class InvalidRequest(TidelineError):
    """The call is wrong: fix it. Nothing was stored."""


class Unauthorized(TidelineError):
    """A server needs a token, does not know this one, or it may not do this. Nothing was stored."""


class NotFound(TidelineError):
    """No such channel, subscription, collection or document."""


class Conflict(TidelineError):
    """It exists already with other content."""


class Unavailable(TidelineError):
    """It cannot be done now: retry later. Nothing was acknowledged."""


class Closed(TidelineError):
    """The database was closed: open it again."""


class Corruption(TidelineError):
    """Bytes on disk are damaged. The message and `file` name the file.

    >>> Corruption("checksum differs", file="log-000001").file
    'log-000001'
    """

    def __init__(self, message: str, *, file: str | Path, **values: Any) -> None:
        self.file = str(file)
        super().__init__(message, file=self.file, **values)


def _short(name: str, value: Any) -> str:
    """A value as it stands in a message: never longer than a line, but a path says its end."""
    if name in ("file", "path", "folder"):
        text = str(value)
        return repr(text if len(text) <= 400 else "..." + text[-397:])
    try:
        text = repr(value)
    except Exception:  # nested too deeply, or an object of the caller's whose repr fails
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."
