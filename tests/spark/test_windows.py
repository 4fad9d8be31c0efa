"""The same windows natively on Spark: the same rows give the panes and rows of `db.window`.

Batches are files, a file a micro-batch. They hold rows out of order, late ones within the span and
beyond it, batches over several slides, and silence. The library is given each batch by time.
"""

from __future__ import annotations

import math
import os
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tideline
from tideline.errors import InvalidRequest
from tideline.spark import latest, panes

pytestmark = pytest.mark.spark

START = 1_577_836_800
SPAN, SLIDE = 30, 10
SCHEMA = pa.schema({"x": pa.int64(), "s": pa.int64(), "vid": pa.int64(), "vel": pa.int32(),
                    "temp": pa.float64(), "low": pa.int64(),
                    "at": pa.timestamp("us", "UTC")})  # fmt: skip
COLUMNS = "x long, s long, vid long, vel int, temp double, low long, at timestamp"
MAP = {"cars": "count()", "speed": "mean(vel)", "sum": "sum(vel)", "low": "min(vel)",
       "high": "max(vel)", "slow": "quantile(vel, 0.1)", "middle": "median(temp, 0.001)",
       "fast": "top(3, vel)", "cold": "top(2, low)"}  # fmt: skip

# True, Spark's default: late rows are judged by the watermark of one micro-batch before.
EXACT = "spark.sql.streaming.statefulOperator.allowMultiple"


def batches(seed: int) -> list[pa.Table]:
    """Rows by batch, each batch in the order of time."""
    draw = random.Random(seed)
    made, now = [], 0.0
    # Each batch: how far time goes, how many rows, how far behind rows may be.
    for step, count, behind in ((8, 20, 0), (7, 30, 25), (24, 40, 60), (95, 10, 15), (6, 25, 45)):
        times = [draw.uniform(now - behind, now + step) for _ in range(count)] + [now + step]
        now += step
        made.append(pa.Table.from_pylist([
            {"x": draw.randrange(2), "s": draw.randrange(2), "vid": draw.randrange(8),
             "vel": draw.randrange(100), "temp": draw.uniform(-40, 40),
             "low": draw.choice([-(1 << 63), (1 << 63) - 1, 0, 1]),
             "at": datetime.fromtimestamp(START + round(time, 3), UTC)}
            for time in sorted(times)
        ], SCHEMA))  # fmt: skip
    return made


def stream(spark: Any, folder: Path, tables: list[pa.Table]) -> Any:
    """A stream with these batches."""
    folder.mkdir()
    for number, table in enumerate(tables):
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (START + number, START + number))  # the order in which Spark takes them
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder))


def told(frame: Any, folder: Path) -> list[tuple[int, Any]]:
    """What a stream tells, each with its micro-batch."""
    found: list[tuple[int, Any]] = []
    query = (
        frame.writeStream.foreachBatch(lambda rows, n: found.extend((n, r) for r in rows.collect()))
        .option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return found


def test_panes_are_those_of_a_window(spark: Any, tmp_path: Path) -> None:
    tables = batches(1)
    with tideline.open(tmp_path / "data") as db:
        cars = db.window("cars", span_s=SPAN, slide_s=SLIDE, key=("x", "s", "vid"), keep="all",
                         values={"vel": "int32", "temp": "float64", "low": "int64"},
                         time="at")  # fmt: skip
        watched = {(x, s): cars.watch((x, s), map=MAP) for x in range(2) for s in range(2)}
        for table in tables:
            cars.append(table)
        assert cars.stats().late > 0
        expected = {}
        for (x, s), watch in watched.items():
            for pane in watch.take():
                if pane.value["cars"]:
                    expected[pane.since, pane.until, x, s] = pane.value
    assert len(expected) > 20
    native = panes(stream(spark, tmp_path / "in", tables), key=("x", "s"), rest="vid", map=MAP,
                   span_s=SPAN, slide_s=SLIDE)  # fmt: skip
    assert native.columns == ["since", "until", "x", "s", *MAP]
    spark.conf.set(EXACT, "false")
    try:
        found = [row for _, row in told(native, tmp_path / "check")]
    finally:
        spark.conf.unset(EXACT)
    assert len(found) == len(expected)  # each is told once
    for row in found:
        right = expected[row.since.astimezone(UTC), row.until.astimezone(UTC), row.x, row.s]
        for name in ("slow", "middle"):  # a logarithm of Java's differs in the last digits
            assert row[name] == pytest.approx(right.pop(name), rel=1e-12)
        for name in ("fast", "cold"):
            assert [(tuple(each.key), each.value) for each in row[name]] == right.pop(name)
        assert {name: row[name] for name in right} == right


def test_quantiles_and_tops_of_any_numbers_are_those_of_a_window(spark: Any) -> None:
    draw = random.Random(4)
    numbers = [0.0, -0.0, 1.0, 5e-324, -5e-324, 1.7e308, -1.7e308, math.inf, -math.inf, math.nan]
    values = [draw.choice([*numbers, draw.uniform(-1, 1), draw.lognormvariate(0, 200)])
              for _ in range(3000)]  # fmt: skip
    at = datetime.fromtimestamp(START, UTC)
    table = pa.table({
        "k": [f"k{n % 2}" for n in range(3000)], "name": [draw.choice("aéz") for _ in values],
        "v": values, "at": [at] * len(values),
    })  # fmt: skip
    texts = [f"quantile(v, {q}, {error})" for q in (0, 0.3, 0.5, 0.999, 1)
             for error in (0.0001, 0.01, 0.5)]  # fmt: skip
    with tideline.open(":memory:") as db:
        window = db.window("w", span_s=SPAN, key=("k", "name"), values={"v": "float64"}, time="at",
                           keep="all", max_ahead_s=float("inf"))  # fmt: skip
        window.append(table)
        expected = {k: window.range((k,), map=[*texts, "top(7, v)", "count()"])
                    for k in ("k0", "k1")}  # fmt: skip
    frame = spark.createDataFrame(table).repartition(5)
    made = panes(frame, key="k", rest="name", map=[*texts, "top(7, v)", "count()"], span_s=SPAN)
    for row in made.collect():
        right = expected[row.k]
        assert [(tuple(each.key), each.value) for each in row["top(7, v)"]] == right["top(7, v)"]
        assert row["count()"] == right["count()"]
        for text in texts:
            assert row[text] == pytest.approx(right[text], rel=1e-12), text


def test_newest_rows_are_those_of_a_window(spark: Any, tmp_path: Path) -> None:
    tables = batches(2)
    keys = [(x, vid) for x in range(2) for vid in range(8)]
    expected = []
    with tideline.open(tmp_path / "data") as db:
        cars = db.window("cars", span_s=SPAN, slide_s=SLIDE, key=("x", "vid"),
                         values={"s": "int64", "vel": "int32"}, time="at")  # fmt: skip
        for table in tables:
            cars.append(table)
            expected.append({key: row for key in keys if (row := cars.get(key))})
        assert cars.stats().late > 0
    rows = stream(spark, tmp_path / "in", tables).drop("temp", "low")
    native = latest(rows, key=("x", "vid"), span_s=SPAN, slide_s=SLIDE, buckets=3)
    assert native.columns == ["x", "s", "vid", "vel", "at", "until"]
    found = told(native, tmp_path / "check")
    held: dict[tuple[int, int], Any] = {}
    for number in range(len(tables)):
        for at, row in found:
            if at == number:
                held[row.x, row.vid] = row
        newest = max(one["at"] for t in tables[: number + 1] for one in t.to_pylist()).timestamp()
        end = newest // SLIDE * SLIDE
        there = {key: {"s": row.s, "vel": row.vel} for key, row in held.items()
                 if row.until.timestamp() > end}  # fmt: skip
        assert there == expected[number]


def test_a_table_has_panes_too_and_mistakes_are_told(spark: Any) -> None:
    frame = spark.createDataFrame(batches(3)[0])
    made = panes(frame, key="x", map="count()", span_s=SLIDE)
    assert sum(row["count()"] for row in made.collect()) == 21
    for options, message in [
        ({"map": "medan(vel)"}, "no such mapper: did you mean 'median'"),
        ({"map": "top(vel)"}, "top takes 1 to 10000"),
        ({"map": "sum(at)"}, "a column of numbers"),
        ({"map": "top(1, vel)", "rest": "vid"}, "that key does not name"),
        ({"map": "top(1, vel)", "rest": "vd"}, "no such column"),
        ({"map": "mean(speed)"}, "no such column"),
        ({"map": "count(vel)"}, "count takes no value"),
        ({"map": {}}, "map is the text"),
        ({"key": "vidd"}, "no such column: did you mean 'vid'"),
        ({"time": "vel"}, "the column vel must hold timestamps"),
        ({"slide_s": 7}, "multiple of slide_s"),
        ({"span_s": 0.0005}, "milliseconds"),
    ]:
        given: dict[str, Any] = {"key": "vid", "map": "count()", "span_s": SPAN, **options}
        with pytest.raises(InvalidRequest, match=message):
            panes(frame, **given)
    with pytest.raises(InvalidRequest, match="latest is for streams"):
        latest(frame, key="vid", span_s=SPAN)
