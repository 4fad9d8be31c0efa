"""Collections on Spark: what is written is put, what is read is of one moment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tideline.spark import share

pytestmark = pytest.mark.spark


@pytest.fixture
def db(open_database: Callable[..., Any]) -> Any:
    """A database with the collection `tweets`, shared."""
    found = open_database()
    found.collection("tweets", key="id", indexes={"user": "lazy"}, filter="time")
    share(found)
    return found


@pytest.fixture
def save(db: Any, spark: Any) -> Callable[..., None]:
    def write(rows: Any, collection: str = "tweets", **options: str) -> None:
        frame = (
            spark.createDataFrame(pa.Table.from_pylist(rows)) if isinstance(rows, list) else rows
        )
        writer = frame.write.format("tideline").option("collection", collection).options(**options)
        writer.mode("append").save(str(db.path))

    return write


@pytest.fixture
def load(db: Any, spark: Any) -> Callable[..., Any]:
    def read(**options: str) -> Any:
        reader = spark.read.format("tideline").option("collection", "tweets").options(**options)
        return reader.load(str(db.path))

    return read


def rows_of(frame: Any) -> list[Any]:
    return list(frame.toArrow().to_pylist())


def test_columns_are_put_and_read_back(db: Any, save: Any, load: Any) -> None:
    rows = [{"id": n, "user": n % 3, "time": 100 + n, "tags": ["a", None], "x": {"y": 0.5}}
            for n in range(50)]  # fmt: skip
    save(rows)
    tweets = db.collection("tweets")
    assert tweets.find(sort=[("id", 1)]) == rows
    found = rows_of(load().orderBy("seq"))
    assert [
        json.loads(row["document"]) for row in sorted(found, key=lambda r: int(r["key"]))
    ] == rows
    assert {row["key"] for row in found} == {str(n) for n in range(50)}


def test_json_documents_are_put_as_they_are(db: Any, save: Any) -> None:
    save([{"document": '{"id": "a", "user": [1, 2]}'}, {"document": '{"id": 5}'}])
    tweets = db.collection("tweets")
    assert tweets.get("a") == {"id": "a", "user": [1, 2]}
    assert tweets.lookup("user", 2) == [{"id": "a", "user": [1, 2]}]
    save([{"id": 5}, {"id": 77}], op="delete")
    assert tweets.count() == 1


def test_conditions_and_keys_narrow_what_is_read(db: Any, save: Any, load: Any) -> None:
    save([{"id": n, "user": n % 5, "time": n} for n in range(100)])
    assert load(where='{"user": 3, "time": {"$lt": 50}}').count() == 10
    assert [row["key"] for row in rows_of(load(low="10", high="12"))] == ["10", "11", "12"]
    one = load().where("key = '17'")
    assert [json.loads(row["document"])["id"] for row in rows_of(one)] == [17]
    assert load().where("seq > 90").count() == 10


def test_a_batch_with_bad_rows_fails_whole_or_leaves_them_out(
    db: Any, save: Any, tmp_path: Path
) -> None:
    rows = [{"document": '{"id": 1}'}, {"document": '{"no": 1}'}, {"document": "{"}]
    with pytest.raises(Exception, match="2 of 3 rows are rejected and nothing was written"):
        save(rows)
    tweets = db.collection("tweets")
    assert tweets.count() == 0
    save(rows, rejected="drop")
    assert tweets.count() == 1
    save(rows, rejected=str(tmp_path / "bad"))
    import pyarrow.parquet as pq

    bad = pq.read_table(tmp_path / "bad").to_pylist()
    assert sorted(each["document"] for each in bad) == ["{", '{"no": 1}']


def test_a_write_makes_the_collection_when_told_how(db: Any, save: Any) -> None:
    save([{"id": 1, "a": 2}], collection="new", key="id", indexes='{"a": "composite"}')
    assert db.collection("new").lookup("a", 2) == [{"id": 1, "a": 2}]


def test_a_micro_batch_that_is_run_again_changes_no_document(
    db: Any, spark: Any, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "1.json").write_text("\n".join(json.dumps({"id": n, "user": n}) for n in range(20)))

    def run(checkpoint: str) -> None:
        frame = spark.readStream.schema("id long, user long").json(str(source))
        query = (
            frame.writeStream.format("tideline").option("collection", "tweets")
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True).start(str(db.path))
        )  # fmt: skip
        query.awaitTermination()

    run("first")
    tweets = db.collection("tweets")
    before = tweets.find(sort=[("id", 1)])
    assert len(before) == 20
    tweets.put({"id": 5, "user": "somebody"})
    run("second")  # a checkpoint that was lost: everything comes again
    assert tweets.find(sort=[("id", 1)]) == before  # what was put in between is replaced


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channel": "roads"}, "channel or collection, not both"),
        ({"kind": "events"}, "takes no such option"),
        ({"where": "["}, "must be JSON"),
        ({"collection": "twets"}, "no such collection"),
    ],
)
def test_what_is_wrong_with_a_read_is_said(load: Any, options: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        load(**options).count()


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ({"user": 1}, {}, "the column of the key, id, is missing"),
        ({"id": 1, "user": 1}, {"op": "delete"}, "the column of the key alone"),
        ({"document": 1}, {}, "must hold JSON text"),
        ({"id": 1}, {"op": "upsert"}, "must be one of put, delete, change"),
        ({"id": 1}, {"indexes": "{}"}, "goes with key"),
        ({"id": 1}, {"key": "other"}, "the collection has another key"),
    ],
)
def test_what_is_wrong_with_a_write_is_said(
    save: Any, row: Any, options: Any, message: str
) -> None:
    with pytest.raises(Exception, match=message):
        save([row], **options)


# ---- changes from elsewhere -----------------------------------------------------------------


def test_op_and_version_decide_what_a_row_does(db: Any, save: Any) -> None:
    tweets = db.collection("tweets")
    tweets.put({"id": 9, "v": 5})

    def rows(*given: tuple[str, int, int]) -> list[dict[str, Any]]:
        return [{"op": op, "id": key, "v": version} for op, key, version in given]

    first = rows(("c", 1, 2), ("u", 1, 1), ("d", 2, 7), ("r", 2, 6), ("c", 3, 1), ("d", 3, 2))
    save(first + rows(("u", 9, 5), ("d", 9, 4)), version="v")
    assert tweets.find(sort=[("id", 1)]) == [{"id": 1, "v": 2}, {"id": 9, "v": 5}]
    save(rows(("d", 1, 3), ("u", 9, 6)), version="v")
    assert tweets.find() == [{"id": 9, "v": 6}]
    documents = [{"op": "d", "document": '{"id": 9}'}, {"op": "c", "document": '{"id": 4}'}]
    save(documents)
    assert tweets.find() == [{"id": 4}]
    with pytest.raises(Exception, match="the column op must be one of c, u, r, d, not 'x'"):
        save([{"op": "x", "id": 1}])
    with pytest.raises(Exception, match="the version, the field v, is no number and no text"):
        save([{"id": 1, "v": None}, {"id": 2, "v": 1}], version="v")
    save([{"op": "sale", "id": 8}], op="put")
    assert tweets.get(8) == {"op": "sale", "id": 8}


def test_a_batch_lands_once_and_is_remembered_over_a_restart(
    db: Any, save: Any, spark: Any, open_database: Callable[..., Any]
) -> None:
    named = {"writer": "loader", "number": "3"}
    save([{"id": 1, "user": "old"}], **named)
    db.collection("tweets").put({"id": 1, "user": "newer"})
    save([{"id": 1, "user": "old"}], **named)
    assert db.collection("tweets").get(1) == {"id": 1, "user": "newer"}
    db.close()
    again = open_database()
    share(again)
    frame = spark.createDataFrame([(1, "old")], "id long, user string")
    writer = frame.write.format("tideline").option("collection", "tweets").mode("append")
    writer.options(**named).save(str(again.path))
    assert again.collection("tweets").get(1) == {"id": 1, "user": "newer"}
    writer.options(writer="loader", number="4").save(str(again.path))
    assert again.collection("tweets").get(1) == {"id": 1, "user": "old"}


def test_a_stream_reads_every_change_once(db: Any, spark: Any, tmp_path: Path) -> None:
    tweets = db.collection("tweets", journal_s=3600)

    def run(**options: str) -> None:
        stream = spark.readStream.format("tideline").option("collection", "tweets")
        query = (
            stream.options(**options).load(str(db.path))
            .writeStream.format("parquet").trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "check")).start(str(tmp_path / "out"))
        )  # fmt: skip
        query.awaitTermination()

    tweets.put_many([{"id": n, "user": n} for n in range(10)])
    tweets.delete(3)
    run(maxRowsPerBatch="4")
    run()
    tweets.put({"id": 3, "user": "again"})
    run()
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("seq").collect()
    assert [row.seq for row in found] == list(range(1, 13))
    assert [(row.key, row.op) for row in found][-2:] == [("3", "d"), ("3", "u")]
    assert json.loads(found[0].document) == {"id": 0, "user": 0}
    assert found[10].document is None
    db.drop_collection("tweets")
    db.collection("tweets", key="id")
    with pytest.raises(Exception, match="the checkpoint is of another collection"):
        run()


def test_a_large_collection_is_read_by_ranges_of_keys(db: Any, load: Any) -> None:
    tweets = db.collection("tweets")
    tweets.put_many([{"id": n, "user": n % 7} for n in range(5000)])
    tweets.put_many([{"id": f"t{n:04}", "user": n % 7} for n in range(5000)])
    tweets._engine.seal()
    tweets.delete_many(range(0, 5000, 10))
    whole = load(partitions="5")
    assert whole.rdd.getNumPartitions() == 5
    keys = [row["key"] for row in rows_of(whole)]
    assert len(keys) == len(set(keys)) == 9500
    some = load(low="4000", high="t0009", where='{"user": {"$lt": 3}}')
    assert some.count() == sum(n % 7 < 3 and n % 10 > 0 for n in range(4000, 5000)) + sum(
        n % 7 < 3 for n in range(10)
    )


def test_a_server_gives_and_takes_documents(db: Any, spark: Any, tmp_path: Path) -> None:
    from tideline.server import running

    with running(db) as url:
        there = {"url": url, "collection": "cars"}
        frame = spark.createDataFrame([(1, "a", 1), (2, "b", 1)], "id long, name string, v long")
        writer = frame.write.format("tideline").options(**there, key="id", version="v")
        writer.options(writer="w", number="1").mode("append").save()
        writer.options(writer="w", number="1").mode("append").save()
        assert db.collection("cars").position() == 2
        found = spark.read.format("tideline").options(**there).load()
        assert sorted(row.key for row in found.collect()) == ["1", "2"]
        assert found.where("key = '1'").count() == 1
        stream = spark.readStream.format("tideline").options(**there).load()
        query = (
            stream.writeStream.format("memory").queryName("cars_changes")
            .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        assert spark.table("cars_changes").count() == 2
