"""Past memory: with a small `memory_mb` records go to disk and answer as before.

Keys of a flat space have nothing to do with each other, so one small model per key is as good
as one large one and quick enough for many records.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model import Model
from tables import answers_of, table_of

import tideline
from tideline import Flat, QuadTree
from tideline.clock import FOREVER, SECOND, from_us
from tideline.testing import ManualClock

LAYOUTS = ["dual", "two"]
BATCH = 2_000
KEYS = 400
START = 1_000 * SECOND
MARKER = "tide-marker-"

Opener = Callable[..., Any]


def rows_at(rng: random.Random, turn: int, life_s: int) -> list[dict[str, Any]]:
    """A batch of operations within one second; bodies make it outgrow the memory."""
    rows = []
    for n in range(BATCH):
        at = START + turn * SECOND + n
        row = {"id": f"{turn}-{n}", "place": f"k{rng.randrange(KEYS)}", "at": at}
        until = FOREVER if life_s == 0 else at + rng.randint(1, life_s) * SECOND
        if n % 3:
            row |= {"op": "publish", "until": until, "body": {"n": n, "fill": MARKER + "x" * 600}}
        else:
            since = at - rng.choice([0, 2, 5]) * SECOND
            row |= {"op": "subscribe", "user": f"u{n % 50}", "since": since, "until": until}
            row |= {"where": None, "unseen": False}
        rows.append(row)
    return rows


def apply_both(channel: Any, models: dict[str, Model], rows: list[dict[str, Any]]) -> None:
    expected = []
    for number, row in enumerate(rows):
        answers, rejected = models[row["place"]].apply([row])
        assert rejected == []
        expected += [(number, *answer[1:]) for answer in answers]
    applied = channel.apply(table_of(rows))
    assert applied.rejected.num_rows == 0
    assert answers_of(applied) == sorted(expected)


def compare(channel: Any, models: dict[str, Model], now: int) -> None:
    for number in range(0, KEYS, 7):
        key = f"k{number}"
        expected = models[key].find(now, key)
        assert [(e.id, e.at) for e in channel.find(key)] == [
            (e.id, from_us(e.at)) for e in expected
        ]
    stats = channel.stats()
    assert stats.events == sum(len(m.live_events(now)) for m in models.values())
    assert stats.subscriptions == sum(len(m.live_subs(now)) for m in models.values())


def test_marker_is_found_in_the_files_at_all(open_channel: Opener, tmp_path: Path) -> None:
    """The proof below that bytes are gone would prove nothing if they were never visible."""
    open_channel().publish("a", {"fill": MARKER})
    assert files_with_marker(tmp_path)


def files_with_marker(folder: Path) -> list[str]:
    needle = MARKER.encode()
    return [p.name for p in folder.rglob("*") if p.is_file() and needle in p.read_bytes()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_than_memory_answers_as_the_model(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout, Flat(), memory_mb=4)
    models: dict[str, Model] = defaultdict(lambda: Model(Flat()))
    rng = random.Random(layout)
    for turn in range(8):  # about 6 MB of events
        apply_both(channel, models, rows_at(rng, turn, life_s=0))
        clock.advance(1)
    channel.maintain()
    assert channel.stats().components > 0
    assert channel.stats().bytes_memory < 8 << 20
    compare(channel, models, clock.now())
    apply_both(channel, models, rows_at(rng, 8, life_s=0))
    channel = open_channel(layout, Flat(), memory_mb=4)
    compare(channel, models, clock.now())
    apply_both(channel, models, rows_at(rng, 9, life_s=0))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lives_of_every_length_at_one_place_find_room_in_little_memory(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    """Every length of life has a window of its own, and so have the marks of what was told: more
    windows than there is memory for. A call must come back, with the right answers."""
    channel = open_channel(layout, Flat(), memory_mb=1)
    model = Model(Flat())
    rng = random.Random(2)
    lives = [1, 5, 10, 30, 60, 100, 500, 1_000, 10**9]
    for turn in range(50):
        clock.advance(6)
        rows: list[dict[str, Any]] = []
        for n in range(30):
            at, life = clock.now() + n, rng.choice(lives) * SECOND
            row = {"id": f"{turn}-{n}", "place": "a", "at": at, "until": at + life}
            if n % 2:
                row |= {"op": "publish", "body": n}
            else:
                row |= {"op": "subscribe", "user": "u", "since": at - 60 * SECOND}
                row |= {"where": None, "unseen": rng.random() < 0.3}
            rows.append(row)
        apply_both(channel, {"a": model}, rows)
    assert channel.stats().components > 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_windows_expire_on_disk_while_new_ones_arrive(
    layout: str, open_channel: Opener, clock: ManualClock, tmp_path: Path
) -> None:
    channel = open_channel(layout, Flat(), memory_mb=4)
    models: dict[str, Model] = defaultdict(lambda: Model(Flat()))
    rng = random.Random(layout)
    most = 0
    for turn in range(12):
        apply_both(channel, models, rows_at(rng, turn, life_s=3))
        clock.advance(1)
        channel.seal()
        channel.maintain()
        if turn % 4 == 3:
            compare(channel, models, clock.now())
        size_bytes = sum(p.stat().st_size for p in tmp_path.rglob("c-*.arrow"))
        if turn == 5:
            most = size_bytes
        if turn > 5:  # the live part is as large at every turn: so is the disk's, about
            assert size_bytes < 2 * most
    assert channel.stats().dropped > 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sealed", [False, True])
def test_after_everything_expired_memory_and_disk_are_as_at_the_start(
    layout: str, sealed: bool, open_channel: Opener, clock: ManualClock, tmp_path: Path
) -> None:
    channel = open_channel(layout, Flat(), memory_mb=64)
    rng = random.Random(layout)
    channel.publish("warm", {}, ttl_s=1)
    start = channel.stats()
    for turn in range(3):
        channel.apply(table_of(rows_at(rng, turn, life_s=5)))
    if sealed:
        channel.seal()
        assert channel.stats().components > 0
    full = channel.stats()
    assert full.bytes_memory > start.bytes_memory or sealed
    clock.advance(60)
    channel.publish("tick", {}, ttl_s=1)  # writes move the channel's time
    clock.advance(60)
    channel.publish("tick", {}, ttl_s=1)
    channel.seal()
    channel.maintain()
    end = channel.stats()
    assert (end.events, end.subscriptions) == (1, 0)
    assert end.bytes_memory <= start.bytes_memory * 1.1 + (64 << 10)
    assert end.bytes_disk + end.bytes_log < 64 << 10
    assert files_with_marker(tmp_path) == []
    channel = open_channel(layout, Flat(), memory_mb=64)
    assert channel.find("k1") == []
    assert channel.subscriptions() == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_component_that_expired_whole_vanishes_without_being_read(
    layout: str, open_channel: Opener, clock: ManualClock, tmp_path: Path
) -> None:
    channel = open_channel(layout)
    for n in range(50):
        channel.publish("a", {"fill": MARKER}, id=f"e{n}", ttl_s=5)
        channel.subscribe("a", user="u", id=f"s{n}", until_s=5)
    channel.seal()
    components = list(tmp_path.rglob("c-*.arrow"))
    assert components
    for path in components:  # unreadable now: dropping it must not need its bytes
        with path.open("r+b") as file:  # in place: it is mapped
            file.write(b"\0" * path.stat().st_size)
    clock.advance(100)
    channel.publish("b", {}, id="later")
    channel.maintain()
    assert not any(path.exists() for path in components)
    assert [e.id for e in channel.find("b")] == ["later"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unseen_remembers_over_sealed_windows(
    layout: str, open_channel: Opener, clock: ManualClock
) -> None:
    channel = open_channel(layout, QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=3), memory_mb=4)
    for n in range(30):
        channel.publish((n % 8, n % 8), {"n": n}, id=f"e{n}", ttl_s=50)
    first = channel.subscribe("2", user="u", since_s=-1, until_s=2)
    assert first.past
    channel.seal()
    clock.advance(10)  # the subscription is long gone, its events are not
    channel.publish((7.0, 5.0), {}, ttl_s=50)
    channel.seal()
    channel.maintain()
    channel = open_channel(layout, QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=3), memory_mb=4)
    got = {e.id for e in first.past}
    every = {e.id for e in channel.find("2")}
    again = channel.subscribe("2", user="u", since_s=-100, unseen=True)
    assert {e.id for e in again.past} == every - got
    other = channel.subscribe("2", user="v", since_s=-100, unseen=True)
    assert {e.id for e in other.past} == every


@pytest.mark.parametrize("layout", ["dual", "two"])
def test_what_an_expired_subscription_told_is_known_while_the_event_is_valid(
    tmp_path: Path, layout: str
) -> None:
    """It stays known to `unseen` while its event is valid, and not a window longer."""
    clock = ManualClock(1_000)
    with tideline.open(tmp_path / "db", clock=clock) as db:
        channel = db.channel("c", layout=layout)
        channel.publish("a", 1, id="long", ttl_s=100)
        for n in range(50):
            channel.subscribe("a", user=f"u{n}", since_s=-1, until_s=4)
        for step, waited in enumerate((5, 5, 60)):
            clock.advance(waited)
            channel.publish("b", 1, ttl_s=1)
            again = channel.subscribe("a", user="u7", since_s=-90, until_s=1, unseen=True)
            other = channel.subscribe("a", user=f"new{step}", since_s=-90, until_s=1, unseen=True)
            assert again.past == []
            assert [event.id for event in other.past] == ["long"]
        clock.advance(300)
        channel.publish("b", 1, ttl_s=1)
        channel.publish("b", 1, ttl_s=1)
        stats = channel.stats()
        assert (stats.events, stats.subscriptions) == (2, 0)
        assert stats.windows <= 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_small_memory_is_not_sealed_record_by_record(tmp_path: Path, layout: str) -> None:
    """What is long-lived fills a small memory: sealing that frees it, sealing new records not.

    One at a time, so that memory is looked at often: hundreds of components came of it once.
    """
    choose = random.Random(7)
    clock = ManualClock(1_000_000)
    body = {"text": "x" * 800}
    with tideline.open(tmp_path, clock=clock, memory_mb=16) as db:
        channel = db.channel("c", layout=layout)
        for n in range(60_000):
            clock.advance(0.000_2)
            place = f"p{choose.randrange(2_000)}"
            if n % 4:
                channel.subscribe(place, user=f"u{n % 500}", since_s=-10, until_s=10)
            else:
                channel.publish(place, body, ttl_s=20)
        numbers = [int(file.stem.removeprefix("c-")) for file in tmp_path.rglob("c-*.arrow")]
        assert 4 < max(numbers) < 20
