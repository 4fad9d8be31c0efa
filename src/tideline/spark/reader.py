"""Batch read: the events or subscriptions of a channel that are valid now.

    options -> spans of time, a task each -> Client.scan -> Arrow batches

The options `place`, `since`, `until` and `where` narrow the search inside the store. Filters of
Spark's are left to Spark: a Python source of Spark 4.3 that takes them keeps them for good, so
a frame that is used twice would answer for the first filter again
(docs/decisions/0048-spark-filters-stay-with-spark.md).

Each task reads at one moment of its own. When an event happened never changes, so it is in one
span: none comes twice, and none that was valid all the while is missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as D
from pyspark.sql import types as T

from tideline.errors import InvalidRequest
from tideline.space import space_from_spec
from tideline.space.plain import from_text
from tideline.spark.client import connect
from tideline.spark.columns import check_read, fit
from tideline.spark.options import choice, condition, number, span, target

__all__ = ["Reader", "narrowed"]


class Span(D.InputPartition):
    """What one task reads: what happened in [since, until)."""

    def __init__(self, since: int | None, until: int | None) -> None:
        self.since, self.until = since, until


class Reader(D.DataSourceReader):
    """Reads a channel once."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType) -> None:
        self._target = target(options, "read")
        self._kind = choice(options, "kind", ("events", "subscriptions"), "events")
        with closing(connect(self._target)) as client:
            space = client.describe(self._target.channel).space
        self._narrow = narrowed(options, self._kind, space)
        self._parts = number(options, "partitions", 1) or 0
        self._schema = check_read(schema, self._kind, space, options)

    def partitions(self) -> Sequence[Span]:
        since, until = self._narrow["since"], self._narrow["until"]
        cuts: list[int] = []
        if self._kind == "events" and self._parts != 1:
            with closing(connect(self._target)) as client:
                cuts = client.times(self._target.channel, self._parts)
        inner = [
            us for us in cuts if (since is None or since < us) and (until is None or us < until)
        ]
        return [Span(*span) for span in pairwise([since, *inner, until])]

    def read(self, partition: D.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        narrow = {**self._narrow, "since": partition.since, "until": partition.until}
        with closing(connect(self._target)) as client:
            for batch in client.scan(self._target.channel, self._kind, **narrow):
                yield fit(batch, self._schema)


def narrowed(options: Mapping[str, str], kind: str, space: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say which rows, for `Client.scan`; `InvalidRequest` for what is none."""
    if condition(options) and kind == "subscriptions":
        raise InvalidRequest("the option where asks about the bodies of events", kind=kind)
    since, until = span(options)
    place = options.get("place")
    if place is not None:
        there = space_from_spec(dict(space))
        there.encode(from_text(place, there))  # refuses what is none
    return {"place": place, "since": since, "until": until, "where": options.get("where")}
