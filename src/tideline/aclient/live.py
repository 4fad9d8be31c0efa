"""The live connection of an async client: one WebSocket that carries every subscription.

    task    connects, resumes every feed, waits for the end, connects again
    loop    hands out what arrives, as it arrives (client/receiving.py)

What client/live.py promises holds here: when the connection breaks, a new one is made, again and
again with growing waits, and every feed is resumed after the last event it received. So a handle
gets each event once and in order. A call that waits for its reply when the connection breaks is
made again; so is one that the server refused because it was asked too much, after the time it
asked for. A call whose task is cancelled is forgotten: a reply that still comes is nobody's.

For one event loop; not safe from other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from functools import partial
from typing import Any

from websockets.exceptions import WebSocketException

from tideline.aclient.http import AsyncHttp
from tideline.aclient.subscription import AsyncRemoteSubscription
from tideline.aclient.websocket import WebSocket
from tideline.client.feeds import (
    Again,
    Call,
    Elsewhere,
    Feed,
    Lost,
    MakeWatch,
    WatchFeed,
    refusal,
    rest_s,
    told,
)
from tideline.client.receiving import Receiver
from tideline.client.wire import Answer, encode
from tideline.errors import Closed, NotFound, TidelineError, Unavailable

__all__ = ["AsyncLive"]

_LOOK_S = 0.02  # between looks at what waits for the server's rate
_OPEN_S = 10.0  # a connection must be there within so long
_QUICK_BYTES = 16 << 10  # a longer event is not worth a place among others
_OFTEN = 100  # events that are published before there is a connection for that alone
_log = logging.getLogger("tideline.client")


class _Call(Call):
    """A task waits for a reply."""

    __slots__ = ("reply",)

    def __init__(self, make: Any = None, watch: Any = None) -> None:
        super().__init__(make, watch)
        self.reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def finish(self, result: Any = None, error: Exception | None = None) -> None:
        if self.reply.done():
            return
        if error is None:
            self.reply.set_result(result)
        else:
            self.reply.set_exception(error)


class AsyncLive(Receiver):
    """The live connection of a client; it is made when it is first needed."""

    def __init__(self, http: AsyncHttp) -> None:
        super().__init__(contextlib.nullcontext(), contextlib.nullcontext())
        self._http = http
        self._resting: dict[int, Feed] = {}
        self._socket: WebSocket | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # set when there is a connection, or there will be none
        self._error: Exception | None = None  # why there is no connection
        self._closed = False
        self._published = 0

    # ---- calls ------------------------------------------------------------------------------

    async def subscribe(self, channel: Any, fields: dict[str, Any]) -> AsyncRemoteSubscription:
        """Store a subscription and follow it; `fields` hold its id."""
        limit = self._limit()
        for tried in itertools.count():
            try:
                handle = await self._open("subscribe", channel, fields, limit)
            except Lost:
                continue
            except Unavailable as error:
                await self._rest(error, limit)
                continue
            if tried and handle.duplicate:
                # It landed before the connection broke, and what it was answered with was lost.
                kept = {n: v for n, v in fields.items() if n in ("id", "retractions")}
                return await self.resume(channel, kept)
            return handle
        raise AssertionError

    async def resume(self, channel: Any, fields: dict[str, Any]) -> AsyncRemoteSubscription:
        """Follow a stored subscription."""
        limit = self._limit()
        while True:
            try:
                return await self._open("resume", channel, fields, limit)
            except Lost:
                pass
            except Unavailable as error:
                await self._rest(error, limit)

    async def watch(self, make: MakeWatch, asked: Any) -> Any:
        """Have a live query watched; what `make` makes of it when its result is there."""
        limit = self._limit()
        while True:
            call = _Call(watch=make)
            try:
                feed = WatchFeed(asked, call)
                return await self._opened_feed(feed, call, asked.request, limit)
            except Lost:
                pass
            except Unavailable as error:
                await self._rest(error, limit)

    async def prolong(self, feed: WatchFeed, ttl_s: float | None) -> None:
        """Move the end of a live query."""
        limit = self._limit()
        while not feed.state.ended:
            socket = await self._connected(limit)
            if self._feeds.get(feed.tag) is not feed or feed.resuming or feed.call is not None:
                await self._wait_a_little(limit)
                continue
            call = feed.call = _Call()
            try:
                message = {"do": "prolong", "tag": feed.tag, "ttl_s": ttl_s}
                await self._exchange(socket, call, message, limit)
                feed.lasts(ttl_s)
                return
            except Lost:
                pass
            except Unavailable as error:
                await self._rest(error, limit)
            finally:
                if feed.call is call:
                    feed.call = None

    async def cancel(self, handle: Any) -> None:
        """End a subscription; what was sent before the end has arrived when this returns."""
        limit = self._limit()
        while not handle.inbox.ended:
            socket = await self._connected(limit)
            feed: Feed = handle.feed
            if feed.rested and feed.resuming:  # the server does not know its tag yet
                await self._wait_a_little(limit)
                continue
            if self._feeds.get(feed.tag) is not feed:
                continue  # it has just ended
            call = _Call()
            if feed.call is None:
                feed.call = call
            else:  # another task cancels it
                await self._wait_a_little(limit)
                continue
            try:
                await self._exchange(socket, call, {"do": "cancel", "tag": feed.tag}, limit)
            except Lost:
                pass
            except NotFound:
                handle.inbox.end("cancelled")
            except Unavailable as error:
                await self._rest(error, limit)
            finally:
                if feed.call is call:
                    feed.call = None

    async def sync(self) -> int:
        """Wait until all that was sent so far has been handed out; the server's time."""
        limit = self._limit()
        while True:
            socket = await self._connected(limit)
            if self._resting:  # what these missed has not been asked for yet
                await self._wait_a_little(limit)
                continue
            try:
                now = int(await self._tagged(socket, {"do": "sync"}, limit))
                if not self._resting:
                    return now
            except Lost:
                pass
            except Unavailable as error:
                await self._rest(error, limit)

    async def publish(self, channel: str, fields: dict[str, Any]) -> Answer | None:
        """Publish an event that has an id, if it can be done at once; None when it cannot.

        It cannot when there is no connection yet. A client that publishes often gets one: a call
        costs less than half of a request there.
        """
        self._published += 1
        if self._published == _OFTEN and self._task is None and not self._closed:
            self._start()
        socket = self._socket
        if socket is None or len(fields["body"]) > _QUICK_BYTES:
            return None
        message = {"do": "publish", "channel": channel, **fields}
        try:
            found: Answer = await self._tagged(socket, message, self._limit())
        except Lost:
            return None
        except Unavailable as error:
            if rest_s(error) is None:
                raise
            return None
        return found

    def check_open(self) -> None:
        """Refuse to go on after `close`."""
        self._http.check_open()

    async def close(self) -> None:
        """End every handle and the connection; closing twice is allowed."""
        self._closed = True
        if self._socket is not None:
            self._socket.end(Again("closed"), goodbye=True)
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if self._task is task:  # it had not begun, and so could not say that it ends
                self._end_closed()

    # ---- inside a call ----------------------------------------------------------------------

    async def _open(
        self, do: str, channel: Any, fields: dict[str, Any], limit: float
    ) -> AsyncRemoteSubscription:
        call = _Call(partial(AsyncRemoteSubscription, channel, self))
        feed = Feed(channel.name, fields["id"], fields.get("after"), call)
        feed.retractions = fields.get("retractions", False)
        message = {"do": do, "channel": channel.name, **fields}
        handle: AsyncRemoteSubscription = await self._opened_feed(feed, call, message, limit)
        return handle

    async def _opened_feed(
        self, feed: Feed, call: _Call, message: dict[str, Any], limit: float
    ) -> Any:
        """Ask for a feed; its handle."""
        socket = await self._connected(limit)
        feed.tag = next(self._tags)
        self._feeds[feed.tag] = feed
        try:
            return await self._exchange(socket, call, {"tag": feed.tag, **message}, limit)
        except BaseException:
            if self._forget(feed):  # nobody wants it any more, and the server may have it
                with contextlib.suppress(OSError):
                    socket.send(encode({"do": "release", "tag": feed.tag}))
            raise

    async def _tagged(self, socket: WebSocket, message: dict[str, Any], limit: float) -> Any:
        """A call that is about no feed."""
        tag, call = next(self._tags), _Call()
        self._calls[tag] = call
        try:
            return await self._exchange(socket, call, {"tag": tag, **message}, limit)
        finally:
            self._calls.pop(tag, None)

    async def _exchange(
        self, socket: WebSocket, call: _Call, message: dict[str, Any], limit: float
    ) -> Any:
        """Send a message and wait for what it is replied with."""
        text = encode(message)
        try:
            socket.send(*self._releases(), text)
        except OSError:
            await asyncio.sleep(0)  # whoever keeps the connection must notice
            raise Lost from None
        try:
            async with asyncio.timeout(max(limit - time.monotonic(), 0.001)):
                return await call.reply
        except TimeoutError:
            raise Unavailable("the server does not answer", url=self._http.url) from None

    async def _rest(self, error: Unavailable, limit: float) -> None:
        """Wait as long as the server asked for; raise the error when it did not, or it is too long.

        What was refused so was not done.
        """
        span_s = rest_s(error)
        if span_s is None or time.monotonic() + span_s >= limit:
            raise error
        await asyncio.sleep(span_s)

    async def _wait_a_little(self, limit: float) -> None:
        """Wait for feeds that are to be resumed."""
        if time.monotonic() >= limit:
            raise Unavailable(
                "the server is asked too much: subscriptions are still being resumed",
                url=self._http.url,
            )
        await asyncio.sleep(_LOOK_S)

    def _limit(self) -> float:
        return time.monotonic() + self._http.timeout_s

    async def _connected(self, limit: float) -> WebSocket:
        """The connection, once there is one."""
        while True:
            if self._closed:
                raise Closed("the connection to the server was closed", url=self._http.url)
            if self._socket is not None:
                return self._socket
            if self._task is None:
                self._start()
            try:
                async with asyncio.timeout(max(limit - time.monotonic(), 0)):
                    await self._changed.wait()
            except TimeoutError:
                said = None if self._error is None else told(self._error)
                raise Unavailable(
                    "the server cannot be reached" if said is None
                    else "the server takes no live connection now",
                    url=self._http.url, error=str(said or self._error),
                ) from None  # fmt: skip
            self._raise_refusal()

    def _start(self) -> None:
        """Begin to keep a connection."""
        self._error = None
        self._changed.clear()
        self._task = asyncio.create_task(self._run(), name="tideline-live")

    def _raise_refusal(self) -> None:
        if self._task is None and self._error is not None:
            raise self._error

    # ---- the task -----------------------------------------------------------------------------

    async def _run(self) -> None:
        """Keep a connection, until closed or refused."""
        spans = self._http.places.waits()
        try:
            while not self._closed:
                error: Exception
                try:
                    self._heard = False
                    socket = await self._open_socket()
                    try:
                        self._begin(socket)
                        await socket.ended()
                    finally:
                        socket.end(Again("closed"))
                except (WebSocketException, OSError, Again) as found:
                    error = found
                except Exception as found:  # a mistake in here must not leave anybody waiting
                    _log.exception("the live connection failed: %s", self._http.url)
                    error = found
                if self._heard and not isinstance(error, Elsewhere):  # it worked for a time
                    spans = self._http.places.waits()
                refused = refusal(error)
                self._lost(refused or error)
                if refused is not None:
                    self._end_all("refused", refused)
                    return
                _log.info("connection lost, trying again: %s (%s)", self._http.url, error)
                await asyncio.sleep(max(next(spans), rest_s(error) or 0.0))
        finally:
            if self._task is not None:  # not refused: closed
                self._end_closed()

    async def _open_socket(self) -> WebSocket:
        limit = time.monotonic() + _OPEN_S
        http = self._http
        place = http.places.here()
        try:
            return await WebSocket.open(http.sockets, place.live, http.headers, self._hear, limit)
        except (WebSocketException, OSError):
            http.places.leave(place)
            raise

    def _elsewhere(self, url: str | None) -> None:
        places = self._http.places
        places.elsewhere(places.here(), url)

    def _begin(self, socket: WebSocket) -> None:
        """A new connection: resume every feed that somebody holds, then let callers in."""
        self._note_reached()
        held = [feed for feed in self._feeds.values() if feed.handle() is not None]
        self._feeds = {}
        self._resting.clear()
        for feed in held:
            feed.tag = next(self._tags)
            feed.resuming, feed.rested = True, False
            self._feeds[feed.tag] = feed
        if held:
            socket.send(*(encode(feed.resume_message()) for feed in held))
        self._socket = socket
        self._changed.set()

    def _rest_feed(self, feed: Feed, span_s: float) -> None:
        feed.rested = True
        if not self._resting:
            asyncio.get_running_loop().call_later(span_s, self._resume_again)
        self._resting[feed.tag] = feed

    def _resume_again(self) -> None:
        """Ask once more for feeds that were over the server's rate."""
        # A tag means one connection: what a new one has resumed itself is not among them.
        feeds = [feed for tag, feed in self._resting.items() if self._feeds.get(tag) is feed]
        self._resting.clear()
        if self._socket is not None and feeds:
            with contextlib.suppress(OSError):  # it broke: the next connection resumes all
                self._socket.send(*(encode(feed.resume_message()) for feed in feeds))

    def _lost(self, error: Exception) -> None:
        """No connection any more: whoever waits for a reply must ask again."""
        self._socket = None
        self._error = error
        self._changed.clear()
        calls = list(self._calls.values())
        for feed in list(self._feeds.values()):
            if feed.call is not None:
                calls.append(feed.call)
                feed.call = None
        self._calls.clear()
        for call in calls:
            call.finish(error=Lost())

    def _end_closed(self) -> None:
        self._lost(Again("closed"))
        self._end_all("closed", None)

    def _end_all(self, reason: str, error: TidelineError | None) -> None:
        self._task = None
        self._error = error
        feeds = list(self._feeds.values())
        self._feeds.clear()
        self._named.clear()
        self._changed.set()
        for feed in feeds:
            handle = feed.handle()
            if handle is not None:
                handle.fail(reason, error)

    def _hear(self, data: bytes) -> None:
        self._receive(data)
        if self._gone and self._socket is not None:
            self._socket.send(*self._releases())

    def _releases(self) -> list[bytes]:
        """Requests to hear no more of subscriptions whose handles were let go."""
        texts: list[bytes] = []
        while self._gone:
            feed = self._gone.popleft()
            if self._forget(feed):
                texts.append(encode({"do": "release", "tag": feed.tag}))
        return texts
