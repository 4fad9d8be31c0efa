"""Columns that a caller appends, as arrays: numpy's, Arrow's and lists, no Python object a row.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.clock import EARLIEST, LATEST, SECOND
from tideline.errors import InvalidRequest
from tideline.index.packed import Column
from tideline.index.texts import Texts
from tideline.index.values import POINT, TextColumn
from tideline.stream.incoming import (
    KEY_BYTES,
    MOST,
    NO_POINT,
    NO_TEXT,
    VALUE_BYTES,
    Array,
    Incoming,
    listed,
    too_long,
)
from tideline.stream.settings import CLOCK, Settings
from tideline.where.geo import point_of

__all__ = ["of_columns"]


def of_columns(columns: Mapping[str, Any], settings: Settings) -> Incoming:
    """Columns of one length, as arrays."""
    count = len(next(iter(columns.values())))
    whole = _Whole(count)
    keys, types = [], []
    for name, kind, declared in zip(settings.key, settings.types, settings.ranges, strict=True):
        column, found = whole.key(name, columns[name], kind, declared)
        keys.append(column)
        types.append(found)
    values: list[Any] = []
    for name, kind in settings.values:
        if kind == "point":
            values.append(whole.point(name, columns[name]))
        elif kind == "text":
            values.append(whole.text(name, columns[name]))
        else:
            values.append(whole.value(name, columns[name], np.dtype(kind)))
    times = None
    if settings.time != CLOCK:
        times = whole.time(settings.time, columns[settings.time])
    made = Incoming(keys, values, times, None, {}, tuple(types))
    for mask, why in whole.bad:
        # Masks are of all rows: take those that are left.
        left = mask if made.numbers is None else mask[made.numbers]
        made = made.kept(~left, why)
    return made


class _Whole:
    """Columns of one table; `bad` are rows that cannot be stored, with the reason."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.bad: list[tuple[NDArray[np.bool_], str]] = []

    def _note(self, mask: NDArray[np.bool_], why: str) -> None:
        if mask.any():
            self.bad.append((mask, why))

    def _array(self, name: str, column: Any) -> Array | pa.Array:
        """As numpy, nulls noted and filled; texts stay Arrow."""
        if isinstance(column, list):
            try:
                column = pa.array(column)
            except (pa.ArrowException, OverflowError) as error:
                raise InvalidRequest(
                    f"column {name} is of no one type, or has numbers of over 64 bits", field=name
                ) from error
            except UnicodeEncodeError as error:
                raise InvalidRequest(f"column {name} has text that is no UTF-8") from error
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
            if isinstance(column, pa.ChunkedArray):  # none
                column = pa.array([], column.type)
        if isinstance(column, np.ndarray):
            if column.dtype.kind in "OU":
                return self._array(name, column.tolist())
            return _wide(column)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.null_count:
            self._note(np.asarray(column.is_null()), f"{name} is missing")
            if pa.types.is_null(column.type):
                return np.zeros(self.count, np.int64)
            column = _filled(column)
        if _is_text(column):
            return column
        return _wide(column.to_numpy(zero_copy_only=False))

    def key(
        self, name: str, column: Any, kind: str, declared: tuple[int, int] | None
    ) -> tuple[Column, str]:
        found = self._array(name, column)
        if not isinstance(found, np.ndarray):
            if kind == "int":
                raise InvalidRequest(f"{name} must be whole numbers", field=name)
            texts = found.to_pylist()
            self._note(
                np.array([too_long(text) for text in texts], bool),
                f"{name} must be text of at most {KEY_BYTES} bytes",
            )
            return texts, "text"
        if kind == "text" and self.count and not self._is_all_missing():
            raise InvalidRequest(f"{name} must be text", field=name)
        if kind == "text":
            return [""] * self.count, "text"
        if found.dtype.kind == "u" and found.dtype.itemsize == 8:
            self._note(found > np.uint64(MOST), f"{name} is over {MOST}")
        elif found.dtype.kind not in "iu":
            raise InvalidRequest(
                f"{name} must be whole numbers{'' if kind == 'int' else ' or text'}",
                field=name, given=str(found.dtype),
            )  # fmt: skip
        if declared is not None:
            self._beyond(name, found, *declared, f"{name} is not {declared[0]} to {declared[1]}")
        return found.astype(np.int64) if found.dtype == np.uint64 else found, "int"

    def _is_all_missing(self) -> bool:
        return any(mask.all() for mask, _ in self.bad)

    def _beyond(self, name: str, found: Array, low: Any, high: Any, why: str) -> None:
        if found.dtype.kind == "f":  # NaN has no place between others; 2**63 - 1 is no double
            with np.errstate(invalid="ignore"):
                self._note((found < low) | (found >= float(high + 1)), why)
        elif len(found) and (found.min() < low or found.max() > high):
            self._note((found < low) | (found > high), why)

    def value(self, name: str, column: Any, dtype: np.dtype[Any]) -> Array:
        found = self._array(name, column)
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "iuf":
            raise InvalidRequest(f"{name} must be numbers", field=name)
        if found.dtype == dtype and dtype.kind != "f":
            return found
        if dtype.kind == "f":
            if found.dtype.kind == "f":
                self._note(~np.isfinite(found), f"{name} is no finite number")
            with np.errstate(over="ignore", invalid="ignore"):
                made = found.astype(dtype)
            if found.dtype.kind == "f" and dtype.itemsize < found.dtype.itemsize:
                self._note(np.isfinite(found) & ~np.isfinite(made), f"{name} is beyond {dtype}")
            return made
        info = np.iinfo(dtype)
        if found.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                self._note(~(np.floor(found) == found), f"{name} must be a whole number")
        self._beyond(name, found, info.min, info.max, f"{name} does not fit {dtype}")
        with np.errstate(invalid="ignore"):
            return found.astype(dtype)

    def text(self, name: str, column: Any) -> TextColumn:
        found = self._array(name, column)
        if isinstance(found, np.ndarray) and not self._is_all_missing():
            raise InvalidRequest(f"{name} must be text", field=name)
        if isinstance(found, np.ndarray):
            return TextColumn.of([""] * self.count)
        made = TextColumn(Texts.from_arrow(found))
        self._note(np.diff(made.texts.offsets) > VALUE_BYTES, NO_TEXT.format(name))
        return made

    def point(self, name: str, column: Any) -> Array:
        made = np.zeros(self.count, POINT)
        doubles = made.view(np.float64).reshape(-1, 2)
        if isinstance(column, (pa.Array, pa.ChunkedArray)):
            column = _pairs(column)
        if isinstance(column, np.ndarray) and column.ndim == 2:
            if column.dtype.kind not in "iuf" or column.shape[1] != 2:
                raise InvalidRequest(NO_POINT.format(name), field=name, shape=column.shape)
            doubles[:] = column
            with np.errstate(invalid="ignore"):
                good = np.asarray((np.abs(doubles) <= (180, 90)).all(axis=1))
            doubles[~good] = 0
            doubles += 0.0  # -0.0 is 0.0
            self._note(~good, NO_POINT.format(name))
            return made
        bad = np.zeros(self.count, np.bool_)
        for row, value in enumerate(column):
            found = point_of(listed(value))
            bad[row] = found is None
            if found is not None:
                doubles[row] = found
        doubles += 0.0
        self._note(bad, NO_POINT.format(name))
        return made

    def time(self, name: str, column: Any) -> NDArray[np.int64]:
        found = self._array(name, column)
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "iufM":
            raise InvalidRequest(
                f"{name} must be times, or seconds since 1970", field=name,
                given=str(found.dtype if isinstance(found, np.ndarray) else found.type),
            )  # fmt: skip
        if found.dtype.kind == "M":
            self._note(np.isnat(found), f"{name} is missing")
            # Compared as whole seconds: finer ones of a far time would not fit their word.
            seconds = found.astype("datetime64[s]").astype(np.int64)
            outside = (seconds < EARLIEST // SECOND) | (seconds >= LATEST // SECOND)
            self._note(outside & ~np.isnat(found), f"{name} is no time from the year 1 to 9892")
            kept = np.where(outside, np.zeros(1, found.dtype), found)
            return kept.astype("datetime64[us]").astype(np.int64)
        low, high = EARLIEST // SECOND, LATEST // SECOND
        with np.errstate(invalid="ignore"):
            outside = ~((found >= low) & (found < high))
        if outside.any():
            self._note(outside, f"{name} is no time in seconds since 1970")
            found = np.where(outside, 0, found)
        if found.dtype.kind == "f":
            whole: NDArray[np.int64] = np.rint(found.astype(np.float64) * SECOND).astype(np.int64)
        else:
            whole = found.astype(np.int64) * SECOND
        return whole


def _pairs(column: Any) -> Any:
    """Points of Arrow as an array of two columns; where they are no pairs of numbers, as values."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.ChunkedArray):  # none
        return []
    kind = column.type
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if any(is_it(kind) for is_it in lists) and not column.null_count:
        numbers = column.flatten()
        sizes = column.value_lengths() if not pa.types.is_fixed_size_list(kind) else None
        pairs = kind.list_size == 2 if sizes is None else bool((np.asarray(sizes) == 2).all())
        if pairs and pa.types.is_floating(numbers.type) and not numbers.null_count:
            return numbers.to_numpy(zero_copy_only=False).reshape(-1, 2)
    return column.to_pylist()


def _is_text(column: pa.Array) -> bool:
    return bool(
        pa.types.is_string(column.type)
        or pa.types.is_large_string(column.type)
        or pa.types.is_string_view(column.type)
    )


def _wide(column: Array) -> Array:
    """Half floats as doubles: what others are compared with is beyond them."""
    return column.astype(np.float64) if column.dtype == np.float16 else column


def _filled(column: pa.Array) -> pa.Array:
    """Without nulls, if it is of a type that rows can have."""
    kind = column.type
    if _is_text(column):
        return column.cast(pa.string()).fill_null("")
    known = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_date,
    )  # fmt: skip
    return column.fill_null(pa.scalar(0, kind)) if any(is_it(kind) for is_it in known) else column
