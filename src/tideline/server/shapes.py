"""The JSON documents of the interface, both ways: what is read, and what is written.

Requests are checked as they are decoded: unknown fields, wrong types and missing fields are refused
before anything happens. The same classes make the OpenAPI description (openapi.py).

Times are ISO 8601 text in UTC, always with microseconds, so that texts order as times do; a time
that never comes is null. Places: space/plain.py.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from tideline.clock import FOREVER, from_us
from tideline.errors import InvalidRequest
from tideline.model import Event, SubscriptionInfo, Told
from tideline.near import nearest
from tideline.space.plain import from_plain, to_plain

__all__ = [
    "EventOut",
    "PublishIn",
    "Published",
    "SubscribeIn",
    "SubscriptionOut",
    "channel_out",
    "encode",
    "event_json",
    "event_out",
    "near",
    "parse_time",
    "subscription_out",
    "time_text",
    "told_json",
    "told_out",
    "why",
]

encode = msgspec.json.Encoder().encode
_LONG_AGO = -250_000_000_000 * 1_000_000

Place = Annotated[
    Any,
    msgspec.Meta(
        description='A key, [lon, lat], {"circle": [lon, lat, radius_m]}, {"box": [w, s, e, n]} or'
        ' a GeoJSON Polygon or MultiPolygon; also taken: {"lon", "lat"} and other GeoJSON.',
        extra_json_schema={
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
                {"type": "object"},
            ]
        },
    ),
]
Time = Annotated[str, msgspec.Meta(description="ISO 8601; without a zone it is UTC.")]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Seconds = Annotated[float, msgspec.Meta(description="Seconds from now; negative is the past.")]


class PublishIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An event to publish."""

    place: Place
    body: Any
    id: Id | None = None
    at: Time | None = None
    ttl_s: float | None = None
    until: Time | None = None
    related: bool = False
    replace: bool = False

    def call(self, channel: Any) -> Told:
        """`Channel.publish` with these fields."""
        told: Told = channel.publish(
            from_plain(self.place), self.body, id=self.id, at=parse_time(self.at, "at"),
            ttl_s=self.ttl_s, until=parse_time(self.until, "until"), related=self.related,
            replace=self.replace,
        )  # fmt: skip
        return told


class SubscribeIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A subscription to make. `user` may be left out with a token of one user."""

    place: Place
    user: Id | None = None
    id: Id | None = None
    since_s: Seconds | None = None
    since: Time | None = None
    until_s: Seconds | None = None
    until: Time | None = None
    where: dict[str, Any] | None = None
    unseen: bool = False
    retractions: bool = False

    def call(self, channel: Any, user: str) -> Any:
        """`Channel.subscribe` with these fields."""
        return channel.subscribe(
            from_plain(self.place), user=user, id=self.id, since_s=self.since_s,
            since=parse_time(self.since, "since"), until_s=self.until_s,
            until=parse_time(self.until, "until"), where=self.where, unseen=self.unseen,
            retractions=self.retractions,
        )  # fmt: skip


class EventOut(msgspec.Struct, omit_defaults=True):
    """An event. `until` is null when it stays valid for ever; `retracted` is told when it is so."""

    id: str
    place: Place
    at: Time
    until: Time | None
    body: Any
    token: str
    retracted: bool = False


class SubscriberOut(msgspec.Struct):
    """A subscription that was told."""

    id: str
    user: str


class Published(msgspec.Struct):
    """What came of an event: whom it answers. `related` when that was asked for."""

    event: EventOut
    subscriptions: list[SubscriberOut]
    related: list[EventOut]
    duplicate: bool


class SubscriptionOut(msgspec.Struct):
    """A stored subscription."""

    id: str
    user: str
    place: Place
    since: Time | None
    until: Time | None
    where: dict[str, Any] | None
    unseen: bool


def time_text(time_us: int) -> str | None:
    """Microseconds as text; None for a time that never comes, or that never was.

    >>> time_text(1_700_000_000_000_000)
    '2023-11-14T22:13:20.000000Z'
    """
    if not _LONG_AGO < time_us < FOREVER:
        return None
    second, micro = divmod(time_us, 1_000_000)
    text = _second_text(second)
    return None if text is None else f"{text}.{micro:06d}Z"


@lru_cache(4096)
def _second_text(second: int) -> str | None:
    """A second as text: most times that are told lie within few of them."""
    moment = from_us(second * 1_000_000)
    return None if moment is None else moment.isoformat(timespec="seconds")[:-6]


def parse_time(text: str | None, name: str) -> datetime | None:
    """ISO 8601 text as a datetime.

    >>> parse_time("2026-01-02T03:04:05Z", "at").isoformat()
    '2026-01-02T03:04:05+00:00'
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        raise InvalidRequest(f"{name} must be ISO 8601 text", **{name: text}) from None


# A backslash that is not itself escaped, and a half of a pair without the other.
_LONE = re.compile(
    rb"(?<!\\)(?:\\\\)*"
    rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)


def why(error: Exception, data: str | bytes) -> str:
    """What is wrong with a JSON text that could not be read.

    >>> text = b'{"body": "\\\\ud800"}'
    >>> try:
    ...     msgspec.json.decode(text)
    ... except msgspec.DecodeError as error:
    ...     why(error, text)
    'a text holds a lone surrogate: \\\\ud800 to \\\\udfff come in pairs'
    """
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if type(error) is msgspec.DecodeError:
        found = data.encode(errors="replace") if isinstance(data, str) else data
        if _LONE.search(found):
            return "a text holds a lone surrogate: \\ud800 to \\udfff come in pairs"
    return str(error)


_UNKNOWN = re.compile(r"Object contains unknown field `([^`]{1,64})`$")
_TWINS = {"skip": "offset", "offset": "skip"}


def near(error: Exception, kind: Any) -> str:
    """What a misspelt field of a request may have been meant to be.

    >>> near(msgspec.ValidationError("Object contains unknown field `tls_s`"), PublishIn)
    ': did you mean ttl_s?'

    `find` calls `skip` what live queries call `offset`.
    """
    found = _UNKNOWN.match(str(error))
    names = getattr(kind, "__struct_fields__", ())
    twin = _TWINS.get(found[1]) if found else None
    meant = twin if twin in names else nearest(found[1], names) if found else None
    return f": did you mean {meant}?" if meant else getattr(kind, "HINT", "") if found else ""


def event_out(event: Event) -> EventOut:
    """An event as a document; the body goes out as the text it came in as, but on one line."""
    raw = event.raw
    if raw and (b"\n" in raw or b"\r" in raw):
        raw = msgspec.json.format(raw, indent=-1)  # a line is a message, in streams
    body: Any = msgspec.Raw(raw) if raw else event.body
    until = time_text(event.until_us)
    return EventOut(
        event.id, to_plain(event.place), time_text(event.at_us) or "", until, body, event.token,
        event.retracted,
    )  # fmt: skip


def event_json(event: Event) -> bytes:
    """The same, encoded: put together from its parts, since every delivery needs one.

    >>> event = Event("e1", "I-87", 1_000_000, FOREVER, 7, b'{"lanes": 2}')
    >>> event_json(event) == encode(event_out(event))
    True
    """
    raw = event.raw
    if not raw or b"\n" in raw or b"\r" in raw or event.retracted:
        return encode(event_out(event))
    until = time_text(event.until_us)
    return b'{"id":%b,"place":%b,"at":"%b","until":%b,"body":%b,"token":"%b"}' % (
        encode(event.id),
        encode(to_plain(event.place)),
        (time_text(event.at_us) or "").encode(),
        b"null" if until is None else b'"%b"' % until.encode(),
        raw,
        event.token.encode(),
    )


def told_out(told: Told, user: str | None) -> Published:
    """What `publish` returned, as one user (None: anyone) may see it."""
    return Published(
        event_out(told.event),
        [SubscriberOut(s.id, s.user) for s in told.subscriptions if user is None or s.user == user],
        [event_out(event) for event in told.related],
        told.duplicate,
    )


def told_json(told: Told, event: bytes, user: str | None) -> bytes:
    """The same, encoded, when the event's own text is at hand."""
    named = [{"id": s.id, "user": s.user} for s in told.subscriptions if user in (None, s.user)]
    return b'{"event":%b,"subscriptions":%b,"related":%b,"duplicate":%b}' % (
        event,
        encode(named) if named else b"[]",
        encode([event_out(found) for found in told.related]) if told.related else b"[]",
        b"true" if told.duplicate else b"false",
    )


def subscription_out(found: SubscriptionInfo | Any) -> SubscriptionOut:
    """A subscription (a handle or what `Channel.subscriptions` lists) as a document."""
    return SubscriptionOut(
        found.id, found.user, to_plain(found.place), time_text(found.since_us),
        time_text(found.until_us), found.where, found.unseen,
    )  # fmt: skip


def channel_out(channel: Any, *, stats: Any) -> dict[str, Any]:
    """A channel as a document: what it is, what it holds, where its journal stands."""
    engine = channel.core.engine
    stored = channel.layout != "poll"
    return {
        "name": channel.name,
        "space": channel.space.spec(),
        "layout": channel.layout,
        "journal_s": engine.journal_us / 1_000_000,
        "max_ahead_s": None if channel.max_ahead_s == math.inf else channel.max_ahead_s,
        "newest": time_text(engine.newest),
        "identity": channel.identity,
        "position": channel.position() if stored else None,
        "earliest": channel.earliest() if stored else None,
        "stats": {name: getattr(stats, name) for name in stats.__dataclass_fields__},
    }
