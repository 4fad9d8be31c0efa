"""Values as they go over the wire, and back: places, times, events, errors.

    place   space/plain.py
    time    ISO 8601 text in UTC; null for never
    event   {id, place, at, until, body, token}
    error   {"error": {"kind": "NotFound", "message": "..."}}: the class of errors.py

What the caller gave is checked here only as far as it must be to become JSON; what it means
is for the server to check, with the same words as the library.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NoReturn

import msgspec

from tideline import errors
from tideline.clock import FOREVER, Seconds, from_us, span_s, to_us
from tideline.errors import InvalidRequest, TidelineError, Unauthorized, Unavailable
from tideline.model.channels import Event, LateEvent, RetractedEvent, SubscriptionInfo
from tideline.space import CELLS, Box, Circle, MultiPolygon, Polygon, Space
from tideline.space.geojson import from_mapping, interface_of
from tideline.space.plain import from_plain, to_plain
from tideline.space.shapes import pair_of

__all__ = [
    "Answer", "Message", "WireError", "WireEvent", "WireSubscription", "WireWatch", "encode",
    "error_of", "event_of", "info_of", "place_json", "raise_error", "time_text", "time_us",
    "window_json",
]  # fmt: skip

# What is not a class of errors.py: how a caller should take it.
_KINDS: dict[str, type[TidelineError]] = {
    "TooMany": Unavailable, "TooSlow": Unavailable, "Bug": Unavailable,
    "Forbidden": Unauthorized, "TooLarge": InvalidRequest, "NotAllowed": InvalidRequest,
}  # fmt: skip


class WireEvent(msgspec.Struct):
    """An event as the server writes it."""

    id: str
    place: Any
    at: datetime
    token: str
    until: datetime | None = None
    body: msgspec.Raw = msgspec.Raw(b"null")
    retracted: bool = False


class WireSubscription(msgspec.Struct):
    """What a subscription is."""

    id: str
    user: str
    place: Any = None
    since: datetime | None = None
    until: datetime | None = None
    where: dict[str, Any] | None = None
    unseen: bool = False
    duplicate: bool = False
    cursor: str = ""


class Listed(msgspec.Struct):
    """A part of a list of subscriptions, and where it goes on."""

    subscriptions: list[WireSubscription]
    next: str | None = None


class WireError(msgspec.Struct):
    """What went wrong."""

    kind: str = ""
    message: str = ""
    retry_after_s: float | None = None
    values: dict[str, Any] = {}


class Answer(msgspec.Struct):
    """Whom an event answered, as `publish` tells it."""

    event: WireEvent
    subscriptions: list[dict[str, str]] = []
    related: list[WireEvent] = []
    duplicate: bool = False


class WireWatch(msgspec.Struct):
    """What a live query is, once it stands."""

    identity: str
    version: int
    until: datetime | None = None
    resumed: bool = False
    result: bool = True
    """Whether a result follows."""


class WireProlonged(msgspec.Struct):
    """The new end of a subscription or a live query."""

    until: datetime | None = None


class Message(msgspec.Struct):
    """A message of the live connection; which fields it has says what it is."""

    tag: int | None = None
    event: WireEvent | None = None
    token: str | None = None
    subscribed: WireSubscription | None = None
    past_done: bool = False
    told: Answer | None = None
    ended: str | None = None
    synced: datetime | None = None
    error: WireError | None = None
    watching: WireWatch | None = None
    changes: list[list[Any]] | None = None
    result: list[Any] | None = None
    version: int = 0
    more: bool = False
    reset: bool = False
    prolonged: WireProlonged | None = None
    reached: dict[str, int] | None = None


def encode(value: Any) -> bytes:
    """A request as JSON; a value that has no JSON is the caller's mistake."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"the request is not JSON: {error}") from None


def place_json(place: Any, space: Space) -> Any:
    """A place as JSON, checked as far as that needs no compiled code.

    >>> from tideline.space import QuadTree
    >>> place_json([-73, 40.76], QuadTree(bounds=(-80, 40, -72, 48), depth=9))
    [-73.0, 40.76]
    """
    if isinstance(place, str):
        return place
    said = interface_of(place)
    if said is not None and space.mode == CELLS:
        place = from_mapping(said)
    if isinstance(place, (Circle, Box, Polygon, MultiPolygon)) and space.mode == CELLS:
        return to_plain(place)
    space.encode(place)  # says what is wrong; JSON has no NaN, and would make it null
    return list(pair_of(place))


def time_text(value: datetime, name: str) -> str:
    """A time as text, to the microsecond.

    >>> time_text(datetime(2026, 1, 2, 3, 4, 5), "at")
    '2026-01-02T03:04:05+00:00'
    """
    found = from_us(to_us(value, name))
    assert found is not None  # no datetime lies beyond the last one
    return found.isoformat()


def time_us(value: datetime | None, missing: int = FOREVER) -> int:
    """A time as microseconds; none is `missing`."""
    return missing if value is None else to_us(value, "time")


def window_json(
    since_s: Seconds | None = None, since: datetime | None = None, until_s: Seconds | None = None,
    until: datetime | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The fields of a window that were given; relative times are for the server's clock.

    >>> window_json(since_s=-60, until=datetime(2026, 1, 2))
    {'since_s': -60, 'until': '2026-01-02T00:00:00+00:00'}
    """
    fields: dict[str, Any] = {}
    for name, span in (("since_s", since_s), ("until_s", until_s)):
        if span is not None:
            fields[name] = span_s(span, name)
    for name, moment in (("since", since), ("until", until)):
        if moment is not None:
            fields[name] = time_text(moment, name)
    return fields


def event_of(wire: WireEvent) -> Event:
    """An event as users hold it; its body is decoded when somebody looks."""
    found, _, late = wire.token.partition(".")
    event = Event(
        wire.id, from_plain(wire.place), time_us(wire.at), time_us(wire.until), int(late or found),
        bytes(wire.body),
    )  # fmt: skip
    if not late:
        return event
    return (RetractedEvent if wire.retracted else LateEvent).of(event, int(found))


def info_of(wire: WireSubscription) -> SubscriptionInfo:
    """A stored subscription as users hold it."""
    return SubscriptionInfo(
        wire.id, wire.user, from_plain(wire.place), time_us(wire.since, -FOREVER),
        time_us(wire.until), wire.where or None, wire.unseen, wire.cursor,
    )  # fmt: skip


def error_of(
    kind: str, message: str, status: int = 0, retry_after_s: float | None = None
) -> TidelineError:
    """The error the server told of, as the class a database would have raised.

    >>> error_of("NotFound", "no such subscription. id='s1'")
    NotFound("no such subscription. id='s1'")
    >>> error_of("TooMany", "slow down", retry_after_s=2)
    Unavailable('slow down. retry_after_s=2')
    """
    if kind == "Corruption":
        return errors.Corruption(message, file="on the server")
    found = _KINDS.get(kind) or (getattr(errors, kind, None) if kind in errors.__all__ else None)
    if found is None and status in (401, 403):
        found = Unauthorized
    if found is None:
        found = Unavailable if status >= 500 or status == 429 else InvalidRequest
    if found is Unavailable and retry_after_s is not None:
        return Unavailable(message, retry_after_s=retry_after_s)
    return found(message)


def raise_error(status: int, body: bytes) -> NoReturn:
    """Raise what an answer that is not 2xx says; a body of another program is shown in part."""
    try:
        error = msgspec.json.decode(body, type=dict[str, WireError])["error"]
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError):
        said = body[:200].decode(errors="replace").strip()
        raise error_of("", f"the server answered {status}: {said or 'nothing'}", status) from None
    raise error_of(error.kind, error.message, status, error.retry_after_s)
