"""A WebSocket to the server in an event loop; what the bytes mean is for client/frames.py.

Messages are handed out as they arrive, in the loop. Nobody waits to send: what the socket does not
take at once is sent when it does. Whoever meets the end of the connection says why (`end`), and
`ended` raises that. A silent server is asked for a sign of life, and given up (`BEAT_S`).

For one event loop; not safe from other threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from tideline.aclient.sockets import Held, Sockets
from tideline.client.frames import Frames, close_frame, frame, ping_frame
from tideline.client.websocket import BEAT_S

__all__ = ["WebSocket"]


class WebSocket(Held):
    """A WebSocket; `open` makes one."""

    def __init__(
        self, uri: str, headers: Mapping[str, str], receive: Callable[[bytes], None],
        lost: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        self._frames = Frames(uri, headers, self._write)
        self._receive = receive
        self._tell = lost
        self.error: Exception | None = None
        """Why there is no connection any more."""
        loop = asyncio.get_running_loop()
        self._shaken: asyncio.Future[None] = loop.create_future()
        self._over = asyncio.Event()
        self._heard = self._asked = time.monotonic()

    @classmethod
    async def open(
        cls, sockets: Sockets, uri: str, headers: Mapping[str, str],
        receive: Callable[[bytes], None], limit: float, lost: Callable[[], None] | None = None,
    ) -> WebSocket:  # fmt: skip
        """Connect and shake hands, before `limit` of `time.monotonic`.

        receive: called with every message. lost: called when there is an end.
        """
        made = await sockets.connect(lambda: cls(uri, headers, receive, lost), limit)
        try:
            async with asyncio.timeout(max(limit - time.monotonic(), 0.001)):
                await made._shaken
        except BaseException:
            made.end(ConnectionError("no handshake"))
            raise
        return made

    def send(self, *texts: bytes) -> None:
        """Send messages; `OSError` once there is an end."""
        if self.error is not None:
            raise ConnectionError("the connection has ended")
        self._write(frame(texts[0]) if len(texts) == 1 else b"".join(map(frame, texts)))

    def end(self, error: Exception, goodbye: bool = False) -> None:
        """There is no use for this connection any more, and why."""
        if self.error is not None:
            return
        self.error = error
        self._over.set()
        if self._tell is not None:
            self._tell()
        if not self._shaken.done():
            self._shaken.set_exception(error)
        if self._transport is not None:
            if goodbye and not self._transport.get_write_buffer_size():
                self._transport.write(close_frame())
            self.cut()

    async def ended(self) -> NoReturn:
        """Wait for the end; raises why it came."""
        while self.error is None:
            try:
                async with asyncio.timeout(BEAT_S / 2):
                    await self._over.wait()
            except TimeoutError:
                self.look()
        raise self.error

    def look(self) -> None:
        """Ask a silent server whether it is there."""
        if self.error is not None:
            return
        now = time.monotonic()
        silent_s = now - self._heard
        if silent_s > 2 * BEAT_S:
            self.end(TimeoutError("the server is silent"))
        elif silent_s > BEAT_S and self._asked <= self._heard:
            self._asked = now
            self._write(ping_frame())

    def pause(self, paused: bool) -> None:
        """Read no more, or read again."""
        if self._transport is not None and self.error is None:
            if paused:
                self._transport.pause_reading()
            else:
                self._heard = time.monotonic()
                self._transport.resume_reading()

    # ---- the loop ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._write(self._frames.request)

    def data_received(self, data: bytes) -> None:
        self._heard = time.monotonic()
        if self.error is not None:
            return
        try:
            if not self._shaken.done():
                if not self._frames.shake(data):
                    return
                self._shaken.set_result(None)
                data = b""  # what came with the handshake is kept there
            for message in self._frames.messages(data):
                self._receive(message)
            if self._frames.failure is not None:
                raise self._frames.failure
        except Exception as error:
            self.end(error)

    def eof_received(self) -> None:
        self._lost()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost()

    def _lost(self) -> None:
        if self.error is None:
            try:
                if not self._shaken.done():
                    self._frames.shake(b"")
                raise self._frames.ended()
            except Exception as error:
                self.end(error)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
