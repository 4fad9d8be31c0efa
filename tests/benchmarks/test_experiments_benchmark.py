"""The experiments with channels end to end on little: every part runs and its answers agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import experiments
from benchmarks.experiments_common import (
    SIZES,
    Rows,
    Store,
    Tally,
    padded,
    pairs_of,
)
from benchmarks.experiments_hierarchy import _Checks
from benchmarks.experiments_reads import Counter, count
from benchmarks.experiments_simple import workload
from tideline.errors import InvalidRequest
from tideline.workload.tweets import START_US


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """All parts in the tiny size: their results and where they are."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("results")
    experiments.main(["--size", "tiny", "--results", str(folder)])
    parts = json.loads((folder / "experiments.json").read_text())
    return {name: part["data"] for name, part in parts.items()}, folder


@pytest.mark.long
def test_dual_two_and_poll_answer_the_same(found: tuple[dict[str, Any], Path]) -> None:
    for data in (found[0]["simple"], found[0]["beyond"]["simple"]):
        for ratio in ("3:1", "1:3"):
            overall, verbs = data[ratio]["overall"], data[ratio]["verbs"]
            assert overall["same"]
            assert verbs["same"]
            assert verbs["same_polled"]
            assert overall["answers_per_operation"] > 0.1
            assert verbs["polls_per_subscription"] == 10


@pytest.mark.long
def test_dual_and_two_join_the_same(found: tuple[dict[str, Any], Path]) -> None:
    for data in (found[0]["selfjoin"], found[0]["beyond"]["selfjoin"]):
        for ratio in ("3:1", "1:3"):
            assert data[ratio]["same"]
            assert data[ratio]["same_related"]
            assert data[ratio]["related_per_event"] > 0.05


@pytest.mark.long
def test_fixed_and_variable_are_to_each_other_as_they_must(
    found: tuple[dict[str, Any], Path],
) -> None:
    data = found[0]["hierarchy"]
    for what in ("levels", "circles"):
        assert data[what]["verbs"]["as_they_must"]
        assert data[what]["overall"]["as_they_must"]
        assert found[0]["beyond"]["hierarchy"][what]["verbs"]["as_they_must"]
    levels, circles = (
        data[what]["overall"]["pairs_per_operation"] for what in ("levels", "circles")
    )
    assert levels["fixed"] == levels["variable"]
    assert circles["exact"] < circles["fixed"] < circles["variable"]


@pytest.mark.long
def test_beyond_memory_is_beyond_memory(found: tuple[dict[str, Any], Path]) -> None:
    beyond = found[0]["beyond"]
    for data in (beyond["simple"]["1:3"]["overall"], beyond["selfjoin"]["1:3"]):
        assert all(held["components"] > 0 for held in data["held"].values())
    for what in ("levels", "circles"):
        assert all(beyond["hierarchy"][what]["verbs"]["components"].values())


@pytest.mark.long
def test_reads_are_known_exactly(found: tuple[dict[str, Any], Path]) -> None:
    reads = found[0]["reads"]
    for sort in ("simple", "selfjoin"):
        for one in reads[sort].values():
            for verb in one["verbs"].values():
                assert verb["clear"] > 0.98
                assert verb["components"] <= verb["there"] + 0.01
    assert reads["simple"]["dual"]["verbs"]["subscribe"]["lookups"] > 0
    assert reads["simple"]["poll"]["verbs"]["publish"]["lookups"] == 0
    for level in reads["hierarchy"]["levels"]:
        assert level["fixed"] >= level["variable"] * level["copies"] * 0.5


@pytest.mark.long
def test_a_page_and_pictures_are_written(found: tuple[dict[str, Any], Path]) -> None:
    page = (found[1] / "experiments.md").read_text()
    assert "WRONG" not in page
    assert page.count("Commit ") == 5
    assert len(list(found[1].glob("experiments-*.png"))) == 8


def test_full_is_the_size_of_the_papers() -> None:
    size = SIZES["full"]
    assert size.sections * size.operations == 15_000_000
    assert size.sections * size.tree_operations == 15_000_000


# That the checks can fail ------------------------------------------------------------------


def test_a_tally_tells_sets_apart_and_adds_up() -> None:
    subs, events = np.array([1, 2, 3]), np.array([7, 7, 9])
    whole = Tally().add(subs, events)
    assert whole == Tally.of([Tally().add(subs[:1], events[:1]), Tally().add(subs[1:], events[1:])])
    assert whole != Tally().add(subs[:2], events[:2])
    assert whole != Tally().add(subs, events[::-1].copy())


def test_checks_of_a_hierarchy_see_a_missing_pair_and_a_double_one() -> None:
    right = (np.array([1, 2]), np.array([5, 5]))
    short = (np.array([1]), np.array([5]))
    twice = (np.array([1, 2, 2]), np.array([5, 5, 5]))
    for variable, fixed, good in (
        (right, right, True),
        (right, twice, True),
        (right, short, False),
        (short, right, False),
        (twice, right, False),
    ):
        checks = _Checks("levels")
        checks.see({"variable": variable, "fixed": fixed})
        assert checks.right is good
    checks = _Checks("circles")
    checks.see({"variable": short, "fixed": right, "exact": short})
    assert not checks.right


def test_single_calls_find_what_a_batch_finds(tmp_path: Path) -> None:
    table = workload("3:1", 50_000).batch(0, 2_000)
    batch, single = (Store(tmp_path / name, "dual", START_US) for name in ("a", "b"))
    _, answers = batch.apply(table)
    done = single.call(Rows.of(table))
    assert Tally().add(*pairs_of(answers)) == Tally().add(done.subscriptions, done.events)
    assert len(done.subscriptions) > 100
    batch.close()
    single.close()


def test_layout_poll_refuses_a_self_join(tmp_path: Path) -> None:
    store = Store(tmp_path / "db", "poll", START_US)
    with pytest.raises(InvalidRequest, match="unseen"):
        store.call(Rows.of(workload("3:1", 2_000).batch(0, 50)), joined=True)
    store.close()


def test_a_look_up_is_counted_for_every_component_that_may_answer(tmp_path: Path) -> None:
    store = Store(tmp_path / "db", "dual", START_US)
    rows = Rows.of(workload("3:1", 2_000).batch(0, 300))
    for part in range(3):
        store.apply(workload("3:1", 2_000).batch(1_000 + part * 100, 100))
        store.channel.seal()
    components = store.channel.stats().components
    counter = Counter(store)
    rows.at_us[:] = [store.clock.now()] * len(rows)
    count(store, rows, counter=counter)
    result = counter.result()
    assert components > 0
    assert result["publish"]["clear"] == result["subscribe"]["clear"] == 1
    assert 0 < result["publish"]["components"] <= components
    store.close()


def test_padded_bodies_are_json_of_that_size() -> None:
    table = padded(workload("1:3", 100).batch(0, 50), 800)
    bodies = [body for body in table["body"].to_pylist() if body is not None]
    assert bodies
    assert all(len(body) == 800 and "text" in json.loads(body) for body in bodies)
    assert table["body"].null_count == table["op"].to_pylist().count("subscribe")
