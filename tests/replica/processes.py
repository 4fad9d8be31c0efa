"""Nodes as real processes, links between them that can be cut and slowed, clients that note all.

    Cluster     starts, kills (SIGKILL), stops (SIGSTOP) and asks nodes: member.py
    Proxy       a TCP proxy for each direction of each pair of nodes: cut, hold, slow
    Clients     threads that write and read through whoever leads, and the history of what they saw

A call that is not answered, or whose outcome a node does not know, may or may not have happened:
its end is `NEVER` (histories.py). It is never made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Any

from histories import NEVER, Call, is_linearizable
from ports import free_ports

from tideline.replica import Node

SECRET = "a secret of enough bytes"
GUARD_S = 90.0  # nothing takes as long
MEMBER = Path(__file__).with_name("member.py")


class Refused(Exception):
    """A node said no; `kind` is the class of its error."""

    def __init__(self, kind: str, text: str, leader: int | None) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.leader = kind, leader


class Gone(Exception):
    """The node died, or does not answer."""


def until(holds: Callable[[], object], what: str = "") -> None:
    """Wait for a condition."""
    limit = time.monotonic() + GUARD_S
    while not holds():
        if time.monotonic() > limit:
            raise AssertionError(f"it did not come about: {what}")
        time.sleep(0.02)


# ---- links ---------------------------------------------------------------------------------------


class Proxy:
    """Links [from, to] between nodes, in a thread of its own."""

    def __init__(self, ports: dict[int, int]) -> None:
        self.ports: dict[tuple[int, int], int] = {}
        self.cut: set[tuple[int, int]] = set()  # connections end, and none is made
        self.held: set[tuple[int, int]] = set()  # nothing passes, and nobody is told
        self.slow: dict[tuple[int, int], int] = {}  # bytes a second
        self._pairs = [(a, b) for a in ports for b in ports if a != b]
        self._to = ports
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        async def serve() -> None:
            for pair in self._pairs:
                server = await asyncio.start_server(
                    lambda r, w, pair=pair: self._link(pair, r, w), "127.0.0.1", 0
                )
                self._servers.append(server)
                self.ports[pair] = server.sockets[0].getsockname()[1]
            self._end = asyncio.Event()
            ready.set()
            await self._end.wait()
            for server in self._servers:
                server.close()

        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(serve())
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0.05))  # transports close
        self._loop.close()

    async def _link(self, pair: tuple[int, int], reader: Any, writer: Any) -> None:
        try:
            if pair in self.cut:
                return
            there = await asyncio.open_connection("127.0.0.1", self._to[pair[1]])
            pumps = [
                asyncio.ensure_future(self._pump(pair, reader, there[1])),
                asyncio.ensure_future(self._pump(pair, there[0], writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                there[1].close()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _pump(self, pair: tuple[int, int], reader: Any, writer: Any) -> None:
        with contextlib.suppress(OSError):
            while pair not in self.cut:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        data = await reader.read(1 << 16)
                    if not data:
                        return
                    while pair in self.held and pair not in self.cut:
                        await asyncio.sleep(0.01)
                    if pair in self.slow:
                        await asyncio.sleep(len(data) / self.slow[pair])
                    writer.write(data)
                    await writer.drain()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


# ---- nodes ---------------------------------------------------------------------------------------


class Member:
    """One process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(MEMBER), json.dumps(settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._number = 0
        self.dead = threading.Event()
        self.ready: Future[Any] = Future()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = json.loads(line)
            if "ready" in found:
                self.ready.set_result(found["ready"])
                continue
            with self._lock:
                future = self._waiting.pop(found["id"], None)
            if future is None:
                continue
            if "error" in found:
                future.set_exception(Refused(found["error"], found["text"], found["leader"]))
            else:
                future.set_result(found["ok"])
        with self._lock:
            self.dead.set()
            left, self._waiting = self._waiting, {}
        for future in left.values():
            future.set_exception(Gone())
        if not self.ready.done():
            self.ready.set_exception(Gone())

    def ask(self, **what: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self.dead.is_set():
                future.set_exception(Gone())
                return future
            self._number += 1
            self._waiting[self._number] = future
            try:
                assert self.process.stdin is not None
                self.process.stdin.write(json.dumps({"id": self._number, **what}) + "\n")
                self.process.stdin.flush()
            except OSError:
                self._waiting.pop(self._number)
                future.set_exception(Gone())
        return future

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.dead.wait(GUARD_S)
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


class Cluster:
    """Nodes 1 to n as processes."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        *,
        spare: int = 0,
        durability: str = "os",
        compact_bytes: int = 1 << 30,
        tick_s: float = 0.05,
        tls: Callable[[int], dict[str, str]] | None = None,
    ) -> None:
        self.folder = folder
        numbers = range(1, count + spare + 1)
        self._ports = dict(zip(numbers, free_ports(count + spare), strict=True))
        self.proxy = Proxy(self._ports)
        self._settings = {
            "durability": durability, "compact_bytes": compact_bytes, "tick_s": tick_s,
            "secret": SECRET,
        }  # fmt: skip
        self._tls = tls
        self.members: dict[int, Member] = {}
        self.first = list(numbers)[:count]
        for n in self.first:
            Node.create(self.path(n), "storm", n, self.first)
        self.start(*self.first)

    def path(self, n: int) -> Path:
        return self.folder / f"n{n}"

    def start(self, *which: int) -> None:
        for n in which:
            peers = {
                m: ("127.0.0.1", self.proxy.ports[n, m] if m != n else self._ports[n])
                for m in self._ports
            }
            settings = {
                **self._settings, "folder": str(self.path(n)), "node": n, "peers": peers,
                "listen": ("127.0.0.1", self._ports[n]), "tls": self._tls(n) if self._tls else None,
            }  # fmt: skip
            self.members[n] = Member(settings)
        for n in which:
            self.members[n].ready.result(GUARD_S)

    def kill(self, n: int) -> None:
        self.members.pop(n).kill()

    def freeze(self, n: int) -> None:
        os.kill(self.members[n].process.pid, signal.SIGSTOP)

    def thaw(self, n: int) -> None:
        os.kill(self.members[n].process.pid, signal.SIGCONT)

    def lose_disk(self, n: int) -> None:
        """Gone, and told to recover."""
        shutil.rmtree(self.path(n))
        Node.recover(self.path(n), "storm", n)

    def part(self, lone: set[int], *, held: bool = False) -> None:
        """Cut these nodes off from the others."""
        pairs = {pair for pair in self.proxy.ports if (pair[0] in lone) != (pair[1] in lone)}
        (self.proxy.held if held else self.proxy.cut).update(pairs)

    def heal(self) -> None:
        self.proxy.cut.clear()
        self.proxy.held.clear()
        self.proxy.slow.clear()

    def ask(self, n: int, **what: Any) -> Any:
        return self.members[n].ask(**what).result(GUARD_S)

    def group(self, n: int) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(n, do="status")["groups"][0]
        return found

    def leader(self, among: set[int] | None = None) -> int:
        """Who leads and is ready."""
        found: list[int] = []

        def leads() -> bool:
            found[:] = [
                n for n in sorted(among or self.members) if self.group(n)["ready"]
            ]  # fmt: skip
            return bool(found)

        until(leads, "a leader")
        return found[0]

    def close(self) -> None:
        for n in list(self.members):
            self.kill(n)
        self.proxy.close()


# ---- clients -------------------------------------------------------------------------------------


class Clients:
    """Threads that call, one call at a time each."""

    def __init__(self, cluster: Cluster, count: int = 4, *, seed: int = 1, pad: int = 0) -> None:
        self.cluster, self.pad = cluster, pad
        self.lock = threading.Lock()
        self._moment = self._word = 0
        self.calls: list[Call] = []
        self.acked: list[list[int]] = [[] for _ in range(count)]  # words of writes, by client
        self.acked_at: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(c, Random(seed * 100 + c)), daemon=True)
            for c in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, client: int, r: Random) -> None:
        try:
            leader = None
            while not self._stop.is_set():
                leader = self._call(client, r, leader)
        except BaseException as error:
            self.errors.append(error)

    def _call(self, client: int, r: Random, leader: int | None) -> int | None:
        nodes = sorted(self.cluster.members) or [1]
        n = leader if leader in nodes and r.random() < 0.95 else r.choice(nodes)
        kind = r.choice(["put", "append", "append", "read", "read"])
        key = r.choice([0, 1, 2])
        with self.lock:
            self._moment += 1
            self._word += 1
            begin, word = self._moment, self._word
        result: Any = None
        try:
            member = self.cluster.members[n]
            future = member.ask(do="call", kind=kind, key=key, word=word, pad=self.pad, wait_s=3.0)
            result = future.result(4.0)
        except Refused as error:
            if error.kind in ("NotLeader", "Lost") or kind == "read":
                time.sleep(0.02)
                return error.leader  # it did not happen
            result = error
        except (Gone, TimeoutError, KeyError) as error:
            if kind == "read":
                return None
            result = error
        with self.lock:
            self._moment += 1
            end = NEVER if isinstance(result, Exception) else self._moment
            seen = tuple(result) if kind == "read" else None
            hint = result if kind != "read" and end != NEVER else NEVER
            self.calls.append(Call(begin, end, key, kind, word, seen, hint))
            if end != NEVER and kind != "read":
                self.acked[client].append(word)
                self.acked_at.append((time.monotonic(), word))
        return n if end != NEVER else None

    @property
    def writes(self) -> int:
        """How many were acknowledged."""
        with self.lock:
            return sum(map(len, self.acked))

    def until_more(self, count: int) -> None:
        """Wait until so many more writes were acknowledged."""
        wanted = self.writes + count
        until(lambda: self.writes >= wanted or self.errors, f"{count} more writes")

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(GUARD_S)
        if self.errors:
            raise self.errors[0]

    def check(self) -> list[int]:
        """Stop, and check all that was promised; returns the order of all words."""
        self.stop()
        cluster = self.cluster
        words = {word for client in self.acked for word in client}

        def orders() -> list[list[int]]:
            return [cluster.ask(n, do="order") for n in sorted(cluster.members)]

        until(lambda: all(words <= set(order) for order in orders()), "everybody has all")
        until(lambda: len({tuple(order) for order in orders()}) == 1, "all have the same")
        order = orders()[0]
        place = {word: at for at, word in enumerate(order)}
        assert len(place) == len(order), "a word was applied twice"
        for client in self.acked:
            places = [place[word] for word in client]
            assert places == sorted(places), "a client's writes are out of order"
        calls = [
            Call(c.begin, c.end, c.key, c.kind, c.word, c.result, place.get(c.word, NEVER))
            for c in self.calls
        ]
        calls = with_hints_of_reads(calls, place)
        assert is_linearizable(calls), "what clients saw is not linearizable"
        return order


def with_hints_of_reads(calls: list[Call], place: dict[int, int]) -> list[Call]:
    """A read stands after the last word that it saw; one that saw nothing, at the start."""
    return [
        c if c.kind != "read"
        else Call(c.begin, c.end, c.key, c.kind, c.word, c.result,
                  place.get(c.result[-1], NEVER) if c.result else -1)
        for c in calls
    ]  # fmt: skip
