"""What happens behind a collection's back: sealing, merging, building indexes.

    freeze   the active generation takes no more; a new one, and a new log segment, begin
    seal     one component a tree, written without a lock; installed under it, all at once; then
             the manifest is saved and the log before the next generation goes
    merge    what the policies say, the primary first
    build    an index on data that is there: embedded, each component is written anew with the
             field's values; stand-alone, one component of entries for each of the primary

Seals run in one thread and merges in another, so a long merge keeps no writer waiting. A writer
waits only when two generations are frozen and the active one is full.

Building an index begins by naming it in the manifest under `building` and by a freeze, so that
what is written from then on has its entries. Killed in the middle, it begins again: what was
not installed is a stray file, what was is found to be there.
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
from tideline.errors import Conflict, NotFound, TidelineError, Unavailable
from tideline.index.entryview import View
from tideline.index.sorted import SortedReader
from tideline.index.texts import Texts
from tideline.kernels.documents import layout as at
from tideline.lsm.worker import Worker

if TYPE_CHECKING:
    from tideline.documents.engine import Engine, Index

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
        self.progress: dict[str, tuple[int, int]] = {}
        self._changed = False  # whether the manifest says less than there is
        self._stopping = threading.Event()
        self._since: dict[str, int] = {}  # an index being built has its entries from this seq on

    # ---- sealing ---------------------------------------------------------------------------

    def freeze(self) -> None:
        """Begin a new generation (the caller holds `writing`); waits while two are frozen."""
        engine = self._engine
        while len(engine.frozen) >= _FROZEN:
            oldest = engine.frozen[0]
            oldest.done.wait()
            if oldest.error is not None:
                error, oldest.error = oldest.error, None
                oldest.done.clear()
                self._sealer.submit(self._seal_oldest)  # the disk may have room again
                raise error
        engine.store.log.rotate()
        with engine.lock:
            engine.frozen.append(engine.active)
            engine.active = engine.new_generation()
            engine.refresh()
        self._sealer.submit(self._seal_oldest)

    def seal_recovered(self, segment: int) -> None:
        """During recovery: seal what is in memory; the next rows come from `segment`."""
        engine = self._engine
        generation = engine.active
        engine.frozen.append(generation)
        engine.active = engine.new_generation()
        engine.active.first_log = segment
        engine.refresh()
        self._seal(generation)

    def _seal_oldest(self) -> None:
        engine = self._engine
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
        with contextlib.suppress(Unavailable):  # the log still has it; the next commit tries again
            self._commit()
        if not self._stopping.is_set():
            self._merger.submit(self._tidy)

    def _seal(self, generation: Generation) -> None:
        engine = self._engine
        made: list[tuple[Any, Any]] = []
        try:
            product = engine.kind.seal(generation.records, generation.wanted)
            made.append((engine.primary, self._write(engine.primary, product, "seal")))
            with engine.lock:
                alone = [(engine.alone[name], memory) for name, memory in generation.alone.items()]
            for index, memory in alone:
                entries = index.kind.seal(memory, {"wanted": generation.wanted})
                if entries is not None:
                    made.append((index.tree, self._write(index.tree, entries, "seal")))
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

    def _commit(self) -> None:
        """Save what there is now; if that fails, `drain` tries again and says why."""
        self._changed = True
        self._engine.store.commit(self._engine.lock, self._engine.snapshot)
        self._changed = False

    def _write(self, tree: Any, product: Any, why: str) -> Any:
        reader = tree.write(product)
        self.written_bytes[f"{tree.name} {why}"] += reader.component.info.size_bytes
        return reader

    # ---- merging -------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Merge what the policies say and save the manifest; a full disk is tried again later."""
        with contextlib.suppress(Unavailable):
            while not self._stopping.is_set() and self._merge_once():
                pass
            if self._changed:
                self._commit()

    def _merge_once(self) -> bool:
        """One merge of the primary or of an index. False when there is none to do."""
        engine = self._engine
        with engine.lock:
            groups = engine.primary.merges(0)
            oldest = engine.primary.readers[0] if engine.primary.readers else None
            fields = engine.embedded
        for group in groups:
            product = engine.kind.merge(group, fields, tombs=group[0] is not oldest)
            self._replace(engine.primary, product, group)
        done = bool(groups)
        for index in list(engine.alone.values()):
            with engine.lock:
                groups_ = index.tree.merges(0)
                readers = list(engine.primary.readers)
            for part in groups_:
                self._replace(index.tree, index.kind.merge(part, _keeper(readers)), part)
                done = True
        return done

    def _replace(self, tree: Any, product: Any, group: Sequence[Any]) -> None:
        engine = self._engine
        reader = self._write(tree, product, "merge") if product is not None else None
        with engine.lock:
            tree.install(reader, group)
            engine.refresh()
        self._changed = True

    # ---- building indexes ------------------------------------------------------------------------

    def add_index(self, field: str, kind: str, progress: Callable[[int, int], None] | None) -> None:
        """Begin to build an index in the background."""
        engine = self._engine
        with engine.writing:
            if field in engine.indexes:
                raise Conflict("there is an index on this field", field=field)
            with engine.lock:
                engine.indexes[field] = kind
                engine.building.append(field)
                if kind != "embedded":
                    index = engine.alone[field] = engine.new_index(field, kind)
                    engine.store.attach(index.tree, 0)
                self._since[field] = engine.next_seq
            if engine.active.is_empty:
                with engine.lock:
                    engine.active = engine.new_generation()
                    engine.refresh()
            else:
                self.freeze()
        engine.store.commit(engine.lock, engine.snapshot)
        self._merger.submit(lambda: self._build(field, progress))

    def begin_again(self, since: int) -> None:
        """During recovery: of an index that was being built, only what comes now is there."""
        engine = self._engine
        for field in engine.building:
            self._since[field] = since
            if field in engine.alone:
                tree = engine.alone[field].tree
                tree.install(None, tree.readers)
        engine.refresh()

    def resume(self) -> None:
        """Go on with what was under way when the collection was closed or killed."""
        for field in list(self._engine.building):
            self._merger.submit(lambda field=field: self._build(field, None))  # type: ignore[misc]
        self._merger.submit(self._tidy)

    def drop_index(self, field: str) -> None:
        """Forget an index."""
        engine = self._engine
        with engine.writing:
            if field not in engine.indexes:
                raise NotFound("no index on this field", field=field)
            with engine.lock:
                del engine.indexes[field]
                if field in engine.building:
                    engine.building.remove(field)
                index = engine.alone.pop(field, None)
                if index is not None:
                    engine.store.detach(index.tree)
                    for generation in (engine.active, *engine.frozen):
                        generation.alone.pop(field, None)  # a new index must not get its entries
                engine.refresh()
            if index is None and not engine.active.is_empty:
                self.freeze()  # its memory numbers the embedded fields
            elif index is None:
                with engine.lock:
                    engine.active = engine.new_generation()
                    engine.refresh()
        engine.store.commit(engine.lock, engine.snapshot)

    def _build(self, field: str, progress: Callable[[int, int], None] | None) -> None:
        engine = self._engine
        self._sealer.drain()  # what was in memory when it began must be in components
        with engine.lock:
            if field not in engine.building:
                return
            index = engine.alone.get(field)
            readers = list(engine.primary.readers)
            if index is None:
                readers = [reader for reader in readers if field not in reader.embedded]
        total = sum(reader.rows for reader in readers)
        done = 0

        def tell(rows: int) -> None:
            nonlocal done
            done += rows
            self.progress[field] = (done, total)
            if progress is not None:
                progress(done, total)

        tell(0)
        if index is None:
            for reader in readers:
                if self._stopping.is_set():
                    return
                product = engine.kind.merge([reader], engine.embedded, tombs=True)
                self._replace(engine.primary, product, [reader])
                tell(reader.rows)
        else:
            self._build_alone(index, readers, self._since[field], tell)
        if self._stopping.is_set():
            return
        with engine.lock:
            if field in engine.building:
                engine.building.remove(field)
        self._commit()

    def _build_alone(
        self, index: Index, readers: Sequence[SortedReader], since: int, tell: Callable[[int], None]
    ) -> None:
        """Entries of what was there before `since`, a component of the primary at a time."""
        engine = self._engine
        made: list[Any] = []
        for reader in readers:
            if self._stopping.is_set():
                break
            values = reader.values(index.field, engine.extract)
            rows = np.repeat(np.arange(reader.rows), np.diff(values.lists))
            keep = reader.seqs[rows] < since
            if keep.any():
                kept = np.flatnonzero(keep)
                older = View(index.kind, [], list(reversed(made)))
                wanted = reader.component.info.filters["wanted"]
                product = index.kind.build(
                    values.texts.take(kept), reader.keys.take(rows[kept]), reader.seqs[rows[kept]],
                    older if index.kind.eager else None, {"wanted": wanted},
                )  # fmt: skip
                if product is not None:
                    made.append(self._write(index.tree, product, "build"))
            tell(reader.rows)
        with engine.lock:
            if self._stopping.is_set() or engine.alone.get(index.field) is not index:
                for reader in made:
                    reader.component.drop()
                return
            index.tree.readers[:0] = made
            engine.refresh()

    # ---- the end ---------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait for everything that was begun; raises what went wrong."""
        for _ in range(2):  # a seal submits a merge
            self._sealer.drain()
            self._merger.drain()
        self._sealer.check()
        self._merger.check()
        if self._changed:
            self._commit()
        with self._engine.lock:
            failed = next((g for g in self._engine.frozen if g.error is not None), None)
        if failed is not None and failed.error is not None:
            error, failed.error = failed.error, None
            failed.done.clear()
            self._sealer.submit(self._seal_oldest)
            raise error

    def stop(self) -> None:
        """Finish seals, let merges end where they are."""
        self._stopping.set()
        self._sealer.drain()

    def close(self) -> None:
        """End the threads."""
        self._stopping.set()
        with contextlib.suppress(TidelineError):
            self._sealer.close()
            self._merger.close()


def _keeper(readers: Sequence[SortedReader]) -> Callable[[Texts, Words], NDArray[np.bool_]]:
    """Which entries may stay: those whose write some component of the primary still has."""
    high = max((int(r.facts[at.X_SEQ_HIGH]) for r in readers), default=0)
    there = np.zeros(high + 2, bool)
    for reader in readers:
        there[reader.seqs[reader.flags == 0]] = True

    def keep(keys: Texts, seqs: Words) -> NDArray[np.bool_]:
        return there[np.minimum(seqs, high + 1)]

    return keep
