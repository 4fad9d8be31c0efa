"""A `Client` that goes through the gate of the process that has the store open.

The store's folder says where the gate is and holds its key (gate.py), in a file that only
its owner can read. Rows are staged straight into the spool beside the store, and fetched
from there; everything else goes over the socket (wire.py).

The store may be closed, opened and shared again between two calls: the next one then finds
the new gate. A connection that breaks in the middle of a call is `Unavailable`, and whether a
write landed is for the caller to find out, by making it again with the same `once`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing import connection as sockets
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tideline.channel.spool import Spool
from tideline.errors import NotFound, Unavailable
from tideline.spark import wire
from tideline.spark.client import CALLS, STREAMS

__all__ = ["FILE", "Address", "GateClient"]

FILE = "GATE"
"""The file in the store's folder that says where its gate is."""


class Address(msgspec.Struct):
    """What the file says."""

    socket: str
    key: str
    spool: str
    pid: int


class GateClient:
    """A store that another process has open and shares: a `Client`, most of it by name."""

    def __init__(self, path: str | os.PathLike[str], *, opens: bool = False) -> None:
        """`opens`: a folder that nobody has open is opened (keeper.py)."""
        self._opens = opens
        self._folder = Path(os.path.abspath(path))
        self._connection: Connection | None = None

    def __getattr__(self, name: str) -> Any:
        """Any other call of `Client`: what `Local` does in the other process."""
        if name in STREAMS:
            return partial(self._stream, name)
        if name in CALLS:
            return partial(self._call, name)
        raise AttributeError(name)

    def stage(self, job: str, batches: Iterable[pa.RecordBatch], order: str = "time") -> str:
        if self._connection is None:
            self._connection = self._connect()  # who opened the folder stays while one is there
        return Spool(self._address().spool).stage(job, batches, order)

    def fetch(self, token: str) -> Iterator[pa.RecordBatch]:
        yield from Spool(self._address().spool).runs([token])

    def discard(self, job: str, over: bool = False) -> None:
        Spool(self._address().spool).discard(job, over)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---- inside -------------------------------------------------------------------------

    def _call(self, name: str, /, *given: Any, **args: Any) -> Any:
        """What a call answers with."""
        with self._talk() as connection:
            wire.send(connection, {"call": name, "given": given, "args": args})
            value = wire.receive(connection)["value"]
        return msgspec.convert(value, CALLS[name])

    def _stream(self, name: str, /, *given: Any, **args: Any) -> Iterator[pa.RecordBatch]:
        """The batches that a call answers with; it is over when they are."""
        with self._talk() as connection:
            wire.send(connection, {"call": name, "given": given, "args": args})
            wire.receive(connection)
            yield from wire.receive_batches(connection)

    @contextlib.contextmanager
    def _talk(self) -> Iterator[Connection]:
        """The connection; it is dropped when the talk does not end as it should."""
        if self._connection is not None and self._connection.poll(0):
            self.close()  # nothing was asked and something is there: the end
        if self._connection is None:
            self._connection = self._connect()
        try:
            yield self._connection
        except (EOFError, OSError) as error:
            self.close()
            raise Unavailable(
                "the store is gone: the process that had it open closed it or ended; open it and "
                "share it again", path=str(self._folder), error=str(error) or "end of file",
            ) from None  # fmt: skip
        except wire.Failed as failed:  # the other side is ready for the next call
            raise failed.error from None
        except BaseException:
            self.close()
            raise

    def _connect(self) -> Connection:
        try:
            return self._reach()
        except Unavailable:
            if not self._opens:
                raise
        from tideline.spark.keeper import open_for_spark

        return open_for_spark(self._folder, self._reach)

    def _reach(self) -> Connection:
        address = self._address()
        try:
            return sockets.Client(address.socket, "AF_UNIX", authkey=bytes.fromhex(address.key))
        except (OSError, EOFError, AuthenticationError, ValueError) as error:
            raise Unavailable(
                "nobody shares the store: the process that did ended without closing it; open it "
                "and call tideline.spark.share(db)", path=str(self._folder), error=str(error),
            ) from None  # fmt: skip

    def _address(self) -> Address:
        try:
            return msgspec.json.decode((self._folder / FILE).read_bytes(), type=Address)
        except FileNotFoundError:
            if not self._folder.is_dir():
                raise NotFound("there is no store here", path=str(self._folder)) from None
            raise Unavailable(
                "nobody shares the store: in the process that has it open, call "
                "tideline.spark.share(db)", path=str(self._folder),
            ) from None  # fmt: skip
        except (OSError, msgspec.MsgspecError) as error:
            raise Unavailable(
                "the store's gate cannot be found", file=str(self._folder / FILE), error=str(error)
            ) from None
