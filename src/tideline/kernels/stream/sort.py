"""Radix sort: keys with 32 bits that belong to each, stable, so that equal keys stay in order.

    extent   the least and the greatest key, and whether they are in order already
    sort     passes over digits of the keys above the least; a digit that is the same everywhere
             takes none

The counts of all digits are taken in one pass before. Two sets of buffers; the answer says in which
one the result is.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.stream.layout import PASSES, RADIX, RADIX_BITS
from tideline.kernels.views import halves, words

_LOW32 = 0xFFFFFFFF


@jit
def extent(keys_at, count, narrow, out_at):
    """out := least key, greatest key, 1 if they are in order. `count` is at least 1."""
    out = words(out_at, 3)
    if narrow:
        keys = halves(keys_at, count)
        before = np.int64(keys[0]) & _LOW32
        low = high = before
        ordered = 1
        for i in range(1, count):
            key = np.int64(keys[i]) & _LOW32
            if key < before:
                ordered = 0
            low = min(low, key)
            high = max(high, key)
            before = key
    else:
        wide = words(keys_at, count)
        before = wide[0]
        low = high = before
        ordered = 1
        for i in range(1, count):
            key = wide[i]
            if key < before:
                ordered = 0
            low = min(low, key)
            high = max(high, key)
            before = key
    out[0] = low
    out[1] = high
    out[2] = ordered


@jit
def _count_narrow(keys, count, low, width, passes, counts):
    mask = (1 << width) - 1
    for i in range(count):
        rest = (np.int64(keys[i]) & _LOW32) - low
        for p in range(passes):
            counts[p * RADIX + (rest & mask)] += 1
            rest >>= width


@jit
def _count_wide(keys, count, low, width, passes, counts):
    mask = np.uint64((1 << width) - 1)
    step = np.uint64(width)
    for i in range(count):
        rest = np.uint64(keys[i]) - np.uint64(low)
        for p in range(passes):
            counts[p * RADIX + np.int64(rest & mask)] += 1
            rest >>= step


@jit
def _starts(counts, base, size, count):
    """Counts become starts; False when one bucket has all."""
    total = 0
    for d in range(base, base + size):
        here = counts[d]
        if here == count:
            return False
        counts[d] = total
        total += here
    return True


@jit
def sort(keys_at, with_at, other_at, other_with_at, count, narrow, low, bits, counts_at):
    """Sort keys and what is with them; 1 when the result is in the other buffers.

    `bits` is how many bits the keys have above `low`; `counts` has room for PASSES * RADIX words.
    """
    if bits == 0:
        return 0
    passes = (bits + RADIX_BITS - 1) // RADIX_BITS
    width = (bits + passes - 1) // passes
    counts = words(counts_at, PASSES * RADIX)
    for i in range(passes * RADIX):
        counts[i] = 0
    withs, other_withs = halves(with_at, count), halves(other_with_at, count)
    mask = (1 << width) - 1
    flipped = 0
    if narrow:
        keys, others = halves(keys_at, count), halves(other_at, count)
        _count_narrow(keys, count, low, width, passes, counts)
        for p in range(passes):
            base, shift = p * RADIX, p * width
            if not _starts(counts, base, mask + 1, count):
                continue
            for i in range(count):
                key = keys[i]
                d = base + ((((np.int64(key) & _LOW32) - low) >> shift) & mask)
                place = counts[d]
                counts[d] = place + 1
                others[place] = key
                other_withs[place] = withs[i]
            keys, others = others, keys
            withs, other_withs = other_withs, withs
            flipped = 1 - flipped
    else:
        wides, other_wides = words(keys_at, count), words(other_at, count)
        _count_wide(wides, count, low, width, passes, counts)
        least = np.uint64(low)
        for p in range(passes):
            base, shift = p * RADIX, np.uint64(p * width)
            if not _starts(counts, base, mask + 1, count):
                continue
            for i in range(count):
                key = wides[i]
                d = base + np.int64(((np.uint64(key) - least) >> shift) & np.uint64(mask))
                place = counts[d]
                counts[d] = place + 1
                other_wides[place] = key
                other_withs[place] = withs[i]
            wides, other_wides = other_wides, wides
            withs, other_withs = other_withs, withs
            flipped = 1 - flipped
    return flipped
