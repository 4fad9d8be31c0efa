"""The verbs of a channel: publish, subscribe, cancel, find, resume, apply.

Each verb checks its arguments, writes one row, runs it under the engine's lock, logs
it, and only then tells anyone. Past answers and live delivery are decided under the
same lock, so nothing falls between them and nothing comes twice. Whoever takes the lock
first looks whether an interrupted call left something (`Engine.mend`): before a row is
written over the one it left.

Layout `poll` stores no subscriptions: see channel/poll.py.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from tideline.channel import batch
from tideline.channel.ahead import Ahead, ahead_s, ahead_us
from tideline.channel.checks import (
    AHEAD_US,
    BODY_LIMIT_BYTES,
    check_flag,
    check_limit,
    check_text,
    check_time,
    read_cursor,
    same_json,
    same_window,
    too_large,
    window,
)
from tideline.channel.codec import Row, Words, read_rows, read_subscribers, write_row
from tideline.channel.engine import Engine
from tideline.channel.found import Found, in_order
from tideline.channel.journal import journal, text_of
from tideline.channel.notes import check_once, listed_note
from tideline.channel.poll import Poller
from tideline.channel.prolong import prolong
from tideline.channel.results import Taken, Written
from tideline.channel.resume import missed, read_token
from tideline.channel.scan import scan
from tideline.channel.subscription import Handles, Subscription
from tideline.clock import FOREVER, Clock, from_us, span_us, to_us
from tideline.errors import Closed, Conflict, InvalidRequest, NotFound
from tideline.kernels import export
from tideline.kernels import layout as words_at
from tideline.model import Applied, ChannelStats, Event, SubscriptionInfo, Told
from tideline.space import Space
from tideline.space.place import Place
from tideline.where import Condition, parse, parse_text
from tideline.where.plain import plain_json

__all__ = ["Channel"]


class Channel:
    """Events and subscriptions side by side. Made by `Database.channel`."""

    def __init__(
        self, name: str, space: Space, layout: str, poll_s: float, engine: Engine, clock: Clock,
    ) -> None:  # fmt: skip
        self.name = name
        self.space = space
        self.layout = layout
        self.clock = clock
        self._engine = engine
        self._handles = Handles()
        self._poller = Poller(self, span_us(poll_s, "poll_s")) if layout == "poll" else None
        self._nonce = secrets.token_hex(4)
        self._prefix = self._nonce.encode() + b"-%x"
        self._made = 0
        self._buffer = engine.own_view  # single calls write their row here
        # Whether the last write was at the clock's time.
        self._clocked = bool(engine.facts.get("clocked"))
        self._closed = ""  # why, once it is

    @property
    def identity(self) -> str:
        """32 hex digits that tell this channel's store from any other, over restarts.

        A digest of the seeds its hashes are made with: those are nobody else's to know.
        """
        seeds = ",".join(str(seed) for seed in self._engine.facts["seeds"])
        return hashlib.sha256(seeds.encode()).hexdigest()[:32]

    @property
    def max_ahead_s(self) -> float:
        """How far ahead of the clock a row of a batch may be; `inf` when there is no limit.

        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     db.channel("news").max_ahead_s, db.channel("news", max_ahead_s=5).max_ahead_s
        (60.0, 5.0)
        """
        return ahead_s(self._engine.facts)

    @property
    def newest(self) -> datetime | None:
        """The channel's time: the newest that a write has brought; None before the first.

        What ends before it has expired. Asking (`find`, `subscribe`) goes by the clock, where that
        is later.

        >>> import tideline
        >>> from tideline.testing import ManualClock
        >>> with tideline.open(":memory:", clock=ManualClock(100)) as db:
        ...     told = db.channel("news").publish("a", {"n": 1})
        ...     db.channel("news").newest.isoformat()
        '1970-01-01T00:01:40+00:00'
        """
        return from_us(self._engine.newest)

    def _allow_ahead(self, max_ahead_s: float) -> None:
        """Change `max_ahead_s`, for good."""
        engine = self._engine
        with engine.lock:
            self._check_open()
            if max_ahead_s == ahead_s(engine.facts):
                return
        engine.allow_ahead(ahead_us(max_ahead_s))

    def _ahead(self) -> Ahead | None:
        """The limit for the rows of a batch that comes now."""
        return Ahead.of(self.max_ahead_s, self.clock.now())

    # ---- publish ---------------------------------------------------------------------------

    def publish(
        self, place: Any, body: Any, *, id: str | None = None, at: datetime | None = None,
        ttl_s: float | None = None, until: datetime | None = None, related: bool = False,
    ) -> Told:  # fmt: skip
        """Store an event and return whom it answers.

        >>> import tideline
        >>> from tideline.testing import ManualClock
        >>> db = tideline.open(":memory:", clock=ManualClock(100))
        >>> roads = db.channel("roads")
        >>> sub = roads.subscribe("I-87", user="ann", until_s=60)
        >>> told = roads.publish("I-87", {"kind": "accident"}, id="e1", ttl_s=600)
        >>> told.event.id, [s.user for s in told.subscriptions]
        ('e1', ['ann'])
        >>> [event.body for event in sub.take()]
        [{'kind': 'accident'}]
        >>> db.close()
        """
        encoded = self.space.encode(place)
        text = plain_json(body, "body")
        if len(text) > BODY_LIMIT_BYTES:
            raise too_large(text)
        if id is None:  # as `_new_id`, without a call
            self._made += 1
            ident = self._prefix % self._made
        else:
            ident = check_text(id, "id")
        if related:
            check_flag(related, "related")
        if type(place) is list:
            place = tuple(place)  # as it will be when it is read again
        engine = self._engine
        with engine.lock:
            if engine.unfinished is not None:
                engine.mend()
            if self._closed:
                self._check_open()
            # Read under the lock, so that times rise in the order of arrival: an event that comes
            # after a subscription was seen to have expired cannot answer it any more.
            now = self.clock.now()
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
                found = self._find(
                    encoded, -FOREVER, FOREVER, engine.now(now), flags=words_at.R_SAME
                )
                earlier = list(iter(found))
            if self._poller is not None:
                self._poller.due(engine.now(now))
            words = write_row(
                self._buffer, words_at.PUBLISH, 0, 0, now, at_us, until_us, encoded,
                ident, b"", text,
            )  # fmt: skip
            effect = None
            made: list[Event] = []
            if self._handles:
                facts = (ident.decode(), place, at_us, until_us, text)
                effect = partial(self._deliver, made, facts)
            annotate = partial(_note_live, ident.decode(), now) if engine.journal_us else None
            seq, packed, existing, _, position = engine.write_one(
                words, words_at.SUBS, effect=effect, annotate=annotate
            )
            self._clocked = True
            if not seq:
                told = self._repeated_event(existing, encoded, text, at, ttl_s, until)
                engine.store.log.sync_all()  # the first try may not be on disk yet
                return told
            event = made[0] if made else Event(ident.decode(), place, at_us, until_us, seq, text)
            load = partial(read_subscribers, packed) if len(packed) else None
        if position is not None:
            engine.store.log.sync(position)
        return Told(event, load, earlier)

    def _deliver(
        self, made: list[Event], facts: tuple[str, Any, int, int, bytes], written: Written
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
            handle = self._handles.get(words[at_word + 1])
            if handle is not None:
                handle._deliver([event], seq)
            at_word += words[at_word] >> 32

    def _repeated_event(
        self, existing: int, place: Place, text: bytes, at: datetime | None, ttl_s: float | None,
        until: datetime | None,
    ) -> Told:  # fmt: skip
        """An id given again: the same content is the same event, other content a conflict."""
        row = self._engine.record(words_at.EVENTS, existing)
        same = row.place == place and same_json(row.text, text)
        if at is not None:
            same = same and row.first == to_us(at, "at")
        if ttl_s is not None:
            same = same and row.until - row.first == span_us(ttl_s, "ttl_s")
        else:
            same = same and row.until == (FOREVER if until is None else to_us(until, "until"))
        if not same:
            raise Conflict("an event with this id exists with other content", id=row.id)
        return Told(self._event(row), None, [], duplicate=True)

    # ---- subscribe ---------------------------------------------------------------------------

    def subscribe(
        self, place: Any, *, user: str, id: str | None = None, since_s: float | None = None,
        since: datetime | None = None, until_s: float | None = None,
        until: datetime | None = None, where: dict[str, Any] | None = None, unseen: bool = False,
    ) -> Subscription:  # fmt: skip
        """Store a subscription; its `past` is there at once, what happens later is delivered.

        >>> import tideline
        >>> from tideline.testing import ManualClock
        >>> clock = ManualClock(100)
        >>> db = tideline.open(":memory:", clock=clock)
        >>> roads = db.channel("roads")
        >>> told = roads.publish("I-87", {"lanes": 2}, ttl_s=600)
        >>> clock.advance(30)
        >>> sub = roads.subscribe("I-87", user="ann", since_s=-60, until_s=60)
        >>> [event.body for event in sub.past]
        [{'lanes': 2}]
        >>> db.close()
        """
        encoded = self.space.encode(place)
        owner = check_text(user, "user")
        ident = self._new_id() if id is None else check_text(id, "id")
        condition = parse(where, delta=True)
        unseen = check_flag(unseen, "unseen")
        engine = self._engine
        if self._poller is not None:
            now = self.clock.now()
            since_us, until_us = window(now, since_s, since, until_s, until)
            return self._poller.subscribe(
                encoded, place, ident, user, since_us, until_us, condition, unseen, now
            )
        if condition.deltas:
            engine.watch_deltas()
        flags = (words_at.R_COND if condition else 0) | (words_at.R_UNSEEN if unseen else 0)
        with engine.lock:
            if engine.unfinished is not None:
                engine.mend()
            now = self.clock.now()  # under the lock, as in `publish`
            since_us, until_us = window(now, since_s, since, until_s, until)
            words = write_row(
                self._rows(), words_at.SUBSCRIBE, flags, 0, now, since_us, until_us, encoded,
                ident, owner, condition.text,
            )  # fmt: skip
            annotate = partial(_note_past, ident.decode(), user, now) if engine.journal_us else None
            seq, packed, existing, _, position = engine.write_one(
                words, words_at.EVENTS, annotate=annotate
            )
            self._clocked = True
            if not seq:
                handle = self._repeated_subscription(
                    existing, encoded, owner, condition, unseen, since_s, since, until_s, until
                )
                engine.store.log.sync_all()  # the first try may not be on disk yet
                return handle
            handle = Subscription(
                self, ident.decode(), user, place, since_us, until_us, where or None, unseen, seq,
                partial(Found, packed, self.space) if len(packed) else None,
            )  # fmt: skip
            self._handles.add(handle)
        if position is not None:
            engine.store.log.sync(position)
        return handle

    def _repeated_subscription(
        self, existing: int, place: Place, owner: bytes, condition: Condition, unseen: bool,
        since_s: float | None, since: datetime | None, until_s: float | None,
        until: datetime | None,
    ) -> Subscription:  # fmt: skip
        row = self._engine.record(words_at.SUBS, existing)
        # Where writes have brought a later time than the clock's, `made` is that time.
        behind = self._engine.newest > self.clock.now() + AHEAD_US
        made = None if behind else row.made
        same = (
            row.place == place
            and row.user == owner.decode()
            and row.text == condition.text
            and bool(row.flags & words_at.R_UNSEEN) == unseen
            and same_window(row.first, row.until, made, since_s, since, until_s, until)
        )
        if not same:
            raise Conflict("a subscription with this id exists with other content", id=row.id)
        handle = self._handle(row, None)
        handle.duplicate = True
        old = self._replace(handle)
        if old is not None:
            old._tell_end()
        return handle

    def _replace(self, handle: Subscription) -> Subscription | None:
        """Feed a handle instead of the one there was, which ends and keeps what nobody took yet.

        Its follower is still to be told, without the lock.
        """
        old = self._handles.get(handle.seq)

        def replace() -> None:
            self._handles.add(handle)
            if old is not None:
                old._close("replaced")

        self._engine.run_whole(replace)
        return old

    def cancel(self, id: str) -> None:
        """End a subscription; `NotFound` if there is none (any more)."""
        ident = check_text(id, "id")
        engine = self._engine
        if self._poller is not None:
            self._poller.cancel(id)
            return
        ended: list[Subscription] = []

        def end(written: Written) -> None:
            engine.lineage.forget(written.target)
            handle = self._handles.get(written.target)
            if handle is not None:
                ended.append(handle)
                handle._close("cancelled")
                self._handles.pop(written.target)

        try:
            with engine.lock:
                if engine.unfinished is not None:
                    engine.mend()
                words = write_row(
                    self._rows(), words_at.CANCEL, 0, 0, self.clock.now(), 0, 0, Place(b""), ident,
                    b"", b"",
                )  # fmt: skip
                written = engine.write_one(words, effect=end)
                if not written.seq:
                    raise NotFound("no such subscription", id=id)
        finally:
            for handle in ended:
                handle._tell_end()
        if written.position is not None:
            engine.store.log.sync(written.position)

    def prolong(
        self, id: str, *, until_s: float | None = None, until: datetime | None = None
    ) -> SubscriptionInfo:
        """Move the end of a subscription's window, later or earlier; its handle goes on.

        What an earlier end would have left out and the new one does not is delivered. Among its
        user's subscriptions it counts as made now.

        >>> import tideline
        >>> from tideline.testing import ManualClock
        >>> clock = ManualClock(100)
        >>> db = tideline.open(":memory:", clock=clock)
        >>> roads = db.channel("roads")
        >>> sub = roads.subscribe("I-87", user="ann", id="s1", until_s=60)
        >>> clock.advance(50)
        >>> info = roads.prolong("s1", until_s=60)
        >>> clock.advance(50)
        >>> told = roads.publish("I-87", {"lanes": 2}, ttl_s=600)
        >>> [event.body for event in sub.take()], sub.until == info.until
        ([{'lanes': 2}], True)
        >>> db.close()
        """
        ident = check_text(id, "id")
        if (until_s is None) == (until is None):
            raise InvalidRequest("give until_s or until", until_s=until_s, until=until)
        if self._poller is not None:
            raise NotFound("layout 'poll' stores no subscriptions", id=id)
        engine = self._engine
        with engine.lock:
            if engine.unfinished is not None:
                engine.mend()
            self._check_open()
            clock_now = self.clock.now()
            if until is not None:
                until_us = check_time(to_us(until, "until"), "until")
            else:
                assert until_s is not None
                until_us = clock_now + span_us(until_s, "until_s")
            info, position = engine.sheltered(
                partial(prolong, self, ident, engine.now(clock_now), until_us)
            )
            self._clocked = True
        if position is not None:
            engine.store.log.sync(position)
        return info

    def _cancel_handle(self, handle: Subscription) -> None:
        if self._poller is not None:
            self._poller.stop(handle)
            handle._end("cancelled")
            return
        if handle.expired:
            handle._end("expired")
            return
        try:
            self.cancel(handle.id)
        except NotFound:
            handle._end("cancelled")

    # ---- asking -------------------------------------------------------------------------------

    def find(
        self, place: Any, *, since_s: float | None = None, since: datetime | None = None,
        until_s: float | None = None, until: datetime | None = None,
        where: dict[str, Any] | None = None, limit: int | None = None,
    ) -> list[Event]:  # fmt: skip
        """The valid events of a window, newest first; stores nothing.

        Without a window: everything that is still valid.
        """
        encoded = self.space.encode(place)
        condition = parse(where, delta=True)
        check_limit(limit)
        now = self.clock.now()
        since_us, until_us = window(now, since_s, since, until_s, until, earliest=True)
        with self._engine.lock:
            if self._engine.unfinished is not None:
                self._engine.mend()
            self._check_open()
            found = self._find(
                encoded, since_us, until_us, self._engine.now(now), condition=condition
            )
        events = list(iter(found))
        events.sort(key=lambda event: (event.at_us, event.seq), reverse=True)
        return events if limit is None else events[:limit]

    def _find(
        self, place: Place, since_us: int, until_us: int, now: int, *, flags: int = 0,
        condition: Condition | None = None, after: int = -1, root: int = 0,
    ) -> Sequence[Event]:  # fmt: skip
        """Ask without storing (the lock is held) for what arrived after `after`, in order.

        With R_UNSEEN among the `flags`: only what the subscription `root` was answered with.
        """
        engine = self._engine
        if condition:
            flags |= words_at.R_COND
        words = write_row(
            self._rows(), words_at.FIND, flags, root, now, since_us, until_us, place, b"", b"", b"",
        )  # fmt: skip
        packed = engine.ask(words, now, after=after, condition=condition)
        return Found(packed, self.space) if len(packed) else []

    def subscriptions(
        self, user: str | None = None, *, limit: int | None = None, after: str | None = None
    ) -> list[SubscriptionInfo]:
        """The live subscriptions, of one user or of all, in order of arrival.

        At most `limit` of them, those that come `after` the cursor of one listed before. One that
        is prolonged moves to the end: in a list made in parts it may come twice, never not at all.

        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     roads = db.channel("roads")
        ...     subs = [roads.subscribe("I-87", user="ann", id=id, until_s=60) for id in "abc"]
        ...     first = roads.subscriptions(limit=2)
        ...     rest = roads.subscriptions(limit=2, after=first[-1].cursor)
        ...     [[info.id for info in part] for part in (first, rest)]
        [['a', 'b'], ['c']]
        """
        if user is not None:
            check_text(user, "user")
        check_limit(limit, 1)
        start = read_cursor(after)
        engine = self._engine
        with engine.lock:
            if engine.unfinished is not None:
                engine.mend()
            self._check_open()
            now = engine.now(self.clock.now())
            refs = engine.list_records(words_at.SUBS, now, -FOREVER, FOREVER)
            packed = engine.pack(words_at.SUBS, refs).tobytes() if len(refs) else b""
        rows = (row for row in in_order(packed, start) if user is None or row.user == user)
        return [self._info(row) for row in islice(rows, limit)]

    def subscription(self, id: str) -> SubscriptionInfo:
        """One live subscription; `NotFound` if there is none with this id (any more).

        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     sub = db.channel("roads").subscribe("I-87", user="ann", id="s1", until_s=60)
        ...     db.channel("roads").subscription("s1").user
        'ann'
        """
        ident = check_text(id, "id")
        if self._poller is not None:
            raise NotFound("layout 'poll' stores no subscriptions", id=id)
        with self._engine.lock:
            if self._engine.unfinished is not None:
                self._engine.mend()
            self._check_open()
            return self._info(self._stored(ident, self._engine.now(self.clock.now())))

    def _stored(self, ident: bytes, now: int) -> Row:
        """The record of a live subscription (the lock is held)."""
        write_row(self._rows(), words_at.CANCEL, 0, 0, now, 0, 0, Place(b""), ident, b"", b"")
        row = self._engine.stored_subscription(now)
        if row is None:
            raise NotFound("no such subscription", id=ident.decode())
        return row

    def _info(self, row: Row) -> SubscriptionInfo:
        return SubscriptionInfo(
            row.id,
            row.user,
            self.space.decode(*row.place),
            row.first,
            row.until,
            parse_text(row.text, delta=True).document or None,
            bool(row.flags & words_at.R_UNSEEN),
            f"{row.seq:018d}",
        )

    def resume(self, id: str, after: str | None = None) -> Subscription:
        """A stored subscription given back, with what it missed since `after`.

        `after` is the token of the last event that was handled; without it, `past` holds
        everything the subscription was answered with that is still valid.
        """
        ident = check_text(id, "id")
        place = read_token(after)
        if self._poller is not None:
            raise NotFound("layout 'poll' stores no subscriptions", id=id)
        engine = self._engine
        with engine.lock:
            if engine.unfinished is not None:
                engine.mend()
            self._check_open()
            now = engine.now(self.clock.now())
            row = self._stored(ident, now)
            found = missed(self, row, now, place)
            handle = self._handle(row, lambda: found)
            old = self._replace(handle)
        if old is not None:
            old._tell_end()
        return handle

    # ---- batches ---------------------------------------------------------------------------------

    def apply(self, table: pa.Table, *, once: tuple[str, int] | None = None) -> Applied:
        """Run a table of operations in order; see docs/guide/batches.md for its columns.

        `once=(writer, number)` makes a retry safe: a writer's numbers rise, and a number that is
        not above its last changes nothing (`Applied.repeated`). A table that a kill cut in the
        middle is given again, the same rows in the same order: those that landed are passed over.

        A kill, or an error of the disk, leaves the rows up to some row: 65,536 are one unit, fewer
        when memory had to be sealed among them, one if the channel ever had a condition with
        `$delta`.

        >>> import tideline
        >>> import pyarrow as pa
        >>> from datetime import UTC, datetime
        >>> db = tideline.open(":memory:")
        >>> news = db.channel("news")
        >>> row = {"op": "publish", "place": "a", "at": datetime.now(UTC), "body": "{}"}
        >>> table = pa.Table.from_pylist([row])
        >>> news.apply(table, once=("loader", 7)).repeated
        False
        >>> news.apply(table, once=("loader", 7)).repeated, len(news.find("a"))
        (True, 1)
        >>> db.close()
        """
        return self._apply(table, once)

    def _apply(
        self, table: pa.Table, once: tuple[str, int] | None, admit: batch.Admit | None = None
    ) -> Applied:
        """`apply`; a server may reject rows of its own accord."""
        self._check_open()
        checked = None if once is None else check_once(once)
        if self._poller is not None:
            if checked is not None:
                raise InvalidRequest("layout 'poll' does not take once", once=once)
            return self._poller.apply(table)
        return batch.apply(self, table, checked, admit)

    def landed(self, writer: str, number: int) -> int | None:
        """How many rows of a writer's batch have landed by `apply`; None when it is done with.

        >>> import pyarrow as pa
        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     news = db.channel("news")
        ...     none = {"op": [], "at": pa.array([], pa.timestamp("us", "UTC")), "place": []}
        ...     applied = news.apply(pa.table(none), once=("loader", 7))
        ...     news.landed("loader", 7), news.landed("loader", 8)
        (None, 0)
        """
        checked = check_once((writer, number))
        with self._engine.lock:
            if self._engine.unfinished is not None:
                self._engine.mend()
            self._check_open()
            return self._engine.writers.landed(*checked)

    # ---- tables --------------------------------------------------------------------------------

    def scan(
        self, kind: str, *, place: Any = None, since: datetime | None = None,
        until: datetime | None = None, where: dict[str, Any] | None = None,
    ) -> pa.Table:  # fmt: skip
        """The valid events, or the live subscriptions, as a table, in order of arrival.

        `place` and `where` as in `find`; events that happened in [since, until), subscriptions
        whose window meets it. Writers wait until it is done.

        >>> import tideline
        >>> db = tideline.open(":memory:")
        >>> news = db.channel("news")
        >>> told = news.publish("a", {"n": 1}, id="e1"), news.publish("b", {"n": 2}, id="e2")
        >>> news.scan("events", where={"n": {"$gt": 1}}).select(["id", "place", "body"]).to_pylist()
        [{'id': 'e2', 'place': 'b', 'body': '{"n":2}'}]
        >>> db.close()
        """
        return scan(self, kind, place, since, until, where)

    def journal(
        self, kind: str, *, after: str | None = None, upto: str | None = None,
        limit: int = 1_000_000,
    ) -> tuple[pa.Table, str]:  # fmt: skip
        """What was written after a position, in order, and the position reached.

        `kind` is "events", "subscriptions" or "answers". `after=None` begins with the earliest
        that is kept, `upto=None` ends with what is there now; it stops soon after `limit` rows.
        The same positions give the same table, after a restart too. `Unavailable` when `after`
        lies before what is kept: see `journal_s` of `Database.channel`.
        """
        return journal(self, kind, after, upto, limit)

    def position(self) -> str:
        """Where the journal ends now: what is written later comes after it."""
        with self._engine.lock:
            if self._engine.unfinished is not None:
                self._engine.mend()
            self._check_open()
            return text_of(self._engine.store.log.end)

    def earliest(self) -> str:
        """The earliest position that the journal still reaches back to."""
        with self._engine.lock:
            if self._engine.unfinished is not None:
                self._engine.mend()
            self._check_open()
            return text_of(self._engine.store.log.start)

    # ---- looking in ---------------------------------------------------------------------------

    def stats(self) -> ChannelStats:
        """What the channel holds now and has done since it was made."""
        engine = self._engine
        with engine.lock:
            if engine.unfinished is not None:
                engine.mend()
            self._check_open()
            now = engine.now(self.clock.now())
            engine.sheltered(partial(self._let_go, now))
            counts = [export.count_live(side.memory.address, now) for side in engine.sides]
            log = engine.store.log
            return ChannelStats(
                events=sum(int(events) for _, events in counts),
                subscriptions=sum(int(subs) for subs, _ in counts),
                windows=sum(len(side.memory.windows()) for side in engine.sides),
                components=sum(len(side.tree.readers) for side in engine.sides),
                bytes_memory=sum(side.memory.size_bytes for side in engine.sides),
                bytes_disk=engine.store.size_bytes,
                bytes_log=log.size_bytes,
                answers=engine.answers,
                dropped=sum(side.tree.dropped for side in engine.sides),
                late=int(engine.state[words_at.C_LATE]),
            )

    def _let_go(self, now: int) -> None:
        """Drop what has expired by the clock, in a channel that lives by the clock.

        Reads do not move a channel's time: a batch may still bring rows from before. A
        minute is left for those; a channel that replays history (its newest write far
        from the clock) is left alone.
        """
        engine = self._engine
        newest = engine.newest
        horizon = now - 60_000_000
        if newest < horizon and self._clocked:
            engine.state[words_at.C_NEWEST] = horizon
            engine.drop_expired()
        engine.facts["clocked"] = self._clocked
        engine.give_back_disk()
        for side in engine.sides:
            side.memory.trim()

    def seal(self) -> None:
        """Seal everything in memory to disk now."""
        self._check_open()
        self._engine.seal_all()

    def maintain(self) -> None:
        """Give back what has expired, and run all pending background work to its end."""
        with self._engine.lock:
            if self._engine.unfinished is not None:
                self._engine.mend()
            self._check_open()
            self._engine.sheltered(partial(self._let_go, self._now()))
        self._engine.maintain()

    # ---- inside -------------------------------------------------------------------------------

    def _now(self) -> int:
        return self._engine.now(self.clock.now())

    def _rows(self) -> memoryview:
        """Where to write the next row (the lock is held)."""
        if self._closed:
            raise Closed(self._closed, channel=self.name)
        return self._buffer

    def _new_id(self) -> bytes:
        self._made += 1
        return self._prefix % self._made

    def _new_ids(self, count: int) -> list[str]:
        first = self._made + 1
        self._made += count
        return [f"{self._nonce}-{n:x}" for n in range(first, first + count)]

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(self._closed, channel=self.name)

    def _event(self, row: Row) -> Event:
        return Event(row.id, self.space.decode(*row.place), row.first, row.until, row.seq, row.text)

    def _handle(self, row: Row, past: Callable[[], Sequence[Event]] | None) -> Subscription:
        condition = parse_text(row.text, delta=True)
        return Subscription(
            self, id=row.id, user=row.user, place=self.space.decode(*row.place),
            since_us=row.first, until_us=row.until, where=condition.document or None,
            unseen=bool(row.flags & words_at.R_UNSEEN), seq=row.seq, past=past,
        )  # fmt: skip

    def _poll(self, handle: Subscription) -> None:
        if self._poller is not None:
            self._poller.ask(handle)

    def _wake_at(self, handle: Subscription) -> int:
        """When a waiting handle must look again."""
        if self._poller is not None:
            return self._poller.next_at(handle)
        return handle.until_us

    def _leave_to_parent(self, why: str) -> None:
        """In a forked child: nothing here is to be used, and nobody is told anything."""
        self._closed = why
        self._engine.leave_to_parent()
        handles = self._handles.leave_to_parent()
        if self._poller is not None:
            handles += self._poller.leave_to_parent()
        for handle in handles:
            handle._leave_to_parent()

    def _shut(self, why: str = "the database was closed") -> None:
        """The database is closing, or the channel was dropped."""
        self._closed = why
        self._engine.facts["clocked"] = self._clocked
        self._handles.end()
        if self._poller is not None:
            self._poller.close()
        self._engine.close()


def _note_live(event: str, now: int, packed: Words) -> Taken:
    """For the journal: which subscriptions an event answered."""
    rows = sorted(read_rows(packed), key=lambda row: row.seq)
    found = [(row.id, event, row.user, "live") for row in rows]
    return Taken(len(found), listed_note(now, found) if found else b"")


def _note_past(subscription: str, user: str, now: int, packed: Words) -> Taken:
    """For the journal: which events a subscription found."""
    rows = sorted(read_rows(packed), key=lambda row: row.seq)
    found = [(subscription, row.id, user, "past") for row in rows]
    return Taken(len(found), listed_note(now, found) if found else b"")
