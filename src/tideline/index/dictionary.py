"""Dictionaries of words: the Python side of kernels/inverted/dictionary.py.

    Dictionary   words in order of length with their signatures; with pieces, if they are many

Made once and never changed; safe from any thread. `of_run` is for the words of a run in memory,
which stay in their own order; those of a component are stored by length (index/fuzzy.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.kernels.inverted import dictionary as kernel
from tideline.where.tree import Near

__all__ = ["Pieces", "codes_of", "limits_of", "measured", "pieces_of", "row_of", "starts_of"]

Words = NDArray[np.int64]
Halves = NDArray[np.int32]
_LENGTHS = np.arange(kernel.CLASSES, dtype=np.int64)


def measured(base: int, ats: Words, sizes: Halves) -> tuple[Halves, Halves, Words]:
    """Lengths in characters, at most 255, signatures, and pairs."""
    lengths, signatures = np.empty(len(ats), np.int32), np.empty(len(ats), np.int32)
    pairs = np.empty(len(ats), np.int64)
    outs = map(address_of, (lengths, signatures, pairs))
    kernel.measure_words(base, *map(address_of, (ats, sizes)), len(ats), *outs)
    return lengths, signatures, pairs


def starts_of(lengths: Halves) -> Words:
    """Where the words of each length begin when they are in order of length.

    >>> starts_of(np.array([2, 3, 3], np.int32))[:5].tolist()
    [0, 0, 0, 1, 3]
    """
    starts = np.zeros(kernel.CLASSES + 1, np.int64)
    np.cumsum(np.bincount(lengths, minlength=kernel.CLASSES), out=starts[1:])
    return starts


class Pieces:
    """What leads from a piece to words."""

    __slots__ = ("bits", "heads", "pieces")

    def __init__(self, bits: int, heads: Halves, pieces: Halves) -> None:
        self.bits, self.heads, self.pieces = bits, heads, pieces


def row_of(
    base: int, ats: Words, sizes: Halves, signatures: Any, pairs: Any, starts: Words,
    order: Halves | None,
) -> Words:  # fmt: skip
    """A dictionary without pieces as kernels see it."""
    row = np.zeros(kernel.D_WORDS, np.int64)
    row[kernel.D_COUNT], row[kernel.D_BASE] = len(ats), base
    row[kernel.D_ATS], row[kernel.D_SIZES] = address_of(ats), address_of(sizes)
    row[kernel.D_SIGNATURES], row[kernel.D_STARTS] = address_of(signatures), address_of(starts)
    row[kernel.D_PAIRS] = address_of(pairs)
    row[kernel.D_ORDER] = 0 if order is None else address_of(order)
    return row


def pieces_of(row: Words, members: Halves | None = None, nodes: Halves | None = None) -> Pieces:
    """The pieces of all words, or of some, each for a node."""
    count = int(row[kernel.D_COUNT]) if members is None else len(members)
    bits = max(int(4 * count).bit_length(), 4)
    heads = np.zeros((1 << bits) + 1, np.int32)
    codes = np.empty(kernel.CLASSES, np.int32)
    where = (
        address_of(row), 0 if members is None else address_of(members),
        0 if nodes is None else address_of(nodes), count, bits,
    )  # fmt: skip
    total = kernel.count_pieces(*where, address_of(heads), address_of(codes))
    following, pieces = heads.copy(), np.empty(2 * total, np.int32)
    kernel.fill_pieces(*where, *map(address_of, (following, pieces, codes)))
    return Pieces(bits, heads, pieces)


def limits_of(one: Near) -> Halves:
    """The edits allowed for words of each length, -1 for none.

    >>> limits_of(Near("tides", distance=1))[:8].tolist()
    [-1, -1, -1, -1, 1, 1, 1, -1]
    """
    length = len(one.word)
    longest = np.maximum(_LENGTHS, length)
    if one.similarity is None:
        edits = np.full(kernel.CLASSES, one.limit(0))
    elif one.similarity.denominator < 1 << 32:
        whole, part = one.similarity.denominator, one.similarity.numerator
        edits = (whole - part) * longest // whole
    else:
        edits = np.array([one.limit(each) for each in longest.tolist()])
    limits = np.where(np.abs(_LENGTHS - length) <= edits, edits, -1).astype(np.int32)
    limits[0] = -1
    last = kernel.CLASSES - 1  # of all words that are so long, or longer
    if limits[last] < 0 and one.similarity is not None:
        # One of n characters may be near when n - length <= (1 - t) n; that is, t n <= length.
        limits[last] = 0 if one.similarity * last <= length else -1
    return limits


def codes_of(word: str) -> Sequence[int]:
    """The characters of a word, with room for the longest."""
    return [*map(ord, word), *[0] * (kernel.QUERY_WORD - len(word))]
