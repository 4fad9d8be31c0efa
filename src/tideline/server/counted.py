"""A channel as batches reach it over the server: conditions in them count for their users.

    rows -> room is reserved for each that has a condition; one without room is rejected, with the
            reason, and the others land -> they run -> what is stored is counted, the rest released

A row whose subscription is there already takes no more room. Rows that cancel give theirs back.
This is what routes hand to `Landing` and call for `apply`; it is used in the thread that runs the
batch, and by one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.channel.operations import Operations
from tideline.errors import NotFound, TidelineError
from tideline.kernels import layout as at
from tideline.model import Applied
from tideline.server.quotas import Counted, Quotas
from tideline.server.refusals import Refused
from tideline.where import parse_text

__all__ = ["CountedChannel"]

_Texts = tuple[NDArray[np.uint8], NDArray[np.int64]]


class CountedChannel:
    """A channel whose batches are counted."""

    def __init__(self, channel: Any, quotas: Quotas, clock: Any) -> None:
        self.space = channel.space
        self.max_ahead_s = channel.max_ahead_s
        self.clock = channel.clock
        self._channel = channel
        self._quotas = quotas
        self._clock = clock

    def apply(self, table: pa.Table, *, once: tuple[str, int] | None = None) -> Applied:
        """`Channel.apply`."""
        applied: Applied = self._channel.core.apply(table, once, self._admit)
        return applied

    def _admit(self, operations: Operations, first: int) -> Callable[[bool], None]:
        """Reserve room for the conditions of a batch, rejecting rows that have none."""
        quotas = self._quotas
        weights: dict[bytes, int] = {}
        reserved: dict[str, tuple[int, str, int]] = {}  # by id: row, user and weight
        ended: dict[str, Counted] = {}  # by id: what was counted before
        cancels = operations.kinds == at.CANCEL
        conditions = (operations.kinds == at.SUBSCRIBE) & (operations.flags & at.R_COND != 0)
        for row in np.flatnonzero(cancels | conditions).tolist():
            if row < first:
                continue  # it landed with an earlier try
            id = _text(operations.ids, row).decode()
            if cancels[row]:
                if id in reserved:
                    quotas.release(*reserved.pop(id)[1:])
                if (counted := quotas.forget(id)) is not None:
                    ended[id] = counted
                continue
            text = _text(operations.wheres, row)
            if text not in weights:
                weights[text] = parse_text(text.decode(), delta=True).cost.weight
            user, weight = _text(operations.users, row).decode(), weights[text]
            if id in reserved:
                continue  # the same again: the store says what it is
            try:
                quotas.reserve(user, self._clock.now(), weight)
            except Refused as error:
                if not self._is_there(id):
                    operations.reject(row, str(error))
            else:
                reserved[id] = row, user, weight

        def settle(whole: bool) -> None:
            if not whole:  # of a batch that failed, some rows may have landed
                for id, counted in ended.items():
                    if self._is_there(id):
                        quotas.add(*counted, id)
            for id, (row, user, weight) in reserved.items():
                if self._landed(operations, row, id, whole):
                    quotas.add(user, int(operations.until[row]), weight, id)
                quotas.release(user, weight)

        return settle

    def _landed(self, operations: Operations, row: int, id: str, whole: bool) -> bool:
        """Whether a row has stored its subscription."""
        if row in operations.repeated:
            return False
        return whole or self._is_there(id)

    def _is_there(self, id: str) -> bool:
        try:
            self._channel.subscription(id)
        except NotFound:
            return False
        except TidelineError:  # closed, or its disk failed: then it counts
            return True
        return True


def _text(texts: _Texts, row: int) -> bytes:
    data, offsets = texts
    return data[offsets[row] : offsets[row + 1]].tobytes()
