"""The engine as a reader uses it: views, and the short ways that need none.

    unfinished write of an interrupted call -> brought to its end first
    what was published last (`Recent.now`)  -> a view, or one call of a reader's kernel

No lock is taken but for the first line. What it reads is made by `Engine` (engine.py), which
derives from `Writing` (writing.py), which derives from this: three rooms of one house.

Safe from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from tideline.documents.expiry import Expiry
from tideline.documents.reader import Readers
from tideline.documents.recent import Recent
from tideline.documents.types import Found, Rows
from tideline.documents.view import Now, View
from tideline.index.kind import Estimate
from tideline.index.texts import Texts
from tideline.lsm.dataset import Dataset
from tideline.lsm.store import Store

__all__ = ["Once", "Reading"]

Once = tuple[str, int] | None


class Reading:
    """What readers ask of an engine."""

    dataset: Dataset
    store: Store
    lock: Any
    writing: threading.Lock
    expiry: Expiry
    unfinished: tuple[Rows, int, int, Once] | None
    """What is being written: rows, the seq of the first, the frames of the log before, and the
    writer's batch that ends with it."""
    _recent: Recent
    _readers: Readers

    def finish_write(self) -> None:
        """Bring into memory what the log has and memory has not (the lock is held)."""
        raise NotImplementedError

    def require_open(self) -> None:
        """`Closed` when it was closed."""
        if self.dataset.why_closed:
            self.dataset.require_open()

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
