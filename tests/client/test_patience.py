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


def overdraw(url: str, seconds: int) -> None:
    """Use up the rate of this address for so long."""
    with tideline.connect(url) as remote:
        remote.channel("load").apply(events(100 * 10 * seconds))  # 10 a second, 100 rows are one


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """A server that lets ten operations a second through."""
    with tideline.open(tmp_path / "data", memory_mb=64) as db, running(db, rate_per_s=10) as url:
        db.channel("roads")
        yield db, url


def test_connecting_waits_for_the_rate(slow: tuple[Any, str]) -> None:
    _, url = slow
    overdraw(url, 3)
    with tideline.connect(url) as remote:
        assert remote.channels() == ["load", "roads"]


def test_connecting_without_the_time_says_why(slow: tuple[Any, str]) -> None:
    _, url = slow
    overdraw(url, 60)
    with pytest.raises(Unavailable, match=r"slow down.*retry_after_s="):
        tideline.connect(url, timeout_s=5)


def test_calls_on_the_live_connection_wait_too(slow: tuple[Any, str]) -> None:
    db, url = slow
    with tideline.connect(url) as remote:
        roads = remote.channel("roads")
        sub = roads.subscribe("a", user="u", id="s", until_s=600)
        overdraw(url, 2)
        other = roads.subscribe("a", user="u", id="t", until_s=600)
        assert not other.duplicate
        db.channel("roads").publish("a", {"n": 1}, id="e")
        overdraw(url, 2)
        assert [event.id for event in sub.take()] == ["e"]
        overdraw(url, 2)
        sub.cancel()
        overdraw(url, 2)
        assert [event.id for event in roads.resume("t").past] == ["e"]
        assert [found.id for found in db.channel("roads").subscriptions()] == ["t"]


def test_a_live_connection_is_made_when_the_rate_lets_it(slow: tuple[Any, str]) -> None:
    db, url = slow
    with tideline.connect(url) as remote:
        roads = remote.channel("roads")
        overdraw(url, 3)
        roads.subscribe("a", user="u", id="s", until_s=600)
    assert [found.id for found in db.channel("roads").subscriptions()] == ["s"]


def test_a_live_connection_that_is_not_made_in_time_says_why(slow: tuple[Any, str]) -> None:
    _, url = slow
    with tideline.connect(url, timeout_s=5) as remote:
        roads = remote.channel("roads")
        overdraw(url, 120)
        with pytest.raises(Unavailable, match=r"takes no live connection now.*slow down"):
            roads.subscribe("a", user="u", until_s=600)


def test_more_subscriptions_than_the_rate_are_all_resumed(tmp_path: Path) -> None:
    """Forty at ten a second: what is over the rate is asked for again on the same connection."""
    with tideline.open(tmp_path / "data", memory_mb=64) as db:
        with running(db) as url:
            remote = tideline.connect(url, timeout_s=120)
            roads = remote.channel("roads")
            held = [roads.subscribe("a", user="u", id=f"s{n}", until_s=600) for n in range(40)]
        db.channel("roads").publish("a", {}, id="missed")
        with running(db, port=int(url.rpartition(":")[2]), rate_per_s=10), remote:
            assert [event.id for event in held[-1].take()] == ["missed"]
            held.pop().cancel()
            db.channel("roads").publish("a", {}, id="new")
            for sub in held:  # iteration does not ask the server
                arriving = iter(sub)
                assert [next(arriving).id for _ in range(2)] == ["missed", "new"]


def test_a_limit_that_waiting_does_not_help_is_told_at_once(served: tuple[Any, str]) -> None:
    _, url = served
    with tideline.connect(url) as remote:
        roads = remote.channel("roads")
        kept = [roads.subscribe("a", user="u", until_s=60) for _ in range(2)]
        with pytest.raises(Unavailable, match="2 live subscriptions"):
            roads.subscribe("a", user="u", until_s=60)
        del kept
