"""A folder that nobody has open, opened for Spark for as long as Spark uses it.

    a worker of Spark's   finds no gate -> open_for_spark(folder) -> starts a keeper, waits for it
    the keeper            python -m tideline.spark.keeper FOLDER PARENT: opens, shares, waits

Readers and writers are planned in processes of Spark's, and tasks run in others; all of them come
and go. So none of them can own the folder: a process of its own does, the keeper. It leaves when
nobody has been connected for `_IDLE_S` and nothing is staged, and so it is there as long as a
streaming read. Whoever needs it after that starts another. Rows that are staged keep it until they
are committed or the worker's parent, Spark itself, has ended.

The folder's lock says who has it. `tideline.open` waits a few seconds for a keeper to leave
(lsm/owner.py). A folder that another process has open is left alone.

A keeper is started on the machine where Spark planned the work, nowhere else (`Target.host`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from tideline.errors import NotFound, TidelineError, Unavailable
from tideline.lsm.folder import has_database
from tideline.lsm.owner import PASSING

__all__ = ["keep", "open_for_spark"]

_IDLE_S = 2.0
_STEP_S = 0.1
_READY = "ready"

_started: list[subprocess.Popen[str]] = []  # by this process; looked at, so that none is a zombie


def open_for_spark(folder: Path, reach: Callable[[], Connection]) -> Connection:
    """Have the folder opened and shared, and connect; `reach` connects to the gate there is."""
    if not has_database(folder):
        raise NotFound("there is no store here", path=str(folder))
    with _alone(folder):
        with contextlib.suppress(Unavailable):
            return reach()  # somebody else was quicker
        said = _start(folder)
        if said == _READY:
            return reach()
    raise Unavailable(
        "nobody shares the store, and it cannot be opened for Spark: in the process that has it "
        "open, call tideline.spark.share(db)", path=str(folder), reason=said,
    )  # fmt: skip


def _start(folder: Path) -> str:
    """Start a keeper; what it says, which is `_READY` when all is well."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    keeper = subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder), str(os.getppid())], env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    _started[:] = [each for each in (*_started, keeper) if each.poll() is None]
    assert keeper.stdout is not None
    with keeper.stdout:
        said = keeper.stdout.readline().strip()
    if said != _READY:
        keeper.wait()
    return said or "the process that should open it ended"


def keep(folder: str, parent: int) -> None:
    """Open and share a folder, say so, and stay while it is used."""
    import tideline
    from tideline.spark.gate import share

    try:
        db = tideline.open(folder)
        db._sign(PASSING)
        gate = share(db)
    except TidelineError as error:
        print(str(error).replace("\n", " "), flush=True)
        return
    with db, gate:
        print(_READY, flush=True)
        idle_s = 0.0
        while idle_s < _IDLE_S:
            time.sleep(_STEP_S)
            used = gate.connected or (gate.staged and _lives(parent))
            idle_s = 0.0 if used else idle_s + _STEP_S


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time starts a keeper for a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


if __name__ == "__main__":
    keep(sys.argv[1], int(sys.argv[2]))
