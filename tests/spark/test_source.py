"""What the format `tideline` promises of batch reads and writes, and says when it cannot."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline import QuadTree
from tideline.spark import share
from tideline.spark.local import Local
from tideline.testing import ManualClock

pytestmark = pytest.mark.spark

START = datetime(2030, 1, 1, tzinfo=UTC)
QUAD = QuadTree(bounds=(-80, 40, -72, 48), depth=9)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def event(number: int, **other: Any) -> dict[str, Any]:
    row = {
        "id": f"e{number}",
        "place": f"p{number % 3}",
        "at": after(number),
        "until": after(1000),
        "body": json.dumps({"n": number}, separators=(",", ":")),
    }
    return {**row, **other}


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table that Spark takes over without looking for types."""
    return pa.Table.from_pylist(rows)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START.timestamp() + 50)  # no row is far ahead of it


@pytest.fixture
def db(open_database: Callable[..., Any]) -> Iterator[Any]:
    """A database with the channel `roads`, shared."""
    found = open_database()
    found.channel("roads", journal_s=3600)
    share(found)
    return found


@pytest.fixture
def save(db: Any, spark: Any) -> Callable[..., None]:
    """`save(rows, channel=..., op=...)`."""

    def write(rows: Any, channel: str | None = "roads", **options: str) -> None:
        frame = spark.createDataFrame(table(rows)) if isinstance(rows, list) else rows
        given = options if channel is None else {"channel": channel, **options}
        frame.write.format("tideline").options(**given).mode("append").save(str(db.path))

    return write


@pytest.fixture
def load(db: Any, spark: Any) -> Callable[..., Any]:
    """`load(channel=..., kind=...)`."""

    def read(channel: str | None = "roads", schema: str | None = None, **options: str) -> Any:
        given = options if channel is None else {"channel": channel, **options}
        reader = spark.read.format("tideline").options(**given)
        return (reader.schema(schema) if schema else reader).load(str(db.path))

    return read


def rows_of(frame: Any) -> list[dict[str, Any]]:
    return list(frame.toArrow().to_pylist())


def spool(db: Any) -> list[Path]:
    """The rows that are staged."""
    return [path for path in (db.path / "spool").iterdir() if path.suffix != ".over"]


# ---- reading and writing ------------------------------------------------------------------


def test_events_come_back_as_they_were_published(
    save: Callable[..., None], load: Callable[..., Any], db: Any
) -> None:
    rows = [event(n) for n in range(20)]
    save(rows, op="publish")
    found = rows_of(load())
    assert [{name: row[name] for name in rows[0]} for row in found] == rows
    assert [row["seq"] for row in found] == sorted(row["seq"] for row in found)
    assert [each.id for each in db.channel("roads").find("p1", limit=2)] == ["e19", "e16"]
    assert spool(db) == []


def test_subscriptions_come_back_as_they_were_made(
    save: Callable[..., None], load: Callable[..., Any], db: Any
) -> None:
    row = {
        "id": "s1", "user": "ann", "place": "p1", "at": after(0), "since": after(-60),
        "until": after(60), "where": '{"n":{"$gt":3}}', "unseen": True,
    }  # fmt: skip
    save([row, {**row, "id": "s2", "where": None, "unseen": None}], op="subscribe")
    first, second = rows_of(load(kind="subscriptions"))
    expected = {name: value for name, value in row.items() if name != "at"}
    assert {name: first[name] for name in expected} == expected
    assert (second["id"], second["where"], second["unseen"]) == ("s2", None, False)
    assert [sub.id for sub in db.channel("roads").subscriptions("ann")] == ["s1", "s2"]


def test_operations_of_all_kinds_run_in_order_of_time(
    save: Callable[..., None], load: Callable[..., Any], spark: Any
) -> None:
    """Given in reverse, over four tasks: the cancel still comes after the subscription."""
    rows: list[dict[str, Any]] = [{"op": "publish", **event(n)} for n in range(9)]
    subscription = {"op": "subscribe", "user": "ann", "place": "p0", "until": after(500)}
    rows.append({**subscription, "id": "s1", "at": after(2.5)})
    rows.append({**subscription, "id": "s2", "at": after(2.6)})
    rows.append({"op": "cancel", "id": "s1", "at": after(6.5)})
    names = ["op", "id", "user", "place", "at", "until", "body"]
    rows = [{name: row.get(name) for name in names} for row in reversed(rows)]
    save(spark.createDataFrame(table(rows)).repartition(4), op="apply")
    assert [row["id"] for row in rows_of(load())] == [f"e{n}" for n in range(9)]
    assert [row["id"] for row in rows_of(load(kind="subscriptions"))] == ["s2"]


def test_a_channel_is_made_when_its_space_is_given(
    save: Callable[..., None], load: Callable[..., Any], db: Any
) -> None:
    rows = [
        {"id": "a", "lon": -73.98, "lat": 40.75, "radius_m": None},
        {"id": "b", "lon": -74.5, "lat": 41.0, "radius_m": 250.0},
    ]
    rows = [{**row, "at": after(0), "body": "{}"} for row in rows]
    save(rows, channel="map", space=json.dumps(QUAD.spec()))
    assert db.channel("map").space == QUAD
    found = rows_of(load("map"))
    assert [(row["lon"], row["radius_m"], row["place"]) for row in found] == [
        (-73.98, None, None),
        (-74.5, 250.0, None),
    ]
    near = load("map", place="circle:-73.98,40.75,500")
    assert [row["id"] for row in rows_of(near)] == ["a"]
    save(rows, channel="map", space=json.dumps(QUAD.spec()))  # there already: as good


def test_a_part_of_the_columns_can_be_read(
    save: Callable[..., None], load: Callable[..., Any]
) -> None:
    save([event(1), event(2)])
    assert rows_of(load(schema="body string, id string")) == [
        {"body": '{"n":1}', "id": "e1"},
        {"body": '{"n":2}', "id": "e2"},
    ]


# ---- filters --------------------------------------------------------------------------------


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_a_frame_answers_alike_however_often_it_is_used(
    save: Callable[..., None], load: Callable[..., Any], spark: Any, pushdown: str
) -> None:
    """Spark 4.3 keeps the filters that a Python source took: a source must not take any."""
    save([event(n) for n in range(9)])
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, pushdown)
    try:
        frame = load()
        counts = [frame.count(), frame.where("place = 'p0'").count(), frame.count()]
        both = frame.where("place = 'p0'").union(frame.where("place = 'p1'"))
        joined = frame.where("id = 'e1'").join(frame.where("place = 'p1'"), on="place")
        assert counts == [9, 3, 9]
        assert {row["place"] for row in rows_of(both)} == {"p0", "p1"}
        assert joined.count() == 3
        late = "at > timestamp'2030-01-01 00:00:05Z' and id not in ('e6') and until is not null"
        assert sorted(row["id"] for row in rows_of(frame.where(late))) == ["e7", "e8"]
    finally:
        spark.conf.set(setting, before)


def test_spark_still_keeps_the_filters_that_a_python_source_took(spark: Any) -> None:
    """When this fails, Spark has mended it: filters could be taken again."""
    from pyspark.sql import datasource as D

    class Taking(D.DataSourceReader):
        def __init__(self) -> None:
            self.taken: list[Any] = []

        def pushFilters(self, filters: list[D.Filter]) -> Iterator[D.Filter]:
            self.taken += [each.value for each in filters if isinstance(each, D.EqualTo)]
            yield from [each for each in filters if not isinstance(each, D.EqualTo)]

        def read(self, partition: D.InputPartition) -> Iterator[tuple[str]]:
            yield from (("a",), ("b",)) if not self.taken else ((one,) for one in self.taken[:1])

    class Source(D.DataSource):
        @classmethod
        def name(cls) -> str:
            return "keeps_filters"

        def schema(self) -> str:
            return "x string"

        def reader(self, schema: Any) -> Taking:
            return Taking()

    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "true")
    try:
        spark.dataSource.register(Source)
        frame = spark.read.format("keeps_filters").load()
        assert [frame.count(), frame.where("x = 'a'").count(), frame.count()] == [2, 1, 1]
    finally:
        spark.conf.set(setting, before)


def test_options_narrow_what_is_read(save: Callable[..., None], load: Callable[..., Any]) -> None:
    save([event(n) for n in range(20)])

    def ids(**options: str) -> list[str]:
        return [row["id"] for row in rows_of(load(**options))]

    assert ids(place="p1", since="2030-01-01T00:00:10Z") == ["e10", "e13", "e16", "e19"]
    assert ids(until="2030-01-01T00:00:02Z") == ["e0", "e1"]
    assert ids(since=str(after(18).timestamp())) == ["e18", "e19"]
    assert ids(where='{"n": {"$mod": [7, 0]}}') == ["e0", "e7", "e14"]


# ---- mistakes: tests/spark/test_options.py has the rest ------------------------------------


def test_a_mistake_is_told_in_words_of_the_store(
    load: Callable[..., Any], save: Callable[..., None], db: Any
) -> None:
    with pytest.raises(
        Exception, match=r"NotFound: no such channel\. name='rods', channels=\['roads'"
    ):
        load("rods")
    with pytest.raises(Exception, match=r"InvalidRequest: .*\$close"):
        load(where='{"n": {"$close": 1}}')
    with pytest.raises(Exception, match="InvalidRequest: a place must be text of 1 to 512 bytes"):
        load(place="")
    with pytest.raises(Exception, match="InvalidRequest: the column at must hold timestamps"):
        save([event(1, at="noon")])
    assert db.channel("roads").scan("events").num_rows == 0


def test_rows_are_never_replaced(save: Callable[..., None], spark: Any, db: Any) -> None:
    frame = spark.createDataFrame(table([event(1)])).write.format("tideline")
    with pytest.raises(Exception, match=r"use mode\('append'\)"):
        frame.option("channel", "roads").mode("overwrite").save(str(db.path))


def test_a_folder_that_nobody_shares_says_what_to_do(
    spark: Any, tmp_path: Path, load: Callable[..., Any], db: Any
) -> None:
    with pytest.raises(Exception, match="NotFound: there is no store here"):
        spark.read.format("tideline").option("channel", "x").load(str(tmp_path / "no")).count()
    frame = load()
    share(db).close()
    with pytest.raises(Exception, match=r"Unavailable: nobody shares the store.*share\(db\)"):
        frame.count()


def test_a_store_that_goes_away_in_the_middle_of_a_read_says_so(
    save: Callable[..., None], load: Callable[..., Any], db: Any, monkeypatch: Any
) -> None:
    save([event(1)])
    whole = Local.scan

    def cut(self: Any, *args: Any, **options: Any) -> Any:
        yield from whole(self, *args, **options)
        raise ConnectionError("as when its process ends")

    monkeypatch.setattr(Local, "scan", cut)
    with pytest.raises(Exception, match="Unavailable: the store is gone: the process that had it"):
        load().collect()


# ---- bad rows -----------------------------------------------------------------------------

BAD = [event(1), event(2, body="{"), event(3, until=after(0)), event(4), event(5, place=None)]


def test_a_bad_row_fails_the_write_before_anything_lands(
    save: Callable[..., None], db: Any
) -> None:
    with pytest.raises(Exception, match="3 of 5 rows are rejected and nothing was written") as told:
        save(BAD)
    for reason in ("body is not JSON", "until must be after at", "place is missing"):
        assert reason in str(told.value)
    assert db.channel("roads").scan("events").num_rows == 0
    assert spool(db) == []


def test_bad_rows_can_be_dropped(save: Callable[..., None], load: Callable[..., Any]) -> None:
    save(BAD, rejected="drop")
    assert [row["id"] for row in rows_of(load())] == ["e1", "e4"]


def test_bad_rows_can_be_kept(
    save: Callable[..., None], load: Callable[..., Any], spark: Any, tmp_path: Path, db: Any
) -> None:
    bad = str(tmp_path / "bad")
    save([event(1, body='{"other":1}')])
    save(BAD, rejected=bad)
    assert [row["id"] for row in rows_of(load())] == ["e1", "e4"]
    kept = {row["id"]: row for row in rows_of(spark.read.parquet(bad))}
    assert sorted(kept) == ["e1", "e2", "e3", "e5"]
    assert kept["e2"]["body"] == "{"
    assert kept["e2"]["reason"] == "body is not JSON"
    assert "exists with other content" in kept["e1"]["reason"]
    assert spool(db) == []


def test_an_id_that_is_taken_fails_the_write_after_the_others_landed(
    save: Callable[..., None], load: Callable[..., Any]
) -> None:
    save([event(1)])
    with pytest.raises(Exception, match="1 of 2 rows were rejected, the others have landed"):
        save([event(1, body="{}"), event(2)])
    assert [row["id"] for row in rows_of(load())] == ["e1", "e2"]


# ---- faults -------------------------------------------------------------------------------


def test_a_named_write_lands_once(save: Callable[..., None], db: Any) -> None:
    """Rows without ids: if they were applied again, there would be more of them."""
    rows = [{name: value for name, value in event(n).items() if name != "id"} for n in range(5)]
    for _ in range(2):
        save(rows, writer="loader", number="7")
    assert db.channel("roads").scan("events").num_rows == 5
    save(rows, writer="loader", number="8")
    assert db.channel("roads").scan("events").num_rows == 10


def test_a_task_that_fails_leaves_nothing(save: Callable[..., None], spark: Any, db: Any) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame(table([event(n) for n in range(100)])).repartition(4)
    bad = F.when(F.col("id") == "e60", F.raise_error(F.lit("no luck"))).otherwise(F.col("body"))
    with pytest.raises(Exception, match="no luck"):
        save(frame.withColumn("body", bad))
    assert db.channel("roads").scan("events").num_rows == 0
    deadline = time.monotonic() + 300
    while [path for path in spool(db) if path.suffix == ".arrow"]:  # of tasks that still ran
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_names_of_options_take_any_case(save: Callable[..., None], db: Any, spark: Any) -> None:
    save([event(1)])
    found = spark.read.format("tideline").option("CHANNEL", "roads").option("Kind", "events")
    assert found.load(str(db.path)).count() == 1


# ---- a folder that nobody has open ----------------------------------------------------------


def test_a_folder_that_nobody_has_open_is_read_written_and_followed(
    spark: Any, tmp_path: Path
) -> None:
    """Spark opens it for as long as it needs, and whoever opens it then finds everything."""
    folder = tmp_path / "data"
    now = datetime.now(UTC)
    with tideline.open(folder) as db:
        db.channel("roads", journal_s=3600).publish("p", {"n": 0}, id="e0")
        db.collection("tweets", key="id").put({"id": 0})
    read = spark.read.format("tideline")
    assert read.option("channel", "roads").option("partitions", "2").load(str(folder)).count() == 1
    row = {"place": "p", "at": now, "body": "{}"}
    frame = spark.createDataFrame(table([{"id": f"e{n}", **row} for n in (1, 2)])).repartition(2)
    frame.write.format("tideline").option("channel", "roads").mode("append").save(str(folder))
    query = (
        spark.readStream.format("tideline").option("channel", "roads").load(str(folder))
        .selectExpr("cast(substr(id, 2) as int) as id").writeStream.format("tideline")
        .option("collection", "tweets").option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True).start(str(folder))
    )  # fmt: skip
    query.awaitTermination()
    with tideline.open(folder) as db:
        assert len(db.channel("roads").find("p")) == 3
        assert db.collection("tweets").find(sort=[("id", 1)]) == [{"id": n} for n in range(3)]
        with pytest.raises(Exception, match=r"nobody shares the store.*share\(db\).*open in ano"):
            read.option("channel", "roads").load(str(folder))
    (tmp_path / "other").mkdir()
    with pytest.raises(Exception, match="NotFound: there is no store here"):
        read.option("channel", "roads").load(str(tmp_path / "other"))
    assert list((tmp_path / "other").iterdir()) == []
