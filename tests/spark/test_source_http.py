"""The format `tideline` and the pipeline on a server: the same promises, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipelines import config, time_of

import tideline
from tideline.errors import InvalidRequest, Unavailable
from tideline.server import running
from tideline.server.tokens import Tokens
from tideline.spark import http
from tideline.spark.client import connect
from tideline.spark.options import Target, target
from tideline.spark.pipeline import Pipeline

pytestmark = pytest.mark.spark


def rows(first: int, limit: int) -> pa.Table:
    numbers = range(first, limit)
    return pa.table(
        {
            "id": [f"e{n}" for n in numbers],
            "place": [f"p{n % 3}" for n in numbers],
            "at": pa.array([time_of(n) for n in numbers], pa.timestamp("us", "UTC")),
            "body": [f'{{"n":{n}}}' for n in numbers],
        }
    )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """A database behind a server with a token, and the options that lead there."""
    folder = tmp_path / "data"
    folder.mkdir()
    token, _ = Tokens(folder).create(["admin"])
    with tideline.open(folder, memory_mb=64) as db, running(db) as url:
        db.channel("roads", journal_s=3600)
        yield db, {"url": url, "token": token, "channel": "roads"}


def test_batches_and_streams_go_over_http(served: Any, spark: Any, tmp_path: Path) -> None:
    db, options = served
    roads = db.channel("roads")

    # A batch write: two tasks stage, one commit; the same batch again changes nothing.
    once = {"writer": "loader", "number": "1"}
    frame = spark.createDataFrame(rows(0, 50)).repartition(2)
    for _ in range(2):
        frame.write.format("tideline").options(**options, **once).mode("append").save()
    assert roads.scan("events")["id"].to_pylist() == [f"e{n}" for n in range(50)]

    # A batch read, with filters of Spark's and a condition.
    reader = spark.read.format("tideline").options(**options, where='{"n": {"$lt": 30}}')
    found = reader.load().where("place = 'p1' and at >= '2026-01-01 00:00:10'").toArrow()
    assert sorted(found["id"].to_pylist()) == sorted(f"e{n}" for n in range(10, 30) if n % 3 == 1)

    # A streaming read into a streaming write: each micro-batch once, through a restart.
    db.channel("copy", journal_s=3600)
    columns = ["id", "place", "at", "body"]

    def copy() -> None:
        stream = spark.readStream.format("tideline").options(**options, maxRowsPerBatch="20")
        query = (
            stream.load().select(*columns).writeStream.format("tideline")
            .options(**{**options, "channel": "copy"})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    copy()
    roads.apply(rows(50, 70).append_column("op", pa.array(["publish"] * 20)))
    copy()
    assert db.channel("copy").scan("events")["id"].to_pylist() == [f"e{n}" for n in range(70)]


def test_bad_rows_and_strangers_change_nothing(served: Any, spark: Any, tmp_path: Path) -> None:
    db, options = served
    bad = rows(0, 3).set_column(3, "body", pa.array(["{}", "nonsense", "{}"]))
    frame = spark.createDataFrame(bad)

    def write(**other: str) -> None:
        given = {**options, **other}
        frame.write.format("tideline").options(**given).mode("append").save()

    with pytest.raises(Exception, match="1 of 3 rows are rejected and nothing was written"):
        write()
    with pytest.raises(Exception, match="not known here"):
        write(token="tl_00000000_" + "x" * 43)
    assert db.channel("roads").find("p0") == []
    write(rejected=str(tmp_path / "bad"))
    assert len(db.channel("roads").scan("events")) == 2
    [kept] = spark.read.parquet(str(tmp_path / "bad")).collect()
    assert (kept["id"], kept["reason"]) == ("e1", "body is not JSON")


def test_a_client_has_the_whole_interface(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    db, options = served
    monkeypatch.setattr(http, "_PIECE_BYTES", 400)  # many pieces
    client = connect(Target(options["url"], "roads", options["token"]))
    facts = client.describe("roads")
    assert (facts.identity, facts.layout) == (db.channel("roads").identity, "dual")
    client.create("new", {"kind": "topics"})
    assert db.channel("new").space == tideline.Topics()
    table = rows(0, 40).append_column("op", pa.array(["publish"] * 40))
    token = client.stage("job", table.to_batches())
    assert token.count(",") > 3
    assert client.check("roads", [token]).rejected == 0
    assert client.commit("roads", [token], once=("w", 1)).rows == 40
    assert client.commit("roads", [token], once=("w", 1)).repeated == 40
    client.discard("job", over=True)
    with pytest.raises(Unavailable, match="staged rows are gone"):
        client.commit("roads", [token])
    start = client.earliest("roads", "events")
    end = client.position("roads")
    middle = client.reach("roads", "events", start, end, 1)
    assert start < middle <= end
    read = [row for batch in client.journal("roads", "events", start, end) for row in batch["id"]]
    assert len(read) == 40
    extra = rows(40, 45).append_column("op", pa.array(["publish"] * 5))
    token = client.stage("more", extra.to_batches(), "arrival")
    assert client.commit("roads", [token], once=("w", 2), order="arrival").rows == 5
    assert client.commit("roads", [token], once=("w", 2), order="arrival").repeated == 5
    found = pa.Table.from_batches(client.scan("roads", "events"))
    assert found.num_rows == 45
    with pytest.raises(tideline.NotFound):
        client.describe("nothing")
    client.close()
    with pytest.raises(InvalidRequest, match="must be http"):
        target({"url": "ftp://x", "channel": "c"}, "read")
    with pytest.raises(InvalidRequest, match="not both"):
        target({"url": options["url"], "path": "data", "channel": "c"}, "read")


@pytest.fixture
def pipeline(served: Any, tmp_path: Path) -> Callable[..., Pipeline]:
    _, options = served
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(rows(0, 30).drop_columns("body"), source / "rows.parquet")

    def make(**store: Any) -> Pipeline:
        given = {"url": options["url"], "token": options["token"], "channel": "roads", **store}
        kept = {name: value for name, value in given.items() if value is not None}
        made = config(tmp_path, store=kept)
        return Pipeline(made)

    return make


def test_a_pipeline_stores_on_a_server_once(
    served: Any, spark: Any, pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    db, options = served
    assert "the server at http" in pipeline().explain()
    monkeypatch.setenv("TIDELINE_TOKEN", options["token"])
    summary = pipeline(token=None).run(spark=spark)
    assert summary.totals["stored"] == 30
    assert sorted(db.channel("roads").scan("events")["id"].to_pylist()) == sorted(
        f"e{n}" for n in range(30)
    )
    again = pipeline().run(spark=spark)
    assert again.totals["stored"] == 30
    assert len(db.channel("roads").scan("events")) == 30


def test_a_store_is_a_folder_or_a_server(pipeline: Callable[..., Pipeline]) -> None:
    for store, said in [
        ({"folder": "data"}, "give folder or url, not both"),
        ({"url": None, "folder": "data"}, "token goes with url"),
        ({"url": "localhost:80"}, "url must be http"),
    ]:
        with pytest.raises(InvalidRequest, match=said):
            pipeline(**store)
