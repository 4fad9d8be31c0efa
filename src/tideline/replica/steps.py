"""The core of one group and its disk, under a lock: time, messages, fsyncs, failures.

    any thread   `live`, `step` -----.
    loop         tick, receive ------+--> lock: core, log --> post: messages to others
    sync thread  fsync, release -----'                   '--> what came of it: group.py

Steps go on while the sync thread waits for the disk: what may be said only then is kept
(`_unsynced`), and one fsync serves all that came meanwhile. What others wait for goes first: a
message, then the disk, then what was decided is applied.

Time: before the core is asked or told anything, it is given as many ticks as have passed by the
machine's steady clock. A process that was stopped for a while thus finds its lease over before it
answers anybody.

When the disk fails, the core ends, and another one is made from what is on disk, again and again
until that works (`tick`). Damage that others cannot mend ends the group on this node for good.

Threads: a name without an underscore may be used from any thread, unless it says "with the lock".
"""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue

from tideline.errors import Closed, Corruption, TidelineError, Unavailable
from tideline.lsm.position import Position
from tideline.replica.messages import Event, Install, Join, Member, Message, Tick
from tideline.replica.runner import Outcome, Runner
from tideline.replica.state import Options
from tideline.replica.storage import Storage

__all__ = ["Steps", "steady_s"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while a machine sleeps
_CACHE_BYTES = 16 << 20
_MOST_TICKS = 20_000  # at once
_REOPEN_S = 2.0

_log = logging.getLogger("tideline.replica")


def steady_s() -> float:
    """Seconds by a clock that never jumps. Only differences count, and only on this machine."""
    return time.clock_gettime(_CLOCK)


class Steps:
    """A runner, its time, and what waits for its disk. `Group` says what is done with the rest."""

    def __init__(
        self,
        number: int,
        folder: Path,
        *,
        options: Options,
        tick_s: float,
        segment_bytes: int,
        durability: str,
        peers: tuple[int, ...],
        post: Callable[[int, Sequence[Message]], None],
        retain: Callable[[Path], None] | None = None,
    ) -> None:
        self.number, self.folder = number, folder
        self._retain = retain
        self.options, self.tick_s = options, tick_s
        self._peers, self._post = peers, post
        self._segment_bytes, self._durability = segment_bytes, durability
        self.lock = threading.Lock()
        self.closed = False
        self.failure: TidelineError | None = None
        self._reopen_at: float | None = None
        self._sync_jobs: SimpleQueue[bool] = SimpleQueue()
        self._unsynced: list[Message] = []  # what waits for the disk
        self._wrote: Position | None = None  # up to where the disk lacks something
        # Whoever steps now, and says so, sees to what follows once it has let the lock go: there is
        # something to sync, or to apply. A thread that is woken before only waits for the lock.
        self._stepping = self._to_sync = self._due = False
        self.joins: dict[int, tuple[Member, int]] = {}
        self.ticks = 0
        self.since = 0.0
        self.runner = self._open()
        self._thread = threading.Thread(
            target=self._sync_all, name=f"tideline-sync-{number}", daemon=True
        )
        self._thread.start()

    def _open(self) -> Runner:
        storage = Storage.open(
            self.folder, durability=self._durability, segment_bytes=self._segment_bytes,
            cache_bytes=_CACHE_BYTES,
        )  # fmt: skip
        storage.retain = self._retain
        try:
            runner = Runner(
                storage, life=secrets.randbits(48), options=self.options, peers=self._peers,
                lazy=True,
            )  # fmt: skip
        except BaseException:
            storage.close()
            raise
        self.ticks, self.since = 0, steady_s()
        return runner

    # ---- for who builds on it ----------------------------------------------------------------

    def watch_role(self, runner: Runner) -> None:
        """Called after every event, with the lock."""
        raise NotImplementedError

    def follow_up(self, runner: Runner, out: Outcome) -> None:
        """Called after every step that did not fail, with the lock."""
        raise NotImplementedError

    def apply_soon(self, *, here: bool) -> None:
        """Have what was decided applied; `here`: in this thread, if that is quick. No lock."""
        raise NotImplementedError

    def ended(self, error: TidelineError) -> None:
        """Called when the core has ended, with the lock."""
        raise NotImplementedError

    def reopened(self) -> None:
        """Called when there is another core, with the lock."""
        raise NotImplementedError

    # ---- steps, with the lock held -----------------------------------------------------------

    def live(self) -> Runner:
        """The runner, with its time up to date."""
        if self.closed:
            raise Closed("the node was closed")
        if self.failure is not None:
            raise Unavailable(
                "this group has stopped on this node", group=self.number, reason=str(self.failure)
            )
        due = int((steady_s() - self.since) / self.tick_s) - self.ticks
        if due > 0:
            due = min(due, _MOST_TICKS)
            self.ticks += due
            self.step([Tick(random.random()) for _ in range(due)])
            if self.failure is not None:
                raise Unavailable("the disk of this node failed", reason=str(self.failure))
        return self.runner

    def step(self, events: Sequence[Message | Event]) -> Outcome:
        """Take events; everything that follows from them is under way when this returns."""
        runner = self.runner
        out = Outcome()
        queue: Sequence[Message | Event] = events
        try:
            while queue:
                for one in queue:
                    runner.take(one, out)
                    self.watch_role(runner)
                queue = self._release(runner, out)
        except Exception as error:
            self.fail(error)
        self._post(self.number, out.messages)
        if self.failure is None:
            self.follow_up(runner, out)
        return out

    def _release(self, runner: Runner, out: Outcome) -> list[Message]:
        """What need not wait for the disk goes now, the rest when it is on disk."""
        self._wrote = out.wrote or self._wrote
        if self._wrote is None:
            return runner.release(out)
        if out.after:
            if not self._unsynced and self._stepping:
                self._to_sync = True
            elif not self._unsynced:
                self._sync_jobs.put(True)
            self._unsynced += out.after
            out.after = []
        return []

    def fail(self, error: Exception) -> None:
        """The core has ended. Nobody is told anything that waited for the disk."""
        if self.failure is not None:
            return
        if not isinstance(error, TidelineError):
            _log.error("a fault in the core", exc_info=error)
            error = Corruption("the core failed", file=self.folder, reason=repr(error))
        _log.error("group %d has stopped: %s", self.number, error)
        self.failure = error
        self._unsynced = []
        if not isinstance(error, Corruption):
            self._reopen_at = steady_s() + _REOPEN_S
        self.ended(error)

    def _reopen(self) -> None:
        """Another core from what is on disk."""
        self._reopen_at = None
        with contextlib.suppress(TidelineError):
            self.runner.close()
        try:
            self.runner = self._open()
        except TidelineError as error:
            self.failure = error
            if not isinstance(error, Corruption):
                self._reopen_at = steady_s() + _REOPEN_S
            return
        self.failure, self._wrote = None, None
        self.reopened()
        _log.info("group %d goes on", self.number)

    def written(self, position: Position) -> None:
        """Something was written beside a step, with the lock."""
        self._wrote = position

    # ---- from the loop -----------------------------------------------------------------------

    def tick(self) -> None:
        """Let time go on."""
        with self.lock:
            if self.closed:
                return
            if self._reopen_at is not None and steady_s() >= self._reopen_at:
                self._reopen()
            if self.failure is None:
                with contextlib.suppress(Unavailable):
                    self.live()
            due, self._due = self._due, False
        self.sync_soon()
        if due:
            self.apply_soon(here=False)

    def receive(self, messages: Sequence[Message | Event]) -> None:
        """Take messages of other nodes, and what the network says of them."""
        for message in messages:
            if isinstance(message, Install):
                self._save(message)
        with self.lock:
            if self.closed or self.failure is not None:
                return
            try:
                self.live()
            except Unavailable:
                return
            for message in messages:
                if isinstance(message, Join):
                    self.joins[message.sender.node] = message.sender, self.ticks
            self.step_here(messages)
            due = False
            if self.runner.core.leads or not self._unsynced:
                due, self._due = self._due, False
        self.sync_soon()
        if due:  # else when the answer that waits for the disk is sent, or with the next tick
            self.apply_soon(here=True)

    def step_here(self, events: Sequence[Message | Event]) -> Outcome:
        """A step, with the lock; the caller lets the lock go, and calls `sync_soon` next."""
        self._stepping = True
        try:
            return self.step(events)
        finally:
            self._stepping = False

    def sync_soon(self) -> None:
        """Have the disk synced, if that was left to the caller of `step_here`. No lock."""
        if self._to_sync:
            self._to_sync = False
            self._sync_jobs.put(True)

    def _save(self, message: Install) -> None:
        """Bring a snapshot's file to disk before the lock is taken; if that fails, later."""
        with self.lock:
            if self.closed or self.failure is not None:
                return
            core, storage = self.runner.core, self.runner.storage
            if message.mark.index <= core.delivered:
                return
        try:
            storage.save_snapshot(message.mark, message.data)
        except TidelineError as error:
            _log.warning("a snapshot cannot be kept: %s", error)

    # ---- the sync thread ---------------------------------------------------------------------

    def _sync_all(self) -> None:
        while self._sync_jobs.get():
            with self.lock:
                batch, self._unsynced = self._unsynced, []
                runner = self.runner
                if not batch:
                    continue
                target = self._wrote
            try:
                if target is not None:
                    runner.storage.sync(target)
            except TidelineError as error:
                with self.lock:
                    if self.runner is runner and not self.closed:
                        self.fail(error)
                continue
            with self.lock:
                if self.runner is not runner or self.closed or self.failure is not None:
                    continue
                if self._wrote == target:
                    self._wrote = None  # nothing was written meanwhile
                out = Outcome()
                out.after = batch
                told = runner.release(out)
                self._post(self.number, out.messages)  # first: others wait for that
                self.step_here(told)
                due, self._due = self._due, False
            self.sync_soon()
            if due:
                self.apply_soon(here=True)

    # ---- the end -----------------------------------------------------------------------------

    def stop(self) -> None:
        """Let go of the disk."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self.ended(Closed("the node was closed"))
        self._sync_jobs.put(False)
        self._thread.join()
        self.runner.close()
