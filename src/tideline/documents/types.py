"""What the layers of a collection hand to one another.

    Rows       what is written: documents and deletions, with their keys and index entries
    Found      documents that came out, with the number of the write that made each

All are columns: one array for many rows, no Python object a row. Immutable by agreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tideline.index.kind import Entries
from tideline.index.texts import Texts

__all__ = ["DELETE", "PUT", "Found", "Rows"]

PUT, DELETE = 1, 2


class Rows(NamedTuple):
    """One write. A deletion has an empty document and no entries."""

    ops: NDArray[np.uint8]
    keys: Texts
    docs: Texts
    entries: dict[str, Entries]
    filter_values: Texts | None = None
    """Every value of the filter's field in any of the documents, in no order."""

    untils: NDArray[np.int64] | None = None
    """When each row expires, in microseconds, 0 for never; None: none of them does."""

    @property
    def count(self) -> int:  # type: ignore[override]
        """How many rows there are."""
        return len(self.ops)


class Found(NamedTuple):
    """Documents as JSON text, each with the number of its write."""

    seqs: NDArray[np.int64]
    docs: list[bytes]
    keys: Sequence[bytes] = ()
    """Of a scan, one a document; a search leaves them out."""
