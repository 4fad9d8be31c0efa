"""`Channel.prolong`: move the end of a subscription's window.

    one frame of the log:   CANCEL the record | SUBSCRIBE it again with the new end | notes

Records lie in windows by their end, so a new end is a new record. Both rows are in one frame: after
a kill the subscription is there with its old end or with its new one. The new record finds its past
again; of that, only events that happened at or after the old end are new answers, and only those
are delivered. The handle goes on under the new record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tideline.channel.answers import Answers, holding
from tideline.channel.codec import Row, read_rows, write_row
from tideline.channel.notes import listed_note, prolonged_note
from tideline.errors import InvalidRequest
from tideline.kernels import layout as at
from tideline.lsm.log import Position
from tideline.model import Event, SubscriptionInfo
from tideline.space.place import Place

if TYPE_CHECKING:
    from tideline.channel.channel import Channel

__all__ = ["prolong"]


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
            until_us=until_us, now_us=now,
        )  # fmt: skip
    if until_us == row.until:
        return channel._info(row), None
    while True:
        try:
            found, position = _replace(channel, row, now, until_us)
            break
        except _Split:
            engine._serve(at.NEED_MEMORY)
    seq = int(engine.state[at.C_NEXT_SEQ]) - 1
    if row.flags & at.R_UNSEEN:
        engine.lineage.note(seq, row.seq, until_us)
    handle = channel._handles.pop(row.seq)
    if handle is not None:
        handle.seq, handle.until_us = seq, until_us
        channel._handles.add(handle)
        if found:
            handle._deliver(found)
        handle._notify()  # whoever waits for the end waits for another now
    engine.answers += len(found)
    return channel._info(row._replace(seq=seq, until=until_us)), position


def _replace(
    channel: Channel, row: Row, now: int, until_us: int
) -> tuple[list[Event], Position | None]:
    """Run and log the two rows; the events that are answers only because of the new end."""
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

    def part(result: int) -> bytes:
        if engine.state[at.C_ROW] < 2:
            raise _Split
        answers = Answers(engine, starts, 0, 2)
        if result & 256:
            answers.keep(holding(engine, answers, starts, engine.newest))
        if len(answers.event):
            refs = engine.call.event_refs[answers.event]
            new = [r for r in read_rows(engine.pack(at.EVENTS, refs)) if r.first >= row.until]
            found.extend(channel._event(r) for r in sorted(new, key=lambda r: r.seq))
        notes = b""
        if row.flags & at.R_UNSEEN:
            seq = int(engine.state[at.C_NEXT_SEQ]) - 1
            notes += prolonged_note(seq, row.seq, until_us)
        if engine.journal_us and found:
            notes += listed_note(now, [(row.id, event.id, row.user, "past") for event in found])
        return notes

    return found, engine.write(words, 2, part)
