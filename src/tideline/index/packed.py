"""Keys of several fields as one sortable value: numbers in 64 bits, or bytes.

    Packed    whole numbers, each in as many bits as its range needs, the first field highest;
              32 bits in all or fewer are stored as uint32, more as int64
    Spelled   where that is over 64 bits, or a field is text: bytes that sort as the keys do, as an
              array of numpy's fixed-length bytes, filled up with zeros

    spelled := field*        whole number: 8 bytes, big end first, the sign bit turned
                             text: UTF-8 with 00 as 01 01 and 01 as 01 02, then 00

Invariants:
1. Both orders are that of the keys as tuples, so keys that begin alike stand together.
2. A wider codec of the same fields gives other numbers in the same order: what was sorted stays so.

What a codec is, is data (`to_json`); values, safe from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Codec", "Column", "Packed", "Spelled", "codec_from_json", "fitting"]

Column: TypeAlias = NDArray[Any] | list[str]
"""Values of one field: int64, or texts."""
Bound = tuple[Any, ...] | None
_SIGN = 1 << 63
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_END = b"\xff" * 136
"""After every key: only numbers have this byte at their begin, and there are at most 16."""


class Packed:
    """Numbers side by side in one word.

    >>> codec = Packed([(0, 15), (0, 99)])
    >>> codec.bits, codec.dtype
    (11, dtype('uint32'))
    >>> keys = codec.pack([np.array([1, 1, 2]), np.array([7, 99, 0])])
    >>> keys.tolist(), [column.tolist() for column in codec.unpack(keys)]
    ([135, 227, 256], [[1, 1, 2], [7, 99, 0]])
    >>> codec.between((1,), (2,)), codec.beginning((1,)), codec.beginning((99,))
    ((128, 255), (128, 255), None)
    """

    is_packed = True

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self.ranges = [(int(low), int(high)) for low, high in ranges]
        self._bits = [(high - low).bit_length() for low, high in self.ranges]
        self.bits = sum(self._bits)
        self._bias = _SIGN if self.bits == 64 else 0
        self.dtype: np.dtype[Any] = np.dtype(np.uint32 if self.bits <= 32 else np.int64)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and self.ranges == other.ranges

    __hash__ = None  # type: ignore[assignment]

    def pack(self, columns: Sequence[Column]) -> NDArray[Any]:
        """Keys of values within the ranges."""
        work = np.uint32 if self.bits <= 32 else np.uint64
        keys: NDArray[Any] = np.zeros(len(columns[0]), work)
        for column, (low, _), bits in zip(columns, self.ranges, self._bits, strict=True):
            given = np.asarray(column)
            part = given.astype(work) if low == 0 else (given.astype(np.int64) - low).astype(work)
            if bits < keys.itemsize * 8:
                np.left_shift(keys, work(bits), out=keys)
                np.bitwise_or(keys, part, out=keys)
            else:
                keys = part
        if self._bias:
            keys = keys ^ np.uint64(_SIGN)
        return keys if self.bits <= 32 else keys.view(np.int64)

    def unpack(self, keys: NDArray[Any]) -> list[Column]:
        """The values of keys, by field."""
        rest = keys if keys.dtype == np.uint32 else keys.view(np.uint64)
        if self._bias:
            rest = rest ^ np.uint64(_SIGN)
        work = rest.dtype.type
        found: list[Column] = []
        for (low, _), bits in zip(reversed(self.ranges), reversed(self._bits), strict=True):
            if bits < rest.itemsize * 8:
                part = (rest & work((1 << bits) - 1)).astype(np.int64)
                rest = rest >> work(bits)
            else:
                part = rest.astype(np.int64)
            found.append(part + low if low else part)
        return found[::-1]

    def fits(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Whether values of these ranges can be packed."""
        own = zip(self.ranges, ranges, strict=True)
        return all(low <= least and most <= high for (low, high), (least, most) in own)

    def _place(self, bound: Sequence[Any]) -> int:
        """Of all keys that could be, how many come before a beginning of one."""
        place, left = 0, self.bits
        for value, (low, high), bits in zip(bound, self.ranges, self._bits, strict=False):
            left -= bits
            if value < low:
                return place
            if value > high:
                return place + (1 << (left + bits))
            place += (value - low) << left
        return place

    def beginning(self, prefix: Sequence[Any]) -> tuple[int, int] | None:
        """The least and the greatest key that begins like this; None: there can be none."""
        for value, (low, high) in zip(prefix, self.ranges, strict=False):
            if not low <= value <= high:
                return None
        left = sum(self._bits[len(prefix) :])
        first = self._place(prefix)
        return self._closed(first, first + (1 << left))

    def between(self, low: Bound, high: Bound) -> tuple[int, int] | None:
        """The least and the greatest key in [low, high); None at an end is no limit."""
        first = 0 if low is None else self._place(low)
        return self._closed(first, 1 << self.bits if high is None else self._place(high))

    def _closed(self, first: int, limit: int) -> tuple[int, int] | None:
        return (first - self._bias, limit - 1 - self._bias) if first < limit else None

    def to_json(self) -> dict[str, Any]:
        """For a manifest or a frame."""
        return {"ranges": [list(each) for each in self.ranges]}


class Spelled:
    """Bytes in the order of the keys; `types` has "int" or "text" for each field.

    >>> codec = Spelled(["text", "int"])
    >>> keys = codec.pack([["A1", "A", "B"], np.array([-1, 5, 5])])
    >>> np.argsort(keys).tolist(), codec.unpack(keys)[0]
    ([1, 0, 2], ['A1', 'A', 'B'])
    >>> codec.beginning(("A",))
    (b'A\\x00', b'A\\x01')
    """

    is_packed = False
    dtype: np.dtype[Any] = np.dtype("S8")

    def __init__(self, types: Sequence[str]) -> None:
        self.types = list(types)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spelled) and self.types == other.types

    __hash__ = None  # type: ignore[assignment]

    def pack(self, columns: Sequence[Column]) -> NDArray[Any]:
        """Keys of values."""
        if "text" not in self.types:
            words = np.stack([np.asarray(column, np.int64) for column in columns], axis=1)
            big = (words.view(np.uint64) ^ np.uint64(_SIGN)).astype(">u8")
            return np.ascontiguousarray(big).view(f"S{8 * len(self.types)}").ravel()
        spelled = [
            list(map(_text, column))
            if kind == "text"
            else list(map(_number, np.asarray(column).tolist()))
            for kind, column in zip(self.types, columns, strict=True)
        ]
        rows = [b"".join(parts) for parts in zip(*spelled, strict=True)]
        width = max((len(row) + 7 & ~7 for row in rows), default=8)
        return np.array(rows, dtype=f"S{width}")

    def unpack(self, keys: NDArray[Any]) -> list[Column]:
        """The values of keys, by field."""
        if "text" not in self.types:
            width = 8 * len(self.types)
            full = np.ascontiguousarray(keys.astype(f"S{width}"))
            words = full.view(">u8").reshape(-1, len(self.types)).astype(np.uint64)
            words ^= np.uint64(_SIGN)
            return [words[:, n].view(np.int64).copy() for n in range(len(self.types))]
        found: list[list[Any]] = [[] for _ in self.types]
        for row in keys.tolist():
            at = 0
            for kind, column in zip(self.types, found, strict=True):
                if kind == "text":
                    end = row.find(b"\0", at)
                    end = len(row) if end < 0 else end  # zeros at the end were stripped
                    column.append(_read_text(row[at:end]))
                    at = end + 1
                else:
                    piece = row[at : at + 8].ljust(8, b"\0")
                    column.append(int.from_bytes(piece, "big") - _SIGN)
                    at += 8
        return [
            column if kind == "text" else np.array(column, np.int64)
            for kind, column in zip(self.types, found, strict=True)
        ]

    def _spell(self, values: Sequence[Any]) -> bytes:
        return b"".join(
            _text(value) if kind == "text" else _number(value)
            for kind, value in zip(self.types, values, strict=False)
        )

    def beginning(self, prefix: Sequence[Any]) -> tuple[bytes, bytes] | None:
        """Where the keys that begin like this start, and where they end."""
        for kind, value in zip(self.types, prefix, strict=False):
            if kind == "int" and not _LEAST <= value <= _MOST:
                return None
        low = self._spell(prefix)
        return low, _after(low)

    def between(self, low: Bound, high: Bound) -> tuple[bytes, bytes] | None:
        """The keys in [low, high); None at an end is no limit."""
        first = b"" if low is None else self._edge(low)
        limit = _END if high is None else self._edge(high)
        return (first, limit) if first < limit else None

    def _edge(self, bound: Sequence[Any]) -> bytes:
        spelled = b""
        for kind, value in zip(self.types, bound, strict=False):
            if kind == "int" and value > _MOST:
                return _after(spelled)
            if kind == "int" and value < _LEAST:
                return spelled
            spelled += _text(value) if kind == "text" else _number(value)
        return spelled

    def to_json(self) -> dict[str, Any]:
        """For a manifest or a frame."""
        return {"types": self.types}


Codec: TypeAlias = Packed | Spelled


def codec_from_json(value: Any) -> Codec:
    """The codec that `to_json` described.

    >>> codec_from_json({"types": ["int"]}).types
    ['int']
    """
    if "types" in value:
        return Spelled(value["types"])
    return Packed([(low, high) for low, high in value["ranges"]])


def fitting(types: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Codec:
    """The codec for fields of these types; `ranges` are those of the numbers' values.

    >>> fitting(["int"], [(0, 9)]).bits, fitting(["int"] * 2, [(0, 2**60)] * 2).types
    (4, ['int', 'int'])
    """
    if "text" in types or sum((high - low).bit_length() for low, high in ranges) > 64:
        return Spelled(types)
    return Packed(ranges)


def _number(value: int) -> bytes:
    return (value + _SIGN).to_bytes(8, "big")


def _text(value: str) -> bytes:
    raw = value.encode()
    if b"\0" in raw or b"\1" in raw:
        raw = raw.replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")
    return raw + b"\0"


def _read_text(raw: bytes) -> str:
    if b"\1" in raw:
        raw = raw.replace(b"\1\1", b"\0").replace(b"\1\2", b"\1")
    return raw.decode()


def _after(low: bytes) -> bytes:
    """The first bytes after everything that begins so."""
    left = low.rstrip(b"\xff")
    return left[:-1] + bytes([left[-1] + 1]) if left else _END
