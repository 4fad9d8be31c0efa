"""What goes over the gate's socket.

    call    := header
    answer  := header | header batch* (end | failure) | failure
    header  := 'H' 7 zeros, JSON          {"call": name, "args": {...}} or {"value": ...}
    batch   := 'A' 7 zeros, Arrow IPC stream of one record batch
    failure := 'F' 7 zeros, JSON          {"kind": "NotFound", "message": ..., "values": {...}}
    end     := 'E' 7 zeros

Each is one message of `multiprocessing.connection`, which adds the length and, when two
sides meet, has each prove that it knows the key. The eight bytes in front keep Arrow's
buffers aligned. Nothing is pickled: the worst a message can be is malformed.

An error is raised on the other side as what it was: its kind, message and values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import pyarrow as pa

from tideline import errors
from tideline.errors import Corruption, TidelineError

__all__ = [
    "Failed", "pack_error", "receive", "receive_batches", "send", "send_batches", "send_error",
    "unpack_error",
]  # fmt: skip

_KINDS: dict[str, type[TidelineError]] = {name: getattr(errors, name) for name in errors.__all__}
_ROWS = 65_536  # a larger batch goes in parts


class Failed(Exception):
    """The other side sent an error in place of an answer; the connection is good."""

    def __init__(self, error: TidelineError) -> None:
        super().__init__(str(error))
        self.error = error


def send(connection: Connection, header: Any) -> None:
    """A call, or what is answered; batches may follow."""
    connection.send_bytes(_tag("H") + msgspec.json.encode(header))


def send_batches(connection: Connection, batches: Iterable[pa.RecordBatch]) -> None:
    """Batches, as they come, and their end."""
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            sink = pa.BufferOutputStream()
            sink.write(_tag("A"))
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch.slice(start, _ROWS))
            connection.send_bytes(sink.getvalue())
    connection.send_bytes(_tag("E"))


def send_error(connection: Connection, error: Exception) -> None:
    """A failure, in place of an answer or of its end."""
    connection.send_bytes(_tag("F") + msgspec.json.encode(pack_error(error)))


def receive(connection: Connection) -> Any:
    """The header of what comes; batches may still have to be received."""
    tag, data = _message(connection)
    if tag == "F":
        raise Failed(unpack_error(msgspec.json.decode(data)))
    if tag != "H":
        raise TidelineError("the gate's protocol was broken: a header was expected", got=tag)
    return msgspec.json.decode(data)


def receive_batches(connection: Connection) -> Iterator[pa.RecordBatch]:
    """The batches that follow a header."""
    while True:
        tag, data = _message(connection)
        if tag == "E":
            return
        if tag == "F":
            raise Failed(unpack_error(msgspec.json.decode(data)))
        if tag != "A":
            raise TidelineError("the gate's protocol was broken: a batch was expected", got=tag)
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            yield from stream


def pack_error(error: Exception) -> dict[str, Any]:
    """An error as JSON; one that is not ours keeps its text.

    >>> pack_error(errors.NotFound("no such channel", name="x"))["kind"]
    'NotFound'
    """
    if not isinstance(error, TidelineError):
        text = f"the store's process failed: {type(error).__name__}: {error}"
        return {"kind": "TidelineError", "message": text, "values": {}}
    values = {name: _plain(value) for name, value in error.values.items()}
    return {"kind": type(error).__name__, "message": str(error), "values": values}


def unpack_error(packed: dict[str, Any]) -> TidelineError:
    """The error that `pack_error` packed.

    >>> unpack_error(pack_error(errors.NotFound("no such channel", name="x")))
    NotFound("no such channel. name='x'")
    """
    kind = _KINDS.get(packed["kind"], TidelineError)
    error = kind.__new__(kind)
    Exception.__init__(error, packed["message"])
    error.values = packed["values"]
    if isinstance(error, Corruption):
        error.file = str(error.values.get("file"))
    return error


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _tag(letter: str) -> bytes:
    return letter.encode() + b"\0" * 7


def _message(connection: Connection) -> tuple[str, memoryview]:
    data = memoryview(connection.recv_bytes())
    return chr(data[0]) if len(data) >= 8 else "?", data[8:]
