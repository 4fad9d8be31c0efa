"""The columns of the format `tideline`: what a reader gives, what a writer takes.

    events          id, place, [shapes], at, until, body, seq
    subscriptions   id, user, place, [shapes], since, until, where, unseen, seq
    answers         subscription, event, user, kind, at
    shapes          lon, lat, radius_m, west, south, east, north: in a space that is a map

`body` and `where` are JSON text. Written are the columns of `Channel.apply`; with the option
op "publish" or "subscribe" every row is that, and the column `op` is not given.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from tideline.errors import InvalidRequest

__all__ = ["OPS", "check_columns", "check_read", "check_written", "fit", "prepared", "schema_of"]

OPS = ("publish", "subscribe", "apply")

_TEXT, _TIME, _NUMBER, _FLAG = T.StringType(), T.TimestampType(), T.DoubleType(), T.BooleanType()
_SHAPES = ["lon", "lat", "radius_m", "west", "south", "east", "north"]
_MAPS = ("grid", "quadtree")

_WRITTEN: dict[str, pa.DataType] = {
    "op": pa.string(), "id": pa.string(), "place": pa.string(), "lon": pa.float64(),
    "lat": pa.float64(), "radius_m": pa.float64(), "user": pa.string(),
    "at": pa.timestamp("us", "UTC"), "since": pa.timestamp("us", "UTC"),
    "until": pa.timestamp("us", "UTC"), "body": pa.string(), "where": pa.string(),
    "unseen": pa.bool_(),
}  # fmt: skip
_PLACES = ["id", "place", "lon", "lat", "radius_m"]
_TAKEN = {
    "publish": [*_PLACES, "at", "until", "body"],
    "subscribe": [*_PLACES, "user", "at", "since", "until", "where", "unseen"],
    "apply": list(_WRITTEN),
}
_NEEDED = {"publish": ["at", "body"], "subscribe": ["at", "user"], "apply": ["op", "at"]}
_ADVICE = {
    "at": "the time of each row, for example .withColumn('at', F.current_timestamp())",
    "body": "JSON text, for example .withColumn('body', F.to_json(F.struct('speed', 'lanes')))",
    "user": "whose subscription it is",
    "op": "publish, subscribe or cancel",
}


def schema_of(kind: str, space: dict[str, Any]) -> T.StructType:
    """The columns that a reader gives.

    >>> schema_of("events", {"kind": "flat"}).names
    ['id', 'place', 'at', 'until', 'body', 'seq']
    """
    places: list[tuple[str, T.DataType]] = [("place", _TEXT)]
    if space["kind"] in _MAPS:
        places += [(name, _NUMBER) for name in _SHAPES]
    columns: list[tuple[str, T.DataType]]
    if kind == "answers":
        names = ["subscription", "event", "user", "kind"]
        columns = [*((name, _TEXT) for name in names), ("at", _TIME)]
    elif kind == "events":
        columns = [("id", _TEXT), *places, ("at", _TIME), ("until", _TIME), ("body", _TEXT)]
        columns += [("seq", T.LongType())]
    else:
        columns = [("id", _TEXT), ("user", _TEXT), *places, ("since", _TIME), ("until", _TIME)]
        columns += [("where", _TEXT), ("unseen", _FLAG), ("seq", T.LongType())]
    return T.StructType([T.StructField(name, each) for name, each in columns])


def check_read(asked: T.StructType, kind: str, space: dict[str, Any]) -> pa.Schema:
    """The Arrow schema of the columns that were asked for: some, in any order."""
    return check_columns(asked, schema_of(kind, space), kind)


def check_columns(asked: T.StructType, given: T.StructType, kind: str) -> pa.Schema:
    """The same, of the columns that are given."""
    there = {field.name: field.dataType for field in given}
    for field in asked:
        if field.name not in there:
            raise InvalidRequest(
                f"{kind} have no such column: there are {', '.join(there)}", column=field.name
            )
        if field.dataType != there[field.name]:
            raise InvalidRequest(
                f"the column {field.name} of {kind} is {there[field.name].simpleString()}",
                asked=field.dataType.simpleString(),
            )
    return to_arrow_schema(asked, timezone="UTC")


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a batch that a schema names."""
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_written(given: T.StructType, op: str) -> None:
    """Whether rows of these columns can be written."""
    names = given.names
    taken = _TAKEN[op]
    for name in _NEEDED[op]:
        if name not in names:
            raise InvalidRequest(
                f"the column {name} is missing: {_ADVICE[name]}", op=op, columns=names
            )
    unknown = [name for name in names if name not in taken]
    if unknown or len(set(names)) != len(names):
        raise InvalidRequest(
            f"unknown or repeated columns: with op {op} allowed are {', '.join(taken)}; drop or "
            "rename the others", columns=unknown or names,
        )  # fmt: skip
    if op != "apply" and "place" not in names and not {"lon", "lat"} <= set(names):
        raise InvalidRequest(
            "a place is missing: text in the column place, or numbers in lon and lat",
            op=op, columns=names,
        )  # fmt: skip
    for field in given:
        _check_type(field)


def _check_type(field: T.StructField) -> None:
    wanted, kind = _WRITTEN[field.name], field.dataType
    if isinstance(kind, T.NullType):
        return
    if wanted == pa.string():
        good: bool = isinstance(kind, T.StringType)
        what = "text"
    elif pa.types.is_timestamp(wanted):
        good = isinstance(kind, (T.TimestampType, T.TimestampNTZType))
        what = "timestamps"
    elif wanted == pa.bool_():
        good, what = isinstance(kind, T.BooleanType), "booleans"
    else:
        good, what = isinstance(kind, T.NumericType), "numbers"
    if not good:
        advice = ""
        if wanted == pa.string() and isinstance(kind, (T.StructType, T.MapType, T.ArrayType)):
            advice = f": write JSON, for example F.to_json('{field.name}')"
        elif pa.types.is_timestamp(wanted):
            advice = f": for example F.to_timestamp('{field.name}')"
        raise InvalidRequest(
            f"the column {field.name} must hold {what}{advice}", type=kind.simpleString()
        )


def prepared(batch: pa.RecordBatch, op: str) -> pa.RecordBatch:
    """A batch as `Channel.apply` takes it: every column of the right type, `op` filled in."""
    names: Sequence[str] = batch.schema.names
    columns = [batch.column(name).cast(_WRITTEN[name], safe=False) for name in names]
    if op != "apply":
        names = ["op", *names]
        columns = [pa.repeat(pa.scalar(op), batch.num_rows), *columns]
    return pa.RecordBatch.from_arrays(columns, names=list(names))
