"""Many byte strings in two arrays: how keys, values and documents travel.

    offsets  int64[n + 1]    text i is data[offsets[i] : offsets[i + 1]]
    data     uint8[]         may be longer than the last offset, and start before the first

That is Arrow's layout of `large_binary`, so both ways from and to Arrow copy nothing, and a
kernel gets two addresses.

Values; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.addresses import address_of

__all__ = ["Texts"]

Words = NDArray[np.int64]
Octets = NDArray[np.uint8]


class Texts:
    """Byte strings, one after the other.

    >>> texts = Texts.of([b"one", b"", b"three"])
    >>> len(texts.offsets), texts.count, texts[2]
    (4, 3, b'three')
    >>> texts.take([2, 0]).to_list()
    [b'three', b'one']
    """

    __slots__ = ("data", "offsets")

    def __init__(self, offsets: Words, data: Octets) -> None:
        self.offsets = offsets
        self.data = data

    @classmethod
    def of(cls, items: Sequence[bytes]) -> Texts:
        """The items, copied.

        >>> Texts.of([]).count
        0
        """
        offsets = np.zeros(len(items) + 1, np.int64)
        if items:
            lengths = np.fromiter(map(len, items), np.int64, len(items))
            np.cumsum(lengths, out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(items), np.uint8))

    @classmethod
    def from_arrow(cls, array: Any) -> Texts:
        """A text or binary array without nulls; copies nothing but 32-bit offsets.

        >>> Texts.from_arrow(pa.array(["a", "bc"])).to_list()
        [b'a', b'bc']
        """
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(array, pa.ChunkedArray):  # combine_chunks of one too large for one chunk
            array = pa.concat_arrays([chunk.cast(pa.large_binary()) for chunk in array.chunks])
        large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        _, offsets, data = array.buffers()
        if len(array) == 0 or offsets is None:
            return cls(np.zeros(1, np.int64), np.zeros(0, np.uint8))
        numbers: NDArray[Any] = np.frombuffer(offsets, np.int64 if large else np.int32)
        numbers = numbers[array.offset : array.offset + len(array) + 1]
        content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return cls(numbers if large else numbers.astype(np.int64), content)

    def to_arrow(self, kind: Any = None) -> Any:
        """An Arrow array over the same memory: `large_binary`, or `kind`.

        >>> Texts.of([b"x"]).to_arrow(pa.large_string()).to_pylist()
        ['x']
        """
        offsets = np.ascontiguousarray(self.offsets)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(kind or pa.large_binary(), len(offsets) - 1, buffers)

    @classmethod
    def join(cls, parts: Sequence[Texts]) -> Texts:
        """All texts of all parts, in order.

        >>> Texts.join([Texts.of([b"a"]), Texts.of([b"b", b"c"])]).to_list()
        [b'a', b'b', b'c']
        """
        if len(parts) == 1:
            return parts[0]
        data = [part.data[part.offsets[0] : part.offsets[-1]] for part in parts]
        lengths = [np.diff(part.offsets) for part in parts]
        offsets = np.zeros(sum(map(len, lengths)) + 1, np.int64)
        if lengths:
            np.cumsum(np.concatenate(lengths), out=offsets[1:])
        return cls(offsets, np.concatenate(data) if data else np.zeros(0, np.uint8))

    @property
    def count(self) -> int:
        """How many texts."""
        return len(self.offsets) - 1

    @property
    def size_bytes(self) -> int:
        """Bytes of the texts themselves."""
        offsets = self.offsets
        size: int = offsets.item(-1) - offsets.item(0)
        return size

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Of the offsets and of the data, and how many texts: what kernels take."""
        offsets: int = address_of(self.offsets)
        data: int = address_of(self.data)
        return offsets, data, len(self.offsets) - 1

    def __getitem__(self, number: int) -> bytes:
        """Text `number`, counted from 0."""
        return self.data[self.offsets[number] : self.offsets[number + 1]].tobytes()

    def slice(self, first: int, limit: int) -> Texts:
        """The texts [first, limit), in place."""
        return Texts(self.offsets[first : limit + 1], self.data)

    def take(self, rows: Any) -> Texts:
        """Some of them, copied, in that order."""
        index = pa.array(np.asarray(rows, np.int64))
        return Texts.from_arrow(self.to_arrow().take(index))

    def to_list(self) -> list[bytes]:
        """All of them as bytes."""
        whole = self.data[self.offsets[0] : self.offsets[-1]].tobytes()
        ends = (self.offsets - self.offsets[0]).tolist()
        return [whole[a:b] for a, b in pairwise(ends)]
