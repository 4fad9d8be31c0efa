"""One open WebSocket: what reads, what writes, and what happens to a reader that is too slow.

    reader   what the client says; a subclass knows what it means
    writer   takes what waits in the outbox and sends it; with ?lines=1 many messages a frame

A reader that does not keep up: what waits is dropped, it is told `{"slow": {tag: token}}`, and the
connection is closed with 4008. It resumes each tag after its token, and nothing is lost.

Everything here is on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tideline.model import Event
from tideline.server.hub import Hub, live_message
from tideline.server.logs import log
from tideline.server.outbox import Outbox, Pieces, Wire
from tideline.server.shapes import encode, event_json, time_text

__all__ = ["SLOW", "Receive", "Send", "Socket"]

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
SLOW = 4008
_FRAME_BYTES = 64 << 10  # messages joined into one frame
_PIECE = 256  # past events encoded at a time


class Socket:
    """One WebSocket."""

    def __init__(self, hub: Hub, caller: Any, send: Send, *, lines: bool, socket: Any) -> None:
        self.caller = caller
        self._hub = hub
        self._send = send
        self._socket = socket
        self._join = b"\n" if lines else b""
        self._outbox = Outbox(asyncio.get_running_loop(), hub.settings.outbox_bytes, hub.turn)
        self._close: tuple[int, str] = (1000, "")
        if socket is not None:
            self._outbox.drain = self._drain

    async def read(self, receive: Receive) -> None:
        """Take what the client says, until it hangs up."""
        while (await receive())["type"] != "websocket.disconnect":
            pass

    def take(self, data: bytes) -> bool:
        """Take one message at once, on the short way; says whether there is room for another."""
        return True

    def stop(self) -> dict[str, str | int | None]:
        """Let go of everything; returns where to resume, by tag."""
        return {}

    async def serve(self, receive: Receive) -> None:
        """Answer requests until either side hangs up."""
        hub = self._hub
        hub.connections.add(self)
        if self._socket is not None and not hub.waits_for_disk:
            self._socket.read_with(self.take, hub.turn)
        reader = asyncio.ensure_future(self.read(receive))
        writer = asyncio.ensure_future(self._write())
        spilled = asyncio.ensure_future(self._outbox.spilled())
        tasks = [reader, writer, spilled]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hub.connections.discard(self)
            if self._socket is not None:
                self._socket.read_no_more()
            tokens = self.stop()
            self._outbox.close()
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
        if self._outbox.overflowed:
            await self._tell_slow(tokens)
        for failure in done:
            if isinstance(failure, Exception) and not isinstance(failure, OSError):
                raise failure

    async def _tell_slow(self, tokens: dict[str, str | int | None]) -> None:
        """The last words to a reader that does not keep up. Its socket takes no more by itself:
        they are put behind what it has not read yet."""
        self._hub.metrics.slow += 1
        log("slow", caller=self.caller.name, subscriptions=len(tokens))
        text, reason = encode({"slow": tokens}).decode(), "too slow: reconnect and resume"
        if self._socket is not None:
            self._socket.last_words(text, SLOW, reason)
            return
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._hub.settings.stop_s):
                await self._send({"type": "websocket.send", "text": text})
                await self._send({"type": "websocket.close", "code": SLOW, "reason": reason})

    # ---- what the hub asks -----------------------------------------------------------------

    def beat(self, now_us: int) -> None:
        """Send a heartbeat."""
        self._outbox.reply(b'{"beat":"%b"%b}' % ((time_text(now_us) or "").encode(), self.facts()))

    def facts(self) -> bytes:
        """What a heartbeat says beside the time."""
        return b""

    def revoked(self) -> None:
        """The token is good no more; the connection is closed next."""

    def hang_up(self, code: int, reason: str) -> None:
        """Send what is waiting, then close."""
        self._close = (code, reason)
        self._outbox.close()

    @property
    def waiting(self) -> int:
        """Messages that wait to be sent."""
        return len(self._outbox)

    # ---- writing ---------------------------------------------------------------------------

    async def _write(self) -> None:
        outbox = self._outbox
        while True:
            items = await outbox.take()
            if items:
                await self._send_items(items)
            if outbox.overflowed:
                return
            if not items and outbox.closed:
                with contextlib.suppress(OSError):
                    code, reason = self._close
                    await self._send({"type": "websocket.close", "code": code, "reason": reason})
                return

    def _drain(self) -> bool:
        """Send what waits at once, when it is little and the socket takes it."""
        socket = self._socket
        if not socket.takes_more:
            return False
        items = self._outbox.take_now(_FRAME_BYTES)
        if items is None:
            return False
        parts: list[bytes] = []
        for n, (stream, wire, size) in enumerate(items):
            if type(wire) is not Wire:
                past = list(iter(wire))  # decoded in one go
                parts += _past_texts(stream, past)
                parts.append(_past_done(stream))
                items[n] = stream, past, size
            else:
                parts.append(wire.data if stream is None else stream.prefix + wire.data)
        for text in [self._join.join(parts)] if self._join and parts else parts:
            socket.write_text(text)
        self._note(items, sum(size for _, _, size in items))
        return True

    async def _send_items(self, items: list[tuple[Any, Any, int]]) -> None:
        """Send messages in order, in few frames; stops when the outbox has overflowed."""
        parts: list[bytes] = []
        sending: list[tuple[Any, Any, int]] = []
        size = 0
        for item in items:
            stream, wire, item_size = item
            if type(wire) is not Wire:
                await self._flush(parts, sending, size)
                parts, sending, size = [], [], 0
                if isinstance(wire, Pieces):
                    for text in wire.texts:
                        await self._send_text(text)
                else:
                    await self._send_past(stream, wire)
                continue
            if stream is not None:
                parts.append(stream.prefix)
            parts.append(wire.data)
            sending.append(item)
            size += item_size
            if size >= _FRAME_BYTES or not self._join:
                await self._flush(parts, sending, size)
                parts, sending, size = [], [], 0
                if self._outbox.overflowed:
                    return
            else:
                parts.append(self._join)
        await self._flush(parts, sending, size)

    async def _flush(
        self, parts: list[bytes], sending: list[tuple[Any, Any, int]], size: int
    ) -> None:
        if not parts:
            return
        if parts[-1] is self._join:
            parts.pop()
        await self._send_text(b"".join(parts))
        self._note(sending, size)

    def _note(self, sent: list[tuple[Any, Any, int]], size: int) -> None:
        """Messages were handed to the socket."""
        now = time.perf_counter()
        metrics = self._hub.metrics
        for stream, wire, _ in sent:
            if type(wire) is not Wire:
                stream.sent(wire[-1].token if wire else None)
            elif stream is not None:
                stream.sent(wire.token)
                metrics.sent(now - wire.made)
        self._outbox.sent(size)

    async def _send_past(self, stream: Any, events: Sequence[Event]) -> None:
        for first in range(0, len(events), _PIECE):
            piece = events[first : first + _PIECE]
            texts = _past_texts(stream, piece)
            if self._join:
                await self._send_text(self._join.join(texts))
                stream.sent(piece[-1].token)
            else:
                for text, event in zip(texts, piece, strict=True):
                    await self._send_text(text)
                    stream.sent(event.token)
            if self._outbox.overflowed:
                return
        await self._send_text(_past_done(stream))

    async def _send_text(self, text: bytes) -> None:
        if self._socket is not None:
            await self._socket.send_text(text)
        else:
            await self._send({"type": "websocket.send", "text": text.decode()})


def _past_texts(stream: Any, events: Sequence[Event]) -> list[bytes]:
    prefix = stream.prefix
    return [
        prefix + live_message(event_json(event), b"past", event.token.encode()) for event in events
    ]


def _past_done(stream: Any) -> bytes:
    tag: bytes = stream.prefix.partition(b',"event":')[0]
    return tag + b',"past_done":true}'
