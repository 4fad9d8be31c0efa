"""The answers of rows that have run, as columns: what a kernel emits as codes, spread over rows.

A code is the number of a record in the call that answered; `sub_refs` and `event_refs` say where
the records are. They are good while the call's rows are (records.py).

For the thread that holds the engine's lock.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tideline.channel.parts import Parts
from tideline.kernels import answers as columns
from tideline.kernels import layout as at

__all__ = ["Answers"]

Words = NDArray[np.int64]


class Answers:
    """The answers of the rows [first, limit) of a call, as columns of codes."""

    def __init__(
        self, parts: Parts, starts: Words, first: int, limit: int, offset: int = 0
    ) -> None:
        state, call = parts.state, parts.call
        count = int(state[at.C_ANSWER_COUNT])
        self.row = np.empty(count, np.int64)
        """The row of each answer, counted from `offset`."""
        self.sub = np.empty(count, np.int32)
        self.event = np.empty(count, np.int32)
        self.live = np.empty(count, np.int8)
        """1 when the row is an event that found a subscription."""
        self.asked = np.empty(count, np.bool_)
        """Whether the condition is still to be checked."""
        self.sub_refs = call.sub_refs[: int(state[at.C_SUB_REF_COUNT])]
        """By code: the record of a subscription."""
        self.event_refs = call.event_refs[: int(state[at.C_EVENT_REF_COUNT])]
        """By code: the record of an event."""
        columns.fill_answers(
            parts.address, starts, first, limit, offset, self.row, self.sub, self.event,
            self.live, self.asked,
        )  # fmt: skip

    def keep(self, holds: NDArray[np.bool_]) -> None:
        """Leave out what does not hold."""
        for name in ("row", "live", "sub", "event", "asked"):
            setattr(self, name, getattr(self, name)[holds])
