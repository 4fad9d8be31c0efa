"""What the parts of a core share: who we are, what was promised, the log, what is decided.

    FOLLOWER --- nobody leads for a while ---> ASKING --- most would ---> CANDIDATE --> LEADER
        ^---------------- a higher ballot, or most are not heard of ----------------------'

Invariants:
1. `promised` only rises. It is on disk before anybody is told (`Effects.after`).
2. `decided` only rises, and an entry up to it never changes. One that would is `Corruption`.
3. `delivered` <= `decided`, and <= what is on this disk and whole.

One thread at a time, like all of a core.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from tideline.errors import Corruption, InvalidRequest
from tideline.replica.messages import (
    MEMBERS,
    NOBODY,
    Append,
    Ballot,
    Durable,
    Effects,
    Entry,
    Fill,
    InstallSnapshot,
    Mark,
    Member,
    Members,
    Promised,
    Truncate,
)
from tideline.replica.outline import Outline

__all__ = ["Loaded", "Options", "Role", "State"]


class Role(Enum):
    """What a replica does at the moment."""

    FOLLOWER = "follower"
    ASKING = "asking"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True)
class Options:
    """Times in ticks; all members have the same. `drift` is how far apart clocks may run.

    Less than `gather_bytes` waits at a leader for the answer to what was sent before it.
    """

    heartbeat_ticks: int = 2
    election_ticks: int = 14
    lease_ticks: int = 8
    drift: float = 0.1
    batch_entries: int = 256
    batch_bytes: int = 1 << 20
    gather_bytes: int = 32 << 10
    window_entries: int = 1024
    window_bytes: int = 8 << 20
    undecided_entries: int = 16_384

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_ticks * 2 < self.lease_ticks <= self.election_ticks:
            raise InvalidRequest(
                "heartbeat_ticks is less than half of lease_ticks, and that at most election_ticks",
                heartbeat_ticks=self.heartbeat_ticks, lease_ticks=self.lease_ticks,
                election_ticks=self.election_ticks,
            )  # fmt: skip
        if not 0 <= self.drift < 0.5:
            raise InvalidRequest("drift is at least 0 and less than 0.5", drift=self.drift)
        for name in (
            "batch_entries", "batch_bytes", "gather_bytes", "window_entries", "window_bytes",
            "undecided_entries",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} starts at 1", **{name: getattr(self, name)})

    @property
    def leased_ticks(self) -> int:
        """How long a leader counts on a lease that others grant for `lease_ticks`."""
        return int(self.lease_ticks * (1 - self.drift) / (1 + self.drift))


@dataclass
class Loaded:
    """What a replica has on its disk when it starts."""

    promised: Ballot
    snapshot: Mark
    outline: Outline

    @classmethod
    def new(cls, members: Members | None = None) -> Loaded:
        """A disk with nothing on it but, in a new group, the first entry: who takes part.

        All first members have the same first entry. Whoever joins later starts without one.
        """
        mark = Mark(0, NOBODY, Members(()))
        entries = () if members is None else (Entry(1, NOBODY, MEMBERS, members.encode()),)
        return cls(NOBODY, mark, Outline(mark, entries))


@dataclass
class State:
    """Shared by the parts of one core."""

    me: Member
    options: Options
    promised: Ballot
    snapshot: Mark
    outline: Outline
    life: int
    now: int = 0
    rand: float = 0.5
    role: Role = Role.FOLLOWER
    leader: Member | None = None
    decided: int = 0
    delivered: int = 0
    durable: int = 0
    kept: Ballot = NOBODY
    """The highest ballot whose promise is known to be on disk."""
    epoch: int = 0
    installing: Mark | None = None
    """A snapshot that counts already and is not on disk yet."""
    seen_round: int = 0
    heard: int = 0
    granted_to: Member | None = None
    granted_until: int = 0
    granted_at: int = 0
    gone: bool = False
    """Whether whom that was granted is said to be gone. A hint: its lease lasts all the same."""
    fresh: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=16))
    fresh_tick: int | None = None
    fx: Effects = field(default_factory=Effects)

    @classmethod
    def start(cls, me: Member, options: Options, loaded: Loaded, life: int) -> State:
        """As a replica that was just opened: it may have granted a lease that it forgot."""
        at = loaded.snapshot.index
        return cls(
            me, options, loaded.promised, loaded.snapshot, loaded.outline, life,
            decided=at, delivered=at, durable=loaded.outline.last,
            kept=loaded.promised, seen_round=loaded.promised.round,
            granted_until=options.lease_ticks + 1,
        )  # fmt: skip

    # ---- ballots ---------------------------------------------------------------------------

    def promise(self, ballot: Ballot) -> None:
        """Promise a ballot, durably."""
        assert ballot >= self.promised
        if ballot > self.promised:
            self.promised = ballot
            self.persist_promise(ballot)
            self.note_durable()
        self.seen_round = max(self.seen_round, ballot.round)

    def persist_promise(self, ballot: Ballot) -> None:
        """Put it on disk."""
        self.fx.writes.append(Promised(ballot))

    def grants_to_other(self, candidate: Member) -> bool:
        """Whether somebody else may still count on a lease of ours."""
        return self.now < self.granted_until and self.granted_to != candidate

    def hears_other(self, candidate: Member) -> bool:
        """Whether somebody else leads, as far as we hear: then nobody has to be replaced."""
        silent = self.gone or self.now >= self.granted_at + self.options.election_ticks
        return self.granted_to not in (None, candidate) and not silent

    def grant(self, leader: Member) -> None:
        """Promise nobody else anything for the length of a lease."""
        self.leader, self.heard = leader, self.now
        self.granted_to, self.granted_at, self.gone = leader, self.now, False
        self.granted_until = self.now + self.options.lease_ticks + 1

    # ---- the log ---------------------------------------------------------------------------

    def merge(self, prev_index: int, entries: tuple[Entry, ...]) -> None:
        """Make the log after `prev_index` (which matches) these entries; keep what agrees."""
        outline = self.outline
        for at, entry in enumerate(entries):
            if entry.index != prev_index + 1 + at:
                raise Corruption("entries of a message have a gap", file="message")
            ballot = outline.ballot_at(entry.index)
            if entry.index <= outline.base.index:
                continue
            if ballot is None:
                self.append(entries[at:])
                break
            if ballot == entry.ballot:
                self.fill(entry)
            else:
                self.cut(entry.index)
                self.append(entries[at:])
                break
        self.deliver()

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Add entries at the end."""
        for entry in entries:
            self.outline.append(entry)
        self.fx.writes.append(Append(entries))
        self.note_durable()

    def note_durable(self, installed: Mark | None = None) -> None:
        """Hear of it when everything so far is on disk."""
        last, promised = self.outline.last, self.promised
        durable = Durable(self.me, self.me, last, self.epoch, promised, installed)
        self.fx.after.append(durable)

    def cut(self, index: int) -> None:
        """Take back entries from `index` on, which another leader did not choose."""
        if index <= self.decided:
            raise Corruption(
                "a decided entry would be overwritten", file=f"replica {self.me.node}",
                index=index, decided=self.decided,
            )  # fmt: skip
        self.outline.truncate(index)
        self.fx.writes.append(Truncate(index))
        self.epoch += 1
        self.durable = min(self.durable, index - 1)

    def fill(self, entry: Entry) -> None:
        """Mend a damaged entry."""
        if entry.index in self.outline.holes:
            assert self.outline.ballot_at(entry.index) == entry.ballot
            self.outline.holes.discard(entry.index)
            self.fx.writes.append(Fill(entry))

    def install(self, mark: Mark, data: bytes) -> None:
        """Go on from somebody's snapshot."""
        keep = self.outline.ballot_at(mark.index) == mark.ballot
        self.fx.writes.append(InstallSnapshot(mark, keep, data))
        self.outline.rebase(mark)
        self.snapshot = self.installing = mark
        self.epoch += 1
        self.durable = min(self.durable, mark.index) if keep else mark.index
        self.decided = max(self.decided, mark.index)
        self.delivered = mark.index
        self.fresh.clear()
        self.note_durable(mark)

    # ---- what is decided -------------------------------------------------------------------

    def decide(self, index: int) -> None:
        """Everything up to `index` is decided."""
        self.decided = max(self.decided, index)
        self.deliver()

    def deliver(self) -> None:
        """Hand out what is decided, on this disk and whole."""
        upto = min(self.decided, self.durable)
        if self.outline.holes:
            after = [hole for hole in self.outline.holes if hole > self.delivered]
            upto = min(upto, min(after, default=upto + 1) - 1)
        if upto > self.delivered:
            first = self.fx.decided[0] if self.fx.decided else self.delivered
            self.fx.decided = (first, upto)
            self.delivered = upto
        while self.installing is None and self.fresh and self.fresh[0][0] <= self.delivered:
            tick = self.fresh.popleft()[1]
            self.fresh_tick = max(tick, self.fresh_tick or 0)

    def note_fresh(self, index: int, tick: int) -> None:
        """The state at `index` has all that was acknowledged before our `tick`."""
        self.fresh.append((index, tick))
        self.deliver()

    def step_down(self) -> None:
        """Stop leading, or trying to."""
        self.role = Role.FOLLOWER
        self.heard, self.gone = self.now, False

    def is_voter(self) -> bool:
        """Whether we count, as far as we know."""
        return self.me in self.outline.members.voters
