"""Bringing the memory of a channel back from its log.

    log frames -> kernel: stores rows again, looks for no answers
                  |-> writers: which batches landed
                  `-> lineage: what prolonged windows found

What a component has already is passed over by the kernel. When memory does not suffice, windows are
sealed while the log is replayed.

No lock is held: nobody else has the channel yet. `replay` is also for a channel that nobody logs
(spark/matching/bucket.py), under its lock.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.channel.annotations import N_PROLONGED
from tideline.channel.codec import read_rows
from tideline.channel.expiry import Expiry
from tideline.channel.parts import Parts
from tideline.channel.pressure import Pressure
from tideline.kernels import again
from tideline.kernels import layout as at

__all__ = ["Recovery"]

Words = NDArray[np.int64]


class Recovery:
    """Stores rows again that a log has."""

    def __init__(self, parts: Parts, pressure: Pressure, expiry: Expiry) -> None:
        self._parts = parts
        self._pressure = pressure
        self._expiry = expiry

    def run(self) -> None:
        """Bring the memory back from the log."""
        parts = self._parts
        own = parts.call.rows
        for segment, rows in parts.store.log.replay_joined():
            for side in parts.sides:
                for job in side.memory.ahead():
                    parts.dataset.submit_seal(job)
            self.replay(rows, segment)
        parts.call.use_rows(own)
        parts.log_into(parts.store.log.mark)
        self._expiry.drop_all()
        parts.logged_answers = parts.answers

    def replay(self, rows: Words, segment: int) -> None:
        """Store rows again; the call's own rows are to be set afterwards."""
        parts = self._parts
        state = parts.state
        parts.log_into(segment)
        state[at.C_ROWS] = address_of(rows)
        state[at.C_ROWS_WORDS] = len(rows)
        state[at.C_POS] = 0
        while True:
            again.replay_rows(parts.address)
            status = int(state[at.C_STATUS])
            if status == at.DONE:
                break
            if status == at.NEED_READER:
                start = int(state[at.C_POS])
                limit = start + (int(rows[start]) >> 32)
                note = read_rows(rows[start:limit])[0]
                (parts.lineage if note.flags & N_PROLONGED else parts.writers).read(note)
                state[at.C_POS] = limit
            else:
                state[at.C_NEWEST_LOGGED] = parts.newest  # what is replayed is in the log
                self._pressure.serve(status)
