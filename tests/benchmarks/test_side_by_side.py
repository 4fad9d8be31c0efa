"""Side by side: peers that agree on every answer, and a benchmark that would notice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("psutil")

from benchmarks import side_by_side, side_can, side_crash, side_report
from benchmarks.peers.base import Cannot, Given, Peer
from benchmarks.peers.columns import answer_array
from benchmarks.peers.tideline import TidelinePeer
from benchmarks.side_common import SIZES, SYSTEMS, System, Verdict, find_systems
from benchmarks.side_host import within
from benchmarks.side_room import records
from tideline.workload.newyork import BOUNDS
from tideline.workload.tweets import START_US

INSIDE = ["sqlite", "rocksdb"]
BESIDE = [*INSIDE, "tideline-server"]
_TIME = pa.timestamp("us", "UTC")


def random_operations(
    rng: np.random.Generator, first: int, count: int, start_us: int, *, shapes: bool, unseen: bool
) -> pa.RecordBatch:
    """Few places and users, windows of all kinds, time that sometimes jumps over many of them."""
    id = np.arange(first, first + count)
    publish = rng.random(count) < 0.5
    gaps = np.where(rng.random(count) < 0.02, 8_000_000, rng.integers(0, 200_000, count))
    at = start_us + np.cumsum(gaps)
    since = at + rng.integers(-15, 5, count) * 1_000_000
    length = rng.integers(1, 15, count) * 1_000_000
    until = np.where(publish, at + length, np.maximum(since, at) + length)
    columns = {
        "op": pa.array(np.where(publish, "publish", "subscribe")),
        "id": pa.array(id).cast(pa.string()),
        "user": pa.array(rng.integers(0, 5, count), mask=publish).cast(pa.string()),
        "at": pa.array(at).cast(_TIME),
        "since": pa.array(since, mask=publish).cast(_TIME),
        "until": pa.array(until).cast(_TIME),
        "body": pa.array(np.where(publish, '{"n":1}', None), pa.string()),
    }
    if shapes:
        west, south, east, north = BOUNDS
        columns["lon"] = pa.array(rng.uniform(west + 1, west + 1.4, count))
        columns["lat"] = pa.array(rng.uniform(south + 1, south + 1.4, count))
        assert west + 1.4 < east
        assert south + 1.4 < north
        columns["radius_m"] = pa.array(rng.uniform(100, 20_000, count), mask=publish)
    else:
        columns["place"] = pa.array(rng.integers(0, 6, count)).cast(pa.string())
    if unseen:
        columns["unseen"] = pa.array(rng.random(count) < 0.5, mask=publish)
    return pa.record_batch(columns)


def opened(key: str, folder: Path, **settings: Any) -> Peer:
    system = SYSTEMS[key]
    lacking = system.missing()
    if lacking:
        pytest.skip(f"not installed: {lacking}")
    folder.mkdir()
    return system.load()(Given(folder, **settings))


@pytest.fixture(scope="module", params=INSIDE)
def inside(request: pytest.FixtureRequest) -> Iterator[System]:
    lacking = SYSTEMS[request.param].missing()
    if lacking:
        pytest.skip(f"not installed: {lacking}")
    return SYSTEMS[request.param]


# ---- the peers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("shapes", [False, True])
@pytest.mark.parametrize("key", BESIDE)
def test_a_peer_gives_the_answers_of_tideline(
    key: str, shapes: bool, unseen: bool, tmp_path: Path
) -> None:
    (tmp_path / "truth").mkdir()
    truth = TidelinePeer(Given(tmp_path / "truth", shapes=shapes, unseen=unseen))
    try:
        peer = opened(key, tmp_path / "peer", shapes=shapes, unseen=unseen)
    except Cannot as why:
        assert (key, shapes) == ("rocksdb", True)
        pytest.skip(str(why))
    rng = np.random.default_rng(11)
    verdict = Verdict()
    first, start_us = 0, START_US
    for count in (1, 300, 1, 1, 200, 57, 400):
        rows = random_operations(rng, first, count, start_us, shapes=shapes, unseen=unseen)
        outcomes = [one.answers(one.apply(one.prepare(rows))) for one in (peer, truth)]
        verdict.compare(*outcomes, count)
        first += count
        start_us = int(rows.column("at").cast(pa.int64())[-1].as_py())
    peer.close()
    truth.close()
    assert verdict.text() == "the same"
    assert verdict.answers > 1_000


@pytest.mark.parametrize("key", ["tideline", *BESIDE])
def test_single_calls_give_the_answers_of_batches(key: str, tmp_path: Path) -> None:
    (tmp_path / "truth").mkdir()
    truth = TidelinePeer(Given(tmp_path / "truth"))
    peer = opened(key, tmp_path / "peer")
    rows = random_operations(np.random.default_rng(5), 0, 120, START_US, shapes=False, unseen=False)
    verdict = Verdict()
    wanted = truth.answers(truth.apply(truth.prepare(rows)))
    for row in range(rows.num_rows):
        got = peer.answers(peer.apply(peer.prepare(rows.slice(row, 1))))
        got["row"] += row
        verdict.compare(got, wanted[wanted["row"] == row], 1)
    peer.close()
    truth.close()
    assert verdict.text() == "the same"
    assert verdict.answers > 30


@pytest.mark.parametrize("key", INSIDE)
def test_what_has_expired_leaves_the_peer(key: str, tmp_path: Path) -> None:
    peer = opened(key, tmp_path / "peer", memory_mb=8)
    second = 1_000_000
    for wave in range(12):
        at = START_US + wave * 20 * second
        for part, op in enumerate(("subscribe", "publish")):
            first = (2 * wave + part) * 10_000
            peer.apply(peer.prepare(records(op, first, 10_000, at, at + second, places=10_000)))
        if wave == 5:
            half = peer.disk_bytes()
    after = peer.disk_bytes()
    peer.close()
    assert after < 1.7 * half


# ---- what the benchmark would notice -----------------------------------------------------------


def test_a_verdict_tells_what_is_missing_extra_or_doubled() -> None:
    wanted = answer_array([0, 1, 1], [5, 5, 6], [7, 8, 8])
    same, missing, extra, doubled = Verdict(), Verdict(), Verdict(), Verdict()
    same.compare(wanted[::-1].copy(), wanted, 2)
    missing.compare(wanted[:2], wanted, 2)
    extra.compare(np.concatenate([wanted, answer_array([1], [9], [8])]), wanted, 2)
    doubled.compare(np.concatenate([wanted, wanted[:1]]), wanted, 2)
    assert same.same
    assert (missing.missing, missing.extra) == (1, 0)
    assert "row 1: missing subscription 6, event 8" in missing.text()
    assert (extra.missing, extra.extra) == (0, 1)
    assert (doubled.missing, doubled.extra) == (0, 1)
    assert not any(one.same for one in (missing, extra, doubled))


def test_a_system_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = System("redis", "benchmarks.peers.no_such_module:Peer", "server")
    monkeypatch.setitem(SYSTEMS, "redis", gone)
    systems, missing = find_systems(["tideline", "redis"])
    assert [system.key for system in systems] == ["tideline"]
    assert missing["redis"].startswith("not installed: ")
    assert "no_such_module" in missing["redis"]


def test_a_scenario_notices_a_wrong_answer() -> None:
    class Deaf(TidelinePeer):
        def answers(self, outcome: object) -> np.ndarray:
            return super().answers(outcome)[:0]

    class Fake(System):
        def load(self) -> type[Peer]:
            return Deaf

    fake = Fake("deaf", "", "in-process")
    for ability in ("past and future in one request", "expiry on both sides", "unseen only"):
        with pytest.raises(side_can.Wrong):
            side_can.ABILITIES[ability](fake, SIZES["tiny"])


def test_a_lost_record_is_noticed() -> None:
    rows, probe = side_crash.ROWS, 4 * side_crash.ROWS  # two batches acknowledged
    found = [(sub, probe + 50) for sub in range(0, 2 * rows, 2)]
    found += [(probe, event) for event in range(1, 2 * rows, 2)]
    assert side_crash.judge(found, 1, 0.1).startswith(f"yes: {2 * rows} acknowledged")
    assert "lost 0 subscriptions and 1 events" in side_crash.judge(found[:-1], 1, 0.1)
    assert "lost 1 subscriptions and 0 events" in side_crash.judge(found[1:], 1, 0.1)


def sleep_long() -> None:
    import time

    time.sleep(60)


def test_a_scenario_that_takes_too_long_is_ended() -> None:
    with pytest.raises(TimeoutError, match="not within 0 s"):
        within(0.2, sleep_long)


# ---- the abilities, and the whole --------------------------------------------------------------


@pytest.mark.parametrize(
    "ability",
    [
        pytest.param(each, marks=[pytest.mark.long] if each == "larger than memory" else [])
        for each in side_can.ABILITIES
    ],
)
def test_what_a_peer_inside_the_process_can_do(inside: System, ability: str) -> None:
    size = replace(SIZES["tiny"], beyond_mb=8)
    try:
        said = side_can.ABILITIES[ability](inside, size)
    except Cannot:
        assert (inside.key, ability) == ("rocksdb", "circles")
        return
    assert said.startswith("yes"), said


@pytest.mark.parametrize("key", ["tideline", *INSIDE])
def test_nothing_acknowledged_is_lost_when_a_process_is_killed(key: str) -> None:
    lacking = SYSTEMS[key].missing()
    if lacking:
        pytest.skip(f"not installed: {lacking}")
    said = side_crash.try_kill(key, 0.3, 300)
    assert said.startswith("yes: "), said


@pytest.mark.long
def test_every_part_runs_and_all_answers_are_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    keys = ["tideline", "sqlite"]
    arguments = ["--size", "tiny", "--results", str(tmp_path)]
    parts = ["speed", "single", "room", "growth"]
    side_by_side.main([*arguments, "--system", *keys, "--only", *parts])
    side_by_side.main([*arguments, "--system", "tideline", "--only", "can"])
    found = json.loads((tmp_path / "side-by-side.json").read_text())
    for mix in ("3:1", "1:3"):
        lines = found["speed"]["data"]["systems"][mix]
        assert set(lines) == set(keys)
        for line in lines.values():
            assert line["verdict"]["same"]
            assert line["operations"] == SIZES["tiny"].operations
    for line in found["single"]["data"]["systems"].values():
        assert line["verdict"]["same"]
        assert line["publish"]["calls"] + line["subscribe"]["calls"] == SIZES["tiny"].singles
    for line in found["growth"]["data"]["systems"].values():
        assert [one["subscriptions"] for one in line["sizes"]] == list(SIZES["tiny"].grow)
        assert all(one["verdict"]["same"] for one in line["sizes"])
    can = found["can"]["data"]["systems"]["tideline"]
    assert set(can) == {*side_can.ABILITIES, side_can.KILL}
    assert all(said.startswith("yes") for said in can.values()), can
    page = (tmp_path / "side-by-side.md").read_text()
    assert "OTHER" not in page
    assert page.count("the same") >= 4 * len(keys)
    assert len(list(tmp_path.glob("side-by-side-*.png"))) == 3


def test_a_mismatch_stands_in_the_page() -> None:
    verdict = Verdict()
    verdict.compare(answer_array([], [], []), answer_array([3], [1], [2]), 1)
    line = {
        "operations": 1, "operations_per_s": 1.0, "turns": [1.0], "answers_per_operation": 0.0,
        "verdict": verdict.record(), "failed": "", "version": "SQLite", "where": "in-process",
        "warm": 600,
    }  # fmt: skip
    part = {
        "facts": {}, "commit": "c", "date": "d",
        "data": {"size": "tiny", "missing": {"nats": "not installed: nats-server"},
                 "versions": {"sqlite": "SQLite"}, "systems": {"3:1": {"sqlite": line}}},
    }  # fmt: skip
    page = side_report.page({"speed": part})
    assert "OTHER: 1 missing, 0 extra" in page
    assert "NATS JetStream: not installed: nats-server" in page
