"""uvicorn's HTTP with bounds, and its WebSocket with a short way for what comes often.

    heads            must arrive in time (arrivals.py), and have a largest size; what is no request
                     is refused in the words of every other refusal, after the answers to the
                     requests that came before it on its connection
    handshakes       are answered or refused within the same time, and so is a token that comes as
                     the first message: until somebody serves it, a WebSocket counts as arriving
    plain messages   whole text or binary frames are framed here, both ways, and handed to whoever
                     serves the connection at once: no queue, no task switch, no objects; a
                     connection that sends very much does not keep others waiting for long
    everything else  the handshake, pings, closes, fragments and whatever is wrong goes to the
                     library (websockets), frame by whole frame, so that it always knows its state
    no lines of it   what uvicorn would log of a request names its query, where a browser's token
                     may be: front.py and sockets.py log instead
    last words       one message and a close, put behind what a stuck reader has not read: an
                     ordinary send waits until the socket takes more, which such a one never does;
                     the end of an event stream likewise

Invariants: bytes of a frame that is not whole are kept here, at most one frame of them, never more
than the largest message; the library is never given a part of a frame, unless it was given bytes
before the handshake was over: then it reads this connection to its end.

Everything here is on the event loop.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import SecurityError

from tideline.server.arrivals import HEAD_BYTES, Arrivals, refusal_bytes
from tideline.server.logs import log
from tideline.server.outbox import Turn
from tideline.server.refusals import Refused

try:
    from websockets.speedups import apply_mask
except ImportError:  # it was installed without its compiled part
    from websockets.utils import apply_mask

__all__ = ["LINGER_S", "LiveProtocol", "QuietHttp"]

LINGER_S = 30.0
_PLAIN = (0x81, 0x82)  # a whole text or binary message
_CONTROL = 0x08
_TURN_S = 0.005  # messages of one connection that are taken before others are served


# Warnings and errors only, whatever the program around the server logs.
_warnings = logging.getLogger("tideline.server.uvicorn")
_warnings.setLevel(logging.WARNING)
# Whoever leaves with several requests under way is an error to uvicorn; front.py logs it as 499.
_warnings.addFilter(lambda record: "without completing response" not in str(record.msg))


class QuietHttp(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """HTTP by uvicorn, without its line for every request, and with bounds on what arrives."""

    def __init__(self, arrivals: Arrivals, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.access_log = False
        self.logger = _warnings
        self._arrivals = arrivals
        self._used = False  # requests were answered without a cycle of uvicorn (http.py)
        self._upgraded = False  # it is a WebSocket, and another protocol's
        self._begun = False  # something has arrived since the last request
        self._in_head = False
        self._head_bytes = 0
        self._body_bytes = 0  # of the last body, in what arrived last
        self._refusal: Refused | None = None  # waits for the answers to earlier requests

    def connection_made(self, transport: Any) -> None:
        """Somebody has connected."""
        super().connection_made(transport)
        self._arrivals.expect(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """They have gone."""
        self._arrivals.done(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._refusal is not None:
            return  # what follows something that is no request is none either
        before = self.cycle
        begun, self._begun = self._begun, True
        in_head, self._body_bytes = self._in_head, 0
        super().data_received(data)
        if self._upgraded:
            return
        if self.cycle is not before and not self.cycle.response_complete:
            self._arrivals.done(self)  # a head is there
            self._begun = False
        elif not begun and (self._used or (before is not None and before.response_complete)):
            self._arrivals.expect(self)  # the next one has begun, on a connection that was used
        if self._in_head:
            if in_head and self._head_bytes:
                self._head_bytes += len(data)
            else:  # it began in this piece, perhaps behind another request and its body
                behind = len(data) - (data.rfind(b"\r\n\r\n") + 4 if b"\r\n\r\n" in data else 0)
                self._head_bytes = max(1, behind - self._body_bytes)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self._refuse(Refused(431, "TooLarge", f"the headers are over {HEAD_BYTES} bytes"))

    # These only with httptools; h11 has a bound of its own.

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """It is whole."""
        self._in_head, self._body_bytes = False, 0
        self.scope["extensions"] = {}
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            # The cycle has the scope: a reference back would leave every request to the collector.
            self.scope["extensions"]["tideline"] = partial(
                self._last_words, weakref.ref(self.cycle)
            )

    def _last_words(self, request: weakref.ref[Any], data: bytes) -> None:
        """End an answer that has begun with these bytes, now."""
        cycle = request()
        if cycle is None or cycle.disconnected or cycle.response_complete:
            return
        if self.transport.is_closing():
            return
        if cycle.chunked_encoding:
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
        cycle.response_complete = True
        self.transport.write(data)
        self.transport.close()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def on_response_complete(self) -> None:
        """A request was answered: the connection waits for the next."""
        self._begun = False
        if not self.transport.is_closing():
            self._arrivals.expect(self, spare_s=self.timeout_keep_alive)
        before, more = self.cycle, bool(getattr(self, "pipeline", ()))
        super().on_response_complete()
        if more or self.cycle is not before or not self.cycle.response_complete:
            self._arrivals.done(self)  # the next one was there already
        elif self._refusal is not None and not self.transport.is_closing():
            self._say(self._refusal)

    def handle_websocket_upgrade(self, *arguments: Any) -> None:
        """From here on it is a WebSocket."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._refuse(Refused(400, "InvalidRequest", "a handshake waits for earlier answers"))
            return
        self._arrivals.done(self)
        self._upgraded = True
        super().handle_websocket_upgrade(*arguments)

    def too_slow(self) -> None:
        """No head in time, or too many wait for one."""
        if self.transport.is_closing():
            return
        if self._in_head or (self._begun and self.cycle is None):
            seconds = self._arrivals.head_timeout_s
            self._refuse(
                Refused(408, "TooSlow", f"the headers did not arrive within {seconds:g} s")
            )
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What arrived is no request."""
        self._refuse(Refused(400, "InvalidRequest", "this is no HTTP request"))

    def _refuse(self, refused: Refused) -> None:
        """Refuse what arrived last, and hang up; whole requests before it are answered first."""
        log("turned away", address=self.client[0] if self.client else "local", why=str(refused))
        self._in_head = False
        waiting: Any = getattr(self, "pipeline", ())
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
            # The request whose body this is. It runs, or waits for its turn.
            if not any(cycle is self.cycle for cycle, _ in waiting):
                self._say(refused)
                return
            waiting.popleft()
            self.cycle.response_complete = True  # it never runs
        elif self.cycle is None or self.cycle.response_complete:
            self._say(refused)
            return
        self._refusal = refused

    def _say(self, refused: Refused) -> None:
        self.transport.write(refusal_bytes(refused))
        self.transport.close()


def _nobody(data: bytes) -> bool:
    return True


class LiveProtocol(WebSocketsSansIOProtocol):
    """A WebSocket that hands itself to the application, as `scope["extensions"]["tideline"]`."""

    def __init__(self, arrivals: Arrivals, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._arrivals = arrivals
        self.logger = self.conn.logger = _warnings
        self.conn.debug = False
        self._rest = b""
        self._by_library = False
        self._fragments = False  # the library holds a part of a message
        self._take: Callable[[bytes], bool] | None = None
        self._turn: Turn | None = None
        self._held = False

    async def run_asgi(self) -> None:
        """Serve one connection."""
        self.scope["extensions"]["tideline"] = self  # type: ignore[assignment]
        await super().run_asgi()

    # ---- the handshake -----------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """A request wants to be a WebSocket."""
        super().connection_made(transport)
        self._arrivals.expect(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._arrivals.done(self)
        super().connection_lost(exc)

    def awaits_token(self, timeout_s: float) -> None:
        """The handshake is over, the first message must bring a token."""
        self._arrivals.expect(self, spare_s=timeout_s)

    def admitted(self) -> None:
        """Somebody serves the connection now, and bounds it."""
        self._arrivals.done(self)

    def too_slow(self) -> None:
        """No handshake in time, or no token, or too many wait."""
        if self.transport.is_closing():
            return
        if not self.handshake_complete:
            seconds = self._arrivals.head_timeout_s
            self._refuse(Refused(408, "TooSlow", f"no handshake within {seconds:g} s"))
        else:
            self.transport.close()

    def _refuse(self, refused: Refused) -> None:
        log("turned away", address=self.client[0] if self.client else "local", why=str(refused))
        self._arrivals.done(self)
        self.handshake_complete = self.close_sent = True
        self.transport.write(refusal_bytes(refused))
        self.transport.close()

    def _check_handshake(self) -> None:
        """Refuse what the library cannot read: it would never say anything more."""
        wrong = self.conn.handshake_exc
        if wrong is None or self.handshake_initiated or self.transport.is_closing():
            return
        if isinstance(wrong, SecurityError) or isinstance(wrong.__cause__, SecurityError):
            self._refuse(Refused(431, "TooLarge", "the handshake has too many or too long lines"))
        else:
            self._refuse(Refused(400, "InvalidRequest", "this is no WebSocket handshake"))

    # ---- reading -----------------------------------------------------------------------------

    def read_with(self, take: Callable[[bytes], bool], turn: Turn) -> None:
        """Hand each message to a function from now on; it says whether it can take another now.

        When it cannot, nothing is read until `go_on`. `turn` is told when messages are read.
        """
        self._take, self._turn = take, turn
        ready = True
        while not self.queue.empty():  # what came before anybody served the connection
            message = self.queue.get_nowait()
            if message["type"] != "websocket.receive":
                self.queue.put_nowait(message)
                break
            ready = take(message.get("bytes") or (message.get("text") or "").encode()) and ready
        if not ready:
            self._hold()
        elif self.read_paused:
            self.transport.resume_reading()
        self.read_paused = False

    def read_no_more(self) -> None:
        """Throw away what still comes."""
        self._take = _nobody

    def go_on(self) -> None:
        """Read again."""
        if self._held and not self.transport.is_closing():
            self._held = False
            self.data_received(b"")
            if not self._held:
                self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._by_library or not self.handshake_complete:
            early = self.handshake_initiated or not data.endswith(b"\r\n\r\n")
            self._by_library = self._by_library or early
            super().data_received(data)
            if not self.handshake_initiated:
                self._check_handshake()
            return
        if self._rest:
            data = self._rest + data
        turn = self._turn
        if turn is None:
            self._rest = data[self._read_frames(data) :]
            return
        turn.begin()
        try:
            self._rest = data[self._read_frames(data) :]
        finally:
            turn.end()

    def _read_frames(self, data: bytes) -> int:
        """Read the whole frames in `data`; returns where the rest begins."""
        start, size = 0, len(data)
        limit = time.perf_counter() + _TURN_S  # the loop's own time stands still meanwhile
        while size - start >= 2 and not self._held:
            length = data[start + 1] & 0x7F
            body = start + 2
            if length > 125:
                body += 2 if length == 126 else 8
                if size < body:
                    break
                length = int.from_bytes(data[start + 2 : body], "big")
            if length > self.config.ws_max_size or not data[start + 1] & 0x80:
                self._by_library = True  # which says what is wrong with it, and hangs up
                super().data_received(data[start:])
                return size
            body += 4
            end = body + length
            if end > size:
                break
            if self.close_sent and data[start] in _PLAIN:
                pass  # nobody listens any more
            elif data[start] in _PLAIN and not self._fragments:
                self._message(apply_mask(data[body:end], data[body - 4 : body]))
                if not self._held and end < size and time.perf_counter() >= limit:
                    self._hold()
                    self.loop.call_soon(self.go_on)
            else:
                if not data[start] & _CONTROL:
                    self._fragments = not data[start] & 0x80
                super().data_received(data[start:end])
            start = end
        return start

    def _message(self, data: bytes) -> None:
        if self._take is None:
            self.frames, self.curr_msg_data_type = [data], "bytes"
            super().send_receive_event_to_app()
        elif not self._take(data):
            self._hold()

    def _hold(self) -> None:
        self._held = True
        self.transport.pause_reading()

    def send_receive_event_to_app(self) -> None:
        """A message that the library has put together."""
        if self._take is None or self.close_sent:
            super().send_receive_event_to_app()
            return
        data, self.frames = b"".join(self.frames), []
        self._message(data)

    # ---- writing -----------------------------------------------------------------------------

    async def send(self, message: Any) -> None:
        """Send one message, as ASGI has it."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # a refusal is an answer: uvicorn would log an error

    async def send_text(self, text: bytes) -> None:
        """Send one text message, when the socket takes more."""
        if not self.writable.is_set():
            await self.writable.wait()
        if self.disconnected or self.close_sent or self.transport.is_closing():
            raise ClientDisconnected
        self.write_text(text)

    @property
    def takes_more(self) -> bool:
        """Whether a message can be written now."""
        gone = self.disconnected or self.close_sent or self.transport.is_closing()
        return self.writable.is_set() and not gone

    def write_text(self, text: bytes) -> None:
        """Write one text message; `takes_more` has said that it can be."""
        size = len(text)
        if size < 126:
            head = bytes((0x81, size))
        elif size < 65_536:
            head = b"\x81\x7e" + size.to_bytes(2, "big")
        else:
            head = b"\x81\x7f" + size.to_bytes(8, "big")
        self.transport.write(head + text)

    def last_words(self, text: str, code: int, reason: str) -> None:
        """Send a message and a close, now."""
        if self.close_sent or self.disconnected or self.transport.is_closing():
            return
        self.conn.send_text(text.encode())
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.loop.call_later(LINGER_S, self.transport.abort)
