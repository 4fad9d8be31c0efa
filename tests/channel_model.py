"""The contract of a channel as plain lists, written from the documents and not from the code.

What lives here: `Model`, which says for every operation of a story (channel_stories.py) what a
correct channel answers, and `WORLDS`, the few places that stories use. Sources of the rules:
the design's "What an answer is", docs/guide/subscriptions.md, windows.md, batches.md and
operations.md, docs/decisions/0007 (retries) and 0009 (a channel's time).

    event e answers subscription s    `Model.answers`: places meet, since <= at < until, where holds
    "user u was told e"               `Event.told`, a set of users: it lives as long as the event
    the order of s's answers          `Sub.got`: (rank, event); a token stands for a rank
    who was made first                the order of `Model.subs`; a moved end or place: the last
    a call that failed                never reaches the model: nothing of it happened

All times are whole microseconds, all places plain values: a text, a point `(lon, lat)`,
`("circle", lon, lat, radius_m)`, `("box", west, south, east, north)` or `("polygon", corners)`.
Nothing of Tideline is imported here, geometry included. What no later operation can see is pruned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import shapely
from shapely.affinity import scale

__all__ = ["WHERES", "WORLDS", "Event", "Model", "Refused", "Sub", "World", "meets"]

FOREVER = 1 << 62
SECOND = 1_000_000
Body = tuple[int, str, int]  # n, kind and how many letters of padding
Op = dict[str, Any]

# Conditions by number: what is sent, and what it means for a body.
WHERES: list[tuple[Any, Callable[[int, str], bool]]] = [
    (None, lambda n, kind: True),
    ({"n": 2}, lambda n, kind: n == 2),
    ({"n": {"$gte": 2}}, lambda n, kind: n >= 2),
    ({"n": {"$lt": 3, "$gt": 0}}, lambda n, kind: 0 < n < 3),
    ({"kind": {"$ne": "x"}}, lambda n, kind: kind != "x"),
    ({"$or": [{"n": 1}, {"kind": "y"}]}, lambda n, kind: n == 1 or kind == "y"),
    ({"n": {"$in": [0, 3]}}, lambda n, kind: n in (0, 3)),
]


@dataclass(frozen=True)
class World:
    """A space, by the name and arguments it is made with, and its places.

    The last place is the filler's: large events happen there, and hardly anybody asks.
    """

    space: tuple[str, dict[str, Any]]
    places: tuple[Any, ...]
    in_tables: tuple[int, ...]
    """The places that a row of a table can name."""


_SHAPES: tuple[Any, ...] = (
    (4.0, 4.0),
    (2.0, 6.0),
    ("circle", 4.0, 4.0, 50_000.0),
    ("circle", 2.5, 5.5, 350_000.0),
    ("box", 4.0, 4.0, 6.0, 6.0),
    ("box", 1.0, 1.0, 7.0, 3.0),
    (3.9, 4.1),
    ("polygon", ((1.0, 1.0), (7.5, 0.5), (0.5, 7.5))),  # a side goes through (4, 4)
    ("polygon", ((2.0, 6.0), (1.0, 7.0), (3.0, 7.5), (2.25, 6.75))),
    (7.5, 0.0),
)
_BOUNDS = {"bounds": (0.0, 0.0, 8.0, 8.0)}
_NO_BOXES = (0, 1, 2, 3, 6, 7, 8, 9)
WORLDS = {
    "flat": World(("Flat", {}), ("a", "b", "c", "z"), (0, 1, 2, 3)),
    "topics": World(("Topics", {}), ("a", "a/b", "a/b/c", "a/9", "ab", "z"), (0, 1, 2, 3, 4, 5)),
    "quad": World(("QuadTree", {**_BOUNDS, "depth": 3}), _SHAPES, _NO_BOXES),
    "grid": World(("Grid", {**_BOUNDS, "rows": 4, "cols": 4}), _SHAPES, _NO_BOXES),
}


def meets(one: Any, other: Any) -> bool:
    """Whether two places of one space meet. A text without "/" is a key or a topic of one name."""
    if isinstance(one, str):
        a, b = one.split("/"), other.split("/")
        short = min(len(a), len(b))
        return a[:short] == b[:short]
    return _gap_m(one, other) <= 0


def _area(place: Any) -> tuple[Any, float]:
    """A shape as an area in degrees and a radius around it, in metres."""
    if place[0] == "box":
        return shapely.box(*place[1:]), 0.0
    if place[0] == "polygon":
        return shapely.Polygon(place[1]), 0.0
    if place[0] == "circle":
        return shapely.Point(place[1:3]), place[3]
    return shapely.Point(place), 0.0


def _gap_m(one: Any, other: Any) -> float:
    """How far two shapes are apart; refuses to judge circles that nearly touch."""
    (area, radius), (area2, radius2) = _area(one), _area(other)
    radii = radius + radius2
    if not radii:
        return 0.0 if area.intersects(area2) else 1.0
    middle = math.radians((area.centroid.y + area2.centroid.y) / 2)
    flat = [scale(each, math.cos(middle), origin=(0, 0)) for each in (area, area2)]
    metres = flat[0].distance(flat[1]) * 111_195.0
    assert abs(metres - radii) > 0.02 * radii, "choose places that are further apart"
    return metres - radii


class Refused(Exception):
    """The call is refused with the error of this name."""


@dataclass(eq=False)
class Event:
    id: str
    place: int
    at: int
    until: int
    body: Body
    told: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Sub:
    id: str
    user: str
    place: int
    since: int
    until: int
    where: int
    unseen: bool
    cancelled: bool = False
    ranks: int = 0
    got: list[tuple[int, Event]] = field(default_factory=list)
    tokens: dict[int, str] = field(default_factory=dict)
    """The tokens that were seen, by rank. Filled by who compares."""

    def facts(self) -> tuple[Any, ...]:
        return (self.id, self.user, self.place, self.since, self.until, self.where, self.unseen)


@dataclass(eq=False)
class Handle:
    """A handle somebody holds, and what it has to hand out."""

    sub: Sub
    queue: list[tuple[int, Event]] = field(default_factory=list)


@dataclass
class Journal:
    """What was written since the position up to which the journal was read last."""

    keep_us: int
    position: str | None = None
    read_at: int = 0
    events: list[Any] = field(default_factory=list)
    subscriptions: list[Any] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)


class Model:
    """One channel. `clock` is the database's clock, `newest` the channel's own time."""

    def __init__(self, world: World, *, keep_all: bool = False) -> None:
        self._keep_all = keep_all
        n = len(world.places)
        self.meets = [[meets(world.places[i], world.places[j]) for j in range(n)] for i in range(n)]
        self.clock = 0
        self.newest = -FOREVER
        self.events: dict[str, Event] = {}  # in order of arrival
        self.subs: list[Sub] = []  # in order of making
        self.handles: dict[str, Handle] = {}
        self.journal: Journal | None = None
        self.writers: dict[str, int] = {}
        self.given = 0
        self._writes = 0

    # What is there --------------------------------------------------------------------------

    def now(self) -> int:
        """What time it is for a call by the clock."""
        return max(self.newest, self.clock)

    def event(self, id: str, now: int) -> Event | None:
        found = self.events.get(id)
        return found if found is not None and now < found.until else None

    def sub(self, id: str, now: int) -> Sub | None:
        for s in self.subs:
            if s.id == id and not s.cancelled and now < s.until:
                return s
        return None

    def live_events(self, now: int) -> list[Event]:
        return [e for e in self.events.values() if now < e.until]

    def live_subs(self, now: int) -> list[Sub]:
        return [s for s in self.subs if not s.cancelled and now < s.until]

    def answers(self, e: Event, s: Sub) -> bool:
        """Rules 1 to 3."""
        return (
            s.since <= e.at < s.until
            and self.meets[e.place][s.place]
            and WHERES[s.where][1](e.body[0], e.body[1])
        )

    # Verbs ----------------------------------------------------------------------------------

    def publish(
        self, own: int, id: str, place: int, body: Body, at: int, until: int, replace: str = ""
    ) -> tuple[bool, list[Sub]]:
        """Whether it was a retry, and whom the event answers.

        `replace` is "once" when it has a time of its own: the same again is a retry then.
        """
        now = max(self.newest, own)
        if until <= at:
            raise Refused("InvalidRequest")
        known = self.event(id, now)
        if known is not None:
            same = (known.place, known.body, known.at, known.until) == (place, body, at, until)
            if not same and not replace:
                raise Refused("Conflict")
            if same and replace != "always":
                return True, []
            known.until = -FOREVER
        self._write(now)
        e = Event(id, place, at, until, body)
        self.events.pop(id, None)
        if now < until:
            self.events[id] = e
        told = []
        for s in self.subs:
            if s.cancelled or now >= s.until or not self.answers(e, s):
                continue
            if s.unseen and s.user in e.told:
                continue
            self._tell(s, e, live=True)
            told.append(s)
        if self.journal is not None:
            self.journal.events.append((id, at, until))
            self.journal.answers += [(s.id, id, s.user, "live") for s in told]
        return False, told

    def subscribe(
        self, own: int, id: str, user: str, place: int, since: int, until: int, where: int,
        unseen: bool,
    ) -> tuple[bool, Sub, list[tuple[int, Event]]]:  # fmt: skip
        """Whether it was a retry, the subscription, and its past."""
        now = max(self.newest, own)
        if until <= since:
            raise Refused("InvalidRequest")
        s = Sub(id, user, place, since, until, where, unseen)
        known = self.sub(id, now)
        if known is not None:
            if known.facts() != s.facts():
                raise Refused("Conflict")
            return True, known, []
        self._write(now)
        past = [
            self._tell(s, e)
            for e in self.events.values()
            if now < e.until and self.answers(e, s) and not (unseen and user in e.told)
        ]
        self.subs.append(s)
        if self.journal is not None:
            self.journal.subscriptions.append((id, user, until))
            self.journal.answers += [(id, e.id, user, "past") for _, e in past]
        return False, s, past

    def retract(self, id: str, own: int | None = None) -> None:
        now = self.now() if own is None else max(self.newest, own)
        e = self.event(id, now)
        if e is None:
            raise Refused("NotFound")
        self._write(now)
        e.until = -FOREVER  # nobody finds it any more, whatever they ask
        del self.events[id]

    def cancel(self, own: int, id: str) -> Sub:
        now = max(self.newest, own)
        s = self.sub(id, now)
        if s is None:
            raise Refused("NotFound")
        self._write(now)
        s.cancelled = True
        self.subs.remove(s)
        return s

    def prolong(self, id: str, until: int) -> Sub:
        now = self.now()
        s = self.sub(id, now)
        if s is None:
            raise Refused("NotFound")
        if until <= max(now, s.since):
            raise Refused("InvalidRequest")
        if until == s.until:
            return s
        self._write(now)
        before, s.until = s.until, until
        self.subs.remove(s)
        self.subs.append(s)  # it counts as made now
        had = {e for _, e in s.got}
        found = []
        for e in self.events.values():
            if now < e.until and e.at >= before and e not in had and self.answers(e, s):
                if s.unseen and s.user in e.told:
                    continue
                self._tell(s, e, live=True)
                found.append(e)
        if self.journal is not None:
            self.journal.subscriptions.append((id, s.user, until))
            self.journal.answers += [(id, e.id, s.user, "past") for e in found]
        return s

    def move(self, id: str, place: int) -> Sub:
        now = self.now()
        s = self.sub(id, now)
        if s is None:
            raise Refused("NotFound")
        if place == s.place:
            return s
        self._write(now)
        s.place = place
        self.subs.remove(s)
        self.subs.append(s)  # it counts as made now
        had = {e for _, e in s.got}
        found = []
        for e in self.events.values():
            if now < e.until and e not in had and self.answers(e, s):
                if s.unseen and s.user in e.told:
                    continue
                self._tell(s, e, live=True)
                found.append(e)
        if self.journal is not None:
            self.journal.subscriptions.append((id, s.user, s.until))
            self.journal.answers += [(id, e.id, s.user, "past") for e in found]
        return s

    def resume(self, s: Sub, after: int) -> list[tuple[int, Event]]:
        """The answers of ranks above `after` that are still valid."""
        now = self.now()
        return [(rank, e) for rank, e in s.got if rank > after and now < e.until]

    def apply(self, rows: Iterable[Op], once: list[Any] | None) -> tuple[Any, ...]:
        """Whether it had landed before, the answers, the numbers of rejected rows."""
        if once is not None:
            writer, number = once
            if number <= self.writers.get(writer, -1):
                return True, [], []
            self.writers[writer] = number
        answers: list[tuple[Any, ...]] = []
        rejected = []
        for number, row in enumerate(rows):
            try:
                if row.get("bad"):
                    raise Refused("InvalidRequest")
                at, until = row["at"], _limit(row.get("until"))
                if row["op"] == "publish":
                    replace = "always" if row.get("replace") else ""
                    _, told = self.publish(
                        at, row["id"], row["place"], tuple(row["body"]), at, until, replace
                    )
                    answers += [(number, s.id, row["id"], s.user, "live") for s in told]
                elif row["op"] == "subscribe":
                    since = at if row["since"] is None else row["since"]
                    _, s, past = self.subscribe(
                        at, row["id"], row["user"], row["place"], since, until, row["where"],
                        row["unseen"],
                    )  # fmt: skip
                    answers += [(number, s.id, e.id, s.user, "past") for _, e in past]
                elif row["op"] == "retract":
                    self.retract(row["id"], at)
                else:
                    self.cancel(at, row["id"])
            except Refused:
                rejected.append(number)
        return False, answers, rejected

    # Questions ------------------------------------------------------------------------------

    def find(
        self, place: int, since: int | None, until: int | None, where: int, limit: int | None
    ) -> list[Event]:
        now = self.now()
        first, last = (-FOREVER if since is None else since), _limit(until)
        if last <= first:
            raise Refused("InvalidRequest")
        found = [
            e
            for e in self.live_events(now)
            if first <= e.at < last
            and self.meets[e.place][place]
            and WHERES[where][1](e.body[0], e.body[1])
        ]
        found.reverse()  # of one time, the later arrival comes first
        found.sort(key=lambda e: -e.at)
        return found[:limit]

    def related(self, place: int) -> list[Event]:
        return [e for e in self.live_events(self.now()) if e.place == place]

    def listed(self, user: str | None = None) -> list[tuple[Any, ...]]:
        return [s.facts() for s in self.live_subs(self.now()) if user in (None, s.user)]

    def dump(self) -> dict[str, Any]:
        """What can be asked without changing anything: to tell whether a call has happened."""
        events = [(e.id, e.at, e.until) for e in self.live_events(self.now())]
        journal = self.journal
        seen = None
        if journal is not None and journal.position is not None:
            seen = (journal.events, journal.subscriptions, sorted(journal.answers))
        return {
            "events": events,
            "subs": self.listed(),
            "noted": journal is not None,
            "journal": seen,
            "writers": dict(self.writers),
        }

    def secrets(self) -> Any:
        """What later answers depend on and `dump` does not show."""
        return self.given, [(e.id, e.told) for e in self.live_events(self.now())]

    # Inside ---------------------------------------------------------------------------------

    def copy(self) -> Model:
        """Another model that goes its own way: everything that changes is copied."""
        other = object.__new__(Model)
        other.__dict__.update(self.__dict__)
        every = list(self.events.values())
        kept = {id(e) for e in every}
        for s in self.subs:
            for _, e in s.got:
                if id(e) not in kept:
                    kept.add(id(e))
                    every.append(e)
        for handle in self.handles.values():
            for _, e in [*handle.queue, *handle.sub.got]:
                if id(e) not in kept:
                    kept.add(id(e))
                    every.append(e)
        events = {id(e): Event(e.id, e.place, e.at, e.until, e.body, set(e.told)) for e in every}

        def copied(s: Sub) -> Sub:
            got = [(rank, events[id(e)]) for rank, e in s.got]
            return Sub(
                s.id, s.user, s.place, s.since, s.until, s.where, s.unseen, s.cancelled, s.ranks,
                got, dict(s.tokens),
            )  # fmt: skip

        subs = {id(s): copied(s) for s in self.subs}
        for handle in self.handles.values():
            if id(handle.sub) not in subs:
                subs[id(handle.sub)] = copied(handle.sub)
        other.events = {e.id: events[id(e)] for e in self.events.values()}
        other.subs = [subs[id(s)] for s in self.subs]
        other.handles = {
            name: Handle(subs[id(h.sub)], [(rank, events[id(e)]) for rank, e in h.queue])
            for name, h in self.handles.items()
        }
        other.writers = dict(self.writers)
        if self.journal is not None:
            j = self.journal
            other.journal = Journal(
                j.keep_us, j.position, j.read_at, list(j.events), list(j.subscriptions),
                list(j.answers),
            )  # fmt: skip
        return other

    def _tell(self, s: Sub, e: Event, *, live: bool = False) -> tuple[int, Event]:
        """One more answer of a subscription; a live one goes to the handle that somebody holds."""
        s.ranks += 1
        answer = (s.ranks, e)
        s.got.append(answer)
        e.told.add(s.user)
        self.given += 1
        if live:
            handle = self.handles.get(s.id)
            if handle is not None and handle.sub is s:
                handle.queue.append(answer)
        return answer

    def _write(self, now: int) -> None:
        self.newest = now
        self._writes += 1
        if self._writes % 64 == 0 and not self._keep_all:
            self._prune()

    def _prune(self) -> None:
        """Let go of what no write or question to come can see: times only grow."""
        now = self.newest
        self.events = {id: e for id, e in self.events.items() if now < e.until}
        self.subs = [s for s in self.subs if now < s.until]
        for s in self.subs:
            if any(now >= e.until for _, e in s.got):
                s.got = [(rank, e) for rank, e in s.got if now < e.until]


def _limit(until: int | None) -> int:
    return FOREVER if until is None else until
