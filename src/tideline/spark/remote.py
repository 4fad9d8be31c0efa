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
from collections.abc import Iterable, Iterator, Sequence
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
from tideline.spark.client import Arriving, Facts, Landed, Once

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
    """A store that another process has open and shares."""

    def __init__(self, path: str | os.PathLike[str], *, opens: bool = False) -> None:
        """`opens`: a folder that nobody has open is opened (keeper.py)."""
        self._opens = opens
        self._folder = Path(os.path.abspath(path))
        self._connection: Connection | None = None

    # ---- reading ------------------------------------------------------------------------

    def describe(self, channel: str) -> Facts:
        return msgspec.convert(self._call("describe", {"channel": channel}), Facts)

    def create(self, channel: str, space: dict[str, Any]) -> None:
        self._call("create", {"channel": channel, "space": space})

    def scan(
        self, channel: str, kind: str, *, place: str | None = None, since: int | None = None,
        until: int | None = None, where: str | None = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        return self._stream(
            "scan", channel=channel, kind=kind, place=place, since=since, until=until,
            where=where,
        )  # fmt: skip

    def times(self, channel: str, parts: int) -> list[int]:
        return list(self._call("times", {"channel": channel, "parts": parts}))

    def collection(
        self, name: str, key: str | None = None, indexes: dict[str, str] | None = None
    ) -> dict[str, Any]:
        args = {"name": name, "key": key, "indexes": indexes}
        found: dict[str, Any] = self._call("collection", args)
        return found

    def documents(
        self, name: str, *, where: str | None = None, low: str | None = None,
        high: str | None = None, limit: str | None = None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        return self._stream("documents", name=name, where=where, low=low, high=high, limit=limit)

    def cuts(self, name: str, parts: int) -> list[str]:
        return list(self._call("cuts", {"name": name, "parts": parts}))

    def changes(
        self, name: str, after: int, upto: int, before: bool = False
    ) -> Iterator[pa.RecordBatch]:
        return self._stream("changes", name=name, after=after, upto=upto, before=before)

    def position(self, channel: str) -> str:
        return str(self._call("position", {"channel": channel}))

    def earliest(self, channel: str, kind: str) -> str:
        return str(self._call("earliest", {"channel": channel, "kind": kind}))

    def reach(self, channel: str, kind: str, after: str, upto: str, limit: int) -> str:
        args = {"channel": channel, "kind": kind, "after": after, "upto": upto, "limit": limit}
        return str(self._call("reach", args))

    def journal(self, channel: str, kind: str, after: str, upto: str) -> Iterator[pa.RecordBatch]:
        return self._stream("journal", channel=channel, kind=kind, after=after, upto=upto)

    # ---- writing ------------------------------------------------------------------------

    def apply(
        self, channel: str, tables: Iterable[pa.Table | pa.RecordBatch],
        once: Once | None = None,
    ) -> Landed:  # fmt: skip
        batches = (
            batch
            for table in tables
            for batch in (table.to_batches() if isinstance(table, pa.Table) else [table])
        )
        value = self._call("apply", {"channel": channel, "once": once}, batches)
        return msgspec.convert(value, Landed)

    def stage(self, job: str, batches: Iterable[pa.RecordBatch], order: str = "time") -> str:
        if self._connection is None:
            self._connection = self._connect()  # who opened the folder stays while one is there
        return Spool(self._address().spool).stage(job, batches, order)

    def check(
        self, channel: str, tokens: Sequence[str], *, keep: str | None = None,
        arriving: Arriving = None,
    ) -> Landed:  # fmt: skip
        args = {"channel": channel, "tokens": list(tokens), "keep": keep, "arriving": arriving}
        return msgspec.convert(self._call("check", args), Landed)

    def commit(
        self, channel: str, tokens: Sequence[str], *, once: Once | None = None,
        order: str = "time", keep: str | None = None, arriving: Arriving = None,
    ) -> Landed:  # fmt: skip
        args: dict[str, Any] = {"channel": channel, "tokens": list(tokens), "order": order}
        args |= {"keep": keep, "once": once, "arriving": arriving}
        return msgspec.convert(self._call("commit", args), Landed)

    def loading(self, name: str) -> tuple[dict[str, Any], str]:
        recipe, folder = self._call("loading", {"name": name})
        return recipe, folder

    def adopt(self, name: str, recipe: dict[str, Any], pieces: list[dict[str, Any]]) -> list[int]:
        return list(self._call("adopt", {"name": name, "recipe": recipe, "pieces": pieces}))

    def fetch(self, token: str) -> Iterator[pa.RecordBatch]:
        yield from Spool(self._address().spool).runs([token])

    def discard(self, job: str, over: bool = False) -> None:
        Spool(self._address().spool).discard(job, over)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---- inside -------------------------------------------------------------------------

    def _stream(self, call: str, /, **args: Any) -> Iterator[pa.RecordBatch]:
        """The batches that a call answers with; it is over when they are."""
        with self._talk() as connection:
            wire.send(connection, {"call": call, "args": args})
            wire.receive(connection)
            yield from wire.receive_batches(connection)

    def _call(self, name: str, args: dict[str, Any], batches: Iterable[pa.RecordBatch] = ()) -> Any:
        with self._talk() as connection:
            wire.send(connection, {"call": name, "args": args}, batches)
            value = wire.receive(connection)["value"]
            for _ in wire.receive_batches(connection):
                pass
            return value

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
