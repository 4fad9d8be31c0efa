"""The benchmark of three servers end to end, small: the page is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import replication


@pytest.mark.long
def test_three_servers_beside_one(tmp_path: Path) -> None:
    sizes = ["--writes", "20", "--batches", "1", "--kills", "1"]
    replication.main([*sizes, "--results", str(tmp_path)])
    page = (tmp_path / "replication.md").read_text()
    assert "| three nodes | fdatasync by two of three |" in page
    assert "| replicated log |" in page
