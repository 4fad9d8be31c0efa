"""A backup is whole or refused; a restore is whole or not there."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tideline
from tideline.cli import backup as command
from tideline.errors import Corruption, InvalidRequest, NotFound, TidelineError, Unavailable
from tideline.lsm import inventory
from tideline.lsm.files import checksum
from tideline.lsm.frames import frames

EVENTS = 300
DOCUMENTS = 300


def restore(source: Path, target: Path, *, unverified: bool = False) -> None:
    command.restore(source, target, unverified)


def contents(folder: Path) -> tuple[int, int]:
    with tideline.open(folder, memory_mb=16) as db:
        db.check()
        return len(db.channel("c").find("a")), db.collection("d").count()


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup with components, closed log segments and an open one, of both kinds."""
    folder = tmp_path_factory.mktemp("backup")
    with tideline.open(folder / "data", memory_mb=16) as db:
        channel, collection = db.channel("c", journal_s=3600), db.collection("d", key="k")
        for n in range(EVENTS):
            channel.publish("a", {"n": n}, id=f"e{n}", ttl_s=36000)
            collection.put({"k": n, "text": "x" * 50})
            if n == EVENTS // 2:
                channel.seal()
                channel.core.engine.store.log.rotate()
                collection._engine.seal()
        db.channel("empty")
        (folder / "data" / "TOKENS").write_text("{}")
        db.backup(folder / "copy")
    for path in (folder / "copy").rglob("*"):  # no links: damage stays here
        if path.is_file():
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(data)
    return folder / "copy"


@pytest.fixture
def copy(backup: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(backup, tmp_path / "copy"))


def files_of(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_a_whole_backup_is_restored_whole(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    restore(copy, tmp_path / "fresh")
    assert '"channels":2,"collections":1' in capsys.readouterr().out
    assert contents(tmp_path / "fresh") == (EVENTS, DOCUMENTS)
    assert files_of(tmp_path / "fresh").count("RESTORING") == 0
    restore(copy, tmp_path / "again")  # it is there for as often as it is needed
    assert contents(copy) == (EVENTS, DOCUMENTS)  # opening it makes a database of it
    with pytest.raises(InvalidRequest, match="--unverified"):
        restore(copy, tmp_path / "third")


def damages(backup: Path) -> Iterator[tuple[str, str, Callable[[bytes], bytes | None]]]:
    """File, what is done to it, how."""
    for name in files_of(backup):
        size = (backup / name).stat().st_size
        cuts = {0, 1, size // 2, size - 1}
        if name.endswith(".log"):
            data = memoryview((backup / name).read_bytes())
            end = 32
            for n, (_, payload) in enumerate(frames(Path(name), int(name[-10:-4]), data, True)):
                end += 16 + (len(payload) + 7 & ~7)
                if n % 16 == 0 and end < size:
                    cuts.add(end)
        for length in sorted(cuts - {size}):
            yield name, f"cut to {length}", lambda data, length=length: data[:length]
        for at in sorted({0, size // 3, size - 1}):
            yield (
                name,
                f"flip at {at}",
                lambda data, at=at: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],
            )
        yield name, "longer", lambda data: data + bytes(8)
        yield name, "missing", lambda data: None


def test_a_backup_that_was_cut_changed_or_lost_a_file_is_refused(
    copy: Path, tmp_path: Path
) -> None:
    target = tmp_path / "fresh"
    seen = 0
    for name, what, how in damages(copy):
        good = (copy / name).read_bytes()
        bad = how(good)
        if bad is None:
            (copy / name).unlink()
        else:
            (copy / name).write_bytes(bad)
        with pytest.raises((Corruption, InvalidRequest)) as caught:
            restore(copy, target)
        # Only of a backup without its list it cannot be said what is wrong with it.
        assert isinstance(caught.value, Corruption) or (name, what) == ("BACKUP", "missing")
        assert not target.exists(), (name, what)
        if (name, what) != ("BACKUP", "missing"):
            with pytest.raises(Corruption), tideline.open(copy):
                pytest.fail(f"opened although {name} was damaged: {what}")
        for stray in ("LOCK", "TOKENS.tmp"):
            (copy / stray).unlink(missing_ok=True)
        (copy / name).write_bytes(good)
        seen += 1
    assert seen > 100
    restore(copy, target)
    assert contents(target) == (EVENTS, DOCUMENTS)


def test_a_log_that_was_cut_is_found_without_the_list_too(copy: Path, tmp_path: Path) -> None:
    """A copy that somebody opened, or whose list was left behind, still knows its log's end."""
    (copy / "BACKUP").unlink()
    for name in files_of(copy):
        good = (copy / name).read_bytes()
        if name.endswith(".log") and len(good) > 32:
            (copy / name).write_bytes(good[: len(good) // 2])
            with pytest.raises(Corruption):
                restore(copy, tmp_path / "fresh", unverified=True)
            assert not (tmp_path / "fresh").exists()
            (copy / name).write_bytes(good)
    restore(copy, tmp_path / "fresh", unverified=True)
    assert contents(tmp_path / "fresh") == (EVENTS, DOCUMENTS)


def test_a_folder_without_a_list_is_refused_with_the_way(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no backup"):
        restore(tmp_path, tmp_path / "fresh")
    (copy / "BACKUP").unlink()
    with pytest.raises(InvalidRequest, match="older version made it; --unverified"):
        restore(copy, tmp_path / "fresh")
    with (
        tideline.open(copy),
        pytest.raises(Unavailable, match="this process has the folder open already"),
    ):
        restore(copy, tmp_path / "fresh", unverified=True)
    assert not (tmp_path / "fresh").exists()


def test_check_of_a_backup_leaves_it_a_backup(copy: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "tideline", *arguments]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    done = run("check", str(copy))
    assert (done.returncode, '"backup"' in done.stdout) == (0, True), done.stderr
    [log, *_] = (copy / "channels").rglob("*.log")
    log.write_bytes(log.read_bytes()[:-8])
    assert run("check", str(copy)).returncode == 6
    assert (copy / "BACKUP").exists()


def test_names_outside_the_backup_are_refused(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    for name in ("../secret", "/etc/passwd", "channels/../../secret", "channels/0001/../x"):
        listed = {**(inventory.load_list(copy) or {}), name: inventory.Listed(4, checksum(b"mine"))}
        inventory.save_list(copy, listed)
        with pytest.raises(Corruption, match="not that of a database"):
            restore(copy, tmp_path / "fresh")
        del listed[name]
        inventory.save_list(copy, listed)


# ---- killed at every step ------------------------------------------------------------------

STEPS = ("fsync", "link", "replace", "unlink", "mkdir", "open")


def killed_at(step: int, work: Callable[[], Any]) -> bool:
    """Run something in a child that is killed at its n-th call to the system; False if it ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            count = 0

            def counted(real: Callable[..., Any]) -> Callable[..., Any]:
                def call(*arguments: Any, **options: Any) -> Any:
                    nonlocal count
                    count += 1
                    if count == step:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return real(*arguments, **options)

                return call

            for name in STEPS:
                setattr(os, name, counted(getattr(os, name)))
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_a_restore_that_was_killed_anywhere_is_not_there_and_the_next_one_is_whole(
    copy: Path, tmp_path: Path
) -> None:
    target = tmp_path / "fresh"
    step, refused = 0, 0
    while killed_at(step := step + 1, lambda: restore(copy, target)):
        state = None
        if target.exists() and files_of(target):
            look = shutil.copytree(target, tmp_path / "look")
            if (target / "RESTORING").exists():
                with pytest.raises(Corruption, match="restore into this folder did not finish"):
                    contents(look)
                refused += 1
            else:
                state = contents(look)
            shutil.rmtree(tmp_path / "look")
        assert state in (None, (0, 0), (EVENTS, DOCUMENTS))
        if state == (0, 0):  # killed before the first word was written
            assert files_of(target) in ([], ["LOCK"])
        if step % 7 == 0:  # into what is left; else also, but from nothing
            if state == (EVENTS, DOCUMENTS):  # killed after its last word
                shutil.rmtree(target)
            with contextlib.suppress(FileNotFoundError):
                (target / "LOCK").unlink()
            restore(copy, target)
            assert contents(target) == (EVENTS, DOCUMENTS)
        shutil.rmtree(target, ignore_errors=True)
    assert step > 30
    assert refused > 20
    assert contents(target) == (EVENTS, DOCUMENTS)


def test_a_backup_that_was_killed_anywhere_is_refused(backup: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(backup, tmp_path / "data"))
    assert contents(data) == (EVENTS, DOCUMENTS)
    target = tmp_path / "new"

    def work() -> None:
        with tideline.open(data, memory_mb=16) as db:
            db.backup(target)

    step, seen = 0, 0
    while killed_at(step := step + 1, work):
        if target.exists():
            seen += 1
            try:
                restore(target, tmp_path / "fresh")
            except (NotFound, InvalidRequest):
                assert not (tmp_path / "fresh").exists()
            else:  # killed after its last word
                assert contents(tmp_path / "fresh") == (EVENTS, DOCUMENTS)
                shutil.rmtree(tmp_path / "fresh")
            shutil.rmtree(target)
    assert seen > 20
    assert contents(data) == (EVENTS, DOCUMENTS)


# ---- full disks ------------------------------------------------------------------------------


def test_a_restore_to_a_full_disk_is_refused_and_leaves_nothing(copy: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], capture_output=True,
        check=False,
    )  # fmt: skip
    if mounted.returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        for folder in (disk, disk / "in it"):  # a mount point is a folder like others
            with pytest.raises(Unavailable, match="disk is full"):
                restore(copy, folder)
            assert files_of(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    restore(copy, tmp_path / "fresh")
    assert contents(tmp_path / "fresh") == (EVENTS, DOCUMENTS)


def test_a_restore_and_a_backup_with_a_limit_on_files_are_refused_and_leave_nothing(
    copy: Path, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(copy, tmp_path / "data"))
    assert contents(data) == (EVENTS, DOCUMENTS)

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with tideline.open(data, memory_mb=16) as db:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
            with pytest.raises(Unavailable, match="disk is full"):
                restore(copy, tmp_path / "fresh")
            with pytest.raises(Unavailable, match="disk is full"):
                db.backup(tmp_path / "new")
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            db.check()

    assert not killed_at(-1, limited)
    assert not (tmp_path / "fresh").exists()
    assert not (tmp_path / "new").exists()
    assert contents(data) == (EVENTS, DOCUMENTS)


def test_a_restore_that_runs_is_not_disturbed(copy: Path, tmp_path: Path) -> None:
    target = tmp_path / "fresh"
    target.mkdir()
    inventory.begin_restore(target, copy)
    with contextlib.closing(open(target / "LOCK", "w")) as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="open in another process"):
            restore(copy, target)
        with pytest.raises(TidelineError):
            tideline.open(target)
    restore(copy, target)
    assert contents(target) == (EVENTS, DOCUMENTS)


def test_a_folder_with_something_else_in_it_is_never_cleared(copy: Path, tmp_path: Path) -> None:
    target = tmp_path / "fresh"
    target.mkdir()
    (target / "RESTORING").write_text("")
    (target / "mine").write_text("keep")
    with pytest.raises(InvalidRequest, match="mine"):
        restore(copy, target)
    assert (target / "mine").read_text() == "keep"
