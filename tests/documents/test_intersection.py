"""Several indexes at once find what a scan finds, and are used only when that is cheaper."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import suffix_kind as suffix_kind  # registers it

import tideline
from tideline.documents import intersection
from tideline.documents.collection import Collection
from tideline.documents.intersection import candidates, intersected
from tideline.documents.plan import Plan
from tideline.documents.search import Search
from tideline.documents.ways import FOLLOWED, Way
from tideline.index.kind import Chunk, Estimate
from tideline.index.texts import Texts
from tideline.where.order import sort_keys
from tideline.where.parse import parse

WORDS = ["tide", "tideline", "line", "sea line", "idle", "ide", ""]
KINDS = ["lazy", "composite", "eager", "embedded"]
POLICIES: list[Any] = [
    "none", {"name": "constant", "k": 2}, {"name": "prefix", "max_bytes": 8_000, "max_count": 2},
    {"name": "correlated-prefix", "max_bytes": 8_000, "max_count": 2},
    {"name": "leveled", "first_bytes": 6_000, "ratio": 2, "max_count": 1, "piece_bytes": 3_000},
]  # fmt: skip
SORTS: list[Any] = [None, None, [("id", 1)], [("a", -1), ("b", 1)]]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """No intersection ends early because few candidates are left."""
    monkeypatch.setattr(intersection, "FOLLOWED", 1e12)


class Story:
    """A collection with random indexes, and what it must hold."""

    def __init__(self, folder: Path, seed: int, filter: str | None = None) -> None:
        draw = self.draw = random.Random(seed)
        indexes: dict[Any, Any] = {"name": {"kind": "suffix", "cut": draw.choice([2, 12])}}
        for number, field in enumerate(draw.sample(["a", "b", "c"], draw.choice([2, 3]))):
            indexes[field] = draw.choice(KINDS[:-1] if number < 2 else KINDS)
        if draw.random() < 0.5:
            indexes["a,c"] = draw.choice(KINDS)
        if draw.random() < 0.3:
            indexes["name,b"] = "suffix"
        if draw.random() < 0.7:
            indexes["at"] = "spatial"
        if draw.random() < 0.4:
            indexes["at,text"] = {"kind": "fuzzy", "placement": "auto"}
        if draw.random() < 0.7:
            indexes["text"] = draw.choice(["words", {"kind": "ngrams", "n": 3}])
        self.db = tideline.open(folder)
        self.docs: Collection = self.db.collection(
            "docs", key="id", indexes=indexes, policy=POLICIES[seed % len(POLICIES)],
            filter=filter or draw.choice([None, "t"]),
        )  # fmt: skip
        self.model: dict[int, dict[str, Any]] = {}

    def document(self, key: int) -> dict[str, Any]:
        draw = self.draw
        value: Any = draw.randrange(4)
        if draw.random() < 0.1:
            value = [value, draw.randrange(4)]
        made = {"id": key, "a": value, "b": draw.randrange(3), "name": draw.choice(WORDS)}
        if draw.random() < 0.8:
            made["c"] = draw.choice([0, 1, "x", None])
        if draw.random() < 0.9:
            made["t"] = draw.randrange(100)
        if draw.random() < 0.8:
            x, y = draw.randrange(4), draw.randrange(4)
            line = {"type": "LineString", "coordinates": [[x, y], [x + 2, y + 1]]}
            made["at"] = draw.choice([[x, y], [x, y], line])
        made["text"] = " ".join(draw.choices(["sea", "road", "closed", "open"], k=3))
        return made

    def write(self) -> None:
        draw = self.draw
        for _ in range(draw.randrange(1, 6)):
            keys = [draw.randrange(50) for _ in range(draw.randrange(1, 20))]
            if draw.random() < 0.25:
                self.docs.delete_many(keys)
                for key in keys:
                    self.model.pop(key, None)
                continue
            for each in map(self.document, keys):
                self.docs.put(each)
                self.model.pop(each["id"], None)
                self.model[each["id"]] = each  # a dict keeps the order of writes

    def part(self) -> dict[str, Any]:
        draw = self.draw
        found: dict[str, Any] = {}
        fields = ["a", "b", "c", "name", "t", "id", "at", "text"]
        for field in draw.sample(fields, draw.choice([2, 3, 3, 4])):
            low = draw.randrange(4)
            found[field] = {
                "a": draw.choice([low, {"$gte": low}, {"$in": [low, 0]}]),
                "b": draw.choice([low % 3, {"$gte": 1}]),
                "c": draw.choice([0, "x", None, {"$gt": 0}]),
                "name": {"$regex": draw.choice(["ide", "li", "e", "sea li"])},
                "t": {"$gte": 20 * low, "$lt": 20 * low + draw.choice([20, 60])},
                "id": {"$lt": draw.choice([10, 100])},
                "at": {"$geoWithin": {"$box": [[0, 0], [low, 2]]}},
                "text": draw.choice(
                    [
                        {"$words": "sea"},
                        {"$words": '"road closed"'},
                        {"$contains": "ad clo"},
                        {"$fuzzy": {"words": ["closet", "roads"], "distance": 1}},
                    ]
                ),
            }[field]
        return found

    def ways(self, view: Any, where: dict[str, Any]) -> list[Way]:
        """All ways that were weighed for a condition, each of which leads to all that meets it."""
        found = self.docs._finder._plan(view, parse(where), None, True)
        return [*found.ways, *(way for way, why in found.others if why != "there is none")]

    def agrees(self, view: Any, model: dict[int, dict[str, Any]], where: Any, plan: Plan) -> None:
        condition = parse(where)
        wanted = [each for each in reversed(model.values()) if condition.matches(each)]
        for limit in (None, 1, 3):
            sort = self.draw.choice(SORTS)
            found = Search(view, "id", condition, sort, limit).documents(plan)
            met = wanted if sort is None else sorted(wanted, key=sort_keys(sort, "id"))
            assert found == met[:limit], (where, plan.ways, sort)
        assert Search(view, "id", condition, None, None).count(plan) == len(wanted), plan.ways

    def check(self, view: Any, model: dict[int, dict[str, Any]]) -> int:
        """Every way there is for some conditions, and a union of two; how many intersections."""
        seen = 0
        for _ in range(3):
            one, other = self.part(), self.part()
            ways = self.ways(view, one)
            for way in ways:
                self.agrees(view, model, one, Plan((way,), False, {}))
            seen += sum(way.kind == "intersection" for way in ways)
            both = tuple(self.draw.choice(self.ways(view, each)) for each in (one, other))
            self.agrees(view, model, {"$or": [one, other]}, Plan(both, False, {}))
            self.agrees(view, model, one, self.docs._finder._plan(view, parse(one), None))
        return seen


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", range(7))
def test_whatever_the_plan_the_answer_is_that_of_a_scan(seed: int, tmp_path: Path) -> None:
    story = Story(tmp_path, seed)
    seen = 0
    with story.db:
        for step in range(6):
            story.write()
            held = story.docs._engine.view(), dict(story.model)
            seen += story.check(*held)
            story.write()
            if step % 2:
                story.docs._engine.seal()
            if step % 3 == 2:
                story.docs._engine.drain()
            story.check(*held)  # what came after the view was taken is not in it
            story.check(story.docs._engine.view(), story.model)
    assert seen > 3


def fill(docs: Collection, count: int = 4000) -> None:
    """`a` and `b` are each met by many, both together by few."""
    draw = random.Random(3)
    docs.put_many([
        {"id": n, "a": draw.randrange(20), "b": draw.randrange(20), "c": n % 2, "n": n}
        for n in range(count)
    ])  # fmt: skip


def test_candidates_of_several_indexes_are_intersected_before_documents_are_looked_at() -> None:
    with tideline.open(":memory:") as db:
        docs = db.collection("docs", key="id", indexes={"a": "lazy", "b": "composite"})
        fill(docs)
        where = {"a": 7, "b": {"$gte": 3, "$lt": 5}}
        told = docs.explain(where)
        [way] = told.chosen
        assert (way.way, way.field, way.kind) == ("intersection", "a and b", "lazy and composite")
        assert way.ranges == ("7", "[3, 5)")
        assert told.looked_at == told.found == len(docs.find(where)) < 40
        assert all(
            f"costs more than {name}" in str(told) for name in ["the intersection of a and b"]
        )
        one = docs.explain({"a": 7})
        assert one.chosen[0].way == "index"
        assert one.looked_at > 150


def test_two_indexes_are_not_intersected_when_one_is_enough() -> None:
    with tideline.open(":memory:") as db:
        docs = db.collection(
            "docs", key="id", indexes={"n": "lazy", "c": "lazy", "a": "lazy", "a,b": "composite"}
        )
        fill(docs)
        told = docs.explain({"n": 77, "c": 1})
        assert (told.chosen[0].way, told.chosen[0].field) == ("index", "n")
        [not_taken] = [way for way in told.others if way.way == "intersection"]
        assert not_taken.why == "costs more than the index on n"
        assert not_taken.cost > told.chosen[0].cost
        # One index on both fields says all that the other does.
        told = docs.explain({"a": 7, "b": 3})
        assert not [way for way in (*told.chosen, *told.others) if way.way == "intersection"]
        assert told.chosen[0].field == "a,b"
        # The newest few of many: an index that stops early, and no other.
        told = docs.explain({"a": 7, "c": 1}, limit=1)
        assert told.chosen[0].way == "index"


def test_an_intersection_ends_when_few_are_left() -> None:
    asked = []

    def gather(field: str, asks: Any, filter: Any) -> Chunk:
        asked.append(field)
        return chunk(*range(3))

    parts = tuple(
        Way("index", field, (1,), None, Estimate(entries, 0))
        for field, entries in (("a", 10.0), ("b", 1000.0))
    )
    found, counts = intersected(Way("intersection", parts=parts), gather)
    assert (asked, counts, len(found.seqs)) == (["a"], (3,), 3)
    assert FOLLOWED * 3 < 1000


def chunk(*seqs: int) -> Chunk:
    ordered = sorted(set(seqs), reverse=True)
    return Chunk(np.array(ordered, np.int64), Texts.of([b"%d" % seq for seq in ordered]))


@pytest.mark.usefixtures("always")
def test_what_is_in_all_stays_newest_first_with_its_key() -> None:
    draw = random.Random(1)
    for _ in range(100):
        sets = [{draw.randrange(30) for _ in range(draw.randrange(40))} for _ in range(3)]
        given = {name: chunk(*each) for name, each in zip("abc", sets, strict=True)}
        parts = tuple(Way("index", name, (), None, Estimate(1, 1)) for name in "abc")
        found, counts = intersected(
            Way("intersection", parts=parts), lambda field, asks, filter, given=given: given[field]
        )
        wanted = sorted(set.intersection(*sets), reverse=True)
        assert found.seqs.tolist() == wanted
        assert found.keys.to_list() == [b"%d" % seq for seq in wanted]
        assert counts == tuple(map(len, sets))[: len(counts)]
        joined = candidates(list(given.values()))
        assert joined.seqs.tolist() == sorted(set.union(*sets), reverse=True)
