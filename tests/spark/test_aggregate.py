"""Counts on a grid: Spark's, the library's own and a plain loop agree, and nothing counts twice."""

from __future__ import annotations

import doctest
import json
import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tideline.errors import Closed, InvalidRequest, NotFound, TidelineError
from tideline.heatmap.counts import COLUMNS, count_cells
from tideline.space import Box, Circle, Flat, Grid, QuadTree
from tideline.spark import aggregation
from tideline.spark.aggregation import aggregate
from tideline.where import parse

BOUNDS = (-79.8, 40.4, -71.8, 45.1)
START = datetime(2026, 1, 2, tzinfo=UTC)
EVENTS = "id string, lon double, lat double, at timestamp, body string"

Cell = tuple[int, int]


def cell_of(grid: Grid, lon: float, lat: float) -> Cell:
    """The plain way: the one cell whose edges a point lies between."""
    found = []
    for row in range(grid.rows):
        for col in range(grid.cols):
            west, south, east, north = grid.encode(f"{row}.{col}")[2:6]
            if (west <= lon < east or lon == east == grid.bounds[2]) and (
                south <= lat < north or lat == north == grid.bounds[3]
            ):
                found.append((row, col))
    assert len(found) == 1
    return found[0]


def inside(grid: Grid, lon: float | None, lat: float | None) -> bool:
    west, south, east, north = grid.bounds
    return lon is not None and lat is not None and west <= lon <= east and south <= lat <= north


def counts_of(result: Any) -> dict[Cell, int]:
    """What came back, with every edge checked."""
    table = result if isinstance(result, pa.Table) else result.toArrow()
    assert table.schema.names == COLUMNS
    rows = table.to_pylist()
    counts = {(row["row"], row["col"]): row["count"] for row in rows}
    assert len(counts) == len(rows)  # a cell stands there once
    return counts


def random_events(grid: Grid, count: int, seed: int) -> list[tuple[Any, ...]]:
    """Points anywhere, many on an edge or a corner, some beyond, some missing."""
    pick = random.Random(seed)
    west, south, east, north = grid.bounds
    columns = [west + (east - west) * i / grid.cols for i in range(grid.cols)] + [east]
    lines = [south + (north - south) * i / grid.rows for i in range(grid.rows)] + [north]

    def coordinate(edges: list[float], low: float, high: float) -> float | None:
        kind = pick.random()
        if kind < 0.35:
            edge = pick.choice(edges)
            return pick.choice([edge, math.nextafter(edge, -1e9), math.nextafter(edge, 1e9)])
        return None if kind < 0.38 else pick.uniform(low - 0.5, high + 0.5)

    return [
        (
            f"e{number}",
            coordinate(columns, west, east),
            coordinate(lines, south, north),
            START + timedelta(seconds=pick.randint(-3600, 3600)),
            json.dumps({"speed": pick.randint(0, 100), "kind": pick.choice(["jam", "rain"])}),
        )
        for number in range(count)
    ]


def expected(events: list[tuple[Any, ...]], grid: Grid, keep: Callable[[Any], bool]) -> Any:
    return Counter(
        cell_of(grid, event[1], event[2])
        for event in events
        if inside(grid, event[1], event[2]) and keep(event)
    )


# Against a plain loop -----------------------------------------------------------------


@pytest.mark.parametrize(
    "grid",
    [
        Grid(BOUNDS, rows=7, cols=9),
        Grid((-0.1, -0.3, 0.7, 0.2), rows=3, cols=11),
        Grid((1e-7, -1e-7, 3e-7, 1e-7), rows=13, cols=17),
    ],
)
def test_counts_without_spark_are_those_of_a_plain_loop(grid: Grid) -> None:
    events = random_events(grid, 700, seed=grid.rows)
    table = pa.table({"lon": [event[1] for event in events], "lat": [event[2] for event in events]})
    assert counts_of(count_cells(table, grid)) == expected(events, grid, lambda _: True)


@pytest.mark.spark
def test_counts_are_those_of_a_plain_loop(spark: Any) -> None:
    grid = Grid(BOUNDS, rows=7, cols=9)
    events = random_events(grid, 700, seed=grid.cols)
    frame = spark.createDataFrame(events, EVENTS)
    table = pa.table({"lon": [event[1] for event in events], "lat": [event[2] for event in events]})
    since, until = START - timedelta(seconds=600), START + timedelta(seconds=1200)
    where = {"speed": {"$gt": 20}, "kind": {"$in": ["jam"]}}
    condition = parse(where)

    def wanted(event: Any) -> bool:
        return since <= event[3] < until and condition.matches(json.loads(event[4]))

    asked: dict[str, Any] = {"bounds": grid.bounds, "rows": grid.rows, "cols": grid.cols}
    whole = aggregate(spark, live=frame, **asked).toArrow()
    some = aggregate(spark, live=frame, since=since, until=until, where=where, **asked)
    assert counts_of(whole) == expected(events, grid, lambda _: True)
    assert counts_of(some) == expected(events, grid, wanted)
    by_hand = count_cells(table, grid)  # without Spark: the same table
    assert by_hand.sort_by([("row", "ascending"), ("col", "ascending")]).to_pylist() == sorted(
        whole.to_pylist(), key=lambda row: (row["row"], row["col"])
    )
    for row in by_hand.to_pylist():
        edges = tuple(row[name] for name in ("west", "south", "east", "north"))
        assert edges == grid.encode(f"{row['row']}.{row['col']}")[2:6]


@pytest.mark.spark
def test_a_window_has_its_start_and_not_its_limit(spark: Any) -> None:
    times = [START - timedelta(microseconds=1), START, START + timedelta(seconds=1)]
    events = [(f"e{n}", 0.5, 0.5, at, "{}") for n, at in enumerate(times)]
    for kind in ("timestamp", "timestamp_ntz"):  # a time without a zone is UTC
        rows = [
            (*e[:3], e[3].replace(tzinfo=None) if "ntz" in kind else e[3], e[4]) for e in events
        ]
        frame = spark.createDataFrame(rows, EVENTS.replace("at timestamp", f"at {kind}"))
        counts = aggregate(
            spark, live=frame, bounds=(0, 0, 1, 1), rows=1, cols=1, since=START,
            until=START + timedelta(seconds=1),
        )  # fmt: skip
        assert counts_of(counts) == {(0, 0): 1}


@pytest.mark.spark
def test_nothing_to_count_is_a_frame_without_rows(spark: Any) -> None:
    frame = spark.createDataFrame([("a", 50.0, 50.0, START, "{}")], EVENTS)
    counts = aggregate(spark, live=frame, bounds=(0, 0, 1, 1), rows=2, cols=2)
    assert counts_of(counts) == {}
    kinds = ["int", "int", "double", "double", "double", "double", "bigint"]
    assert [kind for _, kind in counts.dtypes] == kinds


@pytest.mark.spark
def test_a_condition_asks_the_columns_where_there_is_no_body(spark: Any) -> None:
    rows = [("a", 0.5, 0.5, "coffee time"), ("b", 0.5, 0.5, "tea"), ("c", 0.5, 0.5, "no coffee")]
    frame = spark.createDataFrame(rows, "id string, lon double, lat double, text string")
    counts = aggregate(
        spark, live=frame, bounds=(0, 0, 1, 1), rows=1, cols=1, where={"text": {"$words": "coffee"}}
    )
    assert counts_of(counts) == {(0, 0): 2}


# Where an event is --------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize(
    "space", [Grid((0, 0, 10, 8), rows=5, cols=7), QuadTree((0, 0, 10, 8), depth=6)]
)
def test_a_place_that_is_no_point_is_counted_in_its_centre(
    spark: Any, open_channel: Any, space: Any
) -> None:
    names = ["0.0", "4.6", "2.3"] if isinstance(space, Grid) else ["1", "4.4.4", "2.3.1.4.2.2"]
    places = [*names, (1.0, 1.0), Circle((9.9, 7.9), 50_000.0), Box(-4.0, 1.0, 6.0, 3.0)]
    channel = open_channel(space=space)
    for number, place in enumerate(places):
        channel.publish(place, {"n": number}, id=f"e{number}")
    found = channel.scan("events")
    odd = pa.table({"place": ["5.0", "3.1", "00.1", "1.5", "0.7", "a", "", "1.1.1.1.1.1.1", None]})
    table = pa.concat_tables([found, odd], promote_options="permissive")

    centres = [(1.0, 1.0), (9.9, 7.9), (1.0, 2.0)]
    for name in [*names, *odd["place"].to_pylist()]:
        cell = _encoded(space, name)
        if cell is not None:
            centres.append(((cell[2] + cell[4]) / 2, (cell[3] + cell[5]) / 2))
    grid = Grid((0, 0, 10, 8), rows=13, cols=17)
    wanted = Counter(cell_of(grid, *centre) for centre in centres)
    assert sum(wanted.values()) > len(places)  # some of the odd names are names
    assert counts_of(count_cells(table, grid, space)) == wanted
    asked: dict[str, Any] = {"bounds": grid.bounds, "rows": 13, "cols": 17}
    counts = aggregate(spark, live=spark.createDataFrame(table), space=space, **asked)
    assert counts_of(counts) == wanted


def _encoded(space: Any, name: str | None) -> Any:
    try:
        return space.encode(name)
    except InvalidRequest:
        return None


# Store and archive together -----------------------------------------------------------


@pytest.fixture
def archive(spark: Any, tmp_path: Path) -> Path:
    """Events of three days as a pipeline archives them; the file of the last is damaged."""
    folder = tmp_path / "archive"
    rows = []
    for day, hours in (("2026-01-01", [1]), ("2026-01-02", [0, 5, 23]), ("2026-01-09", [4])):
        for number, hour in enumerate(hours):
            at = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(hours=hour)
            rows.append((day, "1", "publish", f"a-{day}-{number}", 0.5, 0.5, at, '{"n":1}'))
            rows.append((day, "1", "subscribe", f"s-{day}-{number}", 0.5, 0.5, at, None))
    frame = spark.createDataFrame(rows, "day string, area string, op string, " + EVENTS)
    frame.coalesce(1).write.partitionBy("day", "area").parquet(str(folder))
    damaged = next((folder / "day=2026-01-09" / "area=1").glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    (damaged.parent / f".{damaged.name}.crc").unlink()
    return folder


@pytest.mark.spark
def test_an_event_of_store_and_archive_counts_once(
    spark: Any, open_channel: Any, clock: Any, archive: Path
) -> None:
    channel = open_channel(space=Grid((0, 0, 2, 2), rows=4, cols=4))
    clock.advance(datetime(2026, 1, 3, 5, tzinfo=UTC).timestamp() - clock.now() / 1e6)
    day = datetime(2026, 1, 2, tzinfo=UTC)
    for number, hour in enumerate((0, 5)):  # as in the archive
        at = day + timedelta(hours=hour)
        channel.publish((0.5, 0.5), {"n": 1}, id=f"a-2026-01-02-{number}", at=at)
    channel.publish((1.5, 1.5), {"n": 2}, id="live-only", at=day + timedelta(hours=29))
    channel.publish((1.5, 1.5), {"n": 2}, id="too-old", at=day - timedelta(hours=1))
    asked: dict[str, Any] = {"live": channel, "archive": archive, "rows": 2, "cols": 2}

    # The damaged day lies outside the window, so its file is never opened.
    both = aggregate(spark, since=day, until=day + timedelta(days=2), **asked)
    assert counts_of(both) == {(0, 0): 3, (1, 1): 1}
    recent = aggregate(spark, since_s=-24 * 3600, until_s=0, where={"n": 1}, **asked)
    assert counts_of(recent) == {(0, 0): 2}
    alone = aggregate(spark, archive=archive, bounds=(0, 0, 2, 2), rows=1, cols=1, since=day,
                      until=day + timedelta(days=1))  # fmt: skip
    assert counts_of(alone) == {(0, 0): 3}
    with pytest.raises(Exception, match="parquet"):
        aggregate(spark, archive=archive, bounds=(0, 0, 2, 2), rows=1, cols=1).collect()


@pytest.mark.spark
def test_frames_may_share_events_and_lack_ids(spark: Any) -> None:
    live = [("a", 0.5, 0.5), ("b", 0.5, 0.5), (None, 0.5, 0.5)]
    kept = [("b", 0.5, 0.5), ("c", 0.5, 0.5), ("c", 0.5, 0.5), (None, 0.5, 0.5), (None, 0.5, 0.5)]
    frames = [
        spark.createDataFrame(rows, "id string, lon double, lat double") for rows in (live, kept)
    ]
    counts = aggregate(
        spark, live=frames[0], archive=frames[1], bounds=(0, 0, 1, 1), rows=1, cols=1
    )
    assert counts_of(counts) == {(0, 0): 6}


@pytest.mark.spark
def test_a_shared_store_is_counted_by_its_folder(
    spark: Any, open_database: Any, tmp_path: Path
) -> None:
    from tideline.spark import share

    database = open_database()
    roads = database.channel("roads", space=QuadTree(BOUNDS, depth=9))
    database.channel("news")
    for number in range(5):
        roads.publish((-74.0, 40.7), {"n": number})
    folder = tmp_path / "data"
    with share(database):
        counts = aggregate(
            spark, live=folder, channel="roads", rows=1, cols=2, where={"n": {"$gte": 2}}
        )
        assert counts_of(counts) == {(0, 1): 3}
        empty = aggregate(spark, live=folder, channel="roads", rows=1, cols=2, where={"n": 99})
        assert counts_of(empty) == {}
        with pytest.raises(NotFound):
            aggregate(spark, live=folder, channel="rods", rows=1, cols=2)
        with pytest.raises(InvalidRequest, match="only events on a map"):
            aggregate(spark, live=folder, channel="news", rows=1, cols=2)
    with pytest.raises(TidelineError):
        aggregate(spark, live=folder, channel="roads", rows=1, cols=2)


# Wrong calls --------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"live": None}, "give live, archive or both"),
        ({"channel": "roads"}, "channel goes with the folder"),
        ({"live": "folder"}, "needs the name of a channel"),
        ({"bounds": None}, "bounds are missing"),
        ({"bounds": (1, 0, 0, 1)}, "west < east"),
        ({"rows": 0}, "rows must be a whole number"),
        ({"since_s": -5}, "needs the column at"),
        ({"since": START, "until": START}, "must end after it starts"),
        ({"since": START, "since_s": -5}, "not both"),
        ({"where": {"n": {"$about": 5}}}, "not an operator"),
        ({"where": {"body": 1}}, "body must be JSON text"),
        ({"space": Flat()}, "only events on a map"),
        ({"archive": "nowhere"}, "no Parquet files in the archive"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    spark: Any, wrong: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = spark.createDataFrame(
        [("a", 0.5, 0.5, 1)], "id string, lon double, lat double, body int"
    )
    asked: dict[str, Any] = {"live": frame, "bounds": (0, 0, 1, 1), "rows": 1, "cols": 1}
    if wrong.get("archive"):
        wrong = {"archive": str(tmp_path / "nowhere")}
    with pytest.raises((InvalidRequest, NotFound), match=message):
        aggregate(spark, **{**asked, **wrong})


@pytest.mark.spark
def test_columns_that_do_not_fit_are_named(spark: Any) -> None:
    asked: dict[str, Any] = {"bounds": (0, 0, 1, 1), "rows": 1, "cols": 1}
    text = spark.createDataFrame(
        [("a", "2026", 1.0, 1.0)], "id string, at string, lon double, lat double"
    )
    with pytest.raises(InvalidRequest, match="at must hold timestamps"):
        aggregate(spark, live=text, since_s=-5, **asked)
    with pytest.raises(InvalidRequest, match="lon and lat, or place and a space"):
        aggregate(spark, live=text.drop("lon"), **asked)
    with pytest.raises(InvalidRequest, match="need the column id"):
        aggregate(spark, live=text, archive=text.drop("id"), **asked)
    with pytest.raises(InvalidRequest, match="lon and lat, or place and a space"):
        count_cells(pa.table({"place": ["1.1"]}), Grid((0, 0, 1, 1), rows=1, cols=1))


def test_a_closed_channel_says_so(open_database: Any) -> None:
    database = open_database()
    channel = database.channel("roads", space=Grid((0, 0, 1, 1), rows=1, cols=1))
    database.close()
    pytest.importorskip("pyspark")
    with pytest.raises(Closed):
        aggregate(None, live=channel)  # type: ignore[arg-type]


@pytest.mark.spark
def test_the_examples_run(spark: Any) -> None:
    result = doctest.testmod(aggregation, extraglobs={"spark": spark}, optionflags=doctest.ELLIPSIS)
    assert result.attempted
    assert not result.failed


def test_the_modules_load_without_spark() -> None:
    names = "tideline.spark, tideline.spark.workload, tideline.heatmap.picture"
    code = f"import sys, {names}; assert not {{'pyspark', 'matplotlib'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
