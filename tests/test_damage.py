"""Damaged files: every flipped byte, cut or missing file is reported and never served.

A small database is made once; each case damages a copy of it. The lock file is no data and
is left out.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline import QuadTree, Topics
from tideline.errors import Corruption
from tideline.testing import ManualClock

LAYOUTS = ["dual", "two", "poll"]
QUAD = QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=3)
WHOLE_BYTES = 1024  # of a file up to this size every byte is flipped, of a larger one some
SAMPLES = 300
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"


def fill(db: Any) -> None:
    """Sealed components, a log beside them, and a channel that was never sealed."""
    topics = db.channel("topics", space=Topics())
    quad = db.channel("quad", space=QUAD, layout="two")
    for n in range(20):
        topics.publish(f"a/{n % 3}", {"n": n}, id=f"e{n}", ttl_s=100 + n)
        quad.publish((n % 8, n % 5), {"n": n}, id=f"e{n}")
        if n % 4 == 0:
            topics.subscribe("a", user="u", id=f"s{n}", since_s=-5, where={"n": {"$gt": 3}})
            quad.subscribe("1", user="u", id=f"s{n}", until_s=500, unseen=True)
        if n == 15:
            topics.seal()
            quad.seal()
    topics.cancel("s4")
    db.channel("fresh").publish("a", {"n": 1}, id="e")


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "data"
    with tideline.open(folder, clock=ManualClock(1_000)) as db:
        fill(db)
    return folder


def damage_found(folder: Path) -> Corruption | None:
    """The corruption that opening or checking reports."""
    try:
        with tideline.open(folder, clock=ManualClock(1_000)) as db:
            db.check()
    except Corruption as error:
        return error
    return None


def files(folder: Path, pattern: str) -> list[Path]:
    """Relative paths, so that they name the same file in every copy."""
    return sorted(p.relative_to(folder) for p in folder.rglob(pattern) if p.is_file())


def positions(size_bytes: int) -> list[int]:
    """Which bytes of a file are flipped; in the long run every one of a small file."""
    samples, ends = (SAMPLES, 64) if LONG else (SAMPLES // 4, 24)
    if size_bytes <= (WHOLE_BYTES if LONG else samples + 2 * ends):
        return list(range(size_bytes))
    chosen = set(range(ends)) | set(range(size_bytes - ends, size_bytes))
    chosen |= set(random.Random(size_bytes).sample(range(size_bytes), samples))
    return sorted(chosen)


def test_an_undamaged_copy_is_found_whole(copies: Any) -> None:
    folder = copies()
    assert files(folder, "c-*.arrow")
    assert files(folder, "log-*.log")
    assert len(files(folder, "MANIFEST")) == 4
    assert damage_found(folder) is None
    assert damage_found(folder) is None  # the first opening left it whole


@pytest.mark.parametrize("pattern", ["MANIFEST", "log-*.log", "c-*.arrow"])
def test_every_flipped_byte_is_found_and_its_file_named(pattern: str, copies: Any) -> None:
    missed = []
    for file in files(copies(), pattern):
        good = (copies() / file).read_bytes()
        for position in positions(len(good)):
            bad = bytearray(good)
            bad[position] ^= 1 << (position * 5 + 3) % 8
            folder = copies()
            (folder / file).write_bytes(bad)
            error = damage_found(folder)
            if error is None or Path(error.file).name != file.name:
                missed.append((str(file), position, str(error)))
    assert missed == []


@pytest.mark.parametrize("pattern", ["MANIFEST", "c-*.arrow"])
@pytest.mark.parametrize("change", ["cut by one", "cut in half", "emptied", "grown by one"])
def test_a_file_of_another_length_is_found_and_named(
    pattern: str, change: str, copies: Any
) -> None:
    for file in files(copies(), pattern):
        folder = copies()
        good = (folder / file).read_bytes()
        (folder / file).write_bytes(
            {
                "cut by one": good[:-1],
                "cut in half": good[: len(good) // 2],
                "emptied": b"",
                "grown by one": good + b"\0",
            }[change]
        )
        error = damage_found(folder)
        assert error is not None
        assert Path(error.file).name == file.name


@pytest.mark.parametrize("pattern", ["channels/*/MANIFEST", "log-*.log", "c-*.arrow"])
def test_a_missing_file_is_found_and_named(pattern: str, copies: Any) -> None:
    for file in files(copies(), pattern):
        folder = copies()
        (folder / file).unlink()
        error = damage_found(folder)
        assert error is not None, file
        assert Path(error.file).name == file.name


def test_damage_is_not_repaired_by_looking_at_it(copies: Any) -> None:
    for pattern in ("MANIFEST", "log-*.log", "c-*.arrow"):
        [file, *_] = files(copies(), pattern)
        folder = copies()
        bad = bytearray((folder / file).read_bytes())
        bad[len(bad) // 2] ^= 0x10
        (folder / file).write_bytes(bad)
        for _ in range(2):
            error = damage_found(folder)
            assert error is not None
            assert Path(error.file).name == file.name
        assert (folder / file).read_bytes() == bytes(bad)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_log_cut_by_a_crash_gives_back_every_whole_record(
    layout: str, tmp_path: Path, clock: ManualClock
) -> None:
    """The end of a log may be torn by a crash; what lies before it was acknowledged."""
    folder, scratch = tmp_path / "data", tmp_path / "copy"
    sizes = []
    with tideline.open(folder, clock=clock) as db:
        channel = db.channel("c", layout=layout)
        [log] = files(folder, "log-*.log")
        for n in range(6):
            channel.publish("a", {"n": n}, id=f"e{n}")
            sizes.append((folder / log).stat().st_size)
        shutil.copytree(folder, tmp_path / "crashed")
    for cut in sorted({*range(sizes[0], sizes[-1], 5), *sizes, *(s - 1 for s in sizes[1:])}):
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(tmp_path / "crashed", scratch)
        with (scratch / log).open("r+b") as file:
            file.truncate(cut)
        expected = [f"e{n}" for n, size in enumerate(sizes) if size <= cut]
        for again in (False, True):
            with tideline.open(scratch, clock=clock) as db:
                db.check()
                channel = db.channel("c", layout=layout)
                assert [e.id for e in channel.find("a")] == expected[::-1]
                past = channel.subscribe("a", user=f"u{again}", since_s=-1).past
                assert [e.id for e in past] == expected
                channel.publish("a", {}, id=f"later {again}")
                expected.append(f"later {again}")


@pytest.mark.parametrize("change", ["emptied", "cut in half", "cut by one", "zeros at its end"])
def test_a_log_that_was_closed_well_and_is_shorter_now_was_damaged(
    change: str, copies: Any
) -> None:
    """No kill explains it: the manifest says where the log had reached."""
    for name in files(copies(), "log-*.log"):
        folder = copies()
        log = folder / name
        size = log.stat().st_size
        left = {"emptied": 0, "cut in half": size // 2, "cut by one": size - 1}.get(change)
        data = log.read_bytes()
        if left is None:
            log.write_bytes(data[: size // 2] + bytes(size - size // 2))
        else:
            log.write_bytes(data[:left])
        found = damage_found(folder)
        assert found is not None, name
        assert found.file == str(log)


def test_files_no_manifest_names_are_cleared_away(copies: Any) -> None:
    """What a kill left of a component that was never named: not served, not kept."""
    folder = copies()
    [component, *_] = files(folder, "c-*.arrow")
    stray = folder / component.parent / "c-999999.arrow"
    shutil.copy(folder / component, stray)
    half = folder / component.parent / "c-999998.arrow.tmp"
    half.write_bytes(b"half")
    with tideline.open(folder, clock=ManualClock(1_000)) as db:
        db.check()
        found = db.channel("topics", space=Topics()).find("a")
        assert len(found) == 20
    assert not stray.exists()
    assert not half.exists()


@pytest.mark.parametrize(
    "name", ["MANIFEST", "channels/0001/MANIFEST", "channels/0001/log-000001.log"]
)
def test_check_notices_a_file_that_vanished_while_open(name: str, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        db.channel("c").publish("a", {})
        (tmp_path / "data" / name).unlink()
        with pytest.raises(Corruption) as caught:
            db.check()
    assert caught.value.file.endswith(name)
