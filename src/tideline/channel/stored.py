"""Subscriptions as records beside the events: layouts `dual` and `two`.

    subscribe, cancel, prolong   one row under the lock: run, logged, and only then anybody is told
    resume, a retry              a new handle takes over from the one there was, which ends

A handle that somebody holds is fed by whoever publishes (publish.py, batch.py): it need not look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from tideline.channel import batch
from tideline.channel.annotations import annotate_listed
from tideline.channel.checks import AHEAD_US, check_time, same_window, window
from tideline.channel.codec import Row, Words, read_rows, write_row
from tideline.channel.core import Core
from tideline.channel.held import HeldInbox
from tideline.channel.inbox import Inbox
from tideline.channel.lazy import LazyEvents
from tideline.channel.move import move
from tideline.channel.prolong import prolong
from tideline.channel.results import Taken, Written
from tideline.channel.resume import After, missed
from tideline.channel.subscription import Subscription
from tideline.clock import FOREVER, Seconds, span_us, to_us
from tideline.errors import Conflict, NotFound
from tideline.kernels import layout as at
from tideline.lsm.bell import Bell
from tideline.lsm.sharedlog import SharedLog
from tideline.model import Applied, Event, SubscriptionInfo
from tideline.space.place import Place
from tideline.where import Condition, parse_text

__all__ = ["StoredSubscriptions"]

_NOWHERE = Place(b"")


class StoredSubscriptions:
    """The stored subscriptions of a channel; see kept.py."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def subscribe(
        self, encoded: Place, place: Any, owner: bytes, ident: bytes, condition: Condition,
        where: dict[str, Any] | None, unseen: bool, since_s: Seconds | None,
        since: datetime | None, until_s: Seconds | None, until: datetime | None,
        retractions: bool,
    ) -> Subscription:  # fmt: skip
        """Store a subscription; its past answers are taken under the same lock."""
        core = self._core
        engine = core.engine
        if condition.deltas:
            engine.watch_deltas()
        text = condition.text
        flags = (at.R_COND if text else 0) | (at.R_UNSEEN if unseen else 0)
        with engine.lock:
            if core.closed or engine.interrupts.unfinished is not None:
                core.begin()
            now = core.clock.now()  # under the lock, as in `publish`
            since_us, until_us = window(now, since_s, since, until_s, until)
            words = write_row(
                engine.calls.buffer, at.SUBSCRIBE, flags, 0, now, since_us, until_us, encoded,
                ident, owner, text,
            )  # fmt: skip
            id, user = ident.decode(), owner.decode()
            annotate = partial(_annotate, id, user, now) if engine.parts.journal_us else None
            seq, packed, existing, _, position = engine.calls.write_one(
                words, at.EVENTS, annotate=annotate
            )
            core.clocked = True
            if not seq:
                handle = self._repeated(
                    existing, encoded, owner, condition, unseen, since_s, since, until_s, until
                )
                if retractions:
                    core.handles.tell_retractions(handle)
                engine.store.log.sync_all()  # the first try may not be on disk yet
                return handle
            handle = Subscription(
                self, id, user, place, since_us, until_us, where or None, unseen, seq,
                partial(LazyEvents, packed, core.space) if len(packed) else None,
            )  # fmt: skip
            self._hold(handle)
            core.handles.add(handle)
            if retractions:
                core.handles.tell_retractions(handle)
        if position is not None:
            engine.store.log.sync(position)
        return handle

    def _repeated(
        self, existing: int, place: Place, owner: bytes, condition: Condition, unseen: bool,
        since_s: Seconds | None, since: datetime | None, until_s: Seconds | None,
        until: datetime | None,
    ) -> Subscription:  # fmt: skip
        """An id given again: the same content is the same subscription, other a conflict."""
        core = self._core
        row = core.engine.records.one(at.SUBS, existing)
        # Where writes have brought a later time than the clock's, `made` is that time.
        behind = core.engine.newest > core.clock.now() + AHEAD_US
        made = None if behind else row.made
        same = (
            row.place == place
            and row.user == owner.decode()
            and row.text == condition.text
            and bool(row.flags & at.R_UNSEEN) == unseen
            and same_window(row.first, row.until, made, since_s, since, until_s, until)
        )
        if not same:
            raise Conflict("a subscription with this id exists with other content", id=row.id)
        handle = self._handle(row, None)
        handle.duplicate = True
        old = self._replace(handle)
        if old is not None:
            old.inbox.tell_end()
        return handle

    def _hold(self, handle: Subscription) -> None:
        """In a cluster, a handle gets what a majority has."""
        log = self._core.engine.store.log
        if isinstance(log, SharedLog):
            handle.inbox = HeldInbox(handle.seq, log)

    def _handle(self, row: Row, past: Callable[[], Sequence[Event]] | None) -> Subscription:
        condition = parse_text(row.text, delta=True)
        made = Subscription(
            self, id=row.id, user=row.user, place=self._core.space.decode(*row.place),
            since_us=row.first, until_us=row.until, where=condition.document or None,
            unseen=bool(row.flags & at.R_UNSEEN), seq=row.seq, past=past,
        )  # fmt: skip
        self._hold(made)
        return made

    def _replace(self, handle: Subscription) -> Subscription | None:
        """Feed a handle instead of the one there was, which ends and keeps what nobody took yet.

        Its follower is still to be told, without the lock.
        """
        handles = self._core.handles
        old = handles.get(handle.seq)

        def replace() -> None:
            handles.add(handle)
            if old is not None:
                old.inbox.close("replaced")

        self._core.engine.interrupts.run_whole(replace)
        return old

    def cancel(self, ident: bytes) -> None:
        """End a subscription; `NotFound` if there is none (any more)."""
        core = self._core
        engine, handles = core.engine, core.handles
        ended: list[Subscription] = []

        def end(written: Written) -> None:
            engine.lineage.forget(written.target)
            handle = handles.get(written.target)
            if handle is not None:
                ended.append(handle)
                handle.inbox.close("cancelled")
                handles.pop(written.target)

        try:
            with engine.lock:
                core.begin()
                words = write_row(
                    engine.calls.buffer, at.CANCEL, 0, 0, core.clock.now(), 0, 0, _NOWHERE, ident,
                    b"", b"",
                )  # fmt: skip
                written = engine.calls.write_one(words, effect=end)
                if not written.seq:
                    raise NotFound("no such subscription", id=ident.decode())
        finally:
            for handle in ended:
                handle.inbox.tell_end()
        if written.position is not None:
            engine.store.log.sync(written.position)

    def prolong(
        self, ident: bytes, until_s: Seconds | None, until: datetime | None
    ) -> SubscriptionInfo:
        """Move the end of a subscription's window."""
        core = self._core
        engine = core.engine
        with engine.lock:
            core.begin()
            clock_now = core.clock.now()
            if until is not None:
                until_us = check_time(to_us(until, "until"), "until")
            else:
                assert until_s is not None
                until_us = clock_now + span_us(until_s, "until_s")
            now = engine.now(clock_now)
            row, position = engine.interrupts.sheltered(
                lambda: prolong(core, self._record(ident, now), now, until_us)
            )
            core.clocked = True
        if position is not None:
            engine.store.log.sync(position)
        return core.info(row)

    def move(self, ident: bytes, place: Place) -> SubscriptionInfo:
        """Have a subscription watch another place."""
        core = self._core
        engine = core.engine
        with engine.lock:
            core.begin()
            now = engine.now(core.clock.now())
            row, position = engine.interrupts.sheltered(
                lambda: move(core, self._record(ident, now), now, place)
            )
            core.clocked = True
        if position is not None:
            engine.store.log.sync(position)
        return core.info(row)

    def get(self, ident: bytes) -> SubscriptionInfo:
        """One live subscription; `NotFound` if there is none (any more)."""
        core = self._core
        with core.engine.lock:
            core.begin()
            return core.info(self._record(ident, core.now()))

    def resume(self, ident: bytes, after: After, retractions: bool) -> Subscription:
        """A stored subscription given back, with what it missed."""
        core = self._core
        with core.engine.lock:
            core.begin()
            now = core.now()
            row = self._record(ident, now)
            found = missed(core, row, now, after)
            handle = self._handle(row, lambda: found)
            old = self._replace(handle)
            if retractions:
                core.handles.tell_retractions(handle)
        if old is not None:
            old.inbox.tell_end()
        core.engine.store.log.sync_all()  # what it missed stays
        return handle

    def _record(self, ident: bytes, now: int) -> Row:
        """The record of a live subscription (the lock is held)."""
        calls = self._core.engine.calls
        write_row(calls.buffer, at.CANCEL, 0, 0, now, 0, 0, _NOWHERE, ident, b"", b"")
        row = calls.stored(at.SUBS, now)
        if row is None:
            raise NotFound("no such subscription", id=ident.decode())
        return row

    def apply(
        self, table: pa.Table, once: tuple[str, int] | None, admit: batch.Admit | None
    ) -> Applied:
        """Run a table of operations, many rows in one call."""
        return batch.apply(self._core, table, once, admit)

    def check_listed(self, kind: str) -> None:
        """Everything is stored."""

    def before_write(self, now: int) -> None:
        """Nothing is due: whoever publishes delivers."""

    # ---- for handles -----------------------------------------------------------------------------

    def check_open(self) -> None:
        """`Closed` when the channel is closed."""
        self._core.check_open()

    def now(self) -> int:
        """The channel's time."""
        return self._core.now()

    def look(self, handle: Subscription) -> None:
        """Everything comes by itself."""

    def wake_at(self, handle: Subscription) -> int:
        """A waiting handle looks again at its end."""
        return handle.until_us

    def wait(self, handle: Subscription, bell: Bell, limit_us: int = FOREVER) -> None:
        """Wait for the bell, the end of the window, or the clock's time `limit_us`."""
        self._core.clock.wait(bell, min(handle.until_us, limit_us))  # type: ignore[arg-type]

    def clock_us(self) -> int:
        """The clock's time."""
        return self._core.clock.now()

    def follow(self, inbox: Inbox, follower: Any, ended: Any) -> None:
        """`Inbox.follow`, while nobody publishes."""
        with self._core.engine.lock:
            inbox.follow(follower, ended)

    def move_handle(self, handle: Subscription, place: Any) -> None:
        """Have the subscription of a handle watch another place."""
        self.move(handle.id.encode(), self._core.space.encode(place))

    def cancel_handle(self, handle: Subscription) -> None:
        """End the subscription of a handle."""
        if handle.expired:
            handle.inbox.end("expired")
            return
        try:
            self.cancel(handle.id.encode())
        except NotFound:
            handle.inbox.end("cancelled")

    def let_go(self, handle: Subscription) -> None:
        """Stop feeding a handle; its subscription stays stored."""
        self._core.handles.let_go(handle)

    def leave_to_parent(self) -> None:
        """What is stored is the parent's."""

    def close(self) -> None:
        """What is stored stays stored."""


def _annotate(subscription: str, user: str, now: int, packed: Words) -> Taken:
    """For the journal: which events a subscription found."""
    rows = sorted(read_rows(packed), key=lambda row: row.seq)
    found = [(subscription, row.id, user, "past") for row in rows]
    return Taken(len(found), annotate_listed(now, found) if found else b"")
