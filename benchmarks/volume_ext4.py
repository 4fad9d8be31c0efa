"""A file system on a block volume: fio on it, and on what else it could be on (volume.py).

    plain folder           where the volume's own files are
    ext4 on a plain file   mounted by a loop device
    ext4 on three nodes    a volume, attached as a file by nbdfuse, and mounted the same way

Needs root, /dev/fuse, nbdfuse, fio and mkfs.ext4; `measure` gives the reason where it cannot.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

from benchmarks import common
from benchmarks.common import say
from tideline.errors import TidelineError

__all__ = ["measure"]

_SIZE = 512 << 20  # of the plain file


class Nodes(Protocol):
    """The part of volume.py's ThreeNodes that is used here."""

    nodes: dict[int, str]

    def tideline(self, *words: str) -> subprocess.Popen[bytes]: ...
    def close(self) -> None: ...


def why_not() -> str | None:
    """What is lacking for the part `ext4`."""
    lacking = [name for name in ("nbdfuse", "fio", "mkfs.ext4") if shutil.which(name) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)} (apt: libnbd-bin fio e2fsprogs)"
    return None if os.geteuid() == 0 and Path("/dev/fuse").exists() else "needs root and /dev/fuse"


def measure(nodes: Callable[[Path], Nodes], seconds: float, rounds: int) -> dict[str, Any]:
    """fio on an ext4 on three nodes, on one on a plain file, and on a plain folder, by turns."""
    reason = why_not()
    if reason is not None:
        say(f"ext4 is left out: {reason}")
        return {"left out": reason}
    jobs = {
        "4 KiB at random, fsync each": ["--rw=randwrite", "--bs=4k", "--fsync=1"],
        "128 KiB in order, fsync every 4 MiB": ["--rw=write", "--bs=128k", "--fsync=32"],
        "4 KiB at random, read": ["--rw=randread", "--bs=4k", "--direct=0", "--invalidate=1"],
    }
    out: dict[str, Any] = {}
    with common.scratch() as folder, ExitStack() as stack:
        image, plain = folder / "image", folder / "plain"
        plain.mkdir()
        with image.open("wb") as made:
            made.truncate(_SIZE)
        places = {"plain folder": plain}
        try:
            places["ext4 on a plain file"] = _formatted(image, folder / "mnt-image", stack)
        except subprocess.CalledProcessError as error:
            say(f"ext4 is left out: {error}")
            return {"left out": str(error)}
        three = nodes(folder / "three")
        stack.callback(three.close)
        disk = _attached(three, folder, stack)
        places["ext4 on three nodes"] = _formatted(disk, folder / "mnt-nodes", stack)
        for job, words in jobs.items():
            found: dict[str, list[float]] = {name: [] for name in places}
            for _ in range(rounds):
                for name, where in places.items():
                    found[name].append(_fio(where, words, max(seconds * 4, 2)))
            out[job] = {name: statistics.median(each) for name, each in found.items()}
            say(f"  {job}: " + ", ".join(f"{n} {v:,.2f} MB/s" for n, v in out[job].items()))
        for name, where in places.items():
            _check(name, where)
    return out


def _attached(three: Nodes, folder: Path, stack: ExitStack) -> Path:
    """The volume of three nodes as a file."""
    socket, disk = folder / "nbd", folder / "disk"
    attached = three.tideline(
        "attach", ",".join(three.nodes.values()), "main", "--nbd", f"unix:{socket}"
    )
    stack.callback(attached.wait, 60)
    stack.callback(attached.terminate)
    _until(socket.exists)
    disk.touch()
    fuse = subprocess.Popen(["nbdfuse", str(disk), f"nbd+unix:///main?socket={socket}"])
    stack.callback(fuse.wait, 60)
    stack.callback(subprocess.run, ["umount", str(disk)], check=False)
    _until(lambda: disk.stat().st_size > 0)
    return disk


def _formatted(disk: Path, mount: Path, stack: ExitStack) -> Path:
    """A new ext4 on a file, mounted."""
    subprocess.run(["mkfs.ext4", "-q", "-F", str(disk)], check=True)
    mount.mkdir()
    subprocess.run(["mount", "-o", "loop", str(disk), str(mount)], check=True)
    stack.callback(subprocess.run, ["umount", str(mount)], check=False)
    return mount


def _check(name: str, folder: Path) -> None:
    """What is written comes back, not from memory."""
    data = os.urandom(8 << 20)
    with open(folder / "checked", "wb+") as file:
        file.write(data)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        if file.read() != data:
            raise SystemExit(f"{name}: what was written is not what is read")


def _until(what: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        with suppress(OSError, TidelineError):
            if what():
                return
        time.sleep(0.05)
    raise SystemExit("the volume could not be attached")


def _fio(folder: Path, words: Sequence[str], seconds: float) -> float:
    """Megabytes a second."""
    command = ["fio", "--name=job", f"--directory={folder}", "--size=64m", "--ioengine=psync"]
    command += [*words, f"--runtime={seconds}", "--time_based", "--output-format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    return float(job["read"]["bw_bytes"] + job["write"]["bw_bytes"]) / 1e6
