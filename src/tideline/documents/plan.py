"""Which way to the documents that meet a condition.

    condition -> where.bounds: boxes of needs -> for each box one *way* -> cheapest for all

What ways there are is in ways.py; intersection.py combines several indexes. What an index can
serve, and what that would take, its kind says. The plan carries the kind's asks and does not look
into them.

Invariants:
1. A way finds every document that meets its box, and perhaps others: the condition is held
   against each of them again, so a plan may be dear but never wrong.
2. A kind may rely on that no document has an array at a field (`joined`).
3. The filter's range leaves out whole components. It may always be joined: a component that
   lies outside of one need has no document for the other either.

Pure functions of what they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from tideline.documents.intersection import intersection
from tideline.documents.ways import FOLLOWED, GATHERED, LOOKED, TAKEN, Span, Way
from tideline.index.compound import SEPARATOR, parts_of
from tideline.index.kind import Ask, Asked, Estimate, IndexKind
from tideline.index.ranges import encoded
from tideline.where.bounds import Bounds, Box, bounds, common
from tideline.where.parse import Condition

__all__ = ["SCAN", "Plan", "plan", "through"]

_TRIED = 16
"""So many candidates are expected to be looked at for each that meets a condition which its index
knows only a part of."""

_GUESS = 0.1
"""The part of all documents that is expected in a range of keys."""


class Plan(NamedTuple):
    """A way for every box; none when nothing can meet the condition."""

    ways: tuple[Way, ...]
    exact: bool
    """Whether what the ways find needs no second look."""
    asked: Mapping[str, bool]
    """The fields that an index could serve, and whether a range is asked for."""
    joined: tuple[str, ...] = ()
    """The fields whose needs were joined because no document has an array there."""
    others: tuple[tuple[Way, str], ...] = ()
    """What was weighed and not taken, with the reason."""
    tests: tuple[tuple[str, tuple[str, ...], bool], ...] = ()
    """Tests that are no ranges of values: the field, their names, whether an index serves them."""


SCAN = Plan((Way("scan"),), False, {})
"""Everything, at one moment."""


def plan(
    condition: Condition, *, key: str, indexes: Mapping[str, IndexKind], filter: str | None,
    everything: Callable[[Span], Estimate], estimate: Callable[[str, Ask, Span], Estimate],
    arrays: Callable[[str], bool], decides: Callable[[str, Ask], bool],
    limit: int | None = None, weigh: bool = False,
    order: Sequence[tuple[str, int]] | None = None, first: int | None = None,
) -> Plan:  # fmt: skip
    """The plan of a condition. `limit` is how many are wanted when the newest come first.

    `first` is how many are wanted in an `order`.

    `everything` is what a scan would take, `estimate` what an ask of an index would, both given
    the range of the filter, `arrays` says whether a document may have an array at a field, and
    `decides` whether what an index has for an ask needs no second look. What is clear is not
    weighed, unless `weigh` says so.
    """
    found = bounds(condition)
    if limit is not None or first is not None:
        sure = found.exact or (found.whole and _may_decide(found, indexes))
        if not sure:
            limit = None if limit is None else limit * _TRIED
            first = None if first is None else first * _TRIED
    planner = _Planner(key, indexes, filter, everything, estimate, arrays, limit, weigh)
    if len(found.boxes) == 1:
        if found.whole:
            planner.only, planner.decides_of = found.boxes[0], decides
        if order is not None and first is not None:
            planner.order, planner.first = order, first
    ways = [way for box in found.boxes if (way := planner.best(box)) is not None]
    exact = False
    if len(found.boxes) == 1:
        exact = bool(ways) and ways[0].exact
    elif ways:
        ways = planner.together(found, ways)
    asked: dict[str, bool] = {}
    tests: list[tuple[str, tuple[str, ...], bool]] = []
    for box in found.boxes:
        for name, needs in box.needs.items():
            if name != key:
                asked[name] = not all(one.point for need in needs for one in need)
        for name, each in box.tests.items():
            names = tuple([type(test).__name__ for test in each])
            tests.append((name, names, name in planner.served))
    for way in ways if planner.compound else ():
        for part in way.parts or (way,):
            if part.field is not None and part.field in planner.compound:
                asked[part.field] = not all(ask.point for ask in part.asks)
    others = tuple(dict.fromkeys(planner.others))  # parts of an `$or` may weigh the same
    return Plan(tuple(ways), exact, asked, tuple(planner.joined), others, tuple(tests))


def _may_decide(found: Bounds, indexes: Mapping[str, IndexKind]) -> bool:
    """Whether there is a kind for all tests that decides them."""
    fields = {name for box in found.boxes for name in box.tests}
    return all(name in indexes and indexes[name].decides_tests for name in fields)


_cost = attrgetter("cost")


def through(
    name: str, asks: tuple[Any, ...], span: Span, kind: IndexKind, estimate: Estimate, *,
    exact: bool, limit: int | None,
) -> Way:  # fmt: skip
    """The way through an index that is expected to find so much, of which `limit` are wanted."""
    followed = estimate.entries
    each = TAKEN if exact else FOLLOWED
    if limit is not None and not kind.newest_first:  # all are gathered, a few followed
        cost = GATHERED * followed + len(asks) + each * min(followed, float(limit))
        return Way("index", name, asks, span, estimate, cost, exact=exact)
    if limit is not None:  # it stops as soon as it has enough
        followed = min(followed, float(limit * len(asks)))
    if estimate.looked:
        looked = max(estimate.looked, estimate.entries)
        cost = LOOKED * looked + each * min(followed, estimate.looked)
    else:
        cost = each * followed + estimate.blocks * followed / max(estimate.entries, 1.0)
    return Way("index", name, asks, span, estimate, cost + len(asks), exact=exact)


class _Planner:
    def __init__(
        self, key: str, indexes: Mapping[str, IndexKind], filter: str | None,
        everything: Callable[[Span], Estimate], estimate: Callable[[str, Ask, Span], Estimate],
        arrays: Callable[[str], bool], limit: int | None, weigh: bool,
    ) -> None:  # fmt: skip
        self.key, self.indexes, self.filter, self.everything = key, indexes, filter, everything
        self.all = everything(None)
        self.estimate, self.arrays, self.limit, self.weigh = estimate, arrays, limit, weigh
        self.order: Sequence[tuple[str, int]] = ()
        self.first = 0
        self.compound = [name for name in indexes if SEPARATOR in name]
        self.others: list[tuple[Way, str]] = []
        self.joined: list[str] = []
        self.served: set[str] = set()  # fields whose tests an index serves
        self.only: Box | None = None  # the one box, if to meet it is enough
        self.decides_of: Callable[[str, Ask], bool] | None = None

    def decides(self, field: str, asks: tuple[Any, ...]) -> bool:
        """Whether what an index finds is all that the one box asks."""
        box, decides = self.only, self.decides_of
        if box is None or decides is None or field not in self.indexes:
            return False
        if box.tests and not self.indexes[field].decides_tests:
            return False
        parts = parts_of(field)
        for part in (box.needs, box.tests):
            for name in part:
                if name not in parts:
                    return False
        return all(decides(field, ask) for ask in asks)

    def whole(self, found: Bounds) -> Way:
        """The scan, with what the filter leaves out of it for all boxes together."""
        spans = [self._span(box) for box in found.boxes]
        given = [one for one in spans if one is not None]
        if len(given) < len(spans):
            return self._scan(None)
        return self._scan((min(low for low, _ in given), max(high for _, high in given)))

    def together(self, found: Bounds, ways: list[Way]) -> list[Way]:
        """The ways of several boxes, or one scan if that is cheaper."""
        whole = self.whole(found)
        needed = any(way.kind == "scan" for way in ways)
        # One scan serves all: what it costs beside one part decides nothing.
        self.others = [(way, why) for way, why in self.others if way.kind != "scan"]
        if not needed and sum(way.cost for way in ways) < whole.cost:
            if self.weigh:
                name = ways[0].name if len(ways) == 1 else "these together"
                self.others.append((whole, f"costs more than {name}"))
            return ways
        why = (
            "another part needs the scan"
            if needed
            else "all parts together cost more than the scan"
        )
        self.others += [(way, why) for way in ways if way.kind != "scan"]
        return [whole]

    def best(self, box: Box) -> Way | None:
        """The cheapest way for a box; None when nothing can meet it."""
        for needs in box.needs.values():
            if not all(needs):
                return None  # a need without a range, like {"$in": []}
        span = self._span(box)
        asked: list[tuple[str, tuple[Any, ...]]] = []
        for name in dict.fromkeys((*box.needs, *box.tests)):
            choices = self._choices(name, box)
            for asks in choices:
                if not asks:
                    return None
                asked.append((name, asks))
        for name in self.compound:
            asked += [(name, asks) for asks in self._compound_choices(name, box)]
        if len(asked) == 1 and not self.weigh and self._is_clear(*asked[0]):
            [(name, asks)] = asked
            exact = name != self.key and self.decides(name, asks)
            return Way(self._kind(name, asks), name, asks, span, exact=exact)
        ways = [self._scan(span)]
        ways += [
            self._keys(asks, span) if name == self.key else self._index(name, asks, span)
            for name, asks in asked
        ]
        together = None
        if len(asked) > 1:
            together = intersection(ways, self.indexes, ways[0].estimate.entries, self.limit)
        if self.order:
            better = {way.field: way for way in self._in_order(asked, span)}
            ways = [better.get(way.field, way) for way in ways]
        if together is not None:
            ways.append(together)
        chosen = min(ways, key=_cost)
        if self.weigh:
            self.others += [
                (way, f"costs more than {chosen.name}") for way in ways if way is not chosen
            ]
        return chosen

    def _choices(self, name: str, box: Box) -> list[tuple[Any, ...]]:
        """What can be asked for a field: one list of asks, or a choice of lists."""
        needs = box.needs.get(name, ())
        if name == self.key:
            ranges = encoded(common(needs)) if needs else None  # a key is never an array
            return [] if ranges is None else [ranges]
        # An index on several fields has their names with commas: so may a field be called, too.
        kind = None if SEPARATOR in name else self.indexes.get(name)
        if kind is None:
            if self.weigh and needs and not any(name in parts_of(one) for one in self.compound):
                self.others.append((Way("index", name), "there is none"))
            return []
        tests = box.tests.get(name, ())
        found = list(kind.serves(Asked(needs, tests, lambda: self._may_differ(name))))
        if tests and found and not needs:
            self.served.add(name)
        return found

    def _compound_choices(self, name: str, box: Box) -> list[tuple[Any, ...]]:
        """The same for an index on several fields, given what is asked of each."""
        parts, kind = parts_of(name), self.indexes[name]
        if kind.extract is None:
            if parts[0] not in box.needs:
                return []
        elif not any(part in box.needs or part in box.tests for part in parts):
            return []
        needs = tuple(box.needs.get(part, ()) for part in parts)
        tests_of = tuple(box.tests.get(part, ()) for part in parts)
        tests = tuple(test for tests in tests_of for test in tests)
        asked = Asked((), tests, lambda: self._may_differ(name), needs, tests_of)
        found = list(kind.serves(asked))
        if found and kind.extract is not None:
            self.served.update(parts)
        return found

    def _may_differ(self, name: str) -> bool:
        """Whether two needs of a field may be met by two values."""
        arrays = self.arrays(name)
        if not arrays and name not in self.joined:
            self.joined.append(name)
        return arrays

    def _is_clear(self, name: str, asks: tuple[Any, ...]) -> bool:
        """Whether the one way there is beats a scan, whatever it finds."""
        if self._kind(name, asks) == "key":
            return True
        if self.limit is None or name == self.key or not self.indexes[name].newest_first:
            return False
        return 2 * FOLLOWED * self.limit * len(asks) < self.all.entries

    def _kind(self, name: str, asks: tuple[Any, ...]) -> str:
        if name != self.key:
            return "index"
        return "key" if all(one.point for one in asks) else "keys"

    # ---- ways -----------------------------------------------------------------------------

    def _scan(self, span: Span) -> Way:
        found = self.all if span is None else self.everything(span)
        return Way("scan", None, (), span, found, found.entries + 1)

    def _keys(self, ranges: tuple[Any, ...], span: Span) -> Way:
        if self._kind(self.key, ranges) == "key":
            estimate = Estimate(float(len(ranges)), float(len(ranges)))
            return Way("key", self.key, ranges, None, estimate, estimate.entries)
        part = _GUESS * len(ranges)
        estimate = Estimate(part * self.all.entries, part * self.all.blocks)
        return Way("keys", self.key, ranges, span, estimate, estimate.entries + len(ranges))

    def _index(self, name: str, asks: tuple[Any, ...], span: Span) -> Way:
        parts = [self.estimate(name, ask, span) for ask in asks]
        found = parts[0] if len(parts) == 1 else Estimate(*map(sum, zip(*parts, strict=True)))
        exact = self.decides(name, asks)
        return through(name, asks, span, self.indexes[name], found, exact=exact, limit=self.limit)

    def _in_order(self, asked: list[tuple[str, tuple[Any, ...]]], span: Span) -> list[Way]:
        """The indexes that have the order that is wanted, and so need not be read whole."""
        found = []
        for name, asks in asked:
            kind = self.indexes.get(name)
            if kind is None or len(asks) > 1 or not kind.ordered(name, asks[0], self.order):
                continue
            if kind.orders_arrays or not self._may_differ(name):
                way = self._index(name, asks, span)
                read = min(way.estimate.entries, 2.0 * _TRIED * self.first)
                found.append(way._replace(ordered=True, cost=FOLLOWED * read + _TRIED))
        return found

    def _span(self, box: Box) -> Span:
        """What the filter's field must lie between in a box."""
        if self.filter is None or self.filter not in box.needs:
            return None
        low, high = b"", b"\xff"
        for need in box.needs[self.filter]:
            ranges = encoded(need)
            if ranges:
                low = max(low, min(one.low for one in ranges))
                high = min(high, max(one.high for one in ranges))
        return (low, high) if low <= high else None
