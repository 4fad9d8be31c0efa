"""Ways to the documents that meet a part of a condition, and what they are expected to cost.

    key            the primary key is one of a few values: get them
    keys           the primary key lies in ranges: scan those
    index          an index serves what is asked of its field (index/kind.py)
    intersection   several indexes do: only what all of them lead to is looked at
    scan           everything

The unit of a cost is what it takes to look at a document in a scan.

Values; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tideline.index.kind import Estimate, IndexKind
from tideline.model import Considered

__all__ = ["FOLLOWED", "GATHERED", "LOOKED", "TAKEN", "UNKNOWN", "Span", "Way", "considered"]

FOLLOWED = 4.0
"""What it costs to follow an entry to its document, beside looking at a document in a scan."""

TAKEN = 1.0
"""The same when the index decides: what it leads to is not held against the condition."""

LOOKED = 0.5
"""What it costs an embedded index to look at the value of a document: no JSON is read."""

GATHERED = 0.2
"""What it costs to gather a candidate, its number and its key, and to put it in order."""

UNKNOWN = Estimate(0.0, 0.0)

Span = tuple[bytes, bytes] | None
"""A closed range of values of the filter's field; None for all."""


class Way(NamedTuple):
    """How to find the documents of one box."""

    kind: str
    """key, keys, index, intersection or scan."""
    field: str | None = None
    asks: tuple[Any, ...] = ()
    """Of a key: ranges. Of an index: what its kind has made of the condition."""
    filter: Span = None
    estimate: Estimate = UNKNOWN
    cost: float = 0.0
    ordered: bool = False
    """Whether the index has the order that is wanted: its first few are all that is read."""
    parts: tuple[Any, ...] = ()
    """Of an intersection: the ways through its indexes, the one with the fewest entries first."""
    exact: bool = False
    """Whether what it leads to meets all that its box asks, and needs no second look."""

    @property
    def name(self) -> str:
        """What it is called in an explanation."""
        if self.kind == "index":
            return f"the index on {self.field}"
        if self.kind == "intersection":
            return f"the intersection of {_list([str(part.field) for part in self.parts])}"
        return {"key": "the key", "keys": "the range of keys", "scan": "the scan"}[self.kind]


def considered(way: Way, why: str, indexes: Mapping[str, IndexKind]) -> Considered:
    """A way as `explain` tells of it."""
    parts = way.parts or (way,)
    kinds = [
        kind.name
        for part in parts if part.kind == "index" and (kind := indexes.get(part.field or ""))
    ]  # fmt: skip
    field = _list([part.field for part in parts]) if way.parts else way.field
    return Considered(
        way.kind, field, _list(kinds) if kinds else None,
        tuple(str(ask) for part in parts for ask in part.asks),
        way.estimate.entries, way.estimate.blocks, way.cost, why,
    )  # fmt: skip


def _list(names: list[str]) -> str:
    """Some names in a sentence.

    >>> _list(["at"]), _list(["at", "name"]), _list(["at", "name", "town"])
    ('at', 'at and name', 'at, name and town')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
