"""Workloads by Spark: the rows of the library's own generator, whatever the partitions."""

from __future__ import annotations

import doctest
import json
import math
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tideline.cli.main import main
from tideline.errors import InvalidRequest, Unavailable
from tideline.spark import workload as module
from tideline.spark.workload import numbered, operations, save, tweets
from tideline.workload.parts import Parts
from tideline.workload.shape import new_york
from tideline.workload.tweets import Operations, Tweets

SOURCE = Path(__file__).resolve().parents[2] / "src"


def rows_of(table: pa.Table) -> pa.Table:
    """In one piece and without the names Spark gives to nulls."""
    return table.combine_chunks().replace_schema_metadata(None)


# Frames -------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_the_partitions_change_no_row(spark: Any, partitions: int) -> None:
    frame = tweets(spark, 5_000, seed=11, first=123_456, partitions=partitions)
    assert frame.rdd.getNumPartitions() == partitions
    found = frame.toArrow()
    wanted = pa.Table.from_batches([Tweets(seed=11).batch(123_456, 5_000)])
    assert found.column_names == wanted.column_names
    assert found.to_pylist() == wanted.to_pylist()  # in order, too


@pytest.mark.spark
def test_operations_are_those_of_the_library(spark: Any) -> None:
    shape = new_york().with_users(50).with_rate(9)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    asked: dict[str, Any] = {"subscriptions": 1, "events": 3, "back_s": 5.0, "place": "circle"}
    frame = operations(spark, 3_000, seed=2, shape=shape, start=start, partitions=4, **asked)
    workload = Operations(2, shape, int(start.timestamp()) * 1_000_000, **asked)
    assert frame.toArrow().to_pylist() == workload.batch(0, 3_000).to_pylist()


@pytest.mark.spark
def test_a_stream_of_numbers_becomes_a_stream_of_tweets(spark: Any, tmp_path: Path) -> None:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500).load()
    query = (
        numbered(source, Tweets(seed=5))
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    found = spark.read.parquet(str(tmp_path / "out")).toArrow().to_pylist()
    wanted = Tweets(seed=5).batch(0, len(found)).to_pylist()
    assert len(found) >= 500
    assert sorted(found, key=lambda row: int(row["id"])) == wanted


@pytest.mark.spark
def test_no_rows_is_a_frame_without_rows(spark: Any) -> None:
    assert tweets(spark, 0).count() == 0
    assert tweets(spark, 2, partitions=5).count() == 2


@pytest.mark.spark
@pytest.mark.parametrize(
    "wrong",
    [
        {"count": -1}, {"count": 1.5}, {"count": 5, "first": -1}, {"count": 5, "partitions": 0},
        {"count": 5, "seed": -1}, {"count": 10**14}, {"count": 5, "start": "now"},
    ],
)  # fmt: skip
def test_a_wrong_call_is_refused(spark: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        tweets(spark, **wrong)
    with pytest.raises(InvalidRequest, match="no such column"):
        numbered(spark.range(3), Tweets(), "value")


@pytest.mark.spark
def test_the_examples_run(spark: Any) -> None:
    result = doctest.testmod(module, extraglobs={"spark": spark}, optionflags=doctest.ELLIPSIS)
    assert result.attempted
    assert not result.failed


@pytest.mark.spark
@pytest.mark.parametrize("page", ["workloads.md", "heatmap.md"])
def test_the_examples_of_the_guide_run(
    spark: Any, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (SOURCE.parent / "docs" / "guide" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```pycon\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest("".join(blocks), {"spark": spark}, page, page, 0)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert test.examples
    assert "".join(report) == ""


# Files --------------------------------------------------------------------------------


@pytest.mark.spark
def test_workers_write_the_parts_that_are_missing(spark: Any, tmp_path: Path) -> None:
    parts = Parts(Operations(seed=3), 40_000, tmp_path / "out", 4)
    parts.claim()
    parts.write(2)
    before = parts.file(2).stat().st_mtime_ns
    assert save(spark, parts) == sum(parts.file(n).stat().st_size for n in range(4))
    assert parts.file(2).stat().st_mtime_ns == before
    wanted = pa.Table.from_batches([Operations(seed=3).batch(0, 40_000)])
    assert rows_of(pq.read_table(tmp_path / "out")).equals(rows_of(wanted))
    # Spark reads what Arrow wrote.
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert frame.dtypes == operations(spark, 1).dtypes
    assert (
        frame.orderBy(frame["id"].cast("long")).toArrow().to_pylist()[:99]
        == wanted.to_pylist()[:99]
    )
    assert save(spark, parts) > 0  # all there: nothing to do


@pytest.mark.spark
def test_a_worker_that_cannot_write_says_why(spark: Any, tmp_path: Path) -> None:
    parts = Parts(Tweets(), 10, tmp_path / "out", 2)
    object.__setattr__(parts.workload, "start_us", 10**18)  # found out by the worker
    with pytest.raises(Unavailable, match=r"goes on where it stopped.*year 10000"):
        save(spark, parts)
    # No part; the draft of a worker that is still giving up may be there for a moment.
    assert not list((tmp_path / "out").glob("part-*"))


def test_what_spark_reads_is_what_apply_takes(tmp_path: Path, open_channel: Any) -> None:
    parts = Parts(Operations(seed=3, shape=new_york().with_rate(5_000)), 5_000, tmp_path / "out", 2)
    parts.write_here(parts.claim(), threads=2)
    channel = open_channel(space=new_york().grid, max_ahead_s=math.inf)
    done = channel.apply(pq.read_table(tmp_path / "out"))
    assert done.rejected.num_rows == 0
    assert done.answers.num_rows > 0


# The command --------------------------------------------------------------------------


def run(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tideline", "workload", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_makes_files_without_spark(tmp_path: Path) -> None:
    words = ["--count", "3k", "--local", "--seed", "4", "--partitions", "3", "--ratio", "1:3"]
    command = run(tmp_path, "operations", "--out", "ops", *words, "--users", "99", "--rate", "7")
    out, error = command.communicate(timeout=300)
    assert command.returncode == 0, error
    said = json.loads(out)
    assert (said["kind"], said["rows"], said["files"]) == ("operations", 3_000, 3)
    shape = new_york().with_users(99).with_rate(7)
    wanted = Operations(4, shape, subscriptions=1, events=3).batch(0, 3_000)
    assert rows_of(pq.read_table(tmp_path / "ops")).equals(rows_of(pa.Table.from_batches([wanted])))
    assert sorted(path.name for path in (tmp_path / "ops").iterdir()) == [
        "_SUCCESS", "_workload.json", "part-00000.parquet", "part-00001.parquet",
        "part-00002.parquet",
    ]  # fmt: skip


def test_a_stopped_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tweets", "--count", "600k", "--partitions", "200", "--local", "--out", "t"]
    command = run(tmp_path, *words)
    try:
        while command.poll() is None and len(list((tmp_path / "t").glob("part-*"))) < 3:
            pass  # until some parts are there
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=300)
    finally:
        command.kill()
    assert command.returncode == 130
    whole = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "t").glob("part-*")}
    assert 3 <= len(whole) < 200
    assert not (tmp_path / "t" / "_SUCCESS").exists()
    assert all(pq.ParquetFile(tmp_path / "t" / name).metadata.num_rows == 3_000 for name in whole)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["workload", *words])
    assert not stopped.value.code
    assert json.loads(capsys.readouterr().out)["made"] == 600_000 - 3_000 * len(whole)
    for name, time_ns in whole.items():
        assert (tmp_path / "t" / name).stat().st_mtime_ns == time_ns


def test_a_seed_set_scales_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = Tweets(1, new_york().with_users(40).with_rate(20)).batch(0, 2_000)
    pq.write_table(pa.Table.from_batches([few]), "seed.parquet")
    with pytest.raises(SystemExit) as stopped:
        main(
            [
                "workload",
                "tweets",
                "--like",
                "seed.parquet",
                "--scale",
                "3",
                "--out",
                "t",
                "--local",
            ]
        )
    assert not stopped.value.code
    assert json.loads(capsys.readouterr().out)["rows"] == 6_000
    made = pq.read_table("t")
    assert len(made["user"].unique()) <= 40
    seconds = (made["at"][-1].as_py() - made["at"][0].as_py()).total_seconds()
    assert seconds == pytest.approx(6_000 / 20, rel=0.1)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["tweets", "--out", "t"], 2, "give --count or --scale"),
        (["tweets", "--out", "t", "--count", "5", "--scale", "2"], 2, "give --count or --scale"),
        (["tweets", "--out", "t", "--count", "many"], 2, "count must be a number of rows"),
        (["tweets", "--out", "t", "--count", "1.5"], 2, "count must be a number of rows"),
        (["tweets", "--out", "t", "--count", "0"], 2, "count must be a number of rows"),
        (["tweets", "--out", "t", "--scale", "-1"], 2, "scale must be positive"),
        (["tweets", "--count", "5"], 2, "Missing option '--out'"),
        (["tweets", "--out", "t", "--count", "5", "--format", "xml"], 2, "parquet or csv"),
        (["tweets", "--out", "t", "--count", "5", "--partitions", "6"], 2, "no more than rows"),
        (["tweets", "--out", "t", "--count", "5", "--like", "no"], 3, "no such seed set"),
        (["tweets", "--out", "t", "--count", "5", "--like", "junk.parquet"], 2, "cannot be read"),
        (["tweets", "--out", "t", "--count", "5", "--start", "soon"], 2, "ISO 8601"),
        (["tweets", "--out", "t", "--count", "5", "--rate", "9999999"], 2, "rate must be"),
        (
            ["tweets", "--out", "t", "--count", "1G", "--rate", "1", "--start", "9990-01-01"],
            2,
            "10000",
        ),
        (["tweets", "--out", "s3://bucket/t", "--count", "5"], 2, "out must be a path"),
        (["tweets", "--out", "full", "--count", "5"], 4, "empty folder"),
        (["tweets", "--out", "junk.parquet", "--count", "5"], 2, "must be a folder"),
        (
            ["tweets", "--out", "t", "--count", "5", "--local", "--master", "local[2]"],
            2,
            "--master",
        ),
        (["operations", "--out", "t", "--count", "5", "--ratio", "3"], 2, "ratio must be"),
        (["operations", "--out", "t", "--count", "5", "--ratio", "0:0"], 2, "not both 0"),
        (["operations", "--out", "t", "--count", "5", "--place", "town"], 2, "cell' or 'circle'"),
        (["operations", "--out", "t", "--count", "5", "--valid-s", "0"], 2, "must be positive"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(
    tmp_path: Path, words: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk.parquet").write_text("junk")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(SystemExit) as stopped:
        main(["workload", *words])
    assert stopped.value.code == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "t").exists()


@pytest.mark.spark
@pytest.mark.long
def test_the_command_with_spark_makes_the_same_files(tmp_path: Path) -> None:
    words = ["operations", "--count", "200k", "--partitions", "5", "--seed", "9", "--out"]
    for engine in ("--spark", "--local"):
        command = run(tmp_path, *words, engine[2:], engine)
        _, error = command.communicate(timeout=300)
        assert command.returncode == 0, error
    for part in range(5):
        name = f"part-{part:05}.parquet"
        assert (tmp_path / "spark" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
