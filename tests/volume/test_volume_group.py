"""Volumes on groups of three nodes: leaders that die, disks that are lost or damaged.

The nodes of the first tests are in this process; those of the long test are real processes, killed
with kill -9 under a real ext4.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ports import free_port

from tideline.errors import NotFound, TidelineError
from tideline.volume import Volumes
from tideline.volume.client import Attached, Client
from tideline.volume.serving import Serving
from tideline.volume.settings import load_settings

BLOCK = 4096
SIZE = 8 << 20
SECRET = b"sixteen bytes or more"
GUARD_S = 240  # a busy machine is slow, a broken one is not


def until(what: Callable[[], object]) -> None:
    """Wait for a condition."""
    limit = time.monotonic() + GUARD_S
    while True:
        try:
            if what():
                return
        except TidelineError:
            pass
        assert time.monotonic() < limit
        time.sleep(0.05)


class Trio:
    """Three nodes on this machine."""

    def __init__(self, folder: Path, **settings: int) -> None:
        self.folder = folder
        self.nodes = {n: f"127.0.0.1:{free_port()}" for n in (1, 2, 3)}
        self.settings = settings
        self.running: dict[int, Serving] = {}
        for node in self.nodes:
            self.create(node)
            self.start(node)

    def create(self, node: int, recover: bool = False) -> None:
        Volumes.create(self.folder / f"n{node}", SIZE, node=node, nodes=self.nodes, recover=recover)

    def start(self, node: int, nodes: dict[int, str] | None = None) -> None:
        folder = self.folder / f"n{node}"
        self.running[node] = Serving(
            folder, secret=SECRET, tick_s=0.03, nodes=nodes, **self.settings
        )

    def stop(self, node: int) -> None:
        self.running.pop(node).close()

    def leader(self) -> int:
        found: list[int] = []
        until(lambda: found.extend(n for n, s in self.running.items() if s.volumes.node.leads())
              or found)  # fmt: skip
        return found[0]

    def client(self) -> Client:
        return Client(list(self.nodes.values()), secret=SECRET, give_up_s=GUARD_S)

    def close(self) -> None:
        for node in list(self.running):
            self.stop(node)


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Callable[..., Trio]]:
    made: list[Trio] = []

    def make(**settings: int) -> Trio:
        made.append(Trio(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_node_is_added_and_the_leader_is_removed(trio: Callable[..., Trio]) -> None:
    group = trio()
    client = group.client()
    disk = Attached(client, "main")
    disk.write(0, b"a" * BLOCK, force=True)
    with pytest.raises(NotFound, match="start it first"):
        client.call("add_node", 4)
    group.nodes[4] = f"127.0.0.1:{free_port()}"
    group.create(4, recover=True)
    group.start(4)
    until(lambda: 4 in client.call("status")["asking"])
    client.call("add_node", 4)
    client.call("add_node", 4)  # it is there
    until(lambda: client.call("status")["voters"] == [1, 2, 3, 4])
    gone = group.leader()
    follower = next(at for node, at in group.nodes.items() if node not in (gone, 4))
    stranger = Client([follower], secret=SECRET, give_up_s=GUARD_S)  # is told where the others are
    until(lambda: group.nodes[4] in stranger.call_node(follower, "hello")["nodes"])
    until(lambda: stranger.call("status")["node"] == group.leader())
    assert sorted(stranger.nodes) == sorted(group.nodes.values())
    stranger.close()
    client.remove_node(gone)
    until(lambda: gone not in client.call("status")["voters"])
    with pytest.raises(NotFound, match="no member"):
        client.remove_node(gone)
    group.stop(gone)
    del group.nodes[gone]
    disk.write(BLOCK, b"b" * BLOCK, force=True)
    for node in group.nodes:  # started with those that there are now
        group.stop(node)
        group.start(node, nodes=group.nodes)
    leader = group.leader()
    until(lambda: group.running[4].volumes.machine.missing() == 0)
    until(lambda: group.running[4].volumes.read("main", 0, 2 * BLOCK, local=True)
          == b"a" * BLOCK + b"b" * BLOCK)  # fmt: skip
    assert load_settings(group.folder / f"n{leader}").nodes == group.nodes
    disk.close()
    client.close()


def test_writers_go_on_when_leaders_stop(trio: Callable[..., Trio]) -> None:
    group = trio()
    client = group.client()
    disk = Attached(client, "main")
    model = bytearray(SIZE)
    step = 0
    for _ in range(3):
        for _ in range(20):
            step += 1
            at = step * 104_729 % (SIZE - 20_000)
            data = bytes([step]) * (1 + step * 311)
            disk.write(at, data)
            model[at : at + len(data)] = data
        disk.flush()
        leader = group.leader()
        group.stop(leader)
        disk.write(step, b"nobody may lead now")
        model[step : step + 19] = b"nobody may lead now"
        assert disk.read(step, 19) == b"nobody may lead now"
        group.start(leader)
    disk.flush()
    assert disk.read(0, SIZE) == model
    for serving in group.running.values():
        # A local read is behind by what the node says, and gets there.
        until(lambda volumes=serving.volumes: volumes.read("main", 0, SIZE, local=True) == model)
    disk.close()
    client.close()


def test_a_node_that_lost_its_disk_gets_everything_again(trio: Callable[..., Trio]) -> None:
    """Its log is behind the others' snapshots: the map comes first, the blocks after it."""
    group = trio(compact_bytes=1 << 20)
    client = group.client()
    disk = Attached(client, "main")
    model = bytearray(os.urandom(SIZE))
    for at in range(0, SIZE, 64 * BLOCK):
        disk.write(at, bytes(model[at : at + 64 * BLOCK]), force=True)
    client.make("snapshot", "main", "s")
    disk.write(0, b"after", force=True)
    lost = next(node for node in group.nodes if node != group.leader())
    group.stop(lost)
    shutil.rmtree(group.folder / f"n{lost}")
    # Enough to make the others forget the log that it would need.
    for at in range(0, SIZE, 64 * BLOCK):
        disk.write(at, bytes(model[at : at + 64 * BLOCK]), force=True)
    group.create(lost, recover=True)
    group.start(lost)
    volumes = group.running[lost].volumes
    until(lambda: volumes.info("s").used_bytes == SIZE and not volumes.machine.missing())
    until(lambda: volumes.read("main", 0, SIZE, local=True) == model)
    volumes.machine.fetch = lambda volume, blocks, index: (
        [None] * len(blocks)
    )  # nobody helps any more
    assert volumes.read("s", 0, SIZE, local=True) == model
    disk.close()
    client.close()


def test_a_damaged_block_of_a_replica_is_fetched(trio: Callable[..., Trio]) -> None:
    group = trio()
    client = group.client()
    disk = Attached(client, "main")
    block = os.urandom(BLOCK)
    disk.write(5 * BLOCK, block, force=True)
    leader = group.leader()
    for file in (group.folder / f"n{leader}" / "blocks").iterdir():
        data = file.read_bytes()
        with file.open("r+b") as out:
            out.seek(data.index(block) + 100)
            out.write(b"damage")
    assert disk.read(5 * BLOCK, BLOCK) == block
    disk.close()
    client.close()


# ---- a real file system on real processes --------------------------------------------------------

TOOLS = ("nbdfuse", "mkfs.ext4", "e2fsck", "mount", "umount", "git")


def _why_not() -> str | None:
    lacking = [name for name in TOOLS if shutil.which(name) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)} (apt: libnbd-bin e2fsprogs git)"
    if os.geteuid() != 0:
        return "only root may mount"
    if not os.path.exists("/dev/fuse") or not os.path.exists("/dev/loop-control"):
        return "no /dev/fuse or no loop devices"
    return None


class Processes:
    """Three `tideline volume serve`, an `attach`, and a mounted ext4."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = {n: f"127.0.0.1:{free_port()}" for n in (1, 2, 3)}
        (folder / "secret").write_bytes(SECRET)
        self.where = ",".join(self.nodes.values())
        named = ",".join(f"{n}={at}" for n, at in self.nodes.items())
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        for node in self.nodes:
            self.tideline(
                "create", str(folder / f"n{node}"), "--size", "256m", "--node", str(node),
                "--nodes", named,
            ).wait()  # fmt: skip
            self.start(node)
        self.attached = self.tideline(
            "attach", self.where, "main", "--nbd", f"unix:{folder}/nbd", *self.secret
        )
        until(lambda: (folder / "nbd").exists())
        (folder / "disk").touch()
        self.fuse = subprocess.Popen(
            ["nbdfuse", str(folder / "disk"), f"nbd+unix:///main?socket={folder}/nbd"]
        )
        until(lambda: (folder / "disk").stat().st_size == 256 << 20)

    @property
    def secret(self) -> list[str]:
        return ["--secret-file", str(self.folder / "secret")]

    def tideline(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "tideline", "volume", *words])

    def start(self, node: int) -> None:
        folder = self.folder / f"n{node}"
        self.running[node] = self.tideline("serve", str(folder), "--compact", "8m", *self.secret)

    def kill_leader(self) -> int:
        client = Client(list(self.nodes.values()), secret=SECRET)
        found: list[int] = []

        def look() -> bool:
            for node, address in self.nodes.items():
                try:
                    if client.call_node(address, "hello")["leads"]:
                        found.append(node)
                        return True
                except TidelineError:
                    continue
            return False

        until(look)
        client.close()
        process = self.running.pop(found[0])
        process.send_signal(signal.SIGKILL)
        process.wait()
        return found[0]

    def close(self) -> None:
        subprocess.run(["umount", str(self.folder / "disk")], check=False)
        self.fuse.wait(timeout=60)
        for process in (self.attached, *self.running.values()):
            process.terminate()
        for process in (self.attached, *self.running.values()):
            process.wait(timeout=60)


@pytest.mark.long
def test_ext4_lives_on_while_leaders_are_killed(tmp_path: Path) -> None:
    if (reason := _why_not()) is not None:
        pytest.skip(reason)
    run = subprocess.check_call
    origin = tmp_path / "origin"
    _make_repository(origin)
    group = Processes(tmp_path)
    disk, mount = tmp_path / "disk", tmp_path / "mnt"
    mount.mkdir()
    run(["mkfs.ext4", "-q", "-F", str(disk)])
    run(["mount", "-o", "loop", str(disk), str(mount)])
    acknowledged: dict[int, bytes] = {}
    stop = threading.Event()
    errors: list[BaseException] = []

    def transactions() -> None:
        try:
            with sqlite3.connect(mount / "db") as db:
                db.execute("pragma synchronous=full")
                db.execute("create table t (n integer primary key, x blob)")
                while not stop.is_set():
                    n, x = len(acknowledged) + 1, os.urandom(700)
                    with db:
                        db.execute("insert into t values (?, ?)", (n, x))
                    acknowledged[n] = x
            db.close()
        except BaseException as error:
            errors.append(error)

    def files() -> None:
        try:
            number = 0
            while not stop.is_set():
                run(["git", "clone", "-q", str(origin), str(mount / f"clone-{number}")])
                with (mount / f"file-{number}").open("wb") as out:
                    out.write(b"%d" % number * 1000)
                    out.flush()
                    os.fsync(out.fileno())
                number += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=transactions), threading.Thread(target=files)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(4):
            count = len(acknowledged)
            until(lambda count=count: len(acknowledged) > count + 20 or errors)
            killed = group.kill_leader()
            count = len(acknowledged)
            until(lambda count=count: len(acknowledged) > count + 20 or errors)
            group.start(killed)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors
        # What the kernel has in memory is no proof: look at what is on the volume.
        run(["umount", str(mount)])
        run(["e2fsck", "-fn", str(disk)])
        run(["mount", "-o", "loop,ro", str(disk), str(mount)])
        with sqlite3.connect(f"file:{mount}/db?mode=ro&immutable=1", uri=True) as db:
            assert dict(db.execute("select n, x from t")) == acknowledged
            assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        db.close()
        clones = sorted(mount.glob("clone-*"))
        assert clones
        for clone in clones:
            run(["git", "-C", str(clone), "-c", "safe.directory=*", "fsck", "--full"])
        for file in mount.glob("file-*"):
            assert file.read_bytes() == file.name[5:].encode() * 1000
        run(["umount", str(mount)])
        group.close()


def _make_repository(folder: Path) -> None:
    folder.mkdir()

    def git(*words: str) -> None:
        subprocess.check_call(
            ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words], cwd=folder
        )

    git("init", "-q")
    for number in range(5):
        for name in range(20):
            (folder / f"{name}.txt").write_bytes(os.urandom(3000).hex().encode())
        git("add", "-A")
        git("commit", "-q", "-m", f"{number}")
