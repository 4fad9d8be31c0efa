"""Traffic of Linear Road: the same whatever is made with it, cars that drive as cars do, and the
statistics of the published generators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tideline.errors import InvalidRequest
from tideline.workload.linear_road import BALANCE, EXIT, EXPENDITURE, REPORT, LinearRoad


def columns_of(road: LinearRoad) -> dict[str, Any]:
    table = pa.Table.from_batches(list(road.seconds()))
    return {name: table.column(name).to_numpy() for name in table.column_names}


@pytest.fixture(scope="module")
def road() -> LinearRoad:
    return LinearRoad(1, duration_s=1_300, seed=5)


@pytest.fixture(scope="module")
def rows(road: LinearRoad) -> dict[str, Any]:
    return columns_of(road)


def test_an_expressway_is_the_same_beside_others() -> None:
    both = columns_of(LinearRoad(2, duration_s=200, seed=5))
    for x in (0, 1):
        mine = both["xway"] == x
        alone = columns_of(LinearRoad(1, duration_s=200, seed=5, first=x))
        for name, column in alone.items():
            assert (both[name][mine] == column).all(), (x, name)
    assert not np.array_equal(
        both["vid"][both["xway"] == 0][:500] % 2, both["speed"][both["xway"] == 0][:500] % 2
    )


def test_a_shorter_run_is_the_beginning_of_a_longer_one(rows: dict[str, Any]) -> None:
    short = columns_of(LinearRoad(1, duration_s=100, seed=5))
    for name, column in short.items():
        assert (rows[name][: len(column)] == column).all(), name
    other = columns_of(LinearRoad(1, duration_s=100, seed=6))
    assert len(other["vid"]) != len(short["vid"]) or (other["seg"] != short["seg"]).any()


def test_cars_drive_as_cars_do(rows: dict[str, Any]) -> None:
    reports = {name: column[rows["type"] == REPORT] for name, column in rows.items()}
    assert (np.diff(reports["time"]) >= 0).all()
    assert (reports["pos"] // 5_280 == reports["seg"]).all()
    assert ((reports["speed"] >= 0) & (reports["speed"] <= 100)).all()
    order = np.lexsort((reports["time"], reports["vid"]))
    cars = {name: column[order] for name, column in reports.items()}
    again = cars["vid"][1:] == cars["vid"][:-1]
    left = cars["lane"][:-1] == EXIT
    drives_on = again & ~left
    assert (np.diff(cars["time"])[drives_on] == 30).all()
    assert (cars["dir"][1:] == cars["dir"][:-1])[drives_on].all()
    steps = np.where(cars["dir"][1:] == 0, np.diff(cars["pos"]), -np.diff(cars["pos"]))[drives_on]
    # Backwards only where two cars are put together to an accident.
    assert steps.max() <= 44 * 100
    assert (steps < 0).sum() < 10
    assert steps.min() > -1_000
    begins = np.concatenate([[True], ~again | left])
    assert (cars["lane"][begins] == 0).all()
    assert (np.diff(cars["time"])[again & left] >= 1_000).all(), "who comes back takes a while"
    assert (again & left).any(), "some come back"


def test_accidents_are_two_cars_at_one_place_for_some_time(rows: dict[str, Any]) -> None:
    standing = (rows["type"] == REPORT) & (rows["speed"] == 0)
    spots: dict[tuple[int, int, int], dict[int, list[int]]] = {}
    names = ("vid", "time", "dir", "lane", "pos")
    for vid, time, *spot in zip(*(rows[name][standing].tolist() for name in names), strict=True):
        spots.setdefault(tuple(spot), {}).setdefault(vid, []).append(time)  # type: ignore[arg-type]
    accidents = [cars for cars in spots.values() if len(cars) == 2]
    assert 1 <= len(accidents) <= 3
    begun = sorted(min(map(min, cars.values())) for cars in accidents)
    assert 300 <= begun[0] <= 930
    for cars in accidents:
        spans = {(min(times), max(times)) for times in cars.values()}
        assert len(spans) == 1, "both stop and go at the same time"
        since, until = spans.pop()
        assert until - since >= 540 or until > 1_200
    alone = [cars for cars in spots.values() if len(cars) == 1]
    assert alone, "a car may stand alone, too"
    assert all(max(t) - min(t) < 540 for cars in alone for t in cars.values())


def test_as_many_cars_and_requests_as_the_published_generators_make(
    road: LinearRoad, rows: dict[str, Any]
) -> None:
    arrivals = road.arrivals()[0]
    assert arrivals.shape == (10_800,)
    assert arrivals.min() >= 16
    assert arrivals.max() <= 46
    # The published generator made 367,082.
    assert 360_000 < arrivals.sum() < 380_000
    reports = int((rows["type"] == REPORT).sum())
    assert 0.004 < (rows["type"] == BALANCE).sum() / reports < 0.006
    assert 0.0007 < (rows["type"] == EXPENDITURE).sum() / reports < 0.0013
    asked = rows["type"] == EXPENDITURE
    assert ((rows["day"][asked] >= 1) & (rows["day"][asked] <= 69)).all()
    qids = rows["qid"][rows["type"] != REPORT]
    assert len(np.unique(qids)) == len(qids)
    # Most of those that enter before downtown leave there.
    cars = {name: column[rows["type"] == REPORT] for name, column in rows.items()}
    ways = np.where(cars["dir"] == 0, cars["seg"], 99 - cars["seg"])
    first = dict(zip(cars["vid"][::-1].tolist(), ways[::-1].tolist(), strict=True))
    out = cars["lane"] == EXIT
    early = [
        end for vid, end in zip(cars["vid"][out].tolist(), ways[out].tolist(), strict=True)
        if 25 <= first[vid] < 33
    ]  # fmt: skip
    assert np.mean([33 <= end < 66 for end in early]) > 0.7


@pytest.mark.long
def test_three_hours_are_as_many_rows_as_the_published_generators_make() -> None:
    """Of one expressway: 23.2 million rows, speeds of 44.3 in the mean, at most 2,971 a second."""
    rows = most = total = slow = reports = 0
    for batch in LinearRoad(seed=1).seconds():
        rows += batch.num_rows
        speeds = batch.column("speed").to_numpy()[batch.column("type").to_numpy() == REPORT]
        most = max(most, len(speeds))
        reports, total, slow = (
            reports + len(speeds),
            total + speeds.sum(),
            slow + (speeds < 40).sum(),
        )
    assert 22_000_000 < rows < 24_500_000
    assert 42 < total / reports < 47
    assert 0.12 < slow / reports < 0.18
    assert 2_700 < most < 3_200


def test_a_start_in_the_middle_finds_the_road_as_full_as_it_is(rows: dict[str, Any]) -> None:
    middle = next(iter(LinearRoad(1, 30, seed=5, start_s=1_200).seconds()))
    whole = (rows["time"] == 1_200).sum()
    assert middle.num_rows == whole  # the warming up began at 0, so it is the same run


def test_expenditures_are_known_of_every_car_and_day(road: LinearRoad) -> None:
    parts = list(LinearRoad(1, 30, seed=5).history(0, rows=400))
    vids = np.concatenate([vids for vids, _ in parts])
    paid = np.concatenate([paid for _, paid in parts])
    assert len(vids) == LinearRoad(1, 30, seed=5).cars()[0]
    assert paid.shape == (len(vids), 69)
    assert paid.min() >= 10
    assert paid.max() <= 99
    assert int(road.expenditure([vids[7]], [69])[0]) == paid[7, 68]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"expressways": 0}, "expressways=0"),
        ({"duration_s": 0}, "duration_s=0"),
        ({"duration_s": 10_801}, "duration_s=10801"),
        ({"start_s": 10_000, "duration_s": 1_000}, "start_s=10000"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_wrong_settings_are_told(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        LinearRoad(**wrong)
