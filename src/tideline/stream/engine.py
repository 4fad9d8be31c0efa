"""The engine of a window: one state, its log, its sub-windows on disk; a client of `Dataset`.

    write    rows -> batch (one frame of the log) -> sub-windows in memory -> a new state
    slide    the first row, or moment, of a later sub-window: those that are over the span are
             let go of, whole; whoever watches is handed the state as it was
    seal     a closed sub-window becomes one run: in memory, or, from 1 MiB on, a component. The
             same for any sub-window when memory or log is short
    read     the state that was published last; no lock

A sub-window is a generation: what freezes, is sealed, merged and dropped whole is always of one.
Its components have the filter `until`, when it goes, so the policy is that of channels (`Window`).

Facts, kept in the manifest: `settings`, `codec`, `late`, `next_seq`, `pane`, `time`,
`writers`. Recovery replays the log from the first segment with a row that is in no component and
passes over the rows of each sub-window up to the last seq that its components have.

Threads and interrupts are as in documents/engine.py: `writing` is held by one writer, `lock` by
whoever publishes; `unfinished` is the write that is under way, and the log decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tideline.clock import FOREVER, Clock
from tideline.errors import InvalidRequest
from tideline.index.keyruns import Run, RunReader, RunsKind, join_runs
from tideline.index.packed import Codec, Packed, codec_from_json
from tideline.index.rowindex import RowIndexes
from tideline.index.values import TextColumn
from tideline.kernels.layout import SEGMENT
from tideline.lsm.component import Product
from tideline.lsm.dataset import Dataset, Seal, Snapshot
from tideline.lsm.files import telling
from tideline.lsm.filter import MinMax
from tideline.lsm.inventory import Listed, list_of
from tideline.lsm.manifest import Manifest
from tideline.lsm.policy import Window
from tideline.lsm.position import Position
from tideline.lsm.sharedlog import Share, SharedLog
from tideline.lsm.tree import MergeContext, Tree, Work
from tideline.lsm.writers import Writers
from tideline.stream.batch import Batch, Once, codec_for, planned, read_payload, written
from tideline.stream.memory import NOTHING, State, Sub, grown, is_mapped
from tideline.stream.moments import Moments
from tideline.stream.rows import Incoming
from tideline.stream.settings import CLOCK, Settings, max_ahead

__all__ = ["Engine", "Told"]

_FRAME_ROWS = 1 << 20
_FRAME_BYTES = 256 << 20  # of texts
_FROZEN = 4  # sub-windows that wait to be sealed: with one more, writers wait
_DISK_BYTES = 1 << 20
_LOG_BYTES = 256 << 20


class Told(Protocol):
    """Whoever is told of slides; called with the engine's lock, so it only takes note."""

    def slid(self, first: int, limit: int, state: State) -> None:
        """Sub-windows have closed, [first, limit); `state` is from before any was let go of."""
        ...

    def end(self) -> None:
        """Nothing more will come."""
        ...


class Engine:
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

    def finish_write(self) -> None:
        """Bring into memory what the log has and memory has not (the lock is held)."""
        unfinished = self.unfinished
        if unfinished is None or unfinished[0] is None or unfinished[1] == self.store.log.frames:
            return
        if self.state.next_seq == unfinished[0].seq:
            self._land(unfinished[0])

    def _land(self, batch: Batch) -> None:
        """Publish the state with a batch in it; doing it again from the start does no harm."""
        state, at, seq = self.state, 0, batch.seq
        subs = dict(state.subs)
        if batch.once is not None:
            self.writers.note(*batch.once)
        for step in batch.steps:
            if step.pane > state.pane:
                state = self._slid(state._replace(subs=subs), step.pane)
                subs = dict(state.subs)
            state = state._replace(time=max(state.time, step.time))
            for pane, count in step.parts:
                limit = at + count
                subs[pane] = grown(
                    subs.get(pane) or Sub(pane), batch.codec, batch.keys[at:limit],
                    [value[at:limit] for value in batch.values], seq, batch.log,
                    last=self.settings.last,
                )  # fmt: skip
                at, seq = limit, seq + count
        self.state = state._replace(subs=subs, next_seq=seq, late=batch.late, codec=batch.codec)
        self.rows += len(batch.keys)

    def _slid(self, state: State, to: int) -> State:
        """The state once a later sub-window is open (the lock is held)."""
        panes = self.settings.panes
        if state.pane != NOTHING and self.watchers:
            # Behind a silence of more than the span all are empty: one of them is told.
            for watcher in self.watchers:
                watcher.slid(state.pane, min(to, state.pane + panes + 1), state)
        if to - state.pane < panes:  # those there are lie in (state.pane - panes, state.pane]
            kept = dict(state.subs)
            for pane in range(state.pane - panes + 1, to - panes + 1):
                kept.pop(pane, None)
        else:
            kept = {pane: sub for pane, sub in state.subs.items() if pane > to - panes}
        gone = len(state.subs) - len(kept)
        if gone:
            self.dropped += gone
            if not self.dataset.stopping:
                # Large memory is given back in the background: the last reference goes there.
                self.dataset.submit(partial(_let_go, [state.subs]))
        return state._replace(subs=kept, pane=to)

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

    # ---- interrupted calls (as documents/engine.py) ------------------------------------------

    def finish_call(self) -> None:
        """Bring a write to its end that was interrupted (the lock is held)."""
        self.finish_write()

    def sheltered(self, work: Callable[[], None]) -> None:
        """Run something of many steps that nothing can cut (`writing` is held)."""
        self.unfinished = None, self.store.log.frames
        self.dataset.shelter.run(work)
        self.unfinished = None

    def settle(self) -> None:
        """Bring what was cut to its end (`writing` is held)."""
        if self.unfinished is not None:
            self.dataset.shelter.finish()
            self.store.log.repair()
            with self.lock:
                self.finish_write()
                self.unfinished = None

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

    # ---- sealing -----------------------------------------------------------------------------

    def _after_slide(self) -> None:
        """Let go of expired components, and seal what has closed (`writing` is held)."""
        with self.lock:
            gone = self.tree.drop_expired(self.time)
            if gone:
                self.refresh()
        for pane, sub in self.state.subs.items():
            if pane < self.state.pane:
                self._seal_soon(sub)
        if not self.dataset.stopping:
            self.dataset.tidy_soon()

    def _seal_soon(self, sub: Sub) -> None:
        if sub.pane in self._freezing or sub.pane in self._rejoining:
            return
        if self._logged and sub.memory_bytes >= self._disk_bytes:
            self.sheltered(partial(self._freeze, sub.pane))
        elif sub.tail is not None or len(sub.runs) - _mapped(sub) > 1:
            with self.lock:
                self._hold(sub.pane)
                self._rejoining.add(sub.pane)
            self.dataset.submit_seal(partial(self._rejoin, sub.pane))

    def _hold(self, pane: int) -> Sub:
        """What a sub-window has stays as it is until its seal (the lock is held)."""
        state = self.state
        sub = state.subs[pane].flushed(_codec(state), last=self.settings.last)
        sub = sub._replace(frozen=len(sub.runs))
        self.state = state._replace(subs={**state.subs, pane: sub})
        return sub

    def _rejoin(self, pane: int) -> None:
        """Make one run, in memory, of what a closed sub-window has in memory."""
        sub, codec = self.state.subs.get(pane), _codec(self.state)
        joined: Run | None = None
        if sub is not None:
            held = sub.runs[_mapped(sub) : sub.frozen]
            try:
                joined = join_runs(held, codec, last=self.settings.last)
                joined.span((0, 0) if codec.is_packed else (b"", b""))  # makes its directory
                if self.indexes is not None:
                    self.indexes.build(joined)
            except BaseException:  # no memory: it stays as it is, and may be sealed
                with self.lock:
                    self._rejoining.discard(pane)
                raise
        with self.lock:
            self.finish_write()
            self._rejoining.discard(pane)
            sub = self.state.subs.get(pane)
            if sub is not None and joined is not None:
                mapped = _mapped(sub)
                runs = (*sub.runs[:mapped], joined, *sub.runs[sub.frozen :])
                self._publish(sub._replace(runs=runs, frozen=mapped))

    def _publish(self, sub: Sub) -> None:
        self.state = self.state._replace(subs={**self.state.subs, sub.pane: sub})

    def _make_room(self) -> None:
        """Freeze the largest sub-windows while memory or log is short (`writing` is held)."""
        while True:
            subs = [
                sub for pane, sub in self.state.subs.items()
                if pane not in self._freezing and pane not in self._rejoining
            ]  # fmt: skip
            if sum(sub.memory_bytes for sub in subs) > self._most_bytes:
                chosen = max(subs, key=lambda sub: sub.memory_bytes)
            elif self._freezing and self.memory_bytes > 2 * self._most_bytes:
                # What is being sealed goes on growing, faster than it is sealed: writers wait.
                self.sheltered(partial(self.dataset.wait_for_room, 1))
                continue
            elif self._log_is_long():
                chosen = min(subs, key=lambda sub: sub.first_log, default=Sub(0))
            else:
                return
            if chosen.first_log == FOREVER and not chosen.memory_bytes:
                return
            self.sheltered(partial(self._freeze, chosen.pane))

    @property
    def _most_bytes(self) -> int:
        """The memory it may take."""
        return self._memory_bytes or int(self.budget.left_for(self)) * SEGMENT * 8

    def _log_is_long(self) -> bool:
        if not self._logged:
            return False
        first = min((sub.first_log for sub in self.state.subs.values()), default=FOREVER)
        limit = max(_LOG_BYTES, self.budget.size_bytes)
        return first < self.store.log.mark and self.store.log.size_from(first) > limit

    def _freeze(self, pane: int) -> None:
        """Have what a sub-window has in memory written as a component (sheltered)."""
        self.dataset.wait_for_room(_FROZEN)
        self.store.log.rotate()
        with self.lock:
            busy = pane in self._freezing or pane in self._rejoining
            seal = None if busy or pane not in self.state.subs else self._frozen(pane)
        if seal is not None:
            self.dataset.freeze(seal)

    def _frozen(self, pane: int) -> Seal:
        """What seals all that a sub-window has in memory (the lock is held, or nobody else is)."""
        sub = self._hold(pane)
        self._freezing[pane] = sub.first_log
        self._publish(sub._replace(first_log=FOREVER))
        span = MinMax(min(sub.low, sub.version - 1), sub.version - 1)
        return Seal(partial(self._products, pane, span), partial(self._done, pane))

    def _products(self, pane: int, span: MinMax) -> Iterator[tuple[Tree[Any], Sequence[Product]]]:
        sub = self.state.subs.get(pane)
        if sub is None:  # the window has slid over it
            return
        held = sub.runs[_mapped(sub) : sub.frozen]
        run = join_runs(held, _codec(self.state), last=self.settings.last)
        until = (pane + self.settings.panes) * self.settings.slide_us
        filters = {"until": MinMax(until, until), "seq": span}
        yield self.tree, self.tree.kind.seal(run, (pane, filters))

    def _done(self, pane: int) -> None:
        """Its component counts: what froze goes (the lock is held, `refresh` follows)."""
        self._freezing.pop(pane, None)
        sub = self.state.subs.get(pane)
        if sub is not None:
            mapped = self._components(pane)
            self._publish(sub._replace(runs=(*mapped, *sub.runs[sub.frozen :]), frozen=len(mapped)))

    def _components(self, pane: int) -> tuple[Run, ...]:
        return tuple(reader.run for reader in self.tree.readers if reader.pane == pane)

    def refresh(self) -> None:
        """Components came or went: the sub-windows have those there are (the lock is held)."""
        state, panes = self.state, self.settings.panes
        subs = dict(state.subs)
        of: dict[int, list[RunReader]] = {}
        for reader in self.tree.readers:
            of.setdefault(reader.pane, []).append(reader)
        for pane, readers in of.items():
            if state.pane != NOTHING and pane <= state.pane - panes:
                continue
            sub = subs.get(pane) or Sub(pane)
            before = _mapped(sub)
            mapped = tuple(reader.run for reader in readers)
            if sub.runs[:before] != mapped:
                frozen = max(sub.frozen, before) - before + len(mapped)
                high = max(reader.seqs.high for reader in readers) + 1
                subs[pane] = sub._replace(
                    runs=(*mapped, *sub.runs[before:]), frozen=frozen,
                    version=max(sub.version, high), sealed=high,
                )  # fmt: skip
        self.state = state._replace(subs=subs)

    def merge_context(self, tree: Tree[Any], work: Work) -> MergeContext:
        """Keys become those of the codec there is now."""
        return MergeContext(owner=_codec(self.state))

    # ---- facts, recovery, the end ------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What the manifest has to say (the lock is held)."""
        state = self.state
        logs = [sub.first_log for sub in state.subs.values()]
        first = min([*logs, *self._freezing.values(), self.store.log.mark])
        facts = {
            **self.facts, "settings": self.settings.facts(), "pane": state.pane, "time": state.time,
            "codec": None if state.codec is None else state.codec.to_json(), "late": state.late,
            "next_seq": state.next_seq, "writers": self.writers.to_json(),
        }  # fmt: skip
        return Snapshot(facts, first, first)

    def _recover(self) -> None:
        """Bring the memory back from the log."""
        for segment, payload in self.store.log.replay():
            self._replay(self._known(read_payload(payload, self.settings, segment)))
            self._make_room_at_once()
        state, panes = self.state, self.settings.panes
        kept = {pane: sub for pane, sub in state.subs.items() if pane > state.pane - panes}
        self.state = state._replace(subs=kept)
        self._note_types()
        self.rows = 0

    def _known(self, batch: Batch) -> Batch:
        """A batch of the log with the codec there is, if it has that one."""
        if self.state.codec is not None and batch.codec == self.state.codec:
            return batch._replace(codec=self.state.codec)
        return batch

    def _note_types(self) -> None:
        """The types of keys that were to be found, once rows have told them."""
        codec = self.state.codec
        if codec is not None and "" in self.settings.types:
            types = ("int",) * len(self.settings.key) if isinstance(codec, Packed) else codec.types
            self.settings = replace(self.settings, types=tuple(types))

    def _make_room_at_once(self) -> None:
        """Seal the largest sub-windows while memory is short, in this thread."""
        while self.memory_bytes > self._most_bytes:
            sub = max(self.state.subs.values(), key=lambda sub: sub.memory_bytes)
            if not sub.memory_bytes:
                return
            self.dataset.seal(self._frozen(sub.pane))

    def _replay(self, batch: Batch) -> None:
        """Land the rows of a batch that are in no component."""
        at, seq, kept = 0, batch.seq, np.ones(len(batch.keys), bool)
        steps = []
        for step in batch.steps:
            parts = []
            for pane, count in step.parts:
                sub = self.state.subs.get(pane)
                sealed = max(0 if sub is None else sub.sealed, seq)
                passed = min(sealed - seq, count)
                kept[at : at + passed] = False
                if passed < count:
                    parts.append((pane, count - passed, seq + passed))
                at, seq = at + count, seq + count
            steps.append((step, parts))
        subs, at = dict(self.state.subs), 0
        keys, values = batch.keys[kept], [value[kept] for value in batch.values]
        state = self.state
        for step, parts in steps:
            floor = max(state.pane, step.pane) - self.settings.panes
            subs = {pane: sub for pane, sub in subs.items() if pane > floor}
            state = state._replace(pane=max(state.pane, step.pane), time=max(state.time, step.time))
            for pane, count, first in parts:
                if pane > floor:
                    subs[pane] = grown(
                        subs.get(pane) or Sub(pane), batch.codec, keys[at : at + count],
                        [value[at : at + count] for value in values], first, batch.log,
                        last=self.settings.last,
                    )  # fmt: skip
                at += count
        codec = batch.codec if seq >= state.next_seq or state.codec is None else state.codec
        if batch.once is not None:
            self.writers.note(*batch.once)
        self.state = state._replace(
            subs=subs, next_seq=max(state.next_seq, seq), late=max(state.late, batch.late),
            codec=codec,
        )  # fmt: skip

    def seal(self) -> None:
        """Write everything in memory as components now."""
        for _ in range(2):  # what was freezing already may have had less in it
            with self.writing:
                self.settle()
                self.require_open()
                self._advance()
                self.dataset.wait_for_seals()
                for pane, sub in list(self.state.subs.items()):
                    if sub.tail is not None or len(sub.runs) > _mapped(sub):
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

    @property
    def segments_used(self) -> int:
        """What its memory takes of the budget."""
        return self.memory_bytes // (SEGMENT * 8)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the sub-windows in memory."""
        return sum(sub.memory_bytes for sub in self.state.subs.values())

    def _leave_budget(self) -> None:
        if self in self.budget.members:
            self.budget.members.remove(self)

    def require_open(self) -> None:
        """`Closed` when it was closed."""
        if self.dataset.why_closed:
            self.dataset.require_open()


def _codec(state: State) -> Codec:
    if state.codec is None:
        raise InvalidRequest("nothing has been appended yet")
    return state.codec


def _mapped(sub: Sub) -> int:
    """How many of its runs are components: the first ones."""
    count = 0
    while count < len(sub.runs) and is_mapped(sub.runs[count]):
        count += 1
    return count


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


def _let_go(held: list[Any]) -> None:
    held.clear()
