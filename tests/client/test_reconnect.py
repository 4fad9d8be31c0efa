"""Nothing missed, nothing twice: connections that are cut, servers that are killed.

Real sockets throughout: a proxy cuts connections at chosen bytes (proxy.py), a process is
killed and started again (serving.py). `GUARD_S` only turns a hang into a failure.
"""

from __future__ import annotations

import asyncio
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ports import free_port
from profiles import few
from proxy import Proxy, proxied

import tideline
from tideline.errors import Unavailable
from tideline.server import running
from tideline.testing import ManualClock

GUARD_S = 30.0
HERE = Path(__file__).resolve().parent


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


class Reader:
    """Iterates a subscription in a thread; `get(n)` waits for the next n events."""

    def __init__(self, sub: Any) -> None:
        self._got: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(sub,), daemon=True)
        self._thread.start()

    def _run(self, sub: Any) -> None:
        try:
            for event in sub:
                self._got.put(event.id)
            self._got.put(None)
        except BaseException as error:
            self._got.put(error)

    def get(self, count: int = 1) -> list[Any]:
        return [self._got.get(timeout=GUARD_S) for _ in range(count)]

    @property
    def waiting(self) -> int:
        return self._got.qsize()


class Setting:
    """A database in memory, its server, a proxy before it and a client through the proxy."""

    def __init__(self, db: Any, proxy: Proxy, remote: Any) -> None:
        self.db, self.proxy, self.remote = db, proxy, remote
        self.stored = db.channel("roads")
        self.channel = remote.channel("roads")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000)


@pytest.fixture
def setting(clock: ManualClock) -> Iterator[Setting]:
    with (
        tideline.open(":memory:", clock=clock) as db,
        running(db) as url,
        proxied(port_of(url)) as proxy,
        tideline.connect(proxy.url, timeout_s=GUARD_S) as remote,
    ):
        yield Setting(db, proxy, remote)


def test_a_cut_is_healed_and_what_was_missed_arrives(setting: Setting) -> None:
    subs = [setting.channel.subscribe("a", user="u", id=f"s{n}") for n in range(3)]
    readers = [Reader(sub) for sub in subs]
    for n in range(5):
        setting.stored.publish("a", {}, id=f"before{n}")
        assert setting.proxy.cut() >= 1
        setting.stored.publish("a", {}, id=f"after{n}")
        for reader in readers:
            assert reader.get(2) == [f"before{n}", f"after{n}"]
    setting.remote.close()
    assert [reader.get() for reader in readers] == [[None]] * 3


def test_take_waits_for_the_connection_and_then_gives_all(setting: Setting) -> None:
    sub = setting.channel.subscribe("a", user="u", since_s=-60)
    for n in range(5):
        setting.stored.publish("a", {}, id=f"x{n}")
        setting.proxy.cut()
        setting.stored.publish("a", {}, id=f"y{n}")
        assert [event.id for event in sub.take()] == [f"x{n}", f"y{n}"]


def test_the_past_counts_as_received(setting: Setting) -> None:
    setting.stored.publish("a", {}, id="old")
    sub = setting.channel.subscribe("a", user="u", since_s=-60)
    assert [event.id for event in sub.past] == ["old"]
    setting.proxy.cut()
    setting.stored.publish("a", {}, id="new")
    assert [event.id for event in sub.take()] == ["new"]


def test_async_readers_are_healed_too(setting: Setting) -> None:
    subs = [setting.channel.subscribe("a", user="u", until_s=100) for _ in range(20)]

    async def story() -> list[list[str]]:
        async def read(sub: Any) -> list[str]:
            got = []
            async for event in sub:
                got.append(event.id)
                if len(got) == 3:
                    break
            return got

        readers = [asyncio.create_task(read(sub)) for sub in subs]
        for n in range(3):
            await asyncio.to_thread(setting.proxy.cut)
            await asyncio.to_thread(setting.stored.publish, "a", {}, id=f"e{n}")
        return await asyncio.wait_for(asyncio.gather(*readers), GUARD_S)

    assert asyncio.run(story()) == [["e0", "e1", "e2"]] * 20


def test_what_ended_while_there_was_no_connection_has_ended(
    setting: Setting, clock: ManualClock
) -> None:
    expiring = Reader(setting.channel.subscribe("a", user="u", until_s=10))
    cancelled = Reader(setting.channel.subscribe("a", user="u", id="s"))
    staying = Reader(setting.channel.subscribe("a", user="u"))
    target, setting.proxy.target = setting.proxy.target, 1  # nobody listens there
    setting.proxy.cut()
    clock.advance(20)
    setting.stored.cancel("s")
    setting.stored.publish("a", {}, id="e")
    setting.proxy.target = target
    assert staying.get() == ["e"]
    assert (expiring.get(), cancelled.get()) == ([None], [None])


def test_a_handle_can_be_cancelled_through_cuts(setting: Setting) -> None:
    for n in range(5):
        sub = setting.channel.subscribe("a", user="u", id=f"s{n}")
        setting.proxy.cut()
        sub.cancel()
        assert sub.expired
    assert setting.stored.subscriptions() == []


def test_while_nobody_answers_calls_wait_and_then_give_up(setting: Setting) -> None:
    impatient = tideline.connect(setting.proxy.url, timeout_s=0.5)
    with impatient:
        channel = impatient.channel("roads")
        sub = channel.subscribe("a", user="u", id="s")
        target, setting.proxy.target = setting.proxy.target, 1
        setting.proxy.cut()
        for call in (
            lambda: channel.publish("a", {}),
            lambda: channel.find("a"),
            lambda: channel.subscribe("a", user="u"),
            lambda: sub.take(),
        ):
            with pytest.raises(Unavailable):
                call()
        setting.proxy.target = target
        setting.stored.publish("a", {}, id="e")
        reader = Reader(sub)
        assert reader.get() == ["e"]


def test_a_call_without_once_is_not_made_twice(setting: Setting) -> None:
    import pyarrow as pa

    from tideline.clock import from_us

    at = from_us(setting.db.clock.now())
    table = pa.table({"op": ["publish"] * 50, "place": ["a"] * 50, "at": [at] * 50,
                      "body": ["{}"] * 50})  # fmt: skip
    # The next connection ends inside the answer: the request was read, the answer is cut.
    setting.proxy.only_back = True
    for cut_at in (20, 150):  # in the status line, in the headers
        before = setting.stored.stats().events
        setting.proxy.allow = iter([cut_at, *[None] * 100]).__next__
        setting.proxy.cut()
        with pytest.raises(Unavailable, match="may have landed"):
            setting.channel.apply(table)
        assert setting.stored.stats().events == before + 50
        # With `once` it is made again, and has landed once.
        setting.proxy.allow = iter([cut_at, *[None] * 100]).__next__
        setting.proxy.cut()
        applied = setting.channel.apply(table, once=("writer", cut_at))
        assert applied.repeated
        assert setting.stored.stats().events == before + 100


def test_a_publication_whose_answer_is_lost_is_stored_once(setting: Setting) -> None:
    setting.stored.subscribe("a", user="u", id="s")
    setting.proxy.only_back = True
    setting.proxy.allow = iter([100, *[None] * 100]).__next__
    setting.proxy.cut()
    told = setting.channel.publish("a", {"n": 1}, ttl_s=60)
    assert (told.duplicate, told.subscriptions, told.event.body) == (True, [], {"n": 1})
    assert [event.id for event in setting.stored.find("a")] == [told.event.id]
    setting.proxy.allow = iter([100, *[None] * 100]).__next__
    setting.proxy.cut()
    setting.channel.cancel("s")
    assert setting.stored.subscriptions() == []


def test_a_subscription_whose_answer_is_lost_is_made_once(setting: Setting) -> None:
    setting.stored.publish("a", {}, id="old")
    for cut_at in range(130, 700, 30):  # after the handshake, which is about so long
        setting.proxy.only_back = True
        setting.proxy.allow = iter([cut_at, *[None] * 100]).__next__
        setting.proxy.cut()
        sub = setting.channel.subscribe("a", user="u", since_s=-60)
        assert [event.id for event in sub.past] == ["old"]
        assert [info.id for info in setting.stored.subscriptions()] == [sub.id]
        sub.cancel()


def was_slow(url: str) -> bool:
    """Whether the server has given a reader up."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        return b"\ntideline_slow_total 1\n" in answer.read()


def test_a_slow_reader_is_disconnected_and_healed(clock: ManualClock) -> None:
    text = "x" * 2_000
    with (
        tideline.open(":memory:", clock=clock) as db,
        running(db, outbox_bytes=100_000) as url,
        tideline.connect(url) as remote,
    ):
        sub = remote.channel("roads").subscribe("a", user="u")
        stored = db.channel("roads")
        # The reader thread stands still, so that the server's buffer runs over.
        with remote._live.feeding:
            connection = remote._live._socket
            n = 0
            while not (n % 100 == 0 and was_slow(url)) and n < 50_000:
                stored.publish("a", {"n": n, "text": text})
                n += 1
        got = [event.body["n"] for event in sub.take()]
        assert got == list(range(n))
        assert remote._live._socket is not connection


# Servers that are killed ----------------------------------------------------------------


class Server:
    """A server process on a folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "serving.py"), str(self.folder), str(self.port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src")},
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready ")

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        if self.process is not None:
            self.process.communicate()
            self.process = None


def test_a_killed_server_that_comes_back_is_resumed(tmp_path: Path) -> None:
    port = free_port()
    server = Server(tmp_path / "data", port)
    server.start()
    published: list[str] = []
    try:
        url = f"http://127.0.0.1:{port}"
        with tideline.connect(url) as remote, tideline.connect(url) as other:
            sub = remote.channel("roads").subscribe("a", user="u", until_s=3_600)
            reader = Reader(sub)
            stop = threading.Event()
            roads = other.channel("roads")

            def publish() -> None:
                # Goes on through the kills: each call waits for the server to come back.
                while not stop.is_set():
                    published.append(roads.publish("a", {}).event.id)

            publisher = threading.Thread(target=publish)
            publisher.start()
            got: list[str] = []
            for _ in range(2):
                got += reader.get(20)
                server.kill()
                server.start()
            got += reader.get(20)
            stop.set()
            publisher.join(GUARD_S)
            got += reader.get(len(published) - len(got))
            sub.take()
            assert reader.waiting == 0
            # One that landed and whose answer was lost is made again: it is the same event.
            assert got == published
            assert len(set(got)) == len(got)
    finally:
        server.close()


# Any cut at all -------------------------------------------------------------------------


@settings(max_examples=few(8))
@given(seed=st.integers(0, 1 << 32))
def test_random_cuts_deliver_everything_once_and_in_order(seed: int) -> None:
    draw = random.Random(seed)
    count = 100

    def allow() -> int:
        # Some connections are cut in the handshake, some in a frame; some live long enough for
        # the largest frame, or nothing would ever get through.
        return draw.choice([draw.randint(1, 600), draw.randint(400, 5_000), 200_000])

    with (
        tideline.open(":memory:") as db,
        running(db) as url,
        proxied(port_of(url)) as proxy,
        tideline.connect(proxy.url, timeout_s=GUARD_S) as remote,
        tideline.connect(proxy.url, timeout_s=GUARD_S) as writer,
    ):
        channel = remote.channel("roads", space=tideline.Topics())
        roads = writer.channel("roads")
        proxy.allow = allow
        proxy.cut()
        early = [roads.publish("a/b", {"n": -n}).event.id for n in range(3)]
        subs = [
            channel.subscribe("a/b", user="u", since_s=-600),
            channel.subscribe("a", user="v", since_s=-600, until_s=3_600),
            channel.subscribe("a/b", user="w", since_s=-600, where={"n": {"$mod": [2, 0]}}),
            channel.subscribe("a", user="u", id="fresh"),
        ]
        readers = [Reader(sub) for sub in subs]
        sent = []
        cuts = set(draw.sample(range(count), 10))
        for n in range(count):
            if n in cuts:
                proxy.cut()
            sent.append(roads.publish("a/b", {"n": n}).event.id)
        wanted = [early + sent, early + sent, [early[0], early[2], *sent[::2]], sent]
        for sub, reader, expected in zip(subs, readers, wanted, strict=True):
            past = [event.id for event in sub.past]
            assert past + reader.get(len(expected) - len(past)) == expected
        # Nothing more comes: what has been sent has arrived after this.
        proxy.allow = lambda: None
        proxy.cut()
        for sub, reader in zip(subs, readers, strict=True):
            sub._live.sync()
            assert reader.waiting == 0
        assert [event.id for event in reversed(channel.find("a"))] == early + sent
        assert proxy.cuts >= 10
