"""JSON texts and places as structs or VARIANT, and back.

    read     body, document, before    JSON text -> struct or VARIANT       from_json
             place, lon, lat, ...      -> one struct                        place_struct
    written  struct or VARIANT         -> JSON text                         to_json
             a struct `place`          -> place, lon, lat, radius_m         place_columns

A value that is not of the type asked for is null, as in Spark's own `from_json`; a string takes
any value, as its JSON. A field that is null is left out of the JSON that is written.

Structs are written a whole column at a time and read row by row. VARIANT goes through pyspark's own
Python, which is slower by far: for many rows `F.parse_json` and `F.to_json` in Spark are the way.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.pandas.types import is_variant
from pyspark.sql.variant_utils import VariantUtils

__all__ = ["AREA", "from_json", "is_shaped", "place_columns", "place_struct", "to_json",
           "unreadable"]  # fmt: skip

AREA = ["lon", "lat", "radius_m", "west", "south", "east", "north"]
"""What a place on a map is told by, beside its name."""

_PLAIN = (T.StringType, T.BooleanType, T.IntegralType, T.FloatType, T.DoubleType,
          T.TimestampType, T.DateType, T.VariantType)  # fmt: skip
_decode, _encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode


def is_shaped(kind: T.DataType) -> bool:
    """Whether JSON comes as something else than text."""
    return isinstance(kind, (T.StructType, T.VariantType))


def unreadable(kind: T.DataType, name: str) -> tuple[str, T.DataType] | None:
    """The part of a type that JSON cannot be read as, with its path; None when there is none.

    >>> unreadable(T.StructType().add("a", T.ArrayType(T.BinaryType())), "body")
    ('body.a', BinaryType())
    """
    if isinstance(kind, T.ArrayType):
        return unreadable(kind.elementType, name)
    if isinstance(kind, T.StructType):
        parts = (unreadable(field.dataType, f"{name}.{field.name}") for field in kind)
        return next(filter(None, parts), None)
    return None if isinstance(kind, _PLAIN) else (name, kind)


# ---- reading ----------------------------------------------------------------------------------


def from_json(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """JSON texts as values of a type.

    >>> kind = pa.struct({"speed": pa.int64(), "name": pa.string()})
    >>> from_json(pa.array(['{"speed":4,"x":1}', None, '{"speed":"fast","name":[1]}']), kind).to_pylist()
    [{'speed': 4, 'name': None}, None, {'speed': None, 'name': '[1]'}]
    """  # noqa: E501
    if _is_variant(kind):
        return pa.array([None if text is None else _variant(text) for text in texts.to_pylist()],
                        kind)  # fmt: skip
    take = _taker(kind)  # Arrow's own parser is quicker, and ends the process at a text "null"
    return pa.array([take(_value(text)) for text in texts.to_pylist()], kind)


def _value(text: str | None) -> Any:
    try:
        return None if text is None else _decode(text)
    except msgspec.DecodeError:
        return None


def _variant(text: str) -> dict[str, bytes]:
    value, metadata = VariantUtils.parse_json(text)
    return {"value": value, "metadata": metadata}


def _taker(kind: pa.DataType) -> Callable[[Any], Any]:
    """What makes a value of a type out of a value of JSON."""
    if _is_variant(kind):
        return lambda value: None if value is None else _variant(_encode(value).decode())
    if pa.types.is_struct(kind):
        parts = [(field.name, _taker(field.type)) for field in kind]
        return lambda value: (
            {name: take(value.get(name)) for name, take in parts} if type(value) is dict else None
        )
    if pa.types.is_list(kind):
        take = _taker(kind.value_type)
        return lambda value: [take(each) for each in value] if type(value) is list else None
    if pa.types.is_string(kind):
        return lambda value: (
            value if value is None or type(value) is str else _encode(value).decode()
        )
    if pa.types.is_boolean(kind):
        return lambda value: value if type(value) is bool else None
    if pa.types.is_integer(kind):
        most = 1 << (kind.bit_width - 1)
        return lambda value: value if type(value) is int and -most <= value < most else None
    if pa.types.is_floating(kind):
        return lambda value: float(value) if type(value) in (int, float) else None
    return _moment if pa.types.is_timestamp(kind) else _day


def _moment(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _day(value: Any) -> date | None:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def place_struct(batch: pa.RecordBatch, kind: pa.StructType) -> pa.Array:
    """The columns of a place as one struct; null where there is no place."""
    names = {"name": "place"}
    columns = [
        batch.column(names.get(field.name, field.name)).cast(field.type) for field in kind
    ]  # fmt: skip
    return pa.StructArray.from_arrays(columns, fields=list(kind))


# ---- writing ----------------------------------------------------------------------------------


def to_json(column: pa.Array) -> pa.Array:
    """A column of structs or VARIANT as JSON texts; one of texts as it is.

    >>> to_json(pa.array([{"speed": 4, "name": None}, None])).to_pylist()
    ['{"speed":4}', None]
    """
    if not pa.types.is_struct(column.type):
        return column
    if _is_variant(column.type):
        values: Iterable[Any] = column.to_pylist()
        return pa.array([
            None if one is None else VariantUtils.to_json(one["value"], one["metadata"])
            for one in values
        ], pa.string())  # fmt: skip
    from tideline.documents.convert import json_texts  # loads what only documents need

    fields = [field.name for field in column.type]
    # With NaN a text is no JSON: the store then says so of the row.
    texts = json_texts(pa.Table.from_arrays(column.flatten(), fields), {})
    found = texts.to_arrow(pa.large_string())
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.large_string()))


def place_columns(column: pa.Array) -> dict[str, pa.Array]:
    """A column of structs as the columns of a place; one of texts as `place`."""
    if not pa.types.is_struct(column.type):
        return {"place": column}
    names = ["place" if field.name == "name" else field.name for field in column.type]
    return dict(zip(names, column.flatten(), strict=True))


def _is_variant(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and bool(is_variant(kind))
