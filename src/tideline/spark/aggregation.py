"""Spatial aggregation: how many events each cell of a grid had, over store and archive.

    live     a channel's valid events   --+-- window, condition --> id, row, col --+
                                          |                                        +--> count
    archive  Parquet of a pipeline      --+-- days of the window, the same ------- +    a cell

An event that is both in the store and in the archive counts once, by its id: the live part is
read once, and archived events with one of its ids are left out. What the archive alone holds is
not compared with itself.

Everything on the way is a Spark expression and runs in the JVM, apart from the condition on a
body that is JSON text, which the library's own kernel judges in Arrow batches
(where/batch.py). A channel's events are read in one look, in the process that holds the store,
and located there (counts.py).

Needs the extra `spark`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tideline.channel.channel import Channel
from tideline.channel.checks import window
from tideline.clock import FOREVER, SystemClock, from_us
from tideline.errors import InvalidRequest, NotFound
from tideline.heatmap.counts import cells_of, make_grid, map_space
from tideline.space import Grid, QuadTree, Space, space_from_spec
from tideline.spark.client import connect
from tideline.spark.place import cell_numbers, inside
from tideline.where import Condition, parse

__all__ = ["aggregate"]

Span = tuple[int, int]


def aggregate(
    spark: SparkSession, *, live: DataFrame | Channel | str | os.PathLike[str] | None = None,
    channel: str | None = None, archive: DataFrame | str | os.PathLike[str] | None = None,
    bounds: tuple[float, float, float, float] | None = None, rows: int = 50, cols: int = 50,
    since: datetime | None = None, since_s: float | None = None, until: datetime | None = None,
    until_s: float | None = None, where: dict[str, Any] | None = None,
    space: Space | None = None,
) -> DataFrame:  # fmt: skip
    """Counts of events on a grid: row, col, west, south, east, north, count.

    `live` is an open channel, a store's folder with the name of a `channel` in it (some process
    has it open and shares it), or any frame of events; `archive` the folder of a pipeline's
    archive, or any frame. Counted are the events that happened in `[since, until)` and meet
    `where`, in the cells that have any: rows from the south, columns from the west. Without
    bounds the grid lies over the channel's own.

    A frame needs `id` (when both are given), `at` (with a window), `lon` and `lat` or `place`.
    `where` asks about `body`, JSON text; about the columns themselves in a frame without one.
    Places that are names of cells need a `space`; it is the channel's when there is one.

    >>> events = spark.createDataFrame([("a", 0.5, 0.5), ("b", 0.6, 0.2), ("c", 7.0, 7.0)],
    ...     "id string, lon double, lat double")
    >>> counts = aggregate(spark, live=events, bounds=(0, 0, 2, 2), rows=2, cols=2)
    >>> counts.select("row", "col", "north", "count").show()
    +---+---+-----+-----+
    |row|col|north|count|
    +---+---+-----+-----+
    |  0|  0|  1.0|    2|
    +---+---+-----+-----+
    <BLANKLINE>
    """
    if live is None and archive is None:
        raise InvalidRequest("give live, archive or both")
    if channel is not None and not isinstance(live, (str, os.PathLike)):
        raise InvalidRequest("channel goes with the folder of a store in live", channel=channel)
    clock = live.clock if isinstance(live, Channel) else SystemClock()
    span = window(clock.now(), since_s, since, until_s, until, earliest=True)
    condition = parse(where)
    events: DataFrame | None = None
    held: pa.Table | None = None
    if isinstance(live, DataFrame):
        events = live
    elif live is not None:
        found, its_space = _scan(live, channel, span, condition)
        space = its_space if space is None else space
        held = found
    grid = make_grid(bounds, rows, cols, space)
    both = live is not None and archive is not None
    parts: list[DataFrame] = []
    if held is not None:
        parts.append(spark.createDataFrame(cells_of(held, grid, space)))
    elif events is not None:
        parts.append(_located(events, grid, space, span, condition, named=both))
    if archive is not None:
        frame = archive if isinstance(archive, DataFrame) else _archive(spark, archive, span)
        parts.append(_located(frame, grid, space, span, condition, named=both))
    together = parts[0] if len(parts) == 1 else _once(*parts, few=held is not None)
    return _counted(together, grid)


def _scan(
    live: Channel | str | os.PathLike[str], channel: str | None, span: Span, condition: Condition
) -> tuple[pa.Table, Space]:
    """The events of a channel in the window that meet the condition, and its space."""
    since, until = (None if abs(us) >= FOREVER else us for us in span)
    if isinstance(live, Channel):
        map_space(live.space)
        found = live.scan(
            "events", since=_moment(since), until=_moment(until), where=condition.document or None
        )
        return found, live.space
    if channel is None:
        raise InvalidRequest("the folder of a store needs the name of a channel", live=str(live))
    with closing(connect(live)) as client:
        space = space_from_spec(client.describe(channel).space)
        map_space(space)
        text = condition.text.decode() or None
        batches = list(client.scan(channel, "events", since=since, until=until, where=text))
    if batches:
        return pa.Table.from_batches(batches), space
    empty = {"id": pa.string(), "lon": pa.float64(), "lat": pa.float64()}
    return pa.schema(empty).empty_table(), space


def _archive(spark: SparkSession, path: str | os.PathLike[str], span: Span) -> DataFrame:
    """The archive of a pipeline, without the days that lie outside the window."""
    try:
        frame = spark.read.parquet(os.fspath(path))
    except AnalysisException as error:
        if error.getCondition() in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"):
            raise NotFound("no Parquet files in the archive", archive=os.fspath(path)) from None
        raise
    if "day" in frame.columns:
        since, until = (_day(us) for us in span)
        if since is not None:
            frame = frame.filter(F.col("day") >= F.lit(since))
        if until is not None:
            frame = frame.filter(F.col("day") <= F.lit(until))
    if "op" in frame.columns:
        frame = frame.filter(F.col("op") == "publish")
    return frame


def _located(
    frame: DataFrame, grid: Grid, space: Space | None, span: Span, condition: Condition, *,
    named: bool,
) -> DataFrame:  # fmt: skip
    """Id, row and col of the events of a frame that are in the window and inside the bounds.

    `named`: they must have ids.
    """
    names = frame.columns
    if named and "id" not in names:
        raise InvalidRequest(
            "live and archive need the column id, to count an event of both once", columns=names
        )
    lon, lat = _centre(names, map_space(space))
    since, until = span
    if (since > -FOREVER or until < FOREVER) and "at" not in names:
        raise InvalidRequest("a window needs the column at", columns=names)
    if since > -FOREVER:
        frame = frame.filter(F.col("at") >= _time(frame, since))
    if until < FOREVER:
        frame = frame.filter(F.col("at") < _time(frame, until))
    # Where it is comes first: a comparison of numbers is cheaper than reading a body.
    frame = frame.filter(inside(grid, lon, lat))
    if condition:
        frame = _meeting(frame, condition)
    col, row = cell_numbers(grid, lon, lat)
    return frame.select(
        (F.col("id") if "id" in names else F.lit(None)).cast("string").alias("id"),
        row.cast("int").alias("row"),
        col.cast("int").alias("col"),
    )


def _time(frame: DataFrame, us: int) -> Column:
    """A time to compare the column at with; one without a zone is UTC."""
    kind, moment = frame.schema["at"].dataType, from_us(us)
    if moment is None:
        raise InvalidRequest("a window must lie before the year 10000", us=us)
    if isinstance(kind, T.TimestampNTZType):
        return F.to_timestamp_ntz(F.lit(moment.replace(tzinfo=None).isoformat(sep=" ")))
    if not isinstance(kind, T.TimestampType):
        raise InvalidRequest("the column at must hold timestamps", type=kind.simpleString())
    return F.timestamp_micros(F.lit(us))


def _meeting(frame: DataFrame, condition: Condition) -> DataFrame:
    """The rows whose body meets the condition; whose columns do, where there is no body."""
    if "body" not in frame.columns:
        from tideline.where.column import filter_frame

        return filter_frame(frame, condition)
    if not isinstance(frame.schema["body"].dataType, T.StringType):
        kind = frame.schema["body"].dataType.simpleString()
        raise InvalidRequest("the column body must be JSON text: use F.to_json", type=kind)
    # pyspark's stub does not have it yet
    meets = F.arrow_udf(_meets(condition), "boolean")  # type: ignore[attr-defined]
    return frame.filter(meets("body"))


def _meets(condition: Condition) -> Callable[[pa.Array], pa.Array]:
    """The condition on a batch of bodies; sent to Spark's workers."""

    def meets(bodies: pa.Array) -> pa.Array:
        from tideline.where.batch import matching

        return pa.array(matching(condition, bodies))

    return meets


def _once(live: DataFrame, archive: DataFrame, *, few: bool) -> DataFrame:
    """Both, an event of both once.

    `few`: the live part is a table of this process, sent to every task; the archive stays where
    it is. Otherwise all ids meet, each once, because a frame read twice may not be the same.
    """
    if few:
        ids = F.broadcast(live.select("id"))
        return live.unionByName(archive.join(ids, on="id", how="left_anti"))
    both = live.unionByName(archive)
    # An event without an id is like no other.
    alone = F.when(F.col("id").isNull(), F.monotonically_increasing_id())
    return both.withColumn("alone", alone).dropDuplicates(["id", "alone"])


def _counted(cells: DataFrame, grid: Grid) -> DataFrame:
    west, south, east, north = grid.bounds
    row, col = F.col("row"), F.col("col")
    return (
        cells.groupBy("row", "col")
        .agg(F.count(F.lit(1)).alias("count"))
        .select(
            "row",
            "col",
            _edge(col, west, east, grid.cols).alias("west"),
            _edge(row, south, north, grid.rows).alias("south"),
            _edge(col + 1, west, east, grid.cols).alias("east"),
            _edge(row + 1, south, north, grid.rows).alias("north"),
            "count",
        )
    )


# ---- where an event is: the twins of counts.py in expressions ---------------------------


def _centre(names: list[str], space: Grid | QuadTree | None) -> tuple[Column, Column]:
    lon: list[Column] = []
    lat: list[Column] = []
    if {"lon", "lat"} <= set(names):
        lon.append(F.col("lon").cast("double"))
        lat.append(F.col("lat").cast("double"))
    if {"west", "south", "east", "north"} <= set(names):
        lon.append((F.col("west") + F.col("east")) / 2)
        lat.append((F.col("south") + F.col("north")) / 2)
    if "place" in names and space is not None:
        x, y = _cell_centre(F.col("place"), space)
        lon.append(x)
        lat.append(y)
    if not lon:
        raise InvalidRequest(
            "events need the columns lon and lat, or place and a space", columns=names
        )
    return F.coalesce(*lon), F.coalesce(*lat)


def _cell_centre(place: Column, space: Grid | QuadTree) -> tuple[Column, Column]:
    """The centre of the cell that a text names; null when it names none."""
    west, south, east, north = space.bounds
    parts = F.split(place, r"\.")
    if isinstance(space, Grid):
        named = place.rlike(r"^(0|[1-9]\d{0,4})\.(0|[1-9]\d{0,4})$")
        row, col = parts[0].try_cast("long"), parts[1].try_cast("long")
        named = named & (row < space.rows) & (col < space.cols)
        rows, cols, side = space.rows, space.cols, F.lit(1)
    else:
        named = place.rlike(rf"^[1-4](\.[1-4]){{0,{space.depth - 1}}}$")
        start = F.lit(0).cast("long")
        # A digit is a quarter: 2 and 4 lie to the east, 1 and 2 to the north.
        col = F.aggregate(parts, start, lambda n, d: n * 2 + d.isin("2", "4").cast("long"))
        row = F.aggregate(parts, start, lambda n, d: n * 2 + d.isin("1", "2").cast("long"))
        side = F.pow(F.lit(2.0), F.lit(space.depth) - F.size(parts)).cast("long")
        row, col = row * side, col * side
        rows = cols = 1 << space.depth
    lon = (_edge(col, west, east, cols) + _edge(col + side, west, east, cols)) / 2
    lat = (_edge(row, south, north, rows) + _edge(row + side, south, north, rows)) / 2
    return F.when(named, lon), F.when(named, lat)


def _edge(i: Column, low: float, high: float, count: int) -> Column:
    return F.when(i >= count, F.lit(high)).otherwise(low + F.lit(high - low) * i / count)


def _moment(us: int | None) -> datetime | None:
    return None if us is None else from_us(us)


def _day(us: int) -> date | None:
    """The day of a time in UTC; `None` when there is none."""
    moment = None if abs(us) >= FOREVER else from_us(us)
    return None if moment is None else moment.date()
