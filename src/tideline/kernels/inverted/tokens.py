"""Folded texts as tokens.

    grams = 0   the words between spaces; the position of a word is its number
    grams = n   every run of n characters; its position is the number of its first character.
                A text that is shorter has one token, itself

What is written for each token: hash, entry, position, where its bytes are, and how many.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.octets import digest
from tideline.kernels.lanes import get8, hot
from tideline.kernels.views import halves, words

__all__ = ["hash_token", "hash_tokens", "tokenise"]

_NO_SIGN = 0x7FFFFFFFFFFFFFFF


@jit
def hash_token(at, size, seed):
    """A hash of `size` bytes, from 0 to 2^63 - 1."""
    return digest(at, size, seed) & _NO_SIGN


@jit
def hash_tokens(offsets_at, data_at, count, seed, hashes_at):
    """The hashes of some tokens."""
    offsets = words(offsets_at, count + 1)
    hashes = words(hashes_at, count)
    for i in range(count):
        hashes[i] = hash_token(data_at + offsets[i], offsets[i + 1] - offsets[i], seed)


@hot
def _after(at, limit):
    """Where the next character begins."""
    at += 1
    while at < limit and get8(at) & 0xC0 == 0x80:
        at += 1
    return at


@jit
def tokenise(
    offsets_at, data_at, count, grams, skip, seed, first_entry, base,
    hashes_at, entries_at, positions_at, ats_at, sizes_at,
):  # fmt: skip
    """The tokens of `count` texts; how many there are.

    The first `skip` bytes of each belong to somebody else. `base` is added to where the bytes of a
    token are, which counts from the first text.
    """
    offsets = words(offsets_at, count + 1)
    room = 1 << 60
    hashes, ats = words(hashes_at, room), words(ats_at, room)
    entries, positions = halves(entries_at, room), halves(positions_at, room)
    sizes = halves(sizes_at, room)
    begin = data_at + offsets[0]
    n = 0
    for i in range(count):
        at, limit = data_at + offsets[i] + skip, data_at + offsets[i + 1]
        number = 0
        if grams == 0:
            while at < limit:
                while at < limit and get8(at) == 32:
                    at += 1
                start = at
                while at < limit and get8(at) != 32:
                    at += 1
                if at > start:
                    hashes[n] = hash_token(start, at - start, seed)
                    entries[n], positions[n] = first_entry + i, number
                    ats[n], sizes[n] = base + start - begin, at - start
                    number += 1
                    n += 1
            continue
        end = at
        while number < grams and end < limit:
            end = _after(end, limit)
            number += 1
        if end == at:
            continue
        number = 0
        while True:
            hashes[n] = hash_token(at, end - at, seed)
            entries[n], positions[n] = first_entry + i, number
            ats[n], sizes[n] = base + at - begin, end - at
            number += 1
            n += 1
            if end >= limit:
                break
            at, end = _after(at, limit), _after(end, limit)
    return n
