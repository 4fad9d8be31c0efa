"""`Channel.prolong`: move the end of a subscription's window.

Records lie in windows by their end, so a new end is a new record. One row stores it and ends the
record before it, in memory and in the log: after a kill the subscription is there with its old end
or with its new one. The new record asks for events that happen from the old end on; those are new
answers, unless it was answered with them before. The handle goes on under the new record.

What a moved end does to events that happen in the future is noted (lineage.py), so that whoever
resumes later gets what an uncut handle got, in the same order (resume.py).
"""

from __future__ import annotations

from tideline.channel.annotations import annotate_listed, annotate_prolonged
from tideline.channel.checks import shown
from tideline.channel.codec import Row, Words, read_rows, write_prolonged, write_row
from tideline.channel.core import Core
from tideline.channel.lineage import Exceptions
from tideline.channel.results import Taken, Written
from tideline.channel.resume import by_rule
from tideline.errors import InvalidRequest
from tideline.kernels import layout as at
from tideline.lsm.position import Position
from tideline.model.channels import Event, LateEvent

__all__ = ["prolong"]


def prolong(core: Core, row: Row, now: int, until_us: int) -> tuple[Row, Position | None]:
    """Give a subscription a new end (sheltered work). Returns its record, and what to sync."""
    engine = core.engine
    if until_us <= max(now, row.first):
        raise InvalidRequest(
            "the new end must be after now and after the window's start: cancel ends it now",
            until=shown(until_us), now=shown(now),
        )  # fmt: skip
    if until_us == row.until:
        return row, None
    known = engine.lineage.of(row.seq)
    kept = _kept(core, row, now, until_us, known)
    seq = engine.next_seq
    late: list[Event] = []

    def annotations(made: Exceptions) -> bytes:
        return annotate_prolonged(seq, row.seq, until_us, made) if made or known else b""

    def annotate(packed: Words) -> Taken:
        rows = sorted(read_rows(packed), key=lambda r: r.seq)
        late.extend(LateEvent.of(core.event(r), seq) for r in rows if r.seq not in known)
        found = annotations(kept | _turns(late, seq))
        if engine.journal_us and late:
            found += annotate_listed(now, [(row.id, event.id, row.user, "past") for event in late])
        return Taken(len(late), found)

    buffer = engine.calls.buffer
    words = write_row(
        buffer, at.SUBSCRIBE, row.flags & (at.R_COND | at.R_UNSEEN), 0, now, row.first, until_us,
        row.place, row.id.encode(), row.user.encode(), row.text,
    )  # fmt: skip
    words = write_prolonged(buffer, words, row.root, row.until)

    def effect(_: Written) -> None:
        engine.lineage.note(seq, row.seq, until_us, kept | _turns(late, seq))
        engine.lineage.let_go(now)
        handle = core.handles.get(row.seq) or core.handles.get(seq)
        if handle is not None:
            handle.seq, handle.until_us = seq, until_us
            core.handles.add(handle)
            core.handles.pop(row.seq)
            if late:
                handle.inbox.deliver(late, seq)
            handle.inbox.ring()  # whoever waits for the end waits for another now

    written = engine.calls.write_one(
        words, at.EVENTS, effect=effect, annotate=annotate, annotations=annotations(kept)
    )
    return row._replace(seq=seq, until=until_us), written.position


def _kept(core: Core, row: Row, now: int, until_us: int, known: Exceptions) -> Exceptions:
    """What the window was answered with and leaves out when it is cut short."""
    if until_us > row.until:
        return {}
    events = by_rule(core, row, now, -1, max(row.first, until_us))
    return {e.seq: (e.seq, e.until_us, "") for e in events if e.seq not in known}


def _turns(late: list[Event], seq: int) -> Exceptions:
    """What became an answer with the record `seq`."""
    return {event.seq: (seq, event.until_us, "") for event in late}
