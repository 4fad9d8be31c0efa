"""Under Spark Connect, where the server has the package: batch, streams and `match`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def test_a_client_of_spark_connect_writes_reads_and_matches(remote: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        db.channel("roads")
        environment = {**os.environ, "SPARK_REMOTE": remote, "JAVA_HOME": "/nowhere"}
        environment["PYTHONPATH"] = f"{SOURCE}:{os.environ.get('PYTHONPATH', '')}"
        done = subprocess.run(
            [sys.executable, str(HERE / "connect_app.py"), url, str(tmp_path)],
            capture_output=True, text=True, check=False, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-10_000:]
        assert db.channel("roads").scan("events").num_rows == 2_000
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["kind"] == "pyspark.sql.connect.session"
    assert said["read"] == [2_000, 10, 2_000]
    assert (said["matched"], said["streamed"]) == (2_000, 2_000)
