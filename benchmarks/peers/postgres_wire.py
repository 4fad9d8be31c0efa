"""Columns in PostgreSQL's binary format: rows for COPY, arrays there and back.

    COPY   signature | (fields: 2 bytes | (size: 4 bytes | value) ...) ... | -1
    array  dimensions, flags, type, length, first | (size | value) ...

All numbers are big-endian. A null has the size -1 and no value. Whole columns at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Copy", "array_bytes", "numbers_of"]

_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TYPES = {"i8": 20, "f8": 701, "b1": 16}
_TEXT = 25
Bytes = NDArray[np.uint8]


class Copy:
    """Rows as COPY takes them; some columns of numbers may be set anew before they are sent.

    >>> rows = Copy([np.array([1, 2]), pa.array(["a", None])])
    >>> bytes(rows.data[19:38])
    b'\\x00\\x02\\x00\\x00\\x00\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x01a'
    >>> rows.set(0, np.array([7, 8]))
    >>> int(rows.data[32])
    7
    """

    def __init__(self, columns: Sequence[Any]) -> None:
        count = len(columns).to_bytes(2, "big")
        self.data, self._at = _packed(_SIGNATURE, count, columns, b"\xff\xff")

    def set(self, column: int, values: NDArray[np.int64]) -> None:
        """Put other numbers into a column of numbers."""
        self.data[self._at[column][:, None] + np.arange(8)] = _fixed(values)


def array_bytes(values: Any) -> bytes:
    """A column as an array parameter.

    >>> numbers_of(array_bytes(np.array([5, 6]))).tolist()
    [5, 6]
    """
    kind = _TYPES[values.dtype.str[1:]] if isinstance(values, np.ndarray) else _TEXT
    nulls = not isinstance(values, np.ndarray) and values.null_count > 0
    head = np.array([1, int(nulls), kind, len(values), 1], ">i4").tobytes()
    if len(values) == 0:
        return np.array([0, 0, kind], ">i4").tobytes()
    return _packed(head, b"", [values], b"")[0].tobytes()


def numbers_of(data: Any) -> NDArray[np.int64]:
    """An array of int8 without nulls, as it came back; empty for a null."""
    if data is None or len(data) < 20:
        return np.zeros(0, np.int64)
    pairs = np.frombuffer(data, np.dtype([("size", ">i4"), ("value", ">i8")]), offset=20)
    return pairs["value"].astype(np.int64)


def _fixed(values: NDArray[Any]) -> Bytes:
    """A column of numbers as one row of bytes each."""
    big = values.astype(values.dtype.newbyteorder(">"), order="C")
    return big.view(np.uint8).reshape(len(values), values.dtype.itemsize)


def _packed(
    head: bytes, before: bytes, columns: Sequence[Any], tail: bytes
) -> tuple[Bytes, list[NDArray[np.int64]]]:
    """All rows, and where the values of each column begin."""
    rows = len(columns[0])
    texts: dict[int, tuple[Bytes, NDArray[np.int64]]] = {}
    sizes = []
    for number, column in enumerate(columns):
        if isinstance(column, np.ndarray):
            sizes.append(np.full(rows, column.dtype.itemsize, np.int64))
            continue
        data, offsets = _text(column)
        size = np.diff(offsets)
        texts[number] = data, offsets
        there = column.is_valid().to_numpy(zero_copy_only=False)
        sizes.append(np.where(there, size, -1))
    row_size = len(before) + 4 * len(columns) + sum(np.maximum(size, 0) for size in sizes)
    ends = np.cumsum(row_size) + len(head)
    out = np.zeros(int(ends[-1] if rows else len(head)) + len(tail), np.uint8)
    out[: len(head)] = np.frombuffer(head, np.uint8)
    if tail:
        out[-len(tail) :] = np.frombuffer(tail, np.uint8)
    at = ends - row_size
    for offset, byte in enumerate(before):
        out[at + offset] = byte
    at = at + len(before)
    begins = []
    for number, (column, size) in enumerate(zip(columns, sizes, strict=True)):
        out[at[:, None] + np.arange(4)] = _fixed(size.astype(np.int32))
        at = at + 4
        begins.append(at)
        if number in texts:
            data, offsets = texts[number]
            size = np.maximum(size, 0)
            shift = np.repeat(at - offsets[:-1], size)
            out[shift + np.arange(offsets[0], offsets[-1])] = data[offsets[0] : offsets[-1]]
            at = at + size
        else:
            out[at[:, None] + np.arange(column.dtype.itemsize)] = _fixed(column)
            at = at + column.dtype.itemsize
    return out, begins


def _text(column: pa.Array) -> tuple[Bytes, NDArray[np.int64]]:
    """The bytes of a column of texts, and where each begins; nulls are empty."""
    column = column.cast(pa.large_string()).fill_null("")
    _, offsets, data = column.buffers()
    found = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8), found
