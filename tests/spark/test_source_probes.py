"""Settings of Spark's and odd rows that must change nothing: ANSI, zones, late rows, bodies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tideline.spark import share
from tideline.testing import ManualClock

pytestmark = pytest.mark.spark

START = datetime(2030, 3, 10, 6, 59, 58, tzinfo=UTC)  # New York loses an hour two seconds later


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START.timestamp() + 50)


@pytest.fixture
def db(open_database: Callable[..., Any]) -> Any:
    found = open_database()
    found.channel("roads", journal_s=3600)
    found.collection("tweets", key="id")
    share(found)
    return found


@pytest.fixture(params=["true", "false"], ids=["ansi", "not-ansi"])
def settings(spark: Any, request: Any) -> Iterator[None]:
    given = {"spark.sql.ansi.enabled": request.param, "spark.sql.adaptive.enabled": request.param}
    given["spark.sql.session.timeZone"] = "America/New_York"
    before = {name: spark.conf.get(name) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def test_times_and_late_rows_are_the_same_in_any_zone(db: Any, spark: Any, settings: None) -> None:
    """Rows of an hour that New York skips, given out of order and in two batches."""
    rows = [
        {"id": f"e{n}", "place": f"p{n % 2}", "at": START + timedelta(seconds=n), "body": "{}"}
        for n in range(8)
    ]
    path = str(db.path)
    for part in (rows[::-2], rows[::2]):  # the second batch is late
        frame = spark.createDataFrame(pa.Table.from_pylist(part)).repartition(2)
        frame.write.format("tideline").option("channel", "roads").mode("append").save(path)
    read = spark.read.format("tideline").option("channel", "roads")
    for options in ({}, {"partitions": "3"}):
        found = read.options(**options).load(path).orderBy("at").toArrow().to_pylist()
        assert [(row["id"], row["at"]) for row in found] == [(r["id"], r["at"]) for r in rows]
    since = (START + timedelta(seconds=6)).isoformat()
    assert read.option("since", since).load(path).count() == 2
    assert len(db.channel("roads").find("p0")) == 4


def test_a_view_can_be_made_of_it_and_a_table_says_why_not(db: Any, spark: Any) -> None:
    """When a table can be read, Spark has mended it: then say so in the guide."""
    options = f"using tideline options (collection 'tweets', path '{db.path}')"
    spark.sql(f"create temporary view tweets_now {options}")
    spark.sql(f"create table tweets_table {options}")
    try:
        db.collection("tweets").put({"id": 1})
        assert spark.table("tweets_now").count() == 1
        db.collection("tweets").put({"id": 2})
        assert [row.key for row in spark.sql("select key from tweets_now").collect()] == ["1", "2"]
        with pytest.raises(Exception, match="no options of a table in its catalog: make a view"):
            spark.table("tweets_table").count()
    finally:
        spark.sql("drop table tweets_table")
        spark.catalog.dropTempView("tweets_now")


def test_null_and_huge_bodies(db: Any, spark: Any) -> None:
    path = str(db.path)
    huge = json.dumps({"text": "x" * 130_000})
    rows = [{"id": "a", "place": "p", "at": START, "body": huge},
            {"id": "b", "place": "p", "at": START, "body": None}]  # fmt: skip
    frame = spark.createDataFrame(pa.Table.from_pylist(rows))
    writer = frame.write.format("tideline").option("channel", "roads").mode("append")
    with pytest.raises(Exception, match="1 of 2 rows are rejected and nothing was written"):
        writer.save(path)
    writer.option("rejected", "drop").save(path)
    found = spark.read.format("tideline").option("channel", "roads").load(path).collect()
    assert [(row.id, len(row.body)) for row in found] == [("a", len(huge))]


def test_null_and_huge_documents(db: Any, spark: Any) -> None:
    path = str(db.path)
    huge = {"id": 1, "text": "x" * (4 << 20), "none": None}
    texts = [json.dumps(huge), None, json.dumps({"id": 2, "text": "y" * (17 << 20)})]
    frame = spark.createDataFrame(pa.table({"document": texts})).coalesce(1)
    writer = frame.write.format("tideline").option("collection", "tweets").mode("append")
    with pytest.raises(Exception, match=r"2 of 3 rows are rejected.*is null.*too large"):
        writer.save(path)
    writer.option("rejected", "drop").save(path)
    assert db.collection("tweets").find() == [huge]
    found = spark.read.format("tideline").option("collection", "tweets").load(path).head()
    assert json.loads(found.document) == huge


def test_a_stream_reads_late_and_unordered_rows_once(db: Any, spark: Any, tmp_path: Path) -> None:
    """A stream gives what was written in the order of writing, whatever the rows' times are."""
    path, roads = str(db.path), db.channel("roads")
    moments = [5, 1, 9, 0, 7, 3, 8, 2]

    def run() -> list[Any]:
        stream = spark.readStream.format("tideline").options(channel="roads", maxRowsPerBatch="2")
        query = (
            stream.load(path).writeStream.format("parquet").trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "check")).start(str(tmp_path / "out"))
        )  # fmt: skip
        query.awaitTermination()
        found = spark.read.parquet(str(tmp_path / "out")).orderBy("seq").toArrow().to_pylist()
        return [(row["id"], row["at"]) for row in found]

    expected = []
    for half in (moments[:4], moments[4:]):
        for second in half:
            at = START + timedelta(seconds=second)
            roads.publish("p", {}, at=at, id=f"e{second}")
            expected.append((f"e{second}", at))
        assert run() == expected
    assert run() == expected


def test_a_drift_of_columns_is_named(db: Any, spark: Any) -> None:
    """tests/spark/test_options.py has every case of a channel."""
    path = str(db.path)

    def said(columns: str, **options: str) -> str:
        frame = spark.createDataFrame([], columns)
        with pytest.raises(Exception, match="InvalidRequest") as told:
            frame.write.format("tideline").options(**options).mode("append").save(path)
        lines = [line for line in str(told.value).splitlines() if "InvalidRequest" in line]
        return lines[-1]

    found = said("plaec string, at string, body string, speed int", channel="roads")
    for part in (
        "a place is missing (did you mean 'plaec'?)",
        "the column plaec is unknown (did you mean 'place'?)",
        "the column speed is unknown;",
        "the column at must hold timestamps, not string",
        "columns={'plaec': 'string', 'at': 'string', 'body': 'string', 'speed': 'int'}",
    ):
        assert part in found
    found = said("ID long, when date, more struct<x: binary>", collection="tweets")
    for part in (
        "the column of the key, id, is missing (did you mean 'ID'?)",
        "the column when is date, which no JSON value is",
        "the column more.x is binary",
    ):
        assert part in found
    assert "F.to_json(F.struct('*'))" in said("id long, v variant", collection="tweets")
    assert "document must hold JSON text, a struct or VARIANT, not int: write F.to_json" in said(
        "document int", collection="tweets"
    )
    found = said("op int, id long", collection="tweets")
    assert "the column op must hold text, one of c, u, r (put) and d (delete), not int" in found
    found = said("id long", collection="tweets", version="v", op="change")
    assert "the column op is missing" in found
    assert "the column of the version, v, is missing" in found
