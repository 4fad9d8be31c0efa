"""Aggregates of a window that moves: each sub-window is read once, not once a slide.

    parts    of each sub-window: its version and its state (one read of its rows)
    front    states of [p, split] for each p up to `split`: the older half, joined from its end
    back     the state of (split, newest]

    a slide  reads the sub-window that closed, joins it to `back`; the answer is
             join(front[oldest], back). When the front is used up, everything becomes front: every
             state is joined about three times in its life, however long the window is (two stacks)
    late     a row that came to an older sub-window gives it another version: that one is read
             again, and what was joined with it is joined again

So the answer is that of a full rescan at every slide, in whatever order rows come. A function that
says not how states join, and rows that count only while none of their key came later, have a full
rescan. For one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tideline.stream.mappers import Mapper
from tideline.stream.memory import Sub
from tideline.stream.reading import Asked

__all__ = ["Sliding", "folded"]


def folded(mapper: Mapper, subs: Sequence[Sub], asked: Asked) -> Any:
    """The state of all rows that are meant: a rescan."""
    state = mapper.empty()
    for place, sub in enumerate(subs):
        for run in asked.rows(sub, subs[place + 1 :], ordered=mapper.ordered):
            state = mapper.of(run, state)
    return state


class Sliding:
    """One aggregate of a window of so many sub-windows."""

    def __init__(self, mapper: Mapper, asked: Asked, panes: int) -> None:
        self._mapper = mapper
        self._asked = asked
        self._panes = panes
        self._parts: dict[int, tuple[int, Any]] = {}
        self._front: dict[int, Any] = {}
        self._split = self._newest = -(1 << 62)
        self._back: Any = mapper.empty()
        self.reads = 0
        """Sub-windows that were read."""
        self.joins = 0
        """States that were joined."""

    def slide(self, subs: Sequence[Sub], pane: int) -> Any:
        """The result over the sub-windows up to `pane`, which never goes back."""
        mapper = self._mapper
        if not (mapper.joins and self._asked.alone):
            self.reads += len(subs)
            return mapper.result(folded(mapper, subs, self._asked))
        try:
            return mapper.result(self._slid(subs, pane))
        except BaseException:
            # A function of the user's raised, or a signal did: what is half joined is forgotten.
            self._parts, self._front, self._back = {}, {}, mapper.empty()
            self._split = self._newest = -(1 << 62)
            raise

    def _slid(self, subs: Sequence[Sub], pane: int) -> Any:
        oldest = pane - self._panes + 1
        changed = self._read(subs)
        for gone in [n for n in self._parts if n < oldest]:
            del self._parts[gone]
        if oldest > self._split:
            self._flip(oldest, pane)
        else:
            self._join_again(changed, oldest, pane)
        self._newest = pane
        return self._join(self._front[oldest], self._back)

    def _read(self, subs: Sequence[Sub]) -> list[int]:
        """Read what is new or has changed; which sub-windows those are."""
        changed = []
        for sub in subs:
            known = self._parts.get(sub.pane)
            if known is None or known[0] != sub.version:
                self.reads += 1
                state = folded(self._mapper, [sub], self._asked)
                self._parts[sub.pane] = sub.version, state
                changed.append(sub.pane)
        return changed

    def _state(self, pane: int) -> Any:
        known = self._parts.get(pane)
        return self._mapper.empty() if known is None else known[1]

    def _flip(self, oldest: int, pane: int) -> None:
        self._front, self._split = {}, pane
        self._back = self._mapper.empty()
        self._fill(oldest, pane)

    def _fill(self, oldest: int, top: int) -> None:
        """Join the front from `top` down."""
        after = self._front.get(top + 1)
        for pane in range(top, oldest - 1, -1):
            own = self._state(pane)
            after = own if after is None else self._join(own, after)
            self._front[pane] = after

    def _join_again(self, changed: list[int], oldest: int, pane: int) -> None:
        for gone in [n for n in self._front if n < oldest]:
            del self._front[gone]
        late = [n for n in changed if n <= self._split]
        if late:
            self._fill(oldest, max(late))
        if any(self._split < n <= self._newest for n in changed):
            self._back = self._mapper.empty()
            first = self._split + 1
        else:
            first = self._newest + 1
        for each in range(first, pane + 1):
            if each in self._parts:
                self._back = self._join(self._back, self._state(each))

    def _join(self, older: Any, newer: Any) -> Any:
        self.joins += 1
        return self._mapper.join(older, newer)
