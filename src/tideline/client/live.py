"""The live connection: one WebSocket that carries every subscription of a client.

    caller --call--> socket --------> server
    handle <--deliver-- reader <----- server

The reader is a thread of its own, and a caller in its place while that one waits for its reply
(websocket.py). Where a function follows a subscription it is always the thread: what a user's
function does must not happen inside another call.

What the server says is read in receiving.py.

When the connection breaks, the reader makes a new one, again and again with growing waits,
and resumes every feed after the last event it received. So a handle gets each event once and
in order, through any number of breaks, while its window lasts and the event is valid:

1. `Feed.after` is the token of the last event handed to the handle; only the reader writes it.
2. A tag means one feed of one connection: a new connection has new tags, so that nothing the
   old one said can be taken for the new.
3. A feed whose handle nobody holds is released, not resumed.

A call that waits for its reply when the connection breaks is made again: none of them does
anything twice (a subscription has an id, made here if the user gave none). So is one that the
server refused because it was asked too much, after the time it asked for; and so is resuming a
feed (resting.py).

Threads: any may call. `_lock` guards the tables and is never held while sending or waiting;
`feeding` is held by the reader while it hands out one frame.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from functools import partial
from typing import Any

from websockets.exceptions import WebSocketException

from tideline.client.feeds import (
    Again,
    Call,
    Elsewhere,
    Feed,
    Lost,
    Make,
    MakeWatch,
    WatchFeed,
    refusal,
    rest_s,
    told,
)
from tideline.client.http import Http
from tideline.client.receiving import Receiver
from tideline.client.resting import Resting
from tideline.client.subscription import RemoteSubscription
from tideline.client.websocket import WebSocket
from tideline.client.wire import Answer, encode
from tideline.errors import Closed, NotFound, TidelineError, Unavailable

__all__ = ["Live"]

_LOOK_S = 0.02  # between looks at what waits for the server's rate
_OPEN_S = 10.0  # a connection must be there within so long
_QUICK_BYTES = 16 << 10  # a longer event is not worth a place among others
_log = logging.getLogger("tideline.client")


class Live(Receiver):
    """The live connection of a client; it is made when it is first needed."""

    def __init__(self, http: Http) -> None:
        self._http = http
        lock = threading.Lock()
        super().__init__(lock, threading.RLock())
        self._changed = threading.Condition(lock)
        self._resting = Resting(self._resume_again)
        self._socket: WebSocket | None = None
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None  # why there is no connection
        self._closed = False
        self._stop = threading.Event()
        self.followed = False
        """Whether functions are called with what arrives: `Subscription.follow`."""

    # ---- calls ------------------------------------------------------------------------------

    def subscribe(self, make: Make, channel: str, fields: dict[str, Any]) -> RemoteSubscription:
        """Store a subscription and follow it; `fields` hold its id."""
        limit = self._limit()
        for tried in itertools.count():
            try:
                handle = self._open(make, "subscribe", channel, fields, limit)
            except Lost:
                continue
            except Unavailable as error:
                self._rest(error, limit)
                continue
            if tried and handle.duplicate:
                # It landed before the connection broke, and what it was answered with was lost.
                kept = {n: v for n, v in fields.items() if n in ("id", "retractions")}
                return self.resume(make, channel, kept)
            return handle
        raise AssertionError

    def resume(self, make: Make, channel: str, fields: dict[str, Any]) -> RemoteSubscription:
        """Follow a stored subscription."""
        limit = self._limit()
        while True:
            try:
                return self._open(make, "resume", channel, fields, limit)
            except Lost:
                pass
            except Unavailable as error:
                self._rest(error, limit)

    def watch(self, make: MakeWatch, asked: Any) -> Any:
        """Have a live query watched; what `make` makes of it when its result is there."""
        limit = self._limit()
        while True:
            call = Call(watch=make)
            try:
                feed = WatchFeed(asked, call)
                return self._opened_feed(feed, call, asked.request, limit)
            except Lost:
                pass
            except Unavailable as error:
                self._rest(error, limit)

    def prolong(self, feed: WatchFeed, ttl_s: float | None) -> None:
        """Move the end of a live query."""
        limit = self._limit()
        while not feed.state.ended:
            socket = self._connected(limit)
            with self._lock:
                ready = self._feeds.get(feed.tag) is feed and not feed.resuming
                if ready and feed.call is None:
                    call = feed.call = Call()
                else:
                    ready = False
            if not ready:  # it is being resumed, or another call waits for its reply
                self._wait_a_little(limit)
                continue
            try:
                message = {"do": "prolong", "tag": feed.tag, "ttl_s": ttl_s}
                self._exchange(socket, call, message, limit)
                feed.lasts(ttl_s)
                return
            except Lost:
                pass
            except Unavailable as error:
                self._rest(error, limit)
            finally:
                with self._lock:
                    if feed.call is call:
                        feed.call = None

    def cancel(self, handle: Any) -> None:
        """End a subscription; what was sent before the end has arrived when this returns."""
        limit = self._limit()
        while not handle.inbox.ended:
            socket = self._connected(limit)
            feed: Feed = handle.feed
            if feed.rested and feed.resuming:  # the server does not know its tag yet
                self._wait_a_little(limit)
                continue
            with self._lock:
                if self._feeds.get(feed.tag) is not feed:
                    continue  # it has just ended
                call = feed.call = feed.call or Call()
            with contextlib.suppress(Lost):
                try:
                    self._exchange(socket, call, {"do": "cancel", "tag": feed.tag}, limit)
                except NotFound:
                    handle.inbox.end("cancelled")
                except Unavailable as error:
                    self._rest(error, limit)

    def sync(self) -> int:
        """Wait until all that was sent so far has been handed out; the server's time."""
        limit = self._limit()
        while True:
            socket = self._connected(limit)
            if self._resting:  # what these missed has not been asked for yet
                self._wait_a_little(limit)
                continue
            tag, call = next(self._tags), Call()
            with self._lock:
                self._calls[tag] = call
            try:
                now = int(self._exchange(socket, call, {"do": "sync", "tag": tag}, limit))
                if not self._resting:
                    return now
            except Lost:
                pass
            except Unavailable as error:
                self._rest(error, limit)
            finally:
                with self._lock:
                    self._calls.pop(tag, None)

    def publish(self, channel: str, fields: dict[str, Any]) -> Answer | None:
        """Publish an event that has an id, if it can be done at once; None when it cannot.

        It cannot when there is no connection yet, when another thread reads it, and when the
        server has no time: then a request of its own does it, with patience.
        """
        socket = self._socket
        if socket is None or len(fields["body"]) > _QUICK_BYTES:
            return None
        tag, call = next(self._tags), Call()
        message = {"do": "publish", "tag": tag, "channel": channel, **fields}
        text = encode(message)
        self._calls[tag] = call
        try:
            found: Answer | None = self._answered(socket, call, text, self._limit(), at_once=True)
            return found
        except Lost:
            return None
        except Unavailable:
            if call.error is None:
                raise  # nothing was said in the time there was: asking again would take it twice
            return None
        finally:
            self._calls.pop(tag, None)

    def close(self) -> None:
        """End every handle and the connection; closing twice is allowed."""
        with self._lock:
            self._closed = True
            self._stop.set()
            socket, thread = self._socket, self._thread
            self._changed.notify_all()
        if socket is not None:
            socket.end(Again("closed"), goodbye=True)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # ---- inside a call ----------------------------------------------------------------------

    def _open(
        self, make: Make, do: str, channel: str, fields: dict[str, Any], limit: float
    ) -> RemoteSubscription:
        call = Call(make)
        feed = Feed(channel, fields["id"], fields.get("after"), call)
        feed.retractions = fields.get("retractions", False)
        message = {"do": do, "channel": channel, **fields}
        handle: RemoteSubscription = self._opened_feed(feed, call, message, limit)
        return handle

    def _opened_feed(self, feed: Feed, call: Call, message: dict[str, Any], limit: float) -> Any:
        """Ask for a feed; its handle."""
        socket = self._connected(limit)
        with self._lock:
            feed.tag = next(self._tags)
            self._feeds[feed.tag] = feed
        try:
            return self._exchange(socket, call, {"tag": feed.tag, **message}, limit)
        except BaseException:
            if self._forget(feed):  # nobody wants it any more, and the server may have it
                with contextlib.suppress(OSError):
                    socket.send(encode({"do": "release", "tag": feed.tag}))
            raise

    def _exchange(
        self, socket: WebSocket, call: Call, message: dict[str, Any], limit: float
    ) -> Any:
        """Send a message and wait for what it is replied with."""
        text = encode(message)
        return self._answered(socket, call, text, limit)

    def _answered(
        self, socket: WebSocket, call: Call, text: bytes, limit: float, *, at_once: bool = False
    ) -> Any:
        """Send a request and wait for its reply; `at_once`: only if nobody else reads (or None)."""
        reads = False
        try:
            reads = not self.followed and socket.take()
            if at_once and not reads:
                return None
            try:
                socket.send(*self._releases(), text)
            except OSError:
                raise Lost from None
            if reads:
                self._read_until(socket, call, limit)
        finally:
            if reads:
                socket.give_back()
        if not call.done.wait(max(limit - time.monotonic(), 0.001)):
            raise Unavailable("the server does not answer", url=self._http.url)
        if call.error is not None:
            raise call.error
        return call.result

    def _read_until(self, socket: WebSocket, call: Call, limit: float) -> None:
        """Hand out what arrives, until the reply of a call was among it."""
        try:
            while not call.done.is_set():
                left_s = limit - time.monotonic()
                if left_s <= 0:
                    return
                for data in socket.read(left_s):
                    self._receive(data)
        except Exception as error:
            socket.end(error)  # the thread says what that means
        except BaseException:  # whoever was interrupted may have read what it did not hand out
            socket.end(Again("interrupted"))
            raise

    def _rest(self, error: Unavailable, limit: float) -> None:
        """Wait as long as the server asked for; raise the error when it did not, or it is too long.

        What was refused so was not done.
        """
        span_s = rest_s(error)
        if span_s is None or time.monotonic() + span_s >= limit:
            raise error
        self._stop.wait(span_s)

    def _wait_a_little(self, limit: float) -> None:
        """Wait for feeds that are to be resumed."""
        if time.monotonic() >= limit:
            raise Unavailable(
                "the server is asked too much: subscriptions are still being resumed",
                url=self._http.url,
            )
        self._stop.wait(_LOOK_S)

    def _limit(self) -> float:
        return time.monotonic() + self._http.timeout_s

    def _connected(self, limit: float) -> WebSocket:
        """The connection, once there is one."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._error = None
                self._thread = threading.Thread(target=self._run, name="tideline-live", daemon=True)
                self._thread.start()
            while True:
                if self._closed:
                    raise Closed("the connection to the server was closed", url=self._http.url)
                if self._socket is not None:
                    return self._socket
                if self._thread is None:  # it was refused
                    assert self._error is not None
                    raise self._error
                if not self._changed.wait(limit - time.monotonic()):
                    said = None if self._error is None else told(self._error)
                    raise Unavailable(
                        "the server cannot be reached" if said is None
                        else "the server takes no live connection now",
                        url=self._http.url, error=str(said or self._error),
                    )  # fmt: skip

    # ---- the reader -------------------------------------------------------------------------

    def _run(self) -> None:
        """Keep a connection, until closed or refused."""
        spans = self._http.places.waits()
        while not self._stop.is_set():
            error: Exception
            try:
                self._heard = False
                socket = self._open_socket()
                try:
                    self._begin(socket)
                    socket.run(partial(self._hear, socket))
                finally:
                    socket.close()
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
            if not self._stop.is_set():
                _log.info("connection lost, trying again: %s (%s)", self._http.url, error)
                self._stop.wait(max(next(spans), rest_s(error) or 0.0))
        self._end_all("closed", None)

    def _open_socket(self) -> WebSocket:
        limit = time.monotonic() + _OPEN_S
        places = self._http.places
        place = places.here()
        try:
            connected = self._http.connect(limit, place)
            try:
                return WebSocket(connected, place.live, self._http.headers, limit)
            except BaseException:
                connected.close()
                raise
        except (WebSocketException, OSError):
            places.leave(place)
            raise

    def _elsewhere(self, url: str | None) -> None:
        places = self._http.places
        places.elsewhere(places.here(), url)

    def _begin(self, socket: WebSocket) -> None:
        """A new connection: resume every feed that somebody holds, then let callers in."""
        with self._lock:
            self._note_reached()
            held = [feed for feed in self._feeds.values() if feed.handle() is not None]
            self._feeds = {}
            for feed in held:
                feed.tag = next(self._tags)
                feed.resuming, feed.rested = True, False
                self._feeds[feed.tag] = feed
        for feed in held:
            socket.send(encode(feed.resume_message()))
        with self._lock:
            if self._closed:
                raise Again
            self._socket = socket
            self._changed.notify_all()

    def _resume_again(self, rested: list[tuple[int, Feed]]) -> None:
        """Ask once more for feeds that were over the server's rate."""
        with self._lock:
            socket = self._socket
            # A tag means one connection: what a new one has resumed itself is not among them.
            feeds = [feed for tag, feed in rested if self._feeds.get(tag) is feed]
        if socket is not None:
            with contextlib.suppress(OSError):  # it broke: the next connection resumes all
                for feed in feeds:
                    socket.send(encode(feed.resume_message()))

    def _rest_feed(self, feed: Feed, span_s: float) -> None:
        self._resting.add(feed, span_s)

    def _lost(self, error: Exception) -> None:
        """No connection any more: whoever waits for a reply must ask again."""
        with self._lock:
            self._socket = None
            self._error = error
            calls = list(self._calls.values())
            for feed in list(self._feeds.values()):
                if feed.call is not None:
                    calls.append(feed.call)
                    feed.call = None
            self._calls.clear()
            self._changed.notify_all()
        for call in calls:
            call.finish(error=Lost())

    def _end_all(self, reason: str, error: TidelineError | None) -> None:
        with self._lock:
            self._thread = None
            self._error = error
            feeds = list(self._feeds.values())
            self._feeds.clear()
            self._named.clear()
            self._changed.notify_all()
        for feed in feeds:
            handle = feed.handle()
            if handle is not None:
                handle.fail(reason, error)

    def _hear(self, socket: WebSocket, data: bytes) -> None:
        """What the thread does with a frame."""
        self._receive(data)
        if self._gone:
            socket.send(*self._releases())

    def _releases(self) -> list[bytes]:
        """Requests to hear no more of subscriptions whose handles were let go."""
        texts: list[bytes] = []
        while self._gone:
            with contextlib.suppress(IndexError):  # another thread has taken it
                feed = self._gone.popleft()
                if self._forget(feed):
                    texts.append(encode({"do": "release", "tag": feed.tag}))
        return texts
