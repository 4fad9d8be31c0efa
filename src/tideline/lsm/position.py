"""A place in a log, between two frames.

    text := segment number ":" offset           "3:4096"

Opaque to everybody but the files of the log (log.py, cursor.py, endmark.py): others compare
positions, keep them, print them and read them back. Positions of one log rise in the order of
its frames.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tideline.errors import InvalidRequest

__all__ = ["BEFORE_ALL", "Position"]

_TEXT = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")


class Position(NamedTuple):
    """Where a frame begins, or will begin.

    >>> Position(3, 32) < Position(3, 4096) < Position(12, 32)
    True
    >>> str(Position(3, 4096)), Position.parse("3:4096") == Position(3, 4096)
    ('3:4096', True)
    """

    segment: int
    offset: int

    @property
    def mark(self) -> int:
        """What the log is kept from: `Log.forget(mark)` leaves the frames from here on."""
        return self.segment

    def __str__(self) -> str:
        return f"{self.segment}:{self.offset}"

    @classmethod
    def parse(cls, text: object, name: str = "position") -> Position:
        """What `str` gave; `InvalidRequest` for anything else, given as the argument `name`."""
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidRequest(f"{name} must be a position of the journal", **{name: text})
        return cls(int(match[1]), int(match[2]))


BEFORE_ALL = Position(0, 0)
"""Comes before every position of every log."""
