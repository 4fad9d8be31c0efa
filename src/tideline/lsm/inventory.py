"""The list of a backup's files, and copies made by it.

    BACKUP     := a manifest (manifest.py): {"format": 1, "files": {name: [size, crc32], ...}}
    RESTORING     a file that stands in a folder while a restore fills it

BACKUP is written when everything else is on disk. So a folder without it is no whole backup (or
one that was made before there were lists), and what was cut, changed or lost since shows before
anything is restored from it. It names files as they lie below the folder, never itself.

RESTORING is the first file of a restore and goes last. A folder that has it is not opened; the
next restore into it begins anew. So a restore is whole or not there, wherever it was killed.

Pure functions over folders; one thread at a time for a folder.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from tideline.errors import Corruption, InvalidRequest
from tideline.lsm.files import sync_folder, unavailable
from tideline.lsm.folder import is_tolerated
from tideline.lsm.manifest import Manifest

__all__ = [
    "LIST", "RESTORING", "Listed", "begin_restore", "clear", "copy_listed", "end_restore",
    "is_name", "list_of", "load_list", "save_list", "verify_list",
]  # fmt: skip

LIST = "BACKUP"
RESTORING = "RESTORING"
_NAME = re.compile(
    r"(MANIFEST|TOKENS|(?:channels|collections|windows)/[0-9]{4,}/(MANIFEST|c-[0-9]+\.arrow|log-[0-9]+\.log))"
)
_OURS = {
    "LOCK",
    "MANIFEST",
    "MANIFEST.tmp",
    "TOKENS",
    "channels",
    "collections",
    "windows",
    RESTORING,
}
_CHUNK = 1 << 20


class Listed(NamedTuple):
    """What the list says of a file."""

    size: int
    crc: int


def is_name(name: str) -> bool:
    """Whether a backup may hold a file of this name: nothing outside its folder, nothing odd.

    >>> is_name("channels/0001/log-000001.log"), is_name("../etc/passwd")
    (True, False)
    """
    return _NAME.fullmatch(name) is not None


def list_of(path: Path) -> Listed:
    """Read a file to know what the list has to say of it."""
    return _read(path, None)


def save_list(folder: Path, files: Mapping[str, Listed]) -> None:
    """Say that a backup is whole; everything else is on disk."""
    document = {"format": 1, "files": {name: list(each) for name, each in files.items()}}
    Manifest(folder / LIST).save(document)


def load_list(folder: Path) -> dict[str, Listed] | None:
    """The list of a backup; None when the folder has none."""
    document = Manifest(folder / LIST).load()
    if document is None:
        return None
    try:
        if document["format"] != 1:
            raise Corruption("the backup's list is of another version", file=folder / LIST)
        files = {str(name): Listed(*map(int, each)) for name, each in document["files"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corruption("the backup's list is not readable", file=folder / LIST) from error
    if "MANIFEST" not in files or not all(map(is_name, files)):
        raise Corruption("the backup's list is not that of a database", file=folder / LIST)
    return files


def verify_list(folder: Path, files: Mapping[str, Listed]) -> None:
    """`Corruption` unless every file is there as it was."""
    _check_sizes(folder, files)  # at once, before much is read
    for name, each in files.items():
        if _read(folder / name, None) != each:
            raise _changed(folder / name)


def copy_listed(source: Path, target: Path, files: Mapping[str, Listed]) -> None:
    """Copy the files, and verify what was copied; all of it is on disk then."""
    _check_sizes(source, files)
    folders: set[Path] = set()
    for name, each in files.items():
        path = target / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            found = _read(source / name, path)
        except OSError as error:
            raise unavailable(error, "restore failed", path) from error
        if found != each:
            raise _changed(source / name)
        folders |= {parent for parent in path.parents if parent.is_relative_to(target)}
    try:
        for folder in folders:
            sync_folder(folder)
    except OSError as error:
        raise unavailable(error, "restore failed", target) from error


def begin_restore(folder: Path, source: Path) -> None:
    """From now on the folder is not to be opened."""
    try:
        with (folder / RESTORING).open("w") as file:
            file.write(f"a restore of {source} into this folder has not finished; run it again\n")
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise unavailable(error, "restore failed", folder) from error


def end_restore(folder: Path) -> None:
    """Everything is there, and on disk."""
    try:
        (folder / RESTORING).unlink()
        sync_folder(folder)
    except OSError as error:
        raise unavailable(error, "restore failed", folder) from error


def clear(folder: Path) -> None:
    """Remove what a restore has made, last the word that it is not whole; the folder stays.

    `InvalidRequest`, and nothing is removed, when there is something that no restore makes.
    """
    try:
        entries = [path for path in folder.iterdir() if not is_tolerated(path.name)]
        entries.sort(key=lambda path: path.name == RESTORING)
        for entry in entries:
            if entry.name not in _OURS:
                raise InvalidRequest(
                    "a restore into this folder did not finish, and something else lies there now:"
                    " move it away, or give a new folder", path=str(entry),
                )  # fmt: skip
        for entry in entries:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != "LOCK":
                entry.unlink()
    except OSError as error:
        raise unavailable(error, "what a restore left cannot be removed", folder) from error


def _check_sizes(folder: Path, files: Mapping[str, Listed]) -> None:
    for name, each in files.items():
        try:
            size = (folder / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            raise Corruption(
                "the backup is not whole: a file is missing", file=folder / name
            ) from None
        except OSError as error:
            raise unavailable(error, "backup cannot be read", folder / name) from error
        if size != each.size:
            raise Corruption(
                "the backup is not whole: a file has another size", file=folder / name, size=size,
                expected=each.size,
            )  # fmt: skip


def _read(path: Path, copy: Path | None) -> Listed:
    """Read a file to its end, and make a copy on the way if asked for: size and checksum."""
    size = crc = 0
    try:
        source = path.open("rb")
    except OSError as error:
        raise unavailable(error, "backup cannot be read", path) from error
    with source:
        fd = -1
        if copy is not None:
            mode = 0o600 if copy.name == "TOKENS" else 0o644
            fd = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            while True:
                try:
                    piece = source.read(_CHUNK)
                except OSError as error:
                    raise unavailable(error, "backup cannot be read", path) from error
                if not piece:
                    break
                size += len(piece)
                crc = crc32(piece, crc)
                view = memoryview(piece)
                while fd >= 0 and view:
                    view = view[os.write(fd, view) :]
            if fd >= 0:
                os.fsync(fd)
        finally:
            if fd >= 0:
                os.close(fd)
    return Listed(size, crc)


def _changed(path: Path) -> Corruption:
    return Corruption("the backup is damaged: a checksum differs", file=path)
