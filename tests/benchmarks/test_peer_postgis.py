"""PostGIS as a peer of boxes: what it finds is what a scan finds; without it, that is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import spatial_report
from benchmarks.peers import postgis
from benchmarks.peers.postgis import Postgis


def test_a_box_finds_what_a_scan_finds(tmp_path: Path) -> None:
    reason = postgis.missing()
    if reason is not None:
        assert "install" in reason or "user" in reason
        return
    draw = np.random.default_rng(1)
    lon, lat = draw.uniform(-180, 180, 3_000), draw.uniform(-90, 90, 3_000)
    lon[:500] = lon[0] + np.arange(500) * 1e-7  # nearer than numbers of 32 bits can tell
    rows = zip(range(3_000), lon.tolist(), lat.tolist(), map(str, range(3_000)), strict=True)
    server = Postgis(tmp_path, rows)
    try:
        boxes = [(lon[10], -90.0, lon[100], 90.0), (-180.0, -90.0, 180.0, 90.0)]
        boxes += [(w, s, w + 30.0, s + 20.0) for w, s in draw.uniform(-90, 60, (20, 2)).tolist()]
        for west, south, east, north in boxes:
            inside = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
            found: list[str] = []
            count = server.find((west, south, east, north), found.append)
            assert sorted(map(int, found)) == np.flatnonzero(inside).tolist()
            assert count == len(found)
    finally:
        server.close()


def test_the_page_says_what_was_left_out() -> None:
    data = {
        "documents": 10, "put_us": {"no index": 1.0, "spatial": 1.5},
        "find_us": {"10 hits": {"tideline": 5.0}}, "missing": {"PostGIS": "not installed"},
    }  # fmt: skip
    assert "`PostGIS` is not there: not installed." in spatial_report.store(data)
