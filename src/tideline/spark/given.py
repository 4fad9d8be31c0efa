"""What can be wrong with the frames that `match` and `watch` are given, told before Spark runs.

    given_frames(...)      they are DataFrames
    used_columns(...)      what is needed is there, and what is used has its type
    cast_columns(...)      these columns as the stages read them
    check_session(...)     the session keeps state as streams need it
    has_watermark(...)     a stream has one already

Importing this needs no pyspark; calling it does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tideline.errors import InvalidRequest, Unavailable
from tideline.near import nearest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["cast_columns", "check_session", "given_frames", "has_watermark", "used_columns"]

_TEXT = ("string", "char", "varchar")
_WHOLE = ("byte", "short", "integer", "int", "long", "bigint", "tinyint", "smallint")
_KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "text": (_TEXT, "string"),
    "numbers": ((*_WHOLE, "float", "double", "decimal"), "double"),
    "whole numbers": (_WHOLE, "bigint"),
    "text or whole numbers": ((*_TEXT, *_WHOLE), "string"),
    "timestamps": (("timestamp",), "timestamp"),
    "booleans": (("boolean",), "boolean"),
}
"""What a column may hold: the types of Spark's that do, and the one it is read as."""
_JSON = ("body", "where", "sort", "document", "before")
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def given_frames(**frames: Any) -> None:
    """`InvalidRequest` for what is no DataFrame."""
    for name, frame in frames.items():
        if not (hasattr(frame, "isStreaming") and hasattr(frame, "mapInArrow")):
            raise InvalidRequest(f"{name} must be a Spark DataFrame", type=type(frame).__name__)


def used_columns(
    frame: Any, side: str, columns: Mapping[str, str], needed: Sequence[str]
) -> list[str]:
    """Those of the columns that a frame has; `columns` says what each must hold."""
    fields = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    for name in needed:
        if name not in fields:
            meant = nearest(name, fields)
            raise InvalidRequest(
                f"{side} need the column {name}" + (f" (did you mean {meant!r}?)" if meant else ""),
                columns=", ".join(fields) or "none",
            )
    used = [name for name in columns if name in fields]
    for name in used:
        given, wanted = fields[name], columns[name]
        if given not in (*_KINDS[wanted][0], "void"):
            hint = ""
            if given in ("struct", "map", "array", "variant") and name in _JSON:
                hint = ": to_json makes text of it"
            elif given in ("timestamp_ntz", "date", "string") and wanted == "timestamps":
                hint = ": cast it to timestamp"
            raise InvalidRequest(
                f"the column {name} of {side} must hold {wanted}{hint}", type=given
            )
    return used


def cast_columns(
    frame: DataFrame, columns: Mapping[str, str], names: Sequence[str]
) -> dict[str, Column]:
    """Columns of a frame, with the types that they are read as."""
    return {name: frame[name].cast(_KINDS[columns[name]][1]).alias(name) for name in names}


def check_session(frame: DataFrame, doing: str) -> None:
    """State of this kind is kept by Spark's RocksDB store and no other."""
    provider = frame.sparkSession.conf.get(_PROVIDER)
    if provider != _ROCKSDB:
        raise Unavailable(
            f"{doing} needs Spark's RocksDB state store: take tideline.spark.session(), "
            f"or set {_PROVIDER} before the query starts", wanted=_ROCKSDB, provider=provider,
        )  # fmt: skip
    try:
        importlib.import_module("google.protobuf.descriptor")
    except ImportError:
        raise Unavailable("Spark's state needs protobuf: pip install 'tideline[spark]'") from None


def has_watermark(frame: Any) -> bool:
    """Whether a stream has a watermark already; Spark refuses a second one after it."""
    java = getattr(frame, "_jdf", None)
    return java is not None and "EventTimeWatermark" in java.queryExecution().analyzed().toString()
