"""What a client may say on WebSocket /v1/live: one JSON object a frame, `do` says what.

Checked as it is decoded; what is wrong is refused with the request's tag, if that can be read.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tideline.errors import InvalidRequest
from tideline.server.shapes import Place, PublishIn, SubscribeIn, why

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


class Cancel(Request, tag="cancel"):
    """End the subscription of a tag, or stop following changes."""


class Release(Request, tag="release"):
    """Stop following; the subscription stays stored."""


class Prolong(Request, tag="prolong"):
    """Move the end of the subscription's window."""

    until_s: float | None = None
    until: str | None = None


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


_decode = msgspec.json.Decoder(
    Publish | Subscribe | Resume | Changes | Cancel | Release | Prolong | Move | Sync | Hello
).decode
_decode_tag = msgspec.json.Decoder(_Tagged).decode


def read_request(text: str | bytes) -> Any:
    """A request from the text of a frame.

    >>> read_request('{"do": "cancel", "tag": 7}').tag
    7
    """
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        refused = InvalidRequest(f"not a request: {why(error, text)}")
        try:
            refused.tag = _decode_tag(text).tag  # type: ignore[attr-defined]
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            refused.tag = None  # type: ignore[attr-defined]
        raise refused from None
