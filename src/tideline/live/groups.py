"""The stage of groups: count, sum, avg, min and max by some fields, kept up to date.

    Group     values that its documents share, how many there are, and a state for each measure
    result    one document a group, in the order of the values: {"shop": 7, "count": 3, ...}

What is told equals `aggregate([{"$match": where}, {"$group": {"_id": ["$shop"], ...}}])` at every
version: sums are exact (documents/sums.py), so adding and taking away leaves nothing behind. Of
`min` and `max` every value of a group is kept, in order, with how often it is there. A group
without documents is gone.

Pure; the hub's lock guards it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any

import msgspec

from tideline.documents.expressions import Expression, at_path
from tideline.documents.sums import ExactSum
from tideline.live.difference import added, changed, ordered, removed
from tideline.live.item import Item
from tideline.live.notes import ADD, REMOVE, Note
from tideline.live.query import GroupQuery
from tideline.model import LiveChange
from tideline.where.build import path_of
from tideline.where.order import Key, sort_key
from tideline.where.values import MISSING

__all__ = ["Groups"]

_NUMBERS = frozenset((int, float))
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
Document = dict[str, Any]


class _Values:
    """Values in order, each with how often it is there."""

    __slots__ = ("_counts", "_keys")

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._counts: dict[Key, list[Any]] = {}  # key -> count, value

    def add(self, value: Any) -> None:
        if value is None or value is MISSING:
            return
        key = sort_key(value)
        found = self._counts.get(key)
        if found is None:
            insort(self._keys, key)
            self._counts[key] = [1, value]
        else:
            found[0] += 1

    def remove(self, value: Any) -> None:
        if value is None or value is MISSING:
            return
        key = sort_key(value)
        found = self._counts[key]
        found[0] -= 1
        if not found[0]:
            del self._counts[key], self._keys[bisect_left(self._keys, key)]

    def at(self, place: int) -> Any:
        return self._counts[self._keys[place]][1] if self._keys else None


class _Group:
    __slots__ = ("count", "item", "states", "values")

    def __init__(self, values: list[Any], states: list[Any]) -> None:
        self.values = values
        self.states = states
        self.count = 0
        self.item: Item | None = None  # as it was told last


class Groups:
    """The groups of one query."""

    def __init__(self, query: GroupQuery) -> None:
        self._query = query
        self._by = [_reader(field) for field in query.by]
        fields = dict.fromkeys(each.field for each in query.measures if each.kind != "count")
        summed = {each.field for each in query.measures if each.kind in ("sum", "avg")}
        ranked = {each.field for each in query.measures if each.kind in ("min", "max")}
        # Each field is read once and has a sum, an order, or both.
        self._reads = [_reader(field) for field in fields]
        self._kinds = [(field in summed, field in ranked) for field in fields]
        places = {field: place for place, field in enumerate(fields)}
        self._columns = [
            (each.name, each.kind, places.get(each.field, -1)) for each in query.measures
        ]
        self._order: list[Key] = []
        self._groups: dict[Key, _Group] = {}
        self.lacking = False
        """It needs to begin anew: what was written is not known."""

    def fill(self, texts: Iterable[bytes]) -> None:
        """Begin with all documents that meet the condition."""
        self._order, self._groups, self.lacking = [], {}, False
        for text in texts:
            self._add(_decode(text))
        self._order = sorted(self._groups)
        for group in self._groups.values():
            group.item = self._item(group)

    def renew(self, texts: Iterable[bytes], version: int) -> list[LiveChange]:
        """Begin anew at a version; what that changes in the result that was told last."""
        had = self.shown()
        self.fill(texts)
        return ordered(had, self.shown(), version, self.identity)

    def identity(self, item: Item) -> Any:
        """What tells a group from others: keys of two may be equal, as 1 and true are."""
        values = tuple(sort_key(item.document[field]) for field in self._query.by)
        return values, item.key

    def shown(self) -> list[Item]:
        """The result that was told last."""
        found = [self._groups[key].item for key in self._order]
        return [item for item in found if item is not None]

    def __len__(self) -> int:
        return len(self._order)

    def note(self, note: Note) -> list[LiveChange]:
        """A write that concerns it; what changes."""
        old = b"" if note.kind == ADD else note.old
        return self.apply(old, b"" if note.kind == REMOVE else note.new, note.seq)

    def apply(self, old: bytes, new: bytes, seq: int) -> list[LiveChange]:
        """A document that met the condition is another one that does; empty text is none."""
        touched: list[Key] = []
        if old:
            touched.append(self._remove(_decode(old)))
        if new:
            key = self._add(_decode(new))
            if key not in touched:
                touched.append(key)
        made: list[LiveChange] = []
        for key in touched:
            group = self._groups[key]
            place = bisect_left(self._order, key)
            before = group.item
            if not group.count:
                del self._groups[key]
                if before is not None:
                    del self._order[place]
                    made.append(removed(before, seq, place))
                continue
            group.item = item = self._item(group)
            if before is None:
                self._order.insert(place, key)
                made.append(added(item, seq, place))
            elif before.raw != item.raw:
                made.append(changed(before, item, seq, place, place))
        return made

    def _add(self, document: Document) -> Key:
        values = [read(document) for read in self._by]
        key = tuple(map(sort_key, values))
        group = self._groups.get(key)
        if group is None:
            states = [
                (ExactSum() if summed else None, _Values() if ranked else None)
                for summed, ranked in self._kinds
            ]
            shown = [None if value is MISSING else value for value in values]
            group = self._groups[key] = _Group(shown, states)
        group.count += 1
        for read, (total, order) in zip(self._reads, group.states, strict=True):
            value = read(document)
            if total is not None and type(value) in _NUMBERS:
                total.add(value)
            if order is not None:
                order.add(value)
        return key

    def _remove(self, document: Document) -> Key:
        key = tuple(sort_key(read(document)) for read in self._by)
        group = self._groups[key]
        group.count -= 1
        for read, (total, order) in zip(self._reads, group.states, strict=True):
            value = read(document)
            if total is not None and type(value) in _NUMBERS:
                total.remove(value)
            if order is not None:
                order.remove(value)
        return key

    def _item(self, group: _Group) -> Item:
        document: Document = dict(zip(self._query.by, group.values, strict=True))
        for name, kind, place in self._columns:
            if kind == "count":
                document[name] = group.count
                continue
            total, order = group.states[place]
            if kind == "sum":
                document[name] = total.result()
            elif kind == "avg":
                document[name] = total.mean()
            else:
                document[name] = order.at(0 if kind == "min" else -1)
        key = group.values[0] if self._query.single else tuple(group.values)
        return Item(_hashable(key), _encode(document), document)


def _reader(field: str) -> Expression:
    return at_path(path_of(field, field))


def _hashable(value: Any) -> Any:
    """A value that a group is known by: an array or an object as its text."""
    if isinstance(value, tuple):
        return tuple(map(_hashable, value))
    return _encode(value).decode() if isinstance(value, (list, dict)) else value
