"""Embedded indexes (paper 001, section 3.2): the values are kept with the documents.

Records in memory and in components have the values of the field in a column beside them; blocks
of a component have a zone map and a bloom filter of their values (sorted.py). So the index has no
memory and no components of its own, and takes next to no space. A search looks at the blocks that
may have a value of the range (kernels/documents/search.py): the primary's readers do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tideline.index import ranges
from tideline.index.kind import Asked, Estimate, IndexKind, register

__all__ = ["EmbeddedKind"]

_new: Any = tuple.__new__


class EmbeddedKind(IndexKind):
    """An index without entries of its own.

    >>> EmbeddedKind(seed=7).within
    True
    """

    name = "embedded"
    within = True
    newest_first = True

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    def serves(self, asked: Asked) -> Sequence[tuple[ranges.RangeAsk, ...]]:
        """Ranges of values."""
        return ranges.serves(asked)

    def range_ask(
        self, low: bytes, high: bytes, low_open: bool = False, high_open: bool = False
    ) -> ranges.RangeAsk:
        """A range of values."""
        # As `RangeAsk(...)` would, in half the time: every lookup makes one.
        ask: ranges.RangeAsk = _new(ranges.RangeAsk, (low, high, low_open, high_open, True))
        return ask

    def estimate(self, view: Any, ask: ranges.RangeAsk) -> Estimate:
        """Every document of a block that passes is looked at."""
        found: Estimate = view.estimate(ask.low, ask.high)
        return found

    def find(
        self, reader: Any, now: Any, field: str, view: Any, ask: ranges.RangeAsk, k: int | None
    ) -> int:
        """The primary's readers find documents by themselves; `view` are the sources to skip."""
        count: int = reader.search(now, field, ask, k, view)
        return count


register("embedded", EmbeddedKind)
