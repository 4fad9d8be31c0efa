"""Texts that are roughly so, in clauses: a check of their grams, and pieces that must be there.

    $fuzzy       a word within d edits keeps one of d + 1 pieces of the word as it is, and loses at
                 most two pairs of letters an edit
    $contains    every piece of the text is there
    $jaccard     of the grams, so many may be missing: one of one more must be there

A piece is filed by its first bytes, up to four. What a kernel says of a mask is perhaps, or no: the
predicate decides (where/words.py, where/grams.py).

Pure functions; safe from any thread.
"""

from __future__ import annotations

from itertools import pairwise

from tideline.kernels.standing import layout as at
from tideline.standing.parts import VALUE, Check, Clause, Token, Way
from tideline.where.grams import grams_of
from tideline.where.tree import Contains, Fuzzy, Jaccard, Near

__all__ = ["add_grams", "masks_of"]

_WAYS = 6  # pieces of a text of which one is enough, to choose from
_PIECES = 8  # that a word is filed under at most
_LOW, _SIGN = (1 << 64) - 1, 1 << 63


def masks_of(text: bytes) -> tuple[int, int]:
    """The pairs of bytes of a folded text, a bit each, as the kernel has them."""
    found = _pairs(text)
    return _signed(found & _LOW), _signed(found >> 64)


def _pairs(text: bytes) -> int:
    found = 0
    for before, byte in pairwise(text):
        found |= 1 << ((before * 0x9E3779B1 + byte * 0x85EBCA77) >> 16 & 127)
    return found


def _signed(word: int) -> int:
    return word - (1 << 64) if word & _SIGN else word


def add_grams(made: Clause, path: str, test: Fuzzy | Contains | Jaccard) -> None:
    """Add what must be so of the grams of a text to a clause."""
    if isinstance(test, Fuzzy):
        for one in test.words:
            _add_word(made, path, one)
    elif isinstance(test, Contains):
        _add_piece(made, path, test.text)
    else:
        _add_jaccard(made, path, test)


def _add_word(made: Clause, path: str, one: Near) -> None:
    length = len(one.word)
    edits = one.distance or 0
    if one.similarity is not None:
        if not one.similarity:
            return
        edits = one.limit(max(length, int(length / one.similarity)))
    if not edits or edits >= length:
        return
    widest = max(len(letter.encode()) for letter in one.word)
    _add_check(made, path, one.word, edits * (widest + 1))
    pieces = [
        one.word[length * n // (edits + 1) : length * (n + 1) // (edits + 1)].encode()
        for n in range(edits + 1)
    ]
    if len(pieces) <= _PIECES and min(map(len, pieces)) >= 2:
        made.ways[VALUE].append(Way([_token(path, piece) for piece in pieces]))


def _add_piece(made: Clause, path: str, text: str) -> None:
    data = text.encode()
    if len(data) < 2:
        return
    _add_check(made, path, text, 0)
    size = min(len(data), at.GRAM_BYTES)
    starts = range(0, len(data) - size + 1, max(1, (len(data) - size) // _WAYS))
    made.ways[VALUE].extend(Way([_token(path, data[start : start + size])]) for start in starts)


def _add_jaccard(made: Clause, path: str, test: Jaccard) -> None:
    grams = sorted(grams_of(test.text, test.grams))
    if not grams or not test.similarity:
        return
    missing = int((1 - test.similarity) * len(grams))
    if len(grams) == 1:  # it is short: all of it must be there
        _add_piece(made, path, grams[0])
        return
    if test.grams > 1 and test.text.isascii():  # a gram has one pair of letters less than letters
        _add_check(made, path, test.text, missing * (test.grams - 1))
    pieces = [gram.encode() for gram in grams[: missing + 1]]
    if len(pieces) <= _PIECES and min(map(len, pieces)) >= 2:
        made.ways[VALUE].append(Way([_token(path, piece) for piece in pieces]))


def _add_check(made: Clause, path: str, text: str, allowed: int) -> None:
    data = text.encode()
    if allowed >= _pairs(data).bit_count():
        return  # it holds for every text
    low, high = masks_of(data)
    rough = at.OP_GRAMS, low, high, allowed
    check = Check(at.OP_GRAMS, (at.GRAMS, path), (low, high, allowed), rough=rough)
    made.groups.append([check])


def _token(path: str, piece: bytes) -> Token:
    piece = piece[: at.GRAM_BYTES]
    return Token(at.GRAM, (at.GRAMS, path), len(piece), int.from_bytes(piece, "big"))
