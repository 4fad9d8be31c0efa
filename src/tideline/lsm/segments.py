"""The files of a log: one a segment, numbered without gaps.

    log-000001.log log-000002.log ...

Opening, creating, mapping, shortening and removing them, with what makes each step last: a file is
on disk before the folder names it, where that is asked for. What is in them is told by frames.py,
and when what is done by log.py.

Threads: whoever calls sees to it that a segment is changed by one thread at a time.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from pathlib import Path

from tideline.errors import Corruption
from tideline.lsm.files import sync_folder, unavailable, write_all
from tideline.lsm.frames import FILE_BYTES, HEADER_BYTES, file_header, read_file_header

__all__ = ["Segments", "name_of"]

_NAME = re.compile(r"log-([0-9]{6,})\.log")


class Segments:
    """The segment files in one folder; with `disk`, what is made or read is on disk."""

    def __init__(self, folder: Path, *, disk: bool) -> None:
        self._folder = folder
        self._disk = disk
        self._old: set[int] = set()  # segments with the short header of format 1

    def numbers(self) -> list[int]:
        """Those there are, in order."""
        found = (_NAME.fullmatch(name) for name in os.listdir(self._folder))
        return sorted(int(m[1]) for m in found if m and name_of(int(m[1])) == m[0])

    def map(self, number: int) -> memoryview:
        """The bytes of a segment, in place."""
        path = self.path(number)
        try:
            with path.open("rb") as file:
                if self._disk:  # what is served from now on must survive a power cut
                    os.fsync(file.fileno())
                if os.fstat(file.fileno()).st_size == 0:
                    return memoryview(b"")
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError as error:
            raise unavailable(error, "log cannot be read", path) from error

    def reopen(self, number: int, end: int, before: int) -> int:
        """The last segment, ready for appends, without what followed its last whole frame.

        `before` is the size of the segment before it, 0 when there is none.
        """
        if end == 0:  # killed while the segment was being created
            return self.create(number, before)
        path = self.path(number)
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            try:
                if os.fstat(fd).st_size != end:
                    os.ftruncate(fd, end)
                if self._disk:
                    os.fsync(fd)
                    sync_folder(self._folder)
            except BaseException:
                os.close(fd)
                raise
        except OSError as error:
            raise unavailable(error, "log cannot be opened", path) from error
        return fd

    def create(self, number: int, before: int) -> int:
        """A new segment with its header; no file is left when it cannot be written.

        `before` is the size of the segment before it, 0 when there is none.
        """
        path = self.path(number)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        fd = -1
        try:
            fd = os.open(path, flags, 0o644)
            write_all(fd, file_header(number, before))
            if self._disk:
                os.fsync(fd)
                sync_folder(self._folder)
        except BaseException as error:
            if fd >= 0:
                os.close(fd)
                with contextlib.suppress(OSError):
                    path.unlink()
            if isinstance(error, OSError):
                raise unavailable(error, "log write failed", path) from error
            raise
        return fd

    def check_sizes(self, numbers: list[int]) -> None:
        """Hold every segment against what the one after it says of its size."""
        for number in numbers:
            path, last = self.path(number), number == numbers[-1]
            try:
                with path.open("rb") as file:
                    head = read_file_header(path, number, file.read(FILE_BYTES), last)
                before = self.path(number - 1)
                size = before.stat().st_size if number - 1 in numbers else 0
            except FileNotFoundError as error:
                raise Corruption("log segment is missing", file=Path(error.filename)) from None
            except OSError as error:
                raise unavailable(error, "log cannot be read", path) from error
            if head is not None and head[0] == HEADER_BYTES:
                self._old.add(number)
            if size and head is not None and head[1] not in (0, size):
                raise Corruption(
                    "log segment has another size than when it was closed", file=before, size=size,
                    known=head[1],
                )  # fmt: skip

    def first_frame(self, number: int) -> int:
        """Where the frames of a segment begin."""
        return HEADER_BYTES if number in self._old else FILE_BYTES

    def path(self, number: int) -> Path:
        """The file of a segment."""
        return self._folder / name_of(number)

    def remove(self, number: int) -> None:
        """Delete a segment, durably."""
        self.path(number).unlink()
        sync_folder(self._folder)

    def shorten(self, number: int, size: int) -> int:
        """Cut a segment to a size, durably; it is ready for appends."""
        fd = os.open(self.path(number), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd


def name_of(number: int) -> str:
    """The name of a segment's file.

    >>> name_of(7)
    'log-000007.log'
    """
    return f"log-{number:06d}.log"
