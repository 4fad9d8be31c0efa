"""What a leader does: send the log, count who has it, hold a lease, answer reads, change members.

    next > match     for each other member: what is sent next, and up to where its log is ours
    probing          we do not know where it is ours: one message at a time until we do
    barrier          the leader's first entry. When it is decided, so is everything before, and the
                     leader knows all that any leader ever acknowledged

Invariants:
1. Only an entry of the leader's own ballot is decided by counting; those before go with it.
2. A lease read needs the barrier decided and `leased_ticks` not over since most were *sent* what
   they answered. Without, a read waits until most have answered what was sent after it.
3. Members change by one voter at a time, after the barrier and the change before are decided.

Part of a core: one thread at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tideline.replica.candidate import majority
from tideline.replica.messages import (
    DATA,
    MEMBERS,
    NOTHING,
    Accept,
    Accepted,
    Ballot,
    Entry,
    Install,
    Join,
    Member,
    Members,
    Mismatch,
    Repair,
)
from tideline.replica.state import Role, State

__all__ = ["Leader", "Progress"]


@dataclass
class Progress:
    """How far another member is."""

    next: int
    match: int = 0
    probing: bool = False
    outstanding: bool = False
    sent: int = -1
    """The tick of ours in the newest of our messages that it answered."""
    probe: int = 0
    stamp: tuple[int, int] = (0, -1)
    install_at: int = 0


class Leader:
    """One time of leading, with one ballot."""

    def __init__(self, state: State, ballot: Ballot) -> None:
        self._s = state
        self.ballot = ballot
        self.progress: dict[Member, Progress] = {}
        self._since = state.now
        self._probe = 0
        self._reads: list[tuple[int, Any]] = []
        self._heartbeat_at = 0
        state.role, state.leader = Role.LEADER, state.me
        self._see_members()
        self.barrier = state.outline.last + 1
        state.append((Entry(self.barrier, ballot, NOTHING, b""),))
        self.heartbeat()

    def _see_members(self) -> None:
        s = self._s
        for member in s.outline.members.all:
            if member != s.me and member not in self.progress:
                self.progress[member] = Progress(s.outline.last + 1)
        for member in set(self.progress) - set(s.outline.members.all):
            del self.progress[member]

    # ---- time --------------------------------------------------------------------------------

    def tick(self) -> None:
        """Send heartbeats; stop leading when most are not heard of."""
        s = self._s
        if not self.is_followed():
            self.stop()
            return
        if s.now >= self._heartbeat_at:
            self.heartbeat()
            self._promote()

    def heartbeat(self) -> None:
        """Send everybody something."""
        s = self._s
        self._heartbeat_at = s.now + s.options.heartbeat_ticks
        for member, progress in self.progress.items():
            progress.outstanding = False
            self._replicate(member, progress, always=True)

    def _since_most(self) -> int:
        """Since when most are known to follow: they answered something that was sent then."""
        s = self._s
        voters = s.outline.members.voters
        sent = sorted(
            (s.now if v == s.me else self.progress[v].sent if v in self.progress else -1)
            for v in voters
        )
        return sent[len(sent) - self.quorum()]

    def quorum(self) -> int:
        """How many voters decide."""
        return self._s.outline.members.quorum

    def is_followed(self) -> bool:
        """Whether most were heard of lately."""
        s = self._s
        return s.now - max(self._since_most(), self._since) <= s.options.election_ticks

    def has_lease(self) -> bool:
        """Whether nobody else can lead yet."""
        since = self._since_most()
        return since >= 0 and self._s.now < since + self._s.options.leased_ticks

    def knows_all(self) -> bool:
        """Whether everything that was ever acknowledged is known to be decided."""
        return self._s.decided >= self.barrier

    def stop(self) -> None:
        """Stop leading: reads that wait are failed."""
        s = self._s
        s.fx.failed += [token for _, token in self._reads]
        self._reads = []
        s.step_down()
        s.leader = None

    # ---- proposals ---------------------------------------------------------------------------

    def propose(self, values: tuple[bytes, ...]) -> None:
        """Append values and send them."""
        s = self._s
        if s.outline.last + len(values) - s.decided > s.options.undecided_entries:
            s.fx.refusal = "too many entries are undecided"
            return
        first = s.outline.last + 1
        s.fx.proposed = (first, self.ballot)
        self._append(
            tuple(Entry(first + at, self.ballot, DATA, value) for at, value in enumerate(values))
        )

    def _append(self, entries: tuple[Entry, ...]) -> None:
        self._s.append(entries)
        for member, progress in self.progress.items():
            self._replicate(member, progress)

    def change(self, members: Members) -> None:
        """Append other members, when that is allowed now."""
        s = self._s
        s.fx.refusal = self.why_not(members)
        if s.fx.refusal is None:
            index = s.outline.last + 1
            s.fx.proposed = (index, self.ballot)
            entry = Entry(index, self.ballot, MEMBERS, members.encode())
            s.append((entry,))
            self._see_members()
            self.heartbeat()

    def why_not(self, members: Members) -> str | None:
        """Why the members cannot be changed to these now."""
        s = self._s
        nodes = [member.node for member in members.all]
        old, new = set(s.outline.members.voters), set(members.voters)
        if not new or len(set(nodes)) != len(nodes):
            return "a node is named twice, or no voter is left"
        if len(old ^ new) > 1:
            return "at most one voter may come or go at a time"
        if not self.knows_all() or s.outline.members_index > s.decided:
            return "the change before is not decided yet"
        if old != new and not self._most_of(members):
            return "most of these voters were not heard of lately"
        return None

    # ---- joining -----------------------------------------------------------------------------

    def on_join(self, m: Join) -> None:
        """Take in a member whose node is known: the old incarnation goes, the new one learns."""
        s = self._s
        now = s.outline.members
        known = [member for member in now.all if member.node == m.sender.node]
        if m.sender in now.all or m.sender == s.me or not known or known[0] == s.me:
            return
        voters = tuple(v for v in now.voters if v.node != m.sender.node)
        joining = tuple(j for j in now.joining if j.node != m.sender.node)
        members = Members(voters, (*joining, m.sender))
        if self.why_not(members) is None:
            self.change(members)

    def _most_of(self, members: Members) -> bool:
        """Whether most of these voters answered lately: a change must not stop the group."""
        s = self._s
        since = s.now - s.options.election_ticks
        alive = {m for m, p in self.progress.items() if p.sent >= since} | {s.me}
        return majority(members.voters, alive)

    def _promote(self) -> None:
        """Let one who joined vote when it has what is decided."""
        s = self._s
        now = s.outline.members
        for member in now.joining:
            progress = self.progress.get(member)
            if progress is None:  # we: the log that was taken over has us as one who joins
                continue
            caught_up = progress.match >= max(s.decided, self.barrier)
            members = Members(
                tuple(sorted((*now.voters, member))), tuple(j for j in now.joining if j != member)
            )
            if caught_up and self.why_not(members) is None:
                self.change(members)
                return

    # ---- reads -------------------------------------------------------------------------------

    def read(self, token: Any) -> None:
        """Answer now with a lease; else when most have answered what is sent from now on."""
        s = self._s
        if self.may_read_now():
            s.fx.reads.append((token, s.decided))
            return
        if not self._reads or self._reads[-1][0] != self._probe + 1:
            self._heartbeat_at = s.now  # with the next tick, for all who ask until then
        self._reads.append((self._probe + 1, token))

    def may_read_now(self) -> bool:
        """Whether the lease allows reads."""
        return self.knows_all() and self.has_lease()

    def _answer_reads(self) -> None:
        s = self._s
        if not self._reads or not self.knows_all():
            return
        voters = s.outline.members.voters
        answered = sorted(
            self._probe if v == s.me else self.progress[v].probe if v in self.progress else 0
            for v in voters
        )
        confirmed = self.confirmed_probe(answered)
        while self._reads and self._reads[0][0] <= confirmed:
            s.fx.reads.append((self._reads.pop(0)[1], s.decided))

    def confirmed_probe(self, answered: list[int]) -> int:
        """The newest probe that most have answered."""
        return answered[len(answered) - self.quorum()]

    # ---- sending -----------------------------------------------------------------------------

    def _replicate(self, member: Member, p: Progress, *, always: bool = False) -> None:
        """Send what the member lacks, as far as its window is open; `always`: at least one."""
        s = self._s
        outline, options = s.outline, s.options
        if self._reads and self._reads[-1][0] > self._probe:
            self._probe += 1
        while not (p.probing and p.outstanding):
            prev = p.next - 1
            ballot = outline.ballot_at(prev)
            if ballot is None:
                self._install(member, p)
                if always:  # a large snapshot takes a while: be heard, and hear
                    self._send_accept(member, p, outline.base.index, outline.base.index)
                return
            last = min(outline.last, prev + options.batch_entries)
            last = min(last, max(p.match + options.window_entries, prev))
            last = min(last, max(outline.fit(p.match + 1, last, options.window_bytes), prev))
            last = outline.fit(prev + 1, last, options.batch_bytes)
            if not always and (last <= prev or self._gathers(p, prev, last)):
                return
            always = False
            self._send_accept(member, p, prev, max(last, prev))
            if p.probing:
                p.outstanding = True
            else:
                p.next = max(last, prev) + 1

    def _gathers(self, p: Progress, prev: int, last: int) -> bool:
        """Whether the rest of the log waits for an answer that is under way: it is little, and
        all that comes until then goes in one message. With the next heartbeat it goes anyway."""
        if prev <= p.match:
            return False
        outline = self._s.outline
        return last == outline.last and outline.size(prev + 1, last) < self._s.options.gather_bytes

    def _send_accept(self, member: Member, p: Progress, prev: int, upto: int) -> None:
        s = self._s
        ballot = s.outline.ballot_at(prev)
        assert ballot is not None
        s.fx.sends.append(
            Accept(
                s.me, member, self.ballot, prev, ballot, upto, s.decided, s.now, self._probe,
                p.stamp, self.may_read_now(),
            )
        )  # fmt: skip

    def _install(self, member: Member, p: Progress) -> None:
        s = self._s
        if s.now >= p.install_at:
            p.install_at = s.now + s.options.election_ticks // 2
            p.probing = True
            s.fx.sends.append(Install(s.me, member, self.ballot, s.snapshot, s.now, self._probe))

    def on_repair(self, m: Repair) -> None:
        """What is damaged there is in our snapshot only."""
        base = self._s.outline.base.index
        if m.sender in self.progress and any(index <= base for index, _ in m.wanted):
            self._install(m.sender, self.progress[m.sender])

    # ---- answers -----------------------------------------------------------------------------

    def on_accepted(self, m: Accepted) -> None:
        """Count what a member has."""
        p = self._heard(m)
        if p is None:
            return
        p.match = max(p.match, m.index)
        if p.probing or p.next <= p.match:
            p.probing, p.outstanding = False, False
            p.next = p.match + 1
            if self._s.outline.ballot_at(p.match) is not None:
                p.install_at = 0  # else our log begins later by now: the next one when it is due
        self.advance()
        self._answer_reads()
        if self._s.role is Role.LEADER:
            self._replicate(m.sender, p)

    def on_mismatch(self, m: Mismatch) -> None:
        """Go back."""
        p = self._heard(m)
        if p is None:
            return
        self._answer_reads()
        if p.probing and m.prev_index != p.next - 1:
            return
        if m.prev_index <= p.match:
            return  # an answer of before: it has that by now
        p.next = max(min(m.hint, m.prev_index - 1), p.match) + 1
        p.probing, p.outstanding = True, False
        self._replicate(m.sender, p, always=True)

    def _heard(self, m: Accepted | Mismatch) -> Progress | None:
        if m.ballot != self.ballot or m.sender not in self.progress:
            return None
        p = self.progress[m.sender]
        p.sent = max(p.sent, m.sent)
        p.probe = max(p.probe, m.probe)
        if m.stamp > p.stamp or m.stamp[0] != p.stamp[0]:
            p.stamp = m.stamp
        return p

    def advance(self) -> None:
        """Decide what most have."""
        s = self._s
        has = sorted(
            s.durable if v == s.me else self.progress[v].match if v in self.progress else 0
            for v in s.outline.members.voters
        )
        index = has[len(has) - self.quorum()]
        if index > s.decided and self.counts(index):
            s.decide(index)
            if s.me not in s.outline.members.voters and s.decided >= s.outline.members_index:
                self.heartbeat()
                self.stop()

    def counts(self, index: int) -> bool:
        """Whether an entry may be decided by counting who has it: not one of an earlier leader."""
        return index >= self.barrier
