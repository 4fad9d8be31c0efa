"""The server's log: one JSON object a line, `event` says what happened.

    {"time": "...", "level": "info", "event": "request", "method": "POST", "path": "/v1/...", ...}

Never in it: tokens, query strings, bodies. Uses the logger `tideline.server`, so that a program
that runs a server inside itself decides where lines go; `tideline serve` sends them to stderr.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

__all__ = ["JsonLines", "lines_to", "log", "logger"]

logger = logging.getLogger("tideline.server")


def log(event: str, *, level: int = logging.INFO, error: BaseException | None = None,
        **fields: Any) -> None:  # fmt: skip
    """Write one line."""
    if logger.isEnabledFor(level):
        logger.log(level, event, extra={"fields": fields}, exc_info=error)


@contextlib.contextmanager
def lines_to(stream: TextIO, level: int) -> Iterator[None]:
    """Have the lines, and what the HTTP server itself warns of, written to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    names = [logger, logging.getLogger("uvicorn.error")]
    before = logger.level
    for each in names:
        each.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
        for each in names:
            each.removeHandler(handler)


class JsonLines(logging.Formatter):
    """A record as one JSON object.

    >>> record = logging.makeLogRecord({"msg": "start", "levelname": "INFO", "fields": {"port": 1}})
    >>> msgspec.json.decode(JsonLines().format(record))["event"]
    'start'
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(document, enc_hook=str).decode()
