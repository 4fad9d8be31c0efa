"""`Channel.find` and `Channel.subscriptions`: asking without storing anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from tideline.channel.bodies import parse_where
from tideline.channel.checks import check_limit, check_text, read_cursor, window
from tideline.channel.codec import write_row
from tideline.channel.core import Core
from tideline.channel.lazy import LazyEvents, in_order
from tideline.clock import FOREVER, Seconds
from tideline.kernels import layout as at
from tideline.model import Event, SubscriptionInfo
from tideline.space.place import Place
from tideline.where import Condition

__all__ = ["find", "find_event", "find_events", "get", "list_subscriptions"]

_NOWHERE = Place(b"")


def find(
    core: Core, place: Any, since_s: Seconds | None, since: datetime | None,
    until_s: Seconds | None, until: datetime | None, where: dict[str, Any] | None,
    limit: int | None,
) -> list[Event]:  # fmt: skip
    """See `Channel.find`."""
    encoded = core.space.encode(place)
    condition, _ = parse_where(where, delta=True)
    check_limit(limit)
    now = core.clock.now()
    since_us, until_us = window(now, since_s, since, until_s, until, earliest=True)
    with core.engine.lock:
        core.begin()
        found = find_events(
            core, encoded, since_us, until_us, core.engine.now(now), condition=condition
        )
    events = list(iter(found))
    events.sort(key=lambda event: (event.at_us, event.seq), reverse=True)
    return events if limit is None else events[:limit]


def find_events(
    core: Core, place: Place, since_us: int, until_us: int, now: int, *, flags: int = 0,
    condition: Condition | None = None, after: int = -1, root: int = 0,
) -> Sequence[Event]:  # fmt: skip
    """The valid events that arrived after `after`, in order of arrival (the lock is held).

    With R_UNSEEN among the `flags`: only what the subscription `root` was answered with.
    """
    calls = core.engine.calls
    if condition:
        flags |= at.R_COND
    words = write_row(
        calls.buffer, at.FIND, flags, root, now, since_us, until_us, place, b"", b"", b""
    )
    packed = calls.ask(words, now, after=after, condition=condition)
    return LazyEvents(packed, core.space) if len(packed) else []


def get(core: Core, id: str) -> Event | None:
    """See `Channel.get`."""
    ident = check_text(id, "id")
    with core.engine.lock:
        core.begin()
        return find_event(core, ident, core.now())


def find_event(core: Core, ident: bytes, now: int) -> Event | None:
    """The valid event with an id (the lock is held)."""
    calls = core.engine.calls
    write_row(calls.buffer, at.PUBLISH, 0, 0, now, 0, 0, _NOWHERE, ident, b"", b"")
    row = calls.stored(at.EVENTS, now)
    return None if row is None else core.event(row)


def list_subscriptions(
    core: Core, user: str | None, limit: int | None, after: str | None
) -> list[SubscriptionInfo]:
    """See `Channel.subscriptions`."""
    if user is not None:
        check_text(user, "user")
    check_limit(limit, 1)
    start = read_cursor(after)
    records = core.engine.records
    with core.engine.lock:
        core.begin()
        refs = records.listed(at.SUBS, core.now(), -FOREVER, FOREVER)
        packed = records.pack(at.SUBS, refs).tobytes() if len(refs) else b""
    rows = (row for row in in_order(packed, start) if user is None or row.user == user)
    return [core.info(row) for row in islice(rows, limit)]
