"""Reading a channel's log as a journal: what was written, in order, from any position.

A position lies between two frames: "segment:offset". It stays good while its segment is
kept, over restarts and kills: what was read once is read again the same. A channel with
`journal_s` keeps segments that long (by the channel's own time) and logs answers, too.

A retraction is told with the seq of the event that it ended; an event that replaced another has
ended that one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tideline.channel.annotations import ANSWERS, read_answers
from tideline.channel.core import Core
from tideline.channel.tables import Columns, Words, count_rows, read_columns, records_table
from tideline.errors import InvalidRequest, Unavailable
from tideline.kernels import layout as at
from tideline.lsm.position import Position
from tideline.lsm.sharedlog import SharedLog, wait_for_others
from tideline.space import Space

__all__ = ["KINDS", "earliest", "journal", "position"]

KINDS = ("events", "subscriptions", "answers", "retractions")
_ROW_KINDS = {"events": at.PUBLISH, "subscriptions": at.SUBSCRIBE, "answers": at.NOTE}
_RETRACTIONS = pa.schema([
    ("id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("event", pa.int64()),
    ("seq", pa.int64()),
])  # fmt: skip


def position(core: Core) -> str:
    """Where the journal ends now."""
    with core.engine.lock:
        core.begin()
        return _text(_end(core))


def earliest(core: Core) -> str:
    """The earliest position that the journal still reaches back to."""
    with core.engine.lock:
        core.begin()
        return _text(_start(core))


def _start(core: Core) -> Position:
    """Where the journal begins: after what was loaded in bulk, which is in no log."""
    start, loaded = core.engine.store.log.start, core.engine.facts.get("loaded")
    return start if loaded is None else max(start, Position.parse(loaded))


def _end(core: Core) -> Position:
    """Where it ends; in a cluster before what is not agreed on, which may go (the lock is held)."""
    log = core.engine.store.log
    return log.committed if isinstance(log, SharedLog) else log.end


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
    told = [Position.parse(p, name) for p, name in ((after, "after"), (upto, "upto")) if p]
    wait_for_others(log, lambda: all(position <= log.committed for position in told))
    with engine.lock:
        core.begin()
        start, end = _start(core), _end(core)
    first = start if after is None else Position.parse(after, "after")
    last = end if upto is None else Position.parse(upto, "upto")
    if first < start:
        raise Unavailable(
            "the journal does not reach back so far any more, or a bulk load came in between: "
            "read the channel, then follow from the earliest", after=after,
            earliest=_text(start),
        )  # fmt: skip
    if first > end or last > end:
        raise InvalidRequest(
            "the position is after the journal's end: it is of another store, or this one lost "
            "its end", position=after if first > end else upto, end=_text(end),
        )  # fmt: skip
    row_kind = _ROW_KINDS.get(kind, at.RETRACT)
    found, reached = 0, first
    pieces: list[Any] = []
    for following, payload in log.read(first, last):
        if len(payload) % 8:
            raise InvalidRequest("after is not a position between two frames", after=after)
        words = np.frombuffer(payload, np.int64)
        count = count_rows(words, row_kind)
        if kind == "retractions":
            pieces.append(_retractions(words))
            count = len(pieces[-1])
        elif count and kind == "answers":
            notes = read_columns(words, row_kind)
            pieces.append(notes)
            told = notes.flags & (at.N_ANSWERS | at.N_LISTED) != 0  # others are of writers
            count = int(notes.first[told].sum())  # an annotation says how many it holds
        elif count:
            pieces.append(words)
        found += count
        reached = following
        if found >= limit:
            break
    else:
        reached = max(first, last)
    if kind == "retractions":
        table = pa.concat_tables([_RETRACTIONS.empty_table(), *pieces])
    else:
        table = _answers(pieces) if kind == "answers" else _records(core.space, kind, pieces)
    return table, _text(reached)


def _retractions(words: Words) -> pa.Table:
    """The events that the rows of a frame ended, in order."""
    tables = []
    for kind in (at.RETRACT, at.PUBLISH):
        if not count_rows(words, kind):
            continue
        rows = read_columns(words, kind)
        ended = rows.first
        if kind == at.PUBLISH:
            ends = rows.starts + (words[rows.starts] >> 32)
            ended = np.where(rows.flags & at.R_REPLACES, words[ends + at.R_TARGET], 0)
        times = pa.array(rows.now).cast(_RETRACTIONS.field("at").type)
        columns = [rows.ids.cast(pa.string()), times, pa.array(ended), pa.array(rows.seq)]
        table = pa.Table.from_arrays(columns, schema=_RETRACTIONS)
        tables.append(table.filter(pa.array(ended > 0)))
    return pa.concat_tables(tables or [_RETRACTIONS.empty_table()]).sort_by("seq")


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
