"""The log of a database in memory: nothing of it is stored, and nothing survives.

    append   counts the frame; keeps a copy only while somebody follows
    cursor   reads what was kept: the newest 64 MiB

Positions count the frames that were kept. Threads: as log.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized

import numpy as np
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.lsm.position import Position

__all__ = ["KEPT_BYTES", "MemoryCursor", "NullLog"]

KEPT_BYTES = 64 << 20


class NullLog:
    """A log that keeps nothing, or as much as followers need.

    >>> NullLog().append(b"hello")
    Position(segment=1, offset=0)
    """

    mark = 1
    size_bytes = 0
    last = Position(1, 0)

    def __init__(self) -> None:
        self.frames = 0
        self._kept: dict[int, bytes] = {}  # by the number of the frame
        self._kept_bytes = 0
        self._first = self._next = 0  # the numbers [first, next) are kept
        self.followers: Sized = ()
        """Somebody reads what is appended while there is one."""
        self.shelter: Callable[[Callable[[], None]], None] = lambda work: work()

    def repair(self) -> None:
        """There is nothing to repair."""

    def replay(self) -> Iterator[tuple[int, memoryview]]:
        """Nothing."""
        return iter(())

    def replay_joined(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Nothing."""
        return iter(())

    def append(self, payload: bytes | bytearray | memoryview) -> Position:
        """Keeps nothing."""
        self.frames += 1
        return self.last

    def append_parts(self, parts: Sequence[bytes | memoryview]) -> Position:
        """Keeps it if somebody follows."""
        if self.followers:
            self._keep(b"".join(parts))
            return self.last
        if self._first != self._next:
            self._kept, self._kept_bytes, self._first = {}, 0, self._next
        self.frames += 1
        return self.last

    def _keep(self, payload: bytes) -> None:
        self._kept[self._next] = payload  # cut here by an exception, the next one takes its place
        size = self._kept_bytes + len(payload)
        # One step: no exception comes between assignments without a call.
        self._kept_bytes, self._next, self.frames = size, self._next + 1, self.frames + 1
        while self._kept_bytes > KEPT_BYTES and self._next - self._first > 1:
            first, self._first = self._first, self._first + 1
            self._kept_bytes -= len(self._kept.pop(first))

    @property
    def end(self) -> Position:
        """Where the next frame will begin."""
        return Position(1, self._next)

    committed = end

    @property
    def start(self) -> Position:
        """Where the first frame that is still kept begins."""
        return Position(1, self._first)

    @property
    def starts(self) -> list[Position]:
        """The same: there is one segment."""
        return [self.start]

    def cursor(self, position: Position) -> MemoryCursor:
        """Reads what is kept from a position on."""
        return MemoryCursor(self._kept, position)

    def append_framed(self, frame: memoryview) -> None:
        """Keeps nothing."""
        self.frames += 1

    def read(self, after: Position, upto: Position) -> Iterator[tuple[Position, memoryview]]:
        """Nothing."""
        return iter(())

    def sync(self, position: Position) -> None:
        """Returns at once."""

    def sync_all(self) -> None:
        """Returns at once."""

    def size_from(self, first: int) -> int:
        """Nothing."""
        return 0

    leads = True

    def commit_point(self) -> None:
        """Nobody waits for other machines."""

    def settle(self) -> None:
        """There is no end to note."""

    def rotate(self) -> None:
        """Does nothing."""

    def verify(self) -> None:
        """There is nothing to verify."""

    def protect(self, before: int) -> None:
        """There is nothing to protect."""

    def truncate(self, to: Position) -> None:
        """Nothing is stored, so nothing can be cut."""
        self.require_cut(to)

    def require_cut(self, to: Position) -> None:
        """`InvalidRequest`, unless it is the end."""
        if to != self.end:
            raise InvalidRequest("a database in memory has no log to cut", to=str(to))

    def forget(self, before: int) -> int:
        """Frees nothing."""
        return 0

    def close(self) -> None:
        """Does nothing."""

    def leave_to_parent(self) -> None:
        """Does nothing."""


class MemoryCursor:
    """A place among the frames that a database in memory keeps: `Cursor` for these."""

    def __init__(self, kept: dict[int, bytes], position: Position) -> None:
        self._kept = kept
        self.position = position

    def read(self, upto: Position) -> Iterator[tuple[Position, memoryview]]:
        """The frames before `upto`, each with where the following one begins."""
        while self.position < upto and (found := self._kept.get(self.position.offset)) is not None:
            self.position = Position(1, self.position.offset + 1)
            yield self.position, memoryview(found)

    def heads(self, upto: Position, size: int) -> Iterator[tuple[Position, bytes]]:
        """Where each frame before `upto` begins, and the first bytes of its payload."""
        for number, payload in list(self._kept.items()):
            if self.position.offset <= number < upto.offset:
                yield Position(1, number), payload[:size]

    def close(self) -> None:
        """There is nothing to let go of."""
