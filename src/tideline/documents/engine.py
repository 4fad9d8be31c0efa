"""The engine of a collection: generations, components, log and recovery.

    write    rows -> log (one frame) -> active generation: primary memory and every index
    change   the same with rows that are computed from what there is, while nobody else writes
    read     a view (view.py): active generation, frozen ones, components, always newest first;
             `get` looks among the records that were read lately before
    seal     a full generation freezes; the dataset writes one component a tree; all take its
             place at once (lsm/dataset.py); indexes come and go meanwhile (building.py)

Every write of a record has a seq: 1, 2, 3 and so on. An index entry is (value, key, seq), and it
counts exactly when the newest version of its key has that seq. So indexes need no deletes, and a
record that was replaced cannot appear, whatever has been merged so far.

Facts, kept in the manifest: `seed`, `indexes` (field -> kind), `building` (fields whose index is
not complete yet), `unique` (fields: unique.py), `policy`, `filter` (a field or None), `bloom_bits`,
`next_seq`, `writers` (whose batches have landed: lsm/writers.py), `workload` (what was done so far,
for `advise`; the owner of the engine counts it), those of the feed (feed.py) and of what expires
(expiry.py).

Threads: readers take no lock. They take what was published last (`Recent.now`) and read that, with
buffers of their own (reader.py), while others write, seal, merge and build. `lock` guards what
there is; whoever changes it holds `lock` and publishes before it lets go. `writing` is held by one
writer at a time, over log and memory; who holds it may take `lock`, never the other way round.

Exceptions thrown into a caller (Ctrl-C, a signal handler that raises) may come at any moment. A
write is whole or not at all all the same (docs/decisions/0040-interrupts.md): `unfinished` is the
write that is under way, and the log decides. Once the log has its frame, whoever takes `lock`
next brings it into memory; adding it again does no harm. A reader who sees that nobody holds
`writing` does so, too, before it reads. What takes many steps, freezing and changes of indexes,
is sheltered. Whoever takes `writing` settles what an earlier one may have left.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tideline.clock import FOREVER, Clock, SystemClock
from tideline.documents.building import Building
from tideline.documents.expiry import FEW, Expiry
from tideline.documents.feed import Feed
from tideline.documents.generation import Generation
from tideline.documents.index import Index
from tideline.documents.parts import Extract, completed, in_parts
from tideline.documents.payload import payload_parts, read_once, read_payload
from tideline.documents.policies import POLICIES, policy_of
from tideline.documents.reader import Readers
from tideline.documents.recent import Recent
from tideline.documents.types import PUT, Found, Rows
from tideline.documents.unique import refuse_repeated, require_distinct
from tideline.documents.view import Now, Sources, View
from tideline.index import kinds as kinds  # registers them
from tideline.index.extract import extract as extract_values
from tideline.index.kind import Estimate, IndexKind, kind_names, make_kind
from tideline.index.records import Records
from tideline.index.sorted import SortedKind, SortedReader
from tideline.index.texts import Texts
from tideline.kernels.documents.layout import TOMB, X_SEQ_HIGH
from tideline.kernels.layout import SEGMENT
from tideline.lsm.component import Product
from tideline.lsm.dataset import Dataset, Seal, Snapshot
from tideline.lsm.inventory import Listed
from tideline.lsm.tree import MergeContext, Tree, Work
from tideline.lsm.writers import Writers
from tideline.shelter import run_apart

__all__ = ["POLICIES", "Engine"]

Words = NDArray[np.int64]

Once = tuple[str, int] | None
T = TypeVar("T")

_LEAST_BYTES, _MOST_BYTES = 256 << 10, 64 << 20
_RECENT_BYTES = 4 << 20
_FROZEN = 2  # generations that wait to be sealed: with one more, writers wait
_NO_ROWS = Rows(np.full(0, PUT, np.uint8), Texts.of([]), Texts.of([]), {})


class Engine:
    """Everything a collection keeps, in memory and on disk."""

    def __init__(
        self, path: Path, facts: dict[str, Any], *, budget: Any, durability: str, logged: bool,
        segment_bytes: int = 64 << 20, generation_bytes: int | None = None,
        extract: Extract = extract_values, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self.dataset = Dataset(
            path, facts, durability=durability, logged=logged, segment_bytes=segment_bytes
        )
        self.dataset.own(self)
        self.dataset.after_seal = self._after_seal
        self.lock = self.dataset.lock
        self.writing = threading.Lock()
        self.extract = extract
        self.store = self.dataset.store
        self.facts = self.store.facts
        self.shelter = self.dataset.shelter
        self.unfinished: tuple[Rows, int, int, Once] | None = None
        """What is being written: rows, the seq of the first, the frames of the log before, and
        the writer's batch that ends with it."""
        self.writers = Writers(self.facts.get("writers", []))
        self.seed = int(self.facts["seed"])
        self.filter: str | None = self.facts.get("filter")
        # Both are replaced, never changed: who reads them needs no lock.
        self.indexes: dict[str, str] = dict(self.facts.get("indexes", {}))
        self.building: list[str] = list(self.facts.get("building", []))
        # An index of a kind that this process does not know is built anew by one that does.
        known = {field: name for field, name in self.indexes.items() if name in kind_names()}
        self.kinds = {field: self.make_kind(name) for field, name in known.items()}
        self._own_extracts: tuple[dict[str, IndexKind], dict[str, Extract]] = ({}, {})
        self.unique: tuple[str, ...] = tuple(self.facts.get("unique", ()))
        """The fields of which no two documents have one value; replaced, never changed."""
        self.building += [f for f in self.indexes if f not in {*known, *self.building}]
        self.next_seq = int(self.facts.get("next_seq", 1))
        self.workload: Callable[[], dict[str, Any]] = lambda: self.facts.get("workload", {})
        self.budget = budget
        self._generation_bytes = generation_bytes
        self.frozen: list[Generation] = []  # oldest first
        self._spare: list[Records] = []
        self._recent = Recent(min(_RECENT_BYTES, budget.size_bytes // 64))
        self._readers = Readers(self.seed)
        self._alive: list[weakref.ref[Sources]] = []  # sources that somebody may be reading
        self._policy = self.facts.get("policy", "prefix")
        kind = SortedKind(
            seed=self.seed, bloom_bits=int(self.facts.get("bloom_bits", 20)), extract=extract
        )
        self.kind = kind
        self.primary: Tree[SortedReader] = Tree(
            path, "primary", kind, policy_of(self._policy, None, by="key"),
            self.store.next_component, sync=self.store.sync,
        )  # fmt: skip
        self.alone: dict[str, Index] = {}
        self.building_jobs = Building(self)
        self.feed = Feed(self, clock or SystemClock())
        self.expiry = Expiry(self, clock or SystemClock())
        try:
            self.store.attach(self.primary, 0)
            for field, index_kind in self.kinds.items():
                if not index_kind.within:
                    self.alone[field] = self.new_index(field)
                    self.store.attach(self.alone[field].tree, 0)
            self.active = self.new_generation()
            self.active.first_log = self.store.first_log
            self.refresh()
            self._recover()
            budget.members.append(self)
            if self.store.is_new or self.store.is_outdated:
                self.dataset.commit()
            self.building_jobs.resume()
            self.dataset.tidy_soon()
        except BaseException:
            self.dataset.end_threads()
            self.store.close()
            self._leave_budget()
            raise

    # ---- what there is (the lock is held) -------------------------------------------------

    @property
    def embedded(self) -> list[str]:
        """The fields whose index is within the records, in the order of their numbers."""
        return [field for field, kind in self.kinds.items() if kind.within]

    @property
    def fields(self) -> list[str]:
        """What a write has to bring entries of."""
        return list(self.indexes)

    @property
    def own_extracts(self) -> dict[str, Extract]:
        """The fields whose index holds something else than plain values, and what gives it."""
        kinds, found = self._own_extracts
        if kinds is not self.kinds:  # which is replaced, never changed
            kinds = self.kinds
            found = {name: kind.extract for name, kind in kinds.items() if kind.extract}
            self._own_extracts = kinds, found
        return found

    def make_kind(self, name: str) -> IndexKind:
        """A kind of index for this collection."""
        made: IndexKind = make_kind(name, seed=self.seed)
        return made

    def new_index(self, field: str) -> Index:
        """A stand-alone index with an empty tree."""
        policy = policy_of(self._policy, lambda: self.primary.infos)
        return Index(field, self.kinds[field], self.store, policy)

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
            fits = records.limit_bytes == size and records.fields == self.embedded
            if fits and not self._is_read(records):
                records.clear()
                break
        else:
            records = Records(size, self.embedded, seed=self.seed)
        return Generation(records, memories, first_log=self.store.log.mark)

    def begin_generation(self, *, every: bool = False) -> None:
        """Replace the active generation, which is empty, by one for the indexes there are now.

        `every`: documents of any key may be others than before.
        """
        self.active = self.new_generation()
        self.refresh(every=every)

    def _is_read(self, records: Records) -> bool:
        """Whether a view that somebody holds has this memory."""
        alive = [sources for ref in self._alive if (sources := ref()) is not None]
        return any(records in sources.memories for sources in alive)

    def refresh(self, *, every: bool = False) -> None:
        """Let readers see what there is now; `every` as above."""
        generations = [self.active, *reversed(self.frozen)]
        for index in self.alone.values():
            index.refresh(generations)
        sources = Sources(
            generations, list(reversed(self.primary.readers)), self.kinds, self.building,
            {field: index.view for field, index in self.alone.items()}, self.filter is not None,
        )  # fmt: skip
        self.expiry.refresh(sources)
        self._alive = [ref for ref in self._alive if ref() is not None] + [weakref.ref(sources)]
        before: Now | None = self._recent.now
        if before is not None and before[0].active is self.active.records:
            self._recent.publish((sources, *before[1:]))  # without a write that was cut half way
        else:
            records = self.active.records
            now = (sources, records.rows, self.next_seq, records.table)
            self._recent.publish(now, every=every)

    # ---- writing -----------------------------------------------------------------------------

    def write(self, rows: Rows, once: Once = None) -> int:
        """Store rows in order; returns the seq of the first.

        `once` is a writer's batch that has landed with the last of them (lsm/writers.py).

        Up to 32 MiB or 65,536 rows are one frame: all of it lands or nothing does. More is
        several frames, and an error leaves those before it.
        """
        if not rows.count:
            return self.next_seq
        position = None
        with self.writing:
            if self.unfinished is not None:
                self.settle()
            if self.expiry.due < FOREVER:
                self._delete_expired()
            if self.unique:
                refuse_repeated(rows, self.unique, self.facts["key"], self.view())
            first = self.next_seq
            left = rows.count
            for part in in_parts(rows):
                left -= part.count
                position = self._write_part(part, None if left else once)
        if position is not None:
            self.store.log.sync(position)
            if self.store.sync and self.feed.bells:
                self.feed.ring()  # followers see what is on disk
        return first

    def change(self, compute: Callable[[View], tuple[Rows, T]]) -> tuple[int, T]:
        """Store rows that are computed from what there is now, before anybody else writes.

        `compute` gets a view and gives the rows and something for the caller, who gets that with
        the seq of the first row. It must not write. What it raises is raised, and nothing is
        stored; without rows nothing is stored, either. Readers do not wait; writers do, so it
        should be quick. Of frames and errors, all is as `write` says.
        """
        position = None
        with self.writing:
            if self.unfinished is not None:
                self.settle()
            if self.expiry.due < FOREVER:
                self._delete_expired()
            view = self.view()
            rows, found = compute(view)
            first = self.next_seq
            if rows.count:
                if self.unique:
                    refuse_repeated(rows, self.unique, self.facts["key"], view)
                for part in in_parts(rows):
                    position = self._write_part(part, None)
        if position is not None:
            self.store.log.sync(position)
            if self.store.sync and self.feed.bells:
                self.feed.ring()
        return first, found

    def note_landed(self, once: tuple[str, int]) -> None:
        """A writer's batch has landed, of which nothing had to be written: the manifest says so."""
        with self.writing:
            self.settle()
            self.require_open()
            with self.lock:
                self.writers.note(*once)
            self.sheltered(self.dataset.commit)

    def write_rows(self, rows: Rows) -> None:
        """Store rows while `writing` is held."""
        for part in in_parts(rows):
            self.store.log.sync(self._write_part(part, None))

    def _delete_expired(self) -> None:
        """Delete a few documents that have expired, if there are any (`writing` is held)."""
        if self.expiry.due <= self.expiry.clock.now():
            self.expiry.sweep(FEW)

    def _write_part(self, rows: Rows, once: Once) -> Any:
        if not self.feed.wants_old or not self.feed.still_wants_old():
            return self._write_frame(rows, None, once)
        position, left = None, rows.count
        for part, old in self.feed.with_old(rows):
            left -= part.count
            position = self._write_frame(part, old, None if left else once)
        return position

    def _write_frame(self, rows: Rows, old: Sequence[bytes | None] | None, once: Once) -> Any:
        self.require_open()
        if self.active.is_full:
            self.sheltered(self.freeze)
        rows = self._completed(rows)
        seq = self.next_seq
        log = self.store.log
        self.unfinished = rows, seq, log.frames, once
        position = log.append_parts(payload_parts(rows, seq, old, once))
        with self.lock:
            self.finish_write()
        return position

    def _completed(self, rows: Rows) -> Rows:
        """Rows with what the indexes of the active generation have to have of them."""
        fields, own = self.active.fields, self.own_extracts
        return completed(rows, fields, self.filter, self.extract, own)

    # ---- interrupted calls -------------------------------------------------------------------

    def finish_write(self) -> None:
        """Bring into memory what the log has and memory has not (the lock is held).

        Cut by an exception, it is done again by whoever takes the lock next.
        """
        unfinished = self.unfinished
        if unfinished is None or unfinished[2] == self.store.log.frames:
            return
        rows, seq, _, once = unfinished
        self.active.add(rows, seq)
        if rows.untils is not None:
            self.expiry.note(rows)
        if once is not None:
            self.writers.note(*once)
        limit = seq + rows.count
        recent, records = self._recent, self.active.records
        recent.publish((recent.now[0], records.rows, limit, records.table), rows.keys)
        if self.feed.bells:
            self.feed.ring()  # before the write counts as finished: cut, it is done again
        self.next_seq, self.unfinished = limit, None

    def sheltered(self, work: Callable[[], None]) -> None:
        """Run something of many steps that nothing can cut (`writing` is held)."""
        self.unfinished = _NO_ROWS, self.next_seq, self.store.log.frames, None
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

    def view(self) -> View:
        """What there is now, to be asked as often as wanted: all its answers are of one moment."""
        if self.unfinished is not None:
            self._finish_for_readers()
        now: Now = self._recent.now
        if self.dataset.why_closed:  # after `now` was taken: what is published later is not read
            self.dataset.require_open()
        time = self.expiry.time() if self.expiry.used else 0
        return View(now, self._readers, self._recent, time)

    def _finish_for_readers(self) -> None:
        """Bring into memory what the log has of a write whose caller was interrupted.

        A writer that goes on holds `writing`, and nobody waits for it: its write is seen when it
        is done. One that let go of `writing` and left the same write behind was interrupted.
        """
        left = self.unfinished
        if left is None or left[2] == self.store.log.frames or self.writing.locked():
            return
        if self.unfinished is left:
            with self.lock:
                self.finish_write()

    def get(self, key: bytes) -> bytes | None:
        """The newest version of a record as JSON text, or None."""
        if self.unfinished is not None:
            self._finish_for_readers()
        recent = self._recent
        text = recent.texts.get(key) or recent.older.get(key)
        if text is None:
            now = recent.now
            if self.dataset.why_closed:  # after `now` was taken, as above
                self.require_open()
            try:
                reader = self._readers.idle.pop()  # as `take` does, in half the time
            except IndexError:
                reader = self._readers.make()
            lasts = True
            if self.expiry.used:  # after `now` was taken: what it has is known to expire
                reader.judge_at(self.expiry.time())
                text = reader.get(now, key)
                lasts = reader.lasts
            else:
                text = reader.get(now, key)
            self._readers.give(reader)
            if text is not None and lasts:
                recent.keep(key, text, now)
        return text

    def lookup_text(
        self, field: str, low: bytes, high: bytes, k: int | None = None, *, high_open: bool = False
    ) -> bytes:
        """What `lookup` finds, as one JSON array: the quickest way to all the documents."""
        if self.unfinished is not None:
            self._finish_for_readers()
        now: Now = self._recent.now
        if self.dataset.why_closed:  # after `now` was taken, as above
            self.dataset.require_open()
        sources = now[0]
        kind = sources.kinds.get(field) or sources.kind_of(field)
        ask = kind.range_ask(low, high, False, high_open)
        try:
            reader = self._readers.idle.pop()
        except IndexError:
            reader = self._readers.make()
        if self.expiry.used:
            reader.judge_at(self.expiry.time())
        count = kind.find(reader, now, field, sources.alone.get(field), ask, k)
        found = reader.text(count)
        self._readers.give(reader)
        return found

    def get_many(self, keys: Texts) -> list[bytes | None]:
        """`View.get_many` of what there is now."""
        return self.view().get_many(keys)

    def fetch(self, keys: Texts) -> Found:
        """`View.fetch` of what there is now."""
        return self.view().fetch(keys)

    def lookup(
        self, field: str, low: bytes, high: bytes, k: int | None = None, **options: Any
    ) -> Found:
        """`View.lookup` of what there is now."""
        return self.view().lookup(field, low, high, k, **options)

    def scan(
        self, low: bytes | None = None, high: bytes | None = None, **options: Any
    ) -> Iterator[Found]:
        """`View.scan` of what there is when the first batch is asked for."""
        yield from self.view().scan(low, high, **options)

    def count(self) -> int:
        """How many records there are now: reads every key."""
        return self.view().count()

    def estimate(self, field: str, low: bytes, high: bytes) -> Estimate:
        """What a lookup without k would look at."""
        view = self.view()
        return view.estimate(field, view.kind_of(field).range_ask(low, high))

    # ---- facts ---------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """What all searches so far have read."""
        self.require_open()
        return self._readers.counters()

    def stats(self) -> dict[str, Any]:
        """Sizes and numbers of everything there is."""
        sources, rows, limit, _ = self.view().now
        trees = {"primary": self.primary, **{f: i.tree for f, i in dict(self.alone).items()}}
        return {
            "seq": limit - 1,
            "memory_rows": sum(sources.rows_of(memory, rows) for memory in sources.memories),
            "memory_bytes": sum(generation.size_bytes for generation in sources.generations),
            "log_bytes": self.store.log.size_bytes,
            "component_bytes": self.store.size_bytes,
            "written_bytes": dict(self.dataset.written_bytes),
            "components": {
                name: [{"rows": info.rows, "bytes": info.size_bytes} for info in tree.infos]
                for name, tree in trees.items()
            },
        }

    def snapshot(self) -> Snapshot:
        """What the manifest has to say (the lock is held)."""
        first = min(g.first_log for g in [self.active, *self.frozen])
        facts = {**self.facts, "indexes": dict(self.indexes), "building": list(self.building)}
        kept = self.feed.kept_log(first)
        facts["writers"] = self.writers.to_json()
        if self.expiry.ttl_us or "ttl_us" in facts:
            facts["ttl_us"] = self.expiry.ttl_us
        if self.unique or "unique" in facts:
            facts["unique"] = list(self.unique)
        facts |= {"next_seq": self.next_seq, "workload": self.workload(), **self.feed.facts(kept)}
        return Snapshot(facts, first, kept)

    # ---- sealing and merging ---------------------------------------------------------------

    def freeze(self) -> None:
        """Begin a new generation and have the old one sealed; waits while two are frozen.

        The caller holds `writing`, and is sheltered.
        """
        self.dataset.wait_for_room(_FROZEN)
        self.store.log.rotate()
        self.dataset.freeze(self._take_active(self.store.log.mark))

    def _take_active(self, segment: int) -> Seal:
        """Begin a new generation, whose rows are in the log from `segment` on."""
        with self.lock:
            generation = self.active
            self.frozen.append(generation)
            self.active = self.new_generation()
            self.active.first_log = segment
            self.refresh()
        return Seal(partial(self._products, generation), partial(self._let_go, generation))

    def _products(self, generation: Generation) -> Iterator[tuple[Tree[Any], Sequence[Product]]]:
        """The components of a generation (no lock is held)."""
        filters = {"wanted": generation.wanted}
        yield self.primary, self.kind.seal(generation.records, filters)
        with self.lock:
            alone = [(self.alone[name], memory) for name, memory in generation.indexes.items()]
        for index, memory in alone:
            yield index.tree, index.kind.seal(memory, filters)

    def _let_go(self, generation: Generation) -> None:
        """Its components count: the generation goes."""
        self.frozen.remove(generation)
        if not self._spare:  # for a later one, if nobody reads it then
            self._spare.append(generation.records)

    def _after_seal(self) -> None:
        self.dataset.submit(lambda: self.expiry.sweep_now(wait=False))
        self.building_jobs.retry()
        self.dataset.tidy_soon()

    def finish_call(self) -> None:
        """Bring a write to its end that was interrupted (the lock is held)."""
        self.finish_write()

    def merge_context(self, tree: Tree[Any], work: Work) -> MergeContext:
        """What the kind of a tree must know to merge (the lock is held)."""
        if tree is self.primary:
            hides = tree.hides(work.readers, "key")
            return MergeContext(0, work.merge.cut_bytes, hides, self.embedded)
        return MergeContext(owner=_keeper(list(self.primary.readers), work.readers))

    @property
    def time(self) -> int:
        """No component of documents expires as a whole."""
        return 0

    # ---- recovery and the end --------------------------------------------------------------------

    def _recover(self) -> None:
        """Bring the memory back from the log."""
        sealed = max((int(r.facts[X_SEQ_HIGH]) for r in self.primary.readers), default=0)
        self.next_seq = max(self.next_seq, sealed + 1)
        self.building_jobs.begin_again(sealed + 1)
        for segment, payload in self.store.log.replay():
            rows, seq = read_payload(payload)
            once = read_once(payload)
            if once is not None:
                self.writers.note(*once)
            if seq <= sealed:
                continue  # killed after the component counted and before the log went
            if self.active.is_full:
                self.dataset.seal(self._take_active(segment))
            rows = self._completed(rows)
            self.active.add(rows, seq)
            self.expiry.note(rows)
            self.next_seq = max(self.next_seq, seq + rows.count)
        recent, records = self._recent, self.active.records
        recent.publish((recent.now[0], records.rows, self.next_seq, records.table))

    def seal(self) -> None:
        """Seal everything in memory to disk now."""
        with self.writing:
            self.settle()
            self.require_open()
            if self.expiry.due < FOREVER:
                self.expiry.sweep()
            if not self.active.is_empty:
                self.sheltered(self.freeze)
        self.drain()

    def drain(self) -> None:
        """Run all pending background work to its end."""
        self.require_open()
        run_apart(self.building_jobs.retry)
        self.dataset.drain()

    def check(self) -> None:
        """Verify every checksum and invariant on disk."""
        self.drain()
        with self.writing:
            self.settle()
            self.dataset.check()

    def backup(self, target: Path) -> dict[str, Listed]:
        """Copy everything as it is now into a new folder, while writers go on; its files."""
        with self.writing:
            self.settle()
            finish = self.dataset.backup(target)
        return finish()

    def add_index(self, field: str, kind: str, progress: Any = None) -> None:
        """Index a field of what is there and of what will come, in the background.

        `progress(done, total)` is called with rows as it goes on. Until it is done, a lookup
        is `Unavailable`. It goes on after a restart.
        """
        self.building_jobs.add(field, kind, progress)

    def make_unique(self, field: str) -> None:
        """Let an index that is complete be unique from now on; `Conflict` when it is not."""
        with self.writing:
            self.settle()
            self.require_open()
            require_distinct(self.view(), field)
            self.sheltered(lambda: self._make_unique(field))

    def _make_unique(self, field: str) -> None:
        before = self.unique
        self.unique = (*before, field)
        try:
            self.dataset.commit()
        except BaseException:
            self.unique = before
            raise

    def drop_index(self, field: str) -> None:
        """Forget an index and delete its files."""
        self.building_jobs.drop(field)

    def leave_to_parent(self, why: str) -> None:
        """In a forked child: everything here belongs to the parent, locks and threads too."""
        self.dataset.leave_to_parent(why)
        self.lock, self.writing = self.dataset.lock, threading.Lock()  # may be locked for ever
        self._recent = Recent(0)
        self.unfinished = None
        self.feed.leave_to_parent()

    def close(self, why: str = "the database was closed") -> None:
        """Finish background work, save the manifest, let go of the files; `why` is told after."""
        if self.dataset.why_closed:
            return
        self.dataset.stop()
        with self.writing:
            self.settle()
            self.dataset.shut(why)
            self._recent.end()
            self.feed.close()
            self.dataset.close()
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
        """Before memory is read under the lock: what was interrupted is brought to its end."""
        self.finish_write()
        self.require_open()

    def require_open(self) -> None:
        """`Closed` when it was closed."""
        if self.dataset.why_closed:
            self.dataset.require_open()


def _keeper(
    primary: Sequence[SortedReader], group: Sequence[Any]
) -> Callable[[Texts, Words], NDArray[np.bool_]]:
    """Which entries of a group may stay: those whose write a component of the primary still has."""
    spans = [reader.component.info.filters["seq"] for reader in group]
    low, high = min(span.low for span in spans), max(span.high for span in spans)
    stored: NDArray[np.bool_] | None = None

    def keep(keys: Texts, seqs: Words) -> NDArray[np.bool_]:
        nonlocal stored
        if stored is None:  # not before: whoever makes this holds the lock
            stored = np.zeros(high - low + 1, bool)
            for reader in primary:
                if reader.component.info.filters["seq"].overlaps(low, high):
                    mine = (reader.flags & TOMB == 0) & (reader.seqs >= low) & (reader.seqs <= high)
                    stored[reader.seqs[mine] - low] = True
        found: NDArray[np.bool_] = stored[seqs - low]
        return found

    return keep
