"""A channel as plain lists: every rule of the contract, word for word and slowly.

What lives here: the brute-force `Model` the tests compare a real channel with, and the
small worlds (`WORLDS`) of places the random tests draw from.

Rules (DESIGN.md, "What an answer is"), where they stand below:

    1 places meet          `meets`
    2 since <= at < until  `Model.matches`
    3 where                `holds`
    4 the earlier is valid `Model.publish` (subscriptions), `Model.subscribe` (events)

Times are integer microseconds; `FOREVER` never comes. `now` of an operation is the later of
the newest time the channel has written and the operation's own time, so a late row is judged
at the newest time seen. Reads, retries and refused calls do not move the channel's time.

Invariant: lists are in order of arrival, and nothing is ever removed from them, so "even if
that subscription has since expired or been cancelled" needs no thought.

Not thread safe: one test drives one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tideline import Box, Circle, Flat, Grid, MultiPolygon, Polygon, QuadTree, Topics
from tideline import space as spaces
from tideline.clock import FOREVER
from tideline.errors import Conflict, InvalidRequest, NotFound

__all__ = ["WORLDS", "Event", "Model", "Subscription", "World", "holds", "meets", "same_place"]


@dataclass(eq=False)
class Event:
    id: str
    place: Any
    at: int
    until: int
    body: Any
    arrival: int


@dataclass(eq=False)
class Subscription:
    id: str
    user: str
    place: Any
    since: int
    until: int
    where: dict[str, Any] | None
    unseen: bool
    arrival: int
    cancelled: bool = False
    answers: list[Event] = field(default_factory=list)


@dataclass(frozen=True)
class World:
    """A space and the few places the random tests use in it."""

    space: Any
    places: tuple[Any, ...]


# One side goes through (4, 4); a hole around (3, 1.5), and a part that is far from it.
TRIANGLE = Polygon([(1.0, 1.0), (7.5, 0.5), (0.5, 7.5)])
PIECES = MultiPolygon([
    Polygon([(2.0, 0.0), (7.5, 0.0), (5.0, 5.0), (1.0, 4.0)], [[(2.5, 1), (3.5, 1), (3, 2)]]),
    Polygon([(6.0, 6.0), (8.0, 6.0), (7.0, 8.0)]),
])  # fmt: skip

# Few places, so that matches are plentiful; coordinates lie on and beside the split lines.
WORLDS = {
    "flat": World(Flat(), ("a", "b", "c")),
    "topics": World(Topics(), ("a", "a/b", "a/b/c", "a/9", "a/10", "ab", "b")),
    "quad": World(
        QuadTree(bounds=(0.0, 0.0, 8.0, 8.0), depth=3),
        (
            "1",
            "1.4",
            "1.4.2",
            "4",
            TRIANGLE,
            PIECES,
            (4.0, 4.0),
            (2.0, 6.0),
            (3.9, 4.1),
            (7.5, 0.0),
            Circle((4.0, 4.0), 50_000),
            Circle((2.0, 6.0), 350_000),
            Circle((7.5, 0.5), 150_000),
            Box(4.0, 4.0, 6.0, 6.0),
            Box(1.0, 1.0, 7.0, 3.0),
        ),
    ),
    "grid": World(
        Grid(bounds=(0.0, 0.0, 8.0, 8.0), rows=4, cols=4),
        (
            "1.1",
            "2.2",
            TRIANGLE,
            PIECES,
            (4.0, 4.0),
            (2.0, 6.0),
            (3.9, 4.1),
            (7.5, 0.0),
            Circle((4.0, 4.0), 50_000),
            Circle((2.0, 6.0), 350_000),
            Box(4.0, 4.0, 6.0, 6.0),
            Box(1.0, 1.0, 7.0, 3.0),
        ),
    ),
}


@cache
def meets(space: Any, one: Any, other: Any) -> bool:
    """Rule 1. Geometry is `tideline.space.meets`, which has proofs of its own."""
    if isinstance(space, Flat):
        return bool(one == other)
    if isinstance(space, Topics):
        a, b = one.split("/"), other.split("/")
        short = min(len(a), len(b))
        return bool(a[:short] == b[:short])
    return bool(spaces.meets(space, space.encode(one), space.encode(other)))


def same_place(one: Any, other: Any) -> bool:
    """Exactly the same place, as `related` asks."""
    return type(one) is type(other) and bool(one == other)


def holds(where: dict[str, Any] | None, body: Any) -> bool:
    """Rule 3: equality and comparisons on top-level fields."""
    for name, wanted in (where or {}).items():
        there = isinstance(body, dict) and name in body
        value = body[name] if there else None
        if not isinstance(wanted, dict):
            wanted = {"$eq": wanted}
        for operator, operand in wanted.items():
            if not _compare(operator, there, value, operand):
                return False
    return True


def _compare(operator: str, there: bool, value: Any, operand: Any) -> bool:
    if operator == "$ne":
        return not there or bool(value != operand)
    if not there or type(value) is not type(operand):
        return False
    if operator == "$eq":
        return bool(value == operand)
    if operator == "$lt":
        return bool(value < operand)
    if operator == "$lte":
        return bool(value <= operand)
    if operator == "$gt":
        return bool(value > operand)
    if operator == "$gte":
        return bool(value >= operand)
    raise AssertionError(f"the model does not know {operator}")


class Model:
    """One channel. Every method takes the operation's own time first."""

    def __init__(self, space: Any) -> None:
        self.space = space
        self.newest = -FOREVER
        self.arrivals = 0
        self.events: list[Event] = []
        self.subs: list[Subscription] = []

    # What is valid ------------------------------------------------------------------

    def now(self, time: int) -> int:
        return max(self.newest, time)

    def live_events(self, time: int) -> list[Event]:
        return [e for e in self.events if self.now(time) < e.until]

    def live_subs(self, time: int, user: str | None = None) -> list[Subscription]:
        return [
            s
            for s in self.subs
            if not s.cancelled and self.now(time) < s.until and user in (None, s.user)
        ]

    def event(self, time: int, id: str) -> Event | None:
        """The event known by this id; an id is known while its record is valid."""
        return next((e for e in self.live_events(time) if e.id == id), None)

    def sub(self, time: int, id: str) -> Subscription | None:
        """The subscription known by this id; a cancelled one frees its id at once."""
        return next((s for s in self.live_subs(time) if s.id == id), None)

    def matches(self, e: Event, s: Subscription) -> bool:
        """Rules 1 to 3."""
        return (
            s.since <= e.at < s.until
            and meets(self.space, e.place, s.place)
            and holds(s.where, e.body)
        )

    def user_got(self, user: str, e: Event) -> bool:
        return any(e in s.answers for s in self.subs if s.user == user)

    # Verbs --------------------------------------------------------------------------

    def publish(
        self, time: int, id: str, place: Any, body: Any, at: int, until: int
    ) -> tuple[Event, list[Subscription], bool]:
        """The event, whom it answers, and whether it was a retry."""
        known = self.event(time, id)
        if known is not None:
            same = (
                same_place(known.place, place)
                and known.body == body
                and (known.at, known.until) == (at, until)
            )
            if not same:
                raise Conflict("event exists with other content", id=id)
            return known, [], True
        now = self._write(time)
        e = Event(id, place, at, until, body, self._arrive())
        self.events.append(e)
        told = []
        for s in self.subs:  # in order of arrival, so an unseen one yields to the earlier
            if s.cancelled or not now < s.until or not self.matches(e, s):
                continue
            if s.unseen and self.user_got(s.user, e):
                continue
            s.answers.append(e)
            told.append(s)
        return e, told, False

    def subscribe(
        self,
        time: int,
        id: str,
        place: Any,
        user: str,
        since: int,
        until: int,
        where: dict[str, Any] | None = None,
        unseen: bool = False,
    ) -> tuple[Subscription, list[Event], bool]:
        """The subscription, its past answers, and whether it was a retry."""
        known = self.sub(time, id)
        if known is not None:
            same = same_place(known.place, place) and (
                (known.user, known.since, known.until, known.where, known.unseen)
                == (user, since, until, where, unseen)
            )
            if not same:
                raise Conflict("subscription exists with other content", id=id)
            return known, [], True
        now = self._write(time)
        s = Subscription(id, user, place, since, until, where, unseen, self._arrive())
        past = [
            e
            for e in self.events
            if now < e.until and self.matches(e, s) and not (unseen and self.user_got(user, e))
        ]
        s.answers.extend(past)
        self.subs.append(s)
        return s, past, False

    def cancel(self, time: int, id: str) -> None:
        known = self.sub(time, id)
        if known is None:
            raise NotFound("no such subscription", id=id)
        self._write(time)
        known.cancelled = True

    def apply(
        self, rows: Sequence[dict[str, Any]]
    ) -> tuple[list[tuple[int, str, str, str, str]], list[int]]:
        """Answers as (row, subscription, event, user, kind), and the rejected rows.

        A row is what its table row says, in model terms: see `Model.publish` and
        `Model.subscribe`. A row with `bad` set is one the store must refuse.
        """
        answers: list[tuple[int, str, str, str, str]] = []
        rejected: list[int] = []
        for number, row in enumerate(rows):
            at = row["at"]
            try:
                if row.get("bad"):
                    raise InvalidRequest("bad row")
                if row["op"] == "publish":
                    e, told, _ = self.publish(
                        at, row["id"], row["place"], row["body"], at, row["until"]
                    )
                    answers += [(number, s.id, e.id, s.user, "live") for s in told]
                elif row["op"] == "subscribe":
                    s, past, _ = self.subscribe(
                        at,
                        row["id"],
                        row["place"],
                        row["user"],
                        row["since"],
                        row["until"],
                        row["where"],
                        row["unseen"],
                    )
                    answers += [(number, s.id, e.id, s.user, "past") for e in past]
                else:
                    self.cancel(at, row["id"])
            except (Conflict, InvalidRequest, NotFound):
                rejected.append(number)
        return answers, rejected

    # Questions ----------------------------------------------------------------------

    def find(
        self,
        time: int,
        place: Any,
        since: int = -FOREVER,
        until: int = FOREVER,
        where: dict[str, Any] | None = None,
        limit: int | None = None,
    ) -> list[Event]:
        found = [
            e
            for e in self.live_events(time)
            if meets(self.space, e.place, place) and since <= e.at < until and holds(where, e.body)
        ]
        found.sort(key=lambda e: (e.at, e.arrival), reverse=True)
        return found[:limit]

    def related(self, time: int, event: Event) -> list[Event]:
        """The still-valid events that arrived earlier at exactly the same place."""
        return [
            e
            for e in self.live_events(time)
            if e.arrival < event.arrival and same_place(e.place, event.place)
        ]

    def resume(self, time: int, id: str, after: int = 0) -> list[Event]:
        """What the subscription was answered with after this arrival and is still valid."""
        known = self.sub(time, id)
        if known is None:
            raise NotFound("no such subscription", id=id)
        return sorted(
            (e for e in known.answers if e.arrival > after and self.now(time) < e.until),
            key=lambda e: e.arrival,
        )

    def _write(self, time: int) -> int:
        self.newest = self.now(time)
        return self.newest

    def _arrive(self) -> int:
        self.arrivals += 1
        return self.arrivals
