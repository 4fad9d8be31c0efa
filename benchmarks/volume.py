"""What does a block volume cost? Writes and reads by size, on one node and on three.

    python benchmarks/volume.py [--seconds S] [--rounds N] [--only writes|reads|ext4]

The workload of paper 001, chapter 6. By turns, every write on disk when it returns: one at a time,
16 in a batch, and from 16 threads.

    plain file            pwrite, fdatasync
    log, then volume      a block to a log, fdatasync; then to its place in a file, fdatasync
    block, then reference a block to an append-only file, fdatasync; its place to a log, fdatasync:
                          the paper's way
    log is the volume     a block with a head to a file, fdatasync: the least that is possible
    tideline, one node    `Volumes` in this process
    tideline, three nodes processes on this machine, over sockets; their disks are one disk here

Reads are of pages that are in memory: what is measured is our own work, checksums included. `ext4`
mounts a file system on three nodes and one on a plain file (as root, with nbdfuse and fio; else it
is left out, which is said) and runs fio on both and on a plain folder. What is written to each has
to be read again. Writes benchmarks/results/volume.json and .md.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common, volume_ext4
from benchmarks.common import say
from tideline.volume import Volumes
from tideline.volume.client import Client

KIB = 1 << 10
SPAN = 64 << 20  # blocks are written and read in so many bytes
SIZES = (4 * KIB, 16 * KIB, 128 * KIB, 1024 * KIB)
MANY = 16
BASE_PORT = 23_710
PARTS = ("writes", "reads", "ext4")


class Disk(Protocol):
    """What is compared. `write` returns when everything is on disk."""

    def write(self, rows: Sequence[tuple[int, bytes]]) -> None: ...
    def read(self, offset: int, size: int) -> bytes: ...


class Plain:
    """A file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.fd = os.open(folder / "volume", os.O_RDWR | os.O_CREAT)
        os.ftruncate(self.fd, SPAN)

    def write(self, rows: Sequence[tuple[int, bytes]]) -> None:
        for offset, data in rows:
            os.pwrite(self.fd, data, offset)
        os.fdatasync(self.fd)

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.fd, size, offset)


class Twice(Plain):
    """A log, then a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, rows: Sequence[tuple[int, bytes]]) -> None:
        os.writev(self.log, [part for at, data in rows for part in (_head(at, data), data)])
        os.fdatasync(self.log)
        super().write(rows)


class Reference(Twice):
    """An append-only file, then a reference in a log."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.blocks = os.open(folder / "blocks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, rows: Sequence[tuple[int, bytes]]) -> None:
        os.writev(self.blocks, [data for _, data in rows])
        os.fdatasync(self.blocks)
        os.writev(self.log, [_head(at, data) for at, data in rows])
        os.fdatasync(self.log)


class LogOnly(Twice):
    """A log."""

    def write(self, rows: Sequence[tuple[int, bytes]]) -> None:
        os.writev(self.log, [part for at, data in rows for part in (_head(at, data), data)])
        os.fdatasync(self.log)


def _head(offset: int, data: bytes) -> bytes:
    return struct.pack("<QQII", offset, len(data), crc32(data), 0)


class OneNode:
    """A volume in this process."""

    def __init__(self, folder: Path) -> None:
        Volumes.create(folder, SPAN)
        self.volumes = Volumes.open(folder)

    def write(self, rows: Sequence[tuple[int, bytes]]) -> None:
        self.volumes.write_many("main", rows)

    def read(self, offset: int, size: int) -> bytes:
        return self.volumes.read("main", offset, size)


class ThreeNodes:
    """A volume on three processes."""

    def __init__(self, folder: Path) -> None:
        self.nodes = {n: f"127.0.0.1:{BASE_PORT + 2 * n}" for n in (1, 2, 3)}
        self.folder = folder
        folder.mkdir(parents=True)
        self.secret = folder / "secret"
        self.secret.write_bytes(os.urandom(16).hex().encode())
        self.processes = []
        for node in self.nodes:
            Volumes.create(folder / f"n{node}", 8 * SPAN, node=node, nodes=self.nodes)
            self.processes.append(self.tideline("serve", str(folder / f"n{node}")))
        self.client = Client(
            list(self.nodes.values()), secret=self.secret.read_bytes(), give_up_s=60
        )
        self.session = self.client.call("open", "main", "benchmark", True)

    def tideline(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tideline", "volume", *words]
        command += ["--secret-file", str(self.secret)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def write(self, rows: Sequence[tuple[int, bytes]]) -> None:
        self.client.call("write", "main", self.session, list(rows))

    def read(self, offset: int, size: int) -> bytes:
        data: bytes = self.client.call("read", "main", offset, size, False)
        return data

    def close(self) -> None:
        self.client.close()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(timeout=60)


@contextmanager
def disks(only: Sequence[str] | None = None) -> Iterator[dict[str, Disk]]:
    """All that are compared, each in a folder of its own."""
    with common.scratch() as folder, ExitStack() as stack:
        made: dict[str, Disk] = {
            "plain file": Plain(folder / "plain"),
            "log, then volume": Twice(folder / "twice"),
            "block, then reference": Reference(folder / "reference"),
            "log is the volume": LogOnly(folder / "log"),
        }
        one = OneNode(folder / "one")
        stack.callback(one.volumes.close)
        three = ThreeNodes(folder / "three")
        stack.callback(three.close)
        yield {**made, "tideline, one node": one, "tideline, three nodes": three}


def in_turns(
    made: dict[str, Disk], work: Callable[[Disk], int], seconds: float, rounds: int, many: int = 1
) -> dict[str, float]:
    """Microseconds a unit of work of each, the median of rounds taken by turns."""
    found: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(rounds):
        for name, disk in made.items():
            counts = [0] * many
            begun = time.perf_counter()

            def run(number: int, disk: Disk = disk, counts: list[int] = counts,
                    begun: float = begun) -> None:  # fmt: skip
                counts[number] = work(disk)  # one at least
                while time.perf_counter() - begun < seconds:
                    counts[number] += work(disk)

            threads = [threading.Thread(target=run, args=(n,)) for n in range(1, many)]
            for thread in threads:
                thread.start()
            run(0)
            for thread in threads:
                thread.join()
            found[name].append((time.perf_counter() - begun) / sum(counts) * 1e6)
    return {name: statistics.median(times) for name, times in found.items()}


def writes(seconds: float, rounds: int) -> dict[str, Any]:
    """Synced writes, by size and by how many at once; and what they left on disk."""
    out: dict[str, Any] = {}
    with disks() as made:
        pool = os.urandom(2 << 20)

        def rows(size: int, count: int) -> list[tuple[int, bytes]]:
            at = random.randrange(len(pool) - size)
            places = [random.randrange(SPAN // size) * size for _ in range(count)]
            return [(place, pool[at : at + size]) for place in places]

        for size in SIZES:
            ways: dict[str, Any] = {}

            def single(disk: Disk, size: int = size) -> int:
                disk.write(rows(size, 1))
                return 1

            def batch(disk: Disk, size: int = size) -> int:
                disk.write(rows(size, MANY))
                return MANY

            ways["one at a time"] = in_turns(made, single, seconds, rounds)
            if size <= 128 * KIB:
                ways[f"{MANY} in a batch"] = in_turns(made, batch, seconds, rounds)
                ways[f"{MANY} threads"] = in_turns(made, single, seconds, rounds, MANY)
            out[f"{size // KIB} KiB"] = ways
            for way, found in ways.items():
                say(f"  write {size // KIB} KiB, {way}: {_said(found)}")
        out["stored"] = {}
        for name, disk in made.items():
            if isinstance(disk, OneNode):
                figures = [disk.volumes.status()]
            elif isinstance(disk, ThreeNodes):
                figures = [disk.client.call_node(at, "status") for at in disk.nodes.values()]
            else:
                continue
            out["stored"][name] = [one["write_amplification"] for one in figures]
            say(f"  bytes stored a byte written, {name}: {out['stored'][name]}")
    return out


def reads(seconds: float, rounds: int) -> dict[str, Any]:
    """Reads of what is in memory."""
    out: dict[str, Any] = {}
    with disks() as made:
        del made["log, then volume"], made["block, then reference"], made["log is the volume"]
        block = os.urandom(128 * KIB)
        for disk in made.values():
            for at in range(0, SPAN, len(block)):
                disk.write([(at, block)])
        for size in SIZES:

            def one(disk: Disk, size: int = size) -> int:
                disk.read(random.randrange(SPAN // size) * size, size)
                return 1

            found = in_turns(made, one, seconds, rounds)
            out[f"{size // KIB} KiB"] = {"one at a time": found}
            say(f"  read {size // KIB} KiB: {_said(found)}")
    return out


def _said(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {us:,.0f} us" for name, us in found.items())


# ---- the page ------------------------------------------------------------------------------------


def page(parts: dict[str, Any]) -> str:
    """What the results say, as tables."""
    out = ["# Block volumes", "", "Written by `python benchmarks/volume.py`.", ""]
    for part in ("writes", "reads"):
        sizes = {k: v for k, v in parts.get(part, {}).items() if k != "stored"}
        if not sizes:
            continue
        names = list(next(iter(next(iter(sizes.values())).values())))
        rows = [
            [f"{size}, {way}", *(f"{found[name]:,.0f}" for name in names)]
            for size, ways in sizes.items()
            for way, found in ways.items()
        ]
        out += [common.markdown_table([f"{part}, microseconds each", *names], rows)]
    for name, each in parts.get("writes", {}).get("stored", {}).items():
        out += [f"Bytes written to disk for a byte of data, {name}: "
                + ", ".join(f"{one:.3f}" for one in each) + ".", ""]  # fmt: skip
    reason = parts.get("ext4", {}).get("left out")
    if reason is not None:
        out += [f"No file system was mounted: {reason}.", ""]
    jobs = {k: v for k, v in parts.get("ext4", {}).items() if isinstance(v, dict)}
    if jobs:
        names = list(next(iter(jobs.values())))
        rows = [[job, *(f"{found[name]:,.2f}" for name in names)] for job, found in jobs.items()]
        out += [common.markdown_table(["fio, MB/s", *names], rows)]
    return "\n".join(out)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--seconds", type=float, default=0.5, help="of each cell, a round")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", choices=PARTS)
    options.add_argument("--results", type=Path, default=common.RESULTS)
    given = options.parse_args(arguments)
    results = common.Results(given.results, "volume")
    measures = {"writes": writes, "reads": reads, "ext4": partial(volume_ext4.measure, ThreeNodes)}
    for part in [given.only] if given.only else PARTS:
        say(part)
        results.put(part, measures[part](given.seconds, given.rounds))
    found = {name: part["data"] for name, part in results.parts.items()}
    (results.folder / "volume.md").write_text(page(found))
    print(page(found))


if __name__ == "__main__":
    main()
