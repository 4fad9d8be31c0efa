"""Faults on real files: killed processes, full disks, a folder in use.

Damaged bytes are test_damage.py. The processes are worker.py.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from killed import script
from worker import PLACES, body_of

import tideline
from tideline.errors import Unavailable

LAYOUTS = ["dual", "two"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GUARD_S = 300.0


worker = partial(script, Path(__file__).with_name("worker.py"))


class Acknowledged:
    """What a killed worker had printed."""

    def __init__(self) -> None:
        self.events: dict[str, str] = {}  # id -> place
        self.subs: dict[str, str] = {}
        self.cancelled: set[str] = set()

    def read(self, line: str) -> None:
        match line.split():
            case ["P", id, place]:
                self.events[id] = place
            case ["S", id, place]:
                self.subs[id] = place
            case ["c", id]:  # tried: it may or may not have happened
                self.subs.pop(id, None)
            case ["C", id]:
                self.cancelled.add(id)


def verify(folder: Path, layout: str, acknowledged: Acknowledged, turn: int) -> None:
    """Everything acknowledged is there, and whatever is there is whole, in every index."""
    with tideline.open(folder, memory_mb=4) as db:
        db.check()
        channel = db.channel("c", layout=layout)
        found = {place: {e.id: e for e in channel.find(place)} for place in PLACES}
        for id, place in acknowledged.events.items():
            assert id in found[place]
        for place in PLACES:
            for id, event in found[place].items():
                assert (event.place, event.body) == (place, body_of(id))
        stored = {s.id: s.place for s in channel.subscriptions()}
        assert acknowledged.subs.items() <= stored.items()
        assert not acknowledged.cancelled & stored.keys()
        stats = channel.stats()
        assert stats.events == sum(map(len, found.values()))
        assert stats.subscriptions == len(stored)
        for place in PLACES:
            past = channel.subscribe(place, user=f"check{turn}", id=f"c{turn}{place}", since=EPOCH)
            assert {e.id for e in past.past} == found[place].keys()
            stored[past.id] = place
        for id, place in stored.items():  # each had asked for all of its place
            assert {e.id for e in channel.resume(id).past} == found[place].keys()
        for place in PLACES:
            id = f"check-{turn}-{place}"
            told = channel.publish(place, body_of(id), id=id).subscriptions
            assert sorted(s.id for s in told) == sorted(i for i, p in stored.items() if p == place)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_killed_process_loses_nothing_acknowledged_and_leaves_nothing_half(
    layout: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    moments = random.Random(f"kill {layout}")
    acknowledged = Acknowledged()
    for turn in range(4):
        with worker("churn", folder, layout, turn) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(moments.randint(1, 200)):
                line = process.stdout.readline()
                assert line.endswith("\n"), "the worker ended by itself"
                acknowledged.read(line)
            for _ in range(moments.randint(0, 20_000)):
                pass  # a little further into whatever it is doing now
            process.kill()
            for line in process.stdout:
                if line.endswith("\n"):
                    acknowledged.read(line)
        verify(folder, layout, acknowledged, turn)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_process_killed_while_it_opens_leaves_the_folder_whole(
    layout: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    acknowledged = Acknowledged()
    with worker("churn", folder, layout, 0) as process:
        assert process.stdout is not None
        for _ in range(100):
            acknowledged.read(process.stdout.readline())
        process.kill()
        for line in process.stdout:  # it may have come further
            if line.endswith("\n"):
                acknowledged.read(line)
    for turn in (1, 2):
        # The lock is the first thing an opener writes; from there on it is recovering.
        (folder / "LOCK").unlink()
        with worker("churn", folder, layout, turn) as process:
            while not (folder / "LOCK").exists():
                assert process.poll() is None
            process.kill()
            assert process.stdout is not None
            for line in process.stdout:
                if line.endswith("\n"):
                    acknowledged.read(line)
    verify(folder, layout, acknowledged, 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_full_disk_acknowledges_nothing_stays_readable_and_goes_on(
    layout: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    with worker("full", folder, layout) as process:
        output, _ = process.communicate(timeout=GUARD_S)
        assert process.returncode == 0
    report = json.loads(output)
    assert report["last"] != "e999", "the disk was never full"
    assert report["readable"]
    assert report["apply_refused"]
    assert report["subscriptions"] == ["warm-2", "warm-5"]
    assert report["seal_refused"]
    assert report["still_readable"]
    assert report["retry_was_new"]
    assert report["goes_on"]
    with tideline.open(folder) as db:
        db.check()
        channel = db.channel("c", layout=layout)
        found = [e for place in PLACES for e in channel.find(place)]
        assert sorted(e.id for e in found) == sorted(report["acknowledged"])
        assert all(e.body == body_of(e.id) for e in found)
        assert sorted(s.id for s in channel.subscriptions()) == ["warm-2", "warm-5"]


def test_a_second_opener_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with worker("hold", folder) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(Unavailable, match=rf"\b{process.pid}\b"):
            tideline.open(folder)
        process.stdin.close()
        assert process.wait(GUARD_S) == 0
        process.stdin = None
    with tideline.open(folder) as db:
        assert db.channels() == ["c"]
        with pytest.raises(Unavailable, match="this process has the folder open already"):
            tideline.open(folder)
        assert db.channels() == ["c"]


def test_a_killed_holder_frees_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with worker("hold", folder) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        process.wait(GUARD_S)
    with tideline.open(folder) as db:
        assert db.channels() == ["c"]
