"""Which filed condition does a subscription of a channel have? By its text, where it lies.

    table   [hash, number + 1] a slot, open addressing, at most half full; hash 0 is empty
    seen    by hash, WAYS words: the upper 56 bits of one, and how often it was looked for lately

The text is compared as well, so nothing rests on a hash. A text that is not filed is counted in
`seen`. Where there is no place for it, the one that was looked for least counts one less, and goes
when nothing is left: texts that come once do not push out those that come often.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.disk import component
from tideline.kernels.heap import engine, heap_bytes, heap_of
from tideline.kernels.layout import (
    BLOB_TEXT,
    D_SUB_WHERE_OFFSETS,
    D_SUB_WHERES,
    D_SUBS,
    F_SHAPE,
    IN_ROW,
    LOW16,
    LOW48,
    ON_DISK,
    REF_COMPONENT,
    REF_INDEX,
    SHAPE_WORDS,
    SUB_BLOB,
)
from tideline.kernels.text import hash_id, same
from tideline.kernels.views import octets, words

COUNTED = 0xFF
MOST = 32  # what is counted
WAYS = 4


@jit
def find_wheres(address, refs, table, texts, places, sizes, seen, seed, out):
    """By subscription: the number of its condition + 1; else minus how often it was looked for.

    `address` is the engine of subscriptions. `texts`, `places` and `sizes` are those of the
    filed conditions. 0 for a subscription that is only a row yet.
    """
    e = engine(address)
    h = heap_of(e)
    for k in range(len(refs)):
        ref = refs[k]
        if ref >= ON_DISK:
            d = component(e, (ref >> 40) & REF_COMPONENT)
            x = ref & REF_INDEX
            offsets = words(d[D_SUB_WHERE_OFFSETS], d[D_SUBS] + 1)
            start = offsets[x]
            size = offsets[x + 1] - start
            data = octets(d[D_SUB_WHERES], start + size)
        elif ref >= IN_ROW:
            out[k] = 0
            continue
        else:
            blob = h[ref + SUB_BLOB]
            b = blob & LOW48
            start = (b + BLOB_TEXT + (SHAPE_WORDS if blob & F_SHAPE else 0)) * 8
            start += (h[b] & LOW16) + ((h[b] >> 16) & LOW16)
            size = h[b] >> 32
            data = heap_bytes(e)
        out[k] = look_up(data, start, size, table, texts, places, sizes, seen, seed)


@jit
def look_up(data, start, size, table, texts, places, sizes, seen, seed):
    hashed = hash_id(data, start, start + size, seed)
    mask = (len(table) >> 1) - 1
    i = hashed & mask
    while table[2 * i] != 0:
        if table[2 * i] == hashed:
            number = table[2 * i + 1] - 1
            if sizes[number] == size and same(texts, places[number], data, start, size):
                return number + 1
        i = (i + 1) & mask
    return -count_up(seen, hashed)


@jit
def count_up(seen, hashed):
    """How often a hash was looked for lately, now included."""
    first = WAYS * ((hashed >> 24) & ((len(seen) // WAYS) - 1))
    least = first
    for i in range(first, first + WAYS):
        count = seen[i] & COUNTED
        if seen[i] & ~COUNTED == hashed & ~COUNTED:
            if count < MOST:
                seen[i] += 1
            return min(count + 1, MOST)
        if count < seen[least] & COUNTED:
            least = i
    if seen[least] & COUNTED <= 1:
        seen[least] = (hashed & ~COUNTED) | 1
    else:
        seen[least] -= 1
    return 1


@jit
def enter_wheres(table, texts, places, sizes, seed, numbers):
    """Enter filed conditions into the table: there is room, and none of them is in it."""
    mask = (len(table) >> 1) - 1
    for k in range(len(numbers)):
        number = numbers[k]
        start = places[number]
        hashed = hash_id(texts, start, start + sizes[number], seed)
        i = hashed & mask
        while table[2 * i] != 0:
            i = (i + 1) & mask
        table[2 * i] = hashed
        table[2 * i + 1] = number + 1
