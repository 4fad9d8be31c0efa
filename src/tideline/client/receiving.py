"""What the server says on the live connection: to which feed it belongs, and what it means there.

    frame -> messages, one a line -> a feed, or a call, by its tag

Each subscription is a `Feed` with a number, its tag; the server puts the tag on all it says
about the subscription, in order: subscribed, past events, past_done, live events, ended.

A thread reads it (live.py), or an event loop (aclient/live.py): each says what its locks are, and
what becomes of feeds that must rest.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from tideline.client.feeds import Again, Call, Elsewhere, Feed, WatchFeed, rest_s
from tideline.client.wire import Message, WireError, error_of, event_of, time_us
from tideline.errors import TidelineError, Unavailable

__all__ = ["Receiver"]

_decode = msgspec.json.Decoder(Message).decode


class Receiver:
    """The feeds of one client, and the calls that wait for a reply."""

    def __init__(
        self, lock: AbstractContextManager[Any], feeding: AbstractContextManager[Any]
    ) -> None:
        self._lock = lock
        self.feeding = feeding
        """Held while one frame is handed out."""
        self._tags = itertools.count(1)
        self._feeds: dict[int, Feed] = {}
        self._named: dict[tuple[str, str], Feed] = {}
        self._calls: dict[int, Call] = {}
        self._gone: deque[Feed] = deque()  # their handles were let go
        self._heard = False  # something came on the last connection
        self._reached: dict[str, tuple[int, int]] = {}
        """By collection: the number of the message that said it, and up to which version nothing is
        left to tell of the live queries that stood then."""
        self._messages = itertools.count(1)

    def handle(self, channel: str, id: str) -> Any:
        """The handle of a subscription, if somebody here holds it."""
        with self._lock:
            feed = self._named.get((channel, id))
        return None if feed is None else feed.handle()

    def _rest_feed(self, feed: Feed, span_s: float) -> None:
        """Resume a feed after a while: now it is over the server's rate."""
        raise NotImplementedError

    def _elsewhere(self, url: str | None) -> None:
        """Another node of the cluster has to be asked."""
        raise NotImplementedError

    def _receive(self, data: bytes) -> None:
        """A frame: messages, one a line."""
        self._heard = True
        with self.feeding:
            for line in data.split(b"\n"):
                if line:
                    try:
                        message = _decode(line)
                    except msgspec.MsgspecError as error:
                        raise Again(f"not a message of a Tideline server: {error}") from None
                    if message.reached is not None:
                        number = next(self._messages)
                        for name, version in message.reached.items():
                            self._reached[name] = number, version
                    if message.tag is not None:
                        self._handle(message, message.tag)

    def _handle(self, message: Message, tag: int) -> None:
        if message.error is not None and message.error.kind == "NotLeading":
            self._elsewhere(message.error.values.get("leader"))
            raise Elsewhere(message.error.message)
        feed = self._feeds.get(tag)
        if feed is None:
            call = self._calls.get(tag)
            if call is not None and message.error is not None:
                call.finish(error=_error(message.error))
            elif call is not None:
                call.finish(message.told or time_us(message.synced))
        elif isinstance(feed, WatchFeed) and not (message.ended or message.error):
            self._hear_watch(feed, message)
        elif message.event is not None:
            event = event_of(message.event)
            if feed.call is not None and feed.call.make is not None:
                feed.call.past.append(event)
            else:
                handle = feed.handle()
                if handle is None:
                    return  # let go: it will be released
                handle.inbox.deliver([event])
            feed.after = event.token
        elif message.past_done:
            self._opened(feed)
        elif message.subscribed is not None:
            if feed.call is not None:
                feed.call.subscribed = message.subscribed
        elif message.ended is not None:
            self._ended(feed, message.ended)
        elif message.error is not None:
            self._failed(feed, _error(message.error))

    def _hear_watch(self, feed: WatchFeed, message: Message) -> None:
        """What the server says of a live query."""
        state, call = feed.state, feed.call
        if message.changes is not None:
            state.take_changes(message.changes, message.version)
        elif message.result is not None:
            if state.take_result(message.result, message.version, message.more, message.reset):
                self._watching(feed)
        elif message.watching is not None:
            feed.begin(message.watching, next(self._messages))
            if not message.watching.result:
                state.begin(message.watching.version)
                self._watching(feed)
        elif message.prolonged is not None and call is not None:
            feed.until, feed.call = message.prolonged.until, None
            call.finish(feed.until)

    def _watching(self, feed: WatchFeed) -> None:
        """The result of a live query is there: its caller gets the handle."""
        call = feed.call
        feed.resuming = False
        if call is not None and call.watch is not None:
            handle = call.watch(feed)
            feed.handle = weakref.ref(handle, lambda _: self._gone.append(feed))
            feed.call = None
            call.finish(handle)

    def reach(self, feed: WatchFeed) -> None:
        """A live query has everything up to the version that the server said of its collection."""
        number, version = self._reached.get(feed.channel, (0, 0))
        # What was said before it stood says nothing of it: what it missed may still be on its way.
        stood = not feed.resuming and feed.call is None and number > feed.begun
        if stood and self._feeds.get(feed.tag) is feed:
            feed.state.take_version(version)

    def _note_reached(self) -> None:
        """Before a new connection: what the last one had nothing to tell of."""
        for feed in self._feeds.values():
            if isinstance(feed, WatchFeed):
                self.reach(feed)
        self._reached = {}

    def _opened(self, feed: Feed) -> None:
        """All past events of a feed are there: its caller gets the handle."""
        call = feed.call
        feed.resuming = False
        if call is None or call.make is None:
            return  # resumed after a break
        assert call.subscribed is not None
        handle = call.make(call.subscribed, call.past)
        handle.feed = feed
        feed.handle = weakref.ref(handle, lambda _: self._gone.append(feed))
        feed.call = None
        with self._lock:
            self._named[feed.channel, feed.id] = feed
        call.finish(handle)

    def _ended(self, feed: Feed, reason: str) -> None:
        if reason == "closed":
            raise Again("the server closed the channel")  # it may open it again
        self._forget(feed)
        handle, call = feed.handle(), feed.call
        if handle is not None:
            handle.inbox.end(reason)
        if call is not None:
            call.finish()

    def _failed(self, feed: Feed, error: TidelineError) -> None:
        """The server refused something about a feed."""
        call, handle = feed.call, feed.handle()
        if feed.resuming and isinstance(error, Unavailable):
            span_s = rest_s(error)
            if span_s is None:
                raise Again(str(error))  # it cannot be resumed now
            self._rest_feed(feed, span_s)
            return
        if feed.resuming or (call is not None and call.opens):
            self._forget(feed)
        if feed.resuming and handle is not None:
            handle.fail(*feed.lost_error(error))
        if call is not None:
            feed.call = None
            call.finish(error=error)

    def _forget(self, feed: Feed) -> bool:
        """Take a feed off the tables; whether it was there."""
        with self._lock:
            if self._named.get((feed.channel, feed.id)) is feed:
                del self._named[feed.channel, feed.id]
            return self._feeds.pop(feed.tag, None) is not None


def _error(error: WireError) -> TidelineError:
    return error_of(error.kind, error.message, retry_after_s=error.retry_after_s)
