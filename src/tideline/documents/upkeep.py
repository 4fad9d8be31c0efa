"""What happens behind a collection's back: sealing and merging.

    freeze   the active generation takes no more; a new one, and a new log segment, begin
    seal     one component a tree, written without a lock; installed under it, all at once; then
             the manifest is saved and the log before the next generation goes
    merge    what the policies say, the primary first

Seals run in one thread and merges in another, so a long merge keeps no writer waiting. A writer
waits only when two generations are frozen and the active one is full. Indexes on data that is
there are built in the thread that merges (building.py).

A full disk is no end: a generation that could not be sealed stays readable, its log stays, and the
next freeze or `drain` tries again.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tideline.documents.generation import Generation
from tideline.errors import TidelineError, Unavailable
from tideline.index.sorted import SortedReader
from tideline.index.texts import Texts
from tideline.lsm.worker import Worker
from tideline.shelter import run_apart

if TYPE_CHECKING:
    from tideline.documents.engine import Engine

__all__ = ["Upkeep"]

Words = NDArray[np.int64]
_FROZEN = 2


class Upkeep:
    """The background work of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        name = "tideline-" + engine.store.folder.name
        self._sealer = Worker(name + "-seal")
        self._merger = Worker(name + "-merge")
        self.written_bytes: Counter[str] = Counter()  # by tree and reason
        self._changed = False  # whether the manifest says less than there is
        self._stopping = threading.Event()

    # ---- sealing ---------------------------------------------------------------------------

    def freeze(self) -> None:
        """Begin a new generation; waits while two are frozen.

        The caller holds `writing`, and is sheltered.
        """
        engine = self._engine
        while len(engine.frozen) >= _FROZEN:
            oldest = engine.frozen[0]
            oldest.done.wait()
            if oldest.error is not None:
                error, oldest.error = oldest.error, None
                oldest.done.clear()
                self._sealer.submit(self._seal_frozen)  # the disk may have room again
                raise error
        engine.store.log.rotate()
        with engine.lock:
            engine.frozen.append(engine.active)
            engine.active = engine.new_generation()
            engine.refresh()
        self._sealer.submit(self._seal_frozen)

    def seal_recovered(self, segment: int) -> None:
        """During recovery: seal what is in memory; the next rows come from `segment`."""
        engine = self._engine
        generation = engine.active
        engine.frozen.append(generation)
        engine.active = engine.new_generation()
        engine.active.first_log = segment
        engine.refresh()
        self._seal(generation)

    def _seal_frozen(self) -> None:
        """Seal all that is frozen, oldest first; stops at the first that cannot be."""
        engine = self._engine
        while True:
            with engine.lock:
                generation = engine.frozen[0] if engine.frozen else None
            if generation is None:
                return
            try:
                self._seal(generation)
            except BaseException as error:
                generation.error = error
                generation.done.set()
                if not isinstance(error, Unavailable):
                    raise
                return
            generation.done.set()
            with contextlib.suppress(Unavailable):  # the log still has it; `drain` says why
                self.commit()
            if not self.stopping:
                engine.building_jobs.retry()
                self.submit(self._tidy)

    def _seal(self, generation: Generation) -> None:
        engine = self._engine
        made: list[tuple[Any, Any]] = []
        try:
            product = engine.kind.seal(generation.records, generation.wanted)
            made.append((engine.primary, self.write(engine.primary, product, "seal")))
            with engine.lock:
                alone = [(engine.alone[name], memory) for name, memory in generation.alone.items()]
            for index, memory in alone:
                entries = index.kind.seal(memory, {"wanted": generation.wanted})
                if entries is not None:
                    made.append((index.tree, self.write(index.tree, entries, "seal")))
        except BaseException:
            for _, reader in made:
                reader.component.drop()
            raise
        with engine.lock:
            for tree, reader in made:
                if tree in engine.store.trees:
                    tree.install(reader)
                else:  # the index was dropped meanwhile
                    reader.component.drop()
            engine.frozen.remove(generation)
            engine.refresh()
            engine.recycle(generation)

    def commit(self) -> None:
        """Save what there is now; if that fails, `drain` tries again and says why."""
        self._changed = True
        self._engine.store.commit(self._engine.lock, self._engine.snapshot)
        self._changed = False

    @property
    def stopping(self) -> bool:
        """Whether the collection is being closed."""
        return self._stopping.is_set() or self._merger.is_ending

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job in the thread that merges."""
        self._merger.submit(job)

    def wait_for_seals(self) -> None:
        """Wait until what was frozen before is sealed, or could not be."""
        self._sealer.drain()

    def write(self, tree: Any, product: Any, why: str) -> Any:
        """Write a component and count its bytes."""
        reader = tree.write(product)
        self.written_bytes[f"{tree.name} {why}"] += reader.component.info.size_bytes
        return reader

    def tidy(self) -> None:
        """Begin to merge what is due."""
        self.submit(self._tidy)

    # ---- merging -------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Merge what the policies say and save the manifest; a full disk is tried again later."""
        with contextlib.suppress(Unavailable):
            while not self.stopping and self._merge_once():
                pass
            if self._changed or self._engine.feed.keeps_too_much():
                self.commit()

    def _merge_once(self) -> bool:
        """One merge of the primary or of an index. False when there is none to do."""
        engine = self._engine
        with engine.lock:
            groups = engine.primary.merges(0)
            oldest = engine.primary.readers[0] if engine.primary.readers else None
            fields = engine.embedded
        for group in groups:
            product = engine.kind.merge(group, fields, tombs=group[0] is not oldest)
            self.replace(engine.primary, product, group)
        done = bool(groups)
        for index in list(engine.alone.values()):
            with engine.lock:
                groups_ = index.tree.merges(0)
                readers = list(engine.primary.readers)
            for part in groups_:
                self.replace(index.tree, index.kind.merge(part, _keeper(readers, part)), part)
                done = True
        return done

    def replace(self, tree: Any, product: Any, group: Sequence[Any]) -> None:
        """Put what was made of a group of components in its place."""
        engine = self._engine
        reader = self.write(tree, product, "merge") if product is not None else None
        with engine.lock:
            tree.install(reader, group)
            engine.refresh()
        self._changed = True

    # ---- the end ---------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait for everything that was begun; raises what went wrong.

        Whoever is interrupted while it waits is let go; what is done here is done to its end.
        """
        run_apart(self._engine.building_jobs.retry)
        for _ in range(2):  # a seal submits a merge
            self._sealer.drain()
            self._merger.drain()
        run_apart(self._after_drain)

    def _after_drain(self) -> None:
        self._sealer.check()
        self._merger.check()
        if self._changed:
            self.commit()
        with self._engine.lock:
            failed = next((g for g in self._engine.frozen if g.error is not None), None)
        if failed is not None and failed.error is not None:
            error, failed.error = failed.error, None
            failed.done.clear()
            self._sealer.submit(self._seal_frozen)
            raise error

    def stop(self) -> None:
        """Finish seals, let merges end where they are."""
        self._stopping.set()
        self._sealer.drain()

    def leave_to_parent(self) -> None:
        """In a forked child: the threads are the parent's."""
        self._sealer.leave_to_parent()
        self._merger.leave_to_parent()

    def close(self) -> None:
        """End the threads."""
        self._stopping.set()
        with contextlib.suppress(TidelineError):
            self._sealer.close()
            self._merger.close()


def _keeper(
    primary: Sequence[SortedReader], group: Sequence[Any]
) -> Callable[[Texts, Words], NDArray[np.bool_]]:
    """Which entries of a group may stay: those whose write a component of the primary still has."""
    spans = [reader.component.info.filters["seq"] for reader in group]
    low, high = min(span.low for span in spans), max(span.high for span in spans)
    there = np.zeros(high - low + 1, bool)
    for reader in primary:
        if reader.component.info.filters["seq"].overlaps(low, high):
            mine = (reader.flags == 0) & (reader.seqs >= low) & (reader.seqs <= high)
            there[reader.seqs[mine] - low] = True

    def keep(keys: Texts, seqs: Words) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = there[seqs - low]
        return found

    return keep
