"""`Channel.prolong`: move the end of a subscription's window.

    one frame of the log:   CANCEL the record | SUBSCRIBE it again with the new end | notes

Records lie in windows by their end, so a new end is a new record. Both rows are in one frame: after
a kill the subscription is there with its old end or with its new one. The new record finds its past
again; of that, only events that happened at or after the old end, and were no answers before, are
new answers, and only those are delivered. The handle goes on under the new record.

What a moved end does to events that happen in the future is noted (lineage.py), so that whoever
resumes later gets what an uncut handle got, in the same order (resume.py).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from tideline.channel.answers import Answers, holding
from tideline.channel.checks import shown
from tideline.channel.codec import Row, read_rows, write_row
from tideline.channel.lineage import PASSED_OVER, Exceptions
from tideline.channel.notes import listed_note, prolonged_note
from tideline.channel.resume import by_rule
from tideline.errors import InvalidRequest
from tideline.kernels import layout as at
from tideline.lsm.log import Position
from tideline.model import Event, LateEvent, SubscriptionInfo
from tideline.space.place import Place
from tideline.where import parse_text

if TYPE_CHECKING:
    from tideline.channel.channel import Channel

__all__ = ["prolong"]

_FEW_RECORDS = 8


class _Split(Exception):
    """Memory ran out between the two rows: they must stay together, so both begin again."""


def prolong(channel: Channel, ident: bytes, now: int, until_us: int) -> tuple[
    SubscriptionInfo, Position | None
]:  # fmt: skip
    """Give a subscription a new end (the lock is held). Returns it, and what to sync."""
    engine = channel._engine
    row = channel._stored(ident, now)
    if until_us <= max(now, row.first):
        raise InvalidRequest(
            "the new end must be after now and after the window's start: cancel ends it now",
            until=shown(until_us), now=shown(now),
        )  # fmt: skip
    if until_us == row.until:
        return channel._info(row), None
    unseen = bool(row.flags & at.R_UNSEEN)
    known = engine.lineage.of(row.seq).exceptions
    before = _exceptions(channel, row, now, until_us, known)
    while True:
        try:
            found, made, position = _replace(channel, row, now, until_us, known, before)
            break
        except _Split:
            engine._serve(at.NEED_MEMORY)
    seq = int(engine.state[at.C_NEXT_SEQ]) - 1
    handle = channel._handles.pop(row.seq)
    if handle is not None:
        handle.seq, handle.until_us = seq, until_us
        channel._handles.add(handle)
        if found:
            handle._deliver(found)
        handle._notify()  # whoever waits for the end waits for another now
    engine.answers += len(found)
    if unseen or made or known:
        records = _records(channel, row, now, max(row.until, until_us)) if unseen else []
        engine.lineage.note(seq, row.seq, until_us, made, records)
    return channel._info(row._replace(seq=seq, until=until_us)), position


def _exceptions(
    channel: Channel, row: Row, now: int, until_us: int, known: Exceptions
) -> Exceptions:
    """What must be remembered of events from the earlier end on, before the end moves.

    Cut short, the window leaves out what it was answered with. Prolonged, an unseen one may not be
    answered with all that the new end lets in: until it is, it counts as passed over.
    """
    events: list[Event] = []
    if until_us < row.until:
        events += by_rule(channel, row, now, -1, max(row.first, until_us))
        return {e.seq: (e.seq, e.until_us) for e in events if e.seq not in known}
    if row.flags & at.R_UNSEEN:
        condition = parse_text(row.text, delta=True)
        events += channel._find(row.place, row.until, until_us, now, condition=condition)
    return {e.seq: (PASSED_OVER, e.until_us) for e in events if e.seq not in known}


def _replace(
    channel: Channel, row: Row, now: int, until_us: int, known: Exceptions, before: Exceptions
) -> tuple[list[Event], Exceptions, Position | None]:
    """Run and log the two rows; the events that are answers only because of the new end, and
    all new exceptions."""
    engine = channel._engine
    buffer = channel._rows()
    ident = row.id.encode()
    second = write_row(buffer, at.CANCEL, 0, 0, now, 0, 0, Place(b""), ident, b"", b"")
    flags = row.flags & (at.R_COND | at.R_UNSEEN)
    words = second + write_row(
        buffer[second * 8 :], at.SUBSCRIBE, flags, 0, now, row.first, until_us, row.place, ident,
        row.user.encode(), row.text,
    )  # fmt: skip
    starts = np.array([0, second], np.int64)
    found: list[Event] = []
    made = dict(before)

    def part(result: int) -> bytes:
        if engine.state[at.C_ROW] < 2:
            raise _Split
        seq = int(engine.state[at.C_NEXT_SEQ]) - 1
        answers = Answers(engine, starts, 0, 2)
        if result & 256:
            answers.keep(holding(engine, answers, starts, engine.newest))
        if len(answers.event):
            refs = engine.call.event_refs[answers.event]
            rows = [r for r in read_rows(engine.pack(at.EVENTS, refs)) if r.first >= row.until]
            for late in sorted(rows, key=lambda r: r.seq):
                if late.seq not in known:
                    found.append(LateEvent.of(channel._event(late), seq))
                    made[late.seq] = (seq, late.until)
        notes = b""
        if row.flags & at.R_UNSEEN or made or known:
            notes += prolonged_note(seq, row.seq, until_us, made)
        if engine.journal_us and found:
            notes += listed_note(now, [(row.id, event.id, row.user, "past") for event in found])
        return notes

    position = engine.write(words, 2, part)
    return found, made, position


def _records(channel: Channel, row: Row, now: int, until_us: int) -> list[int]:
    """The records of an unseen subscription up to now, without those no valid event needs.

    A record speaks for the events of its time. Now and then those that have none left are let go.
    """
    records = [*channel._engine.lineage.of(row.seq).before, row.seq]
    if len(records) < _FEW_RECORDS or len(records) & (len(records) - 1):
        return records
    found = channel._find(row.place, row.first, until_us, now, after=records[0])
    arrived = sorted(event.seq for event in found)
    limits = [*records[1:], 1 << 62]
    return records[:1] + [
        seq
        for seq, limit in zip(records[1:], limits[1:], strict=True)
        if bisect_left(arrived, limit) > bisect_left(arrived, seq)
    ]
