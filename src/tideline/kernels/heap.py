"""The memory of an engine: segments and windows. What lies in them: slots.py.

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
   nothing here and in slots.py can fail half way.

One writer at a time (the channel's lock); readers hold the same lock.
"""

from __future__ import annotations

from tideline.kernels import inline, jit
from tideline.kernels.layout import (
    E_ACTIVE,
    E_ACTIVE_COUNT,
    E_FILTERS,
    E_FREE,
    E_FREE_COUNT,
    E_HEAP,
    E_HEAP_WORDS,
    E_HIGH,
    E_LIMBO,
    E_LIMBO_COUNT,
    E_LIMIT,
    E_LOG,
    E_NEXT_EXPIRY,
    E_NEXT_GEN,
    E_SEARCHED,
    E_SEARCHED_EVENTS,
    E_SEARCHED_SUBS,
    E_WINDOWS,
    E_WORDS,
    EVENTS,
    FILTER_WORDS,
    FOREVER,
    FREE,
    OPEN,
    SEGMENT,
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
    W_STATE,
    W_SUBS,
    W_TOLD,
    W_UNTIL_HIGH,
    W_WIDTH,
    W_WORDS,
    WINDOWS,
)
from tideline.kernels.views import octets, words

MOST_MARKS = 1 << 22  # in one window: what is sealed at once
LEAST_WIDTH = 1 << 20  # microseconds: windows narrower than a second gain nothing


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
