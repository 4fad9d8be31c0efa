"""What a client may say on WebSocket /v1/live: one JSON object a frame, `do` says what.

Checked as it is decoded; what is wrong is refused with the request's tag, if that can be read.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

import msgspec

from tideline.errors import InvalidRequest
from tideline.live.query import GroupQuery, Query
from tideline.near import did_you_mean
from tideline.server.collection_rules import Rule
from tideline.server.shapes import Place, PublishIn, SubscribeIn, near, why

__all__ = [
    "Cancel",
    "Changes",
    "Hello",
    "Move",
    "Prolong",
    "Publish",
    "Release",
    "Request",
    "Resume",
    "Subscribe",
    "Sync",
    "Watch",
    "WatchGroups",
    "WatchWindow",
    "read_request",
]


class Request(msgspec.Struct, tag_field="do", forbid_unknown_fields=True, kw_only=True):
    """A request; everything about it is answered with its tag."""

    tag: int | str


class Publish(PublishIn, tag_field="do", tag="publish", forbid_unknown_fields=True, kw_only=True):
    """Publish an event."""

    tag: int | str
    channel: str


class Subscribe(
    SubscribeIn, tag_field="do", tag="subscribe", forbid_unknown_fields=True, kw_only=True
):
    """Make a subscription and follow it here."""

    tag: int | str
    channel: str


class Resume(Request, tag="resume"):
    """Follow a stored subscription here, with what came after a token."""

    channel: str
    id: str
    after: str | None = None
    retractions: bool = False


class Changes(Request, tag="changes"):
    """Follow the changes of a collection here, after a seq or from now on."""

    collection: str
    after: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] | None = None
    before: bool = False
    identity: str | None = None


_Seq = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Span = Annotated[float, msgspec.Meta(gt=0, lt=1e11)]


class _Watching(Request, kw_only=True):
    """A live query; `after` a version, it goes on from there."""

    collection: str
    where: Any = None
    ttl_s: _Span | None = None
    after: _Seq | None = None
    identity: str | None = None
    first: bool | None = None
    """Whether the result is sent; by default, when there is no `after` or it is too long ago."""
    done: _Seq = 0
    """How many changes of the version after `after` the client has already."""
    exact: bool = True
    """Whether these are as the server told them."""

    def _where(self, rule: Rule | None) -> Any:
        return self.where if rule is None else rule.also(self.where)


class Watch(_Watching, tag="watch", kw_only=True):
    """Watch a query of documents."""

    sort: Any = None
    limit: Any = None
    offset: Any = 0
    slack: Any = None

    def query(self, key: str, rule: Rule | None) -> Query:
        """What is asked, checked; with a rule that documents must meet."""
        return Query.of(
            key, self._where(rule), sort=self.sort, limit=self.limit, offset=self.offset,
            slack=self.slack,
        )  # fmt: skip


class WatchGroups(_Watching, tag="watch_groups", kw_only=True):
    """Watch groups of documents."""

    by: Any
    count: Any = False
    sum: Any = None
    avg: Any = None
    min: Any = None
    max: Any = None

    def query(self, key: str, rule: Rule | None) -> GroupQuery:
        """What is asked, checked; with a rule that documents must meet."""
        return GroupQuery.of(
            self._where(rule), by=self.by, count=self.count, sum=self.sum, avg=self.avg,
            min=self.min, max=self.max,
        )  # fmt: skip


class WatchWindow(Request, tag="watch_window", kw_only=True):
    """Be told what becomes of a range of a stream window, or of a condition, at each slide."""

    window: str
    keys: Any = None
    map: Any
    where: Any = None
    newest: Any = False
    last_s: Any = None


class Cancel(Request, tag="cancel"):
    """End the subscription of a tag, or stop following changes or a live query."""


class Release(Request, tag="release"):
    """Stop following; the subscription stays stored."""


class Prolong(Request, tag="prolong"):
    """Move the end of the subscription's window, or of a live query (`ttl_s`, null: it stays)."""

    until_s: float | None = None
    until: str | None = None
    ttl_s: _Span | msgspec.UnsetType | None = msgspec.UNSET

    def span_s(self) -> float | None:
        """How long a live query stays, from now on; it is never left to a slip to stay for ever."""
        if self.ttl_s is msgspec.UNSET or self.until_s is not None or self.until is not None:
            raise InvalidRequest(
                "a live query is prolonged by ttl_s: seconds, or null", tag=self.tag
            )
        return self.ttl_s

    def check_window(self) -> None:
        """`InvalidRequest` for what is no window of a subscription."""
        if self.ttl_s is not msgspec.UNSET:
            raise InvalidRequest("a subscription is prolonged by until_s or until", tag=self.tag)


class Move(Request, tag="move"):
    """Have the subscription watch another place."""

    place: Place


class Sync(Request, tag="sync"):
    """Answer when everything before it has been sent."""


class Hello(Request, tag="hello", kw_only=True):
    """The first message of a client that could not send its token in a header."""

    token: str
    tag: int | str | None = None  # type: ignore[assignment]


class _Tagged(msgspec.Struct):
    tag: int | str | None = None
    do: str = ""


_decoder = msgspec.json.Decoder(
    Publish
    | Subscribe
    | Resume
    | Changes
    | Watch
    | WatchGroups
    | WatchWindow
    | Cancel
    | Release
    | Prolong
    | Move
    | Sync
    | Hello
)
_KINDS = {kind.__struct_config__.tag: kind for kind in get_args(_decoder.type)}
_decode_tag = msgspec.json.Decoder(_Tagged).decode


def read_request(text: str | bytes) -> Any:
    """A request from the text of a frame.

    >>> read_request('{"do": "cancel", "tag": 7}').tag
    7
    """
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        try:
            said = _decode_tag(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            said = _Tagged()
        meant = near(error, _KINDS[said.do]) if said.do in _KINDS else did_you_mean(said.do, _KINDS)
        refused = InvalidRequest(f"not a request: {why(error, text)}{meant}")
        refused.tag = said.tag  # type: ignore[attr-defined]
        raise refused from None
