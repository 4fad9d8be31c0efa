"""A channel on a server: the verbs of `Channel`, over HTTP and the live connection.

    publish, find, apply, scan, journal, ...    one request each (http.py)
    subscribe, resume                           the live connection (live.py)

Each verb is written once, as a coroutine of `ChannelVerbs`: `RemoteChannel` runs it blocking
(blocking.py), `AsyncRemoteChannel` (aclient/channel.py) in an event loop.

Ids that the user does not give are made here, so that a call whose answer got lost can be made
again without doing anything twice. What then comes back says so: `Told.duplicate`,
`Applied.repeated`.

`RemoteChannel` is safe from any thread.
"""

from __future__ import annotations

import itertools
import math
import secrets
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from tideline.channel.bodies import in_json
from tideline.channel.checks import (
    check_flag,
    check_limit,
    check_text,
    encode_body,
    read_cursor,
)
from tideline.client.blocking import blocking
from tideline.client.http import Http, Requests
from tideline.client.live import Live
from tideline.client.subscription import RemoteSubscription
from tideline.client.tables import read_applied, read_table, table_bytes
from tideline.client.wire import (
    Answer,
    Listed,
    WireEvent,
    WireSubscription,
    encode,
    event_of,
    info_of,
    place_json,
    time_text,
    window_json,
)
from tideline.clock import Seconds, span_s
from tideline.errors import InvalidRequest, NotFound
from tideline.model import Applied, ChannelStats, Event, Subscriber, SubscriptionInfo, Told
from tideline.protocols import Body, Place
from tideline.space import Space, space_from_spec

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ChannelVerbs", "Facts", "Following", "RemoteChannel"]

_PART = 10_000  # subscriptions listed in one request


class Facts(msgspec.Struct):
    """A channel, as the server describes it."""

    name: str
    space: dict[str, Any]
    layout: str
    stats: dict[str, int]
    journal_s: float = 0.0
    max_ahead_s: float | None = None
    """None: no limit, or a server that does not tell."""
    identity: str = ""
    position: str | None = None
    earliest: str | None = None


class Handle(Protocol):
    """What the verbs ask of the handle of a subscription."""

    place: Any
    until_us: int


H = TypeVar("H", bound=Handle)
H_co = TypeVar("H_co", bound=Handle, covariant=True)


class Following(Protocol[H_co]):
    """What the verbs ask of the live connection."""

    async def subscribe(self, channel: Any, fields: dict[str, Any]) -> H_co:
        """Store a subscription and follow it; `fields` hold its id."""

    async def resume(self, channel: Any, fields: dict[str, Any]) -> H_co:
        """Follow a stored subscription."""

    async def publish(self, channel: str, fields: dict[str, Any]) -> Answer | None:
        """Publish an event that has an id, if it can be done at once; None when it cannot."""

    async def sync(self) -> int:
        """Wait until all that was sent so far has been handed out; the server's time."""

    def handle(self, channel: str, id: str) -> H_co | None:
        """The handle of a subscription, if somebody here holds it."""


class ChannelVerbs(Generic[H]):
    """What a channel on a server can do."""

    def __init__(self, http: Requests, live: Following[H], facts: Facts) -> None:
        self.name = facts.name
        self.space: Space = space_from_spec(facts.space)
        self.layout = facts.layout
        self.identity = facts.identity
        """What tells this channel from every other, of the same name too."""
        self.max_ahead_s = math.inf if facts.max_ahead_s is None else facts.max_ahead_s
        """How far ahead of the server's clock a row of a batch may be, as it was when asked."""
        self._http = http
        self._live = live
        self._path = ("v1", "channels", self.name)
        self._nonce = secrets.token_hex(6)
        self._made = itertools.count(1)

    # ---- publish and subscribe --------------------------------------------------------------

    async def publish(
        self, place: Place, body: Body, *, id: str | None = None, at: datetime | None = None,
        ttl_s: Seconds | None = None, until: datetime | None = None, related: bool = False,
        replace: bool = False,
    ) -> Told:  # fmt: skip
        """Store an event and return whom it answers: `Channel.publish`.

        Made again when the connection breaks; if the first try had landed, the answer is
        `duplicate` and names nobody. (With `replace` that is so if `at` is given; else the event
        replaces itself, and is told again.)
        """
        fields: dict[str, Any] = {
            "place": place_json(place, self.space),
            "body": msgspec.Raw(encode_body(body)),
            "id": self._id(id),
        }
        if at is not None:
            fields["at"] = time_text(at, "at")
        if ttl_s is not None:
            fields["ttl_s"] = span_s(ttl_s, "ttl_s")
        if until is not None:
            fields["until"] = time_text(until, "until")
        if check_flag(related, "related"):
            fields["related"] = True
        if check_flag(replace, "replace"):
            if id is None:
                raise InvalidRequest("replace needs the id of what it replaces", replace=replace)
            fields["replace"] = True
        answer = await self._live.publish(self.name, fields) or await self._http.ask_json(
            "POST", *self._path, "events", body=fields, type=Answer
        )
        told = answer.subscriptions
        return Told(
            event_of(answer.event),
            (lambda: [Subscriber(one["id"], one["user"]) for one in told]) if told else None,
            [event_of(event) for event in answer.related],
            answer.duplicate,
        )

    async def retract(self, id: str) -> None:
        """End an event; `NotFound` if no valid one has this id: `Channel.retract`."""
        check_text(id, "id")
        await self._http.ask("DELETE", *self._path, "events", id)

    async def subscribe(
        self, place: Place, *, user: str, id: str | None = None, since_s: Seconds | None = None,
        since: datetime | None = None, until_s: Seconds | None = None,
        until: datetime | None = None, where: dict[str, Any] | None = None, unseen: bool = False,
        retractions: bool = False,
    ) -> H:  # fmt: skip
        """Store a subscription; its `past` is there at once, what happens later is delivered.

        `Channel.subscribe`; `since_s` and `until_s` count from the server's now. It is delivered
        through any number of broken connections, each event once.
        """
        check_text(user, "user")
        fields: dict[str, Any] = {
            "place": place_json(place, self.space), "user": user, "id": self._id(id),
            **window_json(since_s, since, until_s, until),
        }  # fmt: skip
        if where is not None:
            fields["where"] = in_json(where)
        if check_flag(unseen, "unseen"):
            fields["unseen"] = True
        if check_flag(retractions, "retractions"):
            fields["retractions"] = True
        return await self._live.subscribe(self, fields)

    async def resume(self, id: str, after: str | None = None, *, retractions: bool = False) -> H:
        """A stored subscription given back, with what it missed since `after`: `Channel.resume`."""
        check_text(id, "id")
        fields: dict[str, Any] = {"id": id}
        if after is not None:
            if not isinstance(after, str):
                raise InvalidRequest("after must be the token of an event", after=after)
            fields["after"] = after
        if check_flag(retractions, "retractions"):
            fields["retractions"] = True
        return await self._live.resume(self, fields)

    async def cancel(self, id: str) -> None:
        """End a subscription; `NotFound` if there is none (any more): `Channel.cancel`."""
        check_text(id, "id")
        handle = self._live.handle(self.name, id)
        await self._http.ask("DELETE", *self._path, "subscriptions", id)
        if handle is not None:
            await self._live.sync()  # its end has arrived, as it has in a database

    async def prolong(
        self, id: str, *, until_s: Seconds | None = None, until: datetime | None = None
    ) -> SubscriptionInfo:
        """Let a subscription's window end at another time: `Channel.prolong`."""
        check_text(id, "id")
        wire = await self._http.ask_json(
            "PATCH", *self._path, "subscriptions", id,
            body=window_json(until_s=until_s, until=until), type=WireSubscription,
        )  # fmt: skip
        info = info_of(wire)
        handle = self._live.handle(self.name, id)
        if handle is not None:
            handle.until_us = info.until_us
        return info

    async def move(self, id: str, place: Place) -> SubscriptionInfo:
        """Have a subscription watch another place; its handle goes on: `Channel.move`.

        What it found there has arrived when this returns.
        """
        check_text(id, "id")
        wire = await self._http.ask_json(
            "PATCH", *self._path, "subscriptions", id,
            body={"place": place_json(place, self.space)}, type=WireSubscription,
        )  # fmt: skip
        info = info_of(wire)
        handle = self._live.handle(self.name, id)
        if handle is not None:
            await self._live.sync()
            handle.place = info.place
        return info

    # ---- asking -----------------------------------------------------------------------------

    async def get(self, id: str) -> Event | None:
        """The event with this id, if it is still valid; None otherwise: `Channel.get`."""
        check_text(id, "id")
        try:
            return event_of(
                await self._http.ask_json("GET", *self._path, "events", id, type=WireEvent)
            )
        except NotFound:
            await self._facts()  # raises the same when it is the channel that is not there
            return None

    async def find(
        self, place: Place, *, since_s: Seconds | None = None, since: datetime | None = None,
        until_s: Seconds | None = None, until: datetime | None = None,
        where: dict[str, Any] | None = None, limit: int | None = None,
    ) -> list[Event]:  # fmt: skip
        """The valid events of a window, newest first; stores nothing: `Channel.find`."""
        check_limit(limit)
        query = {
            "place": self._place(place), "where": _text(where), "limit": limit,
            **window_json(since_s, since, until_s, until),
        }  # fmt: skip
        found = await self._http.ask_json(
            "GET", *self._path, "events", query=query, type=dict[str, list[WireEvent]]
        )
        return [event_of(event) for event in found["events"]]

    async def subscriptions(
        self, user: str | None = None, *, limit: int | None = None, after: str | None = None
    ) -> list[SubscriptionInfo]:
        """The live subscriptions, in order of arrival: `Channel.subscriptions`.

        A long list is fetched in parts; it is not of one moment then.
        """
        if user is not None:
            check_text(user, "user")
        check_limit(limit, 1)
        read_cursor(after)
        found: dict[str, SubscriptionInfo] = {}
        while True:
            left = _PART if limit is None else min(limit - len(found), _PART)
            part = await self._http.ask_json(
                "GET", *self._path, "subscriptions",
                query={"user": user, "limit": left, "after": after}, type=Listed,
            )  # fmt: skip
            for wire in part.subscriptions:  # one that was prolonged meanwhile comes again
                found.pop(wire.id, None)
                found[wire.id] = info_of(wire)
            after = part.next
            if after is None or len(found) == limit:
                return list(found.values())

    async def subscription(self, id: str) -> SubscriptionInfo:
        """One live subscription; `NotFound` if there is none with this id (any more)."""
        check_text(id, "id")
        wire = await self._http.ask_json(
            "GET", *self._path, "subscriptions", id, type=WireSubscription
        )
        return info_of(wire)

    async def stats(self) -> ChannelStats:
        """What the channel holds now and has done since it was made."""
        return ChannelStats(**(await self._facts()).stats)

    # ---- tables -----------------------------------------------------------------------------

    async def apply(self, table: pa.Table, *, once: tuple[str, int] | None = None) -> Applied:
        """Run a table of operations in order: `Channel.apply`.

        Made again when the connection breaks only with `once`; else `Unavailable` says that it
        may have landed. The answers of a table whose reply got lost are not told again.
        """
        return await self._apply(table, once, again=once is not None)

    async def _apply(
        self, table: pa.Table, once: tuple[str, int] | None, *, again: bool
    ) -> Applied:
        query: dict[str, Any] = {}
        if once is not None:
            writer, number = _once(once)
            query["once"] = f"{writer}:{number}"
        answer = await self._http.ask(
            "POST", *self._path, "apply", query=query, arrow=table_bytes(table), again=again
        )
        return read_applied(answer)

    async def landed(self, writer: str, number: int) -> int | None:
        """How many rows of a writer's batch have landed: `Channel.landed`."""
        writer, number = _once((writer, number))
        query = {"once": f"{writer}:{number}"}
        found = await self._http.ask_json(
            "GET", *self._path, "landed", query=query, type=dict[str, int | None]
        )
        rows: int | None = found["rows"]
        return rows

    async def scan(
        self, kind: str, *, place: Place | None = None, since: datetime | None = None,
        until: datetime | None = None, where: dict[str, Any] | None = None,
    ) -> pa.Table:  # fmt: skip
        """The valid events, or the live subscriptions, as a table: `Channel.scan`."""
        query = {
            "kind": kind, "place": None if place is None else self._place(place),
            "where": _text(where), **window_json(since=since, until=until),
        }  # fmt: skip
        return read_table(await self._http.ask("GET", *self._path, "scan", query=query))

    async def times_between(self, parts: int) -> list[datetime]:
        """Times that cut the valid events into about so many parts: `Channel.times_between`."""
        found = await self._http.ask_json("GET", *self._path, "times", query={"parts": parts})
        return [datetime.fromisoformat(each) for each in found]

    async def journal(
        self, kind: str, *, after: str | None = None, upto: str | None = None,
        limit: int = 1_000_000,
    ) -> tuple[pa.Table, str]:  # fmt: skip
        """What was written after a position, and the position reached: `Channel.journal`."""
        query = {"kind": kind, "after": after, "upto": upto, "limit": limit}
        answer = await self._http.ask("GET", *self._path, "journal", query=query)
        return read_table(answer), answer.headers["tideline-position"]

    async def position(self) -> str:
        """Where the journal ends now: what is written later comes after it."""
        return _given((await self._facts()).position)

    async def earliest(self) -> str:
        """The earliest position that the journal still reaches back to."""
        return _given((await self._facts()).earliest)

    # ---- inside -----------------------------------------------------------------------------

    async def _facts(self) -> Facts:
        facts: Facts = await self._http.ask_json("GET", *self._path, type=Facts)
        return facts

    def _place(self, place: Any) -> str:
        """A place in a query: a text as it is, others as JSON."""
        if isinstance(place, str):
            self.space.encode(place)  # "[" begins JSON there: what is no place must not get so far
            return place
        return encode(place_json(place, self.space)).decode()

    def _id(self, id: str | None) -> str:
        if id is None:
            return f"{self._nonce}-{next(self._made):x}"
        check_text(id, "id")
        return id


class RemoteChannel:
    """Events and subscriptions side by side, on a server. Made by `Remote.channel`."""

    def __init__(self, http: Http, live: Live, facts: Facts) -> None:
        self._http = http
        self._verbs = verbs = ChannelVerbs(http, _Blocking(http, live), facts)
        self.name = verbs.name
        self.space = verbs.space
        self.layout = verbs.layout
        self.identity = verbs.identity
        self.max_ahead_s = verbs.max_ahead_s

    publish = blocking(ChannelVerbs.publish)
    subscribe = blocking(ChannelVerbs[RemoteSubscription].subscribe)
    resume = blocking(ChannelVerbs[RemoteSubscription].resume)
    retract = blocking(ChannelVerbs.retract)
    cancel = blocking(ChannelVerbs.cancel)
    prolong = blocking(ChannelVerbs.prolong)
    move = blocking(ChannelVerbs.move)
    get = blocking(ChannelVerbs.get)
    find = blocking(ChannelVerbs.find)
    subscriptions = blocking(ChannelVerbs.subscriptions)
    subscription = blocking(ChannelVerbs.subscription)
    stats = blocking(ChannelVerbs.stats)
    apply = blocking(ChannelVerbs.apply)
    landed = blocking(ChannelVerbs.landed)
    scan = blocking(ChannelVerbs.scan)
    times_between = blocking(ChannelVerbs.times_between)
    journal = blocking(ChannelVerbs.journal)
    position = blocking(ChannelVerbs.position)
    earliest = blocking(ChannelVerbs.earliest)

    def __repr__(self) -> str:
        return f"RemoteChannel(name={self.name!r}, url={self._http.url!r})"


class _Blocking:
    """The live connection of a client that blocks."""

    def __init__(self, http: Http, live: Live) -> None:
        self._http = http
        self._live = live

    async def subscribe(self, channel: Any, fields: dict[str, Any]) -> RemoteSubscription:
        return self._live.subscribe(partial(self._handle, channel), channel.name, fields)

    async def resume(self, channel: Any, fields: dict[str, Any]) -> RemoteSubscription:
        return self._live.resume(partial(self._handle, channel), channel.name, fields)

    async def publish(self, channel: str, fields: dict[str, Any]) -> Answer | None:
        return self._live.publish(channel, fields)

    async def sync(self) -> int:
        return self._live.sync()

    def handle(self, channel: str, id: str) -> RemoteSubscription | None:
        found: RemoteSubscription | None = self._live.handle(channel, id)
        return found

    def _handle(
        self, channel: Any, wire: WireSubscription, past: list[Event]
    ) -> RemoteSubscription:
        info = info_of(wire)
        handle = RemoteSubscription(
            channel, self._http.check_open, self._live, info.id, info.user, info.place,
            info.since_us, info.until_us, info.where, info.unseen, past,
        )  # fmt: skip
        handle.duplicate = wire.duplicate
        return handle


def _text(value: Any) -> str | None:
    """JSON as text for a query; none when there is none."""
    return None if value is None else encode(in_json(value)).decode()


def _once(once: Any) -> tuple[str, int]:
    if (
        not (isinstance(once, tuple) and len(once) == 2)
        or not isinstance(once[0], str)
        or isinstance(once[1], bool)
        or not isinstance(once[1], int)
        or once[1] < 0
    ):
        raise InvalidRequest("once must be a writer and a whole number from 0 on", once=once)
    return once


def _given(position: str | None) -> str:
    if position is None:
        raise InvalidRequest("layout 'poll' keeps no journal")
    return position
