"""The columns of the format `tideline`: what a reader gives, what a writer takes.

    events          id, place, [shapes], at, until, body, seq
    subscriptions   id, user, place, [shapes], since, until, where, unseen, seq
    answers         subscription, event, user, kind, at
    shapes          lon, lat, radius_m, west, south, east, north: in a space that is a map

`body` and `where` are JSON text. Whoever asks for it gets the body as a struct or VARIANT, and the
place with its shapes as one struct; the same is taken when it is written (shapes.py).

Written are the columns of `Channel.apply`; with the option op "publish" or "subscribe" every row
is that, and the column `op` is not given.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from tideline.errors import InvalidRequest
from tideline.near import nearest
from tideline.spark import shapes
from tideline.spark.options import choice

__all__ = [
    "OPS", "check_columns", "check_read", "check_readable", "check_written", "drifted", "fit",
    "near", "no_json", "prepared", "reshaped", "schema_of",
]  # fmt: skip

OPS = ("publish", "subscribe", "apply")

_TEXT, _TIME, _NUMBER, _FLAG = T.StringType(), T.TimestampType(), T.DoubleType(), T.BooleanType()
_MAPS = ("grid", "quadtree")
_JSON = ("body", "document", "before")  # columns of JSON that come in other shapes too

_WRITTEN: dict[str, pa.DataType] = {
    "op": pa.string(), "id": pa.string(), "place": pa.string(), "lon": pa.float64(),
    "lat": pa.float64(), "radius_m": pa.float64(), "user": pa.string(),
    "at": pa.timestamp("us", "UTC"), "since": pa.timestamp("us", "UTC"),
    "until": pa.timestamp("us", "UTC"), "body": pa.string(), "where": pa.string(),
    "unseen": pa.bool_(),
}  # fmt: skip
_POINT = ["lon", "lat", "radius_m"]
_PLACES = ["id", "place", *_POINT]
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


# ---- reading ----------------------------------------------------------------------------------


def schema_of(kind: str, space: dict[str, Any]) -> T.StructType:
    """The columns that a reader gives.

    >>> schema_of("events", {"kind": "flat"}).names
    ['id', 'place', 'at', 'until', 'body', 'seq']
    """
    places: list[tuple[str, T.DataType]] = [("place", _TEXT)]
    if space["kind"] in _MAPS:
        places += [(name, _NUMBER) for name in shapes.AREA]
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


def reshaped(given: T.StructType, options: Mapping[str, str]) -> T.StructType:
    """The columns as the options `bodyAs` and `placeAs` have them.

    >>> reshaped(schema_of("events", {"kind": "grid"}), {"placeAs": "struct"}).names
    ['id', 'place', 'at', 'until', 'body', 'seq']
    """
    variant = choice(options, "bodyAs", ("json", "variant"), "json") == "variant"
    struct = choice(options, "placeAs", ("columns", "struct"), "columns") == "struct"
    for name, asked, columns in (("bodyAs", variant, _JSON), ("placeAs", struct, ("place",))):
        if asked and not set(columns) & set(given.names):
            raise InvalidRequest(f"what is read has no {columns[0]} for the option {name}",
                                 columns=given.names)  # fmt: skip
    found = T.StructType()
    for field in given:
        if field.name in _JSON and variant:
            found.add(field.name, T.VariantType())
        elif field.name == "place" and struct:
            found.add("place", _place_of(given))
        elif not (field.name in shapes.AREA and struct):
            found.add(field)
    return found


def _place_of(given: T.StructType) -> T.StructType:
    """The struct that a place is, with these columns."""
    area = [name for name in shapes.AREA if name in given.names]
    return T.StructType([
        T.StructField("name", _TEXT), *(T.StructField(name, _NUMBER) for name in area)
    ])  # fmt: skip


def check_read(
    asked: T.StructType, kind: str, space: dict[str, Any], options: Mapping[str, str]
) -> pa.Schema:
    """The Arrow schema of the columns that were asked for: some, in any order and shape."""
    given = schema_of(kind, space)
    reshaped(given, options)  # refuses what is wrong, though what was asked for counts
    return check_columns(asked, given, kind)


def check_columns(asked: T.StructType, given: T.StructType, kind: str) -> pa.Schema:
    """The same, of the columns that are given."""
    there = {field.name: field.dataType for field in given}
    for field in asked:
        name, wanted = field.name, field.dataType
        if name not in there:
            raise InvalidRequest(
                f"{kind} have no such column{near(name, there)}: there are {', '.join(there)}",
                column=name,
            )
        if wanted == there[name]:
            continue
        if name in _JSON and shapes.is_shaped(wanted):
            check_readable(name, wanted)
        elif name == "place" and isinstance(wanted, T.StructType):
            check_columns(wanted, _place_of(given), "places")
        else:
            also = "" if name not in (*_JSON, "place") else ", or a struct"
            raise InvalidRequest(
                f"the column {name} of {kind} is {there[name].simpleString()}{also}",
                asked=wanted.simpleString(),
            )
    return to_arrow_schema(asked, timezone="UTC")


def check_readable(name: str, kind: T.DataType) -> None:
    """`InvalidRequest` for a type that JSON cannot be read as."""
    bad = shapes.unreadable(kind, name)
    if bad is not None:
        raise InvalidRequest(
            "JSON is not read as this type: read it as string, and cast it in Spark",
            column=bad[0], type=bad[1].simpleString(),
        )  # fmt: skip


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a batch that a schema names, in its shapes."""
    columns = []
    for field in schema:
        if field.name == "place" and pa.types.is_struct(field.type):
            columns.append(shapes.place_struct(batch, field.type))
        elif pa.types.is_struct(field.type):
            columns.append(shapes.from_json(batch.column(field.name), field.type))
        else:
            columns.append(batch.column(field.name).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# ---- writing ----------------------------------------------------------------------------------


def near(name: str, known: Iterable[str]) -> str:
    """` (did you mean ...?)` when a known name is near; else nothing."""
    meant = nearest(name, known)
    return f" (did you mean {meant!r}?)" if meant else ""


def drifted(problems: Sequence[str], given: T.StructType, **other: Any) -> None:
    """`InvalidRequest` that says all that is wrong with the columns of a frame."""
    if problems:
        columns = {field.name: field.dataType.simpleString() for field in given}
        raise InvalidRequest("; ".join(problems), **other, columns=columns)


def check_written(given: T.StructType, op: str) -> None:
    """Whether rows of these columns can be written; all that is wrong is said at once."""
    names, taken = given.names, _TAKEN[op]
    unknown = [name for name in dict.fromkeys(names) if name not in taken]
    problems = [
        f"the column {name} is missing{near(name, unknown)}: {_ADVICE[name]}"
        for name in _NEEDED[op]
        if name not in names
    ]
    if op != "apply" and "place" not in names and not {"lon", "lat"} <= set(names):
        problems.append(
            f"a place is missing{near('place', unknown)}: text in the column place, or numbers "
            "in lon and lat"
        )
    problems += [f"the column {name} is there twice" for name in dict.fromkeys(names)
                 if names.count(name) > 1]  # fmt: skip
    left = [name for name in taken if name not in names]
    problems += [f"the column {name} is unknown{near(name, left)}" for name in unknown]
    if unknown:
        problems.append(f"with op {op} there are {', '.join(taken)}: drop or rename the others")
    problems += filter(None, (_wrong_type(field) for field in given if field.name in taken))
    shaped = [
        field for field in given if field.name == "place" and shapes.is_shaped(field.dataType)
    ]
    if shaped and set(_POINT) & set(names):
        problems.append("a struct in the column place goes without lon, lat and radius_m")
    drifted(problems, given, op=op)


def _wrong_type(field: T.StructField) -> str:
    """What is wrong with the type of a column; nothing when it is right."""
    name, kind = field.name, field.dataType
    wanted = _WRITTEN[name]
    if isinstance(kind, T.NullType):
        return ""
    if name == "place" and isinstance(kind, T.StructType):
        return "; ".join(filter(None, map(_wrong_part, kind)))
    advice = ""
    if wanted == pa.string():
        good: bool = isinstance(kind, T.StringType)
        what = "text"
        if name == "body":
            good, what = good or shapes.is_shaped(kind), "JSON text, a struct or VARIANT"
            if isinstance(kind, T.StructType):
                return no_json(name, kind, f"F.to_json('{name}')")
        if isinstance(kind, (T.StructType, T.MapType, T.ArrayType, T.VariantType)):
            advice = f": write JSON, for example F.to_json('{name}')"
    elif pa.types.is_timestamp(wanted):
        good, what = isinstance(kind, (T.TimestampType, T.TimestampNTZType)), "timestamps"
        advice = f": for example F.to_timestamp('{name}')"
    elif wanted == pa.bool_():
        good, what = isinstance(kind, T.BooleanType), "booleans"
    else:
        good, what = isinstance(kind, T.NumericType), "numbers"
    return "" if good else f"the column {name} must hold {what}, not {kind.simpleString()}{advice}"


def _wrong_part(field: T.StructField) -> str:
    """What is wrong with a field of a struct that is a place."""
    name, kind = field.name, field.dataType
    if name not in ("name", *_POINT):
        known = ["name", *_POINT]
        return f"a place has no {name}{near(name, known)}: there are {', '.join(known)}"
    wanted = T.StringType if name == "name" else T.NumericType
    if isinstance(kind, (wanted, T.NullType)):
        return ""
    what = "text" if name == "name" else "numbers"
    return f"the column place.{name} must hold {what}, not {kind.simpleString()}"


_IN_JSON = (
    T.StringType, T.BooleanType, T.IntegralType, T.FloatType, T.DoubleType, T.NullType,
)  # fmt: skip


def no_json(name: str, kind: T.DataType, advice: str) -> str:
    """What there is in a type that no JSON value is; nothing when all is well."""
    if isinstance(kind, T.ArrayType):
        return no_json(name, kind.elementType, advice)
    if isinstance(kind, T.StructType):
        parts = (no_json(f"{name}.{field.name}", field.dataType, advice) for field in kind)
        return "; ".join(filter(None, parts))
    if isinstance(kind, _IN_JSON):
        return ""
    return (f"the column {name} is {kind.simpleString()}, which no JSON value is: cast it, for "
            f"example to string, or write {advice}")  # fmt: skip


def prepared(batch: pa.RecordBatch, op: str) -> pa.RecordBatch:
    """A batch as `Channel.apply` takes it: every column of the right type, `op` filled in."""
    columns: dict[str, pa.Array] = {}
    if op != "apply":
        columns["op"] = pa.repeat(pa.scalar(op), batch.num_rows)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "place":
            columns |= shapes.place_columns(column)
        else:
            columns[name] = shapes.to_json(column) if name == "body" else column
    return pa.RecordBatch.from_pydict({
        name: column.cast(_WRITTEN.get(name, column.type), safe=False)
        for name, column in columns.items()
    })  # fmt: skip
