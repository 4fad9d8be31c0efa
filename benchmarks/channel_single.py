"""What one `publish` or `subscribe` costs, and where it goes: a part of benchmarks/channel.py."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from benchmarks.common import say
from tideline.testing import ManualClock
from tideline.workload import limitfile

__all__ = ["measure", "open_database", "parts"]

FILL = 50_000
BLOCK = 500


def open_database(folder: Path | str, start_us: int, **options: Any) -> tuple[Any, Any, Any]:
    """A database with a manual clock: (database, channel, clock)."""
    import tideline  # imported here so that --help and the peer work without it

    clock = ManualClock(start_us / 1e6)
    database = tideline.open(str(folder), clock=clock, **options)
    return database, database.channel("bench", max_ahead_s=math.inf), clock


class KernelClock:
    """Times the kernels that a single call runs, by standing in for them."""

    def __init__(self) -> None:
        from tideline.kernels import export, rows

        self.spent_ns = 0
        self._places = [(rows, "run_one"), (export, "pack_answers")]
        self._kernels = [getattr(module, name) for module, name in self._places]

    def __enter__(self) -> KernelClock:
        for (module, name), kernel in zip(self._places, self._kernels, strict=True):
            setattr(module, name, self._timed(kernel))
        return self

    def __exit__(self, *error: object) -> None:
        for (module, name), kernel in zip(self._places, self._kernels, strict=True):
            setattr(module, name, kernel)

    def _timed(self, kernel: Any) -> Any:
        def run(*args: Any) -> Any:
            begin = time.perf_counter_ns()
            result = kernel(*args)
            self.spent_ns += time.perf_counter_ns() - begin
            return result

        return run


def measure(calls: int, rounds: int) -> dict[str, Any]:
    """Single calls, some runs; the least disturbed counts: that whose kernels took the least."""
    runs = [single_run(calls) for _ in range(rounds)]
    least = min(runs, key=lambda run: sum(kind["kernel_us"] for kind in run.values()))
    return least | {"runs": runs, "parts": parts(calls)}


def single_run(calls: int) -> dict[str, Any]:
    """Latency of `publish` and `subscribe`, one by one, bodies given as dicts.

    First the channel is filled to what it holds from then on: 50,000 operations are 10 s, the
    reach of a subscription. Then blocks of calls by turns, with a clock around the kernels alone
    and without: both see the same channel and the same load of the machine.
    """
    path = common.workload_file("slow_3to1", common.build_limit(None))
    workload = limitfile.read(path)
    pool = workload.pool.tobytes().decode()
    names = ("publish", "subscribe")
    spent_ns: dict[str, list[int]] = {name: [] for name in names}
    kernel_ns: dict[str, list[int]] = {name: [] for name in names}
    with common.scratch() as folder:
        database, channel, clock = open_database(folder / "db", int(workload.t[0]))

        def call(k: int) -> tuple[str, int]:
            start = int(workload.doff[k])
            text = pool[start : start + int(workload.dlen[k])]
            place, user, body = str(workload.cell[k]), str(workload.uid[k]), {"text": text, "n": k}
            clock.advance((int(workload.t[k]) - clock.now()) / 1e6)
            if workload.type[k] == 1:
                begin = time.perf_counter_ns()
                channel.publish(place, body, ttl_s=20)
                return "publish", time.perf_counter_ns() - begin
            begin = time.perf_counter_ns()
            channel.subscribe(place, user=user, since_s=-10, until_s=10)
            return "subscribe", time.perf_counter_ns() - begin

        for k in range(FILL):
            call(k)
        for begin in range(FILL, FILL + 2 * calls, 2 * BLOCK):
            with KernelClock() as kernels:
                for k in range(begin, begin + BLOCK):
                    kernels.spent_ns = 0
                    kind, _ = call(k)
                    kernel_ns[kind].append(kernels.spent_ns)
            for k in range(begin + BLOCK, begin + 2 * BLOCK):
                kind, spent = call(k)
                spent_ns[kind].append(spent)
        database.close()
    outcome: dict[str, Any] = {}
    for kind in names:
        median, p99 = np.percentile(spent_ns[kind], [50, 99]) / 1000
        kernel = float(np.median(kernel_ns[kind])) / 1000
        outcome[kind] = {
            "calls": len(spent_ns[kind]), "median_us": median, "p99_us": p99, "kernel_us": kernel,
        }  # fmt: skip
        say(f"{kind}: median {median:.1f} us (kernels {kernel:.1f} us), p99 {p99:.1f} us")
    return outcome


def parts(calls: int) -> dict[str, float]:
    """Microseconds of the steps around the kernels of one publish, each run alone many times.

    The best of some turns each: nothing else has its data in the caches then, so together they
    are less than the call.
    """
    from tideline.channel.codec import read_subscribers, write_row
    from tideline.kernels import layout as at
    from tideline.model import Event, Told
    from tideline.where.plain import plain_json

    with common.scratch() as folder:
        database, channel, clock = open_database(folder / "db", 1_700_000_000_000_000)
        engine = channel.core.engine
        for user in range(10):
            channel.subscribe("place", user=f"u{user}", until_s=3600)
        body = {"text": "x" * 90, "n": 17}
        text, place = plain_json(body, "body"), channel.space.encode("place")
        now, ident = clock.now(), b"0123456789"

        def row() -> int:
            return write_row(engine.calls.buffer, at.PUBLISH, 0, 0, now, now, now + 1, place, ident,
                             b"", text)  # fmt: skip

        def locked() -> None:
            with engine.lock:
                clock.now()

        channel.publish("place", body, ttl_s=60)
        call, address = engine.parts.call, engine.parts.address
        packed = call.answers(address, at.SUBS)
        frame = engine.calls.frame[: row() * 8 + 16]
        steps: dict[str, Callable[[], Any]] = {
            "place and body to bytes": lambda: (channel.space.encode("place"),
                                                plain_json(body, "body")),
            "id, times": lambda: (channel.core.ids.one(), clock.now() + 20),
            "row": row,
            "lock and clock": locked,
            "log: one write": lambda: engine.store.log.append_framed(frame),
            "answers out of the kernel (10)": lambda: call.answers(address, at.SUBS),
            "event and result": lambda: Told(Event("e", "place", 1, 2, 3, text), None, []),
        }  # fmt: skip
        spent = {name: _best_us(step, calls) for name, step in steps.items()}
        spent["(looked at: 10 subscribers)"] = _best_us(lambda: read_subscribers(packed), calls)
        database.close()
    for name, took in spent.items():
        say(f"{name}: {took:.2f} us")
    return spent


def _best_us(step: Callable[[], Any], calls: int) -> float:
    turns, each = 5, max(calls // 5, 1)
    best = float("inf")
    for _ in range(turns):
        begin = time.perf_counter_ns()
        for _ in range(each):
            step()
        best = min(best, (time.perf_counter_ns() - begin) / each / 1000)
    return best
