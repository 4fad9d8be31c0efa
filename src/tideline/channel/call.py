"""What one call of a kernel reads and fills: rows, answers, scratch.

The kernels find everything through `state`, words C_* of kernels/layout.py. Buffers grow when a
kernel says that something did not fit, and stay: the next call is likely to be as large.

For one thread at a time: whoever holds the lock of the engine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tideline.kernels import export
from tideline.kernels import layout as at

__all__ = ["Call"]

Words = NDArray[np.int64]


class Call:
    """Buffers that one call of a kernel reads and fills; they grow on demand and stay."""

    def __init__(self) -> None:
        self.state: Words = np.zeros(at.C_WORDS, np.int64)
        # reads faster than the array itself
        self.view: memoryview = memoryview(self.state)  # type: ignore[arg-type]
        self.rows: Words = np.zeros(1 << 16, np.int64)
        self._per_row: Words = np.zeros((4, 0), np.int64)
        self._answers(1 << 12)
        self._refs(1 << 12)
        self._pairs(1 << 8)
        self._scratch(1 << 14)
        self._extra(1 << 12)
        self._packed(1 << 12)
        self.room_for(16)
        self.use_rows(self.rows)

    def use_rows(self, rows: Words) -> None:
        """Read rows from here."""
        self.rows = rows
        self.state[at.C_ROWS] = rows.ctypes.data

    def room_for(self, count: int) -> None:
        """Make the per-row results large enough."""
        if count <= len(self._per_row[0]):
            return
        self._per_row = np.zeros((4, count), np.int64)
        self.own, self.duplicates, self.row_counts, self.row_codes = self._per_row
        self.state[at.C_OWN] = self.own.ctypes.data
        self.state[at.C_DUPLICATES] = self.duplicates.ctypes.data
        self.state[at.C_ROW_COUNTS] = self.row_counts.ctypes.data
        self.state[at.C_ROW_CODES] = self.row_codes.ctypes.data

    def grow_output(self) -> None:
        """Something did not fit: double whichever buffer is nearly full."""
        state = self.state
        # Which one it was is not said: the row was rolled back. Doubling all is bounded anyway.
        self._answers(2 * int(state[at.C_ANSWER_CAP]))
        self._refs(2 * int(state[at.C_REFS_CAP]))
        self._pairs(2 * int(state[at.C_PAIR_CAP]))
        self._extra(2 * int(state[at.C_EXTRA_CAP]))

    def grow_scratch(self) -> None:
        """A walk over a subtree did not fit."""
        self._scratch(2 * int(self.state[at.C_SCRATCH_WORDS]))

    def _answers(self, cap: int) -> None:
        fresh = np.empty(cap, np.int32)
        before: NDArray[np.int32] | None = getattr(self, "codes", None)
        if before is not None:
            fresh[: len(before)] = before
        self.codes = fresh
        self.state[at.C_ANSWERS] = fresh.ctypes.data
        self.state[at.C_ANSWER_CAP] = cap

    def _refs(self, cap: int) -> None:
        self.sub_refs = _grown(getattr(self, "sub_refs", None), cap)
        self.event_refs = _grown(getattr(self, "event_refs", None), cap)
        self.state[at.C_SUB_REFS] = self.sub_refs.ctypes.data
        self.state[at.C_EVENT_REFS] = self.event_refs.ctypes.data
        self.state[at.C_REFS_CAP] = cap

    def _pairs(self, cap: int) -> None:
        self.pair_answer = _grown(getattr(self, "pair_answer", None), cap)
        self.pair_sub = _grown(getattr(self, "pair_sub", None), cap)
        self.state[at.C_PAIR_ANSWER] = self.pair_answer.ctypes.data
        self.state[at.C_PAIR_SUB] = self.pair_sub.ctypes.data
        self.state[at.C_PAIR_CAP] = cap

    def _scratch(self, count: int) -> None:
        self.scratch: Words = np.zeros(count, np.int64)
        self.state[at.C_SCRATCH] = self.scratch.ctypes.data
        self.state[at.C_SCRATCH_WORDS] = count

    def _packed(self, cap: int) -> None:
        self.packed: Words = np.empty(cap, np.int64)
        self.state[at.C_PACKED] = self.packed.ctypes.data
        self.state[at.C_PACKED_CAP] = cap

    def answers(self, address: int, side: int) -> Words:
        """The records that answer the row of a `run_one`, as rows."""
        while (used := self.view[at.C_PACKED_USED]) < 0:
            self._packed(4 * len(self.packed))
            export.pack_answers(address, side)
        return self.packed[:used].copy()

    def _extra(self, cap: int) -> None:
        self.extra = _grown(getattr(self, "extra", None), cap)
        self.state[at.C_EXTRA] = self.extra.ctypes.data
        self.state[at.C_EXTRA_CAP] = cap


def _grown(old: Words | None, cap: int) -> Words:
    fresh = np.zeros(cap, np.int64)
    if old is not None:
        fresh[: len(old)] = old
    return fresh
