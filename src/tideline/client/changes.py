"""The changes of a collection on a server, as its user follows them.

    server --one WebSocket--> RemoteChanges --> take(), for ...

Each handle has a connection of its own, read by whoever asks for a change: no thread waits in the
background, and what nobody asks for waits on the server, in the log of the collection. When the
connection breaks, the next read makes another, again and again with growing waits, and goes on
after the last change that arrived: nothing comes twice, and nothing is missed.

1. `seq` is the last change that was handed out, and what arrived after it is in `_ready`.
2. A new connection asks for what comes after the last of these, of the same collection (its
   `identity`).
3. What the server says no more of stays said: `_error` is raised to whoever asks again.

Safe from any thread: one reads at a time, and each change is handed out once.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any

import msgspec
from websockets.exceptions import WebSocketException

from tideline.client.feeds import Again, refusal, rest_s, told
from tideline.client.http import Http, waits
from tideline.client.websocket import BEAT_S, WebSocket
from tideline.client.wire import encode, error_of
from tideline.clock import span_us
from tideline.errors import Closed, Conflict, InvalidRequest, NotFound, TidelineError, Unavailable
from tideline.model import Change

__all__ = ["RemoteChanges"]

_OPEN_S = 10.0  # a connection must be there within so long
_TAG = 0  # of the changes; each sync has another
_DROPPED = "the collection was dropped"
_log = logging.getLogger("tideline.client")


class _Following(msgspec.Struct):
    seq: int
    identity: str


class _Change(msgspec.Struct):
    seq: int
    key: int | str
    after: msgspec.Raw
    before: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    def change(self) -> Change:
        old = self.before
        if isinstance(old, msgspec.UnsetType):
            return Change(self.seq, self.key, _text(self.after))
        return Change(self.seq, self.key, _text(self.after), _text(old))


class _Error(msgspec.Struct):
    kind: str
    message: str
    retry_after_s: float | None = None
    values: dict[str, Any] = {}


class _Message(msgspec.Struct):
    tag: int | None = None
    following: _Following | None = None
    changes: list[_Change] = []
    ended: str | None = None
    error: _Error | None = None
    synced: str | None = None


_decode = msgspec.json.Decoder(_Message).decode


def _text(raw: msgspec.Raw) -> bytes | None:
    text = bytes(raw)
    return None if text == b"null" else text


class RemoteChanges:
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
        if after is not None and (isinstance(after, bool) or not isinstance(after, int)):
            raise InvalidRequest("after must be the seq of a change, 0 or more", after=after)
        if not isinstance(before, bool):
            raise InvalidRequest("before must be True or False", before=before)
        self._http = http
        self._name = name
        self._before = before
        self._identity = None if after is None else identity
        self._seq = after  # None: from now on, as long as the server has not said where that is
        self._ready: deque[Change] = deque()
        self._reading = threading.Lock()
        self._stop = threading.Event()
        self._closed = False
        self._shut = False
        self._error: TidelineError | None = None
        self._tags = itertools.count(_TAG + 1)
        self._answered = False  # on this connection
        self._begun = False  # on any
        self._synced = 0  # the last that was answered
        self._heard = self._asked = 0.0
        http.followers.add(self)
        limit = time.monotonic() + http.timeout_s
        with self._reading:
            self._connect(limit)
        self._raise()

    @property
    def seq(self) -> int:
        """The seq of the change that was handed out last: go on after it with `after=`.

        Before the first, the seq that it began after.
        """
        return self._seq or 0

    def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Change]:
        """What is there now, at most `limit` of it; waits up to `timeout_s` for the first.

        Asks the server: what was written before this call is there. `Unavailable` when it cannot
        be reached in time; nothing is lost by that, ask again.
        """
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
            raise InvalidRequest("limit must be a whole number", limit=limit)
        if limit is not None and limit < 0:
            raise InvalidRequest("limit must not be negative", limit=limit)
        wait_us = span_us(timeout_s, "timeout_s")
        if wait_us < 0:
            raise InvalidRequest("timeout_s must not be negative", timeout_s=timeout_s)
        with self._reading:
            self._require_open()
            if limit == 0:
                return []
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
            until = begun + wait_us / 1_000_000
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

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # also when it was never made
            self.close()

    def __repr__(self) -> str:
        return f"RemoteChanges({self._name!r}, seq={self.seq}, before={self._before})"

    def _handed_out(self) -> Change:
        found = self._ready[0]
        self._seq = found.seq
        self._ready.popleft()  # cut before it, the next call hands out the same again
        return found

    # ---- the connection: whoever holds `_reading` ---------------------------------------------

    def _connect(self, limit: float | None) -> WebSocket | None:
        """The connection, made if need be before `limit`; None when there will be none."""
        spans = waits()
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
            asked_s = error.span_s if isinstance(error, _Later) else rest_s(error)
            span_s = max(next(spans), asked_s or 0.0)
            if limit is not None and time.monotonic() + span_s >= limit:
                said = told(error)
                raise Unavailable(
                    "the server cannot be reached", url=self._http.url, error=str(said or error)
                )
            self._stop.wait(span_s)
        return None if self._over else self._socket

    @property
    def _last(self) -> int | None:
        """The last change that arrived."""
        return self._ready[-1].seq if self._ready else self._seq

    @property
    def _over(self) -> bool:
        return self._closed or self._shut or self._error is not None

    def _open(self, limit: float | None) -> None:
        """Connect, and ask for what comes after the last change that arrived."""
        http = self._http
        within = time.monotonic() + _OPEN_S
        within = within if limit is None else min(within, limit)
        connected = http.connect(within)
        try:
            uri = "ws" + http.url.removeprefix("http") + "/v1/live?lines=1"
            socket = WebSocket(connected, uri, http.headers, within)
        except BaseException:
            connected.close()
            raise
        self._socket = socket
        socket.take()
        self._heard = self._asked = time.monotonic()
        if self._over:  # closed meanwhile, by somebody who did not see this socket
            self._drop()
            return
        request: dict[str, Any] = {
            "do": "changes", "tag": _TAG, "collection": self._name, "identity": self._identity,
        }  # fmt: skip
        if self._last is not None:
            request["after"] = self._last
        if self._before:
            request["before"] = True
        socket.send(encode(request))
        self._answered = False
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
            for line in data.split(b"\n"):
                if line:
                    self._take_in(line)
        return bool(found)

    def _take_in(self, line: bytes) -> None:
        try:
            message = _decode(line)
        except msgspec.MsgspecError as error:
            raise Again(f"not a message of a Tideline server: {error}") from None
        if message.tag is not None and message.tag > _TAG and message.error is None:
            self._synced = max(self._synced, message.tag)
        elif message.error is not None:
            self._failed(message.error)
        elif message.tag != _TAG:
            return  # a heartbeat
        elif message.following is not None:
            self._answered = self._begun = True
            self._identity = message.following.identity
            if self._seq is None:
                self._seq = message.following.seq
        elif message.ended is not None:
            if message.ended == "closed":
                raise Again("the server closed the collection")  # it may open it again
            self._error = Closed(_DROPPED, collection=self._name)
        elif message.changes:
            last = self._last or 0
            self._ready.extend([change.change() for change in message.changes if change.seq > last])

    def _failed(self, told: _Error) -> None:
        """The server refused to tell, or to tell more."""
        error = error_of(told.kind, told.message, retry_after_s=told.retry_after_s)
        if told.retry_after_s is not None or isinstance(error, Closed):
            raise _Later(told)
        if self._begun and isinstance(error, (NotFound, Conflict)):
            error = Closed(_DROPPED, collection=self._name)  # while there was no connection
        error.values.update(told.values)
        self._error = error

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


class _Later(Again):
    """The server has no time now."""

    def __init__(self, told: _Error) -> None:
        super().__init__(told.message)
        self.span_s = told.retry_after_s
