"""Stream windows, one command a verb: `tideline window ...`.

    create   Database.window        list     Database.windows
    append   StreamWindow.append    get      StreamWindow.get
    range    StreamWindow.range     find     StreamWindow.find
    watch    StreamWindow.watch     stats    StreamWindow.stats
    drop     Database.drop_window

Rows go in and come out as JSON lines. A part of a KEY is JSON if it reads as JSON, else text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.cli.command import AsJson, Database, add
from tideline.cli.documents import BATCH, Where, condition_of, documents_in, kind_of, value_of
from tideline.cli.output import line, plain, print_all, show, warn
from tideline.cli.parse import parse_json
from tideline.cli.session import failed
from tideline.cli.store import open_database
from tideline.errors import InvalidRequest, NotFound
from tideline.near import did_you_mean

__all__ = ["register"]

_RANGE = re.compile(r"(-?\d+)[-:,](-?\d+)")  # as people write one who do not know ours
Name = Annotated[str, typer.Argument(metavar="WINDOW", help="The name of the window.")]
Keys = Annotated[
    list[str] | None, typer.Argument(metavar="KEY...", help="The first parts of the key, or all.")
]
Map = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MAPPER",
        help="count(), sum(F), mean(F), min(F), max(F), quantile(F, 0.9), top(10, F); repeatable.",
    ),
]
LastS = Annotated[
    float | None, typer.Option("--last-s", metavar="S", help="The last so many seconds of it.")
]
Newest = Annotated[
    bool, typer.Option("--newest", help="Of each key only its newest row counts.")
]  # fmt: skip
File = Annotated[Path | None, typer.Option(metavar="FILE", help=".jsonl, .parquet or .arrow")]


def register(app: typer.Typer) -> None:
    """Hang the commands of this file on the command line."""
    group = typer.Typer(
        help="Rows of the last so many seconds, by key.", no_args_is_help=True,
        rich_markup_mode=None,
    )  # fmt: skip
    for name, command in (
        ("create", create), ("list", list_), ("append", append), ("get", get), ("range", range_),
        ("find", find), ("watch", watch), ("stats", stats), ("drop", drop),
    ):  # fmt: skip
        add(group, command, name)
    app.add_typer(group, name="window")


@contextmanager
def _opened(database: str, name: str) -> Iterator[Any]:
    """A stored window, of a database that is open as long as it is used."""
    with open_database(database) as opened:
        names = opened.windows()
        if name not in names:
            raise NotFound(
                f"no such window; `tideline window create` makes one{did_you_mean(name, names)}",
                window=name, windows=names,
            )  # fmt: skip
        yield opened.window(name)


def create(
    database: Database,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the window.")],
    span_s: Annotated[float, typer.Option(metavar="S", help="It keeps rows for so long.")],
    key: Annotated[
        list[str],
        typer.Option(
            metavar="FIELD[=TYPE]",
            help="A field of the key, the first one first; repeatable. TYPE is int, text or a "
            "range, 0..15; without it, it is found.",
        ),
    ],
    slide_s: Annotated[
        float | None, typer.Option(metavar="S", help="It forgets in steps of so long (the span).")
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=TYPE", help="A value of a row: int32, float64 ..., point or "
                     "text; repeatable."),
    ] = None,
    index: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=KIND", help="An index on a point (spatial) or a text (words, "
                     "ngrams, fuzzy), for find; with settings: ngrams,n=2; repeatable."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="last|all", help="Of rows with one key in a sub-window (last)."),
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The field with the time of a row; clock.")
    ] = None,
    durable: Annotated[
        bool | None, typer.Option("--durable/--memory", help="On disk, or in memory only.")
    ] = None,
    max_ahead_s: Annotated[
        float | None,
        typer.Option(metavar="S", help="How far ahead of the clock rows may be; inf: no limit."),
    ] = None,
) -> None:  # fmt: skip
    """Make a stream window, and the database if there is none.

    Twin of Database.window.
    """
    fields = {name: _type_of(kind, each) for each in key for name, kind in [_split(each, "--key")]}
    values = {}
    for each in value or []:
        field, kind = _split(each, "--value")
        if kind is None:
            raise InvalidRequest("--value must be FIELD=TYPE", value=each)
        values[field] = kind
    indexes = {}
    for each in index or []:
        field, kind = _split(each, "--index", "FIELD=KIND")
        if kind is None:
            raise InvalidRequest("--index must be FIELD=KIND", value=each)
        indexes[field] = parse_json(kind, "index") if kind.startswith("{") else kind_of(kind)
    with open_database(database, create=True) as found:
        made = found.window(
            name, span_s=span_s, slide_s=slide_s, key=fields, values=values or None, keep=keep,
            time=time, durable=durable, max_ahead_s=max_ahead_s, indexes=indexes or None,
        )  # fmt: skip
        line({"name": made.name, **made.settings})


def _split(text: str, option: str, what: str = "FIELD=TYPE") -> tuple[str, str | None]:
    field, equals, kind = text.partition("=")
    if not field or (equals and not kind):
        raise InvalidRequest(f"{option} must be {what}", given=text)
    if not equals and (meant := re.fullmatch(r"(\w+):(.+)", field)):
        raise InvalidRequest(
            f"{option} is {what}, with '=': {meant[1]}={_range(meant[2])}; a field "
            f"with a colon in its name has its type beside it: {text}=text", given=text,
        )  # fmt: skip
    return field, kind or None


def _range(text: str) -> str:
    """A range as it is spelled here, of one that is spelled otherwise."""
    return _RANGE.sub(r"\1..\2", text)


def _type_of(kind: str | None, given: str) -> Any:
    if kind is not None and _RANGE.fullmatch(kind):
        raise InvalidRequest(f"a range is LEAST..GREATEST: {_range(kind)}", given=given)
    if kind is None or ".." not in kind:
        return kind
    low, _, high = kind.partition("..")
    try:
        return int(low), int(high)
    except ValueError:
        raise InvalidRequest("a range is LEAST..GREATEST", given=given) from None


def list_(database: Database, as_json: AsJson = False) -> None:
    """List the stream windows.

    Twin of Database.windows.
    """
    with open_database(database) as found:
        rows = [{"name": name, **found.window(name).settings} for name in found.windows()]
        show(rows, title="windows", as_json=as_json)


def append(
    database: Database,
    window: Name,
    row: Annotated[
        str | None, typer.Argument(metavar="ROW", help="JSON; without it, lines on stdin.")
    ] = None,
    file: File = None,
) -> None:
    """Append rows; those that are refused are told on stderr, with their line.

    Twin of StreamWindow.append. ROW may be an array of rows.
    """
    if row is not None and file is not None:
        raise InvalidRequest("give a ROW or --file, not both", file=str(file))
    stored = late = refused = 0
    with _opened(database, window) as opened:
        for numbers, rows, what in _rows_in(row, file):
            done = opened.append(rows)
            stored, late = stored + done.stored, late + done.late
            for place, reason in zip(*(done.rejected[n].to_pylist() for n in ("row", "reason")),
                                     strict=True):  # fmt: skip
                refused += 1
                warn("InvalidRequest", f"{what} {numbers[place]}: {reason}")
    line({"stored": stored, "late": late, "rejected": refused})
    if refused:
        raise failed(InvalidRequest("rows were rejected"))


def _rows_in(row: str | None, file: Path | None) -> Iterator[tuple[Any, Any, str]]:
    if row is not None:
        given = parse_json(row, "row")
        rows = given if isinstance(given, list) else [given]
        yield range(1, len(rows) + 1), rows, "row"
    else:
        for numbers, found, what in documents_in(file):
            yield numbers, _decoded(found), what


def _decoded(found: Any) -> Any:
    return found if hasattr(found, "column_names") else [_row(each) for each in found]


def _row(text: Any) -> Any:
    """A row; a text that is no JSON is refused as a row, not as a command."""
    with suppress(InvalidRequest, UnicodeDecodeError):
        return parse_json(text if isinstance(text, str) else text.decode(), "row")
    return None


def get(database: Database, window: Name, key: Keys = None, last_s: LastS = None) -> None:
    """Print the newest row of a whole key, or with --keep all, all of them.

    Twin of StreamWindow.get.
    """
    with _opened(database, window) as opened:
        found = opened.get([value_of(part) for part in key or []], last_s=last_s)
    if found is None:
        raise NotFound("no row with this key", key=key)
    for row in found if isinstance(found, list) else [found]:
        line(row)


def range_(
    database: Database,
    window: Name,
    key: Keys = None,
    map: Map = None,
    last_s: LastS = None,
    closed: Annotated[
        bool, typer.Option("--closed", help="Without the sub-window that is open.")
    ] = False,
    below: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Up to, without, this beginning: keys in [KEY, JSON)."),
    ] = None,
) -> None:
    """Print the rows whose keys begin like this, or what --map makes of them.

    Twin of StreamWindow.range.
    """
    start = [value_of(part) for part in key or []]
    keys: Any = start
    if below is not None:
        limit = parse_json(below, "below")
        keys = [start or None, limit if isinstance(limit, list) else [limit]]
    with _opened(database, window) as opened:
        found = opened.range(keys, map=_mapper(map), last_s=last_s, closed=closed)
        if map is None:
            batches = found.to_batches(BATCH)
            print_all((row for batch in batches for row in batch.to_pylist()), title=window)
        else:
            line(found if isinstance(found, dict) else {map[0]: found})


def find(
    database: Database,
    window: Name,
    where: Where = None,
    map: Map = None,
    key: Annotated[
        str | None, typer.Option(metavar="JSON", help="Among keys that begin so: 7 or '[0, 1]'.")
    ] = None,
    newest: Newest = False,
    limit: Annotated[int | None, typer.Option(metavar="N", help="At most so many.")] = None,
    last_s: LastS = None,
    closed: Annotated[
        bool, typer.Option("--closed", help="Without the sub-window that is open.")
    ] = False,
) -> None:
    """Print the rows that meet a condition, or what --map makes of them; with $near nearest first.

    Twin of StreamWindow.find.
    """
    with _opened(database, window) as opened:
        found = opened.find(
            condition_of(where), keys=None if key is None else parse_json(key, "key"),
            newest=newest, limit=limit, map=_mapper(map), last_s=last_s, closed=closed,
        )  # fmt: skip
        if map is None:
            batches = found.to_batches(BATCH)
            print_all((row for batch in batches for row in batch.to_pylist()), title=window)
        else:
            line(found if isinstance(found, dict) else {map[0]: found})


def _mapper(map: list[str] | None) -> Any:
    return None if not map else map[0] if len(map) == 1 else map


def watch(
    database: Database,
    window: Name,
    key: Keys = None,
    map: Map = None,
    where: Annotated[
        str | None, typer.Option(metavar="WHERE", help="Only rows that meet this condition: JSON.")
    ] = None,
    newest: Newest = False,
    last_s: LastS = None,
    count: Annotated[int | None, typer.Option(help="End after so many panes.", min=1)] = None,
) -> None:
    """Print what --map makes of a range, or of a condition, at each slide, until Ctrl-C.

    Twin of StreamWindow.watch.
    """
    if not map:
        raise InvalidRequest("--map must say what is made of the rows: --map 'count()'")
    with (
        _opened(database, window) as opened,
        opened.watch([value_of(part) for part in key] if key else None, map=_mapper(map),
                     where=condition_of(where), newest=newest, last_s=last_s) as panes,
    ):  # fmt: skip
        for pane in itertools.islice(panes, count):
            line({"since": pane.since, "until": pane.until, "value": pane.value,
                  "missed": pane.missed})  # fmt: skip


def stats(database: Database, window: Name, as_json: AsJson = False) -> None:
    """Show what a window holds and has done.

    Twin of StreamWindow.stats.
    """
    with _opened(database, window) as opened:
        show([{"window": window, **plain(opened.stats())}], title="stats", as_json=as_json)


def drop(database: Database, window: Name) -> None:
    """Delete a window with everything in it.

    Twin of Database.drop_window.
    """
    with open_database(database) as opened:
        opened.drop_window(window)
