"""Mappers of stream windows as aggregates of Spark: what `panes` makes of the rows of a pane.

    count, sum, mean, min, max   Spark's own
    quantile, median             rows by the code of their bucket (stream/sketch.py), counted by
                                 `histogram_numeric`. It merges buckets when there are more than it
                                 was allowed; it is allowed every code there can be, so it counts
    top                          `min_by` of (value downwards, key), so many

A state is as small as the library's: buckets that occur, and the rows of `top`. Both join exactly,
in any order, so the results are the library's; a quantile to the last digits, for Spark has an
`exp` and a `ln` of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tideline.errors import InvalidRequest
from tideline.near import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tideline.stream.mappers import Call

__all__ = ["aggregate_of", "calls_of", "quoted"]

_SPREAD = 1_455  # between the logarithms of the least double above 0 and of the greatest


def calls_of(map: Any, frame: DataFrame) -> dict[str, Call]:
    """The mappers that are asked for, by the name of their column."""
    from tideline.stream.mappers import call_of

    if isinstance(map, str):
        named = {map: map}
    else:
        named = dict(map) if isinstance(map, Mapping) else {}
        if isinstance(map, Sequence) and all(isinstance(each, str) for each in map):
            named = {each: each for each in map}
    if not named or not all(isinstance(each, str) for each in named.values()):
        raise InvalidRequest(
            "map is the text of a mapper, a list of them, or a mapping of names to them", map=map
        )
    calls = {name: call_of(text) for name, text in named.items()}
    for name, call in calls.items():
        if call.field:
            _check_field(call.field, named[name], frame)
    return calls


def _check_field(field: str, text: str, frame: DataFrame) -> None:
    from pyspark.sql import types as T

    if field not in frame.columns:
        raise InvalidRequest(
            f"the frame has no such column{did_you_mean(field, frame.columns)}", map=text,
            columns=frame.columns,
        )  # fmt: skip
    kind = frame.schema[field].dataType
    if not isinstance(kind, T.NumericType):
        raise InvalidRequest(
            "a mapper is of a column of numbers", map=text, column=field, type=kind.simpleString()
        )


def aggregate_of(call: Call, frame: DataFrame, key: Sequence[str]) -> Column:
    """A mapper as an aggregate; `key` are the fields that `top` tells of a row."""
    from pyspark.sql import functions as F

    if call.name == "count":
        return F.count(F.lit(1))
    if call.name == "top":
        return _top(call, frame, key)
    if call.name in ("quantile", "median"):
        return _quantile(call)
    own = {"sum": F.sum, "mean": F.avg, "min": F.min, "max": F.max}
    made: Column = own[call.name](quoted(call.field))
    return made


def _top(call: Call, frame: DataFrame, key: Sequence[str]) -> Column:
    """[{"key": {...}, "value": ...}, ...], the greatest value first, equal ones by their keys."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    value = F.col(quoted(call.field))
    is_whole = isinstance(frame.schema[call.field].dataType, T.IntegralType)
    downwards = F.bitwise_not(value) if is_whole else -value  # the least number has no negative
    fields = [F.col(quoted(name)) for name in key]
    row = F.struct(F.struct(*fields).alias("key"), value.alias("value"))
    return F.min_by(row, F.struct(downwards, *fields), call.rows)


def _quantile(call: Call) -> Column:
    """The value at the rank floor(q (n - 1)), as `sketch.quantile` has it."""
    from pyspark.sql import functions as F

    from tideline.kernels.stream.layout import ZERO
    from tideline.stream.sketch import LOG_MOST, Scale

    scale = Scale.of(call.error)
    value = F.col(quoted(call.field)).cast("double")
    power = F.ceil(F.ln(F.abs(value)) * scale.factor)
    code = F.when(value > 0, power + ZERO).when(value < 0, -power - ZERO).otherwise(F.lit(0))
    buckets = F.histogram_numeric(
        code.cast("long"), F.lit(2 * math.ceil(_SPREAD * scale.factor) + 3)
    )
    rank = F.floor(call.q * (_sum_of(buckets) - 1))
    start = F.struct(F.lit(0.0).alias("seen"), F.lit(0).cast("long").alias("code"))

    def step(at: Column, bucket: Column) -> Column:
        next = F.struct((at.seen + bucket.y).alias("seen"), bucket.x.cast("long").alias("code"))
        return F.when(at.seen > rank, at).otherwise(next)

    def value_of(at: Column) -> Column:
        middle = (F.abs(at.code) - ZERO) * math.log(scale.gamma) + scale.shift
        return F.signum(at.code) * F.exp(F.least(middle, F.lit(LOG_MOST)))

    return F.aggregate(buckets, start, step, value_of)


def _sum_of(buckets: Column) -> Column:
    from pyspark.sql import functions as F

    return F.aggregate(buckets, F.lit(0.0), lambda total, bucket: total + bucket.y)


def quoted(name: str) -> str:
    """A column's name for Spark, which reads dots and brackets as parts."""
    return "`" + name.replace("`", "``") + "`"
