"""Runs of postings: the Python side of kernels/inverted/runs.py.

A `Run` owns its columns and never changes, so any thread may read it. `ats` are where the bytes of
a token are: an offset into the texts of a memory, or an address in a component.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.kernels.inverted import runs as kernel

__all__ = ["Run", "Tokens", "make", "merged", "remapped"]

Words = NDArray[np.int64]
Halves = NDArray[np.int32]
_COLUMNS = (
    (kernel.R_HASHES, "hashes"), (kernel.R_FIRST, "first"), (kernel.R_ENTRIES, "entries"),
    (kernel.R_POSITIONS, "positions"), (kernel.R_ATS, "ats"), (kernel.R_SIZES, "sizes"),
)  # fmt: skip


class Run:
    """Tokens sorted by hash, and the postings of each."""

    __slots__ = ("ats", "entries", "first", "hashes", "near", "positions", "row", "sizes")

    def __init__(
        self, hashes: Words, first: Words, entries: Halves, positions: Halves, ats: Words,
        sizes: Halves,
    ) -> None:  # fmt: skip
        self.hashes, self.first, self.ats, self.sizes = hashes, first, ats, sizes
        self.entries, self.positions = entries, positions
        self.near: Any = None
        """What a search for near words has found out about the tokens (index/fuzzyview.py)."""
        self.row: Words = np.zeros(kernel.R_WORDS, np.int64)
        self.row[kernel.R_TOKENS] = len(hashes)
        for place, name in _COLUMNS:
            self.row[place] = address_of(getattr(self, name))

    @classmethod
    def room(cls, tokens: int, postings: int) -> Run:
        """A run to be filled."""
        return cls(
            np.empty(tokens, np.int64), np.empty(tokens + 1, np.int64),
            np.empty(postings, np.int32), np.empty(postings, np.int32),
            np.empty(tokens, np.int64), np.empty(tokens, np.int32),
        )  # fmt: skip

    def cut(self) -> Run:
        """The run that was filled, without the room that is left."""
        tokens = int(self.row[kernel.R_TOKENS])
        postings = int(self.first[tokens])
        # A part that is much smaller than its room is copied: the room is given back.
        parts: Any = [
            part[:size].copy() if 2 * size < len(part) else part[:size]
            for part, size in (
                (self.hashes, tokens), (self.first, tokens + 1), (self.entries, postings),
                (self.positions, postings), (self.ats, tokens), (self.sizes, tokens),
            )
        ]  # fmt: skip
        return Run(*parts)

    @property
    def postings(self) -> int:
        """How many postings."""
        return len(self.entries)


class Tokens:
    """Room for tokens as they come: what `kernels.inverted.tokens.tokenise` fills."""

    __slots__ = ("ats", "entries", "hashes", "positions", "sizes")

    def __init__(self, room: int) -> None:
        self.hashes, self.ats = np.empty(room, np.int64), np.empty(room, np.int64)
        self.entries, self.positions, self.sizes = (np.empty(room, np.int32) for _ in range(3))

    def addresses(self, number: int) -> tuple[int, int, int, int, int]:
        """Of hashes, entries, positions, ats and sizes, from a token on."""
        return (
            address_of(self.hashes) + 8 * number, address_of(self.entries) + 4 * number,
            address_of(self.positions) + 4 * number, address_of(self.ats) + 8 * number,
            address_of(self.sizes) + 4 * number,
        )  # fmt: skip


def make(tokens: Tokens, count: int, texts: int) -> Run:
    """A run of the first `count` tokens; `texts` is the address that their `ats` count from."""
    run = Run.room(count, count)
    order, other = np.empty(count, np.int64), np.empty(count, np.int64)
    counts = np.empty(kernel.RADIX_WORDS, np.int64)
    kernel.make_run(
        count, *tokens.addresses(0), address_of(order), address_of(other), address_of(counts),
        texts, address_of(run.row),
    )  # fmt: skip
    return run.cut()


def merged(runs: Sequence[Run], texts: int) -> Run:
    """One run of several; no entry is in two of them.

    `texts` is the address that the `ats` of all count from; BY_HASH when hashes are to decide
    which tokens are one.
    """
    queue = sorted(runs, key=lambda run: run.postings)
    while len(queue) > 1:
        a, b = queue[:2]
        run = Run.room(len(a.hashes) + len(b.hashes), a.postings + b.postings)
        kernel.merge_runs(address_of(a.row), address_of(b.row), texts, address_of(run.row))
        queue = sorted([*queue[2:], run.cut()], key=lambda run: run.postings)
    return queue[0]


def remapped(run: Any, numbers: Halves) -> Run:
    """A run with other numbers of entries, without those whose number is -1."""
    made = Run.room(len(run.hashes), run.postings)
    kernel.remap_run(address_of(run.row), address_of(numbers), address_of(made.row))
    return made.cut()
