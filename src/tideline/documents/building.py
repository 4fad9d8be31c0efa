"""Indexes that come and go while a collection is used.

    add      the active generation freezes; from the next on, every write has entries for the
             index; the manifest names it under `building`; the rest happens in the background
    build    embedded: each component is written anew with the field's values
             stand-alone: one component of entries for each component of the primary
    drop     its memories and its components go; an embedded one leaves its columns behind, which
             nobody reads

Killed in the middle, building begins again: of an embedded index, components that have the field
are found to have it; of a stand-alone one, what had been made counts for nothing.

Invariant: an index leaves `building` only when every record that is older than `since`, the seq
at which it was added, is in its components.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tideline.documents.alone import Index
from tideline.errors import Conflict, NotFound, Unavailable
from tideline.index.entryview import View
from tideline.index.sorted import SortedReader

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

    def add(self, field: str, kind: str, progress: Progress | None) -> None:
        """Begin to build an index in the background."""
        engine = self._engine
        with engine.writing:
            engine.settle()
            engine.require_open()
            if field in engine.indexes:
                raise Conflict("there is an index on this field", field=field)
            engine.sheltered(lambda: self._add(field, kind, progress))

    def _add(self, field: str, kind: str, progress: Progress | None) -> None:
        engine = self._engine
        if not engine.active.is_empty:
            engine.upkeep.freeze()  # if that fails, nothing has changed
        try:
            job = self._begin(field, kind, progress)
            engine.upkeep.commit()
        except BaseException:  # nothing was written meanwhile
            self._remove(field)
            raise
        engine.upkeep.submit(lambda: self._run(job))

    def _begin(self, field: str, kind: str, progress: Progress | None) -> _Job:
        """An index without entries, for what is written from now on."""
        engine = self._engine
        with engine.lock:
            if kind != "embedded":
                index = engine.new_index(field, kind)
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
        self._engine.upkeep.commit()

    def _remove(self, field: str) -> None:
        engine = self._engine
        embedded = engine.indexes.get(field) == "embedded"
        if embedded and not engine.active.is_empty:
            engine.upkeep.freeze()  # its values are in the memory; if that fails, nothing changed
        with engine.lock:
            engine.indexes = {name: it for name, it in engine.indexes.items() if name != field}
            engine.building = [name for name in engine.building if name != field]
            self._jobs.pop(field, None)
            index = engine.alone.pop(field, None)
            if index is not None:
                engine.store.detach(index.tree)
                for generation in (engine.active, *engine.frozen):
                    generation.alone.pop(field, None)  # a new index must not get its entries
            if embedded:
                engine.begin_generation()
            else:
                engine.refresh()

    # ---- in the background -----------------------------------------------------------------

    def begin_again(self, since: int) -> None:
        """During recovery: of an index that was being built, only what comes now is there."""
        engine = self._engine
        for field in engine.building:
            self._jobs[field] = _Job(field, since, None)
            if field in engine.alone:
                tree = engine.alone[field].tree
                tree.install(None, tree.readers)
        engine.refresh()

    def resume(self) -> None:
        """Go on with what was under way when the collection was closed or killed."""
        self._postponed = list(self._jobs.values())
        self.retry()

    def retry(self) -> None:
        """Try again to build what could not be built."""
        jobs, self._postponed = self._postponed, []
        for job in jobs:
            self._engine.upkeep.submit(lambda job=job: self._run(job))  # type: ignore[misc]

    def _stale(self, job: _Job) -> bool:
        """Whether its index was dropped, or the collection is being closed."""
        return self._jobs.get(job.field) is not job or self._engine.upkeep.stopping

    def _run(self, job: _Job) -> None:
        """Build one index (the thread that merges)."""
        engine = self._engine
        # What was in memory when it was added must be in components.
        engine.upkeep.wait_for_seals()
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
                whole = self._build_embedded(job, readers)
            else:
                whole = self._build_alone(job, index, readers)
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
        engine.upkeep.commit()

    def _build_embedded(self, job: _Job, readers: Sequence[SortedReader]) -> bool:
        """Write anew what has no values of the field. False when it was left half done."""
        engine = self._engine
        todo = [reader for reader in readers if job.field not in reader.embedded]
        job.begin(sum(reader.rows for reader in todo))
        for reader in todo:
            with engine.lock:
                if self._stale(job):
                    return False
                fields = engine.embedded
            product = engine.kind.merge([reader], fields, tombs=True)
            engine.upkeep.replace(engine.primary, product, [reader])
            job.tell(reader.rows)
        return True

    def _build_alone(self, job: _Job, index: Index, readers: Sequence[SortedReader]) -> bool:
        """Entries of what was there before, a component of the primary at a time."""
        engine = self._engine
        made: list[Any] = []
        job.begin(sum(reader.rows for reader in readers))
        try:
            for reader in readers:
                if self._stale(job):
                    break
                values = reader.values(index.field, engine.extract)
                rows = np.repeat(np.arange(reader.rows), np.diff(values.lists))
                kept = np.flatnonzero(reader.seqs[rows] < job.since)
                if len(kept):
                    older = View(index.kind, [], list(reversed(made)))
                    product = index.kind.build(
                        values.texts.take(kept), reader.keys.take(rows[kept]),
                        reader.seqs[rows[kept]], older if index.kind.eager else None,
                        {"wanted": reader.component.info.filters["wanted"]},
                    )  # fmt: skip
                    if product is not None:
                        made.append(engine.upkeep.write(index.tree, product, "build"))
                job.tell(reader.rows)
            with engine.lock:
                if not self._stale(job):
                    index.tree.readers[:0] = made
                    made = []
                    engine.refresh()
                    return True
        finally:
            for reader in made:
                reader.component.drop()
        return False
