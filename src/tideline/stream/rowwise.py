"""Rows that a caller appends as dicts, checked one by one.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from tideline.clock import EARLIEST, LATEST, SECOND, to_us
from tideline.index.packed import Column
from tideline.index.values import TEXT, TextColumn
from tideline.stream.incoming import (
    KEY_BYTES,
    LEAST,
    MOST,
    NO_POINT,
    NO_TEXT,
    VALUE_BYTES,
    Incoming,
    listed,
    plain,
    too_long,
)
from tideline.stream.settings import CLOCK, OTHERS, Settings
from tideline.where.geo import point_of

__all__ = ["of_rows"]

_MISSING = object()


def of_rows(rows: list[Any], settings: Settings) -> Incoming:
    """Rows as dicts, one by one: a bad one is rejected with the reason."""
    rejected: dict[int, str] = {}
    types = list(settings.types)
    good: list[tuple[int, list[Any], list[Any], int]] = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            rejected[number] = "a row must be a dict"
            continue
        own = list(types)  # a row that is not stored decides nothing for the others
        try:
            keys = []
            for place, name in enumerate(settings.key):
                value = row.get(name, _MISSING)
                own[place] = own[place] or ("text" if isinstance(value, str) else "int")
                keys.append(_key(name, value, own[place], settings.ranges[place]))
            values = [
                _other(name, row.get(name, _MISSING), kind)
                if kind in OTHERS
                else _number(name, row.get(name, _MISSING), np.dtype(kind))
                for name, kind in settings.values
            ]
            time = 0 if settings.time == CLOCK else _time(settings.time, row.get(settings.time))
        except ValueError as error:
            rejected[number] = str(error)
        else:
            types = own
            good.append((number, keys, values, time))
    keys_made: list[Column] = []
    for place, kind in enumerate(types):
        column = [keys[place] for _, keys, _, _ in good]
        keys_made.append(column if kind == "text" else np.array(column, np.int64))
    values_made = [
        _column([values[place] for _, _, values, _ in good], dtype)
        for place, dtype in enumerate(settings.dtypes)
    ]
    times = None
    if settings.time != CLOCK:
        times = np.array([time for *_, time in good], np.int64)
    numbers = np.array([number for number, *_ in good], np.int64)
    found = tuple(kind or "int" for kind in types) if good else settings.types
    return Incoming(keys_made, values_made, times, numbers, rejected, found)


def _column(values: list[Any], dtype: np.dtype[Any]) -> Any:
    return TextColumn.of(values) if dtype == TEXT else np.array(values, dtype)


def _other(name: str, value: Any, kind: str) -> Any:
    if value is _MISSING or value is None:
        raise ValueError(f"{name} is missing")
    if kind == "point":
        found = point_of(listed(value))
        if found is None:
            raise ValueError(NO_POINT.format(name))
        return found[0] + 0.0, found[1] + 0.0
    if not isinstance(value, str) or too_long(value, VALUE_BYTES):
        raise ValueError(NO_TEXT.format(name))
    return value


def _key(name: str, value: Any, kind: str, declared: tuple[int, int] | None) -> Any:
    if value is _MISSING or value is None:
        raise ValueError(f"{name} is missing")
    if kind == "text":
        if not isinstance(value, str) or too_long(value):
            raise ValueError(f"{name} must be text of at most {KEY_BYTES} bytes")
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number")
    low, high = declared or (LEAST, MOST)
    if not low <= value <= high:
        raise ValueError(f"{name} is not {low} to {high}")
    return int(value)


def _number(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    if value is _MISSING or value is None:
        raise ValueError(f"{name} is missing")
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number")
    if dtype.kind == "f":
        try:
            small = math.isfinite(float(value)) and abs(value) <= float(np.finfo(dtype).max)
        except OverflowError:
            small = False
        if not small:
            raise ValueError(f"{name} is no finite number of {dtype}")
        return float(value)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{name} must be a whole number")
    info = np.iinfo(dtype)
    if not info.min <= value <= info.max:
        raise ValueError(f"{name} does not fit {dtype}")
    return int(value)


def _time(name: str, value: Any) -> int:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{name} must be a time, as ISO 8601 has it") from None
    if isinstance(value, datetime):
        found = to_us(value, name)
        if not EARLIEST <= found < LATEST:
            raise ValueError(f"{name} is no time from the year 1 to 9892")
        return found
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a time, or seconds since 1970")
    if not EARLIEST // SECOND <= value < LATEST // SECOND:
        raise ValueError(f"{name} is no time in seconds since 1970")
    return round(value * SECOND) if isinstance(value, float) else value * SECOND
