"""The life of a channel's windows and files: seal, install, merge, commit, check, backup, close.

    writers    look_after (every 256 operations)  -> starts background work when there is any
               make_room, begin_seal              -> a writer that needs memory now
    worker     seal -> install -> merge -> save the manifest -> delete what nothing needs
    owners     seal_all, maintain, check, backup, save_fact, close

Files are written by the worker without the lock, which it takes only to install. A writer that
runs out of memory waits for the file, never for the lock, so there is no cycle.

A log segment is kept while a window has rows in it that are not in a component, and, with a
journal, while its newest row is not older than `journal_us`. `_ends` has that time of each segment.

Which methods need the lock is said in each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tideline.channel.expiry import Expiry
from tideline.channel.interrupts import Interrupts
from tideline.channel.parts import Parts
from tideline.channel.side import Seal, Side
from tideline.clock import FOREVER
from tideline.errors import Closed, TidelineError, Unavailable
from tideline.index.memory import WindowFacts
from tideline.kernels import layout as at
from tideline.lsm.backup import begin_copy
from tideline.lsm.inventory import Listed
from tideline.shelter import run_apart

__all__ = ["Upkeep"]

_SMALL_LOG = 64 << 10
_WORTH = 8  # what a seal must free: such a part of the memory in use, if any window has it


class Upkeep:
    """What becomes of a channel's windows, components and log segments."""

    def __init__(
        self, parts: Parts, interrupts: Interrupts, expiry: Expiry, heavy_log_bytes: int
    ) -> None:
        self._parts = parts
        self._interrupts = interrupts
        self._expiry = expiry
        self._heavy_log = heavy_log_bytes
        self._ends: dict[int, int] = dict(parts.facts.get("log_ends", []))  # by log segment: time
        # Segments before it are let go, though the manifest that says so may not be saved yet.
        self._kept_from = parts.store.kept_log
        self._busy = False  # a background check is on its way
        self._recovering = True

    def begin(self) -> None:
        """Recovery is over: work may go to the worker from now on."""
        self._recovering = False
        if any(tree.has_waste for tree in self._parts.store.trees):
            self._submit(self._tidy_later)

    def _submit(self, job: Callable[[], None]) -> None:
        # During recovery there is no lock to take: what there is to tidy waits.
        if not self._parts.closed and not self._recovering:
            self._parts.worker.submit(job)

    # ---- sealing (the lock is held) ---------------------------------------------------------

    def make_room(self, side: Side) -> None:
        """Free memory now: the caller cannot go on without."""
        seal = side.seal
        if seal is None:
            seal = self.begin_seal(side)
            if seal is None:
                raise Unavailable("memory_mb is too small: nothing is left to seal")
        seal.write()
        self._install(seal)

    def begin_seal(
        self, side: Side, pick: Callable[[WindowFacts], float] | None = None
    ) -> Seal | None:
        """Freeze the window whose memory would stay taken for the longest, or `pick` the largest.

        A window that frees little does not come before one that frees much, or memory would be
        sealed record by record.
        """
        now = self._parts.newest
        windows = [w for w in side.memory.windows() if w.state == at.OPEN and w.limit > now]
        if not windows or side.seal is not None:
            return None
        if pick is None:
            used = side.memory.segments_used
            windows = [w for w in windows if w.segments * _WORTH >= used] or windows
        taken = pick or (lambda w: w.segments * float(min(w.limit, FOREVER) - now))
        window = max(windows, key=taken)
        side.memory.freeze(window.number)
        side.seal = Seal(side, window)
        return side.seal

    def _install(self, seal: Seal) -> None:
        """Let the sealed component take over from its window."""
        if seal.installed:
            return
        seal.installed = True
        seal.side.seal = None
        memory = seal.side.memory
        try:
            if seal.error is not None:
                raise seal.error
        except BaseException:
            memory.thaw(seal.window.number)
            if seal.reader is not None:
                seal.reader.component.drop()
            raise
        if seal.reader is not None:
            seal.tree.install(seal.reader)
        memory.drop(seal.window.number)
        memory.release()
        seal.side.refresh()
        self._submit(self._tidy_later)

    # ---- what writers start (the lock is held) ----------------------------------------------

    def look_after(self) -> None:
        """Start background work when memory fills up, the log grows or components expire."""
        parts = self._parts
        for side in parts.sides:
            side.memory.state[at.E_LOG] = parts.store.log.segment
            side.memory.share()
            side.memory.grow_tables(parts.newest)
            side.drop_expired(parts.newest)
            for job in side.memory.ahead():
                parts.worker.submit(job)
        if self._busy:
            return
        first = self._first_log()
        full = any(side.memory.is_short for side in parts.sides)
        heavy = parts.store.log.size_from(first) > self._heavy_log
        waste = any(tree.has_waste for tree in parts.store.trees)
        if full or heavy or waste or self.kept_log(first) > parts.store.kept_log:
            self._busy = True
            self._submit(self._background)

    def give_back_disk(self) -> None:
        """Have files and log segments that nothing needs any more removed soon.

        For a channel nobody writes to: no write comes that would look after it.
        """
        parts = self._parts
        with contextlib.suppress(Unavailable):  # no room for a new segment: the next call tries
            waste = any(side.tree.has_waste for side in parts.sides)
            if waste or self.kept_log(self._first_log()) > parts.store.kept_log:
                self._submit(self._tidy_later)

    # ---- in the worker ----------------------------------------------------------------------

    def _background(self) -> None:
        try:
            for side in self._parts.sides:
                while self._seal_one(side, self._wants_seal):
                    pass
            self._tidy_later()
        except Unavailable:
            pass  # no room on disk: a writer that needs the memory meets the same and says so
        finally:
            self._busy = False

    def _seal_one(self, side: Side, begin: Callable[[Side], Seal | None]) -> bool:
        """Seal one window from outside the lock. False when there was none to seal."""
        with self._parts.lock:
            self._interrupts.finish()
            seal = side.seal or begin(side)
        if seal is None:
            return False
        seal.write()
        with self._parts.lock:
            self._interrupts.finish()
            self._install(seal)
        return True

    def _wants_seal(self, side: Side) -> Seal | None:
        """Begin to seal a window if memory is short or it keeps an old log segment alive."""
        parts = self._parts
        log = parts.store.log
        heavy = log.size_from(self._first_log()) > self._heavy_log
        if heavy or side.memory.is_short:
            self._expiry.drop_windows(parts.newest)
            for each in parts.sides:
                each.memory.release()
        if side.memory.is_short:
            return self.begin_seal(side)
        if heavy:
            old = [w for w in side.memory.windows() if w.state == at.OPEN]
            if old and min(w.first_log for w in old) < log.segment:
                return self.begin_seal(side, lambda w: -w.first_log)
        return None

    def _tidy_later(self) -> None:
        """Tidy in the background: no room on disk now is tried again with the next one."""
        with contextlib.suppress(Unavailable):
            self._tidy()

    def _tidy(self) -> None:
        """Merge what the policy says, save the manifest, delete what is gone."""
        parts = self._parts
        for side in parts.sides:
            while self._merge_one(side):
                pass
        self.commit()
        with parts.lock:
            self._interrupts.finish()
            for side in parts.sides:
                side.memory.trim()

    def _merge_one(self, side: Side) -> bool:
        """Merge the first group that the policy names. False when there is none."""
        parts = self._parts
        with parts.lock:
            self._interrupts.finish()
            now = parts.newest
            found = side.first_merge(now)
            tombs = side.memory.tombs() if found else {}
        if found is None:
            return False
        tree, group = found
        kind: Any = tree.kind
        product = kind.merge(group, now, tombs)
        reader = tree.write(product) if product else None
        with parts.lock:
            self._interrupts.finish()
            tree.install(reader, group)
            side.refresh()
        return True

    # ---- what the manifest says --------------------------------------------------------------

    def commit(self) -> None:
        """Save the manifest (the lock is not held)."""
        self._parts.store.commit(self._parts.lock, self.snapshot)

    def save_fact(self, name: str, value: Any, then: Callable[[], None] = lambda: None) -> None:
        """Change one of the facts, for good; it stays as it was when that fails (no lock held).

        `then` is run under the lock when it is saved.
        """
        run_apart(partial(self._save_fact, name, value, then))

    def _save_fact(self, name: str, value: Any, then: Callable[[], None]) -> None:
        facts = self._parts.facts
        with self._parts.lock:
            before = {name: facts[name]} if name in facts else {}
            facts[name] = value
        try:
            self.commit()
        except BaseException:
            with self._parts.lock:
                del facts[name]
                facts.update(before)
            raise
        with self._parts.lock:
            then()

    def _first_log(self) -> int:
        """The first log segment that recovery would need."""
        parts = self._parts
        windows = [window for side in parts.sides for window in side.memory.windows()]
        log = parts.store.log
        if not windows and log.end.offset > _SMALL_LOG and not self._recovering:
            log.rotate()  # nothing in it counts any more: let it go whole
            parts.log_into(log.segment)
        return min([log.segment, *(window.first_log for window in windows)])

    def kept_log(self, first: int) -> int:
        """The first log segment to keep, when `first` is the first that recovery needs."""
        parts = self._parts
        for segment in range(self._kept_from, parts.store.log.segment):
            self._ends.setdefault(segment, parts.newest)
        horizon = parts.newest - parts.journal_us
        kept = [segment for segment, end in self._ends.items() if end >= horizon]
        return min([first, *kept]) if parts.journal_us else first

    def snapshot(self) -> tuple[dict[str, Any], int, int]:
        """What the manifest has to say (the lock is held)."""
        self._interrupts.finish()
        first = self._first_log()
        kept = self.kept_log(first)
        self._ends = {n: end for n, end in self._ends.items() if n >= kept}
        self._kept_from = kept
        return self._facts(), first, kept

    def _facts(self) -> dict[str, Any]:
        parts = self._parts
        return {
            **parts.facts,
            "newest": parts.newest,
            "next_seq": int(parts.state[at.C_NEXT_SEQ]),
            "answers": parts.answers,
            "writers": parts.writers.to_json(),
            "lineage": parts.lineage.to_json(parts.newest),
            "log_ends": list(self._ends.items()),
        }

    # ---- for owners (the lock is not held) -----------------------------------------------------

    def seal_all(self) -> None:
        """Seal everything in memory to disk now."""

        def seal() -> None:
            for side in self._parts.sides:
                for _ in range(len(side.memory.windows())):  # not what is written meanwhile
                    if not self._seal_one(side, self.begin_seal):
                        break

        self._run_in_background(seal, self._tidy)

    def maintain(self) -> None:
        """Run all pending background work to its end."""

        def drop() -> None:
            with self._parts.lock:
                self._interrupts.finish()
                self._expiry.drop_all()

        self._run_in_background(drop, self._tidy)

    def _run_in_background(self, *work: Callable[[], None]) -> None:
        """Have the worker do something and wait for it; who is interrupted does not stop it."""
        failed: list[BaseException] = []

        def job() -> None:
            try:
                for each in work:
                    each()
            except BaseException as error:
                failed.append(error)

        self._submit(job)
        self._parts.worker.drain()
        self._parts.worker.check()
        if failed:
            raise failed[0]

    def check(self) -> None:
        """Verify every checksum and invariant on disk."""
        parts = self._parts
        parts.worker.drain()
        parts.worker.check()
        with parts.lock:  # nothing is appended or deleted while the files are read
            self._interrupts.finish()
            parts.store.check()

    def backup(self, target: Path) -> dict[str, Listed]:
        """Copy everything as it is now into a new folder, while writers go on; its files."""
        parts = self._parts
        with parts.lock:
            if parts.closed:
                raise Closed("the database was closed")
            self._interrupts.finish()
            first = self._first_log()
            finish = begin_copy(parts.store, target, self._facts(), first, self.kept_log(first))
        return finish()

    def close(self) -> bool:
        """Finish background work, save the manifest, let go of the files. False if it was."""
        parts = self._parts
        if parts.closed:
            return False
        parts.worker.drain()
        with parts.lock:
            self._interrupts.finish()
            parts.closed = True
        parts.worker.close()
        with contextlib.suppress(TidelineError):  # the log has what the manifest would say
            parts.store.commit(parts.lock, self.snapshot, last=True)
        parts.store.close()
        parts.shelter.close()
        for side in parts.sides:
            side.memory.close()
        return True
