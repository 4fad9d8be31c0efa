"""What a client of NATS must know itself: which subscriptions are live, and what is still due.

The server pushes and says nothing at the end. So the client keeps, for each place, the number in
the stream of what was acknowledged and when; a subscription lacks something while it has not got
the newest event that is surely inside its window. All times are the wall clock's microseconds.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Watch", "Watches"]


@dataclass
class Watch:
    """A live subscription."""

    id: int
    place: bytes
    since: int
    until: int
    last: int = 0
    """The newest event it got, by its number in the stream."""
    seen: set[int] = field(default_factory=set)
    """What it got, where things come by two ways."""


class Watches:
    """The live subscriptions of a client.

    >>> watches = Watches()
    >>> watches.add(Watch(7, b"a", since=100, until=200))
    >>> watches.stored(b"a", number=1, now=150, age_us=1_000)
    >>> watches.lacking(edge=10)
    True
    >>> watches.get(7).last = 1
    >>> watches.lacking(edge=10), [watch.id for watch in watches.over(200)]
    (False, [7])
    """

    def __init__(self) -> None:
        self._all: dict[int, Watch] = {}
        self._at: dict[bytes, set[int]] = {}
        self._stored: dict[bytes, tuple[list[int], list[int]]] = {}
        self._ends: list[tuple[int, int]] = []
        self._open: set[bytes] = set()  # places where something may be due

    def add(self, watch: Watch) -> None:
        """One more."""
        self._all[watch.id] = watch
        self._at.setdefault(watch.place, set()).add(watch.id)
        heapq.heappush(self._ends, (watch.until, watch.id))
        self._open.add(watch.place)

    def get(self, id: int) -> Watch | None:
        """One of them, if its window is not over."""
        return self._all.get(id)

    def remove(self, id: int) -> Watch | None:
        """Forget one before its end."""
        watch = self._all.pop(id, None)
        if watch is not None:
            self._at[watch.place].discard(id)
        return watch

    def over(self, now: int) -> Iterator[Watch]:
        """Those whose window is over; they are forgotten."""
        while self._ends and self._ends[0][0] <= now:
            watch = self.remove(heapq.heappop(self._ends)[1])
            if watch is not None:
                yield watch

    def stored(self, place: bytes, number: int, now: int, age_us: int) -> None:
        """An event was acknowledged."""
        numbers, times = self._stored.setdefault(place, ([], []))
        numbers.append(number)
        times.append(now)
        self._open.add(place)
        if len(times) > 64 and times[32] < now - 2 * age_us:
            del numbers[:32], times[:32]

    def lacking(self, edge: int) -> bool:
        """Whether one has not got the newest event that is `edge` or more inside its window."""
        for place in list(self._open):
            numbers, times = self._stored.get(place, ([], []))
            for id in self._at.get(place, ()):
                watch = self._all[id]
                first = bisect_left(times, watch.since + edge)
                upto = bisect_right(times, watch.until - edge)
                if first < upto and numbers[upto - 1] > watch.last:
                    return True
            self._open.discard(place)
        return False
