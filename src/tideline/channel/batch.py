"""`Channel.apply`: many operations in one call, answers as columns built at once.

    table -> Operations -> rows -> kernel -> codes -> dictionary columns

An answer is two codes and a row number; the texts behind the codes are copied once per
record, into the dictionaries of the `subscription`, `event` and `user` columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.channel.answers import Answers
from tideline.channel.checks import BODY_LIMIT_BYTES, ID_LIMIT_BYTES, same_json
from tideline.channel.codec import read_rows
from tideline.channel.engine import Engine
from tideline.channel.notes import ANSWERS, Mark, answers_note
from tideline.channel.operations import Operations, read_operations
from tideline.channel.results import Done, Taken, cancelled_by
from tideline.kernels import answers as columns
from tideline.kernels import layout as at
from tideline.kernels.rows import UNKNOWN
from tideline.lsm.log import Position
from tideline.model import Applied, Event

if TYPE_CHECKING:
    from tideline.channel.channel import Channel
    from tideline.channel.subscription import Subscription
    from tideline.index.memory import Memory

__all__ = [
    "Admit", "answers_columns", "answers_table", "apply", "rejected_table", "why_repeated",
]  # fmt: skip

Words = NDArray[np.int64]
Codes = NDArray[np.int32]
_MOST_ROWS = 65_536  # operations that share one frame of the log
_KINDS = pa.array(["past", "live"])
_TEXT = pa.dictionary(pa.int32(), pa.string())
_ANSWERS = pa.schema(
    [("row", pa.int64()), ("subscription", _TEXT), ("event", _TEXT), ("user", _TEXT),
     ("kind", pa.dictionary(pa.int8(), pa.string()))]
)  # fmt: skip


Admit = Callable[[Operations, int], Callable[[bool], None]]
"""Is shown operations before any runs, with the first row that will, and may reject some; what it
returns is called when they have run, with whether all did."""


def apply(
    channel: Channel, table: pa.Table, once: tuple[str, int] | None = None,
    admit: Admit | None = None,
) -> Applied:  # fmt: skip
    """Run a table of operations in order; the good rows land.

    With `once`, every frame carries how much of the writer's batch has landed with it: a batch
    that was cut in the middle by a kill goes on from there.
    """
    landed = 0
    if once is not None:
        with channel._engine.lock:
            if channel._engine.unfinished is not None:
                channel._engine.mend()
            found = channel._engine.writers.landed(*once)
        if found is None:
            return Applied(answers_table([], [], [], [], []), rejected_table({}), repeated=True)
        landed = found
    operations = read_operations(
        table, channel.space, channel._new_ids, id_limit=ID_LIMIT_BYTES,
        body_limit=BODY_LIMIT_BYTES, ahead=channel._ahead(),
    )  # fmt: skip
    if admit is None:
        return _apply(channel, operations, landed, once)
    settle = admit(operations, landed)
    whole = False
    try:
        applied = _apply(channel, operations, landed, once)
        whole = True
    finally:
        settle(whole)
    return applied


def _apply(
    channel: Channel, operations: Operations, landed: int, once: tuple[str, int] | None
) -> Applied:
    """Run operations from a row on."""
    rows, starts, used = operations.encode()
    n = len(operations.kinds)
    engine = channel._engine
    if operations.deltas:
        engine.watch_deltas()
    # A change is judged against what was valid then: no row after it may have run.
    most = 1 if engine.deltas else _MOST_ROWS
    tables: list[pa.Table] = []
    for first in range(landed, max(n, 1) if once else n, most):
        limit = min(first + most, n)
        end = used if limit == n else int(starts[limit])
        begin = int(starts[first]) if n else 0
        tables.extend(
            _run(channel, operations, rows[begin:end], starts[first:limit] - begin, first, once)
        )
    tables = [table for table in tables if table.num_rows] or tables[:1]
    if len(tables) == 1:
        answers = tables[0]
    elif tables:
        answers = pa.concat_tables(tables)  # one set of dictionaries would cost as much again
    else:
        answers = answers_table([], [], [], [], [])
    return Applied(answers, rejected_table(operations.rejected))


def _run(
    channel: Channel, operations: Operations, rows: Words, starts: Words, first: int,
    once: tuple[str, int] | None,
) -> list[pa.Table]:  # fmt: skip
    """Run some of the rows; the answers' row numbers count from the table's start."""
    engine = channel._engine
    parts: list[pa.Table] = []
    deliveries: list[tuple[Subscription, Event]] = []
    mark = None if once is None else Mark(*once, first, len(operations.kinds))
    taken = 0
    logged = (0, 0)  # rows, and deliveries, that the log has

    def landed() -> None:
        """What was taken out so far is in the log."""
        nonlocal logged
        logged = (taken, len(deliveries))

    def take(done: Done) -> Taken:
        """Take the answers of rows that have run out of the engine's memory."""
        nonlocal taken
        answers = done.answers
        parts.append(answers_columns(engine, answers, starts))
        for at_row in np.flatnonzero(done.existing).tolist():
            row = done.first + at_row
            operations.repeated.add(first + row)
            reason = why_repeated(channel, rows, starts, row, int(done.existing[at_row]))
            if reason:
                operations.rejected[first + row] = reason
        taken = done.limit
        if channel._handles:
            deliveries.extend(_deliveries(channel, answers, rows, starts))
        notes = b""
        if engine.journal_us and len(answers.row):
            notes = answers_note(_noted(parts[-1], operations))
        return Taken(len(answers.row), notes)

    def run() -> Position | None:
        try:
            position = engine.write(rows, starts, take, offset=first, mark=mark, landed=landed)
        finally:
            if channel._handles:
                engine.owe(tell)
        channel._clocked = abs(channel.clock.now() - engine.newest) < 60_000_000
        return position

    def tell() -> None:
        """Hand out what was logged, though the rest may have failed."""
        for handle, event in deliveries[: logged[1]]:
            handle._deliver([event], event.seq)
        for seq in cancelled_by(rows, starts[: logged[0]]):
            ended = channel._handles.get(seq)
            if ended is not None:
                ended._end("cancelled")
                channel._handles.pop(seq)

    with engine.lock:
        if engine.unfinished is not None:
            engine.mend()
        channel._check_open()
        position = engine.sheltered(run)
    if position is not None and engine.store.sync:
        engine.store.log.sync(position)
    return parts


def _noted(answers: pa.Table, operations: Operations) -> pa.Table:
    """Answers as a note tells them: without rows of a table, with the time of each."""
    times = operations.now[answers["row"].to_numpy()]
    at_column = pa.array(times, pa.int64()).cast(ANSWERS.field("at").type)
    return answers.drop_columns("row").append_column("at", at_column)


def answers_columns(engine: Engine, answers: Answers, starts: Words) -> pa.Table:
    """The answers of a call as columns (the lock is held)."""
    subs, sub_ids, users, user_ids = _subscriptions(engine, answers, starts)
    events, event_ids = _events(engine, answers, starts)
    return pa.Table.from_arrays(
        [
            pa.array(answers.row),
            _coded(subs, sub_ids),
            _coded(events, event_ids),
            _coded(users, user_ids),
            _coded(answers.live, _KINDS),
        ],
        schema=_ANSWERS,
    )


def _subscriptions(
    engine: Engine, answers: Answers, starts: Words
) -> tuple[Codes, pa.Array, Codes, pa.Array]:
    """Codes and texts for the columns `subscription` and `user`."""
    memory = engine.sides[0].memory
    codes, refs = answers.sub, answers.sub_refs
    n = len(refs)
    user_of = np.empty(n, np.int32)
    room = 24 * n + 64
    while True:
        ids, users = _Texts(n, room), _Texts(n, room)
        table = np.zeros(4 << n.bit_length(), np.int64)
        count = int(
            columns.pack_subscriptions(
                memory.address, engine.address, refs, starts, table, ids.offsets, ids.data,
                user_of, users.offsets, users.data,
            )
        )  # fmt: skip
        if count >= 0:
            break
        room *= 4
    of_answers = np.empty_like(codes)
    columns.take_codes(user_of, codes, of_answers)
    return *_distinct(memory, refs, codes, ids.array(n)), of_answers, users.array(count)


def _events(engine: Engine, answers: Answers, starts: Words) -> tuple[Codes, pa.Array]:
    """Codes and texts for the column `event`."""
    memory = engine.sides[-1].memory
    codes, refs = answers.event, answers.event_refs
    n = len(refs)
    room = 24 * n + 64
    while True:
        ids = _Texts(n, room)
        if columns.pack_events(
            memory.address, engine.address, refs, starts, ids.offsets, ids.data
        ) >= 0:  # fmt: skip
            return _distinct(memory, refs, codes, ids.array(n))
        room *= 4


class _Texts:
    """Room for texts, filled by a kernel."""

    def __init__(self, count: int, room: int) -> None:
        self.offsets = np.empty(count + 1, np.int32)
        self.data = np.empty(room, np.uint8)

    def array(self, count: int) -> pa.Array:
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.string(), count, buffers)


def _distinct(memory: Memory, refs: Words, codes: Codes, ids: pa.Array) -> tuple[Codes, pa.Array]:
    """The same with every id once: two records of a call may have one, seldom."""
    if not memory.state[at.E_REUSED] and not (refs >= at.ON_DISK).any():
        return codes, ids
    coded = ids.dictionary_encode()
    again = np.empty_like(codes)
    columns.take_codes(np.array(coded.indices), codes, again)
    return again, coded.dictionary


def _coded(codes: NDArray[Any], texts: pa.Array) -> pa.DictionaryArray:
    # Codes come from a kernel that counts texts: checking them again would read every answer.
    return pa.DictionaryArray.from_arrays(pa.array(codes), texts, safe=False)


def why_repeated(
    channel: Channel, rows: Words, starts: Words, row: int, existing: int
) -> str | None:
    """Why a row whose id is taken, or that cancels nothing, did not land; None for a retry.

    `existing` is the record that has its id, or UNKNOWN.
    """
    start = int(starts[row])
    given = read_rows(rows[start : start + (int(rows[start]) >> 32)])[0]
    if existing == UNKNOWN:
        return f"no such subscription: {given.id!r}"
    side = at.SUBS if given.user else at.EVENTS
    stored = channel._engine.record(side, existing)
    same = stored[4:9] == given[4:9] and stored.flags & at.R_UNSEEN == given.flags & at.R_UNSEEN
    if same and same_json(stored.text, given.text):
        return None
    what = "a subscription" if side == at.SUBS else "an event"
    return f"{what} with the id {given.id!r} exists with other content"


def _deliveries(
    channel: Channel, answers: Answers, rows: Words, starts: Words
) -> list[tuple[Subscription, Event]]:
    """The live answers of a call that somebody in this process waits for."""
    engine = channel._engine
    picked = np.flatnonzero(answers.live)
    if not len(picked):
        return []
    codes = np.unique(answers.sub[picked])
    packed = memoryview(engine.pack(at.SUBS, answers.sub_refs[codes]))  # type: ignore[arg-type]
    wanted: dict[int, Subscription] = {}
    at_word = 0
    for code in codes.tolist():  # of a record only its seq is looked at
        handle = channel._handles.get(packed[at_word + at.R_SEQ])
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
        events[code] = channel._event(row)
    if not in_row.all():
        stored = read_rows(engine.pack(at.EVENTS, refs[~in_row]))
        for code, row in zip(codes[~in_row].tolist(), stored, strict=True):
            events[code] = channel._event(row)
    pairs = zip(answers.sub[chosen].tolist(), answers.event[chosen].tolist(), strict=True)
    return [(wanted[sub], events[event]) for sub, event in pairs]


def answers_table(
    rows: list[int], subs: list[str], events: list[str], users: list[str], kinds: list[str]
) -> pa.Table:
    """Answers given one by one, in the same columns."""
    return pa.Table.from_arrays(
        [
            pa.array(rows, pa.int64()), pa.array(subs, pa.string()).dictionary_encode(),
            pa.array(events, pa.string()).dictionary_encode(),
            pa.array(users, pa.string()).dictionary_encode(),
            pa.array(kinds, pa.string()).dictionary_encode().cast(_ANSWERS.field("kind").type),
        ],
        schema=_ANSWERS,
    )  # fmt: skip


def rejected_table(rejected: dict[int, str]) -> pa.Table:
    """The rows that did not land, with the reason."""
    rows = sorted(rejected)
    return pa.table(
        {"row": pa.array(rows, pa.int64()),
         "reason": pa.array([rejected[row] for row in rows], pa.string())}
    )  # fmt: skip
