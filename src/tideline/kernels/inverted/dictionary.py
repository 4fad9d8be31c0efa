"""Dictionaries of words, and which words are near another.

    dictionary := words by number | in order of length: signatures, starts | pieces

A word has characters of Unicode; `signatures` has a bit for each character it has, modulo 32, so an
edit changes two bits at most. `pairs` has a bit of 64 for each two characters that follow each
other; an edit changes four at most. `starts[n]` is where the words of n characters begin, in the
order; those of 255 and more are together.

Pieces, as Pass-Join has them: for d edits a word is cut into d + 1 pieces. Whoever is within d
edits has one of them unchanged, at nearly the same place. So a piece leads from (length, d, number,
characters) to words: `heads` by the upper bits of a hash, `pieces` with the word and its signature,
so that most are turned down where they are read. Only pieces that can be needed are kept
(`_is_cut`): short words, and words at more than five edits, are found by their signatures in the
order of length.

Every candidate is held against the word itself by Myers' bit-vectors, a word of 64 bits a column.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from tideline.kernels import jit
from tideline.kernels.lanes import get8, hot
from tideline.kernels.views import halves, words

__all__ = [
    "CLASSES", "D_ATS", "D_BASE", "D_BITS", "D_COUNT", "D_HEADS", "D_ORDER", "D_PAIRS", "D_PIECES",
    "D_SIGNATURES", "D_SIZES", "D_STARTS", "D_WORDS", "QUERY_WORD", "count_pieces", "fill_pieces",
    "find_by_pieces", "find_by_scan", "is_word_near", "measure_words", "prepare",
]  # fmt: skip

D_COUNT, D_BASE, D_ATS, D_SIZES, D_SIGNATURES, D_STARTS, D_ORDER, D_HEADS, D_BITS = range(9)
D_PIECES, D_PAIRS = 9, 10
D_WORDS = 12
CLASSES = 256  # lengths that are told apart: the last one is of all longer words
QUERY_WORD = 64  # characters of a word that is asked for
_FEW = 64  # words of a length that are sooner looked through
_MOST_EDITS = 5
_MANY = 1 << 60
_P1 = -7046029254386353131
_P2 = -4417276706812531889


@intrinsic
def _bits(typingctx: Any, word: Any) -> Any:
    """How many bits are set."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.int64), codegen


@hot
def _read(at):
    """A character of UTF-8 and where the next one is."""
    byte = get8(at)
    if byte < 0x80:
        return byte, at + 1
    if byte < 0xE0:
        return ((byte & 31) << 6) | (get8(at + 1) & 63), at + 2
    if byte < 0xF0:
        return ((byte & 15) << 12) | ((get8(at + 1) & 63) << 6) | (get8(at + 2) & 63), at + 3
    code = ((byte & 7) << 18) | ((get8(at + 1) & 63) << 12)
    return code | ((get8(at + 2) & 63) << 6) | (get8(at + 3) & 63), at + 4


@hot
def _pair(a, b):
    """The bit of two characters."""
    return 1 << ((((a * 31 + b) * _P1) >> 58) & 63)


@jit
def measure_words(base, ats_at, sizes_at, count, lengths_at, signatures_at, pairs_at):
    """The characters of each word, at most 255, its signature and pairs."""
    ats, sizes = words(ats_at, count), halves(sizes_at, count)
    lengths, signatures = halves(lengths_at, count), halves(signatures_at, count)
    pairs = words(pairs_at, count)
    for i in range(count):
        at = base + ats[i]
        limit = at + sizes[i]
        length = signature = both = last = 0
        while at < limit:
            code, at = _read(at)
            signature |= 1 << (code & 31)
            if length:
                both |= _pair(last, code)
            last = code
            length += 1
        lengths[i] = min(length, CLASSES - 1)
        signatures[i], pairs[i] = signature, both


@hot
def _is_cut(length, edits):
    """Whether words of a length have pieces for so many edits."""
    if edits < 2:
        return length > edits and length < CLASSES - 1
    return edits <= _MOST_EDITS and length >= 2 * (edits + 1) and length < CLASSES - 1


@hot
def _key(node, length, edits, piece, codes, start, limit):
    h = (length | (edits << 8) | (piece << 16) | (node << 24)) * _P1
    for i in range(start, limit):
        h = (h ^ codes[i]) * _P2
        h ^= (h >> 29) & 0x7FFFFFFFF
    h = (h ^ ((h >> 32) & 0xFFFFFFFF)) * _P1
    return h ^ ((h >> 32) & 0xFFFFFFFF)


@hot
def _bucket(key, bits):
    return (key >> (64 - bits)) & ((1 << bits) - 1)


@hot
def _cut(length, edits, piece):
    """Where a piece begins and ends: the last ones are one longer if need be."""
    size = length // (edits + 1)
    longer = length - size * (edits + 1)
    shorter = edits + 1 - longer
    start = size * piece + max(piece - shorter, 0)
    return start, start + size + (1 if piece >= shorter else 0)


@hot
def _decode(row, word, codes):
    """The characters of a word; how many, at most 255."""
    at = row[D_BASE] + words(row[D_ATS], _MANY)[word]
    limit = at + halves(row[D_SIZES], _MANY)[word]
    n = 0
    while at < limit and n < CLASSES - 1:
        code, at = _read(at)
        codes[n] = code
        n += 1
    return n


@jit
def count_pieces(row_at, members_at, nodes_at, count, bits, heads_at, codes_at):
    """Count the pieces of words (all, if `members` is 0) by bucket; how many there are."""
    row, heads, codes = (
        words(row_at, D_WORDS),
        halves(heads_at, (1 << bits) + 1),
        halves(codes_at, CLASSES),
    )
    total = 0
    for i in range(count):
        word = halves(members_at, count)[i] if members_at else i
        node = halves(nodes_at, count)[i] if nodes_at else 0
        length = _decode(row, word, codes)
        for edits in range(_MOST_EDITS + 1):
            if _is_cut(length, edits):
                for piece in range(edits + 1):
                    start, limit = _cut(length, edits, piece)
                    key = _key(node, length, edits, piece, codes, start, limit)
                    heads[_bucket(key, bits) + 1] += 1
                    total += 1
    for i in range(1 << bits):
        heads[i + 1] += heads[i]
    return total


@jit
def fill_pieces(row_at, members_at, nodes_at, count, bits, next_at, pieces_at, codes_at):
    """Put the pieces where the counts say; `next` is a copy of the heads, and is moved on."""
    row, heads, codes = (
        words(row_at, D_WORDS),
        halves(next_at, (1 << bits) + 1),
        halves(codes_at, CLASSES),
    )
    pieces, signatures = halves(pieces_at, _MANY), halves(row[D_SIGNATURES], _MANY)
    for i in range(count):
        word = halves(members_at, count)[i] if members_at else i
        node = halves(nodes_at, count)[i] if nodes_at else 0
        length = _decode(row, word, codes)
        for edits in range(_MOST_EDITS + 1):
            if _is_cut(length, edits):
                for piece in range(edits + 1):
                    start, limit = _cut(length, edits, piece)
                    key = _key(node, length, edits, piece, codes, start, limit)
                    bucket = _bucket(key, bits)
                    at = heads[bucket]
                    heads[bucket] = at + 1
                    pieces[2 * at], pieces[2 * at + 1] = word, signatures[word]


@jit
def prepare(codes_at, length, masks_at):
    """The masks of the ASCII characters of a word, 128 of them; its signature."""
    codes, masks = halves(codes_at, length), words(masks_at, 128)
    signature = 0
    for i in range(128):
        masks[i] = 0
    for i in range(length):
        signature |= 1 << (codes[i] & 31)
        if codes[i] < 128:
            masks[codes[i]] |= 1 << i
    return signature


@jit
def _pairs(codes, length):
    """The pairs of the word that is asked for."""
    both = 0
    for i in range(1, length):
        both |= _pair(codes[i - 1], codes[i])
    return both


@jit
def _edits(at, limit, codes, length, masks):
    """The edit distance of the word at an address; Myers' bit-vectors."""
    up, down, score = -1, 0, length
    last = 1 << (length - 1)
    while at < limit:
        code, at = _read(at)
        same = 0
        if code < 128:
            same = masks[code]
        else:
            for i in range(length):
                if codes[i] == code:
                    same |= 1 << i
        level = (((same & up) + up) ^ up) | same | down
        rises = down | ~(level | up)
        falls = up & level
        if rises & last != 0:
            score += 1
        elif falls & last != 0:
            score -= 1
        rises = (rises << 1) | 1
        up = (falls << 1) | ~(level | rises)
        down = level & rises
    return score


@hot
def _is_near(row, word, codes, length, masks, limit):
    at = row[D_BASE] + words(row[D_ATS], _MANY)[word]
    return _edits(at, at + halves(row[D_SIZES], _MANY)[word], codes, length, masks) <= limit


@jit
def is_word_near(row_at, word, codes_at, length, signature, limits_at, masks_at, most):
    """Whether one word is near, of a dictionary in order of length; as `find_by_scan` says.

    `most` is the greatest of the limits.
    """
    row, limits = words(row_at, D_WORDS), halves(limits_at, CLASSES)
    starts = words(row[D_STARTS], CLASSES + 1)
    if word >= starts[CLASSES - 1]:
        return limits[CLASSES - 1] >= 0
    changed = _bits((halves(row[D_SIGNATURES], _MANY)[word] ^ signature) & 0xFFFFFFFF)
    if changed > 2 * most:
        return False
    low, high = 0, CLASSES - 1  # the words of `low` characters begin at or before it
    while high - low > 1:
        middle = (low + high) >> 1
        if starts[middle] <= word:
            low = middle
        else:
            high = middle
    edits = limits[low]
    if edits < 0 or changed > 2 * edits:
        return False
    codes = halves(codes_at, length)
    if _bits(words(row[D_PAIRS], _MANY)[word] ^ _pairs(codes, length)) > 4 * edits:
        return False
    return _is_near(row, word, codes, length, words(masks_at, 128), edits)


@hot
def _by_pieces(row, starts, length, edits):
    """Whether pieces are asked for words of a length; else they are looked through."""
    return row[D_BITS] > 0 and _is_cut(length, edits) and starts[length + 1] - starts[length] > _FEW


@jit
def find_by_scan(row_at, codes_at, length, signature, limits_at, masks_at, found_at, used, room):
    """Add the near words that are found by looking through those of a length.

    `limits` has the edits allowed for words of each length, -1 for none. Returns how many there
    are then; those beyond `room` are only counted.
    """
    row, found = words(row_at, D_WORDS), halves(found_at, room)
    codes, limits, masks = (
        halves(codes_at, length),
        halves(limits_at, CLASSES),
        words(masks_at, 128),
    )
    starts, signatures = words(row[D_STARTS], CLASSES + 1), halves(row[D_SIGNATURES], _MANY)
    pairs, own = words(row[D_PAIRS], _MANY), _pairs(codes, length)
    for other in range(1, CLASSES):
        edits = limits[other]
        if edits < 0 or _by_pieces(row, starts, other, edits):
            continue
        for i in range(starts[other], starts[other + 1]):
            word = halves(row[D_ORDER], _MANY)[i] if row[D_ORDER] else i
            if other < CLASSES - 1:
                if _bits((signatures[i] ^ signature) & 0xFFFFFFFF) > 2 * edits:
                    continue
                if _bits(pairs[i] ^ own) > 4 * edits:
                    continue
                if not _is_near(row, word, codes, length, masks, edits):
                    continue
            if used < room:
                found[used] = word
            used += 1
    return used


@jit
def find_by_pieces(
    row_at, node, codes_at, length, signature, limits_at, masks_at, found_at, used, room
):  # fmt: skip
    """Add the near words of a node that are found by their pieces; how many there are then.

    A word may come more than once.
    """
    row, found = words(row_at, D_WORDS), halves(found_at, room)
    codes, limits, masks = (
        halves(codes_at, length),
        halves(limits_at, CLASSES),
        words(masks_at, 128),
    )
    starts, bits = words(row[D_STARTS], CLASSES + 1), row[D_BITS]
    pairs, own = words(row[D_PAIRS], _MANY), _pairs(codes, length)
    if bits == 0:
        return used
    heads, pieces = halves(row[D_HEADS], (1 << bits) + 1), halves(row[D_PIECES], _MANY)
    for other in range(max(length - _MOST_EDITS, 1), min(length + _MOST_EDITS, CLASSES - 2) + 1):
        edits = limits[other]
        if edits < 0 or not _by_pieces(row, starts, other, edits):
            continue
        shift = length - other
        for piece in range(edits + 1):
            start, limit = _cut(other, edits, piece)
            size = limit - start
            # Edits before the piece move it by as many; those after it make up the rest.
            low = max(start - piece, start + shift - (edits - piece), 0)
            high = min(start + piece, start + shift + (edits - piece), length - size)
            for at in range(low, high + 1):
                key = _key(node, other, edits, piece, codes, at, at + size)
                bucket = _bucket(key, bits)
                for i in range(heads[bucket], heads[bucket + 1]):
                    if _bits((pieces[2 * i + 1] ^ signature) & 0xFFFFFFFF) > 2 * edits:
                        continue
                    word = pieces[2 * i]
                    # Pieces of other words may be in the bucket: of these lengths, they count too.
                    if word < starts[other] or word >= starts[other + 1]:
                        continue
                    if _bits(pairs[word] ^ own) > 4 * edits:
                        continue
                    if _is_near(row, word, codes, length, masks, edits):
                        if used < room:
                            found[used] = word
                        used += 1
    return used
