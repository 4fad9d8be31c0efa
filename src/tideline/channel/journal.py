"""Reading a channel's log as a journal: what was written, in order, from any position.

A position lies between two frames: "segment:offset". It stays good while its segment is
kept, over restarts and kills: what was read once is read again the same. A channel with
`journal_s` keeps segments that long (by the channel's own time) and logs answers, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tideline.channel.annotations import ANSWERS, read_answers
from tideline.channel.core import Core
from tideline.channel.tables import Columns, count_rows, read_columns, records_table
from tideline.errors import InvalidRequest, Unavailable
from tideline.kernels import layout as at
from tideline.lsm.position import Position
from tideline.space import Space

__all__ = ["KINDS", "earliest", "journal", "position"]

KINDS = ("events", "subscriptions", "answers")
_ROW_KINDS = {"events": at.PUBLISH, "subscriptions": at.SUBSCRIBE, "answers": at.NOTE}


def position(core: Core) -> str:
    """Where the journal ends now."""
    with core.engine.lock:
        core.begin()
        return _text(core.engine.store.log.end)


def earliest(core: Core) -> str:
    """The earliest position that the journal still reaches back to."""
    with core.engine.lock:
        core.begin()
        return _text(core.engine.store.log.start)


def _text(position: Position) -> str:
    """A position as users hold it."""
    return str(position)


def journal(
    core: Core, kind: str, after: str | None, upto: str | None, limit: int
) -> tuple[pa.Table, str]:
    """What was written in (after, upto], and the position reached."""
    engine = core.engine
    if kind not in KINDS:
        raise InvalidRequest(f"kind must be one of {', '.join(KINDS)}", kind=kind)
    if kind == "answers" and not engine.journal_us:
        raise InvalidRequest("the channel notes no answers: open it with journal_s", kind=kind)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidRequest("limit must be a whole number from 1 on", limit=limit)
    log = engine.store.log
    with engine.lock:
        core.begin()
        start, end = log.start, log.end
    first = start if after is None else Position.parse(after, "after")
    last = end if upto is None else Position.parse(upto, "upto")
    if first < start:
        raise Unavailable(
            "the journal does not reach back so far any more", after=after,
            earliest=_text(start),
        )  # fmt: skip
    if first > end or last > end:
        raise InvalidRequest(
            "the position is after the journal's end: it is of another store, or this one lost "
            "its end", position=after if first > end else upto, end=_text(end),
        )  # fmt: skip
    row_kind = _ROW_KINDS[kind]
    found, reached = 0, first
    pieces: list[Any] = []
    for following, payload in log.read(first, last):
        if len(payload) % 8:
            raise InvalidRequest("after is not a position between two frames", after=after)
        words = np.frombuffer(payload, np.int64)
        count = count_rows(words, row_kind)
        if count and kind == "answers":
            pieces.append(read_columns(words, row_kind))
            count = int(pieces[-1].first.sum())  # an annotation says how many it holds
        elif count:
            pieces.append(words)
        found += count
        reached = following
        if found >= limit:
            break
    else:
        reached = max(first, last)
    table = _answers(pieces) if kind == "answers" else _records(core.space, kind, pieces)
    return table, _text(reached)


def _records(space: Space, kind: str, pieces: list[Any]) -> pa.Table:
    words = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
    return records_table(kind, read_columns(words, _ROW_KINDS[kind]), space)


def _answers(pieces: list[Columns]) -> pa.Table:
    tables = []
    for columns in pieces:
        for n in range(len(columns.flags)):
            flags, now = int(columns.flags[n]), int(columns.now[n])
            table = read_answers(flags, now, memoryview(columns.texts[n].as_buffer()))
            if table is not None:
                tables.append(table)
    return pa.concat_tables(tables) if tables else ANSWERS.empty_table()
