"""The index benchmark end to end on little data: right answers, peers that agree, a page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import secondary
from benchmarks.peers.documents import Rocks, Sqlite
from benchmarks.secondary_static import Truth
from tideline.workload.documents import Documents
from tideline.workload.queries import Static

COUNT = 2_000


@pytest.mark.parametrize("peer", [Sqlite, Rocks])
def test_a_peer_finds_the_newest_by_key_and_by_value(
    peer: type[Sqlite] | type[Rocks], tmp_path: Path
) -> None:
    tweets = Documents.of(COUNT, seed=4)
    store = peer(tmp_path / "peer")
    rows = tweets.batch(0, COUNT)
    for first in range(0, COUNT, 500):
        part = rows.slice(first, 500)
        store.put_many(store.prepare(part, Documents.as_json(part)))
    store.settle()
    assert store.get(7) == rows.slice(7, 1).to_pylist()[0]
    assert store.get(COUNT) is None
    static, truth = Static(tweets, COUNT), Truth(tweets, COUNT)
    for field in ("user", "time"):
        for value in static.values(field, 50):
            wanted = truth.newest(field, value, value).tolist()
            assert [one["id"] for one in store.lookup(field, value, 10)] == wanted[:10]
            assert [one["id"] for one in store.lookup(field, value)] == wanted
    store.close()


def test_truth_is_what_the_columns_say() -> None:
    tweets = Documents.of(COUNT, seed=4)
    users = tweets.batch(0, COUNT)["user"].to_numpy()
    for low, high in Static(tweets, COUNT).ranges("user", 20, 10):
        wanted = np.flatnonzero((users >= low) & (users <= high))[::-1]
        assert Truth(tweets, COUNT).newest("user", low, high).tolist() == wanted.tolist()


@pytest.mark.long
def test_every_part_runs_and_its_answers_are_right(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    secondary.main([
        "--count", str(COUNT), "--operations", "1000", "--lookups", "5", "--gets", "20",
        "--cell-s", "0", "--results", str(tmp_path),
    ])  # fmt: skip
    found = json.loads((tmp_path / "secondary.json").read_text())
    static = found["static"]["data"]
    assert all(cell["right"] for cell in [*static["queries"], *static["get"]])
    assert {cell["kind"] for cell in static["queries"]} == {
        "none", "embedded", "lazy", "composite", "eager",
    }  # fmt: skip
    for lines in found["mixed"]["data"]["mixes"].values():
        assert all(line["same"] for line in lines)
    for what in found["speed"]["data"]["ask"].values():
        assert all(what["same"].values())
    page = (tmp_path / "secondary.md").read_text()
    assert "WRONG" not in page
    assert "**Wrong" not in page
    assert len(list(tmp_path.glob("secondary-*.png"))) == 7


def test_scale_reaches_the_size_of_the_experiments() -> None:
    options = secondary.parse_options(["--scale", "10", "--size", "full"])
    assert (options.count, options.operations) == (180_000_000, 50_000_000)
    assert options.speed_count == 5_000_000
