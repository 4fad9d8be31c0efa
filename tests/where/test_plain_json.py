"""What is JSON and what is not: one rule for bodies of events and for documents."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import InvalidRequest
from tideline.where.plain import plain_json
from tideline.where.texts import in_json


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
    b"x", bytearray(b"x"), memoryview(b"x"), Decimal("1.5"), {1, 2}, frozenset(), timedelta(1),
    Point(1), Struct(1), Colour.RED, object(), 1j, math.nan, math.inf, "\ud800", range(3),
]  # fmt: skip

NEW_YORK = timezone(timedelta(hours=-5))
SAID: list[tuple[Any, str]] = [
    (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00.000000Z"),
    (datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02T03:04:05.000006Z"),  # without a zone: UTC
    (datetime(2026, 1, 2, 22, tzinfo=NEW_YORK), "2026-01-03T03:00:00.000000Z"),
    (date(2026, 1, 2), "2026-01-02"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
]


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


@pytest.mark.parametrize(("value", "said"), SAID, ids=lambda value: str(value))
def test_times_and_uuids_are_texts_wherever_they_stand(
    value: Any, said: str, over: str, open_database: Callable[..., Any]
) -> None:
    assert plain_json({"a": [1, {"b": value}], "c": None}, "body") == (
        f'{{"a":[1,{{"b":"{said}"}}],"c":null}}'.encode()
    )
    db = open_database(over=over)
    cars, roads = db.collection("cars", key="id"), db.channel("roads")
    cars.put({"id": 1, "at": value})
    cars.insert({"id": 2, "at": [value]})
    assert cars.put_many([{"id": 3, "at": value}, {"id": 4}]).rejected.num_rows == 0
    assert cars.update(4, {"$set": {"at": value}}) == {"id": 4, "at": said}
    cars.replace(2, {"id": 2, "at": value})
    assert [one["at"] for one in cars.find({"at": value}, sort=[("id", 1)])] == [said] * 4
    assert cars.count({"at": {"$gt": value}}) == 0
    roads.publish("A1", {"at": value}, ttl_s=60)
    assert [event.body for event in roads.find("A1", where={"at": value})] == [{"at": said}]


@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=2))
def test_texts_order_as_the_times_do(times: list[datetime]) -> None:
    assert sorted(times, key=in_json) == sorted(times)
    assert len({len(in_json(moment)) for moment in times}) == 1


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
