"""What a replica has on disk: all of it after a restart, and damage told from absence."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path
from random import Random

import pytest
from world import Disk

from tideline.errors import Corruption, InvalidRequest, NotFound, TidelineError, Unavailable
from tideline.replica import DATA, MEMBERS, Ballot, Entry, Mark, Member, Members, Storage
from tideline.replica.messages import (
    Append,
    CompactTo,
    Fill,
    InstallSnapshot,
    Promised,
    Truncate,
    Write,
)

ME = Member(1, 1)
THREE = Members((ME, Member(2, 1), Member(3, 1)))
BALLOT = Ballot(1, 1, 1)


def value(index: int, size: int = 100) -> bytes:
    return b"value %d " % index * (size // 8)


def entries(first: int, last: int, ballot: Ballot = BALLOT, size: int = 100) -> Append:
    return Append(
        tuple(Entry(i, ballot, DATA, value(i, size)) for i in range(first, last + 1))
    )  # fmt: skip


def make(folder: Path, **options: object) -> Storage:
    if not (folder / "IDENTITY").exists():
        Storage.create(folder, "test", ME, THREE)
    return Storage.open(folder, durability="os", **options)  # type: ignore[arg-type]


def seen(storage: Storage) -> tuple[object, ...]:
    """All that a storage says, as the model says it below."""
    loaded = storage.load()
    outline = loaded.outline
    kept = range(outline.base.index + 1, outline.last + 1)
    found = {i: storage.entries(i, i)[0] for i in kept if i not in outline.holes}
    data = storage.snapshot_data() if loaded.snapshot.index else b""
    heads = [(i, outline.ballot_at(i)) for i in kept]
    return (loaded.promised, loaded.snapshot, outline.base, heads, found, outline.members,
            outline.holes, data)  # fmt: skip


def expected(disk: Disk) -> tuple[object, ...]:
    outline = disk.load().outline
    data = disk.data if disk.snapshot.index else b""
    heads = [(i, e.ballot) for i, e in sorted(disk.entries.items())]
    return (disk.promised, disk.snapshot, disk.base, heads, disk.entries, outline.members,
            disk.damaged, data)  # fmt: skip


def random_write(r: Random, disk: Disk, rounds: list[int]) -> Write:
    """Something that a core could ask for now."""
    outline = disk.load().outline
    last = outline.last
    kind = r.choice(["promise", "append", "append", "append", "truncate", "compact", "install"])
    if kind == "truncate" and last > disk.base.index + 1:
        return Truncate(r.randint(disk.base.index + 1, last))
    if kind == "compact" and last > disk.snapshot.index:
        mark = outline.mark(r.randint(max(disk.base.index, disk.snapshot.index + 1), last))
        base = outline.mark(r.randint(disk.base.index, mark.index))
        return CompactTo(mark, base)
    if kind == "install" and r.random() < 0.3:
        keep = last > disk.snapshot.index + 1 and r.random() < 0.5
        if keep:
            mark = outline.mark(r.randint(max(disk.base.index, disk.snapshot.index + 1), last))
        else:
            mark = Mark(last + r.randint(1, 5), Ballot(rounds[0], 2, 1), THREE)
        return InstallSnapshot(mark, keep, b"state %d" % mark.index)
    if kind == "promise":
        rounds[0] += 1
        return Promised(Ballot(rounds[0], r.randint(1, 3), 1))
    many = r.randint(1, 4)
    ballot = Ballot(max(outline.last_ballot.round, rounds[0]), 1, 1)
    append = entries(last + 1, last + many, ballot, r.choice([8, 100, 1000]))
    if r.random() < 0.2:
        more = Members((*THREE.voters, Member(4, last + 1)))
        member = Entry(last + many + 1, ballot, MEMBERS, more.encode())
        append = Append((*append.entries, member))
    return append


@pytest.mark.parametrize("seed", range(4))
def test_what_was_written_is_there_after_a_restart(tmp_path: Path, seed: int) -> None:
    """Random writes beside the model that the simulation runs on."""
    r, rounds = Random(seed), [1]
    disk = Disk.new(THREE)
    storage = make(tmp_path, segment_bytes=2000)
    for step in range(100):
        write = random_write(r, disk, rounds)
        if isinstance(write, CompactTo):
            disk.data = b"state %d" % write.mark.index
            storage.save_snapshot(write.mark, disk.data)
        disk.apply(write)
        storage.write([write])
        if step % 20 == 19:
            assert seen(storage) == expected(disk)
            storage.close()
            storage = make(tmp_path, segment_bytes=2000)
            assert seen(storage) == expected(disk)
    storage.close()


def written(folder: Path) -> tuple[list[tuple[object, ...]], Path]:
    """A small log; what it says after each write, and its file."""
    storage = make(folder)
    disk = Disk.new(THREE)
    states = [expected(disk.copy())]
    second = Ballot(2, 2, 1)
    for write in (
        Promised(BALLOT), entries(2, 2), entries(3, 3), entries(4, 4), Promised(second),
        Truncate(4), entries(4, 4, second), entries(5, 5, second),
    ):  # fmt: skip
        storage.write([write])
        disk.apply(write)
        states.append(expected(disk.copy()))
    storage.close()
    return states, folder / "log-1" / "log-000001.log"


def test_a_log_cut_anywhere_is_what_was_written_before(tmp_path: Path) -> None:
    """A kill leaves a part of the last write: that goes, and all before stays."""
    states, file = written(tmp_path / "a")
    whole = file.read_bytes()
    (file.parent / "LOG_END").unlink()
    for size in range(len(whole), 300, -17):
        file.write_bytes(whole[:size])
        (file.parent / "LOG_END").unlink(missing_ok=True)
        storage = make(tmp_path / "a")
        assert seen(storage) in states
        storage.close()


def test_a_log_that_was_synced_and_is_cut_is_damage(tmp_path: Path) -> None:
    states, file = written(tmp_path)
    Storage.open(tmp_path).close()  # durability "disk" notes how far the log had reached
    whole = file.read_bytes()
    file.write_bytes(whole[:-200])
    with pytest.raises(Corruption, match="cut short"):
        Storage.open(tmp_path)
    file.write_bytes(whole)
    storage = Storage.open(tmp_path)
    assert seen(storage) == states[-1]
    storage.close()


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.long)])
def test_a_changed_byte_is_never_taken_for_an_entry_that_was_not_there(
    tmp_path: Path, step: int
) -> None:
    """Wherever it is: the entry is a hole whose ballot is known, or the log is `Corruption`."""
    states, file = written(tmp_path / "a")
    whole = file.read_bytes()
    expect = states[-1]
    holes = refused = 0
    for at in range(0, len(whole), step):
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        (tmp_path / "b" / "log-1" / "log-000001.log").write_bytes(changed)
        try:
            storage = make(tmp_path / "b")
        except Corruption:
            refused += 1
            continue
        found = seen(storage)
        assert (found[:4], found[5]) == (expect[:4], expect[5])
        lost: set[int] = storage.load().outline.holes
        assert all(found[4][i] == expect[4][i] for i in expect[4] if i not in lost)  # type: ignore[index,attr-defined]
        holes += bool(lost)
        for index in lost:
            with pytest.raises(Corruption, match="damaged"):
                storage.entries(index, index)
            storage.write([Fill(expect[4][index])])  # type: ignore[index]
        storage.close()
        storage = make(tmp_path / "b")
        assert seen(storage) == expect
        storage.close()
    assert min(holes, refused) > 5


def test_damage_that_is_found_when_it_is_read(tmp_path: Path) -> None:
    storage = make(tmp_path)
    storage.write([entries(2, 9)])
    file = tmp_path / "log-1" / "log-000001.log"
    data = bytearray(file.read_bytes())
    at = data.index(value(5))
    with file.open("r+b") as out:
        out.seek(at + 3)
        out.write(b"?")
    with pytest.raises(Corruption, match="damaged") as caught:
        storage.entries(2, 9)
    assert caught.value.values["index"] == 5
    storage.write([Fill(Entry(5, BALLOT, DATA, value(5)))])
    assert [e.value for e in storage.entries(2, 9)] == [value(i) for i in range(2, 10)]
    storage.close()
    storage = make(tmp_path)
    assert [e.value for e in storage.entries(2, 9)] == [value(i) for i in range(2, 10)]
    storage.close()


def test_a_disk_without_an_identity_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="recover it with a new incarnation"):
        Storage.open(tmp_path / "lost")
    make(tmp_path / "a").close()
    (tmp_path / "a" / "IDENTITY").unlink()
    with pytest.raises(NotFound):
        Storage.open(tmp_path / "a")
    with pytest.raises(InvalidRequest, match="empty folder"):
        Storage.recover(tmp_path / "a", "test", Member(1, 2))


def test_a_recovered_disk_starts_with_nothing_but_who_it_is(tmp_path: Path) -> None:
    Storage.recover(tmp_path, "test", Member(1, 77))
    storage = Storage.open(tmp_path)
    assert storage.identity.member == Member(1, 77)
    assert storage.load().outline.last == 0
    assert storage.load().outline.members == Members(())
    storage.close()


def test_wrong_identities_and_folders_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="start at 1"):
        Storage.recover(tmp_path / "a", "test", Member(0, 1))
    with pytest.raises(InvalidRequest, match="one of the voters"):
        Storage.create(tmp_path / "a", "test", Member(9, 1), THREE)
    storage = make(tmp_path / "b")
    with pytest.raises(Unavailable, match="already"):
        Storage.open(tmp_path / "b")
    with pytest.raises(InvalidRequest, match="not kept"):
        storage.entries(1, 2)
    with pytest.raises(InvalidRequest, match="save_snapshot"):
        storage.write([CompactTo(Mark(1, Ballot(0, 0, 0), THREE), Mark(1, Ballot(0, 0, 0), THREE))])
    storage.close()
    (tmp_path / "b" / "IDENTITY").write_bytes(b"tideline-replica 1 00000000 {}\n")
    with pytest.raises(Corruption, match="identity"):
        Storage.open(tmp_path / "b")


def test_log_behind_a_snapshot_goes(tmp_path: Path) -> None:
    storage = make(tmp_path, segment_bytes=10_000)
    storage.write([entries(2, 100, size=1000)])
    before = storage.size_bytes
    mark = storage.load().outline.mark(90)
    storage.save_snapshot(mark, b"all of it")
    storage.write([CompactTo(mark, mark)])
    assert storage.size_bytes < before / 4
    assert storage.entries(91, 100)[0].value == value(91, 1000)
    storage.close()
    storage = make(tmp_path)
    assert storage.snapshot_data() == b"all of it"
    assert storage.load().outline.base == mark
    storage.close()
    (tmp_path / "snapshot-00000000000000000090").unlink()
    with pytest.raises(Corruption, match="snapshot of the replica is missing"):
        make(tmp_path)


def test_a_value_is_stored_once(tmp_path: Path) -> None:
    size, many = 64 << 10, 20
    storage = make(tmp_path)
    storage.write(
        [Append((Entry(i, BALLOT, DATA, bytes([i]) * size),)) for i in range(2, many + 2)]
    )
    storage.close()
    used = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert used <= 1.05 * size * many


def test_a_full_disk_ends_the_replica_and_loses_nothing(tmp_path: Path) -> None:
    storage = make(tmp_path)
    storage.write([entries(2, 5)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        with pytest.raises(Unavailable, match="disk is full"):
            storage.write([entries(6, 200)])
        with pytest.raises(TidelineError):
            storage.write([entries(6, 6)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    storage.close()
    storage = make(tmp_path)
    last = storage.load().outline.last
    assert last >= 5
    assert storage.entries(2, last) == entries(2, last).entries
    storage.write([entries(last + 1, 200)])
    storage.close()


def test_a_place_leads_to_the_value_also_after_a_restart(tmp_path: Path) -> None:
    storage = make(tmp_path, segment_bytes=2000)
    storage.write([entries(2, 60), Truncate(50), entries(50, 70, Ballot(2, 1, 1))])

    def check(first: int) -> None:
        for index in range(first, 71):
            found = storage.place(index)
            assert found is not None
            with found[0].open("rb") as file:
                file.seek(found[1])
                assert file.read(len(value(index))) == value(index)
        assert storage.place(71) is None

    check(2)
    storage.close()
    storage = make(tmp_path, segment_bytes=2000)
    check(2)
    mark = storage.load().outline.mark(30)
    storage.save_snapshot(mark, b"state")
    storage.write([CompactTo(mark, mark)])
    assert storage.place(30) is None
    check(31)
    storage.close()
