"""What is JSON and what is not: one rule for bodies of events and for documents."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest

from tideline.errors import InvalidRequest
from tideline.where.plain import plain_json


@dataclass
class Point:
    x: int


class Pair(NamedTuple):
    left: int
    right: int


class Struct(msgspec.Struct):
    x: int


class Colour(enum.Enum):
    RED = "red"


class Road(enum.StrEnum):
    A1 = "a1"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


JSON: list[Any] = [
    None, True, 5, -1.5, 2**70, "text", "", [], {}, (1, 2), [1, [None, {"a": ("b", {})}]],
    {"a": {"b": [1.5, None]}}, OrderedDict(a=1), Pair(1, 2), Road.A1, {"road": Road.A1},
    {"null": None}, deep(50),
]  # fmt: skip

ODD: list[Any] = [
    b"x", bytearray(b"x"), memoryview(b"x"), Decimal("1.5"), {1, 2}, frozenset(), date(2026, 1, 2),
    datetime(2026, 1, 2, tzinfo=UTC), timedelta(1), UUID(int=1), Point(1), Struct(1), Colour.RED,
    object(), 1j, math.nan, math.inf, "\ud800", range(3),
]  # fmt: skip


@pytest.mark.parametrize("value", JSON, ids=lambda value: type(value).__name__)
def test_what_json_has_comes_back(value: Any) -> None:
    text = plain_json(value, "body")
    assert plain_json(msgspec.json.decode(text), "body") == text


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_what_json_has_not_is_refused_wherever_it_stands(value: Any) -> None:
    places = (
        value,
        [value],
        (1, value),
        {"a": value},
        {"a": [1, {"b": value}]},
        {"a": None, "b": [value]},
    )
    for whole in places:
        with pytest.raises(InvalidRequest, match="body is not JSON: "):
            plain_json(whole, "body")


@pytest.mark.parametrize(
    "name", [1, None, True, 1.5, (1,), b"a", Decimal(1), UUID(int=1)], ids=repr
)
def test_a_name_is_text(name: Any) -> None:
    for whole in ({name: 1}, {"a": {name: 1}}, [{"a": 1, name: 1}], {1: 2, "1": 3}):
        with pytest.raises(InvalidRequest, match="body is not JSON: "):
            plain_json(whole, "body")


def test_the_message_says_what_stands_where() -> None:
    with pytest.raises(InvalidRequest, match=r"a\.1\.b is of type bytes\. body="):
        plain_json({"a": [1, {"b": b"x"}]}, "body")
    with pytest.raises(InvalidRequest, match="the name 1 is of type int, and not text"):
        plain_json({"1": 3, 1: 2}, "body")


def test_what_has_no_end_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in (circle, {"a": circle}, deep(100_000)):
        with pytest.raises(InvalidRequest, match="body is not JSON: "):
            plain_json(value, "body")


def test_a_channel_keeps_to_it_as_a_collection_does(open_database: Callable[..., Any]) -> None:
    db = open_database()
    roads, cars = db.channel("roads"), db.collection("cars", key="id")
    for odd in ({"at": b"x"}, {1: 2}, {"tags": {"a", "b"}}):
        with pytest.raises(InvalidRequest, match="body is not JSON"):
            roads.publish("A1", odd, ttl_s=60)
        with pytest.raises(InvalidRequest, match="document is not JSON"):
            cars.put({"id": 1, **odd})
    assert roads.find("A1") == []
    assert cars.count() == 0
