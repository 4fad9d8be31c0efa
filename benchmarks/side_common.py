"""What the parts of benchmarks/side_by_side.py share: the systems, the sizes, the truth, a run.

    Operations ──> Truth (embedded Tideline, not timed) ──> answers of rows [first, limit)
        │                                                        │
        └──> Run (one system: prepare, timed apply, answers) ──> Verdict: the same, row by row

A system that is not there is named with what is missing, and the others run. Systems that follow
the wall clock get operations that happen when they are sent, in a run of their own.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import common
from benchmarks.peers.base import Given, Peer, answer_type
from benchmarks.peers.columns import microseconds
from benchmarks.peers.tideline import TidelinePeer
from tideline.workload.shape import new_york
from tideline.workload.tweets import Operations

__all__ = [
    "SIZES",
    "SYSTEMS",
    "Run",
    "Size",
    "System",
    "Truth",
    "Verdict",
    "find_systems",
    "opened",
    "reason",
    "workload",
]

_ORDER = ["row", "subscription", "event"]


# ---- the systems -------------------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    """A system under test, and where it runs."""

    key: str
    path: str
    where: str

    def load(self) -> type[Peer]:
        """Its class; ImportError when its module or client is not there."""
        module, _, name = self.path.partition(":")
        found: type[Peer] = getattr(importlib.import_module(module), name)
        return found

    def missing(self) -> str | None:
        """What must be installed first."""
        try:
            return self.load().missing()
        except ImportError as error:
            return str(error)


_PEERS = "benchmarks.peers"
SYSTEMS = {
    system.key: system
    for system in (
        System("tideline", f"{_PEERS}.tideline:TidelinePeer", "in-process"),
        System("sqlite", f"{_PEERS}.sqlite:SqlitePeer", "in-process"),
        System("rocksdb", f"{_PEERS}.rocks_channel:RocksPeer", "in-process"),
        System("tideline-server", f"{_PEERS}.tideline_server:TidelineServerPeer", "server"),
        System("postgres", f"{_PEERS}.postgres:PostgresPeer", "server"),
        System("redis", f"{_PEERS}.redis_channel:RedisPeer", "server"),
        System("nats", f"{_PEERS}.nats:NatsPeer", "server"),
    )
}


def find_systems(keys: Sequence[str]) -> tuple[list[System], dict[str, str]]:
    """The systems that can run, and of the others what is not installed."""
    systems, missing = [], {}
    for key in keys:
        lacking = SYSTEMS[key].missing()
        if lacking is None:
            systems.append(SYSTEMS[key])
        else:
            missing[key] = f"not installed: {lacking}"
            common.say(f"{key}: {missing[key]}")
    return systems, missing


@contextmanager
def opened(system: System, **settings: Any) -> Iterator[Peer]:
    """The system, started in a folder of its own and stopped at the end."""
    with common.scratch() as folder:
        peer = system.load()(Given(folder, **settings))
        try:
            yield peer
        finally:
            peer.close()


def reason(error: BaseException) -> str:
    """An error as one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


# ---- sizes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """How much is measured, and for how long at most. Times are of one system."""

    rate: int = 5_000
    """Operations a second of channel time."""
    warm: int = 50_000
    warm_s: float = 10.0
    operations: int = 200_000
    """The most that are timed of one mix."""
    speed_s: float = 6.0
    rounds: int = 4
    clock_s: float = 12.0
    """For systems that follow the wall clock: a window's reach and more."""
    singles: int = 6_000
    single_s: float = 4.0
    delivered: int = 500
    """Events that are delivered, one at a time."""
    records: int = 100_000
    """Live events, and as many live subscriptions, whose room is measured."""
    room_s: float = 15.0
    beyond_mb: int = 48
    """The memory allowed where data is to be larger than memory."""
    grow: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    load_s: float = 20.0
    """The longest that loading may take, all sizes together."""
    grow_s: float = 2.0
    grow_operations: int = 200_000
    crash_s: float = 1.0
    kills: int = 2
    timeout_s: float = 120.0
    """The longest that a scenario may take."""


SIZES = {
    "tiny": Size(  # to see that all of it runs: the counts end it, also on a busy machine
        rate=300, warm=600, warm_s=5, operations=1_500, speed_s=600, rounds=2, clock_s=2,
        singles=100, single_s=20, delivered=20, records=1_000, room_s=5, beyond_mb=16,
        grow=(500, 2_000), load_s=600, grow_s=1, grow_operations=600, crash_s=0.3, kills=1,
        timeout_s=600,
    ),
    "small": Size(),
    "full": Size(
        warm=100_000, warm_s=60, operations=2_000_000, speed_s=40, rounds=8, clock_s=60,
        singles=50_000, single_s=20, delivered=5_000, records=1_000_000, room_s=300, beyond_mb=64,
        grow=(10_000, 100_000, 1_000_000, 10_000_000), load_s=1_800, grow_s=10,
        grow_operations=1_000_000, crash_s=5, kills=5, timeout_s=900,
    ),
}  # fmt: skip


def workload(rate: int, subscriptions: int, events: int, **settings: Any) -> Operations:
    """The tweet-like operations of the paper: 500 by 500 cells, 10 s back and ahead, 20 s valid."""
    shape = new_york().with_rate(rate)
    return Operations(seed=7, shape=shape, subscriptions=subscriptions, events=events, **settings)


# ---- the truth ---------------------------------------------------------------------------------


@dataclass
class Verdict:
    """Whether a system's answers are those of embedded Tideline, row by row."""

    rows: int = 0
    answers: int = 0
    missing: int = 0
    extra: int = 0
    example: str = ""
    edges: int = 0
    """Differences that are excused: so near to the edge of a window that a wall clock decides."""
    edge_s: float = 0.0

    @property
    def same(self) -> bool:
        return not self.missing and not self.extra

    def compare(
        self, got: np.ndarray, wanted: np.ndarray, rows: int,
        excuse: Callable[[int, int], bool] | None = None,
    ) -> None:  # fmt: skip
        """Take in the answers of some rows; one that is given twice is one too many.

        `excuse` says of a subscription and an event whether either is right.
        """
        self.rows += rows
        self.answers += len(wanted)
        got, wanted = np.sort(got, order=_ORDER), np.sort(wanted, order=_ORDER)
        if np.array_equal(got, wanted):
            return
        there, due = got.tolist(), wanted.tolist()
        missing, extra = set(due) - set(there), set(there) - set(due)
        if excuse is not None:
            excused = {one for one in missing | extra if excuse(one[1], one[2])}
            missing, extra = missing - excused, extra - excused
            self.edges += len(excused)
        self.missing += len(missing)
        self.extra += len(extra) + len(there) - len(set(there))
        if not self.example:
            what, some = ("missing", missing) if missing else ("extra", extra or set(there))
            row, subscription, event = min(some)
            self.example = f"row {row}: {what} subscription {subscription}, event {event}"

    def text(self) -> str:
        """In a table."""
        if self.same and self.edges:
            return f"the same, but for {self.edges:,} within {self.edge_s:.1f} s of a window's edge"
        if self.same:
            return "the same"
        share = (self.missing + self.extra) / max(1, self.answers)
        return (
            f"OTHER: {self.missing:,} missing, {self.extra:,} extra ({share:.2%}); {self.example}"
        )

    def record(self) -> dict[str, Any]:
        return {"same": self.same, "rows": self.rows, "answers": self.answers, "text": self.text()}


class Truth:
    """The answers of embedded Tideline to a workload, kept as far as anyone has asked."""

    def __init__(self, operations: Operations, folder: Path) -> None:
        self.operations = operations
        self._peer = TidelinePeer(Given(folder, shapes=operations.place == "circle"))
        self._blocks: list[np.ndarray] = []
        self._size = 10_000

    def between(self, first: int, limit: int) -> np.ndarray:
        """The answers of the rows [first, limit), which are numbered from the workload's start."""
        while len(self._blocks) * self._size < limit:
            start = len(self._blocks) * self._size
            prepared = self._peer.prepare(self.operations.batch(start, self._size))
            answers = self._peer.answers(self._peer.apply(prepared))
            answers["row"] += start
            self._blocks.append(answers)
        touched = self._blocks[first // self._size : -(-limit // self._size)]
        found = np.concatenate(touched) if touched else np.zeros(0, self._blocks[0].dtype)
        return found[(found["row"] >= first) & (found["row"] < limit)]

    def of(self, rows: pa.RecordBatch) -> np.ndarray:
        """The answers of rows that are not the workload's own, one batch after the other."""
        return self._peer.answers(self._peer.apply(self._peer.prepare(rows)))

    def close(self) -> None:
        self._peer.close()


def _at(rows: pa.RecordBatch, now_us: int) -> pa.RecordBatch:
    """The same operations, all of them now."""
    shift = now_us - microseconds(rows, "at")
    for name in ("at", "since", "until"):
        column = rows.column(name)
        moved = pa.array(microseconds(rows, name) + shift, mask=np.asarray(column.is_null()))
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, moved.cast(column.type))
    return rows


# ---- a run -------------------------------------------------------------------------------------


@dataclass
class Section:
    """What was done in one turn."""

    operations: int = 0
    spent_s: float = 0.0
    answers: int = 0


@dataclass
class Run:
    """One system on its way through a workload, in turns."""

    system: System
    peer: Peer
    truth: Truth
    verdict: Verdict = field(default_factory=Verdict)
    done: int = 0
    failed: str = ""
    speed: float = 100.0
    """Operations a second, as far as is known: what a batch may be without taking too long."""
    single: Callable[[str, int], None] | None = None
    """When set, a call takes one operation, and this is told its verb and its nanoseconds."""
    got: list[np.ndarray] | None = None
    """The answers of a run by the clock, which are compared at its end."""

    def turn(self, seconds: float, limit: int) -> Section:
        """Apply batches until the time is up or the rows below `limit` are done."""
        section = Section()
        wall = time.perf_counter() + 3 * seconds  # preparing and comparing count for a part
        while not self.failed and self.done < limit and section.spent_s < seconds:
            if time.perf_counter() > wall and section.operations:
                break
            count = int(self.speed * max(0.05, (seconds - section.spent_s) / 2))
            count = max(1, min(count, self.peer.batch, limit - self.done))
            self._apply_rows(self.truth.operations.batch(self.done, count), section)
        return section

    def by_clock(self, seconds: float) -> Section:
        """Apply batches for so long, each at the time of the wall clock when it is sent.

        For a system that knows no other time. What comes a call later is no less right, so the
        answers are compared at the end, but for those whose time is so near to the edge of a window
        that it depends on when within its call an operation was done.
        """
        section, operations = Section(), self.truth.operations
        times, due, late_s = [], [], 0.0
        self.got = []
        while not self.failed and section.spent_s < seconds:
            count = 1 if self.single else max(1, min(int(self.speed / 4), self.peer.batch))
            before = section.spent_s
            rows = _at(operations.batch(self.done, count), time.time_ns() // 1000)
            times.append(microseconds(rows, "at"))
            self._apply_rows(rows, section)
            late_s = max(late_s, section.spent_s - before)
            due.append(self.truth.of(rows))
        at = np.concatenate(times)
        edge_us = (self.peer.tolerance_s + late_s) * 1e6
        back, ahead, valid = (
            s * 1e6 for s in (operations.back_s, operations.ahead_s, operations.valid_s)
        )

        def near(subscription: int, event: int) -> bool:
            apart = at[event] - at[subscription]
            return min(abs(apart + back), abs(apart - ahead), abs(apart + valid)) <= edge_us

        got, wanted = (
            np.concatenate([*some, np.zeros(0, answer_type)]) for some in (self.got, due)
        )
        got["row"] = wanted["row"] = 0
        self.verdict.edge_s = edge_us / 1e6
        self.verdict.compare(got, wanted, self.done, near)
        return section

    def _apply_rows(self, rows: pa.RecordBatch, section: Section) -> None:
        count = rows.num_rows
        prepared = self.peer.prepare(rows)
        begin = time.perf_counter()
        try:
            outcome = self.peer.apply(prepared)
        except Exception as error:
            self.failed = f"failed at operation {self.done:,}: {reason(error)}"
            return
        spent = time.perf_counter() - begin
        if self.single:
            self.single(rows.column("op")[0].as_py(), round(spent * 1e9))
        answers = self.peer.answers(outcome)
        if self.got is not None:
            self.got.append(answers)
        else:
            answers["row"] += self.done
            self.verdict.compare(answers, self.truth.between(self.done, self.done + count), count)
        self.done += count
        self.speed = count / max(spent, 1e-6)
        section.operations += count
        section.spent_s += spent
        section.answers += len(answers)
