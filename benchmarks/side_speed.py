"""How many operations a second, of all systems by turns on the same operations.

Every system is filled first with the operations before the timed ones (10 s of channel time, as far
as a window reaches back), then all of them get a turn in every round. Only `apply` is timed.
Systems that follow the wall clock run alone afterwards, on operations that happen when they are
sent, as fast as they are done.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from benchmarks import common
from benchmarks.common import say
from benchmarks.side_common import Run, Section, Size, System, Truth, opened, workload

__all__ = ["MIXES", "measure"]

MIXES = {"3:1": (3, 1), "1:3": (1, 3)}


def measure(systems: list[System], size: Size) -> dict[str, Any]:
    """Both mixes; what each system did in the time it had."""
    return {name: measure_mix(systems, size, name) for name in MIXES}


def measure_mix(systems: list[System], size: Size, mix: str) -> dict[str, Any]:
    """One mix of subscriptions to events."""
    outcome: dict[str, Any] = {}
    with ExitStack() as stack:
        truth = Truth(workload(size.rate, *MIXES[mix]), stack.enter_context(common.scratch()))
        stack.callback(truth.close)
        runs: list[tuple[Run, list[Section]]] = []
        for system in systems:
            if system.load().wall_clock:
                continue
            run = Run(system, stack.enter_context(opened(system)), truth)
            run.turn(size.warm_s, size.warm)
            runs.append((run, []))
        warm = {run.system.key: run.done for run, _ in runs}
        for _ in range(size.rounds):
            for run, sections in runs:
                limit = run.done + size.operations // size.rounds
                sections.append(run.turn(size.speed_s / size.rounds, limit))
        for run, sections in runs:
            outcome[run.system.key] = _told(run, sections) | {"warm": warm[run.system.key]}
            say(_line(mix, run.system.key, outcome[run.system.key]))
    for system in systems:
        if system.load().wall_clock:
            outcome[system.key] = measure_by_clock(system, size, mix)
            say(_line(mix, system.key, outcome[system.key]))
    return outcome


def measure_by_clock(system: System, size: Size, mix: str) -> dict[str, Any]:
    """A system that follows the wall clock."""
    with common.scratch() as folder, opened(system) as peer:
        truth = Truth(workload(size.rate, *MIXES[mix]), folder)
        try:
            run = Run(system, peer, truth)
            section = run.by_clock(size.clock_s)
            return _told(run, [section]) | {"warm": 0, "by_clock": True}
        finally:
            truth.close()


def _told(run: Run, sections: list[Section]) -> dict[str, Any]:
    operations = sum(section.operations for section in sections)
    spent_s = sum(section.spent_s for section in sections)
    return {
        "operations": operations,
        "operations_per_s": operations / spent_s if spent_s else 0.0,
        "turns": [s.operations / s.spent_s for s in sections if s.spent_s],
        "answers_per_operation": sum(s.answers for s in sections) / max(1, operations),
        "verdict": run.verdict.record(),
        "failed": run.failed,
        "version": run.system.load().version(),
        "where": run.system.where,
    }


def _line(mix: str, key: str, one: dict[str, Any]) -> str:
    return (
        f"speed {mix} {key:16} {one['operations_per_s']:>10,.0f} operations/s over "
        f"{one['operations']:,}, {one['answers_per_operation']:.1f} answers each; "
        f"{one['verdict']['text']}{'; ' + one['failed'] if one['failed'] else ''}"
    )
