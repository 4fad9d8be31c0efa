"""Faults put into the protocol on purpose. Each must be caught by the simulation.

    with mutated(name):      the library, or the world's idea of an operator, has this fault
        World(seed).run()

A fault replaces one small method of a part of the core, or of the world around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import world

from tideline.replica import Core, Loaded, Outline
from tideline.replica.acceptor import Acceptor
from tideline.replica.candidate import Candidate
from tideline.replica.leader import Leader
from tideline.replica.messages import (
    Accept,
    Append,
    Durable,
    Effects,
    Member,
    Members,
)
from tideline.replica.state import Role, State

Patch = tuple[Any, str, Any]
MUTANTS: dict[str, tuple[str, Callable[[], list[Patch]]]] = {}


UNFOUND = {
    "promises_a_lower_ballot", "earlier_entries_are_counted", "wrong_log_behind_a_snapshot",
    "promise_not_waited_for",
}  # fmt: skip
"""Faults that no world was seen to catch: test_schedules.py catches three of them, and
docs/internals/replication.md tells why the last one does no harm."""


def mutant(text: str) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
    def add(make: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        MUTANTS[make.__name__] = (text, make)
        return make

    return add


@contextmanager
def mutated(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for where, what, value in MUTANTS[name][1]():
            patch.setattr(where, what, value)
        yield


# ---- promises ------------------------------------------------------------------------------------


@mutant("a promised ballot is not put on disk")
def promise_not_persisted() -> list[Patch]:
    return [(State, "persist_promise", lambda self, ballot: None)]


@mutant("a promise is sent before it is on disk, and so is every other answer")
def answers_before_the_disk() -> list[Patch]:
    step = Core.step

    def hasty(self: Core, what: Any) -> Effects:
        fx = step(self, what)
        fx.sends += [m for m in fx.after if not isinstance(m, Durable)]
        fx.after = [m for m in fx.after if isinstance(m, Durable)]
        return fx

    return [(Core, "step", hasty)]


@mutant("a heartbeat is answered with what is not on disk yet")
def heartbeats_answered_before_the_disk() -> list[Patch]:
    return [(Acceptor, "kept", lambda self, index, ballot: index)]


@mutant("a heartbeat is answered although the promise is not on disk yet")
def promise_not_waited_for() -> list[Patch]:
    return [(Acceptor, "kept", lambda self, index, ballot: min(index, self._s.durable))]


# ---- quorums -------------------------------------------------------------------------------------


@mutant("one member less is enough to decide")
def quorum_of_one_less() -> list[Patch]:
    return [(Leader, "quorum", lambda self: max(1, self._s.outline.members.quorum - 1))]


@mutant("one member less is enough to be elected")
def election_by_one_less() -> list[Patch]:
    def is_majority(self: Candidate, having: set[Member]) -> bool:
        voters = self._s.outline.members.voters
        return sum(v in having for v in voters) >= max(1, len(voters) // 2)

    return [(Candidate, "is_majority", is_majority)]


# ---- accepting -----------------------------------------------------------------------------------


@mutant("entries are accepted whatever was promised")
def accepts_any_ballot() -> list[Patch]:
    def follows(self: Acceptor, sender: Member, ballot: Any) -> bool:
        s = self._s
        if ballot > s.promised:
            s.promise(ballot)
        if s.role is not Role.FOLLOWER:
            s.step_down()
        s.grant(sender)
        return True

    return [(Acceptor, "follows", follows)]


@mutant("the ballot of the entry before is not compared")
def entry_before_not_compared() -> list[Patch]:
    return [(Acceptor, "has", lambda self, index, ballot: index <= self._s.outline.last)]


@mutant("a replica answers with the end of its log, not with what it knows to be the leader's")
def acknowledges_its_whole_log() -> list[Patch]:
    accepted = Acceptor.accepted

    def whole(self: Acceptor, m: Any, index: int) -> None:
        accepted(self, m, max(index, self._s.outline.last))

    return [(Acceptor, "accepted", whole)]


@mutant("entries that contradict the leader's are kept")
def conflicts_are_kept() -> list[Patch]:
    merge = State.merge

    def keep(self: State, prev_index: int, entries: Any) -> None:
        fresh = tuple(e for e in entries if e.index > self.outline.last)
        merge(self, prev_index + len(entries) - len(fresh), fresh)

    return [(State, "merge", keep)]


@mutant("what a leader says is decided counts, although the log may be another")
def decided_unmatched() -> list[Patch]:
    def learn(self: Acceptor, decided: int, matched: int) -> None:
        self._s.decide(min(decided, self._s.outline.last))

    return [(Acceptor, "learn", learn)]


@mutant("what a leader of the past says is decided counts")
def decided_from_a_stale_leader() -> list[Patch]:
    on_accept = Acceptor.on_accept

    def gullible(self: Acceptor, m: Accept) -> None:
        self._s.decide(min(m.decided + len(m.entries), self._s.outline.last))
        on_accept(self, m)

    return [(Acceptor, "on_accept", gullible)]


# ---- leading -------------------------------------------------------------------------------------


@mutant("a new leader leads with its own log")
def own_log_is_best() -> list[Patch]:
    return [(Candidate, "best", lambda self: None)]


@mutant("the longest log is taken over, not the one with the highest ballot")
def longest_log_is_best() -> list[Patch]:
    def best(self: Candidate) -> Member | None:
        found = max(self._promises, key=lambda member: self._promises[member][1])
        return found if self._promises[found][1] > self._s.outline.last else None

    return [(Candidate, "best", best)]


# ---- leases and reads ----------------------------------------------------------------------------


@mutant("a leader answers reads without a lease")
def lease_ignored() -> list[Patch]:
    return [(Leader, "has_lease", lambda self: True)]


@mutant("a lease is counted from when the answer came, for longer than it was granted")
def lease_too_long() -> list[Patch]:
    def has_lease(self: Leader) -> bool:
        since = self._since_most()
        return since >= 0 and self._s.now < since + 2 * self._s.options.lease_ticks

    return [(Leader, "has_lease", has_lease), (Leader, "is_followed", lambda self: True)]


@mutant("a replica promises in spite of the lease it granted")
def grants_not_kept() -> list[Patch]:
    return [(State, "grants_to_other", lambda self, candidate: False)]


@mutant("a replica that is told that the leader is gone waits for no lease")
def hint_ends_a_lease() -> list[Patch]:
    grants, due = State.grants_to_other, Candidate.due

    def grants_to_other(self: State, candidate: Member) -> bool:
        return grants(self, candidate) and not self.gone

    return [
        (State, "grants_to_other", grants_to_other),
        (Candidate, "due", lambda self, draw: self._s.now if self._s.gone else due(self, draw)),
    ]


@mutant("a read without a lease waits for nobody's answer")
def read_not_confirmed() -> list[Patch]:
    return [(Leader, "confirmed_probe", lambda self, answered: answered[-1])]


@mutant("a new leader answers reads before its first entry is decided")
def read_before_the_barrier() -> list[Patch]:
    return [(Leader, "knows_all", lambda self: True)]


@mutant("a replica takes every heartbeat for a sign that it is fresh")
def fresh_without_lease() -> list[Patch]:
    note, on_accept = State.note_fresh, Acceptor.on_accept

    def always(self: Acceptor, m: Accept) -> None:
        on_accept(self, m)
        note(self._s, m.decided, self._s.now)

    return [(Acceptor, "on_accept", always)]


@mutant("a replica that starts has forgotten that it may have granted a lease")
def grant_forgotten_at_start() -> list[Patch]:
    start = State.start.__func__  # type: ignore[attr-defined]

    def forgetful(cls: type[State], *args: Any) -> State:
        state: State = start(cls, *args)
        state.granted_until = 0
        return state

    return [(State, "start", classmethod(forgetful))]


@mutant("a ballot is promised below an earlier one")
def promises_a_lower_ballot() -> list[Patch]:
    def on_prepare(self: Acceptor, m: Any, *, leads: bool) -> bool:
        s = self._s
        if leads or self.is_bound(m.sender):
            return False
        changed = m.ballot != s.promised
        s.promised = m.ballot
        s.persist_promise(m.ballot)
        self.answer_prepare(m.sender, m.ballot)
        return changed

    return [(Acceptor, "on_prepare", on_prepare)]


@mutant("an entry of an earlier leader is decided by counting who has it")
def earlier_entries_are_counted() -> list[Patch]:
    return [(Leader, "counts", lambda self, index: True)]


# ---- snapshots and members -----------------------------------------------------------------------


@mutant("what is behind a snapshot is kept, whatever log it belongs to")
def wrong_log_behind_a_snapshot() -> list[Patch]:
    ballot_at, install = Outline.ballot_at, State.install

    def keeping(self: State, mark: Any, data: bytes) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if self.outline.base.index < mark.index <= self.outline.last:
                patch.setattr(
                    Outline,
                    "ballot_at",
                    lambda o, i: mark.ballot if i == mark.index else ballot_at(o, i),
                )
            install(self, mark, data)

    return [(State, "install", keeping)]


@mutant("members change while the change before is not decided")
def changes_at_once() -> list[Patch]:
    why_not = Leader.why_not

    def hasty(self: Leader, members: Members) -> str | None:
        found = why_not(self, members)
        return None if found == "the change before is not decided yet" else found

    return [(Leader, "why_not", hasty)]


# ---- disks ---------------------------------------------------------------------------------------


@mutant("a replica that lost its disk comes back as who it was, and votes at once")
def lost_disk_votes_at_once() -> list[Patch]:
    def recover(self: world.World, node: world.Node) -> None:
        node.disk = world.Disk.new(self.first)

    return [(world.World, "recover", recover)]


@mutant("a damaged entry counts as if it, and what follows, had never been there")
def damaged_is_absent() -> list[Patch]:
    def load(self: world.Disk) -> Loaded:
        if self.damaged:
            first = min(self.damaged)
            self._keep(lambda index: index < first)
        entries = [self.entries[i] for i in sorted(self.entries)]
        return Loaded(self.promised, self.snapshot, Outline(self.base, entries))

    return [(world.Disk, "load", load)]


@mutant("a leader counts its own entries before they are on disk")
def own_entries_count_at_once() -> list[Patch]:
    append = State.append

    def early(self: State, entries: Any) -> None:
        append(self, entries)
        self.durable = self.outline.last

    return [(State, "append", early)]


@mutant("appended entries never reach the disk")
def entries_not_persisted() -> list[Patch]:
    apply = world.Disk.apply

    def lossy(self: world.Disk, write: Any) -> None:
        if isinstance(write, Append) and len(write.entries) > 1:
            write = Append(write.entries[:-1])
        apply(self, write)

    return [(world.Disk, "apply", lossy)]
