"""`tideline.spark.match` through Spark itself: answers, restarts, kills, bad input.

What a channel would have answered is asked of a channel: `apply` with the rows of each
micro-batch in the order that `match` promises. The rules one by one are in test_match_model.py
and test_match_state.py, which need no Spark to run.
"""

from __future__ import annotations

import functools
import importlib
import os
import random
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import match_stream as matching
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tideline import Flat, QuadTree, Topics
from tideline.errors import InvalidRequest, Unavailable
from tideline.spark import match
from tideline.spark.matching.settings import labels, spark_hash

pytestmark = pytest.mark.spark

SECOND, START = matching.SECOND, matching.START
ASKED = [
    "op", "id", "place", "lon", "lat", "radius_m", "user", "at", "since", "until", "where",
    "unseen",
]  # fmt: skip
QUAD = QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=6)


class Files:
    """Two folders of Parquet files, one file a micro-batch, and the query over them."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.files = 0

    def add(self, batches: list[list[dict[str, Any]]]) -> None:
        for rows in batches:
            table = matching.operations(rows)
            names = {1: "publish", 2: "subscribe", 3: "cancel"}
            op = pa.array([names.get(kind) for kind in table["kind"].to_pylist()], pa.string())
            table = table.append_column("op", op)
            event = pa.compute.equal(table["kind"], 1)
            self._write("events", table.filter(event).select(matching.MAP))
            self._write("subscriptions", table.filter(pa.compute.invert(event)).select(ASKED))
            self.files += 1

    def _write(self, side: str, table: pa.Table) -> None:
        path = self.folder / side / f"{self.files:04}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + self.files,) * 2)  # Spark reads the oldest first

    def tables(self) -> list[Any]:
        return [self.spark.read.parquet(str(self.folder / s)) for s in ("subscriptions", "events")]

    def streams(self) -> list[Any]:
        found = []
        for side in ("subscriptions", "events"):
            schema = self.spark.read.parquet(str(self.folder / side)).schema
            reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            found.append(reader.parquet(str(self.folder / side)))
        return found

    def start(self, answers: Any) -> Any:
        """Run a query over all files there are; the checkpoint says where the last one ended."""
        writer = answers.writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("path", str(self.folder / "answers"))
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def finish(self, answers: Any) -> Any:
        query = self.start(answers)
        query.awaitTermination()
        return query

    def answers(self) -> list[Any]:
        return collected(self.spark.read.parquet(str(self.folder / "answers")))


def collected(answers: Any) -> list[Any]:
    """Answers as tuples, with the time in microseconds."""
    assert answers.columns == ["subscription", "event", "user", "kind", "at"]
    rows = answers.selectExpr("subscription", "event", "user", "kind", "unix_micros(at)").collect()
    return sorted(tuple(row) for row in rows)


def workers(spark: Any) -> list[int]:
    """The Python workers of the session, here or of its executors: what their daemons forked."""
    javas = [spark.sparkContext._gateway.proc.pid]
    driver = f"CoarseGrainedScheduler@127.0.0.1:{spark.conf.get('spark.driver.port')}"
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
            if f"--driver-url spark://{driver}" in command(int(entry.name)):
                javas.append(int(entry.name))
    started = [child for java in javas for child in children.get(java, [])]
    daemons = [child for child in started if "pyspark.daemon" in command(child)]
    return [worker for daemon in daemons for worker in children.get(daemon, [])]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.fixture
def files(spark: Any, tmp_path: Path) -> Files:
    return Files(spark, tmp_path)


# The answers ----------------------------------------------------------------------------------


def test_a_batch_answers_as_a_channel_does(files: Files) -> None:
    batches = matching.workload(1, batches=4, size=400)
    files.add(batches)
    answers = match(*files.tables(), space=QUAD, buckets=5, levels=3)
    want = matching.expected(QUAD, [[row for rows in batches for row in rows]])
    assert len(want) > 1_000
    assert collected(answers) == want


def test_half_of_all_rows_in_one_cell_change_no_answer(files: Files) -> None:
    batches = matching.workload(3, batches=2, size=160)
    for rows in batches:
        for row in rows[::2]:
            if row["op"] != "cancel":
                row["place"] = (1.0, 1.0)
    files.add(batches)
    files.finish(match(*files.streams(), space=QUAD, buckets=4, levels=3))
    want = matching.expected(QUAD, batches)
    assert len(want) > 500
    assert files.answers() == want
    answers = match(*files.tables(), space=QUAD, buckets=4, levels=3)
    assert collected(answers) == matching.expected(
        QUAD, [[row for rows in batches for row in rows]]
    )


@pytest.mark.parametrize(
    ("ansi", "adaptive"),
    [("true", "false"), pytest.param("false", "true", marks=pytest.mark.long)],
)
def test_the_settings_of_a_session_change_no_answer(
    spark: Any, tmp_path: Path, ansi: str, adaptive: str
) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "America/New_York")
    other.conf.set("spark.sql.ansi.enabled", ansi)
    other.conf.set("spark.sql.adaptive.enabled", adaptive)
    other.conf.set("spark.sql.shuffle.partitions", "3")
    files, batches = Files(other, tmp_path), matching.workload(9, batches=4, size=100)
    files.add(batches)
    answers = match(*files.tables(), space=QUAD, buckets=3, levels=3)
    assert collected(answers) == matching.expected(
        QUAD, [[row for rows in batches for row in rows]]
    )
    # A stream goes on in a session with other settings; it keeps the partitions of its state.
    again = Files(spark.newSession(), tmp_path / "stream")
    again.spark.conf.set("spark.sql.shuffle.partitions", "5")
    again.add(batches[:2])
    again.finish(match(*again.streams(), space=QUAD, buckets=3, levels=3))
    again.spark = other
    again.add(batches[2:])
    again.finish(match(*again.streams(), space=QUAD, buckets=3, levels=3))
    assert again.answers() == matching.expected(QUAD, batches)


def test_a_stream_answers_as_a_channel_does_through_restarts_and_kills(
    files: Files, spark: Any
) -> None:
    batches = matching.workload(2, batches=6, size=200)
    want = matching.expected(QUAD, batches)
    files.add(batches[:3])
    told = functools.partial(match, space=QUAD, buckets=3, levels=3)
    files.finish(told(*files.streams()))
    killed = workers(spark)
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    files.add(batches[3:])
    files.finish(told(*files.streams()))
    assert files.answers() == want


def test_without_memory_between_micro_batches_the_answers_are_the_same(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("tideline.spark.matching.match")
    monkeypatch.setattr(module, "settings_of", functools.partial(module.settings_of, cached=False))
    batches = matching.workload(3, batches=3, size=100)
    files.add(batches)
    files.finish(match(*files.streams(), space=QUAD, buckets=2))
    assert files.answers() == matching.expected(QUAD, batches)


@pytest.mark.long
def test_workers_killed_all_the_time_change_no_answer(files: Files, spark: Any) -> None:
    batches = matching.workload(4, batches=30, size=400)
    files.add(batches)
    want = matching.expected(QUAD, batches)
    draw = random.Random(5)
    failures = 0
    while True:
        query = files.start(match(*files.streams(), space=QUAD, buckets=4, levels=3))
        try:
            # From before the first micro-batch to after several; then it is let go to the end.
            while not query.awaitTermination(draw.uniform(0.5, 4.0)):
                there = workers(spark)
                if there and failures < 12:
                    os.kill(draw.choice(there), signal.SIGKILL)
            break
        except Exception:
            failures += 1
    assert failures > 1
    assert files.answers() == want


def test_state_stays_flat_once_windows_expire(files: Files) -> None:
    batches = []
    for number in range(8):
        at = START + number * 30 * SECOND
        rows = []
        for n in range(200):
            base = {"at": at + n, "since": at, "until": at + 20 * SECOND, "place": f"p{n}"}
            rows.append(base | {"op": "publish", "id": f"e{number}-{n}", "body": {}})
            rows.append(
                base | {"op": "subscribe", "id": f"s{number}-{n}", "user": "u", "where": None,
                        "unseen": False}
            )  # fmt: skip
        batches.append(rows)
    files.add(batches)
    query = files.finish(match(*flat(files.streams()), space=Flat(), buckets=2))
    kept = [p["stateOperators"][0]["numRowsTotal"] for p in query.recentProgress if p.numInputRows]
    assert len(kept) == 8
    assert max(kept) == kept[0]
    assert len(files.answers()) == 8 * 200


def flat(frames: list[Any]) -> list[Any]:
    return [frame.drop("lon", "lat", "radius_m", "unseen", "op") for frame in frames]


def test_a_stream_with_a_watermark_of_its_own_is_matched_too(files: Files) -> None:
    batches = matching.workload(6, batches=2, size=60)
    again = [row for row in batches[1] if row["op"] == "publish"]
    files.add([*batches, again])
    asked, told = files.streams()
    told = told.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"])
    files.finish(match(asked, told, space=QUAD, buckets=2, levels=2))
    assert files.answers() == matching.expected(QUAD, batches)


def test_buckets_are_spread_evenly_over_partitions(spark: Any) -> None:
    from pyspark.sql import functions as F

    numbers = labels(16)
    frame = spark.createDataFrame([(number,) for number in numbers], "n int")
    hashes = [row[0] for row in frame.select(F.hash("n")).collect()]
    assert hashes == [spark_hash(number) for number in numbers]
    for parts in (2, 4, 8, 16):
        assert [h % parts for h in hashes] == [n % parts for n in range(16)]


# Bad rows ---------------------------------------------------------------------------------------


def frames(spark: Any, **changed: Any) -> tuple[Any, Any]:
    """One subscription and one event that meet; `changed` are columns as SQL."""
    at = "timestamp'2030-01-01 00:00:00'"
    both = {"id": "'x'", "place": "'a'", "at": at, "user": "'u'", "since": at, "body": "'{}'",
            "until": "timestamp'2030-01-02'"} | changed  # fmt: skip
    asked = spark.range(1).selectExpr(
        *(f"{both[n]} as {n}" for n in both if n not in ("body",) and both[n] is not None)
    )
    told = spark.range(1).selectExpr(
        *(f"{both[n]} as {n}" for n in both if n not in ("user", "since") and both[n] is not None)
    )
    return asked, told


def test_events_need_no_body_and_subscriptions_no_window(spark: Any) -> None:
    asked, told = frames(spark, body=None, since=None, until=None)
    [answer] = match(asked, told, space=Flat()).collect()
    assert tuple(answer) == ("x", "x", "u", "live", datetime(2030, 1, 1))


def test_bad_rows_are_kept_with_the_reason(spark: Any) -> None:
    asked, told = frames(spark, lon="200", lat="0", place=None)
    answers = match(asked, told, space=QUAD, rejected="keep")
    assert answers.columns == ["subscription", "event", "user", "kind", "at", "reason"]
    got = sorted(answers.collect(), key=lambda row: row["event"] or "")
    assert [(row["subscription"], row["event"], row["user"], row["kind"]) for row in got] == [
        ("x", None, "u", "rejected"),
        (None, "x", None, "rejected"),
    ]
    assert all("must lie within the bounds" in row["reason"] for row in got)
    assert match(asked, told, space=QUAD, rejected="drop").collect() == []


def test_bad_rows_fail_a_batch_and_a_stream(spark: Any, files: Files) -> None:
    asked, told = frames(spark, user="cast(null as string)")
    with pytest.raises(Exception, match=r"1 rows are bad; the first: user must be text"):
        match(asked, told, space=Flat()).collect()
    rows = matching.workload(7, batches=1, size=20)
    files.add([[*rows[0], {"op": "cancel", "id": "x", "at": START, "bad": {"id": None}}]])
    with pytest.raises(Exception, match="a cancel needs the id of a subscription"):
        files.finish(match(*files.streams(), space=QUAD, buckets=2))


# Bad calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"id": None}, {}, "subscriptions need the column id"),
        ({"user": None}, {}, "subscriptions need the column user"),
        ({"at": None}, {}, "subscriptions need the column at"),
        ({"place": None}, {}, "subscriptions need the column place"),
        ({"place": None}, {"space": QUAD}, "subscriptions need the column place, or lon and lat"),
        ({"at": "'2030-01-01'"}, {}, "the column at of subscriptions must hold timestamps: cast"),
        ({"body": "struct(1)"}, {}, "the column body of events must hold text: to_json makes"),
        ({"place": "1"}, {}, "the column place of subscriptions must hold text"),
        ({"lon": "'1'", "lat": "1"}, {"space": QUAD}, "the column lon of .* must hold numbers"),
        ({"unseen": "1"}, {}, "the column unseen of subscriptions must hold booleans"),
        ({"unseen": "true"}, {"unseen": True}, "give unseen or the column unseen, not both"),
        ({}, {"unseen": "yes"}, "unseen must be True, False or None"),
        ({}, {"space": "flat"}, "space must be Flat, Topics, Grid or QuadTree"),
        ({}, {"space": None}, "space must be Flat, Topics, Grid or QuadTree"),
        ({}, {"buckets": 0}, "buckets must be 1 to 4096"),
        ({}, {"levels": 2}, "levels is for spaces with a tree"),
        ({}, {"space": Topics(), "levels": 0}, "levels must be 1 to 32"),
        ({}, {"rejected": "shout"}, "rejected must be one of fail, keep, drop"),
        ({}, {"memory_mb": 0}, "memory_mb must be"),
    ],
)
def test_a_wrong_call_says_what_to_do(
    spark: Any, changed: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    asked, told = frames(spark, **changed)
    with pytest.raises(InvalidRequest, match=message):
        match(asked, told, **({"space": Flat()} | options))


def test_frames_are_frames_of_one_kind(spark: Any) -> None:
    asked, told = frames(spark)
    with pytest.raises(InvalidRequest, match="events must be a Spark DataFrame"):
        match(asked, told.toPandas(), space=Flat())
    stream = spark.readStream.format("rate").load().selectExpr("timestamp as at", "'x' as id")
    with pytest.raises(InvalidRequest, match="both be streams or both be batches: read subs"):
        match(asked, stream, space=Flat())


def test_a_session_with_another_state_store_is_refused(spark: Any) -> None:
    other = spark.newSession()
    heap = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    other.conf.set("spark.sql.streaming.stateStore.providerClass", heap)
    stream = other.readStream.format("rate").load()
    stream = stream.selectExpr("timestamp as at", "'x' as id", "'a' as place", "'u' as user")
    with pytest.raises(Unavailable, match="needs Spark's RocksDB state store"):
        match(stream, stream, space=Flat())


def test_a_checkpoint_stays_with_its_settings(files: Files) -> None:
    batches = matching.workload(8, batches=2, size=40)
    files.add(batches[:1])
    files.finish(match(*files.streams(), space=QUAD, buckets=2))
    files.add(batches[1:])
    with pytest.raises(Exception, match="the checkpoint was made with other settings"):
        files.finish(match(*files.streams(), space=QUAD, buckets=4))
    files.finish(match(*files.streams(), space=QUAD, buckets=2))
    assert files.answers() == matching.expected(QUAD, batches)
