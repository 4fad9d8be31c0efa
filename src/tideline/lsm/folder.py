"""What lies in the folder of a database, and what does not belong there.

    ours       the files and folders that a database, its server and Spark make (database.py)
    tolerated  hidden files, and lost+found at the root of a disk: they say nothing about the folder
    strangers  everything else

A database is made in a new folder or an empty one, never among strangers: somebody misspelt a path.
A folder that has a database keeps it, whatever else was put there later.

Functions that look, and one that makes a folder; safe from any thread.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

from tideline.errors import InvalidRequest
from tideline.lsm.files import telling, unavailable
from tideline.lsm.manifest import BEGINNING

__all__ = [
    "check_no_strangers",
    "has_data",
    "has_database",
    "is_tolerated",
    "make_folder",
    "strangers",
]

_OURS = frozenset({
    "BACKUP", "BACKUP.tmp", "GATE", "LOCK", "MANIFEST", "MANIFEST.tmp", "RESTORING", "TOKENS",
    "TOKENS.lock", "TOKENS.tmp", "channels", "cluster", "collections", "windows", "spool", "staged",
})  # fmt: skip
_NUMBER = re.compile(r"[0-9]{4,}")
_SHOWN = 3


def check_no_strangers(folder: Path) -> None:
    """`InvalidRequest` where a database would be made among other files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     (Path(name) / ".gitkeep").touch()
    ...     check_no_strangers(Path(name))
    """
    if not folder.is_dir() or has_database(folder):
        return
    found = strangers(folder)
    if found and not has_data(folder):
        raise InvalidRequest(
            "the folder holds other files and no Tideline database: give an empty or a new folder",
            folder=str(folder), holds=", ".join(found[:_SHOWN]), entries=len(found),
        )  # fmt: skip


def strangers(folder: Path) -> list[str]:
    """The names in a folder that no database makes, in order."""
    with telling("folder cannot be read", folder):
        names = [path.name for path in folder.iterdir()]
    return sorted(name for name in names if name not in _OURS and not is_tolerated(name))


def is_tolerated(name: str) -> bool:
    """Whether a file of this name says nothing about the folder it is in.

    >>> [is_tolerated(name) for name in (".gitkeep", "lost+found", "notes.txt")]
    [True, True, False]
    """
    return name.startswith(".") or name == "lost+found"


def has_database(folder: Path) -> bool:
    """Whether there is a manifest of ours: other programs have files of that name, too."""
    with telling("folder cannot be read", folder):
        try:
            with (folder / "MANIFEST").open("rb") as file:
                return file.read(len(BEGINNING)) == BEGINNING
        except (FileNotFoundError, IsADirectoryError):
            return False


def has_data(folder: Path) -> bool:
    """Whether there are channels or collections: with no manifest, that one was lost."""
    with telling("folder cannot be read", folder):
        return any(
            _NUMBER.fullmatch(path.name)
            for kind in ("channels", "collections", "windows")
            if (folder / kind).is_dir()
            for path in (folder / kind).iterdir()
        )


def make_folder(path: Path, otherwise: str) -> None:
    """A folder to use; `InvalidRequest` when it is the path that is wrong, not the disk."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError, ValueError) as error:
        raise InvalidRequest(otherwise, path=str(path), error=str(error)) from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EROFS, errno.ELOOP):
            raise InvalidRequest(otherwise, path=str(path), error=str(error)) from None
        raise unavailable(error, otherwise, path) from error
