"""Disk comes back: when everything has expired, a channel's folder holds next to nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tideline
from tideline.testing import ManualClock

LITTLE = 256 << 10
# A window is dropped whole, so it may stay for about as long again as its longest ttl: 300 s here.


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def load(channel: tideline.Channel, clock: ManualClock, seconds: int) -> None:
    """Events and subscriptions of many lengths; some are cancelled."""
    rng = random.Random(seconds)
    for second in range(seconds):
        subscriptions = []
        for n in range(20):
            place = f"p{rng.randrange(20)}"
            channel.publish(place, {"text": "x" * 300}, ttl_s=rng.choice([1, 5, 30, 300]))
            until_s = rng.choice([1, 30, 300])
            subscription = channel.subscribe(
                place, user=f"u{n}", id=f"{second}-{n}", since_s=-5, until_s=until_s
            )
            subscriptions.append(subscription.id)
        for id in subscriptions[:3]:
            channel.cancel(id)
        clock.advance(1)


@pytest.mark.parametrize("way", ["maintain", "stats"])
@pytest.mark.parametrize("layout", ["dual", "two"])
@pytest.mark.parametrize("memory_mb", [8, 64])
def test_what_has_expired_leaves_the_disk_of_a_silent_channel(
    tmp_path: Path, layout: str, memory_mb: int, way: str
) -> None:
    clock = ManualClock(1_700_000_000)
    with tideline.open(tmp_path, clock=clock, memory_mb=memory_mb) as db:
        channels = [db.channel(name, layout=layout) for name in "ab"]
        for channel in channels:
            load(channel, clock, 60)
        assert size_of(tmp_path) > 4 * LITTLE
        clock.advance(1200)
        if way == "maintain":
            for channel in channels:
                channel.maintain()
        else:
            db.stats()
            for channel in channels:
                channel.core.engine.drain()
        assert size_of(tmp_path) < LITTLE
        # And it goes on.
        channels[0].publish("p0", {"n": 1}, id="e", ttl_s=60)
        assert [event.id for event in channels[0].find("p0")] == ["e"]
        db.check()


def test_a_channel_that_was_reopened_gives_its_disk_back_without_a_write(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000)
    with tideline.open(tmp_path, clock=clock, memory_mb=16) as db:
        load(db.channel("a"), clock, 60)
    assert size_of(tmp_path) > 2 * LITTLE
    clock.advance(1200)
    with tideline.open(tmp_path, clock=clock, memory_mb=16) as db:
        db.channel("a").maintain()
        assert size_of(tmp_path) < LITTLE


def test_a_journal_is_kept_for_its_time_and_then_goes(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000)
    with tideline.open(tmp_path, clock=clock, memory_mb=16) as db:
        channel = db.channel("a", journal_s=3600)
        load(channel, clock, 60)
        start = channel.earliest()
        clock.advance(1200)
        channel.maintain()
        assert size_of(tmp_path) > LITTLE
        assert channel.earliest() == start
        clock.advance(4000)
        channel.maintain()
        assert size_of(tmp_path) < LITTLE


def test_a_channel_that_replays_history_is_left_alone(tmp_path: Path) -> None:
    """Its time is far from the clock: what comes next may still meet what is there."""
    history, clock = ManualClock(1_600_000_000), ManualClock(1_700_000_000)
    with tideline.open(tmp_path, clock=clock, memory_mb=16) as db:
        channel = db.channel("a")
        at = tideline.clock.from_us(history.now())
        channel.publish("p", {"n": 1}, id="e", at=at, ttl_s=60)
        channel.core.clocked = False
        clock.advance(10_000)
        before = channel.stats().windows
        channel.maintain()
        assert channel.stats().windows == before
