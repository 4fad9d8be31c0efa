"""The engine of a window: one state, its log, its sub-windows on disk; a client of `Dataset`.

    write    rows -> batch (one frame of the log) -> sub-windows in memory -> a new state
    slide    the first row, or moment, of a later sub-window           publishing.py
    seal     a closed sub-window becomes one run                       sealing.py
    recover  the memory, from the log                                  recovery.py
    read     the state that was published last; no lock

A sub-window is a generation: what freezes, is sealed, merged and dropped whole is always of one.
Its components have the filter `until`, when it goes, so the policy is that of channels (`Window`).

Facts, kept in the manifest: `settings`, `codec`, `late`, `next_seq`, `pane`, `time`,
`writers`. Threads and interrupts: publishing.py.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tideline.clock import FOREVER, Clock
from tideline.index.keyruns import RunReader, RunsKind
from tideline.index.packed import codec_from_json
from tideline.index.rowindex import RowIndexes
from tideline.index.values import TextColumn
from tideline.lsm.dataset import Dataset
from tideline.lsm.files import telling
from tideline.lsm.inventory import Listed, list_of
from tideline.lsm.manifest import Manifest
from tideline.lsm.policy import Window
from tideline.lsm.position import Position
from tideline.lsm.sharedlog import Share, SharedLog
from tideline.lsm.tree import Tree
from tideline.lsm.writers import Writers
from tideline.stream.batch import Batch, Once, codec_for, planned, read_payload, written
from tideline.stream.incoming import Incoming
from tideline.stream.memory import NOTHING, State
from tideline.stream.moments import Moments
from tideline.stream.publishing import Told, mapped_count
from tideline.stream.recovery import Recovering
from tideline.stream.settings import CLOCK, Settings, max_ahead

__all__ = ["Engine"]

_FRAME_ROWS = 1 << 20
_FRAME_BYTES = 256 << 20  # of texts
_DISK_BYTES = 1 << 20


class Engine(Recovering):
    """Everything a window keeps, in memory and on disk."""

    def __init__(
        self, path: Path, facts: dict[str, Any], *, budget: Any, durability: str, logged: bool,
        clock: Clock, segment_bytes: int = 64 << 20, disk_bytes: int = _DISK_BYTES,
        memory_bytes: int | None = None, share: Share | None = None,
    ) -> None:  # fmt: skip
        """With a `share`, its log is one that a cluster agrees on (lsm/sharedlog.py)."""
        self.dataset = Dataset(
            path, facts, durability=durability, logged=logged, segment_bytes=segment_bytes,
            share=share,
        )  # fmt: skip
        self.dataset.own(self)
        self.lock = self.dataset.lock
        self.writing = threading.Lock()
        self.store = self.dataset.store
        self.facts = self.store.facts
        self.settings = Settings.of(self.facts["settings"])
        self.clock = clock
        self.budget = budget
        self.watchers: list[Told] = []
        self.moments = Moments(clock)
        self.unfinished: tuple[Batch | None, int] | None = None
        self.writers = Writers(self.facts.get("writers", []))
        self._logged = logged
        self._disk_bytes = disk_bytes
        self._memory_bytes = memory_bytes
        self._freezing: dict[int, int] = {}  # by sub-window: the first log segment of what freezes
        self._rejoining: set[int] = set()
        codec = self.facts.get("codec")
        self.state = State(
            {}, int(self.facts.get("pane", NOTHING)), int(self.facts.get("time", NOTHING)),
            int(self.facts.get("next_seq", 1)), int(self.facts.get("late", 0)),
            None if codec is None else codec_from_json(codec),
        )  # fmt: skip
        self.indexes: RowIndexes | None = None
        if self.settings.indexes:
            seed = int(self.facts.get("seed", 0))
            self.indexes = RowIndexes(self.settings.indexes, self.settings.names, seed)
        kind = RunsKind(self.settings.names, last=self.settings.last, indexes=self.indexes)
        self.tree: Tree[RunReader] = Tree(
            path, "runs", kind, Window("until"), self.store.next_component, sync=self.store.sync
        )
        self.dropped = 0
        """Sub-windows that were let go of."""
        self.rows = 0
        """Rows that were appended since it was opened."""
        try:
            self.store.attach(self.tree, self.time)
            self.refresh()
            self._recover()
            budget.members.append(self)
            if self.store.is_new or self.store.is_outdated:
                self.dataset.commit()
            self.dataset.tidy_soon()
        except BaseException:
            self.dataset.end_threads()
            self.store.close()
            self._leave_budget()
            raise

    # ---- writing -----------------------------------------------------------------------------

    def append(self, rows: Incoming, once: tuple[str, int] | None = None) -> tuple[int, int, int]:
        """Store rows; how many landed, came too late, and were passed over as landed before.

        Up to 1,048,576 rows are one frame: all of them land or none does.
        """
        position = None
        stored = late = known = 0
        with self.writing:
            self.settle()
            self.require_open()
            if once is not None:
                landed = self.writers.landed(*once)
                known = rows.total if landed is None else rows.place_of(landed)
            start = known
            while start < rows.total:
                limit = _frame_limit(rows, start)
                last = limit == rows.total
                note = None
                if once is not None:
                    note = (*once, FOREVER if last else rows.number_of(limit))
                position, landed_now, late_now = self._write(_cut(rows, start, limit), note)
                stored, late, start = stored + landed_now, late + late_now, limit
            if self.settings.time == CLOCK:
                self._advance()
        if position is not None:
            self.store.log.sync(position)
        return stored, late, known

    def _write(self, rows: Incoming, once: Once) -> tuple[Any, int, int]:
        settings = self.settings
        if "" in settings.types:
            settings = self.settings = replace(settings, types=rows.types)
        state = self.state
        now = self.clock.now()
        codec = codec_for(settings, rows.types, rows.keys, state.codec)
        keys, values, steps, late = planned(rows, settings, codec, state.pane, state.time, now)
        log = self.store.log
        batch = Batch(codec, keys, values, steps, state.next_seq, state.late + late, once, log.mark)
        self.unfinished = batch, log.frames
        position = log.append_parts(written(batch))
        before = state.pane
        with self.lock:
            self.finish_write()
            self.unfinished = None
        if self.state.pane != before:
            self._after_slide()
        self._make_room()
        return position, len(keys), late

    def advance(self) -> None:
        """Let the clock slide a window that goes by it."""
        if self._is_due():
            with self.writing:
                self.settle()
                self.require_open()
                self._advance()

    def _is_due(self) -> bool:
        pane = self.state.pane
        if self.settings.time != CLOCK or pane == NOTHING:
            return False
        return self.settings.pane_of(self.clock.now()) > pane

    def _advance(self) -> None:
        if self._is_due():
            now = self.clock.now()
            with self.lock:
                state = self._slid(self.state, self.settings.pane_of(now))
                self.state = state._replace(time=max(state.time, now))
            self._after_slide()

    def begin(self) -> None:
        """Let time begin for a window that goes by the clock and has no rows yet."""
        if self.settings.time == CLOCK and self.state.pane == NOTHING:
            with self.writing, self.lock:
                if self.state.pane == NOTHING:
                    now = self.clock.now()
                    self.state = self.state._replace(pane=self.settings.pane_of(now), time=now)

    # ---- reading -----------------------------------------------------------------------------

    def view(self) -> tuple[State, int]:
        """What there is now, and the number of the open sub-window."""
        left = self.unfinished
        if left is not None and not self.writing.locked():  # its caller was interrupted
            with self.lock:
                if self.unfinished is left:
                    self.finish_write()
        self.require_open()
        state = self.state
        pane = state.pane
        if self.settings.time == CLOCK and pane != NOTHING:
            pane = max(pane, self.settings.pane_of(self.clock.now()))
        return state, pane

    @property
    def time(self) -> int:
        """The time by which components expire."""
        if self.settings.time == CLOCK:
            return self.clock.now()
        pane = self.state.pane
        return pane * self.settings.slide_us if pane != NOTHING else NOTHING

    def latest(self) -> int:
        """The latest time that a row may have now."""
        ahead = self.settings.max_ahead_us
        return FOREVER if ahead >= FOREVER else self.clock.now() + ahead

    def allow_ahead(self, max_ahead_s: Any) -> None:
        """Change how far ahead of the clock rows may be."""
        change = {"max_ahead_us": max_ahead(max_ahead_s)}
        self.store.decide(change, partial(self.apply_change, change))

    # ---- following another machine -------------------------------------------------------------

    def apply_change(self, change: dict[str, Any]) -> None:
        """Do what a cluster has agreed on, or what there is nobody to agree with on."""
        with self.writing:
            self.settle()
            self.require_open()
            self.settings = replace(self.settings, max_ahead_us=change["max_ahead_us"])
            self.sheltered(self.dataset.commit)

    def follow(self, position: Position, payload: bytes) -> None:
        """Store what another machine wrote, which a cluster agreed on."""
        log = self.store.log
        assert isinstance(log, SharedLog)
        with self.writing:
            self.settle()
            self.require_open()
            batch = read_payload(memoryview(payload), self.settings, log.mark)
            log.take(position, payload)
            before = self.state.pane
            with self.lock:
                self._replay(self._known(batch))
            self._note_types()
            if self.state.pane != before:
                self._after_slide()
            self._make_room()

    # ---- looking after ------------------------------------------------------------------------

    def seal(self) -> None:
        """Write everything in memory as components now."""
        for _ in range(2):  # what was freezing already may have had less in it
            with self.writing:
                self.settle()
                self.require_open()
                self._advance()
                self.dataset.wait_for_seals()
                for pane, sub in list(self.state.subs.items()):
                    if sub.tail is not None or len(sub.runs) > mapped_count(sub):
                        self.sheltered(partial(self._freeze, pane))
            self.drain()

    def maintain(self) -> None:
        """Slide by the clock, drop what has expired, finish background work."""
        with self.writing:
            self.settle()
            self.require_open()
            self._advance()
            self._after_slide()
        self.drain()

    def drain(self) -> None:
        """Run all pending background work to its end."""
        self.dataset.drain()

    def check(self) -> None:
        """Verify every checksum and invariant on disk."""
        self.drain()
        with self.writing:
            self.settle()
            self.dataset.check()

    def backup(self, target: Path) -> dict[str, Listed]:
        """Copy everything as it is now into a new folder, while writers go on; its files.

        Of a window in memory only what it is: a copy begins empty, as it does when it is reopened.
        """
        with self.writing:
            self.settle()
            finish = self.dataset.backup(target) if self._logged else None
        if finish is not None:
            return finish()
        with telling("backup failed", target):
            target.mkdir(parents=True)
        Manifest(target / "MANIFEST").save({"facts": {"settings": self.settings.facts()}})
        return {"MANIFEST": list_of(target / "MANIFEST")}

    def watch(self, told: Told) -> None:
        """Tell somebody of slides from now on: not of one that was due before and nobody made."""
        self.begin()
        with self.writing:
            self.settle()
            self.require_open()
            self._advance()
            with self.lock:
                self.watchers = [*self.watchers, told]

    def unwatch(self, told: Told) -> None:
        """Tell somebody no more."""
        self.watchers = [each for each in self.watchers if each is not told]

    def close(self, why: str = "the database was closed") -> None:
        """Finish background work, save the manifest, let go of the files; `why` is told after."""
        if self.dataset.why_closed:
            return
        self.dataset.stop()
        with self.writing:
            self.settle()
            self.dataset.shut(why)
            for watcher in self.watchers:
                watcher.end()
            self.watchers = []
            self.dataset.close()
            self.state = self.state._replace(subs={})
        self.moments.clear()
        self._leave_budget()

    def leave_to_parent(self, why: str) -> None:
        """In a forked child: everything here belongs to the parent, locks and threads too."""
        self.dataset.leave_to_parent(why)
        self.lock, self.writing = self.dataset.lock, threading.Lock()
        self.unfinished = None

    def _leave_budget(self) -> None:
        if self in self.budget.members:
            self.budget.members.remove(self)

    def require_open(self) -> None:
        """`Closed` when it was closed."""
        if self.dataset.why_closed:
            self.dataset.require_open()


def _frame_limit(rows: Incoming, start: int) -> int:
    """Where a frame ends that begins with a row."""
    limit = min(start + _FRAME_ROWS, rows.total)
    for value in rows.values:
        if isinstance(value, TextColumn):
            ends = value.texts.offsets
            fits = int(np.searchsorted(ends, ends[start] + _FRAME_BYTES, "right")) - 1
            limit = min(limit, max(start + 1, fits))
    return limit


def _cut(rows: Incoming, start: int, limit: int) -> Incoming:
    if (start, limit) == (0, rows.total):
        return rows
    times = None if rows.times is None else rows.times[start:limit]
    keys = [column[start:limit] for column in rows.keys]
    return rows._replace(keys=keys, values=[v[start:limit] for v in rows.values], times=times)
