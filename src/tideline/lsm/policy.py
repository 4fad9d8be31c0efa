"""Which components to merge and which to drop: policies decide, they never act.

    NoMerge      nothing
    Constant     all into one when there are k
    Prefix       the oldest run of small components, when it is too long or too heavy
    Leveled      levels of components that do not overlap, each `ratio` times as large as the last
    Spatial      the same by space: components of a level overlap as little as may be
    Correlated   what another index has already merged, by the ranges of a filter
    Window       per bucket of time: runs of similar size; drop whole what has expired

Invariants of every policy:
1. Components come oldest to newest. A merge takes any set of them, oldest first. What it leaves
   between its inputs either does not overlap them (`Leveled`, `Window` among those of a bucket)
   or there is nothing between them: what comes out takes the place of the oldest.
2. No component is in two merges, and nothing is both merged and dropped.
3. Asking again after doing what it said comes to an end: no merge without a change.

Pure functions of what they are given, but for `Spatial`, which goes round; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tideline.errors import InvalidRequest
from tideline.lsm.component import ComponentInfo
from tideline.lsm.tiles import PARTITIONS, z_value

__all__ = [
    "PICKS", "Constant", "Correlated", "Leveled", "Merge", "NoMerge", "Policy", "Prefix", "Spatial",
    "Window",
]  # fmt: skip

PICKS = ("round-robin", "best")

# A run takes in an older component of at most this many times the bytes of the newer ones
# together. At 2, components that stay apart at least double, so there are few; and a byte that is
# merged moves into a component at least 1.5 times as large, so it is merged seldom.
_SIMILAR = 2


@dataclass(frozen=True)
class Merge:
    """Components to merge, oldest first, and how what comes out of them is cut.

    `level` is that of the products. `cut_bytes` is about how large each may be; None: all in one.
    One component that goes to another level, without a cut, is not rewritten.
    """

    inputs: tuple[ComponentInfo, ...]
    level: int = 0
    cut_bytes: int | None = None
    partition: str | None = None
    """How entries of places are cut apart (tiles.py); None for others."""

    @property
    def moves(self) -> bool:
        """Whether a component only changes its level."""
        return len(self.inputs) == 1


class Policy(Protocol):
    """What an index asks of its policy."""

    def merges(self, components: Sequence[ComponentInfo], now: int) -> list[Merge]:
        """What to merge now."""
        ...

    def drops(self, components: Sequence[ComponentInfo], now: int) -> list[ComponentInfo]:
        """Components that may be deleted whole, without reading them."""
        ...


class NoMerge:
    """Every component stays as it was sealed.

    >>> NoMerge().merges([], 0)
    []
    """

    def merges(self, components: Sequence[ComponentInfo], now: int) -> list[Merge]:
        """Never."""
        return []

    def drops(self, components: Sequence[ComponentInfo], now: int) -> list[ComponentInfo]:
        """Never."""
        return []


class Constant(NoMerge):
    """All components into one as soon as there are `k`: few to search, much to rewrite.

    >>> a, b = (ComponentInfo(f"c-00000{i}.arrow", "sorted", 1, 10, 0) for i in (1, 2))
    >>> Constant(2).merges([a, b], 0) == [Merge((a, b))]
    True
    """

    def __init__(self, k: int) -> None:
        self.k = _at_least(2, "k", k)

    def merges(self, components: Sequence[ComponentInfo], now: int) -> list[Merge]:
        """Everything, when the count reached `k`."""
        return [Merge(tuple(components))] if len(components) >= self.k else []


class Prefix(NoMerge):
    """Small components are merged until they are large, then left alone.

    Between components over `max_bytes` (which are never merged again) lie runs of smaller ones.
    In each run, the shortest sequence from its oldest on that weighs more than `max_bytes` or
    has more than `max_count` components is merged. So at rest a run has at most `max_count`.

    >>> a, b, c = (ComponentInfo(f"c-00000{i}.arrow", "sorted", 1, 40, 0) for i in (1, 2, 3))
    >>> Prefix(100, 5).merges([a, b], 0)
    []
    >>> Prefix(100, 5).merges([a, b, c], 0) == [Merge((a, b, c))]
    True
    """

    def __init__(self, max_bytes: int, max_count: int) -> None:
        self.max_bytes = _at_least(1, "max_bytes", max_bytes)
        self.max_count = _at_least(1, "max_count", max_count)

    def merges(self, components: Sequence[ComponentInfo], now: int) -> list[Merge]:
        """At most one merge for each run of small components."""
        groups = []
        run: list[ComponentInfo] = []
        size = 0
        found = False  # this run already gave its group
        for component in components:
            if component.size_bytes > self.max_bytes:
                run, size, found = [], 0, False
                continue
            if found:
                continue
            run.append(component)
            size += component.size_bytes
            if len(run) > 1 and (size > self.max_bytes or len(run) > self.max_count):
                groups.append(Merge(tuple(run)))
                found = True
        return groups


class Leveled(NoMerge):
    """Levels of components that do not overlap; each level has `ratio` times the bytes of the last.

    New components gather at level 0, which takes `max_count` of them. One more, and all of level 0
    is merged with what it overlaps in level 1. A level that has become too large gives one
    component to the next: the one that overlaps the fewest bytes there. So a search for a key
    meets one component a level, and a merge rewrites a part of a level, not all of it.

    `by` names the filter that components are cut apart by, into pieces of about `piece_bytes`.
    Without it components of a level may overlap, and a level moves whole: mostly it is one
    component. For kinds whose components cannot be cut.

    >>> from tideline.lsm.filter import MinMax
    >>> def component(number: int, low: bytes, high: bytes, level: int = 0) -> ComponentInfo:
    ...     filters = {"key": MinMax(low, high)}
    ...     return ComponentInfo(f"c-00000{number}.arrow", "sorted", 1, 10, 0, filters, {}, level)
    >>> left, right = component(1, b"a", b"m", 1), component(2, b"n", b"z", 1)
    >>> new = component(3, b"o", b"p")
    >>> policy = Leveled(first_bytes=100, max_count=1, piece_bytes=10, by="key")
    >>> policy.merges([left, right, new], 0)
    []
    >>> more = component(4, b"p", b"q")
    >>> policy.merges([left, right, new, more], 0) == [Merge((right, new, more), 1, 10)]
    True
    """

    def __init__(
        self, first_bytes: int, ratio: int = 10, max_count: int = 4, piece_bytes: int = 32 << 20,
        *, by: str | None = None,
    ) -> None:  # fmt: skip
        self.first_bytes = _at_least(1, "first_bytes", first_bytes)
        self.ratio = _at_least(2, "ratio", ratio)
        self.max_count = _at_least(1, "max_count", max_count)
        self.piece_bytes = _at_least(1, "piece_bytes", piece_bytes)
        self.by = by

    def merges(self, components: Sequence[ComponentInfo], now: int) -> list[Merge]:
        """At most one merge: level 0 into level 1, or a component of a level into the next."""
        levels: dict[int, list[ComponentInfo]] = {}
        for component in components:
            levels.setdefault(component.level, []).append(component)
        fresh = levels.pop(0, [])
        if len(fresh) > self.max_count:
            return [self._into(1, fresh, levels)]
        for level, members in sorted(levels.items()):
            if sum(each.size_bytes for each in members) > self._limit(level):
                # Those that overlap stay in their order only if all of them go.
                moved = [self._picked(members, levels)] if self.by else members
                return [self._into(level + 1, moved, levels)]
        return []

    def _limit(self, level: int) -> int:
        """The bytes that a level may have at rest."""
        return self.first_bytes * int(self.ratio ** (level - 1))

    def _into(
        self, level: int, moved: list[ComponentInfo], levels: dict[int, list[ComponentInfo]]
    ) -> Merge:
        older = self._met(moved, levels.get(level, []))
        return Merge((*older, *moved), level, self.piece_bytes if self.by else None)

    def _picked(
        self, members: list[ComponentInfo], levels: dict[int, list[ComponentInfo]]
    ) -> ComponentInfo:
        """The component that takes the least rewriting for its size."""
        following = levels.get(members[0].level + 1, [])

        def cost(each: ComponentInfo) -> tuple[float, str]:
            met = sum(other.size_bytes for other in self._met([each], following))
            return met / max(each.size_bytes, 1), each.name

        return min(members, key=cost)

    def _met(self, moved: list[ComponentInfo], others: list[ComponentInfo]) -> list[ComponentInfo]:
        """Those of the others that may hold something of the range of what moves."""
        ranges = [each.filters.get(self.by or "") for each in moved]
        whole: Any = ranges[0]
        for each in ranges[1:]:
            whole = None if whole is None or each is None else whole.merge(each)
        found = []
        for other in others:
            own = other.filters.get(self.by or "")
            if whole is None or own is None or own.meets(whole):
                found.append(other)
        return found


class Spatial(Leveled):
    """Leveled by space: thesis 001, chapter 5.

    A component has a box (the filter `by`). What is merged is cut into `partition` parts, tiles or
    pieces of the z-curve (tiles.py), so that a search in a small box meets one or two components
    of a level. Boxes of a level may overlap a little: an index has no order between components.

    A level that has become too large gives one component to the next. `pick`: the one with the
    fewest components in its way there ("best"), or the next one on the z-curve, by the middles of
    the boxes ("round-robin"). Where that stands is remembered, and begins anew with the process.

    >>> from tideline.lsm.filter import Extent
    >>> def component(number: int, west: float, level: int) -> ComponentInfo:
    ...     filters = {"box": Extent((west, 0.0), (west + 9, 9.0))}
    ...     return ComponentInfo(f"c-00000{number}.arrow", "any", 1, 60, 0, filters, {}, level)
    >>> below, left, right = component(1, 0, 2), component(2, 0, 1), component(3, 50, 1)
    >>> for pick in PICKS:
    ...     policy = Spatial(100, piece_bytes=10, pick=pick)
    ...     print([each.name for each in policy.merges([below, left, right], 0)[0].inputs])
    ['c-000001.arrow', 'c-000002.arrow']
    ['c-000003.arrow']
    """

    def __init__(
        self, first_bytes: int, ratio: int = 10, max_count: int = 4, piece_bytes: int = 32 << 20,
        *, partition: str = "str", pick: str = "best", by: str = "box",
    ) -> None:  # fmt: skip
        super().__init__(first_bytes, ratio, max_count, piece_bytes, by=by)
        self.partition = _one_of(PARTITIONS, "partition", partition)
        self.pick = _one_of(PICKS, "pick", pick)
        self._last: dict[int, tuple[int, str]] = {}  # level -> what was taken last

    def _into(
        self, level: int, moved: list[ComponentInfo], levels: dict[int, list[ComponentInfo]]
    ) -> Merge:
        return replace(super()._into(level, moved, levels), partition=self.partition)

    def _picked(
        self, members: list[ComponentInfo], levels: dict[int, list[ComponentInfo]]
    ) -> ComponentInfo:
        if self.pick == "round-robin":
            return self._next(members)
        following = levels.get(members[0].level + 1, [])

        def cost(each: ComponentInfo) -> tuple[int, float, str]:
            met = self._met([each], following)
            size = sum(other.size_bytes for other in met)
            return len(met), size / max(each.size_bytes, 1), each.name

        return min(members, key=cost)

    def _next(self, members: list[ComponentInfo]) -> ComponentInfo:
        """The next one on the curve; the same again until it has gone."""
        level = members[0].level
        places = sorted((self._z(each), each.name, each) for each in members)
        last = self._last.get(level, (-1, ""))
        found = next((one for one in places if one[:2] >= last), places[0])
        self._last[level] = found[:2]
        return found[2]

    def _z(self, each: ComponentInfo) -> int:
        box = each.filters.get(self.by or "")
        if box is None or box.is_empty:
            return 0
        return z_value(
            *((low + high) / 2 for low, high in zip(box.lows[:2], box.highs[:2], strict=True))
        )


class Correlated(NoMerge):
    """Merge whatever lies inside one component of another index.

    `leader` gives the components that lead; both have a filter `name` (the write order of their
    records). When the leader has merged some, their ranges are one range, and the components
    here whose ranges end in it are merged too. So an entry and its record are always found in
    components of the same age.

    >>> from tideline.lsm.filter import MinMax
    >>> a = ComponentInfo("c-000001.arrow", "lazy", 1, 9, 0, {"seq": MinMax(1, 4)})
    >>> b = ComponentInfo("c-000002.arrow", "lazy", 1, 9, 0, {"seq": MinMax(5, 8)})
    >>> both = ComponentInfo("c-000003.arrow", "sorted", 1, 9, 0, {"seq": MinMax(1, 8)})
    >>> Correlated(lambda: [both], "seq").merges([a, b], 0) == [Merge((a, b))]
    True
    """

    def __init__(self, leader: Callable[[], Sequence[ComponentInfo]], name: str) -> None:
        self.leader = leader
        self.name = name

    def merges(self, components: Sequence[ComponentInfo], now: int) -> list[Merge]:
        """Runs of components that lie in the same one of the leader."""
        ranges = [info.filters[self.name] for info in self.leader()]
        groups: list[list[ComponentInfo]] = []
        last = -1
        for component in components:
            mine = component.filters[self.name]
            inside = -1
            for number, theirs in enumerate(ranges):
                # By its end: a component may repeat entries of older ones.
                if not mine.is_empty and theirs.overlaps(mine.high, mine.high):
                    inside = number
            if inside < 0 or inside != last:
                groups.append([])
            groups[-1].append(component)
            last = inside
        return [Merge(tuple(group)) for group in groups if len(group) > 1]


class Window:
    """Components of a bucket of time live and die together.

    A component's `extra["bucket"]` names its bucket; `filters[expiry]` ranges over the times
    its records expire. When all have, the file is deleted unread. A bucket with more than
    `max_count` components merges runs of similar size, into at most `max_bytes`; sizes that
    stay apart at least double, so a bucket of n bytes keeps about log2(n) components and
    rewrites a byte about as often.

    >>> from tideline.lsm.filter import MinMax
    >>> old = ComponentInfo("c-000001.arrow", "postings", 1, 10, 0, {"until": MinMax(5, 30)})
    >>> Window().drops([old], now=29), Window().drops([old], now=30) == [old]
    ([], True)
    """

    def __init__(self, expiry: str = "until", max_count: int = 4, max_bytes: int = 1 << 30) -> None:
        if not isinstance(expiry, str) or not expiry:
            raise InvalidRequest("expiry must be the name of a filter", expiry=expiry)
        self.expiry = expiry
        self.max_count = _at_least(1, "max_count", max_count)
        self.max_bytes = _at_least(1, "max_bytes", max_bytes)

    def merges(self, components: Sequence[ComponentInfo], now: int) -> list[Merge]:
        """Runs of similar size in buckets that have too many components."""
        buckets: dict[Any, list[ComponentInfo]] = {}
        for component in components:
            if not self._expired(component, now):
                buckets.setdefault(_bucket(component), []).append(component)
        groups = []
        for bucket in buckets.values():
            if len(bucket) > self.max_count:
                groups.extend(self._runs(bucket))
        return groups

    def drops(self, components: Sequence[ComponentInfo], now: int) -> list[ComponentInfo]:
        """Those in which nothing is valid at `now` (valid is `now < until`)."""
        return [component for component in components if self._expired(component, now)]

    def _expired(self, component: ComponentInfo, now: int) -> bool:
        expiry = component.filters.get(self.expiry)
        # Without a filter nothing is known; an empty one says there is no record to keep.
        return expiry is not None and (expiry.is_empty or expiry.high <= now)

    def _runs(self, bucket: list[ComponentInfo]) -> list[Merge]:
        """Runs from the newest back: an older one joins while it is not much larger."""
        groups = []
        limit = len(bucket)
        while limit > 0:
            start = limit - 1
            size = bucket[start].size_bytes
            while start > 0:
                older = bucket[start - 1].size_bytes
                if older > _SIMILAR * size or older + size > self.max_bytes:
                    break
                size += older
                start -= 1
            if limit - start > 1:
                groups.append(Merge(tuple(bucket[start:limit])))
            limit = start
        return groups


def _bucket(component: ComponentInfo) -> Any:
    """A bucket read back from JSON is a list, one just made may be a tuple."""
    bucket = component.extra.get("bucket")
    return tuple(bucket) if isinstance(bucket, (list, tuple)) else bucket


def _one_of(allowed: Sequence[str], name: str, value: Any) -> str:
    if value not in allowed:
        raise InvalidRequest(f"{name} must be one of {', '.join(allowed)}", **{name: value})
    return str(value)


def _at_least(minimum: int, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise InvalidRequest(
            f"{name} must be a whole number of at least {minimum}", **{name: value}
        )
    return value
