"""On a real standalone cluster: what was submitted stays, and executors get what they lack."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from spark_cluster import Cluster

import tideline
from tideline.server import running
from tideline.spark.shipping import pack

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


@pytest.mark.long
def test_an_environment_goes_by_spark_archives(spark_cluster: Cluster, tmp_path: Path) -> None:
    """The archive has a Python and the package; the driver finds it unpacked where it runs."""
    pack(tmp_path / "package.zip")
    made = tmp_path / "env"
    (made / "bin").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "package.zip") as package:
        package.extractall(made / "lib")
    python = made / "bin" / "python"
    python.write_text(
        '#!/bin/sh\nhere=$(cd "$(dirname "$0")/.." && pwd)\n'
        f'PYTHONPATH="$here/lib:$PYTHONPATH" exec {spark_cluster.python} "$@"\n'
    )
    python.chmod(0o755)
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", made)
    (spark_cluster.folder / "env").symlink_to(made)
    (tmp_path / "data").mkdir()
    try:
        with tideline.open(tmp_path / "data") as db, running(db) as url:
            db.channel("roads")
            options = ["--archives", f"{archive}#env"]
            done = spark_cluster.submit(
                HERE / "cluster_app.py", url, str(tmp_path), options=options,
                PYSPARK_PYTHON="./env/bin/python",
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-10_000:]
            assert db.channel("roads").scan("events").num_rows == 2_000
    finally:
        (spark_cluster.folder / "env").unlink()
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["files"] == ["lib"]
    assert said["read"] == [2_000, 10, 2_000]
    assert (said["matched"], said["streamed"]) == (2_000, 2_000)
