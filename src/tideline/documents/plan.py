"""Which way to the documents that meet a condition.

    condition -> where.bounds: boxes of needs -> for each box one *way* -> cheapest for all

    key       the primary key is one of a few values: get them
    keys      the primary key lies in ranges: scan those
    index     a field lies in ranges: ask its index
    scan      everything

Invariants:
1. A way finds every document that meets its box, and perhaps others: the condition is held
   against each of them again, so a plan may be dear but never wrong.
2. Two needs of one field are joined into one range only when no document has an array there
   (`joined`): else one value may meet the first and another the second.
3. The filter's range leaves out whole components. It may always be joined: a component that
   lies outside of one need has no document for the other either.

Pure functions of what they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tideline.documents.types import Estimate
from tideline.model import Considered
from tideline.where.bounds import Bounds, Box, Need, Range, bounds, common
from tideline.where.keys import decode, encode, high_of, is_cut, low_of
from tideline.where.parse import Condition

__all__ = ["SCAN", "Bytes", "Plan", "Way", "considered", "plan"]

_FOLLOWED = 4.0
"""What it costs to follow an entry to its document, beside looking at a document in a scan."""

_LOOKED = 0.5
"""What it costs an embedded index to look at the value of a document: no JSON is read."""

_TRIED = 16
"""So many candidates are expected to be looked at for each that meets a condition which its index
knows only a part of."""

_UNKNOWN = Estimate(0.0, 0.0)


class Bytes(NamedTuple):
    """A range of encoded values."""

    low: bytes
    high: bytes
    low_open: bool = False
    high_open: bool = False

    @property
    def point(self) -> bool:
        """Whether it holds one value."""
        return self.low == self.high


class Way(NamedTuple):
    """How to find the documents of one box."""

    kind: str
    """key, keys, index or scan."""
    field: str | None = None
    ranges: tuple[Bytes, ...] = ()
    filter: tuple[bytes, bytes] | None = None
    estimate: Estimate = _UNKNOWN
    cost: float = 0.0

    @property
    def name(self) -> str:
        """What it is called in an explanation."""
        if self.kind == "index":
            return f"the index on {self.field}"
        return {"key": "the key", "keys": "the range of keys", "scan": "the scan"}[self.kind]


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


SCAN = Plan((Way("scan"),), False, {})
"""Everything, at one moment."""

Estimator = Callable[[str | None, bytes, bytes], Estimate]
"""What a range of a field would take; of primary keys, when the field is None."""


def plan(
    condition: Condition, *, key: str, indexes: Mapping[str, str], filter: str | None,
    estimate: Estimator, arrays: Callable[[str], bool], limit: int | None = None,
    weigh: bool = False,
) -> Plan:  # fmt: skip
    """The plan of a condition. `limit` is how many are wanted when the newest come first.

    What is clear is not weighed, unless `weigh` says so.
    """
    found = bounds(condition)
    if limit is not None and not found.exact:
        limit *= _TRIED
    planner = _Planner(key, indexes, filter, estimate, arrays, limit, weigh)
    ways = [way for box in found.boxes if (way := planner.best(box)) is not None]
    exact = False
    if len(found.boxes) == 1:
        exact = found.exact and bool(ways) and _decides(found.boxes[0], ways[0])
    elif ways:
        ways = planner.together(found, ways)
    asked = {
        name: not all(one.point for need in needs for one in need)
        for box in found.boxes
        for name, needs in box.needs.items()
        if name != key
    }
    others = tuple(dict.fromkeys(planner.others))  # parts of an `$or` may weigh the same
    return Plan(tuple(ways), exact, asked, tuple(planner.joined), others)


def _decides(box: Box, way: Way) -> bool:
    """Whether being in the ranges of an index is all that its box asks."""
    if way.kind != "index" or len(box.needs) != 1 or way.field not in box.needs:
        return False
    return len(box.needs[way.field]) == 1 and not any(map(_cut, way.ranges))


class _Planner:
    def __init__(
        self, key: str, indexes: Mapping[str, str], filter: str | None, estimate: Estimator,
        arrays: Callable[[str], bool], limit: int | None, weigh: bool,
    ) -> None:  # fmt: skip
        self.key, self.indexes, self.filter = key, indexes, filter
        self.estimate, self.arrays, self.limit, self.weigh = estimate, arrays, limit, weigh
        self.all = estimate(None, b"", b"\xff")
        self.others: list[tuple[Way, str]] = []
        self.joined: list[str] = []

    def everything(self, found: Bounds) -> Way:
        """The scan, with what the filter leaves out of it for all boxes together."""
        spans = [self._span(box) for box in found.boxes]
        given = [one for one in spans if one is not None]
        if len(given) < len(spans):
            return self._scan(None)
        return self._scan((min(low for low, _ in given), max(high for _, high in given)))

    def together(self, found: Bounds, ways: list[Way]) -> list[Way]:
        """The ways of several boxes, or one scan if that is cheaper."""
        whole = self.everything(found)
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
        if not all(all(needs) for needs in box.needs.values()):
            return None  # a need without a range, like {"$in": []}
        span = self._span(box)
        asked: list[tuple[str, tuple[Bytes, ...]]] = []
        for name, needs in box.needs.items():
            if name == self.key:
                choices = [_encoded(common(needs))]  # a key is never an array
            elif name in self.indexes:
                choices = self._choices(name, needs)
            else:
                if self.weigh:
                    self.others.append((Way("index", name), "there is none"))
                continue
            for ranges in choices:
                if ranges is not None:
                    if not ranges:
                        return None
                    asked.append((name, ranges))
        if len(asked) == 1 and not self.weigh and self._is_clear(*asked[0]):
            return Way(self._kind(*asked[0]), *asked[0], span)
        ways = [self._scan(span)]
        ways += [
            self._keys(ranges, span) if name == self.key else self._index(name, ranges, span)
            for name, ranges in asked
        ]
        chosen = min(ways, key=lambda way: way.cost)
        if self.weigh:
            self.others += [
                (way, f"costs more than {chosen.name}") for way in ways if way is not chosen
            ]
        return chosen

    def _is_clear(self, name: str, ranges: tuple[Bytes, ...]) -> bool:
        """Whether the one way there is beats a scan, whatever it finds."""
        if self._kind(name, ranges) == "key":
            return True
        if self.limit is None or name == self.key or self.indexes[name] == "embedded":
            return False
        return 2 * _FOLLOWED * self.limit * len(ranges) < self.all.entries

    def _kind(self, name: str, ranges: tuple[Bytes, ...]) -> str:
        if name != self.key:
            return "index"
        return "key" if all(one.point for one in ranges) else "keys"

    # ---- ways -----------------------------------------------------------------------------

    def _scan(self, span: tuple[bytes, bytes] | None) -> Way:
        return Way("scan", None, (), span, self.all, self.all.entries + 1)

    def _keys(self, ranges: tuple[Bytes, ...], span: tuple[bytes, bytes] | None) -> Way:
        if self._kind(self.key, ranges) == "key":
            estimate = Estimate(float(len(ranges)), float(len(ranges)))
            return Way("key", self.key, ranges, None, estimate, estimate.entries)
        estimate = self._sum(None, ranges)
        return Way("keys", self.key, ranges, span, estimate, estimate.entries + len(ranges))

    def _index(self, name: str, ranges: tuple[Bytes, ...], span: tuple[bytes, bytes] | None) -> Way:
        estimate = self._sum(name, ranges)
        followed = estimate.entries
        if self.limit is not None:  # it stops as soon as it has enough
            followed = min(followed, float(self.limit * len(ranges)))
        if self.indexes[name] == "embedded":  # every document of a block is looked at
            looked = estimate.blocks * self.all.entries / max(self.all.blocks, 1.0)
            cost = _LOOKED * max(looked, estimate.entries) + _FOLLOWED * min(followed, looked)
        else:
            cost = _FOLLOWED * followed + estimate.blocks * followed / max(estimate.entries, 1.0)
        return Way("index", name, ranges, span, estimate, cost + len(ranges))

    def _sum(self, name: str | None, ranges: tuple[Bytes, ...]) -> Estimate:
        parts = [self.estimate(name, one.low, one.high) for one in ranges]
        return Estimate(sum(p.entries for p in parts), sum(p.blocks for p in parts))

    def _choices(self, name: str, needs: tuple[Need, ...]) -> list[tuple[Bytes, ...] | None]:
        """The ranges to ask an index for: one list, or a choice of lists."""
        if len(needs) > 1 and not self.arrays(name):
            self.joined.append(name)
            needs = (common(needs),)
        return [_encoded(need) for need in needs]

    def _span(self, box: Box) -> tuple[bytes, bytes] | None:
        """What the filter's field must lie between in a box."""
        if self.filter is None or self.filter not in box.needs:
            return None
        low, high = b"", b"\xff"
        for need in box.needs[self.filter]:
            ranges = _encoded(need)
            if ranges:
                low = max(low, min(one.low for one in ranges))
                high = min(high, max(one.high for one in ranges))
        return (low, high) if low <= high else None


def considered(way: Way, why: str, indexes: Mapping[str, str]) -> Considered:
    """A way as `explain` tells of it."""
    kind = indexes.get(way.field or "") if way.kind == "index" else None
    return Considered(
        way.kind, way.field, kind, tuple(map(_shown, way.ranges)), way.estimate.entries,
        way.estimate.blocks, way.cost, why,
    )  # fmt: skip


def _encoded(need: Need) -> tuple[Bytes, ...] | None:
    """The ranges of a need as bytes; None when it may be met by what no index holds."""
    for one in need:
        if one.bracket == "object" or one.bracket == "array":
            return None
    if len(need) == 1:
        return (_bytes(need[0]),)
    return _disjoint([_bytes(one) for one in need])


def _disjoint(ranges: list[Bytes]) -> tuple[Bytes, ...]:
    """The same in order, those that overlap made one: no document is found twice by its key.

    >>> _disjoint([Bytes(b"c", b"d"), Bytes(b"a", b"b"), Bytes(b"a", b"a")])
    (Bytes(low=b'a', high=b'b', ...), Bytes(low=b'c', high=b'd', ...))
    """
    found: list[Bytes] = []
    for one in sorted(ranges, key=lambda one: (one.low, one.low_open)):
        if found and one.low <= found[-1].high:
            last = found[-1]
            high, high_open = max((last.high, not last.high_open), (one.high, not one.high_open))
            found[-1] = Bytes(last.low, high, last.low_open, not high_open)
        else:
            found.append(one)
    return tuple(found)


def _bytes(one: Range) -> Bytes:
    if one.bracket == "null":
        null = encode(None)
        return Bytes(null, null)
    low = low_of(one.bracket) if one.low is None else encode(one.low)
    if one.low is one.high and one.low is not None:
        return Bytes(low, low)
    high = high_of(one.bracket) if one.high is None else encode(one.high)
    # What is cut stands for many values: an open end would lose those beyond it.
    return Bytes(
        low, high,
        one.low is not None and one.low_open and not is_cut(low),
        one.high is None or (one.high_open and not is_cut(high)),
    )  # fmt: skip


def _cut(one: Bytes) -> bool:
    """Whether a range of text may hold values that are cut, so that its ends are not sure."""
    return one.low[:1] == low_of("text") and not (one.point and not is_cut(one.low))


def _shown(one: Bytes) -> str:
    """A range for people."""

    def side(data: bytes) -> str:
        return repr(decode(data)) if len(data) > 1 or data == encode(None) else ""

    if one.point:
        return side(one.low)
    left, right = "(" if one.low_open else "[", ")" if one.high_open else "]"
    return f"{left}{side(one.low)}, {side(one.high)}{right}"
