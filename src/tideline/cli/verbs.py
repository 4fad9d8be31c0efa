"""The verbs of a channel, one command each.

    tideline publish         Channel.publish
    tideline subscribe       Channel.subscribe, then iteration
    tideline find            Channel.find
    tideline event           Channel.get
    tideline retract         Channel.retract
    tideline subscriptions   Channel.subscriptions
    tideline cancel          Channel.cancel
    tideline prolong         Channel.prolong
    tideline move            Channel.move
    tideline resume          Channel.resume, then iteration
    tideline apply           Channel.apply

JSON lines in and out; see output.py and session.py for their fields.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.cli.command import AsJson, Database, add
from tideline.cli.manage import Name
from tideline.cli.output import (
    answer_line,
    event_fields,
    line,
    print_all,
    show,
    subscribed_line,
    subscription_fields,
    told_line,
    warn,
)
from tideline.cli.parse import parse_json, parse_place, parse_time
from tideline.cli.session import Publish, do_publish, failed, input_lines, read_line
from tideline.cli.store import check_exists, existing, open_channel, open_database
from tideline.errors import InvalidRequest, NotFound, TidelineError

__all__ = ["register"]

_PLACE = "A key or path; LON,LAT; circle:LON,LAT,RADIUS_M; box:W,S,E,N; GeoJSON."
Place = Annotated[str, typer.Argument(metavar="PLACE", help=_PLACE)]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the subscription.")]
SinceS = Annotated[float | None, typer.Option(help="Window start, seconds from now (-600: past).")]
Since = Annotated[str | None, typer.Option(help="Window start, ISO 8601 or seconds since 1970.")]
UntilS = Annotated[float | None, typer.Option(help="Window limit, seconds from now.")]
Until = Annotated[str | None, typer.Option(help="Window limit, ISO 8601 or seconds since 1970.")]
Where = Annotated[str | None, typer.Option(metavar="JSON", help="Condition on the body.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Past answers only, then stop.")]
Retractions = Annotated[
    bool, typer.Option("--retractions", help="Also tell when an event that was told is retracted.")
]
EventId = Annotated[str, typer.Argument(metavar="ID", help="The id of the event.")]
Stdin = Annotated[
    bool, typer.Option("--stdin", help="Publish the JSON lines on stdin while waiting.")
]


def register(app: typer.Typer) -> None:
    """Hang the commands of this file on the command line."""
    for command in (
        publish, subscribe, find, event, retract, subscriptions, cancel, prolong, move, resume,
        apply,
    ):  # fmt: skip
        add(app, command)


def publish(
    database: Database,
    channel: Name,
    place: Annotated[str | None, typer.Argument(metavar="PLACE", help=_PLACE)] = None,
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="Any JSON; without it, lines on stdin.")
    ] = None,
    id: Annotated[str | None, typer.Option(help="An id of your own: a safe retry.")] = None,
    at: Annotated[str | None, typer.Option(help="When it happened (now).")] = None,
    ttl_s: Annotated[float | None, typer.Option(help="Valid for so many seconds.")] = None,
    until: Annotated[str | None, typer.Option(help="Valid until then (always).")] = None,
    related: Annotated[
        bool, typer.Option("--related", help="Also the valid earlier events at this place.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="In the place of the event that has this id.")
    ] = False,
) -> None:
    """Store an event and print who must be told.

    Twin of Channel.publish.

    Without BODY, each line on stdin is an event: {"place": ..., "body": ..., "id": ..., "at": ...,
    "ttl_s": ..., "until": ..., "related": ..., "replace": ...}; the options fill in what a line
    leaves out.
    A bad line is reported on stderr and the others land.
    """
    base = Publish(place=place, id=id, at=at, ttl_s=ttl_s, until=until, related=related,
                   replace=replace)  # fmt: skip
    with open_channel(database, channel) as opened:
        if body is not None:
            base.body = parse_json(body, "body")
            line(told_line(do_publish(opened, base)))
            return
        if sys.stdin is None or sys.stdin.isatty():
            raise InvalidRequest("give a BODY, or JSON lines on stdin")
        first_error: TidelineError | None = None
        for number, text in input_lines():
            try:
                request = read_line(Publish, text).over(base)
                line(told_line(do_publish(opened, request)))
            except TidelineError as error:
                warn(type(error).__name__, f"line {number}: {error}")
                first_error = first_error or error
        if first_error is not None:
            raise failed(first_error)


def subscribe(
    database: Database,
    channel: Name,
    place: Place,
    user: Annotated[str, typer.Option(help="Who asks.")],
    id: Annotated[str | None, typer.Option(help="An id of your own: a safe retry.")] = None,
    since_s: SinceS = None,
    since: Since = None,
    until_s: UntilS = None,
    until: Until = None,
    where: Where = None,
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Leave out what this user already got.")
    ] = False,
    retractions: Retractions = False,
    no_wait: NoWait = False,
    stdin: Stdin = False,
) -> None:
    """Ask about past and future: past answers, then live ones.

    Twin of Channel.subscribe.

    Waits until the window ends or Ctrl-C. This process owns a folder meanwhile, so live answers
    come from --stdin; to share it between programs, serve it and give the address of the server,
    or use `tideline session`.
    """
    with open_channel(database, channel) as opened:
        subscription = opened.subscribe(
            parse_place(place, opened.space),
            user=user,
            id=id,
            since_s=since_s,
            since=parse_time(since, "since"),
            until_s=until_s,
            until=parse_time(until, "until"),
            where=None if where is None else parse_json(where, "where"),
            unseen=unseen,
            retractions=retractions,
        )
        _follow(opened, subscription, no_wait=no_wait, stdin=stdin)


def resume(
    database: Database,
    channel: Name,
    id: Id,
    after: Annotated[str | None, typer.Option(help="The token of the last event received.")] = None,
    retractions: Retractions = False,
    no_wait: NoWait = False,
    stdin: Stdin = False,
) -> None:
    """Go on with a stored subscription, with what it missed.

    Twin of Channel.resume.
    """
    with open_channel(database, channel) as opened:
        subscription = opened.resume(id, after=after, retractions=retractions)
        _follow(opened, subscription, no_wait=no_wait, stdin=stdin)


def find(
    database: Database,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of a channel or a collection.")
    ],
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="PLACE",
            help="A key or path; LON,LAT; circle:LON,LAT,RADIUS_M; box:W,S,E,N; GeoJSON. Of a "
            "collection, a condition as JSON; without one all documents are found.",
        ),
    ] = None,
    since_s: SinceS = None,
    since: Since = None,
    until_s: UntilS = None,
    until: Until = None,
    where: Where = None,
    limit: Annotated[int | None, typer.Option(help="At most so many.")] = None,
) -> None:
    """Ask once and store nothing, newest first.

    Twin of Channel.find. NAME may also be a collection: then PLACE is a condition, as JSON, and
    documents are found. Those of a condition with $near come nearest first, with the metres.
    """
    with open_database(database) as found:
        if name not in found.channels():
            check_exists(found, name)
            if any(value is not None for value in (since_s, since, until_s, until, where)):
                raise InvalidRequest(
                    "documents are found by one condition: a window and --where are for a channel",
                    collection=name,
                )
            _find_documents(found.collection(name), name, "{}" if place is None else place, limit)
            return
        if place is None:
            raise InvalidRequest("a channel is asked about a place: give PLACE", channel=name)
        opened = existing(found, name)
        events = opened.find(
            parse_place(place, opened.space),
            since_s=since_s,
            since=parse_time(since, "since"),
            until_s=until_s,
            until=parse_time(until, "until"),
            where=None if where is None else parse_json(where, "where"),
            limit=limit,
        )
        print_all(map(event_fields, events), title=name)


def _find_documents(collection: Any, name: str, where: str, limit: int | None) -> None:
    """Documents, nearest first and with the distance where the condition has a `$near`."""
    from tideline.where import parse

    try:
        condition = parse_json(where, "where")
    except InvalidRequest as error:
        raise InvalidRequest(f"{name} is a collection: {error}") from None
    near = parse(condition).near
    fields = None if near is None else {"metres": {"$meta": "geoNearDistance"}}
    found = collection.find(condition, limit=limit, fields=fields)
    if near is not None:  # the distance first
        found = [{"metres": round(one.pop("metres"), 3), **one} for one in found]
    show(found, title=name, as_json=False, wide=60)


def event(database: Database, channel: Name, id: EventId) -> None:
    """One event by its id, while it is valid.

    Twin of Channel.get.
    """
    with open_channel(database, channel) as opened:
        found = opened.get(id)
        if found is None:
            raise NotFound("no valid event with this id", id=id)
        line(event_fields(found))


def retract(database: Database, channel: Name, id: EventId) -> None:
    """End an event before its time.

    Twin of Channel.retract.
    """
    with open_channel(database, channel) as opened:
        opened.retract(id)
        line({"kind": "retracted", "event": id})


def subscriptions(
    database: Database,
    channel: Name,
    user: Annotated[str | None, typer.Option(help="Only those of this user.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the stored subscriptions.

    Twin of Channel.subscriptions.
    """
    with open_channel(database, channel) as opened:
        rows = [subscription_fields(info) for info in opened.subscriptions(user=user)]
        show(rows, title="subscriptions", as_json=as_json)


def cancel(database: Database, channel: Name, id: Id) -> None:
    """End a subscription before its time.

    Twin of Channel.cancel.
    """
    with open_channel(database, channel) as opened:
        opened.cancel(id)
        line({"kind": "cancelled", "subscription": id})


def prolong(
    database: Database, channel: Name, id: Id, until_s: UntilS = None, until: Until = None
) -> None:
    """Move the end of a subscription's window, to a later or an earlier time.

    Twin of Channel.prolong.
    """
    with open_channel(database, channel) as opened:
        info = opened.prolong(id, until_s=until_s, until=parse_time(until, "until"))
        line({"kind": "prolonged", "subscription": subscription_fields(info)})


def move(database: Database, channel: Name, id: Id, place: Place) -> None:
    """Have a subscription watch another place from now on.

    Twin of Channel.move.
    """
    with open_channel(database, channel) as opened:
        info = opened.move(id, parse_place(place, opened.space))
        line({"kind": "moved", "subscription": subscription_fields(info)})


def apply(
    database: Database,
    channel: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help=".parquet .arrow .csv .jsonl")],
    out: Annotated[
        Path | None, typer.Option(help="Write the answers here (.parquet or .arrow), print none.")
    ] = None,
    batch_rows: Annotated[int, typer.Option(help="Rows a call.", min=1)] = 10_000,
) -> None:
    """Run a file of operations in order.

    Twin of Channel.apply.

    Prints the answers as JSON lines; rejected rows are reported on stderr and the others land. In
    .jsonl, body and where are JSON values; in the others they are columns of JSON text.
    """
    from tideline.cli.batch import apply_table, read_operations, write_table

    with open_channel(database, channel) as opened:
        operations = read_operations(file)
        answers, rejected = apply_table(opened, operations, batch_rows=batch_rows)
        if out is not None:
            write_table(answers, out)
        else:
            for batch in answers.to_batches():
                for record in batch.to_pylist():
                    line(record)
        for record in rejected:
            warn("InvalidRequest", f"row {record['row']}: {record['reason']}")
        total = operations.table.num_rows
        print(
            f"applied {total - len(rejected)} of {total} rows, {answers.num_rows} answers",
            file=sys.stderr,
        )
        if rejected:
            raise failed(InvalidRequest("rows were rejected"))


def _follow(channel: Any, subscription: Any, *, no_wait: bool, stdin: bool) -> None:
    """Print a subscription's past answers, then its live ones until it ends."""
    line(subscribed_line(subscription))
    for event in subscription.past:
        line(answer_line("past", subscription, event))
    if stdin:
        first_error: TidelineError | None = None
        for number, text in input_lines():
            try:
                do_publish(channel, read_line(Publish, text))
            except TidelineError as error:
                warn(type(error).__name__, f"line {number}: {error}")
                first_error = first_error or error
            for event in subscription.take():
                line(answer_line(_kind(event), subscription, event))
        if first_error is not None:
            raise failed(first_error)
    elif not no_wait:
        for event in subscription:
            line(answer_line(_kind(event), subscription, event))


def _kind(event: Any) -> str:
    return "retracted" if event.retracted else "live"
