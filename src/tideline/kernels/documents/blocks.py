"""Blooms and zone maps of a component, made when it is written.

For each block of records, and each embedded field, the least and the greatest value (a zone map)
and a bloom of the values; the same again for each group of blocks, so that a search passes over
most of a component without looking at its blocks. search.py asks them.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.documents.octets import hash_bytes, prefix_of
from tideline.kernels.documents.records import bloom_bits, bloom_line
from tideline.kernels.lanes import high_product, hot
from tideline.kernels.views import words

__all__ = ["block_bit", "index_blocks", "key_bloom", "step_of"]

_P1 = -7046029254386353131


@jit
def key_bloom(offsets_at, base, count, seed, lines, bloom):
    """Set the bits of every key in a bloom of `lines` lines, which must be zeros."""
    offsets = words(offsets_at, count + 1)
    for i in range(count):
        h = hash_bytes(base + offsets[i], offsets[i + 1] - offsets[i], seed)
        _set_line(bloom, 8 * bloom_line(h, lines), h)


@hot
def _set_line(bloom, line, h):
    g = bloom_bits(h)
    for _ in range(7):
        bloom[line + ((g >> 6) & 7)] |= 1 << (g & 63)
        g >>= 9


@hot
def step_of(h):
    """How far apart the bits of a hash lie in the bloom of a block."""
    return (h * _P1) | 1


@hot
def block_bit(h, step, probe, bits):
    """The bit that a probe looks at, in a bloom of `bits` bits."""
    return np.int64(high_product(np.uint64(h + probe * step), np.uint64(bits)))


@jit
def index_blocks(
    lists, offsets_at, base, starts, seed, probes, bloom_starts, bloom, lows, highs,
    group, group_starts, group_bloom, group_lows, group_highs,
):  # fmt: skip
    """Zone maps and blooms of the values of every block and group; blooms must be zeros.

    Where there are no values, the zone is one that nothing meets.
    """
    offsets = words(offsets_at, lists[starts[len(starts) - 1]] + 1)
    for block in range(len(starts) - 1):
        mine = block // group
        if block % group == 0:
            group_lows[mine] = 9223372036854775807
            group_highs[mine] = -9223372036854775808
        lines = group_starts[mine + 1] - group_starts[mine]
        first = bloom_starts[block]
        bits = (bloom_starts[block + 1] - first) * 64
        low = 9223372036854775807
        high = -9223372036854775808
        for entry in range(lists[starts[block]], lists[starts[block + 1]]):
            at = base + offsets[entry]
            size = offsets[entry + 1] - offsets[entry]
            prefix = prefix_of(at, size)
            low = min(low, prefix)
            high = max(high, prefix)
            h = hash_bytes(at, size, seed)
            step = step_of(h)
            for probe in range(probes):
                bit = block_bit(h, step, probe, bits)
                bloom[first + (bit >> 6)] |= 1 << (bit & 63)
            _set_line(group_bloom, 8 * (group_starts[mine] + bloom_line(h, lines)), h)
        lows[block] = low
        highs[block] = high
        group_lows[mine] = min(group_lows[mine], low)
        group_highs[mine] = max(group_highs[mine], high)
