"""Rows of a window that meet a condition: by the indexes of their runs, else by looking at each.

    condition --bounds--> boxes: what must hold together (where/bounds.py)
    a run     of each box the index that promises the fewest candidates gives positions; a run
              of few rows, and a box that no index serves, are gone through
    a tail    the same, with indexes that know its rows as far as somebody has asked
    positions -> rows of the keys that are meant -> the condition itself

    ByCondition   the same as what a mapper and a watch ask (reading.py)

With `last`, a row counts only when nothing in its sub-window has its key and came after it. A run
has no two rows of a key then, so what can be newer is in later runs, or in the tail.

Reads only what never changes; safe from any thread.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.index.keyruns import Run, as_codec, sorted_run
from tideline.index.kind import Asked
from tideline.index.rowindex import RowIndexes
from tideline.index.values import joined, plain_values
from tideline.near import did_you_mean
from tideline.stream.memory import Sub, Tail
from tideline.stream.reading import Where, newest, present, where_of
from tideline.stream.settings import Settings
from tideline.where.bounds import Bounds, Box, Need, bounds, common
from tideline.where.parse import Condition, parse
from tideline.where.tree import At, Equals, Node, Not, Test

__all__ = ["ByCondition", "Finder"]

Words = NDArray[np.int64]
_FEW = 256  # rows that are sooner gone through than indexed
_EXACT = 1 << 53  # whole numbers beyond are no doubles
_NONE: Words = np.zeros(0, np.int64)


class Finder:
    """A condition, and how the rows of one window that meet it are found."""

    def __init__(self, where: Any, settings: Settings, indexes: RowIndexes | None) -> None:
        self.condition: Condition = parse({} if where is None else where)
        self._settings = settings
        self._indexes = indexes
        _check_fields(self.condition.tree, settings)
        self._bounds: Bounds = bounds(self.condition)
        self._ways = [self._ways_of(box) for box in self._bounds.boxes]
        self.near = self.condition.near

    def _ways_of(self, box: Box) -> list[tuple[str, Any, bool]]:
        """Fields with an ask that leads to all rows of a box, and whether to no others."""
        found = []
        for field, kind in (self._indexes.kinds if self._indexes else {}).items():
            tests = box.tests.get(field, ())
            if not tests:
                continue
            asked = Asked(box.needs.get(field, ()), tests, lambda: False)
            # Of the choices there are those of one ask: no kind here needs two.
            choices = [asks[0] for asks in kind.serves(asked) if len(asks) == 1]
            alone = len(box.tests) == 1 and not box.needs
            for ask in choices:
                sure = alone and self._bounds.whole and kind.decides_tests and ask.exact
                found.append((field, ask, sure))
        return found

    @property
    def beginning(self) -> tuple[Any, ...]:
        """What the condition says that keys begin with."""
        made: list[Any] = []
        if len(self._bounds.boxes) == 1:
            [box] = self._bounds.boxes
            for name, kind in zip(self._settings.key, self._settings.types, strict=True):
                ranges = common(box.needs[name]) if name in box.needs else ()
                if len(ranges) != 1 or not ranges[0].point or ranges[0].low is None:
                    break
                value = ranges[0].low
                if kind == "text" and isinstance(value, str):
                    made.append(value)
                elif kind == "int" and type(value) in (int, float) and value == int(value):  # type: ignore[call-overload]
                    made.append(int(value))  # type: ignore[call-overload]
                else:
                    break
        return tuple(made)

    # ---- a sub-window ------------------------------------------------------------------------

    def found(
        self, sub: Sub, where: Where, *, last: bool, later: Sequence[Sub] = (),
        first: int | None = None,
    ) -> Run | None:  # fmt: skip
        """The rows of a sub-window, in the order of keys; `first`: at least so many nearest ones.

        `last`: of equal keys only the newest row counts; none with a key that `later` ones have.
        """
        newer: list[Run] = []  # newest first: what is newer is known when a run is looked at
        parts: list[Run] = []

        def counting(rows: Run, places: Words, sure: bool) -> Run:
            part = rows.take(places)
            for other in newer if last else ():
                if part.rows:
                    part = part.take(np.flatnonzero(~present(other, part)))
            if later and part.rows:
                there = newest(later, Run(part.codec, part.keys, ()))[0]
                part = part.take(np.flatnonzero(~there))
            return self._met(part, sure=sure)

        if sub.tail is not None and sub.tail_rows:
            rows = sub.tail.rows(sub.tail_rows)
            of_keys: Run | None = None
            if last:  # positions of the newest rows, by key
                of_keys = sorted_run(rows.codec, rows.keys, [np.arange(rows.rows)], last=True)
            made = []
            for places, sure in self._in_tail(sub.tail, rows, first):
                places = places[where.holds(rows.take(places))]
                if of_keys is not None:
                    places = places[of_keys.values[0][of_keys.find(rows.keys[places])] == places]
                made.append(counting(rows, places, sure))
                if first is not None and sum(part.rows for part in made) >= first:
                    break
            parts += reversed(made)
            if of_keys is not None:
                newer.append(of_keys)
        for run in reversed(sub.runs):
            start, limit = run.span(where.bounds(run.codec))
            made = []
            for places, sure in self._in_run(run, start, limit, first) if start < limit else ():
                if last and not self._settings.last:  # equal keys are neighbours
                    places = places[run.find(run.keys[places]) == places]
                made.append(counting(run, places, sure))
                if first is not None and sum(part.rows for part in made) >= first:
                    break
            parts += reversed(made)
            newer.append(run)
        parts = [part for part in reversed(parts) if part.rows]
        if not parts:
            return None
        codec = parts[-1].codec
        parts = [as_codec(part, codec) for part in parts]
        keys = np.concatenate([part.keys for part in parts])
        values = [joined(each) for each in zip(*(p.values for p in parts), strict=True)]
        return sorted_run(codec, keys, values, last=False)

    def _nearest(self) -> tuple[str, Any, bool] | None:
        """The field and the ask when nearest first is the only order, and an index has it."""
        if self.near is not None and self._indexes is not None and len(self._ways) == 1:
            field = ".".join(self.near.path)
            for name, ask, sure in self._ways[0]:
                if name == field and self._indexes.kinds[name].ordered(field, ask, self.near.order):
                    return name, ask, sure
        return None

    def _in_run(
        self, run: Run, start: int, limit: int, first: int | None
    ) -> Iterator[tuple[Words, bool]]:
        """Positions of a run within [start, limit) that may be meant, and whether all are."""
        indexed = self._indexes is not None and limit - start >= _FEW
        nearest = self._nearest() if indexed and first is not None else None
        if nearest is not None and self._indexes is not None and first is not None:
            field, ask, sure = nearest
            for places in self._indexes.of(run, field).nearest(ask, first):
                yield places[(places >= start) & (places < limit)], sure
            return
        parts: list[Words] = []
        all_sure = bool(self._ways)
        for box, ways in zip(self._bounds.boxes, self._ways, strict=True):
            found = None
            sure = False
            if ways and indexed and self._indexes is not None:
                readers = [(self._indexes.of(run, field), ask, s) for field, ask, s in ways]
                costs = [index.estimate(ask) for index, ask, _ in readers]
                index, ask, sure = readers[costs.index(min(costs))]
                if min(costs) < limit - start:
                    found = index.search(ask)
                    found = found[(found >= start) & (found < limit)]
                    if not sure and box.needs:
                        found = found[self._holding(run.take(found), box)]
            if found is None:
                found, sure = np.flatnonzero(self._holding(run.part(start, limit), box)), False
                found += start
            all_sure &= sure
            parts.append(found)
        yield _union(parts), all_sure

    def _in_tail(
        self, tail: Tail, rows: Run, first: int | None
    ) -> Iterator[tuple[Words, bool]]:  # fmt: skip
        """The same of the rows of a tail."""
        indexed = self._indexes is not None and rows.rows >= _FEW
        nearest = self._nearest() if indexed and first is not None else None
        if nearest is not None and self._indexes is not None and first is not None:
            field, ask, sure = nearest
            column = self._indexes.column(field, rows)
            index = self._indexes.of_tail(tail.indexes, field)
            for places in index.nearest(ask, column, rows.rows, first):
                yield places, sure
            return
        parts: list[Words] = []
        all_sure = bool(self._ways)
        for box, ways in zip(self._bounds.boxes, self._ways, strict=True):
            sure = False
            if ways and indexed and self._indexes is not None:
                field, ask, sure = ways[0]
                index = self._indexes.of_tail(tail.indexes, field)
                found = index.search(ask, self._indexes.column(field, rows), rows.rows)
                if not sure and box.needs:
                    found = found[self._holding(rows.take(found), box)]
            else:
                found = np.flatnonzero(self._holding(rows, box))
            parts.append(found)
            all_sure &= sure
        yield _union(parts), all_sure

    def _holding(self, rows: Run, box: Box) -> NDArray[np.bool_]:
        """Which rows numbers do not rule out: what else is asked, `_met` looks at."""
        kept = np.ones(rows.rows, np.bool_)
        keys = None
        for name, needs in box.needs.items():
            if name in self._settings.names:
                column: Any = rows.values[self._settings.names.index(name)]
            elif name in self._settings.key:
                keys = rows.codec.unpack(rows.keys) if keys is None else keys
                column = keys[self._settings.key.index(name)]
            else:
                continue
            if isinstance(column, np.ndarray) and column.dtype.kind in "iuf":
                for need in needs:
                    kept &= _within(column, need)
        return kept

    def _met(self, rows: Run, *, sure: bool) -> Run:
        """Those that meet the condition."""
        if sure or not rows.rows or not self.condition:
            return rows
        matches = self.condition.matches
        kept = [matches(document) for document in self.documents(rows)]
        return rows if all(kept) else rows.take(np.flatnonzero(kept))

    def documents(self, rows: Run) -> list[dict[str, Any]]:
        """Rows as conditions see them."""
        columns = [
            column if isinstance(column, list) else column.tolist()
            for column in rows.codec.unpack(rows.keys)
        ]
        columns += map(plain_values, rows.values)
        names = [*self._settings.key, *self._settings.names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def metres(self, table: pa.Table) -> NDArray[np.float64]:
        """How far each row is from the point of the `$near`."""
        assert self.near is not None
        near, name = self.near, self.near.path[0]
        places = table[name].to_pylist()
        return np.array([near.metres({name: place}) or 0.0 for place in places], np.float64)


class ByCondition:
    """Rows that meet a condition, among those with some keys.

    Of a `$near` all count that are within its distance: what a mapper makes has no order.
    `is_newest`: only the newest row of each key, of all that is asked, counts.
    """

    def __init__(self, finder: Finder, keys: Any, settings: Settings, *, is_newest: bool) -> None:
        self.finder = finder
        self.keys = where_of(finder.beginning if keys is None else keys, settings)
        self.alone = not is_newest
        self._last = settings.last or is_newest

    def rows(
        self, sub: Sub, later: Sequence[Sub], *, ordered: bool = True, first: int | None = None
    ) -> Sequence[Run]:
        """One part, always in order; `first`: at least so many nearest ones."""
        found = self.finder.found(
            sub, self.keys, last=self._last, later=() if self.alone else later, first=first
        )
        return () if found is None else (found,)


def _union(parts: Sequence[Words]) -> Words:
    if not parts:
        return _NONE
    return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))


_LOW = {False: operator.ge, True: operator.gt}
_HIGH = {False: operator.le, True: operator.lt}


def _within(column: NDArray[Any], need: Need) -> NDArray[np.bool_]:
    """Which numbers lie in one of the ranges; or all, where numpy would not compare exactly."""
    kept = np.zeros(len(column), np.bool_)
    for one in need:
        if one.bracket != "number":
            continue
        ends: list[Any] = [end for end in (one.low, one.high) if end is not None]
        if any(end != end or abs(end) > _EXACT for end in ends) or _wide(column):
            return np.ones(len(column), np.bool_)
        mine = np.ones(len(column), np.bool_)
        if one.low is not None:
            mine &= _LOW[one.low_open](column, float(one.low))  # type: ignore[arg-type]
        if one.high is not None:
            mine &= _HIGH[one.high_open](column, float(one.high))  # type: ignore[arg-type]
        kept |= mine
    return kept


def _wide(column: NDArray[Any]) -> bool:
    if column.dtype.itemsize < 8 or column.dtype.kind == "f" or not len(column):
        return False
    return bool(column.max() > _EXACT or column.min() < -_EXACT)


def _check_fields(node: Node, settings: Settings) -> None:
    """A condition about a field that no row has is a slip; so is one that asks for an object."""
    names = [*settings.key, *settings.names]
    for path, test in _asked(node):
        if isinstance(test, Equals) and type(test.value) is dict:
            raise InvalidRequest(
                "no value of a window is an object: an operator begins with $",
                field=path[0], given=test.value,
            )  # fmt: skip
        if path[0] not in names:
            raise InvalidRequest(
                f"the window has no such field{did_you_mean(path[0], names)}", field=path[0],
                fields=names,
            )  # fmt: skip


def _asked(node: Node) -> list[tuple[tuple[str, ...], Test]]:
    if isinstance(node, At):
        return [(node.path, node.test)] if node.path else []
    if isinstance(node, Not):
        return _asked(node.node)
    return [found for each in node.nodes for found in _asked(each)]
