"""A WebSocket to the server, read by whoever waits for something.

    background thread   waits until the socket is readable, reads, hands out (`run`)
    a caller            may do the reading itself while it waits for its reply (`take`, `read`,
                        `give_back`): waking another thread to be told would take longer than all
                        the rest of a call

What the bytes mean is for frames.py.

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
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tideline.client.frames import Frames, close_frame, frame, ping_frame

__all__ = ["WebSocket"]

BEAT_S = 10.0
"""A silent server is asked for a sign of life after so long, and given up after twice that."""

_PIECE_BYTES = 1 << 16
_LONGEST_S = 1e6  # poll knows no longer wait
_BLIND_S = 0.02  # without epoll: how often the background thread looks who reads
_WOULD_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class WebSocket:
    """An open WebSocket."""

    def __init__(
        self, connected: socket.socket, uri: str, headers: Mapping[str, str], limit: float
    ) -> None:
        """Shakes hands on a connected socket, before `limit` of `time.monotonic`."""
        self._socket = connected
        self._tls = isinstance(connected, ssl.SSLSocket)
        self._frames = Frames(uri, headers, self._post)
        self._lock = threading.Lock()
        self._taken = self._away = False
        self._unsent = bytearray()
        self._error: Exception | None = None
        self._shake_hands(limit)
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
        self._post(frame(texts[0]) if len(texts) == 1 else b"".join(map(frame, texts)))

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
        if self._frames.failure is not None:
            raise self._frames.failure
        waited = False
        while True:
            data = self._received() if self._tls or waited else None
            if data is None:
                if waited or not self._readable(wait_s):
                    return []
                waited = True
                continue
            messages = self._frames.messages(data)
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
                    self._socket.send(close_frame())
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
                        for message in self._frames.messages(b"") or self.read(0.0):
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
            self._post(ping_frame())

    def _select(self, wait_s: float) -> list[Any]:
        writes = [self._socket] if self._unsent else []
        reads, writes, _ = select.select([self._socket], writes, [], wait_s)
        return reads + writes

    # ---- inside ------------------------------------------------------------------------------

    def _shake_hands(self, limit: float) -> None:
        self._socket.settimeout(max(limit - time.monotonic(), 0.001))
        self._socket.sendall(self._frames.request)
        done = False
        while not done:
            self._socket.settimeout(max(limit - time.monotonic(), 0.001))
            done = self._frames.shake(self._socket.recv(_PIECE_BYTES))

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
            raise self._frames.ended()
        self._heard = time.monotonic()
        return data
