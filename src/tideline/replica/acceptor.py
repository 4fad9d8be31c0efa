"""What a replica does for a leader or a candidate: promise, accept, install, supply, repair.

    PreVote  -> PreVoted     granted when nobody leads whom we hear, or who does is gone
    Prepare  -> Promise      after it is on disk; never within a lease that we granted to another
    Accept   -> Accepted     the log is the leader's up to there, on disk
             -> Mismatch     the entry before is not ours: the leader goes back
    Install  -> Accepted     a snapshot takes the place of what we lack
    Fetch    -> Supply       for a candidate whose log ends before ours
    Repair   -> Repaired     for whoever has a damaged entry: the same index and ballot is the same

Part of a core: one thread at a time.
"""

from __future__ import annotations

import msgspec

from tideline.replica.messages import (
    Accept,
    Accepted,
    Ballot,
    Fetch,
    Install,
    Member,
    Mismatch,
    Prepare,
    PreVote,
    PreVoted,
    Promise,
    Refused,
    Repair,
    Repaired,
    Supply,
)
from tideline.replica.state import Role, State

__all__ = ["Acceptor"]


class Acceptor:
    """Answers to leaders and candidates."""

    def __init__(self, state: State) -> None:
        self._s = state

    # ---- elections ---------------------------------------------------------------------------

    def on_pre_vote(self, m: PreVote, *, leads: bool) -> None:
        """Would we? `leads`: we lead ourselves, and most follow."""
        s = self._s
        granted = m.ballot > s.promised and not leads
        granted = granted and not (s.grants_to_other(m.sender) or s.hears_other(m.sender))
        s.fx.sends.append(PreVoted(s.me, m.sender, m.ballot, granted, s.promised))

    def on_prepare(self, m: Prepare, *, leads: bool) -> bool:
        """Promise, or say why not. True when whatever we led or tried is over."""
        s = self._s
        if m.ballot < s.promised or leads or self.is_bound(m.sender):
            s.fx.after.append(Refused(s.me, m.sender, m.ballot, s.promised))
            return False
        higher = m.ballot > s.promised
        s.promise(m.ballot)
        self.answer_prepare(m.sender, m.ballot)
        return higher

    def is_bound(self, candidate: Member) -> bool:
        """Whether a lease that we granted keeps us from promising."""
        return self._s.grants_to_other(candidate)

    def answer_prepare(self, candidate: Member, ballot: Ballot) -> None:
        """Tell where our log ends, once the promise is on disk."""
        s = self._s
        end = s.outline.last, s.outline.last_ballot
        s.fx.after.append(Promise(s.me, candidate, ballot, *end))

    # ---- entries -----------------------------------------------------------------------------

    def follows(self, sender: Member, ballot: Ballot) -> bool:
        """Whether messages of this ballot count; says so to whoever is behind."""
        s = self._s
        if ballot < s.promised:
            s.fx.after.append(Refused(s.me, sender, ballot, s.promised))
            return False
        s.promise(ballot)
        if s.role is not Role.FOLLOWER:
            s.step_down()
        s.grant(sender)
        return True

    def on_accept(self, m: Accept) -> None:
        """Make the log the leader's."""
        if not self.follows(m.sender, m.ballot):
            return
        s = self._s
        outline = s.outline
        if not self.has(m.prev_index, m.prev_ballot):
            hint = outline.last
            if m.prev_index <= outline.last:
                hint = max(s.decided, outline.run_start(m.prev_index) - 1)
            stamp = (s.life, s.now)
            s.fx.after.append(
                Mismatch(s.me, m.sender, m.ballot, m.prev_index, hint, m.sent, m.probe, stamp)
            )
            return
        s.merge(m.prev_index, m.entries)
        index = max(m.prev_index + len(m.entries), outline.base.index)
        self.learn(m.decided, index)
        self.accepted(m, index)
        if m.leased and m.echo[0] == s.life:
            s.note_fresh(m.decided, m.echo[1])

    def has(self, index: int, ballot: Ballot) -> bool:
        """Whether our log has this entry. What is before a snapshot of ours was decided."""
        outline = self._s.outline
        return index < outline.base.index or outline.ballot_at(index) == ballot

    def learn(self, decided: int, matched: int) -> None:
        """Of what is decided, only what is known to be the same here counts."""
        self._s.decide(min(decided, matched))

    def accepted(self, m: Accept | Install, index: int) -> None:
        """Tell the leader, once it is on disk.

        To a heartbeat the answer is at once what is on disk by now: a leader whose followers'
        disks are slow is not taken for one that nobody hears.
        """
        s = self._s
        stamp = (s.life, s.now)
        answer = Accepted(s.me, m.sender, m.ballot, index, m.sent, m.probe, stamp)
        kept = self.kept(index, m.ballot)
        if kept == index:
            s.fx.sends.append(answer)
            return
        s.fx.after.append(answer)
        if kept is not None and isinstance(m, Accept) and not m.entries:
            s.fx.sends.append(msgspec.structs.replace(answer, index=kept))

    def kept(self, index: int, ballot: Ballot) -> int | None:
        """How much of our log up to `index` is on disk; None while the promise is not."""
        s = self._s
        return min(index, s.durable) if s.kept >= ballot and s.installing is None else None

    def on_install(self, m: Install) -> None:
        """Go on from a snapshot. It holds what is decided, whoever sent it, and when."""
        follows = self.follows(m.sender, m.ballot)
        if m.mark.index > self._s.delivered:
            self._s.install(m.mark, m.data)
        if follows:
            self.accepted(m, m.mark.index)

    # ---- for others --------------------------------------------------------------------------

    def on_fetch(self, m: Fetch) -> None:
        """Give a candidate what comes after an entry; the snapshot where that is gone."""
        s = self._s
        outline = s.outline
        if m.ballot != s.promised:
            return
        if m.prev_index < outline.base.index:
            s.fx.sends.append(Install(s.me, m.sender, m.ballot, s.snapshot, 0, 0))
            return
        matches = outline.ballot_at(m.prev_index) == m.prev_ballot
        upto = m.prev_index
        if matches:
            most = min(outline.last, upto + s.options.batch_entries)
            upto = outline.fit(upto + 1, most, s.options.batch_bytes)
        whole = not matches or upto > m.prev_index or upto == outline.last
        s.fx.sends.append(Supply(s.me, m.sender, m.ballot, m.prev_index, upto, matches, whole))

    def on_repair(self, m: Repair) -> None:
        """Give what we have whole."""
        s = self._s
        outline = s.outline
        found = tuple(
            index
            for index, ballot in m.wanted
            if index > outline.base.index
            and index not in outline.holes
            and outline.ballot_at(index) == ballot
        )
        if found:
            s.fx.sends.append(Repaired(s.me, m.sender, found))

    def on_repaired(self, m: Repaired) -> None:
        """Mend what is still damaged and still in the log."""
        s = self._s
        for entry in m.entries:
            if s.outline.ballot_at(entry.index) == entry.ballot:
                s.fill(entry)
        s.deliver()

    def ask_for_repair(self) -> None:
        """Ask everybody for the damaged entries."""
        s = self._s
        holes = sorted(s.outline.holes)[: s.options.batch_entries]
        wanted = tuple((hole, s.outline.ballot_at(hole) or s.promised) for hole in holes)
        for member in s.outline.members.all:
            if member != s.me:
                s.fx.sends.append(Repair(s.me, member, wanted))
