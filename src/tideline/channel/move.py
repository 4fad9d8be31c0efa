"""`Channel.move`: a subscription watches another place from now on.

Records lie at places, so another place is another record, as another end is (prolong.py): one row
stores it and ends the record before it, in memory and in the log. After a kill the subscription is
at its old place or at its new one.

Under one lock: which answers it has had, which events the new place has, the difference, the row.
So what is valid at the new place is delivered, unless it was an answer before; nothing comes twice
and nothing falls between.

The rule by which `resume` finds answers speaks of one place (lineage.py). So those of the old place
that the new one does not have, and those that the move found, are noted as exceptions, with the
ids of their events: as many as are still valid. An event leaves the notes when it expires.
"""

from __future__ import annotations

from tideline.channel.annotations import annotate_listed, annotate_prolonged
from tideline.channel.codec import Row, Words, read_rows, write_prolonged, write_row
from tideline.channel.core import Core
from tideline.channel.find import find_events
from tideline.channel.lineage import Exceptions
from tideline.channel.results import Taken, Written
from tideline.channel.resume import START, missed, turn_of
from tideline.clock import FOREVER
from tideline.kernels import layout as at
from tideline.lsm.position import Position
from tideline.model.channels import Event, LateEvent
from tideline.space.place import Place

__all__ = ["move"]


def move(core: Core, row: Row, now: int, place: Place) -> tuple[Row, Position | None]:
    """Put a subscription at another place (sheltered work). Its record, and what to sync."""
    engine = core.engine
    if place == row.place:
        return row, None
    had = {event.seq: event for event in missed(core, row, now, START)}
    there = {event.seq for event in find_events(core, place, row.first, row.until, now)}
    known = engine.lineage.of(row.seq)
    kept: Exceptions = {
        seq: (turn_of(event), event.until_us, event.id)
        for seq, event in had.items()
        if seq in known or seq not in there
    }
    seq = engine.next_seq
    late: list[Event] = []

    def exceptions() -> Exceptions:
        return kept | {event.seq: (seq, event.until_us, event.id) for event in late}

    def annotations() -> bytes:
        made = exceptions()
        return annotate_prolonged(seq, row.seq, row.until, made) if made or known else b""

    def annotate(packed: Words) -> Taken:
        rows = sorted(read_rows(packed), key=lambda r: r.seq)
        late.extend(LateEvent.of(core.event(r), seq) for r in rows if r.seq not in had)
        found = annotations()
        if engine.journal_us and late:
            found += annotate_listed(now, [(row.id, event.id, row.user, "past") for event in late])
        return Taken(len(late), found)

    buffer = engine.calls.buffer
    words = write_row(
        buffer, at.SUBSCRIBE, row.flags & (at.R_COND | at.R_UNSEEN), 0, now, row.first, row.until,
        place, row.id.encode(), row.user.encode(), row.text,
    )  # fmt: skip
    words = write_prolonged(buffer, words, row.root, -FOREVER)

    def effect(_: Written) -> None:
        engine.lineage.note(seq, row.seq, row.until, exceptions())
        engine.lineage.let_go(now)
        handle = core.handles.get(row.seq) or core.handles.get(seq)
        if handle is not None:
            handle.seq, handle.place = seq, core.space.decode(*place)
            core.handles.add(handle)
            core.handles.pop(row.seq)
            if late:
                handle.inbox.deliver(late, seq)

    written = engine.calls.write_one(
        words, at.EVENTS, effect=effect, annotate=annotate, annotations=annotations()
    )
    return row._replace(seq=seq, place=place), written.position
