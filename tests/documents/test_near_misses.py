"""Slips of people who know MongoDB or another client: each is told what was probably meant."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

import tideline
from tideline.cli.documents import order_of
from tideline.errors import InvalidRequest, NotFound
from tideline.server import running
from tideline.server.requests import read_request

CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"$push": {"tags": {"each": ["a", "b"]}}}, "tags.each is not a modifier: did you mean $each"),
    ({"$push": {"tags": {"each": ["a"], "slice": 5}}}, "did you mean $each?"),
    ({"$addToSet": {"tags": {"each": ["a"]}}}, "did you mean $each?"),
    ({"$push": {"tags": {"$eahc": ["a"]}}}, "$slice: did you mean $each?"),
    ({"$push": {"tags": {"$each": [1], "slice": 5}}}, "$slice: did you mean $slice?"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), CHANGES)
def test_modifiers_without_their_sign(
    change: dict[str, Any], says: str, over: str, open_database: Callable[..., Any]
) -> None:
    cars = open_database(over=over).collection("cars", key="id")
    cars.put({"id": 1, "tags": []})
    with pytest.raises(InvalidRequest, match=re.escape(says)):
        cars.update(1, change)
    assert cars.get(1) == {"id": 1, "tags": []}


def test_an_object_that_only_looks_like_modifiers_can_be_added(
    open_database: Callable[..., Any],
) -> None:
    cars = open_database().collection("cars", key="id")
    cars.put({"id": 1})
    assert cars.update(1, {"$push": {"a": {"each": 5}}}) == {"id": 1, "a": [{"each": 5}]}
    very = {"each": ["x"]}
    assert cars.update(1, {"$push": {"b": {"$each": [very]}}})["b"] == [very]


def test_an_index_has_no_direction(over: str, open_database: Callable[..., Any]) -> None:
    cars = open_database(over=over).collection("cars", key="id")
    with pytest.raises(InvalidRequest, match="no direction, it serves both: did you mean 'speed'"):
        cars.create_index([("speed", 1)])
    with pytest.raises(InvalidRequest, match=r"did you mean \['road', 'speed'\]"):
        cars.create_index([("road", 1), ("speed", -1)])


def test_the_key_is_left_out_by_its_own_name(over: str, open_database: Callable[..., Any]) -> None:
    cars = open_database(over=over).collection("cars", key="plate")
    cars.put({"plate": "A", "speed": 5})
    with pytest.raises(InvalidRequest, match=r"did you mean \{'plate': 0\}\?"):
        cars.find(fields={"speed": 1, "_id": 0})
    assert cars.find(fields={"speed": 1, "plate": 0}) == [{"speed": 5}]


def test_a_name_that_is_nearly_one_of_a_collection(
    over: str, open_database: Callable[..., Any]
) -> None:
    db = open_database(over=over)
    db.collection("cars", key="id")
    with pytest.raises((InvalidRequest, NotFound), match="did you mean 'cars'"):
        db.collection("cras").find()
    with pytest.raises(NotFound, match="did you mean 'cars'"):
        db.drop_collection("cras")


def test_a_sum_of_a_field_without_its_sign(over: str, open_database: Callable[..., Any]) -> None:
    cars = open_database(over=over).collection("cars", key="id")
    with pytest.raises(
        InvalidRequest, match=re.escape("n.$sum is of numbers: did you mean '$speed'?")
    ):
        cars.aggregate([{"$group": {"_id": None, "n": {"$sum": "speed"}}}])


def test_sort_by_a_minus_sign() -> None:
    with pytest.raises(InvalidRequest, match="did you mean speed:-1"):
        order_of(["-speed"])


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ('{"do": "cancel", "tga": 7}', "unknown field `tga`: did you mean tag?"),
        ('{"do": "publish", "tag": 7, "chanel": "x"}', "did you mean channel?"),
        ('{"do": "prolong", "tag": 7, "untl_s": 5}', "did you mean until_s?"),
        ('{"do": "sync", "tag": 7, "xyz": 5}', "unknown field `xyz`"),
    ],
)
def test_a_message_with_a_key_that_is_nearly_right(message: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_request(message)
    assert says in str(refused.value)
    assert refused.value.tag == (None if "tga" in message else 7)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"field": "name", "kind": "ngrams", "n": 3}, '{"kind": {"kind": "ngrams", "n": 3}}'),
        ({"field": "name", "uniqe": True}, "did you mean unique?"),
    ],
)
def test_a_setting_beside_the_kind_of_an_index_is_told_where_it_goes(
    body: dict[str, Any], says: str
) -> None:
    with tideline.open(":memory:") as db, running(db) as url:
        db.collection("cars", key="id")
        asked = urllib.request.Request(
            f"{url}/v1/collections/cars/create_index", json.dumps(body).encode()
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked)
        with refused.value as answer:
            error = json.load(answer)["error"]
    assert (error["kind"], says in error["message"]) == ("InvalidRequest", True)
