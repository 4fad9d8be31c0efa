"""Small things the log, the manifest and the components share about files.

    unavailable      an OSError as the `Unavailable` a caller can act on
    telling          the same for a whole block: no OSError leaves it
    checksum         crc32 of any buffer, in chunks, without copying it
    all_zero         is there anything but zero bytes in it
    sync_folder      make creations, renames and removals in a folder survive a power cut
    write_all        write every byte or raise
    replace_file     new content under a name, whole or not at all

Pure functions over paths and buffers; safe from any thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from tideline.errors import Unavailable

__all__ = [
    "all_zero",
    "checksum",
    "replace_file",
    "sync_folder",
    "telling",
    "unavailable",
    "write_all",
]

# 16 MiB: crc32 lets other threads run during each chunk, and Ctrl-C gets in between.
_CHUNK = 16 << 20

# EFBIG is the process's own file size limit: for the caller it is the same as a full disk.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def unavailable(error: OSError, otherwise: str, path: Path | str) -> Unavailable:
    """What the caller is told when the operating system refused.

    >>> print(unavailable(OSError(errno.ENOSPC, "No space left"), "log write failed", "a.log"))
    disk is full. file='a.log', reason='No space left'
    >>> print(unavailable(OSError(errno.EIO, "I/O error"), "log write failed", "a.log"))
    log write failed. file='a.log', reason='I/O error'
    """
    message = "disk is full" if error.errno in _FULL else otherwise
    return Unavailable(message, file=str(path), reason=error.strerror or str(error))


@contextlib.contextmanager
def telling(otherwise: str, path: Path | str) -> Iterator[None]:
    """Whatever the operating system refuses inside is `Unavailable`, as `unavailable` says it.

    >>> with telling("folder cannot be made", "a"):
    ...     raise OSError(errno.EMFILE, "Too many open files")
    Traceback (most recent call last):
    tideline.errors.Unavailable: folder cannot be made. file='a', reason='Too many open files'
    """
    try:
        yield
    except OSError as error:
        raise unavailable(error, otherwise, error.filename or path) from error


def checksum(data: bytes | bytearray | memoryview) -> int:
    """crc32 of all bytes, chunk by chunk, so a mapped file is never held as bytes.

    >>> checksum(b"123456789") == 0xCBF43926
    True
    """
    view = memoryview(data).cast("B")
    crc = 0
    for start in range(0, len(view), _CHUNK):
        crc = zlib.crc32(view[start : start + _CHUNK], crc)
    return crc


def all_zero(data: bytes | memoryview) -> bool:
    """Whether every byte is zero.

    >>> all_zero(bytes(3)), all_zero(b"\\0x")
    (True, False)
    """
    view = memoryview(data).cast("B")
    zeros = bytes(min(len(view), 1 << 20))
    for start in range(0, len(view), 1 << 20):
        chunk = view[start : start + (1 << 20)]
        if chunk != zeros[: len(chunk)]:
            return False
    return True


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte, or raise the OSError that says why not.

    A nearly full disk first takes a part; only the next write names the reason.
    """
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(fd, view) :]


def sync_folder(folder: Path) -> None:
    """fsync a folder: the names in it are then on disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` under `path`: a reader sees the old content or the new, whole.

    An OSError leaves the old content and no temporary file. The new content is on disk, its
    name only after `sync_folder`: a failure there must be told apart, so it is the caller's.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
