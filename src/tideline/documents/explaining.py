"""What was read for an answer: of each index and of the documents, which components and which not.

A component that holds no value of the filter's field in the range that a condition leaves is
skipped unread, of the documents and of every index (lsm/filter.py `MinMax`); so is a component of
an index whose own filters miss what is asked for, a box, for example (`IndexKind.filters_of`).

Pure functions of what they are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tideline.documents.plan import Plan
from tideline.documents.search import Searched
from tideline.documents.ways import Span, Way
from tideline.index.kind import IndexKind
from tideline.lsm.component import ComponentInfo
from tideline.lsm.filter import Filter
from tideline.model import ComponentsRead
from tideline.where.keys import decode

__all__ = ["components_read"]


def components_read(
    view: Any, plan: Plan, done: Searched, filter: str | None
) -> tuple[ComponentsRead, ...]:
    """One for each index, and for the documents, that was read to find candidates."""
    counts = {}
    for way, given, left in done.intersected:
        asked = [*given, *[None] * (len(way.parts) - len(given))]
        for part, count in zip(way.parts, asked, strict=True):
            counts[part] = (count, left)
    return tuple(
        _read(view, part, counts.get(part), filter)
        for way in plan.ways
        for part in way.parts or (way,)
        if part.kind != "key"
    )


def _read(view: Any, way: Way, counts: Any, filter: str | None) -> ComponentsRead:
    sources = view.now[0]
    kind = sources.kinds[way.field] if way.kind == "index" else None
    if kind is None or kind.within:
        infos = [reader.component.info for reader in sources.readers]
    else:
        infos = sources.components[way.field]
    whole, reasons = len(infos), []
    left = [info for info in infos if _passes(info, way.filter if sources.filtered else None)]
    if len(left) < whole:
        reasons.append(f"{whole - len(left)} by the filter: {filter} in {_range(way.filter)}")
    met = [info for info in left if kind is None or _is_met(info, kind, way.asks)]
    if len(met) < len(left):
        reasons.append(f"{len(left) - len(met)} by what they hold: none of {_asks(way.asks)}")
    name = way.field if way.kind == "index" else None
    if counts is None:
        return ComponentsRead(name, len(met), whole - len(met), tuple(reasons))
    given, together = counts
    if given is None:
        few = "few candidates were left, which is sooner looked at than intersected"
        return ComponentsRead(name, 0, whole, (few,), None, together)
    return ComponentsRead(name, len(met), whole - len(met), tuple(reasons), given, together)


def _passes(info: ComponentInfo, wanted: Span) -> bool:
    return (
        wanted is None or "wanted" not in info.filters or info.filters["wanted"].overlaps(*wanted)
    )


def _is_met(info: ComponentInfo, kind: IndexKind, asks: Sequence[Any]) -> bool:
    """Whether a component may hold something of one of the asks."""
    return any(_meets(info.filters, kind.filters_of(ask)) for ask in asks)


def _meets(own: Mapping[str, Any], wanted: Mapping[str, Sequence[Filter]]) -> bool:
    return all(
        name not in own or any(own[name].meets(each) for each in filters)
        for name, filters in wanted.items()
    )


def _range(span: Span) -> str:
    """A range of the filter as people write it; what has an open end is cut there."""
    low, high = span or (b"", b"\xff")
    return f"[{_value(low)}, {_value(high)}]"


def _value(data: bytes) -> str:
    return repr(decode(data)) if len(data) > 1 else ""


def _asks(asks: Sequence[Any]) -> str:
    return ", ".join(map(str, asks[:3])) + (" ..." if len(asks) > 3 else "")
