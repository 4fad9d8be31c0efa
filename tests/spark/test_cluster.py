"""On a real standalone cluster: what was submitted stays, and executors get what they lack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spark_cluster import Cluster

import tideline
from tideline.server import running

pytestmark = pytest.mark.spark

HERE = Path(__file__).resolve().parent


def test_a_submitted_application_runs_on_its_cluster(
    spark_cluster: Cluster, tmp_path: Path
) -> None:
    """Executors without the package, with an empty cache of kernels, compile nothing."""
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (tmp_path / "data").mkdir()
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        db.channel("roads")
        options = ["--conf", f"spark.executorEnv.NUMBA_CACHE_DIR={kernels}",
                   "--conf", "spark.sql.session.timeZone=America/New_York",
                   "--conf", "spark.sql.shuffle.partitions=2"]  # fmt: skip
        done = spark_cluster.submit(HERE / "cluster_app.py", url, str(tmp_path), options=options)
        assert done.returncode == 0, done.stderr[-10_000:]
        assert db.channel("roads").scan("events").num_rows == 2_000
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["settings"] == [
        spark_cluster.url, "cluster_app.py", "1g", "900m", "America/New_York",
    ]  # fmt: skip
    assert (said["page"], said["environment"]) == (True, True)
    assert said["files"] == ["tideline.zip"]
    assert said["read"] == [2_000, 10, 2_000]
    assert (said["matched"], said["streamed"]) == (2_000, 2_000)
    assert "INFO TaskSetManager" in done.stderr  # Spark's logs as Spark has them
    assert not list(kernels.rglob("*.*"))
