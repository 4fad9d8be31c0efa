"""Tests on columns: what Spark pushes down to a reader, and how rows are held against it.

    ("at", ">=", 1700000000000000)   ("id", "in", ["a", "b"])   ("place", "prefix", "I-8")

A test never holds for null, but for "null". Times are whole microseconds, so that a test can
be sent as JSON. Texts compare by their bytes, as in Spark.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tideline.clock import EARLIEST, LATEST
from tideline.errors import InvalidRequest
from tideline.spark.client import Pushed

__all__ = ["COMPARISONS", "holding", "span_of"]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "in": lambda column, values: pc.is_in(column, value_set=values),
    "not in": lambda column, values: pc.invert(pc.is_in(column, value_set=values)),
    "null": lambda column, _: pc.is_null(column),
    "not null": lambda column, _: pc.is_valid(column),
    "prefix": lambda column, text: pc.starts_with(column, text.as_py()),
    "suffix": lambda column, text: pc.ends_with(column, text.as_py()),
    "contains": lambda column, text: pc.match_substring(column, text.as_py()),
}


def holding(table: pa.Table, pushed: Sequence[Pushed]) -> pa.Table:
    """The rows that meet every test.

    >>> table = pa.table({"id": ["a", "b", None]})
    >>> holding(table, [("id", "!=", "a")])["id"].to_pylist()
    ['b']
    """
    mask = None
    for name, comparison, value in pushed:
        if name not in table.column_names or comparison not in COMPARISONS:
            raise InvalidRequest("no such column or comparison", test=[name, comparison])
        column = table[name]
        found = COMPARISONS[comparison](column, _value(value, column.type))
        if comparison not in ("null", "not null"):
            found = pc.and_(pc.fill_null(found, False), pc.is_valid(column))
        mask = found if mask is None else pc.and_(mask, found)
    return table if mask is None else table.filter(mask)


def span_of(pushed: Sequence[Pushed], name: str) -> tuple[int | None, int | None]:
    """The span [since, until) that tests leave of a column of times.

    Within the times that happen, which is what a store takes: rows are held against the tests
    all the same.

    >>> span_of([("at", ">", 5), ("at", "<=", 9), ("id", "=", "x")], "at")
    (6, 10)
    >>> span_of([("at", ">", EARLIEST - 5), ("at", "<", LATEST + 5)], "at")
    (None, None)
    """
    since: int | None = None
    until: int | None = None
    for column, comparison, value in pushed:
        if column != name or comparison not in ("=", ">", ">=", "<", "<="):
            continue
        if comparison in ("=", ">", ">="):
            first = value + (comparison == ">")
            since = first if since is None else max(since, first)
        if comparison in ("=", "<", "<="):
            limit = value + (comparison != "<")
            until = limit if until is None else min(until, limit)
    if since is not None:
        since = None if since <= EARLIEST else min(since, LATEST - 1)
    if until is not None:
        until = None if until >= LATEST else max(until, EARLIEST)
    return since, until


def _value(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, (list, tuple)):
        if pa.types.is_timestamp(kind):
            return pa.array(value, pa.int64()).cast(kind)
        return pa.array(value, kind)
    if pa.types.is_timestamp(kind) and value is not None:
        return pa.scalar(value, pa.int64()).cast(kind)
    return pa.scalar(value, kind)
