"""Reads of sealed components per operation, beside the paper's tables 3 and 4.

The paper counts disk accesses: one read a level for a list, L + l0 in the worst case, and one
write. A sealed component is what a level or a file is there. Kernels count every look-up of a place
in a component (`E_READS`); a component whose times rule an answer out is not asked and not
counted. Two counts are reported:

    look-ups     as the kernels count them
    components   how many different files these were: in `dual` the second look-up of a self-join is
                 in a file, and mostly on a page, that the first has just read

The second is worked out from the times that each component keeps, by the rules of
`kernels/match.py`, before the operation runs; an operation counts only if its look-ups, worked out
the same way, are those that the kernels counted. (They are not when a seal or a merge ends in
between, or when a row is run again because a buffer was too small.) That share is reported.

An id that is given must be new, so a write also looks for it in every component that has ids of its
kind. The paper's store has no ids; these searches are a column of their own.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import common
from benchmarks.common import say
from benchmarks.experiments_beyond import SEAL_EVERY, beyond
from benchmarks.experiments_common import Rows, Size, Store
from benchmarks.experiments_simple import Run
from tideline.clock import FOREVER
from tideline.kernels import layout as at
from tideline.space import Topics
from tideline.workload.hierarchy import Levels
from tideline.workload.shape import new_york

__all__ = ["measure"]

TREE_RATE = 20


Masks = list[NDArray[np.bool_]]


def measure(size: Size) -> dict[str, Any]:
    """Table 3 for the 3:1 workload, counted in the last of five sections; table 4 by level."""
    run = beyond(size, 5, size.read_operations)
    return {
        "run": asdict(run),
        "simple": {name: _table3(name, False, run) for name in ("dual", "two", "poll")},
        "selfjoin": {name: _table3(name, True, run) for name in ("dual", "two")},
        "hierarchy": _table4(size.read_operations // 20),
    }


# ---- counting -----------------------------------------------------------------------------


class Counter:
    """Counts what the operations of a store read."""

    def __init__(self, store: Store) -> None:
        self.engine = store.channel.core.engine
        self.sides = (self.engine.sides[0], self.engine.sides[-1])
        self.one = self.sides[0] is self.sides[1]
        self.rows: dict[str, list[tuple[int, int, int, int, bool]]] = {}

    def reads(self) -> int:
        """Look-ups so far."""
        sides = self.sides[:1] if self.one else self.sides
        return sum(int(side.memory.state[at.E_READS]) for side in sides)

    def tables(self) -> list[NDArray[np.int64]]:
        """What kernels know of the components of subscriptions and of events."""
        found = []
        for side in self.sides:
            count = int(side.memory.state[at.E_COMPONENT_COUNT])
            found.append(side._table[: count * at.D_WORDS].reshape(count, at.D_WORDS))
        return found

    def note(self, what: str, before: int, asked: list[Masks], there: int, ids: int) -> int:
        """Count an operation that ran; returns its look-ups.

        `asked` are the look-ups it may have made, the likeliest last: for each, which components
        of subscriptions and of events.
        """
        real = self.reads() - before
        opened, clear = 0, False
        for subs, events in asked:
            if int(subs.sum() + events.sum()) == real:
                both = (subs | events).sum() if self.one else subs.sum() + events.sum()
                opened, clear = int(both), True
        self.rows.setdefault(what, []).append((real, opened, there, ids, clear))
        return real

    def result(self) -> dict[str, Any]:
        """Means by kind of operation."""
        found = {}
        for what, rows in self.rows.items():
            reads, opened, there, ids, clear = np.array(rows).T
            sure = clear.astype(bool)
            found[what] = {
                "operations": len(rows),
                "lookups": float(reads.mean()),
                "components": float(opened[sure].mean()) if sure.any() else None,
                "there": float(there.mean()),
                "ids": float(ids.mean()),
                "clear": float(sure.mean()),
            }
        return found


def for_event(subs: NDArray[np.int64], now: int) -> NDArray[np.bool_]:
    """The components an event asks for subscriptions: `answer_subscriptions`."""
    return (
        (subs[:, at.D_SUBS] > 0)
        & (subs[:, at.D_UNTIL_HIGH] > now)
        & (subs[:, at.D_SINCE_LOW] <= now)
    )


def for_window(events: NDArray[np.int64], now: int, since: int, until: int) -> NDArray[np.bool_]:
    """The components a window asks for events: `answer_events`."""
    return (
        (events[:, at.D_EVENTS] > 0)
        & (events[:, at.D_EVENT_UNTIL_HIGH] > now)
        & (events[:, at.D_AT_HIGH] >= since)
        & (events[:, at.D_AT_LOW] < until)
    )


def count(
    store: Store, rows: Rows, *, counter: Counter, joined: bool = False,
    group: list[int] | None = None,
) -> None:  # fmt: skip
    """Run operations and count what each reads."""
    channel = store.channel
    for k in range(len(rows)):
        now = rows.at_us[k]
        for moment, handle in store.due(now):
            _count_poll(store, counter, moment, handle)
        store.move_to(now)
        subs, events = counter.tables()
        no_subs, no_events = np.zeros(len(subs), bool), np.zeros(len(events), bool)
        both = len(subs) + (0 if counter.one else len(events))
        before = counter.reads()
        name = "" if group is None else f"{group[k]} "
        if rows.publish[k]:
            channel.publish(rows.place[k], rows.body[k], id=rows.id[k], ttl_s=20, related=joined)
            near = for_window(events, now, -FOREVER, FOREVER) if joined else no_events
            asked = [[for_event(subs, now), near]]
            ids = int((events[:, at.D_EVENTS] > 0).sum())
            counter.note(name + "publish", before, asked, both if joined else len(subs), ids)
        else:
            handle = channel.subscribe(
                rows.place[k], user=rows.user[k], id=rows.id[k], since_s=-10, until_s=10,
                unseen=joined,
            )  # fmt: skip
            window = for_window(events, now, now - 10_000_000, now + 10_000_000)
            asked = [[no_subs, window]]
            if joined:  # what its user was told before is looked up only if there is an answer
                asked.insert(0, [subs[:, at.D_SUBS] > 0, window])
            ids = int((subs[:, at.D_SUBS] > 0).sum()) if store.layout != "poll" else 0
            there = both if joined else len(events)
            counter.note(name + "subscribe", before, asked, there, ids)
            if store.layout == "poll":
                store.ask_later(now, handle)


def _count_poll(store: Store, counter: Counter, moment: int, handle: Any) -> None:
    store.move_to(moment)
    _, events = counter.tables()
    before = counter.reads()
    handle.take()
    window = for_window(events, moment, handle.since_us, handle.until_us)
    counter.note("poll", before, [[np.zeros(len(events), bool), window]], len(events), 0)


# ---- the tables ---------------------------------------------------------------------------


def _table3(layout: str, joined: bool, run: Run) -> dict[str, Any]:
    """Fill a channel beyond its memory, then count."""
    with common.scratch() as folder, ExitStack() as stack:
        store = run.stores([layout], folder, stack)[layout]
        for section in range(run.sections - 1):
            table = run.table("3:1", section)
            if joined:
                store.call(Rows.of(table), joined=True)
            elif layout == "poll":  # earlier subscribers leave nothing behind here
                store.apply(table.filter(table["user"].is_null()))
            else:
                store.apply(table)
        counter = Counter(store)
        rows = Rows.of(run.table("3:1", run.sections - 1))
        count(store, rows, joined=joined, counter=counter)
        found = counter.result()
        subs = counter.tables()[0]
        mixed = int(((subs[:, at.D_SUBS] > 0) & (subs[:, at.D_EVENTS] > 0)).sum())
        say(f"reads {layout}: {mixed} of {len(subs)} components hold both sides")
    for what, one in found.items():
        say(f"reads {layout}{' joined' if joined else ''} {what}: {_brief(one)}")
    return {"verbs": found, "components": len(subs), "mixed": mixed}


def _table4(operations: int) -> dict[str, Any]:
    """Look-ups of an operation on a cell, by its level; fixed adds up those of its copies."""
    work = Levels(seed=7, shape=new_york().with_rate(TREE_RATE))
    numbers = np.arange(operations)
    level = work.levels(numbers)
    owner = work.leaves(numbers)[0]
    found: dict[str, Any] = {"rate": TREE_RATE, "sealed_every": SEAL_EVERY, "levels": []}
    totals = {}
    with common.scratch() as folder, ExitStack() as stack:
        for way in ("variable", "fixed"):
            space = Topics() if way == "variable" else None
            store = Store(folder / way, "dual", work.start_us, space=space)
            stack.callback(store.close)
            table = work.batch(0, operations) if way == "variable" else work.fixed(0, operations)
            of = numbers if way == "variable" else owner
            counter = Counter(store)
            starts = np.searchsorted(of, np.arange(0, operations, SEAL_EVERY)).tolist()
            for start, limit in zip(starts, [*starts[1:], len(of)], strict=True):
                rows = Rows.of(table.slice(start, limit - start))
                count(store, rows, counter=counter, group=of[start:limit].tolist())
                store.channel.seal()
            reads = np.zeros(operations)
            there = np.zeros(operations)
            for name, notes in counter.rows.items():
                number = int(name.partition(" ")[0])
                reads[number] += sum(note[0] for note in notes)
                there[number] = max(there[number], *(note[2] for note in notes))
            totals[way] = (reads, there)
    late = numbers >= operations // 2  # when components have come and gone for a while
    for one in np.unique(level).tolist():
        chosen = (level == one) & late
        if chosen.any():
            found["levels"].append(
                {"level": one, "operations": int(chosen.sum()), "copies": 4 ** (work.depth - one)}
                | {way: float(reads[chosen].mean()) for way, (reads, _) in totals.items()}
                | {f"{way}_there": float(n[chosen].mean()) for way, (_, n) in totals.items()}
            )
    found["mean"] = {way: float(reads[late].mean()) for way, (reads, _) in totals.items()}
    say(f"reads hierarchy: {found['mean']}")
    return found


def _brief(one: dict[str, Any]) -> str:
    return "  ".join(
        f"{name} {value:.2f}" for name, value in one.items() if isinstance(value, float)
    )
