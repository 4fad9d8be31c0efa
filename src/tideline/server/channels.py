"""The routes of channels, events and subscriptions: each parses, calls one method, answers."""

from __future__ import annotations

import contextlib
import math
from typing import Annotated, Any

import msgspec

from tideline.channel.checks import check_same
from tideline.clock import SECOND
from tideline.errors import Closed, InvalidRequest, NotFound, TidelineError
from tideline.server.access import Caller
from tideline.server.ops import ANY, Call, Op, Reply
from tideline.server.refusals import Refused, error_body, refusal
from tideline.server.shapes import (
    EventOut,
    Id,
    Place,
    Published,
    PublishIn,
    Seconds,
    SubscribeIn,
    SubscriptionOut,
    Time,
    channel_out,
    encode,
    event_out,
    parse_time,
    subscription_out,
    told_json,
    told_out,
    why,
)
from tideline.space import space_from_spec
from tideline.space.plain import from_plain, from_text

__all__ = ["OPS", "place_of", "where_of"]


class ChannelIn(msgspec.Struct, forbid_unknown_fields=True):
    """A channel to make, or settings it must have."""

    space: dict[str, Any] | None = None
    layout: str | None = None
    poll_s: float | None = None
    journal_s: float | None = None
    max_ahead_s: (
        Annotated[float | None, msgspec.Meta(description="null lifts the limit.")]
        | msgspec.UnsetType
    ) = msgspec.UNSET


class ChannelOut(msgspec.Struct):
    """A channel: what it is, what it holds, where its journal stands."""

    name: str
    space: dict[str, Any]
    layout: str
    journal_s: float
    max_ahead_s: float | None
    newest: str | None
    identity: str
    position: str | None
    earliest: str | None
    stats: dict[str, int]


_Event = Annotated[
    msgspec.Raw,
    msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/PublishIn"}),
]


class EventsIn(msgspec.Struct, forbid_unknown_fields=True):
    """Many events; each is read, stored or refused by itself."""

    events: list[_Event]


_Result = Annotated[
    Any,
    msgspec.Meta(
        extra_json_schema={
            "anyOf": [
                {"$ref": "#/components/schemas/Published"},
                {"$ref": "#/components/schemas/Error"},
            ]
        }
    ),
]


class Results(msgspec.Struct):
    """What came of many events, in their order: an answer or an error each."""

    results: list[_Result]


_decode_event = msgspec.json.Decoder(PublishIn).decode


class FoundEvents(msgspec.Struct):
    """Events, newest first."""

    events: list[EventOut]


class FindQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What to find."""

    place: Annotated[
        str,
        msgspec.Meta(description="A key; LON,LAT; circle:LON,LAT,RADIUS_M; box:W,S,E,N; or JSON."),
    ]
    since_s: Seconds | None = None
    since: Time | None = None
    until_s: Seconds | None = None
    until: Time | None = None
    where: Annotated[str, msgspec.Meta(description="A condition, as JSON.")] | None = None
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None


class ListQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Whose subscriptions, how many, and after which."""

    user: Id | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000
    after: Annotated[str, msgspec.Meta(description="`next` of the part before.")] | None = None


class SubscribedOut(SubscriptionOut):
    """A subscription, what it found in the past, and the token to go on from."""

    past: list[EventOut]
    token: str
    duplicate: bool


class ListedOut(SubscriptionOut):
    """A stored subscription in a list; `cursor` is where a list that ends with it goes on."""

    cursor: str


class Listed(msgspec.Struct):
    """Stored subscriptions, in order of arrival; `next` is null when these were the last."""

    subscriptions: list[ListedOut]
    next: str | None


class ChangeIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where a window ends from now on, or which place it watches; one of the two in a call."""

    until_s: Seconds | None = None
    until: Time | None = None
    place: Place | msgspec.UnsetType = msgspec.UNSET


def place_of(text: str, space: Any) -> Any:
    """A place from a query: text, or JSON in a space of shapes."""
    if space.spec()["kind"] in ("grid", "quadtree") and text[:1] in ("[", "{"):
        return from_plain(_json(text, "place"))
    return from_text(text, space)


def where_of(text: str | None) -> Any:
    """A condition from a query."""
    return None if text is None else _json(text, "where")


def _json(text: str, name: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRequest(f"{name} must be JSON: {why(error, text)}", **{name: text}) from None


# ---- channels ------------------------------------------------------------------------------


def _describe(channel: Any) -> dict[str, Any]:
    return channel_out(channel, stats=channel.stats())


async def list_channels(call: Call) -> list[dict[str, Any]]:
    hub = call.hub
    found = [c for name, c in sorted(hub.db._open.items()) if call.caller.may(ANY, name)]

    def run() -> list[dict[str, Any]]:
        described = []
        for channel in found:
            with contextlib.suppress(Closed):  # dropped meanwhile
                described.append(_describe(channel))
        return described

    return await hub.in_thread(run)


async def get_channel(call: Call) -> dict[str, Any]:
    return await call.hub.in_thread(_describe, call.channel)


async def put_channel(call: Call) -> Reply:
    db, name, body = call.hub.db, call.names["channel"], call.body or ChannelIn()
    options: dict[str, Any] = {"layout": body.layout, "journal_s": body.journal_s}
    if body.space is not None:
        options["space"] = space_from_spec(body.space)
    if body.poll_s is not None:
        options["poll_s"] = body.poll_s
    if body.max_ahead_s is not msgspec.UNSET:
        options["max_ahead_s"] = math.inf if body.max_ahead_s is None else body.max_ahead_s

    if not call.caller.may("admin", name):
        return await call.hub.in_thread(_as_given, call, options)

    def put() -> Reply:
        new = name not in db.channels()
        channel = db.channel(name, **options)
        return Reply(_describe(channel), status=201 if new else 200)

    return await call.hub.in_thread(put)


def _as_given(call: Call, given: dict[str, Any]) -> Reply:
    """For who may not make channels: whether one is there as given; nothing is changed."""
    name = call.names["channel"]
    try:
        found = call.hub.channel(name)
    except NotFound:
        call.caller.need("admin", name)
        raise
    kept_s = found.core.engine.journal_us / SECOND
    for setting, stored in (("journal_s", kept_s), ("max_ahead_s", found.max_ahead_s)):
        if given.get(setting) not in (None, stored):  # another value would change it
            call.caller.need("admin", name)
    check_same(found, given.get("space"), given["layout"])
    return Reply(_describe(found))


async def drop_channel(call: Call) -> Reply:
    await call.hub.in_thread(call.hub.db.drop_channel, call.names["channel"])
    return Reply({"dropped": call.names["channel"]})


# ---- events --------------------------------------------------------------------------------


async def publish(call: Call) -> Any:
    if isinstance(call.body, EventsIn):
        call.hub.work.may_wait()
        call.hub.limits.spend(call.caller, len(call.body.events) / 100)
        return await call.hub.long(
            call.caller, call.channel, _publish_many, call.channel, call.body, call.caller
        )
    call.caller.need_related(call.body.related, call.channel.name)
    call.caller.need_all_events(call.body.replace)
    told = await call.hub.write(call.caller, call.channel, call.body.call, call.channel)
    event = call.hub.wires(call.channel, "live").text_of(told.event)
    return Reply(data=told_json(told, event, call.caller.user) + b"\n")


def _publish_many(channel: Any, body: EventsIn, caller: Caller) -> dict[str, Any]:
    results: list[Any] = []
    for raw in body.events:
        try:
            event = _event(raw)
            caller.need_related(event.related, channel.name)
            caller.need_all_events(event.replace)
            results.append(told_out(event.call(channel), caller.user))
        except (TidelineError, Refused) as error:
            told = refusal(error)
            assert told is not None
            results.append(error_body(told))
    return {"results": results}


def _event(raw: msgspec.Raw) -> PublishIn:
    """One of many events, as it was sent."""
    try:
        return _decode_event(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRequest(f"not an event: {why(error, bytes(raw))}") from None


async def find(call: Call) -> dict[str, Any]:
    query, channel = call.query, call.channel

    def run() -> list[EventOut]:
        found = channel.find(
            place_of(query.place, channel.space), since_s=query.since_s,
            since=parse_time(query.since, "since"), until_s=query.until_s,
            until=parse_time(query.until, "until"), where=where_of(query.where),
            limit=query.limit,
        )  # fmt: skip
        return [event_out(event) for event in found]

    return {"events": await call.hub.long(call.caller, channel, run)}


async def get_event(call: Call) -> Any:
    id, channel = call.names["id"], call.channel
    event = await call.hub.write(call.caller, channel, channel.get, id)
    if event is None:
        raise NotFound("no valid event has this id", id=id)
    return event_out(event)


async def retract(call: Call) -> Reply:
    call.caller.need_all_events()
    id, channel = call.names["id"], call.channel
    await call.hub.write(call.caller, channel, channel.retract, id)
    return Reply({"retracted": id})


# ---- subscriptions -------------------------------------------------------------------------


async def subscribe(call: Call) -> Reply:
    user = call.caller.acting_for(call.body.user)
    handle = await call.hub.subscribe(call.body, call.channel, user, call.caller)

    def reply() -> Reply:
        document = {
            **msgspec.structs.asdict(subscription_out(handle)),
            "past": [event_out(event) for event in handle.past],
            "token": f"{handle.first_seq:018d}",
            "duplicate": handle.duplicate,
        }
        return Reply(data=encode(document) + b"\n", status=200 if handle.duplicate else 201)

    return reply() if handle.has_decoded_past else await call.hub.in_thread(reply)


async def list_subscriptions(call: Call) -> Listed:
    user = call.query.user
    if call.caller.user is not None:
        user = call.caller.acting_for(user)
    limit, after = call.query.limit, call.query.after

    def run() -> Listed:
        found = call.channel.subscriptions(user, limit=limit + 1, after=after)
        listed = [
            ListedOut(**msgspec.structs.asdict(subscription_out(info)), cursor=info.cursor)
            for info in found[:limit]
        ]
        return Listed(listed, listed[-1].cursor if len(found) > limit else None)

    return await call.hub.in_thread(run)


async def get_subscription(call: Call) -> SubscriptionOut:
    id = call.names["id"]
    info = await call.hub.write(call.caller, call.channel, call.channel.subscription, id)
    call.caller.check_own(info.user, info.id)
    return subscription_out(info)


async def cancel(call: Call) -> Reply:
    id = call.names["id"]
    await call.hub.cancel(call.channel, id, call.caller)
    return Reply({"cancelled": id})


async def change(call: Call) -> SubscriptionOut:
    id, asked = call.names["id"], call.body
    if asked.place is msgspec.UNSET:
        return subscription_out(await call.hub.prolong(call.channel, id, call.caller, asked))
    if asked.until_s is not None or asked.until is not None:
        raise InvalidRequest("give place, or until_s or until: one change in a call", id=id)
    return subscription_out(await call.hub.move(call.channel, id, call.caller, asked.place))


_C = "/v1/channels/{channel}"

OPS = [
    Op("GET", "/v1/channels", "The channels the token has a scope for.", list_channels, scope=ANY,
       gives=list[ChannelOut]),
    Op("PUT", _C, "Make a channel (admin), or check that it is as given.", put_channel, scope=ANY,
       takes=(ChannelIn | None,), gives=ChannelOut, statuses=(200, 201), refuses=(409,)),
    Op("GET", _C, "What a channel is and holds.", get_channel, scope=ANY, gives=ChannelOut),
    Op("DELETE", _C, "Drop a channel with everything in it.", drop_channel, scope="admin",
       gives=dict[str, str]),
    Op("POST", f"{_C}/events", "Publish an event, or many.", publish, scope="publish",
       takes=(PublishIn, EventsIn), gives=(Published, Results), refuses=(409,), large=True,
       at_once=True),
    Op("GET", f"{_C}/events", "Find valid events, newest first.", find, scope="read",
       query=FindQuery, gives=FoundEvents),
    Op("GET", f"{_C}/events/{{id}}", "One event, if it is still valid.", get_event, scope="read",
       gives=EventOut, at_once=True),
    Op("DELETE", f"{_C}/events/{{id}}", "Retract an event.", retract, scope="publish",
       gives=dict[str, str], at_once=True),
    Op("POST", f"{_C}/subscriptions", "Store a subscription; answers with its past.", subscribe,
       scope="subscribe", takes=(SubscribeIn,), gives=SubscribedOut, statuses=(200, 201),
       refuses=(409,)),
    Op("GET", f"{_C}/subscriptions", "The stored subscriptions.", list_subscriptions,
       scope="subscribe", query=ListQuery, gives=Listed),
    Op("GET", f"{_C}/subscriptions/{{id}}", "One subscription.", get_subscription,
       scope="subscribe", gives=SubscriptionOut, at_once=True),
    Op("DELETE", f"{_C}/subscriptions/{{id}}", "End a subscription.", cancel, scope="subscribe",
       gives=dict[str, str], at_once=True),
    Op("PATCH", f"{_C}/subscriptions/{{id}}", "Move the end of a window, or its place.", change,
       scope="subscribe", takes=(ChangeIn,), gives=SubscriptionOut, at_once=True),
]  # fmt: skip
