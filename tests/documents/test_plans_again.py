"""A plan that is kept is the plan that would be made anew, and nobody is told less for it."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tideline
from tideline.documents.finding import Finder
from tideline.documents.plan import Plan
from tideline.where import parse


@pytest.fixture
def many() -> Any:
    with tideline.open(":memory:") as db:
        made = db.collection(
            "many", key="id", filter="time",
            indexes={"at": "spatial", "n": "lazy", "m": "composite", "e": "embedded",
                     "time": "lazy", "text": "words"},
        )  # fmt: skip
        draw = random.Random(1)
        made.put_many([document(draw, key) for key in range(3_000)])
        made._engine.seal()
        made.put_many([document(draw, key) for key in range(2_500, 4_000)])
        yield made


def document(draw: random.Random, key: int) -> dict[str, Any]:
    return {
        "id": key, "at": [draw.uniform(-9, 9), draw.uniform(-9, 9)], "n": draw.randrange(200),
        "m": draw.choice(["a", "b" * 300, "c", None, 5, 2.5]), "e": draw.randrange(50),
        "time": key + draw.randrange(100), "text": draw.choice(["red car", "blue van", "red van"]),
    }  # fmt: skip


def question(draw: random.Random) -> dict[str, Any]:
    w, s = draw.uniform(-10, 9), draw.uniform(-10, 9)
    size = draw.choice([0.01, 1, 5, 25])
    scalar = draw.choice([7, 150, 2.5, "a", "b" * 300, "b" * 299, "x", None, True, [5], 10**9])
    return draw.choice([
        {"at": {"$geoWithin": {"$box": [[w, s], [w + size, min(s + size, 90)]]}}},
        {"at": {"$geoIntersects": {"$box": [[w, s], [w + size, min(s + size, 90)]]}}},
        {"at": {"$geoWithin": {"$centerSphere": [[w, s], size / 60]}}},
        {draw.choice("nme"): scalar},
        {draw.choice("nme"): {draw.choice(["$gt", "$gte", "$lt", "$lte"]): scalar}},
        {"time": {"$gte": draw.randrange(5_000)}},
        {"id": draw.randrange(5_000)},
        {"text": {"$words": draw.choice(["red", "van", "blue car", "green"])}},
        {"n": {"$gte": draw.randrange(200), "$lt": draw.randrange(200)}},
        {"n": draw.randrange(200), "m": scalar},
    ])  # fmt: skip


def said(plan: Plan) -> tuple[Any, ...]:
    """All that a plan says, its asks in words: some kinds make an object of each."""
    ways = [way._replace(asks=tuple(map(str, way.asks)), parts=len(way.parts)) for way in plan.ways]
    return *plan._replace(ways=()), *ways


def test_a_plan_that_is_kept_is_the_plan_that_would_be_made(many: Any) -> None:
    draw = random.Random(2)
    taken: dict[str, int] = {}
    for _ in range(600):
        where, limit = parse(question(draw)), draw.choice([None, None, 1, 20, 100_000])
        view = many._engine.view()
        anew = Finder(many._engine, many._workload)._plan(view, where, limit)
        for _ in range(2):
            assert said(many._finder._plan(view, where, limit)) == said(anew)
        for way in anew.ways:
            taken[way.kind] = taken.get(way.kind, 0) + 1
    assert min(taken[kind] for kind in ("index", "scan", "key")) > 20


def test_one_question_asked_again_and_again_sees_every_write(many: Any) -> None:
    questions = [
        {"n": 7}, {"n": {"$gte": 7, "$lt": 9}}, {"m": {"$gt": "a"}}, {"text": {"$words": "red"}},
        {"at": {"$geoWithin": {"$box": [[0.5, 0.5], [1.5, 1.5]]}}}, {"e": {"$lte": 3}},
    ]  # fmt: skip
    draw = random.Random(3)
    for step in range(40):
        key = draw.randrange(4_100)
        if step % 3:
            many.put(document(draw, key))
        else:
            many.delete(key)
        if step % 13 == 5:
            many._engine.seal()
        for where in questions:
            holds = parse(where).matches
            wanted = {one["id"] for one in many.find() if holds(one)}
            assert {one["id"] for one in many.find(where)} == wanted
            assert many.count(where) == len(wanted)


def test_an_array_that_comes_later_is_found_by_a_question_asked_before() -> None:
    with tideline.open(":memory:") as db:
        made = db.collection("cars", key="id", indexes={"n": "lazy"})
        made.put_many([{"id": key, "n": key} for key in range(500)])
        between: dict[str, Any] = {"n": {"$gte": 100, "$lt": 103}}
        for _ in range(2):
            assert [one["id"] for one in made.find(between)] == [102, 101, 100]
        made.put({"id": 999, "n": [2_000, 50]})  # one is large enough, another small enough
        assert [one["id"] for one in made.find(between)] == [999, 102, 101, 100]


def test_a_plan_goes_with_its_index() -> None:
    with tideline.open(":memory:") as db:
        made = db.collection("cars", key="id")
        made.put_many([{"id": key, "n": key % 100} for key in range(2_000)])
        where = {"n": 5}

        def way() -> str:
            return made._finder._plan(made._engine.view(), parse(where), None).ways[0].kind

        assert len(made.find(where)) == 20
        assert way() == "scan"
        made.create_index("n", "lazy").wait()
        assert len(made.find(where)) == 20
        assert way() == "index"
        made.drop_index("n")
        assert len(made.find(where)) == 20
        assert way() == "scan"
