"""Indexes that come and go while a collection is used.

    add      the active generation freezes; from the next on, every write has entries for the
             index; the manifest names it under `building`; the rest happens in the background
    build    within the records: each component is written anew with the field's values
             apart: one component of entries for each component of the primary
    drop     its memories and its components go; one within the records leaves its columns behind,
             which nobody reads

Killed in the middle, building begins again: of an index within the records, components that have
the field are found to have it; of one apart, what had been made counts for nothing.

Invariant: an index leaves `building` only when every record that is older than `since`, the seq
at which it was added, is in its components.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tideline.documents.index import Index
from tideline.errors import Conflict, NotFound, Unavailable
from tideline.index.kind import Spec
from tideline.index.sorted import SortedReader
from tideline.index.texts import Texts
from tideline.kernels.documents.layout import TOMB
from tideline.lsm.filter import MinMax
from tideline.lsm.tree import MergeContext

if TYPE_CHECKING:
    from tideline.documents.engine import Engine

__all__ = ["Building"]

Progress = Callable[[int, int], None]


class _Job:
    """One index to build."""

    def __init__(self, field: str, since: int, progress: Progress | None) -> None:
        self.field = field
        self.since = since  # writes from this seq on bring their entries
        self._progress = progress
        self._done = self._total = 0

    def begin(self, total: int) -> None:
        self._done, self._total = 0, total
        self.tell(0)

    def tell(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._total)


class Building:
    """Adds and drops the indexes of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: dict[str, _Job] = {}  # by field: the newest one counts
        self._postponed: list[_Job] = []

    def add(self, field: str, kind: Spec, progress: Progress | None) -> None:
        """Begin to build an index in the background."""
        engine = self._engine
        engine.make_kind(kind)  # or say that there is none
        with engine.writing:
            engine.settle()
            engine.require_open()
            if field in engine.indexes:
                raise Conflict("there is an index on this field", field=field)
            engine.sheltered(lambda: self._add(field, kind, progress))

    def _add(self, field: str, kind: Spec, progress: Progress | None) -> None:
        engine = self._engine
        if not engine.active.is_empty:
            engine.freeze()  # if that fails, nothing has changed
        try:
            job = self._begin(field, kind, progress)
            engine.dataset.commit()
        except BaseException:  # nothing was written meanwhile
            self._remove(field)
            raise
        engine.dataset.submit(lambda: self._run(job))

    def _begin(self, field: str, kind: Spec, progress: Progress | None) -> _Job:
        """An index without entries, for what is written from now on."""
        engine = self._engine
        made = engine.make_kind(kind)
        with engine.lock:
            engine.kinds = {**engine.kinds, field: made}
            if not made.within:
                index = engine.new_index(field)
                engine.store.attach(index.tree, 0)
                engine.alone[field] = index
            engine.indexes = {**engine.indexes, field: kind}
            engine.building = [*engine.building, field]
            job = self._jobs[field] = _Job(field, engine.next_seq, progress)
            engine.begin_generation()
        return job

    def drop(self, field: str) -> None:
        """Forget an index."""
        engine = self._engine
        with engine.writing:
            engine.settle()
            engine.require_open()
            if field not in engine.indexes:
                raise NotFound("no index on this field", field=field)
            engine.sheltered(lambda: self._drop(field))

    def _drop(self, field: str) -> None:
        self._remove(field)
        self._engine.dataset.commit()

    def _remove(self, field: str) -> None:
        engine = self._engine
        kind = engine.kinds.get(field)
        within = kind is not None and kind.within
        if within and not engine.active.is_empty:
            engine.freeze()  # its values are in the memory; if that fails, nothing changed
        with engine.lock:
            engine.indexes = {name: it for name, it in engine.indexes.items() if name != field}
            engine.kinds = {name: it for name, it in engine.kinds.items() if name != field}
            engine.building = [name for name in engine.building if name != field]
            engine.unique = tuple(name for name in engine.unique if name != field)
            self._jobs.pop(field, None)
            index = engine.alone.pop(field, None)
            if index is not None:
                engine.store.detach(index.tree)
                for generation in (engine.active, *engine.frozen):
                    generation.indexes.pop(field, None)  # a new index must not get its entries
            if within:
                engine.begin_generation()
            else:
                engine.refresh()

    # ---- in the background -----------------------------------------------------------------

    def begin_again(self, since: int) -> None:
        """During recovery: of an index that was being built, only what comes now is there."""
        engine = self._engine
        for field in engine.building:
            if field not in engine.kinds:
                continue  # its kind is not known here: it waits
            self._jobs[field] = _Job(field, since, None)
            if field in engine.alone:
                tree = engine.alone[field].tree
                tree.apply([], tree.readers)
        engine.refresh()

    def resume(self) -> None:
        """Go on with what was under way when the collection was closed or killed."""
        self._postponed = list(self._jobs.values())
        self.retry()

    def retry(self) -> None:
        """Try again to build what could not be built."""
        jobs, self._postponed = self._postponed, []
        for job in jobs:
            self._engine.dataset.submit(lambda job=job: self._run(job))  # type: ignore[misc]

    def _stale(self, job: _Job) -> bool:
        """Whether its index was dropped, or the collection is being closed."""
        return self._jobs.get(job.field) is not job or self._engine.dataset.stopping

    def _run(self, job: _Job) -> None:
        """Build one index (the thread that merges)."""
        engine = self._engine
        # What was in memory when it was added must be in components.
        engine.dataset.wait_for_seals()
        with engine.lock:
            if self._stale(job):
                return
            if any(job.field not in generation.fields for generation in engine.frozen):
                self._postponed.append(job)  # a seal failed: after the next one
                return
            index = engine.alone.get(job.field)
            readers = list(engine.primary.readers)
        try:
            if index is None:
                whole = self._build_within(job, readers)
            else:
                whole = self._build_apart(job, index, readers)
        except Unavailable:
            self._postponed.append(job)
            raise
        if not whole:
            return
        with engine.lock:
            if self._stale(job):
                return
            engine.building = [name for name in engine.building if name != job.field]
            del self._jobs[job.field]
            engine.refresh()
        engine.dataset.commit()

    def _build_within(self, job: _Job, readers: Sequence[SortedReader]) -> bool:
        """Write anew what has no values of the field. False when it was left half done."""
        engine = self._engine
        todo = [reader for reader in readers if job.field not in reader.embedded]
        job.begin(sum(reader.rows for reader in todo))
        for reader in todo:
            with engine.lock:
                if self._stale(job):
                    return False
                fields = engine.embedded
            products = engine.kind.merge([reader], MergeContext(owner=fields))
            level = reader.component.info.level
            engine.dataset.replace(engine.primary, products, [reader], level=level)
            job.tell(reader.rows)
        return True

    def _build_apart(self, job: _Job, index: Index, readers: Sequence[SortedReader]) -> bool:
        """Entries of what was there before, a component of the primary at a time."""
        engine = self._engine
        made: list[Any] = []
        job.begin(sum(reader.rows for reader in readers))
        try:
            for group in _by_age(readers):
                if self._stale(job):
                    break
                found = [self._entries(index, reader, job.since) for reader in group]
                values, keys = (Texts.join(each) for each in list(zip(*found, strict=True))[:2])
                seqs = np.concatenate([each[2] for each in found])
                wanted = MinMax.empty()
                for reader in group:
                    wanted = wanted.merge(reader.component.info.filters["wanted"])
                if len(seqs):
                    older = list(reversed(made))
                    products = index.kind.build(values, keys, seqs, older, {"wanted": wanted})
                    made += engine.dataset.write_all(index.tree, products, "build")
                job.tell(sum(reader.rows for reader in group))
            with engine.lock:
                if not self._stale(job):
                    index.tree.apply(made, oldest=True)
                    made = []
                    engine.refresh()
                    return True
        finally:
            for reader in made:
                reader.component.drop()
        return False

    def _entries(
        self, index: Index, reader: SortedReader, since: int
    ) -> tuple[Texts, Texts, NDArray[np.int64]]:
        """Values, keys and seqs of the documents of a component that are older than `since`."""
        own = index.kind.extract
        if own is None:
            plain = reader.values(index.field, self._engine.extract)
            rows = np.repeat(np.arange(reader.rows), np.diff(plain.lists))
            values = plain.texts
        else:
            rows, values = own(reader.docs, [index.field])[0]
        kept = np.flatnonzero((reader.flags[rows] & TOMB == 0) & (reader.seqs[rows] < since))
        rows = rows[kept]
        return values.take(kept), reader.keys.take(rows), reader.seqs[rows]


def _by_age(readers: Sequence[SortedReader]) -> list[list[SortedReader]]:
    """Components oldest first, those together whose writes are not one after the other."""
    groups: list[list[SortedReader]] = []
    high = -1
    for reader in sorted(readers, key=lambda reader: reader.component.info.filters["seq"].low):
        span = reader.component.info.filters["seq"]
        if span.low > high:
            groups.append([])
        groups[-1].append(reader)
        high = max(high, span.high)
    return groups
