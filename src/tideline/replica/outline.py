"""What the core knows of its log: everything but the values.

    base < first ... last      base: the last entry that is not kept (a Mark)
    runs                       [(first index, ballot), ...]: ballots only rise along a log
    ends                       of the values, if they stood end to end: in bytes
    members                    [(index, Members), ...]: the last one counts, decided or not
    holes                      indexes whose value is damaged on this disk; their ballot is known

Values stay in storage: a message names a range of indexes, and whoever sends it reads them.

One thread at a time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from tideline.replica.messages import MEMBERS, Ballot, Entry, Mark, Members

__all__ = ["Outline"]


class Outline:
    """Indexes and ballots of a log.

    >>> from tideline.replica.messages import DATA, Member
    >>> one = Members((Member(1, 1),))
    >>> log = Outline(Mark(0, Ballot(0, 0, 0), one))
    >>> log.append(Entry(1, Ballot(1, 1, 1), DATA, b"a"))
    >>> log.append(Entry(2, Ballot(3, 1, 1), DATA, b"b"))
    >>> log.last, log.last_ballot.round, log.run_start(2)
    (2, 3, 2)
    """

    def __init__(self, base: Mark, entries: Iterable[Entry] = ()) -> None:
        self.base = base
        self.last = base.index
        self.holes: set[int] = set()
        self._starts: list[int] = []
        self._ballots: list[Ballot] = []
        self._ends = array("Q")
        self._start = 0  # where the first one begins
        self._members: list[tuple[int, Members]] = []
        for entry in entries:
            self.append(entry)

    @property
    def last_ballot(self) -> Ballot:
        """Of the last entry."""
        return self._ballots[-1] if self._ballots else self.base.ballot

    @property
    def members(self) -> Members:
        """Who takes part by the last entry that says so."""
        return self._members[-1][1] if self._members else self.base.members

    @property
    def members_index(self) -> int:
        """Which entry that is; the base's index when it is none of the kept ones."""
        return self._members[-1][0] if self._members else self.base.index

    def members_at(self, index: int) -> Members:
        """Who took part at an index."""
        found = self.base.members
        for at, members in self._members:
            if at <= index:
                found = members
        return found

    def mark(self, index: int) -> Mark:
        """The log up to an index, as a mark."""
        ballot = self.ballot_at(index)
        assert ballot is not None
        return Mark(index, ballot, self.members_at(index))

    def ballot_at(self, index: int) -> Ballot | None:
        """None for an index that is not in the log (any more)."""
        if index <= self.base.index:
            return self.base.ballot if index == self.base.index else None
        if index > self.last:
            return None
        return self._ballots[bisect_right(self._starts, index) - 1]

    def run_start(self, index: int) -> int:
        """The first index around here with the ballot of this one."""
        if index <= self.base.index:
            return index
        return self._starts[bisect_right(self._starts, index) - 1]

    def append(self, entry: Entry) -> None:
        """One more."""
        assert entry.index == self.last + 1, (entry.index, self.last)
        members = Members.decode(entry.value) if entry.kind == MEMBERS else None
        self.add(entry.ballot, len(entry.value), members)

    def add(self, ballot: Ballot, size: int, members: Members | None = None) -> None:
        """`append` for whoever knows what there is to know of the entry."""
        self.last += 1
        if not self._ballots or self._ballots[-1] != ballot:
            self._starts.append(self.last)
            self._ballots.append(ballot)
        self._ends.append(self._end_of(self.last - 1) + size)
        if members is not None:
            self._members.append((self.last, members))

    def truncate(self, index: int) -> None:
        """Entries from `index` on are gone."""
        assert index > self.base.index
        self.last = min(self.last, index - 1)
        while self._starts and self._starts[-1] >= index:
            self._starts.pop()
            self._ballots.pop()
        del self._ends[max(0, index - 1 - self.base.index) :]
        while self._members and self._members[-1][0] >= index:
            self._members.pop()
        self.holes = {hole for hole in self.holes if hole < index}

    def rebase(self, mark: Mark) -> None:
        """The log begins after this mark; what is behind it stays if the mark is in the log."""
        if self.ballot_at(mark.index) != mark.ballot:
            self.__init__(mark)  # type: ignore[misc]
            return
        keep = bisect_right(self._starts, mark.index + 1) - 1
        self._starts, self._ballots = self._starts[max(keep, 0) :], self._ballots[max(keep, 0) :]
        if mark.index == self.last:
            self._starts, self._ballots = [], []
        elif self._starts:
            self._starts[0] = max(self._starts[0], mark.index + 1)
        self._start = self._end_of(mark.index)
        del self._ends[: mark.index - self.base.index]
        self._members = [one for one in self._members if one[0] > mark.index]
        self.holes = {hole for hole in self.holes if hole > mark.index}
        self.base = mark

    def _end_of(self, index: int) -> int:
        at = index - self.base.index
        return self._ends[at - 1] if at > 0 else self._start

    def size(self, first: int, last: int) -> int:
        """Bytes of the values [first, last], which are in the log."""
        return self._end_of(last) - self._end_of(first - 1)

    def fit(self, first: int, last: int, size_bytes: int) -> int:
        """How far from `first` on values of this many bytes reach; at least one, none damaged."""
        first = max(first, self.base.index + 1)
        limit = self._end_of(first - 1) + size_bytes
        reach = self.base.index + bisect_right(self._ends, limit)
        last = max(min(last, reach), min(first, last))
        if self.holes:
            last = min([last, *(hole - 1 for hole in self.holes if first <= hole <= last)])
        return last

    def count_back(self, index: int, size_bytes: int) -> int:
        """How many values, the last at `index`, take no more than this many bytes."""
        low = self._end_of(index) - size_bytes
        skipped = 0 if self._start >= low else bisect_left(self._ends, low) + 1
        return max(0, index - self.base.index - skipped)
