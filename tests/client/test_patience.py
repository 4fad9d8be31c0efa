"""A server that was asked too much says when to come back: a client waits for that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline.errors import Unavailable
from tideline.server import running


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Any, str]]:
    with (
        tideline.open(tmp_path / "data", memory_mb=64) as db,
        running(db, rate_per_s=100, subscriptions_per_user=2) as url,
    ):
        yield db, url


def events(count: int) -> pa.Table:
    now = tideline.clock.from_us(time.time_ns() // 1000)
    return pa.table({"op": ["publish"] * count, "place": ["a"] * count, "at": [now] * count,
                     "body": ["{}"] * count})  # fmt: skip


def test_calls_over_the_rate_wait_and_land_once(served: tuple[Any, str]) -> None:
    db, url = served
    with tideline.connect(url) as remote:
        roads = remote.channel("roads")
        for n in range(150):
            assert not roads.publish("a", {"n": n}).duplicate
    bodies = [event.body["n"] for event in db.channel("roads").find("a")]
    assert sorted(bodies) == list(range(150))


def test_a_table_that_is_not_made_again_is_not_cut_off_by_the_rate(served: tuple[Any, str]) -> None:
    db, url = served
    with tideline.connect(url) as remote:
        roads = remote.channel("roads")
        for _ in range(2):  # 1.2 seconds' worth each, without `once`
            assert len(roads.apply(events(12_000)).rejected) == 0
    assert db.channel("roads").stats().events == 24_000


def test_a_call_without_the_time_says_so(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data", memory_mb=64) as db, running(db, rate_per_s=10) as url:
        db.channel("roads")
        with tideline.connect(url, timeout_s=10) as remote:
            roads = remote.channel("roads")
            roads.apply(events(30_000))  # half a minute' worth: more than the call may take
            with pytest.raises(Unavailable, match="slow down"):
                roads.publish("a", {})
        assert db.channel("roads").stats().events == 30_000


def test_a_limit_that_waiting_does_not_help_is_told_at_once(served: tuple[Any, str]) -> None:
    _, url = served
    with tideline.connect(url) as remote:
        roads = remote.channel("roads")
        kept = [roads.subscribe("a", user="u", until_s=60) for _ in range(2)]
        with pytest.raises(Unavailable, match="2 live subscriptions"):
            roads.subscribe("a", user="u", until_s=60)
        del kept
