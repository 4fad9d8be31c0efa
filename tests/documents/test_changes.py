"""Promises of the change feed, one test each, on real folders; the model is in the machine."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from interrupting import Thrower

import tideline
from tideline.documents import feed as feed_module
from tideline.errors import Closed, Corruption, InvalidRequest, Unavailable
from tideline.lsm import nulllog
from tideline.lsm.manifest import Manifest
from tideline.lsm.store import FORMAT
from tideline.testing import ManualClock

GUARD_S = 120
HERE = Path(__file__).resolve().parent


@pytest.fixture(params=["folder", "memory", "disk"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tideline.Database]:
    where = ":memory:" if request.param == "memory" else tmp_path / "data"
    with tideline.open(where, durability="disk" if request.param == "disk" else "os") as opened:
        yield opened


def told(changes: list[tideline.Change]) -> list[tuple[int, Any, Any]]:
    return [(change.seq, change.key, change.after) for change in changes]


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Run something in a thread; the function that is returned waits for what came of it."""
    out: list[Any] = []

    def run() -> None:
        try:
            out.append(work())
        except BaseException as error:
            out.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> Any:
        thread.join(GUARD_S)
        assert not thread.is_alive(), "it still waits"
        if isinstance(out[0], BaseException):
            raise out[0]
        return out[0]

    return result


def until_waiting(collection: Any, count: int = 1) -> None:
    """Until so many wait for a change."""
    while len(collection._engine.feed.bells) < count:
        threading.Event().wait(0.001)


# ---- what comes, in which order ------------------------------------------------------------------


def test_every_write_is_a_change_with_what_was_before_and_after(db: tideline.Database) -> None:
    cars = db.collection("cars", key="id")
    cars.put({"id": "a", "n": 0})
    changes = cars.changes(before=True)
    cars.put({"id": "a", "n": 1})
    cars.put_many([{"id": "b"}, {"id": "b", "n": 2}, {"id": 7}])
    cars.delete("a")
    cars.delete("never there")
    found = [(c.seq, c.key, c.before, c.after, c.is_delete) for c in changes.take()]
    assert found == [
        (2, "a", {"id": "a", "n": 0}, {"id": "a", "n": 1}, False),
        (3, "b", None, {"id": "b"}, False),
        (4, "b", {"id": "b"}, {"id": "b", "n": 2}, False),
        (5, 7, None, {"id": 7}, False),
        (6, "a", {"id": "a", "n": 1}, None, True),
        (7, "never there", None, None, True),
    ]
    assert changes.seq == cars.position() == 7


def test_who_follows_from_a_seq_gets_what_comes_after_it(db: tideline.Database) -> None:
    cars = db.collection("cars", key="id")
    first = cars.changes()
    cars.put_many([{"id": n} for n in range(5)])
    cars.put({"id": 9})
    for after in range(7):
        assert [c.seq for c in cars.changes(after=after).take()] == list(range(after + 1, 7))
    assert [c.seq for c in first.take(limit=2)] == [1, 2]
    assert [c.seq for c in first.take(limit=3)] == [3, 4, 5]
    assert [c.seq for c in first.take()] == [6]
    assert first.take() == []
    with pytest.raises(InvalidRequest, match="later than the newest change"):
        cars.changes(after=7)


def test_iteration_waits_for_the_next_change(db: tideline.Database) -> None:
    cars = db.collection("cars", key="id")
    handles = [cars.changes() for _ in range(3)]
    waiting = [in_thread(lambda h=h: [next(h).key for _ in range(4)]) for h in handles]
    until_waiting(cars, 3)
    cars.put({"id": 1})
    cars.put_many([{"id": 2}, {"id": 3}])
    until_waiting(cars, 3)
    cars.put({"id": 4})
    assert [result() for result in waiting] == [[1, 2, 3, 4]] * 3


def test_many_wait_in_an_event_loop_without_a_thread(db: tideline.Database) -> None:
    cars = db.collection("cars", key="id")

    async def follow(changes: tideline.Changes) -> list[Any]:
        found = []
        async for change in changes:
            found.append(change.key)
            if len(found) == 3:
                break
        return found

    async def run() -> list[list[Any]]:
        tasks = [asyncio.create_task(follow(cars.changes())) for _ in range(200)]
        while len(cars._engine.feed.bells) < 200:
            await asyncio.sleep(0)
        threads = threading.active_count()
        await asyncio.to_thread(cars.put, {"id": 1})
        while len(cars._engine.feed.bells) < 200:
            await asyncio.sleep(0)
        assert threading.active_count() <= threads + 1  # the one that wrote
        await asyncio.to_thread(cars.put_many, [{"id": 2}, {"id": 3}])
        return await asyncio.gather(*tasks)

    assert asyncio.run(run()) == [[1, 2, 3]] * 200


def test_take_waits_as_long_as_it_is_told_by_the_clock(tmp_path: Path) -> None:
    clock = ManualClock(100)
    with tideline.open(tmp_path / "d", clock=clock) as db:
        cars = db.collection("cars", key="id")
        changes = cars.changes()
        result = in_thread(lambda: changes.take(timeout_s=5))
        until_waiting(cars)
        clock.advance(6)
        assert result() == []
        result = in_thread(lambda: changes.take(timeout_s=5))
        until_waiting(cars)
        cars.put({"id": 1})
        assert told(result()) == [(1, 1, {"id": 1})]


def test_old_versions_that_were_not_asked_for_are_refused_not_guessed(
    db: tideline.Database,
) -> None:
    cars = db.collection("cars", key="id")
    changes = cars.changes()
    cars.put({"id": 1})
    change = next(changes)
    assert repr(change) == "Change(seq=1, key=1, after={'id': 1})"
    with pytest.raises(InvalidRequest, match="before=True"):
        change.before  # noqa: B018


def test_a_change_that_was_seen_is_found_in_the_collection(tmp_path: Path) -> None:
    """Two threads write, followers come in the middle: no gap, no repeat, nothing seen early."""
    with tideline.open(tmp_path / "d", memory_mb=2) as db:
        cars = db.collection("cars", key="id", indexes={"n": "lazy"})
        each, total = 400, 2 * 400 * 3

        def write(half: int) -> None:
            chosen = random.Random(half)
            for n in range(each):
                key = chosen.randrange(50)
                cars.put({"id": key, "n": n, "pad": "p" * chosen.randrange(3000)})
                cars.put_many([{"id": half * 1000 + n, "n": n}, {"id": key, "n": -n}])

        def follow(before: bool) -> None:
            with cars.changes(before=before) as changes:
                seq, known = changes.seq, {}
                for change in changes:
                    seq += 1
                    assert change.seq == seq
                    if before and change.key in known:
                        assert change.before == known[change.key]
                    known[change.key] = change.after
                    if seq % 50 == 0:
                        assert cars.get(change.key) is not None
                    if seq == total:
                        return

        writers = [in_thread(lambda half=half: write(half)) for half in (1, 2)]
        followers = []
        for n in range(6):
            followers.append(in_thread(lambda before=n % 2 == 0: follow(before)))
            while cars.position() < n * total // 8:
                threading.Event().wait(0.001)
        for result in (*writers, *followers):
            result()
        assert cars._engine.feed._followers == {}


# ---- the end -------------------------------------------------------------------------------------


def test_closing_a_handle_ends_who_waits_for_it(db: tideline.Database) -> None:
    cars = db.collection("cars", key="id")
    with cars.changes() as changes:
        result = in_thread(lambda: list(changes))
        until_waiting(cars)
    assert result() == []
    changes.close()
    with pytest.raises(Closed, match="the feed was closed"):
        changes.take()
    assert list(changes) == []

    async def none() -> list[Any]:
        return [change async for change in changes]

    assert asyncio.run(none()) == []


def test_closing_the_database_ends_who_waits_with_closed(tmp_path: Path) -> None:
    db = tideline.open(tmp_path / "d")
    cars = db.collection("cars", key="id")
    changes = cars.changes()
    results = [in_thread(lambda: next(changes)), in_thread(lambda: changes.take(timeout_s=1000))]

    async def first() -> Any:
        return await cars.changes().__anext__()

    results.append(in_thread(lambda: asyncio.run(first())))
    until_waiting(cars, 3)
    db.close()
    for result in results:
        with pytest.raises(Closed, match="the database was closed"):
            result()
    with pytest.raises(Closed):
        cars.changes()


def test_a_dropped_collection_ends_its_feeds(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        changes = db.collection("cars", key="id").changes()
        result = in_thread(lambda: next(changes))
        until_waiting(db.collection("cars"))
        db.drop_collection("cars")
        with pytest.raises(Closed, match="the collection was dropped"):
            result()
        with pytest.raises(Closed, match="the collection was dropped"):
            changes.take()


# ---- what is kept --------------------------------------------------------------------------------


def seal_after(collection: Any, *keys: int) -> None:
    for key in keys:
        collection.put({"id": key, "pad": "p" * 300})
    collection._engine.seal()


def test_without_a_journal_only_what_recovery_needs_is_kept(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id")
        seal_after(cars, 1, 2)
        cars.put({"id": 3})
        assert cars.earliest() == 2
        with pytest.raises(Unavailable, match="not kept any more") as refused:
            cars.changes(after=0)
        assert refused.value.values["earliest"] == 2
        assert [c.seq for c in cars.changes(after=2).take()] == [3]


def test_a_journal_keeps_changes_as_long_as_it_says_over_restarts(tmp_path: Path) -> None:
    clock = ManualClock(1000)

    def reopened() -> tuple[tideline.Database, tideline.Collection]:
        db = tideline.open(tmp_path / "d", clock=clock)
        return db, db.collection("cars")

    with tideline.open(tmp_path / "d", clock=clock) as db:
        cars = db.collection("cars", key="id", journal_s=60)
        seal_after(cars, 1, 2)
        clock.advance(50)
        seal_after(cars, 3)
    db, cars = reopened()
    assert [c.seq for c in cars.changes(after=0).take()] == [1, 2, 3]
    clock.advance(11)  # the first segment ended 61 s ago, the second 11
    db.close()
    db, cars = reopened()
    assert cars.earliest() == 2
    assert [c.key for c in cars.changes(after=2).take()] == [3]
    db.collection("cars", journal_s=0)  # another value changes it
    cars._engine.drain()
    assert cars.earliest() == 3
    db.close()
    db, cars = reopened()
    seal_after(cars, 4)
    assert cars.earliest() == 4
    db.close()


def test_what_a_follower_needs_is_kept_while_it_is_held(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id")
        changes = cars.changes()
        for n in range(1, 6):
            seal_after(cars, n)
        assert [c.key for c in changes.take(limit=2)] == [1, 2]
        seal_after(cars, 6)
        assert cars.earliest() in (1, 2)
        assert [c.key for c in changes.take()] == [3, 4, 5, 6]
        del changes  # nobody holds it any more
        seal_after(cars, 7)
        assert cars.earliest() == 7


@pytest.mark.parametrize("begun", [False, True], ids=["at the begin", "in the middle"])
def test_a_follower_that_falls_too_far_behind_is_told(
    begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "FOLLOWED_BYTES", 2_000)
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id")
        changes = cars.changes()
        seal_after(cars, 1)
        if begun:
            assert next(changes).seq == 1
        for n in range(2, 30):
            seal_after(cars, n)
        with pytest.raises(Unavailable, match="not kept any more") as refused:
            list(iter(lambda: next(changes), None))
        earliest = refused.value.values["earliest"]
        assert 20 < earliest < 29
        assert [c.seq for c in cars.changes(after=earliest).take()] == list(range(earliest + 1, 30))


def test_in_memory_the_newest_64_mib_are_kept_for_followers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nulllog, "KEPT_BYTES", 2_000)
    with tideline.open(":memory:") as db:
        cars = db.collection("cars", key="id")
        cars.put({"id": 0})
        with pytest.raises(Unavailable):
            cars.changes(after=0)  # nobody followed then
        slow, quick = cars.changes(), cars.changes()
        for n in range(30):
            cars.put({"id": n, "pad": "p" * 200})
            assert [c.key for c in quick.take()] == [n]
        with pytest.raises(Unavailable) as refused:
            slow.take()
        earliest = refused.value.values["earliest"]
        assert 20 < earliest < 31
        assert len(cars.changes(after=earliest).take()) == 31 - earliest
        slow.close()
        quick.close()
        cars.put({"id": 1})
        assert cars.earliest() == 32
        with pytest.raises(InvalidRequest, match="keeps no journal"):
            db.collection("cars", journal_s=5)


# ---- old versions --------------------------------------------------------------------------------


def test_old_versions_are_kept_from_when_somebody_asks(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id")
        cars.put({"id": 1, "n": 1})
        early = cars.changes(after=0, before=True)
        cars.put({"id": 1, "n": 2})
        with pytest.raises(Unavailable, match="journal_before=True") as refused:
            early.take()
        assert refused.value.values == {"seq": 1, "kept_after": 1}
        assert next(cars.changes(after=1, before=True)).before == {"id": 1, "n": 1}
        early.close()
        cars.changes(before=True)  # and goes at once
        cars.put({"id": 1, "n": 3})  # nobody asks any more
        with pytest.raises(Unavailable, match="was not kept"):
            cars.changes(after=2, before=True).take()


def test_journal_before_keeps_old_versions_over_a_restart(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id", journal_s=1e6)
        cars.put({"id": 1, "n": 0})
        db.collection("cars", journal_before=True)
        cars.put({"id": 1, "n": 1})
        seal_after(cars, 2)
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars")
        cars.put({"id": 1, "n": 2})
        befores = [c.before for c in cars.changes(after=1, before=True).take()]
        assert befores == [{"id": 1, "n": 0}, None, {"id": 1, "n": 1}]
        with pytest.raises(Unavailable) as refused:
            cars.changes(after=0, before=True).take()
        assert refused.value.values == {"seq": 1, "kept_after": 1}
        db.collection("cars", journal_before=False)
        cars.put({"id": 1, "n": 3})
        with pytest.raises(Unavailable):
            cars.changes(after=4, before=True).take()
        assert db.check().collections == 1


def test_many_large_old_versions_are_several_frames(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id")
        for n in range(40):
            cars.put({"id": n, "pad": "p" * (1 << 20)})
        changes = cars.changes(before=True)
        frames = cars._engine.store.log.frames
        cars.delete_many(range(40))
        assert 1 < cars._engine.store.log.frames - frames < 5
        found = [len((c.before or {})["pad"]) for c in changes.take()]
        assert found == [1 << 20] * 40
        assert cars.count() == 0


def test_the_format_before_is_opened_and_old_versions_are_added(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        db.collection("cars", key="id").put({"id": 1})
    manifest = Manifest(tmp_path / "d" / "collections" / "0001" / "MANIFEST")
    stored = manifest.load()
    assert stored is not None
    for name in ("journal_us", "journal_before", "old_from", "log_ends"):
        del stored["facts"][name]
    manifest.save({**stored, "format": 5})
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", journal_before=True)
        cars.put({"id": 1, "n": 1})
        assert [c.seq for c in cars.changes(after=0).take()] == [1, 2]
        assert next(cars.changes(after=1, before=True)).before == {"id": 1}
        loaded = manifest.load()
        assert loaded is not None
        assert loaded["format"] == FORMAT


# ---- reading the log -----------------------------------------------------------------------------


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "collections" / "0001").glob("log-*.log"))


def test_finding_a_seq_reads_no_segment_that_has_not_got_it(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id", journal_s=1e6)
        for n in range(5):
            seal_after(cars, 3 * n, 3 * n + 1, 3 * n + 2)
        for path in segments(tmp_path / "d")[:3]:
            path.write_bytes(b"not a log any more")
        assert [c.seq for c in cars.changes(after=10).take()] == [11, 12, 13, 14, 15]


def test_finding_a_seq_again_begins_where_the_last_search_was(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id")
        for n in range(1500):
            cars.put({"id": n})
        for after in (1499, 0, 700, 511, 512, 513, 1023, 1024, 1200):
            assert next(cars.changes(after=after)).seq == after + 1
        assert [seq for seq, _ in cars._engine.feed._notes] == [512, 1024]


@pytest.mark.parametrize("where", [40, -3], ids=["a head", "a document"])
def test_a_damaged_log_is_corruption_not_a_wrong_change(where: int, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id")
        cars.put({"id": 1, "text": "x" * 50})
        (path,) = segments(tmp_path / "d")
        data = bytearray(path.read_bytes())
        data[where] ^= 1
        path.write_bytes(data)
        with pytest.raises(Corruption) as refused:
            cars.changes(after=0).take()
        assert refused.value.file == str(path)


def test_a_batch_is_read_in_place(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id")
        handles = [cars.changes() for _ in range(4)]
        cars.put_many([{"id": n, "pad": "p" * 1500} for n in range(10_000)])
        tracemalloc.start()
        parts = [changes._follower.take_part() for changes in handles]
        taken = [change for changes in handles for change in changes.take()]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert [part.rows.count for part in parts if part] == [10_000] * 4
        assert taken == []
        assert peak < 4 << 20, "15 MB of documents were copied"


# ---- kills and interrupts ------------------------------------------------------------------------

WRITER = """
import random, sys, tideline
db = tideline.open(sys.argv[1], memory_mb=1)
cars = db.collection("cars", key="id", journal_s=1e6, journal_before=True, indexes={"n": "lazy"})
chosen = random.Random(int(sys.argv[2]))
print("ready", flush=True)
while True:
    some = [{"id": chosen.randrange(100), "n": chosen.random(), "pad": "p" * 400}
            for _ in range(chosen.randint(1, 60))]
    cars.put_many(some) if len(some) > 1 else cars.delete(some[0]["id"])
    print(cars.position(), flush=True)
"""


def test_after_kills_the_feed_is_whole_and_gives_the_collection(tmp_path: Path) -> None:
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    moments = random.Random("kill a writer")
    for turn in range(3):
        process = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "d"), str(turn)],
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src")},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(moments.randint(100, 400)):
                acknowledged = process.stdout.readline()
        finally:
            process.kill()
            process.communicate()
        with tideline.open(tmp_path / "d") as db:
            cars = db.collection("cars")
            documents: dict[Any, Any] = {}
            changes = cars.changes(after=0, before=True).take()
            for seq, change in enumerate(changes, start=1):
                assert change.seq == seq
                assert change.before == documents.pop(change.key, None)
                if change.after is not None:
                    documents[change.key] = change.after
            assert len(changes) == cars.position() >= int(acknowledged)
            stored = {
                msgspec.json.decode(row["key"]): msgspec.json.decode(row["document"])
                for batch in cars.scan() for row in batch.to_pylist()
            }  # fmt: skip
            assert documents == stored


@pytest.mark.parametrize("kind", ["line", "call"])
def test_a_take_that_is_interrupted_hands_out_the_same_again(kind: str, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id")
        changes = cars.changes(before=True)
        n = written = late = 0
        hit = True
        while hit:
            n += 1
            cars.put({"id": 1, "n": n})
            cars.put_many([{"id": 2, "n": n}, {"id": 2, "n": -n}])
            if n % 7 == 0:
                cars._engine.seal()  # the next frame is in another segment
            thrower = Thrower(kind, n)
            found: list[Any] = []
            with thrower:
                found = changes.take()
            hit = thrower.hit
            if hit and changes.seq == written + 3:  # cut on the way back: `seq` tells
                late, written = late + 1, written + 3
                continue
            found = found or changes.take()
            assert [c.seq for c in found] == [written + 1, written + 2, written + 3]
            assert [c.after["n"] for c in found] == [n, n, -n]
            assert found[2].before == {"id": 2, "n": n}
            written += 3
        assert n > 30
        assert late < 6, "only the way back is too late"


@pytest.mark.parametrize("kind", ["line", "call"])
def test_a_write_that_is_interrupted_is_told_whole_or_not_at_all(kind: str, tmp_path: Path) -> None:
    with tideline.open(tmp_path / "d") as db:
        cars = db.collection("cars", key="id", indexes={"n": "lazy"})
        changes = cars.changes(before=True)
        state: dict[Any, Any] = {}
        n = 0
        hit = True
        while hit:
            n += 1
            thrower = Thrower(kind, n)
            with thrower:
                cars.put_many([{"id": 1, "n": n}, {"id": 1, "n": -n}, {"id": 2, "n": n}])
            hit = thrower.hit
            found = changes.take()
            assert len(found) in (0, 3) if hit else len(found) == 3
            for change in found:
                assert change.before == state.get(change.key)
                state[change.key] = change.after
            assert cars.get_many([1, 2]) == [state.get(1), state.get(2)]
        assert n > 30
        assert changes.seq == cars.position()
