"""What a caller appends, as arrays: an Arrow table or batch, rows as dicts, or columns.

    table      pa.Table, pa.RecordBatch: no Python object a row
    columns    {"vid": array, "vel": array}: the same for numpy
    rows       [{"vid": 7, "vel": 55}, ...], or one of them

Rows that cannot be stored come back with the reason; the others go on. What is wrong with the
whole, a column that is missing or of another type, raises `InvalidRequest` before anything is
stored.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.clock import EARLIEST, LATEST, SECOND, to_us
from tideline.errors import InvalidRequest
from tideline.index.packed import Column
from tideline.index.texts import Texts
from tideline.index.values import POINT, TEXT, TextColumn
from tideline.stream.settings import CLOCK, OTHERS, Settings
from tideline.where.geo import point_of

__all__ = ["Incoming", "read"]

Array = NDArray[Any]
_TEXT_BYTES = 256
_VALUE_BYTES = 4096
_NO_POINT = "{} must be a point: [longitude, latitude], or one of GeoJSON"
_NO_TEXT = f"{{}} must be text of at most {_VALUE_BYTES} bytes"
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_MISSING = object()


class Incoming(NamedTuple):
    """Rows that can be stored, by column; `rejected` are the others, by number."""

    keys: list[Column]
    values: list[Any]
    times: NDArray[np.int64] | None
    """When each happened; None: by the clock."""
    numbers: NDArray[np.int64] | None
    """The number of each row; None: 0, 1, 2 and so on."""
    rejected: dict[int, str]
    types: tuple[str, ...]
    """Of each key field: "int" or "text"."""

    @property
    def total(self) -> int:
        """How many can be stored."""
        return len(self.keys[0])

    def number_of(self, place: int) -> int:
        """The number that the caller's row has, of one that can be stored."""
        return place if self.numbers is None else int(self.numbers[place])

    def place_of(self, number: int) -> int:
        """How many that can be stored come before the caller's row of this number."""
        if self.numbers is None:
            return min(number, self.total)
        return int(np.searchsorted(self.numbers, number))

    def kept(self, mask: NDArray[np.bool_], why: str) -> Incoming:
        """Without the rows where the mask is false, which are rejected."""
        if mask.all():
            return self
        numbers = np.arange(self.total) if self.numbers is None else self.numbers
        rejected = {**self.rejected, **dict.fromkeys(numbers[~mask].tolist(), why)}
        return self._only(np.flatnonzero(mask), numbers, rejected)

    def _only(self, places: Array, numbers: Array, rejected: dict[int, str]) -> Incoming:
        keys = [_pick(column, places) for column in self.keys]
        values = [value[places] for value in self.values]
        times = None if self.times is None else self.times[places]
        return Incoming(keys, values, times, numbers[places], rejected, self.types)


def _pick(column: Column, places: Array) -> Column:
    if isinstance(column, list):
        return [column[n] for n in places.tolist()]
    return column[places]


def read(given: Any, settings: Settings) -> Incoming:
    """Whatever is appended, as arrays.

    >>> from tideline.stream.settings import given as declared
    >>> options = {"span_s": 60, "key": ("vid",), "values": {"vel": "int32"}}
    >>> found = read([{"vid": 7, "vel": 55}, {"vel": 1}], declared("cars", [], options))
    >>> found.keys[0].tolist(), found.values[0].tolist(), found.rejected
    ([7], [55], {1: 'vid is missing'})
    """
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        columns = {name: given.column(name) for name in _wanted(settings, given.column_names)}
        return _of_columns(columns, settings)
    if isinstance(given, Mapping):
        points = {name for name, kind in settings.values if kind == "point"}
        if not any(_is_column(each) for name, each in given.items() if name not in points):
            return _of_rows([given], settings)  # a point is a list in a row, too
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
        return _of_columns(columns, settings)
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InvalidRequest(
            "append takes a table, rows as dicts, or columns by name", given=type(given).__name__
        )
    return _of_rows(list(given), settings)


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


def _of_columns(columns: Mapping[str, Any], settings: Settings) -> Incoming:
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
                np.array([_too_long(text) for text in texts], bool),
                f"{name} must be text of at most {_TEXT_BYTES} bytes",
            )
            return texts, "text"
        if kind == "text" and self.count and not self._is_all_missing():
            raise InvalidRequest(f"{name} must be text", field=name)
        if kind == "text":
            return [""] * self.count, "text"
        if found.dtype.kind == "u" and found.dtype.itemsize == 8:
            self._note(found > np.uint64(_MOST), f"{name} is over {_MOST}")
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
        self._note(np.diff(made.texts.offsets) > _VALUE_BYTES, _NO_TEXT.format(name))
        return made

    def point(self, name: str, column: Any) -> Array:
        made = np.zeros(self.count, POINT)
        doubles = made.view(np.float64).reshape(-1, 2)
        if isinstance(column, (pa.Array, pa.ChunkedArray)):
            column = _pairs(column)
        if isinstance(column, np.ndarray) and column.ndim == 2:
            if column.dtype.kind not in "iuf" or column.shape[1] != 2:
                raise InvalidRequest(_NO_POINT.format(name), field=name, shape=column.shape)
            doubles[:] = column
            with np.errstate(invalid="ignore"):
                good = np.asarray((np.abs(doubles) <= (180, 90)).all(axis=1))
            doubles[~good] = 0
            doubles += 0.0  # -0.0 is 0.0
            self._note(~good, _NO_POINT.format(name))
            return made
        bad = np.zeros(self.count, np.bool_)
        for row, value in enumerate(column):
            found = point_of(_listed(value))
            bad[row] = found is None
            if found is not None:
                doubles[row] = found
        doubles += 0.0
        self._note(bad, _NO_POINT.format(name))
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


def _listed(value: Any) -> Any:
    """A tuple or an array of two as a list; numbers of numpy as Python's."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value


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


def _too_long(text: str, most: int = _TEXT_BYTES) -> bool:
    if text.isascii():
        return len(text) > most
    try:
        return len(text.encode()) > most
    except UnicodeEncodeError:
        return True


def _of_rows(rows: list[Any], settings: Settings) -> Incoming:
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
        found = point_of(_listed(value))
        if found is None:
            raise ValueError(_NO_POINT.format(name))
        return found[0] + 0.0, found[1] + 0.0
    if not isinstance(value, str) or _too_long(value, _VALUE_BYTES):
        raise ValueError(_NO_TEXT.format(name))
    return value


def _key(name: str, value: Any, kind: str, declared: tuple[int, int] | None) -> Any:
    if value is _MISSING or value is None:
        raise ValueError(f"{name} is missing")
    if kind == "text":
        if not isinstance(value, str) or _too_long(value):
            raise ValueError(f"{name} must be text of at most {_TEXT_BYTES} bytes")
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number")
    low, high = declared or (_LEAST, _MOST)
    if not low <= value <= high:
        raise ValueError(f"{name} is not {low} to {high}")
    return int(value)


def _number(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    if value is _MISSING or value is None:
        raise ValueError(f"{name} is missing")
    value = _plain(value)
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


def _plain(value: Any) -> Any:
    """A scalar of numpy as Python's: those compare with whole numbers exactly."""
    if isinstance(value, np.floating):
        return float(value)
    return int(value) if isinstance(value, np.integer) else value


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
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a time, or seconds since 1970")
    if not EARLIEST // SECOND <= value < LATEST // SECOND:
        raise ValueError(f"{name} is no time in seconds since 1970")
    return round(value * SECOND) if isinstance(value, float) else value * SECOND
