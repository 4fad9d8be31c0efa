"""The core of a replica: Multi-Paxos over an ordered log, as a state machine.

    effects = core.step(message or event)

No clock, no socket, no thread, no file and no random number in here: time comes as `Tick`s, with
randomness; what is to be sent and written comes out as `Effects`. Whoever runs it:

1. sends `effects.sends`, at once if it likes, with entries filled in from storage;
2. writes `effects.writes` in order, and brings them to disk;
3. then sends `effects.after`; what is to itself goes into `step` again;
4. applies the entries of `effects.decided`, in order, and answers those who proposed and read.

A write that fails ends this core: make another one from what is on disk (`Loaded`).

One thread at a time. Roles are in acceptor.py, candidate.py and leader.py; the protocol is told in
docs/internals/replication.md.
"""

from __future__ import annotations

from tideline.errors import InvalidRequest
from tideline.replica.acceptor import Acceptor
from tideline.replica.candidate import Candidate
from tideline.replica.leader import Leader
from tideline.replica.messages import (
    Accept,
    Accepted,
    Ballot,
    Change,
    Compact,
    CompactTo,
    Damaged,
    Durable,
    Effects,
    Event,
    Fetch,
    Gone,
    Install,
    Join,
    Mark,
    Member,
    Members,
    Message,
    Mismatch,
    Prepare,
    PreVote,
    PreVoted,
    Promise,
    Propose,
    Read,
    Refused,
    Repair,
    Repaired,
    Supply,
    Tick,
)
from tideline.replica.state import Loaded, Options, Role, State

__all__ = ["Core"]


class Core:
    """One replica.

    >>> from tideline.replica import Loaded, Member, Members, Propose, Tick
    >>> me = Member(1, 1)
    >>> core = Core(me, Loaded.new(Members((me,))), life=1)
    >>> def run(event):
    ...     queue, decided = [event], None
    ...     while queue:
    ...         effects = core.step(queue.pop(0))
    ...         queue += [m for m in effects.sends + effects.after if m.to == me]
    ...         decided = effects.decided or decided
    ...     return decided
    >>> while not core.leads:
    ...     decided = run(Tick(0.5))
    >>> run(Propose((b"hello",)))
    (2, 3)
    """

    def __init__(
        self,
        me: Member,
        loaded: Loaded,
        *,
        life: int,
        options: Options | None = None,
        peers: tuple[int, ...] = (),
    ) -> None:
        """`life` is another number at each start; `peers` are nodes to ask to be taken in by."""
        if me.node < 1 or me.incarnation < 1:
            raise InvalidRequest("node and incarnation start at 1", member=tuple(me))
        self._s = State.start(me, options or Options(), loaded, life)
        self._peers = peers
        self._acceptor = Acceptor(self._s)
        self._candidate = Candidate(self._s)
        self._leader: Leader | None = None

    # ---- what can be seen --------------------------------------------------------------------

    @property
    def me(self) -> Member:
        """Who this is."""
        return self._s.me

    @property
    def leads(self) -> bool:
        """Whether this replica leads, as far as it knows."""
        return self._s.role is Role.LEADER

    @property
    def ready(self) -> bool:
        """Whether it leads, and has handed out everything that any leader before acknowledged."""
        leader = self._leader
        return self.leads and leader is not None and self._s.delivered >= leader.barrier

    @property
    def role(self) -> Role:
        """What it does."""
        return self._s.role

    @property
    def leader(self) -> Member | None:
        """Who leads, as far as it knows."""
        return self._s.leader

    @property
    def promised(self) -> Ballot:
        """The highest ballot promised."""
        return self._s.promised

    def ballot_at(self, index: int) -> Ballot | None:
        """The ballot of an entry; None for one that the log does not have (any more)."""
        return self._s.outline.ballot_at(index)

    def fit(self, first: int, last: int, size_bytes: int) -> int:
        """How far from `first` on values of this many bytes reach, at least to `first`."""
        return max(first, self._s.outline.fit(first, last, size_bytes))

    def count_back(self, index: int, size_bytes: int) -> int:
        """How many values, the last at `index`, take no more than this many bytes."""
        return self._s.outline.count_back(index, size_bytes)

    def mark(self, index: int) -> Mark:
        """The log up to an index that was handed out, as a mark for a snapshot."""
        return self._s.outline.mark(index)

    @property
    def progress(self) -> dict[Member, int]:
        """Of a leader: up to where the log of each other member is known to be its own."""
        if self._leader is None:
            return {}
        return {member: p.match for member, p in self._leader.progress.items()}

    @property
    def members(self) -> Members:
        """Who takes part, by the last entry that says so."""
        return self._s.outline.members

    @property
    def decided(self) -> int:
        """Up to where the log is known to be decided."""
        return self._s.decided

    @property
    def delivered(self) -> int:
        """Up to where it was handed out."""
        return self._s.delivered

    @property
    def last(self) -> int:
        """The last entry of the log."""
        return self._s.outline.last

    @property
    def snapshot(self) -> Mark:
        """The newest snapshot."""
        return self._s.snapshot

    @property
    def holes(self) -> frozenset[int]:
        """Damaged entries that nobody gave again yet."""
        return frozenset(self._s.outline.holes)

    @property
    def stale_ticks(self) -> int | None:
        """How old what is delivered is at most: all that was acknowledged before is in it.

        None when that is not known: no leader with a lease was heard.
        """
        s = self._s
        whole = s.installing is None and s.delivered >= s.decided
        if self._leader is not None and self._leader.may_read_now() and whole:
            return 0
        return None if s.fresh_tick is None else s.now - s.fresh_tick

    # ---- steps -------------------------------------------------------------------------------

    def step(self, what: Message | Event) -> Effects:
        """Take a message or an event; what to do now."""
        s = self._s
        s.fx = effects = Effects()
        if isinstance(what, Event):
            self._event(what)
        elif what.to.node == s.me.node and what.to.incarnation in (0, s.me.incarnation):
            self._message(what)
        if s.role is not Role.LEADER and self._leader is not None:
            self._leader.stop()
            self._leader = None
        return effects

    def _event(self, event: Event) -> None:
        s = self._s
        match event:
            case Tick():
                s.now += 1
                s.rand = event.rand
                self._tick()
            case Gone():
                self._gone(event.node)
            case Propose():
                if self._leads(event):
                    self._leader.propose(event.values)  # type: ignore[union-attr]
            case Read():
                if self._leader is not None:
                    self._leader.read(event.token)
                else:
                    s.fx.failed.append(event.token)
            case Change():
                if self._leads(event):
                    self._leader.change(event.members)  # type: ignore[union-attr]
            case Compact():
                self._compact(event)
            case Damaged():
                self._damaged(event.index)

    def _leads(self, event: Event) -> bool:
        if self._leader is None:
            self._s.fx.refusal = "not the leader"
        return self._leader is not None

    def _tick(self) -> None:
        s = self._s
        if self._leader is not None:
            self._leader.tick()
        else:
            self._candidate.tick()
        if s.now % s.options.heartbeat_ticks == 0:
            if s.outline.holes:
                self._acceptor.ask_for_repair()
            if s.me not in s.outline.members.all:
                for node in self._peers:
                    s.fx.sends.append(Join(s.me, Member(node, 0)))

    def _gone(self, node: int) -> None:
        s = self._s
        if s.granted_to is not None and s.granted_to.node == node:
            s.gone = True
            if s.leader == s.granted_to:
                s.leader = None

    def _compact(self, event: Compact) -> None:
        s = self._s
        if event.index > s.delivered or event.keep < 0:
            raise InvalidRequest(
                "a snapshot holds what was delivered, and keep starts at 0",
                index=event.index, delivered=s.delivered, keep=event.keep,
            )  # fmt: skip
        if event.index <= s.snapshot.index:
            return
        s.snapshot = s.outline.mark(event.index)
        base = max(s.outline.base.index, event.index - event.keep)
        passed = [hole for hole in s.outline.holes if hole <= event.index]
        mark = s.outline.mark(max([base, *passed]))  # nobody needs to mend these any more
        s.fx.writes.append(CompactTo(s.snapshot, mark))
        s.outline.rebase(mark)

    def _damaged(self, index: int) -> None:
        s = self._s
        if s.outline.base.index < index <= s.outline.last:
            s.outline.holes.add(index)
            if s.role is not Role.FOLLOWER:
                s.step_down()

    def _message(self, m: Message) -> None:
        s, leader = self._s, self._leader
        match m:
            case Accept():
                self._acceptor.on_accept(m)
            case Accepted():
                if leader is not None:
                    leader.on_accepted(m)
            case Durable():
                self._on_durable(m)
            case Mismatch():
                if leader is not None:
                    leader.on_mismatch(m)
            case PreVote():
                self._acceptor.on_pre_vote(m, leads=leader is not None and leader.is_followed())
            case PreVoted():
                self._candidate.on_pre_voted(m)
            case Prepare():
                leads = leader is not None and leader.is_followed()
                if self._acceptor.on_prepare(m, leads=leads):
                    s.step_down()
                    s.leader = None
            case Promise():
                self._lead_if(self._candidate.on_promise(m))
            case Refused():
                self._on_refused(m)
            case Fetch():
                self._acceptor.on_fetch(m)
            case Supply():
                self._lead_if(self._candidate.on_supply(m))
            case Install():
                if s.role is Role.CANDIDATE and m.ballot <= self._candidate.ballot:
                    self._lead_if(self._candidate.on_install(m))
                else:
                    self._acceptor.on_install(m)
            case Repair():
                self._acceptor.on_repair(m)
                if leader is not None:
                    leader.on_repair(m)
            case Repaired():
                self._acceptor.on_repaired(m)
            case Join():
                if leader is not None:
                    leader.on_join(m)

    def _lead_if(self, ready: bool) -> None:
        if ready:
            self._leader = Leader(self._s, self._candidate.ballot)

    def _on_refused(self, m: Refused) -> None:
        """Somebody promised a higher ballot: ours is over."""
        s = self._s
        s.seen_round = max(s.seen_round, m.promised.round)
        ours = self._leader.ballot if self._leader is not None else self._candidate.ballot
        if m.ballot == ours and m.promised > ours and s.role is not Role.FOLLOWER:
            s.step_down()

    def _on_durable(self, m: Durable) -> None:
        s = self._s
        if m.installed is not None:
            s.fx.installed = m.installed
            if m.installed == s.installing:
                s.installing = None
        s.kept = max(s.kept, m.promised)
        if m.epoch == s.epoch:
            s.durable = max(s.durable, m.index)
            if self._leader is not None:
                self._leader.advance()
            s.deliver()
