"""The benchmark of Linear Road end to end on little: answers are validated, a page is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import linear_road


@pytest.mark.long
def test_a_tiny_run_writes_a_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    linear_road.main(["--size", "tiny", "--results", str(tmp_path)])
    linear_road.main(["--full", "--expressways", "1", "--minutes", "4", "--speed", "30",
                      "--results", str(tmp_path)])  # fmt: skip
    page = (tmp_path / "linear-road.md").read_text()
    assert "A shortened run of 4 simulated minutes: no L-rating" in page
    assert "The whole benchmark, shortened: 7 simulated minutes, no L-rating" in page
    assert "an index workload, no L-rating" in page
    assert "## L-rating" not in page
    kept = json.loads((tmp_path / "linear-road.json").read_text())
    assert set(kept) == {"index", "whole", "full"}
    assert not kept["full"]["data"]["wrong"]
    assert (tmp_path / "linear-road.png").stat().st_size > 0
