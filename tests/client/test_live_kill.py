"""A server is killed while clients watch: they go on by themselves, without a gap."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import tideline
from tideline.client.kept import Kept, differences, key_reader
from tideline.errors import Closed, InvalidRequest, Unavailable
from tideline.server import running

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "live"))

from live_model import apply
from proxy import Proxy, proxied

SERVING = Path(__file__).with_name("serving.py")
KILLS, WRITES = 1, 150


class Killed:
    """A server process behind a proxy that stays when it is killed and made again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.proxy = Proxy(0)
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SERVING), str(self._folder), "0"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        port = urlsplit(self.process.stdout.readline().split()[1]).port
        assert port is not None
        self.proxy.target = port

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def close(self) -> None:
        self.kill()
        self.proxy.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Killed]:
    made = Killed(tmp_path / "data")
    try:
        yield made
    finally:
        made.close()


def test_watchers_of_a_killed_server_miss_nothing(served: Killed) -> None:
    """Each keeps a result by what it is told alone; in the end all have what `find` gives."""
    queries: list[dict[str, Any]] = [
        {}, {"sort": [("n", -1)], "limit": 5}, {"limit": 3, "offset": 2},
    ]  # fmt: skip
    with tideline.connect(served.proxy.url, timeout_s=60) as remote:
        orders = remote.collection("orders", key="id", journal_s=1e6, journal_before=True)
        lives = [orders.watch({"n": {"$gte": 0}}, **options) for options in queries]
        kept: list[list[Any]] = [[] for _ in queries]
        for turn in range(KILLS):
            for n in range(WRITES):
                for again in itertools.count():
                    try:
                        orders.put({"id": n % 20, "n": (n * 7 + turn) % 31 - 2})
                        break
                    except Unavailable:  # it may have landed: a write of the same does no harm
                        assert again < 100
                if n == WRITES // 2:
                    served.kill()
                    served.start()
                if n % 10 == 0:
                    for live, rows, options in zip(lives, kept, queries, strict=True):
                        for change in live.take(3):
                            apply(rows, change, bool(options))
        for live, rows, options in zip(lives, kept, queries, strict=True):
            for change in live.take():
                apply(rows, change, bool(options))
            found = dict(options)
            found["skip"] = found.pop("offset", 0)
            expected = orders.find({"n": {"$gte": 0}}, **found)
            assert live.result == rows == expected
            assert live.version == orders.position()
            assert not live.was_reset


def test_what_was_missed_and_is_not_kept_is_told_as_the_difference(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    proxy = Proxy(0)
    with contextlib.ExitStack() as stack:
        stack.callback(proxy.close)

        def serve() -> Any:
            inner = contextlib.ExitStack()
            db = inner.enter_context(tideline.open(folder))
            url = inner.enter_context(running(db, stop_s=0.2))
            proxy.target = urlsplit(url).port or 0
            return inner, db.collection("orders", key="id")

        inner, stored = serve()
        stored.put_many([{"id": n, "n": n} for n in range(6)])
        with tideline.connect(proxy.url, timeout_s=60) as remote:
            orders = remote.collection("orders")
            plain = orders.watch({"n": {"$lt": 100}})
            top = orders.watch(sort=[("n", -1)], limit=3)
            before = {one["id"]: one for one in plain.result}
            inner.close()
            with tideline.open(folder) as db:  # nobody follows: old versions are not written
                changed = db.collection("orders")
                changed.put({"id": 1, "n": 50})
                changed.put({"id": 2, "n": 200})
                changed.delete(3)
                changed.put({"id": 9, "n": 9})
            inner, stored = serve()
            stack.callback(inner.close)
            told = {(change.kind, change.key) for change in plain.take()}
            assert told == {("change", 1), ("remove", 2), ("remove", 3), ("add", 9)}
            assert plain.was_reset
            assert plain.result == stored.find({"n": {"$lt": 100}})
            same = next(one for one in plain.result if one["id"] == 5)
            assert same is before[5]  # what did not change is the same object
            top.take()
            assert top.result == stored.find(sort=[("n", -1)], limit=3)
            assert top.version == stored.position()


def test_groups_of_arrays_and_objects_have_their_text_as_keys(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        stored = db.collection("orders", key="id")
        values = [[1, 2], {"x": [1]}, [], "[]", True, 1, None]
        stored.put_many([{"id": n, "a": value} for n, value in enumerate(values)])
        with tideline.connect(url, timeout_s=60) as remote:
            orders = remote.collection("orders")
            for by in ("a", ["a", "b"]):
                near, far = (each.watch_groups(by=by, count=True) for each in (stored, orders))
                for n, value in enumerate(values):
                    stored.put({"id": 100 + n, "a": value})
                for n in range(len(values)):
                    stored.delete(100 + n)
                told = [[(one.kind, one.key) for one in live.take()] for live in (near, far)]
                assert told[0] == told[1]
                assert near.result == far.result
                assert not far.was_reset


def test_what_was_written_again_is_newer_in_a_difference() -> None:
    """As `find` has it: whoever applies the changes has the same order."""
    for after in itertools.permutations([{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4, "n": 1}], 3):
        old = Kept(key_reader("id"), False, [{"id": 3}, {"id": 2}, {"id": 1}, {"id": 4}], 7)
        new = Kept(key_reader("id"), False, list(after), 9)
        for change in list(differences(old, new)):
            old.apply(change)
        assert old.documents == new.documents
    assert list(differences(new, new.copy())) == []


def test_waits_end_and_wrong_calls_are_refused(tmp_path: Path) -> None:
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        stored = db.collection("orders", key="id")
        remote = tideline.connect(url)
        orders = remote.collection("orders")
        with orders.watch() as live:
            threading.Timer(0.05, lambda: stored.put({"id": 1})).start()
            assert [change.key for change in live.take(timeout_s=60)] == [1]
            assert live.take(timeout_s=0.01) == []
            for wrong in ({"limit": -1}, {"timeout_s": -1}):
                with pytest.raises(InvalidRequest):
                    live.take(**wrong)
            with pytest.raises(InvalidRequest, match="ttl_s"):
                live.prolong(ttl_s=0)
        with pytest.raises(Closed, match="the watch was cancelled"):
            live.take()
        for bad in (
            {"where": {"a": {"$nope": 1}}}, {"sort": []}, {"offset": -1}, {"offset": None},
            {"limit": "x"}, {"queue": 0}, {"first": 1}, {"ttl_s": -1}, {"where": object()},
        ):  # fmt: skip
            with pytest.raises(InvalidRequest):
                orders.watch(**bad)
        for by in ([], 5, {"shop": 1}, None):
            with pytest.raises(InvalidRequest, match="by must be a field, or a list"):
                orders.watch_groups(by=by)
        with pytest.raises(InvalidRequest, match="token"):
            orders.watch_again("nonsense")
        waiting = orders.watch()
        results: list[Any] = []

        def wait() -> None:
            try:
                results.append(list(waiting))
            except Closed as error:
                results.append(str(error))

        thread = threading.Thread(target=wait)
        thread.start()
        remote.close()
        thread.join(60)
        assert results == ["the connection to the server was closed"]


def test_tasks_share_a_handle_and_are_cancelled(tmp_path: Path) -> None:
    """Each change goes to one task, also when others that wait are cancelled."""

    async def main(url: str, stored: Any) -> None:
        async with await tideline.aconnect(url) as remote:
            orders = await remote.collection("orders")
            live = await orders.watch()
            got: list[int] = []

            async def read() -> None:
                async for change in live:
                    got.append(change.version)  # noqa: PERF401

            tasks = [asyncio.create_task(read()) for _ in range(3)]
            for n in range(60):
                await asyncio.to_thread(stored.put, {"id": n})
                if n in (20, 40):
                    tasks.pop().cancel()
            deadline = time.monotonic() + 60
            while len(got) < 60 and time.monotonic() < deadline:
                await asyncio.sleep(0.005)
            assert sorted(got) == list(range(1, 61))
            await live.cancel()
            await asyncio.gather(*tasks)

    with tideline.open(tmp_path / "data") as db, running(db) as url:
        asyncio.run(main(url, db.collection("orders", key="id")))


def test_time_goes_on_while_there_is_no_connection(tmp_path: Path) -> None:
    """A new connection gives a live query what is left of its time, not all of it again."""
    with (
        tideline.open(tmp_path / "data") as db,
        running(db) as url,
        proxied(urlsplit(url).port or 0) as proxy,
        tideline.connect(proxy.url, timeout_s=60) as remote,
    ):
        orders = remote.collection("orders", key="id")
        begun = time.monotonic()
        plain, longer, stays = (orders.watch(ttl_s=1000) for _ in range(3))
        longer.prolong(ttl_s=9000)
        stays.prolong(ttl_s=None)
        before = [plain.until, longer.until]
        way_s = time.monotonic() - begun
        time.sleep(0.5)
        begun = time.monotonic()
        proxy.cut()
        db.collection("orders").put({"id": 1})
        for live in (plain, longer, stays):
            assert [change.key for change in live.take()] == [1]
        after = [plain.until, longer.until]
        way_s += time.monotonic() - begun  # on a busy machine that counts, too
        for was, now in zip(before, after, strict=True):
            assert was is not None
            assert now is not None
            assert abs((now - was).total_seconds()) < max(0.4, way_s)
        assert stays.until is None


def test_time_goes_on_in_an_event_loop_too(tmp_path: Path) -> None:
    async def main(proxy: Proxy, stored: Any) -> None:
        async with await tideline.aconnect(proxy.url, timeout_s=60) as remote:
            orders = await remote.collection("orders")
            begun = time.monotonic()
            live = await orders.watch(ttl_s=1000)
            await live.prolong(ttl_s=9000)
            was = live.until
            way_s = time.monotonic() - begun
            await asyncio.sleep(0.5)
            begun = time.monotonic()
            proxy.cut()
            stored.put({"id": 1})
            assert [change.key for change in await live.take()] == [1]
            way_s += time.monotonic() - begun
            assert was is not None
            assert live.until is not None
            assert abs((live.until - was).total_seconds()) < max(0.4, way_s)

    with (
        tideline.open(tmp_path / "data") as db,
        running(db) as url,
        proxied(urlsplit(url).port or 0) as proxy,
    ):
        asyncio.run(main(proxy, db.collection("orders", key="id")))
