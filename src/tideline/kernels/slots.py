"""Places of windows: the directory, slots, and lists of records (chunks).

    directory   place and window -> slot, and the first chunks of its two lists; over all windows
    slot        a place that a window has: its key, its next, its child and its sibling
    chunk       some records of a list, newest chunk first

The invariants are those of heap.py, which has the windows that all of it lies in.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.heap import allocate, free_segments, heap_bytes, searched, windows_of
from tideline.kernels.layout import (
    CHUNK,
    CHUNK_MOST,
    DIR_ENTRY,
    E_DIR,
    E_DIR_CAP,
    E_DIR_FULL,
    E_DIR_USED,
    E_HEAP,
    E_IDS_FULL,
    E_IDS_USED,
    E_MODE,
    E_TOMBS_CAP,
    E_TOMBS_USED,
    EVENTS,
    FILTER_PLACES,
    FILTER_WORDS,
    FREE,
    LOW48,
    SLOT_CHILD,
    SLOT_KEY,
    SLOT_NEXT,
    SLOT_SIBLING,
    SPARE,
    W_AT_HIGH,
    W_AT_LOW,
    W_EVENT_UNTIL_HIGH,
    W_FILTER,
    W_GEN,
    W_SINCE_LOW,
    W_SLOT_COUNT,
    W_SLOTS,
    W_STATE,
    W_UNTIL_HIGH,
    W_WORDS,
)
from tideline.kernels.text import copy
from tideline.kernels.views import prefetch, words

GOLDEN = -7046029254386353131
ENTRY_REF = (1 << 36) - 1


# ---- entries of the two tables ----------------------------------------------------


@jit
def pack_entry(ref, w, gen):
    return ref | ((w // W_WORDS) << 36) | ((gen & 0x7FFFF) << 44)


@jit
def entry_window(e, packed):
    """The window of an entry, or -1 when that window is gone."""
    ws = windows_of(e)
    w = ((packed >> 36) & 0xFF) * W_WORDS
    if ws[w + W_STATE] == FREE or (ws[w + W_GEN] & 0x7FFFF) != packed >> 44:
        return -1
    return w


@jit
def has_room(e):
    """Whether both tables and the heap can take one more row (see invariant 4)."""
    return (
        free_segments(e) >= SPARE
        and e[E_DIR_USED] + 64 < e[E_DIR_FULL]
        and e[E_IDS_USED] + 8 < e[E_IDS_FULL]
        and (e[E_TOMBS_USED] + 8) * 5 < e[E_TOMBS_CAP] * 4
    )


# ---- places -----------------------------------------------------------------------


@jit
def may_have(ws, w, h1):
    """Whether a window may have a place: no when its filter does not know it."""
    if ws[w + W_SLOT_COUNT] > FILTER_PLACES:
        return True
    bit = (h1 >> 20) & (FILTER_WORDS * 64 - 1)
    return (words(ws[w + W_FILTER], FILTER_WORDS)[bit >> 6] >> (bit & 63)) & 1 != 0


@jit
def find_slot(e, w, h1, h2):
    """The slot of a place in a window, or 0."""
    at = find_in(e, w, h1, h2)
    return entry_slot(e, at) if at >= 0 else 0


@jit
def find_in(e, w, h1, h2):
    """Where the entry of a place in a window begins, or -1."""
    ws = windows_of(e)
    return find_entry(e, h1 + ws[w + W_GEN] * GOLDEN, h2) if may_have(ws, w, h1) else -1


@jit
def find_entry(e, k1, h2):
    """Where the entry of a place in a window begins (k1 carries the window), or -1."""
    table = words(e[E_DIR], e[E_DIR_CAP] * DIR_ENTRY)
    mask = e[E_DIR_CAP] - 1
    i = (k1 ^ (k1 >> 32)) & mask
    while True:
        at = DIR_ENTRY * i
        if table[at + 2] == 0:
            return -1
        if table[at] == k1 and table[at + 1] == h2:
            return at
        i = (i + 1) & mask


@jit
def put_entry(e, k1, h2, packed, subs, events):
    """Enter a place that is not in the directory; where a dropped window left an entry, there.

    Returns where the entry begins.
    """
    table = words(e[E_DIR], e[E_DIR_CAP] * DIR_ENTRY)
    mask = e[E_DIR_CAP] - 1
    i = (k1 ^ (k1 >> 32)) & mask
    while table[DIR_ENTRY * i + 2] != 0:
        if entry_window(e, table[DIR_ENTRY * i + 2]) < 0:
            e[E_DIR_USED] -= 1
            break
        i = (i + 1) & mask
    e[E_DIR_USED] += 1
    at = DIR_ENTRY * i
    table[at] = k1
    table[at + 1] = h2
    table[at + 2] = packed
    table[at + 3] = subs
    table[at + 4] = events
    return at


@jit
def entry_slot(e, at):
    """The slot that an entry of the directory names."""
    return words(e[E_DIR], e[E_DIR_CAP] * DIR_ENTRY)[at + 2] & ENTRY_REF


@jit
def make_slot(e, h, w, h1, h2, key, start, length, parent):
    """A new place in a window; returns where its entry begins."""
    ws = windows_of(e)
    slot = allocate(e, h, w, SLOT_KEY + ((length + 7) >> 3))
    h[slot] = 0
    h[slot + 1] = 0
    h[slot + SLOT_NEXT] = ws[w + W_SLOTS] | (length << 48)
    h[slot + SLOT_CHILD] = 0
    h[slot + SLOT_SIBLING] = 0
    ws[w + W_SLOTS] = slot
    ws[w + W_SLOT_COUNT] += 1
    bit = (h1 >> 20) & (FILTER_WORDS * 64 - 1)
    words(ws[w + W_FILTER], FILTER_WORDS)[bit >> 6] |= 1 << (bit & 63)
    if length > 0:
        h[slot + SLOT_KEY + ((length - 1) >> 3)] = 0
    copy(heap_bytes(e), (slot + SLOT_KEY) * 8, key, start, length)
    if parent > 0:
        h[slot + SLOT_SIBLING] = h[parent + SLOT_CHILD]
        h[parent + SLOT_CHILD] = slot
    k1 = h1 + ws[w + W_GEN] * GOLDEN
    return put_entry(e, k1, h2, pack_entry(slot, w, ws[w + W_GEN]), 0, 0)


@jit
def reach_entry(e, h, w, key, start, tree, count):
    """The entry of the last of `count` nodes in a window, made with its ancestors if missing."""
    last = 3 * (count - 1)
    at = find_in(e, w, tree[last], tree[last + 1])
    if at >= 0:
        return at
    parent = 0
    for n in range(count):
        at = -1 if 3 * n == last else find_in(e, w, tree[3 * n], tree[3 * n + 1])
        if at < 0:
            at = make_slot(
                e, h, w, tree[3 * n], tree[3 * n + 1], key, start, tree[3 * n + 2], parent
            )
        parent = entry_slot(e, at)
    return at


@jit
def gather_slots(e, h, w, tree, count, out, limit):
    """The slots of a window whose places meet a place: itself, ancestors, descendants.

    Writes them into out[0:limit); returns how many, or -1 when they do not fit.
    """
    if e[E_MODE] == 0:
        slot = find_slot(e, w, tree[0], tree[1])
        if slot == 0:
            return 0
        out[0] = slot
        return 1
    found = 0
    for n in range(count):
        slot = find_slot(e, w, tree[3 * n], tree[3 * n + 1])
        if slot == 0:
            return found  # every ancestor of a record has a slot: nothing lies deeper
        if found >= limit:
            return -1
        out[found] = slot
        found += 1
    at = found - 1  # the place itself: now everything below it, breadth first
    while at < found:
        child = h[out[at] + SLOT_CHILD]
        while child > 0:
            if found >= limit:
                return -1
            out[found] = child
            found += 1
            child = h[child + SLOT_SIBLING]
        at += 1
    return found


@jit
def heads(e, h, side, tree, count, first, limit, now, out, room):
    """The first chunks of the lists at places that meet a place, over all windows in question.

    Subscriptions: windows that may hold one with since <= first < until (limit unused).
    Events: windows that may hold one with first <= at < limit. Writes them into out[0:room);
    returns how many, or -1 when they do not fit.

    Each window costs a cache miss; going over them in rounds lets the misses overlap.
    """
    ws = windows_of(e)
    numbers, count_windows = searched(e, side)
    table = words(e[E_DIR], e[E_DIR_CAP] * DIR_ENTRY)
    mask = e[E_DIR_CAP] - 1
    flat = e[E_MODE] == 0
    found = 0
    for i in range(count_windows):
        w = numbers[i]
        if side == EVENTS:
            if ws[w + W_EVENT_UNTIL_HIGH] <= now:
                continue
            if ws[w + W_AT_HIGH] < first or ws[w + W_AT_LOW] >= limit:
                continue
        else:
            if ws[w + W_UNTIL_HIGH] <= now:
                continue
            if ws[w + W_UNTIL_HIGH] <= first or ws[w + W_SINCE_LOW] > first:
                continue
        if flat:
            if not may_have(ws, w, tree[0]):
                continue
            k1 = tree[0] + ws[w + W_GEN] * GOLDEN
            at = DIR_ENTRY * ((k1 ^ (k1 >> 32)) & mask)
            out[3 * found] = k1
            out[3 * found + 1] = table[at]
            out[3 * found + 2] = at
            found += 1
        else:
            got = gather_slots(e, h, w, tree, count, out[found:room], room - found)
            if got < 0:
                return -1
            found += got
    kept = 0
    for k in range(found):
        if flat:
            at = out[3 * k + 2]
            if out[3 * k + 1] != out[3 * k] or table[at + 1] != tree[1] or table[at + 2] == 0:
                at = find_entry(e, out[3 * k], tree[1])
                if at < 0:
                    continue
            head = table[at + 3 + side]
        else:
            head = h[out[k] + side]
        if head > 0:  # never overtakes what is still to be read
            out[kept] = head
            kept += 1
    return kept


@jit
def slot_key_length(h, slot):
    return h[slot + SLOT_NEXT] >> 48


# ---- lists ------------------------------------------------------------------------


@jit
def chunk_used(h, chunk):
    """How many records a chunk holds."""
    return (h[chunk] >> 40) & 0xFFF


@jit
def append_record(e, h, w, at, side, size):
    """Room for one more record at the end of a list of an entry; returns where it goes."""
    entry = words(e[E_DIR], e[E_DIR_CAP] * DIR_ENTRY)
    chunk = entry[at + 3 + side]  # the directory knows the heads too: the slot need not be touched
    if chunk > 0:
        used = chunk_used(h, chunk)
        cap = h[chunk] >> 52
        if used < cap:
            h[chunk] += 1 << 40
            return chunk + CHUNK + used * size
        cap = 4 if cap < 4 else min(cap * 2, CHUNK_MOST)
    else:
        cap = 1
    fresh = allocate(e, h, w, CHUNK + cap * size)
    h[fresh] = chunk | (1 << 40) | (cap << 52)
    h[entry_slot(e, at) + side] = fresh
    entry[at + 3 + side] = fresh
    return fresh + CHUNK


@jit
def fetch_chunk(e, chunk, limit):
    """Begin to load the first words of a chunk."""
    for at in range(0, limit, 8):
        prefetch(e[E_HEAP] + 8 * (chunk + at))


@jit
def next_slot(h, slot):
    return h[slot + SLOT_NEXT] & LOW48
