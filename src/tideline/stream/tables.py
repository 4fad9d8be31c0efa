"""Rows as tables and dicts, and the keys that a caller names.

    in_order   runs of sub-windows as one Arrow table, in the order of keys
    dicts      the values of a run, a dict a row
    keys_of    tuples, tables or columns of whole keys, as columns

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tideline.errors import InvalidRequest
from tideline.index.keyruns import Run, as_codec, ascending
from tideline.index.packed import Codec
from tideline.index.values import TEXT, TextColumn, as_arrow, joined, plain_values
from tideline.stream.reading import check_prefix, key_columns
from tideline.stream.rows import read
from tideline.stream.settings import Settings

__all__ = ["dicts", "fits", "in_order", "keys_of"]

_SINCE = pa.timestamp("us", "UTC")
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def in_order(
    parts: Sequence[tuple[Run, int]], settings: Settings, codec: Codec | None
) -> pa.Table:  # fmt: skip
    """Rows with the beginnings of their sub-windows, in the order of keys."""
    if codec is None or not parts:
        return _empty(settings)
    runs = [as_codec(run, codec) for run, _ in parts]
    keys = np.concatenate([run.keys for run in runs])
    values = [joined(each) for each in zip(*(run.values for run in runs), strict=True)]
    since = np.concatenate([np.full(run.rows, at, np.int64) for run, at in parts])
    if len(parts) > 1:
        keys, (*values, since) = ascending(
            keys, [*values, since], last=False, packed=codec.is_packed
        )
    columns = key_columns(Run(codec, keys, ()), settings)
    columns |= dict(zip(settings.names, map(as_arrow, values), strict=True))
    columns["since"] = pa.array(since, pa.int64()).cast(_SINCE)
    return pa.table(columns)


def _empty(settings: Settings) -> pa.Table:
    columns: dict[str, Any] = {
        name: pa.array([], pa.string() if kind == "text" else pa.int64())
        for name, kind in zip(settings.key, settings.types, strict=True)
    }
    for name, dtype in zip(settings.names, settings.dtypes, strict=True):
        columns[name] = as_arrow(TextColumn.of([]) if dtype == TEXT else np.zeros(0, dtype))
    return pa.table({**columns, "since": pa.array([], _SINCE)})


def dicts(run: Run, settings: Settings) -> list[dict[str, Any]]:
    """The values of rows."""
    columns = [plain_values(value) for value in run.values]
    if not columns:
        return [{} for _ in range(run.rows)]
    return [dict(zip(settings.names, row, strict=True)) for row in zip(*columns, strict=True)]


def keys_of(keys: Any, settings: Settings) -> list[Any]:
    """Whole keys as columns, checked."""
    if isinstance(keys, (pa.Table, pa.RecordBatch)):
        keys = {name: keys.column(name) for name in keys.schema.names}
    if isinstance(keys, dict):
        given = {name: keys[name] for name in settings.key if name in keys}
        alone = replace(settings, ranges=(None,) * len(settings.key), time="clock", values=())
        found = read(given, alone)
        if found.rejected:
            raise InvalidRequest("keys are not all whole numbers, or text", rows=found.rejected)
        return list(found.keys)
    if not isinstance(keys, Iterable) or isinstance(keys, (str, bytes)):
        raise InvalidRequest(
            "get_many takes keys as tuples, or columns by name", given=type(keys).__name__
        )
    rows = [check_prefix(key, settings, whole=True) for key in keys]
    columns: list[Any] = []
    for n, kind in enumerate(settings.types):
        column = [row[n] for row in rows]
        for value in column:
            if not isinstance(value, str) and not (
                isinstance(value, int) and _LEAST <= value <= _MOST
            ):
                raise InvalidRequest(
                    f"{settings.key[n]} must be a whole number of 64 bits, or text", given=value
                )
        is_text = kind == "text" or any(isinstance(value, str) for value in column)
        columns.append(column if is_text else np.array(column, np.int64))
    return columns


def fits(column: Any, codec: Any, place: int) -> bool:
    """Whether a codec can have all values of a column."""
    ranges = getattr(codec, "ranges", None)
    if ranges is None or not len(column):
        return True
    low, high = ranges[place]
    return bool(min(column) >= low and max(column) <= high)
