"""How fast the server is: publishing, delivering, and the time between, beside Redis pub/sub.

    python benchmarks/server.py [--only PART ...] [--size N ...] [--rounds N] [--help]

Parts: publish (single HTTP, WebSocket, batches), deliver (as many answers as it can), latency (at
5,000 events/s, with 1,000, 10,000 and 100,000 open subscriptions). Server, publisher and listener
are processes of their own on this machine; Redis runs beside, on the same clock, by turns with
Tideline in every round. Writes benchmarks/results/server.json, .md and .png.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common, server_load, server_report
from benchmarks.common import say
from benchmarks.peers import redis
from benchmarks.server_processes import Usage, ask, child, systems

PARTS = ["publish", "deliver", "latency"]
SIZES = [1_000, 10_000, 100_000]
CONNECTIONS = 100
RATE = 5_000
QUIET_CORES = 0.15  # others may use so much while a latency is measured
LATE_MS = 6.0  # and the publisher, which does little, may be kept from its work for so long
ATTEMPTS = 6


# ---- publish -----------------------------------------------------------------------------------


def http_publish(pipe: Any, port: int, seconds: float, connections: int) -> None:
    """Single events over HTTP, one after the other on each of some connections."""
    import selectors
    import socket

    body = server_load.body(time.monotonic_ns(), 1)
    event = b'{"place":"p1","ttl_s":60,"body":%b}' % body
    request = (
        b"POST /v1/channels/bench/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(event), event)
    )
    selector = selectors.DefaultSelector()
    for _ in range(connections):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(request)
        selector.register(sock, selectors.EVENT_READ, bytearray())
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        for key, _ in selector.select(1.0):
            key.data.extend(key.fileobj.recv(65_536))  # type: ignore[union-attr]
            if b'"duplicate":' in key.data:  # the last field of an answer
                if not key.data.startswith(b"HTTP/1.1 200"):
                    raise SystemExit(f"refused: {bytes(key.data[:300])!r}")
                key.data.clear()
                count += 1
                key.fileobj.sendall(request)  # type: ignore[union-attr]
    pipe.send(count / (time.monotonic() - begin))
    pipe.recv()


def batch_publish(pipe: Any, port: int, seconds: float, rows: int, places: int) -> None:
    """Tables of events through the client's `apply`."""
    import pyarrow as pa

    import tideline

    rng = np.random.default_rng(1)
    with tideline.connect(f"http://127.0.0.1:{port}") as remote:
        channel = remote.channel("bench")
        count = answers = 0
        begin = time.monotonic()
        spent_s = 0.0
        while time.monotonic() - begin < seconds:
            now = datetime.now(UTC)
            due = time.monotonic_ns()
            table = pa.table({
                "op": pa.array(["publish"]).take(pa.array(np.zeros(rows, np.int64))),
                "place": [f"p{n}" for n in rng.integers(0, places, rows).tolist()],
                "at": pa.array([now] * rows, pa.timestamp("us", "UTC")),
                "until": pa.array([now + timedelta(seconds=5)] * rows, pa.timestamp("us", "UTC")),
                "body": [server_load.body(due, n).decode() for n in range(rows)],
            })  # fmt: skip
            started = time.monotonic()
            applied = channel.apply(table)
            spent_s += time.monotonic() - started
            if applied.rejected.num_rows:
                raise SystemExit(f"rejected: {applied.rejected.slice(0, 2).to_pylist()}")
            count += rows
            answers += applied.answers.num_rows
        pipe.send({"events_per_s": count / spent_s, "answers": answers, "events": count})
        pipe.recv()


def measure_publish(seconds: float, rounds: int, batch: int) -> dict[str, Any]:
    """Events a second by way in; the median of the rounds."""
    runs: dict[str, list[float]] = {}
    with systems() as measured:
        port = measured["tideline"].port
        for number in range(rounds):
            for name, connections in (("http 1", 1), ("http 8", 8)):
                with child(http_publish, port, seconds, connections) as pipe:
                    runs.setdefault(name, []).append(pipe.recv())
            for name in ("tideline", "redis"):
                for window in (1, 100):
                    with child(server_load.publish, name, measured[name].port) as pipe:
                        sent, took = ask(pipe, "flood", 1_000, 0, seconds, window)
                        runs.setdefault(f"{name} {window}", []).append(sent / took)
            with child(batch_publish, port, seconds, batch, 1_000) as pipe:
                runs.setdefault("batch, nobody listens", []).append(pipe.recv()["events_per_s"])
            say(f"publish, round {number + 1}: " + _short({k: v[-1] for k, v in runs.items()}))
        with child(server_load.listen, "tideline", port) as listener:
            ask(listener, "open", 10_000, 1, CONNECTIONS)
            for _ in range(rounds):
                ask(listener, "begin")
                with child(batch_publish, port, seconds, batch, 10_000) as pipe:
                    found = pipe.recv()
                    runs.setdefault("batch, each answers one", []).append(found["events_per_s"])
                    numbers, _, _ = ask(listener, "end", found["answers"], 30.0)
                    if not len(numbers) == found["answers"] == found["events"]:
                        raise SystemExit(f"delivered {len(numbers)} of {found}")
    say(f"publish: {_short({k: statistics.median(v) for k, v in runs.items()})}")
    return {
        "seconds": seconds, "batch": batch, "redis": redis.version(),
        "events_per_s": {k: statistics.median(v) for k, v in runs.items()}, "runs": runs,
    }  # fmt: skip


# ---- deliver -----------------------------------------------------------------------------------


def measure_deliver(seconds: float, rounds: int, fanouts: list[int]) -> dict[str, Any]:
    """Answers a second when the publisher goes as fast as it can, by listeners an event."""
    outcome: dict[str, Any] = {}
    for fanout in fanouts:
        runs: dict[str, list[dict[str, float]]] = {}
        with systems() as measured, ExitStack() as stack:
            pipes = {}
            for name, system in measured.items():
                listener = stack.enter_context(child(server_load.listen, name, system.port))
                publisher = stack.enter_context(child(server_load.publish, name, system.port))
                # Every connection listens to all 100 places: an event goes to each of them.
                ask(listener, "open", 100, fanout, fanout)
                pipes[name] = (listener, publisher)
            for number in range(rounds):
                for name, (listener, publisher) in pipes.items():
                    ask(listener, "begin")
                    sent, took = ask(publisher, "flood", 100, 0, seconds, 100)
                    numbers, _, span = ask(listener, "end", sent * fanout, 30.0)
                    right = len(numbers) == sent * fanout and bool(
                        (np.bincount(numbers, minlength=sent) == fanout).all()
                    )
                    runs.setdefault(name, []).append({
                        "events_per_s": sent / took,
                        "answers_per_s": len(numbers) / max(span, took),
                        "right": right,
                    })  # fmt: skip
                say(f"deliver to {fanout}, round {number + 1}: " + _short(
                    {name: found[-1]["answers_per_s"] for name, found in runs.items()}
                ))  # fmt: skip
        outcome[str(fanout)] = {
            name: {
                "answers_per_s": statistics.median(one["answers_per_s"] for one in found),
                "events_per_s": statistics.median(one["events_per_s"] for one in found),
                "right": all(one["right"] for one in found),
            }
            for name, found in runs.items()
        }
    return {"fanouts": outcome, "redis": redis.version()}


# ---- latency -----------------------------------------------------------------------------------


def measure_latency(sizes: list[int], rate: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Milliseconds from when an event was due to its arrival, by open subscriptions."""
    outcome: dict[str, Any] = {}
    for size in sizes:
        runs: dict[str, list[dict[str, Any]]] = {}
        facts: dict[str, dict[str, Any]] = {}
        with systems() as measured, ExitStack() as stack:
            pipes = {}
            for name, system in measured.items():
                listener = stack.enter_context(child(server_load.listen, name, system.port))
                publisher = stack.enter_context(child(server_load.publish, name, system.port))
                facts[name] = {"open_s": ask(listener, "open", size, 1, min(CONNECTIONS, size))}
                pipes[name] = (listener, publisher)
                ask(publisher, "rate", size, 0, rate, 0.5)  # warm: first calls load code
            for _ in range(rounds):
                for name, (listener, publisher) in pipes.items():
                    attempts: list[dict[str, Any]] = []
                    while len(attempts) < ATTEMPTS:
                        usage = Usage(measured[name].pid)
                        attempts.append(one_run(listener, publisher, size, rate, seconds))
                        own, others = usage.cores()
                        attempts[-1] |= {"server_cores": own, "others_cores": others}
                        if others <= QUIET_CORES and attempts[-1]["late_ms"] <= LATE_MS:
                            break
                    # What others disturbed says little: the quietest attempt counts.
                    quietest = min(attempts, key=lambda run: run["late_ms"])
                    runs.setdefault(name, []).append(quietest | {"attempts": len(attempts)})
        for name, found in runs.items():
            ms = np.concatenate([run.pop("ms") for run in found])
            facts[name] |= {
                "events": len(ms), "max_ms": float(ms.max()), "runs": found,
                "right": all(run["right"] for run in found),
                "server_cores": statistics.median(run["server_cores"] for run in found),
                "others_cores": max(run["others_cores"] for run in found),
                **{f"p{p}_ms": float(np.percentile(ms, p)) for p in (50, 90, 99, 99.9)},
                "curve": [float(v) for v in np.percentile(ms, server_report.CURVE)],
            }  # fmt: skip
            shown = {k: v for k, v in facts[name].items() if k != "curve"}
            say(f"latency, {size:,} subscriptions, {name}: {json.dumps(shown)}")
        outcome[str(size)] = facts
    return {
        "rate": rate, "seconds": seconds, "rounds": rounds, "sizes": outcome,
        "redis": redis.version(),
    }  # fmt: skip


def one_run(listener: Any, publisher: Any, size: int, rate: int, seconds: float) -> dict[str, Any]:
    """Publish at a rate for some seconds; when each event arrived."""
    sent = int(rate * seconds)
    ask(listener, "begin")
    replied, _, late_ms = ask(publisher, "rate", size, 0, rate, seconds)
    numbers, ms, _ = ask(listener, "end", sent, 10.0)
    return {
        "ms": ms, "p99_ms": float(np.percentile(ms, 99)), "late_ms": late_ms,
        "right": replied == sent and bool(np.array_equal(np.sort(numbers), np.arange(sent))),
    }  # fmt: skip


# ---- the program -------------------------------------------------------------------------------


def _short(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.0f}" for name, value in figures.items())


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/server.py",
        description="Server benchmarks. Results go to benchmarks/results/server.*",
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part; repeatable")
    parser.add_argument("--size", action="append", type=int, help="open subscriptions; repeatable")
    parser.add_argument("--rate", type=int, default=RATE, help=f"events/s (default {RATE})")
    parser.add_argument("--seconds", type=float, default=4.0, help="a run (default 4)")
    parser.add_argument("--rounds", type=int, default=3, help="by turns (default 3)")
    parser.add_argument("--fanout", action="append", type=int, help="listeners; repeatable")
    parser.add_argument("--batch", type=int, default=10_000, help="rows of a table")
    common.add_results(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = parse_options(arguments)
    parts = options.only or PARTS
    results = common.Results(options.results, "server")
    if "publish" in parts:
        results.put("publish", measure_publish(options.seconds / 2, options.rounds, options.batch))
    if "deliver" in parts:
        fanouts = options.fanout or [1, 10, 100]
        results.put("deliver", measure_deliver(options.seconds / 2, options.rounds, fanouts))
    if "latency" in parts:
        found = measure_latency(
            options.size or SIZES, options.rate, options.seconds, options.rounds
        )
        results.put("latency", found)
    for path in server_report.write(results):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
