"""Search inside sealed components: places, ids and lists in memory-mapped columns.

A component is one row per place, sorted by key bytes; so a place is found by binary
search, a subtree is one range of rows, and both lists of a place are neighbours
(docs/internals/components.md). Reads only; safe from any thread while the component
is open.
"""

from __future__ import annotations

from tideline.kernels import inline, jit
from tideline.kernels.layout import (
    D_EVENT_BY_ID,
    D_EVENT_ID_HASH,
    D_EVENT_ID_OFFSETS,
    D_EVENT_IDS,
    D_EVENT_LISTS,
    D_EVENT_SEQ,
    D_EVENT_UNTIL,
    D_EVENTS,
    D_KEY_BYTES,
    D_KEY_OFFSETS,
    D_KEYS,
    D_PLACES,
    D_SEQ_HIGH,
    D_SUB_BY_ID,
    D_SUB_FLAGS,
    D_SUB_ID_HASH,
    D_SUB_ID_OFFSETS,
    D_SUB_IDS,
    D_SUB_LISTS,
    D_SUB_SEQ,
    D_SUB_UNTIL,
    D_SUBS,
    D_WORDS,
    E_COMPONENTS,
    E_MODE,
    E_READS,
    F_CANCELLED,
    F_GHOST,
    F_TOMB,
    FOREVER,
    SUBS,
)
from tideline.kernels.tables import find_tomb
from tideline.kernels.text import order, same
from tideline.kernels.views import octets, words


@inline
def component(e, number):
    return words(e[E_COMPONENTS] + number * D_WORDS * 8, D_WORDS)


@jit
def first_at_least(d, key, start, limit, low):
    """The first place (row) at or after `low` whose key is not smaller than key[start:limit)."""
    offsets = words(d[D_KEY_OFFSETS], d[D_PLACES] + 1)
    keys = octets(d[D_KEYS], d[D_KEY_BYTES])
    high = d[D_PLACES]
    while low < high:
        middle = (low + high) >> 1
        if order(keys, offsets[middle], offsets[middle + 1], key, start, limit) < 0:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def first_beyond(d, key, start, limit, low):
    """The first place at or after `low` that does not begin with key[start:limit)."""
    offsets = words(d[D_KEY_OFFSETS], d[D_PLACES] + 1)
    keys = octets(d[D_KEYS], d[D_KEY_BYTES])
    high = d[D_PLACES]
    length = limit - start
    while low < high:
        middle = (low + high) >> 1
        end = min(offsets[middle + 1], offsets[middle] + length)
        if order(keys, offsets[middle], end, key, start, limit) <= 0:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def place_ranges(e, d, key, start, tree, count, out):
    """Ranges of places that meet a place, as (low, high) pairs in `out`; returns how many."""
    e[E_READS] += 1
    offsets = words(d[D_KEY_OFFSETS], d[D_PLACES] + 1)
    keys = octets(d[D_KEYS], d[D_KEY_BYTES])
    found = 0
    low = 0
    for n in range(count):
        length = tree[3 * n + 2]
        low = first_at_least(d, key, start, start + length, low)
        if low >= d[D_PLACES]:
            return found
        exact = offsets[low + 1] - offsets[low] == length and same(
            keys, offsets[low], key, start, length
        )
        if n == count - 1 and e[E_MODE] != 0:
            high = first_beyond(d, key, start, start + length, low)
            if high > low:
                out[2 * found] = low
                out[2 * found + 1] = high
                found += 1
        elif exact:
            out[2 * found] = low
            out[2 * found + 1] = low + 1
            found += 1
    return found


@jit
def place_of(d, side, index):
    """The place (row) a record of a component belongs to."""
    lists = words(d[D_SUB_LISTS if side == SUBS else D_EVENT_LISTS], d[D_PLACES] + 1)
    low = 0
    high = d[D_PLACES]
    while low < high:
        middle = (low + high) >> 1
        if lists[middle + 1] <= index:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def first_hash(hashes, count, id_hash):
    """The first entry whose hash is not smaller. Hashes are spread evenly: guess, then gallop."""
    guess = int((float(id_hash) / 18446744073709551616.0 + 0.5) * count)
    low = min(max(guess, 0), count - 1)
    high = low
    step = 16
    while low > 0 and hashes[low] >= id_hash:
        high = low
        low = max(low - step, 0)
        step *= 2
    step = 16
    while high < count and hashes[high] < id_hash:
        low = high
        high = min(high + step, count)
        step *= 2
    while low < high:
        middle = (low + high) >> 1
        if hashes[middle] < id_hash:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def find_disk_id(e, d, side, id_hash, data, start, limit, now, wanted):
    """The record of a component with this id, or -1.

    With `wanted` < 0: the one that still counts at `now`. Else: the one with that seq,
    whatever has become of it.
    """
    if side == SUBS:
        count = d[D_SUBS]
        hashes = words(d[D_SUB_ID_HASH], count)
        by_id = words(d[D_SUB_BY_ID], count)
        offsets = words(d[D_SUB_ID_OFFSETS], count + 1)
        ids = octets(d[D_SUB_IDS], FOREVER)
        untils = words(d[D_SUB_UNTIL], count)
        seqs = words(d[D_SUB_SEQ], count)
    else:
        count = d[D_EVENTS]
        hashes = words(d[D_EVENT_ID_HASH], count)
        by_id = words(d[D_EVENT_BY_ID], count)
        offsets = words(d[D_EVENT_ID_OFFSETS], count + 1)
        ids = octets(d[D_EVENT_IDS], FOREVER)
        untils = words(d[D_EVENT_UNTIL], count)
        seqs = words(d[D_EVENT_SEQ], count)
    if count == 0 or wanted > d[D_SEQ_HIGH]:
        return -1
    low = first_hash(hashes, count, id_hash)
    while low < count and hashes[low] == id_hash:
        index = by_id[low]
        low += 1
        length = offsets[index + 1] - offsets[index]
        if length != limit - start or not same(ids, offsets[index], data, start, length):
            continue
        flags = words(d[D_SUB_FLAGS], count)[index] if side == SUBS else 0
        if wanted >= 0:
            if seqs[index] == wanted and flags & (F_TOMB | F_GHOST) == 0:
                return index
        elif untils[index] > now and flags & (F_CANCELLED | F_TOMB | F_GHOST) == 0:
            if find_tomb(e, seqs[index]) == FOREVER:
                return index
    return -1
