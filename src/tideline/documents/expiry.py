"""Documents that are gone by themselves: the engine's side of `ttl_s`.

    write    a row brings the time at which it expires (`Rows.untils`): log, memory, component
    read     a view has a time; a record whose time is not after it is not there, for every
             kernel that finds records (`is_gone`, kernels/documents/records.py)
    sweep    what has expired is deleted, by rows that are written like any other

A reader needs no lock and waits for nobody: to it, the newest version of a key hides the older
ones whether it has expired or not. The sweep comes later. It makes the change known to followers,
who are told a deletion, and lets merges drop the record and its entries. It is done by the next
writers, a few rows each; by whoever asks for changes; and before merges.

The old version that a change tells (feed.py) is the one that was told last: so a document that has
expired and is not swept yet is the old version of what replaces it.

Facts: `ttl_us`, how long documents last of which nobody says so; 0 or none: for ever. Which
records expire next is not stored: what is due is looked for anew after opening.

Threads: `due` and `used` are read without a lock. `sweep` needs `writing`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tideline.clock import FOREVER, Clock
from tideline.documents.types import DELETE, Rows
from tideline.documents.view import Sources, View
from tideline.errors import Unavailable
from tideline.index.kind import Entries
from tideline.index.texts import Texts
from tideline.shelter import run_apart

if TYPE_CHECKING:
    from tideline.documents.engine import Engine

__all__ = ["FEW", "Expiry"]

FEW = 256
"""So many a writer deletes for others beside its own rows."""
_STEP = 16_384
_NO_ENTRIES = Entries(np.empty(0, np.int64), Texts.of([]))


class Expiry:
    """What expires in one engine, and when."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self.clock = clock
        self.ttl_us = int(engine.facts.get("ttl_us", 0))
        self.used = False
        """Whether there is, or was since opening, a document that expires."""
        self.due = FOREVER
        """When the next one expires that is not deleted yet, or an earlier time."""

    def time(self) -> int:
        """The time by which readers judge; 0 while nothing expires."""
        return self.clock.now() if self.used else 0

    def note(self, rows: Rows) -> None:
        """Rows were written (the lock is held)."""
        if rows.untils is not None and (some := rows.untils[rows.untils > 0]).size:
            self.used = True
            self.due = min(self.due, int(some.min()))

    def refresh(self, sources: Sources) -> None:
        """Components or memories came or went (the lock is held)."""
        found = [each.due.next for each in sources.all if each.due is not None]
        self.due = min(found, default=FOREVER)
        self.used = (
            self.used
            or any(each.untils is not None for each in sources.readers)
            or any(each.due.any for each in sources.memories)
        )

    # ---- deleting ----------------------------------------------------------------------------

    def sweep(self, most: int = FOREVER) -> None:
        """Delete what has expired, about `most` of it (`writing` is held)."""
        engine = self._engine
        now = self.clock.now()
        sources: Sources = engine.view().now[0]
        for source in sources.all:
            while source.due is not None and most > 0 and source.due.next <= now:
                rows = source.due.upto(now, min(most, _STEP))
                most -= len(rows)
                gone = self._still_there(source, rows)
                if gone.count:
                    engine.write_rows(self._deletions(gone))
                source.due.passed()
        with engine.lock:
            self.refresh(engine.view().now[0])

    def sweep_now(self, *, wait: bool = True) -> None:
        """Delete all that has expired; nothing if others write and `wait` is False.

        Where the disk is full, it is left for later; where another machine writes, to that one.
        """
        if self.due <= self.clock.now() and self._engine.store.log.leads:
            with contextlib.suppress(Unavailable):
                run_apart(lambda: self._sweep_now(wait))

    def _sweep_now(self, wait: bool) -> None:
        engine = self._engine
        if not engine.writing.acquire(blocking=wait):
            return
        try:
            if not engine.dataset.why_closed:
                engine.settle()
                self.sweep()
        finally:
            engine.writing.release()

    def _still_there(self, source: Any, rows: NDArray[np.int64]) -> Texts:
        """The keys of rows of a source that are the newest of their key."""
        keys = source.row_texts("keys").take(rows)
        found = self.told_view().fetch(keys)
        seqs = dict(zip(found.keys, found.seqs.tolist(), strict=True))
        mine = source.numbers()[0][rows].tolist()
        texts = keys.to_list()
        return Texts.of([
            key for key, seq in zip(texts, mine, strict=True) if seqs.get(key) == seq
        ])  # fmt: skip

    def _deletions(self, keys: Texts) -> Rows:
        engine = self._engine
        filter_values = None if engine.filter is None else _NO_ENTRIES.values
        return Rows(
            np.full(keys.count, DELETE, np.uint8), keys, Texts.of([b""] * keys.count),
            dict.fromkeys(engine.indexes, _NO_ENTRIES), filter_values,
        )  # fmt: skip

    def told_view(self) -> View:
        """What followers know of: with what has expired and is not deleted yet."""
        view = self._engine.view()
        view.time = 0
        return view

    # ---- the setting -------------------------------------------------------------------------

    def keep(self, ttl_us: int) -> None:
        """Change how long documents last of which nobody says so, and save it."""
        if ttl_us != self.ttl_us:
            self._engine.store.decide({"ttl_us": ttl_us}, lambda: self.keep_agreed(ttl_us))

    def keep_agreed(self, ttl_us: int) -> None:
        """The same, without asking anybody."""
        if ttl_us != self.ttl_us:
            run_apart(lambda: self._keep(ttl_us))

    def _keep(self, ttl_us: int) -> None:
        engine = self._engine
        with engine.writing:
            engine.settle()
            engine.require_open()
            before, self.ttl_us = self.ttl_us, ttl_us
            try:
                engine.dataset.commit()
            except BaseException:
                self.ttl_us = before
                raise
