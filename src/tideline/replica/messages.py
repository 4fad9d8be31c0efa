"""What goes into the core of a replica and what comes out: values, messages, writes, effects.

    Member      a node and its incarnation: a disk that was lost comes back as another member
    Ballot      who proposes: (round, node, incarnation), compared in that order, used once
    Entry       one place of the log: (index, ballot, kind, value)
    Mark        a snapshot: everything up to `index` is in it

    messages    from replica to replica; to oneself where something must be on disk before
    events      from whoever runs the core: Tick, Gone, Propose, Read, Change, Compact, Damaged
    writes      what must be on disk before the messages in `Effects.after` are sent
    Effects     what one step asks for

Everything here is a value and safe from any thread; docs/internals/replication.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

__all__ = [
    "DATA", "MEMBERS", "NOBODY", "NOTHING", "Accept", "Accepted", "Append", "Ballot", "Change",
    "Compact", "CompactTo", "Damaged", "Durable", "Effects", "Entry", "Event", "Fetch", "Fill",
    "Gone", "Install", "InstallSnapshot", "Join", "Mark", "Member", "Members", "Message",
    "Mismatch", "PreVote", "PreVoted", "Prepare", "Promise", "Promised", "Propose", "Read",
    "Refused", "Repair", "Repaired", "Supply", "Tick", "Truncate", "Write",
]  # fmt: skip

DATA, NOTHING, MEMBERS = (
    0,
    1,
    2,
)  # kinds of an entry: a value, the first of a leader, who takes part


class Member(NamedTuple):
    """A node, as long as it keeps its disk."""

    node: int
    incarnation: int


class Ballot(NamedTuple):
    """Who proposes. No ballot is ever used twice."""

    round: int
    node: int
    incarnation: int

    @property
    def member(self) -> Member:
        """Whose it is."""
        return Member(self.node, self.incarnation)


NOBODY = Ballot(0, 0, 0)


class Members(NamedTuple):
    """Who takes part: voters decide; those who are joining are sent everything and do not count."""

    voters: tuple[Member, ...]
    joining: tuple[Member, ...] = ()

    @property
    def quorum(self) -> int:
        """How many voters decide.

        >>> Members((Member(1, 1), Member(2, 1), Member(3, 1))).quorum
        2
        """
        return len(self.voters) // 2 + 1

    @property
    def all(self) -> tuple[Member, ...]:
        """Everybody who is sent the log."""
        return self.voters + self.joining

    def encode(self) -> bytes:
        """As the value of an entry."""
        return msgspec.msgpack.encode((self.voters, self.joining))

    @classmethod
    def decode(cls, data: bytes) -> Members:
        """What `encode` gave."""
        voters, joining = _PLAIN.decode(data)
        return cls(voters, joining)


_PLAIN = msgspec.msgpack.Decoder(tuple[tuple[Member, ...], tuple[Member, ...]])


class Entry(NamedTuple):
    """One place of the log. The same index and ballot are the same entry, and so is all before."""

    index: int  # type: ignore[assignment]  # tuples have a method of this name
    ballot: Ballot
    kind: int
    value: bytes


class Mark(NamedTuple):
    """A snapshot: the state when everything up to `index` was applied."""

    index: int  # type: ignore[assignment]
    ballot: Ballot
    members: Members


# ---- messages ----------------------------------------------------------------------------------


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """From one member to another. Incarnation 0 of `to` is whoever that node is now."""

    sender: Member
    to: Member


class PreVote(Message, frozen=True):
    """Would you promise me this ballot? Changes nothing."""

    ballot: Ballot


class PreVoted(Message, frozen=True):
    """The answer to `PreVote`."""

    ballot: Ballot
    granted: bool
    promised: Ballot


class Prepare(Message, frozen=True):
    """Promise me this ballot."""

    ballot: Ballot


class Promise(Message, frozen=True):
    """I accept nothing below this ballot any more; here my log ends."""

    ballot: Ballot
    last_index: int
    last_ballot: Ballot


class Refused(Message, frozen=True):
    """`ballot` is not followed: `promised` was promised, or a lease is held (then it is lower)."""

    ballot: Ballot
    promised: Ballot


class Fetch(Message, frozen=True):
    """From a candidate: send me your log after this entry."""

    ballot: Ballot
    prev_index: int
    prev_ballot: Ballot


class Supply(Message, frozen=True):
    """The answer to `Fetch`. `matches` is false when that entry is not mine; `whole` when I have
    what I promised; entries (`prev_index`, `upto`] are filled in when it is sent."""

    ballot: Ballot
    prev_index: int
    upto: int
    matches: bool
    whole: bool
    entries: tuple[Entry, ...] = ()


class Accept(Message, frozen=True):
    """From a leader: after the entry (`prev_index`, `prev_ballot`) come these. Also its heartbeat.

    `sent` and `probe` come back in the answer; `echo` is the newest `stamp` of the receiver that
    the leader has seen, `leased` whether its lease was good then.
    """

    ballot: Ballot
    prev_index: int
    prev_ballot: Ballot
    upto: int
    decided: int
    sent: int
    probe: int
    echo: tuple[int, int]
    leased: bool
    entries: tuple[Entry, ...] = ()


class Accepted(Message, frozen=True):
    """My log is the leader's up to `index`, on disk. `stamp` is (life, tick) of the sender."""

    ballot: Ballot
    index: int
    sent: int
    probe: int
    stamp: tuple[int, int]


class Mismatch(Message, frozen=True):
    """I do not have the entry at `prev_index`; try after `hint`."""

    ballot: Ballot
    prev_index: int
    hint: int
    sent: int
    probe: int
    stamp: tuple[int, int]


class Install(Message, frozen=True):
    """A snapshot for whom the log does not reach back far enough; `data` is filled in when sent."""

    ballot: Ballot
    mark: Mark
    sent: int
    probe: int
    data: bytes = b""


class Repair(Message, frozen=True):
    """These entries of mine are damaged: who has them? A list of (index, ballot)."""

    wanted: tuple[tuple[int, Ballot], ...]


class Repaired(Message, frozen=True):
    """Entries for `Repair`; filled in from `indexes` when it is sent."""

    indexes: tuple[int, ...]
    entries: tuple[Entry, ...] = ()


class Join(Message, frozen=True):
    """From a member that is new or lost its disk: take me in."""


class Durable(Message, frozen=True):
    """To oneself, when everything before is on disk: the log, a promise, a snapshot."""

    index: int
    epoch: int
    promised: Ballot
    installed: Mark | None = None


# ---- events ------------------------------------------------------------------------------------


class Event(msgspec.Struct, frozen=True):
    """From whoever runs the core."""


class Tick(Event, frozen=True):
    """Time went on by one tick; `rand` is a fresh random number in [0, 1)."""

    rand: float


class Gone(Event, frozen=True):
    """A hint: nobody is where this node was reached, as when its process was killed."""

    node: int


class Propose(Event, frozen=True):
    """Values for the log, in this order. Taken whole or refused whole."""

    values: tuple[bytes, ...]


class Read(Event, frozen=True):
    """A linearizable read: `Effects.reads` says from which index on the state may answer."""

    token: Any


class Change(Event, frozen=True):
    """Other members: at most one voter more or less."""

    members: Members


class Compact(Event, frozen=True):
    """The caller has a snapshot up to `index` on disk; keep the last `keep` entries before it."""

    index: int
    keep: int = 0


class Damaged(Event, frozen=True):
    """The storage found the value of this entry damaged."""

    index: int


# ---- writes ------------------------------------------------------------------------------------


class Write(msgspec.Struct, frozen=True):
    """One change of what is on disk. Writes take effect in their order."""


class Promised(Write, frozen=True):
    """The highest ballot promised."""

    ballot: Ballot


class Append(Write, frozen=True):
    """Entries after the last one."""

    entries: tuple[Entry, ...]


class Truncate(Write, frozen=True):
    """Entries from this index on are gone."""

    index: int


class Fill(Write, frozen=True):
    """A damaged entry, whole again."""

    entry: Entry


class CompactTo(Write, frozen=True):
    """A snapshot of the caller's counts; the log begins after `base`."""

    mark: Mark
    base: Mark


class InstallSnapshot(Write, frozen=True):
    """A snapshot from another member; with `keep` the entries after it stay."""

    mark: Mark
    keep: bool
    data: bytes


# ---- effects -----------------------------------------------------------------------------------


class Effects:
    """What one step asks for.

    `sends` may go at once. `writes` go to disk in order; `after` is sent when these writes *and
    all of earlier steps* are on disk, those to oneself are given back to `step`.
    """

    __slots__ = ("after", "decided", "failed", "installed", "proposed", "reads", "refusal",
                 "sends", "writes")  # fmt: skip

    def __init__(self) -> None:
        self.sends: list[Message] = []
        self.writes: list[Write] = []
        self.after: list[Message] = []
        self.decided: tuple[int, int] | None = None
        """Entries (first, last], now decided and on this disk: apply them in order."""
        self.installed: Mark | None = None
        """Load the state of this snapshot before anything else is applied."""
        self.reads: list[tuple[Any, int]] = []
        """(token, index): answer from a state that has applied `index` or more."""
        self.failed: list[Any] = []
        """Tokens of reads that this replica cannot answer: ask the leader."""
        self.proposed: tuple[int, Ballot] | None = None
        """Index of the first value of `Propose`, and their ballot. What is decided at that index
        with another ballot is not it: it was lost."""
        self.refusal: str | None = None
        """Why `Propose` or `Change` changed nothing."""
