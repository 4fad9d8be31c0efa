"""Whatever the operating system refuses, the caller gets one of our errors, and can go on."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.errors import Conflict, Unavailable
from tideline.lsm import files, store


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", "size=2m,nr_inodes=60", "none", str(folder)]
    if subprocess.run(line, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the room there is, also its last bytes."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    return path


def test_channels_collections_and_backups_on_a_full_disk_are_refused_and_go_on(
    small_disk: Path, tmp_path: Path
) -> None:
    with tideline.open(small_disk / "data", memory_mb=16) as db:
        db.channel("old").publish("a", 1, id="e1", ttl_s=600)
        filler = fill(small_disk)
        for work in (
            lambda: db.channel("new"),
            lambda: db.collection("new", key="k"),
            lambda: db.backup(small_disk / "copy"),
            lambda: tideline.open(small_disk / "other"),
            lambda: db.channel("old").publish("a", "x" * 100_000, ttl_s=600),
        ):
            with pytest.raises(Unavailable, match="disk is full"):
                work()
        assert db.channels() == ["old"]
        assert db.collections() == []
        assert [event.id for event in db.channel("old").find("a")] == ["e1"]
        filler.unlink()
        db.channel("new").publish("a", 1, id="n1", ttl_s=600)
        db.collection("docs", key="k").put({"k": 1})
        db.backup(small_disk / "copy")
        db.check()
    with tideline.open(small_disk / "data") as db:
        assert db.channels() == ["new", "old"]
        db.check()


def test_a_disk_without_inodes_is_a_full_disk(small_disk: Path) -> None:
    with tideline.open(small_disk / "data", memory_mb=16) as db:
        reserve = small_disk / "reserve"
        reserve.touch()
        made: list[str] = []
        try:
            for n in range(100):
                db.channel(f"c{n}").publish("a", 1, ttl_s=600)
                made.append(f"c{n}")
        except Unavailable as error:
            refused = str(error)
        assert "disk is full" in refused
        assert len(made) > 3
        assert db.channels() == sorted(made)
        db.check()
        for n in range(100):  # what the refused channel gave back
            try:
                (small_disk / f"more{n}").touch()
            except OSError:
                break
        with pytest.raises(Unavailable, match="disk is full"):
            db.drop_channel(made[-1])
        assert len(db.channel(made[-1]).find("a")) == 1  # it is there as before
        reserve.unlink()
        db.drop_channel(made.pop())
        db.channel("after").publish("a", 1, ttl_s=600)
    with tideline.open(small_disk / "data", memory_mb=16) as db:
        assert db.channels() == sorted([*made, "after"])


def child(work: Callable[[], Any]) -> int:
    """Run something in a child of its own: a limit of a process stays."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            os.write(2, repr(error).encode() + b"\n")
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def test_without_descriptors_left_everything_is_refused_and_goes_on(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data", memory_mb=16) as db:
        db.channel("old").publish("a", 1, id="e1", ttl_s=600)
        db.collection("docs", key="k").put({"k": 1})

    def work() -> None:
        with tideline.open(tmp_path / "data", memory_mb=16) as db:
            channel, docs = db.channel("old"), db.collection("docs")
            used = len(os.listdir("/proc/self/fd"))
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            for room in range(8):  # the next descriptor that is missing is another one each time
                resource.setrlimit(resource.RLIMIT_NOFILE, (used + room, hard))
                held = []
                try:
                    while len(os.listdir("/proc/self/fd")) - 1 < used:
                        held.append(os.open(os.devnull, os.O_RDONLY))
                except OSError:
                    pass
                for what, call in {
                    "channel": lambda room=room: db.channel(f"new{room}"),
                    "collection": lambda room=room: db.collection(f"docs{room}", key="k"),
                    "backup": lambda room=room: db.backup(tmp_path / f"copy{room}"),
                    "open": lambda room=room: tideline.open(tmp_path / f"other{room}").close(),
                    "memory": lambda: tideline.open(":memory:").close(),
                    "seal": channel.seal, "check": db.check,
                    "publish": lambda room=room: channel.publish("a", 1, id=f"r{room}"),
                    "put": lambda room=room: docs.put({"k": f"r{room}"}),
                }.items():  # fmt: skip
                    try:
                        call()
                    except (Unavailable, Conflict):
                        pass
                    except BaseException as error:
                        raise AssertionError((what, room, repr(error))) from error
                for fd in held:
                    os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            db.channel("after").publish("a", 1)
            db.backup(tmp_path / "copy")
            channel.maintain()
            db.check()

    assert child(work) == 0
    with tideline.open(tmp_path / "data", memory_mb=16) as db:
        assert {f"r{room}" for room in range(8)} <= {e.id for e in db.channel("old").find("a")}
        assert "after" in db.channels()
        db.check()
    with tideline.open(tmp_path / "copy", memory_mb=16) as db:
        db.check()


def test_with_a_limit_on_files_a_new_channel_is_refused(tmp_path: Path) -> None:
    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with tideline.open(tmp_path / "data", memory_mb=16) as db:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            for limit in (0, 10, 100):
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
                with pytest.raises(Unavailable, match="disk is full"):
                    db.channel("new")
                with pytest.raises(Unavailable, match="disk is full"):
                    db.collection("new", key="k")
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            db.channel("new").publish("a", 1, ttl_s=600)

    assert child(work) == 0


def test_the_folder_of_a_new_channel_is_on_disk_before_a_manifest_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    real = files.sync_folder

    def sync(folder: Path) -> None:
        synced.append(Path(folder))
        real(folder)

    with tideline.open(tmp_path / "data") as db:
        monkeypatch.setattr(store, "sync_folder", sync)
        db.channel("c")
        assert synced == [tmp_path / "data" / "channels", tmp_path / "data"]
        synced.clear()
        db.collection("d", key="k")
        assert synced == [tmp_path / "data" / "collections", tmp_path / "data"]
