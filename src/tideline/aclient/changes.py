"""The changes of a collection on a server, followed in an event loop.

    server --one WebSocket--> AsyncRemoteChanges --> await take(), async for ...

Each handle has a connection of its own, made when somebody first waits for a change or enters it
with `async with`. When it breaks, whoever waits makes another, again and again with growing waits,
and goes on after the last change that arrived: nothing comes twice, and nothing is missed. When
`_MOST` changes wait to be taken, the socket is not read: what follows waits on the server, in the
log of the collection.

What the server says, and where a handle stands in it, is in client/arriving.py. For one event
loop; several tasks may share a handle: each change goes to one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref

from websockets.exceptions import WebSocketException

from tideline.aclient.http import AsyncHttp
from tideline.aclient.websocket import WebSocket
from tideline.client.arriving import Arriving, Later, check_take
from tideline.client.feeds import Again, refusal, rest_s, told
from tideline.client.websocket import BEAT_S
from tideline.client.wire import encode
from tideline.errors import Closed, Unavailable
from tideline.model import Change

__all__ = ["AsyncRemoteChanges"]

_OPEN_S = 10.0  # a connection must be there within so long
_MOST = 10_000  # changes that wait here
_log = logging.getLogger("tideline.client")


class AsyncRemoteChanges(Arriving):
    """What is written to a collection, in order; `AsyncRemoteCollection.changes` makes one."""

    _socket: WebSocket | None = None

    def __init__(
        self, http: AsyncHttp, name: str, identity: str, after: int | None, before: bool
    ) -> None:
        super().__init__(http.places, name, identity, after, before)
        self._http = http
        self._closed = self._shut = False
        self._news = asyncio.Event()  # something arrived, or there is an end
        self._connecting = asyncio.Lock()
        http.followers.add(self)

    async def take(self, limit: int | None = None, *, timeout_s: float = 0) -> list[Change]:
        """What is there now, at most `limit` of it; waits up to `timeout_s` for the first.

        Asks the server: what was written before this call is there. `Unavailable` when it cannot
        be reached in time; nothing is lost by that, ask again.
        """
        wait_s = check_take(limit, timeout_s)
        self._require_open()
        begun = time.monotonic()
        reach = begun + self._http.timeout_s
        asked = next(self._tags)
        sent: WebSocket | None = None
        most = _MOST if limit is None else min(limit, _MOST)
        while self._synced < asked and len(self._ready) < most:
            socket = await self._connect(reach)
            if socket is None:
                break
            if sent is not socket:
                sent = socket
                with contextlib.suppress(OSError):  # the next look meets it
                    socket.send(encode({"do": "sync", "tag": asked}))
            if time.monotonic() >= reach:
                raise Unavailable("the server does not answer", url=self._http.url)
            await self._wait(reach)
        until = begun + wait_s
        while not self._ready and time.monotonic() < until and await self._connect(until):
            await self._wait(until)
        if not self._ready:
            self._raise()
            self._require_open()
        count = len(self._ready) if limit is None else min(limit, len(self._ready))
        return [self._next() for _ in range(count)]

    def close(self) -> None:
        """Stop following, whoever waits. Twice is allowed."""
        self._closed = True
        self.shut()

    def shut(self) -> None:
        """The client was closed: whoever asks for more is told so."""
        self._shut = True
        self._drop()
        self._news.set()

    def __aiter__(self) -> AsyncRemoteChanges:
        return self

    async def __anext__(self) -> Change:
        while not self._ready:
            if self._closed:
                raise StopAsyncIteration
            if await self._connect(None) is None:
                self._raise()
                if not self._closed:
                    self._require_open()
            elif not self._ready:
                await self._wait(time.monotonic() + BEAT_S)
        return self._next()

    async def __aenter__(self) -> AsyncRemoteChanges:
        """Follows from here on; refuses as the server does."""
        await self._connect(time.monotonic() + self._http.timeout_s)
        self._raise()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # also when it was never made, or the loop is over
            self._drop()

    def __repr__(self) -> str:
        return f"AsyncRemoteChanges({self._name!r}, seq={self.seq}, before={self._before})"

    # ---- inside -------------------------------------------------------------------------------

    def _next(self) -> Change:
        found = self._handed_out()
        if self._socket is not None and len(self._ready) == _MOST // 2:
            self._socket.pause(False)
        return found

    async def _wait(self, limit: float) -> None:
        """Wait until something arrives, or ends, or for a while."""
        self._news.clear()
        socket = self._socket
        if socket is None or socket.error is not None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(limit - time.monotonic(), 0.0), BEAT_S / 2)):
                await self._news.wait()
        socket.look()

    async def _connect(self, limit: float | None) -> WebSocket | None:
        """The connection, made if need be before `limit`; None when there will be none."""
        if self._socket is not None and self._socket.error is None and not self._is_over():
            return self._socket
        async with self._connecting:
            spans = self._http.places.waits()
            while not self._is_over():
                error: Exception
                if self._socket is None:
                    try:
                        return await self._open(limit)
                    except (WebSocketException, OSError, Again) as found:
                        error = found
                elif self._socket.error is None:
                    return self._socket
                else:
                    error = self._socket.error
                    _log.info("connection lost, trying again: %s (%s)", self._http.url, error)
                self._drop()
                self._error = self._error or refusal(error)
                if self._is_over():
                    break
                asked_s = error.span_s if isinstance(error, Later) else rest_s(error)
                span_s = max(next(spans), asked_s or 0.0)
                if limit is not None and time.monotonic() + span_s >= limit:
                    said = told(error)
                    raise Unavailable(
                        "the server cannot be reached", url=self._http.url, error=str(said or error)
                    )
                await asyncio.sleep(span_s)
        return None

    async def _open(self, limit: float | None) -> WebSocket:
        """Connect, and ask for what comes after the last change that arrived."""
        http = self._http
        within = time.monotonic() + _OPEN_S
        within = within if limit is None else min(within, limit)
        place = http.places.here()
        here = weakref.ref(self)  # the loop holds the connection, not this

        def receive(data: bytes) -> None:
            handle = here()
            if handle is not None:
                handle._hear(data)

        def lost() -> None:
            handle = here()
            if handle is not None:
                handle._news.set()

        try:
            socket = await WebSocket.open(
                http.sockets, place.live, http.headers, receive, within, lost
            )
        except (WebSocketException, OSError):
            http.places.leave(place)
            raise
        self._socket = socket
        if self._is_over():  # it was closed meanwhile
            raise Again("closed")
        socket.send(encode(self._request()))
        while not self._answered and not self._is_over():
            if socket.error is not None:
                raise socket.error
            if time.monotonic() >= within:
                raise TimeoutError("the server does not answer")
            await self._wait(within)
        return socket

    def _hear(self, data: bytes) -> None:
        self._take_in_all(data)
        self._news.set()
        if self._socket is not None and len(self._ready) >= _MOST:
            self._socket.pause(True)

    def _is_over(self) -> bool:
        return self._closed or self._shut or self._error is not None

    def _drop(self) -> None:
        """Let go of the connection."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.end(Again("closed"), goodbye=True)

    def _raise(self) -> None:
        if self._error is not None and not self._ready:
            self._drop()
            raise self._error

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("the feed was closed")
        if self._shut:
            raise Closed("the connection to the server was closed", url=self._http.url)
