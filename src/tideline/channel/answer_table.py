"""Answers as Arrow tables: columns built at once, the texts behind codes copied once per record.

    Answers (codes) -> kernel: ids and users of the records -> dictionary columns

`answers_columns` is for the answers of a call, `answers_table` for answers given one by one.

Under the engine's lock, as far as records are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.channel.answers import Answers
from tideline.channel.engine import Engine
from tideline.index.memory import Memory
from tideline.kernels import answers as columns
from tideline.kernels import layout as at

__all__ = ["answers_columns", "answers_table", "rejected_table"]

Words = NDArray[np.int64]
Codes = NDArray[np.int32]
_KINDS = ["past", "live"]  # an array of it is made late: the first loads pandas, if there is one
_TEXT = pa.dictionary(pa.int32(), pa.string())
_ANSWERS = pa.schema(
    [("row", pa.int64()), ("subscription", _TEXT), ("event", _TEXT), ("user", _TEXT),
     ("kind", pa.dictionary(pa.int8(), pa.string()))]
)  # fmt: skip


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
            _coded(answers.live, pa.array(_KINDS)),
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
                memory.address, engine.parts.address, refs, starts, table, ids.offsets, ids.data,
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
            memory.address, engine.parts.address, refs, starts, ids.offsets, ids.data
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
