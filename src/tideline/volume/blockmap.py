"""From logical block to what it holds: the map of one volume, snapshot or clone.

    BlockMap   chunks of 4,096 blocks, made when one of them is written
    Chunk      refs u64     the reference of each block (orders.py); 0: never written, all zero
               sums u32     crc32 of each block
               places u64   where this replica has it: file << 40 | offset; 0: it does not

References and sums are the same on all replicas; places are this one's own. A copy of a map
(snapshot, clone) shares the chunks: whoever writes first copies the chunk (`shared`).

For one thread at a time; the machine's lock keeps readers and writer apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["CHUNK", "BlockMap", "Chunk", "file_of", "offset_of", "place"]

CHUNK = 4096
_SHIFT = 40


def place(file: int, offset: int) -> int:
    """A place as a number.

    >>> file_of(place(3, 100)), offset_of(place(3, 100))
    (3, 100)
    """
    return file << _SHIFT | offset


def file_of(where: int) -> int:
    """The file of a place."""
    return where >> _SHIFT


def offset_of(where: int) -> int:
    """The offset of a place."""
    return where & ((1 << _SHIFT) - 1)


class Chunk:
    """4,096 blocks."""

    __slots__ = ("places", "refs", "shared", "sums")

    def __init__(
        self,
        refs: NDArray[np.uint64] | None = None,
        sums: NDArray[np.uint32] | None = None,
        places: NDArray[np.uint64] | None = None,
    ) -> None:
        self.refs = np.zeros(CHUNK, np.uint64) if refs is None else refs
        self.sums = np.zeros(CHUNK, np.uint32) if sums is None else sums
        self.places = np.zeros(CHUNK, np.uint64) if places is None else places
        self.shared = False

    def copy(self) -> Chunk:
        """One of its own."""
        return Chunk(self.refs.copy(), self.sums.copy(), self.places.copy())


_NONE = Chunk()  # of blocks that were never written; never changed


class BlockMap:
    """The blocks of one volume.

    >>> one = BlockMap()
    >>> one.put(5, [256], [9], [place(1, 32)])
    >>> two = one.copy()
    >>> two.forget(0, 10)
    >>> one.get(5), two.get(5)
    ((256, 9, 1099511627808), (0, 0, 0))
    """

    def __init__(self, chunks: dict[int, Chunk] | None = None) -> None:
        self.chunks = {} if chunks is None else chunks

    def get(self, block: int) -> tuple[int, int, int]:
        """(reference, checksum, place) of a block; zeros when it was never written."""
        chunk = self.chunks.get(block // CHUNK)
        if chunk is None:
            return 0, 0, 0
        at = block % CHUNK
        return int(chunk.refs[at]), int(chunk.sums[at]), int(chunk.places[at])

    def range(self, block: int, count: int) -> tuple[list[int], list[int], list[int]]:
        """References, checksums and places of blocks from `block` on."""
        refs: list[int] = []
        sums: list[int] = []
        places: list[int] = []
        while count:
            chunk = self.chunks.get(block // CHUNK, _NONE)
            start = block % CHUNK
            upto = min(start + count, CHUNK)
            refs += chunk.refs[start:upto].tolist()
            sums += chunk.sums[start:upto].tolist()
            places += chunk.places[start:upto].tolist()
            block, count = block + upto - start, count - (upto - start)
        return refs, sums, places

    def put(self, block: int, refs: list[int], sums: list[int], places: list[int]) -> None:
        """Map blocks from `block` on."""
        done = 0
        while done < len(refs):
            at = (block + done) % CHUNK
            chunk = self._own((block + done) // CHUNK)
            upto = min(len(refs), done + CHUNK - at)
            where = slice(at, at + upto - done)
            chunk.refs[where] = refs[done:upto]
            chunk.sums[where] = sums[done:upto]
            chunk.places[where] = places[done:upto]
            done = upto

    def forget(self, block: int, count: int) -> None:
        """Blocks from `block` on were never written."""
        first, last = block // CHUNK, (block + count - 1) // CHUNK
        for number in [n for n in self.chunks if first <= n <= last]:
            start = max(block - number * CHUNK, 0)
            limit = min(block + count - number * CHUNK, CHUNK)
            if start == 0 and limit == CHUNK:
                del self.chunks[number]
                continue
            chunk = self._own(number)
            for column in (chunk.refs, chunk.sums, chunk.places):
                column[start:limit] = 0

    def _own(self, number: int) -> Chunk:
        chunk = self.chunks.get(number)
        if chunk is None:
            chunk = self.chunks[number] = Chunk()
        elif chunk.shared:
            chunk = self.chunks[number] = chunk.copy()
        return chunk

    def copy(self) -> BlockMap:
        """The same blocks, in a map of its own."""
        for chunk in self.chunks.values():
            chunk.shared = True
        return BlockMap(dict(self.chunks))

    def used(self) -> int:
        """How many blocks are mapped."""
        return sum(int(np.count_nonzero(chunk.refs)) for chunk in self.chunks.values())

    def missing(self) -> Iterator[int]:
        """The blocks that are mapped and not on this replica."""
        for number, chunk in list(self.chunks.items()):
            for at in np.nonzero((chunk.refs != 0) & (chunk.places == 0))[0]:
                yield number * CHUNK + int(at)
