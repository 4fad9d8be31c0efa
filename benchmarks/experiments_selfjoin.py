"""Self-joining subscriptions: layout dual against two, by verb and overall.

The paper's figures 12 and 13. An event asks for the events at its own place that are still valid
(`publish(..., related=True)`); a subscription leaves out what its user was told before, for which
it looks up the user's other subscriptions there (`subscribe(..., unseen=True)`). `Channel.apply`
knows nothing of related events, so single calls are all there is, and overall is their mean.
Layout `poll` stores no subscriptions and refuses `unseen`.

Both layouts must give the same answers and the same related events, section by section.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from benchmarks import common
from benchmarks.common import say
from benchmarks.experiments_common import RATIOS, Called, Tally, median_ratio
from benchmarks.experiments_simple import VERBS, Run, by_turns, held_by, returned

__all__ = ["LAYOUTS", "measure"]

LAYOUTS = ("dual", "two")


def measure(run: Run) -> dict[str, Any]:
    """Both ratios; microseconds an operation in every section."""
    return {"run": asdict(run)} | {ratio: _joined(ratio, run) for ratio in RATIOS}


def _joined(ratio: str, run: Run) -> dict[str, Any]:
    called: dict[str, list[Called]] = {layout: [] for layout in LAYOUTS}
    found: dict[str, list[Tally]] = {layout: [] for layout in LAYOUTS}
    with common.scratch() as folder, ExitStack() as stack:
        stores = run.stores(LAYOUTS, folder, stack)
        for section in range(run.sections):
            table = run.table(ratio, section)
            for layout, one in by_turns(stores, table, joined=True).items():
                called[layout].append(one)
                found[layout].append(Tally().add(one.subscriptions, one.events))
            means = [f"{layout} {runs[-1].mean_us('all'):.2f}" for layout, runs in called.items()]
            say(f"selfjoin {ratio} {section + 1}: us an operation: {'  '.join(means)}")
        held = {layout: held_by(store) for layout, store in stores.items()}
    us = {
        verb: {layout: [one.mean_us(verb) for one in runs] for layout, runs in called.items()}
        for verb in VERBS
    }
    return {
        "us": us,
        "two_to_dual": {verb: median_ratio(us[verb]["two"], us[verb]["dual"]) for verb in VERBS},
        "returned": returned(called),
        "answers_per_operation": sum(one.count for one in found["dual"])
        / (run.sections * run.operations),
        "related_per_event": _related(called["dual"]),
        "same": found["dual"] == found["two"],
        "same_related": [one.related for one in called["dual"]]
        == [one.related for one in called["two"]],
        "held": held,
    }


def _related(called: list[Called]) -> float:
    events = sum(int(one.publish.sum()) for one in called)
    return sum(one.related.count for one in called) / max(1, events)
