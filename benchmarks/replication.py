"""Three servers beside one: what it costs that a majority has a write.

    python benchmarks/replication.py [--writes 500] [--batches 20] [--help]

One server with `--durability disk`, three nodes on this machine, and three members each of etcd and
pysyncobj (peers/replicated.py), all on the same disk, are asked the same by turns:

    one at a time   a text of 200 bytes, acknowledged before the next: how long each takes
    many at once    the same by 16 clients: texts a second
    in requests     100 texts in each request, by one client: texts a second

In the end a member that did not lead is asked for all texts. Then one server and three nodes alone:

    by batch        tables of 10,000 events, by 4 clients: events a second
    stored          bytes on each node's disk for a byte of documents
    failover        from kill -9 of the leader to the next acknowledged write, several times

A peer that is not installed is named and left out: scripts/peers.sh has etcd, the extra `bench`
pysyncobj. Three nodes on one disk share its fsyncs: on three machines each has its own. Writes
replication.json and replication.md to benchmarks/results/. The block volume has a benchmark of its
own (volume.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import tideline
from benchmarks import common
from benchmarks.common import markdown_table, say
from benchmarks.peers import replicated
from benchmarks.peers.replicated import TEXT, Replicated, free_port, many_of, timed
from tideline.cluster import ClusterSettings, create

BATCH_ROWS = 10_000
CLIENTS, WRITERS = 16, 4
SECRET = b"a secret of the benchmark"
IN_REQUEST, TURNS = 100, 10
WAYS = ("one at a time", "many at once", "in requests")


class Servers:
    """Processes of `tideline serve`, and how to reach them."""

    def __init__(self, root: Path, count: int) -> None:
        self.root, self.count = root, count
        ports = [free_port() for _ in range(2 * count)]
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


# ---- beside others ----------------------------------------------------------------------------


class Served:
    """Documents of one server, or of three nodes."""

    def __init__(self, servers: Servers) -> None:
        several = servers.count > 1
        self.name = "three nodes" if several else "one server"
        self.durable = "fdatasync by two of three" if several else "fdatasync"
        self._servers, self._next = servers, 0
        self._stack = contextlib.ExitStack()
        self._docs = self._stack.enter_context(servers.connect()).collection("beside", key="id")

    def _rows(self, count: int) -> list[dict[str, Any]]:
        first, self._next = self._next, self._next + count
        return [{"id": n, "text": TEXT} for n in range(first, first + count)]

    def _puts(self, docs: Any, count: int) -> list[Callable[[], Any]]:
        return [lambda row=row: docs.put(row) for row in self._rows(count)]  # type: ignore[misc]

    def single(self, count: int) -> list[float]:
        return timed(self._puts(self._docs, count))

    def many(self, clients: int, each: int) -> float:
        with contextlib.ExitStack() as stack:
            docs = [stack.enter_context(self._servers.connect()).collection("beside")
                    for _ in range(clients)]  # fmt: skip
            docs[0].count()
            return many_of([self._puts(one, each) for one in docs])

    def batches(self, count: int, size: int) -> float:
        return sum(timed([lambda: self._docs.put_many(self._rows(size))] * count))

    def held(self) -> tuple[int, bool]:
        leader = self._servers.leader()
        asked = next((n for n in self._servers.processes if n != leader), leader)
        with tideline.connect(self._servers.urls[asked]) as db:
            found = {row["id"]: row["text"] for row in db.collection("beside").find()}
        return len(found), found == dict.fromkeys(range(len(found)), TEXT)

    def close(self) -> None:
        self._stack.close()


def beside(made: Sequence[Replicated], writes: int) -> dict[str, Any]:
    """The same work of all, by turns; and what one that did not lead has in the end."""
    found: dict[str, Any] = {
        one.name: {"durable": one.durable, **{way: [] for way in WAYS}} for one in made
    }
    each, requests = max(writes // TURNS, 1), max(writes // TURNS // 10, 1)
    for one in made:
        one.single(20)  # loads what is used
        one.many(CLIENTS, 1)
        one.batches(1, IN_REQUEST)
    for _ in range(TURNS):
        for one in made:
            rows = found[one.name]
            rows["one at a time"] += [took * 1000 for took in one.single(each)]
            rows["many at once"].append(CLIENTS * each / one.many(CLIENTS, each))
            rows["in requests"].append(requests * IN_REQUEST / one.batches(requests, IN_REQUEST))
    wanted = 20 + CLIENTS + IN_REQUEST + TURNS * (each * (1 + CLIENTS) + requests * IN_REQUEST)
    for one in made:
        limit = time.monotonic() + 120
        while one.held() != (wanted, True):
            if time.monotonic() > limit:
                raise SystemExit(f"{one.name} has {one.held()}, not {wanted} texts")
            time.sleep(0.1)
        found[one.name]["texts"] = wanted
    return found


def _peers(root: Path, stack: contextlib.ExitStack) -> tuple[list[Replicated], dict[str, str]]:
    """Those that are installed, running; why others are not."""
    made: list[Replicated] = []
    missing = {}
    for kind in replicated.PEERS:
        reason = replicated.missing(kind.name)
        if reason is not None:
            missing[kind.name] = reason
            say(f"{kind.name} is left out: {reason}")
            continue
        made.append(kind(root))
        stack.callback(made[-1].close)
    return made, missing


# ---- one server and three nodes ---------------------------------------------------------------


def measure(servers: Servers, options: argparse.Namespace) -> dict[str, Any]:
    """What only ours are asked."""
    found: dict[str, Any] = {"events_per_s": _batches(servers, options.batches)}
    if servers.count > 1:
        with servers.connect() as db:
            found["stored"] = _stored(servers, db)
            found["failover_s"] = [_failover(servers, db) for _ in range(options.kills)]
    return found


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
    docs = db.collection("docs", key="id")
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


# ---- the page ---------------------------------------------------------------------------------


def page(found: dict[str, Any]) -> str:
    """The results as they are read."""
    one, three, rows = found["one"], found["three"], []
    for name, row in found["beside"].items():
        marks = statistics.quantiles(row["one at a time"], n=100)
        many, requests = (statistics.median(row[way]) for way in WAYS[1:])
        cells = [f"{marks[49]:.2f}", f"{marks[98]:.2f}", f"{many:,.0f}", f"{requests:,.0f}"]
        rows.append([name, row["durable"], *cells])
    head = ["", "on disk before the answer", "one at a time, ms: p50", "p99",
            f"{CLIENTS} at once, texts/s", f"{IN_REQUEST} in a request, texts/s"]  # fmt: skip
    events = three["events_per_s"], one["events_per_s"]
    parts = [
        "# Three servers beside one", "Written by `benchmarks/replication.py`.",
        *(f"- {name}: {value}" for name, value in found["facts"].items()),
        "## Texts of 200 bytes, by turns", markdown_table(head, rows),
        "Clients are on this machine; those of pysyncobj are threads in its leader, without a "
        "socket between. All members had the same texts in the end.",
        *(f"- {name} is not there: {why}" for name, why in found["missing"].items()),
        "## Events by batch",
        f"{events[0]:,.0f} events/s by three nodes, {events[1]:,.0f} by one server: "
        f"{events[0] / events[1]:.0%}.",
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
    found: dict[str, Any] = {"facts": common.facts()}
    with (
        common.scratch() as root,
        served(root / "one", 1) as one,
        served(root / "three", 3) as three,
    ):
        with contextlib.ExitStack() as stack:
            peers, found["missing"] = _peers(root, stack)
            ours = [Served(one), Served(three)]
            for each in ours:
                stack.callback(each.close)
            say("beside others")
            found["beside"] = beside([*ours, *peers], options.writes)
        for name, servers in (("one", one), ("three", three)):
            say(f"{name} server{'s' * (name == 'three')} alone")
            found[name] = measure(servers, options)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "replication.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.results / "replication.md").write_text(page(found))
    say(page(found))


if __name__ == "__main__":
    main()
