"""Running rows: a kernel answers them, the log keeps them, and what they found is returned.

    rows -> kernel -> answers       what the kernel asks for is served (pressure.py)
            |-> log                 one frame a call, before anyone hears of the answers
            `-> take back           when the log refuses

Three ways: `ask` stores nothing; `write` runs a batch; `write_one` runs one row, the short way.
The status words of kernels are read here and nowhere else: what they say is returned as values
(results.py).

A single row stands in a buffer of its own (`buffer`), with room before it for the header of its
frame, so that a kernel completes the frame in place.

Under the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tideline.channel.answers import Answers
from tideline.channel.codec import Row
from tideline.channel.conditions import Conditions
from tideline.channel.expiry import Expiry
from tideline.channel.interrupts import Interrupts
from tideline.channel.logwrite import PendingLogWrite
from tideline.channel.parts import Parts
from tideline.channel.pressure import SEALING, Pressure
from tideline.channel.records import Records
from tideline.channel.results import CONDITIONAL, NO_WORDS, Done, Taken, Written
from tideline.channel.upkeep import Upkeep
from tideline.channel.writers import WriterBatch
from tideline.errors import Closed
from tideline.kernels import again
from tideline.kernels import layout as at
from tideline.kernels import rows as kernel
from tideline.kernels.rows import UNKNOWN
from tideline.lsm.frames import HEADER_BYTES
from tideline.lsm.position import Position
from tideline.lsm.sharedlog import SharedLog
from tideline.where import Condition, parse

__all__ = ["MANY_WORDS", "Calls", "Effect"]

Words = NDArray[np.int64]
Effect = Callable[[Written], None]
"""What follows from a row once it is logged. Running it again does no harm."""
MANY_WORDS = 1 << 15
"""Rows of so many words are logged on a helper thread, while their answers are taken out."""
_FRAMED_WORDS = 1 << 16
_CHECK_EVERY = 256  # operations between two looks at memory, log and components
_FIRST: Words = np.zeros(1, np.int64)  # where the row of a single call begins


class Calls:
    """Runs rows on the kernels, and logs them."""

    def __init__(
        self, parts: Parts, interrupts: Interrupts, expiry: Expiry, upkeep: Upkeep,
        pressure: Pressure, records: Records, conditions: Conditions,
    ) -> None:  # fmt: skip
        self._parts = parts
        self._interrupts = interrupts
        self._expiry = expiry
        self._upkeep = upkeep
        self._pressure = pressure
        self._records = records
        self._conditions = conditions
        framed = np.zeros(_FRAMED_WORDS, np.int64)
        self._own_rows = framed[HEADER_BYTES // 8 :]
        self.frame: memoryview = memoryview(framed).cast("B")  # type: ignore[arg-type]
        """The row of a single call with its frame around it."""
        self.buffer = self.frame[HEADER_BYTES:]
        """Where a single call writes its row."""
        self._own_words = self.buffer.cast("q")
        self.use_own_rows()
        # What a single call needs, found quickly.
        self._view, self._address, self._log = parts.view, parts.address, parts.store.log
        self._append_framed = self._log.append_framed
        self._shared = self._log if isinstance(self._log, SharedLog) else None
        self._sync, self._dataset = parts.store.sync, parts.dataset
        self._since_check = 0
        self._log_write = PendingLogWrite("tideline-log")

    def use_own_rows(self) -> None:
        """The next row is the one in `buffer`."""
        self._parts.call.use_rows(self._own_rows)

    # ---- asking --------------------------------------------------------------------------------

    def ask(
        self, words: int, now: int, *, after: int = -1, condition: Condition | None = None
    ) -> Words:
        """Run the find that stands in `buffer`: the events that arrived after `after`, as rows.

        `condition` is what their bodies must meet, if the row says that there is one.
        """
        parts = self._parts
        parts.state[at.C_AFTER] = after
        result = int(kernel.run_rows(parts.address, words, True))
        while result & 0xFF:
            self._interrupts.sheltered(partial(self._pressure.serve, result & 0xFF))
            result = int(kernel.run_rows(parts.address, words, False))
        count = result >> 16
        if not count:
            return NO_WORDS
        codes = parts.call.codes[:count]
        if result & CONDITIONAL:
            answers = Answers(parts, _FIRST, 0, 1)
            question = condition or parse(None)
            codes = answers.event[self._conditions.holding(answers, _FIRST, now, question)]
        return self._records.pack(at.EVENTS, parts.call.event_refs[codes])

    def stored(self, side: int, now: int) -> Row | None:
        """The live record of a side whose id the row in `buffer` names: a PUBLISH an event's."""
        ref = int(kernel.lookup(self._parts.address, now))
        return self._records.one(side, ref) if ref else None

    # ---- many rows -------------------------------------------------------------------------------

    def write(
        self, rows: Words, starts: Words, take: Callable[[Done], Taken], *, offset: int = 0,
        batch: WriterBatch | None = None, landed: Callable[[], None] = lambda: None,
    ) -> Position | None:  # fmt: skip
        """Run rows that store something, and log them. Returns where.

        Answers point into memory. Windows that expire in the middle of a call are dropped before
        the next. `take` is given what became of the rows done since the last time, and takes it
        out: at the end, when conditions must be checked before the kernel can go on, and before
        anything is sealed. In the last case these rows are logged, and the rest is logged apart.
        Row numbers of answers count from `offset`. `landed` is called each time that all which
        `take` took is in the log. A failure takes back the rows that were not logged. For
        sheltered work.
        """
        if self._parts.closed:
            raise Closed("the database was closed")
        if self._shared is not None:
            self._shared.require_leading()
        self._parts.call.use_rows(rows)
        self._parts.call.room_for(len(starts))
        try:
            return self._write(len(rows), starts, take, offset, batch, landed)
        finally:
            self.use_own_rows()

    def _write(
        self, words: int, starts: Words, take: Callable[[Done], Taken], offset: int,
        batch: WriterBatch | None, landed: Callable[[], None],
    ) -> Position | None:  # fmt: skip
        parts, pressure, log_write = self._parts, self._pressure, self._log_write
        state, call, address = parts.state, parts.call, parts.address
        self._since_check += len(starts)
        self._before_rows()
        seq = state[at.C_NEXT_SEQ]
        answered = parts.answers
        result = int(kernel.run_rows(address, words, True))
        first_row = first_word = done = 0
        annotations: list[bytes] = []
        position = None

        def taken(result: int) -> Taken:
            """Have the rows that ran since the last time taken out."""
            nonlocal done
            first, limit = done, int(state[at.C_ROW])
            conditional = bool(result & CONDITIONAL)
            given = take(
                Done(
                    first, limit,
                    self._conditions.settled(starts, first, limit, conditional, offset),
                    call.duplicates[first:limit], call.own[first:limit],
                    result & 0xFF != at.NEED_VERDICT,
                )
            )  # fmt: skip
            done = limit
            return given

        def count(taken: Taken) -> None:
            parts.answers += taken.answers
            annotations.append(taken.annotations)

        try:
            while result & 0xFF:
                status = result & 0xFF
                more = pressure.segments_wanted() if status in SEALING else 0
                row = int(state[at.C_ROW])
                if status == at.NEED_VERDICT:
                    count(taken(result))
                    kernel.begin_part(address, False)
                elif status in SEALING and row > first_row and pressure.must_seal(status, more):
                    count(taken(result))
                    limit = int(state[at.C_POS])
                    position = self._log_part(first_word, limit, annotations, batch) or position
                    landed()
                    first_row, first_word = row, limit
                    answered = parts.answers
                    annotations.clear()
                    kernel.begin_part(address, True)
                if status != at.NEED_VERDICT:
                    pressure.serve(status, more)
                result = int(kernel.run_rows(address, words, False))
            if result & at.EXPIRED:
                self._expiry.is_due = True
            if state[at.C_NEXT_SEQ] == seq:
                first_word = words  # nothing was stored: at most an annotation to log
            is_plain = not (result & CONDITIONAL or annotations or parts.journal_us)
            if is_plain and words - first_word >= MANY_WORDS:
                # Nothing of the answers is to be logged but their marks: they are taken while
                # the rows are logged.
                parts.answers += result >> 16
                log_write.begin(partial(self._log_part, first_word, words, annotations, batch))
                taken(result)
                position = log_write.result() or position
            else:
                count(taken(result))
                position = self._log_part(first_word, words, annotations, batch) or position
            landed()
        except BaseException:
            if log_write.failed():
                parts.answers = answered
                again.take_back(address, first_word, first_row, int(state[at.C_ROW]))
            else:  # what is in the log stays, though nobody got its answers
                landed()
            raise
        return position

    def marks_left(self) -> Words:
        """The marks that the rows of the running `write` left so far, as the log would have them.

        For a channel that is not logged; empty when there are none.
        """
        if self._parts.state[at.C_TOLD_USED] <= at.R_BODY:
            return NO_WORDS
        return self._parts.call.told_row(self._parts.address, 0).copy()

    def _before_rows(self) -> None:
        """Look after what is due. Not after the rows: answers point at components by number."""
        if self._since_check >= _CHECK_EVERY:
            self._since_check = 0
            self._upkeep.look_after()
        if self._expiry.is_due:
            self._expiry.release_windows()

    # ---- one row -----------------------------------------------------------------------------

    def write_one(
        self, words: int, side: int | None = None, *, effect: Effect | None = None,
        annotate: Callable[[Words], Taken] | None = None, annotations: bytes = b"",
    ) -> Written:  # fmt: skip
        """`write` for the one row that stands in `buffer`: the short way.

        `side` is where its answers come from; None for a cancel, which has none. `annotate` is
        given the answers, if there are any, as rows: it says how many count, and what is to be
        logged with the row instead of `annotations`. `effect` is run once the row is logged; inside
        sheltered work, when that is over.
        """
        parts, interrupts = self._parts, self._interrupts
        if self._dataset.why_closed:
            raise Closed("the database was closed")
        if self._shared is not None:
            self._shared.require_leading()  # before anything is done
        self._since_check += 1
        if self._expiry.is_due or self._since_check >= _CHECK_EVERY:
            interrupts.sheltered(self._before_rows)
        view, address = self._view, self._address
        answered = view[at.C_ANSWERED]
        seq = view[at.C_NEXT_SEQ]
        interrupts.unfinished = (seq, answered, self._log.frames, view[at.C_NEWEST])
        try:
            result: int = kernel.run_one(address, words, True)
            while result & 0xFF:
                interrupts.sheltered(partial(self._pressure.serve, result & 0xFF))
                result = kernel.run_one(address, words, False)
            if result & at.EXPIRED:
                self._expiry.is_due = True
            if not result & at.STORED:
                existing = int(parts.call.duplicates[0])
                interrupts.unfinished = interrupts.outer
                return Written(0, NO_WORDS, 0 if existing == UNKNOWN else existing, 0, None)
            packed = NO_WORDS
            count = result >> 16
            if count and side is not None:
                if result & CONDITIONAL:
                    packed, count = self._settled_one(side)
                else:
                    packed = parts.call.answers(address, side)
                if annotate is not None:
                    count, annotations = annotate(packed)
                view[at.C_ANSWERED] = answered + count
            target = self._own_words[at.R_AT] if side is None else 0
            # `Written(...)`, without a call of Python code.
            written = tuple.__new__(Written, (seq, packed, 0, target, None))
            if effect is not None:
                interrupts.owed = partial(effect, written)
            if result & at.FRAMED and not annotations:
                self._append_framed(self.frame[: view[at.C_FRAME_WORDS] * 8 + HEADER_BYTES])
                parts.logged_answers = view[at.C_ANSWERED]
            else:
                self._append(0, words, annotations)
            if self._sync:
                written = written._replace(position=self._log.last)
            if effect is not None and interrupts.outer is None:
                effect(written)
                interrupts.owed = None
            interrupts.unfinished = interrupts.outer
            return written
        except BaseException:
            interrupts.mend()
            raise

    def _settled_one(self, side: int) -> tuple[Words, int]:
        """The answers of a single row whose conditions hold, as rows, and how many they are."""
        answers = self._conditions.settled(_FIRST, 0, 1, True)
        if side == at.SUBS:
            refs = answers.sub_refs[answers.sub]
        else:
            refs = answers.event_refs[answers.event]
        return (self._records.pack(side, refs) if len(refs) else NO_WORDS), len(refs)

    # ---- the log -----------------------------------------------------------------------------

    def _log_part(
        self, first: int, limit: int, annotations: list[bytes], batch: WriterBatch | None
    ) -> Position | None:
        if batch is None:
            return self._append(first, limit, b"".join(annotations))
        landed = batch.landed(int(self._parts.state[at.C_ROW]))
        position = self._append(first, limit, b"".join([*annotations, batch.annotation(landed)]))
        self._parts.writers.note(batch.writer, batch.number, landed)
        return position

    def _append(self, first: int, limit: int, annotations: bytes = b"") -> Position | None:
        """One frame: rows [first, limit) of the call, tombs and marks they left, annotations."""
        if first == limit and not annotations:
            return None
        parts, call = self._parts, self._parts.call
        pieces: list[bytes | memoryview] = [_octets(call.rows[first:limit])]
        extra = int(parts.state[at.C_EXTRA_USED])
        if extra:
            pieces.append(_octets(call.extra[:extra]))
        answers = parts.answers
        if parts.state[at.C_TOLD_USED] > at.R_BODY or answers != parts.logged_answers:
            pieces.append(_octets(call.told_row(parts.address, answers)))
        if annotations:
            pieces.append(annotations)
        position = parts.store.log.append_parts(pieces)
        parts.logged_answers = answers
        return position

    def close(self) -> None:
        """End the helper thread."""
        self._log_write.close()


def _octets(words: Words) -> memoryview:
    """The bytes of an array, without a copy."""
    return memoryview(words).cast("B")  # type: ignore[arg-type]
