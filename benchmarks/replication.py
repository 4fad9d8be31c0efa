"""Three servers beside one: what it costs that a majority has a write.

    python benchmarks/replication.py [--writes 500] [--batches 20] [--help]

One server with `--durability disk`, and three nodes on this machine, all on the same disk, are
asked the same by the same client:

    one at a time   a document, acknowledged before the next: how long each takes
    many at once    the same by 16 clients: documents a second
    by batch        tables of 10,000 events, by 4 clients: events a second
    stored          bytes on each node's disk for a byte of documents
    failover        from kill -9 of the leader to the next acknowledged write, several times

Beside them, where they are installed, one write at a time with three members of etcd (Debian's
etcd-server) and of pysyncobj. Three nodes on one disk share its fsyncs: on three machines each has
its own. Writes replication.json and replication.md to benchmarks/results/. The block volume has
a benchmark of its own (volume.py).
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import tideline
from benchmarks import common
from benchmarks.common import markdown_table, say
from tideline.cluster import ClusterSettings, create

BATCH_ROWS = 10_000
CLIENTS, WRITERS = 16, 4
SECRET = b"a secret of the benchmark"
_SYNCOBJ = """
import sys, time
from pysyncobj import SyncObj, SyncObjConf, replicated
class Kept(SyncObj):
    def __init__(self, me, others, file):
        super().__init__(me, others, SyncObjConf(journalFile=file, flushJournal=True))
        self.values = {}
    @replicated
    def put(self, key, value):
        self.values[key] = value
me, others, file, writes = sys.argv[1], sys.argv[2].split(","), sys.argv[3], int(sys.argv[4])
kept = Kept(me, others, file)
while not kept.isReady():
    time.sleep(0.01)
took = []
for n in range(writes):
    begun = time.perf_counter()
    kept.put(n, "x" * 200, sync=True, timeout=30)
    took.append(time.perf_counter() - begun)
print(repr(took), flush=True)
sys.stdin.read()
"""


class Servers:
    """Processes of `tideline serve`, and how to reach them."""

    def __init__(self, root: Path, count: int) -> None:
        self.root, self.count = root, count
        ports = [_free_port() for _ in range(2 * count)]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports[:count]]
        self.peers = {f"n{n + 1}": ("127.0.0.1", port) for n, port in enumerate(ports[count:])}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        (root / "secret").write_bytes(SECRET)
        if count > 1:
            for name in self.peers:
                create(root / name, ClusterSettings(name, self.peers, SECRET))
        for n in range(count):
            self.start(n)

    def start(self, n: int) -> None:
        """Start one."""
        name, port = f"n{n + 1}", self.urls[n].rpartition(":")[2]
        command = [sys.executable, "-m", "tideline", "--durability", "disk", "serve"]
        command += [str(self.root / name), "--port", port, "--rate", "1000000", "--log", "warning"]
        if self.count > 1:
            peers = ",".join(f"{name}={host}:{port}" for name, (host, port) in self.peers.items())
            command += ["--node", name, "--peers", peers]
            command += ["--secret-file", str(self.root / "secret")]
        self.processes[n] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    def leader(self) -> int:
        """The number of the one that writes, once it does."""
        limit = time.monotonic() + 120
        while time.monotonic() < limit:
            for n in list(self.processes):
                with contextlib.suppress(tideline.TidelineError):
                    if self.count == 1:
                        tideline.connect(self.urls[n]).close()
                        return n
                    with tideline.connect(self.urls[n], timeout_s=5) as db:
                        if db.cluster()["role"] == "leader":
                            return n
            time.sleep(0.02)
        raise SystemExit("no server leads")

    def connect(self) -> Any:
        """A client of all."""
        return tideline.connect(self.urls, timeout_s=120)

    def close(self) -> None:
        """Stop all."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()


@contextlib.contextmanager
def served(root: Path, count: int) -> Iterator[Servers]:
    """Servers that answer."""
    root.mkdir()
    servers = Servers(root, count)
    try:
        servers.leader()
        yield servers
    finally:
        servers.close()


def measure(root: Path, count: int, options: argparse.Namespace) -> dict[str, Any]:
    """Everything of one server, or of three."""
    with served(root, count) as servers, servers.connect() as db:
        docs = db.collection("docs", key="id")
        found: dict[str, Any] = {}
        took = []
        for n in range(options.writes + 20):
            begun = time.perf_counter()
            docs.put({"id": n, "text": "x" * 200})
            took.append(time.perf_counter() - begun)
        found["single_ms"] = [each * 1000 for each in took[20:]]
        found["many_per_s"] = _many(servers, options.writes)
        found["events_per_s"] = _batches(servers, options.batches)
        if count > 1:
            found["stored"] = _stored(servers, db)
            found["failover_s"] = [_failover(servers, db) for _ in range(options.kills)]
        return found


def _many(servers: Servers, writes: int) -> float:
    begun = threading.Barrier(CLIENTS + 1)

    def run(client: int) -> None:
        with servers.connect() as db:
            docs = db.collection("docs")
            begun.wait()
            for n in range(writes):
                docs.put({"id": f"{client}-{n}", "text": "x" * 200})

    threads = [threading.Thread(target=run, args=[n]) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    begun.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return CLIENTS * writes / (time.perf_counter() - started)


def _batches(servers: Servers, batches: int) -> float:
    begun = threading.Barrier(WRITERS + 1)

    def table(id: str) -> pa.Table:
        now = datetime.now(UTC)
        return pa.table(
            {
                "op": ["publish"] * BATCH_ROWS,
                "id": [f"{id}-{row}" for row in range(BATCH_ROWS)],
                "place": [f"p{row % 1000}" for row in range(BATCH_ROWS)],
                "at": [now] * BATCH_ROWS,
                "until": [now + timedelta(hours=1)] * BATCH_ROWS,
                "body": ['{"kind": "accident", "lanes": 2}'] * BATCH_ROWS,
            }
        )

    def run(client: int) -> None:
        tables = [table(f"{client}-{n}") for n in range(batches)]
        with servers.connect() as db:
            roads = db.channel("roads")
            roads.apply(table(f"{client}-first"))  # warms
            begun.wait()
            for each in tables:
                roads.apply(each)

    with servers.connect() as db:
        db.channel("roads")
    threads = [threading.Thread(target=run, args=[n]) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    begun.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return WRITERS * batches * BATCH_ROWS / (time.perf_counter() - started)


def _stored(servers: Servers, db: Any) -> dict[str, float]:
    """Bytes that a follower's disk got for a byte of documents: all, and the replicated log's."""
    leader = servers.leader()
    folder = next(servers.root / f"n{n + 1}" for n in servers.processes if n != leader)
    docs = db.collection("stored", key="id")
    texts = [{"id": n, "text": os.urandom(500).hex()} for n in range(20_000)]
    payload = sum(len(json.dumps(text)) for text in texts)
    before, log_before = _size(folder), _size(folder / "cluster" / "log")
    docs.put_many(texts)
    wanted = payload * 0.9 + log_before
    while _size(folder / "cluster" / "log") < wanted:
        time.sleep(0.05)
    time.sleep(1.0)
    log = _size(folder / "cluster" / "log") - log_before
    return {"all": (_size(folder) - before) / payload, "replicated log": log / payload}


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _failover(servers: Servers, db: Any) -> float:
    leader = servers.leader()
    docs = db.collection("docs")
    process = servers.processes.pop(leader)
    process.kill()
    begun = time.perf_counter()
    while True:
        with contextlib.suppress(tideline.Unavailable):
            docs.put({"id": "failover", "at": time.time()})
            break
    took = time.perf_counter() - begun
    process.wait()
    servers.start(leader)
    limit = time.monotonic() + 120
    while time.monotonic() < limit:  # until all three are there again
        with contextlib.suppress(tideline.TidelineError):
            now = db.cluster()
            if all(one["behind"] == 0 for one in now["nodes"]):
                break
        time.sleep(0.05)
    return took


# ---- others -----------------------------------------------------------------------------------


def etcd(root: Path, writes: int) -> list[float] | None:
    """One put at a time to three members, in ms; None where there is no etcd."""
    binary = shutil.which("etcd")
    if binary is None:
        return None
    ports = [(_free_port(), _free_port()) for _ in range(3)]
    members = ",".join(f"m{n}=http://127.0.0.1:{peer}" for n, (_, peer) in enumerate(ports))
    processes = []
    for n, (client, peer) in enumerate(ports):
        at, among = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        command = [binary, "--name", f"m{n}", "--data-dir", str(root / f"etcd{n}")]
        command += ["--listen-client-urls", at, "--advertise-client-urls", at]
        command += ["--listen-peer-urls", among, "--initial-advertise-peer-urls", among]
        command += ["--initial-cluster", members, "--initial-cluster-state", "new"]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.append(subprocess.Popen(command, **quiet))
    try:
        first = http.client.HTTPConnection("127.0.0.1", ports[0][0], timeout=30)
        with contextlib.closing(first):
            return _etcd_puts(first, writes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _etcd_puts(connection: http.client.HTTPConnection, writes: int) -> list[float]:
    value = base64.b64encode(b"x" * 200).decode()
    limit, took = time.monotonic() + 60, []
    while len(took) < writes + 20:
        key = base64.b64encode(b"%d" % len(took)).decode()
        begun = time.perf_counter()
        try:
            connection.request("POST", "/v3/kv/put", json.dumps({"key": key, "value": value}))
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            if time.monotonic() > limit:
                raise
            time.sleep(0.1)
            continue
        if answer.status == 200:
            took.append((time.perf_counter() - begun) * 1000)
        elif time.monotonic() > limit:
            raise SystemExit(f"etcd answers {answer.status}")
    return took[20:]


def pysyncobj(root: Path, writes: int) -> list[float] | None:
    """One value at a time among three processes, in ms; None where it is not installed."""
    try:
        import pysyncobj as found  # noqa: F401
    except ModuleNotFoundError:
        return None
    at = [f"127.0.0.1:{_free_port()}" for _ in range(3)]
    processes = []
    for n, me in enumerate(at):
        others = ",".join(each for each in at if each != me)
        count = str(writes + 20 if n == 0 else 0)
        command = [sys.executable, "-c", _SYNCOBJ, me, others, str(root / f"sync{n}"), count]
        processes.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
    try:
        out = processes[0].stdout
        assert out is not None
        return [float(each) * 1000 for each in json.loads(out.readline())][20:]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


# ---- the page ---------------------------------------------------------------------------------


def _spread(took: Sequence[float]) -> tuple[str, str]:
    """Half and 99 of 100 took no longer."""
    marks = statistics.quantiles(took, n=100)
    return f"{marks[49]:.2f}", f"{marks[98]:.2f}"


def page(found: dict[str, Any]) -> str:
    """The results as they are read."""
    one, three = found["one"], found["three"]
    singles = [("one server, durable", one["single_ms"]), ("three nodes", three["single_ms"])]
    singles += [(name, found[name]) for name in ("etcd", "pysyncobj") if found[name]]
    missing = [name for name in ("etcd", "pysyncobj") if not found[name]]
    rows = [[name, *_spread(took)] for name, took in singles]
    parts = [
        "# Three servers beside one", "Written by `benchmarks/replication.py`.",
        *(f"- {name}: {value}" for name, value in found["facts"].items()),
        "## One write at a time, 200 bytes, in ms", markdown_table(["", "p50", "p99"], rows),
    ]  # fmt: skip
    if missing:
        parts.append(f"Not installed: {', '.join(missing)}.")
    ratio = three["events_per_s"] / one["events_per_s"]
    parts += [
        "## Many",
        markdown_table(
            ["", "one server, durable", "three nodes", "part"],
            [
                [f"documents/s, {CLIENTS} clients", f"{one['many_per_s']:,.0f}",
                 f"{three['many_per_s']:,.0f}", f"{three['many_per_s'] / one['many_per_s']:.0%}"],
                ["events/s, by batch", f"{one['events_per_s']:,.0f}",
                 f"{three['events_per_s']:,.0f}", f"{ratio:.0%}"],
            ],
        ),
        "## Stored on each node, bytes for a byte of documents",
        markdown_table(
            ["what", "bytes"], [[name, f"{part:.2f}"] for name, part in three["stored"].items()]
        ),
        "The replicated log is one copy, the log of the dataset the other; of the first, what is in"
        " the second goes in time.",
        "## From kill -9 of the leader to the next acknowledged write, in seconds",
        ", ".join(f"{each:.2f}" for each in three["failover_s"]) or "not measured",
    ]  # fmt: skip
    return "\n\n".join(parts).replace("\n\n- ", "\n- ") + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--writes", type=int, default=500, help="one at a time, and by each client")
    parser.add_argument("--batches", type=int, default=20, help="of 10,000 events, by each of 4")
    parser.add_argument("--kills", type=int, default=3, help="of a leader")
    parser.add_argument("--results", type=Path, default=common.RESULTS)
    options = parser.parse_args(arguments)
    with common.scratch() as root:
        found: dict[str, Any] = {"facts": common.facts()}
        for name, count in (("one", 1), ("three", 3)):
            say(f"{name} server{'s' * (count > 1)}")
            found[name] = measure(root / name, count, options)
        for name, peer in (("etcd", etcd), ("pysyncobj", pysyncobj)):
            say(name)
            found[name] = peer(root, options.writes)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "replication.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.results / "replication.md").write_text(page(found))
    say(page(found))


if __name__ == "__main__":
    main()
