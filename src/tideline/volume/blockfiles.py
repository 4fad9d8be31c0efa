"""The files that hold blocks: segments of the replica's log, kept by a second name.

    blocks/log-N-SSSSSS   a hard link to segment S of log-N: the log is the volume, a block is
                          stored once. The log forgets its segments as it likes; this name keeps
                          the bytes for as long as a block in them is mapped. Made when a block in
                          it is mapped, and before the log deletes it: then it may hold blocks that
                          were not applied here, because a snapshot passed them
    blocks/kept-NNNNNN    what vacuum took out of such files: whole blocks, end to end

Each file has a number, which stands in places (blockmap.py). Numbers are this replica's own and
are stored in its checkpoint. A file that was dropped stays readable for who has it already.

Threads: `read`, `keep` and `retain` are safe from any; the others are for whoever holds the
machine's lock.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tideline.errors import Corruption
from tideline.lsm.files import sync_folder, telling, unavailable, write_all
from tideline.lsm.frames import FILE_BYTES, HEADER_BYTES, frames
from tideline.replica import DATA
from tideline.replica.records import ENTRY, FILL, HEAD_BYTES, read_head
from tideline.volume.blockmap import file_of, offset_of, place

__all__ = ["BlockFile", "BlockFiles"]

_NAME = re.compile(r"log-\d+-\d{6,}|kept-\d{6,}")


class BlockFile:
    """One file, open for reading as long as somebody has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.fd)


class BlockFiles:
    """The files of a replica, by number.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> files = BlockFiles(Path(folder.name), {})
    >>> where = files.keep([b"a" * 512, b"b" * 512])
    >>> files.read(where[1], 3)
    b'bbb'
    >>> folder.cleanup()
    """

    def __init__(self, folder: Path, names: dict[int, str]) -> None:
        """`names` is what the checkpoint says."""
        self.folder = folder
        with telling("folder of blocks cannot be used", folder):
            folder.mkdir(exist_ok=True)
            found = {name for name in os.listdir(folder) if _NAME.fullmatch(name)}
            for name in found - set(names.values()):
                if name.startswith("kept"):  # it can be made again; segments may be the only ones
                    (folder / name).unlink()
        self.names = {number: name for number, name in names.items() if name in found}
        self.lost = sorted(set(names.values()) - found)
        self._numbers = {name: number for number, name in self.names.items()}
        self._open: dict[int, BlockFile] = {}
        self._going: set[str] = set()
        self._next = itertools.count(max(names, default=0) + 1)
        self._adopted: set[int] = set()
        self.adopt()

    def adopt(self) -> None:
        """Take in segments that were kept before anything in them was mapped."""
        with telling("folder of blocks cannot be used", self.folder):
            for name in sorted(os.listdir(self.folder)):
                known = name in self._numbers or name in self._going
                if _NAME.fullmatch(name) and name.startswith("log") and not known:
                    self._adopted.add(self._add(name))

    def newest(self) -> list[int]:
        """Segments that may have entries that were not applied: adopted ones, and the last two."""
        segments = [n for n, name in self.names.items() if name.startswith("log")]
        return sorted({*segments[-2:], *(self._adopted & set(segments))})

    def retain(self, segment: Path) -> None:
        """Keep a segment that the log is about to delete. Safe from any thread."""
        try:
            with contextlib.suppress(FileExistsError):
                os.link(segment, self.folder / _name_of(segment))
            sync_folder(self.folder)
        except OSError as error:
            raise unavailable(error, "log segment cannot be linked", segment) from error

    def values(self, number: int) -> Iterator[tuple[int, int, bytes]]:
        """(index, offset, value) of the entries in a segment; damage ends it."""
        path = self.folder / self.names[number]
        with contextlib.suppress(Corruption, OSError):
            data = memoryview(path.read_bytes())
            offset = FILE_BYTES
            for _, payload in frames(path, int(path.name.rpartition("-")[2]), data, True):
                head = read_head(payload)
                if head is not None and head.kind in (ENTRY, FILL) and head.entry_kind == DATA:
                    at = offset + HEADER_BYTES + HEAD_BYTES
                    yield head.index, at, bytes(payload[HEAD_BYTES:])
                offset += HEADER_BYTES + (len(payload) + 7 & ~7)

    def link(self, segment: Path) -> int:
        """The number of a segment of the log; it is kept from now on. 0: the log let go of it."""
        name = _name_of(segment)
        number = self._numbers.get(name)
        if number is None:
            try:
                with contextlib.suppress(FileExistsError):  # it was retained
                    os.link(segment, self.folder / name)
            except FileNotFoundError:
                return 0
            except OSError as error:
                raise unavailable(error, "log segment cannot be linked", segment) from error
            number = self._add(name)
        return number

    def _add(self, name: str) -> int:
        number = next(self._next)
        self._name(number, name)
        return number

    def _name(self, number: int, name: str) -> None:
        self.names[number], self._numbers[name] = name, number

    def keep(self, blocks: list[bytes]) -> list[int]:
        """Write blocks to a new file, on disk when this returns; their places."""
        number = next(self._next)
        path = self.folder / f"kept-{number:06d}"
        with telling("blocks cannot be written", path):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                places, offset = [], 0
                for data in blocks:
                    places.append(place(number, offset))
                    write_all(fd, data)
                    offset += len(data)
                os.fsync(fd)
            finally:
                os.close(fd)
            sync_folder(self.folder)
        self._name(number, path.name)
        return places

    def read(self, where: int, size: int) -> bytes | None:
        """The bytes at a place; None when they are not there (any more)."""
        number = file_of(where)
        file = self._open.get(number)
        try:
            if file is None:
                name = self.names.get(number)
                if name is None:
                    return None
                file = self._open.setdefault(number, BlockFile(self.folder / name))
            data = os.pread(file.fd, size, offset_of(where))
        except OSError:
            return None
        return data if len(data) == size else None

    def size_bytes(self, number: int) -> int:
        """How long a file is."""
        try:
            return (self.folder / self.names[number]).stat().st_size
        except OSError:
            return 0

    def is_in_log(self, number: int) -> bool:
        """Whether the log still has this segment: dropping it frees nothing yet."""
        try:
            return (self.folder / self.names[number]).stat().st_nlink > 1
        except OSError:
            return False

    def forget(self, number: int) -> None:
        """Forget a file; `drop` deletes it."""
        name = self.names.pop(number)
        self._numbers.pop(name, None)
        self._open.pop(number, None)
        self._going.add(name)

    def drop(self) -> int:
        """Delete the files that were forgotten, once a checkpoint without them is on disk."""
        freed, going, self._going = 0, self._going, set()
        with telling("blocks cannot be deleted", self.folder):
            for name in going - set(self._numbers):
                freed += (self.folder / name).stat().st_size
                (self.folder / name).unlink()
        return freed

    def total_bytes(self) -> int:
        """Bytes of all files, those that the log has, too, included."""
        return sum(self.size_bytes(number) for number in list(self.names))

    def sync(self) -> None:
        """The names are on disk."""
        sync_folder(self.folder)

    def close(self) -> None:
        """Let go of the open files."""
        self._open.clear()


def _name_of(segment: Path) -> str:
    return f"{segment.parent.name}-{segment.stem.rpartition('-')[2]}"
