"""Verdicts on rows, a byte each, by what `jsonpath.scan` found at one node.

A verdict is 0 for no, 1 for unsure, 2 for yes. `table` has the verdict for every kind; for
the kinds a kernel looks into it depends on the value instead.

Pure functions of arrays; the GIL is released.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.jsonends import TEXT
from tideline.kernels.jsonnumber import FLOAT, INT
from tideline.kernels.lanes import apart, get8, get64, reversed_bytes

__all__ = ["copy_texts", "judge_kinds", "judge_numbers", "judge_texts"]

# The first so many bytes of a word that has been reversed.
_HEADS = np.array([(1 << 64) - (1 << 8 * (8 - size)) for size in range(9)], np.uint64)


@jit
def judge_kinds(tags, table, given):
    """By the kind alone."""
    for row in range(tags.size):
        given[row] = table[tags[row] & 255]


@jit
def judge_numbers(tags, values, floats, table, low, high, float_low, float_high, given):
    """Numbers: whether they lie in `[low, high]` or `[float_low, float_high]`.

    `floats` is `values` seen as float64.
    """
    for row in range(tags.size):
        kind = tags[row] & 255
        verdict = table[kind]
        if kind == INT:
            verdict = 2 * ((values[row] >= low) & (values[row] <= high))
        elif kind == FLOAT:
            verdict = 2 * ((floats[row] >= float_low) & (floats[row] <= float_high))
        given[row] = verdict


@apart
def _order(a, a_size, b, b_size):
    """-1, 0 or 1 as the bytes at address a sort before, with or after those at b."""
    size = min(a_size, b_size)
    k = 0
    while k + 8 <= size and get64(a + k) == get64(b + k):
        k += 8
    while k < size:
        if get8(a + k) != get8(b + k):
            return -1 if get8(a + k) < get8(b + k) else 1
        k += 1
    return (a_size > b_size) - (a_size < b_size)


@jit
def judge_texts(base, limit, tags, values, table, wanted, size, verdicts, given):
    """Texts: `verdicts[0]`, `[1]` or `[2]`, as they sort before, with or after the wanted one.

    That one is the first `size` bytes of `wanted`; eight zeros follow. The data are at the
    addresses `[base, limit)`. Bytes of UTF-8 sort as code points do.
    """
    wanted_at = np.int64(wanted.ctypes.data)
    head = reversed_bytes(get64(wanted_at))
    for row in range(tags.size):
        kind = tags[row] & 255
        verdict = table[kind]
        if kind == TEXT:
            text = base + values[row]
            text_size = tags[row] >> 8
            order = (text_size > size) - (text_size < size)
            if text + 8 <= limit:
                # The first eight bytes decide, or the sizes, or nothing if both go on.
                word = reversed_bytes(get64(text)) & _HEADS[min(text_size, 8)]
                order += 2 * (word > head) - 2 * (word < head)
                if size > 8 and text_size > 8 and word == head:
                    order = _order(text, text_size, wanted_at, size)
            else:
                order = _order(text, text_size, wanted_at, size)
            verdict = verdicts[1 + (order > 0) - (order < 0)]
        given[row] = verdict


@jit
def copy_texts(base, begins, offsets, target):
    """Copy texts one after the other: text k from `base + begins[k]` to `offsets[k]` on."""
    for k in range(begins.size):
        source = base + begins[k] - offsets[k]
        for at in range(offsets[k], offsets[k + 1]):
            target[at] = get8(source + at)
