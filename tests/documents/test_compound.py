"""An index on several fields finds what a scan finds, for every kind that holds plain values.

Documents have everything that a field can hold; conditions ask for values of the first fields and
ranges of the next ones. Over seals, merges under every policy, kills, dropping and building.
"""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_kinds import SMALL

import tideline
from tests.where.strategies import scalars
from tideline.documents.policies import POLICIES
from tideline.errors import Conflict, InvalidRequest
from tideline.index.compound import joined, shown
from tideline.index.kind import Asked
from tideline.where.bounds import bounds
from tideline.where.keys import encode, is_cut
from tideline.where.order import sort_key, sort_keys

KINDS = ("embedded", "composite", "lazy", "eager")
LONG = "x" * 1030
ROADS: list[Any] = ["A1", "A1", "B2", "A1\0", "", "A", LONG, LONG + "y", 7, True, None]
SPEEDS: list[Any] = [0, 1, 2.5, -3, 2**60 + 1, 10, "fast", "", None, False]
CONDITIONS: list[Any] = [
    {"road": "A1"},
    {"road": "A1", "speed": 1},
    {"road": "A1", "speed": {"$gt": 0, "$lte": 10}},
    {"road": "A1", "speed": {"$gte": 2.5}},
    {"road": "A1", "speed": {"$lt": 2**60 + 1}},
    {"road": {"$in": ["A1", "B2", None]}, "speed": {"$in": [1, "fast", None]}},
    {"road": {"$in": ["A1", ""]}, "speed": {"$gte": ""}},
    {"road": {"$gt": "A"}, "speed": 1},
    {"road": {"$gte": "", "$lte": ""}, "speed": 1},
    {"road": "A1", "speed": {"$lte": ""}, "lane": 1},
    {"road": "A1", "speed": 1, "lane": {"$gte": 1}},
    {"road": "A1", "speed": 1, "lane": 2},
    {"road": "A1", "lane": 2},
    {"road": "A1", "speed": {"$lt": ""}},
    {"road": "A1", "speed": {"$gte": 1, "$lt": 1}},
    {"road": {"$lt": ""}, "speed": 1},
    {"road": LONG, "speed": 1},
    {"road": LONG + "y", "speed": {"$gt": 0}},
    {"road": None},
    {"road": {"$exists": True}, "speed": 1},
    {"road": 7, "speed": None},
    {"road": True, "speed": {"$gte": False}},
    {"road": "A1", "speed": {"$ne": 1}},
    {"road": "A1", "speed": {"$gt": 1, "$in": [2.5, 10, "fast"]}},
    {"road": {"$all": ["A1", "B2"]}, "speed": {"$gte": 0}},
    {"$or": [{"road": "A1", "speed": 1}, {"road": "B2", "speed": {"$gt": 1}}]},
    {"road": "A1", "speed": {"$gt": 5, "$lt": 3}},
    {"road": ["A1", "B2"]},
]


def some(draw: random.Random, values: list[Any], *, array: bool) -> Any:
    if array:
        return draw.choice([[], [draw.choice(values), draw.choice(values)], [{"x": 1}, 1]])
    return draw.choice([*values, *values, {"x": 1}])


class Story:
    def __init__(self, folder: Path, kind: str, policy: Any, seed: int) -> None:
        self.folder, self.kind = folder, kind
        self.draw = random.Random(seed)
        self.model: dict[int, Any] = {}  # the newest last
        self.database = tideline.open(folder / "db")
        self.docs: Any = self.database.collection(
            "docs", key="id", policy=policy, indexes={("road", "speed", "lane"): kind}
        )

    def write(self, count: int) -> None:
        for _ in range(count):
            made = []
            for _ in range(self.draw.randrange(1, 12)):
                array = self.draw.choice([None, None, None, "road", "speed"])
                made.append({"id": self.draw.randrange(150), "lane": self.draw.randrange(3)} | {
                    name: some(self.draw, values, array=array == name)
                    for name, values in (("road", ROADS), ("speed", SPEEDS))
                    if self.draw.random() < 0.95
                })  # fmt: skip
            if self.draw.random() < 0.5:
                assert self.docs.put_many(made).stored == len(made)
            else:
                for each in made:
                    self.docs.put(each)
            for each in made:
                self.model.pop(each["id"], None)
                self.model[each["id"]] = each
            if self.draw.random() < 0.3:
                gone = self.draw.randrange(150)
                self.docs.delete(gone)
                self.model.pop(gone, None)

    def kill(self) -> None:
        self.docs._engine.drain()
        shutil.copytree(self.folder / "db", self.folder / "copy")
        self.database.close()
        shutil.rmtree(self.folder / "db")
        (self.folder / "copy").rename(self.folder / "db")
        self.database = tideline.open(self.folder / "db")
        self.docs = self.database.collection("docs")

    def agrees(self) -> None:
        newest = list(self.model.values())[::-1]
        for where in CONDITIONS:
            condition = tideline.where.parse(where)
            wanted = [each for each in newest if condition.matches(each)]
            assert self.docs.find(where) == wanted, where
            assert self.docs.find(where, limit=2) == wanted[:2], where
            assert self.docs.count(where) == len(wanted)
            ordered = sorted(wanted, key=lambda each: (sort_key(each.get("lane")), each["id"]))
            assert self.docs.find(where, sort=[("lane", 1), ("id", 1)], limit=3) == ordered[:3]
            self.asked(where, condition, newest)

    def asked(self, where: Any, condition: Any, newest: list[Any]) -> None:
        """Whatever is planned: what the index is asked leads to all of it."""
        view = self.docs._engine.view()
        name = "road,speed,lane"
        for box in bounds(condition).boxes:
            parts = tuple(box.needs.get(part, ()) for part in name.split(","))
            for asks in view.kind_of(name).serves(Asked((), (), lambda: True, parts)):
                found = {
                    msgspec.json.decode(text)["id"]
                    for ask in asks for text in view.search(name, ask).docs
                }  # fmt: skip
                if len(bounds(condition).boxes) == 1:
                    assert found >= {e["id"] for e in newest if condition.matches(e)}, where
                if all(ask.exact for ask in asks) and bounds(condition).exact:
                    assert all(condition.matches(self.model[key]) for key in found), where


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_index_on_several_fields_finds_what_a_scan_finds(
    kind: str, policy: str, tmp_path: Path
) -> None:
    story = Story(tmp_path, kind, SMALL[policy], seed=len(kind) * 13 + len(policy))
    for step in range(6):
        story.write(12)
        if step % 2:
            story.docs._engine.seal()
        if step == 2:
            story.docs.drop_index(["road", "speed", "lane"])
            story.write(3)
            build = story.docs.create_index("road,speed,lane", kind)
            story.write(3)
            build.wait()
        if step == 4:
            story.kill()
        assert story.docs.indexes == {"road,speed,lane": kind}
        story.agrees()
    story.database.check()
    story.database.close()


ORDERS: list[Any] = [
    [("speed", 1)], [("speed", -1)], [("speed", 1), ("lane", 1)], [("speed", -1), ("lane", -1)],
    [("road", 1), ("speed", 1)], [("speed", 1), ("lane", -1)], [("speed", -1), ("id", 1)],
    [("lane", 1), ("speed", 1)], [("road", -1), ("speed", 1), ("id", -1)],
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_in_the_order_of_an_index_are_those_of_a_sort(kind: str, tmp_path: Path) -> None:
    draw = random.Random(len(kind))
    with tideline.open(tmp_path) as database:
        docs = database.collection(
            "docs", key="id", policy=SMALL["leveled"], indexes={"road,speed,lane": kind}
        )
        speeds = [
            *range(40),
            2.5,
            -7,
            2**60 + 1,
            "fast",
            "",
            LONG,
            LONG + "y",
            None,
            True,
            {"x": 1},
        ]
        for turn in range(3):
            docs.put_many([
                {"id": draw.randrange(4000), "road": draw.choice("ABC"), "lane": draw.randrange(3)}
                | ({"speed": draw.choice(speeds)} if draw.random() < 0.97 else {})
                for _ in range(1500)
            ])  # fmt: skip
            if turn < 2:
                docs._engine.seal()
        everything = docs.find()
        used = 0
        for where in (
            {"road": "A"}, {"road": {"$gte": "A", "$lt": "C"}}, {"road": "B", "speed": {"$gte": 5}},
            {"road": "A", "lane": 1}, {"road": "C", "speed": 7}, {"road": "A", "id": {"$gt": 3000}},
            {"road": "C", "speed": {"$gt": "", "$lt": "y"}},
        ):  # fmt: skip
            condition = tideline.where.parse(where)
            met = [each for each in everything if condition.matches(each)]
            for order in ORDERS:
                key = sort_keys(order, "id")
                wanted = sorted(met, key=key)
                for limit in (1, 60):
                    found = docs.find(where, sort=order, limit=limit)
                    assert found == wanted[:limit], (where, order)
                told = docs.explain(where, sort=order, limit=5)
                used += told.looked_at < len(met) // 2 and bool(told.chosen[0].field)
        assert (used > 10) is (kind != "embedded")
        docs.put({"id": 1, "road": "A", "speed": [3, 900], "lane": 1})  # no order of the index now
        found = docs.find({"road": "A"}, sort=[("speed", -1)], limit=2)
        assert found == sorted(docs.find({"road": "A"}), key=sort_keys([("speed", -1)], "id"))[:2]


@given(st.lists(st.tuples(scalars(), scalars()), min_size=2, max_size=6))
def test_values_sort_as_the_lists_do(pairs: list[tuple[Any, Any]]) -> None:
    made = [(tuple(map(encode, pair)), joined([encode(one) for one in pair])) for pair in pairs]
    for (a, left), (b, right) in itertools.combinations(made, 2):
        if not is_cut(left) and not is_cut(right):
            assert (a < b, a == b) == (left < right, left == right)
    for pair, (_, value) in zip(pairs, made, strict=True):
        if not is_cut(value):
            assert list(shown(value)) == list(pair)


@pytest.mark.parametrize("kind", KINDS)
def test_the_planner_takes_it_and_says_so(kind: str) -> None:
    with tideline.open(":memory:") as database:
        cars = database.collection(
            "cars", key="id", indexes={"road": "lazy", "road,speed": kind, "speed": "lazy"}
        )
        cars.put_many([{"id": n, "road": f"A{n % 10}", "speed": n % 97} for n in range(9700)])
        told = cars.explain({"road": "A3", "speed": {"$gte": 90, "$lt": 92}})
        if kind != "embedded":
            [way] = told.chosen
            assert (way.field, way.kind) == ("road,speed", kind)
            assert way.ranges == ("[('A3', 90), ('A3', 92))",)
            assert told.looked_at == told.found == 20
        assert told.found == 20
        assert cars.advise()[1].field == "road,speed"


@pytest.mark.parametrize("kind", KINDS)
def test_a_unique_index_on_several_fields(kind: str) -> None:
    with tideline.open(":memory:") as database:
        seats = database.collection(
            "seats", key="id", indexes={("room", "seat"): {"kind": kind, "unique": True}}
        )
        assert seats.unique == ("room,seat",)
        seats.put_many([{"id": n, "room": n // 10, "seat": n % 10} for n in range(50)])
        with pytest.raises(Conflict, match=r"field='room,seat', value=\(1, 2\), id=12"):
            seats.put({"id": 77, "room": 1, "seat": 2})
        seats.put({"id": 12, "room": 1, "seat": 2, "again": True})
        seats.delete(12)
        seats.put({"id": 77, "room": 1, "seat": 2})
        seats.drop_index("room,seat")
        seats.put({"id": 78, "room": 1, "seat": 2})
        with pytest.raises(Conflict, match="cannot be unique"):
            seats.create_index(["room", "seat"], kind, unique=True)
        assert seats.indexes == {}


def test_two_arrays_are_one_too_many() -> None:
    with tideline.open(":memory:") as database:
        docs = database.collection("docs", key="id", indexes=[("a", "b.c")])
        docs.put({"id": 1, "a": [1, 2], "b": {"c": 3}})
        bad = {"id": 2, "a": [1], "b": [{"c": 2}]}
        with pytest.raises(
            InvalidRequest, match=r"an array in at most one of them. index='a,b\.c'"
        ):
            docs.put(bad)
        done = docs.put_many([bad, {"id": 3, "a": 1, "b": [{"c": 2}, {"c": 3}]}])
        assert (done.stored, done.rejected["row"].to_pylist()) == (1, [0])
        with pytest.raises(InvalidRequest, match="at most one"):
            docs.update(1, {"$set": {"b": [{"c": 1}]}})
        assert [each["id"] for each in docs.find({"a": 1, "b.c": 3})] == [3, 1]


@pytest.mark.parametrize(
    ("field", "what"),
    [
        (["a", "a"], "on each once"),
        ("a,a", "on each once"),
        ("a, b", "no space.*did_you_mean='a,b'"),
        ("('a', 'b')", "several fields are a list.*did_you_mean='a,b'"),
        ("(a,b)", "several fields are a list.*did_you_mean='a,b'"),
        ('["a","b"]', "several fields are a list.*did_you_mean='a,b'"),
        ("a,", "field"),
        (["a", "b,c"], "no comma"),
        (["a", 3], "must be text"),
        ([], "field"),
        (",".join("abcdefghi"), "at most 8"),
        ("a,$b", "field"),
    ],
)
def test_wrong_fields_are_named(field: Any, what: str) -> None:
    with tideline.open(":memory:") as database:
        docs = database.collection("docs", key="id")
        with pytest.raises(InvalidRequest, match=what):
            docs.create_index(field, "lazy")
        assert docs.indexes == {}


def test_an_index_on_several_fields_is_not_looked_up_by_one_value() -> None:
    with tideline.open(":memory:") as database:
        docs = database.collection("docs", key="id", indexes=["a,b"])
        for call in (lambda: docs.lookup("a,b", 1), lambda: docs.range_lookup("a,b", 1, 2)):
            with pytest.raises(InvalidRequest, match="use find"):
                call()


@pytest.mark.parametrize("kind", ["lazy", "composite", "eager", "embedded"])
def test_a_field_may_be_called_like_an_index_on_several(kind: str) -> None:
    with tideline.open(":memory:") as database:
        docs = database.collection("docs", key="id", indexes={"n,g": kind})
        docs.put_many([{"id": 1, "n,g": 5}, {"id": 2, "n": 5, "g": 5}])
        assert [one["id"] for one in docs.find({"n,g": 5})] == [1]
        assert [one["id"] for one in docs.find({"n": 5, "g": 5})] == [2]
        assert docs.update_many({"n,g": 5}, {"$set": {"x": 1}}).changed == 1
        assert docs.delete_where({"n,g": 5}) == 1
        with pytest.raises(InvalidRequest, match="without a comma"):
            docs.distinct("n,g")
        for setting in ({"key": "a,b"}, {"key": "id", "filter": "a,b"}):
            with pytest.raises(InvalidRequest, match="without a comma"):
                database.collection("other", **setting)  # type: ignore[arg-type]
