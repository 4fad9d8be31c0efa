"""The life of one dataset: what channels and collections do alike with their files.

    freeze     the owner takes a full memory out of writing and makes a `Seal` of it
    seal       its components are written, without a lock; installed under it, in all trees at once
    merge      what the policies say, tree by tree; n components become m in one step
    commit     the manifest is saved; then files and log segments that nobody needs go
    drain      wait for all of that, and raise what went wrong
    check, backup, close, leave_to_parent

The owner is an engine: it has the memories and the kernels' state, runs the calls and replays the
log. What a dataset asks of it is in `Owner`.

Threads: `lock` guards what searches see and is the owner's lock, too. Seals are written in one
thread and merges in another, so a long merge keeps no writer waiting. No file is written under
the lock, but where a writer has no memory left and seals for itself.

Errors: a disk without room (`Unavailable`) ends nothing. What could not be sealed stays in memory
and in the log, and is tried again by the next freeze or `drain`, which say why. Any other error of
the background is kept, and raised by the next `drain`.

Interrupts: whoever takes the lock first lets the owner finish what an interrupted call left
(docs/decisions/0040-interrupts.md).
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tideline.errors import Closed, TidelineError, Unavailable
from tideline.lsm.backup import begin_copy
from tideline.lsm.component import Product
from tideline.lsm.history import Deed, History
from tideline.lsm.inventory import Listed
from tideline.lsm.sharedlog import Share
from tideline.lsm.store import Store
from tideline.lsm.tree import MergeContext, Tree, Work
from tideline.lsm.worker import Worker
from tideline.shelter import Shelter, run_apart

__all__ = ["Dataset", "Owner", "Seal", "Snapshot"]

Products = Iterable[tuple[Tree[Any], Sequence[Product]]]


class Snapshot(NamedTuple):
    """What the manifest has to say beside the components."""

    facts: dict[str, Any]
    first_log: int
    """The first log segment that recovery needs."""
    kept_log: int
    """The first log segment to keep, to be read."""


class Owner(Protocol):
    """What a dataset asks of the engine whose data it keeps. The lock is held in every call."""

    def finish_call(self) -> None:
        """Bring a call to its end that was interrupted."""
        ...

    def snapshot(self) -> Snapshot:
        """What the manifest has to say now."""
        ...

    def refresh(self) -> None:
        """Components came or went: tell those who search."""
        ...

    def merge_context(self, tree: Tree[Any], work: Work) -> MergeContext:
        """What the kind of a tree must know to merge."""
        ...

    @property
    def time(self) -> int:
        """The time by which components expire."""
        ...


class Seal:
    """A frozen memory on its way to disk."""

    def __init__(
        self, products: Callable[[], Products], done: Callable[[], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`products` makes the components, without a lock.

        With the lock held, `done` lets go of the memory once its components count, and `failed`
        is called when they could not be written.
        """
        self._products = products
        self.done = done
        self.failed = failed
        self.made: list[tuple[Tree[Any], list[Any]]] = []
        self.error: BaseException | None = None
        self.installed = False
        self.given_up = False
        """Whether somebody was told why it could not be written."""
        self.finished = threading.Event()
        """Set when it is installed, or could not be written."""
        self._written = False
        self._writing = threading.Lock()

    def write(self, count: Callable[[str, int], None], history: History) -> None:
        """See to it that the components are written: one thread writes, the others wait.

        Somebody who is interrupted leaves the writing to the next.
        """
        with self._writing:
            if self._written:
                return
            with history.doing("seal", nothing=True) as deed:
                self._write(count, deed)

    def _write(self, count: Callable[[str, int], None], deed: Deed) -> None:
        made: list[tuple[Tree[Any], list[Any]]] = []
        try:
            for tree, products in self._products():
                made.append((tree, tree.write_all(products)))
        except Exception as error:
            _drop(made)
            self.error = error
        except BaseException:
            _drop(made)
            raise
        else:
            self.made = made
            for tree, readers in made:
                deed.made(tree.name, readers)
                for reader in readers:
                    count(f"{tree.name} seal", reader.component.info.size_bytes)
        self._written = True

    def try_again(self) -> BaseException:
        """Make ready for another try; returns what went wrong."""
        error = self.error
        assert error is not None
        self.error, self._written, self.given_up = None, False, False
        self.finished.clear()
        return error


def _drop(made: list[tuple[Tree[Any], list[Any]]]) -> None:
    for _, readers in made:
        for reader in readers:
            reader.component.drop()


class Dataset:
    """The files of one dataset and the work that is done behind its owner's back."""

    def __init__(
        self, folder: Path, facts: dict[str, Any], *, durability: str, logged: bool,
        segment_bytes: int, share: Share | None = None,
    ) -> None:  # fmt: skip
        """Open the files; `facts` are those of a new dataset. `own` comes next."""
        self.lock = threading.Lock()
        self.store = Store(
            folder, durability=durability, logged=logged, segment_bytes=segment_bytes, share=share
        )
        if self.store.is_new:
            self.store.facts = dict(facts)
        self.shelter = Shelter()
        self.store.log.shelter = self.shelter.run
        self.why_closed = ""
        """Why nothing goes any more; empty while it is open."""
        self.written_bytes: Counter[str] = Counter()
        """Bytes of components that were written, by tree and reason."""
        self.history = History()
        self.frozen: list[Seal] = []
        """What waits to be sealed in the background, oldest first."""
        self.after_seal: Callable[[], None] = self.tidy_soon
        """What is done each time that something frozen was sealed."""
        self.owner: Owner
        self._changed = False  # whether the manifest says less than there is
        self._stopping = threading.Event()
        name = "tideline-" + folder.name
        self._sealer = Worker(name + "-seal")
        self._merger = Worker(name + "-merge")

    def own(self, owner: Owner) -> None:
        """Say whose data this is, before anything else."""
        self.owner = owner

    def require_open(self) -> None:
        """`Closed` when it was closed, saying why."""
        if self.why_closed:
            raise Closed(self.why_closed)

    @property
    def stopping(self) -> bool:
        """Whether it is being closed, or the program ends: no new work is begun."""
        return self._stopping.is_set() or self._merger.is_ending

    # ---- sealing -----------------------------------------------------------------------------

    def freeze(self, seal: Seal) -> None:
        """Have a memory sealed in the background, after those that are frozen already."""
        with self.lock:
            self.frozen.append(seal)
        self._sealer.submit(self._seal_frozen)

    def wait_for_room(self, most: int) -> None:
        """Wait until fewer than `most` memories are frozen.

        Raises why the oldest could not be sealed; it is tried again in the background.
        """
        while True:
            with self.lock:
                oldest = self.frozen[0] if len(self.frozen) >= most else None
            if oldest is None:
                return
            oldest.finished.wait()
            if oldest.error is not None:
                raise self._again(oldest)

    def _again(self, seal: Seal) -> BaseException:
        error = seal.try_again()
        self._sealer.submit(self._seal_frozen)
        return error

    def _seal_frozen(self) -> None:
        """Seal all that is frozen, oldest first; stop at the first that cannot be."""
        while True:
            with self.lock:
                seal = self.frozen[0] if self.frozen else None
            if seal is None or seal.error is not None:
                return
            try:
                self.seal(seal)
            except Unavailable:
                return
            with contextlib.suppress(Unavailable):  # the log still has it; `drain` says why
                self.commit()
            if not self.stopping:
                self.after_seal()

    def seal(self, seal: Seal) -> None:
        """Write the components of a memory, and put them in its place (the lock is free)."""
        seal.write(self._count, self.history)
        with self.lock:
            self.owner.finish_call()
            self.install(seal)

    def write(self, seal: Seal) -> None:
        """Write the components of a memory, whoever holds the lock."""
        seal.write(self._count, self.history)

    def install(self, seal: Seal) -> None:
        """Put written components in the place of their memory (the lock is held).

        Raises why they could not be written.
        """
        if seal.installed or seal.given_up:
            return
        if seal.error is not None:
            seal.given_up = True
            seal.failed()
            seal.finished.set()
            raise seal.error
        for tree, readers in seal.made:
            if tree in self.store.trees:
                tree.apply(readers)
            else:  # the index was dropped meanwhile
                _drop([(tree, readers)])
        seal.installed = self._changed = True
        if seal in self.frozen:
            self.frozen.remove(seal)
        seal.done()
        self.owner.refresh()
        seal.finished.set()

    def wait_for_seals(self) -> None:
        """Wait until what was frozen before is sealed, or could not be."""
        self._sealer.drain()

    # ---- merging -----------------------------------------------------------------------------

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job in the thread that merges."""
        self._merger.submit(job)

    def submit_seal(self, job: Callable[[], None]) -> None:
        """Run a job in the thread that seals."""
        self._sealer.submit(job)

    def run(self, work: Callable[[], None], *, sealing: bool = False) -> None:
        """Have something done in the background and wait; raises what went wrong.

        Whoever is interrupted while it waits is let go; the work goes on.
        """
        worker = self._sealer if sealing else self._merger
        failed: list[BaseException] = []

        def job() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)

        try:
            worker.submit(job)
        except Closed:
            self.require_open()  # says why
            raise
        worker.drain()
        worker.check()
        if failed:
            raise failed[0]

    def tidy_soon(self) -> None:
        """Merge in the background what is due."""
        self.submit(self._tidy_quietly)

    def _tidy_quietly(self) -> None:
        """Tidy; a disk without room is tried again later, and `drain` says why."""
        with contextlib.suppress(Unavailable):
            self.tidy()

    def tidy(self) -> None:
        """Merge what the policies say; then save the manifest, if it has something new to say."""
        while not self.stopping and self._merge_once():
            pass
        if self._changed or self._keeps_too_much():
            self.commit()

    def _keeps_too_much(self) -> bool:
        """Whether there are files or log segments that nobody needs any more."""
        with self.lock:
            if any(tree.has_waste for tree in self.store.trees):
                return True
            return self._snapshot().kept_log > self.store.kept_log

    def _merge_once(self) -> bool:
        """One merge of the first tree that has one to do. False when there is none."""
        with self.lock:
            self.owner.finish_call()
            for tree in self.store.trees:
                due = tree.merges(self.owner.time)
                if due:
                    work = due[0]
                    context = self.owner.merge_context(tree, work)
                    break
            else:
                return False
            if work.merge.moves:
                with self.history.doing("move", tree.name) as deed:
                    deed.made(tree.name, work.readers)
                    deed.level = work.merge.level
                    self._changed = tree.move(work.readers[0], work.merge.level)
                self.owner.refresh()
                return True
        with self.history.doing("merge", tree.name) as deed:
            infos = [reader.component.info for reader in work.readers]
            deed.inputs, deed.level = len(infos), work.merge.level
            deed.bytes_in = sum(info.size_bytes for info in infos)
            products = tree.kind.merge(work.readers, context)
            made = self.replace(tree, products, work.readers, level=work.merge.level)
            deed.made(tree.name, made)
        return True

    def replace(
        self,
        tree: Tree[Any],
        products: Sequence[Product],
        removed: Sequence[Any],
        *,
        level: int = 0,
    ) -> list[Any]:
        """Write what was made of some components and put it in their place; what was written."""
        made = self.write_all(tree, products, "merge", level)
        with self.lock:
            self.owner.finish_call()
            tree.apply(made, removed)
            self.owner.refresh()
        self._changed = True
        return made

    def write_all(
        self, tree: Tree[Any], products: Sequence[Product], why: str, level: int = 0
    ) -> list[Any]:
        """Write components and count their bytes under a reason; they do not count yet."""
        made = tree.write_all(products, level)
        for reader in made:
            self._count(f"{tree.name} {why}", reader.component.info.size_bytes)
        return made

    def _count(self, what: str, size_bytes: int) -> None:
        self.written_bytes[what] += size_bytes

    # ---- the manifest ------------------------------------------------------------------------

    def commit(self, *, last: bool = False) -> None:
        """Save what there is now; if that fails, `drain` tries again and says why."""
        self._changed = True
        self.store.commit(self.lock, self._snapshot, last=last)
        self._changed = False

    def _snapshot(self) -> Snapshot:
        self.owner.finish_call()
        return self.owner.snapshot()

    # ---- the end -----------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait for everything that was begun; raises what went wrong.

        Whoever is interrupted while it waits is let go; what is done here is done to its end.
        """
        self.require_open()
        for _ in range(2):  # a seal submits a merge
            self._sealer.drain()
            self._merger.drain()
        run_apart(self._after_drain)

    def _after_drain(self) -> None:
        self.require_open()
        self._sealer.check()
        self._merger.check()
        if self._changed:
            self.commit()
        with self.lock:
            failed = next((seal for seal in self.frozen if seal.error is not None), None)
        if failed is not None:
            raise self._again(failed)

    def check(self) -> None:
        """Verify every checksum and invariant on disk."""
        with self.lock:  # nothing is appended or deleted while the files are read
            self.owner.finish_call()
            self.require_open()
            self.store.check()

    def backup(self, target: Path) -> Callable[[], dict[str, Listed]]:
        """Take note of this moment for a copy; what it returns makes the copy, without a lock."""
        with self.lock:
            self.owner.finish_call()
            self.require_open()
            return begin_copy(self.store, target, *self.owner.snapshot())

    def stop(self) -> None:
        """Begin to close: finish seals, let merges end where they are."""
        self._stopping.set()
        self._sealer.drain()

    def shut(self, why: str = "the database was closed") -> None:
        """Let no call begin from now on."""
        with self.lock:
            self.owner.finish_call()
            self.why_closed = self.why_closed or why

    def close(self) -> None:
        """Finish background work, save the manifest, let go of the files."""
        self.stop()
        self.shut()
        self.end_threads()
        with contextlib.suppress(TidelineError):  # the log has what the manifest would say
            self.commit(last=True)
        self.store.close()
        self.shelter.close()

    def end_threads(self) -> None:
        """End the background work, as it is when the dataset could not be opened."""
        self._stopping.set()
        with contextlib.suppress(TidelineError):
            self._sealer.close()
            self._merger.close()

    def leave_to_parent(self, why: str) -> None:
        """In a forked child: everything here belongs to the parent, lock and threads too."""
        self.why_closed = why
        self.lock = threading.Lock()  # the old one may be locked for ever
        self.shelter.leave_to_parent()
        self._sealer.leave_to_parent()
        self._merger.leave_to_parent()
        self.store.log.leave_to_parent()
