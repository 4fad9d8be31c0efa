"""`tideline heatmap`: where the events of a channel are, as a picture.

Twin of tideline.spark.aggregate and tideline.spark.heatmap. The live store alone is counted in
this process, without Spark (spark/counts.py); with `--archive` Spark counts both. The numbers are
the same either way.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tideline.cli.manage import Folder, Name
from tideline.cli.output import line
from tideline.cli.parse import parse_json, parse_numbers, parse_time
from tideline.cli.store import open_channel
from tideline.cli.verbs import Since, SinceS, Until, UntilS, Where
from tideline.clock import FOREVER, from_us
from tideline.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from tideline.channel import Channel
    from tideline.space import Grid

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Hang the command of this file on the command line."""
    app.command()(heatmap)


def heatmap(
    folder: Folder,
    channel: Name,
    out: Annotated[Path, typer.Option(help="The picture: .png .svg .pdf .jpg .webp")],
    bounds: Annotated[
        str | None, typer.Option(metavar="W,S,E,N", help="What to show (all of the channel's map).")
    ] = None,
    rows: Annotated[int, typer.Option(help="Cells from south to north.", min=1)] = 120,
    cols: Annotated[int, typer.Option(help="Cells from west to east.", min=1)] = 160,
    since_s: SinceS = None,
    since: Since = None,
    until_s: UntilS = None,
    until: Until = None,
    where: Where = None,
    archive: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also the archive of a pipeline, counted by Spark."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Over the picture (the channel).")] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master, with --archive (local[*]).")
    ] = None,
) -> None:
    """Draw where the events are: counts on a grid, as a heat map.

    Twin of tideline.spark.aggregate and tideline.spark.heatmap.

    Counts the valid events of the channel that happened in the window and meet the condition; an
    event that is also in the archive counts once. An event on a circle, a box or a named cell is
    counted in its centre.
    """
    from tideline.spark.counts import make_grid, map_space
    from tideline.spark.picture import check_file, check_plot
    from tideline.spark.picture import heatmap as draw

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
    with open_channel(folder, channel) as opened:
        map_space(opened.space)
        grid = make_grid(given, rows, cols, opened.space)
        span = _span(opened, window)
        if archive is None:
            counts = _count_here(opened, grid, span, condition)
        else:
            counts = _count_by_spark(opened, archive, grid, span, condition, master)
    subtitle = _said(span, where)
    draw(
        counts, out, bounds=grid.bounds, rows=rows, cols=cols, title=title or channel,
        subtitle=subtitle,
    )  # fmt: skip
    numbers = counts.column("count").to_numpy()
    line(
        {
            "events": int(numbers.sum()),
            "cells": len(numbers),
            "most": int(numbers.max(initial=0)),
            "out": str(out),
        }
    )


Span = tuple[datetime | None, datetime | None]


def _span(channel: Channel, window: dict[str, Any]) -> Span:
    """The window as two times; none for always."""
    from tideline.channel.checks import window as checked

    now = channel.clock.now()
    since, until = checked(now, **window, earliest=True)
    return tuple(None if abs(us) >= FOREVER else from_us(us) for us in (since, until))  # type: ignore[return-value]


def _count_here(channel: Channel, grid: Grid, span: Span, where: Any) -> pa.Table:
    from tideline.spark.counts import count_cells

    events = channel.scan("events", since=span[0], until=span[1], where=where)
    return count_cells(events, grid, channel.space)


def _count_by_spark(
    channel: Channel, archive: Path, grid: Grid, span: Span, where: Any, master: str | None
) -> pa.Table:
    from tideline.spark.aggregation import aggregate
    from tideline.spark.failures import failures
    from tideline.spark.session import session

    if not archive.exists():
        from tideline.errors import NotFound

        raise NotFound("no such archive", archive=str(archive))
    print("tideline: starting Spark to count the archive", file=sys.stderr, flush=True)
    with session(master=master, app="tideline heatmap") as spark:
        counts = aggregate(
            spark, live=channel, archive=archive.absolute(), bounds=grid.bounds, rows=grid.rows,
            cols=grid.cols, since=span[0], until=span[1], where=where,
        )  # fmt: skip
        with failures("the archive could not be counted"):
            return counts.toArrow()


def _said(span: Span, where: str | None) -> str:
    """The window and the condition in words, for the picture.

    >>> _said((datetime(2026, 1, 2, 3, 4, tzinfo=UTC), None), '{"kind":"jam"}')
    'since 2026-01-02 03:04 UTC · where {"kind":"jam"}'
    """
    since, until = (None if t is None else f"{t:%Y-%m-%d %H:%M}" for t in span)
    if since and until:
        when = f"{since} to {until} UTC"
    elif since:
        when = f"since {since} UTC"
    elif until:
        when = f"before {until} UTC"
    else:
        when = f"valid at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return when if where is None else f"{when} · where {where}"
