"""Packing: Hilbert keys of points or boxes, their order, and the boxes of the nodes.

The key of an entry is the place of its middle on a Hilbert curve over the whole globe, with 24 bits
a side: 2.4 metres at the equator. So keys of different components compare.

No Python objects, no state; all release the GIL.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.spatial.layout import FAN, LEAF, LEVELS, P_LEVEL, P_TOP
from tideline.kernels.views import doubles, singles, words

__all__ = ["hilbert_keys", "level_words", "node_boxes", "order_by_key", "ranked", "take_doubles"]

_SIDE = 16777216.0  # 2**24
_MASK = 0xFFFFFFFF
_DIGIT, _PASSES = 12, 4


@jit
def _spread(x: int) -> int:
    """The low 24 bits, with a zero before each."""
    x = (x | (x << 16)) & 0x0000FFFF0000FFFF
    x = (x | (x << 8)) & 0x00FF00FF00FF00FF
    x = (x | (x << 4)) & 0x0F0F0F0F0F0F0F0F
    x = (x | (x << 2)) & 0x3333333333333333
    return (x | (x << 1)) & 0x5555555555555555


@jit
def hilbert_key(x: int, y: int) -> int:
    """The place of a cell, 24 bits a side, on the curve.

    All 24 levels at once: which way the curve is turned at a level is a product of what the levels
    above do to it, and products of four are made by doubling.
    """
    x <<= 8
    y <<= 8
    a = x ^ y
    b = _MASK ^ a
    c = _MASK ^ (x | y)
    d = x & (y ^ _MASK)
    aa = a | (b >> 1)
    bb = (a >> 1) ^ a
    cc = ((c >> 1) ^ (b & (d >> 1))) ^ c
    dd = ((a & (c >> 1)) ^ (d >> 1)) ^ d
    for shift in (2, 4, 8):
        a, b, c, d = aa, bb, cc, dd
        aa = (a & (a >> shift)) ^ (b & (b >> shift))
        bb = (a & (b >> shift)) ^ (b & ((a ^ b) >> shift))
        cc ^= (a & (c >> shift)) ^ (b & (d >> shift))
        dd ^= (b & (c >> shift)) ^ ((a ^ b) & (d >> shift))
    a, b, c, d = aa, bb, cc, dd
    cc ^= (a & (c >> 16)) ^ (b & (d >> 16))
    dd ^= (b & (c >> 16)) ^ ((a ^ b) & (d >> 16))
    a = cc ^ (cc >> 1)
    b = dd ^ (dd >> 1)
    low = x ^ y
    high = b | (_MASK ^ (low | a))
    return (_spread((high >> 8) & 0xFFFFFF) << 1) | _spread((low >> 8) & 0xFFFFFF)


@jit
def hilbert_keys(west, south, east, north, count, out):
    """The keys of `count` points (`east` is 0) or boxes at addresses."""
    w, s, keys = doubles(west, count), doubles(south, count), words(out, count)
    e, n = doubles(east, count if east else 0), doubles(north, count if east else 0)
    for i in range(count):
        x, y = w[i], s[i]
        if east:
            x = 0.5 * (x + e[i])
            y = 0.5 * (y + n[i])
        column = int((x + 180.0) * (_SIDE / 360.0))
        row = int((y + 90.0) * (_SIDE / 180.0))
        keys[i] = hilbert_key(min(max(column, 0), 0xFFFFFF), min(max(row, 0), 0xFFFFFF))


@jit
def order_by_key(keys_at, count, order_at, other_keys, other_order, counts_at):
    """Sort keys and the numbers of their entries by radix, in the order they come when equal.

    `other_...` are as large, `counts` has room for 4 * 4096. Afterwards both are sorted in place.
    """
    counts = words(counts_at, _PASSES << _DIGIT)
    keys = words(keys_at, count)
    for i in range(_PASSES << _DIGIT):
        counts[i] = 0
    for i in range(count):
        key = keys[i]
        for digit in range(_PASSES):
            counts[(digit << _DIGIT) + ((key >> (digit * _DIGIT)) & 4095)] += 1
    a_keys, a_order, b_keys, b_order = keys_at, order_at, other_keys, other_order
    for digit in range(_PASSES):
        base = digit << _DIGIT
        shift = digit * _DIGIT
        if count == 0 or counts[base + ((keys[0] >> shift) & 4095)] == count:
            continue  # all have the same digit here
        total = 0
        for i in range(base, base + 4096):
            here = counts[i]
            counts[i] = total
            total += here
        ka, oa, kb, ob = (
            words(a_keys, count),
            words(a_order, count),
            words(b_keys, count),
            words(b_order, count),
        )
        for i in range(count):
            key = ka[i]
            at = base + ((key >> shift) & 4095)
            where = counts[at]
            counts[at] = where + 1
            kb[where] = key
            ob[where] = oa[i]
        a_keys, a_order, b_keys, b_order = b_keys, b_order, a_keys, a_order
        keys = words(a_keys, count)
    if a_order != order_at:
        ka, oa, kb, ob = (
            words(a_keys, count),
            words(a_order, count),
            words(b_keys, count),
            words(b_order, count),
        )
        for i in range(count):
            kb[i] = ka[i]
            ob[i] = oa[i]


@jit
def take_doubles(source, size, order_at, count, target):
    """`target[i] = source[order[i]]`, of a source of so many."""
    order, into = words(order_at, count), doubles(target, count)
    values = doubles(source, size)
    for i in range(count):
        into[i] = values[order[i]]


@jit
def ranked(count: int) -> int:
    """How many nodes the tree of so many entries has."""
    nodes = -(-count // LEAF)
    total = nodes
    while nodes > 1:
        nodes = -(-nodes // FAN)
        total += nodes
    return total


@jit
def level_words(count, place):
    """Write where levels begin, and which one the root is on, for so many entries."""
    p = words(place, P_LEVEL + LEVELS + 1)
    nodes = -(-count // LEAF)
    start = 0
    level = 0
    while True:
        p[P_LEVEL + level] = start
        start += nodes
        if nodes <= 1:
            break
        nodes = -(-nodes // FAN)
        level += 1
    p[P_TOP] = level
    for above in range(level + 1, LEVELS + 1):
        p[P_LEVEL + above] = start


@jit
def _down(value):
    """A float32 that is not above."""
    near = np.float32(value)
    if np.float64(near) > value:
        near = np.float32(value - abs(value) * 1.2e-7 - 1e-38)
    return near


@jit
def _up(value):
    """A float32 that is not below."""
    near = np.float32(value)
    if np.float64(near) < value:
        near = np.float32(value + abs(value) * 1.2e-7 + 1e-38)
    return near


@jit
def node_boxes(west, south, east, north, count, out):
    """The boxes of all nodes over points (`east` is 0) or boxes that are in order."""
    w, s = doubles(west, count), doubles(south, count)
    e, n = w, s
    if east:
        e, n = doubles(east, count), doubles(north, count)
    nodes = -(-count // LEAF)
    boxes = singles(out, 4 * ranked(count))
    for j in range(nodes):
        first, limit = j * LEAF, min((j + 1) * LEAF, count)
        low_x, low_y, high_x, high_y = w[first], s[first], e[first], n[first]
        for i in range(first + 1, limit):
            low_x, low_y = min(low_x, w[i]), min(low_y, s[i])
            high_x, high_y = max(high_x, e[i]), max(high_y, n[i])
        boxes[4 * j], boxes[4 * j + 1] = _down(low_x), _down(low_y)
        boxes[4 * j + 2], boxes[4 * j + 3] = _up(high_x), _up(high_y)
    start = 0
    while nodes > 1:
        above = -(-nodes // FAN)
        for j in range(above):
            first, limit = start + j * FAN, start + min((j + 1) * FAN, nodes)
            a, b, c, d = (
                boxes[4 * first],
                boxes[4 * first + 1],
                boxes[4 * first + 2],
                boxes[4 * first + 3],
            )
            for i in range(first + 1, limit):
                a, b = min(a, boxes[4 * i]), min(b, boxes[4 * i + 1])
                c, d = max(c, boxes[4 * i + 2]), max(d, boxes[4 * i + 3])
            at = 4 * (start + nodes + j)
            boxes[at], boxes[at + 1], boxes[at + 2], boxes[at + 3] = a, b, c, d
        start += nodes
        nodes = above
