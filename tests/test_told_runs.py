"""Marks of batches: words that runs share, in memory, in the log and after a kill.

The model is a set of (user, event): who was told what, by the answers that the calls returned.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from killed import copy_as_killed

import tideline
from tideline import Unavailable
from tideline.channel.channel import Channel
from tideline.kernels import layout as at
from tideline.testing import ManualClock

LAYOUTS = ["dual", "two"]
T0 = 1_700_000_000
HOUR_US = 3_600_000_000


def batch(rows: list[dict[str, Any]]) -> pa.Table:
    stamp = pa.timestamp("us", "UTC")
    schema = pa.schema(
        [("op", pa.string()), ("id", pa.string()), ("place", pa.string()), ("user", pa.string()),
         ("at", stamp), ("since", stamp), ("until", stamp), ("unseen", pa.bool_()),
         ("body", pa.string())]
    )  # fmt: skip
    return pa.Table.from_pylist([{"body": "1"} | row for row in rows], schema=schema)


class Told:
    """A channel, and who was told what in it."""

    def __init__(self, channel: Channel, clock: ManualClock, seed: int) -> None:
        self.channel = channel
        self.clock = clock
        self.rng = np.random.default_rng(seed)
        self.pairs: set[tuple[str, str]] = set()
        self.live: dict[str, tuple[str, int]] = {}  # event -> place, until
        self.number = 0

    def rows(self, count: int, places: int, users: int, lives_s: list[float]) -> pa.Table:
        rng, now = self.rng, self.clock.now()
        rows = []
        for _ in range(count):
            self.number += 1
            place = f"k{int(rng.integers(places) * rng.random())}"
            until = now + int(rng.choice(lives_s) * 1e6)
            common = {"at": now, "place": place, "until": until}
            if rng.random() < 0.3:
                rows.append(common | {"op": "publish", "id": f"e{self.number}"})
            else:
                user = f"u{rng.integers(users)}"
                rows.append(
                    common | {"op": "subscribe", "id": f"s{self.number}", "user": user,
                              "since": now - HOUR_US, "unseen": bool(rng.random() < 0.02)}
                )  # fmt: skip
        return batch(rows)

    def apply(self, table: pa.Table) -> None:
        applied = self.channel.apply(table)
        assert applied.rejected.num_rows == 0
        for row in table.to_pylist():
            if row["op"] == "publish":
                until = int(row["until"].timestamp() * 1e6 + 0.5)
                self.live[row["id"]] = (row["place"], until)
        columns = (applied.answers[name].to_pylist() for name in ("user", "event"))
        self.pairs.update(zip(*columns, strict=True))

    def check(self, users: int, places: int) -> None:
        """Whoever asks gets all that is valid and that they were not told, and nothing else."""
        now = self.clock.now()
        for user in range(0, users, 5):
            for place in range(places):
                sub = self.channel.subscribe(
                    f"k{place}", user=f"u{user}", since_s=-3600, until_s=0.000_001, unseen=True
                )
                found = {event.id for event in sub.past}
                wanted = {
                    id
                    for id, (where, until) in self.live.items()
                    if where == f"k{place}" and until > now and (f"u{user}", id) not in self.pairs
                }
                assert found == wanted
                self.pairs.update((f"u{user}", id) for id in found)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("memory_mb", "users"), [(1, 40), pytest.param(4, 200, marks=pytest.mark.long), (64, 40)]
)
def test_batches_leave_marks_that_survive_kills_and_seals(
    layout: str, memory_mb: int, users: int, tmp_path: Path
) -> None:
    clock, places = ManualClock(T0), 12
    lives_s = [0.5, 3, 20, 300, 5000]
    folder = tmp_path / "0"
    db = tideline.open(folder, clock=clock, memory_mb=memory_mb)
    told = Told(db.channel("c", layout=layout), clock, memory_mb)
    for turn in range(8):
        for _ in range(2):
            told.apply(told.rows(250, places, users, lives_s))
            clock.advance(0.3)
        if turn % 3 == 1:
            told.channel.seal()
        if turn % 2:
            killed = tmp_path / str(turn + 1)
            copy_as_killed(told.channel, folder, killed)
            db.close()
            folder = killed
            db = tideline.open(folder, clock=clock, memory_mb=memory_mb)
            told.channel = db.channel("c")
        if turn in (3, 6):
            told.check(users, places)
    told.check(users, places)
    told.check(users, places)
    db.check()
    db.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_that_fails_told_nobody_though_it_made_the_table(
    layout: str, tmp_path: Path
) -> None:
    """Its first rows leave marks without a table, its last one asks for it; then the disk is full.

    What its users had been told before is still known.
    """
    clock = ManualClock(T0)
    with tideline.open(tmp_path, clock=clock, memory_mb=16) as db:
        told = Told(db.channel("c", layout=layout), clock, 5)
        told.apply(told.rows(300, 3, 20, [300.0]))
        plain = told.rows(300, 3, 20, [300.0]).to_pylist()
        for row in plain:
            row["unseen"] = False
        now = clock.now()
        asks = {
            "op": "subscribe", "id": "asks", "user": "u1", "place": "k0", "unseen": True,
            "at": now, "since": now - HOUR_US, "until": now + 9,
        }  # fmt: skip

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "full")

        state = told.channel.core.engine.sides[-1].memory.state
        state[at.E_TOLD_CAP] = 0
        writes = mock.patch("os.writev", full), mock.patch("os.write", full)
        with writes[0], writes[1], pytest.raises(Unavailable):
            told.channel.apply(batch([*plain, asks]))
        told.check(20, 3)


def test_events_of_all_lengths_of_life_are_told_in_little_memory(tmp_path: Path) -> None:
    """Every length has a window of marks of its own, and a window takes memory: there are fewer
    then, and wider ones."""
    clock = ManualClock(T0)
    with tideline.open(tmp_path, clock=clock, memory_mb=1) as db:
        channel = db.channel("c")
        for turn in range(3):
            for power in range(45):
                life_s = 2.0**power / 1e3
                channel.publish("a", {"pad": "x" * 3000}, id=f"{turn}-{power}", ttl_s=life_s)
            sub = channel.subscribe("a", user=f"u{turn}", since_s=-60)
            assert len(sub.past) >= 44
            again = channel.subscribe("a", user=f"u{turn}", since_s=-60, unseen=True)
            assert again.past == []
        db.check()


def test_the_table_of_marks_keeps_within_the_memory(tmp_path: Path) -> None:
    """More marks than a table may hold: who asks first has most of them sealed."""
    clock = ManualClock(T0)
    with tideline.open(tmp_path, clock=clock, memory_mb=8) as db:
        channel = db.channel("c")
        now = clock.now()
        common = {"at": now, "place": "a", "until": now + HOUR_US}
        events = [common | {"op": "publish", "id": f"e{n}"} for n in range(300)]
        channel.apply(batch(events))
        ask = common | {"op": "subscribe", "since": now - HOUR_US}
        asks = [ask | {"id": f"s{n}", "user": f"u{n}"} for n in range(1_000)]
        assert channel.apply(batch(asks)).answers.num_rows == 300_000
        memory = channel.core.engine.sides[-1].memory
        assert sum(window.told for window in memory.windows()) == 300_000
        assert memory.segments_used < 20  # a mark by itself would take 0.1 MB for 13,000
        before = channel.stats().bytes_memory
        assert channel.subscribe("a", user="u7", since_s=-60, unseen=True).past == []
        assert len(channel.subscribe("a", user="new", since_s=-60, unseen=True).past) == 300
        assert channel.stats().bytes_memory < before + (8 << 20)
        assert len(channel.core.engine.sides[-1].told.readers) > 0


def test_a_batch_writes_every_user_once(tmp_path: Path) -> None:
    """A hundred events for a thousand users: a mark takes less than a byte in the log."""
    clock = ManualClock(T0)
    with tideline.open(tmp_path, clock=clock) as db:
        channel = db.channel("c")
        now = clock.now()
        common = {"at": now, "place": "a", "until": now + HOUR_US}
        ask = common | {"op": "subscribe", "since": now}
        channel.apply(batch([ask | {"id": f"s{n}", "user": f"u{n}"} for n in range(1_000)]))
        before = channel.stats().bytes_log
        events = [common | {"op": "publish", "id": f"e{n}"} for n in range(100)]
        assert channel.apply(batch(events)).answers.num_rows == 100_000
        assert channel.stats().bytes_log - before < 100_000
    with tideline.open(tmp_path, clock=clock) as db:
        channel = db.channel("c")
        marks = [w for w in channel.core.engine.sides[-1].memory.windows() if w.told]
        assert sum(w.told for w in marks) == 100_000
        assert sum(w.segments for w in marks) == 1  # a word each would take four
        assert channel.subscribe("a", user="u999", since_s=-60, unseen=True).past == []
        assert len(channel.subscribe("a", user="other", since_s=-60, unseen=True).past) == 100


@pytest.mark.parametrize("layout", LAYOUTS)
def test_windows_that_expire_while_a_log_is_replayed_make_room(layout: str, tmp_path: Path) -> None:
    """They were neither dropped nor sealed, and the database could not be opened."""
    clock = ManualClock(T0)
    db = tideline.open(tmp_path / "data", clock=clock, memory_mb=64)
    channel = db.channel("c", layout=layout)
    for power in range(30):
        channel.publish("a", {"n": power}, ttl_s=2.0**power)
    clock.advance(2.0**31)
    channel.publish("a", {"n": 0}, id="last", ttl_s=60)
    copy_as_killed(channel, tmp_path / "data", tmp_path / "killed")
    db.close()
    with tideline.open(tmp_path / "killed", clock=clock, memory_mb=1) as db:
        found = db.channel("c").find("a", since_s=-1000, limit=None)
        assert [event.id for event in found] == ["last"]
