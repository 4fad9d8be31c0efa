"""Conditions of subscriptions and questions: which answers of a call hold.

A kernel marks an answer MAYBE when the subscription has a condition. That needs the event's body,
so it is checked here, and the kernel is told: it decides which unseen subscriptions yield, and
leaves marks of who was told what. Calls without conditions never come here.

A channel may have an allowance: it is told the steps (where/cost.py) that the conditions of a call
will take, before they are evaluated and before anything is logged. When it raises, the call is
taken back as if the log had refused it. A server sets one; without one, nothing is counted.

Under the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.channel.answers import Answers
from tideline.channel.call import Call
from tideline.channel.codec import Row, read_rows, write_row
from tideline.channel.interrupts import Interrupts
from tideline.channel.parts import Parts
from tideline.channel.pressure import Pressure
from tideline.channel.records import Records
from tideline.clock import FOREVER
from tideline.errors import Unavailable
from tideline.kernels import layout as at
from tideline.kernels import rows as kernel
from tideline.kernels import told
from tideline.where import Condition, parse_text
from tideline.where.cost import values_in

__all__ = ["Conditions"]

Words = NDArray[np.int64]


class Conditions:
    """Checks the conditions that answers depend on."""

    def __init__(
        self, parts: Parts, interrupts: Interrupts, pressure: Pressure, records: Records
    ) -> None:
        self._parts = parts
        self._interrupts = interrupts
        self._pressure = pressure
        self._records = records
        self._aside: Call | None = None  # for questions in the middle of a call
        self.allowance: Callable[[int], None] | None = None

    def settled(
        self, starts: Words, first: int, limit: int, conditional: bool, offset: int = 0
    ) -> Answers:
        """The answers that hold of the rows [first, limit) of a call.

        `conditional`: whether the kernel says that there are conditions to check.
        """
        answers = Answers(self._parts, starts, first, limit, offset)
        if conditional:
            holds = self.holding(answers, starts, self._parts.newest)
            self._settle(starts, first, limit, holds)
            answers.keep(holds)
        return answers

    def holding(
        self, answers: Answers, starts: Words, now: int, question: Condition | None = None
    ) -> NDArray[np.bool_]:
        """Which of the call's answers hold at `now`.

        `question` is the condition of a find, whose answers name no subscription.
        """
        if self.allowance is not None:
            self.allowance(self._steps(answers, starts, question))
        subs, events, asked = answers.sub, answers.event, answers.asked
        rows = self._rows(at.EVENTS, answers.event_refs, np.unique(events[asked]), starts)
        bodies = {code: msgspec.json.decode(row.text) for code, row in rows.items()}
        befores: dict[int, Any] = {}  # by event: the body before it at its place

        def meets(condition: Condition, code: int) -> bool:
            body = bodies[code]
            if condition.deltas:
                if code not in befores:
                    before = self.before(rows[code], now)
                    befores[code] = None if before is None else msgspec.json.decode(before.text)
                body = condition.with_delta(body, befores[code])
            return condition.matches(body)

        conditions: dict[int, Condition] = {}
        if question is None:
            codes = np.unique(subs[asked])
            for code, row in self._rows(at.SUBS, answers.sub_refs, codes, starts).items():
                conditions[code] = parse_text(row.text, delta=True)
        holds = np.ones(len(subs), np.bool_)
        for k in np.flatnonzero(asked).tolist():
            condition = question if question is not None else conditions[int(subs[k])]
            holds[k] = meets(condition, int(events[k]))
        return holds

    def before(self, event: Row, now: int) -> Row | None:
        """The event that comes last before one at exactly its place, of those valid at `now`.

        A call of its own: the answers of the running one stay as they are.
        """
        state = self._parts.state
        call = self._aside
        if call is None:
            call = Call()
            call.state[[at.C_SUBS, at.C_EVENTS]] = state[[at.C_SUBS, at.C_EVENTS]]
            self._aside = call
        view = memoryview(call.rows).cast("B")  # type: ignore[arg-type]
        words = write_row(
            view, at.FIND, at.R_SAME, 0, now, -FOREVER, event.first + 1, event.place, b"", b"", b""
        )
        call.state[at.C_AFTER] = -1
        # Stamps of both must differ, also when this ends early: the kernel counts on by one.
        epoch = int(state[at.C_EPOCH])
        call.state[at.C_EPOCH] = epoch
        state[at.C_EPOCH] = (epoch + 1) & 0x7FFFFFFF
        address = address_of(call.state)
        result = int(kernel.run_rows(address, words, True))
        while result & 0xFF:
            scratch = result & 0xFF == at.NEED_SCRATCH
            self._interrupts.sheltered(call.grow_scratch if scratch else call.grow_output)
            result = int(kernel.run_rows(address, words, False))
        if not result >> 16:
            return None
        refs = call.event_refs[call.codes[: result >> 16]]
        found = read_rows(self._records.pack(at.EVENTS, refs))
        earlier = [row for row in found if (row.first, row.seq) < (event.first, event.seq)]
        return max(earlier, key=lambda row: (row.first, row.seq), default=None)

    def _settle(self, starts: Words, first: int, limit: int, holds: NDArray[np.bool_]) -> None:
        """The conditions of the rows [first, limit) have been checked: `holds` says which of the
        call's answers hold. Those that yield to another do not, afterwards; marks are left of
        the others."""
        parts = self._parts
        parts.marks.allow_headroom(True)
        try:
            while True:
                status = int(told.settle(parts.address, starts, first, limit, address_of(holds)))
                if status == at.DONE:
                    return
                if status == at.NEED_OUTPUT:
                    self._interrupts.sheltered(parts.call.grow_output)
                elif status == at.NEED_SCRATCH:
                    self._interrupts.sheltered(parts.call.grow_scratch)
                elif not self._interrupts.sheltered(self._pressure.grow_marks):
                    raise Unavailable("memory_mb is too small for what must be remembered")
        finally:
            parts.marks.allow_headroom(False)

    def _steps(self, answers: Answers, starts: Words, question: Condition | None = None) -> int:
        """The steps of the conditions that the answers of a call still depend on."""
        asked = np.flatnonzero(answers.asked)
        if not len(asked):
            return 0
        events, event_of = np.unique(answers.event[asked], return_inverse=True)
        rows: Any = self._rows(at.EVENTS, answers.event_refs, events, starts)
        sizes = np.array([len(rows[code].text) for code in events.tolist()], np.float64)
        values = np.array([values_in(rows[code].text) for code in events.tolist()], np.float64)
        if question is not None:
            costs = np.array([question.cost], np.float64)
            cost_of = np.zeros(len(asked), np.int64)
        else:
            subs, cost_of = np.unique(answers.sub[asked], return_inverse=True)
            rows = self._rows(at.SUBS, answers.sub_refs, subs, starts)
            found = [parse_text(rows[code].text, delta=True).cost for code in subs.tolist()]
            costs = np.array(found, np.float64).reshape(-1, 3)
        fixed, per_value, per_byte = costs[cost_of.ravel()].T
        steps = fixed + per_value * values[event_of.ravel()] + per_byte * sizes[event_of.ravel()]
        return int(steps.sum())

    def _rows(self, side: int, refs: Words, codes: Any, starts: Words) -> dict[int, Row]:
        """The records behind some codes."""
        given = self._parts.call.rows
        found: dict[int, Row] = {}
        stored = []
        for code in codes.tolist():
            ref = int(refs[code])
            if at.IN_ROW <= ref < at.ON_DISK:
                start = int(starts[ref - at.IN_ROW])
                size = int(given[start]) >> 32
                found[code] = read_rows(given[start : start + size])[0]
            else:
                stored.append(code)
        if stored:
            rows = read_rows(self._records.pack(side, refs[np.array(stored)]))
            found.update(zip(stored, rows, strict=True))
        return found
