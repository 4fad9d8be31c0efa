"""Bytes inside kernels: hash, compare, copy, and the nodes of a key.

The hash of a key takes one byte at a time, so the hash of every prefix (its
ancestors in the tree) falls out of one pass. Two 64-bit lanes with a seed drawn
when the channel is made: no two places are ever taken for one. The hash of an id
takes eight bytes at a time: ids are compared after that anyway.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.views import put_word, word_at

__all__ = ["copy", "hash_id", "hash_user", "nodes", "order", "same"]

P1 = -7046029254386353131
P2 = -4417276706812531889
FLAT, CELLS, TOPICS = 0, 1, 2


@jit
def step1(h, byte):
    h = (h ^ byte) * P1
    return h ^ (h >> 29)


@jit
def step2(h, byte):
    h = (h + byte + 1) * P2
    return h ^ (h >> 31)


@jit
def hash_id(data, start, limit, seed):
    """A hash of bytes that is never 0 (0 marks an empty place in a table)."""
    h = seed ^ (limit - start)
    while start + 8 <= limit:
        h = step1(h, word_at(data, start))
        start += 8
    tail = 0
    for i in range(start, limit):
        tail = (tail << 8) | data[i]
    h = step1(h, tail)
    h ^= h >> 32
    return h if h != 0 else 1


@jit
def hash_user(data, start, limit, seed):
    """The same, byte by byte: users are told apart by this alone."""
    h = seed
    for i in range(start, limit):
        h = step1(h, data[i])
    h ^= h >> 32
    return h if h != 0 else 1


@jit
def nodes(data, start, limit, mode, seed1, seed2, out):
    """The tree nodes on the way to a key, root first: pairs of hashes and prefix lengths.

    Writes (hash1, hash2, prefix length) triples into `out`; returns how many.
    """
    h1 = seed1
    h2 = seed2
    count = 0
    if mode == CELLS:
        out[0] = h1
        out[1] = h2
        out[2] = 0
        count = 1
    for i in range(start, limit):
        byte = data[i]
        h1 = step1(h1, byte)
        h2 = step2(h2, byte)
        if mode == CELLS or (mode == TOPICS and byte == 0):
            out[3 * count] = h1
            out[3 * count + 1] = h2
            out[3 * count + 2] = i + 1 - start
            count += 1
    if mode == FLAT:
        out[0] = h1
        out[1] = h2
        out[2] = limit - start
        count = 1
    return count


@jit
def same(a, a_start, b, b_start, count):
    for i in range(count):
        if a[a_start + i] != b[b_start + i]:
            return False
    return True


@jit
def copy(target, start, source, source_start, count):
    """Copy bytes, by words where there are enough of them; the last word may overlap."""
    if count < 8:
        for i in range(count):
            target[start + i] = source[source_start + i]
        return
    last = word_at(source, source_start + count - 8)
    for i in range(0, count - 8, 8):
        put_word(target, start + i, word_at(source, source_start + i))
    put_word(target, start + count - 8, last)


@jit
def order(a, a_start, a_limit, b, b_start, b_limit):
    """-1, 0 or 1 as a sorts before, with or after b, byte by byte."""
    n = min(a_limit - a_start, b_limit - b_start)
    for i in range(n):
        x = a[a_start + i]
        y = b[b_start + i]
        if x != y:
            return -1 if x < y else 1
    if a_limit - a_start == b_limit - b_start:
        return 0
    return -1 if a_limit - a_start < b_limit - b_start else 1
