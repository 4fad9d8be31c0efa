"""How fast a channel is: beside the C++ limit and RocksDB, alone, and at its edges.

    python benchmarks/channel.py [--only PART ...] [--size small|full] [--full] [--help]

Parts: limit, ours, peer (the four workloads, interleaved), single, memory, recovery,
big (20 million subscriptions; only with --full or --only big). Writes
benchmarks/results/channel.json, .md and .png.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import channel_report, channel_single, common
from benchmarks.channel_single import open_database
from benchmarks.common import say
from tideline.workload import limitfile

BATCH = 10_000
START = datetime(2024, 1, 1, tzinfo=UTC)
FAR = START + timedelta(days=365)
PARTS = ["limit", "ours", "peer", "single", "memory", "recovery", "big"]


# --- the workloads: the limit, ours and the peer ---


def run_ours(workload: limitfile.LimitFile, operations: int) -> dict[str, Any]:
    """Through `apply` with the log on; only the calls after the warm-up are timed."""
    warm = min(workload.warm, operations // 2) // BATCH * BATCH
    answers = np.zeros(operations, np.int64)
    spent_s = 0.0
    with common.scratch() as folder:
        database, channel, clock = open_database(folder / "db", int(workload.t[0]))
        for start in range(0, operations, BATCH):
            limit = min(start + BATCH, operations)
            rows = limitfile.table(workload, start, limit)
            clock.advance(max(0.0, (int(workload.t[start]) - clock.now()) / 1e6))
            begin = time.perf_counter()
            applied = channel.apply(rows)
            if start >= warm:
                spent_s += time.perf_counter() - begin
            if applied.rejected.num_rows:
                raise SystemExit(f"rejected: {applied.rejected.slice(0, 3).to_pylist()}")
            row = applied.answers["row"].to_numpy()
            answers[start:limit] = np.bincount(row, minlength=limit - start)
        log_mb = channel.stats().bytes_log / 1e6
        database.close()
    expected = limitfile.count_answers(workload, 0, operations)
    return {
        "operations": operations - warm,
        "operations_per_s": (operations - warm) / spent_s,
        "answers_per_operation": float(answers[warm:].mean()),
        "log_mb": log_mb,
        "right": bool((answers == expected).all()),
    }


def run_peer(workload: limitfile.LimitFile, operations: int) -> dict[str, Any]:
    """RocksDB, filled as far as the warm-up goes, timed on the operations after it."""
    from benchmarks.peers.rocks import RocksChannel

    warm = min(workload.warm, workload.n // 2)
    limit = min(workload.n, warm + operations)
    answers = 0
    spent_s = 0.0
    with common.scratch() as folder:
        channel = RocksChannel(folder / "db")
        channel.load(workload, 0, warm)
        for start in range(warm, limit, BATCH):
            begin = time.perf_counter()
            got = channel.apply(workload, start, min(start + BATCH, limit))
            spent_s += time.perf_counter() - begin
            answers += len(got)
        channel.close()
    return {
        "operations": limit - warm,
        "operations_per_s": (limit - warm) / spent_s,
        "answers_per_operation": answers / (limit - warm),
        "right": answers == int(limitfile.count_answers(workload, warm, limit).sum()),
    }


def same_answers(workload: limitfile.LimitFile, operations: int) -> bool:
    """Whether ours and the peer give the same set of answers on the first operations."""
    from benchmarks.peers.rocks import RocksChannel

    event = workload.type == 1
    same = True
    with common.scratch() as folder:
        peer = RocksChannel(folder / "peer")
        database, channel, _ = open_database(folder / "db", int(workload.t[0]))
        for start in range(0, operations, BATCH):
            limit = min(start + BATCH, operations)
            theirs = peer.apply(workload, start, limit)
            told = channel.apply(limitfile.table(workload, start, limit)).answers
            row = told["row"].to_numpy() + start
            subscription, published = (
                told[name].cast(pa.string()).cast(pa.int64()).to_numpy()
                for name in ("subscription", "event")
            )
            itself = np.where(event[row], published, subscription)
            other = np.where(event[row], subscription, published)
            mine = np.stack([row, other], 1)
            wanted = np.stack([theirs["row"], theirs["id"]], 1)
            # Each side as a sorted list, so that an answer given twice shows too.
            same = (
                same and (itself == row).all() and sorted(mine.tolist()) == sorted(wanted.tolist())
            )
        database.close()
        peer.close()
    return bool(same)


def check_limit(
    workload: limitfile.LimitFile, operations: int, line: dict[str, Any]
) -> dict[str, Any]:
    """The limit's line, with whether its rounded answers are the expected ones.

    It counts windows as closed at both ends, so it is held to that count.
    """
    warm = min(workload.warm, operations // 2)
    counts = limitfile.count_answers(workload, warm, operations, until_closed=True)
    right = abs(line["answers_per_operation"] - counts.mean()) <= 0.051
    return {key: value for key, value in line.items() if key != "workload"} | {"right": right}


def measure_workloads(options: argparse.Namespace, parts: set[str]) -> dict[str, Any]:
    """Rounds of limit, ours and peer by turns; the median rate of each."""
    tool = common.build_limit(options.limit)
    if isinstance(tool, str) and "limit" in parts:
        say(f"limit skipped: {tool}")
    outcome: dict[str, Any] = {}
    for name in options.workload:
        path = common.workload_file(name, tool)
        workload = limitfile.read(path)
        operations = min(options.operations or workload.n, workload.n)
        runs: dict[str, list[dict[str, Any]]] = {}
        for number in range(options.rounds):
            if "limit" in parts and isinstance(tool, common.LimitTool):
                line = tool.run(path, operations)
                runs.setdefault("limit", []).append(check_limit(workload, operations, line))
            if "ours" in parts:
                runs.setdefault("ours", []).append(run_ours(workload, operations))
            if "peer" in parts:
                runs.setdefault("peer", []).append(run_peer(workload, options.peer_operations))
            for who, lines in runs.items():
                one = lines[-1]
                say(
                    f"{name} round {number + 1} {who:5} {one['operations_per_s']:>12,.0f} "
                    f"operations/s  {one['answers_per_operation']:.1f} answers each  "
                    f"{'right' if one['right'] else 'WRONG ANSWERS'}"
                )
        outcome[name] = {who: _median(lines) for who, lines in runs.items()}
        if {"ours", "peer"} <= parts:
            same = same_answers(workload, min(20_000, operations))
            outcome[name]["same_answers"] = same
            say(f"{name} the first 20,000 operations: {'the same' if same else 'OTHER'} answers")
    return outcome


def _median(lines: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [line["operations_per_s"] for line in lines]
    right = all(line["right"] for line in lines)
    return lines[-1] | {
        "operations_per_s": statistics.median(rates),
        "rounds": rates,
        "right": right,
    }


# --- memory ---


def records(kind: str, start: int, limit: int, at: datetime, until: datetime) -> pa.Table:
    """Events with bodies of 100 bytes, or subscriptions, spread over 200,000 places."""
    number = np.arange(start, limit)
    count = len(number)
    columns = {
        "op": pa.repeat(kind, count),
        "id": pa.array(number).cast(pa.string()),
        "place": pa.array(number % 200_000).cast(pa.string()),
        "user": pa.array(number % 1_000_000).cast(pa.string()),
        "at": pa.repeat(pa.scalar(at, pa.timestamp("us")), count),
        "until": pa.repeat(pa.scalar(until, pa.timestamp("us")), count),
    }
    if kind == "publish":
        body = json.dumps({"text": "x" * 89}, separators=(",", ":"))
        assert len(body) == 100
        columns["body"] = pa.repeat(body, count)
    return pa.table(columns)


def memory_of(kind: str, count: int) -> dict[str, Any]:
    """Memory for `count` live records of a kind, and after they expired (own process)."""
    naive = START.replace(tzinfo=None)
    hour = timedelta(hours=1)
    with common.scratch() as folder:
        start_us = int(START.timestamp() * 1e6)
        database, channel, clock = open_database(folder / "db", start_us, memory_mb=8192)
        # A first small batch loads all code, and expires before the measurement.
        channel.apply(records(kind, 0, 1000, naive, naive + timedelta(seconds=1)))
        clock.advance(10)
        at = naive + timedelta(seconds=10)
        before = common.memory()
        for first in range(0, count, BATCH):
            limit = min(first + BATCH, count)
            channel.apply(records(kind, first, limit, at, at + hour))
        used = common.memory() - before
        stats = channel.stats()
        clock.advance(2 * 3600)
        later = at + 2 * hour
        channel.apply(records(kind, 0, 1, later, later + timedelta(seconds=1)))
        patience = time.monotonic() + 20
        while channel.stats().bytes_memory > 1 << 20 and time.monotonic() < patience:
            time.sleep(0.1)  # let the background give memory back
        left = common.memory() - before
        outcome = {
            "records": count,
            "live": stats.events + stats.subscriptions,
            "uss_per_record": used.uss / count,
            "rss_per_record": used.rss / count,
            "stats_per_record": stats.bytes_memory / count,
            "left_uss_mb": left.uss / 1e6,
            "left_stats_mb": channel.stats().bytes_memory / 1e6,
        }
        database.close()
    return outcome


def measure_memory(count: int) -> dict[str, Any]:
    """Memory per live event (body of 100 bytes) and per live subscription."""
    outcome = {}
    for kind in ("publish", "subscribe"):
        outcome[kind] = common.alone(memory_of, kind, count)
        say(f"memory, {kind}: {json.dumps(outcome[kind])}")
    return outcome


# --- recovery ---


def fill(folder: str, size_mb: int, memory_mb: int, clean: bool) -> int:
    """Write live events until the folder is that big (own process); how many.

    `clean` closes the database; otherwise the process ends as if killed.
    """
    naive = START.replace(tzinfo=None)
    start_us = int(START.timestamp() * 1e6)
    database, channel, _ = open_database(folder, start_us, memory_mb=memory_mb)
    count = 0
    while _folder_mb(folder) < size_mb:
        far = FAR.replace(tzinfo=None)
        channel.apply(records("publish", count, count + BATCH, naive, far))
        count += BATCH
    (Path(folder).parent / "count").write_text(str(count))
    if not clean:
        os._exit(0)
    database.close()
    return count


def open_and_ask(folder: str, memory_mb: int) -> dict[str, Any]:
    """Time to open and to the first answer (own process)."""
    open_database(folder + "-warm", 0)[0].close()  # compiled code is loaded before the timing
    begin = time.perf_counter()
    database, channel, _ = open_database(folder, int(START.timestamp() * 1e6), memory_mb=memory_mb)
    opened = time.perf_counter() - begin
    found = channel.find("7", since=START - timedelta(hours=1), limit=1)
    asked = time.perf_counter() - begin
    stats = channel.stats()
    database.close()
    return {"open_s": opened, "first_answer_s": asked, "live": stats.events, "found": len(found)}


def measure_recovery(size: str) -> dict[str, Any]:
    """Replay of a log after a kill, and opening a folder that was closed."""
    size_mb = {"small": 64, "full": 1024}[size]
    outcome: dict[str, Any] = {}
    for name, memory_mb, clean in [("replay", 8192, False), ("open", 256, True)]:
        with common.scratch() as folder:
            path = str(folder / "db")
            # Without `clean` the process ends itself, which breaks the pool it runs in.
            with suppress(*([] if clean else [BrokenProcessPool])):
                common.alone(fill, path, size_mb, memory_mb, clean)
            count = int((folder / "count").read_text())
            size_now = _folder_mb(path)
            outcome[name] = common.alone(open_and_ask, path, memory_mb) | {
                "records": count,
                "size_mb": size_now,
            }
        one = outcome[name]
        one["records_per_s"] = count / one["open_s"]
        one["right"] = one["live"] == count and one["found"] == 1
        say(f"recovery, {name}: {json.dumps(one)}")
    return outcome


def _folder_mb(folder: str) -> float:
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6


# --- 20 million subscriptions ---


def big(count: int, memory_mb: int) -> dict[str, Any]:
    """That many live subscriptions in little memory, and whether answers are right."""
    naive, places, sample = START.replace(tzinfo=None), 200_000, 200
    far = FAR.replace(tzinfo=None)
    start_us = int(START.timestamp() * 1e6)
    right = True
    with common.scratch() as folder:
        database, channel, _ = open_database(folder / "db", start_us, memory_mb=memory_mb)
        spent_s = 0.0
        peak = 0
        for first in range(0, count, BATCH):
            rows = records("subscribe", first, min(first + BATCH, count), naive, far)
            begin = time.perf_counter()
            channel.apply(rows)
            spent_s += time.perf_counter() - begin
            if first % 1_000_000 == 0:
                peak = max(peak, common.memory().rss)
                say(f"big: {first:,} subscriptions, {peak / 1e6:,.0f} MB")
        asked_s = 0.0
        for place in range(0, places, places // sample):
            begin = time.perf_counter()
            told = channel.publish(str(place), {"n": place}, ttl_s=1)
            asked_s += time.perf_counter() - begin
            expected = {str(k) for k in range(place, count, places)}
            right = right and {one.id for one in told.subscriptions} == expected
        stats = channel.stats()
        outcome = {
            "subscriptions": stats.subscriptions,
            "operations_per_s": count / spent_s,
            "publish_ms": asked_s / sample * 1000,
            "peak_rss_mb": max(peak, common.memory().rss) / 1e6,
            "disk_mb": stats.bytes_disk / 1e6,
            "right": right and stats.subscriptions == count,
        }
        database.close()
    return outcome


def measure_big(count: int) -> dict[str, Any]:
    """In its own process, with memory_mb=512."""
    outcome: dict[str, Any] = common.alone(big, count, 512)
    say(f"big: {json.dumps(outcome)}")
    return outcome


# --- the program ---


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/channel.py",
        description="Channel benchmarks. Results go to benchmarks/results/channel.*",
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part; repeatable")
    parser.add_argument("--limit", type=Path, metavar="DIR", help="folder of the limit's sources")
    parser.add_argument(
        "--workload", action="append", choices=list(common.WORKLOADS), help="repeatable"
    )
    parser.add_argument("--operations", type=int, help="of limit and ours (default: all)")
    parser.add_argument("--peer-operations", type=int, default=150_000, help="default 150000")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts (default 3)")
    parser.add_argument("--calls", type=int, default=50_000, help="single calls (default 50000)")
    parser.add_argument("--records", type=int, default=1_000_000, help="live records for memory")
    parser.add_argument("--size", choices=["small", "full"], default="small", help="of recovery")
    parser.add_argument("--big", type=int, default=20_000_000, help="subscriptions of big")
    parser.add_argument("--full", action="store_true", help="also big, and --size full")
    common.add_results(parser)
    options = parser.parse_args(arguments)
    options.workload = options.workload or list(common.WORKLOADS)
    options.size = "full" if options.full else options.size
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = parse_options(arguments)
    parts = set(options.only or PARTS[:-1]) | ({"big"} if options.full else set())
    results = common.Results(options.results, "channel")
    shared = parts & {"limit", "ours", "peer"}
    if shared:
        results.put("workloads", measure_workloads(options, shared))
    if "single" in parts:
        results.put("single", channel_single.measure(options.calls, options.rounds))
    if "memory" in parts:
        results.put("memory", measure_memory(options.records))
    if "recovery" in parts:
        results.put("recovery", measure_recovery(options.size))
    if "big" in parts:
        results.put("big", measure_big(options.big))
    for path in channel_report.write(results):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
