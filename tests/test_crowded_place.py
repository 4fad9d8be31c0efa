"""Many conditions at one place: an index decides, and says what every predicate would say."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tables import answers_of, table_of

import tideline
from tideline.channel import filed
from tideline.errors import Unavailable
from tideline.kernels import warm
from tideline.testing import ManualClock
from tideline.where import parse
from tideline.where.cost import values_in

KINDS = ["car", "bus", "tram", "bike", "é", 'a"b']


def _condition(dice: random.Random) -> dict[str, Any]:
    """A condition of any sort: what kernels decide, what they leave open, and changes."""
    number = dice.randrange(12)
    sort = dice.randrange(12)
    if sort < 3:
        return {"speed": {"$gte": number, "$lt": number + dice.randrange(1, 5)}}
    if sort < 5:
        return {"kind": dice.choice(KINDS), "lane": number % 4}
    if sort == 5:
        return {"kind": {"$in": dice.sample(KINDS, 2)}, "speed": {"$lte": number}}
    if sort == 6:
        return {"kind": {"$regex": dice.choice(["^b", "a", "r$", "."])}, "lane": {"$ne": number}}
    if sort == 7:
        return {"$or": [{"speed": number}, {"tags": number}, {"road.lanes": number % 3}]}
    if sort == 8:
        return {"tags": {"$elemMatch": {"$gt": number, "$lt": number + 3}}}
    if sort == 9:
        return {"tags": {"$exists": dice.random() < 0.5}, "speed": {"$mod": [3, number % 3]}}
    if sort == 10:
        return {"speed": {"$delta": {"$gte": dice.randrange(-6, 6)}}}
    return {"$nor": [{"speed": {"$gt": number}}, {"lane": number % 4}]}


def _body(dice: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {
        "speed": dice.choice([dice.randrange(12), dice.random() * 12, "7", None, [3, 9]]),
        "kind": dice.choice(KINDS),
        "lane": dice.randrange(4),
        "tags": [dice.randrange(12) for _ in range(dice.randrange(3))],
        "road": dice.choice([{"lanes": dice.randrange(3)}, [{"lanes": 1}, {"lanes": 2}], 5]),
    }
    return {name: value for name, value in found.items() if dice.random() < 0.8}


def _meets(where: dict[str, Any], body: dict[str, Any], before: dict[str, Any] | None) -> bool:
    condition = parse(where, delta=True)
    body, before = (msgspec.json.decode(msgspec.json.encode(each)) for each in (body, before))
    return condition.matches(condition.with_delta(body, before) if condition.deltas else body)


@pytest.fixture(autouse=True)
def _compiled() -> None:
    warm.ensure("standing")


@pytest.mark.parametrize("layout", ["dual", "two"])
@pytest.mark.parametrize("deltas", [False, True])
def test_an_index_says_what_predicates_say(
    layout: str, deltas: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(filed, "_SIGHTS", 2)
    monkeypatch.setattr(filed, "_MOST", 60)  # some must go again
    dice = random.Random(f"{layout} {deltas}")
    clock = ManualClock(1_000)
    with tideline.open(tmp_path / "db", clock=clock) as db:
        roads = db.channel("roads", layout=layout)
        wheres: dict[str, tuple[str, dict[str, Any]]] = {}

        def subscribe(place: str, number: int) -> None:
            where = _condition(dice)
            while not deltas and "delta" in str(where):
                where = _condition(dice)
            ident = f"{place}{number}"
            roads.subscribe(place, user=ident, id=ident, until_s=9_000, where=where)
            wheres[ident] = place, where

        for number in range(200):
            for place in "ab":
                subscribe(place, number)
        last: dict[str, Any] = {}
        conditions = roads.core.engine.conditions
        most = 0
        for turn in range(30):
            place, body = dice.choice("ab"), _body(dice)
            expected = {
                ident
                for ident, (own, where) in wheres.items()
                if own == place and _meets(where, body, last.get(place))
            }
            clock.advance(1)
            told = roads.publish(place, body, ttl_s=9_000)
            assert {each.id for each in told.subscriptions} == expected
            last[place] = body
            for _ in range(3):
                gone = dice.choice(sorted(wheres))
                roads.cancel(gone)
                del wheres[gone]
            subscribe(dice.choice("ab"), 1_000 + turn)
            most = max(most, conditions.filed)
            if turn == 15:
                roads.core.engine.upkeep.seal_all()  # now conditions are found on disk as well
        assert 40 < most <= 60
        if deltas:
            return
        rows: list[dict[str, Any]] = [
            {"op": "publish", "id": f"event {n}", "at": clock.now(), "until": clock.now() + 10**9,
             "place": dice.choice("ab"), "body": _body(dice)}
            for n in range(60)
        ]  # fmt: skip
        applied = roads.apply(table_of(rows))
        pairs = {
            (row["id"], ident)
            for row in rows
            for ident, (own, where) in wheres.items()
            if own == row["place"] and _meets(where, row["body"], None)
        }
        assert {(event, sub) for _, sub, event, *_ in answers_of(applied)} == pairs
        for ident, (place, where) in list(wheres.items())[:20]:  # one condition, many events
            past = roads.subscribe(place, user=f"{ident}-", since_s=-9, until_s=9, where=where).past
            met = {row["id"] for row in rows if (row["id"], ident) in pairs}
            assert {each.id for each in past if each.id.startswith("event ")} == met


def test_an_allowance_is_told_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not an index decides; a call that is refused leaves nothing."""
    monkeypatch.setattr(filed, "_SIGHTS", 2)
    dice = random.Random(4)
    with tideline.open(":memory:", clock=ManualClock(1_000)) as db:
        roads = db.channel("roads")
        wheres = [_condition(dice) for _ in range(150)]
        for number, where in enumerate(wheres):
            roads.subscribe("a", user=str(number), until_s=99, where=where)
        told: list[int] = []
        conditions = roads.core.engine.conditions
        conditions.allowance = told.append
        for turn in range(4):
            body = _body(dice)
            roads.publish("a", body, ttl_s=9)
            text = msgspec.json.encode(body)
            costs = [parse(where, delta=True).cost for where in wheres]
            assert told == [sum(cost.steps(len(text), values_in(text)) for cost in costs)], turn
            told.clear()
        assert conditions.filed > 50

        def refuse(steps: int) -> None:
            raise Unavailable("too much", steps=steps)

        conditions.allowance, filed_before = refuse, conditions.filed
        with pytest.raises(Unavailable):
            roads.publish("a", {"speed": 3}, ttl_s=9, id="refused")
        assert conditions.filed == filed_before
        assert all(event.id != "refused" for event in roads.find("a"))
