"""`tideline heatmap`: where the events of a channel or the documents of a collection are.

Twin of tideline.spark.aggregate and tideline.spark.heatmap. The live store alone is counted in
this process, without Spark (heatmap/counts.py); with `--archive` Spark counts both. The numbers are
the same either way.

Of a collection, also on a server, twin of `Collection.aggregate_grid`. Without bounds the picture
shows what is there: cells of one degree are counted first.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tideline.cli.command import Database, add
from tideline.cli.output import line
from tideline.cli.parse import parse_json, parse_numbers, parse_time
from tideline.cli.store import check_exists, is_address, open_database
from tideline.cli.verbs import Since, SinceS, Until, UntilS, Where
from tideline.clock import FOREVER, from_us
from tideline.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from tideline.channel import Channel
    from tideline.space import Grid

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Hang the command of this file on the command line."""
    add(app, heatmap)


def heatmap(
    database: Database,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A channel, or a collection.")],
    out: Annotated[Path, typer.Option(help="The picture: .png .svg .pdf .jpg .webp")],
    bounds: Annotated[
        str | None,
        typer.Option(metavar="W,S,E,N", help="What to show (the map, all documents)."),
    ] = None,
    rows: Annotated[int, typer.Option(help="Cells from south to north.", min=1)] = 120,
    cols: Annotated[int, typer.Option(help="Cells from west to east.", min=1)] = 160,
    since_s: SinceS = None,
    since: Since = None,
    until_s: UntilS = None,
    until: Until = None,
    where: Where = None,
    field: Annotated[
        str | None, typer.Option(help="Of a collection: the field of the places (the indexed one).")
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also the archive of a pipeline, counted by Spark."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Over the picture (the name).")] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master, with --archive (local[*]).")
    ] = None,
) -> None:
    """Draw where events or documents are: counts on a grid, as a heat map.

    Twin of tideline.spark.aggregate and tideline.spark.heatmap, and of Collection.aggregate_grid.

    Counts the valid events of a channel that happened in the window and meet the condition; an
    event that is also in the archive counts once. An event on a circle, a box or a named cell is
    counted in its centre. Or the documents of a collection that meet the condition.
    """
    from tideline.heatmap.counts import make_grid, map_space
    from tideline.heatmap.picture import check_file, check_plot
    from tideline.heatmap.picture import heatmap as draw

    check_file(out)
    check_plot()
    if master is not None and archive is None:
        raise InvalidRequest("--master is for Spark, which counts an --archive", master=master)
    window = {
        "since_s": since_s,
        "since": parse_time(since, "since"),
        "until_s": until_s,
        "until": parse_time(until, "until"),
    }
    condition = None if where is None else parse_json(where, "where")
    given = None if bounds is None else parse_numbers(bounds, 4, "WEST,SOUTH,EAST,NORTH")
    with open_database(database) as opened_database:
        check_exists(opened_database, name)
        is_channel = name in opened_database.channels()
        if not is_channel:
            if archive is not None or any(value is not None for value in window.values()):
                raise InvalidRequest(
                    "documents are chosen by --where: a window and an --archive are for a channel",
                    collection=name,
                )
            found = _count_documents(
                opened_database.collection(name), given, rows, cols, condition, field
            )
            (counts, grid), subtitle = found, _said((None, None), where, "documents")
        elif is_address(database):
            raise InvalidRequest(
                "the events of a server are counted where its folder is, or by Spark"
                " (tideline.spark.aggregate)", channel=name,
            )  # fmt: skip
        else:
            if field is not None:
                raise InvalidRequest("--field is for a collection", channel=name)
            opened: Any = opened_database.channel(name)
            map_space(opened.space)
            grid = make_grid(given, rows, cols, opened.space)
            span = _span(opened, window)
            if archive is None:
                counts = _count_here(opened, grid, span, condition)
            else:
                counts = _count_by_spark(opened, archive, grid, span, condition, master)
            now = _minute(from_us(opened.clock.now()))
            always = f"valid at {now} UTC" if archive is None else "all that is kept"
            subtitle = _said(span, where, always)
    draw(
        counts, out, bounds=grid.bounds, rows=rows, cols=cols, title=title or name,
        subtitle=subtitle,
    )  # fmt: skip
    numbers = counts.column("count").to_numpy()
    line(
        {
            "events" if is_channel else "documents": int(numbers.sum()),
            "cells": len(numbers),
            "most": int(numbers.max(initial=0)),
            "out": str(out),
        }
    )


Span = tuple[datetime | None, datetime | None]


def _span(channel: Channel, window: dict[str, Any]) -> Span:
    """The window as two times; none for always."""
    from tideline.channel.checks import window as checked

    since, until = checked(channel.clock.now(), **window, earliest=True)
    return _moment(since), _moment(until)


def _moment(us: int) -> datetime | None:
    return None if abs(us) >= FOREVER else from_us(us)


def _count_documents(
    collection: Any, bounds: Any, rows: int, cols: int, where: Any, field: str | None
) -> tuple[pa.Table, Grid]:
    """Counts, and the grid: over what there is, when no bounds are given."""
    from tideline.heatmap.counts import make_grid

    if bounds is None:
        world = collection.aggregate_grid(
            (-180, -90, 180, 90), rows=180, cols=360, where=where, field=field
        )
        if not world.num_rows:
            raise NotFound(
                "no document with a place meets the condition", where=where,
                field=field or "the one with a spatial index",
            )  # fmt: skip
        edges = (world.column(name).to_numpy() for name in ("west", "south", "east", "north"))
        west, south, east, north = edges
        bounds = west.min(), south.min(), east.max(), north.max()
    grid = make_grid(tuple(map(float, bounds)), rows, cols, None)
    counts = collection.aggregate_grid(grid.bounds, rows=rows, cols=cols, where=where, field=field)
    return counts, grid


def _count_here(channel: Channel, grid: Grid, span: Span, where: Any) -> pa.Table:
    from tideline.heatmap.counts import count_cells

    events = channel.scan("events", since=span[0], until=span[1], where=where)
    return count_cells(events, grid, channel.space)


def _count_by_spark(
    channel: Channel, archive: Path, grid: Grid, span: Span, where: Any, master: str | None
) -> pa.Table:
    from tideline.spark.session import check_pyspark, session

    check_pyspark()  # before what needs it is imported: it names what to install
    from tideline.spark.aggregation import aggregate
    from tideline.spark.failures import failures

    if not archive.exists():
        raise NotFound("no such archive", archive=str(archive))
    print("tideline: starting Spark to count the archive", file=sys.stderr, flush=True)
    failing = failures("the archive could not be counted")
    with session(master=master, app="tideline heatmap") as spark, failing:
        return aggregate(
            spark, live=channel, archive=archive.absolute(), bounds=grid.bounds, rows=grid.rows,
            cols=grid.cols, since=span[0], until=span[1], where=where,
        ).toArrow()  # fmt: skip


def _said(span: Span, where: str | None, always: str) -> str:
    """The window and the condition in words, for the picture; `always` without a window.

    >>> _said((datetime(2026, 1, 2, 3, 4), None), '{"kind":"jam"}', "all")
    'since 2026-01-02 03:04 UTC · where {"kind":"jam"}'
    """
    since, until = (_minute(moment) for moment in span)
    if since and until:
        when = f"{since} to {until} UTC"
    elif since:
        when = f"since {since} UTC"
    elif until:
        when = f"before {until} UTC"
    else:
        when = always
    return when if where is None else f"{when} · where {where}"


def _minute(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M}"
