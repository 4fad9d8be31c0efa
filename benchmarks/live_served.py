"""How many live queries, and how many writes, one server sustains: the experiments of the paper.

    python benchmarks/live.py --only paper

Section 6 of the paper (InvaliDB) on a server with its writer and its reader, all on this machine:

    queries   1,000 writes a second, more and more queries            figure 4, table 3 (a)
    writes    1,000 queries, more and more writes a second            figure 5, table 3 (b)
    alone     the same without a server: `put` in the process, until  figure 6
              the filter stage has told

A document has five texts of ten letters and five integers, one of which is a unique random number
(6.1). Queries are ranges of that number. 1,000 of them meet exactly one written document each, the
others none: they lie between the numbers that are written. Latency is from when a document was due
until the client has the change. A step is sustained when its 99th percentile is below the bound,
all changes have come, and the writer kept its rate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks import common, live_load
from benchmarks.common import say
from benchmarks.server_processes import ask, child

__all__ = ["BOUNDS_MS", "PAPER", "SIZES", "measure"]

BOUNDS_MS = (20, 30, 50, 100)
PAPER = {"queries": {20: 23_500, 30: 29_000}, "writes": {30: 26_000}}
"""What 16 nodes sustained, by bound."""
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"queries": [1_000, 3_000], "writes": [500, 1_000], "rate": 500, "seconds": 1.0},
    "small": {
        "queries": [1_000, 10_000, 30_000, 100_000, 300_000], "rate": 1_000, "seconds": 5.0,
        "writes": [1_000, 5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000],
    },
    "full": {
        "queries": [1_000, 3_000, 10_000, 30_000, 100_000, 200_000, 300_000, 500_000, 1_000_000],
        "writes": [1_000, 2_000, 5_000, 10_000, 16_000, 20_000, 26_000, 30_000, 35_000, 40_000,
                   50_000, 60_000],
        "rate": 1_000, "seconds": 60.0,
    },
}  # fmt: skip
MATCHING = 1_000
CONNECTIONS = 10
ATTEMPTS = 3  # at a step, until it is within the least bound
_STRIPE = 1 << 20  # numbers are written in even stripes; queries that meet nothing are in odd ones
_TEXTS = "".join(f',"s{n}":"{"abcdefghij"[n:]}{"abcdefghij"[:n]}"' for n in range(5))
_REST = f'{_TEXTS},"i1":1,"i2":22,"i3":333,"i4":4444}}'.encode()


def random_of(number: int) -> int:
    """The random number of a document: unique, and in an even stripe."""
    mixed = number * 2_654_435_761 % (1 << 32)  # an odd factor: no two are alike
    return (mixed >> 6) * 2 * _STRIPE + (mixed & 63) * 16_384 + 5


def documents() -> Callable[[int, int], bytes]:
    """What makes a document."""

    def make(number: int, due_ns: int) -> bytes:
        return b'{"t":%d,"n":%d,"id":%d,"random":%d%b' % (
            due_ns, number, number, random_of(number), _REST,
        )  # fmt: skip

    return make


def queries(count: int, seed: int, first: int, writes: int, matching: int) -> Iterator[bytes]:
    """Ranges: `matching` of them meet one of the documents [first, first + writes) each."""
    random = np.random.default_rng(seed)
    met = random.choice(writes, min(matching, writes), replace=False) + first
    where = b'{"random":{"$gte":%d,"$lt":%d}}'
    for number in met.tolist():
        yield where % (random_of(number), random_of(number) + 1)
    others = count - len(met)
    stripes = random.integers(0, 1 << 26, others).tolist()
    lows = random.integers(0, _STRIPE // 2, others).tolist()
    widths = random.integers(1, _STRIPE // 2, others).tolist()
    for stripe, low, width in zip(stripes, lows, widths, strict=True):
        low += (stripe * 2 + 1) * _STRIPE
        yield where % (low, low + width)


class Bench:
    """A server, its reader and its writer."""

    def __init__(self, stack: ExitStack) -> None:
        folder = stack.enter_context(common.scratch())
        self.system = stack.enter_context(child(live_load.serve, str(folder / "db"))).recv()
        port = self.system.port
        self._reader = stack.enter_context(child(live_load.read, port, CONNECTIONS, queries))
        self._writer = stack.enter_context(child(live_load.write, port, documents))
        self.standing = 0
        self._next = self._met = 0

    def step(self, standing: int, rate: int, seconds: float) -> dict[str, Any]:
        """Some seconds with so many queries and writes."""
        count = int(rate * seconds)
        expected = min(MATCHING, count)
        if self.standing:  # those that met a document of the step before
            ask(self._reader, "cancel", self._met)
            self.standing -= self._met
        self._met = expected
        more = max(standing - self.standing, expected)
        spent = ask(self._reader, "watch", False, more, standing, self._next, count, MATCHING,
                    timeout_s=1800)  # fmt: skip
        self.standing += more
        ask(self._reader, "begin")
        written = ask(self._writer, "rate", self._next, count, rate, timeout_s=seconds * 20 + 60)
        arrivals = ask(self._reader, "end", expected, 10.0)
        self._next += count
        found = {
            "queries": self.standing, "rate": rate, "register_us": spent / more * 1e6,
            "written_per_s": written["per_s"], "late_ms": written["late_ms"],
            "right": len(arrivals[0]) == len(np.unique(arrivals[0])) == expected,
            "resets": arrivals[2], **live_load.summary(arrivals[1]),
        }  # fmt: skip
        say(
            f"{self.standing:9,} queries, {rate:6,} writes/s: {written['per_s']:,.0f} written, "
            f"p50 {found.get('p50_ms', 0):.1f} ms, p99 {found.get('p99_ms', 0):.1f} ms, max "
            f"{found.get('max_ms', 0):.1f} ms{'' if found['right'] else ', NOT ALL ARRIVED'}"
        )
        return found


def held(step: dict[str, Any], bound_ms: float) -> bool:
    """Whether a step was sustained within a bound."""
    kept = step["written_per_s"] >= 0.98 * step["rate"] - 1
    return bool(step["right"] and kept and step["p99_ms"] < bound_ms)


def sustained(steps: list[dict[str, Any]], axis: str) -> dict[str, int]:
    """By bound, the most that was sustained."""
    return {
        str(bound): max((step[axis] for step in steps if held(step, bound)), default=0)
        for bound in BOUNDS_MS
    }


def _steps(given: list[tuple[int, int]], seconds: float) -> list[dict[str, Any]]:
    found = []
    with ExitStack() as stack:
        bench = Bench(stack)
        bench.step(given[0][0], given[0][1], min(seconds, 2.0))  # warm: first calls load code
        for standing, rate in given:
            attempts: list[dict[str, Any]] = []
            while len(attempts) < ATTEMPTS and not (attempts and held(attempts[-1], BOUNDS_MS[0])):
                attempts.append(bench.step(standing, rate, seconds))
            # What other programs disturbed says little: the quietest attempt counts.
            quietest = min(attempts, key=lambda step: (not step["right"], step.get("p99_ms", 0)))
            found.append(quietest | {"attempts": len(attempts)})
            if not held(found[-1], 2 * BOUNDS_MS[-1]):
                break  # more will not do, either
    return found


def alone(standing: int, rate: int, seconds: float) -> dict[str, Any]:
    """The filter stage without a server: from when a `put` was due until it is told."""
    import tideline

    count = int(rate * seconds)
    make = documents()
    due_ns = np.zeros(count + 1, np.int64)
    done: list[tuple[int, int]] = []
    with common.scratch() as folder, tideline.open(folder / "db") as db:
        bench = db.collection(live_load.COLLECTION, key="id")
        import msgspec

        hub = bench.hub
        over = threading.Event()

        def told(block: Any) -> None:
            now = time.monotonic_ns()
            notes = block.of(block.notes)
            done.extend((int(msgspec.json.decode(note.new)["n"]), now) for note in notes)
            if len(done) >= expected:
                over.set()

        expected = min(MATCHING, count)
        hub.listeners.append(told)
        wheres = queries(standing, 1, 0, count, MATCHING)
        handles = [bench.watch(msgspec.json.decode(where), first=False) for where in wheres]
        for number in range(count, count + 200):  # warm: they meet nothing
            bench.put(msgspec.json.decode(make(number, 0)))
        hub.advance()
        gap = 1e9 / rate
        begin = time.monotonic_ns()
        for number in range(count):
            due_ns[number] = begin + number * gap
            time.sleep(max((due_ns[number] - time.monotonic_ns()) / 1e9, 0.0))
            bench.put(msgspec.json.decode(make(number, 0)))
        took = (time.monotonic_ns() - begin) / 1e9
        over.wait(10.0)
        for handle in handles:
            handle.cancel()
    numbers = np.array([number for number, _ in done], np.int64)
    ms = (np.array([now for _, now in done], np.int64) - due_ns[numbers]) / 1e6
    return {
        "queries": standing, "rate": rate, "written_per_s": count / took,
        "right": len(np.unique(numbers)) == len(numbers) == expected,
        **live_load.summary(ms),
    }  # fmt: skip


def measure(size: str) -> dict[str, Any]:
    """Both series, and the filter stage alone."""
    given = SIZES[size]
    seconds, rate = given["seconds"], given["rate"]
    say(f"paper: queries at {rate:,} writes/s")
    reads = _steps([(count, rate) for count in given["queries"]], seconds)
    say(f"paper: writes at {MATCHING:,} queries")
    writes = _steps([(MATCHING, each) for each in given["writes"]], seconds)
    near = min(given["queries"], key=lambda count: abs(count - 24_000))
    lone = common.alone(alone, near, rate, min(seconds, 20.0))
    say(f"paper: the filter stage alone, {near:,} queries: p99 {lone['p99_ms']:.1f} ms")
    return {
        "seconds": seconds, "rate": rate, "queries": reads, "writes": writes, "alone": lone,
        "sustained_queries": sustained(reads, "queries"),
        "sustained_writes": sustained(writes, "rate"),
    }  # fmt: skip
