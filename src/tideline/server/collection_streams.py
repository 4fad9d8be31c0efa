"""Arrow streams that are made while they are sent: what does not fit into memory at once.

    header, batch, batch, ..., end      each made in a thread when the socket has taken the last

An answer that breaks off has no end: whoever reads it sees that. On the event loop.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tideline.server.ops import ARROW

__all__ = ["ArrowStream"]

_PIECE = 4 << 20
_HEADERS = [
    (b"content-type", ARROW.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]


class _Parts(io.RawIOBase):
    """Keeps what is written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self.size += len(self._parts[-1])
        return len(self._parts[-1])

    def take(self) -> bytes:
        found = b"".join(self._parts)
        self._parts, self.size = [], 0
        return found


class ArrowStream:
    """Batches as an answer, an ASGI application."""

    def __init__(self, hub: Any, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._hub = hub
        self._batches = batches
        self._sink = _Parts()
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), schema)
        self._done = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        first = await self._hub.in_thread(self._piece)  # what fails at once is told as an error
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": first, "more_body": True})
        while not self._done:
            piece = await self._hub.in_thread(self._piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _piece(self) -> bytes:
        """The next bytes of the stream: a few batches."""
        for batch in self._batches:
            self._stream.write_batch(batch)
            if self._sink.size >= _PIECE:
                break
        else:
            self._stream.close()
            self._done = True
        return self._sink.take()
