"""Records out of the store: which there are, and what they say.

A reference names a record in memory or in a component. It is good until the next call of the
engine that stores something. Packed records are rows end to end (codec.py); they are copies.

Under the engine's lock.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.channel.codec import Row, read_rows
from tideline.channel.parts import Parts
from tideline.kernels import export

__all__ = ["Records"]

Words = NDArray[np.int64]


class Records:
    """The records of a channel. `side` is SUBS or EVENTS."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def listed(self, side: int, now: int, low: int, high: int) -> Words:
        """References to the records live at `now` whose time meets [low, high)."""
        address = self._parts.side_of(side).memory.address
        room = 1 << 10
        while True:
            out = np.empty(room, np.int64)
            found = int(
                export.list_records(address, side, now, low, high, address_of(out), room)
            )  # fmt: skip
            if found >= 0:
                return out[:found]
            room *= 8

    def pack(self, side: int, refs: Words) -> Words:
        """Records as rows."""
        address = self._parts.side_of(side).memory.address
        refs = np.ascontiguousarray(refs)
        room = 64 * len(refs) + 1024
        while True:
            out = np.empty(room, np.int64)
            used = int(
                export.pack_rows(address, side, address_of(refs), len(refs), address_of(out), room)
            )
            if used >= 0:
                return out[:used]
            room *= 4

    def one(self, side: int, ref: int) -> Row:
        """One record, decoded."""
        return read_rows(self.pack(side, np.array([ref], np.int64)))[0]

    def count_live(self, now: int) -> tuple[int, int]:
        """How many subscriptions and events are live at `now`."""
        counts = [export.count_live(side.memory.address, now) for side in self._parts.sides]
        return sum(int(subs) for subs, _ in counts), sum(int(events) for _, events in counts)
