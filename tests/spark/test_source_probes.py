"""Settings of Spark's and odd rows that must change nothing: ANSI, zones, late rows, bodies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
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
    given = {"spark.sql.ansi.enabled": request.param}
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


def test_a_drift_of_columns_is_named(db: Any, spark: Any) -> None:
    path = str(db.path)

    def save(columns: str, **options: str) -> None:
        frame = spark.createDataFrame([], columns)
        frame.write.format("tideline").options(**options).mode("append").save(path)

    with pytest.raises(Exception, match=r"the column at must hold timestamps.*type='string'"):
        save("place string, at string, body string", channel="roads")
    with pytest.raises(Exception, match=r"unknown or repeated columns.*columns=\['speed'\]"):
        save("place string, at timestamp, body string, speed int", channel="roads")
    with pytest.raises(Exception, match="column='when', type='date'"):
        save("id long, when date", collection="tweets")
