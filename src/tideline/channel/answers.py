"""From the codes a kernel emits to answers that hold: conditions and unseen checked.

A kernel marks an answer MAYBE when the subscription has a condition, and lists pairs
(answer, earlier subscription): the answer falls if that subscription has the event too.
Both need the event's body, so both are settled here. Calls without conditions never
come here.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.channel.codec import Row, read_rows
from tideline.channel.engine import Engine
from tideline.kernels import answers as columns
from tideline.kernels import layout as at
from tideline.where import Condition, parse_text

__all__ = ["Answers", "holding"]

Words = NDArray[np.int64]


class Answers:
    """The answers of the rows [first, limit) of a call, as columns of codes."""

    def __init__(
        self, engine: Engine, starts: Words, first: int, limit: int, offset: int = 0
    ) -> None:
        count = int(engine.state[at.C_ANSWER_COUNT])
        self.row = np.empty(count, np.int64)
        """The row of each answer, counted from `offset`."""
        self.sub = np.empty(count, np.int32)
        self.event = np.empty(count, np.int32)
        self.live = np.empty(count, np.int8)
        """1 when the row is an event that found a subscription."""
        self.asked = np.empty(count, np.bool_)
        """Whether the condition is still to be checked."""
        columns.fill_answers(
            engine.address, starts, first, limit, offset, self.row, self.sub, self.event,
            self.live, self.asked,
        )  # fmt: skip

    def keep(self, holds: NDArray[np.bool_]) -> None:
        """Leave out what does not hold."""
        for name in ("row", "live", "sub", "event", "asked"):
            setattr(self, name, getattr(self, name)[holds])


def holding(
    engine: Engine, answers: Answers, starts: Words, now: int, question: Condition | None = None
) -> NDArray[np.bool_]:
    """Which of the call's answers hold at `now` (the lock is held).

    `question` is the condition of a find, whose answers name no subscription.
    """
    call = engine.call
    subs, events, asked = answers.sub, answers.event, answers.asked
    pairs = int(engine.state[at.C_PAIR_COUNT])
    pair_answers, pair_subs = call.pair_answer[:pairs], call.pair_sub[:pairs]
    event_codes = np.union1d(events[asked], events[pair_answers])
    rows = _rows(engine, at.EVENTS, call.event_refs, event_codes, starts)
    bodies = {code: msgspec.json.decode(row.text) for code, row in rows.items()}
    befores: dict[int, Any] = {}  # by event: the body before it at its place

    def meets(condition: Condition, code: int) -> bool:
        body = bodies[code]
        if condition.deltas:
            if code not in befores:
                before = engine.before(rows[code], now)
                befores[code] = None if before is None else msgspec.json.decode(before.text)
            body = condition.with_delta(body, befores[code])
        return condition.matches(body)

    conditions: dict[int, Condition] = {}
    sub_codes = pair_subs if question is not None else np.union1d(subs[asked], pair_subs)
    for code, row in _rows(engine, at.SUBS, call.sub_refs, np.unique(sub_codes), starts).items():
        conditions[code] = parse_text(row.text, delta=True)
    holds = np.ones(len(subs), np.bool_)
    for k in np.flatnonzero(asked).tolist():
        condition = question if question is not None else conditions[int(subs[k])]
        holds[k] = meets(condition, int(events[k]))
    for k, code in zip(pair_answers.tolist(), pair_subs.tolist(), strict=True):
        if holds[k] and meets(conditions[code], int(events[k])):
            holds[k] = False
    return holds


def _rows(engine: Engine, side: int, refs: Words, codes: Any, starts: Words) -> dict[int, Row]:
    """The records behind some codes."""
    found: dict[int, Row] = {}
    stored = []
    for code in codes.tolist():
        ref = int(refs[code])
        if at.IN_ROW <= ref < at.ON_DISK:
            start = int(starts[ref - at.IN_ROW])
            size = int(engine.call.rows[start]) >> 32
            found[code] = read_rows(engine.call.rows[start : start + size])[0]
        else:
            stored.append(code)
    if stored:
        rows = read_rows(engine.pack(side, refs[np.array(stored)]))
        found.update(zip(stored, rows, strict=True))
    return found
