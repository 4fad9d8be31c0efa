"""Traffic is a function of time: any cut of the stream gives the same rows."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from tideline import InvalidRequest, QuadTree
from tideline.testing import ManualClock
from tideline.workload.fleet import Fleet
from tideline.workload.newyork import BOUNDS


@pytest.mark.parametrize("cuts", [[], [1], [499_999, 500_000, 500_001], [333_333, 1_234_567]])
def test_any_cut_gives_the_same_rows(cuts: list[int]) -> None:
    fleet = Fleet(drivers=50, seed=3, drivers_s=333.0, incidents_s=7.0)
    edges = [0, *cuts, 2_000_000]
    parts = [fleet.operations(a, b) for a, b in itertools.pairwise(edges)]
    joined = pa.Table.from_batches(parts)
    assert joined.equals(pa.Table.from_batches([fleet.operations(0, 2_000_000)]))
    assert joined.num_rows == 2 * 340


@pytest.mark.parametrize("spread_m", [0.0, 4_000.0])
def test_drivers_move_without_jumps_and_stay_in_the_state(spread_m: float) -> None:
    fleet = Fleet(drivers=200, seed=5, hurry=1.0, spread_m=spread_m)
    drivers = np.arange(200)
    before = None
    for second in range(0, 20_000, 20):
        lon, lat = fleet.places(drivers, np.full(200, float(second)))
        west, south, east, north = BOUNDS
        assert (lon >= west).all()
        assert (lon <= east).all()
        assert (lat >= south).all()
        assert (lat <= north).all()
        if before is not None:
            x = np.radians(lon - before[0]) * np.cos(np.radians(lat)) * 6_371_000
            y = np.radians(lat - before[1]) * 6_371_000
            assert np.hypot(x, y).max() < 20 * 33 * 1.05
        before = lon, lat


def test_the_operations_land_and_drivers_are_told(open_database) -> None:
    fleet = Fleet(drivers=500, seed=1, drivers_s=500.0, incidents_s=50.0, radius_m=20_000)
    db = open_database(clock=ManualClock(0))
    roads = db.channel("roads", space=QuadTree(bounds=BOUNDS, depth=9))
    applied = roads.apply(pa.Table.from_batches([fleet.operations(0, 4_000_000)]))
    assert applied.rejected.num_rows == 0
    assert applied.answers.num_rows > 100
    assert {"past", "live"} == set(applied.answers["kind"].to_pylist())


def test_an_empty_stretch_has_no_rows() -> None:
    assert Fleet(drivers=5).operations(1_000, 1_000).num_rows == 0


@pytest.mark.parametrize(
    "wrong", [{"drivers": 0}, {"drivers_s": 0.0}, {"incidents_s": -1.0}, {"spread_m": 1e6}]
)
def test_wrong_settings_are_refused(wrong) -> None:
    with pytest.raises(InvalidRequest):
        Fleet(**wrong)
