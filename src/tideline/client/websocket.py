"""A WebSocket to the server, read by whoever waits for something.

    background thread   waits until the socket is readable, reads, hands out (`run`)
    a caller            may do the reading itself while it waits for its reply (`take`, `read`,
                        `give_back`): waking another thread to be told would take longer than all
                        the rest of a call

Whole text messages are framed here, both ways. The handshake, pings, closes, fragments and
whatever is wrong goes to the library (websockets), frame by whole frame.

1. One thread reads at a time, the one that has made `_taken` true. While that is a caller
   (`_away`), the background thread does not hear of what arrives: its epoll looks away.
2. Nobody waits to send: what the socket does not take at once is sent by the background thread
   when it does. So a server that reads only when it is read from cannot be waited for in a circle.
3. Whoever meets the end of the connection says why (`end`); the background thread raises that,
   and only it closes the socket, when no caller is reading any more.

`send`, `take` and `end` from any thread; `read` by whoever has taken it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from websockets.client import ClientProtocol
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

try:
    from websockets.speedups import apply_mask
except ImportError:  # it was installed without its compiled part
    from websockets.utils import apply_mask

__all__ = ["WebSocket"]

BEAT_S = 10.0
"""A silent server is asked for a sign of life after so long, and given up after twice that."""

_TEXT = (0x81, 0x82)  # a whole message
_PING = b"\x89\x80"
_CLOSE = b"\x88\x82"
_PIECE_BYTES = 1 << 16
_LONGEST_S = 1e6  # poll knows no longer wait
_BLIND_S = 0.02  # without epoll: how often the background thread looks who reads
_WOULD_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# It calls some broken connections its own errors; all of them are lost connections here.
_quiet = logging.getLogger("tideline.client.websocket")
_quiet.setLevel(logging.CRITICAL + 1)


class WebSocket:
    """An open WebSocket."""

    def __init__(
        self, connected: socket.socket, uri: str, headers: Mapping[str, str], limit: float
    ) -> None:
        """Shakes hands on a connected socket, before `limit` of `time.monotonic`."""
        self._socket = connected
        self._tls = isinstance(connected, ssl.SSLSocket)
        self._protocol = ClientProtocol(parse_uri(uri), max_size=None, logger=_quiet)
        self._rest = bytearray()  # the beginning of a frame
        self._needed = 2  # bytes of it that must be there before it is worth a look
        self._parts: list[bytes] = []  # of a message in fragments
        self._lock = threading.Lock()
        self._taken = self._away = False
        self._unsent = bytearray()
        self._error: Exception | None = None
        self._last: Exception | None = None  # comes after messages that are not handed out yet
        self._shake_hands(headers, limit)
        connected.setblocking(False)
        self._heard = self._asked = time.monotonic()
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is not None:
            self._epoll.register(connected, select.EPOLLIN)
            self._poll = select.poll()
            self._poll.register(connected, select.POLLIN)

    # ---- any thread --------------------------------------------------------------------------

    def send(self, *texts: bytes) -> None:
        """Send messages, now or when the socket takes them; `OSError` once there is an end."""
        self._post(_frame(texts[0]) if len(texts) == 1 else b"".join(map(_frame, texts)))

    def take(self) -> bool:
        """Take the reading over, if nobody reads now; who did must `give_back`."""
        with self._lock:
            if self._taken or self._error is not None or self._epoll is None:
                return False
            self._taken = self._away = True
            self._watch()
        return True

    def give_back(self) -> None:
        """Leave the reading to the background thread."""
        with self._lock:
            self._taken = self._away = False
            if self._error is None:
                self._watch()

    def read(self, wait_s: float) -> list[bytes]:
        """The messages that are there; waits for them so long at most. Reading must be taken."""
        if self._last is not None:
            raise self._last
        waited = False
        while True:
            data = self._received() if self._tls or waited else None
            if data is None:
                if waited or not self._readable(wait_s):
                    return []
                waited = True
                continue
            messages = self._messages(data)
            if messages or waited:
                return messages

    def end(self, error: Exception, goodbye: bool = False) -> None:
        """There is no use for this connection any more, and why."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            with contextlib.suppress(OSError):
                if goodbye and not self._unsent:
                    mask = os.urandom(4)
                    self._socket.send(_CLOSE + mask + apply_mask(b"\x03\xe8", mask))
            with contextlib.suppress(OSError):
                # Wakes whoever waits for it. Not TLS's own, which would go on in plain text.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    # ---- the background thread ---------------------------------------------------------------

    def run(self, receive: Callable[[bytes], None]) -> NoReturn:
        """Hand out what arrives while no caller reads; raises why it ended."""
        try:
            while True:
                with self._lock:
                    if self._error is not None:
                        raise self._error
                    if self._unsent:
                        self._flush()
                    mine = not self._taken
                    self._taken = True
                if mine:
                    try:
                        # The first time it may have come with the handshake.
                        for message in self._messages(b"") or self.read(0.0):
                            receive(message)
                    finally:
                        self._taken = False
                self._listen()
        except Exception as error:
            self.end(error)
            raise

    def close(self) -> None:
        """Let go of the socket, when no caller reads it any more."""
        self.end(ConnectionError("the connection was closed"))
        while True:
            with self._lock:  # whoever sends holds it
                if not self._taken:
                    break
            time.sleep(0.001)
        if self._epoll is not None:
            self._epoll.close()
        self._socket.close()

    def _listen(self) -> None:
        """Wait until there is something to do; ask a silent server whether it is there."""
        if self._epoll is not None:
            found = self._epoll.poll(BEAT_S / 2)
            if self._away and found and found[0][1] & (select.EPOLLHUP | select.EPOLLERR):
                time.sleep(0.001)  # told of in any case: the caller that reads will meet it
        else:
            found = self._select(_BLIND_S)
        if found:
            return
        now = time.monotonic()
        silent_s = now - self._heard
        if silent_s > 2 * BEAT_S:
            raise TimeoutError("the server is silent")
        if silent_s > BEAT_S and self._asked <= self._heard:
            self._asked = now
            self._post(_PING + os.urandom(4))

    def _select(self, wait_s: float) -> list[Any]:
        writes = [self._socket] if self._unsent else []
        reads, writes, _ = select.select([self._socket], writes, [], wait_s)
        return reads + writes

    # ---- inside ------------------------------------------------------------------------------

    def _shake_hands(self, headers: Mapping[str, str], limit: float) -> None:
        protocol = self._protocol
        request = protocol.connect()
        for name, value in headers.items():
            request.headers[name] = value
        protocol.send_request(request)
        self._socket.settimeout(max(limit - time.monotonic(), 0.001))
        self._socket.sendall(b"".join(protocol.data_to_send()))
        head, whole = b"", False
        while self._connecting():
            self._socket.settimeout(max(limit - time.monotonic(), 0.001))
            data = self._socket.recv(_PIECE_BYTES)
            if not whole:
                head += data
                whole = b"\r\n\r\n" in head or not data or len(head) > _PIECE_BYTES
                # What comes after a head that agrees is a frame, and not for the library.
                text, mark, rest = head.partition(b"\r\n\r\n")
                if whole:
                    protocol.receive_data(text + mark)
                    if self._connecting():
                        protocol.receive_data(rest)
                    else:
                        self._rest += rest
            elif data:
                protocol.receive_data(data)
            if not data:
                protocol.receive_eof()
            if protocol.handshake_exc is not None:
                raise protocol.handshake_exc

    def _connecting(self) -> bool:
        return self._protocol.state is State.CONNECTING

    def _post(self, frame: bytes) -> None:
        with self._lock:
            if self._error is not None:
                raise ConnectionError("the connection has ended")
            if not self._unsent:
                try:
                    sent = self._socket.send(frame)
                except _WOULD_WAIT:
                    sent = 0
                if sent == len(frame):
                    return
                frame = frame[sent:]
            self._unsent += frame
            self._watch()

    def _flush(self) -> None:
        """Send what waits (the lock is held)."""
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except _WOULD_WAIT:
            return
        if not self._unsent:
            self._watch()

    def _watch(self) -> None:
        """Tell the background thread's epoll what to look for (the lock is held)."""
        if self._epoll is not None:
            self._epoll.modify(
                self._socket,
                (0 if self._away else select.EPOLLIN) | (select.EPOLLOUT if self._unsent else 0),
            )

    def _readable(self, wait_s: float) -> bool:
        if self._epoll is None:
            return bool(select.select([self._socket], [], [], wait_s)[0])
        return bool(self._poll.poll(min(wait_s, _LONGEST_S) * 1000))

    def _received(self) -> bytes | None:
        """What has arrived; None when nothing has."""
        try:
            if self._tls:
                with self._lock:  # its two directions share a state
                    data = self._socket.recv(_PIECE_BYTES)
            else:
                data = self._socket.recv(_PIECE_BYTES)
        except _WOULD_WAIT:
            return None
        if not data:
            self._protocol.receive_eof()
            raise self._protocol.close_exc
        self._heard = time.monotonic()
        return data

    def _messages(self, data: bytes) -> list[bytes]:
        """The messages that are whole now."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        found: list[bytes] = []
        start, size = 0, len(data)
        while size - start >= 2:
            length = data[start + 1] & 0x7F
            body = start + 2
            if length > 125:
                body += 2 if length == 126 else 8
                length = int.from_bytes(data[start + 2 : body], "big") if body <= size else 0
            end = body + length
            if end > size:
                break
            if data[start] in _TEXT and data[start + 1] < 0x80 and not self._parts:
                found.append(data[body:end])
            else:
                try:
                    self._by_library(data[start:end], found)
                except Exception as error:
                    if not found:
                        raise
                    self._last = error
                    return found
            start = end
        self._rest += data[start:]
        self._needed = max(end - start, 2) if size - start >= 2 else 2
        return found

    def _by_library(self, frame: bytes, found: list[bytes]) -> None:
        protocol = self._protocol
        protocol.receive_data(frame)
        for event in protocol.events_received():
            opcode = getattr(event, "opcode", None)
            if opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._parts.append(bytes(event.data))  # type: ignore[union-attr]
                if event.fin:  # type: ignore[union-attr]
                    found.append(b"".join(self._parts))
                    self._parts = []
        reply = b"".join(protocol.data_to_send())
        if reply:
            self._post(reply)
        if protocol.state is not State.OPEN:  # it said goodbye, or what nobody may say
            protocol.receive_eof()
            raise protocol.close_exc


def _frame(text: bytes) -> bytes:
    """A message as a client sends it."""
    size = len(text)
    mask = os.urandom(4)
    if size < 126:
        head = bytes((0x81, 0x80 | size))
    elif size < 65_536:
        head = b"\x81\xfe" + size.to_bytes(2, "big")
    else:
        head = b"\x81\xff" + size.to_bytes(8, "big")
    return head + mask + apply_mask(text, mask)
