"""One replica without a network: what a `Node` does for its machine, for a group of one.

    propose -> queue -> whoever comes first runs the step for all who wait (one fsync) -> apply

A volume on one machine needs no threads, no clock and no peers. The names are those of `Node`.

Safe from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tideline.errors import Closed, Corruption, Unavailable
from tideline.replica import Mark, Propose, Runner, Storage, Tick
from tideline.replica.messages import CompactTo
from tideline.volume.machine import VolumeMachine

__all__ = ["Single", "SingleProposal"]


class SingleProposal:
    """A proposal of a group of one."""

    def __init__(self, values: tuple[bytes, ...]) -> None:
        self.values = values
        self.index = 0
        self.error: BaseException | None = None
        self.done = threading.Event()

    def wait(self, timeout: float | None = None) -> None:
        """Return when it is decided and applied."""
        if not self.done.wait(timeout):
            raise Unavailable("the proposal is not decided yet", timeout_s=timeout)
        if self.error is not None:
            raise self.error


class Single:
    """A group of one replica."""

    def __init__(
        self, folder: Path, machine: VolumeMachine, *, compact_bytes: int = 256 << 20,
        segment_bytes: int = 64 << 20,
    ) -> None:  # fmt: skip
        """`folder` was made by `Node.create`, with one member."""
        self._machine = machine
        self._compact_bytes = compact_bytes
        storage = Storage.open(
            folder / "group-0000", segment_bytes=segment_bytes, cache_bytes=16 << 20
        )
        storage.retain = machine.retain
        try:
            _pass_holes(storage, machine)
        except BaseException:
            storage.close()
            raise
        self._runner = Runner(storage, life=time.time_ns())
        self._queue: list[SingleProposal] = []
        self._lock = threading.Lock()  # of the queue
        self._stepping = threading.Lock()  # of the runner
        self._closed = False
        self._compact_at = storage.size_bytes + compact_bytes
        machine.place_of = storage.place
        mark: Mark = self._runner.core.snapshot
        if mark.index:
            machine.install(mark, storage.snapshot_data())

    def start(self) -> None:
        """Lead, and apply what the log has."""
        with self._stepping:
            while not self._runner.core.leads:
                self._machine.apply(self._runner.step(Tick(0.5)).entries)
            self._machine.apply(self._runner.step_all(()).entries)
        self._machine.role(True, 1)

    def leads(self, group: int = 0) -> bool:
        """Always."""
        return not self._closed

    def propose(self, values: Sequence[bytes], group: int = 0) -> SingleProposal:
        """Values for the log. They are on disk and applied when this returns."""
        mine = SingleProposal(tuple(values))
        with self._lock:
            self._queue.append(mine)
        with self._stepping:
            if not mine.done.is_set():
                with self._lock:
                    batch, self._queue = self._queue, []
                self._run(batch)
        return mine

    def _run(self, batch: list[SingleProposal]) -> None:
        try:
            if self._closed:
                raise Closed("the volume was closed")
            out = self._runner.step_all([Propose(one.values) for one in batch])
            for one, place in zip(batch, out.proposed, strict=True):
                if place is None:
                    raise Unavailable("the log takes no more now")
                one.index = place[0]
            self._machine.apply(out.entries)
            if self._runner.storage.size_bytes > self._compact_at:
                self._compact()
        except BaseException as error:
            for one in batch:
                one.error = error
        for one in batch:
            one.done.set()

    def _compact(self) -> None:
        index = self._machine.applied
        self._runner.compact(self._machine.snapshot(), index)
        self._compact_at = self._runner.storage.size_bytes + self._compact_bytes

    def stale_s(self, group: int = 0) -> float | None:
        """Never."""
        return 0.0

    def compact(self, group: int = 0) -> None:
        """Let the log forget what the state has."""
        with self._stepping:
            self._compact()

    def read_index(self, timeout: float | None, group: int = 0) -> int:
        """At once: what was acknowledged is applied."""
        return self._machine.applied

    def wait_applied(self, index: int, timeout: float | None, group: int = 0) -> None:
        """At once, too."""

    def close(self) -> None:
        """Let go of the disk."""
        with self._stepping:
            self._closed = True
            self._runner.close()


def _pass_holes(storage: Storage, machine: VolumeMachine) -> None:
    """Damaged entries that the checkpoint covers need not be whole: the log begins after them.

    Nobody else could give them again. The blocks in them are damaged, and are told when they are
    read; everything else goes on.
    """
    outline = storage.load().outline
    if not outline.holes:
        return
    if max(outline.holes) > machine.applied or machine.applied <= outline.base.index:
        raise Corruption(
            "entries of the log are damaged that the checkpoint does not have, and nobody else has",
            file=storage.folder, index=max(outline.holes),
        )  # fmt: skip
    mark = outline.mark(machine.applied)
    storage.save_snapshot(mark, machine.snapshot())
    storage.sync(storage.write([CompactTo(mark, mark)]))
