"""Fences: which few rows of a component a key can be among.

The keys of a component are sorted and all begin with the same `common` bytes. A *fence* has one
word for each stretch of STRIDE rows, the eight bytes after those of its first key; the *upper
fence* has every UPPER-th word of the fence. Both stand one behind the other:

    rows    0 .......... 63   64 .......... 127   128 ......
    fence   word of row 0     word of row 64      word of row 128
    upper   fence[0], fence[16], fence[32], ...

So a search reads the upper fence, which is small and stays in the cache, one or two lines of the
fence and a few keys, where a search by halves among millions of keys would read twenty far ones.
Words that differ decide, equal ones do not: then rows of several stretches are left to search.

Nothing is read outside the component, whatever the words are.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.documents.layout import (
    X_COMMON,
    X_FENCE,
    X_KEY_OFFSETS,
    X_KEYS,
    X_ROWS,
)
from tideline.kernels.documents.octets import (
    first_not_below,
    order_bytes,
    prefix_of,
    same_bytes,
)
from tideline.kernels.lanes import get64, hot
from tideline.kernels.views import words

__all__ = [
    "STRIDE", "UPPER", "common_bytes", "fence_words", "make_fence", "narrow", "row_key", "row_of",
    "word_of",
]  # fmt: skip

STRIDE = 64  # rows
UPPER = 16  # words: two lines of a cache
_MOST = (1 << 63) - 1


@hot
def row_key(source, row):
    """Address and size of a record's key."""
    at = get64(source + 8 * X_KEY_OFFSETS) + 8 * row
    start = get64(at)
    return get64(source + 8 * X_KEYS) + start, get64(at + 8) - start


@jit
def fence_words(rows):
    """How many words a fence of so many rows has, and with its upper fence."""
    lower = (rows + STRIDE - 1) // STRIDE
    return lower, lower + (lower + UPPER - 1) // UPPER


# ---- making -----------------------------------------------------------------------


@jit
def common_bytes(offsets_at, base, count):
    """How many bytes the first and the last of sorted keys, and so all of them, begin with."""
    offsets = words(offsets_at, count + 1)
    a, b = base + offsets[0], base + offsets[count - 1]
    limit = min(offsets[1] - offsets[0], offsets[count] - offsets[count - 1])
    size = 0
    while size < limit and same_bytes(a + size, b + size, 1):
        size += 1
    return size


@jit
def make_fence(offsets_at, base, count, common, out):
    """Write the fence and the upper fence of sorted keys."""
    offsets = words(offsets_at, count + 1)
    lower, whole = fence_words(count)
    for i in range(lower):
        at = offsets[i * STRIDE] + common
        out[i] = prefix_of(base + at, offsets[i * STRIDE + 1] - at)
    for i in range(whole - lower):
        out[lower + i] = out[i * UPPER]


# ---- searching --------------------------------------------------------------------


@hot
def _group(fence, lower, whole, wanted):
    """The words of the fence, [first, limit), before which all are below the one wanted.

    The first that is not below it is among them, or right behind them.
    """
    group = first_not_below(fence, lower, whole, wanted) - lower
    return max(group - 1, 0) * UPPER, min(group * UPPER, lower)


@hot
def _stretch(fence, first, limit, wanted):
    """The first of fence[first:limit) that is not below the word wanted."""
    if limit - first != UPPER:
        return first_not_below(fence, first, limit, wanted)
    below = 0
    for i in range(UPPER):  # a whole group: all at once, without a step that waits for another
        below += np.int64(fence[first + i] < wanted)
    return first + below


@hot
def _even(first, limit, low, high, wanted):
    """The row of [first, limit) where a word would stand if words lay evenly from low to high."""
    width = high - low
    if not width > 0.0:
        return (first + limit) >> 1
    share = min(max((np.float64(wanted) - low) / width, 0.0), 1.0)
    return min(first + np.int64(share * np.float64(limit - first)), limit - 1)


@jit
def narrow(source, wanted):
    """The rows that keys of a word are among, and the one to look at first: first, limit, row."""
    rows = get64(source + 8 * X_ROWS)
    lower, whole = fence_words(rows)
    fence = words(get64(source + 8 * X_FENCE), whole)
    first, limit = _group(fence, lower, whole, wanted)
    stretch = _stretch(fence, first, limit, wanted)
    before = max(stretch - 1, 0)
    if stretch < lower and fence[stretch] == wanted:
        beyond = stretch + 1
        if beyond < lower and fence[beyond] == wanted:  # eight bytes do not tell these apart
            beyond = first_not_below(fence, beyond, lower, wanted + 1) if wanted < _MOST else lower
        return before * STRIDE, min(beyond * STRIDE, rows), stretch * STRIDE
    low = np.float64(fence[before])
    # The end of the last stretch is unknown: as far as that of the one before.
    high = np.float64(fence[stretch]) if stretch < lower else 2 * low - fence[max(before - 1, 0)]
    first, limit = before * STRIDE, min((before + 1) * STRIDE, rows)
    return first, limit, _even(first, before * STRIDE + STRIDE, low, high, wanted)


@hot
def word_of(source, key, size):
    """The word of a key that begins as all keys of the component do."""
    common = min(get64(source + 8 * X_COMMON), size)
    return prefix_of(key + common, size - common)


@jit
def row_of(source, key, size):
    """The row of a key in a component, or -1."""
    start, start_size = row_key(source, 0)
    common = get64(source + 8 * X_COMMON)
    if min(size, start_size) < common or not same_bytes(start, key, common):
        return -1
    first, limit, row = narrow(source, word_of(source, key, size))
    row = min(row, limit - 1)
    while first < limit:
        there, there_size = row_key(source, row)
        side = order_bytes(there, there_size, key, size)
        if side == 0:
            return row
        if side < 0:
            first = row + 1
        else:
            limit = row
        row = (first + limit) >> 1
    return -1
