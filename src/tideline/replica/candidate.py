"""How a replica comes to lead: ask, prepare, take over the longest log, lead.

    ASKING      PreVote to all; when most would promise:
    CANDIDATE   promise a new ballot to itself, Prepare to all. With promises of most:
                the log that ends highest by (ballot, index) becomes ours (Fetch, Supply);
                it may name other members: then promises of most of *them* are needed, too.
    LEADER      when our own log is that one

One asks when it heard of no leader for `election_ticks`, or as soon as its lease is over when it is
said to be gone (`Gone`), and a few ticks that are drawn: of several who ask at once the highest
ballot wins. It goes on asking until most would promise, or somebody leads.

Among the logs of a majority, the one that ends highest has every entry that can have been decided.
A log whose end is damaged is left out, if the others are still a majority.

Part of a core: one thread at a time.
"""

from __future__ import annotations

from tideline.replica.messages import (
    NOBODY,
    Ballot,
    Fetch,
    Install,
    Member,
    Prepare,
    PreVote,
    PreVoted,
    Promise,
    Supply,
)
from tideline.replica.state import Role, State

__all__ = ["Candidate", "majority"]


def majority(members: tuple[Member, ...], having: set[Member]) -> bool:
    """Whether most of the members are among those.

    >>> a, b, c = (Member(n, 1) for n in (1, 2, 3))
    >>> majority((a, b, c), {a, c}), majority((a, b, c), {a})
    (True, False)
    """
    return sum(member in having for member in members) > len(members) // 2


class Candidate:
    """An attempt to lead."""

    def __init__(self, state: State) -> None:
        self._s = state
        self.ballot = NOBODY
        self._votes: set[Member] = set()
        self._promises: dict[Member, tuple[Ballot, int]] = {}
        self._left_out: set[Member] = set()
        self._asked_at = 0
        self._draw: float | None = None
        self._resend_at = 0
        self._source: Member | None = None
        self._after = 0  # up to where the source's log was fetched or is known to be ours

    def tick(self) -> None:
        """Try, when nobody led for long enough; send again what may be lost."""
        s = self._s
        if self._draw is None:
            self._draw = s.rand
        if s.now >= self.due(self._draw):
            self._asked_at, self._draw = s.now, s.rand
            self.ask()
        elif s.role is not Role.FOLLOWER and s.now >= self._resend_at:
            self._resend_at = s.now + s.options.heartbeat_ticks
            if s.role is Role.ASKING:
                self._ask_all()
            else:
                self._prepare_others()
                self._fetch()

    def due(self, draw: float) -> int:
        """When to ask (anew)."""
        s = self._s
        ticks, heartbeat = s.options.election_ticks, s.options.heartbeat_ticks
        if self._asked_at > s.heard:  # others may be at it, too
            return self._asked_at + ticks + int(draw * ticks)
        if s.gone:
            return s.granted_until + int(draw * heartbeat)
        return s.heard + ticks + int(draw * 2 * heartbeat)

    def ask(self) -> None:
        """Ask whether a new ballot would be promised. Costs nobody anything."""
        s = self._s
        if not s.is_voter() or s.outline.holes:
            return
        s.role, s.leader = Role.ASKING, None
        self.ballot = Ballot(max(s.seen_round, s.promised.round) + 1, *s.me)
        self._votes = set()
        self._resend_at = s.now + s.options.heartbeat_ticks
        self._ask_all()

    def _ask_all(self) -> None:
        s = self._s
        for member in s.outline.members.voters:
            s.fx.sends.append(PreVote(s.me, member, self.ballot))

    def on_pre_voted(self, m: PreVoted) -> None:
        """Count; with most, go on."""
        s = self._s
        s.seen_round = max(s.seen_round, m.promised.round)
        if s.role is not Role.ASKING or m.ballot != self.ballot or not m.granted:
            return
        self._votes.add(m.sender)
        bound = s.grants_to_other(s.me)
        if self.is_majority(self._votes) and self.ballot > s.promised and not bound:
            self._prepare()

    def is_majority(self, having: set[Member]) -> bool:
        """Of the voters of the log as it is now."""
        return majority(self._s.outline.members.voters, having)

    def _prepare(self) -> None:
        s = self._s
        s.role = Role.CANDIDATE
        s.promise(self.ballot)
        self._promises, self._left_out, self._source = {}, set(), None
        self._resend_at = s.now + s.options.heartbeat_ticks
        end = s.outline.last, s.outline.last_ballot
        s.fx.after.append(Promise(s.me, s.me, self.ballot, *end))
        self._prepare_others()

    def _prepare_others(self) -> None:
        s = self._s
        for member in s.outline.members.voters:
            if member != s.me and member not in self._promises:
                s.fx.after.append(Prepare(s.me, member, self.ballot))

    def on_promise(self, m: Promise) -> bool:
        """Count; True when we lead from now on."""
        if self._s.role is not Role.CANDIDATE or m.ballot != self.ballot:
            return False
        if m.sender not in self._left_out:
            self._promises[m.sender] = (m.last_ballot, m.last_index)
        return self.proceed()

    def proceed(self) -> bool:
        """Lead if our log is the one to lead with, else fetch that one."""
        s = self._s
        if s.role is not Role.CANDIDATE or s.me not in self._promises:
            return False
        if not self.is_majority(set(self._promises)):
            return False  # also where the log taken over names others: `tick` asks them
        best = self.best()
        if best is None:
            return True
        if self._source != best:
            self._source, self._after = best, s.outline.last
            self._fetch()
        return False

    def best(self) -> Member | None:
        """Whose log ends highest; None when no other ends higher than ours."""
        s = self._s
        best = max(self._promises, key=lambda member: self._promises[member])
        ours = (s.outline.last_ballot, s.outline.last)
        return best if self._promises[best] > ours else None

    def _fetch(self) -> None:
        s = self._s
        if self._source is not None:
            ballot = s.outline.ballot_at(self._after) or s.outline.base.ballot
            s.fx.sends.append(Fetch(s.me, self._source, self.ballot, self._after, ballot))

    def on_supply(self, m: Supply) -> bool:
        """Take over a part of a log; True when we lead from now on.

        Where our log is another one, the parts begin at what is decided and go on one by one,
        also as long as they hold only what we have.
        """
        s = self._s
        if s.role is not Role.CANDIDATE or m.ballot != self.ballot or m.sender != self._source:
            return False
        if m.prev_index != self._after:
            return False
        if not m.matches:
            back = max(s.decided, s.outline.base.index)
            if self._after > back:
                self._after = back
                self._fetch()
            return False
        if not m.whole:
            self._promises.pop(m.sender, None)
            self._left_out.add(m.sender)
            self._source = None
            return self.proceed()
        s.merge(m.prev_index, m.entries)
        self._after = m.prev_index + len(m.entries)
        if self.proceed():
            return True
        if m.entries:  # else it has no more, and others have to promise: `tick` asks them
            self._fetch()
        return False

    def on_install(self, m: Install) -> bool:
        """Take over a snapshot; True when we lead from now on.

        What it holds is decided, so it does not matter whom it was sent to: it may have been
        asked for by an attempt of before, and have taken longer than that.
        """
        s = self._s
        if m.mark.index > s.decided:
            s.install(m.mark, m.data)
            self._source = None
            if s.me in self._promises:
                self._promises[s.me] = (s.outline.last_ballot, s.outline.last)
        return self.proceed()
