"""Events and subscriptions as Arrow tables: what `scan` and `journal` give.

    rows (packed records, or frames of the log) -> kernel -> columns -> table

Places come back as they were given: a text in `place`, a point in `lon` and `lat`, a
circle with `radius_m`, a box in `west`, `south`, `east` and `north`, a polygon as GeoJSON in
`place`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.channel.codec import read_rows
from tideline.clock import FOREVER
from tideline.kernels import columns as kernel
from tideline.kernels import layout as at
from tideline.space import Space
from tideline.space.place import BOX, CELLS, CIRCLE, FLAT, POINT, POLYGON
from tideline.space.plain import to_plain
from tideline.space.polygon import from_corners

__all__ = ["Columns", "Words", "count_rows", "read_columns", "records_table", "schema_of"]

Words = NDArray[np.int64]
_TIME = pa.timestamp("us", "UTC")
_LATEST = 253_402_300_800_000_000  # the year 10000: later than any datetime
_SHAPES = ["lon", "lat", "radius_m", "west", "south", "east", "north"]


@dataclass
class Columns:
    """Rows of one kind as columns."""

    flags: Words
    seq: Words
    now: Words
    first: Words
    until: Words
    shape_kind: Words
    shapes: NDArray[np.float64]
    keys: pa.Array
    ids: pa.Array
    users: pa.Array
    texts: pa.Array
    corners: dict[int, bytes]
    """Of the rows that are at polygons."""
    starts: Words
    """Where the rows begin."""


def count_rows(words: Words, kind: int) -> int:
    """How many of the rows are of a kind."""
    return int(kernel.measure(address_of(words), len(words), kind, np.empty(4, np.int64)))


def read_columns(words: Words, kind: int) -> Columns:
    """The rows of a kind, of rows that lie end to end."""
    sizes = np.empty(4, np.int64)
    n = int(kernel.measure(address_of(words), len(words), kind, sizes))
    numbers = np.empty((7, n), np.int64)
    shapes = np.empty((4, n), np.float64)
    parts: list[Any] = []
    for size in sizes.tolist():
        parts += [np.zeros(n + 1, np.int64), np.empty(size + 1, np.uint8)]
    kernel.fill(address_of(words), len(words), kind, numbers, shapes, *parts)
    texts = [
        pa.Array.from_buffers(
            pa.large_binary(), n, [None, pa.py_buffer(parts[i]), pa.py_buffer(parts[i + 1])]
        )
        for i in range(0, 8, 2)
    ]
    flags, seq, now, first, until, shape_kind, starts = numbers
    keys, ids, users, bodies = texts
    corners = {}
    for row in np.flatnonzero(shape_kind == POLYGON).tolist():
        start = int(starts[row])
        corners[row] = read_rows(words[start : start + (int(words[start]) >> 32)])[0].place.corners
    return Columns(
        flags, seq, now, first, until, shape_kind, shapes, keys, ids, users, bodies, corners, starts
    )


def schema_of(kind: str, space: Space) -> pa.Schema:
    """The columns of a table of `events` or `subscriptions`.

    >>> from tideline import Flat
    >>> schema_of("events", Flat()).names
    ['id', 'place', 'at', 'until', 'body', 'seq']
    """
    places = [("place", pa.string())]
    if space.mode == CELLS:
        places += [(name, pa.float64()) for name in _SHAPES]
    if kind == "events":
        rest = [("at", _TIME), ("until", _TIME), ("body", pa.string())]
        return pa.schema([("id", pa.string()), *places, *rest, ("seq", pa.int64())])
    rest = [("since", _TIME), ("until", _TIME), ("where", pa.string()), ("unseen", pa.bool_())]
    return pa.schema(
        [("id", pa.string()), ("user", pa.string()), *places, *rest, ("seq", pa.int64())]
    )


def records_table(kind: str, found: Columns, space: Space) -> pa.Table:
    """Rows of one kind as the table of `events` or `subscriptions`."""
    schema = schema_of(kind, space)
    named: dict[str, Any] = {
        "id": found.ids.cast(pa.large_string()),
        "place": _place_texts(found, space),
        "until": _times(found.until),
        "seq": found.seq,
    }
    if space.mode == CELLS:
        named.update(_shape_columns(found))
    if kind == "events":
        named["at"] = _times(found.first)
        named["body"] = found.texts.cast(pa.large_string())
    else:
        named["user"] = found.users.cast(pa.large_string())
        named["since"] = _times(found.first)
        texts = found.texts.cast(pa.large_string())
        plain = pa.array(found.flags & at.R_COND == 0)
        named["where"] = pa.compute.if_else(plain, pa.scalar(None, pa.large_string()), texts)
        named["unseen"] = found.flags & at.R_UNSEEN != 0
    arrays = [
        column.cast(field.type) if isinstance(column, pa.Array) else pa.array(column, field.type)
        for field, column in ((field, named[field.name]) for field in schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _times(values: Words) -> pa.Array:
    """Times; one that never comes is null."""
    missing = (values >= min(FOREVER, _LATEST)) | (values <= -_LATEST)
    return pa.array(values, pa.int64(), mask=missing).cast(_TIME)


def _place_texts(found: Columns, space: Space) -> pa.Array:
    if space.mode == FLAT:
        return found.keys.cast(pa.large_string())
    coded = found.keys.dictionary_encode()
    # A shape's key is only the cell it lies in: the text would say too much.
    shaped = pa.array(np.isin(found.shape_kind, (POINT, CIRCLE, BOX, POLYGON)))
    named = pa.compute.if_else(shaped, pa.scalar(None, pa.int32()), coded.indices)
    wanted = set(named.drop_null().to_pylist())
    texts = [
        str(space.decode(key, 0, 0.0, 0.0, 0.0, 0.0)) if code in wanted else None
        for code, key in enumerate(coded.dictionary.to_pylist())
    ]
    names = pa.array(texts, pa.large_string()).take(named)
    if not found.corners:
        return names
    listed = names.to_pylist()
    for row, corners in found.corners.items():
        listed[row] = msgspec.json.encode(to_plain(from_corners(corners))).decode()
    return pa.array(listed, pa.large_string())


def _shape_columns(found: Columns) -> dict[str, pa.Array]:
    kinds, shapes = found.shape_kind, found.shapes
    round_ = (kinds == POINT) | (kinds == CIRCLE)
    columns = {}
    for i, name in enumerate(["lon", "lat"]):
        columns[name] = pa.array(shapes[i], mask=~round_)
    columns["radius_m"] = pa.array(shapes[2], mask=kinds != CIRCLE)
    for i, name in enumerate(["west", "south", "east", "north"]):
        columns[name] = pa.array(shapes[i], mask=kinds != BOX)
    return columns
