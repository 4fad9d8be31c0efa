"""The benchmark of block volumes end to end, in small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import volume


def test_the_page_says_what_was_measured() -> None:
    parts = {
        "writes": {
            "4 KiB": {"one at a time": {"plain file": 100.4, "tideline, one node": 1234.0}},
            "stored": {"tideline, one node": [1.0215]},
        },
        "ext4": {"left out": "needs root and /dev/fuse"},
    }
    page = volume.page(parts)
    assert "| 4 KiB, one at a time | 100 | 1,234 |" in page
    assert "tideline, one node: 1.022." in page
    assert "fio" not in page


@pytest.mark.long
def test_writes_and_reads_are_measured_on_one_node_and_three(tmp_path: Path) -> None:
    for part in ("writes", "reads"):
        volume.main(["--seconds", "0.01", "--rounds", "1", "--only", part,
                     "--results", str(tmp_path)])  # fmt: skip
    found = json.loads((tmp_path / "volume.json").read_text())
    assert len(found["writes"]["data"]["stored"]["tideline, three nodes"]) == 3
    assert "tideline, three nodes" in (tmp_path / "volume.md").read_text()
