"""The benchmark of block volumes end to end, in small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import volume, volume_ext4


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
    assert "No file system was mounted: needs root and /dev/fuse." in page
    assert "| fio" not in page


def test_what_lacks_for_a_file_system_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_ext4.shutil, "which", lambda name: None)
    volume.main(["--only", "ext4", "--results", str(tmp_path)])
    assert (
        "No file system was mounted: not installed: nbdfuse, fio"
        in (tmp_path / "volume.md").read_text()
    )


@pytest.mark.long
def test_writes_and_reads_are_measured_on_one_node_and_three(tmp_path: Path) -> None:
    for part in ("writes", "reads"):
        volume.main(["--seconds", "0.01", "--rounds", "1", "--only", part,
                     "--results", str(tmp_path)])  # fmt: skip
    found = json.loads((tmp_path / "volume.json").read_text())
    assert len(found["writes"]["data"]["stored"]["tideline, three nodes"]) == 3
    assert "tideline, three nodes" in (tmp_path / "volume.md").read_text()
