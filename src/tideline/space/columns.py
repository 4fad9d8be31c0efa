"""Columns of an Arrow table as arrays, for `encode_many` of every space.

Everything returned is a fresh, writable, contiguous array: a view on an Arrow buffer
is read-only, and numba would compile every kernel once more for those.

Kept apart because it imports pyarrow, which `import tideline` should not wait for.
Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.errors import InvalidRequest
from tideline.space.place import CELL, CIRCLE, POINT, POLYGON, Place, Places
from tideline.space.shapes import Circle

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "MISSING",
    "bytes_of",
    "distinct_places",
    "gathered",
    "map_places",
    "nothing",
    "number_column",
    "text_column",
    "text_places",
    "without_shapes",
]

MISSING = "place is missing: give text in the column place"

MISSING_ON_MAP = "place is missing: give text in the column place, or numbers in lon and lat"


def text_column(table: pa.Table, name: str) -> Any:
    """A text column as one `large_string` array; `None` when the table has none.

    >>> text_column(pa.table({"place": ["a", None]}), "place").to_pylist()
    ['a', None]
    """
    column = _column(table, name)
    if column is None:
        return None
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (text or pa.types.is_string_view(kind) or pa.types.is_null(kind)):
        raise InvalidRequest(f"the column {name} must hold text", type=str(kind))
    # large_string first: joined chunks may pass the 2 GiB that 32-bit offsets can reach
    array = _one_array(column.cast(pa.large_string()))
    if not _is_ascii(array):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidRequest(f"the column {name} must hold valid UTF-8: {error}") from None
    return array


def _is_ascii(array: Any) -> bool:
    """Whether there is nothing wrong with an array: most texts are ASCII, and that is quick."""
    try:
        array.validate()  # its buffers are as long as they must be
    except pa.ArrowInvalid:
        return False
    _, offset_buffer, data_buffer = array.buffers()
    if len(array) == 0 or offset_buffer is None or data_buffer is None:
        return False
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    first, limit = int(offsets[0]), int(offsets[-1])
    if not (offsets[1:] >= offsets[:-1]).all() or not 0 <= first <= limit <= data_buffer.size:
        return False
    return first == limit or int(np.frombuffer(data_buffer, np.uint8)[first:limit].max()) < 128


def number_column(table: pa.Table, name: str) -> tuple[Any, Any] | None:
    """A number column as float64 values and a mask of what is not null.

    >>> values, valid = number_column(pa.table({"lon": [1, None]}), "lon")
    >>> values[0].item(), valid.tolist()
    (1.0, [True, False])
    """
    column = _column(table, name)
    if column is None:
        return None
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (number or pa.types.is_null(kind)):
        raise InvalidRequest(f"the column {name} must hold numbers", type=str(kind))
    array = _one_array(column.cast(pa.float64(), safe=False))
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    values = np.array(array.fill_null(0.0).to_numpy(zero_copy_only=False), dtype=np.float64)
    return values, np.array(valid, dtype=np.bool_)


def bytes_of(array: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes and offsets of a `large_string` or `large_binary` array, from 0.

    >>> data, offsets = bytes_of(pa.array(["x", "ab", "c"], pa.large_string())[1:])
    >>> data.tobytes(), offsets.tolist()
    (b'abc', [0, 2, 3])
    """
    size = len(array)
    _, offset_buffer, data_buffer = array.buffers()
    if size == 0 or offset_buffer is None:
        return np.zeros(1, np.uint8), np.zeros(size + 1, np.int64)
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + size + 1]
    first, limit = int(offsets[0]), int(offsets[-1])
    if first == limit or data_buffer is None:
        return np.zeros(1, np.uint8), offsets - first
    return np.frombuffer(data_buffer, np.uint8)[first:limit].copy(), offsets - first


def text_places(array: Any, bad: dict[int, str]) -> Places:
    """Places whose key is the text itself; the texts of bad rows are left out."""
    if bad:
        drop = np.zeros(len(array), np.bool_)
        drop[list(bad)] = True
        array = pc.if_else(pa.array(drop), pa.scalar("", pa.large_string()), array)
    return without_shapes(*bytes_of(array), bad)


def distinct_places(
    array: Any, encode: Callable[[object], Place]
) -> tuple[list[Place], NDArray[np.int64], dict[int, str]]:
    """Encode every distinct text once: places, the place of each row or -1, bad rows.

    Null is -1 without a reason: only the caller knows whether the row says more.
    """
    coded = array.dictionary_encode()
    codes = np.array(coded.indices.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)
    places: list[Place] = []
    wrong: dict[int, str] = {}
    for code, text in enumerate(coded.dictionary.to_pylist()):
        try:
            places.append(encode(text))
        except InvalidRequest as error:
            places.append(Place(b""))
            wrong[code] = str(error)
    bad: dict[int, str] = {}
    if wrong:
        rows = np.flatnonzero(np.isin(codes, list(wrong)))
        bad = {row: wrong[int(codes[row])] for row in rows.tolist()}
        codes[rows] = -1
    return places, codes, bad


def gathered(places: list[Place], codes: NDArray[np.int64], bad: dict[int, str]) -> Places:
    """One place a row from distinct places without shapes; code -1 is an empty key."""
    keys = pa.array([place.key for place in places] + [b""], pa.large_binary())
    taken = keys.take(pa.array(np.where(codes < 0, len(places), codes)))
    return without_shapes(*bytes_of(taken), bad)


def map_places(
    table: pa.Table,
    rows: int,
    encode: Callable[[object], Place],
    tree: tuple[float, float, float, float, int, int, int],
) -> Places:
    """Places on a map: text or GeoJSON in `place`, or `lon`, `lat` and maybe `radius_m`.

    `tree` is west, south, east, north, cols, rows and depth of the tree of cells. Why a
    row is bad is asked of `encode`, so one row and one call give the same reason.
    """
    from tideline.kernels.geo import point_keys

    lon, has_lon = _numbers(table, "lon", rows)
    lat, has_lat = _numbers(table, "lat", rows)
    radius_m, has_radius = _numbers(table, "radius_m", rows)
    array = text_column(table, "place")
    if array is None:
        array = pa.nulls(rows, pa.large_string())
    named, codes, bad = distinct_places(array, encode)
    has_text = array.is_valid().to_numpy(zero_copy_only=False)

    kinds = np.where(has_radius, CIRCLE, POINT).astype(np.uint8)
    kinds[codes >= 0] = CELL
    for wrong, reason in (
        (~has_text & ~(has_lon & has_lat), MISSING_ON_MAP),
        (has_text & (has_lon | has_lat | has_radius), "give place or lon and lat, not both"),
    ):
        kinds[wrong] = 0
        bad.update(dict.fromkeys(np.flatnonzero(wrong).tolist(), reason))
    kinds[list(bad)] = 0
    given_as_text = kinds == CELL

    text_data, text_offsets = bytes_of(pa.array([place.key for place in named], pa.large_binary()))
    text_shapes = np.array([place[2:6] for place in named], np.float64).reshape(len(named), 4)
    data = np.empty(rows * tree[-1] + 1, np.uint8)
    offsets = np.empty(rows + 1, np.int64)
    shapes = np.zeros((rows, 4))
    failed = np.zeros(rows, np.bool_)
    given = (lon, lat, radius_m, codes, text_data, text_offsets, text_shapes)
    point_keys(*given, *tree, data, offsets, kinds, shapes, failed)
    for row in np.flatnonzero(failed).tolist():
        center = (lon[row].item(), lat[row].item())
        try:
            encode(Circle(center, radius_m[row].item()) if has_radius[row] else center)
        except InvalidRequest as error:
            bad[row] = str(error)
    kinds, corners = _as_named(kinds, np.flatnonzero(given_as_text), named, codes)
    return Places(data[: max(1, offsets[-1])], offsets, kinds, shapes, bad, corners)


def _as_named(
    kinds: NDArray[np.uint8], rows: NDArray[np.int64], named: list[Place], codes: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], dict[int, bytes]]:
    """The kinds of rows that were given as text, which may be GeoJSON, and corners of polygons."""
    if all(place.kind == CELL for place in named):
        return kinds, {}
    kinds[rows] = np.array([place.kind for place in named], np.uint8)[codes[rows]]
    polygons = rows[kinds[rows] == POLYGON].tolist()
    return kinds, {row: named[int(codes[row])].corners for row in polygons}


def nothing(rows: int, reason: str) -> Places:
    """Every row bad, for the same reason."""
    empty = np.zeros(1, np.uint8), np.zeros(rows + 1, np.int64)
    return without_shapes(*empty, dict.fromkeys(range(rows), reason))


def without_shapes(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], bad: dict[int, str]
) -> Places:
    """Places that are their keys."""
    rows = len(offsets) - 1
    return Places(data, offsets, np.zeros(rows, np.uint8), np.zeros((rows, 4)), bad)


def _numbers(table: pa.Table, name: str, rows: int) -> tuple[Any, Any]:
    found = number_column(table, name)
    return (np.zeros(rows), np.zeros(rows, np.bool_)) if found is None else found


def _column(table: pa.Table, name: str) -> Any:
    found = table.schema.get_all_field_indices(name)
    if len(found) > 1:
        raise InvalidRequest("a table must name a column once", column=name)
    return table.column(found[0]) if found else None


def _one_array(column: Any) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], column.type)
    return pa.concat_arrays(column.chunks)
