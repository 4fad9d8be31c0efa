"""The changes of a collection on a server, as its user follows them.

    server --one WebSocket--> RemoteChanges --> take(), for ...

Each handle has a connection of its own, read by whoever asks for a change: no thread waits in the
background, and what nobody asks for waits on the server, in the log of the collection. When the
connection breaks, the next read makes another, again and again with growing waits, and goes on
after the last change that arrived: nothing comes twice, and nothing is missed.

What the server says, and where a handle stands in it, is in arriving.py.

Safe from any thread: one reads at a time, and each change is handed out once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time

from websockets.exceptions import WebSocketException

from tideline.client.arriving import Arriving, Later, check_take
from tideline.client.feeds import Again, refusal, rest_s, told
from tideline.client.http import Http
from tideline.client.websocket import BEAT_S, WebSocket
from tideline.client.wire import encode
from tideline.errors import Closed, Unavailable
from tideline.model import Change

__all__ = ["RemoteChanges"]

_OPEN_S = 10.0  # a connection must be there within so long
_log = logging.getLogger("tideline.client")


class RemoteChanges(Arriving):
    """What is written to a collection, in order; `RemoteCollection.changes` makes one.

    >>> import tideline
    >>> from tideline.server import running
    >>> with tideline.open(":memory:") as db, running(db) as url, tideline.connect(url) as remote:
    ...     cars = remote.collection("cars", key="id")
    ...     with cars.changes() as changes:
    ...         cars.put({"id": 1, "speed": 50})
    ...         cars.delete(1)
    ...         for change in changes.take():
    ...             print(change.seq, change.key, change.after)
    1 1 {'id': 1, 'speed': 50}
    2 1 None
    """

    _socket: WebSocket | None = None

    def __init__(
        self, http: Http, name: str, identity: str, after: int | None, before: bool
    ) -> None:
        """Follows at once; refuses as the server does."""
        super().__init__(http.places, name, identity, after, before)
        self._http = http
        self._reading = threading.Lock()
        self._stop = threading.Event()
        self._closed = False
        self._shut = False
        self._heard = self._asked = 0.0
        http.followers.add(self)
        limit = time.monotonic() + http.timeout_s
        with self._reading:
            self._connect(limit)
        self._raise()

    def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Change]:
        """What is there now, at most `limit` of it; waits up to `timeout_s` for the first.

        Asks the server: what was written before this call is there. `Unavailable` when it cannot
        be reached in time; nothing is lost by that, ask again.
        """
        wait_s = check_take(limit, timeout_s)
        with self._reading:
            self._require_open()
            begun = time.monotonic()
            reach = begun + self._http.timeout_s
            asked = next(self._tags)
            sent: WebSocket | None = None
            while self._synced < asked and (limit is None or len(self._ready) < limit):
                socket = self._connect(reach)
                if socket is None:
                    break
                if sent is not socket:
                    sent = socket
                    self._send(encode({"do": "sync", "tag": asked}))
                if not self._read(reach - time.monotonic()) and time.monotonic() >= reach:
                    raise Unavailable("the server does not answer", url=self._http.url)
            until = begun + wait_s
            while not self._ready and time.monotonic() < until and self._connect(until):
                self._read(until - time.monotonic())
            if not self._ready:
                self._raise()
                self._require_open()
            count = len(self._ready) if limit is None else min(limit, len(self._ready))
            return [self._handed_out() for _ in range(count)]

    def close(self) -> None:
        """Stop following, whoever waits. Twice is allowed."""
        self._end(closed=True)

    def shut(self) -> None:
        """The client was closed: whoever asks for more is told so."""
        self._end(closed=False)

    def __iter__(self) -> RemoteChanges:
        return self

    def __next__(self) -> Change:
        with self._reading:
            while not self._ready:
                if self._closed:
                    raise StopIteration
                if self._connect(None) is None:
                    self._raise()
                    self._require_open(iterating=True)
                else:
                    self._read(BEAT_S)
            return self._handed_out()

    def __enter__(self) -> RemoteChanges:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # also when it was never made
            self.close()

    def __repr__(self) -> str:
        return f"RemoteChanges({self._name!r}, seq={self.seq}, before={self._before})"

    # ---- the connection: whoever holds `_reading` ---------------------------------------------

    def _connect(self, limit: float | None) -> WebSocket | None:
        """The connection, made if need be before `limit`; None when there will be none."""
        spans = self._http.places.waits()
        while self._socket is None and not self._over:
            error: Exception
            try:
                self._open(limit)
                continue
            except (WebSocketException, OSError, Again) as found:
                error = found
            self._drop()
            refused = refusal(error)
            if refused is not None:
                self._error = refused
                break
            asked_s = error.span_s if isinstance(error, Later) else rest_s(error)
            span_s = max(next(spans), asked_s or 0.0)
            if limit is not None and time.monotonic() + span_s >= limit:
                said = told(error)
                raise Unavailable(
                    "the server cannot be reached", url=self._http.url, error=str(said or error)
                )
            self._stop.wait(span_s)
        return None if self._over else self._socket

    @property
    def _over(self) -> bool:
        return self._closed or self._shut or self._error is not None

    def _open(self, limit: float | None) -> None:
        """Connect, and ask for what comes after the last change that arrived."""
        http = self._http
        within = time.monotonic() + _OPEN_S
        within = within if limit is None else min(within, limit)
        place = http.places.here()
        try:
            connected = http.connect(within, place)
            try:
                socket = WebSocket(connected, place.live, http.headers, within)
            except BaseException:
                connected.close()
                raise
        except (WebSocketException, OSError):
            http.places.leave(place)
            raise
        self._socket = socket
        socket.take()
        self._heard = self._asked = time.monotonic()
        if self._over:  # closed meanwhile, by somebody who did not see this socket
            self._drop()
            return
        socket.send(encode(self._request()))
        while not self._answered and not self._over:
            left_s = within - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the server does not answer")
            self._hear(left_s)

    def _read(self, wait_s: float) -> bool:
        """Take what arrives, waiting so long at most; whether something did.

        A connection that breaks is let go: the next call makes another.
        """
        try:
            return self._hear(max(wait_s, 0.0))
        except (WebSocketException, OSError, Again) as error:
            self._drop()
            self._error = self._error or refusal(error)
            if not self._over:
                _log.info("connection lost, trying again: %s (%s)", self._http.url, error)
            return True

    def _send(self, text: bytes) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the next read meets it
                self._socket.send(text)

    def _hear(self, wait_s: float) -> bool:
        socket = self._socket
        assert socket is not None
        try:
            found = socket.read(min(wait_s, BEAT_S / 2))
        except Exception:
            raise
        except BaseException:  # whoever was interrupted may have read what was not taken in
            self._drop()
            raise
        now = time.monotonic()
        if found:
            self._heard = now
        elif now - self._heard > 2 * BEAT_S:
            raise TimeoutError("the server is silent")
        elif now - self._heard > BEAT_S and self._asked <= self._heard:
            self._asked = now
            socket.send(encode({"do": "sync", "tag": next(self._tags)}))
        for data in found:
            self._take_in_all(data)
        return bool(found)

    def _drop(self) -> None:
        """Let go of the connection."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.end(Again("closed"), goodbye=True)
            socket.give_back()
            socket.close()

    def _end(self, *, closed: bool) -> None:
        self._closed = self._closed or closed
        self._shut = True
        self._stop.set()
        socket = self._socket
        if socket is not None:
            socket.end(Again("closed"), goodbye=True)  # wakes whoever reads
        if self._reading.acquire(blocking=False):  # else whoever reads lets go of it
            try:
                self._drop()
            finally:
                self._reading.release()

    def _raise(self) -> None:
        if self._error is not None and not self._ready:
            self._drop()
            raise self._error

    def _require_open(self, *, iterating: bool = False) -> None:
        if self._closed and not iterating:
            raise Closed("the feed was closed")
        if self._shut and not self._closed:
            raise Closed("the connection to the server was closed", url=self._http.url)
