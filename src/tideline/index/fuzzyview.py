"""Searching for words nearly right, in a window or everywhere: memories and components as places.

    FuzzyAsk    the words with their limits, and the windows, as kernels take them
    FuzzyView   an index at one moment

A place of a memory is a run: its words are looked through by their signatures, and what has them is
held against the windows. A place of a component has pieces, a fence and nodes
(kernels/inverted/window.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index import dictionary
from tideline.index.invertedmemory import InvertedMemory, Shown
from tideline.index.kind import Chunk
from tideline.index.runs import Run
from tideline.index.texts import Texts
from tideline.kernels.inverted import dictionary as words_kernel
from tideline.kernels.inverted import lists
from tideline.kernels.inverted import window as kernel
from tideline.where.tree import Near

if TYPE_CHECKING:
    from tideline.index.fuzzy import FuzzyReader

__all__ = ["FuzzyAsk", "FuzzyView", "everywhere"]

Words = NDArray[np.int64]
Box = tuple[float, float, float, float]
_WORDS_ROOM, _ENTRIES_ROOM = 1024, 4096
_QUERY_WORDS = 6


class FuzzyAsk:
    """Words, of each of which an entry must have one near it; in one of the windows if any."""

    exact = False
    point = False
    __slots__ = ("_held", "_text", "count", "query")

    def __init__(self, asked: Sequence[Near], windows: Sequence[Box] | None, text: str) -> None:
        self._text = text
        self.count = len(asked)
        codes = np.array([dictionary.codes_of(one.word) for one in asked], np.int32)
        lengths = np.array([len(one.word) for one in asked], np.int64)
        limits = np.concatenate([dictionary.limits_of(one) for one in asked])
        boxes = np.array(windows if windows else [], np.float64)
        self._held = (codes, lengths, limits, boxes)
        self.query: Words = np.array(
            [len(asked), len(windows or ()), *map(address_of, self._held)], np.int64
        )

    @property
    def has_windows(self) -> bool:
        """Whether it asks for what is somewhere."""
        return bool(len(self._held[3]))

    def __str__(self) -> str:
        return self._text


class FuzzyView:
    """Memories, then components, as one index."""

    def __init__(self, memories: Sequence[InvertedMemory], readers: Sequence[FuzzyReader]) -> None:
        self.memories, self.readers = list(memories), list(readers)

    def passing(self, filters: Mapping[str, tuple[bytes, bytes]]) -> FuzzyView:
        """The view without the components whose filters miss one of the closed ranges."""
        readers = [reader for reader in self.readers if reader.passes(filters)]
        if len(readers) == len(self.readers):
            return self
        return FuzzyView(self.memories, readers)

    def places(self) -> Iterator[tuple[Words, Any]]:
        """The words of each place, and what must be held while they are used."""
        for memory in self.memories:
            shown = memory.shown
            if shown.near is None:
                shown.near = [_of_run(run, shown) for run in shown.every()]
            yield from shown.near
        for reader in self.readers:
            yield reader.row, reader

    def found(self, ask: FuzzyAsk) -> Iterator[tuple[Words, NDArray[np.int32]]]:
        """In each place, the entries that meet an ask."""
        room, out_room = _WORDS_ROOM, _ENTRIES_ROOM
        scratch = np.empty(kernel.CALL_WORDS, np.int64)
        counts = np.empty((kernel.DEEPEST + 1) * (ask.count + 1), np.int64)
        words = np.empty(ask.count * room, np.int32)
        out, marks = np.empty(out_room, np.int32), np.empty(out_room, np.uint8)
        if ask.has_windows:
            for reader in self.readers:
                reader.turn_lists()
        for row, _held in self.places():
            while True:
                used = kernel.search_fuzzy(
                    address_of(row), address_of(ask.query), address_of(words), room,
                    address_of(out), out_room, address_of(marks), address_of(counts),
                    address_of(scratch),
                )  # fmt: skip
                if used < 0:
                    room = -2 * used
                    words = np.empty(ask.count * room, np.int32)
                elif used > out_room:
                    out_room = 2 * used
                    out, marks = np.empty(out_room, np.int32), np.empty(out_room, np.uint8)
                else:
                    break
            if used:
                yield row, out[:used]

    def search(self, ask: FuzzyAsk, below: int) -> Iterator[Chunk]:
        """The candidates with a seq below `below`, a place at a time."""
        for row, entries in self.found(ask):
            count = len(entries)
            made = np.empty((3, count), np.int64)
            at = address_of(made)
            left = kernel.emit(
                address_of(row), address_of(entries), count, below,
                at, at + 8 * count, at + 16 * count,
            )  # fmt: skip
            if left:
                seqs, ats, sizes = made[:, :left]
                offsets = np.empty(left + 1, np.int64)
                data = np.empty(int(sizes.sum()), np.uint8)
                lists.gather(
                    *map(address_of, (ats, sizes)), left, *map(address_of, (offsets, data))
                )
                yield Chunk(seqs, Texts(offsets, data))


def everywhere(count: int) -> Words:
    """One node that has all entries."""
    node = np.zeros(kernel.N_WORDS, np.int64)
    node[:4] = 0, count, 1, kernel.HERE
    node[kernel.N_BOX :] = np.array([-np.inf, -np.inf, np.inf, np.inf]).view(np.int64)
    return node


def _of_run(run: Run, shown: Shown) -> tuple[Words, Any]:
    """A run of a memory as a place."""
    columns = shown.columns
    base = address_of(columns.texts)
    if run.near is None:
        lengths, signatures, pairs = dictionary.measured(base, run.ats, run.sizes)
        order = np.argsort(lengths, kind="stable").astype(np.int32)
        run.near = order, signatures[order], pairs[order], dictionary.starts_of(lengths)
    order, signatures, pairs, starts = run.near
    row = np.zeros(kernel.F_WORDS, np.int64)
    row[: words_kernel.D_WORDS] = dictionary.row_of(
        base, run.ats, run.sizes, signatures, pairs, starts, order
    )
    row[kernel.F_FIRST], row[kernel.F_POSTINGS] = map(address_of, (run.first, run.entries))
    row[kernel.F_BOXES] = address_of(columns.heads)
    row[kernel.F_SEQS], row[kernel.F_KEY_OFFSETS] = map(
        address_of, (columns.seqs, columns.key_offsets)
    )
    row[kernel.F_KEYS], row[kernel.F_COUNT] = address_of(columns.keys), shown.count
    node = everywhere(shown.count)
    row[kernel.F_NODES], row[kernel.F_NODE_COUNT] = address_of(node), 1
    return row, (run, columns, node)
