"""The log keeps what it acknowledged, through kills, full disks and failing ones."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many

from tideline.errors import Closed, Corruption, InvalidRequest, Unavailable
from tideline.lsm.log import Log
from tideline.lsm.nulllog import NullLog
from tideline.lsm.position import Position

SOURCE = Path(__file__).parents[2] / "src"
PAYLOADS = [b"", b"a", b"12345678", b"hello tide", bytes(24), bytes(range(33))]


def write(folder, payloads, **options):
    log = Log.open(folder, **options)
    assert list(log.replay()) == []
    positions = [log.append(payload) for payload in payloads]
    log.close()
    return positions


def read(folder, **options):
    """What a new process would find; also proves that the log can be appended to again."""
    log = Log.open(folder, **options)
    try:
        found = [(segment, bytes(payload)) for segment, payload in log.replay()]
        log.append(b"after")
        return found
    finally:
        log.close()


def run(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_frames_come_back_in_order(tmp_path):
    write(tmp_path, PAYLOADS)
    assert read(tmp_path) == [(1, payload) for payload in PAYLOADS]
    assert read(tmp_path) == [(1, payload) for payload in [*PAYLOADS, b"after"]]


def test_the_bytes_are_the_documented_ones(tmp_path):
    write(tmp_path, [b"hello tide", b"12345678"])
    content = (tmp_path / "log-000001.log").read_bytes()
    page = (Path(__file__).parents[2] / "docs/internals/log.md").read_text()
    for row in range(0, len(content), 16):
        assert f"{row:4d}  {content[row : row + 16].hex(' ', 4)}  " in page


def test_payloads_are_aligned_for_int64_columns(tmp_path):
    column = np.arange(5, dtype=np.int64)
    write(tmp_path, [b"x", memoryview(column), b"yyy", memoryview(column)])
    log = Log.open(tmp_path)
    views = [np.frombuffer(payload, dtype=np.uint8) for _, payload in log.replay()]
    log.close()
    assert all(view.ctypes.data % 8 == 0 for view in views)
    assert views[3].view(np.int64).tolist() == [0, 1, 2, 3, 4]


def test_payloads_stay_readable_after_the_log_moved_on(tmp_path):
    write(tmp_path, [b"one", b"two", b"three"], segment_bytes=1)
    log = Log.open(tmp_path, segment_bytes=1)
    views = [payload for _, payload in log.replay()]
    log.append(b"four")
    log.forget(log.mark)
    log.close()
    assert [bytes(view) for view in views] == [b"one", b"two", b"three"]


def test_a_full_segment_is_followed_by_the_next(tmp_path):
    positions = write(tmp_path, [bytes(100)] * 5, segment_bytes=200)
    assert [position.segment for position in positions] == [1, 1, 2, 2, 3]
    assert positions[0] == Position(1, 32)
    assert [segment for segment, _ in read(tmp_path, segment_bytes=200)] == [1, 1, 2, 2, 3]


def test_forget_frees_whole_segments(tmp_path):
    write(tmp_path, [bytes(100)] * 5, segment_bytes=200)
    log = Log.open(tmp_path)
    assert len(list(log.replay())) == 5
    before = log.size_bytes
    assert before == sum(path.stat().st_size for path in tmp_path.glob("*.log"))
    freed = log.forget(3)
    assert freed == 2 * (32 + 2 * 120)
    assert log.size_bytes == before - freed
    assert log.forget(3) == 0
    assert log.mark == 3
    with pytest.raises(InvalidRequest, match="current segment"):
        log.forget(4)
    log.close()
    assert [segment for segment, _ in read(tmp_path, first=3)] == [3]


def test_segments_a_killed_forget_left_are_removed(tmp_path):
    write(tmp_path, [bytes(100)] * 5, segment_bytes=200)
    (tmp_path / "log-000001.log").unlink()
    assert [segment for segment, _ in read(tmp_path, first=3)] == [3]
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["log-000003.log"]


@pytest.mark.parametrize(("gone", "first"), [(1, 1), (2, 1), (2, 2), (3, 4)])
def test_a_missing_segment_is_corruption(tmp_path, gone, first):
    write(tmp_path, [bytes(100)] * 5, segment_bytes=200)
    (tmp_path / f"log-{gone:06d}.log").unlink()
    with pytest.raises(Corruption, match=f"missing.*log-{max(gone, first):06d}.log"):
        Log.open(tmp_path, first=first)


def test_every_flipped_byte_is_found(tmp_path):
    write(tmp_path, PAYLOADS, segment_bytes=90)
    paths = sorted(tmp_path.glob("*.log"))
    assert len(paths) > 1
    for path in paths:
        good = path.read_bytes()
        for offset in range(len(good)):
            for mask in (0x01, 0x80, 0xFF, good[offset]):  # the last one makes it zero
                if not mask:
                    continue
                bad = bytearray(good)
                bad[offset] ^= mask
                path.write_bytes(bad)
                with pytest.raises(Corruption, match=path.name) as caught:
                    read(tmp_path)
                assert caught.value.values["offset"] <= offset
                assert path.read_bytes() == bad, "a damaged log must not be touched"
        path.write_bytes(good)
    assert len(read(tmp_path)) == len(PAYLOADS)


@pytest.mark.parametrize("zeros", [0, 1, 7, 16, 40, 5000])
def test_every_torn_tail_gives_the_whole_frames_before_it(tmp_path, zeros):
    folder = tmp_path / "log"
    folder.mkdir()
    positions = write(folder, PAYLOADS)
    note = folder / "LOG_END"
    path = folder / "log-000001.log"
    good = path.read_bytes()
    limits = [position.offset for position in positions[1:]] + [len(good)]
    for length in range(len(good)):
        whole = sum(limit <= length for limit in limits)
        # Zeros after a cut inside a frame would be part of its payload: cut at its edge instead.
        edge = length in (0, 32, *limits)
        note.unlink()  # as after a power cut
        path.write_bytes(good[:length] + (bytes(zeros) if edge else b""))
        assert read(folder) == [(1, payload) for payload in PAYLOADS[:whole]]
        assert read(folder)[whole:] == [(1, b"after")]


def test_a_short_frame_before_the_last_segment_is_corruption(tmp_path):
    write(tmp_path, [bytes(100)] * 3, segment_bytes=200)
    path = tmp_path / "log-000001.log"
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(Corruption, match="log-000001"):
            read(tmp_path)
    path.write_bytes(good + bytes(16))
    with pytest.raises(Corruption, match="log-000001"):
        read(tmp_path)


@given(garbage=st.binary(min_size=16, max_size=80).filter(any))
@settings(max_examples=many(200), deadline=None)
def test_garbage_at_the_end_is_corruption(garbage, tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    write(folder, [b"good"])
    with (folder / "log-000001.log").open("ab") as file:
        file.write(garbage)
    with pytest.raises(Corruption):
        read(folder)


@given(payloads=st.lists(st.binary(max_size=300)), segment_bytes=st.integers(1, 600))
@settings(max_examples=many(100), deadline=None)
def test_any_payloads_come_back(payloads, segment_bytes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    positions = write(folder, payloads, segment_bytes=segment_bytes)
    expected = [(p.segment, payload) for p, payload in zip(positions, payloads, strict=True)]
    assert read(folder, segment_bytes=segment_bytes) == expected


def test_a_log_is_replayed_before_it_is_appended_to(tmp_path):
    write(tmp_path, [b"one", b"two"])
    log = Log.open(tmp_path)
    with pytest.raises(InvalidRequest, match="replay"):
        log.append(b"three")
    frames = log.replay()
    next(frames)
    with pytest.raises(InvalidRequest, match="replay"):
        log.append(b"three")
    assert len(list(frames)) == 1
    log.append(b"three")
    log.close()
    assert len(read(tmp_path)) == 3


def test_a_closed_log_says_so(tmp_path):
    log = Log.open(tmp_path, durability="disk")
    position = log.append(b"one")
    log.close()
    log.close()
    log.sync(position)  # closing synced it
    with pytest.raises(Closed):
        log.append(b"two")
    with pytest.raises(Closed):
        log.sync(Position(1, 400))


@pytest.mark.parametrize(
    "options", [{"durability": "ram"}, {"first": 0}, {"segment_bytes": 0}], ids=str
)
def test_wrong_options_are_refused(tmp_path, options):
    with pytest.raises(InvalidRequest):
        Log.open(tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_unavailable(tmp_path):
    with pytest.raises(Unavailable, match="cannot be opened"):
        Log.open(tmp_path / "no")


def test_the_null_log_keeps_nothing():
    log = NullLog()
    log.sync(log.append(b"x"))
    assert list(log.replay()) == []
    assert (log.mark, log.size_bytes, log.forget(9)) == (1, 0, 0)
    log.close()


APPENDER = """
import sys
from pathlib import Path
from tideline.lsm.log import Log
log = Log.open(Path(sys.argv[1]), durability=sys.argv[2], segment_bytes=20_000)
count = 0
while True:
    log.sync(log.append(b"%d " % count * (count % 50)))
    count += 1
    print(count, flush=True)
"""


@pytest.mark.parametrize("durability", ["os", "disk"])
@pytest.mark.parametrize("acknowledged", [1, 37, 400])
def test_kill_9_loses_nothing_acknowledged(tmp_path, durability, acknowledged):
    process = run(APPENDER, tmp_path, durability)
    for line in process.stdout:
        if int(line) >= acknowledged:
            break
    process.send_signal(signal.SIGKILL)
    counts = [int(line) for line in process.stdout.read().splitlines(keepends=True) if "\n" in line]
    process.wait()
    process.stderr.close()
    process.stdout.close()
    found = read(tmp_path)
    assert len(found) >= max([acknowledged, *counts])
    assert [payload for _, payload in found] == [
        b"%d " % count * (count % 50) for count in range(len(found))
    ]


FULL = """
import resource, signal, sys
from pathlib import Path
from tideline.errors import Unavailable
from tideline.lsm.log import Log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
log = Log.open(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1016, hard))
kept = 0
refused = 0
for _ in range(20):
    try:
        log.append(b"x" * 101)
        kept += 1
    except Unavailable as error:
        assert "disk is full" in str(error), error
        refused += 1
assert Path(sys.argv[1], "log-000001.log").stat().st_size == log.size_bytes == 32 + kept * 120
log.append(b"small")  # a small one still fits
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.append(b"room")
log.close()
print(kept, refused)
"""


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path):
    process = run(FULL, tmp_path)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert output.split() == ["8", "12"]
    assert [payload for _, payload in read(tmp_path)] == [b"x" * 101] * 8 + [b"small", b"room"]


def fail_with(number):
    def fail(*arguments):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "disk is full"), (errno.EDQUOT, "disk is full"), (errno.EIO, "write failed")],
)
def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch, number, message):
    log = Log.open(tmp_path)
    log.append(b"one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", lambda fd, parts: os.write(fd, b"".join(parts)[:21]))
        patch.setattr("tideline.lsm.log.write_all", fail_with(number))
        with pytest.raises(Unavailable, match=message):
            log.append(b"two")
    log.append(b"three")
    log.close()
    assert read(tmp_path) == [(1, b"one"), (1, b"three")]


def test_a_short_write_that_can_be_finished_is(tmp_path, monkeypatch):
    log = Log.open(tmp_path)
    monkeypatch.setattr(os, "writev", lambda fd, parts: os.write(fd, b"".join(parts)[:21]))
    log.append(b"one two three")
    monkeypatch.undo()
    log.close()
    assert read(tmp_path) == [(1, b"one two three")]


def test_ctrl_c_inside_an_append_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(fd, parts):
        os.write(fd, b"".join(parts))
        raise KeyboardInterrupt

    log = Log.open(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.append(b"one")
    log.append(b"two")
    log.close()
    assert read(tmp_path) == [(1, b"two")]


def test_a_write_that_cannot_be_undone_stops_the_log(tmp_path, monkeypatch):
    log = Log.open(tmp_path)
    log.append(b"one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", lambda fd, parts: os.write(fd, b"".join(parts)[:21]))
        patch.setattr("tideline.lsm.log.write_all", fail_with(errno.EIO))
        patch.setattr(os, "ftruncate", fail_with(errno.EIO))
        with pytest.raises(Unavailable, match="write failed"):
            log.append(b"two")
    for _ in range(2):
        with pytest.raises(Unavailable, match="reopen"):
            log.append(b"three")
    log.close()
    assert read(tmp_path) == [(1, b"one")]


def test_a_segment_that_cannot_be_created_is_tried_again(tmp_path, monkeypatch):
    log = Log.open(tmp_path, segment_bytes=20)
    log.append(b"one")
    with monkeypatch.context() as patch:
        patch.setattr("tideline.lsm.segments.write_all", fail_with(errno.ENOSPC))
        with pytest.raises(Unavailable, match="disk is full"):
            log.append(b"two")
    assert [path.name for path in tmp_path.glob("*.log")] == ["log-000001.log"]
    assert log.append(b"two") == Position(2, 32)
    log.close()
    assert read(tmp_path) == [(1, b"one"), (2, b"two")]


@pytest.mark.parametrize("segment_bytes", [20, 1000], ids=["rotating", "same segment"])
def test_a_failed_fsync_stops_the_log(tmp_path, monkeypatch, segment_bytes):
    log = Log.open(tmp_path, durability="disk", segment_bytes=segment_bytes)
    safe = log.append(b"one")
    log.sync(safe)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_with(errno.EIO))
        with pytest.raises(Unavailable, match="reopen"):
            log.sync(log.append(b"two"))
    for _ in range(2):
        with pytest.raises(Unavailable, match="reopen"):
            log.append(b"three")
    with pytest.raises(Unavailable, match="reopen"):
        log.sync(Position(log.mark, log.size_bytes))
    log.sync(safe)
    log.close()
    assert read(tmp_path)[0] == (1, b"one")


def test_group_commit_from_eight_threads(tmp_path, monkeypatch):
    fsyncs = []
    started, go = threading.Event(), threading.Event()
    real = os.fsync

    def counted(fd):
        if threading.current_thread().name.startswith("writer"):
            fsyncs.append(fd)
            if len(fsyncs) == 1:
                started.set()  # the first one waits until all the others have appended
                go.wait()
        real(fd)

    log = Log.open(tmp_path, durability="disk")
    monkeypatch.setattr(os, "fsync", counted)
    lock = threading.Lock()
    appended = threading.Barrier(8, action=go.set)

    def writer(number):
        with lock:
            position = log.append(b"%d" % number)
        if number == 0:
            leader = threading.Thread(target=log.sync, args=(position,), name="writer-leader")
            leader.start()
            started.wait()
            appended.wait()
            leader.join()
        else:
            started.wait()
            appended.wait()
            log.sync(position)

    threads = [threading.Thread(target=writer, args=(n,), name=f"writer-{n}") for n in range(8)]
    threads[0].start()
    started.wait()
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fsyncs) == 2  # the leader's, and one for all seven that came while it ran
    log.close()
    assert len(read(tmp_path)) == 8


def test_threads_sync_while_segments_change(tmp_path):
    log = Log.open(tmp_path, durability="disk", segment_bytes=300)
    lock = threading.Lock()
    failures = []

    def writer(number):
        try:
            for turn in range(10):
                with lock:
                    position = log.append(b"%d %d" % (number, turn) * 5)
                log.sync(position)
                assert (position.segment, position.offset) < log._synced
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=writer, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert failures == []
    assert len(read(tmp_path)) == 80
