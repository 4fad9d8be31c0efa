"""Stream windows on Spark: rows are appended, each micro-batch once, and read as a table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from tideline.errors import TidelineError
from tideline.server import running
from tideline.spark import share
from tideline.spark.source import TidelineSource
from tideline.spark.window_source import Part
from tideline.testing import ManualClock

pytestmark = pytest.mark.spark

START = 1_577_836_800  # 2020-01-01
SCHEMA = pa.schema({"seg": pa.int64(), "vid": pa.int64(), "vel": pa.int32(),
                    "at": pa.timestamp("us", "UTC")})  # fmt: skip


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START + 10_000.0)


@pytest.fixture
def db(open_database: Callable[..., Any]) -> Any:
    """A database with the window `cars` over times of rows, shared."""
    found = open_database()
    found.window("cars", span_s=300, slide_s=60, key=("seg", "vid"), values={"vel": "int32"},
                 time="at")  # fmt: skip
    share(found)
    return found


def rows(*given: tuple[int, int, int | None, float]) -> pa.Table:
    """(segment, vehicle, speed, seconds after the start)."""
    made = [
        {"seg": seg, "vid": vid, "vel": vel, "at": datetime.fromtimestamp(START + at, UTC)}
        for seg, vid, vel, at in given
    ]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.fixture
def save(db: Any, spark: Any) -> Callable[..., None]:
    def write(table: pa.Table, window: str = "cars", parts: int = 1, **options: str) -> None:
        frame = spark.createDataFrame(table).repartition(parts)
        writer = frame.write.format("tideline").option("window", window).options(**options)
        writer.mode("append").save(str(db.path))

    return write


@pytest.fixture
def load(db: Any, spark: Any) -> Callable[..., Any]:
    def read(**options: str) -> Any:
        reader = spark.read.format("tideline").option("window", "cars").options(**options)
        return reader.load(str(db.path))

    return read


def test_rows_land_by_their_time_whoever_staged_them(db: Any, save: Any, load: Any) -> None:
    given = [(n % 3, n % 7, n % 50, 10.0 * n) for n in range(200)]
    save(rows(*given[::-1]), parts=3)
    cars = db.window("cars")
    assert (cars.stats().late, cars.stats().appended) == (0, 200)  # earlier rows are no late ones
    kept: dict[tuple[int, int, int], int] = {}
    for seg, vid, vel, at in given:  # keep="last": of a sub-window the latest of a key
        if at // 60 > 1990 // 60 - 5:
            kept[int(at // 60), seg, vid] = vel
    found = load().collect()
    assert {(int(r.since.timestamp() - START) // 60, r.seg, r.vid): r.vel for r in found} == kept
    assert load().columns == ["seg", "vid", "vel", "since"]
    expected = cars.range((1,), last_s=120).to_pylist()
    narrowed = load(keys="[1]", lastS="120").orderBy("vid", "since").toArrow().to_pylist()
    assert [tuple(row.values())[:3] for row in narrowed] == [
        tuple(row.values())[:3] for row in expected
    ]
    closed = load(keys="[[0, 2], [2, 1]]", closed="true").select("vid", "seg")
    assert sorted(map(tuple, closed.collect())) == sorted(
        (r["vid"], r["seg"]) for r in cars.range(((0, 2), (2, 1)), closed=True).to_pylist()
    )


@pytest.mark.parametrize("by", ["folder", "server"])
def test_tasks_read_one_moment(db: Any, spark: Any, by: str) -> None:
    cars = db.window("cars")
    cars.append(rows(*((n % 5, n, n % 90, float(n % 250)) for n in range(3000))))
    with running(db) if by == "server" else nullcontext() as url:
        where = {"path": str(db.path)} if url is None else {"url": url}
        options = {"window": "cars", "partitions": "4", **where}
        source = TidelineSource(options)
        reader = source.reader(source.schema())
        parts = reader.partitions()
        assert len(parts) == 4
        right = sorted(map(str, cars.range().drop(["since"]).to_pylist()))
        # Tasks come when they come: everything has slid out, and there are other rows.
        told = [list(reader.read(parts[0]))]
        cars.append(rows(*((1, n, 1, 2000.0) for n in range(50))))
        cars.maintain()
        told += [list(reader.read(part)) for part in (*parts[1:], parts[1])]
        assert told.pop() == told[1]  # a task that is tried again
        table = pa.Table.from_batches([batch for task in told for batch in task])
        assert sorted(map(str, table.drop(["since"]).to_pylist())) == right
        frame = spark.read.format("tideline").options(**options).load()
        assert frame.rdd.getNumPartitions() == 4
        assert frame.count() == 50


def test_points_and_texts_go_both_ways(db: Any, save: Any, load: Any) -> None:
    made = (
        '{"span_s": 300, "key": "vid", "values": {"where": "point", "text": "text"}, "time": "at"}'
    )
    table = pa.table({
        "vid": [1, 2], "where": [[2.5, 48.0], [2.0, 48.0]], "text": ["flat tire", "é"],
        "at": [datetime.fromtimestamp(START, UTC)] * 2,
    })  # fmt: skip
    save(table, window="reports", settings=made)
    found = load(window="reports").orderBy("vid").collect()
    assert [(row.vid, row["where"], row.text) for row in found] == [
        (1, [2.5, 48.0], "flat tire"), (2, [2.0, 48.0], "é")
    ]  # fmt: skip
    near = db.window("reports").find({"where": {"$near": [2.1, 48]}}, limit=1)
    assert near["vid"].to_pylist() == [2]


def test_bad_rows_fail_a_batch_or_are_kept_and_late_ones_are_counted(
    db: Any, save: Any, tmp_path: Path
) -> None:
    cars = db.window("cars")
    cars.append(rows((9, 9, 9, 2000.0)))
    given = rows((1, 1, 50, 2000.0), (1, 2, None, 2000.0), (1, 3, 60, 100.0), (1, 4, 70, 99_999.0))
    with pytest.raises(Exception, match="2 of 4 rows are rejected and nothing was written"):
        save(given)
    assert cars.range((1,), map="count()") == 0
    save(given, rejected=str(tmp_path / "bad"))
    assert cars.range((1,), map="count()") == 1
    assert cars.stats().late == 1
    bad = pq.read_table(tmp_path / "bad").to_pylist()
    assert [(row["vid"], row["reason"]) for row in bad] == [
        (2, "vel is missing"),
        (4, "at is more than 60 s ahead of the clock (max_ahead_s of the window)"),
    ]
    assert bad[0]["at"].timestamp() == START + 2000
    save(given, rejected="drop", writer="w", number="1")
    save(given, rejected="drop", writer="w", number="1")  # landed: changes nothing
    assert cars.stats().late == 2


def test_each_micro_batch_lands_once(db: Any, spark: Any, tmp_path: Path) -> None:
    cars = db.window("counted", span_s=300, key=("seg", "vid"), values={"vel": "int32"},
                     keep="all")  # fmt: skip
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(rows(*((1, n, n, 0.0) for n in range(20))), source / "1.parquet")
    check = tmp_path / "check"

    def run() -> None:
        frame = spark.readStream.schema("seg long, vid long, vel int").parquet(str(source))
        query = (
            frame.writeStream.format("tideline").option("window", "counted")
            .option("checkpointLocation", str(check))
            .trigger(availableNow=True).start(str(db.path))
        )  # fmt: skip
        query.awaitTermination()

    run()
    for commit in (check / "commits").iterdir():
        commit.unlink()  # Spark was killed before it noted that the batch had landed
    run()
    assert cars.range((1,), map=["count()", "sum(vel)"]) == {"count()": 20, "sum(vel)": 190}


def test_a_server_takes_and_gives_rows(db: Any, spark: Any) -> None:
    from tideline.server import running

    with running(db) as url:
        there = {"url": url, "window": "made"}
        asked = '{"span_s": 300, "slide_s": 60, "key": ["seg", "vid"], "values": {"vel": "int32"},'
        asked += ' "time": "ts"}'
        given = rows((1, 1, 50, 30.0), (1, 2, 60, 0.0), (1, 3, None, 0.0)).rename_columns(
            ["seg", "vid", "vel", "ts"]
        )
        frame = spark.createDataFrame(given).selectExpr("*", "'more' AS other")
        writer = frame.write.format("tideline").options(**there, settings=asked, rejected="drop")
        writer.options(writer="w", number="1").mode("append").save()
        writer.options(writer="w", number="1").mode("append").save()
        made = db.window("made")
        assert made.stats().appended == 2
        found = spark.read.format("tideline").options(**there, keys="[1, 2]").load()
        assert [(row.vid, row.vel, row.since.timestamp()) for row in found.collect()] == [
            (2, 60, START)
        ]
        with pytest.raises(Exception, match="the window has another span_s"):
            frame.write.format("tideline").options(
                **there, settings=asked.replace("300", "600")
            ).mode("append").save()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channel": "roads"}, "channel or window, not both"),
        ({"where": "{}"}, "a batch read of a stream window takes no such option"),
        ({"keys": "{}"}, "must be a JSON list"),
        ({"lastS": "x"}, "must be a number of seconds"),
        ({"lastS": "61"}, "last_s must be a multiple of the slide"),
        ({"window": "crs"}, "no such window"),
    ],
)
def test_what_is_wrong_with_a_read_is_said(db: Any, options: Any, message: str) -> None:
    source = TidelineSource({"path": str(db.path), "window": "cars", **options})
    with pytest.raises(TidelineError, match=message):
        list(source.reader(source.schema()).read(Part()))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"vel": "vell"}, {}, r"the column vel is missing \(did you mean 'vell'\?\)"),
        ({"at": "ts"}, {}, "the column at is missing"),
        ({}, {"settings": "[]"}, "must be a JSON object"),
        ({}, {"settings": '{"spans": 1}'}, "no such setting .did you mean 'span_s'"),
        ({}, {"window": "new"}, "no such window"),
        ({}, {"window": "new", "settings": '{"span_s": 60}'}, "needs span_s and key"),
        ({}, {"order": "time"}, "a batch write to a stream window takes no such option"),
    ],
)
def test_what_is_wrong_with_a_write_is_said(
    db: Any, change: dict[str, str], options: Any, message: str
) -> None:
    schema = from_arrow_schema(SCHEMA)
    given = StructType([StructField(change.get(f.name, f.name), f.dataType) for f in schema])
    source = TidelineSource({"path": str(db.path), "window": "cars", **options})
    with pytest.raises(TidelineError, match=message):
        source.writer(given, overwrite=False)


def test_columns_of_other_types_and_streams_of_windows_are_refused(db: Any) -> None:
    db.window("cars").append(rows((1, 1, 50, 0.0)))  # the types of the key are known
    source = TidelineSource({"path": str(db.path), "window": "cars"})
    given = StructType.fromDDL("seg string, vid double, vel int, at long")
    with pytest.raises(TidelineError) as caught:
        source.writer(given, overwrite=False)
    for said in (
        "the column seg must hold whole numbers, not string",
        "the column vid must hold whole numbers, not double",
        "the column at must hold timestamps, not bigint: for example F.to_timestamp('at')",
    ):
        assert said in str(caught.value)
    with pytest.raises(TidelineError, match="read as a table, or watched"):
        source.streamReader(source.schema())
