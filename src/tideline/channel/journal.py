"""Reading a channel's log as a journal: what was written, in order, from any position.

A position lies between two frames: "segment:offset". It stays good while its segment is
kept, over restarts and kills: what was read once is read again the same. A channel with
`journal_s` keeps segments that long (by the channel's own time) and notes answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tideline.channel import notes
from tideline.channel.tables import Columns, count_rows, read_columns, records_table
from tideline.errors import InvalidRequest, Unavailable
from tideline.kernels import layout as at
from tideline.lsm.position import Position

if TYPE_CHECKING:
    from tideline.channel.channel import Channel

__all__ = ["KINDS", "journal", "text_of"]

KINDS = ("events", "subscriptions", "answers")
_ROW_KINDS = {"events": at.PUBLISH, "subscriptions": at.SUBSCRIBE, "answers": at.NOTE}


def text_of(position: Position) -> str:
    """A position as users hold it."""
    return str(position)


def journal(
    channel: Channel, kind: str, after: str | None, upto: str | None, limit: int
) -> tuple[pa.Table, str]:
    """What was written in (after, upto], and the position reached."""
    engine = channel._engine
    if kind not in KINDS:
        raise InvalidRequest(f"kind must be one of {', '.join(KINDS)}", kind=kind)
    if kind == "answers" and not engine.journal_us:
        raise InvalidRequest("the channel notes no answers: open it with journal_s", kind=kind)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidRequest("limit must be a whole number from 1 on", limit=limit)
    log = engine.store.log
    with engine.lock:
        if engine.unfinished is not None:
            engine.mend()
        channel._check_open()
        earliest, end = log.start, log.end
    first = earliest if after is None else Position.parse(after, "after")
    last = end if upto is None else Position.parse(upto, "upto")
    if first < earliest:
        raise Unavailable(
            "the journal does not reach back so far any more", after=after,
            earliest=text_of(earliest),
        )  # fmt: skip
    if first > end or last > end:
        raise InvalidRequest(
            "the position is after the journal's end: it is of another store, or this one lost "
            "its end", position=after if first > end else upto, end=text_of(end),
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
            count = int(pieces[-1].first.sum())  # a note says how many answers it holds
        elif count:
            pieces.append(words)
        found += count
        reached = following
        if found >= limit:
            break
    else:
        reached = max(first, last)
    table = _answers(pieces) if kind == "answers" else _records(channel, kind, pieces)
    return table, text_of(reached)


def _records(channel: Channel, kind: str, pieces: list[Any]) -> pa.Table:
    words = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
    return records_table(kind, read_columns(words, _ROW_KINDS[kind]), channel.space)


def _answers(pieces: list[Columns]) -> pa.Table:
    tables = []
    for columns in pieces:
        for n in range(len(columns.flags)):
            flags, now = int(columns.flags[n]), int(columns.now[n])
            table = notes.read_answers(flags, now, memoryview(columns.texts[n].as_buffer()))
            if table is not None:
                tables.append(table)
    return pa.concat_tables(tables) if tables else notes.ANSWERS.empty_table()
