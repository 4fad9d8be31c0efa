"""`tideline watch`: a live query on the terminal.

    terminal          a table that is drawn again in place; what changed is marked for a moment
    pipe, --json      a JSON line for each state: {"version": 17, "result": [...]}
    --changes         the first state, then a JSON line for each change

The result, its order and its changes are those of `Collection.watch`; with --by those of
`Collection.watch_groups`. It goes on until Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from tideline.cli.command import AsJson, Database, add
from tideline.cli.documents import (
    Limit,
    Name,
    Sort,
    Where,
    condition_of,
    opened_collection,
    order_of,
)
from tideline.cli.output import cell, clean, line, warn
from tideline.errors import InvalidRequest, Unavailable

__all__ = ["register"]

_DRAW_S = 0.1  # a table is not drawn more often
_MARK_S = 1.0  # how long what changed is marked
_AGAIN_S = 1.0
_WAIT_S = 3600.0  # for the next change; any time will do
_WIDE = 60  # letters of a cell
_AROUND = 7  # lines of the screen that are no rows

_Fields = Annotated[
    list[str] | None, typer.Option(metavar="FIELD", help="With --by: of this field; repeatable.")
]


def register(app: typer.Typer) -> None:
    """Hang the command on the command line."""
    add(app, watch)


def watch(
    database: Database,
    collection: Name,
    where: Where = None,
    sort: Sort = None,
    limit: Limit = None,
    offset: Annotated[int, typer.Option(help="Leave out so many at the start.")] = 0,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Show groups of documents with one value; repeatable."),
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="With --by: how many.")] = False,
    sum: _Fields = None,
    avg: _Fields = None,
    min: _Fields = None,
    max: _Fields = None,
    changes: Annotated[
        bool, typer.Option("--changes", help="The result, then a JSON line for each change.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what meets a condition, and keep it up to date until Ctrl-C.

    Twin of Collection.watch; with --by, of Collection.watch_groups.

    On a terminal a table is drawn again in place, and cells that changed are marked. In a pipe each
    state is a JSON line. It is for the database of a server: nobody else writes while a command has
    a folder, so there only documents that expire go.
    """
    figures = {"count": count or None, "sum": sum, "avg": avg, "min": min, "max": max}
    asked = {name: value for name, value in figures.items() if value}
    order = order_of(sort)
    condition = condition_of(where)
    if by is None and asked:
        raise InvalidRequest(f"--{next(iter(asked))} is of groups: say --by FIELD")
    if by is not None and (order or limit is not None or offset):
        given = "--sort" if order else "--offset" if limit is None else "--limit"
        raise InvalidRequest(f"groups come in the order of their values: leave out {given}")
    with opened_collection(database, collection) as opened:
        if by is not None:
            live = opened.watch_groups(condition, by=by, **asked)
        else:
            live = opened.watch(condition, sort=order, limit=limit, offset=offset)
        with live:
            if changes:
                _print_changes(live)
            elif as_json or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
                _print_states(live)
            else:
                known = by if by is not None else [opened.key]
                words = [collection, where or "", *(f"by {field}" for field in by or [])]
                _draw(live, known, clean(" ".join(filter(None, words)), 2 * _WIDE))


def _print_states(live: Any) -> None:
    """Each state as a line."""
    while True:
        line({"version": live.version, "result": live.result})
        while not _taken(live, _WAIT_S):
            pass


def _print_changes(live: Any) -> None:
    """The first state, then each change as a line."""
    line({"version": live.version, "result": live.result})
    while True:
        for change in _taken(live, _WAIT_S):
            line(_change(change))


def _taken(live: Any, timeout_s: float) -> Any:
    """What happened next. A server that is away is waited for: nothing is missed by that."""
    try:
        return live.take(timeout_s=timeout_s)
    except Unavailable as error:
        warn("Unavailable", f"{error} (trying again)")
        time.sleep(_AGAIN_S)
        return []


def _change(change: Any) -> dict[str, Any]:
    told = {"version": change.version, "kind": change.kind, "key": change.key}
    told |= {"old_index": change.old_index, "index": change.index}
    if change.kind == "add":
        return told | {"document": change.document}
    if change.kind == "remove":
        return told
    return told | {"fields": change.fields, "gone": list(change.gone or ())}


# ---- the table ---------------------------------------------------------------------------------


def _draw(live: Any, known: list[str], title: str) -> None:
    """Draw the result again whenever it changes."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    shown = Shown(known)
    with Live(console=console, auto_refresh=False) as screen:
        while True:
            now = time.monotonic()
            shown.update(live.result, now)
            room = max(1, console.size.height - _AROUND)
            screen.update(shown.table(title, live.version, now, room), refresh=True)
            _taken(live, shown.marked_s(now) or _WAIT_S)
            time.sleep(_DRAW_S)  # what comes in this time is drawn together
            _taken(live, 0)


class Shown:
    """What is on the screen, and since when each cell is as it is."""

    def __init__(self, known: list[str]) -> None:
        self._known = known
        self._rows: list[Mapping[str, Any]] = []
        self._since: dict[tuple[Any, ...], dict[str, float]] = {}
        self._fields: list[str] = list(known)
        self._begun = False

    def update(self, rows: Iterable[Mapping[str, Any]], now: float) -> None:
        """Another result."""
        before = {self._key(row): row for row in self._rows}
        self._rows = list(rows)
        since: dict[tuple[Any, ...], dict[str, float]] = {}
        for row in self._rows:
            key = self._key(row)
            old = before.get(key)
            marks = self._since.get(key, {})
            changed = row if old is None else {
                name for name in {*row, *old} if row.get(name) != old.get(name)
            }  # fmt: skip
            since[key] = marks | dict.fromkeys(changed if self._begun else (), now)
            self._fields += [name for name in row if name not in self._fields]
        self._since = since
        self._begun = True

    def marked_s(self, now: float) -> float:
        """How long until nothing is marked any more; 0 when nothing is."""
        newest = max((when for marks in self._since.values() for when in marks.values()), default=0)
        return max(0.0, newest + _MARK_S - now) if newest else 0.0

    def table(self, title: str, version: int, now: float, room: int) -> Any:
        """The table, as many rows as there is room for."""
        from rich.table import Table
        from rich.text import Text

        hidden = max(0, len(self._rows) - room)
        more = f", {hidden:,} of them below the screen" if hidden else ""
        caption = f"version {version:,}, {len(self._rows):,} rows{more}. Ctrl-C ends."
        table = Table(
            title=Text(title), title_justify="left",
            caption=Text(caption), caption_justify="left",
        )  # fmt: skip
        for name in self._fields:
            numbers = all(_is_number(row.get(name, 0)) for row in self._rows)
            table.add_column(
                Text(clean(name, _WIDE)), no_wrap=True, justify="right" if numbers else "left"
            )
        for row in self._rows[:room]:
            marks = self._since[self._key(row)]
            table.add_row(
                *(
                    Text(
                        clean(cell(row.get(name)), _WIDE),
                        style="bold reverse" if now - marks.get(name, -_MARK_S) < _MARK_S else "",
                    )
                    for name in self._fields
                )
            )
        return table

    def _key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(map(str, map(row.get, self._known)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
