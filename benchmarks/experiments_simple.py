"""Simple subscriptions: layouts dual, two and poll, overall and by verb.

The paper's figures 10 and 11. A subscription watches 10 s back and 10 s ahead, an event is valid
for 20 s; places are the 500 x 500 cells of New York State. Subscribers of `poll` ask when they
come and then every second, 10 times.

The three layouts must find the same pairs of subscription and event. `dual` and `two` must find
them at the same operation, so they are compared section by section. `poll` finds what comes later
only when it asks again, so it is compared at the end, after its last polls: events outlive the
second between two polls here, so nothing may be missing then.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import common
from benchmarks.common import say
from benchmarks.experiments_common import (
    RATIOS,
    Called,
    Rows,
    Store,
    Tally,
    blocks,
    median_ratio,
    padded,
    pairs_of,
    turns,
)
from tideline.workload.shape import new_york
from tideline.workload.tweets import START_US, Operations

__all__ = [
    "LAYOUTS",
    "RATE",
    "VERBS",
    "Run",
    "by_turns",
    "held_by",
    "measure",
    "returned",
    "warm_up",
    "workload",
]

LAYOUTS = ("dual", "two", "poll")
RATE = 2_000
VERBS = ("all", "subscribe", "publish")


def workload(ratio: str, rate: int) -> Operations:
    """The operations of a ratio."""
    subscriptions, events = RATIOS[ratio]
    return Operations(
        seed=7, shape=new_york().with_rate(rate), subscriptions=subscriptions, events=events
    )


@dataclass(frozen=True)
class Run:
    """What is run and on what kind of store."""

    sections: int
    operations: int
    rate: int = RATE
    memory_mb: int | None = None
    body_bytes: int | None = None

    def stores(self, layouts: Sequence[str], folder: Path, stack: ExitStack) -> dict[str, Store]:
        """A store for each layout, closed with the stack."""
        stores = {}
        for layout in layouts:
            stores[layout] = Store(folder / layout, layout, START_US, memory_mb=self.memory_mb)
            stack.callback(stores[layout].close)
        return stores

    def table(self, ratio: str, section: int) -> pa.RecordBatch:
        """The operations of a section."""
        rows = workload(ratio, self.rate).batch(section * self.operations, self.operations)
        return padded(rows, self.body_bytes)


def warm_up() -> None:
    """Load all code, so that the first section measures none of that."""
    rows = workload("3:1", RATE).batch(0, 500)
    for layout in LAYOUTS:
        with common.scratch() as folder:
            store = Store(folder / layout, layout, START_US)
            store.apply(rows.slice(0, 250))
            store.call(Rows.of(rows.slice(250)), joined=layout != "poll")
            store.close()


def measure(run: Run) -> dict[str, Any]:
    """Both ratios, all layouts; microseconds an operation in every section."""
    found = {"run": asdict(run)}
    for ratio in RATIOS:
        found[ratio] = {"overall": _overall(ratio, run), "verbs": _verbs(ratio, run)}
    return found


def _overall(ratio: str, run: Run) -> dict[str, Any]:
    """Through `Channel.apply`."""
    spent_us: dict[str, list[float]] = {layout: [] for layout in LAYOUTS}
    found: dict[str, list[Tally]] = {layout: [] for layout in LAYOUTS}
    with common.scratch() as folder, ExitStack() as stack:
        stores = run.stores(LAYOUTS, folder, stack)
        for section in range(run.sections):
            for layout in LAYOUTS:
                spent_us[layout].append(0.0)
                found[layout].append(Tally())
            for number, block in enumerate(blocks(run.table(ratio, section))):
                for layout in turns(LAYOUTS, number):
                    spent_s, answers = stores[layout].apply(block)
                    spent_us[layout][-1] += spent_s * 1e6 / run.operations
                    found[layout][-1].add(*pairs_of(answers))
            say(_line(f"simple {ratio} apply", section, spent_us))
        held = {layout: held_by(store) for layout, store in stores.items()}
    every = run.sections * run.operations
    return {
        "us": spent_us,
        "two_to_dual": median_ratio(spent_us["two"], spent_us["dual"]),
        "poll_to_dual": median_ratio(spent_us["poll"], spent_us["dual"]),
        "answers_per_operation": sum(one.count for one in found["dual"]) / every,
        "same": found["dual"] == found["two"],
        "held": held,
    }


def _verbs(ratio: str, run: Run) -> dict[str, Any]:
    """Through single calls."""
    called: dict[str, list[Called]] = {layout: [] for layout in LAYOUTS}
    found: dict[str, list[Tally]] = {layout: [] for layout in LAYOUTS}
    with common.scratch() as folder, ExitStack() as stack:
        stores = run.stores(LAYOUTS, folder, stack)
        for section in range(run.sections):
            for layout, one in by_turns(stores, run.table(ratio, section)).items():
                called[layout].append(one)
                found[layout].append(Tally().add(one.subscriptions, one.events))
            say(_line(f"simple {ratio} calls", section, _means(called, "all")))
        last = stores["poll"].finish()
    polled = Tally.of([*found["poll"], Tally().add(last.subscriptions, last.events)])
    us = {verb: _means(called, verb) for verb in VERBS}
    return {
        "us": us,
        "two_to_dual": {verb: median_ratio(us[verb]["two"], us[verb]["dual"]) for verb in VERBS},
        "poll_to_dual": {verb: median_ratio(us[verb]["poll"], us[verb]["dual"]) for verb in VERBS},
        "returned": returned(called),
        "polls_per_subscription": _polls(called["poll"], last),
        "same": found["dual"] == found["two"],
        "same_polled": polled == Tally.of(found["dual"]),
    }


def by_turns(
    stores: dict[str, Store], table: pa.RecordBatch, *, joined: bool = False
) -> dict[str, Called]:
    """A section through single calls of all stores, block by block."""
    parts: dict[str, list[Called]] = {layout: [] for layout in stores}
    for number, block in enumerate(blocks(table)):
        rows = Rows.of(block)
        for layout in turns(list(stores), number):
            parts[layout].append(stores[layout].call(rows, joined=joined))
    return {layout: Called.of(calls) for layout, calls in parts.items()}


def _means(called: dict[str, list[Called]], verb: str) -> dict[str, list[float]]:
    return {layout: [one.mean_us(verb) for one in runs] for layout, runs in called.items()}


def returned(called: dict[str, list[Called]]) -> dict[str, Any]:
    """Until the call came back: microseconds of dual and two, and the ratio."""
    us = {
        verb: {name: [one.returned_us(verb) for one in called[name]] for name in ("dual", "two")}
        for verb in VERBS
    }
    ratios = {verb: median_ratio(us[verb]["two"], us[verb]["dual"]) for verb in VERBS}
    return {"us": us, "two_to_dual": ratios}


def _polls(called: list[Called], last: Called) -> float:
    asked = sum(one.polls for one in called) + last.polls
    return asked / max(1, sum(int((~one.publish).sum()) for one in called))


def held_by(store: Store) -> dict[str, float]:
    """What a store holds at the end."""
    stats = store.channel.stats()
    return {
        "events": stats.events,
        "subscriptions": stats.subscriptions,
        "memory_mb": stats.bytes_memory / 1e6,
        "disk_mb": stats.bytes_disk / 1e6,
        "components": stats.components,
        "dropped": stats.dropped,
    }


def _line(what: str, section: int, spent_us: dict[str, list[float]]) -> str:
    each = "  ".join(f"{name} {values[-1]:.2f}" for name, values in spent_us.items())
    return f"{what} {section + 1}: us an operation: {each}"
