"""What the format `tideline` promises of streams: no gap, no duplicate, each batch at most once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tideline
from tideline.channel import Channel, landing
from tideline.spark import share
from tideline.spark.local import Local
from tideline.testing import ManualClock

pytestmark = pytest.mark.spark

START = datetime(2020, 1, 1, tzinfo=UTC)
COLUMNS = "id string, place string, at timestamp, body string"


def rows(first: int, limit: int, *, ids: bool = True) -> pa.Table:
    """Events [first, limit), a millisecond apart."""
    numbers = range(first, limit)
    start = int(START.timestamp() * 1_000_000)
    return pa.table(
        {
            "id": pa.array([f"e{n}" if ids else None for n in numbers], pa.string()),
            "place": [f"p{n % 3}" for n in numbers],
            "at": pa.array([start + 1000 * n for n in numbers], pa.timestamp("us", "UTC")),
            "body": [f'{{"n":{n}}}' for n in numbers],
        }
    )


def publish(db: Any, first: int, limit: int) -> None:
    table = rows(first, limit)
    ops = pa.array(["publish"] * len(table))
    db.channel("roads").apply(table.append_column("op", ops))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START.timestamp() + 50)  # no row is far ahead of it


@pytest.fixture
def db(open_database: Callable[..., Any]) -> Any:
    """A database with the channel `roads`, shared."""
    found = open_database()
    found.channel("roads", journal_s=3600)
    share(found)
    return found


@pytest.fixture
def follow(db: Any, spark: Any, tmp_path: Path) -> Callable[..., list[list[dict[str, Any]]]]:
    """`follow(kind=...)`: what a query reads until nothing is left, by micro-batch."""

    def run(
        checkpoint: str = "checkpoint", channel: str = "roads", **options: str
    ) -> list[list[dict[str, Any]]]:
        seen: dict[int, list[dict[str, Any]]] = {}

        def take(frame: Any, number: int) -> None:
            seen[number] = frame.toArrow().to_pylist()

        stream = spark.readStream.format("tideline").option("channel", channel).options(**options)
        query = (
            stream.load(str(db.path))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [seen[number] for number in sorted(seen)]

    return run


def ids(batches: list[list[dict[str, Any]]]) -> list[str]:
    return [row["id"] for batch in batches for row in batch]


def expected(first: int, limit: int) -> list[str]:
    return [f"e{n}" for n in range(first, limit)]


# ---- reading ------------------------------------------------------------------------------


def test_a_query_goes_on_without_gap_or_duplicate(follow: Any, db: Any, open_database: Any) -> None:
    publish(db, 0, 10)
    first = follow()
    assert ids(first) == expected(0, 10)
    assert list(first[0][0]) == ["id", "place", "at", "until", "body", "seq"]
    publish(db, 10, 15)
    share(open_database())  # the store is closed and opened again
    publish(open_database(), 15, 20)
    db = open_database()
    share(db)
    assert ids(follow()) == expected(10, 20)
    assert ids(follow()) == []


def test_answers_are_followed(follow: Any, db: Any) -> None:
    roads = db.channel("roads")
    publish(db, 0, 3)
    until = START + timedelta(seconds=100)
    roads.subscribe("p1", user="ann", id="s1", since=START, until=until)
    publish(db, 3, 6)
    found = [row for batch in follow(kind="answers") for row in batch]
    assert [(row["subscription"], row["event"], row["user"], row["kind"]) for row in found] == [
        ("s1", "e1", "ann", "past"),
        ("s1", "e4", "ann", "live"),
    ]


# ---- writing ------------------------------------------------------------------------------


class Sink:
    """A query from a folder of Parquet files into the channel `roads`."""

    def __init__(self, spark: Any, db: Any, folder: Path) -> None:
        self.spark, self.db, self.folder = spark, db, folder
        self.checkpoint = folder / "checkpoint"
        self.files = folder / "in"
        self.files.mkdir()
        self.landed: list[Any] = []
        """What each commit gave."""

    def give(self, table: pa.Table) -> None:
        count = len(list(self.files.iterdir()))
        pq.write_table(table, self.files / f"{count:03}.parquet")

    def run(self, change: Callable[[Any], Any] = lambda frame: frame, **options: str) -> None:
        files = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        query = (
            change(files.parquet(str(self.files)))
            .writeStream.format("tideline")
            .options(channel="roads", op="publish", checkpointLocation=str(self.checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start(str(self.db.path))
        )
        query.awaitTermination()

    def forget(self, batch: int) -> None:
        """As if Spark had been killed before it noted that this batch is done."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def stored(self) -> list[str]:
        found = self.db.channel("roads").scan("events")["body"].to_pylist()
        return sorted(found, key=lambda body: int(json.loads(body)["n"]))


@pytest.fixture
def sink(spark: Any, db: Any, tmp_path: Path, monkeypatch: Any) -> Sink:
    found = Sink(spark, db, tmp_path)
    whole = Local.commit

    def watched(self: Any, *args: Any, **options: Any) -> Any:
        found.landed.append(whole(self, *args, **options))
        return found.landed[-1]

    monkeypatch.setattr(Local, "commit", watched)
    return found


def bodies(first: int, limit: int) -> list[str]:
    return [f'{{"n":{n}}}' for n in range(first, limit)]


def test_a_batch_that_is_run_again_changes_nothing(sink: Sink, tmp_path: Path) -> None:
    """The rows have no ids: nothing but the batch's number tells that they are the same.

    The checkpoint is moved, too: the number goes with it.
    """
    sink.give(rows(0, 10, ids=False))
    sink.give(rows(10, 20, ids=False))
    sink.run()
    assert sink.stored() == bodies(0, 20)
    sink.forget(1)
    sink.checkpoint = Path(shutil.move(sink.checkpoint, tmp_path / "elsewhere"))
    sink.give(rows(20, 25, ids=False))
    sink.run()
    counts = [(each.rows, each.repeated) for each in sink.landed]
    assert counts == [(10, 0), (10, 0), (10, 10), (5, 0)]
    assert sink.stored() == bodies(0, 25)


def test_a_batch_that_landed_in_part_is_completed(sink: Sink, monkeypatch: Any) -> None:
    """The second of three tables fails; the batch is run again, spread over tasks otherwise."""
    monkeypatch.setattr(landing, "SLICE", 1000)
    sink.give(rows(0, 2500, ids=False))
    whole = Channel.apply
    calls: list[int] = []

    def failing(self: Any, table: pa.Table, **options: Any) -> Any:
        calls.append(len(table))
        if len(calls) == 2:
            raise tideline.Unavailable("the disk is full")
        return whole(self, table, **options)

    monkeypatch.setattr(Channel, "apply", failing)
    with pytest.raises(Exception, match="Unavailable: the disk is full"):
        sink.run(lambda frame: frame.repartition(3))
    assert len(sink.stored()) == 1000
    sink.run(lambda frame: frame.repartition(2, "body"))
    assert [(each.rows, each.repeated) for each in sink.landed] == [(2500, 1000)]
    assert sink.stored() == bodies(0, 2500)


def test_a_worker_that_is_killed_loses_and_doubles_nothing(sink: Sink, tmp_path: Path) -> None:
    flag = tmp_path / "kill"
    flag.touch()

    def kill_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            try:
                flag.unlink()
            except FileNotFoundError:
                continue  # another task was the first
            os.kill(os.getpid(), signal.SIGKILL)

    def change(frame: Any) -> Any:
        return frame.repartition(2).mapInArrow(kill_once, COLUMNS)

    sink.give(rows(0, 1000, ids=False))
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        sink.run(change)
    assert sink.stored() == []
    sink.run(change)
    assert sink.stored() == bodies(0, 1000)
    assert list((sink.db.path / "spool").iterdir()) == []


def test_a_store_that_goes_away_stops_the_query_and_loses_nothing(
    sink: Sink, open_database: Any, monkeypatch: Any
) -> None:
    sink.give(rows(0, 10, ids=False))
    whole = Local.check

    def closed(self: Any, *args: Any, **options: Any) -> Any:
        self.stopping.set()
        return whole(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Local, "check", closed)
        with pytest.raises(Exception, match="Closed: the database is being closed"):
            sink.run()
    sink.db = open_database()
    share(sink.db)
    sink.run()
    assert sink.stored() == bodies(0, 10)


def test_bad_rows_of_a_stream(sink: Sink, spark: Any, tmp_path: Path) -> None:
    bad = rows(0, 4).to_pylist()
    bad[2]["body"] = "{"
    sink.give(pa.Table.from_pylist(bad, rows(0, 1).schema))
    with pytest.raises(Exception, match="1 of 4 rows are rejected and nothing was written"):
        sink.run()
    assert sink.stored() == []
    kept = str(tmp_path / "bad")
    sink.run(rejected=kept)
    assert sink.stored() == ['{"n":0}', '{"n":1}', '{"n":3}']
    sink.forget(0)
    sink.run(rejected=kept)  # once more: the same file
    found = spark.read.parquet(kept).select("id", "body", "reason").collect()
    assert [tuple(row) for row in found] == [("e2", "{", "body is not JSON")]


# ---- killed drivers -----------------------------------------------------------------------

DRIVER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1].split(":")
import tideline
from tideline.spark import session, share
from test_stream import COLUMNS

folder = Path(sys.argv[2])
spark = session(master="local[2]", memory="1g", tmp=folder / "tmp")
with tideline.open(folder / "data") as db:
    roads = db.channel("roads", journal_s=3600)
    share(db)
    files = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    query = (
        files.parquet(str(folder / "in")).repartition(2)
        .writeStream.format("tideline")
        .options(channel="roads", op="publish", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True).start(str(db.path))
    )
    while query.isActive:
        count = roads.stats().events
        print(count, flush=True)
        query.awaitTermination(0.02)
    query.awaitTermination()
    print("done", roads.stats().events, flush=True)
"""


@pytest.mark.long
def test_a_driver_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The driver has the store and Spark in one process; kill -9 takes both, in full flow."""
    each, files = 20_000, 30
    (tmp_path / "in").mkdir()
    for number in range(files):
        table = rows(number * each, (number + 1) * each, ids=False)
        pq.write_table(table, tmp_path / "in" / f"{number:03}.parquet")
    here = Path(__file__).resolve().parent
    paths = f"{here}:{here.parent}"
    command = [sys.executable, "-c", DRIVER, paths, str(tmp_path)]
    kills = 0
    for enough in (3 * each, 13 * each + each // 2, None):
        log = (tmp_path / "log").open("a")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as driver:
            assert driver.stdout is not None
            said = ""
            for said in driver.stdout:
                if enough is not None and said.strip().isdigit() and int(said) >= enough:
                    driver.kill()
                    kills += 1
                    break
        log.close()
        if enough is None:
            assert said == f"done {each * files}\n", (tmp_path / "log").read_text()
    assert kills == 2
    with tideline.open(tmp_path / "data") as db:
        found = db.channel("roads").scan("events")["body"].to_pylist()
    assert sorted(found) == sorted(bodies(0, each * files))
