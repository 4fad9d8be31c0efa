"""An exported pipeline, run by Spark's own `spark-pipelines`: into a server, with dead letters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from spark_cluster import SOURCE

import tideline
from tideline.server import running
from tideline.spark import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.long]

CONFIG = """\
name = "my roads"
[source]
format = "json"
path = "in"
[schema]
id = "string"
at = "timestamp"
road = "string"
[place]
column = "road"
[deduplicate]
by = ["id"]
within_s = 600
[store]
url = "{url}"
channel = "roads"
[operation]
id = "id"
ttl_s = 36000
[run]
checkpoint = "checkpoint"
"""


def test_an_exported_pipeline_runs_and_goes_on_with_what_is_new(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="needs pyspark[pipelines]")
    pytest.importorskip("yaml", reason="needs pyspark[pipelines]")
    (tmp_path / "in").mkdir()
    now = datetime.now(UTC)

    def write(name: str, *numbers: int, also: str = "") -> None:
        rows = [
            {"id": f"e{n}", "at": (now - timedelta(seconds=n)).isoformat(), "road": f"r{n % 3}"}
            for n in numbers
        ]
        text = "\n".join(map(json.dumps, rows))
        (tmp_path / "in" / name).write_text(f"{text}\n{also}", encoding="utf-8")

    with tideline.open(tmp_path / "data") as db, running(db) as url:
        roads = db.channel("roads")
        (tmp_path / "p.toml").write_text(CONFIG.format(url=url), encoding="utf-8")
        spec, _ = Pipeline.from_file(tmp_path / "p.toml").export(tmp_path / "project")
        far = {"id": "far", "at": (now + timedelta(days=1)).isoformat(), "road": "r"}
        write("a.json", *range(50), 3, also=f"not json\n{json.dumps(far)}\n")
        for found in (50, 60):  # a second run reads the new file alone
            _run(Path(spec))
            assert roads.scan("events").num_rows == found
            write("b.json", *range(50, 60))
    letters = pq.read_table(tmp_path / "checkpoint" / "dead").to_pylist()
    assert sorted(letter["stage"] for letter in letters) == ["parse", "store"]


def _run(spec: Path) -> None:
    environment = {
        **os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DRIVER_MEMORY": "1g",
        "PYTHONPATH": f"{SOURCE}:{os.environ.get('PYTHONPATH', '')}",
    }  # fmt: skip
    command = [Path(sys.executable).with_name("spark-pipelines"), "run", "--spec", spec]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-10_000:]
