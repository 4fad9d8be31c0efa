"""Writers whose batches land once: which batch of each landed last, and how much of it.

A writer numbers its batches, and the numbers rise. With the rows of a batch the log gets a note
that says how many have landed, so a batch that is given again changes nothing.

    in the manifest   [[writer, number, rows landed or FOREVER], ...]

Under the engine's lock.
"""

from __future__ import annotations

from typing import Any

from tideline.clock import FOREVER
from tideline.errors import InvalidRequest

__all__ = ["Writers", "check_once"]

_MOST_WRITERS = 10_000


class Writers:
    """Which batch of each writer landed last; the writers not heard of for longest are forgotten.

    >>> writers = Writers([])
    >>> writers.note("loader", 7, 100)
    >>> writers.landed("loader", 7), writers.landed("loader", 8), writers.landed("loader", 6)
    (100, 0, None)
    """

    def __init__(self, known: list[Any]) -> None:
        self._last: dict[str, tuple[int, int]] = {w: (n, rows) for w, n, rows in known}

    def landed(self, writer: str, number: int) -> int | None:
        """How many rows of this batch have landed; None when it is done with."""
        last, rows = self._last.get(writer, (-1, FOREVER))
        if number > last:
            return 0
        return rows if number == last and rows < FOREVER else None

    def note(self, writer: str, number: int, rows: int = FOREVER) -> None:
        """So much of a batch has landed. What is older than known changes nothing."""
        if (number, rows) >= self._last.get(writer, (-1, 0)):
            self._last.pop(writer, None)  # to the end: heard of last
            self._last[writer] = (number, rows)
            if len(self._last) > _MOST_WRITERS:
                del self._last[next(iter(self._last))]

    def to_json(self) -> list[Any]:
        """What `Writers` takes."""
        return [[writer, number, rows] for writer, (number, rows) in self._last.items()]


def check_once(once: Any) -> tuple[str, int]:
    """(writer, number), or `InvalidRequest`."""
    if not isinstance(once, (tuple, list)) or len(once) != 2:
        raise InvalidRequest("once must be a writer and a number", once=once)
    writer, number = once
    try:
        fits = isinstance(writer, str) and 0 < len(writer.encode()) <= 256
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InvalidRequest("a writer must be text of 1 to 256 bytes in UTF-8", writer=writer)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < FOREVER:
        raise InvalidRequest("a writer's number must be a whole number from 0 on", number=number)
    return writer, number
