"""`tideline session`: many operations through one pipe, so that several programs share a folder.

One JSON line in, one or more JSON lines out, in order. `op` says which:

    {"op": "publish", "place": P, "body": B, "id", "at", "ttl_s", "until", "related"}
    {"op": "subscribe", "place": P, "user": U, "id", "since_s", "since", "until_s", "until",
     "where", "unseen"}
    {"op": "resume", "id": I, "after"}     {"op": "cancel", "id": I}
    {"op": "find", "place": P, "since_s", "since", "until_s", "until", "where", "limit"}
    {"op": "stats"}

Out: told, subscribed, past, live, found, cancelled, stats, ended, or error, each with the number
of the input line it belongs to. `live` lines go to the subscriptions made or resumed in this
session; `told` names every subscription. A failed line changes nothing and the session goes on; at
its end the exit code is that of the first error, and stderr says how many lines failed.

Single-threaded: answers are printed before the next line is read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from tideline.cli.command import Database, add
from tideline.cli.manage import Name
from tideline.cli.output import (
    answer_line,
    event_fields,
    line,
    plain,
    subscribed_line,
    told_line,
    warn,
)
from tideline.cli.parse import parse_place, parse_time
from tideline.cli.store import open_channel
from tideline.errors import InvalidRequest, TidelineError

__all__ = ["Publish", "do_publish", "failed", "input_lines", "read_line", "register"]

_Time = str | float | None
_T = TypeVar("_T")


class _Line(msgspec.Struct, tag_field="op", forbid_unknown_fields=True, kw_only=True):
    """A line of a session; `op` says which kind."""


class Publish(_Line, tag="publish", kw_only=True):
    place: Any = None
    body: Any = msgspec.UNSET
    id: str | None = None
    at: _Time = None
    ttl_s: float | None = None
    until: _Time = None
    related: bool = False
    replace: bool = False

    def over(self, base: Publish) -> Publish:
        """This line, with what it leaves out taken from the command's options."""
        ends = self.ttl_s is not None or self.until is not None
        return Publish(
            place=base.place if self.place is None else self.place,
            body=self.body,
            id=self.id or base.id,
            at=base.at if self.at is None else self.at,
            ttl_s=self.ttl_s if ends else base.ttl_s,
            until=self.until if ends else base.until,
            related=self.related or base.related,
            replace=self.replace or base.replace,
        )


class _Window(_Line, kw_only=True):
    place: Any
    since_s: float | None = None
    since: _Time = None
    until_s: float | None = None
    until: _Time = None
    where: Any = None

    def asked(self) -> dict[str, Any]:
        """The window and condition, as the library's arguments."""
        return {
            "since_s": self.since_s,
            "since": parse_time(self.since, "since"),
            "until_s": self.until_s,
            "until": parse_time(self.until, "until"),
            "where": self.where,
        }


class Subscribe(_Window, tag="subscribe", kw_only=True):
    user: str
    id: str | None = None
    unseen: bool = False


class Find(_Window, tag="find", kw_only=True):
    limit: int | None = None


class Resume(_Line, tag="resume", kw_only=True):
    id: str
    after: str | None = None


class Cancel(_Line, tag="cancel", kw_only=True):
    id: str


class Stats(_Line, tag="stats", kw_only=True):
    pass


_Any = Publish | Subscribe | Resume | Cancel | Find | Stats
_OPS = "publish, subscribe, resume, cancel, find, stats"


def register(app: typer.Typer) -> None:
    """Hang the command on the command line."""
    add(app, session)


def session(
    database: Database,
    channel: Name,
    stop_on_error: Annotated[
        bool, typer.Option("--stop-on-error", help="End at the first line that fails.")
    ] = False,
) -> None:
    """Many operations through one pipe: JSON lines in, JSON lines out.

    Several programs share a folder by writing to one pipe, for instance a named one: mkfifo ops;
    tideline session data roads < ops. Operations: publish, subscribe, resume, cancel, find, stats.

    A line that fails prints an error and the session goes on; its exit code is that of the first
    error, 0 if there was none.
    """
    failures = 0
    first: tuple[int, TidelineError] | None = None
    with open_channel(database, channel) as opened:
        held: dict[str, Any] = {}
        for number, text in input_lines():
            try:
                request = read_line(_Any, text)
                for record in _answer(opened, held, request):
                    line({"line": number, **record})
            except TidelineError as error:
                kind = type(error).__name__
                line({"line": number, "kind": "error", "error": kind, "message": str(error)})
                failures += 1
                first = first or (number, error)
                if stop_on_error:
                    break
    if first is not None:
        at, reason = first
        which = (
            f"line {at}" if failures == 1 else f"{failures} lines failed, the first is line {at}"
        )
        warn(type(reason).__name__, f"{which}: {reason}")
        raise failed(reason)


def _answer(channel: Any, held: dict[str, Any], request: Any) -> Iterator[dict[str, Any]]:
    """Do one operation; the records to print for it."""
    if isinstance(request, Publish):
        told = do_publish(channel, request)
        yield told_line(told)
        # `poll` tells nobody at publish: there each held subscription asks again.
        reached = {s.id for s in told.subscriptions} if channel.layout != "poll" else set(held)
        yield from _live(held, [key for key in held if key in reached])
    elif isinstance(request, Subscribe):
        made = channel.subscribe(
            parse_place(request.place, channel.space),
            user=request.user,
            id=request.id,
            unseen=request.unseen,
            **request.asked(),
        )
        yield from _hold(held, made)
    elif isinstance(request, Resume):
        yield from _hold(held, channel.resume(request.id, after=request.after))
    elif isinstance(request, Cancel):
        channel.cancel(request.id)
        held.pop(request.id, None)
        yield {"kind": "cancelled", "subscription": request.id}
    elif isinstance(request, Find):
        place = parse_place(request.place, channel.space)
        found = channel.find(place, limit=request.limit, **request.asked())
        yield {"kind": "found", "events": [event_fields(event) for event in found]}
    else:
        yield {"kind": "stats", **plain(channel.stats())}


def _hold(held: dict[str, Any], subscription: Any) -> Iterator[dict[str, Any]]:
    """Remember a subscription, so that its live answers are printed from here on."""
    held[subscription.id] = subscription
    yield subscribed_line(subscription)
    for event in subscription.past:
        yield answer_line("past", subscription, event)


def _live(held: dict[str, Any], ids: list[str]) -> Iterator[dict[str, Any]]:
    for key in ids:
        for event in held[key].take():
            yield answer_line("live", held[key], event)


def do_publish(channel: Any, request: Publish) -> Any:
    """`Channel.publish` with the fields of a line or the options of a command."""
    if request.place is None:
        raise InvalidRequest("place is missing; give PLACE, or a field `place` in each line")
    if request.body is msgspec.UNSET:
        raise InvalidRequest("body is missing; give BODY, or a field `body` in each line")
    return channel.publish(
        parse_place(request.place, channel.space),
        request.body,
        id=request.id,
        at=parse_time(request.at, "at"),
        ttl_s=request.ttl_s,
        until=parse_time(request.until, "until"),
        related=request.related,
        replace=request.replace,
    )


def input_lines() -> Iterator[tuple[int, bytes]]:
    """The lines of stdin that say something, with their numbers, as they arrive."""
    if sys.stdin is None:  # it was closed by whoever started this
        raise InvalidRequest("stdin is closed: give operations as JSON lines on it")
    for number, text in enumerate(iter(sys.stdin.buffer.readline, b""), start=1):
        if text.strip():
            yield number, text


def read_line(kind: Any, text: bytes) -> Any:
    """One JSON line as a request.

    >>> read_line(Publish, b'{"place": "a", "body": 1}').place
    'a'
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = text.decode(errors="replace").strip()
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        if "$.op`" in reason or "field `op`" in reason:
            reason = f"op must be one of {_OPS}"
        raise InvalidRequest(f"not an operation: {reason}", given=shown) from None


def failed(error: TidelineError) -> typer.Exit:
    """The end of a command whose errors have been shown already, with their exit code."""
    from tideline.cli.main import exit_code

    return typer.Exit(exit_code(error))
