"""How long one operation takes, alone in its call, and until a subscriber has an event.

All systems are filled to the same point, then get blocks of calls by turns. The calls of a block
are prepared first, so that what prepares them does not cool the caches in between. At the end each
system delivers events to a listening subscriber, one at a time, where it has a way to.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks import common
from benchmarks.common import say
from benchmarks.side_common import Run, Size, System, Truth, opened, reason, workload

__all__ = ["measure"]

BLOCK = 500
VERBS = ("publish", "subscribe")


class Singles:
    """The single calls of one system."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.spent_ns: dict[str, list[int]] = {verb: [] for verb in VERBS}
        self.spent_s = 0.0

    def block(self, count: int, budget_s: float) -> None:
        """Some calls, one after the other."""
        run, peer = self.run, self.run.peer
        rows = run.truth.operations.batch(run.done, count)
        verbs = rows.column("op").to_pylist()
        prepared = [peer.prepare(rows.slice(n, 1)) for n in range(count)]
        outcomes = []
        begin = time.perf_counter()
        for one, verb in zip(prepared, verbs, strict=True):
            start = time.perf_counter_ns()
            try:
                outcome = peer.apply(one)
            except Exception as error:
                run.failed = f"failed at operation {run.done + len(outcomes):,}: {reason(error)}"
                break
            self.spent_ns[verb].append(time.perf_counter_ns() - start)
            outcomes.append(outcome)
            if time.perf_counter() - begin > budget_s:
                break
        self.spent_s += time.perf_counter() - begin
        for outcome in outcomes:
            answers = peer.answers(outcome)
            answers["row"] += run.done
            run.verdict.compare(answers, run.truth.between(run.done, run.done + 1), 1)
            run.done += 1


def measure(systems: list[System], size: Size) -> dict[str, Any]:
    """Single calls of all systems, 3 subscriptions to 1 event."""
    outcome: dict[str, Any] = {}
    with ExitStack() as stack:
        truth = Truth(workload(size.rate, 3, 1), stack.enter_context(common.scratch()))
        stack.callback(truth.close)
        measured = []
        for system in systems:
            if not system.load().wall_clock:
                run = Run(system, stack.enter_context(opened(system)), truth)
                run.turn(size.warm_s, size.warm)
                measured.append(Singles(run))
        for _ in range(0, size.singles, BLOCK):
            for one in measured:
                left_s = size.single_s - one.spent_s
                if left_s > 0 and not one.run.failed:
                    one.block(min(BLOCK, size.singles), left_s)
        for one in measured:
            outcome[one.run.system.key] = _told(one) | deliver(one.run, size)
    for system in systems:
        if system.load().wall_clock:
            outcome[system.key] = measure_by_clock(system, size)
    return outcome


def measure_by_clock(system: System, size: Size) -> dict[str, Any]:
    """A system that follows the wall clock: its operations happen when they are sent."""
    with common.scratch() as folder, opened(system) as peer:
        truth = Truth(workload(size.rate, 3, 1), folder)
        try:
            run = Run(system, peer, truth)
            singles = Singles(run)
            run.single = lambda verb, spent_ns: singles.spent_ns[verb].append(spent_ns)
            run.by_clock(size.single_s)
            return _told(singles) | {"by_clock": True} | deliver(run, size)
        finally:
            truth.close()


def deliver(run: Run, size: Size) -> dict[str, Any]:
    """From publish to the subscriber: p50 and p99, or why not."""
    try:
        taken_s = run.peer.deliver(size.delivered)
    except Exception as error:
        said = f"no: {reason(error)}"
        say(f"single {run.system.key:16} deliver   {said}")
        return {"deliver": said}
    p50, p99 = np.percentile(taken_s, [50, 99]) * 1e6
    say(f"single {run.system.key:16} deliver   p50 {p50:>8,.1f} us, p99 {p99:>8,.1f} us")
    return {"deliver": {"calls": len(taken_s), "p50_us": p50, "p99_us": p99}}


def _told(one: Singles) -> dict[str, Any]:
    told: dict[str, Any] = {
        "verdict": one.run.verdict.record(), "failed": one.run.failed, "warm": one.run.done,
        "version": one.run.system.load().version(), "where": one.run.system.where,
    }  # fmt: skip
    for verb in VERBS:
        if one.spent_ns[verb]:
            p50, p99 = np.percentile(one.spent_ns[verb], [50, 99]) / 1000
            told[verb] = {"calls": len(one.spent_ns[verb]), "p50_us": p50, "p99_us": p99}
            say(
                f"single {one.run.system.key:16} {verb:9} p50 {p50:>8,.1f} us, p99 {p99:>8,.1f} us"
                f" of {len(one.spent_ns[verb]):,}; {one.run.verdict.text()}"
            )
    if one.run.failed:
        say(f"single {one.run.system.key:16} {one.run.failed}")
    return told
