"""HTTP with a short way for requests that can be answered as they arrive.

    bytes --heads.py--> a whole request --front.py--> an answer, in the same turn of the loop
                  `---> any other, or one that must wait: uvicorn's parser and a task (protocol.py)

One at a time takes the longer way; what arrives behind it is kept here until it is answered, so
that answers leave in the order of their requests. A connection that sends very much does not keep
others waiting for long, and is read no further while it does not take its answers.

Invariant: uvicorn's parser is given the bytes of a request from its first to its last, and none of
a request that was answered here.

Everything here is on the event loop.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import Any

from tideline.server.front import headers_of
from tideline.server.heads import PART
from tideline.server.ops import JSON, Reply
from tideline.server.protocol import QuietHttp

__all__ = ["QuickHttp"]

_TURN_S = 0.005  # requests of one connection that are answered before others are served
_ANSWER_BYTES = 256 << 10  # answers that are made before it is asked whether they are taken
_PATIENCE_S = 0.05  # for the rest of a request; whoever is slower is watched as slow ones are
_REST_S = 1.0  # so often it is said anew that a connection rests
_OK: list[Any] = [
    None,
    b"",
    b"",
]  # the head of most answers: its date, before and behind the length


class QuickHttp(QuietHttp):
    """A connection."""

    def __init__(self, app: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._hub, self._heads = app.hub, app.heads
        # Whether uvicorn's parser is between requests; that of h11 does not tell, and reads all.
        self._between = hasattr(QuietHttp, "on_message_complete")
        self._kept = b""  # bytes that were not looked at, or not all of a request
        self._held = False  # they wait for an answer, or for their turn
        self._patience: asyncio.TimerHandle | None = None  # they wait for more
        self._rested = 0.0

    def connection_lost(self, exc: Exception | None) -> None:
        """They have gone."""
        self._held, self._kept = True, b""
        self._lose_patience()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._held or self._kept:
            data = self._kept + data
            if self._held:
                self._kept = data
                return
            self._kept = b""
        if self._between and not self._begun and self._refusal is None:
            self._read(data)
        else:
            self._lose_patience()
            super().data_received(data)

    def _read(self, data: bytes) -> None:
        """Answer what can be at once; the first that cannot takes the longer way."""
        if self._hub.stopping or len(self.connections) >= self.limit_concurrency:
            self._lose_patience()
            super().data_received(data)
            return
        if self.flow.write_paused or self._is_answering:
            self._hold(data)
            return
        at, size, whole, answers = 0, 0, None, []
        begun = time.monotonic()
        turn = self._hub.turn
        turn.begin()  # what is published goes out when all are read
        try:
            while at < len(data):
                whole = self._heads.read(data, at, self.client, self.scheme)
                if whole is None or whole is PART:
                    break
                _, op, scope, body, end = whole
                reply = whole.path.answer(op, scope, body) if op.at_once else None
                if reply is None:
                    break
                answers.append(_answer_bytes(reply, self.server_state.default_headers))
                at, size = end, size + len(answers[-1])
                if size > _ANSWER_BYTES or time.monotonic() - begun > _TURN_S:
                    break
        finally:
            turn.end()
            if answers:
                self._write(answers, begun)
        if whole is not PART or answers:
            self._lose_patience()
        if at == len(data):
            return
        rest = data[at:]
        if whole is None:
            super().data_received(rest)
        elif whole is PART:
            self._kept = rest
            if self._patience is None:
                self._patience = self.loop.call_later(_PATIENCE_S, self._too_late)
        elif whole.end > at:
            super().data_received(data[at : whole.end])
            if whole.end < len(data):
                self._hold(data[whole.end :])
        else:  # its turn is over
            self._hold(rest)
            self.loop.call_soon(self._go_on)

    def _write(self, answers: list[bytes], now: float) -> None:
        self.server_state.total_requests += len(answers)
        self.transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
        self._used = True
        self._unset_keepalive_if_required()  # arrivals.py closes it when it rests for too long
        if now - self._rested > _REST_S:
            self._rested = now
            self._arrivals.expect(self, spare_s=self.timeout_keep_alive)

    # ---- what waits --------------------------------------------------------------------------

    @property
    def _is_answering(self) -> bool:
        """Whether a request takes the longer way."""
        return self.cycle is not None and not self.cycle.response_complete

    def _hold(self, data: bytes) -> None:
        """Keep bytes until what was before them is answered and taken."""
        self._lose_patience()
        self._held, self._kept = True, data
        self.flow.pause_reading()

    def _go_on(self) -> None:
        if not self._held or self._is_answering or self.flow.write_paused:
            return
        if self.transport.is_closing():
            return
        self._held, data, self._kept = False, self._kept, b""
        self.flow.resume_reading()
        self.data_received(data)

    def _too_late(self) -> None:
        """The rest of a request does not come at once."""
        data, self._kept, self._patience = self._kept, b"", None
        if not self.transport.is_closing():
            super().data_received(data)

    def _lose_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def resume_writing(self) -> None:
        """The client takes its answers again."""
        super().resume_writing()
        if self._held:
            self.loop.call_soon(self._go_on)

    def on_response_complete(self) -> None:
        """A request was answered on the longer way."""
        super().on_response_complete()
        if self._held:
            self.loop.call_soon(self._go_on)

    def on_message_begin(self) -> None:
        """The parser has met a request."""
        self._between = False
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """It has all of it."""
        self._between = True
        super().on_message_complete()


def _answer_bytes(reply: Reply, defaults: list[tuple[bytes, bytes]]) -> bytes:
    """A whole answer; what most of them begin with is made once a second."""
    data = reply.data or b""
    if reply.status != 200 or reply.headers or reply.media is not JSON:
        return _head(reply, len(data), defaults) + data
    if _OK[0] is not defaults:
        before, mark, behind = _head(reply, 0, defaults).partition(b"content-length: 0")
        _OK[:] = defaults, before + mark[:-1], behind
    return b"%b%d%b%b" % (_OK[1], len(data), _OK[2], data)


def _head(reply: Reply, size: int, defaults: list[tuple[bytes, bytes]]) -> bytes:
    """What is said above an answer, as uvicorn says it."""
    lines = b"".join(b"%b: %b\r\n" % header for header in [*defaults, *headers_of(reply, size)])
    phrase = HTTPStatus(reply.status).phrase.encode()
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (reply.status, phrase, lines)
