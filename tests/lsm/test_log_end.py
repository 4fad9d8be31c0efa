"""A log that was shortened is found, as far as anything was known of its end."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from zlib import crc32

import pytest

from tideline.errors import Corruption
from tideline.lsm import endmark
from tideline.lsm.frames import CRC, FRAME, HEADER_BYTES
from tideline.lsm.log import Log
from tideline.lsm.position import Position

SOURCE = Path(__file__).parents[2] / "src"

# Appends frames, says where each ended, and is killed without a word of farewell.
WRITE = """
import os, signal, sys
from pathlib import Path
from tideline.lsm.log import Log

log = Log.open(Path(sys.argv[1]), durability=sys.argv[2], segment_bytes=int(sys.argv[3]))
list(log.replay())
for number in range(int(sys.argv[4])):
    position = log.append(b"%03d" % number * 40)
    log.sync(position)
    print(log.mark, log.end.offset, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

# Kills, again and again, who writes one note after the other; what is left is a whole one.
KILLS = """
import itertools, os, random, signal, sys, time
from pathlib import Path
from tideline.lsm.endmark import EndMark

mark = EndMark(Path(sys.argv[1]), disk=True)
last = 0
for _ in range(40):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        for number in itertools.count(last + 1):
            mark.write(number, number * 7)
            if number == last + 1:
                os.write(writing, b"x")
    os.read(reading, 1)
    time.sleep(random.random() / 500)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    segment, offset = mark.read()
    assert segment > last and offset == segment * 7, (segment, offset, last)
    last = segment
print(last)
"""


def killed(folder: Path, durability: str, segment_bytes: int, count: int) -> list[tuple[int, int]]:
    """A log whose writer was killed after so many appends; where each of them ended."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(folder), durability, str(segment_bytes), str(count)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -9, done.stderr
    return [(int(a), int(b)) for a, b in (line.split() for line in done.stdout.splitlines())]


def read(folder: Path, **options: object) -> int:
    """How many frames there are."""
    log = Log.open(folder, **options)  # type: ignore[arg-type]
    try:
        return len(list(log.replay()))
    finally:
        log.close()


def cut(folder: Path, end: tuple[int, int], last: int) -> None:
    """Shorten a log to a frame's end: the rest is gone without a trace."""
    for number in range(end[0] + 1, last + 1):
        (folder / f"log-{number:06d}.log").unlink()
    os.truncate(folder / f"log-{end[0]:06d}.log", end[1])


@pytest.mark.parametrize("segment_bytes", [1000, 1 << 20])
def test_every_frame_that_was_acknowledged_to_disk_is_missed(
    tmp_path: Path, segment_bytes: int
) -> None:
    for count in (1, 2, 30):
        ends = killed(tmp_path / f"{count}", "disk", segment_bytes, count)
        assert len(ends) == count
    ends = [(1, 32), *ends]
    content = {path.name: path.read_bytes() for path in (tmp_path / "30").iterdir()}
    for number, end in enumerate(ends):
        folder = tmp_path / f"cut{number}"
        folder.mkdir()
        for name, data in content.items():
            (folder / name).write_bytes(data)
        if number == len(ends) - 1:
            assert read(folder) == 30
            continue
        cut(folder, end, ends[-1][0])
        with pytest.raises(Corruption, match="log"):
            read(folder)


def test_with_durability_os_a_cut_of_more_than_4_kib_is_found(tmp_path: Path) -> None:
    ends = killed(tmp_path / "log", "os", 1 << 20, 100)
    content = {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()}
    last = ends[-1][1]
    for number, end in enumerate(ends):
        folder = tmp_path / f"cut{number}"
        folder.mkdir()
        for name, data in content.items():
            (folder / name).write_bytes(data)
        cut(folder, end, 1)
        if last - end[1] > 4096 + 136:
            with pytest.raises(Corruption, match="cut short"):
                read(folder)
        elif end == ends[-1]:
            assert read(folder) == 100


def test_with_durability_os_what_follows_the_note_may_be_cut_anywhere_but_not_changed(
    tmp_path: Path,
) -> None:
    """docs/internals/log.md, "What it cannot see": as precise as it is said there."""
    ends = killed(tmp_path / "log", "os", 1 << 20, 100)
    content = {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()}
    noted = int(content["LOG_END"].split()[4])
    last = ends[-1][1]
    assert 0 < last - noted <= 4096 + 136
    whole = content["log-000001.log"]

    def damaged(name: str, data: bytes) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "LOG_END").write_bytes(content["LOG_END"])
        (folder / "log-000001.log").write_bytes(data)
        return folder

    for size in (noted - 1, noted, noted + 1, noted + 70, last - 1, last):
        before = sum(end <= size for _, end in ends)
        zeros = whole[:size] + bytes(last - size)
        if size < noted:
            for n, data in enumerate((whole[:size], zeros)):
                with pytest.raises(Corruption):
                    read(damaged(f"{size}-{n}", data))
        else:  # at a frame's edge or inside of one: what is left is what was there before
            assert read(damaged(f"{size}-cut", whole[:size])) == before
    assert read(damaged("zeros", whole[:noted] + bytes(last - noted))) == sum(
        end <= noted for _, end in ends
    )
    for at in (noted, noted + 40, last - 1):
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        with pytest.raises(Corruption):
            read(damaged(f"{at}-flipped", flipped))


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_closed_segment_cut_at_a_frames_end_and_a_missing_last_one_are_found(
    tmp_path: Path, durability: str
) -> None:
    ends = killed(tmp_path / "log", durability, 1000, 30)
    last = ends[-1][0]
    assert last > 2
    (tmp_path / "log" / "LOG_END").rename(tmp_path / "note")
    for segment, offset in ends:
        path = tmp_path / "log" / f"log-{segment:06d}.log"
        good = path.read_bytes()
        if segment == last or offset == len(good):
            continue
        os.truncate(path, offset)
        with pytest.raises(Corruption, match="another size than when it was closed"):
            read(tmp_path / "log")
        path.write_bytes(good)
    (tmp_path / "note").rename(tmp_path / "log" / "LOG_END")
    (tmp_path / "log" / f"log-{last:06d}.log").unlink()
    with pytest.raises(Corruption, match="missing"):
        read(tmp_path / "log")


def test_verify_finds_a_closed_segment_that_was_cut_while_the_log_is_open(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=200)
    ends = [log.append(bytes(100)) for _ in range(5)]
    log.verify()
    os.truncate(tmp_path / "log-000001.log", ends[1].offset)
    with pytest.raises(Corruption, match="log-000001"):
        log.verify()
    log.close()


def test_after_another_start_of_the_machine_a_note_of_durability_os_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = killed(tmp_path / "log", "os", 1 << 20, 100)
    os.truncate(tmp_path / "log" / "log-000001.log", ends[9][1])
    with pytest.raises(Corruption):
        read(tmp_path / "log")
    monkeypatch.setattr(endmark, "_boot_id", lambda: str(uuid.uuid4()))
    assert read(tmp_path / "log") == 10
    monkeypatch.undo()
    # The note was written anew: it counts again, from where the log went on.
    assert read(tmp_path / "log") == 10


def test_every_flipped_byte_of_the_note_is_found_or_says_nothing(tmp_path: Path) -> None:
    log = Log.open(tmp_path, durability="disk")
    log.sync(log.append(b"one"))
    log.close()
    note = tmp_path / "LOG_END"
    good = note.read_bytes()
    for offset in range(len(good)):
        for mask in (0x01, 0x80, 0xFF):
            bad = bytearray(good)
            bad[offset] ^= mask
            note.write_bytes(bad)
            with pytest.raises(Corruption, match="LOG_END"):
                read(tmp_path)
    for nothing in (b"", bytes(len(good))):
        note.write_bytes(nothing)
        assert read(tmp_path) == 1
    for length in range(1, len(good)):
        note.write_bytes(good[:length])
        with pytest.raises(Corruption, match="LOG_END"):
            read(tmp_path)


def test_segments_of_the_first_format_are_read_and_followed_by_new_ones(tmp_path: Path) -> None:
    def header(number: int) -> bytes:
        head = FRAME.pack(b"TLog", 1, number)
        return head + CRC.pack(crc32(head))

    log = Log.open(tmp_path)
    log.append(b"12345678")
    log.close()
    frame = (tmp_path / "log-000001.log").read_bytes()[32:]
    (tmp_path / "LOG_END").unlink()
    for number in (1, 2):
        path = tmp_path / f"log-{number:06d}.log"
        path.write_bytes(header(number) + frame * 2)
    log = Log.open(tmp_path, segment_bytes=60)
    assert [bytes(payload) for _, payload in log.replay()] == [b"12345678"] * 4
    assert log.start == Position(1, HEADER_BYTES)
    log.append(b"abcdefgh")
    assert log.mark == 3
    found = [bytes(payload) for _, payload in log.read(log.start, log.end)]
    assert found == [b"12345678"] * 4 + [b"abcdefgh"]
    log.close()
    log = Log.open(tmp_path)
    assert sum(len(rows) for _, rows in log.replay_joined()) == 5
    log.close()


def test_a_kill_at_any_moment_leaves_a_whole_note(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 40
    assert [path.name for path in tmp_path.iterdir()] == ["LOG_END"]
