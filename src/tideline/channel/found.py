"""Records that were found, decoded when somebody looks at them.

What a question finds is copied out of the store under the channel's lock, as packed rows, which is
quick; making Python objects of them is not, and happens here, without the lock, a piece at a time
if the caller takes pieces. Immutable; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tideline.channel.codec import Row, read_events, read_rows
from tideline.clock import FOREVER
from tideline.kernels import layout as at
from tideline.model import Event

__all__ = ["Found", "in_order"]

_PIECE = 256  # rows decoded at a time


class Found(Sequence[Event]):
    """Packed rows of events, in order of arrival, those before `before` only.

    `decode` makes a place of a key and a shape: the channel's space does.
    """

    def __init__(
        self, packed: NDArray[np.int64] | bytes, decode: Callable[..., Any], before: int
    ) -> None:
        data = packed if isinstance(packed, bytes) else memoryview(packed).cast("B")  # type: ignore[arg-type]
        self._data = memoryview(data)
        self._decode = decode
        self._before = before

    @cached_property
    def _rows(self) -> list[tuple[int, int, int]]:
        return _places(self._data, -1, self._before)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Event]:
        """All of them, decoded in one go."""
        events = read_events(self._data, self._decode)
        if self._before < FOREVER:
            events = [event for event in events if event.seq < self._before]
        return iter(events)

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> list[Event]: ...
    def __getitem__(self, at: int | slice) -> Event | list[Event]:
        if isinstance(at, slice):
            return [self._decoded(start, limit) for _, start, limit in self._rows[at]]
        _, start, limit = self._rows[at]
        return self._decoded(start, limit)

    def _decoded(self, start: int, limit: int) -> Event:
        return read_events(self._data[start:limit], self._decode)[0]


def in_order(packed: bytes, after: int) -> Iterator[Row]:
    """Packed rows in order of arrival, those after a seq, decoded as somebody takes them."""
    data = memoryview(packed)
    places = _places(data, after, FOREVER)
    for first in range(0, len(places), _PIECE):
        piece = places[first : first + _PIECE]
        yield from read_rows(b"".join(data[start:limit] for _, start, limit in piece))


def _places(data: memoryview, after: int, before: int) -> list[tuple[int, int, int]]:
    """(seq, start, limit) of packed rows whose seq lies between, by seq."""
    words = data.cast("q")
    rows = []
    start = 0
    while start < len(words):
        seq = words[start + at.R_SEQ]
        limit = start + (words[start] >> 32)
        if after < seq < before:
            rows.append((seq, start * 8, limit * 8))
        start = limit
    rows.sort()
    return rows
