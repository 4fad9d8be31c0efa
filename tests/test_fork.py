"""A database belongs to the process that opened it: a forked child gets `Closed`, harms nothing."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline
from tideline.errors import Closed, Unavailable

GUARD_S = 120


def in_child(work: Callable[[], Any], *, leave: Callable[[int], Any] = os._exit) -> int:
    """Run something in a forked child; how that ended. One that hangs is killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            leave(status)
    deadline = time.monotonic() + GUARD_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child hung")


def verbs(db: Any, channel: Any, poll: Any, collection: Any, handle: Any) -> dict[str, Any]:
    """Everything a user can call on what was inherited."""
    table = pa.table({"op": ["publish"], "place": ["a"], "body": ["1"]})

    async def one() -> None:
        async for _ in handle:
            return

    def wait() -> None:
        import asyncio

        asyncio.run(one())

    return {
        "channel": lambda: db.channel("new"), "channels": db.channels,
        "drop_channel": lambda: db.drop_channel("c"),
        "collection": lambda: db.collection("other", key="k"), "collections": db.collections,
        "drop_collection": lambda: db.drop_collection("d"), "stats": db.stats, "check": db.check,
        "backup": lambda: db.backup(Path(db.path).parent / "from child"), "close": db.close,
        "publish": lambda: channel.publish("a", 1),
        "subscribe": lambda: channel.subscribe("a", user="v"),
        "cancel": lambda: channel.cancel("s"),
        "prolong": lambda: channel.prolong("s", until_s=900),
        "find": lambda: channel.find("a"),
        "subscriptions": lambda: list(channel.subscriptions()),
        "subscription": lambda: channel.subscription("s"),
        "resume": lambda: channel.resume("s"), "apply": lambda: channel.apply(table),
        "landed": lambda: channel.landed("w", 1),
        "scan": lambda: list(channel.scan("events")),
        "position": channel.position, "earliest": channel.earliest,
        "journal": lambda: channel.journal("events"),
        "channel stats": channel.stats, "seal": channel.seal, "maintain": channel.maintain,
        "poll publish": lambda: poll.publish("a", 1),
        "poll subscribe": lambda: poll.subscribe("a", user="v"),
        "take": handle.take, "handle cancel": handle.cancel, "iterate": lambda: next(iter(handle)),
        "async": wait,
        "put": lambda: collection.put({"k": 2}),
        "put_many": lambda: collection.put_many([{"k": 2}]),
        "delete": lambda: collection.delete(1), "get": lambda: collection.get(1),
        "get_many": lambda: collection.get_many([1]),
        "lookup": lambda: collection.lookup("n", 1),
        "range_lookup": lambda: collection.range_lookup("n", 0, 9),
        "documents": lambda: list(collection.find({"n": 1})), "count": lambda: collection.count(),
        "documents scan": lambda: list(collection.scan()),
        "create_index": lambda: collection.create_index("m", "lazy"),
        "drop_index": lambda: collection.drop_index("n"), "collection stats": collection.stats,
        "changes": collection.changes, "earliest change": collection.earliest,
        "position of changes": collection.position,
    }  # fmt: skip


@pytest.mark.parametrize("memory", [False, True], ids=["folder", "memory"])
def test_every_verb_of_a_forked_child_is_refused_with_the_way_out(
    tmp_path: Path, memory: bool
) -> None:
    with tideline.open(":memory:" if memory else tmp_path / "data", memory_mb=16) as db:
        channel = db.channel("c", **({} if memory else {"journal_s": 60}))
        poll = db.channel("p", layout="poll")
        collection = db.collection("d", key="k", indexes={"n": "lazy"})
        handle = channel.subscribe("a", user="u", id="s", until_s=600)
        polling = poll.subscribe("a", user="u", until_s=600)
        channel.publish("a", 1, id="e1", ttl_s=600)
        channel.seal()
        channel.publish("a", 2, id="e2", ttl_s=600)
        changes = collection.changes(before=True)
        collection.put({"k": 1, "n": 1})
        collection.put_many([{"k": 3, "n": 1}, {"k": 3, "n": 2}, {"k": 4}])
        assert [change.seq for change in changes.take(limit=2)] == [1, 2]
        collection.get(1)

        async def change() -> None:
            await changes.__anext__()

        def child() -> None:
            import asyncio

            every = verbs(db, channel, poll, collection, handle)
            every |= {"poll take": polling.take, "poll iterate": lambda: next(iter(polling))}
            every |= {"take changes": changes.take, "next change": lambda: next(changes)}
            every |= {"async change": lambda: asyncio.run(change())}
            for name, verb in every.items():
                print(name, file=sys.stderr, flush=True)
                with pytest.raises(Closed, match=r"forked.*'spawn'"):
                    verb()

        assert in_child(child) == 0
        # The parent goes on as if nothing had been.
        assert [event.id for event in handle.take()] == ["e1", "e2"]
        channel.publish("a", 3, id="e3", ttl_s=600)
        channel.seal()
        collection.put({"k": 2, "n": 2})
        assert [event.id for event in handle.take()] == ["e3"]
        tokens = [event.token for event in channel.find("a")]
        assert len(set(tokens)) == len(tokens) == 3
        assert collection.count() == 4
        assert [change.seq for change in changes.take()] == [3, 4, 5]
        if not memory:
            db.check()
            assert not (tmp_path / "from child").exists()
    if not memory:
        with tideline.open(tmp_path / "data") as db:
            assert [event.id for event in db.channel("c").find("a")] == ["e3", "e2", "e1"]
            db.check()


def test_a_child_that_ends_as_programs_do_touches_nothing_of_the_parents(tmp_path: Path) -> None:
    """By sys.exit with everything that runs then, out of a with block, after garbage collection."""
    with tideline.open(":memory:") as inner, tideline.open(tmp_path / "data") as db:
        channel = db.channel("c")
        handle = channel.subscribe("a", user="u", until_s=600)
        inner.channel("m").publish("a", 1, id="e")
        script = os.fork()
        if script == 0:
            status = 1
            try:
                with db, inner:
                    pass
                del channel, handle
                gc.collect()
                # What the interpreter does at the end, without pytest's own.
                inner._temporary._finalizer()  # type: ignore[union-attr, attr-defined]
                threading._shutdown()  # type: ignore[attr-defined]
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(script, 0)[1] == 0
        assert inner.path.exists()
        inner.channel("m").seal()
        assert [event.id for event in inner.channel("m").find("a")] == ["e"]
        channel.publish("a", 1, id="e1", ttl_s=600)
        assert [event.id for event in handle.take()] == ["e1"]
        with pytest.raises(Unavailable, match="this process has the folder open already"):
            tideline.open(tmp_path / "data")  # the lock is held as before
        db.check()


def test_a_child_that_lives_longer_does_not_keep_the_folder(tmp_path: Path) -> None:
    read, write = os.pipe()
    db = tideline.open(tmp_path / "data")
    db.channel("c").publish("a", 1, id="e1", ttl_s=600)
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until the parent has done
        os._exit(0)
    try:
        db.close()
        with tideline.open(tmp_path / "data") as db:
            assert [event.id for event in db.channel("c").find("a")] == ["e1"]
    finally:
        os.close(write)
        os.waitpid(child, 0)
        os.close(read)


def test_a_child_may_open_the_folder_that_the_parent_has_closed(tmp_path: Path) -> None:
    db = tideline.open(tmp_path / "data")
    db.channel("c").publish("a", 1, id="e1", ttl_s=600)
    db.close()

    def child() -> None:
        with tideline.open(tmp_path / "data") as mine:
            mine.channel("c").publish("a", 2, id="e2", ttl_s=600)
            mine.channel("c").seal()

    assert in_child(child) == 0
    with tideline.open(tmp_path / "data") as db:
        assert [event.id for event in db.channel("c").find("a")] == ["e2", "e1"]
        db.check()


def _publish(channel: Any, results: Any) -> None:
    try:
        channel.publish("a", 1, ttl_s=600)
        results.put("stored")
    except Closed as error:
        results.put(str(error))


def test_processes_of_multiprocessing_are_refused_too(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with tideline.open(tmp_path / "data") as db:
        channel = db.channel("c")
        results = context.SimpleQueue()
        process = context.Process(target=_publish, args=(channel, results))
        process.start()
        process.join(GUARD_S)
        assert process.exitcode == 0
        assert "forked" in results.get()
        assert channel.find("a") == []


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_forks_under_fire_neither_hang_nor_harm(tmp_path: Path, durability: str) -> None:
    """Other threads hold every lock at some fork: no child waits for one of them."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            n = 0
            while not stop.is_set():
                n += 1
                channel.publish("a", n, id=f"{number}-{n}", ttl_s=600)
                collection.put({"k": n, "by": number})
                if n % 50 == 0:
                    channel.seal()
                    db.stats()
        except BaseException as error:
            errors.append(error)

    def child() -> None:
        for verb in (
            lambda: channel.publish("a", 0), channel.seal, channel.stats, handle.take,
            lambda: next(iter(handle)), lambda: collection.put({"k": 1}), db.stats, db.check,
            db.close,
        ):  # fmt: skip
            with pytest.raises(Closed):
                verb()

    with tideline.open(tmp_path / "data", memory_mb=16, durability=durability) as db:
        channel, collection = db.channel("c"), db.collection("d", key="k")
        handle = channel.subscribe("a", user="u", until_s=600)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(30):
                assert in_child(child) == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert errors == []
        found = channel.find("a")
        assert len({event.token for event in found}) == len(found)
        db.check()
    with tideline.open(tmp_path / "data") as db:
        assert len(db.channel("c").find("a")) == len(found)
        db.check()
