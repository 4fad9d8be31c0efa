"""The engine as a writer uses it: one frame of the log, then memory; and what was cut in between.

    write, change    rows -> log (one frame) -> active generation -> published
    settle           whoever takes `writing` brings to its end what an earlier one may have left

What a write is when an exception cuts it is told in engine.py, and so is who holds which lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tideline.clock import FOREVER
from tideline.documents.expiry import FEW
from tideline.documents.feed import Feed
from tideline.documents.generation import Generation
from tideline.documents.parts import Extract, completed, in_parts
from tideline.documents.payload import payload_parts
from tideline.documents.reading import Once, Reading
from tideline.documents.types import PUT, Rows
from tideline.documents.unique import refuse_repeated
from tideline.documents.view import View
from tideline.index.texts import Texts
from tideline.lsm.writers import Writers

__all__ = ["Writing"]

T = TypeVar("T")
_NO_ROWS = Rows(np.full(0, PUT, np.uint8), Texts.of([]), Texts.of([]), {})


class Writing(Reading):
    """What writers ask of an engine."""

    facts: dict[str, Any]
    filter: str | None
    extract: Extract
    unique: tuple[str, ...]
    """The fields of which no two documents have one value; replaced, never changed."""
    next_seq: int
    active: Generation
    feed: Feed
    writers: Writers
    shelter: Any

    @property
    def own_extracts(self) -> Mapping[str, Extract]:
        """The fields whose index holds something else than plain values, and what gives it."""
        raise NotImplementedError

    def freeze(self) -> None:
        """Begin a new generation and have the old one sealed."""
        raise NotImplementedError

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
        self.store.decide({"landed": once}, lambda: self.note_landed_agreed(*once))

    def note_landed_agreed(self, writer: str, number: int) -> None:
        """The same, without asking anybody."""
        with self.writing:
            self.settle()
            self.require_open()
            with self.lock:
                self.writers.note(writer, number)
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
