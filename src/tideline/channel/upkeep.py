"""Which windows of a channel are sealed, and when; which log is kept.

    writers      look_after (every 256 operations)  -> starts background work when there is any
                 make_room, begin_seal              -> a writer that needs memory now
    background   seal what is wanted -> merge, save the manifest, delete what nothing needs
    owners       seal_all, maintain, check, backup, save_fact, close

How a seal is written and installed, a merge is done and the manifest is saved: lsm/dataset.py,
whose owner this is. A writer that runs out of memory waits for the file, never for the lock, so
there is no cycle.

A log segment is kept while a window has rows in it that are not in a component, and, with a
journal, while its newest row is not older than `journal_us`.

Which methods need the lock is said in each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tideline.channel.expiry import Expiry
from tideline.channel.interrupts import Interrupts
from tideline.channel.parts import Parts
from tideline.channel.side import Side
from tideline.clock import FOREVER
from tideline.errors import Unavailable
from tideline.index.memory import WindowFacts
from tideline.kernels import layout as at
from tideline.lsm.component import Product
from tideline.lsm.dataset import Seal, Snapshot
from tideline.lsm.inventory import Listed
from tideline.lsm.retention import Retention
from tideline.lsm.tree import MergeContext, Tree, Work
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
        self._dataset = parts.dataset
        self._dataset.own(self)
        self._retention = Retention(parts.facts.get("log_ends", []), kept=parts.store.kept_log)
        self._busy = False  # a background check is on its way
        self._recovering = True

    def begin(self) -> None:
        """Recovery is over: work may go to the worker from now on."""
        self._recovering = False
        if any(tree.has_waste for tree in self._parts.store.trees):
            self._tidy_soon()

    # ---- what the dataset asks (the lock is held) --------------------------------------------

    def finish_call(self) -> None:
        """Bring a call to its end that was interrupted."""
        self._interrupts.finish()

    def refresh(self) -> None:
        """Tell the kernels which components there are."""
        for side in self._parts.sides:
            side.refresh()

    def merge_context(self, tree: Tree[Any], work: Work) -> MergeContext:
        """What has expired is left out, what was cancelled is marked."""
        [side] = [side for side in self._parts.sides if tree in side.trees]
        return MergeContext(self.time, owner=side.memory.tombs())

    @property
    def time(self) -> int:
        """The channel's time."""
        return self._parts.newest

    # ---- sealing (the lock is held) ---------------------------------------------------------

    def make_room(self, side: Side) -> None:
        """Free memory now: the caller cannot go on without."""
        seal = side.seal
        if seal is None:
            seal = self.begin_seal(side)
            if seal is None:
                raise Unavailable("memory_mb is too small: nothing is left to seal")
        self._dataset.write(seal)
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
        tree: Tree[Any] = side.tree
        if window.told and side.told is not None:
            tree = side.told

        def products() -> Iterator[tuple[Tree[Any], Sequence[Product]]]:
            yield tree, tree.kind.seal(side.memory, window)

        def done() -> None:
            side.seal = None
            side.memory.drop(window.number)
            side.memory.release()

        def failed() -> None:
            side.seal = None
            side.memory.thaw(window.number)

        side.seal = Seal(products, done, failed)
        return side.seal

    def _install(self, seal: Seal) -> None:
        """Let the sealed component take over from its window."""
        self._dataset.install(seal)
        self._tidy_soon()

    # ---- what writers start (the lock is held) ----------------------------------------------

    def look_after(self) -> None:
        """Start background work when memory fills up, the log grows or components expire."""
        parts = self._parts
        for side in parts.sides:
            side.memory.state[at.E_LOG] = parts.store.log.mark
            side.memory.share()
            side.memory.grow_tables(parts.newest)
            side.drop_expired(parts.newest)
            for job in side.memory.ahead():
                self._dataset.submit_seal(job)
        if self._busy or parts.closed:
            return
        first = self._first_log()
        full = any(side.memory.is_short for side in parts.sides)
        heavy = parts.store.log.size_from(first) > self._heavy_log
        waste = any(tree.has_waste for tree in parts.store.trees)
        if full or heavy or waste or self.kept_log(first) > parts.store.kept_log:
            self._busy = True
            self._dataset.submit_seal(self._background)

    def give_back_disk(self) -> None:
        """Have files and log segments that nothing needs any more removed soon.

        For a channel nobody writes to: no write comes that would look after it.
        """
        parts = self._parts
        with contextlib.suppress(Unavailable):  # no room for a new segment: the next call tries
            waste = any(side.tree.has_waste for side in parts.sides)
            if waste or self.kept_log(self._first_log()) > parts.store.kept_log:
                self._tidy_soon()

    # ---- in the background ----------------------------------------------------------------------

    def _background(self) -> None:
        try:
            for side in self._parts.sides:
                while self._seal_one(side, self._wants_seal):
                    pass
            self._tidy_soon()
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
        self._dataset.seal(seal)
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
            if old and min(w.first_log for w in old) < log.mark:
                return self.begin_seal(side, lambda w: -w.first_log)
        return None

    def _tidy_soon(self) -> None:
        # During recovery there is no lock to take: what there is to tidy waits.
        if not self._parts.closed and not self._recovering:
            self._dataset.submit(self._tidy_quietly)

    def _tidy_quietly(self) -> None:
        """Tidy in the background: no room on disk now is tried again with the next one."""
        with contextlib.suppress(Unavailable):
            self._tidy()

    def _tidy(self) -> None:
        """Merge what the policy says, save the manifest, delete what is gone."""
        parts = self._parts
        self._dataset.tidy()
        with parts.lock:
            self._interrupts.finish()
            for side in parts.sides:
                side.memory.trim()

    # ---- what the manifest says --------------------------------------------------------------

    def commit(self) -> None:
        """Save the manifest (the lock is not held)."""
        self._dataset.commit()

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
        if not windows and log.size_from(log.mark) > _SMALL_LOG and not self._recovering:
            log.rotate()  # nothing in it counts any more: let it go whole
            parts.log_into(log.mark)
        return min([log.mark, *(window.first_log for window in windows)])

    def kept_log(self, first: int) -> int:
        """The first log segment to keep, when `first` is the first that recovery needs."""
        parts = self._parts
        return self._retention.first_kept(
            first=first, current=parts.store.log.mark, now=parts.newest, span=parts.journal_us
        )

    def snapshot(self) -> Snapshot:
        """What the manifest has to say (the lock is held)."""
        first = self._first_log()
        kept = self.kept_log(first)
        self._retention.let_go(kept)
        return Snapshot(self._facts(), first, kept)

    def _facts(self) -> dict[str, Any]:
        parts = self._parts
        return {
            **parts.facts,
            "newest": parts.newest,
            "next_seq": int(parts.state[at.C_NEXT_SEQ]),
            "answers": parts.answers,
            "writers": parts.writers.to_json(),
            "lineage": parts.lineage.to_json(parts.newest),
            "log_ends": self._retention.to_json(),
        }

    # ---- for owners (the lock is not held) -----------------------------------------------------

    def seal_all(self) -> None:
        """Seal everything in memory to disk now."""

        def seal() -> None:
            for side in self._parts.sides:
                for _ in range(len(side.memory.windows())):  # not what is written meanwhile
                    if not self._seal_one(side, self.begin_seal):
                        break

        self._dataset.run(seal, sealing=True)
        self._dataset.run(self._tidy)

    def maintain(self) -> None:
        """Run all pending background work to its end."""

        def drop() -> None:
            with self._parts.lock:
                self._interrupts.finish()
                self._expiry.drop_all()

        self._dataset.run(drop, sealing=True)
        self._dataset.run(self._tidy)

    def check(self) -> None:
        """Verify every checksum and invariant on disk."""
        self._dataset.drain()
        self._dataset.check()

    def backup(self, target: Path) -> dict[str, Listed]:
        """Copy everything as it is now into a new folder, while writers go on; its files."""
        return self._dataset.backup(target)()

    def close(self) -> bool:
        """Finish background work, save the manifest, let go of the files. False if it was."""
        if self._parts.closed:
            return False
        self._dataset.close()
        for side in self._parts.sides:
            side.memory.close()
        return True
