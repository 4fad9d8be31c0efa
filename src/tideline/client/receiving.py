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

from tideline.client.feeds import Again, Call, Feed, rest_s
from tideline.client.wire import Message, WireError, error_of, event_of, time_us
from tideline.errors import NotFound, TidelineError, Unavailable

__all__ = ["Receiver", "resume_message"]

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

    def handle(self, channel: str, id: str) -> Any:
        """The handle of a subscription, if somebody here holds it."""
        with self._lock:
            feed = self._named.get((channel, id))
        return None if feed is None else feed.handle()

    def _rest_feed(self, feed: Feed, span_s: float) -> None:
        """Resume a feed after a while: now it is over the server's rate."""
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
                    if message.tag is not None:
                        self._handle(message, message.tag)

    def _handle(self, message: Message, tag: int) -> None:
        feed = self._feeds.get(tag)
        if feed is None:
            call = self._calls.get(tag)
            if call is not None and message.error is not None:
                call.finish(error=_error(message.error))
            elif call is not None:
                call.finish(message.told or time_us(message.synced))
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
        if feed.resuming or (call is not None and call.make is not None):
            self._forget(feed)
        if feed.resuming and handle is not None:
            # Not found: it expired or was cancelled while there was no connection.
            gone = isinstance(error, NotFound)
            handle.fail("expired" if gone else "refused", None if gone else error)
        if call is not None:
            feed.call = None
            call.finish(error=error)

    def _forget(self, feed: Feed) -> bool:
        """Take a feed off the tables; whether it was there."""
        with self._lock:
            if self._named.get((feed.channel, feed.id)) is feed:
                del self._named[feed.channel, feed.id]
            return self._feeds.pop(feed.tag, None) is not None


def resume_message(feed: Feed) -> dict[str, Any]:
    """The request to follow a feed again, after what it has got."""
    message: dict[str, Any] = {
        "do": "resume", "tag": feed.tag, "channel": feed.channel, "id": feed.id,
    }  # fmt: skip
    if feed.retractions:
        message["retractions"] = True
    if feed.after is not None:
        message["after"] = feed.after
    return message


def _error(error: WireError) -> TidelineError:
    return error_of(error.kind, error.message, retry_after_s=error.retry_after_s)
