"""An executor of a cluster gets the library with compiled kernels in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.spark
def test_a_cold_executor_compiles_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "cluster_worker.py"), str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert "tideline.zip" in said["file"]
    assert said["cache"] == str(tmp_path)
    assert (said["past"], said["compiled"]) == (1, 0)
    assert not list(tmp_path.rglob("*.wrapper"))
