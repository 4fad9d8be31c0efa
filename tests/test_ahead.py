"""`max_ahead_s`: a row that is dated ahead of the clock does not end everybody's data.

The rows of a batch move the channel's time. One that is further ahead of the clock than the
channel allows is rejected with the reason; the good rows land, and nothing expires.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tables import rejected_of

import tideline
from tideline import InvalidRequest
from tideline.channel.landing import Landing
from tideline.channel.spool import Spool
from tideline.clock import from_us
from tideline.errors import Unavailable
from tideline.lsm.manifest import Manifest
from tideline.testing import ManualClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REASON = "at is more than 60 s ahead of the clock (max_ahead_s of the channel)"
LAYOUTS = ["dual", "two", "poll", "http"]
AHEAD = [timedelta(seconds=61), timedelta(days=1), datetime(9000, 1, 1, tzinfo=UTC) - NOW]

Opener = Callable[..., Any]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW.timestamp())


def row(id: str, ahead: timedelta, op: str = "publish", **change: Any) -> dict[str, Any]:
    at = NOW + ahead
    found = {"op": op, "id": id, "place": "a", "at": at, "until": at + timedelta(minutes=5)}
    found |= {"user": None, "body": "{}"} if op == "publish" else {"user": "u", "body": None}
    return found | change


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows))


def ids(channel: Any) -> set[str]:
    return {event.id for event in channel.find("a")}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ahead", AHEAD, ids=["a minute", "a day", "the year 9000"])
def test_a_row_from_the_future_hides_nothing(
    open_channel: Opener, layout: str, ahead: timedelta
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {"n": 1}, id="mine", ttl_s=30)
    done = channel.apply(table(row("bad", ahead), row("good", timedelta(0))))
    assert rejected_of(done) == {0: REASON}
    assert ids(channel) == {"mine", "good"}
    channel.publish("a", {"n": 2}, id="later", ttl_s=30)
    assert ids(channel) == {"mine", "good", "later"}
    assert channel.stats().late == 0


@pytest.mark.parametrize("op", ["publish", "subscribe", "cancel"])
def test_every_operation_moves_time_so_every_one_is_held_to_it(
    open_channel: Opener, op: str
) -> None:
    channel = open_channel()
    channel.subscribe("a", user="u", id="s", until_s=30)
    change = {"place": None, "user": None, "body": None, "until": None} if op == "cancel" else {}
    done = channel.apply(table(row("s", timedelta(days=1), op, **change)))
    assert rejected_of(done) == {0: REASON}
    assert [info.id for info in channel.subscriptions()] == ["s"]
    assert channel.newest == NOW


def test_a_time_that_no_channel_has_is_said_first(open_channel: Opener) -> None:
    far = pa.array([10**18], pa.timestamp("us", "UTC"))
    rows = pa.table({"op": ["publish"], "place": ["a"], "at": far, "body": ["1"]})
    assert rejected_of(open_channel().apply(rows)) == {0: "at must lie in the years 1 to 9891"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_just_ahead_lands_and_moves_time(open_channel: Opener, layout: str) -> None:
    channel = open_channel(layout)
    channel.publish("a", {"n": 1}, id="short", ttl_s=30)
    done = channel.apply(table(row("edge", timedelta(seconds=60))))
    assert done.rejected.num_rows == 0
    assert ids(channel) == {"edge"}


def test_the_limit_goes_with_the_clock(open_channel: Opener, clock: ManualClock) -> None:
    channel = open_channel()
    soon = row("soon", timedelta(seconds=90))
    assert rejected_of(channel.apply(table(soon))) == {0: REASON}
    clock.advance(30)
    assert channel.apply(table(soon)).rejected.num_rows == 0


@pytest.mark.parametrize("layout", ["dual", "two", "http"])
def test_a_forecast_is_an_event_of_the_future_and_moves_nothing(
    open_channel: Opener, layout: str
) -> None:
    channel = open_channel(layout)
    channel.publish("a", {"n": 1}, id="now", ttl_s=30)
    channel.publish("a", {"n": 2}, id="forecast", at=NOW + timedelta(days=900), ttl_s=60)
    asked = channel.subscribe("a", user="u", since=NOW, until=NOW + timedelta(days=901))
    assert {event.id for event in asked.past} == {"now", "forecast"} == ids(channel)


def test_windows_may_lie_in_the_future(open_channel: Opener) -> None:
    channel = open_channel()
    later, end = NOW + timedelta(days=900), NOW + timedelta(days=901)
    rows = table(row("s", timedelta(0), "subscribe", since=later, until=end))
    assert channel.apply(rows).rejected.num_rows == 0
    assert channel.newest == NOW


@pytest.mark.parametrize("layout", ["dual", "two", "poll"])
def test_history_is_replayed_as_before(open_channel: Opener, layout: str) -> None:
    channel = open_channel(layout)
    days = [row(f"e{n}", timedelta(days=n - 100)) for n in range(100)]
    assert channel.apply(table(*days)).rejected.num_rows == 0
    assert channel.newest == NOW - timedelta(days=1)


@pytest.mark.parametrize("layout", ["dual", "two", "poll", "http"])
def test_without_a_limit_a_replay_may_run_ahead_of_a_clock_that_stands(
    open_channel: Opener, layout: str
) -> None:
    channel = open_channel(layout, max_ahead_s=math.inf)
    days = [row(f"e{n}", timedelta(days=n)) for n in range(100)]
    assert channel.apply(table(*days)).rejected.num_rows == 0
    assert channel.max_ahead_s == math.inf
    assert ids(channel) == {"e99"}


def test_staged_rows_are_checked_and_held_to_it(tmp_path: Path, open_channel: Opener) -> None:
    channel, spool = open_channel(), Spool(tmp_path / "spool")
    spool.folder.mkdir()
    rows = table(row("bad", timedelta(days=1)), row("good", timedelta(0)))
    token = spool.stage("job", rows.to_batches())
    landing = Landing(channel, spool)
    checked = landing.check([token])
    assert (checked.rejected, checked.reasons) == (1, [REASON])
    landed = landing.commit([token], once=("w", 1))
    assert (landed.rows, landed.rejected, landed.reasons) == (2, 1, [REASON])
    assert ids(channel) == {"good"}


# ---- the setting -------------------------------------------------------------------------------


def test_it_is_stored_with_the_channel_and_another_value_changes_it(tmp_path: Path) -> None:
    def opened() -> Any:
        return tideline.open(tmp_path, clock=ManualClock(NOW.timestamp()))

    with opened() as db:
        assert db.channel("c").max_ahead_s == 60
        assert db.channel("c", max_ahead_s=0.5).max_ahead_s == 0.5
    with opened() as db:
        assert db.channel("c").max_ahead_s == 0.5
        done = db.channel("c").apply(table(row("bad", timedelta(seconds=1))))
        assert rejected_of(done) == {0: REASON.replace("60", "0.5")}
        db.channel("c", max_ahead_s=math.inf)
    with opened() as db:
        assert db.channel("c").max_ahead_s == math.inf
        db.channel("c", max_ahead_s=0)
        db.channel("c", journal_s=60)
    with opened() as db:
        assert db.channel("c").max_ahead_s == 0


def test_a_channel_made_before_there_was_a_limit_has_the_default(tmp_path: Path) -> None:
    with tideline.open(tmp_path) as db:
        db.channel("c", max_ahead_s=5)
    manifest = Manifest(tmp_path / "channels" / "0001" / "MANIFEST")
    document = manifest.load()
    assert document is not None
    assert document["facts"].pop("max_ahead_us") == 5_000_000
    manifest.save(document)
    with tideline.open(tmp_path) as db:
        assert db.channel("c").max_ahead_s == 60


def test_a_change_that_cannot_be_stored_does_not_count(
    open_channel: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()

    def full(document: Any) -> None:
        raise Unavailable("no room on disk")

    with monkeypatch.context() as patched:
        patched.setattr(channel.core.engine.store._manifest, "save", full)
        with pytest.raises(Unavailable):
            channel.core.allow_ahead(5)
    assert channel.max_ahead_s == 60


@pytest.mark.parametrize("value", [-1, math.nan, -math.inf, "1", True, 1e12])
def test_a_wrong_limit_is_refused(tmp_path: Path, value: Any) -> None:
    with tideline.open(tmp_path) as db:
        with pytest.raises(InvalidRequest, match="max_ahead_s"):
            db.channel("c", max_ahead_s=value)
        assert db.channels() == []


# ---- a channel whose time ran ahead --------------------------------------------------------------


def test_what_is_left_of_a_channel_whose_time_ran_ahead_can_be_moved(
    open_database: Callable[..., Any],
) -> None:
    db = open_database()
    old = db.channel("old", max_ahead_s=math.inf)
    old.publish("a", {"n": 1}, id="for ever")
    old.subscribe("a", user="u", id="s")
    old.apply(table(row("bad", timedelta(days=365))))
    old.publish("a", {"n": 1}, id="hidden", ttl_s=60)
    assert ids(old) == {"for ever", "bad"}
    new = db.channel("new")
    for kind, op in (("events", "publish"), ("subscriptions", "subscribe")):
        left = old.scan(kind).drop_columns("seq")
        if kind == "subscriptions":
            left = left.append_column("at", pa.array([NOW] * len(left), pa.timestamp("us", "UTC")))
        new.apply(left.append_column("op", pa.array([op] * len(left))))
    assert ids(new) == {"for ever"}
    assert new.publish("a", {"n": 2}, id="seen", ttl_s=60).subscriptions[0].id == "s"
    assert new.newest == from_us(round(NOW.timestamp() * 1e6))
