"""The gate: how other processes use a store that this one has open.

A folder has one owner, and Spark's workers are other processes. `share(db)` opens a gate in
the owner: a Unix socket in a private folder, a thread for each connection. The store's own
folder tells where, in a file that only its owner can read:

    data/GATE     {"socket": ..., "key": ..., "spool": ..., "pid": ...}     mode 0600
    data/spool/   rows that are staged (spool.py)                           mode 0700

Both go when the gate or the database is closed; what a killed owner left is replaced by the
next `share`. Who connects must prove that it knows the key, and so must the gate.

A connection makes one call after the other; `CALLS` and `STREAMS` (client.py) list them. Closing
the gate lets a call that runs come to the end of the step it is in; who does not take what it
asked for is cut off.

Safe from any thread.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import socket
import tempfile
import threading
import weakref
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from tideline.channel.spool import Spool
from tideline.errors import InvalidRequest, TidelineError, Unavailable
from tideline.spark import wire
from tideline.spark.client import CALLS, STREAMS
from tideline.spark.local import Local
from tideline.spark.remote import FILE, Address

if TYPE_CHECKING:
    from tideline.database import Database

__all__ = ["Gate", "share", "shared_path"]

_LONGEST_SOCKET = 100  # bytes of a path that every system takes for a socket
_STEP_S = 10.0  # what a step of a call may take when the gate is closed, before it is cut off
_WAIT_S = 60.0
_PREFIX = "tideline-gate-"

_lock = threading.Lock()
_gates: weakref.WeakKeyDictionary[Database, Gate] = weakref.WeakKeyDictionary()


def share(db: Database) -> Gate:
    """Let other processes of this user use the database until it, or the gate, is closed.

    Sharing what is shared already gives the same gate. Of `with` blocks within each other the
    outermost closes it; one that was shared before, by a call alone, none of them.

    >>> import tempfile, tideline
    >>> with tideline.open(tempfile.mkdtemp()) as db, share(db):
    ...     (db.path / "GATE").exists()
    True
    >>> (db.path / "GATE").exists()
    False
    """
    db.channels()  # `Closed` if it is
    with _lock:
        gate = _gates.get(db)
        if gate is None or gate.closed:
            gate = Gate(db)
            _gates[db] = gate
        else:
            gate.held |= not gate.blocks
        return gate


def shared_path(given: Any) -> Path | None:
    """The folder of the shared database that has this channel or collection; None without one."""
    with _lock:
        for db, gate in _gates.items():
            if not gate.closed and any(one is given for one in db._datasets.handles().values()):
                return db.path
    return None


class Gate:
    """An open gate; close it, or use it as a context manager. `share` makes one."""

    def __init__(self, db: Database) -> None:
        self.blocks = 0
        """How many `with` blocks are within it; `_lock` guards it."""
        self.held = False
        """Whether somebody has it without a block, until the database or the gate is closed."""
        self._ended = threading.Event()
        self._close_lock = threading.Lock()
        self._connections: dict[int, tuple[Connection, threading.Thread]] = {}
        self._file = db.path / FILE
        self._spool = db.path.resolve() / "spool"
        self._local = Local(db, Spool(self._spool))
        self._key = secrets.token_bytes(32)
        _forget(self._file, self._spool)
        self._folder = _private_folder()
        try:
            self._spool.mkdir(mode=0o700)
            self._listener = Listener(str(self._folder / "socket"), "AF_UNIX", backlog=128)
        except OSError as error:
            self._give_up(db, error)
        try:
            address = Address(
                str(self._folder / "socket"), self._key.hex(), str(self._spool), os.getpid()
            )
            _write_private(self._file, msgspec.json.encode(address))
        except OSError as error:
            self._listener.close()
            self._give_up(db, error)
        self._thread = threading.Thread(target=self._accept, name="tideline-gate", daemon=True)
        self._thread.start()
        _before_close(db, self.close)
        atexit.register(self.close)

    def _give_up(self, db: Database, error: OSError) -> NoReturn:
        """Take away what was begun, and say why there is no gate."""
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.rmtree(self._spool, ignore_errors=True)
        raise Unavailable(
            "the store cannot be shared", path=str(db.path), error=str(error)
        ) from error

    @property
    def closed(self) -> bool:
        """Whether it lets nobody in any more."""
        return self._ended.is_set()

    @property
    def connected(self) -> bool:
        """Whether some process is connected."""
        return bool(self._connections)

    @property
    def staged(self) -> bool:
        """Whether rows are staged, or being staged."""
        with contextlib.suppress(OSError):
            return any(path.suffix != ".over" for path in self._spool.iterdir())
        return False

    @property
    def client(self) -> Local:
        """What the gate serves, for code in this process."""
        return self._local

    def close(self) -> None:
        """Let nobody in any more. Closing twice is allowed."""
        with self._close_lock:
            if self.closed:
                return
            self._ended.set()
            self._file.unlink(missing_ok=True)
            self._local.stopping.set()
            with contextlib.suppress(OSError):
                Client(self._listener.address, "AF_UNIX").close()  # wakes the thread that accepts
            self._thread.join(_WAIT_S)
            self._listener.close()
            left = list(self._connections.values())
            for how, wait_s in ((socket.SHUT_RD, _STEP_S), (socket.SHUT_RDWR, _WAIT_S)):
                for connection, _ in left:
                    _shut(connection, how)  # wakes a thread that waits for a call; then any
                for _, thread in left:
                    thread.join(wait_s)
            shutil.rmtree(self._folder, ignore_errors=True)
            shutil.rmtree(self._spool, ignore_errors=True)
            atexit.unregister(self.close)

    def __enter__(self) -> Gate:
        with _lock:
            self.blocks += 1
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            self.blocks -= 1
            last = not self.blocks and not self.held
        if last:
            self.close()

    # ---- inside -------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                if self.closed:
                    return
                continue  # whoever it was is gone again
            if self.closed:
                connection.close()
                return
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="tideline-gate-call", daemon=True
            )
            self._connections[connection.fileno()] = connection, thread
            thread.start()

    def _serve(self, connection: Connection) -> None:
        number = connection.fileno()
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            while not self.closed:
                self._answer(connection, wire.receive(connection))
        except (EOFError, OSError, AuthenticationError, TidelineError, msgspec.MsgspecError):
            pass  # the other side is gone, or is not who it should be
        finally:
            self._connections.pop(number, None)
            connection.close()

    def _answer(self, connection: Connection, request: Any) -> None:
        """Run one call."""
        try:
            if not isinstance(request, dict) or request.get("call") not in {*CALLS, *STREAMS}:
                raise InvalidRequest("the gate has no such call", request=request)
            name, args = request["call"], dict(request.get("args", {}))
            if args.get("once") is not None:
                args["once"] = tuple(args["once"])
            found = getattr(self._local, name)(*request.get("given", ()), **args)
            is_stream = name in STREAMS
            wire.send(connection, {"value": None if is_stream else found})
            if is_stream:
                wire.send_batches(connection, found)
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            wire.send_error(connection, error)


def _private_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    if len(os.fsencode(folder / "socket")) > _LONGEST_SOCKET:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))
    return folder


def _forget(file: Path, spool: Path) -> None:
    """Remove what an owner left that was killed: the folder is ours now, so it is gone."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        left = Path(msgspec.json.decode(file.read_bytes(), type=Address).socket).parent
        if left.name.startswith(_PREFIX):
            shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(spool, ignore_errors=True)


def _write_private(path: Path, data: bytes) -> None:
    """A file that only this user can read, whole or not at all."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
    new.rename(path)


def _shut(connection: Connection, how: int) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(how)


def _before_close(db: Database, do: Callable[[], None]) -> None:
    """Closing the database does this first."""
    close = db.close

    def closing() -> None:
        do()
        close()

    db.close = closing  # type: ignore[method-assign]
