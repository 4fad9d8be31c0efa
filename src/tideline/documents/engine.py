"""The engine of a collection: generations, components, log and recovery.

    write    rows -> log (one frame) -> active generation: primary memory and every index
    change   the same with rows that are computed from what there is, while nobody else writes
    read     a view (view.py): active generation, frozen ones, components, always newest first;
             `get` looks among the records that were read lately before
    seal     a full generation freezes; the dataset writes one component a tree; all take its
             place at once (lsm/dataset.py); indexes come and go meanwhile (building.py)

Reading is in reading.py, writing in writing.py; here is what both work on, and its life.

Every write of a record has a seq: 1, 2, 3 and so on. An index entry is (value, key, seq), and it
counts exactly when the newest version of its key has that seq. So indexes need no deletes, and a
record that was replaced cannot appear, whatever has been merged so far.

Facts, kept in the manifest: `seed`, `indexes` (field -> name of the kind, or the same with its
settings: `Spec` in index/kind.py), `building` (fields whose index is not complete yet), `unique`
(fields: unique.py), `policy`, `filter` (a field or None), `bloom_bits`, `next_seq`, `writers`
(whose batches have landed: lsm/writers.py), `workload` (what was done so far, for `advise`; the
owner of the engine counts it), those of the feed (feed.py) and of what expires (expiry.py).

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
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.clock import FOREVER, Clock, SystemClock
from tideline.documents.building import Building
from tideline.documents.expiry import Expiry
from tideline.documents.feed import Feed
from tideline.documents.generation import Generation
from tideline.documents.index import Index
from tideline.documents.parts import Extract
from tideline.documents.payload import has_old, read_once, read_payload
from tideline.documents.policies import POLICIES, policy_of
from tideline.documents.reader import Readers
from tideline.documents.recent import Recent
from tideline.documents.unique import require_distinct
from tideline.documents.view import Now, Sources
from tideline.documents.writing import Writing
from tideline.errors import Conflict, InvalidRequest, NotFound
from tideline.index import kinds as kinds  # registers them
from tideline.index.extract import extract as extract_values
from tideline.index.kind import IndexKind, Spec, make_kind
from tideline.index.records import Records
from tideline.index.sorted import SortedKind, SortedReader
from tideline.index.texts import Texts
from tideline.kernels.documents.layout import TOMB, X_SEQ_HIGH
from tideline.kernels.layout import SEGMENT
from tideline.lsm.component import Product
from tideline.lsm.dataset import Dataset, Seal, Snapshot
from tideline.lsm.inventory import Listed
from tideline.lsm.position import Position
from tideline.lsm.sharedlog import Share, SharedLog
from tideline.lsm.tree import MergeContext, Tree, Work
from tideline.lsm.writers import Writers
from tideline.shelter import run_apart

__all__ = ["POLICIES", "Engine"]

Words = NDArray[np.int64]

_LEAST_BYTES, _MOST_BYTES = 256 << 10, 64 << 20
_RECENT_BYTES = 4 << 20
_FROZEN = 2  # generations that wait to be sealed: with one more, writers wait


class Engine(Writing):
    """Everything a collection keeps, in memory and on disk."""

    def __init__(
        self, path: Path, facts: dict[str, Any], *, budget: Any, durability: str, logged: bool,
        segment_bytes: int = 64 << 20, generation_bytes: int | None = None,
        extract: Extract = extract_values, clock: Clock | None = None, share: Share | None = None,
    ) -> None:  # fmt: skip
        """With a `share`, its log is one that a cluster agrees on (lsm/sharedlog.py)."""
        self.dataset = Dataset(
            path, facts, durability=durability, logged=logged, segment_bytes=segment_bytes,
            share=share,
        )  # fmt: skip
        self.dataset.own(self)
        self.dataset.after_seal = self._after_seal
        self.lock = self.dataset.lock
        self.writing = threading.Lock()
        self.extract = extract
        self.store = self.dataset.store
        self.facts = self.store.facts
        self.shelter = self.dataset.shelter
        self.unfinished = None
        self.writers = Writers(self.facts.get("writers", []))
        self.seed = int(self.facts["seed"])
        self.filter = self.facts.get("filter")
        # Both are replaced, never changed: who reads them needs no lock.
        self.indexes: dict[str, Spec] = dict(self.facts.get("indexes", {}))
        self.building: list[str] = list(self.facts.get("building", []))
        # An index of a kind that this process does not know is built anew by one that does.
        self.kinds = self._known_kinds()
        self._own_extracts: tuple[dict[str, IndexKind], dict[str, Extract]] = ({}, {})
        self.unique = tuple(self.facts.get("unique", ()))
        self.building += [f for f in self.indexes if f not in {*self.kinds, *self.building}]
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
        if isinstance(self.store.log, SharedLog):
            self.store.log.on_commit = self.feed.ring
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

    def make_kind(self, spec: Spec) -> IndexKind:
        """A kind of index for this collection."""
        made: IndexKind = make_kind(spec, seed=self.seed)
        return made

    def _known_kinds(self) -> dict[str, IndexKind]:
        """The indexes whose kind, with its settings, this process knows."""
        found = {}
        for field, spec in self.indexes.items():
            with suppress(InvalidRequest):
                found[field] = self.make_kind(spec)
        return found

    def new_index(self, field: str) -> Index:
        """A stand-alone index with an empty tree."""
        box = self.kinds[field].box
        policy = policy_of(self._policy, lambda: self.primary.infos, box=box)
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
            {field: index.tree.infos for field, index in self.alone.items()},
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
        owner = _keeper(list(self.primary.readers), work.readers)
        cut, partition = work.merge.cut_bytes, work.merge.partition
        return MergeContext(cut_bytes=cut, partition=partition, owner=owner)

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

    def add_index(self, field: str, kind: Spec, progress: Any = None) -> None:
        """Index a field of what is there and of what will come, in the background.

        `progress(done, total)` is called with rows as it goes on. Until it is done, a lookup
        is `Unavailable`. It goes on after a restart.
        """
        self.make_kind(kind)  # or say that there is none
        if field in self.indexes:
            raise Conflict("there is an index on this field", field=field)
        self.store.decide(
            {"index": field, "kind": kind}, lambda: self.building_jobs.add(field, kind, progress)
        )

    def make_unique(self, field: str) -> None:
        """Let an index that is complete be unique from now on; `Conflict` when it is not."""
        with self.writing:
            self.settle()
            self.require_open()
            require_distinct(self.view(), field)
            self.store.decide(
                {"unique": field}, lambda: self.sheltered(lambda: self._make_unique(field))
            )

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
        if field not in self.indexes:
            raise NotFound("no index on this field", field=field)
        self.store.decide({"drop_index": field}, lambda: self.building_jobs.drop(field))

    # ---- following another machine ---------------------------------------------------------------

    def follow(self, position: Position, payload: bytes) -> None:
        """Store what another machine wrote, which a cluster agreed on."""
        log = self.store.log
        assert isinstance(log, SharedLog)
        view = memoryview(payload)
        with self.writing:
            self.settle()
            self.require_open()
            rows, seq = read_payload(view)
            once = read_once(view)
            if self.active.is_full:
                self.sheltered(self.freeze)
            rows = self._completed(rows)
            if seq < self.next_seq:  # a component has it already
                log.take(position, payload)
                if once is not None:
                    self.writers.note(*once)
                return
            self.feed.follows(rows, seq, has_old=has_old(view))
            self.unfinished = rows, seq, log.frames, once
            log.take(position, payload)
            with self.lock:
                self.finish_write()

    def apply_change(self, change: dict[str, Any]) -> None:
        """Do what a cluster has agreed on; doing it again does no harm."""
        if "index" in change:
            if change["index"] not in self.indexes:
                self.building_jobs.add(change["index"], change["kind"], None)
        elif "drop_index" in change:
            if change["drop_index"] in self.indexes:
                self.building_jobs.drop(change["drop_index"])
        elif "unique" in change:
            with self.writing:
                self.settle()
                if change["unique"] not in self.unique:
                    self.sheltered(lambda: self._make_unique(change["unique"]))
        elif "journal" in change:
            self.feed.keep_agreed(*change["journal"])
        elif "ttl_us" in change:
            self.expiry.keep_agreed(change["ttl_us"])
        else:
            self.note_landed_agreed(*change["landed"])

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
