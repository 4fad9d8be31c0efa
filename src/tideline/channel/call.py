"""What one call of a kernel reads and fills: rows, answers, scratch.

The kernels find everything through `state`, words C_* of kernels/layout.py. Buffers grow when a
kernel says that something did not fit, and stay: the next call is likely to be as large. A buffer
and its address are replaced in one step, without a call in between: an exception that is thrown in
never leaves an address of memory that is gone.

For one thread at a time: whoever holds the lock of the engine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.kernels import export, told
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
        self._scratch(1 << 14)
        self._extra(1 << 12)
        self._told(1 << 12)
        self._packed(1 << 12)
        self.room_for(16)
        self.use_rows(self.rows)

    def use_rows(self, rows: Words) -> None:
        """Read rows from here."""
        state, address, room = self.state, address_of(rows), len(rows)
        self.rows, state[at.C_ROWS], state[at.C_ROWS_ROOM] = rows, address, room

    def room_for(self, count: int) -> None:
        """Make the per-row results large enough."""
        if count <= len(self._per_row[0]):
            return
        fresh: Words = np.zeros((4, count), np.int64)
        rows, addresses = [*fresh], [address_of(row) for row in fresh]
        words = [at.C_OWN, at.C_DUPLICATES, at.C_ROW_COUNTS, at.C_ROW_CODES]
        self._per_row, self.state[words] = fresh, addresses
        self.own, self.duplicates, self.row_counts, self.row_codes = rows

    def grow_output(self) -> None:
        """Something did not fit: double whichever buffer is nearly full."""
        state = self.state
        # Which one it was is not said: the row was rolled back. Doubling all is bounded anyway.
        self._answers(2 * int(state[at.C_ANSWER_CAP]))
        self._refs(2 * int(state[at.C_REFS_CAP]))
        self._extra(2 * int(state[at.C_EXTRA_CAP]))
        least = int(state[at.C_TOLD_USED]) + int(state[at.C_TOLD_WANTED])
        self._told(2 * max(int(state[at.C_TOLD_CAP]), least))

    def grow_scratch(self) -> None:
        """A walk over a subtree did not fit."""
        self._scratch(2 * int(self.state[at.C_SCRATCH_WORDS]))

    def _answers(self, cap: int) -> None:
        fresh = np.empty(cap, np.int32)
        before: NDArray[np.int32] | None = getattr(self, "codes", None)
        if before is not None:
            fresh[: len(before)] = before
        state, address = self.state, address_of(fresh)
        self.codes, state[at.C_ANSWERS], state[at.C_ANSWER_CAP] = fresh, address, cap

    def _refs(self, cap: int) -> None:
        subs = _grown(getattr(self, "sub_refs", None), cap)
        events = _grown(getattr(self, "event_refs", None), cap)
        shared: Words = np.zeros((2, 2 * cap), np.int64)
        before: Words | None = getattr(self, "shared", None)
        if before is not None:
            shared[:, : before.shape[1]] = before
        values = (
            address_of(subs), address_of(events), address_of(shared[0]), address_of(shared[1]), cap
        )  # fmt: skip
        words = [at.C_SUB_REFS, at.C_EVENT_REFS, at.C_SUB_TOLD, at.C_EVENT_TOLD, at.C_REFS_CAP]
        self.sub_refs, self.event_refs, self.shared, self.state[words] = (
            subs, events, shared, values
        )  # fmt: skip

    def _scratch(self, count: int) -> None:
        fresh: Words = np.zeros(count, np.int64)
        state, address = self.state, address_of(fresh)
        self.scratch, state[at.C_SCRATCH], state[at.C_SCRATCH_WORDS] = fresh, address, count

    def _packed(self, cap: int) -> None:
        fresh: Words = np.empty(cap, np.int64)
        state, address = self.state, address_of(fresh)
        self.packed, state[at.C_PACKED], state[at.C_PACKED_CAP] = fresh, address, cap

    def answers(self, address: int, side: int) -> Words:
        """The records that answer the row of a `run_one`, as rows."""
        while (used := self.view[at.C_PACKED_USED]) < 0:
            self._packed(4 * len(self.packed))
            export.pack_answers(address, side)
        return self.packed[:used].copy()

    def _extra(self, cap: int) -> None:
        fresh = _grown(getattr(self, "extra", None), cap)
        state, address = self.state, address_of(fresh)
        self.extra, state[at.C_EXTRA], state[at.C_EXTRA_CAP] = fresh, address, cap

    def _told(self, cap: int) -> None:
        fresh = _grown(getattr(self, "told", None), cap)
        state, address = self.state, address_of(fresh)
        self.told, state[at.C_TOLD], state[at.C_TOLD_CAP] = fresh, address, cap

    def told_row(self, address: int, answered: int) -> Words:
        """The marks of the answers as a row of the log, until the next call."""
        return self.told[: told.told_row(address, answered)]


def _grown(old: Words | None, cap: int) -> Words:
    fresh = np.zeros(cap, np.int64)
    if old is not None:
        fresh[: len(old)] = old
    return fresh
