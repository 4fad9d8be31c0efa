"""What mappers make of a run of values: exact sums, extremes, buckets of a sketch.

Values are int32 (`HALVES`), int64 (`WORDS`) or float64 (`DOUBLES`). A sum is exact whatever the
order: of whole numbers as low and high halves, of doubles as `CHUNKS` words of 32 bits and carries
(layout.py). So what was added up by sub-windows is what one pass over all rows gives.
"""

from __future__ import annotations

import math

import numpy as np

from tideline.kernels import jit
from tideline.kernels.stream.layout import CHUNKS, ZERO
from tideline.kernels.views import doubles, halves, words

HALVES, WORDS, DOUBLES = 0, 1, 2
_LOW32 = 0xFFFFFFFF
_FRACTION = (1 << 52) - 1


@jit
def add_up(values_at, kind, count, out_at):
    """out := the sum in CHUNKS words; of whole numbers in the first two, low and high half."""
    out = words(out_at, CHUNKS)
    for i in range(CHUNKS):
        out[i] = 0
    if kind == HALVES:
        small = halves(values_at, count)
        total = 0
        for i in range(count):
            total += np.int64(small[i])
        out[0] = total & _LOW32
        out[1] = total >> 32
    elif kind == WORDS:
        large = words(values_at, count)
        low = high = 0
        for i in range(count):
            low += large[i] & _LOW32
            high += large[i] >> 32
        out[0] = low
        out[1] = high
    else:
        bits = words(values_at, count)
        for i in range(count):
            each = bits[i]
            power = (each >> 52) & 2047
            fraction = each & _FRACTION
            if power == 0:
                power = 1
            else:
                fraction |= 1 << 52
            chunk, shift = (power - 1) >> 5, (power - 1) & 31
            low = (fraction & _LOW32) << shift
            high = (fraction >> 32) << shift
            if each < 0:
                out[chunk] -= low & _LOW32
                out[chunk + 1] -= (low >> 32) + (high & _LOW32)
                out[chunk + 2] -= high >> 32
            else:
                out[chunk] += low & _LOW32
                out[chunk + 1] += (low >> 32) + (high & _LOW32)
                out[chunk + 2] += high >> 32


@jit
def extremes(values_at, kind, count, out_at):
    """out := where the least and the greatest value stand, the first of equal ones."""
    out = words(out_at, 2)
    least = greatest = 0
    if kind == HALVES:
        small = halves(values_at, count)
        for i in range(1, count):
            if small[i] < small[least]:
                least = i
            if small[i] > small[greatest]:
                greatest = i
    elif kind == WORDS:
        large = words(values_at, count)
        for i in range(1, count):
            if large[i] < large[least]:
                least = i
            if large[i] > large[greatest]:
                greatest = i
    else:
        real = doubles(values_at, count)
        for i in range(1, count):
            if real[i] < real[least]:
                least = i
            if real[i] > real[greatest]:
                greatest = i
    out[0] = least
    out[1] = greatest


@jit
def buckets(values_at, count, factor, out_at):
    """The code of the bucket of each double: `factor` is 1 / ln(gamma)."""
    values, out = doubles(values_at, count), halves(out_at, count)
    for i in range(count):
        value = values[i]
        if value > 0:
            out[i] = ZERO + np.int64(math.ceil(math.log(value) * factor))
        elif value < 0:
            out[i] = -ZERO - np.int64(math.ceil(math.log(-value) * factor))
        else:
            out[i] = 0
