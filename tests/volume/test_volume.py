"""What a volume promises on one disk: no wrong bytes, blocks stored once, short restarts."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tideline.errors import Conflict, Corruption, InvalidRequest, NotFound, Unavailable
from tideline.replica import Ballot, Mark, Members
from tideline.volume import VolumeMachine, Volumes
from tideline.volume.service import Service, fetch_from

BLOCK = 4096
MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Volumes.create(tmp_path / "v", 64 * MIB)
    return tmp_path / "v"


@pytest.fixture
def volumes(path: Path) -> Iterator[Volumes]:
    with Volumes.open(path) as opened:
        yield opened


def bytes_on_disk(folder: Path) -> int:
    """Each file once, however many names it has."""
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            stat = (Path(root) / name).stat()
            found[stat.st_ino] = stat.st_size
    return sum(found.values())


def files_of(path: Path) -> list[Path]:
    return sorted((path / "blocks").iterdir())


def damage(path: Path, wanted: bytes) -> None:
    """Flip a bit of every place in the files of blocks where these bytes are."""
    found = 0
    for file in files_of(path):
        data = bytearray(file.read_bytes())
        at = data.find(wanted)
        while at >= 0:
            data[at + 5] ^= 1
            found += 1
            at = data.find(wanted, at + 1)
        with file.open("r+b") as out:  # in place: the log has the same file
            out.write(data)
    assert found


def test_blocks_are_stored_once(volumes: Volumes, path: Path) -> None:
    data = os.urandom(8 * MIB)
    before = bytes_on_disk(path)
    for at in range(0, len(data), BLOCK):
        volumes.write("main", at, data[at : at + BLOCK])
    volumes.snapshot("main", "copy")
    assert (bytes_on_disk(path) - before) / len(data) < 1.05
    assert volumes.status()["write_amplification"] < 1.05
    assert volumes.read("copy", 0, len(data)) == data


def test_a_damaged_block_is_an_error_and_its_neighbours_are_read(
    volumes: Volumes, path: Path
) -> None:
    blocks = [os.urandom(BLOCK) for _ in range(3)]
    volumes.write("main", 0, b"".join(blocks))
    damage(path, blocks[1])
    with pytest.raises(Corruption) as told:
        volumes.read("main", 0, 3 * BLOCK)
    assert told.value.values["block"] == 1
    with pytest.raises(Corruption):
        volumes.write("main", BLOCK + 7, b"a part of it")
    assert volumes.read("main", 0, BLOCK) == blocks[0]
    assert volumes.read("main", 2 * BLOCK, BLOCK) == blocks[2]
    assert volumes.scrub() == {"mended": 0, "damaged": 1}
    volumes.write("main", BLOCK, blocks[1])  # written whole, it is whole again
    assert volumes.read("main", 0, 3 * BLOCK) == b"".join(blocks)


def test_a_damaged_block_comes_from_another_replica(path: Path, tmp_path: Path) -> None:
    first, second = os.urandom(BLOCK), os.urandom(BLOCK)
    with Volumes.open(path) as volumes:
        volumes.write("main", 0, first + second)
    shutil.copytree(path, tmp_path / "other")
    with Volumes.open(path) as volumes, Volumes.open(tmp_path / "other") as other:
        service = Service(other, f"unix:{tmp_path}/s")
        volumes.machine.fetch = fetch_from(["unix:/nobody/is/here", service.address])
        damage(path, first)
        damage(path, second)
        assert volumes.read("main", 0, 2 * BLOCK) == first + second
        service.close()
        assert volumes.read("main", 0, 2 * BLOCK) == first + second  # mended here, too
        volumes.machine.checkpoint()
    with Volumes.open(path) as volumes:
        assert volumes.read("main", 0, 2 * BLOCK) == first + second
        assert volumes.scrub() == {"mended": 0, "damaged": 0}


def test_what_another_replica_says_is_checked(volumes: Volumes, path: Path) -> None:
    block = os.urandom(BLOCK)
    volumes.write("main", 0, block)
    [reference] = volumes.machine.references(1, [0])
    damage(path, block)
    for lie in ((reference, bytes(BLOCK)), (reference + 1, block), None):
        volumes.machine.fetch = lambda volume, blocks, index, lie=lie: [lie]  # type: ignore[misc]
        with pytest.raises(Corruption):
            volumes.read("main", 0, BLOCK)
    volumes.machine.fetch = lambda volume, blocks, index: [(reference, block)]
    assert volumes.read("main", 0, BLOCK) == block


def test_a_lost_file_is_missing_and_healed(path: Path, tmp_path: Path) -> None:
    data = os.urandom(64 * BLOCK)
    with Volumes.open(path) as volumes:
        volumes.write("main", 0, data)
        volumes.node.compact()  # type: ignore[attr-defined]
    shutil.copytree(path, tmp_path / "other")
    for file in files_of(path):
        file.unlink()
    with Volumes.open(path) as volumes, Volumes.open(tmp_path / "other") as other:
        assert volumes.status()["missing_blocks"] == 64
        with pytest.raises(Corruption):
            volumes.read("main", 0, BLOCK)
        service = Service(other, f"unix:{tmp_path}/s")
        volumes.machine.fetch = fetch_from([service.address])
        assert volumes.machine.heal() == 64
        service.close()
        assert volumes.read("main", 0, len(data)) == data
        assert volumes.status()["missing_blocks"] == 0


def test_a_damaged_checkpoint_is_told(path: Path) -> None:
    with Volumes.open(path) as volumes:
        volumes.write("main", 0, b"x")
    file = path / "checkpoint"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(Corruption) as told:
        Volumes.open(path)
    assert told.value.file == str(file)


def test_a_restart_goes_on_from_the_checkpoint(path: Path) -> None:
    data = os.urandom(4 * MIB)
    with Volumes.open(path, segment_bytes=MIB, compact_bytes=MIB) as volumes:
        for at in range(0, len(data), 16 * BLOCK):
            volumes.write("main", at, data[at : at + 16 * BLOCK])
        replayed = volumes.machine.local.logged_bytes
        logged = volumes.node._runner.storage.size_bytes  # type: ignore[attr-defined]
        assert logged < 3 * MIB  # the log forgot most, the blocks are there
    with Volumes.open(path) as volumes:
        assert volumes.machine.local.logged_bytes == replayed  # nothing was applied again
        assert volumes.read("main", 0, len(data)) == data


@pytest.mark.parametrize("retained", [False, True])
def test_a_snapshot_that_passes_entries_of_our_log_costs_no_copy(
    path: Path, tmp_path: Path, retained: bool
) -> None:
    """They count on us to have them, applied or not; the log deletes them when it is installed."""
    data = os.urandom(2 * MIB)
    with Volumes.open(path, segment_bytes=MIB) as volumes:
        for at in range(0, len(data), 16 * BLOCK):
            volumes.write("main", at, data[at : at + 16 * BLOCK])
            if at == MIB // 2:
                volumes.machine.checkpoint()
                shutil.copytree(path, tmp_path / "behind")
        state = volumes.machine.snapshot()
        index = volumes.machine.applied
    shutil.rmtree(tmp_path / "behind" / "replica")
    shutil.copytree(path / "replica", tmp_path / "behind" / "replica")
    for file in files_of(tmp_path / "behind"):  # a copy is no link
        file.unlink()
        segment = f"log-{file.name.rpartition('-')[2]}.log"
        os.link(tmp_path / "behind" / "replica" / "group-0000" / "log-1" / segment, file)
    behind = VolumeMachine(tmp_path / "behind", block_bytes=BLOCK)
    segments = sorted((tmp_path / "behind" / "replica" / "group-0000" / "log-1").glob("log-*"))
    for segment in segments:
        if retained:
            behind.retain(segment)
        segment.unlink()
    behind.install(Mark(index, Ballot(1, 1, 1), Members(())), state)
    assert bool(behind.missing()) is not retained
    if retained:
        behind.close()
        behind = VolumeMachine(tmp_path / "behind", block_bytes=BLOCK)
        found = behind.read(1, 0, len(data) // BLOCK)
        assert b"".join(each[1] for each in found if each is not None) == data
    behind.close()


def test_vacuum_gives_room_back_and_says_what_it_cost(path: Path) -> None:
    data = os.urandom(4 * MIB)
    with Volumes.open(path, segment_bytes=MIB, compact_bytes=MIB) as volumes:
        for _ in range(3):
            for at in range(0, len(data), 16 * BLOCK):
                volumes.write("main", at, data[at : at + 16 * BLOCK])
        volumes.trim("main", 0, 2 * MIB)
        before = bytes_on_disk(path)
        done = volumes.vacuum(1.0)
        assert done["freed_bytes"] > 6 * MIB
        assert 0 < done["rewritten_bytes"] <= 2 * MIB
        assert bytes_on_disk(path) < before - 6 * MIB
        assert bytes_on_disk(path) < 4 * MIB
        assert volumes.status()["rewritten_bytes"] == done["rewritten_bytes"]
        assert volumes.read("main", 0, len(data)) == bytes(2 * MIB) + data[2 * MIB :]
        assert volumes.vacuum(1.0)["files"] <= 2  # there is little left to do
    with Volumes.open(path) as volumes:
        assert volumes.read("main", 0, len(data)) == bytes(2 * MIB) + data[2 * MIB :]


def test_what_vacuum_moved_is_there_after_a_kill(path: Path) -> None:
    data = os.urandom(4 * MIB)
    volumes = Volumes.open(path, segment_bytes=MIB, compact_bytes=MIB)
    for at in range(0, len(data), 16 * BLOCK):
        volumes.write("main", at, data[at : at + 16 * BLOCK])
    volumes.trim("main", 0, BLOCK)
    assert volumes.vacuum(1.0)["rewritten_bytes"] > 0
    volumes.node.close()  # type: ignore[attr-defined]
    assert volumes._owner is not None
    volumes._owner.leave()  # as kill -9 does: no last checkpoint
    with Volumes.open(path) as volumes:
        assert volumes.read("main", BLOCK, len(data) - BLOCK) == data[BLOCK:]


def test_vacuum_leaves_a_damaged_block_where_it_is(path: Path) -> None:
    good, bad = os.urandom(BLOCK), os.urandom(BLOCK)
    with Volumes.open(path) as volumes:
        volumes.write("main", 0, good + bad)
        volumes.write("main", 8 * BLOCK, os.urandom(32 * BLOCK))
        volumes.trim("main", 8 * BLOCK, 32 * BLOCK)
        volumes.node.compact()  # type: ignore[attr-defined]
        damage(path, bad)
        volumes.vacuum(1.0)
        assert volumes.read("main", 0, BLOCK) == good
        with pytest.raises(Corruption):
            volumes.read("main", BLOCK, BLOCK)


def test_parts_of_a_block_are_written_by_many_at_once(volumes: Volumes) -> None:
    def work(number: int) -> None:
        for step in range(20):
            volumes.write("main", 100 * number, bytes([number + 1, step + 1]) * 50)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert volumes.read("main", 0, 800) == b"".join(bytes([n + 1, 20]) * 50 for n in range(8))


def test_an_older_session_writes_no_more(volumes: Volumes) -> None:
    old = volumes.open_session("main", "a")
    volumes.write("main", 0, b"old", session=old)
    new = volumes.open_session("main", "b")
    for call in (
        lambda: volumes.write("main", 0, b"late", session=old),
        lambda: volumes.trim("main", 0, BLOCK, session=old),
        lambda: volumes.open_session("main", "a", take=False),
    ):
        with pytest.raises(Conflict):
            call()
    volumes.write("main", 0, b"new", session=new)
    assert volumes.open_session("main", "b", take=False) > new
    assert volumes.read("main", 0, 3) == b"new"


def test_a_snapshot_and_a_clone_stay_apart(volumes: Volumes) -> None:
    volumes.write("main", 0, b"one")
    volumes.snapshot("main", "s")
    volumes.clone("s", "c")
    volumes.write("main", 0, b"two")
    volumes.write("c", 1, b"N")
    assert [volumes.read(name, 0, 3) for name in ("main", "s", "c")] == [b"two", b"one", b"oNe"]
    assert [(i.name, i.kind, i.source) for i in volumes.all()] == [
        ("main", "volume", ""), ("s", "snapshot", "main"), ("c", "volume", "s"),
    ]  # fmt: skip
    volumes.delete("s")
    assert volumes.read("c", 0, 3) == b"oNe"


def test_a_volume_grows_and_shrinks(volumes: Volumes) -> None:
    volumes.add("extra", 4 * BLOCK)
    volumes.write("extra", 3 * BLOCK, b"end")
    volumes.resize("extra", 2 * BLOCK)
    with pytest.raises(InvalidRequest):
        volumes.read("extra", 3 * BLOCK, 1)
    volumes.resize("extra", 4 * BLOCK)
    assert volumes.read("extra", 3 * BLOCK, 3) == bytes(3)


def test_wrong_calls_are_told(volumes: Volumes, tmp_path: Path) -> None:
    create = Volumes.create
    wrong = [
        (InvalidRequest, "power of two", lambda: create(tmp_path / "w", MIB, block_bytes=5000)),
        (InvalidRequest, "multiple", lambda: create(tmp_path / "w", 5000)),
        (InvalidRequest, "multiple", lambda: create(tmp_path / "w", 0)),
        (InvalidRequest, "one of nodes", lambda: create(tmp_path / "w", MIB, node=2)),
        (
            InvalidRequest, "HOST:PORT",
            lambda: create(tmp_path / "w", MIB, node=1, nodes={1: "unix:/x"}),
        ),
        (
            InvalidRequest, "recover",
            lambda: create(tmp_path / "w", MIB, node=1, nodes={1: "a:1"}, recover=True),
        ),
        (InvalidRequest, "empty folder", lambda: create(volumes.machine.folder, MIB)),
        (NotFound, "volume create", lambda: Volumes.open(tmp_path / "nothing")),
        (Unavailable, "open already", lambda: Volumes.open(volumes.machine.folder)),
        (NotFound, "no such volume", lambda: volumes.read("nothing", 0, 1)),
        (NotFound, "no such volume", lambda: volumes.write("nothing", 0, b"1")),
        (NotFound, "no such volume", lambda: volumes.snapshot("nothing", "s")),
        (NotFound, "no such volume", lambda: volumes.delete("nothing")),
        (Conflict, "taken", lambda: volumes.snapshot("main", "main")),
        (InvalidRequest, "letters", lambda: volumes.snapshot("main", "a/b")),
        (InvalidRequest, "not in the volume", lambda: volumes.read("main", 64 * MIB, 1)),
        (InvalidRequest, "not in the volume", lambda: volumes.write("main", -1, b"1")),
        (InvalidRequest, "not in the volume", lambda: volumes.trim("main", 0, 65 * MIB)),
        (InvalidRequest, "live", lambda: volumes.vacuum(2.0)),
    ]  # fmt: skip
    for kind, words, call in wrong:
        with pytest.raises(kind, match=words):
            call()
    assert not (tmp_path / "w").exists() or not list((tmp_path / "w").iterdir())
    volumes.write("main", 64 * MIB - 1, b"1")
    assert volumes.read("main", 64 * MIB - 1, 1) == b"1"
