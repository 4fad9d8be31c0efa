"""A condition that was parsed before is only taken for one that is the same to the last type."""

from __future__ import annotations

import datetime
import enum
import sys
from typing import Any

import numpy as np
import pytest

from tideline.errors import InvalidRequest
from tideline.where import parse

PARSING = sys.modules[parse.__module__]


class Name(str):
    pass


class Colour(enum.Enum):
    RED = "red"


def test_the_same_is_parsed_once() -> None:
    name = "".join(["o", "ne"])  # not the same object as the other
    first = parse({"parsed": {"$gt": 5, "$lt": 7.5}, "one": [1, {"a": None}]})
    assert parse({"parsed": {"$gt": 5, "$lt": 7.5}, name: [1, {"a": None}]}) is first


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (0, False), (None, "null"), ([1], (1,)), (5, "5"), (0.0, -0.0)],
)
def test_what_python_takes_for_equal_may_differ(one: Any, other: Any) -> None:
    for value in (one, other, one):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PARSING, "_known", ({}, {}))
            anew = parse({"value": value})
        assert parse({"value": value}) == anew
        assert parse({"value": value}).tree == anew.tree


@pytest.mark.parametrize(
    "given",
    [
        np.float64(1.5), np.int64(3), np.array([1.5]), bytearray(b"abcdefgh"), Name("x"),
        Colour.RED, datetime.datetime(2030, 1, 1), {1, 2}, float("nan"), 2**70, b"x",
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_plain_json_is_looked_at_each_time(given: Any) -> None:
    def outcome() -> Any:
        try:
            return parse({"value": given}).text
        except InvalidRequest as error:
            return str(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PARSING, "_known", ({}, {}))
        anew = outcome()
        assert PARSING._known == ({}, {})
    for plain in ("x", "red", 1.5, 3, [1.5], None, "abcdefgh", "2030-01-01T00:00:00"):
        parse({"value": plain})
    assert outcome() == anew


def test_bytes_of_a_number_are_not_the_number() -> None:
    assert parse({"value": np.float64(1.5)}).text == b'{"value":1.5}'
    with pytest.raises(InvalidRequest):
        parse({"value": np.float64(1.5).tobytes()})


def test_what_the_caller_changes_later_changes_nothing() -> None:
    given: dict[str, Any] = {"list": [1, {"a": 2}], "n": {"$in": [1, 2]}}
    found = parse(given)
    given["list"][1]["a"] = 3
    given["n"]["$in"].append(9)
    assert parse({"list": [1, {"a": 2}], "n": {"$in": [1, 2]}}) is found
    assert found.matches({"list": [1, {"a": 2}], "n": 2})
    assert not found.matches({"list": [1, {"a": 2}], "n": 9})


def test_stored_conditions_and_new_ones_are_apart() -> None:
    document = {"price": {"gte": 20}}
    assert parse(document, stored=True)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="did you mean"):
            parse(document)


def test_only_so_many_are_kept_and_no_long_ones() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PARSING, "_known", ({}, {}))
        for number in range(3 * PARSING._KEPT):
            parse({"number": number})
            assert len(PARSING._known[0]) <= PARSING._KEPT
        for long in ({"a": "x" * 201}, {"a": {"x" * 201: 1}}, {"a": {"$in": [*range(101)]}}):
            assert parse(long) is not parse(long)


def test_one_list_in_many_places_is_refused_at_once() -> None:
    nested: list[Any] = [1]
    for _ in range(200):
        nested = [nested, nested]
    with pytest.raises(InvalidRequest, match="holds too much"):
        parse({"a": nested})
