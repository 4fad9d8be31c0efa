"""Running a plan: candidates from its ways, held against the condition, ordered, limited.

    newest first (no sort)    by the number of the write; an index stops when it has enough
    by the primary key        a scan stops when it has enough
    as an index has it        with a limit: the first part of its range, then as below
    by any other fields       all that meet the condition, ordered by `where.order`

Candidates are JSON texts. Most are held against the condition as texts, many at a time
(where/batch.py), and only what is returned is decoded.

All searches of a plan are of one view, and so of one moment (view.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tideline.documents.intersection import intersected
from tideline.documents.plan import Plan
from tideline.documents.types import Found
from tideline.documents.ways import Way
from tideline.index.kind import Chunk
from tideline.index.texts import Texts
from tideline.model import Documents
from tideline.where.batch import matching
from tideline.where.geo import metres_of
from tideline.where.nearest import MARK
from tideline.where.order import sort_keys
from tideline.where.parse import Condition

__all__ = ["Hit", "Order", "Search", "Searched"]

_FIRST_K = 64
_GROWTH = 4
_BY_INDEX = ("index", "intersection")
_MORE = 6  # candidates beyond those that are wanted: some may be stale, and a tie is looked for
_SURELY = 1.0 - 1e-9  # of a distance: further than rounding could bring it
_FEW = 16  # so many texts are decoded and tested sooner than a batch is set up
_decode = msgspec.json.Decoder().decode

Order = list[tuple[str, int]] | None
"""Fields and directions; None for the newest first."""

Hit = tuple[int, bytes]
"""The number of a write, and the document."""

Decoded = tuple[int, bytes, dict[str, Any]]
"""The same, and the document as Python has it."""


@dataclass
class Searched:
    """What a search did."""

    looked_at: int = 0
    found: int = 0
    intersected: list[tuple[Way, tuple[int, ...], int]] = field(default_factory=list)
    """Of each intersection: how many candidates its indexes gave, and how many were left."""


class Search:
    """One question to a collection."""

    def __init__(
        self, view: Any, key: str, condition: Condition,
        sort: Order, limit: int | None,
    ) -> None:  # fmt: skip
        self.view = view
        self._key = key
        self._condition = condition
        self._sort = sort
        self._limit = limit
        self.done = Searched()

    @property
    def by_key(self) -> bool:
        """Whether the primary key alone decides the order."""
        return bool(self._sort) and self._sort[0][0] == self._key  # type: ignore[index]

    def documents(self, plan: Plan) -> list[dict[str, Any]]:
        """The documents, in order."""
        if self._limit == 0 or not plan.ways:
            return []
        if self._sort is not None:
            found = [document for _, _, document in self._sorted(plan)]
        elif self.is_whole(plan):
            way = plan.ways[0]
            text, _ = self.view.all_text(way.field, way.asks, self._limit, way.filter)
            found = _decode(text)  # all at once takes a third of one by one
            self.done.looked_at += len(found)
        else:
            found = [_decode(text) for _, text in self.newest(plan)]
        self.done.found = len(found)
        return found

    def lazily(self, plan: Plan, skip: int, project: Any) -> Documents:
        """The documents without the first `skip`, in order, none of them decoded."""
        if self._limit != 0 and plan.ways and self._sort is None and self.is_whole(plan):
            way = plan.ways[0]
            text, ends = self.view.all_text(way.field, way.asks, self._limit, way.filter)
            return Documents(text, ends[min(skip, len(ends) - 1) :], project)
        return Documents.of([text for _, text in self.hits(plan)[skip:]], project)

    def is_whole(self, plan: Plan) -> bool:
        """Whether all that one index leads to is an answer, and it gives all or nothing."""
        [way, *more] = plan.ways
        if more or not plan.exact or way.kind != "index":
            return False
        kind = self.view.kinds[way.field]
        return not (kind.newest_first or kind.within)

    def hits(self, plan: Plan) -> list[Hit]:
        """The same, not decoded."""
        if self._limit == 0 or not plan.ways:
            return []
        if self._sort is None:
            return self.newest(plan)
        return [(seq, text) for seq, text, _ in self._sorted(plan)]

    def count(self, plan: Plan) -> int:
        """How many there are."""
        if plan.ways and self.is_whole(plan):
            way = plan.ways[0]
            self.done.found = self.view.count_all(way.field, way.asks, way.filter)
        else:
            self.done.found = sum(len(hits) for hits in self.batches(plan))
        return self.done.found

    # ---- orders -----------------------------------------------------------------------------

    def _sorted(self, plan: Plan) -> list[Decoded]:
        assert self._sort is not None
        make = sort_keys(self._sort, self._key)
        if self.by_key and self._sort[0][1] == 1 and self.in_key_order(plan):
            found: list[Decoded] = []
            for hits in self.batches(plan):
                found += map(_decoded, hits)
                if self._limit is not None and len(found) >= self._limit:
                    return found[: self._limit]
            return found
        if self._limit is not None and plan.ways[0].ordered:
            return self._first_in_order(plan, make, self._limit)
        decoded = (_decoded(hit) for hits in self.batches(plan) for hit in hits)
        return _first(decoded, make, self._limit)

    def _first_in_order(self, plan: Plan, make: Any, limit: int) -> list[Decoded]:
        """By an index that has the order: a part of it, and more until there are enough."""
        assert self._sort is not None
        way, count = plan.ways[0], max(2 * limit, _FIRST_K)
        [ask] = way.asks
        if self._sort[0][0].startswith(MARK):
            return self._nearest(way, ask, make, limit, exact=plan.exact)
        kind = self.view.kind_of(way.field)
        while True:
            part, whole = self.view.first_part(way.field, ask, self._sort, count)
            found = self._decoded_of(way, part, exact=plan.exact)
            if whole:
                return _first(found, make, limit)
            if len(found) >= limit:  # what is equal to the last one may be outside
                last = _first(found, make, limit)[-1][2]
                part = kind.up_to(way.field, ask, self._sort, last)
                return _first(self._decoded_of(way, part, exact=plan.exact), make, limit)
            count *= _GROWTH

    def _nearest(
        self, way: Way, ask: Any, make: Any, limit: int, *, exact: bool
    ) -> list[Decoded]:  # fmt: skip
        """Nearest first: as many candidates as it takes until enough of them count and hold."""
        kept: dict[int, Decoded] = {}
        for hits, haversine in self.view.nearest(way.field, ask, limit + _MORE, way.filter):
            self.done.looked_at += len(hits)
            fresh = [hit for hit in hits if hit[0] not in kept]
            for hit in fresh if exact else self._holding(fresh):
                decoded = _decoded(hit)
                # The index looks a trifle further than is asked: to the last bit, the order knows.
                if make(decoded[2])[0][0] == 0:
                    kept[hit[0]] = decoded
            if len(kept) < limit:
                continue
            found = _first(kept.values(), make, limit)
            farthest = make(found[-1][2])[0][1]
            # What comes now is at least as far as the last candidate.
            if metres_of(haversine) * _SURELY > farthest:
                return found
            kept = {one[0]: one for one in found}
        return _first(kept.values(), make, limit)

    def _decoded_of(self, way: Way, ask: Any, *, exact: bool) -> list[Decoded]:
        hits = _hits(self._lookup(way, ask, None))
        self.done.looked_at += len(hits)
        return [_decoded(hit) for hit in (hits if exact else self._holding(hits))]

    @staticmethod
    def in_key_order(plan: Plan) -> bool:
        """Whether `batches` gives them in the order of keys."""
        return len(plan.ways) == 1 and plan.ways[0].kind not in _BY_INDEX  # ranges are in order

    def newest(self, plan: Plan) -> list[Hit]:
        """What meets the condition, newest first."""
        limit = self._limit
        if limit is not None and all(way.kind in _BY_INDEX for way in plan.ways):
            return self._newest_by_index(plan, limit)
        kept: list[Hit] = []
        for hits in self.batches(plan):
            kept += hits
            if limit is not None and len(kept) > 4 * limit + 1000:
                kept = heapq.nlargest(limit, kept, key=_seq)
        return heapq.nlargest(limit, kept, key=_seq) if limit else sorted(kept, key=_seq)[::-1]

    def _newest_by_index(self, plan: Plan, limit: int) -> list[Hit]:
        """Ask for the newest few, and for more until enough of them hold."""
        k = limit if plan.exact else max(2 * limit, _FIRST_K)
        askers = [asker for way in plan.ways for asker in self._askers(way)]
        while True:
            found: dict[int, bytes] = {}
            sure = 0  # what was written after this is complete
            for ask in askers:
                part = ask(k)
                if len(part.seqs) >= k:
                    sure = max(sure, int(part.seqs[-1]))
                found.update(zip(part.seqs.tolist(), part.docs, strict=True))
            self.done.looked_at += len(found)
            seqs = sorted((seq for seq in found if seq >= sure), reverse=True)
            hits = [(seq, found[seq]) for seq in seqs]
            if not plan.exact:
                hits = self._holding(hits)
            if len(hits) >= limit or not sure:
                return hits[:limit]
            k *= _GROWTH

    def _askers(self, way: Way) -> list[Callable[[int], Found]]:
        """Each gives the newest `k` of a part of a way; together they give the newest of all."""
        if way.kind == "intersection":
            return [partial(self.view.follow, self._together(way))]
        if not self.view.kinds[way.field].newest_first:  # it has all or nothing
            found = self.view.candidates(way.field, way.asks, way.filter)
            return [partial(self.view.follow, found)]
        return [partial(self._lookup, way, one) for one in way.asks]

    def _together(self, way: Way) -> Chunk:
        """The candidates that all indexes of an intersection have."""
        found, counts = intersected(way, self.view.candidates)
        self.done.intersected.append((way, counts, len(found.seqs)))
        return found

    # ---- ways -------------------------------------------------------------------------------

    def batches(self, plan: Plan) -> Iterator[list[Hit]]:
        """What meets the condition, each document once."""
        if len(plan.ways) == 1:
            for found in self._way(plan.ways[0], alone=True):
                self.done.looked_at += len(found)
                yield found if plan.exact else self._holding(found)
            return
        seen: dict[int, bytes] = {}
        for way in plan.ways:
            for found in self._way(way):
                seen.update(found)
        self.done.looked_at += len(seen)
        yield self._holding(list(seen.items()))

    def _way(self, way: Way, *, alone: bool = False) -> Iterator[list[Hit]]:
        if way.kind == "scan":
            yield from map(_hits, self.view.scan(filter=way.filter))
        elif way.kind == "key" and alone and len(way.asks) == 1:
            text = self.view.get(way.asks[0].low)
            yield [] if text is None else [(0, text)]  # one at most: its number decides nothing
        elif way.kind == "key":
            yield _hits(self.view.fetch(Texts.of([one.low for one in way.asks])))
        elif way.kind == "keys":
            for one in way.asks:
                # One byte more: whether the end belongs to a scan is all one, it is tested again.
                found = self.view.scan(one.low, one.high + b"\0", filter=way.filter)
                yield from map(_hits, found)
        elif way.kind == "intersection":
            yield _hits(self.view.follow(self._together(way)))
        else:
            whole: dict[int, bytes] = {}
            for one in way.asks:
                whole.update(_hits(self._lookup(way, one, None)))
            yield list(whole.items())

    def _lookup(self, way: Way, one: Any, k: int | None) -> Found:
        found: Found = self.view.search(way.field, one, k, filter=way.filter)
        return found

    def _holding(self, hits: list[Hit]) -> list[Hit]:
        """Those that meet the condition."""
        if not self._condition:
            return hits
        if len(hits) <= _FEW:
            return [hit for hit in hits if self._condition.matches(_decode(hit[1]))]
        met = matching(self._condition, pa.array([text for _, text in hits], pa.large_binary()))
        return [hits[row] for row in np.flatnonzero(met).tolist()]


def _hits(found: Found) -> list[Hit]:
    return list(zip(found.seqs.tolist(), found.docs, strict=True))


def _seq(hit: Hit) -> int:
    return hit[0]


def _decoded(hit: Hit) -> Decoded:
    return hit[0], hit[1], _decode(hit[1])


def _first(found: Iterable[Decoded], make: Any, limit: int | None) -> list[Decoded]:
    """The first of them by a sort key of documents."""

    def key(one: Decoded) -> Any:
        return make(one[2])

    return sorted(found, key=key) if limit is None else heapq.nsmallest(limit, found, key=key)
