"""The benchmark of three servers end to end, small: the page is written."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import pytest

from benchmarks import replication


def test_three_members_of_etcd_are_measured_where_it_is_installed(tmp_path: Path) -> None:
    took = replication.etcd(tmp_path, 5)
    gc.collect()  # a connection that is left open is a warning now, and so an error
    assert took is None if shutil.which("etcd") is None else took is not None and len(took) == 5


@pytest.mark.long
def test_three_servers_beside_one(tmp_path: Path) -> None:
    sizes = ["--writes", "20", "--batches", "1", "--kills", "1"]
    replication.main([*sizes, "--results", str(tmp_path)])
    page = (tmp_path / "replication.md").read_text()
    assert "| three nodes | fdatasync by two of three |" in page
    assert "| replicated log |" in page
