"""`Channel.publish`: store an event, say whom it answers, deliver it.

One row under the engine's lock: it is run, logged, and only then delivered. Past answers and live
delivery are decided under the same lock, so nothing falls between them and nothing comes twice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from tideline.channel.annotations import annotate_listed
from tideline.channel.checks import (
    BODY_LIMIT_BYTES,
    check_flag,
    check_text,
    check_time,
    same_json,
    too_large,
)
from tideline.channel.codec import (
    Words,
    read_rows,
    read_subscribers,
    write_replacing,
    write_row,
)
from tideline.channel.core import Core
from tideline.channel.find import find_event, find_events
from tideline.channel.handles import Handles
from tideline.channel.results import Taken, Written
from tideline.channel.retract import tell_retracted, told_of
from tideline.channel.subscription import Subscription
from tideline.clock import FOREVER, Seconds, span_us, to_us
from tideline.errors import Conflict, InvalidRequest
from tideline.kernels import layout as words_at
from tideline.model import Event, Told
from tideline.space.place import Place
from tideline.where.plain import plain_json

__all__ = ["publish"]


def publish(
    core: Core, place: Any, body: Any, id: str | None, at: datetime | None, ttl_s: Seconds | None,
    until: datetime | None, related: bool, replace: bool,
) -> Told:  # fmt: skip
    """See `Channel.publish`."""
    encoded = core.space.encode(place)
    text = plain_json(body, "body")  # the short way of `encode_body`
    if len(text) > BODY_LIMIT_BYTES:
        raise too_large(text)
    ident = core.ids.one() if id is None else check_text(id, "id")
    if related:
        check_flag(related, "related")
    if replace and check_flag(replace, "replace") and id is None:
        raise InvalidRequest("replace needs the id of what it replaces", replace=replace)
    if type(place) is not str and type(place) is not tuple:
        place = core.space.decode(*encoded)  # as it will be when it is read again
    engine = core.engine
    with engine.lock:
        core.begin()
        # Read under the lock, so that times rise in the order of arrival: an event that comes
        # after a subscription was seen to have expired cannot answer it any more.
        now = core.clock.now()
        at_us = now if at is None else check_time(to_us(at, "at"), "at")
        if ttl_s is not None:
            if until is not None:
                raise InvalidRequest("give ttl_s or until, not both", ttl_s=ttl_s, until=until)
            until_us = at_us + span_us(ttl_s, "ttl_s")
        else:
            until_us = FOREVER if until is None else to_us(until, "until")
        if until_us <= at_us:
            raise InvalidRequest(
                "an event must stay valid after it happens", ttl_s=ttl_s, until=until
            )
        earlier: list[Event] = []
        if related:
            found = find_events(
                core, encoded, -FOREVER, FOREVER, engine.now(now), flags=words_at.R_SAME
            )
            earlier = [event for event in found if not replace or event.id != id]
        core.subscriptions.before_write(now)
        replaced: Event | None = None
        losing: list[Subscription] = []
        if replace and (at is not None or core.handles.retracting):
            replaced = find_event(core, ident, engine.now(now))
            if replaced is not None:
                if at is not None and _is_same(core, replaced, encoded, text, at_us, until_us):
                    engine.store.log.sync_all()  # the first try may not be on disk yet
                    return Told(replaced, None, [], duplicate=True)
                losing = told_of(core, replaced, engine.now(now))
        words = write_row(
            engine.calls.buffer, words_at.PUBLISH, 0, 0, now, at_us, until_us, encoded, ident,
            b"", text,
        )  # fmt: skip
        if replace:
            words = write_replacing(engine.calls.buffer, words)
        effect = None
        made: list[Event] = []
        if core.handles.held:
            facts = (ident.decode(), place, at_us, until_us, text)
            effect = partial(_deliver, core.handles, made, facts)
            if losing and replaced is not None:
                effect = partial(_deliver_instead, effect, losing, replaced)
        annotate = partial(_annotate, ident.decode(), now) if engine.parts.journal_us else None
        seq, packed, existing, _, position = engine.calls.write_one(
            words, words_at.SUBS, effect=effect, annotate=annotate
        )
        core.clocked = True
        if not seq:
            told = _repeated(core, existing, encoded, text, at, ttl_s, until)
            engine.store.log.sync_all()  # the first try may not be on disk yet
            return told
        event = made[0] if made else Event(ident.decode(), place, at_us, until_us, seq, text)
        load = partial(read_subscribers, packed) if len(packed) else None
    if position is not None:
        engine.store.log.sync(position)
    return Told(event, load, earlier)


def _annotate(event: str, now: int, packed: Words) -> Taken:
    """For the journal: which subscriptions an event answered."""
    rows = sorted(read_rows(packed), key=lambda row: row.seq)
    found = [(row.id, event, row.user, "live") for row in rows]
    return Taken(len(found), annotate_listed(now, found) if found else b"")


def _deliver(
    handles: Handles, made: list[Event], facts: tuple[str, Any, int, int, bytes], written: Written
) -> None:
    """Hand the event just logged to whoever holds a subscription that it answers."""
    if not len(written.packed):
        return
    seq = written.seq
    ident, place, at_us, until_us, text = facts
    event = Event(ident, place, at_us, until_us, seq, text)
    made.append(event)
    words = memoryview(written.packed)  # type: ignore[arg-type]
    at_word = 0
    while at_word < len(words):
        handle = handles.get(words[at_word + words_at.R_SEQ])
        if handle is not None:
            handle.inbox.deliver([event], seq)
        at_word += words[at_word] >> 32


def _deliver_instead(
    deliver: Callable[[Written], None], losing: list[Subscription], replaced: Event,
    written: Written,
) -> None:  # fmt: skip
    """Deliver an event; whoever had what it replaced, and does not get it, is told of that."""
    deliver(written)
    again = {row.seq for row in read_rows(written.packed)} if len(written.packed) else set()
    tell_retracted([h for h in losing if h.seq not in again], replaced, written.seq)


def _is_same(
    core: Core, event: Event, place: Place, text: bytes, at_us: int, until_us: int
) -> bool:
    """Whether an event is the one that is to replace it: the call was made twice."""
    return (
        (event.at_us, event.until_us) == (at_us, until_us)
        and core.space.encode(event.place) == place
        and same_json(event.raw, text)
    )


def _repeated(
    core: Core, existing: int, place: Place, text: bytes, at: datetime | None,
    ttl_s: Seconds | None, until: datetime | None,
) -> Told:  # fmt: skip
    """An id given again: the same content is the same event, other content a conflict."""
    row = core.engine.records.one(words_at.EVENTS, existing)
    same = row.place == place and same_json(row.text, text)
    if at is not None:
        same = same and row.first == to_us(at, "at")
    if ttl_s is not None:
        same = same and row.until - row.first == span_us(ttl_s, "ttl_s")
    else:
        same = same and row.until == (FOREVER if until is None else to_us(until, "until"))
    if not same:
        raise Conflict("an event with this id exists with other content", id=row.id)
    return Told(core.event(row), None, [], duplicate=True)
