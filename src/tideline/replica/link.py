"""What goes to one other node: a queue, and a connection that is made again and again.

A link has two lanes. Snapshots go in the second, in pieces between the frames of the first, so that
heartbeats do not wait for them. A queue that is full, and one whose node cannot be reached, drops
what comes: the protocol tolerates loss. What can be said in one message is said in one: entries
that follow each other, and acknowledgements.

    put, nothing waits     -> encoded and sent right there, by the thread that says it
    put, something waits   -> queue -> the loop: batches

`_busy` says whose turn it is: while the loop writes, or anything waits, nobody else does. So frames
are numbered in the order in which they are sent.

Threads: `put`, `tell_book` and `status` are safe from any thread; all else is for the loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import ssl
import threading
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import msgspec

from tideline.errors import TidelineError, Unauthorized
from tideline.replica.messages import Install, Mark, Message, Supply
from tideline.replica.wire import (
    BATCH,
    BOOK,
    MOST_FRAME,
    PIECE,
    Address,
    Tagged,
    encode,
    frame,
    frames,
    merged,
    pieces,
    size_of,
)

__all__ = ["PROVE_S", "Link", "tune"]

PROVE_S = 5.0
"""So long may it take to connect and prove who one is."""
_QUEUE = 64 << 20  # bytes that wait for one node, about
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0
_STRAIGHT = 64 << 10  # bytes of a message that is not left to the loop, about
_GONE_MS = 5000  # no answer of the other's TCP for so long: the connection is given up

_log = logging.getLogger("tideline.replica")


class Link:
    """What goes to one other node."""

    def __init__(
        self,
        peer: int,
        book: dict[int, Address],
        tls: ssl.SSLContext | None,
        greet: Callable[[StreamReader, StreamWriter, int], Coroutine[Any, Any, bytes]],
        state: Callable[[int, Mark], bytes],
        gone: Callable[[int], None],
    ) -> None:
        """`greet` proves who we are, gives the key of the session; `state`, `gone`: `Network`."""
        self.peer = peer
        self._book, self._tls, self._greet, self._state = book, tls, greet, state
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # for what follows
        self._queue: deque[list[Any]] = deque()  # [group, message, bytes]: small ones, in order
        self._last: dict[int, list[Any]] = {}  # the newest of each group, while it waits
        self._bytes = 0
        self._bulk: deque[tuple[int, Message]] = deque()
        self._tell = False
        self._rest = b""  # of a frame that the socket did not take whole
        self._busy = True
        self._socket: socket.socket | None = None  # without TLS: a way to send from any thread
        self._writer: StreamWriter | None = None
        self._key = b""
        self._number = 0
        self.connected = False
        self.dropped = self.sent = 0
        self.error: str | None = "not connected yet"
        self._wake = asyncio.Event()

    def status(self) -> dict[str, Any]:
        """For `Network.status`."""
        at = self._book.get(self.peer)
        return {
            "address": "{}:{}".format(*at) if at else None,
            "connected": self.connected, "error": self.error, "waiting_bytes": self._bytes,
            "sent": self.sent, "dropped": self.dropped,
        }  # fmt: skip

    # ---- the queue ---------------------------------------------------------------------------

    def put(self, group: int, message: Message) -> None:
        """Send or queue a message, or drop it."""
        with self._lock:
            if not self.connected:
                self.dropped += 1
            elif self._busy or not self._sent_straight(group, message):
                self._enqueue(group, message)
                self._rouse()

    def _sent_straight(self, group: int, message: Message) -> bool:
        """Send a message that nothing stands before, if the socket takes it."""
        if self._socket is None or type(message) is Install or size_of(message) > _STRAIGHT:
            return False
        assert self._writer is not None
        if self._writer.transport.get_write_buffer_size():
            return False
        data = frame(self._key, self._number, BATCH, encode([(group, message)]))
        try:
            size = self._socket.send(data)
        except BlockingIOError:
            return False
        except OSError:  # whoever reads notices that, too
            self.dropped += 1
            return True
        self._number += 1
        self.sent += 1
        if size < len(data):
            self._rest = data[size:]
            self._rouse()
        return True

    def _rouse(self) -> None:
        """Have the loop send what waits."""
        if not self._busy:
            self._busy = True
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._wake.set)

    def _enqueue(self, group: int, message: Message) -> None:
        if type(message) is Install or (
            size_of(message) > 4 * MOST_FRAME and type(message) is Supply
        ):
            known = [(g, type(m), getattr(m, "mark", None)) for g, m in self._bulk]
            if (group, type(message), getattr(message, "mark", None)) not in known:
                self._bulk.append((group, message))
            return
        last = self._last.get(group)
        both = merged(last[1], message) if last is not None else None
        size = size_of(message)
        if last is not None and both is not None:
            last[1] = both
            last[2] += size
        elif self._bytes + size > _QUEUE and self._bytes:
            self.dropped += 1
            return
        else:
            last = self._last[group] = [group, message, size]
            self._queue.append(last)
        self._bytes += size

    def tell_book(self) -> None:
        """Send the address book."""
        with self._lock:
            self._tell = True
            self._rouse()

    def _forget(self) -> None:
        self.dropped += len(self._queue) + len(self._bulk)
        self._queue.clear()
        self._last.clear()
        self._bulk.clear()
        self._bytes = 0
        self._rest = b""

    def _batch(self) -> list[Tagged]:
        """Some of what waits: about a frame."""
        found: list[Tagged] = []
        size = 0
        while self._queue and (not found or size + self._queue[0][2] < MOST_FRAME // 2):
            one = self._queue.popleft()
            if self._last.get(one[0]) is one:
                del self._last[one[0]]
            found.append((one[0], one[1]))
            size += one[2]
        self._bytes -= size
        return found

    # ---- the connection ----------------------------------------------------------------------

    async def run(self) -> None:
        """Connect, send, and connect again, until it is cancelled."""
        wait_s, sent = _FIRST_WAIT_S, 0
        while True:
            try:
                reader, writer, key = await self._connect()
                if self.sent > sent:  # else it ended as soon as it was made
                    wait_s = _FIRST_WAIT_S
                sent = self.sent
                await self._send_all(reader, writer, key)
            except (OSError, EOFError, TimeoutError, TidelineError, ssl.SSLError) as error:
                text = str(error) or type(error).__name__
                if text != self.error and isinstance(error, Unauthorized):
                    _log.warning("node %d: %s", self.peer, text)
                self.error = text
                if isinstance(error, ConnectionRefusedError):
                    self._gone(self.peer)
            await asyncio.sleep(wait_s * (0.5 + random.random()))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def _connect(self) -> tuple[StreamReader, StreamWriter, bytes]:
        host, port = self._book[self.peer]
        async with asyncio.timeout(PROVE_S):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=self._tls, server_hostname=host if self._tls else None
            )
            try:
                key = await self._greet(reader, writer, self.peer)
            except BaseException:
                writer.transport.abort()
                raise
        tune(writer)
        return reader, writer, key

    async def _send_all(self, reader: StreamReader, writer: StreamWriter, key: bytes) -> None:
        """Send what waits, until the connection ends."""
        with self._lock:
            self._writer, self._key, self._number = writer, key, 0
            self._socket = None if self._tls else _another(writer)
            self.connected, self.error = True, None
            self._tell = self._busy = True
        ended = asyncio.ensure_future(reader.read(1))  # nothing ever comes: it ended
        ended.add_done_callback(lambda _: self._wake.set())
        bulk: Iterator[bytes] | None = None
        try:
            while not ended.done():
                if bulk is None and self._bulk:
                    bulk = await self._load(*self._bulk[0])
                found: list[tuple[int, bytes]] = []
                with self._lock:
                    rest, self._rest = self._rest, b""
                    tell, self._tell = self._tell, False
                    batch = self._batch()
                    self._busy = bool(rest or tell or batch or self._bulk or bulk is not None)
                    if not self._busy:
                        self._wake.clear()
                if not self._busy:
                    await self._wake.wait()
                    continue
                if tell:
                    found.append((BOOK, encode(self._book)))
                if batch:
                    found += frames(encode(batch), 0)
                    self.sent += len(batch)
                if bulk is not None:
                    piece = next(bulk, None)
                    if piece is None:
                        bulk = None
                        with self._lock:
                            self._bulk.popleft()
                    else:
                        found.append((PIECE, piece))
                if rest:
                    writer.write(rest)
                for kind, payload in found:
                    writer.write(frame(key, self._number, kind, payload))
                    self._number += 1
                await writer.drain()
            raise EOFError("the connection ended")
        finally:
            with self._lock:
                self.connected, self._busy = False, True
                if self._socket is not None:
                    self._socket.close()
                    self._socket = None
                self._forget()
            ended.cancel()
            writer.transport.abort()

    async def _load(self, group: int, message: Message) -> Iterator[bytes]:
        """A large message, in pieces."""
        try:
            data = await asyncio.to_thread(self._encoded, group, message)
        except TidelineError as error:
            _log.info("a snapshot for node %d is not sent: %s", self.peer, error)
            return iter(())
        return pieces(data, 1)

    def _encoded(self, group: int, message: Message) -> bytes:
        if isinstance(message, Install):
            state = self._state(group, message.mark)
            message = msgspec.structs.replace(message, data=state)
        return encode([(group, message)])


def _another(writer: StreamWriter) -> socket.socket:
    """The socket of a connection once more, so that its number is ours until we close it."""
    found = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
    found.setblocking(False)
    return found


def tune(writer: StreamWriter) -> None:
    """Send at once, notice soon when the other is gone, and keep little waiting in the system."""
    sock = writer.get_extra_info("socket")
    if sock is None:
        return
    wanted = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    ]  # fmt: skip
    for name, value in (
        ("TCP_USER_TIMEOUT", _GONE_MS), ("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2),
        ("TCP_KEEPCNT", 3), ("TCP_NOTSENT_LOWAT", 256 << 10),
    ):  # fmt: skip
        if hasattr(socket, name):
            wanted.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    for level, option, value in wanted:
        with contextlib.suppress(OSError):
            sock.setsockopt(level, option, value)
