"""What bounds promise: never to lose an answer; if exact, to be the condition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import many
from strategies import documents, values

from tideline.where import ALWAYS, parse
from tideline.where.bounds import BOXES_LIMIT, Bounds, Box, Range, bounds, common
from tideline.where.order import entries
from tideline.where.predicate import predicate
from tideline.where.tree import At

MANY = many(300)


def meets(found: Bounds, body: object) -> bool:
    """Whether a body meets a box, by the definition."""
    return any(
        all(
            any(one.holds(entry) for entry in entries(body, path) for one in need)
            for path, needs in box.needs.items()
            for need in needs
        )
        and all(
            predicate(At(tuple(path.split(".")), test))(body)
            for path, tests in box.tests.items()
            for test in tests
        )
        for box in found.boxes
    )


@settings(max_examples=MANY)
@given(documents(), st.dictionaries(st.sampled_from("abc"), values(), max_size=3))
def test_what_meets_the_condition_meets_a_box(document, body):
    condition = parse(document)
    found = bounds(condition)
    if found.exact:
        assert condition.matches(body) is meets(found, body)
    elif condition.matches(body):
        assert meets(found, body)
    assert 0 < len(found.boxes) <= BOXES_LIMIT


def of(document) -> Bounds:
    return bounds(parse(document))


def test_fields_that_must_all_hold_are_one_box():
    found = of({"kind": "jam", "speed": {"$gte": 10, "$lt": 50}, "note": {"$in": [None, "x", 5]}})
    assert found.exact
    (box,) = found.boxes
    assert box.needs["kind"] == ((Range("text", "jam", "jam"),),)
    assert box.needs["kind"][0][0].point
    low, high = box.needs["speed"]
    assert (low, high) == ((Range("number", low=10),), (Range("number", high=50, high_open=True),))
    assert common(box.needs["speed"]) == (Range("number", 10, 50, high_open=True),)
    assert box.needs["note"][0][0] == Range("null")


def test_an_or_is_a_box_each():
    found = of({"a": 1, "$or": [{"b": {"$gt": 5}}, {"c": "x", "d": 1}]})
    assert found.exact
    assert [sorted(box.needs) for box in found.boxes] == [["a", "b"], ["a", "c", "d"]]


def test_an_or_with_an_unbounded_side_bounds_nothing():
    assert of({"$or": [{"a": 1}, {"b": {"$ne": 1}}]}) == Bounds((Box(),), exact=False)


def test_no_condition_is_one_box_without_needs():
    assert bounds(ALWAYS) == Bounds((Box(),), exact=True)


@pytest.mark.parametrize(
    "document",
    [{"a": {"$exists": True}}, {"a": {"$type": "int"}}, {"a": {"$mod": [2, 0]}},
     {"a": {"$size": 1}}, {"a": {"$words": "x"}}, {"a": {"$fuzzy": {"word": "x"}}},
     {"a": {"$regex": "x"}}, {"a": {"$near": [0, 0], "$maxDistance": 1}},
     {"a": {"$in": [1, {"$regex": "x"}]}}],
)  # fmt: skip
def test_a_test_that_is_no_range_stands_in_the_box(document):
    found = of(document)
    [box] = found.boxes
    assert (box.needs, list(box.tests), found.exact) == ({}, ["a"], False)
    with_more = of({**document, "b": 1})
    assert [(list(box.needs), list(box.tests)) for box in with_more.boxes] == [(["b"], ["a"])]


def test_a_negation_gives_no_bound():
    assert of({"a": {"$ne": 1}}) == Bounds((Box(),), exact=False)


def test_delta_gives_no_bound():
    found = bounds(parse({"a": {"$delta": {"$gt": 1}}, "b": 1}, delta=True))
    assert [list(box.needs) for box in found.boxes] == [["b"]]
    assert not found.exact


def test_a_start_is_a_range_of_text():
    found = of({"a": {"$regex": "^A8"}})
    assert found == Bounds((Box({"a": ((Range("text", "A8", "A9", high_open=True),),)}),), True)
    assert not of({"a": {"$regex": "^A8+x"}}).exact
    assert of({"a": {"$regex": "^\U0010ffff"}}).boxes[0].needs["a"][0][0].high is None
    assert of({"a": {"$regex": "^x\ud7ff"}}).boxes[0].needs["a"][0][0].high == "x\ue000"


def test_elem_match_bounds_the_fields_of_its_elements():
    (box,) = of({"lanes": {"$elemMatch": {"speed": {"$lt": 5}, "open": None}}}).boxes
    assert list(box.needs) == ["lanes.speed"]
    (box,) = of({"n": {"$elemMatch": {"$gt": 5}}}).boxes
    assert list(box.needs) == ["n"]


def test_too_many_boxes_lose_bounds_not_answers():
    pairs = {"$and": [{"$or": [{f"f{n}": 0}, {f"f{n}": 1}]} for n in range(9)]}
    found = of(pairs)
    assert 0 < len(found.boxes) <= BOXES_LIMIT
    assert not found.exact
    body = {f"f{n}": n % 2 for n in range(9)}
    assert parse(pairs).matches(body)
    assert meets(found, body)
    many = {"$or": [{"a": n} for n in range(BOXES_LIMIT + 1)]}
    assert of(many) == Bounds((Box(),), exact=False)


@given(st.lists(values(), min_size=2, max_size=4), values())
def test_the_common_part_is_what_lies_in_both(ends, value):
    needs = tuple(
        need
        for need in (
            of({"a": {"$gte": ends[0]}}).boxes[0].needs["a"]
            + of({"a": {"$lt": ends[1]}}).boxes[0].needs["a"]
            + of({"a": {"$in": ends}}).boxes[0].needs["a"]
        )
    )
    held = all(any(one.holds(value) for one in need) for need in needs)
    assert any(one.holds(value) for one in common(needs)) is held
