"""The sort stage: a part of what meets a condition, in order, kept up to date write by write.

    items     the first of all that meet the condition, in order
              [ offset | result, up to `limit` | slack ]
    lacking   an item of the result is not known: `renew` with what the collection has

What leaves the result or the offset is replaced from the slack. Everything up to a sort key, the
horizon, is known; what is written beyond it is forgotten, unless all there is is known (`whole`).
So an item from beyond comes in only by a renewal, which is needed when all of the slack was used
up.

One write changes one item, and moves at most one other item into the result and one out of it:
`apply` tells these, each with positions that hold when the changes before it were applied.

Pure; the hub's lock guards it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tideline.live.difference import added, changed, ordered, removed
from tideline.live.item import Item
from tideline.live.notes import REMOVE, Note
from tideline.model import LiveChange
from tideline.where.keys import decode

__all__ = ["Rank", "Ranked", "Window", "ranked"]

Ranked = tuple[Any, Item]
"""A sort key, of which no two are equal, and its item."""
Rank = Callable[[bytes, int], Any]
"""The sort key of a document, a JSON text that was written with a seq."""


class Window:
    """The first items of an order."""

    __slots__ = ("_horizon", "_items", "_keys", "_ranks", "_shown", "high", "lacking", "low",
                 "rank", "room", "whole")  # fmt: skip

    def __init__(self, rank: Rank, offset: int, limit: int | None, slack: int) -> None:
        self.rank = rank
        self.low = offset
        self.high = None if limit is None else offset + limit
        self.room = None if limit is None else offset + limit + slack
        """How many items are kept; None for all."""
        self._ranks: list[Any] = []
        self._items: list[Item] = []
        self._keys: dict[Any, Any] = {}  # key -> sort key
        self._shown: list[Item] = []  # while it lacks something: the last result that was right
        self._horizon: Any = None
        self.whole = True
        self.lacking = False

    def fill(self, items: Iterable[Ranked], whole: bool, horizon: Any = None) -> None:
        """Begin with the first items in order, which are all there are up to the horizon.

        `whole`: there are no others at all. Without a horizon, it is the last item.
        """
        pairs = list(items)
        self._ranks = [rank for rank, _ in pairs]
        self._items = [item for _, item in pairs]
        self._keys = {item.key: rank for rank, item in pairs}
        self.whole, self.lacking, self._shown = whole, False, []
        self._horizon = horizon
        if horizon is None and pairs:
            self._horizon = self._ranks[-1]
        self._cut()

    def renew(self, items: Iterable[Ranked], whole: bool, version: int) -> list[LiveChange]:
        """Begin anew at a version; what that changes in the result that was told last."""
        had = self.shown()
        self.fill(items, whole)
        return ordered(had, self.shown(), version)

    def identity(self, item: Item) -> Any:
        """What tells an item from others."""
        return item.key

    def shown(self) -> list[Item]:
        """The result that was told last."""
        return self._shown if self.lacking else self._items[self.low : self.high]

    def forget(self) -> None:
        """What was written is not known: it lacks something until it is renewed."""
        if not self.lacking:
            self._shown, self.lacking = self.shown(), True

    def __len__(self) -> int:
        return len(self._items)

    def note(self, note: Note) -> list[LiveChange]:
        """A write that concerns it; what changes."""
        return self.apply(decode(note.key), note.new if note.kind != REMOVE else None, note.seq)

    def apply(self, key: Any, raw: bytes | None, seq: int) -> list[LiveChange]:
        """A document meets the condition from now on, with this text, or no more; what changes."""
        if self.lacking:
            return []
        before = self._keys.get(key)
        if before is None and raw is None:
            return []
        items, low, high = self._items, self.low, self.high
        old = None if before is None else bisect_left(self._ranks, before)
        item = None if raw is None else Item(key, raw)
        rank = None if raw is None else self.rank(raw, seq)
        first = items[low] if len(items) > low else None  # before, as `last`
        last = items[high - 1] if high is not None and len(items) >= high else None
        was = None if old is None else items[old]
        if high is not None and not self.whole and len(items) <= high:
            self._shown = items[low:high]  # it may be the last that is right
        if old is not None:
            del self._ranks[old], items[old], self._keys[key]
        new = None
        if item is not None and (self.whole or not self._horizon < rank):
            new = bisect_left(self._ranks, rank)
            self._ranks.insert(new, rank)
            items.insert(new, item)
            self._keys[key] = rank
            self._cut()
        if high is not None and not self.whole and len(items) < high:
            self.lacking = True
            return []
        self._shown = []
        return self._told(seq, old, new, was, item, first, last)

    def _told(
        self, seq: int, old: int | None, new: int | None, was: Item | None, item: Item | None,
        first: Item | None, last: Item | None,
    ) -> list[LiveChange]:  # fmt: skip
        """What a write changed: the item was at `old` and is at `new`."""
        low, high, items = self.low, self.high, self._items
        from_side, to_side = self._side(old), self._side(new)
        made: list[LiveChange] = []
        if from_side == to_side:
            if not from_side and was is not None and item is not None:
                made.append(changed(was, item, seq, _less(old, low), _less(new, low)))
            return made
        # What leaves the result: the item itself, or what it pushes over an end.
        if not from_side:
            leaves, place = was, _less(old, low)
        else:
            leaves, place = (first, 0) if from_side < 0 else (last, _less(high, low + 1))
        if leaves is not None:
            made.append(removed(leaves, seq, place))
        # What comes: the item itself, or what moves in over an end.
        if not to_side:
            comes, place = item, _less(new, low)
        elif to_side < 0:
            comes, place = (items[low] if len(items) > low else None), 0
        else:
            full = high is not None and len(items) >= high
            place = _less(high, low + 1)
            comes = items[low + place] if full and place is not None else None
        if comes is not None:
            made.append(added(comes, seq, place))
        return made

    def _side(self, place: int | None) -> int:
        """Whether a place is before the result (-1), in it, or after it (1), as no place is."""
        if place is None or (self.high is not None and place >= self.high):
            return 1
        return -1 if place < self.low else 0

    def _cut(self) -> None:
        room = self.room
        if room is not None and len(self._items) > room:
            for item in self._items[room:]:
                del self._keys[item.key]
            del self._items[room:], self._ranks[room:]
            self.whole, self._horizon = False, self._ranks[-1]


def ranked(items: Sequence[Item], seqs: Sequence[int], rank: Rank) -> list[Ranked]:
    """Items with their sort keys, in order."""
    pairs = [(rank(item.raw, seq), item) for item, seq in zip(items, seqs, strict=True)]
    pairs.sort(key=_first)
    return pairs


def _first(pair: Ranked) -> Any:
    return pair[0]


def _less(place: int | None, offset: int) -> int | None:
    return None if place is None else place - offset
