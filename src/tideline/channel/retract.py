"""`Channel.retract`, and what `publish(replace=True)` shares with it: an event that is no more.

One row ends the event, in memory and in the log (kernels/tombs.py): whoever asks later does not
find it. Whoever was told of it and asked for retractions (`subscribe(retractions=True)`) is told,
if they hold a handle now: who that is, is asked under the same lock, before the row. What was told
follows from the rule and its exceptions, as `resume` has it (resume.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from tideline.channel.checks import check_text
from tideline.channel.codec import write_row
from tideline.channel.core import Core
from tideline.channel.find import find_event
from tideline.channel.results import Written
from tideline.channel.resume import by_rule
from tideline.channel.subscription import Subscription
from tideline.errors import NotFound
from tideline.kernels import layout as at
from tideline.model.channels import Event, RetractedEvent
from tideline.space.place import Place

__all__ = ["retract", "tell_retracted", "told_of"]

_NOWHERE = Place(b"")


def retract(core: Core, id: str) -> None:
    """See `Channel.retract`."""
    ident = check_text(id, "id")
    engine = core.engine
    with engine.lock:
        core.begin()
        now = core.clock.now()
        core.subscriptions.before_write(now)
        found = None
        told: list[Subscription] = []
        if core.handles.retracting:
            found = find_event(core, ident, engine.now(now))
            told = [] if found is None else told_of(core, found, engine.now(now))

        def tell(written: Written) -> None:
            if found is not None:
                tell_retracted(told, found, written.seq)

        words = write_row(
            engine.calls.buffer, at.RETRACT, 0, 0, now, 0, 0, _NOWHERE, ident, b"", b""
        )
        written = engine.calls.write_one(words, effect=tell if told else None)
        if not written.seq:
            raise NotFound("no valid event has this id", id=id)
        core.clocked = True
    if written.position is not None:
        engine.store.log.sync(written.position)


def told_of(core: Core, event: Event, now: int) -> list[Subscription]:
    """The handles that asked for retractions and whose subscription an event has answered."""
    found = []
    for ref in list(core.handles.retracting.values()):
        handle = ref()
        if handle is None or core.handles.get(handle.seq) is not handle:
            continue
        if _was_told(core, handle, event, now):
            found.append(handle)
    return found


def _was_told(core: Core, handle: Subscription, event: Event, now: int) -> bool:
    calls = core.engine.calls
    ident = handle.id.encode()
    write_row(calls.buffer, at.CANCEL, 0, 0, now, 0, 0, _NOWHERE, ident, b"", b"")
    row = calls.stored(at.SUBS, now)
    if row is None or row.seq != handle.seq:
        return False
    if event.seq in core.engine.lineage.of(row.seq):
        return True
    if not row.first <= event.at_us < row.until:
        return False
    moment = row._replace(first=event.at_us, until=event.at_us + 1)
    found = by_rule(core, moment, now, event.seq - 1, event.at_us)
    return event.seq in [each.seq for each in found]


def tell_retracted(handles: Iterable[Subscription], event: Event, seq: int) -> None:
    """Tell handles that an event was retracted by the row `seq`. Telling it again does no harm."""
    gone = RetractedEvent.of(event, seq)
    for handle in handles:
        handle.inbox.deliver([gone], seq)
