"""Values of rows that are no numbers: points and texts, as columns beside a run's keys.

    point    numpy's POINT: longitude and latitude, two doubles side by side
    text     `TextColumn`: UTF-8 one after the other, with offsets (texts.py); of rows that still
             come, `TextTail`

A `TextColumn` does what a run does with an array of numpy: it is cut, rows of it are taken, it is
joined with others. In Arrow points are lists of two doubles, texts large strings; neither way
copies what is in a component.

Values; a tail grows only behind the rows that others have been told of, so all of it is safe from
any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.index.texts import Texts

__all__ = [
    "POINT", "TEXT", "TextColumn", "TextTail", "as_arrow", "from_arrow", "joined", "plain_values",
    "room_for",
]  # fmt: skip

POINT: np.dtype[Any] = np.dtype([("lon", "<f8"), ("lat", "<f8")])
TEXT: np.dtype[Any] = np.dtype(object)
_LEAST = 1024


class TextColumn:
    """Texts of rows.

    >>> column = TextColumn.of(["jam", "", "fire"])
    >>> len(column), column[np.array([2, 0])].tolist(), column[1:].tolist()
    (3, ['fire', 'jam'], ['', 'fire'])
    """

    __slots__ = ("texts",)
    dtype = TEXT

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    @classmethod
    def of(cls, items: Sequence[str]) -> TextColumn:
        """The items, copied."""
        return cls(Texts.of([item.encode() for item in items]))

    def __len__(self) -> int:
        return self.texts.count

    def __getitem__(self, rows: Any) -> TextColumn:
        """Rows as a slice, in place; by numbers or a mask, copied."""
        if isinstance(rows, slice):
            start, limit, _ = rows.indices(len(self))
            return TextColumn(self.texts.slice(start, max(start, limit)))
        places = np.asarray(rows)
        if places.dtype == np.bool_:
            places = np.flatnonzero(places)
        return TextColumn(self.texts.take(places))

    @property
    def nbytes(self) -> int:
        """Bytes of it."""
        return self.texts.size_bytes + int(self.texts.offsets.nbytes)

    def copy(self) -> TextColumn:
        """The same in memory of its own, without what is around it."""
        offsets, data = self.texts.offsets, self.texts.data
        return TextColumn(Texts(offsets - offsets[0], data[offsets[0] : offsets[-1]].copy()))

    def tolist(self) -> list[str]:
        """As text."""
        return [data.decode() for data in self.texts.to_list()]


class TextTail:
    """Texts of rows that still come, with room for so many.

    >>> tail = TextTail(4)
    >>> tail.put(0, TextColumn.of(["a", "b"])); tail.put(1, TextColumn.of(["cd"]))
    >>> tail[:2].tolist()
    ['a', 'cd']
    """

    __slots__ = ("_data", "_offsets")
    dtype = TEXT

    def __init__(self, room: int) -> None:
        self._offsets = np.zeros(room + 1, np.int64)
        self._data = np.zeros(_LEAST, np.uint8)

    def put(self, count: int, column: TextColumn) -> None:
        """Write rows behind the first `count`. Whoever reads those has them in either array."""
        more = column.texts
        start, begin = int(self._offsets[count]), int(more.offsets[0])
        used = start + more.size_bytes
        data = self._data
        if used > len(data):
            data = np.zeros(used + used // 2, np.uint8)
            data[:start] = self._data[:start]
        data[start:used] = more.data[begin : begin + more.size_bytes]
        self._data = data
        self._offsets[count + 1 : count + len(column) + 1] = more.offsets[1:] + (start - begin)

    def __getitem__(self, rows: slice) -> TextColumn:
        """The rows up to a number."""
        return TextColumn(Texts(self._offsets[: rows.stop + 1], self._data))

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers."""
        return int(self._data.nbytes + self._offsets.nbytes)


def room_for(dtype: np.dtype[Any], rows: int) -> Any:
    """A column of a tail."""
    return TextTail(rows) if dtype == TEXT else np.empty(rows, dtype)


def joined(parts: Sequence[Any]) -> Any:
    """One column of several.

    >>> joined([TextColumn.of(["a"]), TextColumn.of(["b"])]).tolist()
    ['a', 'b']
    """
    if isinstance(parts[0], TextColumn):
        return TextColumn(Texts.join([part.texts for part in parts]))
    return np.concatenate(parts)


def plain_values(column: Any) -> list[Any]:
    """Values as Python has them: a point is a list of two numbers.

    >>> plain_values(np.array([(2.0, 48.5)], POINT))
    [[2.0, 48.5]]
    """
    if column.dtype == POINT:
        found: list[Any] = _doubles(column).reshape(-1, 2).tolist()
        return found
    listed: list[Any] = column.tolist()
    return listed


def as_arrow(column: Any, missing: NDArray[np.bool_] | None = None) -> Any:
    """A column as Arrow has it; null where the mask says so."""
    if isinstance(column, TextColumn):
        return column.texts.to_arrow(pa.large_string())
    if column.dtype == TEXT:  # of rows that were looked up: some are not there
        return pa.array(column, pa.large_string(), mask=missing)
    if column.dtype == POINT:
        mask = None if missing is None else pa.array(missing)
        return pa.FixedSizeListArray.from_arrays(pa.array(_doubles(column)), 2, mask=mask)
    return pa.array(np.ascontiguousarray(column), mask=missing)


def from_arrow(column: pa.Array) -> Any:
    """The column of a component, in place."""
    if pa.types.is_large_string(column.type):
        return TextColumn(Texts.from_arrow(column))
    if pa.types.is_fixed_size_list(column.type):
        return column.values.to_numpy(zero_copy_only=True).view(POINT)
    return column.to_numpy(zero_copy_only=True)


def _doubles(column: NDArray[Any]) -> NDArray[np.float64]:
    return np.ascontiguousarray(column).view(np.float64)
