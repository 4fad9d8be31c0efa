"""The engine of a collection: generations, components, log and recovery.

    write    rows -> log (one frame) -> active generation: primary memory and every index
    read     active generation, frozen ones, components: always newest first; `get` looks among the
             records that were read lately before
    seal     a full generation freezes; the worker writes one component a tree; all take its place
             at once (upkeep.py); indexes come and go meanwhile (building.py)

Every write of a record has a seq: 1, 2, 3 and so on. An index entry is (value, key, seq), and it
counts exactly when the newest version of its key has that seq. So indexes need no deletes, and a
record that was replaced cannot appear, whatever has been merged so far.

Facts, kept in the manifest: `seed`, `indexes` (field -> kind), `building` (fields whose index is
not complete yet), `policy`, `filter` (a field or None), `bloom_bits`, `next_seq`, `workload` (what
was done so far, for `advise`; the owner of the engine counts it), and those of the feed (feed.py).

Threads: `lock` guards what there is to read; every reader holds it, but for scans, which take
note of what there is and then read without. `writing` is held by one writer at a time, over log
and memory; who holds it may take `lock`, never the other way round.

Exceptions thrown into a caller (Ctrl-C, a signal handler that raises) may come at any moment. A
write is whole or not at all all the same (docs/decisions/0040-interrupts.md): `unfinished` is the
write that is under way, and the log decides. Once the log has its frame, whoever takes `lock`
next brings it into memory, be it the writer or a reader; adding it again does no harm. What
takes many steps, freezing and changes of indexes, is sheltered. Whoever takes `writing` settles
what an earlier one may have left.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.clock import Clock, SystemClock
from tideline.documents.alone import Index
from tideline.documents.building import Building
from tideline.documents.feed import Feed
from tideline.documents.generation import Generation
from tideline.documents.parts import Extract, completed, in_parts
from tideline.documents.payload import payload_parts, read_payload
from tideline.documents.policies import POLICIES, policy_of
from tideline.documents.recent import Recent
from tideline.documents.scan import Scan
from tideline.documents.sources import Sources
from tideline.documents.types import PUT, Estimate, Found, Rows
from tideline.documents.upkeep import Upkeep
from tideline.errors import Closed, InvalidRequest, NotFound, TidelineError, Unavailable
from tideline.index.records import Records
from tideline.index.sorted import BLOCK_BYTES, SortedKind, SortedReader
from tideline.index.texts import Texts
from tideline.kernels.documents.layout import HIGH_OPEN, LOW_OPEN, X_SEQ_HIGH
from tideline.kernels.layout import SEGMENT
from tideline.lsm.backup import begin_copy
from tideline.lsm.inventory import Listed
from tideline.lsm.store import Store
from tideline.lsm.tree import Tree
from tideline.shelter import Shelter

__all__ = ["KINDS", "POLICIES", "Engine"]

KINDS = ("embedded", "composite", "lazy", "eager")
_LEAST_BYTES, _MOST_BYTES = 256 << 10, 64 << 20
_RECENT_BYTES = 4 << 20
_NO_ROWS = Rows(np.full(0, PUT, np.uint8), Texts.of([]), Texts.of([]), {})


class Engine:
    """Everything a collection keeps, in memory and on disk."""

    def __init__(
        self, path: Path, facts: dict[str, Any], *, budget: Any, durability: str, logged: bool,
        extract: Extract, segment_bytes: int = 64 << 20, generation_bytes: int | None = None,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self.lock = threading.Lock()
        self.writing = threading.Lock()
        self.extract = extract
        self.store = Store(path, durability=durability, logged=logged, segment_bytes=segment_bytes)
        if self.store.is_new:
            self.store.facts = dict(facts)
        self.facts = self.store.facts
        self.shelter = Shelter()
        self.store.log.shelter = self.shelter.run
        self.unfinished: tuple[Rows, int, int] | None = None
        """What is being written: rows, the seq of the first, the frames of the log before."""
        self.seed = int(self.facts["seed"])
        self.filter: str | None = self.facts.get("filter")
        # Both are replaced, never changed: who reads them needs no lock.
        self.indexes: dict[str, str] = dict(self.facts.get("indexes", {}))
        self.building: list[str] = list(self.facts.get("building", []))
        self.next_seq = int(self.facts.get("next_seq", 1))
        self.workload: Callable[[], dict[str, Any]] = lambda: self.facts.get("workload", {})
        self.budget = budget
        self._generation_bytes = generation_bytes
        self.frozen: list[Generation] = []  # oldest first
        self._spare: list[Records] = []
        self._recent = Recent(min(_RECENT_BYTES, budget.size_bytes // 64))
        self._closed, self._why = False, "the database was closed"
        self.sources = Sources(self.seed)
        self._policy = self.facts.get("policy", "prefix")
        kind = SortedKind(
            seed=self.seed, bloom_bits=int(self.facts.get("bloom_bits", 20)), extract=extract
        )
        self.kind = kind
        self.primary: Tree[SortedReader] = Tree(
            path, "primary", kind, policy_of(self._policy, None), self.store.next_component,
            sync=self.store.sync,
        )  # fmt: skip
        self.alone: dict[str, Index] = {}
        self.upkeep = Upkeep(self)
        self.building_jobs = Building(self)
        self.feed = Feed(self, clock or SystemClock())
        try:
            self.store.attach(self.primary, 0)
            for field, name in self.indexes.items():
                if name != "embedded":
                    self.alone[field] = self.new_index(field, name)
                    self.store.attach(self.alone[field].tree, 0)
            self.active = self.new_generation()
            self.active.first_log = self.store.first_log
            self.refresh()
            self._recover()
            budget.members.append(self)
            if self.store.is_new or self.store.is_outdated:
                self.store.commit(self.lock, self.snapshot)
            self.building_jobs.resume()
            self.upkeep.tidy()
        except BaseException:
            self.upkeep.close()
            self.store.close()
            self._leave_budget()
            raise

    # ---- what there is (the lock is held) -------------------------------------------------

    @property
    def embedded(self) -> list[str]:
        """The fields with an embedded index, in the order in which searches number them."""
        return [field for field, kind in self.indexes.items() if kind == "embedded"]

    @property
    def fields(self) -> list[str]:
        """What a write has to bring entries of."""
        return list(self.indexes)

    def new_index(self, field: str, name: str) -> Index:
        """A stand-alone index with an empty tree."""
        policy = policy_of(self._policy, lambda: self.primary.infos)
        return Index(field, name, self.store, policy, seed=self.seed)

    def new_generation(self) -> Generation:
        """An empty generation for the indexes there are."""
        share = self.budget.left_for(self) * SEGMENT * 8 // 3
        size = self._generation_bytes or max(_LEAST_BYTES, min(_MOST_BYTES, share))
        memories = {
            field: index.kind.memory(size // 4, index.view)
            for field, index in self.alone.items()
        }  # fmt: skip
        while self._spare:
            records = self._spare.pop()
            if records.limit_bytes == size and records.fields == self.embedded:
                records.clear()
                break
        else:
            records = Records(size, self.embedded, seed=self.seed)
        return Generation(records, memories, first_log=self.store.log.mark)

    def begin_generation(self) -> None:
        """Replace the active generation, which is empty, by one for the indexes there are now."""
        self.active = self.new_generation()
        self.refresh()

    def recycle(self, generation: Generation) -> None:
        """Keep the memory of a sealed generation, unless a scan reads it."""
        if not generation.records.readers and not self._spare:
            self._spare.append(generation.records)

    def refresh(self) -> None:
        """Tell kernels and views what there is now."""
        generations = [self.active, *reversed(self.frozen)]
        readers = list(reversed(self.primary.readers))
        self.sources.refresh(generations, readers, self.embedded)
        for index in self.alone.values():
            index.refresh(generations)

    # ---- writing -----------------------------------------------------------------------------

    def write(self, rows: Rows) -> int:
        """Store rows in order; returns the seq of the first.

        Up to 32 MiB or 65,536 rows are one frame: all of it lands or nothing does. More is
        several frames, and an error leaves those before it.
        """
        if not rows.count:
            return self.next_seq
        position = None
        with self.writing:
            if self.unfinished is not None:
                self.settle()
            first = self.next_seq
            for part in in_parts(rows):
                position = self._write_part(part)
        if position is not None:
            self.store.log.sync(position)
            if self.store.sync and self.feed.bells:
                self.feed.ring()  # followers see what is on disk
        return first

    def _write_part(self, rows: Rows) -> Any:
        if not self.feed.wants_old or not self.feed.still_wants_old():
            return self._write_frame(rows)
        position = None
        for part, old in self.feed.with_old(rows):
            position = self._write_frame(part, old)
        return position

    def _write_frame(self, rows: Rows, old: Sequence[bytes | None] | None = None) -> Any:
        if self._closed:
            raise Closed(self._why)
        if self.active.is_full:
            self.sheltered(self.upkeep.freeze)
        rows = completed(rows, self.active.fields, self.filter, self.extract)
        seq = self.next_seq
        log = self.store.log
        self.unfinished = rows, seq, log.frames
        position = log.append_parts(payload_parts(rows, seq, old))
        with self.lock:
            self.finish_write()
        return position

    # ---- interrupted calls -------------------------------------------------------------------

    def finish_write(self) -> None:
        """Bring into memory what the log has and memory has not (the lock is held).

        Cut by an exception, it is done again by whoever takes the lock next.
        """
        unfinished = self.unfinished
        if unfinished is None or unfinished[2] == self.store.log.frames:
            return
        rows, seq, _ = unfinished
        self._recent.forget(rows.keys)
        self.active.add(rows, seq)
        limit = seq + rows.count
        if self.feed.bells:
            self.feed.ring()  # before the write counts as finished: cut, it is done again
        self.next_seq, self.unfinished = limit, None

    def sheltered(self, work: Callable[[], None]) -> None:
        """Run something of many steps that nothing can cut (`writing` is held)."""
        self.unfinished = _NO_ROWS, self.next_seq, self.store.log.frames
        self.shelter.run(work)
        self.unfinished = None

    def settle(self) -> None:
        """Bring what was cut to its end (`writing` is held); for whoever takes that lock."""
        if self.unfinished is not None:
            self.shelter.finish()
            self.store.log.repair()
            with self.lock:
                self.finish_write()
                self.unfinished = None

    # ---- reading -----------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """The newest version of a record as JSON text, or None."""
        with self.lock:
            if self.unfinished is not None:
                self.finish_write()
            text = self._recent.texts.get(key)
            if text is None:
                self.require_open()
                text = self.sources.get(key)
                if text is not None:
                    self._recent.keep(key, text)
            return text

    def get_many(self, keys: Texts) -> list[bytes | None]:
        """The newest versions of many records, None for each that is not there."""
        with self.lock:
            self.require_readable()
            return self.sources.get_many(keys)

    def fetch(self, keys: Texts) -> Found:
        """The newest versions of records with their seqs, in the order of the keys.

        Those that are not there are left out.
        """
        with self.lock:
            self.require_readable()
            return self.sources.fetch(keys)

    def lookup(
        self, field: str, low: bytes, high: bytes, k: int | None = None, *,
        low_open: bool = False, high_open: bool = False,
        filter: tuple[bytes, bytes] | None = None,
    ) -> Found:  # fmt: skip
        """The `k` newest records with a value of `field` in the range, newest first.

        `filter` is a range of the filter's field: components outside it are not searched.
        """
        with self.lock:
            count = self._look(field, low, high, k, low_open, high_open, filter)
            return self.sources.found(count)

    def lookup_text(
        self, field: str, low: bytes, high: bytes, k: int | None = None, *, high_open: bool = False
    ) -> bytes:
        """What `lookup` finds, as one JSON array: the quickest way to all the documents."""
        with self.lock:
            count = self._look(field, low, high, k, False, high_open, None)
            return self.sources.text(count)

    def _look(
        self, field: str, low: bytes, high: bytes, k: int | None, low_open: bool, high_open: bool,
        filter: tuple[bytes, bytes] | None,
    ) -> int:  # fmt: skip
        """Find records, for `sources` to give; how many there are."""
        self.require_readable()
        if k is not None and k < 1:
            return 0
        if self._kind_of(field) == "embedded":
            opened = low_open * LOW_OPEN | high_open * HIGH_OPEN
            return self.sources.search(field, low, high, opened, k, self._skipped(filter))
        view = self.alone[field].view
        if filter is not None:
            view = view.passing({"wanted": filter})
        return self.sources.lookup(view, low, high, k, low_open=low_open, high_open=high_open)

    def scan(
        self, low: bytes | None = None, high: bytes | None = None, *,
        filter: tuple[bytes, bytes] | None = None, batch: int = 10_000,
    ) -> Iterator[Found]:  # fmt: skip
        """All records with a key in [low, high), in key order, as they were at the first batch."""
        with self.lock:
            self.require_readable()
            scan = Scan(self.sources.all, self._skipped(filter))
        try:
            for found, size_bytes in scan.batches(low, high, batch):
                with self.lock:
                    self.sources.count_blocks(-(-size_bytes // BLOCK_BYTES))
                yield found
        finally:
            scan.end()

    def count(self) -> int:
        """How many records there are now: reads every key."""
        with self.lock:
            self.require_readable()
            scan = Scan(self.sources.all, None)
        try:
            return scan.count()
        finally:
            scan.end()

    def estimate(self, field: str, low: bytes, high: bytes) -> Estimate:
        """What a lookup without k would look at."""
        with self.lock:
            self.require_readable()
            if self._kind_of(field) == "embedded":
                return self.sources.estimate(field, low, high)
            found = self.alone[field].view.estimate(low, high)
            return Estimate(found.entries, found.blocks + found.entries)

    def _skipped(self, filter: tuple[bytes, bytes] | None) -> NDArray[np.uint8] | None:
        return None if filter is None or self.filter is None else self.sources.skipped(filter)

    def _kind_of(self, field: str) -> str:
        kind = self.indexes.get(field)
        if kind is None:
            raise NotFound("no index on this field", field=field)
        if field in self.building:
            raise Unavailable("the index is being built", field=field)
        return kind

    # ---- facts ---------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """What all searches so far have read."""
        with self.lock:
            self.require_open()
            return self.sources.counters()

    def stats(self) -> dict[str, Any]:
        """Sizes and numbers of everything there is."""
        with self.lock:
            self.require_readable()
            trees = {"primary": self.primary, **{f: i.tree for f, i in self.alone.items()}}
            generations = [self.active, *self.frozen]
            return {
                "seq": self.next_seq - 1,
                "memory_rows": sum(g.records.rows for g in generations),
                "memory_bytes": sum(g.size_bytes for g in generations),
                "log_bytes": self.store.log.size_bytes,
                "component_bytes": self.store.size_bytes,
                "written_bytes": dict(self.upkeep.written_bytes),
                "components": {
                    name: [{"rows": i.rows, "bytes": i.size_bytes} for i in tree.infos]
                    for name, tree in trees.items()
                },
            }

    def snapshot(self) -> tuple[dict[str, Any], int, int]:
        """What the manifest has to say (the lock is held)."""
        self.finish_write()
        first = min(g.first_log for g in [self.active, *self.frozen])
        facts = {**self.facts, "indexes": dict(self.indexes), "building": list(self.building)}
        kept = self.feed.kept_log(first)
        facts |= {"next_seq": self.next_seq, "workload": self.workload(), **self.feed.facts(kept)}
        return facts, first, kept

    # ---- recovery and the end --------------------------------------------------------------------

    def _recover(self) -> None:
        """Bring the memory back from the log."""
        sealed = max((int(r.facts[X_SEQ_HIGH]) for r in self.primary.readers), default=0)
        self.next_seq = max(self.next_seq, sealed + 1)
        self.building_jobs.begin_again(sealed + 1)
        for segment, payload in self.store.log.replay():
            rows, seq = read_payload(payload)
            if seq <= sealed:
                continue  # killed after the component counted and before the log went
            if self.active.is_full:
                self.upkeep.seal_recovered(segment)
            rows = completed(rows, self.active.fields, self.filter, self.extract)
            self.active.add(rows, seq)
            self.next_seq = max(self.next_seq, seq + rows.count)

    def seal(self) -> None:
        """Seal everything in memory to disk now."""
        with self.writing:
            self.settle()
            self.require_open()
            if not self.active.is_empty:
                self.sheltered(self.upkeep.freeze)
        self.drain()

    def drain(self) -> None:
        """Run all pending background work to its end."""
        self.require_open()
        self.upkeep.drain()

    def check(self) -> None:
        """Verify every checksum and invariant on disk."""
        self.drain()
        with self.writing:
            self.settle()
            with self.lock:
                self.require_open()
                self.store.check()

    def backup(self, target: Path) -> dict[str, Listed]:
        """Copy everything as it is now into a new folder, while writers go on; its files."""
        with self.writing:
            self.settle()
            with self.lock:
                self.require_open()
                finish = begin_copy(self.store, target, *self.snapshot())
        return finish()

    def add_index(self, field: str, kind: str, progress: Any = None) -> None:
        """Index a field of what is there and of what will come, in the background.

        `progress(done, total)` is called with rows as it goes on. Until it is done, a lookup
        is `Unavailable`. It goes on after a restart.
        """
        if kind not in KINDS:
            raise InvalidRequest("no such kind of index", kind=kind, kinds=KINDS)
        self.building_jobs.add(field, kind, progress)

    def drop_index(self, field: str) -> None:
        """Forget an index and delete its files."""
        self.building_jobs.drop(field)

    def leave_to_parent(self, why: str) -> None:
        """In a forked child: everything here belongs to the parent, locks and threads too."""
        self._closed, self._why = True, why
        self.lock, self.writing = threading.Lock(), threading.Lock()  # may be locked for ever
        self._recent.clear()
        self.unfinished = None
        self.feed.leave_to_parent()
        self.shelter.leave_to_parent()
        self.upkeep.leave_to_parent()
        self.store.log.leave_to_parent()

    def close(self) -> None:
        """Finish background work, save the manifest, let go of the files."""
        if self._closed:
            return
        self.upkeep.stop()
        with self.writing:
            self.settle()
            with self.lock:
                self._closed = True
                self._recent.clear()
        self.feed.close()
        self.upkeep.close()
        with contextlib.suppress(TidelineError):  # the log has what the manifest would say
            self.store.commit(self.lock, self.snapshot, last=True)
        self.store.close()
        self.shelter.close()
        self._leave_budget()

    @property
    def segments_used(self) -> int:
        """What its memory takes of the budget."""
        generations = [self.active, *self.frozen]
        return sum(g.size_bytes for g in generations) // (SEGMENT * 8)

    def _leave_budget(self) -> None:
        if self in self.budget.members:
            self.budget.members.remove(self)

    def require_readable(self) -> None:
        """Before memory is read (the lock is held); `Closed` when it was closed."""
        if self.unfinished is not None:
            self.finish_write()
        if self._closed:
            raise Closed(self._why)

    def require_open(self) -> None:
        """`Closed` when it was closed."""
        if self._closed:
            raise Closed(self._why)
