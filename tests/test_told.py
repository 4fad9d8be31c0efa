"""What a user was told is known for as long as the event is valid, whatever happens meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from contract import ids
from killed import copy_as_killed

import tideline
from tideline import Unavailable
from tideline.channel.channel import Channel
from tideline.kernels import layout as at
from tideline.testing import ManualClock

LAYOUTS = ["dual", "two"]
T0 = 1_700_000_000


def asked(channel: Channel, place: str, user: str) -> list[str]:
    """What a user is told who asks for all that they do not know."""
    return ids(channel.subscribe(place, user=user, since_s=-3600, unseen=True).past)


def filled(channel: Channel, clock: ManualClock, megabytes: float) -> None:
    """Events that live for two seconds, as large as that in all."""
    for n in range(int(megabytes * 128)):
        clock.advance(0.002)
        channel.publish(f"other{n % 50}", {"pad": "x" * 8_000}, ttl_s=2)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


@pytest.fixture
def db(tmp_path: Path, clock: ManualClock) -> Iterator[tideline.Database]:
    with tideline.open(tmp_path / "data", clock=clock, memory_mb=16) as db:
        yield db


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("end", ["expired", "cancelled", "prolonged"])
@pytest.mark.parametrize("sealed", [False, True])
def test_recovery_in_little_memory_forgets_nothing_that_was_told(
    layout: str, end: str, sealed: bool, tmp_path: Path, clock: ManualClock
) -> None:
    """The log is longer than memory: windows are dropped and sealed while it is replayed."""
    users = range(12)
    db = tideline.open(tmp_path / "data", clock=clock, memory_mb=16)
    channel = db.channel("c", layout=layout)
    for n in users:
        sub = channel.subscribe(f"k{n}", user=f"u{n}", id=f"s{n}", until_s=10, unseen=True)
        filled(channel, clock, 2)
        if end == "prolonged":
            channel.prolong(f"s{n}", until_s=1_000)
        channel.publish(f"k{n}", 1, id=f"e{n}", ttl_s=3_600)
        assert ids(sub.take()) == [f"e{n}"]
        if end == "cancelled":
            channel.cancel(f"s{n}")
        channel.publish(f"k{n}", 2, id=f"f{n}", ttl_s=3_600)
    if sealed:
        channel.seal()
    killed = tmp_path / "killed"
    copy_as_killed(channel, tmp_path / "data", killed)
    db.close()
    clock.advance(30)
    with tideline.open(killed, clock=clock, memory_mb=1) as db:
        channel = db.channel("c")
        for n in users:
            if end == "prolonged":
                assert ids(channel.resume(f"s{n}").past) == [f"e{n}", f"f{n}"]
            left = [f"f{n}"] if end == "cancelled" else []
            assert asked(channel, f"k{n}", f"u{n}") == left
            assert asked(channel, f"k{n}", f"u{n}") == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_marks_are_found_in_memory_and_in_components_and_go_with_their_events(
    layout: str, db: tideline.Database, clock: ManualClock
) -> None:
    channel = db.channel("c", layout=layout)
    told = channel.core.engine.sides[-1].told
    assert told is not None
    for turn in range(12):  # enough for merges
        for n in range(20):
            channel.publish("a", n, id=f"e{turn}-{n}", ttl_s=600)
            channel.subscribe("a", user=f"u{n}", since_s=-10, until_s=0.005)
            clock.advance(0.01)
        channel.seal()
        clock.advance(1)
    channel.maintain()
    assert 0 < len(told.readers) <= 6
    for n in range(20):
        got = asked(channel, "a", f"u{n}")
        assert f"e3-{n}" not in got  # it was there when the user asked
        assert sorted(got) == sorted(f"e11-{m}" for m in range(n + 1, 20))
    db.check()
    clock.advance(1_000)
    channel.publish("b", 1, ttl_s=1)
    channel.maintain()
    assert told.readers == []


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", [{}, {"unseen": True}], ids=["plain", "unseen"])
def test_what_a_failed_call_told_was_not_told(
    layout: str, first: dict[str, Any], db: tideline.Database
) -> None:
    """The disk is full for one call: its marks are taken back with it, in the table too."""
    channel = db.channel("c", layout=layout)
    channel.publish("a", 1, id="e1", ttl_s=600)
    assert asked(channel, "b", "u") == []  # the table is there

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    with mock.patch("os.writev", full), mock.patch("os.write", full), pytest.raises(Unavailable):
        channel.subscribe("a", user="u", since_s=-60, until_s=60, **first)
    sub = channel.subscribe("a", user="u", since_s=-60, until_s=60, unseen=True)
    assert ids(sub.past) == ["e1"]
    with mock.patch("os.writev", full), mock.patch("os.write", full), pytest.raises(Unavailable):
        channel.publish("a", 1, id="e2", ttl_s=600)
    assert sub.take() == []
    channel.publish("a", 1, id="e2", ttl_s=600)
    assert ids(sub.take()) == ["e2"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_conditions_decide_before_anybody_counts_as_told(
    layout: str, db: tideline.Database
) -> None:
    channel = db.channel("c", layout=layout)
    channel.subscribe("a", user="u", id="big", until_s=60, where={"n": {"$gt": 5}})
    unseen = channel.subscribe("a", user="u", id="any", until_s=60, unseen=True)
    told = channel.publish("a", {"n": 3}, id="small", ttl_s=600)
    assert [s.id for s in told.subscriptions] == ["any"]  # the first does not want it
    told = channel.publish("a", {"n": 9}, id="large", ttl_s=600)
    assert [s.id for s in told.subscriptions] == ["big"]  # the second yields
    assert ids(unseen.take()) == ["small"]
    assert ids(channel.resume("any").past) == ["small"]
    assert ids(channel.resume("big").past) == ["large"]
    assert asked(channel, "a", "u") == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_one_batch_an_unseen_subscription_knows_what_conditions_let_through_before_it(
    layout: str, db: tideline.Database, clock: ManualClock
) -> None:
    channel = db.channel("c", layout=layout)
    rows: list[dict[str, Any]] = []

    def row(**fields: Any) -> None:
        empty: dict[str, Any] = dict.fromkeys(
            ("id", "place", "user", "body", "where", "since", "until", "unseen")
        )
        rows.append(empty | {"at": clock.now(), "place": "a"} | fields)

    row(op="publish", id="e1", body='{"n":1}')
    row(op="publish", id="e2", body='{"n":2}')
    window = {"since": clock.now() - 60_000_000, "until": clock.now() + 60_000_000}
    row(op="subscribe", id="s1", user="u", where='{"n":1}', **window)
    row(op="subscribe", id="s2", user="u", unseen=True, **window)
    row(op="subscribe", id="s3", user="u", unseen=True, **window)
    row(op="publish", id="e3", body='{"n":1}')
    row(op="publish", id="e4", body='{"n":2}')
    table = pa.Table.from_pylist(rows)
    for name in ("at", "since", "until"):
        at_column = table.schema.get_field_index(name)
        cast = table[name].cast(pa.timestamp("us", "UTC"))
        table = table.set_column(at_column, name, cast)
    answers = channel.apply(table).answers.to_pylist()
    assert [(a["subscription"], a["event"]) for a in answers] == [
        ("s1", "e1"), ("s2", "e2"), ("s1", "e3"), ("s2", "e4"),
    ]  # fmt: skip
    assert channel.stats().answers == 4


def test_a_plain_channel_makes_no_table_of_marks(db: tideline.Database) -> None:
    channel = db.channel("c")
    channel.publish("a", 1, ttl_s=600)
    channel.subscribe("a", user="u", since_s=-60)
    state = channel.core.engine.sides[-1].memory.state
    assert state[at.E_TOLD_CAP] == 0
    assert asked(channel, "a", "u") == []
    assert state[at.E_TOLD_CAP] > 0


def test_the_table_grows_with_the_marks_and_shrinks_again(
    db: tideline.Database, clock: ManualClock
) -> None:
    channel = db.channel("c")
    memory = channel.core.engine.sides[-1].memory
    caps = []
    for turn in range(6):
        many = 3_000 if turn < 3 else 10
        for n in range(many // 10):
            channel.publish("a", 1, id=f"{turn}-{n}", ttl_s=3)
        for n in range(10):
            assert len(asked(channel, "a", f"{turn}u{n}")) == many // 10
            assert asked(channel, "a", f"{turn}u{n}") == []
        caps.append(int(memory.state[at.E_TOLD_CAP]))
        clock.advance(100)
        channel.publish("b", 1, ttl_s=1)
    assert max(caps) >= 8_192
    memory.grow_tables(clock.now(), marks=10**5)
    memory.index_told()
    assert int(memory.state[at.E_TOLD_CAP]) == 1_024


def test_prolonging_again_and_again_leaves_nothing_behind(
    db: tideline.Database, clock: ManualClock
) -> None:
    """Every prolonging is one record; those before go with the windows they lie in."""
    channel = db.channel("c")
    channel.subscribe("a", user="u", id="s", until_s=30, unseen=True)
    sizes = []
    for turn in range(20):
        for _ in range(200):
            clock.advance(0.2)
            channel.prolong("s", until_s=30 + np.random.default_rng(turn).uniform())
        channel.publish("a", turn, id=f"e{turn}", ttl_s=5)
        channel.maintain()
        stats = channel.stats()
        sizes.append(stats.bytes_memory)
        assert stats.subscriptions == 1
        assert f"e{turn}" in ids(channel.resume("s").past)
    assert max(sizes[10:]) <= max(sizes[:10])
    assert channel.core.engine.lineage.to_json(clock.now()) == []


@pytest.mark.parametrize("channels", [1, 4])
def test_prolong_comes_back_with_little_memory(
    channels: int, tmp_path: Path, clock: ManualClock
) -> None:
    """It began again for ever when memory ran out between its two rows; now it is one."""
    rng = np.random.default_rng(7)
    with tideline.open(tmp_path / "data", clock=clock, memory_mb=16) as db:
        every = [db.channel(f"c{n}", layout=LAYOUTS[n % 2]) for n in range(channels)]
        subs: list[tuple[Channel, str]] = []
        for n in range(2_500):
            clock.advance(0.003)
            channel = every[n % channels]
            kind = rng.random()
            if kind < 0.6:
                pad = "x" * int(rng.integers(4_000))
                life = float(rng.choice([2, 5, 20, 60, 300, 900]))
                channel.publish(f"k{rng.integers(300)}", pad, ttl_s=life)
            elif kind < 0.8 or not subs:
                life = float(rng.choice([2, 10, 40, 200]))
                channel.subscribe(
                    f"k{rng.integers(300)}", user=f"u{rng.integers(50)}", id=f"s{n}", since_s=-20,
                    until_s=life, unseen=bool(rng.random() < 0.5),
                )  # fmt: skip
                subs.append((channel, f"s{n}"))
            else:
                channel, name = subs[int(rng.integers(len(subs)))]
                try:
                    info = channel.prolong(name, until_s=float(rng.uniform(5, 300)))
                except tideline.NotFound:
                    continue
                assert channel.subscription(name).until == info.until


def test_the_answers_given_are_counted_over_a_kill(tmp_path: Path, clock: ManualClock) -> None:
    db = tideline.open(tmp_path / "data", clock=clock)
    channel = db.channel("c")
    channel.subscribe("a", user="u", until_s=60)
    channel.subscribe("a", user="v", until_s=60, where={"n": 1})
    for n in range(10):
        channel.publish("a", {"n": n % 2}, ttl_s=600)
    assert channel.stats().answers == 15
    copy_as_killed(channel, tmp_path / "data", tmp_path / "killed")
    db.close()
    with tideline.open(tmp_path / "killed", clock=clock) as db:
        assert db.channel("c").stats().answers == 15


def test_switching_the_journal_off_changes_nothing_of_what_is_told(db: tideline.Database) -> None:
    """The answers of one call were kept for its note, and told instead of those of the next."""
    channel = db.channel("c", journal_s=60)
    channel.publish("a", 1, ttl_s=600)
    a = channel.subscribe("a", user="ann", id="sa", until_s=60)
    b = channel.subscribe("b", user="bob", id="sb", until_s=60)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    with mock.patch("os.writev", full), mock.patch("os.write", full), pytest.raises(Unavailable):
        channel.publish("a", 1, ttl_s=600)
    db.channel("c", journal_s=0)
    told = channel.publish("b", 2, id="e", ttl_s=600)
    assert [s.id for s in told.subscriptions] == ["sb"]
    assert (a.take(), ids(b.take())) == ([], ["e"])
