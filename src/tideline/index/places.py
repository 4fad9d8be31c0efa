"""Places of documents as values of an index: out of JSON, and as bytes.

    point       lon, lat                          16 bytes, float64
    geometry    west, south, east, north | outline     32 bytes and more: space/outline.py

A document has an entry for each geometry that `$geoWithin` and its like look at (where/nearest.py
`lying_at`): one at a plain field, several on a path through arrays, each once. What is no geometry
has no entry.

Points are read from the texts by a kernel; what it leaves open is decoded.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index.kind import Entries
from tideline.index.texts import Texts
from tideline.kernels.spatial import texts as kernel
from tideline.space.outline import Outline, from_bytes, outline_of
from tideline.where.geo import point_of
from tideline.where.nearest import lying_at
from tideline.where.paths import Paths

__all__ = ["POINT_BYTES", "decode_value", "encode_value", "extract_places"]

POINT_BYTES, BOX_BYTES = 16, 32
_POINT, _BOX = struct.Struct("<2d"), struct.Struct("<4d")
_FEW = 4  # documents that are decoded sooner than a scan is set up
_ROOM = 64  # bytes that a kernel may read past the end of a text

Words = NDArray[np.int64]


def encode_value(value: object) -> bytes | None:
    """The bytes of a geometry, or None for what is none.

    >>> len(encode_value([1, 2])), encode_value("here")
    (16, None)
    """
    point = point_of(value)
    if point is not None:
        return _POINT.pack(point[0] + 0.0, point[1] + 0.0)
    found = outline_of(value) if type(value) is dict else None
    if found is None:
        return None
    return _BOX.pack(*found.box) + found.numbers.tobytes()


def decode_value(data: bytes) -> tuple[float, float] | Outline:
    """The point or the geometry that was encoded.

    >>> decode_value(encode_value([1, 2]))
    (1.0, 2.0)
    """
    if len(data) == POINT_BYTES:
        lon, lat = _POINT.unpack(data)
        return lon, lat
    return from_bytes(data[BOX_BYTES:])


def extract_places(docs: Texts, fields: Sequence[str]) -> list[Entries]:
    """The entries of several fields; an empty text has none.

    >>> [found] = extract_places(Texts.of([b'{"at": [1, 2]}', b'{"at": "x"}']), ["at"])
    >>> found.row.tolist(), decode_value(found.values[0])
    ([0], (1.0, 2.0))
    """
    if docs.count <= _FEW:
        rows = [row for row in range(docs.count) if docs[row]]
        return [_decoded(docs, rows, field) for field in fields]
    return [_scanned(docs, field) for field in fields]


def _decoded(docs: Texts, rows: Sequence[int], field: str) -> Entries:
    path = tuple(field.split("."))
    found: list[int] = []
    values: list[bytes] = []
    for row in rows:
        document = msgspec.json.decode(docs[row])
        each = (encode_value(value) for value in lying_at(document, path))
        once = dict.fromkeys(value for value in each if value is not None)
        found += [row] * len(once)
        values += once
    return Entries(np.array(found, np.int64), Texts.of(values))


def _scanned(docs: Texts, field: str) -> Entries:
    paths, nodes = _paths(field)
    count = docs.count
    tags, cells = np.empty((2, len(paths.paths), count), np.int64)
    paths.read(docs.data, docs.offsets, tags, cells)
    points, kinds = np.empty((count, 2)), np.empty(count, np.int64)
    where = np.array([address_of(each[node]) for node in nodes for each in (tags, cells)], np.int64)
    # The kernel reads a little past a number. For the last rows it gets a copy with room behind, at
    # an address that makes the same offsets right.
    safe = int(np.searchsorted(docs.offsets[1:], len(docs.data) - _ROOM, side="right"))
    begin, end = int(docs.offsets[safe]), int(docs.offsets[count])
    tail = np.zeros(end - begin + _ROOM, np.uint8)
    tail[: end - begin] = docs.data[begin:end]
    for base, first, limit in (
        (address_of(docs.data), 0, safe), (address_of(tail) - begin, safe, count)
    ):  # fmt: skip
        if first < limit:
            kernel.read_points(
                base, base + end, first, limit, address_of(where), address_of(points),
                address_of(kinds),
            )  # fmt: skip
    plain = np.flatnonzero(kinds == kernel.POINT)
    values = points if len(plain) == count else points[plain]
    ends = np.arange(len(plain) + 1, dtype=np.int64) * POINT_BYTES
    found = Entries(plain, Texts(ends, values.view(np.uint8).reshape(-1)))
    slow = np.flatnonzero(kinds == kernel.OPEN)
    slow = slow[docs.offsets[slow + 1] > docs.offsets[slow]]
    if not len(slow):
        return found
    more = _decoded(docs, slow.tolist(), field)
    if not len(more.row):
        return found
    rows = np.concatenate([found.row, more.row])
    order = np.argsort(rows, kind="stable")
    return Entries(rows[order], Texts.join([found.values, more.values]).take(order))


@lru_cache(maxsize=64)
def _paths(field: str) -> tuple[Paths, tuple[int, int, int]]:
    path = tuple(field.split("."))
    wanted = (path, (*path, "type"), (*path, "coordinates"))
    paths = Paths(wanted)
    return paths, (paths.numbers[wanted[0]], paths.numbers[wanted[1]], paths.numbers[wanted[2]])
