"""Stream windows as Spark tables: `format("tideline").option("window", "cars")`.

    read      the fields of the key, the values, `since`: what `range` gives. A task for a range of
              keys, all of one moment (stream/moments.py)
    write     the same columns and the time, if rows have one: staged by tasks, then appended
    stream    the same for every micro-batch

Columns that are no field of the window are left out of a write, as `append` leaves them. Rows are
appended in the order of their time, whoever staged them: with keep="last" the latest row of a
micro-batch stays. A window that goes by the clock takes them as they come, partition by partition.

A row that is older than the window is no error: it is counted (`stats().late`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import datasource as D
from pyspark.sql import types as T

from tideline.errors import InvalidRequest
from tideline.spark.client import connect
from tideline.spark.columns import check_columns, drifted, fit, near
from tideline.spark.options import choice, json_object, number, rejected, target
from tideline.spark.writer import Batch, Stream, Writing

__all__ = ["WindowReader", "WindowStreamWriter", "WindowWriter", "window_schema"]

_TYPES: dict[str, T.DataType] = {  # Spark has no unsigned numbers: the next larger
    "int8": T.ByteType(), "int16": T.ShortType(), "int32": T.IntegerType(), "int64": T.LongType(),
    "uint8": T.ShortType(), "uint16": T.IntegerType(), "uint32": T.LongType(),
    "float32": T.FloatType(), "float64": T.DoubleType(),
    "point": T.ArrayType(T.DoubleType()), "text": T.StringType(),
}  # fmt: skip
_SETTINGS = (
    "span_s", "slide_s", "key", "values", "keep", "time", "durable", "max_ahead_s", "indexes",
)  # fmt: skip
_AT = "at"  # what the time is called in staged rows: stream/landing.py


def window_schema(options: Mapping[str, str]) -> T.StructType:
    """The columns of a read."""
    found = target(options, "read window")
    with closing(connect(found)) as client:
        return _columns(client.window(found.channel))


def _columns(settings: Mapping[str, Any]) -> T.StructType:
    made = T.StructType()
    for name, kind in settings["key"].items():
        made.add(name, T.StringType() if kind == "text" else T.LongType())
    for name, kind in settings["values"].items():
        made.add(name, _TYPES[kind])
    return made.add("since", T.TimestampType())


# ---- reading ----------------------------------------------------------------------------------


class Part(D.InputPartition):
    """What one task reads: keys from `low` on, before `high`, at a moment; none: all there is."""

    def __init__(self, moment: str | None = None, low: Any = None, high: Any = None) -> None:
        self.moment, self.low, self.high = moment, low, high


class WindowReader(D.DataSourceReader):
    """Reads a window once."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType) -> None:
        self._target = target(options, "read window")
        self._asked: dict[str, Any] = {
            "keys": _json_list(options, "keys"), "last_s": _seconds(options, "lastS"),
            "closed": choice(options, "closed", ("true", "false"), "false") == "true",
        }  # fmt: skip
        self._parts = number(options, "partitions", 1) or 0
        with closing(connect(self._target)) as client:
            given = _columns(client.window(self._target.channel))
        self._schema = check_columns(schema, given, "rows of this window")

    def partitions(self) -> Sequence[Part]:
        if self._parts == 1:
            return [Part()]
        with closing(connect(self._target)) as client:
            moment, cuts = client.moment(self._target.channel, parts=self._parts, **self._asked)
        if not cuts:  # one task is one moment, whenever it reads
            return [Part()]
        return [Part(moment, *ends) for ends in pairwise([None, *cuts, None])]

    def read(self, partition: D.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        name, part = self._target.channel, partition
        with closing(connect(self._target)) as client:
            if part.moment is None:
                batches = client.panes(name, **self._asked)
            else:
                batches = client.part(name, part.moment, part.low, part.high, **self._asked)
            for batch in batches:
                yield fit(batch, self._schema)


def _json_list(options: Mapping[str, str], name: str) -> list[Any] | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=list[Any])
    except msgspec.MsgspecError:
        raise InvalidRequest(
            f"the option {name} must be a JSON list: the beginning of a key, [0, 1], or "
            "[low, high]", given=text,
        ) from None  # fmt: skip


def _seconds(options: Mapping[str, str], name: str) -> float | None:
    text = options.get(name)
    try:
        return None if text is None else float(text)
    except ValueError:
        raise InvalidRequest(f"the option {name} must be a number of seconds", given=text) from None


# ---- writing ----------------------------------------------------------------------------------


class _Rows(Writing):
    """Rows are appended to a window."""

    _doing = ("write window", "stream window")

    def _open(self, options: Mapping[str, str], schema: T.StructType, doing: str) -> None:
        self._target = target(options, doing)
        self._arriving = {"op": "append", "version": None}
        self._rejected = rejected(options)
        asked = json_object(options, "settings")
        for name in asked or ():
            if name not in _SETTINGS:
                raise InvalidRequest(
                    f"a window has no such setting{near(name, _SETTINGS)}: there are "
                    f"{', '.join(_SETTINGS)}", setting=name,
                )  # fmt: skip
        with closing(connect(self._target)) as client:
            settings = client.window(self._target.channel, asked)
        time = settings["time"]
        fields = [*settings["key"], *settings["values"]]
        if time != "clock" and _AT in fields:
            raise InvalidRequest(
                "Spark stages the time of a row as at: a window with another time cannot have a "
                "field of this name", time=time, fields=fields,
            )  # fmt: skip
        _check_written(schema, settings)
        self._names = fields if time == "clock" else [*fields, time]
        self._time = None if time == "clock" else time
        self._order = "arrival" if time == "clock" else "time"

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = [_AT if name == self._time else name for name in self._names]
        columns = [batch.column(name) for name in self._names]
        if self._time is not None:
            columns[-1] = columns[-1].cast(pa.timestamp("us", "UTC"))
        return pa.RecordBatch.from_arrays(columns, names)


class WindowWriter(_Rows, Batch):
    """A batch into a window."""


class WindowStreamWriter(_Rows, Stream):
    """A stream into a window."""


def _check_written(schema: T.StructType, settings: Mapping[str, Any]) -> None:
    """Whether rows of these columns can be appended; all that is wrong is said at once."""
    types = {field.name: field.dataType for field in schema}
    time = settings["time"]
    wanted: dict[str, tuple[Any, str]] = {}
    whole, text = (T.IntegralType, "whole numbers"), (T.StringType, "text")
    for name, kind in settings["key"].items():
        either = ((T.IntegralType, T.StringType), "whole numbers or text")
        wanted[name] = text if kind == "text" else either if kind is None else whole
    number = (T.IntegralType, T.FloatType, T.DoubleType, T.BooleanType)
    for name, kind in settings["values"].items():
        if kind == "text":
            wanted[name] = text
        elif kind == "point":
            wanted[name] = T.ArrayType, "arrays of two numbers, longitude and latitude"
        else:
            wanted[name] = number, "numbers that are no decimals"
    if time != "clock":
        wanted[time] = (T.TimestampType, T.TimestampNTZType), "timestamps"
    problems = []
    for name, (classes, what) in wanted.items():
        if name not in types:
            left = [each for each in types if each not in wanted]
            problems.append(f"the column {name} is missing{near(name, left)}: {what}")
        elif schema.names.count(name) > 1:
            problems.append(f"the column {name} is there twice")
        elif not isinstance(types[name], (classes, T.NullType)):
            advice = f": for example F.to_timestamp('{name}')" if name == time else ""
            problems.append(f"the column {name} must hold {what}, not "
                            f"{types[name].simpleString()}{advice}")  # fmt: skip
    drifted(problems, schema, window=list(wanted))
