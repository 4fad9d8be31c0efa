"""The benchmark of places end to end on few points: answers are compared, a page is written."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import spatial


def test_a_tiny_run_writes_a_page(tmp_path: Path) -> None:
    spatial.main(["--size", "tiny", "--rounds", "1", "--results", str(tmp_path)])
    page = (tmp_path / "spatial.md").read_text()
    assert "## One tree of 5,000 points" in page
    assert "SQLite R*Tree" in page
    kept = json.loads((tmp_path / "spatial.json").read_text())
    assert set(kept) == set(spatial.PARTS)
    assert (tmp_path / "spatial.png").stat().st_size > 0
