"""From the codes a kernel emits to answers that hold: conditions checked.

A kernel marks an answer MAYBE when the subscription has a condition. That needs the event's body,
so it is checked here, and the kernel is told (`Engine.settle`): it decides what yields, and notes
who was told what. Calls without conditions never come here.

An engine may have an allowance: it is told the steps (where/cost.py) that the conditions of a call
will take, before they are evaluated and before anything is logged. When it raises, the call is
taken back as if the log had refused it. A server sets one; without one, nothing is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.channel.codec import Row, read_rows
from tideline.kernels import answers as columns
from tideline.kernels import layout as at
from tideline.where import Condition, parse_text
from tideline.where.cost import values_in

if TYPE_CHECKING:
    from tideline.channel.engine import Engine

__all__ = ["Answers", "holding", "settled"]

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
        self.sub_refs = engine.call.sub_refs[: int(engine.state[at.C_SUB_REF_COUNT])]
        """By code: the record of a subscription."""
        self.event_refs = engine.call.event_refs[: int(engine.state[at.C_EVENT_REF_COUNT])]
        """By code: the record of an event."""
        columns.fill_answers(
            engine.address, starts, first, limit, offset, self.row, self.sub, self.event,
            self.live, self.asked,
        )  # fmt: skip

    def keep(self, holds: NDArray[np.bool_]) -> None:
        """Leave out what does not hold."""
        for name in ("row", "live", "sub", "event", "asked"):
            setattr(self, name, getattr(self, name)[holds])


def settled(
    engine: Engine, starts: Words, first: int, limit: int, conditional: bool, offset: int = 0
) -> Answers:
    """The answers that hold of the rows [first, limit) of a call (the lock is held).

    `conditional`: whether the kernel says that there are conditions to check.
    """
    answers = Answers(engine, starts, first, limit, offset)
    if conditional:
        holds = holding(engine, answers, starts, engine.newest)
        engine.settle(starts, first, limit, holds)
        answers.keep(holds)
    return answers


def holding(
    engine: Engine, answers: Answers, starts: Words, now: int, question: Condition | None = None
) -> NDArray[np.bool_]:
    """Which of the call's answers hold at `now` (the lock is held).

    `question` is the condition of a find, whose answers name no subscription.
    """
    if engine.allowance is not None:
        engine.allowance(_steps(engine, answers, starts, question))
    subs, events, asked = answers.sub, answers.event, answers.asked
    rows = _rows(engine, at.EVENTS, answers.event_refs, np.unique(events[asked]), starts)
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
    if question is None:
        codes = np.unique(subs[asked])
        for code, row in _rows(engine, at.SUBS, answers.sub_refs, codes, starts).items():
            conditions[code] = parse_text(row.text, delta=True)
    holds = np.ones(len(subs), np.bool_)
    for k in np.flatnonzero(asked).tolist():
        condition = question if question is not None else conditions[int(subs[k])]
        holds[k] = meets(condition, int(events[k]))
    return holds


def _steps(
    engine: Engine, answers: Answers, starts: Words, question: Condition | None = None
) -> int:
    """The steps of the conditions that the answers of a call still depend on."""
    asked = np.flatnonzero(answers.asked)
    if not len(asked):
        return 0
    events, event_of = np.unique(answers.event[asked], return_inverse=True)
    rows: Any = _rows(engine, at.EVENTS, answers.event_refs, events, starts)
    sizes = np.array([len(rows[code].text) for code in events.tolist()], np.float64)
    values = np.array([values_in(rows[code].text) for code in events.tolist()], np.float64)
    if question is not None:
        costs = np.array([question.cost], np.float64)
        cost_of = np.zeros(len(asked), np.int64)
    else:
        subs, cost_of = np.unique(answers.sub[asked], return_inverse=True)
        rows = _rows(engine, at.SUBS, answers.sub_refs, subs, starts)
        found = [parse_text(rows[code].text, delta=True).cost for code in subs.tolist()]
        costs = np.array(found, np.float64).reshape(-1, 3)
    fixed, per_value, per_byte = costs[cost_of.ravel()].T
    steps = fixed + per_value * values[event_of.ravel()] + per_byte * sizes[event_of.ravel()]
    return int(steps.sum())


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
