"""Three members that agree on every write before it is acknowledged: etcd and pysyncobj.

    Etcd            three servers of Debian's package, asked over gRPC at their leader; a member has
                    a write on disk (fdatasync of its log) before it answers
    Syncobj         three processes of pysyncobj (syncobj_node.py), asked inside of the leader's
                    process, without a client; its journal is a mapped file that is not synced
    SyncedSyncobj   the same, but the journal is on disk before a member sends a message

Each puts texts of 200 bytes under numbers that go up, one at a time, by several clients, and many
in one request; `held` says what a member has that did not lead. All members are on this machine.
Messages of etcd are written here: by its JSON gateway a put took about a tenth longer, and a
request of 100 puts about twice as long, on a machine with other work.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

__all__ = ["PEERS", "TEXT", "Replicated", "free_port", "many_of", "missing", "timed"]

TEXT = "x" * 200
_START_S = 60
_NODE = Path(__file__).with_name("syncobj_node.py")


class Replicated(Protocol):
    """What is compared: times are in seconds, and only of putting."""

    name: str
    durable: str

    def single(self, count: int) -> list[float]: ...
    def many(self, clients: int, each: int) -> float: ...
    def batches(self, count: int, size: int) -> float: ...
    def held(self) -> tuple[int, bool]: ...
    def close(self) -> None: ...


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


def timed(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """How long each call takes, one after the other."""
    took = []
    for call in calls:
        begun = time.perf_counter()
        call()
        took.append(time.perf_counter() - begun)
    return took


def many_of(clients: Sequence[Sequence[Callable[[], Any]]]) -> float:
    """How long all take when each client makes its calls one after the other."""
    ready = threading.Barrier(len(clients) + 1)

    def run(calls: Sequence[Callable[[], Any]]) -> None:
        ready.wait()
        for call in calls:
            call()

    with ThreadPoolExecutor(len(clients)) as pool:
        running = [pool.submit(run, calls) for calls in clients]
        ready.wait()
        begun = time.perf_counter()
        for each in running:
            each.result()
        return time.perf_counter() - begun


def missing(name: str) -> str | None:
    """What must be installed before this one runs; None when all is there."""
    packages = {Etcd.name: ["grpc"]}.get(name, ["pysyncobj"])
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    if absent:
        return f"{', '.join(absent)} is not installed: pip install '.[bench]'"
    if name == Etcd.name and shutil.which("etcd") is None:
        return "etcd is not installed: apt-get install etcd-server"
    return None


# ---- etcd ----------------------------------------------------------------------------------------


def _field(number: int, data: bytes) -> bytes:
    """A field of a message of Protocol Buffers that has a length."""
    head, size = bytearray([number << 3 | 2]), len(data)
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes(head) + bytes([size]) + data


def _put(number: int) -> bytes:
    """PutRequest: key, value."""
    return _field(1, b"%d" % number) + _field(2, TEXT.encode())


class Etcd:
    """Three members of etcd, with its own settings."""

    name = "etcd"
    durable = "fdatasync by two of three"

    def __init__(self, root: Path) -> None:
        import grpc

        self._grpc = grpc
        self._next, self._channels = 0, []
        ports = [(free_port(), free_port()) for _ in range(3)]
        members = ",".join(f"m{n}=http://127.0.0.1:{peer}" for n, (_, peer) in enumerate(ports))
        self._processes = []
        for n, (client, peer) in enumerate(ports):
            at, among = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
            command = ["etcd", "--name", f"m{n}", "--data-dir", str(root / f"etcd{n}")]
            command += ["--listen-client-urls", at, "--advertise-client-urls", at]
            command += ["--listen-peer-urls", among, "--initial-advertise-peer-urls", among]
            command += ["--initial-cluster", members, "--initial-cluster-state", "new"]
            quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self._processes.append(subprocess.Popen(command, **quiet))
        try:
            self._leader = self._led([client for client, _ in ports])
        except BaseException:
            self.close()
            raise
        self._follower = next(client for client, _ in ports if client != self._leader)
        self._call = self._connect()

    def _led(self, ports: list[int]) -> int:
        limit = time.monotonic() + _START_S
        while time.monotonic() < limit:
            for port in ports:
                with suppress(OSError):
                    found = _json(port, "maintenance/status", {})
                    if found.get("leader") == found["header"]["member_id"]:
                        return port
            time.sleep(0.05)
        raise RuntimeError("no member of etcd leads")

    def _connect(self) -> Any:
        options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
        channel = self._grpc.insecure_channel(f"127.0.0.1:{self._leader}", options)
        self._channels.append(channel)
        return {verb: channel.unary_unary(f"/etcdserverpb.KV/{verb}") for verb in ("Put", "Txn")}

    def _puts(self, call: Any, count: int) -> list[Callable[[], Any]]:
        first, self._next = self._next, self._next + count
        return [lambda n=n: call["Put"](_put(n)) for n in range(first, first + count)]  # type: ignore[misc]

    def single(self, count: int) -> list[float]:
        return timed(self._puts(self._call, count))

    def many(self, clients: int, each: int) -> float:
        return many_of([self._puts(self._connect(), each) for _ in range(clients)])

    def batches(self, count: int, size: int) -> float:
        """A transaction of puts: TxnRequest.success, of RequestOp.request_put."""

        def write() -> None:
            first, self._next = self._next, self._next + size
            puts = [_field(2, _field(2, _put(n))) for n in range(first, first + size)]
            self._call["Txn"](b"".join(puts))

        return sum(timed([write] * count))

    def held(self) -> tuple[int, bool]:
        everything = base64.b64encode(b"\0").decode()
        asked = {"key": everything, "range_end": everything, "serializable": True}
        rows = _json(self._follower, "kv/range", asked).get("kvs", [])
        found = {base64.b64decode(row["key"]): base64.b64decode(row["value"]) for row in rows}
        return len(found), found == {b"%d" % n: TEXT.encode() for n in range(len(found))}

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        for process in self._processes:
            process.kill()
            process.wait()


def _json(port: int, path: str, body: dict[str, Any]) -> Any:
    url = f"http://127.0.0.1:{port}/v3/{path}"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as answer:
        return json.loads(answer.read())


# ---- pysyncobj -----------------------------------------------------------------------------------


class Syncobj:
    """Three nodes of pysyncobj."""

    name = "pysyncobj, as it comes"
    durable = "no: its journal is not synced"
    how = "as-it-comes"

    def __init__(self, root: Path) -> None:
        at = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        self._nodes = []
        for n, me in enumerate(at):
            others = ",".join(each for each in at if each != me)
            journal = str(root / f"{self.how}-{n}")
            command = [sys.executable, str(_NODE), me, others, journal, self.how]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._nodes.append(subprocess.Popen(command, text=True, **pipes))
        try:
            self._leader = self._led()
        except BaseException:
            self.close()
            raise

    def _led(self) -> Any:
        limit = time.monotonic() + _START_S
        while time.monotonic() < limit:
            for node in self._nodes:
                if _ask(node, "leads"):
                    return node
            time.sleep(0.05)
        raise RuntimeError("no node of pysyncobj leads")

    def single(self, count: int) -> list[float]:
        took: list[float] = _ask(self._leader, "single", count)
        return took

    def many(self, clients: int, each: int) -> float:
        return float(_ask(self._leader, "many", clients, each))

    def batches(self, count: int, size: int) -> float:
        return float(_ask(self._leader, "batches", count, size))

    def held(self) -> tuple[int, bool]:
        follower = next(node for node in self._nodes if node is not self._leader)
        count, right = _ask(follower, "held")
        return count, right

    def close(self) -> None:
        for node in self._nodes:
            node.kill()
            node.communicate()


class SyncedSyncobj(Syncobj):
    """The same, with a journal that is on disk."""

    name = "pysyncobj, its journal synced"
    durable = "msync by two of three"
    how = "synced"


def _ask(node: Any, *words: Any) -> Any:
    with suppress(BrokenPipeError):
        node.stdin.write(json.dumps(words) + "\n")
        node.stdin.flush()
    line = node.stdout.readline()
    if not line:
        raise RuntimeError("a node of pysyncobj ended")
    return json.loads(line)


PEERS: tuple[Any, ...] = (Etcd, Syncobj, SyncedSyncobj)
