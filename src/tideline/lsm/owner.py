"""Who owns a folder: a lock that lives as long as its process, with a line that names it.

    LOCK := "pid 4711 since 2026-02-03T04:05:06+00:00" [", serving at http://..."] "\\n"

An owner that signs with `PASSING` lets go by itself soon: whoever comes waits a few seconds for it.

The lock is flock(2) on the open file: a killed process lets go of it by itself, and the line is
only for whoever finds the folder taken. Whether that is this process itself is known from `_HELD`,
not from the line: two containers may have the same process id. A forked child inherits the open
file, and would hold the lock for as long as it lives: `leave` closes the child's share of it, which
lets go of nothing.

Safe from any thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from datetime import UTC, datetime
from pathlib import Path

from tideline.errors import Unavailable
from tideline.lsm.files import unavailable

__all__ = ["PASSING", "SERVING", "Owner"]

SERVING = "serving at"  # what a server says in the lock file, before its address
PASSING = "for Spark, until it is idle"  # what an owner says that leaves by itself
_STEP_S, _STEPS = 0.05, 200  # how long such a one is waited for
_HELD: dict[tuple[int, int], int] = {}  # lock files by device and inode: the process that holds it


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


class Owner:
    """A folder that is held.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     owner = Owner(Path(folder))
    ...     try:
    ...         Owner(Path(folder))
    ...     except Unavailable as error:
    ...         print(str(error).partition('.')[0])
    ...     owner.leave()
    this process has the folder open already: use that Database, or close() it first
    """

    def __init__(self, folder: Path) -> None:
        """Take the folder's lock, or say who has it."""
        self._identity: tuple[int, int] | None = None  # once it is held
        path = folder / "LOCK"
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unavailable(error, "folder cannot be used", path) from error
        if not self._taken():
            ours = _HELD.get(_identity(self._fd)) == os.getpid()
            owner = os.read(self._fd, 200).decode(errors="replace").strip()
            self.leave()
            _, serving, url = owner.partition(SERVING)
            values = {"path": str(folder)}
            if ours:
                message = "this process has the folder open already: use that Database"
                message += ", connect to its url" if serving else ""
                message += ", or close() it first"
            else:
                message = "the folder is open in another process"
                message += " that serves it: connect to its url" if serving else ""
                values["owner"] = owner
            if serving:
                values["url"] = url.strip()
            raise Unavailable(message, **values)
        self._identity = _identity(self._fd)
        _HELD[self._identity] = os.getpid()
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self._name = f"pid {os.getpid()} since {started}"
        self.sign()

    def _taken(self) -> bool:
        """Take the lock, if it is free or whoever has it leaves soon."""
        for _ in range(_STEPS):
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            if PASSING.encode() not in os.pread(self._fd, 200, 0):
                return False
            time.sleep(_STEP_S)
        return False

    def sign(self, doing: str = "") -> None:
        """Say what the owner does with the folder, to whoever finds it in use."""
        text = f"{self._name}, {doing}" if doing else self._name
        with contextlib.suppress(OSError):  # a full disk must not keep anyone from reading
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{text}\n".encode(), 0)

    def leave(self, *, to_parent: bool = False) -> None:
        """Let go. Twice is allowed. In a forked child (`to_parent`) the parent keeps the folder."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if self._identity is not None:
                _HELD.pop(self._identity, None)
            if not to_parent:  # a child that was just forked may have it open a moment longer
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)
