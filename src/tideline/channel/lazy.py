"""Records that were found, decoded when somebody looks at them.

What a question finds is copied out of the store under the channel's lock, as packed rows. That is
quick. Making Python objects of them is not: it happens here, without the lock, a piece at a time
if the caller takes pieces. Immutable; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

from tideline.channel.codec import Row, Words, read_events, read_rows
from tideline.kernels import layout as at
from tideline.model import Event
from tideline.space.place import Space

__all__ = ["LazyEvents", "in_order"]

_PIECE = 256  # rows decoded at a time


class LazyEvents(Sequence[Event]):
    """Packed rows of events of a space, in order of arrival."""

    def __init__(self, packed: Words, space: Space) -> None:
        self._packed = packed
        self._space = space

    @cached_property
    def _rows(self) -> list[tuple[int, int, int]]:
        return _bounds(memoryview(self._packed), -1)  # type: ignore[arg-type]

    @property
    def size_bytes(self) -> int:
        """What it takes, packed."""
        return int(self._packed.nbytes)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Event]:
        """All of them, decoded in one go."""
        return iter(read_events(self._packed, self._space))

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
        return read_events(self._packed[start:limit], self._space)[0]


def in_order(packed: bytes, after: int) -> Iterator[Row]:
    """Packed rows in order of arrival, those after a seq, decoded as somebody takes them."""
    words = memoryview(packed).cast("q")
    bounds = _bounds(words, after)
    for first in range(0, len(bounds), _PIECE):
        piece = bounds[first : first + _PIECE]
        yield from read_rows(b"".join(words[start:limit] for _, start, limit in piece))


def _bounds(words: memoryview, after: int) -> list[tuple[int, int, int]]:
    """(seq, start, limit) of packed rows after a seq, by seq."""
    rows = []
    start = 0
    while start < len(words):
        seq = words[start + at.R_SEQ]
        limit = start + (words[start] >> 32)
        if seq > after:
            rows.append((seq, start, limit))
        start = limit
    rows.sort()
    return rows
