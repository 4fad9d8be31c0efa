"""Frames of a WebSocket out of bytes and back: what a client says and hears, without a socket.

Whole text messages are framed here, both ways. The handshake, pings, closes, fragments and
whatever is wrong goes to the library (websockets), frame by whole frame.

    frames = Frames(uri, headers)
    send(frames.request)
    until frames.shake(data)         the handshake; raises why there is none
    frames.messages(data)            whole messages; what must be replied to goes to `reply`

A thread that blocks (websocket.py) and an event loop (aclient/websocket.py) both use it. Not safe
from several threads, apart from `frame`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping

from websockets.client import ClientProtocol
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

try:
    from websockets.speedups import apply_mask
except ImportError:  # it was installed without its compiled part
    from websockets.utils import apply_mask

__all__ = ["Frames", "close_frame", "frame", "ping_frame"]

_TEXT = (0x81, 0x82)  # a whole message
_PING = b"\x89\x80"
_CLOSE = b"\x88\x82"
_HEAD_BYTES = 1 << 16
# It calls some broken connections its own errors; all of them are lost connections here.
_quiet = logging.getLogger("tideline.client.websocket")
_quiet.setLevel(logging.CRITICAL + 1)


class Frames:
    """One connection, as a client sees it."""

    def __init__(
        self, uri: str, headers: Mapping[str, str], reply: Callable[[bytes], None]
    ) -> None:
        """`reply` is called with what must be sent at once: pongs, a close."""
        self._protocol = ClientProtocol(parse_uri(uri), max_size=None, logger=_quiet)
        self._reply = reply
        self._head, self._whole = b"", False  # of the handshake's answer
        self._rest = bytearray()  # the beginning of a frame
        self._needed = 2  # bytes of it that must be there before it is worth a look
        self._parts: list[bytes] = []  # of a message in fragments
        self._last: Exception | None = None  # comes after messages that are not handed out yet
        request = self._protocol.connect()
        for name, value in headers.items():
            request.headers[name] = value
        self._protocol.send_request(request)
        self.request = b"".join(self._protocol.data_to_send())
        """What begins the handshake."""

    def shake(self, data: bytes) -> bool:
        """Read on in the handshake; whether it is done. Raises why there will be none.

        No data means that the connection has ended.
        """
        protocol = self._protocol
        if not self._whole:
            self._head += data
            self._whole = b"\r\n\r\n" in self._head or not data or len(self._head) > _HEAD_BYTES
            # What comes after a head that agrees is a frame, and not for the library.
            text, mark, rest = self._head.partition(b"\r\n\r\n")
            if self._whole:
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
        return not self._connecting()

    def ended(self) -> Exception:
        """What it means that the connection ends here."""
        self._protocol.receive_eof()
        return self._protocol.close_exc

    @property
    def failure(self) -> Exception | None:
        """What came after the messages that were handed out last, and is wrong."""
        return self._last

    def messages(self, data: bytes) -> list[bytes]:
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

    def _connecting(self) -> bool:
        return self._protocol.state is State.CONNECTING

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
            self._reply(reply)
        if protocol.state is not State.OPEN:  # it said goodbye, or what nobody may say
            protocol.receive_eof()
            raise protocol.close_exc


def frame(text: bytes) -> bytes:
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


def ping_frame() -> bytes:
    """A question whether the other side is there."""
    return _PING + os.urandom(4)


def close_frame() -> bytes:
    """A close, all being well."""
    mask = os.urandom(4)
    return _CLOSE + mask + apply_mask(b"\x03\xe8", mask)
