"""The verbs of a channel: publish, subscribe, cancel, find, resume, apply.

Each verb checks its arguments, writes one row, runs it under the engine's lock, logs it, and only
then tells anyone. Here are the names that users call; what they do is in the rooms beside:

    publish.py                  publish
    kept.py                     subscribe, cancel, prolong, resume: stored.py, or poll.py
    find.py                     find, subscriptions
    batch.py                    apply
    scan.py, journal.py         tables
    looking.py                  stats, maintain

What they share is `core` (core.py): it is for this package, not for users.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, cast

import pyarrow as pa

from tideline.channel import journal as journals
from tideline.channel import looking
from tideline.channel.bodies import parse_where
from tideline.channel.checks import check_flag, check_text
from tideline.channel.core import Core
from tideline.channel.engine import Engine
from tideline.channel.find import find, get, list_subscriptions
from tideline.channel.kept import Subscriptions
from tideline.channel.poll import PolledSubscriptions
from tideline.channel.publish import publish
from tideline.channel.resume import read_token
from tideline.channel.retract import retract
from tideline.channel.scan import scan, times_between
from tideline.channel.stored import StoredSubscriptions
from tideline.channel.subscription import Subscription
from tideline.channel.writers import check_once
from tideline.clock import Clock, Seconds, from_us, span_us
from tideline.errors import InvalidRequest
from tideline.model import Applied, ChannelStats, Event, SubscriptionInfo, Told
from tideline.protocols import Body, Place
from tideline.space import Space
from tideline.where import parse

__all__ = ["Channel"]

_NO_CONDITION = parse(None)


class Channel:
    """Events and subscriptions side by side. Made by `Database.channel`."""

    def __init__(
        self, name: str, space: Space, layout: str, poll_s: float, engine: Engine, clock: Clock,
    ) -> None:  # fmt: skip
        self.name = name
        self.space = space
        self.layout = layout
        self.clock = clock
        self.core = core = Core(name, space, engine, clock)
        kept: Subscriptions
        if layout == "poll":
            kept = PolledSubscriptions(core, span_us(poll_s, "poll_s"))
        else:
            kept = StoredSubscriptions(core)
        self._subscriptions = core.subscriptions = kept

    @property
    def identity(self) -> str:
        """32 hex digits that tell this channel's store from any other, over restarts.

        A digest of the seeds its hashes are made with: those are nobody else's to know.
        """
        seeds = ",".join(str(seed) for seed in self.core.engine.facts["seeds"])
        return hashlib.sha256(seeds.encode()).hexdigest()[:32]

    @property
    def max_ahead_s(self) -> float:
        """How far ahead of the clock a row of a batch may be; `inf` when there is no limit.

        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     db.channel("news").max_ahead_s, db.channel("news", max_ahead_s=5).max_ahead_s
        (60.0, 5.0)
        """
        return self.core.max_ahead_s

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
        return from_us(self.core.engine.newest)

    # ---- events and subscriptions ----------------------------------------------------------------

    def publish(
        self, place: Place, body: Body, *, id: str | None = None, at: datetime | None = None,
        ttl_s: Seconds | None = None, until: datetime | None = None, related: bool = False,
        replace: bool = False,
    ) -> Told:  # fmt: skip
        """Store an event and return whom it answers.

        place: where it happens, as the channel's space has places.
        body: what it says: JSON, and datetimes as text in UTC (docs/guide/windows.md).
        id: a name of its own, that makes a retry safe. One is made when it is left out.
        at: when it happens; now if left out.
        ttl_s, until: how long it stays valid; for ever if both are left out.
        related: also return the valid earlier events at the same place.
        replace: end the valid event with this id, wherever it is: "truck 7 is here now".

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
        return publish(self.core, place, body, id, at, ttl_s, until, related, replace)

    def retract(self, id: str) -> None:
        """End the event with this id: whoever asks later does not find it.

        Whoever was told of it, holds its subscription and asked for `retractions` is told: they
        get the event once more, with `retracted` true. `NotFound` if no valid event has the id.

        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     orders = db.channel("orders")
        ...     sub = orders.subscribe("north", user="ann", until_s=60, retractions=True)
        ...     told = orders.publish("north", {"n": 1}, id="o1", ttl_s=600)
        ...     orders.retract("o1")
        ...     [(event.id, event.retracted) for event in sub.take()], orders.find("north")
        ([('o1', False), ('o1', True)], [])
        """
        retract(self.core, id)

    def subscribe(
        self, place: Place, *, user: str, id: str | None = None, since_s: Seconds | None = None,
        since: datetime | None = None, until_s: Seconds | None = None,
        until: datetime | None = None, where: dict[str, Any] | None = None, unseen: bool = False,
        retractions: bool = False,
    ) -> Subscription:  # fmt: skip
        """Store a subscription; its `past` is there at once, what happens later is delivered.

        place: what it watches, as the channel's space has places.
        user: whose it is.
        id: a name of its own, that makes a retry safe. One is made when it is left out.
        since_s, since: where its window begins: seconds before now, or a time. Now if left out.
        until_s, until: where it ends; never if left out.
        where: a condition that bodies must meet.
        unseen: leave out what the user was told by a subscription before.
        retractions: have this handle told when an event that it got is retracted or replaced.

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
        if type(place) is not str and type(place) is not tuple:
            # As it will be when it is read again.
            place = cast(Place, self.space.decode(*encoded))
        owner = check_text(user, "user")
        ident = self.core.ids.one() if id is None else check_text(id, "id")
        condition = _NO_CONDITION
        if where is not None:
            condition, where = parse_where(where, delta=True)
        if unseen is not False:
            check_flag(unseen, "unseen")
        return self._subscriptions.subscribe(
            encoded, place, owner, ident, condition, where, unseen, since_s, since, until_s, until,
            self._retracting(retractions),
        )  # fmt: skip

    def cancel(self, id: str) -> None:
        """End a subscription; `NotFound` if there is none (any more)."""
        self._subscriptions.cancel(check_text(id, "id"))

    def prolong(
        self, id: str, *, until_s: Seconds | None = None, until: datetime | None = None
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
        return self._subscriptions.prolong(ident, until_s, until)

    def move(self, id: str, place: Place) -> SubscriptionInfo:
        """Have a subscription watch another place; its handle goes on.

        One call instead of subscribe, take, cancel. What is valid at the new place and was no
        answer before is delivered; nothing comes twice, nothing is missed, and a kill leaves the
        old place or the new one. Among its user's subscriptions it counts as made now.

        >>> import tideline
        >>> from tideline import QuadTree, Circle
        >>> with tideline.open(":memory:") as db:
        ...     roads = db.channel("roads", space=QuadTree())
        ...     for n, lon in enumerate((-73.9, -73.8)):
        ...         told = roads.publish((lon, 40.7), {"n": n}, ttl_s=600)
        ...     near = Circle((-73.9, 40.7), radius_m=1000)
        ...     sub = roads.subscribe(near, user="ann", id="s1", since_s=-60, until_s=60)
        ...     info = roads.move("s1", Circle((-73.85, 40.7), radius_m=9000))
        ...     [event.body for event in sub.past], [event.body for event in sub.take()]
        ([{'n': 0}], [{'n': 1}])
        """
        ident = check_text(id, "id")
        return self._subscriptions.move(ident, self.space.encode(place))

    def resume(
        self, id: str, after: str | None = None, *, retractions: bool = False
    ) -> Subscription:
        """A stored subscription given back, with what it missed since `after`.

        `after` is the token of the last event that was handled; without it, `past` holds
        everything the subscription was answered with that is still valid.
        """
        return self._subscriptions.resume(
            check_text(id, "id"), read_token(after), self._retracting(retractions)
        )

    def _retracting(self, asked: bool) -> bool:
        """Whether a handle is to be told of retractions."""
        if asked is False:
            return False
        if check_flag(asked, "retractions") and self.layout == "poll":
            raise InvalidRequest("layout 'poll' tells no retractions", retractions=asked)
        return True

    # ---- asking ----------------------------------------------------------------------------------

    def find(
        self, place: Place, *, since_s: Seconds | None = None, since: datetime | None = None,
        until_s: Seconds | None = None, until: datetime | None = None,
        where: dict[str, Any] | None = None, limit: int | None = None,
    ) -> list[Event]:  # fmt: skip
        """The valid events of a window, newest first; stores nothing.

        Without a window: everything that is still valid.
        """
        return find(self.core, place, since_s, since, until_s, until, where, limit)

    def get(self, id: str) -> Event | None:
        """The event with this id, if it is still valid; None otherwise.

        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     told = db.channel("roads").publish("I-87", {"lanes": 2}, id="e1", ttl_s=60)
        ...     db.channel("roads").get("e1").body, db.channel("roads").get("e2")
        ({'lanes': 2}, None)
        """
        return get(self.core, id)

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
        return list_subscriptions(self.core, user, limit, after)

    def subscription(self, id: str) -> SubscriptionInfo:
        """One live subscription; `NotFound` if there is none with this id (any more).

        >>> import tideline
        >>> with tideline.open(":memory:") as db:
        ...     sub = db.channel("roads").subscribe("I-87", user="ann", id="s1", until_s=60)
        ...     db.channel("roads").subscription("s1").user
        'ann'
        """
        return self._subscriptions.get(check_text(id, "id"))

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
        return self.core.apply(table, once)

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
        with self.core.engine.lock:
            self.core.begin()
            return self.core.engine.writers.landed(*checked)

    # ---- tables ----------------------------------------------------------------------------------

    def scan(
        self, kind: str, *, place: Place | None = None, since: datetime | None = None,
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
        return scan(self.core, kind, place, since, until, where)

    def times_between(self, parts: int) -> list[datetime]:
        """Times that cut the valid events into about so many parts, by when they happened.

        For whoever reads a channel in parts, each with `scan` between two of them.
        """
        found = (from_us(us) for us in times_between(self.core, parts))
        return [time for time in found if time is not None]

    def journal(
        self, kind: str, *, after: str | None = None, upto: str | None = None,
        limit: int = 1_000_000,
    ) -> tuple[pa.Table, str]:  # fmt: skip
        """What was written after a position, in order, and the position reached.

        `kind` is "events", "subscriptions", "answers" or "retractions" (events that were retracted
        or replaced). `after=None` begins with the earliest that is kept, `upto=None` ends with
        what is there now; it stops soon after `limit` rows. The same positions give the same
        table, after a restart too. `Unavailable` when `after` lies before what is kept: see
        `journal_s` of `Database.channel`.
        """
        return journals.journal(self.core, kind, after, upto, limit)

    def position(self) -> str:
        """Where the journal ends now: what is written later comes after it."""
        return journals.position(self.core)

    def earliest(self) -> str:
        """The earliest position that the journal still reaches back to."""
        return journals.earliest(self.core)

    # ---- looking in ------------------------------------------------------------------------------

    def stats(self) -> ChannelStats:
        """What the channel holds now and has done since it was made."""
        return looking.stats(self.core)

    def seal(self) -> None:
        """Seal everything in memory to disk now."""
        self.core.check_open()
        self.core.engine.upkeep.seal_all()

    def maintain(self) -> None:
        """Give back what has expired, and run all pending background work to its end."""
        looking.maintain(self.core)

    def __repr__(self) -> str:
        return f"Channel(name={self.name!r}, space={self.space!r}, layout={self.layout!r})"
