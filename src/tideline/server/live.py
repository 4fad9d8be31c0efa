"""WebSocket /v1/live: many subscriptions on one connection, each message tagged.

A request names a `tag` of the client's choosing; what belongs to it carries the same tag. Per tag,
in this order: subscribed, past events, past_done, live events, ended. docs/reference/http.md shows
every message; connection.py has what reads and writes, changes.py follows collections,
live_queries.py has live queries.

Everything here is on the event loop, except what streams.py says of delivery.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from tideline.errors import InvalidRequest, NotFound
from tideline.model import Told
from tideline.server.change_messages import live_wire
from tideline.server.changes import Following, follow
from tideline.server.cluster import require_leader
from tideline.server.connection import Receive, Send, Socket
from tideline.server.hub import Hub
from tideline.server.live_messages import ended_text
from tideline.server.live_queries import Watches
from tideline.server.live_watch import Watch as WatchedQuery
from tideline.server.logs import log
from tideline.server.refusals import Refused, error_body, refusal
from tideline.server.requests import (
    Cancel,
    Changes,
    Hello,
    Move,
    Prolong,
    Publish,
    Release,
    Resume,
    Subscribe,
    Sync,
    Watch,
    WatchGroups,
    WatchWindow,
    read_request,
)
from tideline.server.shapes import encode, subscription_out, time_text, told_json
from tideline.server.streams import Stream
from tideline.server.window_watch import WindowWatch
from tideline.server.windows import window_of
from tideline.server.work import Elsewhere
from tideline.space.plain import from_plain

__all__ = ["Live"]

_MOST_FOLLOWED = 100  # collections on one connection
_BRIEF = (Watch, Cancel)
_LITTLE_BYTES = 512  # of a request that is parsed on the loop: it takes no millisecond


class Live(Socket):
    """One WebSocket with subscriptions on it."""

    def __init__(self, hub: Hub, caller: Any, send: Send, *, lines: bool, socket: Any) -> None:
        super().__init__(hub, caller, send, lines=lines, socket=socket)
        self.streams: dict[int | str, Stream | Following | WindowWatch] = {}
        self.watches = Watches(hub, caller, self._outbox, "live", self._refuse, self._watch_ended)
        self._catching_up = asyncio.Lock()
        self._resuming: asyncio.Future[None] | None = None

    def stop(self) -> dict[str, str | int | None]:
        """Let go of everything that is followed; returns where to resume, by tag."""
        streams = list(self.streams.items())  # other threads may end some meanwhile
        tokens = {
            str(tag): stream.token for tag, stream in streams if not isinstance(stream, WindowWatch)
        }
        for _, stream in streams:
            stream.stop()
        self.streams.clear()
        self.watches.stop()
        if self._resuming is not None:
            self._resuming.cancel()
        return tokens

    def beat(self, now_us: int) -> None:
        """Send a heartbeat, and how far changes are that nobody may see here."""
        super().beat(now_us)
        for tag, stream in list(self.streams.items()):
            if isinstance(stream, Following) and stream.has_moved:
                self._reply(tag, following=stream.place())

    def facts(self) -> bytes:
        """How far live queries are, by collection."""
        reached = self.watches.reached() if len(self.watches) else None
        return b',"reached":' + encode(reached) if reached else b""

    def revoked(self) -> None:
        """The token is good no more: nothing that it saw is to be seen."""
        self.watches.revoke()

    async def read(self, receive: Receive) -> None:
        """Answer requests, one after the other, while the outbox has room."""
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return
            await self._outbox.room()
            text = message.get("text")
            request = self._request(message.get("bytes") or b"" if text is None else text)
            if request is not None:
                await self._answered(request)

    def take(self, data: bytes) -> bool:
        """Answer a request at once; says whether there is room for another."""
        request = self._request(data)
        if type(request) is Publish:  # what comes most often takes the short way
            try:
                channel, work = self._publishes(request), self._hub.work
                if work.is_busy(channel):
                    return self._later(request)
                told = work.here(self.caller, request.call, channel)
                self._tell(request, channel, told)
            except Elsewhere:
                return self._later(request)
            except Exception as error:
                self._refuse(request.tag, error)
        elif type(request) in _BRIEF and self._takes_watch(request, data):
            pass
        elif request is not None:
            answering = self._answered(request)
            self._hub.work.at_once = True
            try:
                answering.send(None)  # nothing in it waits
            except StopIteration:
                pass
            except Elsewhere:  # nothing has happened yet
                return self._later(request)
            else:
                answering.close()
                raise RuntimeError("a request waited where nothing may")
            finally:
                self._hub.work.at_once = False
        if self._outbox.has_room:
            return True
        self._resuming = asyncio.ensure_future(self._when_room())
        return False

    def _takes_watch(self, request: Watch | Cancel, data: bytes) -> bool:
        """Have a live query watched or cancelled, without a coroutine for it; says whether."""
        watches = self.watches
        if watches.is_busy or (type(request) is Cancel and request.tag not in watches):
            return False
        try:
            if type(request) is Cancel:
                watches.cancel(request.tag)
            else:
                self._check_tag(request.tag)
                watches.ask(request, is_little=len(data) <= _LITTLE_BYTES)
        except Exception as error:
            self._refuse(request.tag, error)
        return True

    def _later(self, request: Any) -> bool:
        """Answer a request beside the loop; nothing more is read until then."""

        async def answer() -> None:
            await self._answered(request)
            await self._when_room()

        self._resuming = asyncio.ensure_future(answer())
        return False

    async def _when_room(self) -> None:
        await self._outbox.room()
        self._socket.go_on()

    def _request(self, data: str | bytes) -> Any:
        """What a message asks for; None when it was refused."""
        tag: int | str | None = None
        try:
            try:
                request = read_request(data)
                tag = request.tag
            finally:
                self._hub.limits.spend(self.caller)  # what cannot be read costs as well
        except Exception as error:
            self._refuse(tag if tag is not None else getattr(error, "tag", None), error)
            return None
        return request

    async def _answered(self, request: Any) -> None:
        """Answer one request, whatever it says."""
        try:
            await self._answer(request)
        except Exception as error:
            self._refuse(request.tag, error)

    def _refuse(self, tag: int | str | None, error: Exception) -> None:
        told = refusal(error)
        if told is None:
            log("bug", level=logging.ERROR, error=error, caller=self.caller.name)
            told = Refused(500, "Bug", "this is a bug of the server: tell the operator")
        self._reply(tag, **error_body(told))

    def _reply(self, tag: int | str | None, **fields: Any) -> None:
        self._outbox.reply(encode({"tag": tag, **fields}))

    async def _answer(self, request: Any) -> None:
        if isinstance(request, (Publish, Subscribe, Resume, WatchWindow, Move)):
            require_leader(self._hub.cluster)
        if isinstance(request, Publish):
            await self._publish(request)
        elif isinstance(request, Subscribe):
            await self._subscribe(request)
        elif isinstance(request, Resume):
            await self._resume(request)
        elif isinstance(request, Changes):
            await self._changes(request)
        elif isinstance(request, (Watch, WatchGroups)):
            await self._not_too_busy()
            self._check_tag(request.tag)
            self.watches.ask(request)
        elif isinstance(request, WatchWindow):
            await self._watch_window(request)
        elif request.tag in self.watches:
            await self._answer_watch(request)
        elif isinstance(request, Cancel):
            await self._cancel(request.tag)
        elif isinstance(request, Release):
            self._let_go(request.tag, "released")
        elif isinstance(request, Prolong):
            stream = self._stream(request.tag)
            if isinstance(stream, WindowWatch):
                raise InvalidRequest("a window is cancelled, no more", tag=request.tag)
            if isinstance(stream, Following):
                raise InvalidRequest("changes of a collection have no end", tag=request.tag)
            request.check_window()
            await self._hub.prolong(stream.channel, stream.handle.id, self.caller, request)
            stream.look()
            self._reply(request.tag, prolonged=subscription_out(stream.handle))
        elif isinstance(request, Move):
            stream = self._stream(request.tag)
            if isinstance(stream, WindowWatch):
                raise InvalidRequest("a window is cancelled, no more", tag=request.tag)
            if isinstance(stream, Following):
                raise InvalidRequest("changes of a collection have no place", tag=request.tag)
            await self._move(stream, request.place)
            self._reply(request.tag, moved=subscription_out(stream.handle))
        elif isinstance(request, Sync):
            reached = {}
            if self.watches.has_any:
                if self._hub.work.at_once:
                    raise Elsewhere
                reached["reached"] = await self.watches.settled()
            await self._caught_up()
            self._hub.alarm.catch_up()
            self._reply(request.tag, synced=time_text(self._hub.db.clock.now()), **reached)
        else:
            assert isinstance(request, Hello)  # there are no tokens, or it had one already

    async def _answer_watch(self, request: Any) -> None:
        """A request about a live query."""
        tag = request.tag
        if isinstance(request, (Cancel, Release)):
            await self._not_too_busy()
            self.watches.cancel(tag, "cancelled" if isinstance(request, Cancel) else "released")
        elif isinstance(request, Prolong):
            watch = self.watches.get(tag)
            assert watch is not None
            self._reply(tag, prolonged={"until": self.watches.prolong(watch, request.span_s())})
        else:
            raise InvalidRequest("a live query is cancelled or prolonged, no more", tag=tag)

    async def _not_too_busy(self) -> None:
        if self.watches.is_busy:
            if self._hub.work.at_once:
                raise Elsewhere
            await self.watches.settled()

    async def _watch_window(self, request: WatchWindow) -> None:
        """Tell the panes of a stream window."""
        if self._hub.work.at_once:
            raise Elsewhere
        self.caller.need("read", request.window)
        window = window_of(self._hub, self.caller, request.window)
        self._check_tag(request.tag)
        told = WindowWatch(self._hub, window, request, self._outbox, self._window_ended)
        self.streams[request.tag] = told
        try:
            await told.start()
        except BaseException:
            del self.streams[request.tag]
            told.stop()
            raise
        if self.streams.get(request.tag) is not told:  # the connection has ended meanwhile
            told.stop()
            return
        until = window.stats().until
        self._reply(request.tag, watching={"window": window.name, "until": until})
        told.go()

    def _window_ended(self, told: WindowWatch, why: str | Exception) -> None:
        tag = told._request.tag
        if self.streams.get(tag) is told:
            del self.streams[tag]
            told.stop()
            if isinstance(why, Exception):
                self._refuse(tag, why)
            else:
                self._reply(tag, ended=why)

    def _watch_ended(self, watch: WatchedQuery, reason: str) -> None:
        self._outbox.reply(ended_text(watch.tag, reason))

    async def _cancel(self, tag: int | str) -> None:
        stream = self._stream(tag)
        if isinstance(stream, (Following, WindowWatch)):
            self._let_go(tag, "cancelled")
            return
        if stream.channel.layout == "poll":
            stream.handle.cancel()
            return
        try:
            await self._hub.cancel(stream.channel, stream.handle.id, self.caller)
        except NotFound:
            stream.look()  # it has just expired, and says so

    async def _move(self, stream: Stream, place: Any) -> None:
        channel, handle = stream.channel, stream.handle
        if channel.layout == "poll":
            await self._hub.write(self.caller, channel, handle.move, from_plain(place))
        else:
            await self._hub.move(channel, handle.id, self.caller, place)

    async def _publish(self, request: Publish) -> None:
        channel = self._publishes(request)
        told = await self._hub.write(self.caller, channel, request.call, channel)
        self._tell(request, channel, told)

    def _publishes(self, request: Publish) -> Any:
        """The channel of a publish that is allowed."""
        self.caller.need("publish", request.channel)
        self.caller.need_related(request.related, request.channel)
        self.caller.need_all_events(request.replace)
        return self._hub.channel(request.channel)

    def _tell(self, request: Publish, channel: Any, told: Told) -> None:
        """Say what came of a publish."""
        event = self._hub.wires(channel, "live").text_of(told.event)
        self._outbox.reply(
            b'{"tag":%b,"told":%b}'
            % (encode(request.tag), told_json(told, event, self.caller.user))
        )

    async def _subscribe(self, request: Subscribe) -> None:
        self.caller.need("subscribe", request.channel)
        channel = self._hub.channel(request.channel)
        self._check_tag(request.tag)
        user = self.caller.acting_for(request.user)
        handle = await self._hub.subscribe(request, channel, user, self.caller)
        await self._follow(request.tag, channel, handle, None)

    async def _resume(self, request: Resume) -> None:
        self.caller.need("subscribe", request.channel)
        channel = self._hub.channel(request.channel)
        self._check_tag(request.tag)
        handle = await self._hub.resume(
            channel, request.id, request.after, self.caller, request.retractions
        )
        await self._follow(request.tag, channel, handle, request.after)

    async def _changes(self, request: Changes) -> None:
        self._check_tag(request.tag)
        if sum(isinstance(each, Following) for each in self.streams.values()) >= _MOST_FOLLOWED:
            raise Refused(429, "TooMany", "too many collections on this connection: open another")
        if self._hub.work.at_once:
            raise Elsewhere
        following = await follow(
            self._hub, self.caller, request.collection, request.after, request.before,
            request.identity, self._outbox, self._catching_up, live_wire,
            prefix=b'{"tag":%b,"changes":' % encode(request.tag),
            on_end=lambda following, why: self._changes_ended(request.tag, following, why),
        )  # fmt: skip
        self.streams[request.tag] = following
        self._reply(request.tag, following=following.place())
        following.start()

    def _changes_ended(self, tag: int | str, following: Following, why: str | Exception) -> None:
        if self.streams.get(tag) is following:
            del self.streams[tag]
            if isinstance(why, Exception):
                self._refuse(tag, why)
            else:
                self._reply(tag, ended=why)

    async def _caught_up(self) -> None:
        """Wait until the changes that were written so far are on their way."""
        followings = [
            each for each in self.streams.values() if isinstance(each, (Following, WindowWatch))
        ]
        if followings and self._hub.work.at_once:
            raise Elsewhere
        for following in followings:
            await following.caught_up()

    def _let_go(self, tag: int | str, reason: str) -> None:
        self._stream(tag).stop()
        del self.streams[tag]
        self._reply(tag, ended=reason)

    def _check_tag(self, tag: int | str) -> None:
        if tag in self.streams or tag in self.watches:
            raise InvalidRequest("the tag is in use on this connection", tag=tag)
        if len(self.streams) >= self._hub.settings.subscriptions_per_connection:
            raise Refused(429, "TooMany", "too many subscriptions on this connection: open another")

    def _stream(self, tag: int | str) -> Stream | Following | WindowWatch:
        found = self.streams.get(tag)
        if found is None:
            raise InvalidRequest("no subscription with this tag on this connection", tag=tag)
        return found

    async def _follow(self, tag: int | str, channel: Any, handle: Any, after: str | None) -> None:
        hub = self._hub
        stream = Stream(
            channel, handle, self._outbox, hub.wires(channel, "live"), hub.alarm,
            prefix=b'{"tag":%b,"event":' % encode(tag), token=after,
            on_end=lambda stream, reason: self._ended(tag, stream, reason),
        )  # fmt: skip
        self.streams[tag] = stream
        self._reply(
            tag, subscribed={**msgspec.structs.asdict(subscription_out(handle)),
                             "duplicate": handle.duplicate},
        )  # fmt: skip
        await hub.follow(stream)

    def _ended(self, tag: int | str, stream: Stream, reason: str) -> None:
        """A stream has ended (any thread)."""
        if self.streams.pop(tag, None) is stream:
            self._reply(tag, ended=reason)
