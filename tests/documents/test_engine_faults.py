"""Faults on real files under an engine of documents: kills, full disks, damaged bytes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from engine_model import Model, entries_of, extract, open_engine, records_in, rows_of
from engine_worker import EXTRA, FACTS, document
from killed import script
from profiles import many

import tideline
from tideline.documents.engine import Engine
from tideline.errors import Closed, Corruption, Unavailable
from tideline.index.texts import Texts
from tideline.where.keys import encode

GUARD_S = 300.0


worker = partial(script, Path(__file__).with_name("engine_worker.py"))


def everything(engine: Engine) -> dict[bytes, dict[str, Any]]:
    """All records by key, after every index was compared with them."""
    records: dict[bytes, tuple[int, dict[str, Any]]] = {}
    for part in engine.scan(batch=50):
        records |= dict(zip(part.keys, records_in(part), strict=True))
    for field in engine.fields:
        try:
            found = engine.lookup(field, b"", b"\xff")
        except Unavailable:
            engine.drain()
            found = engine.lookup(field, b"", b"\xff")
        wanted = {seq: doc for seq, doc in records.values() if entries_of(doc, field)}
        assert dict(records_in(found)) == wanted, field
    for key, (_, doc) in records.items():
        got = engine.get(key)
        assert got is not None
        assert json.loads(got) == doc
    return {key: doc for key, (_, doc) in records.items()}


def test_a_killed_process_loses_nothing_acknowledged_in_any_index(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    moments = random.Random("kill documents")
    expected: dict[bytes, int] = {}  # key -> number of its document
    for turn in range(4):
        with worker("churn", folder, turn) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            count = moments.randint(20, 150)
            lines = [process.stdout.readline() for _ in range(count)]
            for _ in range(moments.randint(0, 20_000)):
                pass  # a little further into whatever it is doing now
            process.kill()
            lines += process.stdout
        for line in lines:
            if line.endswith("\n"):
                for key, n in json.loads(line):
                    expected.pop(encode(key), None)
                    if n is not None:
                        expected[encode(key)] = n
        engine = open_engine(folder)
        engine.check()
        found = everything(engine)
        engine.close()
        numbers = {key: doc["n"] for key, doc in found.items()}
        for key, doc in found.items():
            assert doc == document(doc["n"], doc["n"] // 1_000_000), key
        # One write may have been logged and not yet acknowledged: then it is there whole.
        differing = {
            key for key in expected.keys() | numbers if expected.get(key) != numbers.get(key)
        }
        assert len(differing) <= 20
        late = [numbers[key] for key in differing if key in numbers]
        assert all(n > max(expected.values()) for n in late)
        expected = numbers


@pytest.mark.parametrize("segment_bytes", [1 << 24, 2_000], ids=["the log", "a seal"])
def test_a_full_disk_refuses_writes_serves_reads_and_goes_on(
    segment_bytes: int, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    with worker("full", folder, segment_bytes) as process:
        output, _ = process.communicate(timeout=GUARD_S)
        assert process.returncode == 0
    report = json.loads(output)
    assert report["refused"], "the disk was never full"
    assert report["seal_refused"]
    assert report["readable"]
    acknowledged = sorted(report["acknowledged"].values())
    assert report["found"] == [n for n in acknowledged if n < 200 and n % 7 == 3]
    assert acknowledged[-1] == 299, "it does not go on"
    engine = open_engine(folder)
    engine.check()
    assert sorted(doc["n"] for doc in everything(engine).values()) == acknowledged
    engine.close()


# ---- damage -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sealed and merged components of every kind, and a log beside them."""
    folder = tmp_path_factory.mktemp("golden") / "c"
    engine = open_engine(folder, FACTS)
    for n in range(0, 120, 10):
        engine.write(rows_of([(k % 50, document(k, 0)) for k in range(n, n + 10)]))
        if n in (30, 60, 90):
            engine.seal()
    engine.write(rows_of([(3, None)]))
    engine.close()
    return folder


def damage_found(folder: Path) -> Corruption | None:
    try:
        engine = open_engine(folder)
    except Corruption as error:
        return error
    try:
        engine.check()
    except Corruption as error:
        return error
    finally:
        engine.close()
    return None


def test_an_undamaged_copy_is_found_whole(copies: Any) -> None:
    folder = copies()
    assert len(list(folder.glob("c-*.arrow"))) >= 5
    assert damage_found(folder) is None
    engine = open_engine(folder)
    assert len(everything(engine)) == 49
    engine.close()


@pytest.mark.parametrize("pattern", ["MANIFEST", "log-*.log", "c-*.arrow"])
def test_a_flipped_byte_is_found_and_its_file_named(pattern: str, copies: Any) -> None:
    names = sorted(path.name for path in copies().glob(pattern))
    assert names
    missed = []
    for name in names:
        good = (copies() / name).read_bytes()
        chosen = random.Random(name).sample(range(len(good)), min(len(good), many(60)))
        for position in {0, len(good) - 1, *chosen}:
            folder = copies()
            bad = bytearray(good)
            bad[position] ^= 1 << (position * 5 + 3) % 8
            (folder / name).write_bytes(bad)
            error = damage_found(folder)
            if error is None or Path(error.file).name != name:
                missed.append((name, position, str(error)))
    assert missed == []


@pytest.mark.parametrize("pattern", ["MANIFEST", "c-*.arrow"])
def test_a_file_cut_or_missing_is_found_and_named(pattern: str, copies: Any) -> None:
    for name in sorted(path.name for path in copies().glob(pattern)):
        for cut in (0.5, 0.0, None):
            if cut is None and name == "MANIFEST":
                continue  # a folder without a manifest is a new collection: its owner knows
            folder = copies()
            data = (folder / name).read_bytes()
            if cut is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(data[: int(len(data) * cut)])
            error = damage_found(folder)
            assert error is not None
            assert Path(error.file).name == name


def test_a_log_cut_by_a_crash_gives_back_every_whole_write(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "c", tmp_path / "copy"
    engine = open_engine(folder, FACTS)
    sizes = []
    [log] = folder.glob("log-*.log")
    for n in range(6):
        engine.write(rows_of([(n, document(n, 0)), (100, document(n, 0))]))
        sizes.append(log.stat().st_size)
    shutil.copytree(folder, tmp_path / "crashed")
    engine.close()
    for cut in sorted({*range(sizes[0], sizes[-1], 37), *sizes, *(s - 1 for s in sizes[1:])}):
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(tmp_path / "crashed", scratch)
        with (scratch / log.name).open("r+b") as file:
            file.truncate(cut)
        whole = [n for n, size in enumerate(sizes) if size <= cut]
        engine = open_engine(scratch)
        found = everything(engine)
        assert sorted(found) == sorted([*map(encode, whole), encode(100)])
        assert found[encode(100)]["n"] == whole[-1]
        engine.close()


def test_a_backup_is_the_moment_it_was_made(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "c", FACTS)
    model = Model()
    for n in range(0, 200, 10):
        writes = [(k % 70, document(k, 0)) for k in range(n, n + 10)]
        engine.write(rows_of(writes))
        model.write(writes)
    engine.backup(tmp_path / "copy")
    engine.write(rows_of([(1, None)]))
    engine.close()
    copy = open_engine(tmp_path / "copy")
    copy.check()
    assert everything(copy) == {key: doc for key, (_, doc) in model.records.items()}
    copy.close()


def test_an_index_that_was_being_built_is_finished_after_a_kill(tmp_path: Path) -> None:
    """The manifest names it before anything is built; each moment after that is a copy."""
    engine = open_engine(tmp_path / "c", FACTS)
    for n in range(0, 300, 10):
        engine.write(rows_of([(k % 90, document(k, 0)) for k in range(n, n + 10)]))
    engine.drain()
    for kind in ("embedded", "lazy", "composite", "eager"):
        copies: list[Path] = []

        def copy(done: int, total: int, kind: str = kind, copies: list[Path] = copies) -> None:
            copies.append(tmp_path / f"{kind}{len(copies)}")
            shutil.copytree(tmp_path / "c", copies[-1])

        engine.add_index(EXTRA, kind, copy)
        engine.write(rows_of([(1, document(17, 0)), (500, document(18, 0))]))
        engine.drain()
        assert len(copies) >= 2
        for folder in copies:
            killed = open_engine(folder)
            assert EXTRA in killed.indexes
            killed.drain()
            assert killed.building == []
            killed.check()
            everything(killed)
            killed.close()
        everything(engine)
        engine.drop_index(EXTRA)
    engine.close()


def test_extract_is_asked_again_for_what_the_log_has(tmp_path: Path) -> None:
    """Entries are not in the log: an index that a replayed write needs is extracted."""
    engine = open_engine(tmp_path / "c", FACTS)
    engine.write(rows_of([(1, document(1, 0))], engine.fields))
    engine.close()
    asked: list[str] = []

    def spy(docs: Any, fields: Any) -> Any:
        asked.extend(fields)
        return extract(docs, fields)

    again = open_engine(tmp_path / "c", extract=spy)
    assert set(asked) == {*FACTS["indexes"], "n"}
    everything(again)
    again.close()


@pytest.mark.parametrize("kinds", [("lazy", "lazy"), ("composite", "lazy"), ("eager", "eager")])
def test_an_index_made_again_during_a_seal_has_every_record_once(
    tmp_path: Path, kinds: tuple[str, str]
) -> None:
    engine = open_engine(tmp_path, {"indexes": {"n": kinds[0]}}, generation_bytes=1 << 20)
    gate = threading.Event()
    engine.dataset._sealer.submit(gate.wait)  # type: ignore[arg-type]
    engine.write(rows_of([(i, {"n": i % 3}) for i in range(30)]))
    with engine.writing:
        engine.freeze()
    engine.drop_index("n")
    engine.add_index("n", kinds[1])
    gate.set()
    engine.drain()
    found = engine.lookup("n", encode(1), encode(1))
    assert found.seqs.tolist() == list(range(29, 0, -3))
    engine.close()


def test_an_index_dropped_and_made_again_while_it_is_built_is_whole(tmp_path: Path) -> None:
    """The first build must not call the second one finished."""
    engine = open_engine(tmp_path / "c", FACTS)
    for n in range(0, 200, 10):
        engine.write(rows_of([(k, document(k, 0)) for k in range(n, n + 10)]))
    engine.drain()
    for kind in ("embedded", "lazy", "eager"):
        again: list[int] = []

        def change(done: int, total: int, kind: str = kind, again: list[int] = again) -> None:
            if done and not again:
                again.append(done)
                engine.drop_index(EXTRA)
                engine.write(rows_of([(k, document(k, 1)) for k in range(40, 80)]))
                engine.add_index(EXTRA, kind)

        engine.add_index(EXTRA, kind, change)
        engine.drain()
        assert again
        assert engine.building == []
        everything(engine)
        engine.drop_index(EXTRA)
    engine.close()


def test_a_seal_that_failed_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "c", FACTS)
    write, failures = engine.primary.write_all, [Unavailable("disk is full")] * 3

    def fail(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return write(*arguments)

    engine.primary.write_all = fail  # type: ignore[method-assign]
    refused = 0
    n = 0
    while failures or n < 400:
        try:
            engine.write(rows_of([(n, document(n, 0))]))
            n += 1
        except Unavailable:
            refused += 1
        engine.dataset.wait_for_seals()
    for _ in range(3):
        try:
            engine.seal()
        except Unavailable:
            refused += 1
    assert refused
    assert engine.frozen == []
    assert len(everything(engine)) == n
    engine.close()


def test_closed_is_said_by_every_verb(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "c", FACTS)
    engine.write(rows_of([(1, document(1, 0))]))
    engine.close()
    engine.close()
    for call in (
        lambda: engine.get(encode(1)),
        lambda: engine.get_many(Texts.of([encode(1)])),
        lambda: engine.write(rows_of([(1, None)])),
        lambda: engine.lookup("n", encode(1), encode(1)),
        lambda: list(engine.scan()),
        lambda: engine.count(),
        lambda: engine.seal(),
        lambda: engine.add_index("x", "lazy"),
        lambda: engine.drop_index("n"),
        lambda: engine.backup(tmp_path / "copy"),
    ):
        with pytest.raises(Closed):
            call()


def test_what_is_acknowledged_is_on_disk_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), fsync(fd)))
    engine = open_engine(tmp_path / "c", FACTS, durability="disk")
    for n in range(3):
        before = len(synced)
        engine.write(rows_of([(n, document(n, 0))]))
        assert len(synced) > before
    engine.seal()
    engine.close()
    again = open_engine(tmp_path / "c", durability="disk")
    assert len(everything(again)) == 3
    again.close()


def test_a_log_that_is_shorter_than_at_the_last_close_was_damaged(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db:
        db.collection("c", key="id").put_many([{"id": n} for n in range(20)])
    [log] = (tmp_path / "data" / "collections").rglob("log-*.log")
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(Corruption, match="cut short") as found:
        tideline.open(tmp_path / "data")
    assert found.value.file == str(log)


def test_what_is_committed_after_the_end_changes_nothing(tmp_path: Path) -> None:
    """A drain that had begun before the close must not save a manifest without components."""
    engine = open_engine(tmp_path / "c", FACTS)
    engine.write(rows_of([(n, document(n, 0)) for n in range(200)]))
    engine.seal()
    engine.dataset._changed = True  # somebody is about to say what there is
    engine.close()
    for late in (engine.dataset.commit, engine.dataset._after_drain, engine.dataset.tidy):
        with pytest.raises(Closed, match="the database was closed"):
            late()
    again = open_engine(tmp_path / "c")
    assert len(everything(again)) == 200
    again.close()


def test_a_drain_beside_a_close_loses_nothing(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "c", FACTS)
    written = 0

    def seal() -> None:
        with contextlib.suppress(Closed):
            while True:
                engine.seal()

    sealers = [threading.Thread(target=seal) for _ in range(2)]
    for sealer in sealers:
        sealer.start()
    for n in range(300):
        engine.write(rows_of([(n, document(n, 0))]))
        written += 1
    engine.close()
    for sealer in sealers:
        sealer.join()
    again = open_engine(tmp_path / "c")
    assert len(everything(again)) == written
    again.close()
