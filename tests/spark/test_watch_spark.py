"""`tideline.spark.watch` through Spark itself: changes, restarts, kills, wrong input.

What the results should be is asked of a collection after every write: watch_stream.py.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_match_spark import workers
from watch_stream import QUERIES, Row, asked, check, story

from tideline.errors import InvalidRequest, Unavailable
from tideline.spark import share, watch

pytestmark = pytest.mark.spark

ASKED = "id string, where string, sort string, limit long, offset long, op string"
TOLD = "key string, seq long, op string, document string, before string"


class Files:
    """Folders of files, one file a micro-batch, and the query over them."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.count = 0
        for side in ("queries", "writes"):
            (folder / side).mkdir()

    def add(self, side: str, rows: list[Row]) -> None:
        path = self.folder / side / f"{self.count:04}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1_700_000_000 + self.count,) * 2)  # Spark reads the oldest first
        self.count += 1

    def stream(self, side: str) -> Any:
        reader = self.spark.readStream.schema(ASKED if side == "queries" else TOLD)
        return reader.option("maxFilesPerTrigger", 1).json(str(self.folder / side))

    def run(self, changes: Any, name: str = "run") -> list[Row]:
        """Run a query over all files there are; gives everything that was told so far."""
        writer = changes.writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("path", str(self.folder / name / "changes"))
        writer = writer.option("checkpointLocation", str(self.folder / name / "checkpoint"))
        writer.start().awaitTermination()
        return rows_of(self.spark.read.parquet(str(self.folder / name / "changes")))


def rows_of(frame: Any) -> list[Row]:
    return list(frame.toArrow().to_pylist())


@pytest.fixture
def files(spark: Any, tmp_path: Path) -> Files:
    return Files(spark, tmp_path)


def queries_of(spark: Any, queries: list[Row]) -> Any:
    return spark.createDataFrame([tuple(asked(query).values()) for query in queries], ASKED)


def key(row: Row) -> tuple[Any, ...]:
    return (row["query"], row["version"], row["step"] or 0, row["kind"], row["key"])


def test_a_stream_tells_what_find_gives_through_restarts_and_kills(
    files: Files, spark: Any
) -> None:
    compare(files, spark, [None, (2, 2)])


@pytest.mark.long
def test_every_grid_tells_the_same(files: Files, spark: Any) -> None:
    compare(files, spark, [None, (1, 1), (2, 1), (1, 2), (2, 2), (3, 5)])


def compare(files: Files, spark: Any, grids: list[Any]) -> None:
    """A stream that is stopped and killed on the way tells the same on every grid."""
    rows, results = story(11, 80)
    told: dict[Any, list[Row]] = {}
    for part in (rows[:17], rows[17:40][::-1]), (rows[40:],):
        for some in part:
            files.add("writes", some)
        for grid in grids:
            changes = watch(queries_of(spark, QUERIES), files.stream("writes"), grid=grid)
            told[grid] = files.run(changes, f"grid{grid}")
        if files.count == 2:
            for pid in workers(spark):
                os.kill(pid, signal.SIGKILL)
    for found in told.values():
        check(found, results)
        assert sorted(found, key=key) == sorted(told[None], key=key)


def test_a_batch_tells_the_same(spark: Any) -> None:
    rows, results = story(12, 60)
    writes = spark.createDataFrame(pa.Table.from_pylist(rows))
    told = {}
    for grid in (None, (1, 1), (2, 1), (2, 2)):
        told[grid] = rows_of(watch(queries_of(spark, QUERIES), writes, grid=grid))
        check(told[grid], results)
        assert sorted(told[grid], key=key) == sorted(told[None], key=key)


def test_queries_come_and_go_as_a_stream_and_wrong_ones_are_told(files: Files) -> None:
    rows, results = story(13, 60)
    few = QUERIES[1:8:2]
    files.add("queries", [asked(query) for query in few])
    files.add("writes", rows[:40])
    changes = watch(files.stream("queries"), files.stream("writes"), grid=(2, 2))
    files.run(changes)
    wrong = {**asked({"id": "wrong"}), "where": '{"n": {"$gtt": 1}}'}
    files.add("queries", [wrong, asked(few[0], "cancel"), asked(few[1])])
    files.add("writes", rows[40:50])
    files.add("writes", rows[50:])
    found = files.run(watch(files.stream("queries"), files.stream("writes"), grid=(2, 2)))
    bad = [row for row in found if row["kind"] == "error"]
    assert [row["query"] for row in bad] == ["wrong"]
    assert "$gtt" in bad[0]["document"]
    good = [row for row in found if row["kind"] != "error"]
    check([row for row in good if row["query"] != few[0]["id"]], results, few[1:])
    seen = {row["version"] for row in good if row["query"] == few[0]["id"]}
    assert 0 < max(seen) <= rows[49]["seq"]


@pytest.mark.parametrize("grid", [None, (1, 2)])
def test_a_collection_is_watched(
    spark: Any, open_database: Callable[..., Any], tmp_path: Path, grid: Any
) -> None:
    db = open_database()
    orders = db.collection("orders", key="id", journal_before=True)
    share(db)
    orders.put_many([{"id": n, "total": n} for n in range(5)])
    position = 3  # some of what is read first comes again
    first = spark.read.format("tideline").option("collection", "orders").load(str(db.path))
    first = spark.createDataFrame(first.toArrow())  # as of now
    orders.put({"id": 1, "total": 9})
    orders.delete(4)
    reader = spark.readStream.format("tideline").option("collection", "orders")
    if grid is None:
        given, writes = None, reader.option("before", "true").load(str(db.path))
    else:
        reader = reader.option("startingPosition", str(position))
        given, writes = first, reader.load(str(db.path))
    top = queries_of(spark, [{"id": "top", "sort": [["total", -1]], "limit": 2}])
    query = (
        watch(top, writes, grid=grid, first=given).writeStream.format("parquet")
        .trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "changes"))
    )  # fmt: skip
    query.awaitTermination()
    result: list[Any] = []
    for row in rows_of(spark.read.parquet(str(tmp_path / "changes")).orderBy("step")):
        if row["old_index"] is not None:
            result.pop(row["old_index"])
        if row["index"] is not None:
            result.insert(row["index"], json.loads(row["document"]))
    assert result == orders.find(sort=[("total", -1)], limit=2) == [
        {"id": 1, "total": 9}, {"id": 3, "total": 3},
    ]  # fmt: skip


def test_what_is_wrong_with_the_call_is_said_before_anything_runs(spark: Any, files: Files) -> None:
    queries, writes = queries_of(spark, QUERIES), files.stream("writes")
    files.add("writes", [])

    def said(error: Any = InvalidRequest, **given: Any) -> str:
        told = {"queries": queries, "writes": writes, "grid": (1, 1), **given}
        with pytest.raises(error) as caught:
            watch(told.pop("queries"), told.pop("writes"), **told)
        return str(caught.value)

    assert "queries must be a Spark DataFrame" in said(queries=[1])
    assert "writes need the column key (did you mean 'keys'?)" in said(
        writes=writes.withColumnRenamed("key", "keys")
    )
    assert "queries need the column id" in said(queries=queries.drop("id"))
    assert "seq of writes must hold whole numbers" in said(
        writes=writes.withColumn("seq", writes["key"])
    )
    shaped = writes.selectExpr("key", "seq", "op", "struct(document) AS document")
    assert "document of writes must hold text: to_json" in said(writes=shaped)
    for grid in ((0, 1), (1,), 2, (1, 5000), (True, 1)):
        assert "grid must be a number of query partitions" in said(grid=grid)
    assert "need the column before" in said(writes=writes.drop("before"), grid=None)
    assert "give grid=(q, w) for a stream" in said(queries=files.stream("queries"), grid=None)
    batch = spark.createDataFrame([], TOLD)
    assert "writes must be a stream" in said(queries=files.stream("queries"), writes=batch)
    assert "key must be" in said(key="")
    assert "first must be a batch" in said(first=writes)
    assert "first must be a batch" in said(first=batch, grid=None)
    wrong = queries_of(spark, [{"id": "q7", "where": {"n": {"$gtt": 1}}}])
    assert "the query q7 is wrong" in said(queries=wrong)
    assert "two queries have one id" in said(
        queries=queries_of(spark, [{"id": "a"}, {"id": "a", "limit": 1}])
    )
    other = spark.newSession()
    name = "spark.sql.streaming.stateStore.providerClass"
    other.conf.set(name, spark.conf.get(name).replace("RocksDB", "HDFSBacked"))
    stream = other.readStream.schema(TOLD).json(str(files.folder / "writes"))
    assert "RocksDB state store" in said(Unavailable, writes=stream)
