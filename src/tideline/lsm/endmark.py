"""A small file beside a log that notes how far the log had reached.

    LOG_END := "tideline-log-end 1 " crc32 of the rest, 8 hex digits " " segment, 10 digits " "
               offset, 16 digits " " boot, 36 characters "\\n"

A kill leaves at most a part of a frame at the end of a log. A log cut exactly at the end of a
frame looks whole; only a note of its end from elsewhere can tell. This is that note. It is never
fsynced, so it costs a write to the page cache and no more, and it never says too much:

- durability "disk": written after the fsync of the log, so whatever becomes of the note, the log
  reached that far on disk. `boot` is all "-".
- durability "os": written after the log's bytes were handed to the operating system, which has
  them as long as it runs. `boot` is its boot id: after another start of the machine, when a power
  cut may have taken the log's end and left the note, the note does not count.

A new note is written over the old one, in one call and of the same length: a kill leaves one of
them, for it does not cut a write inside of a page. (Renaming a new file to the name of the old one
would do, too, but ext4 then begins to write the new one to the disk: 0.3 to 1.8 ms each on a busy
machine, where this takes 3 us.) An empty file or one of zero bytes is what a power cut leaves of a
first note: it says nothing. Other damage is `Corruption`. Whoever shortened a log on purpose
deletes the note.

One thread at a time may `write`.
"""

from __future__ import annotations

import contextlib
import os
import re
from functools import cache
from pathlib import Path
from zlib import crc32

from tideline.errors import Corruption
from tideline.lsm.files import all_zero, sync_folder, unavailable

__all__ = ["EndMark"]

_NAME = "LOG_END"
_PREFIX = b"tideline-log-end 1 "
_LINE = re.compile(_PREFIX + rb"([0-9a-f]{8}) (([0-9]{10}) ([0-9]{16}) ([0-9a-f-]{36})\n)")
_ON_DISK = "-" * 36


class EndMark:
    """The note of one log.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> mark = EndMark(Path(folder.name), disk=True)
    >>> mark.read() is None
    True
    >>> mark.write(3, 4096)
    >>> mark.read()
    (3, 4096)
    >>> folder.cleanup()
    """

    def __init__(self, folder: Path, *, disk: bool) -> None:
        self.path = folder / _NAME
        self._boot = _ON_DISK if disk else _boot_id()

    def read(self) -> tuple[int, int] | None:
        """The segment and the offset that the log had reached for certain, if that is known."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unavailable(error, "log cannot be opened", self.path) from error
        if all_zero(content):
            return None
        found = _LINE.fullmatch(content)
        if found is None or int(found[1], 16) != crc32(found[2]):
            raise Corruption("the note of where the log ends is damaged", file=self.path)
        if found[5] not in (_ON_DISK.encode(), _boot_id().encode()):
            return None
        return int(found[3]), int(found[4])

    def remove(self) -> None:
        """Note nothing any more, durably: for whoever shortens the log on purpose."""
        self.path.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def write(self, segment: int, offset: int) -> None:
        """Note an end. What cannot be written is not noted: the log itself says what is wrong."""
        if not self._boot:
            return
        line = _line(segment, offset, self._boot.encode())
        with contextlib.suppress(OSError):
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                if os.pwrite(fd, line, 0) < len(line):
                    os.ftruncate(fd, 0)
            finally:
                os.close(fd)


def _line(segment: int, offset: int, boot: bytes) -> bytes:
    rest = b"%010d %016d %s\n" % (segment, offset, boot)
    return _PREFIX + b"%08x " % crc32(rest) + rest


@cache
def _boot_id() -> str:
    """Which start of the machine this is; empty where the system does not say."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return text if len(text) == 36 and text.isascii() else ""
