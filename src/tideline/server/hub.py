"""What all connections of a server share: the database, its clock's alarm, who is connected.

Everything here lives on the server's event loop, except where a docstring says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeVar

from tideline.errors import NotFound
from tideline.lsm.sharedlog import NotLeading
from tideline.server.access import Access, Caller
from tideline.server.alarm import Alarm
from tideline.server.collection_pages import Pages
from tideline.server.counted import CountedChannel
from tideline.server.limits import Limits
from tideline.server.logs import log
from tideline.server.metrics import Metrics
from tideline.server.outbox import Turn, Wires
from tideline.server.quotas import Quotas
from tideline.server.refusals import Refused
from tideline.server.settings import Settings, is_loopback
from tideline.server.shapes import parse_time
from tideline.server.work import Work
from tideline.space.plain import from_plain
from tideline.where import parse

__all__ = ["Connection", "Hub"]

T = TypeVar("T")


class Connection(Protocol):
    """What the hub asks of an open WebSocket or event stream."""

    caller: Any

    def beat(self, now_us: int) -> None:
        """Send a heartbeat."""
        ...

    def revoked(self) -> None:
        """The token is good no more; the connection is closed next."""
        ...

    def hang_up(self, code: int, reason: str) -> None:
        """Send what is waiting, then close."""
        ...

    @property
    def waiting(self) -> int:
        """Messages that wait to be sent."""
        ...


class Hub:
    """The shared state of one running server."""

    def __init__(self, db: Any, settings: Settings) -> None:
        self.db = db
        self.settings = settings
        self.access = Access(db.path, always=not is_loopback(settings.host))
        self.limits = Limits(settings)
        self.metrics = Metrics()
        self.connections: set[Connection] = set()
        self.stopping = False
        self._arriving: set[asyncio.Timeout] = set()
        self._wires: weakref.WeakKeyDictionary[Any, dict[str, Wires]] = weakref.WeakKeyDictionary()
        self.watches: dict[Any, Any] = {}  # by channel, see watch.py
        self.feeders: dict[Any, Any] = {}  # by collection, see changes.py
        self.desks: dict[Any, Any] = {}  # by collection that is watched, see live_queries.py
        self.watched: Counter[str] = Counter()
        """Live queries by caller."""
        self.pages = Pages()
        self.started_s = time.monotonic()
        self.seen_inside: tuple[float, Any] | None = None  # what inside.py found last, and when
        self._quotas: weakref.WeakKeyDictionary[Any, Quotas] = weakref.WeakKeyDictionary()
        self._alarm: Alarm | None = None
        self._turn: Turn | None = None
        self._beating: asyncio.Task[None] | None = None
        self._work: Work | None = None
        self.cluster: Any = db._sharing
        """What this server is a node of, if it is: cluster/machine.py."""
        self.waits_for_disk = db._durability == "disk" or self.cluster is not None

    # ---- the start and the end -------------------------------------------------------------

    async def start(self) -> None:
        """Begin, on the loop that serves."""
        loop = asyncio.get_running_loop()
        self._alarm = Alarm(self.db.clock, loop)
        self._turn = Turn(loop)
        self._work = Work(self.settings, self.limits)
        most = self.settings.subscriptions_per_user, self.settings.conditions_per_user
        # On a node, that leads or will, they are counted when they are first asked for.
        for channel in list(self.db._open.values()) if self.cluster is None else ():
            self._quotas[channel] = await self.in_thread(Quotas.load, channel, *most)
        self._beating = loop.create_task(self._beat())

    async def stop(self) -> None:
        """End: whoever is connected gets what waits for them, then a close."""
        self.stopping = True
        for arriving in self._arriving:
            arriving.reschedule(0.0)
        for connection in list(self.connections):
            connection.hang_up(1012, "the server stops: reconnect and resume")
        limit = time.monotonic() + self.settings.stop_s
        while self.connections and time.monotonic() < limit:
            await asyncio.sleep(0.01)

    @contextlib.asynccontextmanager
    async def arriving(self, timeout_s: float) -> AsyncIterator[None]:
        """The time that something may take to arrive: `TimeoutError` after it, or at a stop."""
        async with asyncio.timeout(0.0 if self.stopping else timeout_s) as timeout:
            self._arriving.add(timeout)
            try:
                yield
            finally:
                self._arriving.discard(timeout)

    async def close(self) -> None:
        """Let go of threads and timers, after the last request."""
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        for feeder in list(self.feeders.values()):
            await feeder.stop()
        if self._alarm is not None:
            await asyncio.to_thread(self._alarm.stop)
            self._alarm = None
        if self._work is not None:
            for channel in list(self.db._open.values()):
                channel.core.engine.conditions.allowance = None
            await asyncio.to_thread(self._work.close)
            self._work = None

    @property
    def turn(self) -> Turn:
        """What is sent when a connection has been read."""
        assert self._turn is not None, "the server has not started"
        return self._turn

    @property
    def work(self) -> Work:
        """Where calls run."""
        assert self._work is not None, "the server has not started"
        return self._work

    @property
    def alarm(self) -> Alarm:
        """The clock's alarm."""
        assert self._alarm is not None, "the server has not started"
        return self._alarm

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.settings.beat_s)
            now = self.db.clock.now()
            self.limits.forget()
            for channel in [channel for channel in self.watches if channel.core.closed]:
                del self.watches[channel]
            self.close_revoked()
            for connection in list(self.connections):
                if self.access.still_valid(connection.caller):
                    connection.beat(now)

    def close_revoked(self) -> None:
        """Close the connections whose token is good no more."""
        for connection in list(self.connections):
            if not self.access.still_valid(connection.caller):
                if connection.caller.token is None:  # there were none: it may have shown a good one
                    connection.hang_up(1012, "a token is needed from now on: connect again")
                    continue
                log("revoked", caller=connection.caller.name)
                connection.revoked()
                connection.hang_up(4401, "the token was revoked")

    # ---- the database ------------------------------------------------------------------------

    def absent(self, error: Exception) -> Exception:
        """What to say of something that is not here: `error`, where it is nowhere.

        A follower may be behind, and one that has just begun is: the leader has to be asked.
        """
        machine = self.cluster
        if machine is None or machine.leads:
            return error
        return NotLeading("it is not on this node: ask the leader", leader=machine.leader_url())

    def caller(self, text: str | None, address: str) -> Caller:
        """Who shows this token (or none) from this address."""
        try:
            return self.access.caller(text, address)
        except Refused as refused:
            if text is None or self.access.tokens.is_revoked(text):
                raise
            raise self.absent(refused) from None

    def channel(self, name: str) -> Any:
        """A channel that is there."""
        # Without the database's own lock, which making or dropping another one holds for a while.
        found = self.db._open.get(name)
        if found is None:
            raise self.absent(NotFound("no such channel", name=name))
        conditions = found.core.engine.conditions
        if conditions.allowance is None and self._work is not None:
            conditions.allowance = self._work.allow
        return found

    def wires(self, channel: Any, kind: str) -> Wires:
        """The last event of a channel as a message of a kind of connection."""
        found = self._wires.get(channel)
        if found is None:
            found = self._wires[channel] = {
                "live": Wires(live_message),
                "stream": Wires(stream_message),
            }
        return found[kind]

    async def subscribe(self, request: Any, channel: Any, user: str, caller: Any) -> Any:
        """Make a subscription; its handle."""
        quotas = self._quotas_of(channel)
        weight = parse(request.where, delta=True).cost.weight if request.where else 0
        try:
            quotas.check(user, self.db.clock.now(), weight)
        except Refused:  # one that is there already takes no more room: the store says what it is
            if not await self.write(caller, channel, _is_there, channel, request.id):
                raise
        handle = await self.write(caller, channel, request.call, channel, user)
        if not handle.duplicate and channel.layout != "poll":
            quotas.add(user, handle.until_us, weight, handle.id)
        return handle

    async def cancel(self, channel: Any, id: str, caller: Any) -> None:
        """End a stored subscription of the caller's."""

        def run() -> Any:
            info = channel.subscription(id)
            caller.check_own(info.user, id)
            channel.cancel(id)
            return info

        info = await self.write(caller, channel, run)
        self._quotas_of(channel).remove(info.user, info.until_us, _weight(info), id)

    async def prolong(self, channel: Any, id: str, caller: Any, asked: Any) -> Any:
        """Move the end of a stored subscription of the caller's."""
        until = parse_time(asked.until, "until")

        def run() -> Any:
            before = channel.subscription(id)
            caller.check_own(before.user, id)
            return before, channel.prolong(id, until_s=asked.until_s, until=until)

        before, info = await self.write(caller, channel, run)
        weight = _weight(info)
        self._quotas_of(channel).remove(info.user, before.until_us, weight, id)
        self._quotas_of(channel).add(info.user, info.until_us, weight, id)
        return info

    async def move(self, channel: Any, id: str, caller: Any, place: Any) -> Any:
        """Have a stored subscription of the caller's watch another place."""

        def run() -> Any:
            caller.check_own(channel.subscription(id).user, id)
            return channel.move(id, from_plain(place))

        return await self.write(caller, channel, run)

    def counted(self, channel: Any) -> CountedChannel:
        """The channel for batches, whose conditions count for their users."""
        return CountedChannel(channel, self._quotas_of(channel), self.db.clock)

    def _quotas_of(self, channel: Any) -> Quotas:
        found = self._quotas.get(channel)
        if found is None:  # made since the start
            settings = self.settings
            most = settings.subscriptions_per_user, settings.conditions_per_user
            found = Quotas(*most) if self.cluster is None else Quotas.load(channel, *most)
            self._quotas[channel] = found
        return found

    async def resume(
        self, channel: Any, id: str, after: str | None, caller: Any, retractions: bool = False
    ) -> Any:
        """The handle of a stored subscription, with what came after a token."""

        def run() -> Any:
            if caller.user is not None:
                caller.check_own(channel.subscription(id).user, id)
            return channel.resume(id, after, retractions=retractions)

        return await self.write(caller, channel, run)

    async def follow(self, stream: Any) -> None:
        """Begin to deliver what a handle gets; never waits for its channel on the loop."""
        if self.work.at_once or not self.work.is_busy(stream.channel):
            stream.start()
        else:
            await self.work.beside(stream.attach)
            stream.attached()

    async def in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run what takes long beside the loop."""
        return await self.work.in_thread(call, *arguments)

    async def long(self, caller: Any, channel: Any, call: Callable[..., T], *arguments: Any) -> T:
        """Run what takes long and may match conditions beside the loop."""
        return await self.work.long(caller, channel, call, *arguments)

    async def write(self, caller: Any, channel: Any, call: Callable[..., T], *arguments: Any) -> T:
        """Run one short call: right here, unless it waits for the disk, the channel, or matches
        much."""
        return await self.work.single(caller, channel, self.waits_for_disk, call, *arguments)


def _weight(info: Any) -> int:
    return parse(info.where, delta=True, stored=True).cost.weight if info.where else 0


def _is_there(channel: Any, id: str | None) -> bool:
    if id is None:
        return False
    try:
        channel.subscription(id)
    except NotFound:
        return False
    return True


def live_message(text: bytes, kind: bytes, token: bytes) -> bytes:
    """An answer on a WebSocket, without its beginning `{"tag":1,"event":`."""
    return b'%b,"kind":"%b","token":"%b"}' % (text, kind, token)


def stream_message(text: bytes, kind: bytes, token: bytes) -> bytes:
    """An answer in an event stream; its id is the token, so that browsers resume by themselves."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (token, kind, text)
