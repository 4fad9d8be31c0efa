"""Under Spark Connect, where the server has the package: batch, streams and `match`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_cluster import SOURCE, Cluster

import tideline
from tideline.server import running

pytestmark = pytest.mark.spark

HERE = Path(__file__).resolve().parent


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """The URL of a server of Spark Connect."""
    pytest.importorskip("grpc", reason="needs pyspark[connect]")
    folder = tmp_path / "connect"
    folder.mkdir()
    server = Cluster(folder)
    try:
        yield server.start_connect()
    finally:
        server.stop()


def run(app: str, remote: str, url: str, folder: Path) -> dict[str, Any]:
    """What an application of Spark Connect says, which has no Java."""
    environment = {**os.environ, "SPARK_REMOTE": remote, "JAVA_HOME": "/nowhere"}
    environment["PYTHONPATH"] = f"{SOURCE}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, str(HERE / app), url, str(folder)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-10_000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_a_client_of_spark_connect_writes_reads_and_matches(remote: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        db.channel("roads")
        said = run("connect_app.py", remote, url, tmp_path)
        assert db.channel("roads").scan("events").num_rows == 2_000
    assert said["kind"] == "pyspark.sql.connect.session"
    assert said["read"] == [2_000, 10, 2_000]
    assert (said["matched"], said["streamed"]) == (2_000, 2_000)


@pytest.mark.long
def test_a_pipeline_runs_under_spark_connect_and_goes_on(remote: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        said = run("connect_pipeline_app.py", remote, url, tmp_path)
        assert db.channel("roads").scan("events").num_rows == 25
    none = {"late": 0, "filtered": 0, "expired": 0}
    assert said["counts"] == [
        {"read": 22, "stored": 20, "duplicate": 1, "dead": 1, **none},
        {"read": 5, "stored": 5, "duplicate": 0, "dead": 0, **none},
    ]
    assert said["totals"] == {"read": 27, "stored": 25, "duplicate": 1, "dead": 1, **none}
