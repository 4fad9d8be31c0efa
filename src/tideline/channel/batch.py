"""`Channel.apply`: many operations in one call, answers as columns built at once.

    table -> Operations -> rows -> kernel -> codes -> dictionary columns (answer_table.py)

A part of at most 65,536 rows is one call of the engine, under its lock and sheltered. Whoever holds
a subscription is told when the rows are in the log, though a later part may fail. A row that ends
an event is logged by itself: who was told of the event is asked before it runs (retract.py).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.channel.annotations import ANSWERS, annotate_answers
from tideline.channel.answer_table import answers_columns, answers_table, rejected_table
from tideline.channel.answers import Answers
from tideline.channel.checks import BODY_LIMIT_BYTES, ID_LIMIT_BYTES, same_json
from tideline.channel.codec import read_rows
from tideline.channel.engine import Engine
from tideline.channel.find import find_event
from tideline.channel.operations import Operations, read_operations
from tideline.channel.results import Done, Taken, cancelled_by
from tideline.channel.retract import told_of
from tideline.channel.writers import WriterBatch
from tideline.kernels import layout as at
from tideline.kernels.rows import UNKNOWN
from tideline.lsm.position import Position
from tideline.model.channels import Applied, Event, RetractedEvent

if TYPE_CHECKING:
    from tideline.channel.core import Core
    from tideline.channel.subscription import Subscription

__all__ = ["Admit", "apply", "nothing_to_retract", "read_table", "why_repeated"]

Words = NDArray[np.int64]
_MOST_ROWS = 65_536  # operations that share one frame of the log

Admit = Callable[[Operations, int], Callable[[bool], None]]
"""Is shown operations before any runs, with the first row that will, and may reject some; what it
returns is called when they have run, with whether all did."""


def apply(
    core: Core, table: pa.Table, once: tuple[str, int] | None = None, admit: Admit | None = None
) -> Applied:
    """Run a table of operations in order; the good rows land.

    With `once`, every frame carries how much of the writer's batch has landed with it: a batch
    that was cut in the middle by a kill goes on from there.
    """
    landed = 0
    if once is not None:
        with core.engine.lock:
            core.begin()
            found = core.engine.writers.landed(*once)
        if found is None:
            return Applied(answers_table([], [], [], [], []), rejected_table({}), repeated=True)
        landed = found
    operations = read_table(core, table)
    if admit is None:
        return _apply(core, operations, landed, once)
    settle = admit(operations, landed)
    whole = False
    try:
        applied = _apply(core, operations, landed, once)
        whole = True
    finally:
        settle(whole)
    return applied


def read_table(core: Core, table: pa.Table) -> Operations:
    """The operations of a table, checked by the limits of the channel."""
    return read_operations(
        table, core.space, core.ids.many, id_limit=ID_LIMIT_BYTES, body_limit=BODY_LIMIT_BYTES,
        ahead=core.ahead(),
    )  # fmt: skip


def _apply(
    core: Core, operations: Operations, landed: int, once: tuple[str, int] | None
) -> Applied:
    """Run operations from a row on."""
    rows, starts, used = operations.encode()
    n = len(operations.kinds)
    engine = core.engine
    if operations.deltas:
        engine.watch_deltas()
    # A change is judged against what was valid then: no row after it may have run.
    most = 1 if engine.deltas else _MOST_ROWS
    ending = operations.ending
    tables: list[pa.Table] = []
    for first in range(landed, max(n, 1) if once else n, most):
        limit = min(first + most, n)
        end = used if limit == n else int(starts[limit])
        begin = int(starts[first]) if n else 0
        part = rows[begin:end], starts[first:limit] - begin, ending[first:limit]
        tables.extend(_run(core, operations, *part, first, once))
    tables = [table for table in tables if table.num_rows] or tables[:1]
    if len(tables) == 1:
        answers = tables[0]
    elif tables:
        answers = pa.concat_tables(tables)  # one set of dictionaries would cost as much again
    else:
        answers = answers_table([], [], [], [], [])
    return Applied(answers, rejected_table(operations.rejected))


def _run(
    core: Core, operations: Operations, rows: Words, starts: Words, ending: NDArray[np.bool_],
    first: int, once: tuple[str, int] | None,
) -> list[pa.Table]:  # fmt: skip
    """Run some of the rows; the answers' row numbers count from the table's start."""
    engine, handles = core.engine, core.handles
    parts: list[pa.Table] = []
    deliveries: list[tuple[Subscription, Event, int]] = []
    taken = 0
    logged = (0, 0)  # rows, and deliveries, that the log has

    def landed() -> None:
        """What was taken out so far is in the log."""
        nonlocal logged
        logged = (taken, len(deliveries))

    def write(low: int, limit: int) -> Position | None:
        """Run the rows [low, limit) of these and log them."""
        begin = int(starts[low]) if len(starts) else 0
        end = int(starts[limit]) if limit < len(starts) else len(rows)
        some, some_starts = rows[begin:end], starts[low:limit] - begin
        batch = None if once is None else WriterBatch(*once, first + low, len(operations.kinds))
        losing = _losing(core, some) if handles.retracting and ending[low:limit].any() else None
        before = len(deliveries)

        def take(done: Done) -> Taken:
            """Take the answers of rows that have run out of the engine's memory."""
            nonlocal taken
            answers = done.answers
            if len(answers.row) or not parts:
                parts.append(answers_columns(engine, answers, some_starts))
            for at_row in np.flatnonzero(done.existing).tolist():
                row = done.first + at_row
                if some[some_starts[row]] & 0xFF != at.VOID:
                    continue  # it replaced what had its id
                number = first + low + row
                operations.repeated.add(number)
                if operations.kinds[number] == at.RETRACT:
                    reason: str | None = nothing_to_retract(some, some_starts, row)
                else:
                    existing = int(done.existing[at_row])
                    reason = why_repeated(engine, some, some_starts, row, existing)
                if reason:
                    operations.rejected[number] = reason
            taken = low + done.limit
            if handles:
                found = _deliveries(core, answers, some, some_starts)
                deliveries.extend((handle, event, event.seq) for handle, event in found)
            annotations = b""
            if engine.journal_us and len(answers.row):
                annotations = annotate_answers(_with_times(parts[-1], operations))
            return Taken(len(answers.row), annotations)

        position = engine.calls.write(
            some, some_starts, take, offset=first + low, batch=batch, landed=landed
        )
        if losing is not None and some[0] & 0xFF != at.VOID:
            event, told = losing
            seq = int(some[at.R_SEQ])
            kept = {handle.seq for handle, *_ in deliveries[before:]}
            gone = RetractedEvent.of(event, seq)
            deliveries.extend((handle, gone, seq) for handle in told if handle.seq not in kept)
            landed()
        return position

    def run() -> Position | None:
        position = None
        try:
            for low, limit in _cut(ending):
                position = write(low, limit) or position
        finally:
            if handles:
                engine.interrupts.owe(tell)
        core.clocked = abs(core.clock.now() - engine.newest) < 60_000_000
        return position

    def tell() -> None:
        """Hand out what was logged, though the rest may have failed."""
        for handle, event, seq in deliveries[: logged[1]]:
            handle.inbox.deliver([event], seq)
        for seq in cancelled_by(rows, starts[: logged[0]]):
            ended = handles.get(seq)
            if ended is not None:
                ended.inbox.end("cancelled")
                handles.pop(seq)

    with engine.lock:
        core.begin()
        position = engine.interrupts.sheltered(run)
    if position is not None and engine.store.sync:
        engine.store.log.sync(position)
    return parts


def _cut(ending: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Rows as ranges that are logged together: those that end an event by themselves.

    >>> _cut(np.array([False, False, True, True, False]))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    >>> _cut(np.array([False, False])), _cut(np.array([], bool))
    ([(0, 2)], [(0, 0)])
    """
    cuts = np.flatnonzero(ending)
    if not len(cuts):
        return [(0, len(ending))]
    return list(pairwise(np.unique([0, *cuts, *(cuts + 1), len(ending)]).tolist()))


def _losing(core: Core, rows: Words) -> tuple[Event, list[Subscription]] | None:
    """The event that a row is about to end, and the handles that were told of it."""
    row = read_rows(rows)[0]
    now = core.engine.now(row.made)
    event = find_event(core, row.id.encode(), now)
    return None if event is None else (event, told_of(core, event, now))


def nothing_to_retract(rows: Words, starts: Words, row: int) -> str:
    """Why a row that retracts did not land."""
    start = int(starts[row])
    given = read_rows(rows[start : start + (int(rows[start]) >> 32)])[0]
    return f"no valid event has this id: {given.id!r}"


def _with_times(answers: pa.Table, operations: Operations) -> pa.Table:
    """Answers as the journal has them: without rows of a table, with the time of each."""
    times = operations.now[answers["row"].to_numpy()]
    at_column = pa.array(times, pa.int64()).cast(ANSWERS.field("at").type)
    return answers.drop_columns("row").append_column("at", at_column)


def why_repeated(engine: Engine, rows: Words, starts: Words, row: int, existing: int) -> str | None:
    """Why a row whose id is taken, or that cancels nothing, did not land; None for a retry.

    `existing` is the record that has its id, or UNKNOWN.
    """
    start = int(starts[row])
    given = read_rows(rows[start : start + (int(rows[start]) >> 32)])[0]
    if existing == UNKNOWN:
        return f"no such subscription: {given.id!r}"
    side = at.SUBS if given.user else at.EVENTS
    stored = engine.records.one(side, existing)
    same = stored[4:9] == given[4:9] and stored.flags & at.R_UNSEEN == given.flags & at.R_UNSEEN
    if same and same_json(stored.text, given.text):
        return None
    what = "a subscription" if side == at.SUBS else "an event"
    return f"{what} with the id {given.id!r} exists with other content"


def _deliveries(
    core: Core, answers: Answers, rows: Words, starts: Words
) -> list[tuple[Subscription, Event]]:
    """The live answers of a call that somebody in this process waits for."""
    records = core.engine.records
    picked = np.flatnonzero(answers.live)
    if not len(picked):
        return []
    codes = np.unique(answers.sub[picked])
    packed = memoryview(records.pack(at.SUBS, answers.sub_refs[codes]))  # type: ignore[arg-type]
    wanted: dict[int, Subscription] = {}
    at_word = 0
    for code in codes.tolist():  # of a record only its seq is looked at
        handle = core.handles.get(packed[at_word + at.R_SEQ])
        at_word += packed[at_word] >> 32
        if handle is not None:
            wanted[code] = handle
    if not wanted:
        return []
    chosen = picked[np.isin(answers.sub[picked], np.fromiter(wanted, np.int64))]
    codes = np.unique(answers.event[chosen])
    refs = answers.event_refs[codes]
    in_row = (refs >= at.IN_ROW) & (refs < at.ON_DISK)
    events: dict[int, Event] = {}
    for code, ref in zip(codes[in_row].tolist(), refs[in_row].tolist(), strict=True):
        start = int(starts[ref - at.IN_ROW])
        [row] = read_rows(rows[start : start + (int(rows[start]) >> 32)])
        events[code] = core.event(row)
    if not in_row.all():
        stored = read_rows(records.pack(at.EVENTS, refs[~in_row]))
        for code, row in zip(codes[~in_row].tolist(), stored, strict=True):
            events[code] = core.event(row)
    pairs = zip(answers.sub[chosen].tolist(), answers.event[chosen].tolist(), strict=True)
    return [(wanted[sub], events[event]) for sub, event in pairs]
