"""Rows that were taken in, by column, with those that were rejected; limits and words of both ways.

Rows come as dicts (rowwise.py) or as columns (columns.py); rows.py says which. Pure functions; safe
from any thread.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.index.packed import Column

__all__ = [
    "KEY_BYTES", "LEAST", "MOST", "NO_POINT", "NO_TEXT", "VALUE_BYTES", "Array", "Incoming",
    "listed", "plain", "too_long",
]  # fmt: skip

Array = NDArray[Any]
KEY_BYTES = 256
VALUE_BYTES = 4096
NO_POINT = "{} must be a point: [longitude, latitude], or one of GeoJSON"
NO_TEXT = f"{{}} must be text of at most {VALUE_BYTES} bytes"
LEAST, MOST = -(1 << 63), (1 << 63) - 1


class Incoming(NamedTuple):
    """Rows that can be stored, by column; `rejected` are the others, by number."""

    keys: list[Column]
    values: list[Any]
    times: NDArray[np.int64] | None
    """When each happened; None: by the clock."""
    numbers: NDArray[np.int64] | None
    """The number of each row; None: 0, 1, 2 and so on."""
    rejected: dict[int, str]
    types: tuple[str, ...]
    """Of each key field: "int" or "text"."""

    @property
    def total(self) -> int:
        """How many can be stored."""
        return len(self.keys[0])

    def number_of(self, place: int) -> int:
        """The number that the caller's row has, of one that can be stored."""
        return place if self.numbers is None else int(self.numbers[place])

    def place_of(self, number: int) -> int:
        """How many that can be stored come before the caller's row of this number."""
        if self.numbers is None:
            return min(number, self.total)
        return int(np.searchsorted(self.numbers, number))

    def kept(self, mask: NDArray[np.bool_], why: str) -> Incoming:
        """Without the rows where the mask is false, which are rejected."""
        if mask.all():
            return self
        numbers = np.arange(self.total) if self.numbers is None else self.numbers
        rejected = {**self.rejected, **dict.fromkeys(numbers[~mask].tolist(), why)}
        return self._only(np.flatnonzero(mask), numbers, rejected)

    def _only(self, places: Array, numbers: Array, rejected: dict[int, str]) -> Incoming:
        keys = [_pick(column, places) for column in self.keys]
        values = [value[places] for value in self.values]
        times = None if self.times is None else self.times[places]
        return Incoming(keys, values, times, numbers[places], rejected, self.types)


def _pick(column: Column, places: Array) -> Column:
    if isinstance(column, list):
        return [column[n] for n in places.tolist()]
    return column[places]


def listed(value: Any) -> Any:
    """A tuple or an array of two as a list; numbers of numpy as Python's."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return value


def too_long(text: str, most: int = KEY_BYTES) -> bool:
    """Whether text has more bytes than it may, or is none that has bytes."""
    if text.isascii():
        return len(text) > most
    try:
        return len(text.encode()) > most
    except UnicodeEncodeError:
        return True


def plain(value: Any) -> Any:
    """A scalar of numpy as Python's: those compare with whole numbers exactly."""
    if isinstance(value, np.floating):
        return float(value)
    return int(value) if isinstance(value, np.integer) else value
