"""Executor, worker, driver and server are killed in turns, and every row is there once."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_cluster import SOURCE, Cluster, die_with_parent

import tideline
from tideline.spark.shipping import pack

pytestmark = [pytest.mark.spark, pytest.mark.long]

HERE = Path(__file__).resolve().parent
FILES, ROWS, PLACES = 60, 500, 100
START = datetime(2026, 1, 1, tzinfo=UTC)


class Server:
    """`tideline serve` in a process that can be killed; always at one address."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder, self.log, self.port = folder, log, 0
        self.start()

    def start(self) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tideline", "serve", str(self.folder), "--port",
                 str(self.port)],
                stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(SOURCE)},
                preexec_fn=die_with_parent,
            )  # fmt: skip
        while self.process.poll() is None:
            said = re.search(r"serving at http://127.0.0.1:(\d+)", self.log.read_text("utf-8"))
            if said:
                self.port = int(said[1])
                return
            time.sleep(0.05)
        raise RuntimeError(self.log.read_text(encoding="utf-8"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "data").mkdir()
    with tideline.open(tmp_path / "data") as db:
        db.channel("roads", max_ahead_s=None)
    started = Server(tmp_path / "data", tmp_path / "server.log")
    yield started
    started.kill()


def write_files(folder: Path) -> None:
    """Events in many files, and a subscription to each place in one."""
    time_of = pa.timestamp("us", "UTC")
    for number in range(FILES):
        rows = range(number * ROWS, (number + 1) * ROWS)
        path = folder / "events" / f"{number:04}.parquet"
        path.parent.mkdir(exist_ok=True)
        times = [START + timedelta(seconds=1, milliseconds=row) for row in rows]
        pq.write_table(pa.table({
            "id": [f"e{row}" for row in rows], "place": [f"p{row % PLACES}" for row in rows],
            "at": pa.array(times, time_of), "body": ["{}"] * ROWS,
        }), path)  # fmt: skip
        os.utime(path, (1_700_000_000 + number,) * 2)
    (folder / "subscriptions").mkdir()
    pq.write_table(pa.table({
        "id": [f"s{n}" for n in range(PLACES)], "user": ["u"] * PLACES,
        "place": [f"p{n}" for n in range(PLACES)], "at": pa.array([START] * PLACES, time_of),
    }), folder / "subscriptions" / "all.parquet")  # fmt: skip


def progress(folder: Path) -> int:
    """How many micro-batches of both queries are done."""
    return sum(
        name.isdigit() for query in ("stored", "matched")
        for name in (os.listdir(folder / query / "commits")
                     if (folder / query / "commits").is_dir() else ())
    )  # fmt: skip


def test_every_row_is_there_once_whatever_is_killed(
    spark_cluster: Cluster, server: Server, tmp_path: Path
) -> None:
    write_files(tmp_path)
    zipped = pack(tmp_path / "tideline.zip")
    draw, turn, killed = random.Random(1), 0, []
    kinds = ["executor", "worker", "driver", "server"]
    while True:
        driver = spark_cluster.start_driver(
            HERE / "chaos_app.py", server.url, str(tmp_path),
            options=["--py-files", str(zipped), "--conf", "spark.sql.shuffle.partitions=2"],
        )  # fmt: skip
        before = progress(tmp_path)
        while driver.poll() is None:
            time.sleep(0.05)
            if turn >= 2 * len(kinds) or progress(tmp_path) < before + 4:
                continue
            kind = kinds[turn % len(kinds)]
            if kind == "executor" and not spark_cluster.executors():
                continue
            if kind == "executor":
                os.kill(draw.choice(spark_cluster.executors()), signal.SIGKILL)
            elif kind == "worker":
                spark_cluster.kill("worker-0")
                spark_cluster.start_worker("worker-0")
            elif kind == "driver":
                os.killpg(driver.pid, signal.SIGKILL)
            else:
                server.kill()
                server.start()
            killed.append(kind)
            turn, before = turn + 1, progress(tmp_path)
        if driver.wait() == 0:
            break
    assert killed == 2 * kinds
    server.kill()
    rows = FILES * ROWS
    with tideline.open(tmp_path / "data") as db:
        ids = db.channel("roads").scan("events")["id"].to_pylist()
    assert (len(ids), len(set(ids))) == (rows, rows)
    answers = answers_of(tmp_path / "answers")
    assert answers == sorted((f"s{row % PLACES}", f"e{row}") for row in range(rows))


def answers_of(folder: Path) -> list[tuple[str, str]]:
    """What a file sink has committed: of the files, those that its log names."""
    files: dict[str, None] = {}
    for path in (folder / "_spark_metadata").iterdir():
        if not path.name.startswith("."):
            lines = path.read_text(encoding="utf-8").splitlines()[1:]
            files |= {json.loads(line)["path"].removeprefix("file://"): None for line in lines}
    table = pa.concat_tables(
        pq.read_table(path, columns=["subscription", "event"]) for path in files
    )
    pairs = zip(table["subscription"].to_pylist(), table["event"].to_pylist(), strict=True)
    return sorted(pairs)
