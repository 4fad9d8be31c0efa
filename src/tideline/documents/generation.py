"""A generation: everything written since the last seal, over all indexes of a collection.

    active   takes writes
    frozen   is being sealed, or waits for it; read as before
    sealed   one component a tree has taken its place

The primary memory and the memory of every stand-alone index freeze, seal and go together, so a
write is in all of them or in none. The log segments from `first_log` on hold what is in here.

The owner's lock is held during every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tideline.documents.types import DELETE, Rows
from tideline.index.kind import Entries
from tideline.index.records import Records
from tideline.index.sorted import extremes
from tideline.index.texts import Texts
from tideline.kernels.documents.layout import EXPIRES
from tideline.lsm.filter import MinMax

__all__ = ["Generation"]

_NONE = Entries(np.zeros(0, np.int64), Texts.of([]))


class Generation:
    """Memories that live and die together."""

    def __init__(self, records: Records, indexes: Mapping[str, Any], *, first_log: int) -> None:
        self.records = records
        self.indexes = dict(indexes)  # field -> memory of its entries
        self.first_log = first_log
        self.wanted = MinMax.empty()  # of the filter's field

    @property
    def fields(self) -> list[str]:
        """All indexed fields."""
        return [*self.records.fields, *self.indexes]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written yet."""
        return self.records.rows == 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to seal."""
        limit = self.records.limit_bytes
        heavy = self.records.size_bytes >= limit or self.size_bytes >= 2 * limit
        return heavy and not self.is_empty

    @property
    def size_bytes(self) -> int:
        """Bytes of everything in here."""
        return self.records.size_bytes + sum(int(m.size_bytes) for m in self.indexes.values())

    def add(self, rows: Rows, seq: int) -> None:
        """Take in rows that the log has; called again with the same, it ends what was cut."""
        flags = (rows.ops == DELETE).view(np.uint8)  # TOMB where it holds
        if rows.untils is not None:
            flags = flags | np.where(rows.untils > 0, EXPIRES, 0).astype(np.uint8)
        values = [rows.entries.get(name, _NONE) for name in self.records.fields]
        given = [(e.row, e.values) for e in values]
        self.records.add(rows.keys, rows.docs, flags, seq, given, rows.untils)
        for name, memory in self.indexes.items():
            entries = rows.entries.get(name, _NONE)
            if len(entries.row):
                memory.add(entries.values, rows.keys, seq, entries.row)
        if rows.filter_values is not None and rows.filter_values.count:
            self.wanted = self.wanted.merge(extremes(rows.filter_values))
