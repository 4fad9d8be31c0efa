"""Batch read: the events or subscriptions of a channel that are valid now.

    options and filters -> Client.scan -> Arrow batches

What Spark filters by is pushed down as far as a test on a column can say it (pushed.py); the
store narrows its search by place and time and holds every row against the tests before it
leaves its process. The rest is left to Spark. Conditions on bodies go in the option `where`.

One task reads: a scan is one look at the store, at one time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as D
from pyspark.sql import types as T

from tideline.clock import to_us
from tideline.errors import InvalidRequest
from tideline.space import space_from_spec
from tideline.spark.client import Pushed, connect
from tideline.spark.columns import check_read, fit
from tideline.spark.options import choice, condition, span, target
from tideline.spark.reading import place_of

__all__ = ["PushingReader", "Reader", "narrowed", "pushed_of"]

_COMPARISONS: dict[type[D.Filter], tuple[str, str | None]] = {
    D.EqualTo: ("=", "!="),
    D.GreaterThan: (">", "<="),
    D.GreaterThanOrEqual: (">=", "<"),
    D.LessThan: ("<", ">="),
    D.LessThanOrEqual: ("<=", ">"),
    D.In: ("in", "not in"),
    D.IsNull: ("null", "not null"),
    D.IsNotNull: ("not null", "null"),
    D.StringStartsWith: ("prefix", None),
    D.StringEndsWith: ("suffix", None),
    D.StringContains: ("contains", None),
}
"""A filter as a comparison, and its opposite."""


class PushingReader(D.DataSourceReader):
    """Keeps the filters that the store can test, and leaves the others to Spark."""

    def __init__(self, schema: T.StructType) -> None:
        self._types = {field.name: field.dataType for field in schema}
        self._pushed: list[Pushed] = []

    def pushFilters(self, filters: list[D.Filter]) -> Iterable[D.Filter]:  # noqa: N802
        for each in filters:
            test = pushed_of(each, self._types)
            if test is None:
                yield each
            else:
                self._pushed.append(test)


class Reader(PushingReader):
    """Reads a channel once."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType) -> None:
        self._target = target(options, "read")
        self._kind = choice(options, "kind", ("events", "subscriptions"), "events")
        super().__init__(schema)
        client = connect(self._target)
        try:
            space = client.describe(self._target.channel).space
        finally:
            client.close()
        self._narrow = narrowed(options, self._kind, space)
        self._schema = check_read(schema, self._kind, space)

    def read(self, partition: D.InputPartition) -> Iterator[pa.RecordBatch]:
        client = connect(self._target)
        try:
            channel, pushed = self._target.channel, self._pushed
            for batch in client.scan(channel, self._kind, **self._narrow, pushed=pushed):
                yield fit(batch, self._schema)
        finally:
            client.close()


def narrowed(options: Mapping[str, str], kind: str, space: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say which rows, for `Client.scan`; `InvalidRequest` for what is none."""
    if condition(options) and kind == "subscriptions":
        raise InvalidRequest("the option where asks about the bodies of events", kind=kind)
    since, until = span(options)
    place = options.get("place")
    if place is not None:
        there = space_from_spec(dict(space))
        there.encode(place_of(place, there))  # refuses what is none
    return {"place": place, "since": since, "until": until, "where": options.get("where")}


def pushed_of(given: D.Filter, types: Mapping[str, T.DataType]) -> Pushed | None:
    """A filter of Spark's as a test on a column; None for one that Spark keeps.

    >>> pushed_of(D.Not(D.EqualTo(("id",), "a")), {"id": T.StringType()})
    ('id', '!=', 'a')
    """
    negated = isinstance(given, D.Not)
    inner: Any = given.child if isinstance(given, D.Not) else given
    comparison = _COMPARISONS.get(type(inner), (None, None))[1 if negated else 0]
    if comparison is None or len(inner.attribute) != 1 or inner.attribute[0] not in types:
        return None
    name = inner.attribute[0]
    if isinstance(inner, (D.IsNull, D.IsNotNull)):
        return name, comparison, None
    if isinstance(inner, D.In):
        values = [_plain(value, types[name]) for value in inner.value]
        return None if None in values else (name, comparison, values)
    value = _plain(inner.value, types[name])
    return None if value is None else (name, comparison, value)


def _plain(value: Any, kind: T.DataType) -> Any:
    """A value as JSON can hold it, for a column of a type; None when it cannot."""
    if isinstance(kind, T.TimestampType):
        return to_us(value, "value") if isinstance(value, datetime) else None
    if isinstance(kind, T.BooleanType):
        return value if isinstance(value, bool) else None
    if isinstance(kind, T.StringType):
        return value if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    if isinstance(kind, T.LongType):
        return value if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else None
    return float(value)
