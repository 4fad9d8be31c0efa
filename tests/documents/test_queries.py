"""Fields, cursors, distinct values and pipelines: what MongoDB gives, beside mongomock and mingo.

Neither peer is right everywhere, so one of them must agree with every random question. Both count
nothing as 0 by `$count`, of which MongoDB gives no document: it is asked in the table alone.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mongomock
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many

import tideline
from tests.where.peers import Mingo
from tideline import InvalidRequest
from tideline.documents.aggregation import STAGES
from tideline.documents.distinct import distinct_values
from tideline.documents.grouping import ACCUMULATORS
from tideline.documents.projection import parse_fields
from tideline.where.order import sort_key

Document = dict[str, Any]
EXAMPLES = settings(max_examples=many(200))


@pytest.fixture(scope="module")
def db() -> Iterator[tideline.Database]:
    with tideline.open(":memory:") as database:
        yield database


@pytest.fixture
def cars(db: tideline.Database) -> Iterator[tideline.Collection]:
    yield db.collection("cars", key="id", indexes={"road": "lazy"})
    db.drop_collection("cars")


SCALARS = st.sampled_from([0, 1, 2, 1.5, "x", "y", None, True])
PLAIN = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=3),
    st.dictionaries(st.sampled_from("ab"), SCALARS, max_size=2),
)  # fmt: skip
VALUES = st.one_of(
    PLAIN, st.lists(st.dictionaries(st.sampled_from("ab"), PLAIN, max_size=2), max_size=3)
)
BODIES = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def in_mongomock(bodies: list[Document]) -> Any:
    collection = mongomock.MongoClient().db.c
    if bodies:
        collection.insert_many(
            [{"_id": number, **copy.deepcopy(body)} for number, body in enumerate(bodies)]
        )
    return collection


def same(a: Any, b: Any) -> bool:
    """Equal in every value, and true is not 1."""
    return sort_key(a) == sort_key(b)


# ---- fields ----------------------------------------------------------------------------------

NAMES = st.lists(st.sampled_from(["a", "b", "c.a", "c.b", "a.b"]), unique=True, min_size=1).filter(
    lambda names: not {"a", "a.b"} <= set(names)
)


@EXAMPLES
@given(body=BODIES, names=NAMES, include=st.booleans(), key=st.sampled_from([None, 0]))
def test_fields_are_those_that_others_give(
    mingo: Mingo, body: Document, names: list[str], include: bool, key: int | None
) -> None:
    spec = {name: int(include) for name in names} | ({} if key is None else {"_id": key})
    project = parse_fields(spec, "_id")
    assert project is not None
    ours = project({"_id": 0, **body})
    theirs = mingo.ask(fields=spec, bodies=[{"_id": 0, **body}]) or []
    with contextlib.suppress(AttributeError):  # mongomock fails on elements that are no objects
        theirs += list(in_mongomock([body]).find({}, spec))
    assert any(same(ours, other) for other in theirs), theirs


@pytest.mark.parametrize(("fields", "wanted"), [
    (None, {"id": 1, "a": {"b": 1, "c": 2}, "d": [{"b": 1}, 5, [{"b": 2, "c": 1}]]}),
    ({}, {"id": 1, "a": {"b": 1, "c": 2}, "d": [{"b": 1}, 5, [{"b": 2, "c": 1}]]}),
    ([], {"id": 1}),
    (["a"], {"id": 1, "a": {"b": 1, "c": 2}}),
    (("a.b", "x"), {"id": 1, "a": {"b": 1}}),
    ({"a.b": True, "id": False}, {"a": {"b": 1}}),
    ({"d.b": 1}, {"id": 1, "d": [{"b": 1}, [{"b": 2}]]}),
    ({"d.b": 0, "a": 0}, {"id": 1, "d": [{}, 5, [{"c": 1}]]}),
    ({"id": 0}, {"a": {"b": 1, "c": 2}, "d": [{"b": 1}, 5, [{"b": 2, "c": 1}]]}),
    ({"id": 1}, {"id": 1}),
    ({"id": 0, "a": 0}, {"d": [{"b": 1}, 5, [{"b": 2, "c": 1}]]}),
    ({"a.b.c": 1}, {"id": 1, "a": {}}),
])  # fmt: skip
def test_fields_mean_what_the_manual_says(
    cars: tideline.Collection, fields: Any, wanted: Document
) -> None:
    cars.put({"id": 1, "a": {"b": 1, "c": 2}, "d": [{"b": 1}, 5, [{"b": 2, "c": 1}]]})
    assert cars.find(fields=fields) == [wanted]
    assert list(cars.find_iter(fields=fields)) == [wanted]
    assert cars.find_one(fields=fields) == wanted


@pytest.mark.parametrize(("fields", "message"), [
    ("a", "fields must be names"), (5, "fields must be names"), ([5], "fields must be names"),
    ({"a": 1, "b": 0}, "includes some and excludes b"), ({"a": 2}, "must be 1 or 0"),
    ({"a": {"$slice": 1}}, "must be 1, 0 or"), ({"a": 1, "a.b": 1}, "part of another"),
    ({"a.b": 1, "a": 1}, "named twice, or has parts"), (["a..b"], "is not a path"),
])  # fmt: skip
def test_wrong_fields_are_refused(cars: tideline.Collection, fields: Any, message: str) -> None:
    for call in (cars.find, cars.find_one, cars.find_iter, cars.find_batches):
        with pytest.raises(InvalidRequest, match=message):
            call(fields=fields)  # type: ignore[operator]


# ---- cursors ---------------------------------------------------------------------------------


def test_a_cursor_is_of_the_moment_it_was_made(cars: tideline.Collection) -> None:
    cars.put_many([{"id": n, "road": f"A{n % 7}", "n": n * 7 % 50} for n in range(3000)])
    for asked in ({}, {"sort": [("id", 1)]}, {"sort": [("n", -1)]}, {"limit": 2500, "skip": 200}):
        wanted = cars.find({"n": {"$gt": 4}}, **asked)  # type: ignore[arg-type]
        found = cars.find_iter({"n": {"$gt": 4}}, **asked)  # type: ignore[arg-type]
        batches = cars.find_batches({"n": {"$gt": 4}}, **asked)  # type: ignore[arg-type]
        first = [next(found) for _ in range(1500)]
        cars.update_many({}, {"$inc": {"seen": 1}})
        cars._engine.seal()
        assert first + list(found) == wanted
        assert sum(batch.num_rows for batch in batches) == len(wanted)


@pytest.mark.parametrize(("asked", "message"), [
    ({"skip": -1}, "skip must be"), ({"skip": True}, "skip must be"), ({"skip": None}, "skip must"),
    ({"limit": 0}, "limit must be"), ({"sort": "x"}, "sort must be"),
])  # fmt: skip
def test_a_wrong_question_is_refused_at_once(
    cars: tideline.Collection, asked: Any, message: str
) -> None:
    for call in (cars.find, cars.find_iter, cars.find_batches):
        with pytest.raises(InvalidRequest, match=message):
            call(**asked)


# ---- distinct --------------------------------------------------------------------------------


@EXAMPLES
@given(bodies=st.lists(BODIES, max_size=6), field=st.sampled_from(["a", "a.b", "c.a", "b.0", "id"]))
def test_distinct_values_are_those_of_mongomock(
    db: tideline.Database, bodies: list[Document], field: str
) -> None:
    docs = db.collection("distinct", key="id")
    docs.delete_where({})
    docs.put_many([{"id": number, **body} for number, body in enumerate(bodies)])
    ours = docs.distinct(field)
    assert [sort_key(one) for one in ours] == sorted({sort_key(one) for one in ours})
    theirs = in_mongomock(bodies).distinct("_id" if field == "id" else field)
    # mongomock cannot tell 1 from true, and knows no number in a path.
    if field != "b.0":
        known = {sort_key(one) for one in theirs}
        odd = {sort_key(one) for one in (0, 1, True, False)}
        assert {sort_key(one) for one in ours} - odd == known - odd


def test_distinct_knows_long_texts_escapes_and_numbers_in_paths(cars: tideline.Collection) -> None:
    long = "x" * 5000
    cars.put_many([
        {"id": 1, "a": long + "1"}, {"id": 2, "a": long + "2"}, {"id": 3, "a": 'q"é\n'},
        {"id": 4, "a": [True, 1, [1]]}, {"id": 5, "a": 2**60 + 1}, {"id": 6, "a": {"b": 1}},
    ])  # fmt: skip
    assert cars.distinct("a") == [
        1, 2**60 + 1, 'q"é\n', long + "1", long + "2", {"b": 1}, [1], True,
    ]  # fmt: skip
    assert cars.distinct("a.0") == [True]
    assert cars.distinct("a.b", {"id": {"$gt": 3}}) == [1]
    assert distinct_values([], "a") == []
    with pytest.raises(InvalidRequest, match="field must be text"):
        cars.distinct(5)  # type: ignore[arg-type]


# ---- pipelines -------------------------------------------------------------------------------

ROWS = st.lists(
    st.fixed_dictionaries(
        {"n": st.integers(0, 3)},
        optional={"road": st.sampled_from(["A", "B", None]), "m": st.sampled_from([1, 2.5, "x"]),
                  "tags": st.lists(st.sampled_from(["p", "q"]), max_size=3),
                  "at": st.fixed_dictionaries({}, optional={"x": st.integers(0, 2)})},
    ),
    max_size=8,
)  # fmt: skip
BY = st.sampled_from([None, "$road", "$at.x", "$n", {"r": "$road", "n": "$n"}, "$tags", 5])
VALUE = st.sampled_from(["$n", "$m", "$at.x", 1, "$road"])
ACCUMULATED = st.dictionaries(
    st.sampled_from(["p", "q", "r"]),
    st.builds(lambda kind, value: {kind: value},
              st.sampled_from(["$sum", "$avg", "$min", "$max", "$first", "$last", "$push"]), VALUE),
    max_size=3,
)  # fmt: skip
STAGE = st.one_of(
    st.sampled_from([
        {"$match": {"n": {"$gt": 0}}}, {"$match": {"road": "A"}}, {"$sort": {"n": 1}},
        {"$sort": {"at.x": -1, "n": 1}}, {"$limit": 3}, {"$skip": 1},
        {"$project": {"n": 1, "at.x": 1}}, {"$project": {"tags": 0}},
        {"$project": {"_id": 0, "z": "$at.x", "n": 1}},
        {"$project": {"z": {"$literal": 1}, "w": {"v": "$n"}}}, {"$unwind": "$tags"},
        {"$unwind": {"path": "$tags", "includeArrayIndex": "i"}},
        {"$unwind": {"path": "$tags", "preserveNullAndEmptyArrays": True}},
        {"$unwind": "$n"},
    ]),
    st.builds(lambda by, more: {"$group": {"_id": by, **more}}, BY, ACCUMULATED),
)  # fmt: skip


DEEP = msgspec.json.decode(b"[" * 70 + b"]" * 70)


def comparable(found: Any) -> Any:
    """Rows in an order of their own."""
    return None if found is None else sorted(map(sort_key, found))


@EXAMPLES
@given(bodies=ROWS, pipeline=st.lists(STAGE, min_size=1, max_size=4))
def test_pipelines_give_what_others_give(
    mingo: Mingo, db: tideline.Database, bodies: list[Document], pipeline: list[Document]
) -> None:
    docs = db.collection("piped", key="_id")
    docs.delete_where({})
    # The newest come first: the others get them in that order.
    docs.put_many([{"_id": number, **body} for number, body in reversed([*enumerate(bodies)])])
    pipeline = [{"$sort": {"_id": 1}}, *pipeline]
    ours = docs.aggregate(pipeline)
    theirs = [mingo.ask(pipeline=pipeline, bodies=[{"_id": n, **b} for n, b in enumerate(bodies)])]
    try:
        theirs.append(list(in_mongomock(bodies).aggregate(copy.deepcopy(pipeline))))
    except Exception:  # it has not everything
        theirs.append(None)
    assert comparable(ours) in [comparable(one) for one in theirs], (ours, theirs)
    if "$group" in pipeline[1] and not any(
        name in str(pipeline) for name in ("$first", "$last", "$push", "$limit", "$skip")
    ):  # without an order, only the fields that are read are decoded
        assert docs.aggregate(pipeline[1:]) == ours


def test_every_stage_and_accumulator_is_known() -> None:
    assert set(STAGES) == {
        "$match", "$group", "$sort", "$limit", "$skip", "$project", "$unwind", "$count",
    }  # fmt: skip
    assert set(ACCUMULATORS) >= {"$sum", "$avg", "$min", "$max", "$first", "$last", "$count"}


@pytest.fixture
def roads(cars: tideline.Collection) -> tideline.Collection:
    cars.put_many([
        {"id": n, "road": f"A{n % 3}", "speed": n, "tags": ["x", n % 2]} for n in range(9)
    ])  # fmt: skip
    return cars


@pytest.mark.parametrize(("pipeline", "wanted"), [
    ([], 9),
    ([{"$limit": 2}, {"$project": {"speed": 1}}], [{"id": 8, "speed": 8}, {"id": 7, "speed": 7}]),
    ([{"$match": {"road": "A1"}}, {"$match": {"speed": {"$gt": 2}}}, {"$count": "n"}], [{"n": 2}]),
    ([{"$match": {"road": "none"}}, {"$count": "n"}], []),
    ([{"$group": {"_id": "$road", "newest": {"$first": "$id"}, "n": {"$count": {}}}}],
     [{"_id": "A0", "newest": 6, "n": 3}, {"_id": "A1", "newest": 7, "n": 3},
      {"_id": "A2", "newest": 8, "n": 3}]),
    ([{"$sort": {"id": 1}}, {"$group": {"_id": None, "all": {"$addToSet": "$road"}}}],
     [{"_id": None, "all": ["A0", "A1", "A2"]}]),
    ([{"$unwind": "$tags"}, {"$group": {"_id": "$tags", "n": {"$sum": 1}}},
      {"$sort": {"n": -1}}, {"$limit": 1}], [{"_id": "x", "n": 9}]),
    ([{"$sort": {"speed": -1}}, {"$skip": 1}, {"$limit": 1},
      {"$project": {"_": "$$ROOT", "id": 0}}],
     [{"_": {"id": 7, "road": "A1", "speed": 7, "tags": ["x", 1]}}]),
    ([{"$match": {"id": 1}}, {"$project": {"t": ["$road", "$none"], "o": {"r": "$road"}}}],
     [{"id": 1, "t": ["A1", None], "o": {"r": "A1"}}]),
])  # fmt: skip
def test_pipelines(roads: tideline.Collection, pipeline: Any, wanted: Any) -> None:
    found = roads.aggregate(pipeline)
    assert len(found) == wanted if isinstance(wanted, int) else found == wanted


@pytest.mark.parametrize(("pipeline", "message"), [
    ({"$match": {}}, "must be a list of stages"),
    ([{"$match": {}, "$limit": 1}], r"pipeline\[0\] must be one stage"),
    ([{"$matc": {}}], r"pipeline\[0\].\$matc is not a stage: did you mean \$match\?"),
    ([{"limit": 5}], r"did you mean \$limit\?"),
    ([{"$lookup": {}}], r"is not a stage; supported are \$match"),
    ([{"$match": 5}], "must be a condition"),
    ([{"$match": {"a": {"$gtt": 1}}}], r"pipeline\[0\].\$match: where.a.\$gtt .* did you mean"),
    ([{"$limit": 1}, {"$match": {"a": {"$gtt": 1}}}], r"pipeline\[1\].\$match: where.a.\$gtt"),
    ([{"$limit": 0}], "whole number from 1"), ([{"$skip": -1}], "whole number from 0"),
    ([{"$sort": {}}], "must be fields with 1 or -1"), ([{"$sort": {"a": 2}}], "must be 1 or -1"),
    ([{"$count": ""}], "name of a field"),
    ([{"$group": {"n": {"$sum": 1}}}], r"\$group needs _id"),
    ([{"$group": {"_id": 1, "n": {"$median": 1}}}], r"\$group.n must be one of \$sum"),
    ([{"$group": {"_id": 1, "n": 5}}], "must be one of"),
    ([{"$group": {"_id": 1, "a.b": {"$sum": 1}}}], "no name of a field"),
    ([{"$group": {"_id": {"$year": "$t"}}}], r"_id.\$year is not supported"),
    ([{"$group": {"_id": "$$NOW"}}], r"there is \$\$ROOT alone"),
    ([{"$group": {"_id": 1, "n": {"$count": 5}}}], "takes {}"),
    ([{"$project": {}}], "must name fields"),
    ([{"$group": {"_id": DEEP}}], r"pipeline\[0\] has more than 64 levels"),
    ([{"$project": {"a": 1, "b": 0}}], "excludes b"),
    ([{"$project": {"a": "$b", "c": 0}}], "excludes a field, while others are computed"),
    ([{"$project": {"a.b": "$b"}}], "a computed field is given as an object"),
    ([{"$unwind": "tags"}], r"must be a field with a \$ in front"),
    ([{"$unwind": {"path": "$a", "deep": 1}}], "deep is not one of path"),
    ([{"$unwind": {"path": "$a", "includeArrayIndex": "$i"}}], "must be the name of a field"),
])  # fmt: skip
def test_a_wrong_pipeline_is_refused(
    cars: tideline.Collection, pipeline: Any, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        cars.aggregate(pipeline)


def test_cuts_are_at_most_as_many_as_there_are_keys(tmp_path: Path) -> None:
    """Whatever was asked for: it takes no memory for parts that cannot be."""
    with tideline.open(tmp_path / "db") as db:
        docs = db.collection("docs", key="id")
        docs.put_many([{"id": n} for n in range(100)])
        assert docs.cuts(10**18) == []
        docs._engine.seal()
        assert docs.cuts(4) == ["25", "50", "75"]
        assert docs.cuts(10**18) == docs.cuts(100) == [str(n) for n in range(1, 100)]
        for wrong in (-1, 1.5, "4", True, None):
            with pytest.raises(InvalidRequest, match="parts"):
                docs.cuts(wrong)  # type: ignore[arg-type]
