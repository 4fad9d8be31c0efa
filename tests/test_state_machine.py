"""Random operations on a real channel and on the model, compared at every step.

Over every layout that stores subscriptions and every space; with late and bad rows, clock
moves, sealing, reopening and killing in between. What it finds becomes a named test.

A killed process is played by copying the folder while the database is open and going on with
the copy: whatever a call acknowledged must be in the files by then. Background work is run to
its end before the copy, since a copy, unlike a kill, does not happen in one moment
(test_faults.py kills real processes).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from machine import (
    AT,
    BODY,
    EVENT_ID,
    PLACE,
    ROW,
    SINCE,
    SPAN,
    SUB_ID,
    TTL,
    USER,
    WHERE,
    Handle,
    attempt,
    facts,
    shown,
)
from model import WORLDS, Event, Model, Subscription
from tables import answers_of, rejected_of, table_of

import tideline
from tideline import Box, MultiPolygon, Polygon
from tideline.clock import FOREVER, SECOND, from_us
from tideline.testing import ManualClock


class ChannelMachine(RuleBasedStateMachine):
    layout = "dual"
    world = "flat"

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tideline-machine-"))
        self.lives = 0
        self.clock = ManualClock(1_000)
        self.space, self.places = WORLDS[self.world].space, WORLDS[self.world].places
        self.model = Model(self.space)
        self.handles: dict[int, Handle] = {}  # by the subscription's arrival
        self.named = 0

    @initialize()
    def open(self) -> None:
        self.db = tideline.open(self.root / str(self.lives), clock=self.clock, memory_mb=4)
        self.channel = self.db.channel("c", space=self.space, layout=self.layout)

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.take()
            self.db.close()
        shutil.rmtree(self.root)

    def place(self, number: int) -> Any:
        return self.places[number % len(self.places)]

    def name(self, prefix: str) -> str:
        self.named += 1
        return f"{prefix}{self.named}"

    def now(self) -> int:
        return self.clock.now()

    def tell(self, e: Event, told: list[Subscription]) -> None:
        for s in told:
            if s.arrival in self.handles:
                self.handles[s.arrival].pending.append(e)

    def adopt(self, real: Any, sub: Subscription, past: list[Event]) -> None:
        """Go on with this handle; a former one of the same subscription is emptied first."""
        former = self.handles.get(sub.arrival)
        handle = Handle(real, sub)
        if former is not None:
            former.received(former.real.take(), former.pending)
            handle.token, handle.arrival = former.token, former.arrival
        handle.received(real.past, past)
        self.handles[sub.arrival] = handle

    # Verbs --------------------------------------------------------------------------

    @rule(place=PLACE, body=BODY, at=AT, ttl=TTL, id=EVENT_ID, related=st.booleans())
    def publish(
        self, place: int, body: Any, at: int, ttl: int | None, id: str | None, related: bool
    ) -> None:
        at_us = self.now() + at * SECOND
        until = FOREVER if ttl is None else at_us + ttl * SECOND
        if id is None:  # a fresh name: defaults and relative times say the same
            times = {"at": from_us(at_us) if at else None, "ttl_s": ttl}
        else:
            times = {"at": from_us(at_us), "until": from_us(until)}
        self.publish_both(
            id or self.name("e"), self.place(place), body, at_us, until, times, related
        )

    def publish_both(
        self,
        id: str,
        place: Any,
        body: Any,
        at: int,
        until: int,
        times: dict[str, Any],
        related: bool,
    ) -> None:
        expected, refused = attempt(
            lambda: self.model.publish(self.now(), id, place, body, at, until)
        )
        answer, error = attempt(
            lambda: self.channel.publish(place, body, id=id, related=related, **times)
        )
        assert error is refused
        if expected is None:
            return
        e, told, duplicate = expected
        assert shown([answer.event]) == [facts(e)]
        assert answer.duplicate == duplicate
        assert sorted((s.id, s.user) for s in answer.subscriptions) == sorted(
            (s.id, s.user) for s in told
        )
        if related and not duplicate:
            assert shown(answer.related) == [facts(r) for r in self.model.related(self.now(), e)]
        self.tell(e, told)

    @rule(
        place=PLACE,
        user=USER,
        since=SINCE,
        span=SPAN,
        where=WHERE,
        unseen=st.booleans(),
        id=SUB_ID,
    )
    def subscribe(
        self,
        place: int,
        user: str,
        since: int,
        span: int | None,
        where: dict[str, Any] | None,
        unseen: bool,
        id: str | None,
    ) -> None:
        since_us = self.now() + since * SECOND
        until = FOREVER if span is None else since_us + span * SECOND
        times: dict[str, Any]
        if id is None:
            times = {"until_s": None if span is None else since + span}
            if since > 0:
                times["since"] = from_us(since_us)
            else:
                times["since_s"] = since or None
        else:
            times = {"since": from_us(since_us), "until": from_us(until)}
        self.subscribe_both(
            id or self.name("s"), self.place(place), user, since_us, until, where, unseen, times
        )

    @rule(which=st.integers(0, 30), event=st.booleans())
    def again(self, which: int, event: bool) -> None:
        """Exactly the same call as before, whether or not the record is still known."""
        if event and self.model.events:
            e = self.model.events[-1 - which % len(self.model.events)]
            times = {"at": from_us(e.at), "until": from_us(e.until)}
            self.publish_both(e.id, e.place, e.body, e.at, e.until, times, False)
        elif self.model.subs and not event:
            s = self.model.subs[-1 - which % len(self.model.subs)]
            times = {"since": from_us(s.since), "until": from_us(s.until)}
            self.subscribe_both(s.id, s.place, s.user, s.since, s.until, s.where, s.unseen, times)

    def subscribe_both(
        self,
        id: str,
        place: Any,
        user: str,
        since: int,
        until: int,
        where: dict[str, Any] | None,
        unseen: bool,
        times: dict[str, Any],
    ) -> None:
        expected, refused = attempt(
            lambda: self.model.subscribe(self.now(), id, place, user, since, until, where, unseen)
        )
        real, error = attempt(
            lambda: self.channel.subscribe(
                place, user=user, id=id, where=where, unseen=unseen, **times
            )
        )
        assert error is refused
        if expected is not None:
            sub, past, _ = expected
            assert (real.id, real.user, real.place) == (sub.id, sub.user, sub.place)
            assert (real.since, real.until) == (from_us(sub.since), from_us(sub.until))
            self.adopt(real, sub, past)

    @rule(which=st.integers(-1, 10), by_handle=st.booleans())
    def cancel(self, which: int, by_handle: bool) -> None:
        live = self.model.live_subs(self.now())
        sub = live[which % len(live)] if live and which >= 0 else None
        id = sub.id if sub else "nobody"
        _, refused = attempt(lambda: self.model.cancel(self.now(), id))
        if sub and by_handle and sub.arrival in self.handles:
            self.handles[sub.arrival].real.cancel()
        else:
            _, error = attempt(lambda: self.channel.cancel(id))
            assert error is refused

    @rule(drawn=st.lists(ROW, min_size=1, max_size=6), shapes=st.booleans())
    def apply(self, drawn: list[dict[str, Any]], shapes: bool) -> None:
        shapes = shapes and self.world in ("grid", "quad")
        texts = (str, Polygon, MultiPolygon)  # polygons as GeoJSON
        places = [
            p for p in self.places if not isinstance(p, Box) and isinstance(p, texts) != shapes
        ]
        rows = [self.row(d, places) for d in drawn]
        before = {s.arrival: len(s.answers) for s in self.model.subs}
        answers, rejected = self.model.apply(rows)
        applied = self.channel.apply(table_of(rows, shapes=shapes))
        assert answers_of(applied) == sorted(answers)
        assert sorted(rejected_of(applied)) == rejected
        order = applied.answers.column("row").to_pylist()
        assert order == sorted(order)
        for arrival, handle in self.handles.items():
            handle.pending += handle.sub.answers[before[arrival] :]

    def row(self, d: dict[str, Any], places: list[Any]) -> dict[str, Any]:
        at = self.now() + d["at"] * SECOND
        row = {"op": d["op"], "at": at, "place": places[d["place"] % len(places)], "bad": d["bad"]}
        if d["op"] == "publish":
            until = FOREVER if d["span"] is None else at + d["span"] * SECOND
            row |= {"id": d["event_id"] or self.name("e"), "body": d["body"], "until": until}
        elif d["op"] == "subscribe":
            since = at + d["since"] * SECOND
            until = FOREVER if d["span"] is None else since + d["span"] * SECOND
            row |= {"id": d["sub_id"] or self.name("s"), "since": since, "until": until}
            row |= {"user": d["user"], "where": d["where"], "unseen": d["unseen"]}
        else:
            row["id"] = d["sub_id"] or "nobody"
            if d["bad"]:
                row["bad"] = {"op": "explode"}  # a cancel has little else to be wrong
        return row

    # Time, files, background work -----------------------------------------------------

    @rule(seconds=st.sampled_from([0.000001, 1, 1, 2, 5, 30]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(work=st.sampled_from(["seal", "maintain", "check"]))
    def housekeeping(self, work: str) -> None:
        if work == "seal":
            self.channel.seal()
        elif work == "maintain":
            self.channel.maintain()
        else:
            self.db.check()

    @rule(killed=st.booleans())
    def reopen(self, killed: bool) -> None:
        if killed:
            self.channel.maintain()
            former, self.lives = self.root / str(self.lives), self.lives + 1
            shutil.copytree(former, self.root / str(self.lives))
            self.db.close()
            shutil.rmtree(former)
        else:
            self.take()
            self.db.close()
        self.open()
        self.resume_all()

    def resume_all(self) -> None:
        """Handles of the former process are gone; what each missed comes by its token."""
        former, self.handles = self.handles, {}
        live = {s.arrival for s in self.model.live_subs(self.now())}
        for arrival, handle in former.items():
            if arrival in live:
                past = self.model.resume(self.now(), handle.sub.id, handle.arrival)
                real = self.channel.resume(handle.sub.id, after=handle.token)
                handle.received(real.past, past)
                self.handles[arrival] = Handle(
                    real, handle.sub, token=handle.token, arrival=handle.arrival
                )

    @rule(which=st.integers(0, 10))
    def resume_from_the_start(self, which: int) -> None:
        live = self.model.live_subs(self.now())
        if live:
            sub = live[which % len(live)]
            self.adopt(self.channel.resume(sub.id), sub, self.model.resume(self.now(), sub.id))

    # Questions ------------------------------------------------------------------------

    @rule()
    def take(self) -> None:
        live = {s.arrival for s in self.model.live_subs(self.now())}
        for arrival, handle in list(self.handles.items()):
            handle.received(handle.real.take(), handle.pending)
            handle.pending = []
            if arrival not in live:
                del self.handles[arrival]

    @rule(
        place=PLACE,
        since=SINCE,
        span=SPAN,
        where=WHERE,
        limit=st.sampled_from([None, 1, 2]),
    )
    def find(
        self,
        place: int,
        since: int,
        span: int | None,
        where: dict[str, Any] | None,
        limit: int | None,
    ) -> None:
        since_us = self.now() + since * SECOND
        until = FOREVER if span is None else since_us + span * SECOND
        found = self.channel.find(
            self.place(place),
            since=from_us(since_us),
            until=from_us(until),
            where=where,
            limit=limit,
        )
        expected = self.model.find(self.now(), self.place(place), since_us, until, where, limit)
        assert shown(found) == [facts(e) for e in expected]

    @invariant()
    def everything_stored_is_as_the_model_says(self) -> None:
        now = self.now()
        live = self.model.live_subs(now)
        stats = self.channel.stats()
        assert (stats.events, stats.subscriptions) == (len(self.model.live_events(now)), len(live))
        for place in self.places:
            found = self.channel.find(place)
            assert shown(found) == [facts(e) for e in self.model.find(now, place)]
        assert sorted(
            (s.id, s.user, s.since, s.until, s.unseen) for s in self.channel.subscriptions()
        ) == sorted((s.id, s.user, from_us(s.since), from_us(s.until), s.unseen) for s in live)
        assert sorted(s.id for s in self.channel.subscriptions(user="u")) == sorted(
            s.id for s in live if s.user == "u"
        )


def _machine(layout: str, world: str) -> Any:
    name = f"Machine{layout.title()}{world.title()}"
    return type(name, (ChannelMachine,), {"layout": layout, "world": world}).TestCase


TestDualFlat = _machine("dual", "flat")
TestDualTopics = _machine("dual", "topics")
TestDualQuad = _machine("dual", "quad")
TestDualGrid = _machine("dual", "grid")
TestTwoFlat = _machine("two", "flat")
TestTwoTopics = _machine("two", "topics")
TestTwoQuad = _machine("two", "quad")
TestTwoGrid = _machine("two", "grid")
