"""Many calls on few connections: each gets its own answer, whoever gives up, whatever breaks.

Real servers and sockets; `GUARD_S` only turns a hang into a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ports import free_port

import tideline
from tideline.aclient import connection
from tideline.aclient.connection import Pool
from tideline.aclient.http import AsyncHttp
from tideline.errors import Closed, Unauthorized, Unavailable
from tideline.server import running
from tideline.server.tokens import Tokens

CLIENT = Path(__file__).resolve().parents[1] / "client"
sys.path.insert(0, str(CLIENT))

from proxy import Proxy  # noqa: E402

GUARD_S = 120.0


def run(story: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(story, GUARD_S))


def connections(db: Any) -> int:
    pool: Pool = db._http._pool
    return len(pool._connections)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[tideline.Database, str]]:
    with tideline.open(tmp_path / "data") as db, running(db) as url:
        yield db, url


def test_a_thousand_calls_at_once_get_their_own_answers_on_a_few_connections(
    served: tuple[tideline.Database, str],
) -> None:
    async def story(url: str) -> None:
        async with await tideline.aconnect(url) as db:
            cars = await db.collection("cars", key="id")
            await cars.put_many([{"id": n, "text": "x" * (n % 300)} for n in range(1_000)])
            found = await asyncio.gather(*(cars.get(n) for n in range(1_000)))
            assert found == [{"id": n, "text": "x" * (n % 300)} for n in range(1_000)]
            updated = [cars.update(n, {"$set": {"by": n}}) for n in range(1_000)]
            assert [one["by"] for one in await asyncio.gather(*updated)] == list(range(1_000))
            roads = await db.channel("roads")
            sub = await roads.subscribe("a", user="u")
            told = await asyncio.gather(*(roads.publish("a", {"n": n}) for n in range(1_000)))
            assert {one.event.body["n"] for one in told} == set(range(1_000))
            assert {event.body["n"] for event in await sub.take()} == set(range(1_000))
            assert connections(db) <= 64
            assert "tideline-live" not in [one.name for one in threading.enumerate()]

    run(story(served[1]))


def test_whoever_is_cancelled_leaves_nobody_with_the_wrong_answer(
    served: tuple[tideline.Database, str],
) -> None:
    async def story(url: str) -> None:
        rng = random.Random(7)
        async with await tideline.aconnect(url) as db:
            cars = await db.collection("cars", key="id")
            roads = await db.channel("roads")
            await cars.put_many([{"id": n} for n in range(500)])
            sub = await roads.subscribe("a", user="u")
            for _ in range(15):
                calls: list[Coroutine[Any, Any, Any]] = [
                    cars.get(n) if n % 3 else roads.publish("b", {"n": n}) if n % 2 else sub.take()
                    for n in range(100)
                ]
                tasks = [asyncio.create_task(call) for call in calls]
                for task in rng.sample(tasks, 40):
                    if rng.random() < 0.3:
                        await asyncio.sleep(rng.random() * 0.002)
                    task.cancel()
                done = await asyncio.gather(*tasks, return_exceptions=True)
                for n, one in enumerate(done):
                    if isinstance(one, asyncio.CancelledError):
                        continue
                    if n % 3:
                        assert one == {"id": n}
                    elif n % 2:
                        assert one.event.body == {"n": n}
                    else:
                        assert one == []
            assert await cars.get(7) == {"id": 7}
            assert (await roads.publish("a", {"n": 1})).subscriptions
            assert [event.body for event in await sub.take()] == [{"n": 1}]

    run(story(served[1]))


class Scripted:
    """An HTTP server that answers with the path of a request, and fails as it is told to."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.done: list[str] = []
        """The requests that were carried out."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ")[1].decode()
                length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                fate = self._rng.random()
                if fate < 0.03:
                    break  # before it was carried out
                self.done.append(path)
                body = json.dumps(path).encode()
                closes = b"Connection: close\r\n" if fate > 0.95 else b""
                answer = (
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bContent-Length: %d"
                    b"\r\n\r\n%b" % (closes, len(body), body)
                )
                if fate < 0.08:
                    writer.write(answer[: self._rng.randrange(len(answer))])  # cut in the answer
                    break
                middle = self._rng.randrange(len(answer))
                writer.write(answer[:middle])
                if fate < 0.3:
                    await writer.drain()
                    await asyncio.sleep(0)
                writer.write(answer[middle:])
                if closes:
                    break


Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def answered_by(answer: Answering) -> AsyncIterator[AsyncHttp]:
    """A client of a server in this loop; afterwards the loop has no socket of either."""
    connections: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await answer(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    http = AsyncHttp(f"http://127.0.0.1:{port}", None, GUARD_S, None)
    try:
        yield http
    finally:
        await http.close()
        server.close()
        for _ in range(4):  # whoever was accepted last is among them then
            await asyncio.sleep(0)
        await asyncio.gather(*connections)


@contextlib.asynccontextmanager
async def scripted(seed: int) -> AsyncIterator[tuple[Scripted, AsyncHttp]]:
    script = Scripted(random.Random(seed))
    async with answered_by(script) as http:
        yield script, http


@pytest.mark.parametrize("seed", range(8))
def test_connections_that_break_in_any_place_repeat_only_what_may_be_repeated(seed: int) -> None:
    async def story() -> None:
        async with scripted(seed) as (script, http):

            async def read(n: int) -> None:
                assert await http.ask_json("GET", "read", str(n)) == f"/read/{n}"

            async def write(n: int) -> str | None:
                try:
                    found = await http.ask_json("POST", "write", str(n), body=n, again=False)
                except Unavailable:
                    return None  # it may have landed
                assert found == f"/write/{n}"
                return str(found)

            calls = [write(n) if n % 2 else read(n) for n in range(300)]
            done = await asyncio.gather(*calls)
            written = [path for path in script.done if path.startswith("/write")]
            assert len(written) == len(set(written))  # none was carried out twice
            assert {path for path in done if path} <= set(written)

    run(story())


def test_a_slow_call_keeps_no_other_waiting() -> None:
    async def story() -> None:
        free = asyncio.Event()
        reached = 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal reached
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    if b"/slow" in head:
                        reached += 1
                        await free.wait()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")

        async with answered_by(answer) as http:
            slow = [asyncio.create_task(http.ask_json("GET", "slow")) for _ in range(8)]
            while reached < 8 or any(
                time.monotonic() - one.heard < connection._SLOW_S for one in http._pool._connections
            ):
                await asyncio.sleep(0.01)
            quick = [http.ask_json("GET", "quick") for _ in range(50)]
            assert await asyncio.gather(*quick) == [1] * 50
            assert not any(task.done() for task in slow)
            free.set()
            assert await asyncio.gather(*slow) == [1] * 8

    run(story())


def test_cut_connections_lose_no_event_and_no_change_under_async_for(tmp_path: Path) -> None:
    async def story(proxy: Proxy, written: tideline.Changes) -> None:
        async with await tideline.aconnect(proxy.url) as db:
            roads = await db.channel("roads")
            cars = await db.collection("cars", key="id")
            sub = await roads.subscribe("a", user="u")

            async def events() -> list[int]:
                got: list[int] = []
                async for event in sub:
                    got.append(event.body["n"])
                    if len(got) == 60:
                        break
                return got

            async def changes() -> list[Any]:
                got: list[Any] = []
                async for change in cars.changes(after=0):
                    got.append(change.key)
                    if len(got) == 60:
                        break
                return got

            readers = [asyncio.create_task(events()), asyncio.create_task(changes())]
            for n in range(60):
                await roads.publish("a", {"n": n}, id=f"e{n}")
                with contextlib.suppress(Unavailable):  # it may have landed
                    await cars.put({"id": n})
                if not await cars.get(n):
                    await cars.put({"id": n})
                if n % 10 == 5:
                    proxy.cut()
            assert await readers[0] == list(range(60))
            assert await readers[1] == [change.key for change in written.take(60)]

    with tideline.open(tmp_path / "data") as db, running(db) as url:
        port = urlsplit(url).port
        assert port is not None
        proxy = Proxy(port)
        try:
            run(story(proxy, db.collection("cars", key="id").changes(after=0)))
        finally:
            proxy.close()


def serving(folder: Path, port: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(CLIENT / "serving.py"), str(folder), str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(CLIENT.parents[1] / "src")},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    return process


def test_a_server_that_is_killed_and_started_again_is_resumed(tmp_path: Path) -> None:
    port = free_port()

    async def story(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
        async with await tideline.aconnect(f"http://127.0.0.1:{port}", timeout_s=GUARD_S) as db:
            roads = await db.channel("roads")
            cars = await db.collection("cars", key="id")
            sub = await roads.subscribe("a", user="u", until_s=3_600)
            events = aiter(sub)
            changes = cars.changes(after=0)
            for n in range(10):
                await roads.publish("a", {"n": n})
                await cars.put({"id": n})
            for n in range(5):
                assert (await anext(events)).body["n"] == n
                assert (await anext(changes)).key == n
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            process = await asyncio.to_thread(serving, tmp_path / "data", port)
            for n in range(5, 10):
                assert (await anext(events)).body["n"] == n
                assert (await anext(changes)).key == n
            assert await sub.take() == []
            assert await changes.take() == []
            assert (await cars.count(), changes.seq) == (10, 10)
        return process

    process = serving(tmp_path / "data", port)
    try:
        process = run(story(process))
    finally:
        process.kill()
        process.communicate()


def test_a_client_that_publishes_often_does_so_on_its_live_connection(
    served: tuple[tideline.Database, str],
) -> None:
    async def story(url: str) -> None:
        async with await tideline.aconnect(url) as db:
            roads = await db.channel("roads")
            await roads.publish("a", {"n": 0})
            assert db._live._task is None
            n = 1
            while db._live._socket is None:
                await roads.publish("a", {"n": n})
                n += 1
            assert n >= 100
            await asyncio.gather(*(roads.publish("a", {"n": n + more}) for more in range(100)))
            found = await roads.find("a")
            assert sorted(event.body["n"] for event in found) == list(range(n + 100))

    run(story(served[1]))


def test_a_closed_client_says_so_and_ends_what_waits(served: tuple[tideline.Database, str]) -> None:
    async def story(url: str) -> None:
        db = await tideline.aconnect(url)
        roads = await db.channel("roads")
        cars = await db.collection("cars", key="id")
        sub = await roads.subscribe("a", user="u")

        async def read(source: Any) -> list[Any]:
            return [one async for one in source]

        events = asyncio.create_task(read(sub))
        changes = asyncio.create_task(read(cars.changes(after=0)))
        await cars.put({"id": 1})
        await sub.take()
        await db.close()
        await db.close()
        assert await events == []
        with pytest.raises(Closed):
            await changes
        for call in (roads.publish("a", 1), cars.get(1), sub.take(), db.channels()):
            with pytest.raises(Closed):
                await call

    run(story(served[1]))


def test_errors_are_those_of_the_library(served: tuple[tideline.Database, str]) -> None:
    async def story(url: str, token: str) -> None:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await tideline.aconnect("http://127.0.0.1:1")
        with pytest.raises(tideline.InvalidRequest, match="the address must be"):
            await tideline.aconnect("ftp://127.0.0.1")
        with pytest.raises(Unauthorized):
            await tideline.aconnect(url, token="tl_wrong")
        async with await tideline.aconnect(url, token=token) as db:
            roads = await db.channel("roads")
            with pytest.raises(Unauthorized):
                await roads.publish("a", 1)
            with pytest.raises(Unauthorized):
                await roads.subscribe("a", user="u")

    db, _ = served
    db.channel("roads")
    token, _ = Tokens(db.path).create(["read"])
    with running(db) as url:
        run(story(url, token))


@pytest.mark.parametrize("where", ["folder", "server"])
def test_a_take_that_is_cancelled_leaves_what_there_is_for_the_next(
    served: tuple[tideline.Database, str], where: str
) -> None:
    async def main() -> None:
        folder = where == "folder"
        async with await (
            tideline.aopen(":memory:") if folder else tideline.aconnect(served[1])
        ) as db:
            roads = await db.channel("cancelled")
            cars = await db.collection("taken", key="id")
            sub = await roads.subscribe("a", user="u", until_s=900)
            changes = cars.changes()
            await changes.take()
            events: list[Any] = []
            written: list[Any] = []
            for n in range(60):
                await roads.publish("a", {"n": n}, ttl_s=900)
                await cars.put({"id": n})
                for take, into in ((sub.take, events), (changes.take, written)):
                    task = asyncio.ensure_future(take())
                    await asyncio.sleep(0)
                    if n % 2:
                        task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        into += await task
            while len(events) < 60:
                events += await sub.take(timeout_s=60)
            while len(written) < 60:
                written += await changes.take(timeout_s=60)
            assert [event.body["n"] for event in events] == list(range(60))
            assert [change.key for change in written] == list(range(60))
            assert changes.seq == written[-1].seq

    asyncio.run(main())
