"""One group of a node: whom it serves. Proposals, reads, and the machine, which is told in order.

    Steps (steps.py)  -- decided, roles, snapshots -->  apply thread -->  Machine
                      -- decided, answers ----------->  proposals and reads that wait

The machine is told by one thread (`apply_some`), without the lock; a quick one, of the little that
was just decided, by the thread that decided it (`apply_soon`). What it is to be told is not queued:
entries are read from the log when their turn comes, so a slow machine takes no memory.

An error of the machine ends the group on this node for good.

Threads: all public names are safe from any thread; `apply_some` is for the apply thread.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tideline.errors import Closed, Corruption, InvalidRequest, TidelineError, Unavailable
from tideline.replica.machine import Lost, Machine, NotLeader, OutcomeUnknown, Proposal
from tideline.replica.messages import (
    DATA,
    Change,
    Compact,
    CompactTo,
    Damaged,
    Entry,
    Event,
    Mark,
    Member,
    Members,
    Propose,
    Read,
)
from tideline.replica.runner import Outcome, Runner
from tideline.replica.steps import Steps, steady_s
from tideline.replica.storage import Storage

__all__ = ["Group", "check_values"]

_APPLY_ENTRIES, _APPLY_BYTES = 1024, 4 << 20
_HERE_ENTRIES, _HERE_BYTES = 64, 64 << 10  # so little is applied by whoever decided it
_KEEP = 4096  # entries before a snapshot that stay, for members that are a little behind

_log = logging.getLogger("tideline.replica")


class _Wait:
    """A read that waits: for its index, then for that to be applied."""

    __slots__ = ("done", "error", "index")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.index: int | None = None
        self.error: TidelineError | None = None

    def __lt__(self, other: _Wait) -> bool:
        return (self.index or 0) < (other.index or 0)

    def end(self, error: TidelineError | None = None) -> None:
        self.error = error
        self.done.set()


class Group(Steps):
    """One log and its machine, on this node. Made and used by `Node`."""

    def __init__(
        self,
        number: int,
        folder: Path,
        machine: Machine,
        *,
        compact_bytes: int,
        wake: Callable[[], None],
        turn: threading.Lock,
        **settings: Any,
    ) -> None:
        """`settings` are those of `Steps`; `wake` tells the apply thread that there is work, and
        `turn` is held by whoever calls a machine."""
        self.machine = machine
        self._compact_bytes, self._wake, self._turn = compact_bytes, wake, turn
        self._proposals: list[Proposal] = []
        self._reads: set[_Wait] = set()
        self._applying: list[_Wait] = []
        self._roles: deque[tuple[int, bool, int | None]] = deque()
        self._told: tuple[bool, int | None] = (False, None)
        self.applied = 0
        self._install: Mark | None = None
        self._notes: deque[tuple[int, int]] = deque(maxlen=8192)  # (delivered, tick it is as of)
        self._fresh: int | None = None
        self._may_compact = True
        segment_bytes = min(64 << 20, max(1 << 20, compact_bytes // 4))
        retain = getattr(machine, "retain", None)
        super().__init__(number, folder, segment_bytes=segment_bytes, retain=retain, **settings)
        if self.runner.core.snapshot.index:
            self._install = self.runner.core.snapshot
        self._compact_at = self._log_limit()

    # ---- what came of steps, with the lock held ----------------------------------------------

    def watch_role(self, runner: Runner) -> None:
        core = runner.core
        role = (core.ready, core.leader.node if core.leader else None)
        if role != self._told:
            self._told = role
            self._roles.append((core.delivered, *role))
            self._wake()

    def follow_up(self, runner: Runner, out: Outcome) -> None:
        core = runner.core
        if out.installed is not None and out.installed.index > self.applied:
            self._install = out.installed
            self._wake()
        if core.delivered > self.applied:
            if self._stepping:
                self._due = True
            else:
                self._wake()
        while self._proposals and self._proposals[0].index <= core.decided:
            first = self._proposals[0]
            if first.last > core.decided and core.ballot_at(first.index) == first.ballot:
                break
            self._judge(heapq.heappop(self._proposals), runner)
        for token, index in out.reads:
            self._reads.discard(token)
            token.index = index
            if index <= self.applied:
                token.end()
            else:
                heapq.heappush(self._applying, token)
        for token in out.failed:
            self._reads.discard(token)
            token.end(self._not_leader())
        self._note_fresh(runner)

    def _judge(self, one: Proposal, runner: Runner) -> None:
        """Decided: with these values, or with others."""
        ballot_at = runner.core.ballot_at
        if ballot_at(one.last) == one.ballot:
            one.resolve()  # and so are those before it
            return
        if ballot_at(one.index) is None:
            one.resolve(OutcomeUnknown("a snapshot passed these values", index=one.index))
        else:
            found = [ballot_at(index) for index in range(one.index, one.last + 1)]
            kept = found.count(one.ballot)
            one.resolve(Lost("another leader's were decided", index=one.index, kept=kept))

    def _note_fresh(self, runner: Runner) -> None:
        core = runner.core
        ago = core.stale_ticks
        if ago is None:
            return
        note = (core.delivered, self.ticks - ago)
        if note[0] <= self.applied:
            self._fresh = max(note[1], self._fresh or note[1])
        elif not self._notes or self._notes[-1][1] < note[1]:
            self._notes.append(note)

    def _not_leader(self) -> NotLeader:
        _, leader = self._told
        if leader is None:
            return NotLeader("no leader is known: try again", leader=None)
        if leader == self.runner.core.me.node:
            return NotLeader("this node leads, but not long enough: try again", leader=None)
        return NotLeader("another node leads", leader=leader)

    def ended(self, error: TidelineError) -> None:
        """Nobody is told anything that waited for the disk."""
        self._told = (False, None)
        self._roles.append((0, False, None))
        self._end_waits(OutcomeUnknown("this group stops on this node", reason=str(error)))
        self._wake()

    def _end_waits(self, error: Unavailable) -> None:
        for proposal in self._proposals:
            proposal.resolve(error)
        for wait in [*self._reads, *self._applying]:
            wait.end(error)
        self._proposals, self._applying = [], []
        self._reads = set()

    def reopened(self) -> None:
        """Another core, from what is on disk."""
        self._notes.clear()
        self._fresh = None
        if self.runner.core.snapshot.index > self.applied:
            self._install = self.runner.core.snapshot

    # ---- the apply thread --------------------------------------------------------------------

    def apply_some(self) -> bool:
        """Tell the machine the next thing; False when there is none. For the apply thread."""
        with self._turn:
            with self.lock:
                work = None if self.closed else self._next()
            return work is not None and self._tell(work)

    def apply_soon(self, *, here: bool) -> None:
        if not (here and getattr(self.machine, "quick", False) and self._apply_here()):
            self._wake()

    def _apply_here(self) -> bool:
        """Apply what is decided if it is little, and nothing else is to be told before."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            with self.lock:
                if self.closed or self.failure is not None or self._install or self._roles:
                    return False
                first, last = self.applied + 1, self.runner.core.delivered
                if last < first:
                    return True
                if last - first >= _HERE_ENTRIES or self._is_large():
                    return False
                if self.runner.core.fit(first, last, _HERE_BYTES) < last:
                    return False
                try:
                    entries = self.runner.storage.entries(first, last)
                except TidelineError:
                    return False
            return self._tell(lambda: self._do_apply(entries))
        finally:
            self._turn.release()

    def _tell(self, work: Callable[[], None]) -> bool:
        """Tell the machine something; False when it failed."""
        try:
            work()
        except Exception as error:
            with self.lock:
                if self.closed:
                    return False
                if isinstance(error, Unavailable | Closed) and self.failure is not None:
                    return False  # the disk failed: later
                reason = Corruption(
                    "the machine of this group failed", file=self.folder, reason=repr(error)
                )
                _log.exception("the machine of group %d failed", self.number)
                self.fail(reason)
                self._roles.clear()
            return False
        return True

    def _next(self) -> Callable[[], None] | None:
        mark = self._install
        at = self.applied
        role = self._roles[0] if self._roles else None
        if role is not None and (role[0] <= at or (mark is not None and role[0] < mark.index)):
            self._roles.popleft()
            return lambda: self.machine.role(role[1], role[2])
        if self.failure is not None:
            return None
        storage, core = self.runner.storage, self.runner.core
        if mark is not None:
            if mark.index <= at:
                self._install = None
                return self._next()
            return lambda: self._do_install(storage, mark)
        limit = min(core.delivered, role[0] if role is not None else core.delivered)
        if limit <= at or storage.base_index > at:
            return None
        limit = core.fit(at + 1, min(limit, at + _APPLY_ENTRIES), _APPLY_BYTES)
        try:
            entries = storage.entries(at + 1, limit)
        except Corruption as error:
            if "index" not in error.values:
                self.fail(error)
            else:  # others have it: when they gave it, this goes on
                self.step([Damaged(error.values["index"])])
            return None
        return lambda: self._do_apply(entries)

    def _do_install(self, storage: Storage, mark: Mark) -> None:
        try:
            state = storage.snapshot_data(mark)
        except Corruption:
            with self.lock:
                if self._install != mark:
                    return  # a newer one took its place
            raise
        self.machine.install(mark, state)
        with self.lock:
            if self._install == mark:
                self._install = None
        self._went_on(mark.index)

    def _do_apply(self, entries: tuple[Entry, ...]) -> None:
        values = [entry for entry in entries if entry.kind == DATA]
        if values:
            self.machine.apply(values)
        self._went_on(entries[-1].index)
        if self._is_large():
            self._compact()

    def _is_large(self) -> bool:
        """Whether the machine is asked for a snapshot next."""
        return self._may_compact and self.runner.storage.size_bytes > self._compact_at

    def _went_on(self, index: int) -> None:
        with self.lock:
            self.applied = index
            while self._applying and (self._applying[0].index or 0) <= index:
                heapq.heappop(self._applying).end()
            while self._notes and self._notes[0][0] <= index:
                self._fresh = self._notes.popleft()[1]

    def _compact(self) -> None:
        try:
            state = self.machine.snapshot()
        except NotImplementedError:
            self._may_compact = False
            return
        with self.lock:
            if self.failure is not None or self.runner.core.delivered < self.applied:
                return
            keep = self.runner.core.count_back(self.applied, self._compact_bytes // 4)
        try:
            self.compact(state, self.applied, keep=min(keep, _KEEP))
        except Unavailable as error:  # no room: again when the log has grown as much once more
            _log.warning("group %d keeps its log: %s", self.number, error)
            self._compact_at = self._log_limit()

    def compact(self, state: bytes, index: int, *, keep: int) -> None:
        """A snapshot of the machine's, as of `index`: the log before it may go."""
        with self.lock:
            runner = self.live()
            if not runner.core.snapshot.index < index <= min(runner.core.delivered, self.applied):
                return
            mark = runner.core.mark(index)
        runner.storage.save_snapshot(mark, state)
        with self.lock:
            if self.live() is not runner:
                return
            try:
                fx = runner.core.step(Compact(index, keep))
                if any(isinstance(write, CompactTo) for write in fx.writes):
                    self.written(runner.storage.write(fx.writes))
            except TidelineError as error:
                self.fail(error)
                raise
            self._compact_at = self._log_limit()

    def _log_limit(self) -> int:
        return self.runner.storage.size_bytes + self._compact_bytes

    # ---- for callers -------------------------------------------------------------------------

    def propose(self, values: Sequence[bytes]) -> Proposal:
        """See `Node.propose`."""
        return self._propose(Propose(tuple(values)), len(values))

    def change(self, members: Members) -> Proposal:
        """See `Node.change`."""
        return self._propose(Change(members), 1)

    def _propose(self, event: Event, count: int) -> Proposal:
        try:
            with self.lock:
                return self._proposed(event, count)
        finally:
            self.sync_soon()

    def _proposed(self, event: Event, count: int) -> Proposal:
        self.live()
        if not self._told[0]:
            raise self._not_leader()
        out = self.step_here([event])
        if not out.proposed:
            raise OutcomeUnknown("the disk of this node failed", reason=str(self.failure))
        found = out.proposed[0]
        if found is None:
            raise Unavailable(f"not now: {out.refusals[0]}", group=self.number)
        proposal = Proposal(*found, count)
        if self.failure is not None:
            proposal.resolve(OutcomeUnknown("the disk failed", reason=str(self.failure)))
        elif proposal.last <= self.runner.core.decided:
            self._judge(proposal, self.runner)
        else:
            heapq.heappush(self._proposals, proposal)
        return proposal

    def read_index(self, timeout: float | None) -> int:
        """See `Node.read_index`."""
        wait = _Wait()
        with self.lock:
            self.live()
            self._reads.add(wait)
            self.step([Read(wait)])
        if not wait.done.wait(timeout):
            with self.lock:
                self._reads.discard(wait)
            raise Unavailable("the read was not confirmed in time", timeout_s=timeout)
        if wait.error is not None:
            raise wait.error
        assert wait.index is not None
        return wait.index

    def wait_applied(self, index: int, timeout: float | None) -> None:
        """Return when the machine has applied `index`."""
        wait = _Wait()
        wait.index = index
        with self.lock:
            self.live()
            if index <= self.applied:
                return
            heapq.heappush(self._applying, wait)
        if not wait.done.wait(timeout):
            raise Unavailable("it is not applied yet", index=index, timeout_s=timeout)
        if wait.error is not None:
            raise wait.error

    def joiner(self, node: int) -> Member | None:
        """Who asked lately to be taken in as this node."""
        with self.lock:
            found = self.joins.get(node)
            if found is None or self.ticks - found[1] > 4 * self.options.election_ticks:
                return None
            return found[0]

    @property
    def members(self) -> Members:
        """Who takes part, as this node knows."""
        with self.lock:
            return self.live().core.members

    @property
    def leads(self) -> bool:
        """Whether `propose` works here, as far as is known."""
        with self.lock:
            try:
                self.live()
            except TidelineError:
                return False
            return self._told[0]

    @property
    def leader(self) -> int | None:
        """Which node leads, as far as is known."""
        with self.lock:
            try:
                self.live()
            except TidelineError:
                return None
            return self._told[1]

    def stale_s(self) -> float | None:
        """See `Node.stale_s`."""
        with self.lock:
            try:
                runner = self.live()
            except TidelineError:
                return None
            core = runner.core
            if core.leads and core.stale_ticks == 0 and self.applied >= core.decided:
                return 0.0
            self._note_fresh(runner)
            if self._fresh is None:
                return None
            return max(0.0, steady_s() - (self.since + self._fresh * self.tick_s))

    def entries(self, first: int, last: int) -> tuple[Entry, ...]:
        """Entries of the log, with their values."""
        with self.lock:
            return self.live().storage.entries(first, last)

    def place(self, index: int) -> tuple[Path, int] | None:
        """See `Node.place`."""
        return self.runner.storage.place(index)

    def state(self, mark: Mark) -> bytes:
        """The state of a snapshot, for a message."""
        with self.lock:
            storage = self.live().storage
        return storage.snapshot_data(mark)

    def status(self) -> dict[str, Any]:
        """See `Node.status`."""
        with self.lock:
            core = self.runner.core
            failed = self.failure is not None or self.closed
            return {
                "role": "stopped" if failed else core.role.value,
                "ready": self._told[0],
                "leader": self._told[1],
                "members": {
                    "voters": [list(member) for member in core.members.voters],
                    "joining": [list(member) for member in core.members.joining],
                },
                "me": list(core.me),
                "decided": core.decided, "applied": self.applied, "last": core.last,
                "lag": {m.node: core.last - match for m, match in core.progress.items()},
                "holes": sorted(core.holes), "snapshot": core.snapshot.index,
                "asking": sorted(self.joins),
                "failure": str(self.failure) if self.failure else None,
            }  # fmt: skip


def check_values(values: Sequence[bytes], most: int) -> None:
    """`InvalidRequest` for what cannot be proposed."""
    if not values:
        raise InvalidRequest("at least one value is proposed")
    for at, value in enumerate(values):
        if not isinstance(value, bytes):
            raise InvalidRequest("a value is bytes", at=at, type=type(value).__name__)
        if len(value) > most:
            raise InvalidRequest("a value is too large", at=at, size_bytes=len(value), limit=most)
