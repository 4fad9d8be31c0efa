"""What sorting promises: MongoDB's order, the same as `$lt`, total by the primary key."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from plain import before
from strategies import bodies, values

from tideline.errors import InvalidRequest
from tideline.where import parse
from tideline.where.order import entries, sort_key, sort_keys
from tideline.where.values import compare

IN_ORDER = [
    None,
    -(2**64), -1.5, 0, 5e-324, 1, 1.5, 2**53, 2**53 + 1,
    "", "A", "a", "aa", "é", "\uffff", "\U0001f600",
    {}, {"a": None}, {"b": None}, {"a": 1}, {"a": 1, "b": 1}, {"a": 2}, {"b": 0}, {"a": "x"},
    [], [None], [None, 1], [1], [1, "x"], ["x"], [{}], [[]], [True],
    False, True,
]  # fmt: skip


def test_any_two_values_have_an_order():
    shuffled = IN_ORDER[:]
    random.Random(3).shuffle(shuffled)
    assert sorted(shuffled, key=sort_key) == IN_ORDER
    for low, high in pairwise(IN_ORDER):
        assert sort_key(low) < sort_key(high)
        assert (compare(low, high), compare(high, low)) == (-1, 1)


@given(values(), values())
def test_keys_and_comparisons_are_the_plain_order(a, b):
    side = before(a, b)
    assert compare(a, b) == side
    assert (sort_key(a) > sort_key(b)) - (sort_key(a) < sort_key(b)) == side
    assert (sort_key(a) == sort_key(b)) is (side == 0)


@given(values(), values())
def test_what_is_less_is_sorted_first(a, b):
    if parse({"x": {"$elemMatch": {"$lt": b}}}).matches({"x": [a]}):
        assert sort_key(a) < sort_key(b)


def ordered(spec, documents, **options):
    key = sort_keys(spec, "id", **options)
    return [document["id"] for document in sorted(documents, key=key)]


def test_an_array_sorts_by_its_least_and_down_by_its_greatest():
    held = {1: 5, 2: [1, 9], 3: None, 4: [], 5: [[0]]}
    documents = [{"id": key, "n": value} for key, value in held.items()] + [{"id": 6}]
    assert ordered({"n": 1}, documents) == [4, 3, 6, 2, 1, 5]
    assert ordered({"n": -1}, documents) == [5, 2, 1, 3, 6, 4]


def test_a_path_goes_through_arrays():
    held = {1: [{"b": 5}, {"b": 2}], 2: {"b": 3}, 3: [{}, {"b": 9}], 4: [{"b": [8, 1]}]}
    documents = [{"id": key, "a": value} for key, value in held.items()]
    assert ordered({"a.b": 1}, documents) == [3, 4, 1, 2]
    assert ordered({"a.b": -1}, documents) == [3, 4, 1, 2]
    assert ordered([("a.0.b", -1)], documents) == [4, 1, 2, 3]


def test_ties_fall_to_the_next_field_and_last_to_the_primary_key():
    documents = [{"id": n, "x": n % 2, "y": n % 3} for n in range(11, -1, -1)]
    key = sort_keys({"x": -1, "y": 1}, "id")
    expected = sorted(documents, key=lambda d: (-d["x"], d["y"], d["id"]))
    assert sorted(documents, key=key) == expected
    assert len({repr(key(document)[-1]) for document in documents}) == 12
    down = sort_keys({"x": 1, "id": -1}, "id")
    assert sorted(documents, key=down) == sorted(documents, key=lambda d: (d["x"], -d["id"]))


@given(bodies(), bodies())
def test_any_two_documents_have_an_order(a, b):
    key = sort_keys({"a": 1, "a.b": -1, "c": -1}, "b")
    assert (key(a) < key(b)) + (key(b) < key(a)) + (key(a) == key(b)) == 1


def test_a_very_deep_value_has_a_key():
    deep: list = []
    for _ in range(400):
        deep = [deep]
    assert sort_key(deep) == sort_key(deep[:])
    assert sort_key(deep) != sort_key([deep])
    assert sort_key([deep, 1]) < sort_key([deep, 2])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"a": 2}, r"^sort\.a must be 1 or -1\. direction=2"),
        ({"a": True}, r"^sort\.a must be 1 or -1"),
        ({"a..b": 1}, r"^sort\.a\.\.b is not a path"),
        ({"$a": 1}, r"^sort\.\$a is not a path"),
        ([(5, 1)], "^sort: names of fields must be text"),
        ([("a", 1), ("a", -1)], "^sort names a field twice"),
    ],
)
def test_a_bad_sort_is_refused_naming_the_field(spec, message):
    with pytest.raises(InvalidRequest, match=message):
        sort_keys(spec, "id")


def test_entries_are_what_a_test_sees():
    body = {"a": [{"b": 1}, 5, {"b": [2, [3]]}, [{"b": 4}]]}
    assert entries(body, "a.b") == [1, [2, [3]], 2, [3]]
    assert entries(body, "a.3.b") == [None, None, 4]
    assert entries(body, "x.y") == [None]
    assert entries({"a": []}, "a.b") == []
