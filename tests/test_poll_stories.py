"""Layout `poll` against the model of the other layouts: within its stated limits it says the same.

Its handles ask every `poll_s`. So what it hands out is what the contract gives, each once and in
order; and what stays valid from its arrival until the next poll within the window is not missed.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from channel_model import FOREVER, SECOND, WHERES, WORLDS, Model, Refused, Sub
from channel_writer import START, Writer

import tideline
from tideline.clock import from_us
from tideline.testing import ManualClock

POLL_US = 2 * SECOND
KINDS = ("clock", "publish", "subscribe", "take", "find", "cancel", "resume", "seal")


class Polled:
    """A polled channel, the model beside it, and when each event arrived."""

    def __init__(self, folder: Path, space: str) -> None:
        world = WORLDS[space]
        kind, given = world.space
        self.clock = ManualClock(START / SECOND)
        self.db = tideline.open(folder, clock=self.clock, memory_mb=16)
        self.channel = self.db.channel(
            "c", space=getattr(tideline, kind)(**given), layout="poll", poll_s=POLL_US / SECOND
        )
        self.places = [self._place(place) for place in world.places]
        self.model = Model(world, keep_all=True)
        self.model.clock = START
        self.arrived: dict[str, int] = {}
        self.open: list[tuple[Any, Sub, list[str]]] = []

    def _place(self, place: Any) -> Any:
        if place[0] == "circle":
            return tideline.Circle((place[1], place[2]), place[3])
        if place[0] == "polygon":
            return tideline.Polygon(place[1])
        return tideline.Box(*place[1:]) if place[0] == "box" else place

    def do(self, op: dict[str, Any]) -> None:
        with contextlib.suppress(
            Refused
        ):  # a window that ends before it starts: the model is first
            getattr(self, "_" + op["op"])(op)

    def _clock(self, op: dict[str, Any]) -> None:
        self.clock.advance((op["to"] - self.clock.now()) / SECOND)
        self.model.clock = op["to"]

    def _publish(self, op: dict[str, Any]) -> None:
        if op["id"] in self.arrived:
            return  # retries are not what this is about
        now = self.model.clock
        at = now if op["at"] is None else op["at"]
        until = FOREVER if op["until"] is None else op["until"]
        n, kind, _ = op["body"]
        self.model.publish(now, op["id"], op["place"], (n, kind, 0), at, until)
        self.arrived[op["id"]] = now
        told = self.channel.publish(
            self.places[op["place"]], {"n": n, "kind": kind}, id=op["id"], at=from_us(at),
            until=from_us(until),
        )  # fmt: skip
        assert told.subscriptions == []

    def _subscribe(self, op: dict[str, Any]) -> None:
        now = self.model.clock
        since = now if op["since"] is None else op["since"]
        until = FOREVER if op["until"] is None else op["until"]
        if self.model.sub(op["id"], now) is not None:
            return
        _, sub, past = self.model.subscribe(
            now, op["id"], op["user"], op["place"], since, until, op["where"], False
        )
        handle = self.channel.subscribe(
            self.places[op["place"]], user=op["user"], id=op["id"], since=from_us(since),
            until=from_us(until), where=WHERES[op["where"]][0],
        )  # fmt: skip
        assert [e.id for e in handle.past] == [e.id for _, e in past]
        self.open.append((handle, sub, [e.id for e in handle.past]))

    def _take(self, op: dict[str, Any]) -> None:
        now = self.model.clock
        for handle, sub, seen in self.open:
            seen += [e.id for e in handle.take()]
            wanted = [e.id for _, e in sub.got]
            assert len(set(seen)) == len(seen), "handed out twice"
            assert seen == [id for id in wanted if id in set(seen)], "out of order, or no answer"
            for _, e in sub.got:
                asked = self.arrived[e.id] + POLL_US
                if asked <= now and asked < min(e.until, sub.until):
                    assert e.id in seen, f"{e.id} was missed by {sub.id}"

    def _find(self, op: dict[str, Any]) -> None:
        wanted = self.model.find(op["place"], op["since"], op["until"], op["where"], op["limit"])
        found = self.channel.find(
            self.places[op["place"]], since=from_us(op["since"] or -FOREVER),
            until=from_us(op["until"] or FOREVER), where=WHERES[op["where"]][0],
            limit=op["limit"],
        )  # fmt: skip
        assert [e.id for e in found] == [e.id for e in wanted]

    def _cancel(self, op: dict[str, Any]) -> None:
        with pytest.raises(tideline.NotFound):
            self.channel.cancel(op["id"])

    def _resume(self, op: dict[str, Any]) -> None:
        with pytest.raises(tideline.NotFound):
            self.channel.resume(op["id"])

    def _seal(self, op: dict[str, Any]) -> None:
        self.channel.seal()


@pytest.mark.parametrize("space", list(WORLDS))
def test_polling_misses_only_what_it_says_it_may(space: str, tmp_path: Path) -> None:
    for seed in (1, 2, random.SystemRandom().randrange(1 << 30)):
        polled = Polled(tmp_path / str(seed), space)
        try:
            for number, op in enumerate(Writer(seed, space, [16]).story(600)):
                if op["op"] not in KINDS:
                    continue
                try:
                    polled.do(op)
                except (AssertionError, tideline.TidelineError) as error:
                    raise AssertionError(f"seed {seed}, operation {number}: {op}") from error
        finally:
            polled.db.close()


def test_what_arrives_after_the_end_of_a_window_is_no_answer_to_a_poll(tmp_path: Path) -> None:
    polled = Polled(tmp_path, "flat")
    channel, clock = polled.channel, polled.clock
    try:
        sub = channel.subscribe("a", user="ann", until_s=3)  # asks after 2 and 4 s
        clock.advance(3.5)
        channel.publish("a", {}, id="late", at=from_us(START + 2_500_000), ttl_s=60)
        clock.advance(1)
        assert [e.id for e in sub.take()] == []
    finally:
        polled.db.close()
