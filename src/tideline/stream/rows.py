"""What a caller appends, as arrays: an Arrow table or batch, rows as dicts, or columns.

    table      pa.Table, pa.RecordBatch, data frames           columns.py
    columns    {"vid": array, "vel": array}: the same for numpy
    rows       [{"vid": 7, "vel": 55}, ...], or one of them    rowwise.py

Rows that cannot be stored come back with the reason; the others go on. What is wrong with the
whole, a column that is missing or of another type, raises `InvalidRequest` before anything is
stored.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tideline.errors import InvalidRequest
from tideline.stream.columns import of_columns
from tideline.stream.incoming import (
    Incoming,
)
from tideline.stream.rowwise import of_rows
from tideline.stream.settings import CLOCK, Settings

__all__ = ["read"]


def read(given: Any, settings: Settings) -> Incoming:
    """Whatever is appended, as arrays.

    >>> from tideline.stream.settings import given as declared
    >>> options = {"span_s": 60, "key": ("vid",), "values": {"vel": "int32"}}
    >>> found = read([{"vid": 7, "vel": 55}, {"vel": 1}], declared("cars", [], options))
    >>> found.keys[0].tolist(), found.values[0].tolist(), found.rejected
    ([7], [55], {1: 'vid is missing'})
    """
    if hasattr(given, "__arrow_c_stream__"):  # a table, a batch, a frame of pandas or Polars
        try:
            given = pa.table(given)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidRequest(
                f"append takes a table of Arrow, not this: {error}", given=type(given).__name__
            ) from None
        columns = {name: given.column(name) for name in _wanted(settings, given.column_names)}
        return of_columns(columns, settings)
    if isinstance(given, Mapping):
        points = {name for name, kind in settings.values if kind == "point"}
        if not any(_is_column(each) for name, each in given.items() if name not in points):
            return of_rows([given], settings)  # a point is a list in a row, too
        columns = {name: given[name] for name in _wanted(settings, list(given))}
        for name, column in columns.items():
            axes = 2 if name in points and isinstance(column, np.ndarray) else 1
            if not _is_column(column) or getattr(column, "ndim", 1) != axes:
                raise InvalidRequest(
                    "a column must be a list or an array of one dimension (of points: a list of "
                    "[longitude, latitude], or an array of two columns)", field=name,
                    given=type(column).__name__,
                )  # fmt: skip
        if len({len(column) for column in columns.values()}) != 1:
            lengths = {name: len(column) for name, column in columns.items()}
            raise InvalidRequest("columns must have one length", lengths=lengths)
        return of_columns(columns, settings)
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InvalidRequest(
            "append takes a table, rows as dicts, or columns by name", given=type(given).__name__
        )
    return of_rows(list(given), settings)


def _is_column(value: Any) -> bool:
    return isinstance(value, (list, np.ndarray, pa.Array, pa.ChunkedArray))


def _wanted(settings: Settings, there: Sequence[str]) -> list[str]:
    names = [*settings.key, *settings.names]
    if settings.time != CLOCK:
        names.append(settings.time)
    missing = [name for name in names if name not in there]
    if missing:
        raise InvalidRequest("columns are missing", missing=missing, there=list(there))
    return names
