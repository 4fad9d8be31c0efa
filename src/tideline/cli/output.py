"""Values as JSON lines (for programs) and as tables (for people).

A line of answers:

    {"kind": "subscribed", "subscription": {"id": ..., "user": ..., ...}}
    {"kind": "past" | "live", "subscription": "s1", "user": "u17", "event": {...}}
    {"kind": "told", "event": {...}, "subscriptions": [...], "related": [...], "duplicate": false}

Times are ISO 8601 in UTC; a time that never comes is null. Places are printed so that they can be
read back (parse.py). Each line is flushed, so a reader at the other end of a pipe sees it at once.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from tideline.space.plain import to_plain

__all__ = [
    "STYLE",
    "ReaderGone",
    "answer_line",
    "cell",
    "clean",
    "event_fields",
    "line",
    "place_fields",
    "plain",
    "print_all",
    "show",
    "space_fields",
    "subscribed_line",
    "subscription_fields",
    "time_text",
    "told_line",
    "warn",
]

STYLE = {"tables": False}
"""`tables`: whether documents and events are shown as tables on a terminal (`tideline shell`)."""
_PAGE = 500  # rows of a table
_WIDE = 8  # a record with more fields than this is shown down the page


class ReaderGone(Exception):
    """Nobody reads our output any more, as in `tideline find ... | head -1`."""


def line(record: Any) -> None:
    """Print one JSON line and hand it on at once."""
    text = msgspec.json.encode(record, enc_hook=plain).decode()
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None


def print_all(records: Iterable[Any], *, title: str) -> None:
    """Print each as a JSON line, or in `tideline shell`, on a terminal, all as a table."""
    if not (STYLE["tables"] and sys.stdout.isatty()):
        for record in records:
            line(record)
        return
    rows = ({"": row} if not isinstance(row, Mapping) else row for row in records)
    part = list(itertools.islice(rows, _PAGE))
    show(part, title=title, as_json=False, wide=_PAGE)
    while len(part) == _PAGE and (part := list(itertools.islice(rows, _PAGE))):
        show(part, title=f"{title}, more", as_json=False, wide=_PAGE)


def warn(kind: str, message: str) -> None:
    """One line on stderr, as every error is shown."""
    text = message.replace("\n", " ")
    print(f"tideline: {kind}: {text}", file=sys.stderr, flush=True)


def show(
    rows: Iterable[Mapping[str, Any]], *, title: str, as_json: bool, wide: int = _WIDE
) -> None:
    """A table when a person is looking, JSON lines when a program reads (or `--json`).

    Records with more fields than `wide` are shown down the page.
    """
    records = list(rows)
    if as_json or not sys.stdout.isatty():
        for record in records:
            line(record)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def shown(text: str) -> Text:
        """As it is: brackets are no markup, and nothing in it moves the cursor."""
        lines = text.split("\n")
        return Text("\n".join(map(_printable, lines)), overflow="fold")

    table = Table(title=shown(title), title_justify="left")
    if records and len(records[0]) > wide:
        # Many fields of few things read better down the page: a column each.
        name, *fields = records[0]
        table.add_column(shown(name))
        for record in records:
            table.add_column(shown(str(record[name])), justify="right")
        for field in fields:
            table.add_row(shown(field), *(shown(cell(record[field])) for record in records))
    elif records:
        # Channels of different spaces have different fields.
        names = list(dict.fromkeys(name for record in records for name in record))
        for name in names:
            table.add_column(shown(name))
        for record in records:
            table.add_row(*(shown(cell(record.get(name))) for name in names))
    Console().print(table if records else shown(f"{title}: none"))


def told_line(told: Any) -> dict[str, Any]:
    """What `Channel.publish` returned."""
    return {
        "kind": "told",
        "event": event_fields(told.event),
        "subscriptions": [{"id": s.id, "user": s.user} for s in told.subscriptions],
        "related": [event_fields(event) for event in told.related],
        "duplicate": told.duplicate,
    }


def subscribed_line(subscription: Any) -> dict[str, Any]:
    """What `Channel.subscribe` or `Channel.resume` returned, without its answers."""
    return {"kind": "subscribed", "subscription": subscription_fields(subscription)}


def answer_line(kind: str, subscription: Any, event: Any) -> dict[str, Any]:
    """One answer: an event that met a subscription."""
    return {
        "kind": kind,
        "subscription": subscription.id,
        "user": subscription.user,
        "event": event_fields(event),
    }


def event_fields(event: Any) -> dict[str, Any]:
    return {
        "id": event.id,
        "place": place_fields(event.place),
        "at": time_text(event.at),
        "until": time_text(event.until),
        "body": event.body,
        "token": event.token,
    }


def subscription_fields(subscription: Any) -> dict[str, Any]:
    return {
        "id": subscription.id,
        "user": subscription.user,
        "place": place_fields(subscription.place),
        "since": time_text(subscription.since),
        "until": time_text(subscription.until),
        "where": subscription.where,
        "unseen": subscription.unseen,
    }


def place_fields(place: Any) -> Any:
    """A place as JSON that `parse_place` reads back.

    >>> place_fields((-73.98, 40.75))
    [-73.98, 40.75]
    >>> place_fields("sports/soccer")
    'sports/soccer'
    """
    return to_plain(place)


def space_fields(space: Any) -> dict[str, Any]:
    """A space as the options that made it.

    >>> from tideline.space import Flat
    >>> space_fields(Flat())
    {'space': 'flat'}
    """
    fields = dict(space.spec())
    return {"space": fields.pop("kind"), **fields}


def time_text(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC, always with microseconds so that texts order as times do.

    >>> time_text(datetime(2026, 1, 2, tzinfo=UTC))
    '2026-01-02T00:00:00.000000Z'
    """
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """Our own values (stats, reports) as plain dictionaries, for the encoder."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "item"):  # numpy scalars
        return value.item()
    if hasattr(value, "_asdict"):
        return value._asdict()
    return str(value)


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def clean(text: str, most: int) -> str:
    """A text for a terminal: one line, no control characters, not too long.

    >>> clean("a\\x1b[31m\\nb" + "c" * 9, 8)
    'a [31m …'
    """
    words = " ".join(_printable(text[: 4 * most]).split())
    return words if len(words) <= most else words[: most - 1] + "…"


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


def cell(value: Any) -> str:
    """A value as a table shows it.

    >>> from tideline.model import IndexStats
    >>> cell((IndexStats("user", "lazy", "ready", components=3, bytes_disk=4096),))
    'field user, kind lazy, state ready, components 3, bytes_disk 4,096, ...'
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    if isinstance(value, (list, tuple)):
        return "\n".join(map(cell, value)) if any(map(_is_record, value)) else ", ".join(
            str(part) for part in value
        )  # fmt: skip
    if _is_record(value):
        return ", ".join(
            f"{name} {cell(part)}" for name, part in plain(value).items() if part != {}
        )
    return str(value)
