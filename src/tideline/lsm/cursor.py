"""Reading a log while it grows: frames from a position on.

    read     whole frames up to a position, each checked; goes on there the next time
    heads    the first bytes of each frame, for a search: what lies between is not read

The segment that was read last stays open, so a reader that keeps up pays one read of a few bytes.
Much at once is mapped, not copied: payloads are views that stay valid as long as they are held.

One thread at a time. Nobody waits for a cursor: the log may be appended to, and segments may be
deleted; one that is open can still be read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

from tideline.errors import Corruption, InvalidRequest
from tideline.lsm.files import unavailable
from tideline.lsm.frames import FRAME, HEADER_BYTES, MAGIC, frames
from tideline.lsm.position import Position

__all__ = ["Cursor"]

_MAPPED_BYTES = 256 << 10  # more than this is mapped
_CRC_AT = 12


class Cursor:
    """A place in the log of one folder."""

    def __init__(
        self, path: Callable[[int], Path], first_frame: Callable[[int], int], position: Position
    ) -> None:
        """`Log.cursor` makes one."""
        self._path = path
        self._first_frame = first_frame
        self._fd = -1
        self._number = 0
        self.position = position
        """Where the next frame begins."""

    def read(self, upto: Position) -> Iterator[tuple[Position, memoryview]]:
        """The frames before `upto`, each with where the following one begins.

        `position` moves with every frame that is taken.
        """
        for number, offset, data in self._segments(upto):
            for _, payload in frames(self._path(number), number, data, False, base=offset):
                offset += HEADER_BYTES + (len(payload) + 7 & ~7)
                self.position = Position(number, offset)
                yield self.position, payload

    def heads(self, upto: Position, size: int) -> Iterator[tuple[Position, bytes]]:
        """Where each frame before `upto` begins, and the first bytes of its payload."""
        for number, base, data in self._segments(upto):
            offset, limit = 0, len(data)
            while offset < limit:
                head = bytes(data[offset : offset + HEADER_BYTES + size])
                magic, length, _ = FRAME.unpack_from(head.ljust(HEADER_BYTES, b"\0"))
                check = int.from_bytes(head[_CRC_AT:HEADER_BYTES], "little")
                following = offset + HEADER_BYTES + (length + 7 & ~7)
                if magic != MAGIC or crc32(head[:_CRC_AT]) != check or following > limit:
                    raise Corruption(
                        "log frame header is damaged", file=self._path(number),
                        offset=base + offset,
                    )  # fmt: skip
                self.position = Position(number, base + offset)
                yield self.position, head[HEADER_BYTES:]
                offset = following

    def close(self) -> None:
        """Let go of the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _segments(self, upto: Position) -> Iterator[tuple[int, int, memoryview]]:
        """What there is before `upto`: number, offset and bytes of each segment."""
        while self.position < upto:
            number, offset = self.position
            path = self._path(number)
            try:
                if self._number != number or self._fd < 0:
                    self.close()
                    self._fd, self._number = os.open(path, os.O_RDONLY | os.O_CLOEXEC), number
                size = os.fstat(self._fd).st_size
                limit = upto.offset if number == upto.segment else size
                if offset > limit:
                    raise InvalidRequest("position is not in the log", position=str(self.position))
                if limit > size:
                    raise Corruption("log segment is cut short", file=path, size=size)
                data = self._bytes(offset, limit)
            except OSError as error:
                raise unavailable(error, "log cannot be read", path) from error
            if len(data):
                yield number, offset, data
            if number == upto.segment:
                return
            self.position = Position(number + 1, self._first_frame(number + 1))

    def _bytes(self, offset: int, limit: int) -> memoryview:
        size = limit - offset
        if size > _MAPPED_BYTES:
            return memoryview(mmap.mmap(self._fd, limit, access=mmap.ACCESS_READ))[offset:]
        data = os.pread(self._fd, size, offset) if size else b""
        return memoryview(data)  # shorter only if the file was cut meanwhile: `frames` tells
