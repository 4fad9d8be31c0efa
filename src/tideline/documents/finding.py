"""Finding by condition: take a view, plan on it, search it.

    find -> a view (view.py) -> plan.py -> search.py

What a plan relies on, and who sees to it:

- that its indexes are there, and that several searches of one plan see one state: all of them
  search the view that was planned on;
- that no document has an array where two needs were joined: `before_write` tells of such a
  document before it can be in a view; the first time after opening, the index is asked.

A plan is kept for the next time that the same is asked, until something comes or goes (`Sources`),
a hundredth was written, or an array is seen where there was none.

Safe from any thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from tideline.documents.advise import Workload
from tideline.documents.explaining import components_read
from tideline.documents.plan import Plan, plan
from tideline.documents.replan import again, is_plain, shape_of
from tideline.documents.search import Hit, Order, Search
from tideline.documents.ways import Span, considered
from tideline.errors import InvalidRequest, NotFound, Unavailable
from tideline.index.extract import ARRAYS
from tideline.index.kind import Chunk, Estimate, Spec
from tideline.model import Documents, Explanation
from tideline.where import Condition

__all__ = ["Finder", "Hits"]


class Hits(NamedTuple):
    """What meets a condition in a view."""

    view: Any
    parts: Iterator[list[Hit]]
    in_key_order: bool
    """Otherwise they are in no order."""
    whole: Callable[[], Chunk] | None = None
    """Of one index that decides: its candidates, newest first. Those that count are all there are,
    so nobody needs the parts."""


class _Plans(NamedTuple):
    """What was planned on some sources, by what was asked."""

    sources: Any
    """A weak reference: an old plan keeps no memory and no file."""
    everything: Estimate
    kept: dict[Any, Plan]
    shapes: dict[Any, Plan]
    """Plain ones, by shape (replan.py)."""


_KEPT = 256


class Finder:
    """The questions to one collection."""

    def __init__(self, engine: Any, workload: Workload) -> None:
        self._engine = engine
        self._workload = workload
        self._key: str = engine.facts["key"]
        self._filter: str | None = engine.facts["filter"]
        self._arrays: dict[str, bool] = {}
        self._everything = (-1, Estimate(0.0, 0.0))  # when it was counted, and what there was
        self._plans = _no_plans()

    # ---- asking -----------------------------------------------------------------------------

    def find(
        self, condition: Condition, order: Order, limit: int | None, skip: int = 0
    ) -> list[dict[str, Any]]:
        """The documents that meet a condition, without the first `skip`."""
        if not skip:
            return self._search(condition, order, limit)[0]
        return self._search(condition, order, None if limit is None else skip + limit)[0][skip:]

    def lazily(
        self, condition: Condition, order: Order, limit: int | None, skip: int, project: Any
    ) -> Documents:
        """The same, decoded when they are looked at, and then projected."""
        view = self._engine.view()
        most = None if limit is None else skip + limit
        search, chosen = self._chosen(view, condition, order, most)
        return search.lazily(chosen, skip, project)

    def newest(self, condition: Condition, limit: int) -> list[Hit]:
        """The newest that meet a condition; an index stops when it has enough."""
        view = self._engine.view()
        self._workload.finds += 1
        chosen = self._plan(view, condition, limit)
        self.note(self._workload, chosen, limit)
        search = Search(view, self._key, condition, None, limit)
        return search.newest(chosen) if chosen.ways else []

    def found(self, view: Any, condition: Condition, order: Order, limit: int | None) -> list[Hit]:
        """What `find` gives of a view, not decoded."""
        search, chosen = self._chosen(view, condition, order, limit)
        return search.hits(chosen)

    def hits(self, condition: Condition) -> Hits:
        """What meets a condition, of one moment, some at a time."""
        view = self._engine.view()
        self._workload.finds += 1
        chosen = self._plan(view, condition, None)
        self.note(self._workload, chosen, None)
        search = Search(view, self._key, condition, None, None)
        whole = None
        if chosen.ways and search.is_whole(chosen):
            way = chosen.ways[0]
            whole = partial(view.candidates, way.field, way.asks, way.filter)
        return Hits(view, search.batches(chosen), search.in_key_order(chosen), whole)

    def count(self, condition: Condition) -> int:
        """How many there are."""
        self._workload.finds += 1
        if not condition:
            return int(self._engine.count())
        view = self._engine.view()
        chosen = self._plan(view, condition, None)
        self.note(self._workload, chosen, None)
        return Search(view, self._key, condition, None, None).count(chosen)

    def explain(self, condition: Condition, order: Order, limit: int | None) -> Explanation:
        """Find, and tell how."""
        before = self._engine.counters()
        documents, chosen, search = self._search(condition, order, limit, weigh=True)
        after = self._engine.counters()
        spent = {name: int(after[name] - before[name]) for name in after}
        indexes = self._engine.kinds
        return Explanation(
            tuple(considered(way, "chosen", indexes) for way in chosen.ways),
            tuple(considered(way, why, indexes) for way, why in chosen.others),
            sum(way.estimate.blocks for way in chosen.ways),
            spent["primary_blocks"] + spent["index_blocks"],
            sum(way.estimate.entries for way in chosen.ways),
            search.done.looked_at,
            len(documents),
            spent["bloom_checks"],
            spent["bloom_false"],
            None if chosen.ways else "nothing can meet the condition",
            components_read(search.view, chosen, search.done, self._filter),
        )

    def note(self, workload: Workload, chosen: Plan, limit: int | None) -> None:
        """Count the fields that a plan could use an index of."""
        for name, ranged in chosen.asked.items():
            workload.asked(name, limit, ranged=ranged)
        if chosen.tests:
            workload.tested(chosen.tests)

    def would_ask(self, conditions: Iterable[Condition], limit: int | None) -> Workload:
        """What asking these conditions would count; none of them is asked."""
        found = Workload()
        for condition in conditions:
            found.finds += 1
            self.note(found, self._plan(self._engine.view(), condition, limit), limit)
        return found

    def span(self, condition: Condition) -> tuple[bytes, bytes] | None:
        """What the filter leaves of a scan for a condition."""
        chosen = self._plan(self._engine.view(), condition, None)
        return chosen.ways[0].filter if len(chosen.ways) == 1 else None

    def indexes(self) -> dict[str, Spec]:
        """The indexes that can be asked."""
        engine = self._engine
        building = engine.building
        return {name: kind for name, kind in engine.indexes.items() if name not in building}

    def _search(
        self, condition: Condition, order: Order, limit: int | None, weigh: bool = False
    ) -> tuple[list[dict[str, Any]], Plan, Search]:
        search, chosen = self._chosen(self._engine.view(), condition, order, limit, weigh)
        return search.documents(chosen), chosen, search

    def _chosen(
        self, view: Any, condition: Condition, order: Order, limit: int | None, weigh: bool = False
    ) -> tuple[Search, Plan]:
        """A search of a view, and the plan for it."""
        self._workload.finds += 1
        most = limit if order is None else None
        first = None if order is None else limit
        chosen = self._plan(view, condition, most, weigh, order=order, first=first)
        self.note(self._workload, chosen, most)
        return Search(view, self._key, condition, order, limit), chosen

    @property
    def kinds(self) -> dict[str, Any]:
        """The kinds of the indexes there are."""
        found: dict[str, Any] = self._engine.kinds
        return found

    # ---- what plans rely on -------------------------------------------------------------------

    def before_write(self, arrays: Iterable[str]) -> None:
        """Something will be written, with arrays in these fields."""
        for field in arrays:
            if not self._arrays.get(field):
                self._arrays[field] = True
                self._plans = _no_plans()

    def indexes_change(self, field: str) -> None:
        """An index on a field comes or goes; whether it has arrays is for the new one to say."""
        self._arrays.pop(field, None)
        self._plans = _no_plans()

    def _has_arrays(self, field: str) -> bool:
        """Whether a document may have an array where an index looks.

        Asked after the view was taken: what is known then holds for the view, too. What is not
        known is asked of the newest state, because it is remembered for later views.
        """
        if not self._engine.store.log.leads:
            return True  # of what another machine writes nobody here looks at the arrays
        known = self._arrays.get(field)
        if known is None:
            try:
                found = len(self._engine.lookup(field, ARRAYS, ARRAYS, 1).seqs) > 0
            except (
                InvalidRequest,
                NotFound,
                Unavailable,
            ):  # dropped since, or without plain values
                return True
            known = self._arrays.setdefault(field, found)
        return known

    def _plan(
        self, view: Any, condition: Condition, limit: int | None, weigh: bool = False,
        order: Order = None, first: int | None = None,
    ) -> Plan:  # fmt: skip
        """The plan of a condition on a view that was taken before."""
        plans, sources, everything = self._plans, view.now[0], self._size(view, None)
        if plans.sources() is not sources or plans.everything is not everything:
            plans = self._plans = _Plans(weakref.ref(sources), everything, {}, {})
        asked = condition.text, limit, first, None if order is None else tuple(order)
        found = plans.kept.get(asked)
        # Who does not lead looks at no arrays: what was joined before may have some now.
        if found is not None and not weigh and (not found.joined or self._engine.store.log.leads):
            return found
        shape = shape_of(condition) if order is None and not weigh else None
        known, found = plans.shapes.get((shape, limit)), None
        if known is not None:
            kinds = sources.kinds
            found = again(known, condition, kinds, limit, everything, view.estimate, view.decides)
        if found is None:
            found = plan(
                condition, key=self._key, indexes=sources.kinds, filter=self._filter,
                everything=partial(self._size, view), estimate=view.estimate,
                arrays=self._has_arrays, decides=view.decides, limit=limit, weigh=weigh,
                order=order, first=first,
            )  # fmt: skip
            if shape and is_plain(found, sources.kinds, self._filter, limit):
                _keep(plans.shapes, (shape, limit), found)
        if not weigh:
            _keep(plans.kept, asked, found)
        return found

    def _size(self, view: Any, span: Span) -> Estimate:
        """What a scan would take; counted anew when a hundredth was written since."""
        counted, everything = self._everything
        now = view.seq
        if now - counted > everything.entries / 100:
            stats = self._engine.stats()
            components = stats["components"]["primary"]
            count = stats["memory_rows"] + sum(c["rows"] for c in components)
            size = stats["memory_bytes"] + sum(c["bytes"] for c in components)
            everything = Estimate(float(count), size / 4096)
            self._everything = now, everything
        if span is None:
            return everything
        share = view.share(span)
        return Estimate(everything.entries * share, everything.blocks * share)


def _keep(plans: dict[Any, Plan], asked: Any, found: Plan) -> None:
    if len(plans) >= _KEPT:
        plans.clear()
    plans[asked] = found


def _no_plans() -> _Plans:
    return _Plans(lambda: None, Estimate(0.0, 0.0), {}, {})
