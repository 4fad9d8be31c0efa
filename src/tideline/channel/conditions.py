"""Conditions of subscriptions and questions: which answers of a call hold.

A kernel marks an answer MAYBE when the subscription has a condition. That needs the event's body,
so it is checked here, and the kernel is told: it decides which unseen subscriptions yield, and
leaves marks of who was told what. Calls without conditions never come here.

    few answers                       predicates, one by one
    one condition, many events        all bodies at once (where/batch.py)
    an event with many conditions     an index over conditions (filed.py), and predicates for
                                      those that are not filed

A channel may have an allowance: it is told the steps (where/cost.py) that the conditions of a call
will take, before they are evaluated and before anything is logged. When it raises, the call is
taken back as if the log had refused it. A server sets one; without one, nothing is counted.

Under the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.channel.answers import Answers
from tideline.channel.call import Call
from tideline.channel.codec import Row, read_rows, write_row
from tideline.channel.interrupts import Interrupts
from tideline.channel.parts import Parts
from tideline.channel.pressure import Pressure
from tideline.channel.records import Records
from tideline.channel.tables import read_columns
from tideline.clock import FOREVER
from tideline.errors import Unavailable
from tideline.kernels import layout as at
from tideline.kernels import rows as kernel
from tideline.kernels import told, warm
from tideline.where import Condition, parse_text
from tideline.where.cost import values_in

if TYPE_CHECKING:
    from tideline.channel.filed import Filed

__all__ = ["Conditions"]

Words = NDArray[np.int64]

# An index takes as long as so many predicates for an event (measured: benchmarks/live_channel.py),
# and one more for so many conditions in it; a condition on all bodies at once likewise (estimates).
_AN_EVENT = 20
_FILED = 512
_BODIES = 32


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
        self._filed: Filed | None = None
        self.allowance: Callable[[int], None] | None = None
        self.many = _AN_EVENT
        """From so many conditions on, an event is matched by the index."""

    @property
    def filed(self) -> int:
        """How many conditions are in the index now."""
        return 0 if self._filed is None else len(self._filed)

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
        asked = np.flatnonzero(answers.asked)
        if len(asked) >= self.many:
            met = self._many(answers, asked, starts, now, question)
            if met is not None:
                holds = np.ones(len(answers.sub), np.bool_)
                holds[asked] = met
                return holds
        if self.allowance is not None:
            self.allowance(self._steps(answers, starts, question))
        subs, events = answers.sub, answers.event
        rows = self._rows(at.EVENTS, answers.event_refs, np.unique(events[asked]), starts)
        meets = self._meets(rows, now)
        conditions: dict[int, Condition] = {}
        if question is None:
            codes = np.unique(subs[asked])
            for code, row in self._rows(at.SUBS, answers.sub_refs, codes, starts).items():
                conditions[code] = parse_text(row.text, delta=True)
        holds = np.ones(len(subs), np.bool_)
        for k in asked.tolist():
            condition = question if question is not None else conditions[int(subs[k])]
            holds[k] = meets(condition, int(events[k]))
        return holds

    def _meets(self, rows: dict[int, Row], now: int) -> Callable[[Condition, int], bool]:
        """Whether an event, by its code, meets a condition: asked of the predicate."""
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

        return meets

    # ---- many at once --------------------------------------------------------------------------

    def _many(
        self, answers: Answers, asked: Words, starts: Words, now: int, question: Condition | None
    ) -> NDArray[np.bool_] | None:
        """Which of the asked answers hold; None when it is quicker to ask one by one."""
        events, event_of = _distinct(answers.event[asked], len(answers.event_refs))
        subs = answers.sub[asked]
        if question is None and subs[0] == subs[-1] and (subs == subs[0]).all():
            [text] = self._texts(at.SUBS, answers.sub_refs, subs[:1], starts)
            question = parse_text(text, delta=True)
        if question is not None:
            if len(events) < _BODIES or question.deltas:
                return None
            texts = self._texts(at.EVENTS, answers.event_refs, events, starts)
            if self.allowance is not None:
                self.allowance(_steps(np.array(question.cost), texts, event_of))
            from tideline.where.batch import matching  # its kernels load when somebody asks

            found: NDArray[np.bool_] = matching(question, pa.array(texts, pa.large_binary()))
            return found[event_of]
        least = len(events) * (self.many + self.filed // _FILED)
        if len(asked) < least or not warm.begin("standing"):
            return None
        return self._by_index(answers, asked, starts, now, events, event_of)

    def _by_index(
        self, answers: Answers, asked: Words, starts: Words, now: int, events: Words,
        event_of: Words,
    ) -> NDArray[np.bool_]:  # fmt: skip
        """Which of the asked answers hold; those of conditions not filed are asked one by one."""
        codes, code_of = _distinct(answers.sub[asked], len(answers.sub_refs))
        with self._index() as filed:
            address = int(self._parts.state[at.C_SUBS])
            numbers, sights = filed.find(address, answers.sub_refs[codes])
        unfiled = np.flatnonzero(numbers == 0)
        wheres = self._texts(at.SUBS, answers.sub_refs, codes[unfiled], starts)
        conditions = [parse_text(text, delta=True) for text in wheres]
        texts = self._texts(at.EVENTS, answers.event_refs, events, starts)
        if self.allowance is not None:
            costs = filed.costs(numbers)
            if conditions:
                costs[unfiled] = [condition.cost for condition in conditions]
            self.allowance(_steps(costs[code_of], texts, event_of))
        number_of = numbers[code_of]
        with self._index() as filed:
            met = filed.verdicts(texts, number_of, event_of)
            if conditions:
                each = len(asked) // len(codes)  # answers that a condition is asked for
                due = filed.due(sights[unfiled] * each, each).tolist()
                filed.file([(wheres[k], conditions[k]) for k in due])
        if not conditions:
            return met
        if filed.is_large:
            self._filed = None
        others = np.flatnonzero(number_of == 0)
        asked_of = events[event_of[others]]
        rows = self._rows(at.EVENTS, answers.event_refs, np.unique(asked_of), starts)
        meets = self._meets(rows, now)
        which = np.searchsorted(unfiled, code_of[others]).tolist()
        met[others] = [
            meets(conditions[k], code) for k, code in zip(which, asked_of.tolist(), strict=True)
        ]
        return met

    @contextmanager
    def _index(self) -> Iterator[Filed]:
        """The index over conditions. It is gone if this is left by an exception, or cut."""
        filed, self._filed = self._filed, None
        if filed is None:
            from tideline.channel.filed import Filed  # its kernels load when somebody asks

            filed = Filed()
        yield filed
        self._filed = filed

    def _texts(self, side: int, refs: Words, codes: Any, starts: Words) -> list[bytes]:
        """The texts of the records behind some codes: bodies, or conditions."""
        wanted = refs[codes]
        if len(codes) < 2 or ((wanted >= at.IN_ROW) & (wanted < at.ON_DISK)).any():
            rows = self._rows(side, refs, codes, starts)
            return [rows[code].text for code in codes.tolist()]
        kind = at.SUBSCRIBE if side == at.SUBS else at.PUBLISH
        texts: list[bytes] = read_columns(self._records.pack(side, wanted), kind).texts.to_pylist()
        return texts

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
        events, event_of = _distinct(answers.event[asked], len(answers.event_refs))
        texts = self._texts(at.EVENTS, answers.event_refs, events, starts)
        if question is not None:
            return _steps(np.array(question.cost), texts, event_of)
        subs, cost_of = _distinct(answers.sub[asked], len(answers.sub_refs))
        wheres = self._texts(at.SUBS, answers.sub_refs, subs, starts)
        costs = np.array([parse_text(text, delta=True).cost for text in wheres])
        return _steps(costs[cost_of], texts, event_of)

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


def _distinct(codes: Any, count: int) -> tuple[Words, Words]:
    """`np.unique` with the inverse, of codes below `count`."""
    is_there = np.zeros(count, np.bool_)
    is_there[codes] = True
    distinct = np.flatnonzero(is_there)
    numbers = np.empty(count, np.int64)
    numbers[distinct] = np.arange(len(distinct))
    return distinct, numbers[codes]


def _steps(costs: Any, texts: list[bytes], event_of: Words) -> int:
    """The steps of answers: `costs` has a row for each, or one for all; `event_of` its text."""
    sizes = np.fromiter(map(len, texts), np.float64, len(texts))
    values = np.fromiter(map(values_in, texts), np.float64, len(texts))
    fixed, per_value, per_byte = costs.T
    steps = fixed + per_value * values[event_of] + per_byte * sizes[event_of]
    return int(steps.sum())
