"""The memory of an engine: segments, windows, places (slots), lists (chunks).

Invariants:
1. A record lies in the window its `until` falls into; every pointer stored in a
   window points into that same window. So a window is dropped by giving its
   segments back: nothing inside is touched.
2. The directory (place -> slot) and the id table outlive windows: an entry whose
   window is gone is stale, is never matched, and is left out when the table is
   rebuilt.
3. A place that a window has is in the window's filter. What the filter does not know need not
   be looked for in the directory, which is large and mostly far away.
4. Before a row is stored, SPARE segments and room in both tables are there, so
   nothing in this file can fail half way.

One writer at a time (the channel's lock); readers hold the same lock.
"""

from __future__ import annotations

from tideline.kernels import inline, jit
from tideline.kernels.layout import (
    CHUNK,
    CHUNK_MOST,
    DIR_ENTRY,
    E_ACTIVE,
    E_ACTIVE_COUNT,
    E_DIR,
    E_DIR_CAP,
    E_DIR_FULL,
    E_DIR_USED,
    E_FILTERS,
    E_FREE,
    E_FREE_COUNT,
    E_HEAP,
    E_HEAP_WORDS,
    E_HIGH,
    E_IDS_FULL,
    E_IDS_USED,
    E_LIMBO,
    E_LIMBO_COUNT,
    E_LIMIT,
    E_LOG,
    E_MODE,
    E_NEXT_EXPIRY,
    E_NEXT_GEN,
    E_SEARCHED,
    E_SEARCHED_EVENTS,
    E_SEARCHED_SUBS,
    E_TOMBS_CAP,
    E_TOMBS_USED,
    E_WINDOWS,
    E_WORDS,
    EVENTS,
    FILTER_PLACES,
    FILTER_WORDS,
    FOREVER,
    FREE,
    LOW48,
    OPEN,
    SEGMENT,
    SLOT_CHILD,
    SLOT_KEY,
    SLOT_NEXT,
    SLOT_SIBLING,
    SPARE,
    SUBS,
    TOLD_SIDE,
    W_AT_HIGH,
    W_AT_LOW,
    W_EVENT_UNTIL_HIGH,
    W_EVENTS,
    W_FILTER,
    W_FIRST,
    W_GEN,
    W_LIMIT,
    W_LOG,
    W_POS,
    W_SEGMENT,
    W_SEGMENTS,
    W_SINCE_LOW,
    W_SLOT_COUNT,
    W_SLOTS,
    W_STATE,
    W_SUBS,
    W_TOLD,
    W_UNTIL_HIGH,
    W_WIDTH,
    W_WORDS,
    WINDOWS,
)
from tideline.kernels.text import copy
from tideline.kernels.views import octets, prefetch, words

GOLDEN = -7046029254386353131
MOST_MARKS = 1 << 22  # in one window: what is sealed at once
LEAST_WIDTH = 1 << 20  # microseconds: windows narrower than a second gain nothing
ENTRY_REF = (1 << 36) - 1


@inline
def engine(address):
    return words(address, E_WORDS)


@inline
def heap_of(e):
    return words(e[E_HEAP], e[E_HEAP_WORDS])


@inline
def heap_bytes(e):
    return octets(e[E_HEAP], e[E_HEAP_WORDS] * 8)


@inline
def windows_of(e):
    return words(e[E_WINDOWS], WINDOWS * W_WORDS)


@inline
def active_of(e):
    return words(e[E_ACTIVE], WINDOWS)


@inline
def searched(e, side):
    """The windows a search has to look into, oldest first, and how many there are."""
    return (
        words(e[E_SEARCHED] + (WINDOWS * 8 if side == EVENTS else 0), WINDOWS),
        e[E_SEARCHED_EVENTS if side == EVENTS else E_SEARCHED_SUBS],
    )


# ---- segments -------------------------------------------------------------------


@jit
def free_segments(e):
    return e[E_FREE_COUNT] + e[E_LIMIT] - e[E_HIGH]


@jit
def take_segment(e):
    if e[E_FREE_COUNT] > 0:
        e[E_FREE_COUNT] -= 1
        return words(e[E_FREE], e[E_FREE_COUNT] + 1)[e[E_FREE_COUNT]] * SEGMENT
    e[E_HIGH] += 1
    return (e[E_HIGH] - 1) * SEGMENT


@jit
def allocate(e, h, w, count):
    """`count` words (at most a segment less one) inside window `w` (its first word's index)."""
    ws = windows_of(e)
    if ws[w + W_POS] + count > SEGMENT:
        base = take_segment(e)
        h[base] = -1
        if ws[w + W_SEGMENT] >= 0:
            h[ws[w + W_SEGMENT]] = base
        else:
            ws[w + W_FIRST] = base
        ws[w + W_SEGMENT] = base
        ws[w + W_POS] = 1
        ws[w + W_SEGMENTS] += 1
    at = ws[w + W_SEGMENT] + ws[w + W_POS]
    ws[w + W_POS] += count
    return at


# ---- windows --------------------------------------------------------------------


@jit
def note_expiry(e):
    """Recompute the first moment at which a window can be dropped."""
    ws = windows_of(e)
    active = active_of(e)
    first = FOREVER
    for i in range(e[E_ACTIVE_COUNT]):
        w = active[i] * W_WORDS
        if ws[w + W_STATE] == OPEN and ws[w + W_LIMIT] < first:
            first = ws[w + W_LIMIT]
    e[E_NEXT_EXPIRY] = first


@jit
def pick_window(e, side, until, now):
    """The open window (index of its first word) for a record that ends at `until`.

    Marks have windows of their own, with nothing else in them: they take little and are never
    scanned for answers, so few wide windows serve them best. Their width has its lowest bit set.
    """
    ws = windows_of(e)
    active = active_of(e)
    told = side == TOLD_SIDE
    short = told and free_segments(e) < SPARE
    if until >= FOREVER:
        width = 0
        limit = FOREVER
    else:
        # A quarter of the time left, rounded up to a power of two: a record stays in memory
        # at most that long after its end.
        quarter = (until - now) >> (0 if told else 2)
        width = LEAST_WIDTH
        while width < quarter:
            width <<= 1
        # Every window takes a segment at least: where there are few, fewer and wider windows do.
        if e[E_ACTIVE_COUNT] > WINDOWS - 56:
            width <<= 6
        elif short:
            width <<= 6
        elif 4 * e[E_ACTIVE_COUNT] > e[E_LIMIT] and not told:
            width <<= 2
        limit = ((until - 1) | (width - 1)) + 1
        if limit >= FOREVER:
            limit = FOREVER - 1
    if told:
        width |= 1
    else:
        numbers, count = searched(e, side)
        if count > 0:  # most records go where the last one went
            w = numbers[count - 1]
            if ws[w + W_STATE] == OPEN and ws[w + W_LIMIT] == limit and ws[w + W_WIDTH] == width:
                return w
    best = -1
    for i in range(e[E_ACTIVE_COUNT]):
        w = active[i] * W_WORDS
        if ws[w + W_STATE] == OPEN and ws[w + W_LIMIT] == limit and ws[w + W_WIDTH] == width:
            if ws[w + W_TOLD] < MOST_MARKS:
                return w
        # When memory or the table is nearly full any open window that ends late enough will do.
        if ws[w + W_STATE] == OPEN and ws[w + W_WIDTH] & 1 == told:
            if ws[w + W_LIMIT] >= (until if short else limit):
                best = w
    if best >= 0 and (short or e[E_ACTIVE_COUNT] >= WINDOWS - 8):
        return best
    number = 0
    while ws[number * W_WORDS + W_STATE] != FREE:
        number += 1
    w = number * W_WORDS
    for i in range(W_WORDS):
        ws[w + i] = 0
    ws[w + W_STATE] = OPEN
    ws[w + W_GEN] = e[E_NEXT_GEN]
    e[E_NEXT_GEN] += 1
    ws[w + W_WIDTH] = width
    ws[w + W_LIMIT] = limit
    ws[w + W_FILTER] = e[E_FILTERS] + number * FILTER_WORDS * 8
    bits = words(ws[w + W_FILTER], FILTER_WORDS)
    for i in range(FILTER_WORDS):
        bits[i] = 0
    ws[w + W_SEGMENT] = -1
    ws[w + W_FIRST] = -1
    ws[w + W_POS] = SEGMENT
    ws[w + W_SINCE_LOW] = FOREVER
    ws[w + W_UNTIL_HIGH] = -FOREVER
    ws[w + W_AT_LOW] = FOREVER
    ws[w + W_AT_HIGH] = -FOREVER
    ws[w + W_EVENT_UNTIL_HIGH] = -FOREVER
    ws[w + W_LOG] = e[E_LOG]
    active[e[E_ACTIVE_COUNT]] = number
    e[E_ACTIVE_COUNT] += 1
    if limit < e[E_NEXT_EXPIRY]:
        e[E_NEXT_EXPIRY] = limit
    return w


@jit
def set_state(address, number, state):
    """Freeze or thaw a window. A frozen one is not dropped: it is being sealed."""
    e = engine(address)
    windows_of(e)[number * W_WORDS + W_STATE] = state
    note_expiry(e)


@jit
def search_no_more(e, w):
    """Nothing in a window is valid any more."""
    for side in (SUBS, EVENTS):
        numbers, count = searched(e, side)
        kept = 0
        for i in range(count):
            if numbers[i] != w:
                numbers[kept] = numbers[i]
                kept += 1
        e[E_SEARCHED_EVENTS if side == EVENTS else E_SEARCHED_SUBS] = kept


@jit
def drop_window(address, number):
    """Forget a window. Its segments stay readable until `release`: answers of the running
    call may still point there. Returns how many there were."""
    e = engine(address)
    h = heap_of(e)
    ws = windows_of(e)
    w = number * W_WORDS
    limbo = words(e[E_LIMBO], e[E_HIGH])
    segment = ws[w + W_FIRST]
    count = 0
    while segment >= 0:
        following = h[segment]
        limbo[e[E_LIMBO_COUNT]] = segment // SEGMENT
        e[E_LIMBO_COUNT] += 1
        count += 1
        segment = following
    ws[w + W_STATE] = FREE
    search_no_more(e, w)
    active = active_of(e)
    for i in range(e[E_ACTIVE_COUNT]):
        if active[i] == number:
            active[i] = active[e[E_ACTIVE_COUNT] - 1]
            e[E_ACTIVE_COUNT] -= 1
            break
    note_expiry(e)
    return count


@jit
def release(address):
    """Give the segments of dropped windows back: nobody points there any more."""
    e = engine(address)
    free = words(e[E_FREE], e[E_HIGH])
    limbo = words(e[E_LIMBO], e[E_HIGH])
    for i in range(e[E_LIMBO_COUNT]):
        free[e[E_FREE_COUNT]] = limbo[i]
        e[E_FREE_COUNT] += 1
    e[E_LIMBO_COUNT] = 0


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


# ---- what a window knows of its records ----------------------------------------------------


@jit
def search_from_now(e, side, w):
    numbers, count = searched(e, side)
    numbers[count] = w
    e[E_SEARCHED_EVENTS if side == EVENTS else E_SEARCHED_SUBS] = count + 1


@jit
def note_subscription(e, w, since, until):
    ws = windows_of(e)
    if ws[w + W_SUBS] == 0:
        search_from_now(e, SUBS, w)
    ws[w + W_SUBS] += 1
    if since < ws[w + W_SINCE_LOW]:
        ws[w + W_SINCE_LOW] = since
    if until > ws[w + W_UNTIL_HIGH]:
        ws[w + W_UNTIL_HIGH] = until


@jit
def note_event(e, w, at, until):
    ws = windows_of(e)
    if ws[w + W_EVENTS] == 0:
        search_from_now(e, EVENTS, w)
    ws[w + W_EVENTS] += 1
    if at < ws[w + W_AT_LOW]:
        ws[w + W_AT_LOW] = at
    if at > ws[w + W_AT_HIGH]:
        ws[w + W_AT_HIGH] = at
    if until > ws[w + W_EVENT_UNTIL_HIGH]:
        ws[w + W_EVENT_UNTIL_HIGH] = until


@jit
def next_slot(h, slot):
    return h[slot + SLOT_NEXT] & LOW48
