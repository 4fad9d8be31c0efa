"""Event streams (Server-Sent Events): a stored subscription, the changes of a collection, or a live
query.

    id: 000000000000000017          the token: a browser sends it back by itself (Last-Event-ID)
    event: past | live              the same for past_done, ended, slow
    data: {"id": ..., ...}

    id: 17                          the seq of the change
    event: change                   before the first, `following`; `ended`, `slow` as above
    data: {"seq": 17, "key": ..., "after": ...}

    id: 18-4f0c...                  the version, and which collection it is of
    event: result | changes         live_messages.py; `ended` as above
    data: {"changes": [["add", 18, 0, {...}]], "version": 18}

For curl and for browsers, which go on where they were by themselves. A subscription is made by
POST; its stream can be left and taken up again as often as one likes while its window lasts. A
reader that does not keep up is told `slow`, behind what it has not read yet, and is disconnected;
it comes back with its last id and misses nothing. Changes wait for a slow reader: changes.py. Of a
live query it is sent the latest result: live_queries.py.

Everything here is on the event loop, except what streams.py says of delivery.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec

from tideline.errors import InvalidRequest
from tideline.model import Event
from tideline.server.change_messages import stream_wire
from tideline.server.changes import Following, begin_after, follow
from tideline.server.channels import where_of
from tideline.server.hub import Hub, stream_message
from tideline.server.live_queries import Watches
from tideline.server.logs import log
from tideline.server.ops import STREAM, Call, Op
from tideline.server.outbox import Outbox, Pieces, Wire
from tideline.server.refusals import Refused, error_body, refusal
from tideline.server.requests import Watch
from tideline.server.shapes import encode, event_json
from tideline.server.streams import Stream

__all__ = ["OPS"]

_PIECE = 256
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
]


class StreamQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Where to go on."""

    after: Annotated[
        str, msgspec.Meta(description="The token of the last event; Last-Event-ID goes first.")
    ] | (None) = None


class ChangesQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where to go on, and whether with old versions."""

    after: Annotated[
        int,
        msgspec.Meta(
            ge=0, lt=1 << 62, description="The seq of the last change; Last-Event-ID goes first."
        ),
    ] | (None) = None
    before: bool = False


class WatchQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A live query."""

    where: Annotated[str, msgspec.Meta(description="A condition, as JSON.")] | None = None
    sort: (
        Annotated[str, msgspec.Meta(description="Fields with 1 or -1: total:-1,name:1.")] | None
    ) = None
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    ttl_s: Annotated[float, msgspec.Meta(gt=0, lt=1e11)] | None = None
    after: (
        Annotated[
            str, msgspec.Meta(description="The id of the last event; Last-Event-ID goes first.")
        ]
        | None
    ) = None

    def request(self, collection: str, last: str | None) -> Watch:
        """It as on a WebSocket, after the event that came last."""
        version, identity = _begin_watch(self.after if last is None else last)
        return Watch(
            tag=0, collection=collection, where=where_of(self.where), sort=_order(self.sort),
            limit=self.limit, offset=self.offset, ttl_s=self.ttl_s, after=version,
            identity=identity,
        )  # fmt: skip


def _begin_watch(text: str | None) -> tuple[int | None, str | None]:
    """The version and the collection of an event's id.

    >>> _begin_watch("17-4f0c")
    (17, '4f0c')
    """
    if text is None:
        return None, None
    version, _, identity = text.partition("-")
    if not (version.isascii() and version.isdigit() and len(version) < 19 and identity):
        raise InvalidRequest("Last-Event-ID must be the id of an event", last_event_id=text)
    return int(version), identity


def _order(text: str | None) -> list[tuple[str, int]] | None:
    """An order of its text.

    >>> _order("total:-1,name")
    [('total', -1), ('name', 1)]
    """
    if text is None:
        return None
    found = []
    for part in text.split(","):
        field, colon, direction = part.rpartition(":")
        if colon and direction not in ("1", "-1"):
            raise InvalidRequest("sort is fields with 1 or -1: total:-1,name:1", sort=text)
        found.append((field, int(direction)) if colon else (part, 1))
    return found


class EventStream:
    """One open event stream: an ASGI application that answers one request."""

    def __init__(self, call: Call) -> None:
        self.caller = call.caller
        self._hub: Hub = call.hub
        loop = asyncio.get_running_loop()
        self._outbox = Outbox(loop, self._hub.settings.outbox_bytes, self._hub.turn)
        self._stream: Any = None

    @classmethod
    async def of_subscription(cls, call: Call) -> EventStream:
        """The answers of a stored subscription."""
        made, hub = cls(call), call.hub
        after = call.header("last-event-id") or call.query.after
        handle = await hub.resume(call.channel, call.names["id"], after, call.caller)
        made._stream = Stream(
            call.channel, handle, made._outbox, hub.wires(call.channel, "stream"), hub.alarm,
            prefix=b"", token=after, on_end=made._ended,
        )  # fmt: skip
        return made

    @classmethod
    async def of_changes(cls, call: Call) -> EventStream:
        """The changes of a collection."""
        made, query = cls(call), call.query
        made._stream = await follow(
            call.hub, call.caller, call.names["collection"],
            begin_after(call.header("last-event-id"), query.after), query.before, None,
            made._outbox, asyncio.Lock(), stream_wire, prefix=b"", on_end=made._ended,
        )  # fmt: skip
        made._tell_place()
        return made

    @classmethod
    async def of_watch(cls, call: Call) -> EventStream:
        """A live query."""
        made, failed = cls(call), []
        name = call.names["collection"]
        made._stream = watches = Watches(
            call.hub, call.caller, made._outbox, "stream",
            lambda _, error: failed.append(error), made._ended,
        )  # fmt: skip
        request = call.query.request(name, call.header("last-event-id"))
        found = call.hub.db._collections.get(name)
        leads = call.hub.cluster is None or call.hub.cluster.leads
        if found is not None and leads and request.identity not in (None, found.identity):
            request.after = request.identity = None  # it was dropped and made again: begin anew
        watches.ask(request)
        try:
            await watches.answered()
            if failed:
                raise failed[0]
        except BaseException:
            watches.stop()
            raise
        return made

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        hub = self._hub
        hub.connections.add(self)
        log("connected", caller=self.caller.name, path=scope["path"])
        tasks: list[asyncio.Future[None]] = []
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            self._outbox.reply(b"retry: 1000\n\n")
            if isinstance(self._stream, Following):
                self._stream.start()
            elif isinstance(self._stream, Stream):
                await hub.follow(self._stream)
            tasks = [
                asyncio.ensure_future(self._write(send)),
                asyncio.ensure_future(_gone(receive)),
                asyncio.ensure_future(self._outbox.spilled()),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hub.connections.discard(self)
            hub.limits.disconnect(self.caller)
            self._stream.stop()
            self._outbox.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            log("disconnected", caller=self.caller.name, path=scope["path"])
        if self._outbox.overflowed:
            await self._tell_slow(scope, send)
        else:
            await send({"type": "http.response.body", "body": b""})

    def beat(self, now_us: int) -> None:
        """Send a heartbeat: a comment, which readers skip."""
        self._outbox.reply(b": beat\n\n")
        if isinstance(self._stream, Following) and self._stream.has_moved:
            self._tell_place()
        elif isinstance(self._stream, Watches):
            for place in self._stream.places():
                self._outbox.reply(b"id: %b\n\n" % place)

    def revoked(self) -> None:
        """The token is good no more; the connection is closed next."""
        if isinstance(self._stream, Watches):
            self._stream.revoke()

    def _tell_place(self) -> None:
        place = self._stream.place()
        self._outbox.reply(
            b"id: %d\nevent: following\ndata: %b\n\n" % (place["seq"], encode(place))
        )

    def hang_up(self, code: int, reason: str) -> None:
        """Send what is waiting, then close."""
        self._outbox.close()

    @property
    def waiting(self) -> int:
        """Messages that wait to be sent."""
        return len(self._outbox)

    def _ended(self, stream: Any, why: str | Exception) -> None:
        """What is followed has ended (any thread)."""
        if isinstance(why, Exception):
            told = refusal(why)
            if told is None:
                log("bug", level=logging.ERROR, error=why, caller=self.caller.name)
                told = Refused(500, "Bug", "this is a bug of the server: tell the operator")
            self._outbox.reply(b"event: ended\ndata: %b\n\n" % encode(error_body(told)))
        else:
            self._outbox.reply(b"event: ended\ndata: %b\n\n" % encode({"reason": why}))
        self._outbox.close()

    async def _write(self, send: Any) -> None:
        outbox, stream, metrics = self._outbox, self._stream, self._hub.metrics
        while True:
            items = await outbox.take()
            if outbox.overflowed or (not items and outbox.closed):
                return
            parts: list[bytes] = []
            wires = []
            size = 0
            for _, wire, item_size in items:
                if type(wire) is not Wire:
                    if parts:
                        await _send(send, b"".join(parts))
                        outbox.sent(size)
                        parts, size = [], 0
                    if isinstance(wire, Pieces):
                        for text in wire.texts:
                            await _send(send, text)
                    else:
                        await self._send_past(send, wire)
                    continue
                parts.append(wire.data)
                wires.append(wire)
                size += item_size
            if parts:
                await _send(send, b"".join(parts))
                outbox.sent(size)
            now = time.perf_counter()
            for wire in wires:
                if wire.token is not None:
                    stream.sent(wire.token)
                    metrics.sent(now - wire.made)

    async def _send_past(self, send: Any, events: Sequence[Event]) -> None:
        for first in range(0, len(events), _PIECE):
            piece = events[first : first + _PIECE]
            await _send(
                send,
                b"".join(
                    stream_message(event_json(event), b"past", event.token.encode())
                    for event in piece
                ),
            )
            self._stream.sent(piece[-1].token)
        await _send(send, b"event: past_done\ndata: {}\n\n")

    async def _tell_slow(self, scope: Any, send: Any) -> None:
        """The last words to a reader that does not keep up, put behind what it has not read."""
        self._hub.metrics.slow += 1
        log("slow", caller=self.caller.name, subscriptions=1)
        data = b"event: slow\ndata: %b\n\n" % encode({"token": self._stream.token})
        last_words = scope.get("extensions", {}).get("tideline")
        if last_words is not None:  # the server is ours (protocol.py)
            last_words(data)
            return
        # If its socket takes no more until then, the operating system drops the connection.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._hub.settings.stop_s):
                await _send(send, data)
        await send({"type": "http.response.body", "body": b""})


async def _send(send: Any, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _gone(receive: Any) -> None:
    """Wait until the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def stream(call: Call) -> EventStream:
    return await _opened(call, EventStream.of_subscription)


async def stream_watch(call: Call) -> EventStream:
    return await _opened(call, EventStream.of_watch)


async def stream_changes(call: Call) -> EventStream:
    return await _opened(call, EventStream.of_changes)


async def _opened(call: Call, make: Callable[[Call], Awaitable[EventStream]]) -> EventStream:
    if call.hub.stopping:
        raise Refused(503, "Unavailable", "the server is stopping")
    call.hub.limits.connect(call.caller)
    try:
        return await make(call)
    except BaseException:
        call.hub.limits.disconnect(call.caller)
        raise


OPS = [
    Op("GET", "/v1/channels/{channel}/subscriptions/{id}/stream",
       "The answers of a subscription as an event stream.", stream, scope="subscribe",
       query=StreamQuery, gives=STREAM),
    Op("GET", "/v1/collections/{collection}/changes/stream",
       "The changes of a collection as an event stream.", stream_changes, scope="read",
       query=ChangesQuery, gives=STREAM),
    Op("GET", "/v1/collections/{collection}/watch",
       "A live query as an event stream: its result, and what changes.", stream_watch,
       scope="read", query=WatchQuery, gives=STREAM),
]  # fmt: skip
