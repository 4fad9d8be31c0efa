"""Cutting a log after a position: exact, durable, and a kill anywhere leaves a log that opens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.errors import Corruption, InvalidRequest, Unavailable
from tideline.lsm.log import Log
from tideline.lsm.nulllog import NullLog
from tideline.lsm.position import BEFORE_ALL, Position
from tideline.lsm.store import Store

SOURCE = Path(__file__).parents[2] / "src"


def filled(folder: Path, count: int = 12, **options: Any) -> tuple[Log, list[Position]]:
    """A log of several segments, and where each of its frames begins; the end comes last."""
    folder.mkdir(exist_ok=True)
    log = Log.open(folder, segment_bytes=150, **options)
    places = [log.append(b"%03d" % n * 15) for n in range(count)]
    return log, [*places, log.end]


def payloads(folder: Path, **options: Any) -> list[int]:
    log = Log.open(folder, segment_bytes=150, **options)
    try:
        return [int(bytes(payload)[:3]) for _, payload in log.replay()]
    finally:
        log.close()


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_cut_leaves_what_was_before_it_and_the_log_goes_on(
    durability: str, tmp_path: Path
) -> None:
    for n in range(13):
        folder = tmp_path / str(n)
        log, places = filled(folder, durability=durability)
        log.truncate(places[n])
        log.truncate(places[n])  # nothing more to cut
        assert n == 12 or log.committed == log.end
        found = [int(bytes(payload)[:3]) for _, payload in log.read(log.start, log.end)]
        assert found == list(range(n))
        for more in range(100, 105):
            log.sync(log.append(b"%03d" % more * 15))
        log.verify()
        log.close()
        assert payloads(folder) == [*range(n), *range(100, 105)]


def test_the_end_of_a_segment_and_the_begin_of_the_next_are_both_positions(tmp_path: Path) -> None:
    log, places = filled(tmp_path / "a")
    before = next(p for p in places if p.segment == 2)
    after = Position(1, os.path.getsize(tmp_path / "a" / "log-000001.log"))
    kept = places.index(before)
    log.truncate(before)
    log.truncate(after)
    log.close()
    assert payloads(tmp_path / "a") == list(range(kept))


def test_only_frames_that_no_component_has_are_cut(tmp_path: Path) -> None:
    log, places = filled(tmp_path / "a")
    log.protect(3)
    for wrong in (*(p for p in places if p.segment < 3), BEFORE_ALL):
        with pytest.raises(InvalidRequest, match="in components"):
            log.truncate(wrong)
    inside = places[-2]
    for wrong in (inside._replace(offset=inside.offset + 8), Position(4, 0), Position(4, 1 << 30)):
        with pytest.raises(InvalidRequest, match="between two frames"):
            log.truncate(wrong)
    with pytest.raises(InvalidRequest, match="after the end"):
        log.truncate(Position(99, 32))
    log.verify()
    log.close()
    assert payloads(tmp_path / "a") == list(range(12))
    with pytest.raises(InvalidRequest):
        NullLog().truncate(Position(1, 7))


def test_a_damaged_frame_before_the_cut_is_corruption(tmp_path: Path) -> None:
    log, places = filled(tmp_path / "a", count=3)
    path = tmp_path / "a" / "log-000001.log"
    data = bytearray(path.read_bytes())
    data[places[0].offset + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corruption):
        log.truncate(places[1])
    log.close()


def test_a_cut_that_the_disk_refuses_leaves_a_log_that_opens(tmp_path: Path) -> None:
    log, places = filled(tmp_path / "a")
    blocked = tmp_path / "a" / "log-000003.log"
    blocked.unlink()  # somebody else did: it cannot be removed again
    with pytest.raises(Unavailable, match="could not be cut"):
        log.truncate(places[1])
    with pytest.raises(Unavailable, match="reopen"):
        log.append(b"x")
    log.close()
    found = payloads(tmp_path / "a")
    assert found == list(range(len(found)))
    assert len(found) >= 1


# Kills itself at the n-th line of the log's own code inside `truncate`.
KILLED = """
import os, signal, sys
from pathlib import Path
from tideline.lsm.log import Log
from tideline.lsm.position import Position

log = Log.open(Path(sys.argv[1]), segment_bytes=150, durability=sys.argv[2])
list(log.replay())
left = int(sys.argv[3])

def trace(frame, event, arg):
    global left
    if "tideline" in frame.f_code.co_filename:
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return trace

sys.settrace(trace)
log.truncate(Position.parse(sys.argv[4]))
sys.settrace(None)
print("done", left)
"""


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_kill_in_the_middle_leaves_a_log_that_ends_at_a_frame(
    durability: str, tmp_path: Path
) -> None:
    log, places = filled(tmp_path / "a", durability=durability)
    log.close()
    ends = set()
    step = 0
    while True:
        step += 17
        folder = tmp_path / str(step)
        shutil.copytree(tmp_path / "a", folder)
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(folder), durability, str(step), str(places[2])],
            env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        found = payloads(folder, durability=durability)
        assert found == list(range(len(found)))
        assert len(found) >= 2
        ends.add(len(found))
        if done.returncode == 0:
            assert found == [0, 1]
            break
        assert done.returncode == -9, done.stderr
    assert len(ends) > 2, "it was never killed in between"


def test_a_torn_tail_goes_with_the_cut(tmp_path: Path) -> None:
    log, places = filled(tmp_path / "a", count=4)
    log.close()
    last = max((tmp_path / "a").glob("log-*.log"))
    with last.open("ab") as file:
        file.write(b"TLfr\x10\x00")  # a header that a kill cut short
    log = Log.open(tmp_path / "a", segment_bytes=150)
    assert len(list(log.replay())) == 4
    log.truncate(places[3])
    log.close()
    assert payloads(tmp_path / "a") == [0, 1, 2]


def test_a_dataset_is_cut_though_its_manifest_knew_a_later_end(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id")
        cars.put({"id": 1})
        kept = cars._engine.store.log.end
        cars.put({"id": 2})
        cars.put({"id": 1, "n": 2})
    folder = tmp_path / "d" / "collections" / "0001"
    store = Store(folder, durability="os", logged=True, segment_bytes=64 << 20)
    assert len(list(store.log.replay())) == 3
    store.truncate(kept)
    store.close()
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars")
        assert cars.find() == [{"id": 1}]
        cars.put({"id": 3})
        assert cars.count() == 2
        db.check()
