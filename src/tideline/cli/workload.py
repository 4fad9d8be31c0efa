"""`tideline workload`: made-up tweets, and the operations they stand for, as files.

    tideline workload tweets        workload.tweets.Tweets, spark.tweets
    tideline workload operations    workload.tweets.Operations, spark.operations

By Spark unless `--local` says otherwise; the rows are the same. Progress goes to stderr, one line
about what was made to stdout.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tideline.cli.output import line
from tideline.cli.parse import parse_time
from tideline.clock import to_us
from tideline.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from tideline.workload.parts import Parts
    from tideline.workload.shape import Shape
    from tideline.workload.tweets import Tweets

__all__ = ["parse_count", "register"]

_COUNT = re.compile(r"^(\d[\d_]*(?:\.\d+)?)\s*([kMG]?)$")
_TIMES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}

Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The folder to fill.")]
Count = Annotated[str | None, typer.Option(metavar="N", help="How many rows: 1000, 15M, 1.5M.")]
Scale = Annotated[
    float | None, typer.Option(help="Instead of --count: so many times the seed set (18M tweets).")
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same rows.", min=0)]
Partitions = Annotated[
    int | None, typer.Option(help="How many files (one a million rows). Changes no row.", min=1)
]
Form = Annotated[str, typer.Option("--format", help="parquet or csv.")]
Engine = Annotated[
    bool, typer.Option("--spark/--local", help="Spark's workers, or threads of this process.")
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark's master (local[*]); see docs/guide.")
]
Users = Annotated[int | None, typer.Option(help="How many users (600,000).", min=1)]
Rate = Annotated[int | None, typer.Option(help="Rows a second of their own time (35).", min=1)]
Start = Annotated[
    str | None, typer.Option(help="When they begin, ISO 8601 (2023-11-14T22:13:20Z).")
]
Like = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="A seed set: Parquet with user, lon, lat, text, at."),
]


def register(app: typer.Typer) -> None:
    """Hang the commands of this file on the command line."""
    workload = typer.Typer(
        help="Make workloads: tweets, operations.", no_args_is_help=True, rich_markup_mode=None
    )
    workload.command("tweets")(tweets)
    workload.command("operations")(operations)
    app.add_typer(workload, name="workload")


def tweets(
    out: Out,
    count: Count = None,
    scale: Scale = None,
    seed: Seed = 0,
    partitions: Partitions = None,
    form: Form = "parquet",
    spark: Engine = True,
    master: Master = None,
    users: Users = None,
    rate: Rate = None,
    start: Start = None,
    like: Like = None,
) -> None:
    """Tweets around New York State, in order of time.

    Twin of tideline.spark.tweets.

    Users and places are skewed as in life; --like takes users, places, lengths and rate from real
    tweets instead. The same command goes on where it was stopped.
    """
    from tideline.workload.tweets import START_US, Tweets

    shape = _shape(like, users, rate)
    workload = Tweets(seed, shape, START_US if start is None else _time_us(start))
    _make(workload, _rows(count, scale, shape), out, partitions, form, spark, master)


def operations(
    out: Out,
    count: Count = None,
    scale: Scale = None,
    ratio: Annotated[
        str, typer.Option(metavar="S:E", help="Subscriptions to events, such as 3:1 or 1:3.")
    ] = "3:1",
    place: Annotated[
        str, typer.Option(help="cell, or circle: points, and circles that watch.")
    ] = "cell",
    back_s: Annotated[float, typer.Option(help="How far a subscription looks back.")] = 10.0,
    ahead_s: Annotated[float, typer.Option(help="How far a subscription looks ahead.")] = 10.0,
    valid_s: Annotated[float, typer.Option(help="How long an event stays valid.")] = 20.0,
    seed: Seed = 0,
    partitions: Partitions = None,
    form: Form = "parquet",
    spark: Engine = True,
    master: Master = None,
    users: Users = None,
    rate: Rate = None,
    start: Start = None,
    like: Like = None,
) -> None:
    """The tweets as operations, for `tideline apply`.

    Twin of tideline.spark.operations.

    Each tweet is a subscription of its user or an event at its place. The same command goes on
    where it was stopped.
    """
    from tideline.workload.tweets import START_US, Operations

    shape = _shape(like, users, rate)
    start_us = START_US if start is None else _time_us(start)
    workload = Operations(seed, shape, start_us, *_ratio(ratio), back_s, ahead_s, valid_s, place)
    _make(workload, _rows(count, scale, shape), out, partitions, form, spark, master)


def parse_count(text: str) -> int:
    """A number of rows, with k, M or G for a thousand, a million, a thousand million.

    >>> parse_count("15M"), parse_count("1.5k"), parse_count("180_000")
    (15000000, 1500, 180000)
    """
    found = _COUNT.match(text.strip())
    if found is not None:
        rows = float(found[1].replace("_", "")) * _TIMES[found[2]]
        if rows == int(rows) and 0 < rows <= 1e12:
            return int(rows)
    raise InvalidRequest("count must be a number of rows such as 1000, 15M or 1.5k", count=text)


def _make(
    workload: Tweets, count: int, out: Path, partitions: int | None, form: str, by_spark: bool,
    master: str | None,
) -> None:  # fmt: skip
    from tideline.workload.parts import PART_ROWS, Parts

    if "://" in str(out) or ":/" in str(out):
        raise InvalidRequest(
            "out must be a path; for other storage, write the frame of tideline.spark."
            f"{workload.settings()['kind']}(...) with Spark",
            out=str(out),
        )
    if master is not None and not by_spark:
        raise InvalidRequest("--master is for Spark; leave out --local", master=master)
    files = -(-count // PART_ROWS) if partitions is None else partitions
    parts = Parts(workload, count, out.absolute(), files, form)
    missing = parts.claim()
    began = time.monotonic()
    if by_spark and missing:
        from tideline.spark.session import session
        from tideline.spark.workload import save

        # Before the clock starts: what a session costs is not what a row costs.
        _say(f"starting Spark to make {count:,} {workload.settings()['kind']}")
        with session(master=master, app="tideline workload") as spark:
            began = time.monotonic()
            with _progress(parts, len(missing)):
                size = save(spark, parts)
    else:
        with _progress(parts, len(missing)):
            parts.write_here(missing, os.cpu_count() or 1)
        size = parts.finish()
    seconds = time.monotonic() - began
    made = count * len(missing) // files
    line(
        {
            "kind": workload.settings()["kind"],
            "rows": count,
            "made": made,
            "files": files,
            "bytes": size,
            "seconds": round(seconds, 1),
            "rows_s": round(made / seconds) if made else 0,
            "out": str(out),
        }
    )


@contextmanager
def _progress(parts: Parts, todo: int) -> Iterator[None]:
    """Rows made and rows a second on stderr, from the files that are there."""
    tty = sys.stderr.isatty()
    stop = threading.Event()
    began = time.monotonic()

    def watch() -> None:
        while not stop.wait(0.5 if tty else 5.0):
            left = len(parts.missing())
            rows = parts.count * (parts.parts - left) // parts.parts
            fresh = parts.count * (todo - left) // parts.parts
            speed = fresh / (time.monotonic() - began)
            ahead = f", {(parts.count - rows) / speed:,.0f} s to go" if speed else ""
            _say(f"{rows:,} of {parts.count:,} rows, {speed:,.0f} rows/s{ahead}", again=tty)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        if tty:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _say(text: str, *, again: bool = False) -> None:
    start, end = ("\r\x1b[K", "") if again else ("", "\n")
    print(f"{start}tideline: {text}", end=end, file=sys.stderr, flush=True)


def _shape(like: Path | None, users: int | None, rate: int | None) -> Shape:
    from tideline.workload.shape import learn, new_york

    shape = new_york() if like is None else learn(_batches(like))
    if users is not None:
        shape = shape.with_users(users)
    return shape if rate is None else shape.with_rate(rate)


def _batches(path: Path) -> Any:
    """The seed set, a batch at a time; only the columns that are learned from."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    if not path.exists():
        raise NotFound("no such seed set", like=str(path))
    try:
        data = ds.dataset(path, format="parquet")
        wanted = [
            name for name in ("user", "lon", "lat", "text", "at") if name in data.schema.names
        ]
        return data.to_batches(columns=wanted)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidRequest(f"the seed set cannot be read: {error}", like=str(path)) from None


def _rows(count: str | None, scale: float | None, shape: Shape) -> int:
    if (count is None) == (scale is None):
        raise InvalidRequest("give --count or --scale, one of them")
    if count is not None:
        return parse_count(count)
    assert scale is not None
    if not 0 < scale <= 1e6 or round(scale * shape.tweets) < 1:
        raise InvalidRequest("scale must be positive", scale=scale)
    return round(scale * shape.tweets)


def _ratio(text: str) -> tuple[int, int]:
    found = re.match(r"^(\d{1,6}):(\d{1,6})$", text.strip())
    if found is None:
        raise InvalidRequest("ratio must be SUBSCRIPTIONS:EVENTS, such as 3:1", ratio=text)
    return int(found[1]), int(found[2])


def _time_us(text: str) -> int:
    moment = parse_time(text, "start")
    assert moment is not None
    return to_us(moment, "start")
