"""Commands about a database as a whole.

tideline channel create   Database.channel
tideline channels         Database.channels
tideline stats            Database.stats, Channel.stats
tideline check            Database.check
tideline drop             Database.drop_channel, Database.drop_collection
tideline warm, demo
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.cli.command import AsJson, Database, add
from tideline.cli.output import line, plain, show, space_fields, time_text
from tideline.cli.parse import parse_space
from tideline.cli.store import check_exists, existing, open_database, open_folder
from tideline.lsm import inventory

__all__ = ["register"]

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the database.")]
Name = Annotated[str, typer.Argument(metavar="CHANNEL", help="The name of the channel.")]


def register(app: typer.Typer) -> None:
    """Hang the commands of this file on the command line."""
    channel = typer.Typer(help="Make channels.", no_args_is_help=True, rich_markup_mode=None)
    add(channel, create, "create")
    app.add_typer(channel, name="channel")
    for command in (channels, stats, drop):
        add(app, command)
    app.command()(check)
    app.command()(warm)
    app.command()(demo)


def create(
    database: Database,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the channel.")],
    space: Annotated[
        str, typer.Option(metavar="flat|topics|grid|quadtree", help="How places relate.")
    ] = "flat",
    bounds: Annotated[
        str | None, typer.Option(metavar="W,S,E,N", help="Bounds of a grid or quad tree.")
    ] = None,
    depth: Annotated[int | None, typer.Option(help="Depth of a quad tree (9).")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of a grid.")] = None,
    cols: Annotated[int | None, typer.Option(help="Columns of a grid.")] = None,
    layout: Annotated[
        str, typer.Option(metavar="dual|two|poll", help="How it is stored.")
    ] = "dual",
    max_ahead_s: Annotated[
        float | None,
        typer.Option(help="How far ahead of the clock a row of a batch may be; inf: no limit."),
    ] = None,
) -> None:
    """Make a channel, and the database if there is none.

    Twin of Database.channel. For a channel that is there, --max-ahead-s changes the limit; the
    other options must be as they were.
    """
    wanted = parse_space(space, bounds, depth, rows, cols)
    with open_database(database, create=True) as opened:
        channel = opened.channel(name, space=wanted, layout=layout, max_ahead_s=max_ahead_s)
        line(_channel_fields(channel))


def channels(database: Database, as_json: AsJson = False) -> None:
    """List the channels.

    Twin of Database.channels.
    """
    with open_database(database) as opened:
        rows = [_channel_fields(existing(opened, name)) for name in opened.channels()]
        show(rows, title="channels", as_json=as_json)


def stats(
    database: Database,
    name: Annotated[str | None, typer.Argument(metavar="NAME")] = None,
    as_json: AsJson = False,
) -> None:
    """Count what is stored, in one channel or collection or in each.

    Twin of Database.stats, Channel.stats and Collection.stats.
    """
    with open_database(database) as opened:
        if name is not None:
            check_exists(opened, name)
        collections = opened.collections()
        if name not in collections:
            names = opened.channels() if name is None else [name]
            rows = [{"channel": n, **plain(existing(opened, n).stats())} for n in names]
            if rows or not collections:
                show(rows, title="stats", as_json=as_json)
        names = [each for each in collections if name in (None, each)]
        rows = [{"collection": n, **plain(opened.collection(n).stats())} for n in names]
        if rows:
            show(rows, title="stats of collections", as_json=as_json)


def check(folder: Folder) -> None:
    """Verify every checksum and invariant.

    Twin of Database.check.
    """
    files = inventory.load_list(folder)
    if files is not None:  # a backup: opening it would make a database of it
        inventory.verify_list(folder, files)
        size = sum(each.size for each in files.values())
        line({"backup": str(folder), "files": len(files), "bytes_checked": size})
        return
    with open_folder(folder) as database:
        report: Any = database.check()
        fields = plain(report)
        line(fields if isinstance(fields, dict) else {"report": fields})


def drop(
    database: Database,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A channel or collection.")],
) -> None:
    """Drop a channel or a collection with everything in it.

    Twin of Database.drop_channel and Database.drop_collection.
    """
    with open_database(database) as opened:
        check_exists(opened, name)
        if name in opened.collections():
            opened.drop_collection(name)
        else:
            opened.drop_channel(name)
        line({"dropped": name})


def warm() -> None:
    """Compile the kernels now, with progress: the first call after that is fast."""
    from tideline.cli.warm import warm_up

    warm_up()


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(envvar="DEMO_S", help="Stop after so many seconds; otherwise on Ctrl-C."),
    ] = None,
    drivers: Annotated[int, typer.Option(help="How many drivers.")] = 1_500,
    incidents_s: Annotated[float, typer.Option(help="Incidents a second.")] = 5.0,
    radius_m: Annotated[float, typer.Option(help="How far a driver looks.")] = 20_000.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same story.")] = 7,
    port: Annotated[int, typer.Option(help="Port of the page, or the next free one.")] = 8080,
    browser: Annotated[bool, typer.Option(help="Open the page where there is a screen.")] = True,
    spark: Annotated[bool, typer.Option(help="Bring half of the drivers in by Spark.")] = True,
) -> None:
    """Drivers over New York State, live on a page and in the terminal.

    Incidents appear near the roads, and the drivers near them are told. The traffic starts at
    once; Spark joins when it is up, if it is installed. On a busy machine there is less traffic.
    """
    from tideline.cli.demo import run_demo

    run_demo(
        seconds=seconds, drivers=drivers, incidents_s=incidents_s, radius_m=radius_m, seed=seed,
        port=port, browser=browser, with_spark=spark,
    )  # fmt: skip


def _channel_fields(channel: Any) -> dict[str, Any]:
    limit = channel.max_ahead_s
    return {
        "name": channel.name, **space_fields(channel.space), "layout": channel.layout,
        "max_ahead_s": None if limit == math.inf else limit,
        **({"newest": time_text(channel.newest)} if hasattr(channel, "newest") else {}),
    }  # fmt: skip
