"""What a node keeps the same everywhere (`Machine`), and what who proposes is told (`Proposal`).

Proposal    waiting -> decided, or lost, or not known here
NotLeader   another node leads: ask that one; nothing was proposed
Lost        decided otherwise: this value, or the end of these values, never counts
OutcomeUnknown   it was proposed, and may still be decided, or has been: read before a retry
"""

from __future__ import annotations

import threading
from typing import Protocol

from tideline.errors import Unavailable
from tideline.replica.messages import Ballot, Entry, Mark

__all__ = ["Lost", "Machine", "NotLeader", "OutcomeUnknown", "Proposal"]


class NotLeader(Unavailable):
    """This node does not lead, or not yet. `leader` does, if that is known.

    >>> NotLeader("another node leads", leader=2).leader
    2
    """

    def __init__(self, message: str, *, leader: int | None) -> None:
        self.leader = leader
        super().__init__(message, leader=leader)


class Lost(Unavailable):
    """The values were proposed, and another leader's were decided in their place. They never count.

    `kept` is how many of the values of the proposal, from the first on, were decided all the same.
    """

    def __init__(self, message: str, *, index: int, kept: int = 0) -> None:
        self.kept = kept
        super().__init__(message, index=index, kept=kept)


class OutcomeUnknown(Unavailable):
    """The values were proposed, and it is not known (yet) whether they are decided.

    Time ran out, the node stopped, or a snapshot passed the place where they stood. They may count
    now, later, or never: look before you propose them again.
    """


class Machine(Protocol):
    """What a group keeps the same everywhere.

    Called from the node's apply thread: in order, never two calls at once, no lock held. Where it
    has an attribute `quick` that is true, `apply` is also called from other threads of the node,
    with a few entries, and holds them up: then it takes microseconds, and waits for nothing. An
    exception other than `NotImplementedError` from `snapshot` ends the group on this node, as a
    broken disk would: `Node.status` says why.

    After a start the state is that of the newest snapshot (`install`), or none; all entries after
    it come again. A machine with a disk of its own skips what it has.

    One that leaves values where they are in the log (`Node.place`) may have `retain(segment)`: it
    is called with the path of a segment before that is deleted, from any thread, also where a
    snapshot passed entries that were not applied here.
    """

    def apply(self, entries: list[Entry]) -> None:
        """Take decided entries, in order, each exactly once after `install` or the start.

        Only what was proposed by `Node.propose` comes (kind `DATA`): indexes rise, with gaps.
        """

    def snapshot(self) -> bytes:
        """The state as of the last applied entry, for those who lack the log before it.

        `NotImplementedError`: the node never asks again, and never compacts this group's log.
        """

    def install(self, mark: Mark, state: bytes) -> None:
        """Replace the state by one that `snapshot` gave, here or on another node, at `mark`."""

    def role(self, leads: bool, leader: int | None) -> None:
        """Told at every change, in order with `apply`.

        `leads` is true only after everything that any leader before acknowledged was applied; from
        then on `propose` works. When it is false again, what was proposed and not decided may
        be lost, or come later by `apply`.
        """


class Proposal:
    """Values that were proposed, at [`index`, `index + count`) with `ballot`.

    Safe from any thread.
    """

    __slots__ = ("_done", "_error", "ballot", "count", "index")

    def __init__(self, index: int, ballot: Ballot, count: int) -> None:
        self.index, self.ballot, self.count = index, ballot, count
        self._done = threading.Event()
        self._error: Unavailable | None = None

    def __lt__(self, other: Proposal) -> bool:
        """For a heap: which is decided first."""
        return self.last < other.last

    @property
    def last(self) -> int:
        """The index of the last value."""
        return self.index + self.count - 1

    @property
    def done(self) -> bool:
        """Whether `wait` returns at once."""
        return self._done.is_set()

    def resolve(self, error: Unavailable | None = None) -> None:
        """The node's: it is decided, or why not."""
        self._error = error
        self._done.set()

    def wait(self, timeout: float | None = None) -> None:
        """Return when the values are decided: a majority has them on disk, and nothing takes them
        back. They may not be applied here yet: `Node.read_index` waits for that.

        `Lost` when they were decided otherwise; `OutcomeUnknown` when that is not known after
        `timeout` seconds, or never will be. A leader that lost its role goes on waiting: its
        values may still be decided by the next.
        """
        if not self._done.wait(timeout):
            raise OutcomeUnknown("it is not decided yet", index=self.index, timeout_s=timeout)
        if self._error is not None:
            raise self._error
