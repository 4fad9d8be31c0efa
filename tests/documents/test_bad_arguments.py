"""Whatever a caller gives: an answer, or an error of ours that says what is wrong."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tideline.errors import InvalidRequest, TidelineError

ODD: list[Any] = [
    None, True, 0, -1, 10**400, -(10**400), 2**63, 1.5, math.nan, math.inf, "", "x", "\ud800",
    "a..b", "$x", "\0", "x" * 5000, b"\xff", [], ["a"], [[]], (), ("a", 1), {}, {"name": ["x"]},
    {"a": ["x"]}, {("a",): "lazy"}, {1: 2}, {"a": {"$in": 5}}, {1}, object(), np.int64(1),
    np.float64(1.5), np.str_("a"), np.array([1, 2]), Decimal(1), datetime(2026, 1, 1, tzinfo=UTC),
    int, range(3), {"name": "prefix", "max_count": 10**400}, {"name": "prefix", ("a",): []},
    pa.table({}), pa.table({"a": [1]}), [("a", [1])], [(["a"], 1)], [({}, 1)], [("\ud800", 1)],
    {"\ud800": "lazy"}, {"a": 10**400}, {"a": "\ud800"},
]  # fmt: skip

CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "put": lambda db, c, odd: c.put(odd),
    "put a value": lambda db, c, odd: c.put({"id": 1, "x": odd}),
    "put a key": lambda db, c, odd: c.put({"id": odd}),
    "put_many": lambda db, c, odd: c.put_many(odd),
    "put_many of one": lambda db, c, odd: c.put_many([odd]),
    "put_many a value": lambda db, c, odd: c.put_many([{"id": 1, "x": odd}]),
    "check_many": lambda db, c, odd: c.check_many(odd),
    "delete": lambda db, c, odd: c.delete(odd),
    "delete_many": lambda db, c, odd: c.delete_many(odd),
    "delete_many of one": lambda db, c, odd: c.delete_many([odd]),
    "get": lambda db, c, odd: c.get(odd),
    "get_many": lambda db, c, odd: c.get_many(odd),
    "get_many of one": lambda db, c, odd: c.get_many([odd]),
    "lookup a field": lambda db, c, odd: c.lookup(odd, 1),
    "lookup a value": lambda db, c, odd: c.lookup("a", odd),
    "lookup embedded": lambda db, c, odd: c.lookup("t", odd),
    "lookup k": lambda db, c, odd: c.lookup("a", 1, k=odd),
    "lookup embedded k": lambda db, c, odd: c.lookup("t", 1, k=odd),
    "range of a field": lambda db, c, odd: c.range_lookup(odd, 1),
    "range low": lambda db, c, odd: c.range_lookup("a", odd),
    "range both": lambda db, c, odd: c.range_lookup("a", 0, odd),
    "range k": lambda db, c, odd: c.range_lookup("t", 1, 2, k=odd),
    "find": lambda db, c, odd: c.find(odd),
    "find a value": lambda db, c, odd: c.find({"a": odd}),
    "find a key": lambda db, c, odd: c.find({"id": odd}),
    "find a range": lambda db, c, odd: c.find({"a": {"$gte": odd}}, limit=1),
    "find sort": lambda db, c, odd: c.find(sort=odd),
    "find sort field": lambda db, c, odd: c.find(sort=[(odd, 1)]),
    "find sort direction": lambda db, c, odd: c.find(sort=[("a", odd)]),
    "find limit": lambda db, c, odd: c.find({"a": 1}, limit=odd),
    "changes after": lambda db, c, odd: c.changes(after=odd),
    "changes before": lambda db, c, odd: c.changes(before=odd),
    "take limit": lambda db, c, odd: c.changes().take(odd),
    "take timeout": lambda db, c, odd: c.changes(after=0).take(timeout_s=odd),
    "journal_s": lambda db, c, odd: db.collection("c", journal_s=odd),
    "journal_before": lambda db, c, odd: db.collection("c", journal_before=odd),
    "count": lambda db, c, odd: c.count({"a": {"$in": [odd]}}),
    "explain": lambda db, c, odd: str(c.explain({"t": {"$lt": odd}})),
    "explain limit": lambda db, c, odd: c.explain({"a": 1, "t": 1}, limit=odd),
    "scan": lambda db, c, odd: list(c.scan(odd)),
    "scan low": lambda db, c, odd: list(c.scan(low=odd)),
    "scan high": lambda db, c, odd: list(c.scan(high=odd)),
    "create_index": lambda db, c, odd: c.create_index(odd, "embedded").wait(),
    "create_index kind": lambda db, c, odd: c.create_index("new", odd),
    "drop_index": lambda db, c, odd: c.drop_index(odd),
    "advise": lambda db, c, odd: c.advise(scarce=odd),
    "collection": lambda db, c, odd: db.collection(odd),
    "collection key": lambda db, c, odd: db.collection("other", key=odd),
    "collection indexes": lambda db, c, odd: db.collection("c", indexes=odd),
    "collection kind": lambda db, c, odd: db.collection("c", indexes={"a": odd}),
    "collection policy": lambda db, c, odd: db.collection("c", policy=odd),
    "collection policy name": lambda db, c, odd: db.collection("c", policy={"name": odd}),
    "collection policy k": lambda db, c, odd: db.collection(
        "c", policy={"name": "constant", "k": odd}
    ),
    "collection filter": lambda db, c, odd: db.collection("c", filter=odd),
    "collection bloom_bits": lambda db, c, odd: db.collection("c", bloom_bits=odd),
    "drop_collection": lambda db, c, odd: db.drop_collection(odd),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_odd_argument_ends_in_an_answer_or_an_error_of_ours(
    open_database: Callable[..., Any], over: str, call: Callable[[Any, Any, Any], Any]
) -> None:
    db = open_database(over=over)
    found = db.collection("c", key="id", indexes={"a": "lazy", "t": "embedded"}, filter="f")
    found.put_many([{"id": n, "a": n % 10, "t": n, "f": n} for n in range(50)])
    for odd in ODD:
        with contextlib.suppress(TidelineError):
            call(db, found, odd)


@pytest.fixture
def cars(open_database: Callable[..., Any], over: str) -> Any:
    made = open_database(over=over).collection(
        "cars", key="id", indexes={"a": "lazy", "t": "embedded"}
    )
    made.put_many([{"id": n, "a": n % 10, "t": n} for n in range(50)])
    return made


def test_numbers_beyond_doubles_are_in_no_index(cars: Any) -> None:
    with pytest.raises(InvalidRequest, match="value must be null, a finite number"):
        cars.lookup("a", 10**400)
    with pytest.raises(InvalidRequest, match="high must be null, a finite number"):
        cars.range_lookup("a", 0, 10**400)


def test_a_field_is_text(cars: Any) -> None:
    for call in (cars.lookup, cars.range_lookup):
        with pytest.raises(InvalidRequest, match="field must be text"):
            call(["a"], 1)
    for odd in (3, None, ["b", 3], {"b": 1}):
        for call in (cars.create_index, cars.drop_index):
            with pytest.raises(InvalidRequest, match="field must be text"):
                call(odd)
    with pytest.raises(InvalidRequest, match="field must be valid Unicode"):
        cars.create_index("\ud800", "lazy")


def test_as_many_as_can_be_counted_are_all(cars: Any) -> None:
    for field in ("a", "t"):
        assert len(cars.range_lookup(field, 0, k=10**400)) == 50
    assert len(cars.find({"a": 3}, limit=10**400)) == 5


def test_numbers_of_numpy_are_numbers(cars: Any) -> None:
    assert len(cars.range_lookup("t", 1, np.float64(2.5))) == 2
    assert cars.range_lookup("a", "a", np.str_("b")) == []


@pytest.mark.parametrize("over", ["", "http"], ids=["embedded", "http"])
def test_a_build_waits_for_seconds(cars: Any) -> None:
    build = cars.create_index("b", "lazy")
    for odd in ("1", [1], True, -1, math.nan):
        with pytest.raises(InvalidRequest, match="timeout_s must be a number"):
            build.wait(timeout_s=odd)
    build.wait(timeout_s=10**400)
    assert build.done
