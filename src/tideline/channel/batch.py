"""`Channel.apply`: many operations in one call, answers as columns built at once.

    table -> Operations -> rows -> kernel -> codes -> dictionary columns

An answer is two codes and a row number; the texts behind the codes are copied once per
record, into the dictionaries of the `subscription`, `event` and `user` columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.channel.answers import Answers, holding
from tideline.channel.checks import BODY_LIMIT_BYTES, ID_LIMIT_BYTES, same_json
from tideline.channel.codec import read_rows
from tideline.channel.operations import Operations, read_operations
from tideline.kernels import export
from tideline.kernels import layout as at
from tideline.kernels.rows import UNKNOWN
from tideline.model import Applied, Event

if TYPE_CHECKING:
    from tideline.channel.channel import Channel
    from tideline.channel.subscription import Subscription
    from tideline.index.memory import Memory

__all__ = ["answers_table", "apply", "rejected_table"]

Words = NDArray[np.int64]
_MOST_ROWS = 65_536  # operations that share one frame of the log
_KINDS = pa.array(["past", "live"])
_TEXT = pa.dictionary(pa.int32(), pa.string())
_ANSWERS = pa.schema(
    [("row", pa.int64()), ("subscription", _TEXT), ("event", _TEXT), ("user", _TEXT),
     ("kind", pa.dictionary(pa.int8(), pa.string()))]
)  # fmt: skip


def apply(channel: Channel, table: pa.Table) -> Applied:
    """Run a table of operations in order; the good rows land."""
    operations = read_operations(
        table, channel.space, channel._new_ids, id_limit=ID_LIMIT_BYTES,
        body_limit=BODY_LIMIT_BYTES,
    )  # fmt: skip
    rows, starts, used = operations.encode()
    n = len(operations.kinds)
    tables: list[pa.Table] = []
    for first in range(0, n, _MOST_ROWS):
        limit = min(first + _MOST_ROWS, n)
        end = used if limit == n else int(starts[limit])
        begin = int(starts[first])
        tables.extend(
            _run(channel, operations, rows[begin:end], starts[first:limit] - begin, first)
        )
    if len(tables) == 1:
        answers = tables[0]
    elif tables:
        answers = pa.concat_tables(tables).unify_dictionaries()
    else:
        answers = answers_table([], [], [], [], [])
    return Applied(answers, rejected_table(operations.rejected))


def _run(
    channel: Channel, operations: Operations, rows: Words, starts: Words, first: int
) -> list[pa.Table]:
    """Run some of the rows; the answers' row numbers count from the table's start."""
    engine = channel._engine
    call = engine.call
    count = len(starts)
    parts: list[pa.Table] = []
    deliveries: list[tuple[Subscription, Event]] = []
    done = 0

    def part(result: int) -> None:
        """Take the answers of the rows done so far out of the engine's memory."""
        nonlocal done
        limit = int(engine.state[at.C_ROW])
        answers = Answers(engine, starts, done, limit)
        if result & 256:
            answers.keep(holding(engine, answers, starts))
        parts.append(_table(channel, answers, starts, first))
        for row in (np.flatnonzero(call.duplicates[done:limit]) + done).tolist():
            reason = _repeated(channel, rows, starts, row)
            if reason:
                operations.rejected[first + row] = reason
        done = limit
        if channel._handles:
            deliveries.extend(_deliveries(channel, answers, starts))

    with engine.lock:
        channel._check_open()
        call.use_rows(rows)
        call.room_for(count)
        try:
            result, position = engine.write(len(rows), count, part)
            part(result)
        finally:
            call.use_rows(engine.own_rows)
        engine.answers += sum(table.num_rows for table in parts)
        for handle, event in deliveries:
            handle._deliver([event])
        if channel._handles:
            _end_cancelled(channel, operations, rows, starts, first)
        channel._clocked = abs(channel.clock.now() - engine.newest) < 60_000_000
    if position is not None and engine.store.sync:
        engine.store.log.sync(position)
    return parts


def _table(channel: Channel, answers: Answers, starts: Words, first: int) -> pa.Table:
    """The answers of a call as columns."""
    engine = channel._engine
    call, state = engine.call, engine.state
    subs = int(state[at.C_SUB_REF_COUNT])
    events = int(state[at.C_EVENT_REF_COUNT])
    sub_codes, event_codes = answers.sub, answers.event
    sub_memory, event_memory = engine.sides[0].memory, engine.sides[-1].memory
    sub_refs, event_refs = call.sub_refs[:subs], call.event_refs[:events]
    columns = [
        pa.array(answers.row + first),
        _dictionary(sub_memory.address, at.SUBS, False, sub_refs, call.rows, starts, sub_codes,
                    _distinct(sub_memory, sub_refs)),
        _dictionary(event_memory.address, at.EVENTS, False, event_refs, call.rows, starts,
                    event_codes, _distinct(event_memory, event_refs)),
        _dictionary(sub_memory.address, at.SUBS, True, sub_refs, call.rows, starts, sub_codes),
        pa.DictionaryArray.from_arrays(pa.array(answers.live.view(np.int8)), _KINDS),
    ]  # fmt: skip
    return pa.Table.from_arrays(columns, schema=_ANSWERS)


def _distinct(memory: Memory, refs: Words) -> bool:
    """Whether no two of these records can have one id."""
    return not memory.state[at.E_REUSED] and not (refs >= at.ON_DISK).any()


def _dictionary(
    address: int, side: int, user: bool, refs: Words, rows: Words, starts: Words, codes: Words,
    distinct: bool = False,
) -> pa.DictionaryArray:  # fmt: skip
    """A column of texts: one per code, each distinct text once."""
    offsets = np.empty(len(refs) + 1, np.int32)
    room = 24 * len(refs) + 64
    while True:
        data = np.empty(room, np.uint8)
        used = int(export.pack_texts(address, side, user, refs, rows, starts, offsets, data))
        if used >= 0:
            break
        room *= 4
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    texts = pa.Array.from_buffers(pa.string(), len(refs), buffers)
    if distinct:
        return pa.DictionaryArray.from_arrays(pa.array(codes), texts)
    coded = texts.dictionary_encode()
    indices = np.asarray(coded.indices)[codes]
    return pa.DictionaryArray.from_arrays(pa.array(indices), coded.dictionary)


def _repeated(channel: Channel, rows: Words, starts: Words, row: int) -> str | None:
    """Why a row whose id is taken, or that cancels nothing, did not land; None for a retry."""
    ref = int(channel._engine.call.duplicates[row])
    start = int(starts[row])
    given = read_rows(rows[start : start + (int(rows[start]) >> 32)])[0]
    if ref == UNKNOWN:
        return f"no such subscription: {given.id!r}"
    side = at.SUBS if given.user else at.EVENTS
    stored = channel._record(side, ref)
    same = stored[4:-1] == given[4:-1] and stored.flags & at.R_UNSEEN == given.flags & at.R_UNSEEN
    if same and same_json(stored.text, given.text):
        return None
    what = "a subscription" if side == at.SUBS else "an event"
    return f"{what} with the id {given.id!r} exists with other content"


def _end_cancelled(
    channel: Channel, operations: Operations, rows: Words, starts: Words, first: int
) -> None:
    """Tell the handles of subscriptions that a row of this call cancelled."""
    kinds = operations.kinds[first : first + len(starts)]
    for row in np.flatnonzero(kinds == at.CANCEL).tolist():
        start = int(starts[row])
        if rows[start] & 0xFF == at.CANCEL:
            handle = channel._handles.pop(int(rows[start + at.R_AT]))
            if handle is not None:
                handle._end()


def _deliveries(
    channel: Channel, answers: Answers, starts: Words
) -> list[tuple[Subscription, Event]]:
    """The live answers of a call that somebody in this process waits for."""
    engine = channel._engine
    call = engine.call
    picked = np.flatnonzero(answers.live)
    if not len(picked):
        return []
    codes = np.unique(answers.sub[picked])
    records = read_rows(engine.pack(at.SUBS, call.sub_refs[codes]))
    wanted: dict[int, Subscription] = {}
    for code, record in zip(codes.tolist(), records, strict=True):
        handle = channel._handles.get(record.seq)
        if handle is not None:
            wanted[code] = handle
    if not wanted:
        return []
    chosen = picked[np.isin(answers.sub[picked], np.fromiter(wanted, np.int64))]
    events: dict[int, Event] = {}
    found = []
    for k in chosen.tolist():
        code = int(answers.event[k])
        if code not in events:
            ref = int(call.event_refs[code])
            if at.IN_ROW <= ref < at.ON_DISK:
                start = int(starts[ref - at.IN_ROW])
                row = read_rows(call.rows[start : start + (int(call.rows[start]) >> 32)])[0]
            else:
                row = channel._record(at.EVENTS, ref)
            events[code] = channel._event(row)
        found.append((wanted[int(answers.sub[k])], events[code]))
    return found


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
