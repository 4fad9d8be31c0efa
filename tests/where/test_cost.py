"""What a condition costs is known before it is evaluated, and no condition takes more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plain import query

from tideline.where import parse
from tideline.where.cost import values_in


def nested(depth: int) -> dict[str, Any]:
    """Objects in arrays, each under the field "0"."""
    value: Any = {"0": 1}
    for _ in range(depth):
        value = {"0": [value]}
    return {"a": [value]}


def test_a_path_of_many_numbers_takes_no_exponential_time() -> None:
    """Each element is reached as the one picked by a number and as any: two ways a level."""
    assert not parse({"a" + ".0" * 60: 7}).matches(nested(40))
    assert parse({"a" + ".0" * 42: 1}).matches(nested(41))


@pytest.mark.parametrize("depth", range(6))
@pytest.mark.parametrize("parts", range(1, 12))
def test_the_walk_finds_what_the_reference_finds(depth: int, parts: int) -> None:
    for value in (1, None, 7):
        condition = {"a" + ".0" * parts: value}
        inner = nested(depth)
        for body in (inner, {"a": [[inner]]}, {"a": [inner["a"], {"0": 7}]}):
            assert parse(condition).matches(body) == query(condition, body)


def test_costs_follow_the_condition_and_the_body_alone() -> None:
    plain = parse({"a": 1}).cost
    pattern = parse({"a": {"$regex": "(a|b)+c"}}).cost
    assert plain.per_byte == 0 < pattern.per_byte
    assert parse({"a": {"$regex": "(a|b){90}c"}}).cost.per_byte > 10 * pattern.per_byte
    assert parse({"$or": [{"a": n} for n in range(100)]}).cost.fixed == 100 * plain.fixed
    assert parse({"a": {"$elemMatch": {"b": 1, "c": 2}}}).cost.per_value > 2 * plain.per_value
    assert parse({"a": {"$in": [[n] for n in range(300)]}}).cost.per_value > 100 * plain.per_value
    fuzzy = parse({"a": {"$fuzzy": {"word": "jam"}}}).cost
    assert fuzzy.steps(1_000, 1) > parse({"a": {"$words": "jam"}}).cost.steps(1_000, 1)
    assert parse({"a": 1}).cost.weight == 1
    assert parse({}).cost.steps(1_000, 10) == 0


def test_an_array_counts_as_many_values() -> None:
    body = {"a": [0] * 1_000, "b": {"c": [[], {}]}}
    assert 1_000 < values_in(json.dumps(body).encode()) < 1_020


@pytest.mark.parametrize(
    ("body", "holds"),
    [({"t": ["ice", "night"]}, True), ({"t": ["ice"]}, False), ({"t": "nightice"}, True),
     ({"t": ["icy night", "ICE"]}, True), ({"t": [["ice", "night"]]}, False), ({}, False)],
)  # fmt: skip
def test_all_takes_patterns(body: Any, holds: bool) -> None:
    where = {"t": {"$all": [{"$regex": "ice", "$options": "i"}, {"$regex": "night$|^night"}]}}
    assert parse(where).matches(body) is holds
    assert parse({"t": {"$all": ["ice", {"$regex": "^n"}]}}).matches({"t": ["ice", "no"]})
