"""How long the log is kept to be read, when recovery needs it no more.

    segments   ... | kept to be read | needed for recovery | appended to
                   ^ kept            ^ first

A segment is kept while its end is younger than the span. When it ended is noted by whoever looks
first after it was closed; the owner saves the notes with its facts. Time is the owner's: the
newest time of a channel, the clock of a collection.

The owner's lock is held during every call.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Retention"]


class Retention:
    """When each closed segment of one log ended.

    >>> kept = Retention([], kept=1)
    >>> kept.first_kept(first=3, current=4, now=100, span=50)   # 1, 2 and 3 have just ended
    1
    >>> kept.first_kept(first=4, current=4, now=151, span=50)
    4
    >>> kept.first_kept(first=4, current=4, now=100, span=0)    # what recovery needs, no more
    4
    """

    def __init__(self, ends: Iterable[tuple[int, int]], *, kept: int) -> None:
        """`ends` is what `to_json` gave; `kept` the first segment there is."""
        self._ends: dict[int, int] = dict(ends)
        self.kept = kept
        """Earlier segments are let go, though the manifest that says so may not be saved yet."""

    def first_kept(self, *, first: int, current: int, now: int, span: int) -> int:
        """The first segment to keep.

        `first` is the first that recovery needs, `current` the one that is appended to; `span`
        is in the units of `now`, 0 for nothing beyond recovery.
        """
        for segment in range(self.kept, current):
            self._ends.setdefault(segment, now)
        if not span:
            return first
        horizon = now - span
        return min([first, *(segment for segment, end in self._ends.items() if end >= horizon)])

    def let_go(self, before: int) -> None:
        """Segments with a lower number are about to be deleted."""
        self._ends = {segment: end for segment, end in self._ends.items() if segment >= before}
        self.kept = before

    def to_json(self) -> list[tuple[int, int]]:
        """What the manifest keeps of it."""
        return list(self._ends.items())
