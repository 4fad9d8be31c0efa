"""Embedded indexes (paper 001, section 3.2): the values are kept with the documents.

Records in memory and in components have the values of the field in a column beside them; blocks
of a component have a zone map and a bloom filter of their values (sorted.py). So the index has no
memory and no components of its own, and takes next to no space. A search looks at the blocks that
may have a value of the range (kernels/documents/search.py): the primary's readers do that, and
`search` is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tideline.errors import InvalidRequest
from tideline.index import ranges
from tideline.index.kind import Ask, Asked, Candidates, Estimate, register

__all__ = ["EmbeddedKind"]


class EmbeddedKind:
    """An index without entries of its own.

    >>> EmbeddedKind(seed=7).within
    True
    """

    name = "embedded"
    within = True
    newest_first = True
    extract = None

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    def serves(self, asked: Asked) -> Sequence[tuple[ranges.RangeAsk, ...]]:
        """Ranges of values."""
        return ranges.serves(asked)

    def estimate(self, view: Any, ask: Ask) -> Estimate:
        """What the primary's readers say: every document of a block that passes is looked at."""
        found: Estimate = view.estimate(ask)
        return found

    def search(self, view: Any, ask: Ask, k: int | None, below: int) -> Iterable[Candidates]:
        """The primary's readers find documents by themselves."""
        raise InvalidRequest("an embedded index has no candidates of its own")


register("embedded", EmbeddedKind)
