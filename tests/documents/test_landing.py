"""Batches of changes by version: what is left is what taking them row by row would leave."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline.documents.landing import Arriving


def take(state: dict[int, Any], deleted: dict[int, int], row: dict[str, Any]) -> None:
    """One row, as the words of `landing` say it."""
    key, version, is_put = row["id"], row["v"], row["op"] != "d"
    old = state[key]["v"] if key in state else -1
    if version < old or (version == old and is_put) or version <= deleted.get(key, -1):
        return
    if is_put:
        state[key] = {"id": key, "v": version, "road": row["road"]}
        deleted.pop(key, None)
    else:
        state.pop(key, None)
        deleted[key] = version


@pytest.mark.parametrize("seed", range(6))
def test_versions_are_taken_row_by_row(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    state: dict[int, Any] = {}
    indexes = {"road": rng.choice(["lazy", "eager", "composite", "embedded"])}
    for number in range(12):
        with tideline.open(tmp_path / "db") as db:
            cars = db.collection("cars", key="id", indexes=indexes)
            arriving = Arriving(cars, "change", "v", once=("loader", number))
            deleted: dict[int, int] = {}
            slices = rng.randint(1, 3)
            for n in range(slices):
                rows = [
                    {
                        "op": rng.choice("cud" "r"), "id": rng.randrange(6),
                        "v": rng.randrange(2 * number, 2 * number + 6), "road": rng.randrange(3),
                    }
                    for _ in range(rng.randint(1, 12))
                ]  # fmt: skip
                for row in rows:
                    take(state, deleted, row)
                assert arriving.land(pa.Table.from_pylist(rows), last=n == slices - 1) == {}
            assert {car["id"]: car for car in cars.find()} == state
            for road in range(3):
                wanted = {key for key, car in state.items() if car["road"] == road}
                assert {car["id"] for car in cars.lookup("road", road)} == wanted


def test_a_batch_that_changes_nothing_has_landed_all_the_same(tmp_path: Path) -> None:
    stale = pa.table({"op": ["u"], "id": [1], "v": [1]})
    with tideline.open(tmp_path / "db") as db:
        cars = db.collection("cars", key="id")
        cars.put({"id": 1, "v": 5})
        batch = Arriving(cars, "change", "v", once=("loader", 3))
        assert batch.land(stale, last=True) == {}
        assert cars.landed("loader", 3) is None
        assert cars.landed("loader", 4) == 0
    with tideline.open(tmp_path / "db") as db:
        cars = db.collection("cars", key="id")
        cars.delete(1)
        assert Arriving(cars, "change", "v", once=("loader", 3)).is_repeated


@pytest.mark.parametrize("version", [[1], [1, 2], [1, 2, 3], True, None, {}, "x" * 2000])
def test_a_version_is_one_number_or_text(version: Any) -> None:
    with tideline.open(":memory:") as db:
        cars = db.collection("cars", key="id")
        given = pa.table({"document": [json.dumps({"id": 1, "v": version})]})
        assert "is no number and no text" in Arriving(cars, version="v").land(given, last=True)[0]


def test_a_delete_has_the_version_that_the_row_had_last() -> None:
    """As Debezium tells it: what was there before."""
    with tideline.open(":memory:") as db:
        cars = db.collection("cars", key="id")
        cars.put({"id": 2, "v": 1})
        gone = pa.table({"op": ["d"], "id": [2], "v": [1]})
        assert Arriving(cars, "change", "v").land(gone, last=True) == {}
        assert cars.get(2) is None
