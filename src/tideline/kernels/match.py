"""The contract of an answer, as loops: who is answered by an event, what a window finds.

    event e answers subscription s:   places meet
                                      s.since <= e.at < s.until
                                      the earlier of the two is valid at `now`
    conditions are checked in Python afterwards: such answers are marked MAYBE

Each function scans the memory windows first, then the disk components, skipping
what its filter rules out. An answer is one code, of the other record: the row
itself is the same for all answers of a row. A record gets its code when it is first
met in a call and keeps it in its stamp, so texts are copied once per record, not once
per answer.
"""

from __future__ import annotations

from tideline.kernels import inline, jit
from tideline.kernels.disk import component, place_ranges
from tideline.kernels.geo import POLYGON, shapes_meet
from tideline.kernels.heap import active_of
from tideline.kernels.layout import (
    AT,
    BLOB_TEXT,
    C_ANSWER_CAP,
    C_ANSWER_COUNT,
    C_ANSWERS,
    C_EPOCH,
    C_EVENT_REF_COUNT,
    C_EVENT_REFS,
    C_EVENT_TOLD,
    C_EVENTS,
    C_MAYBES,
    C_REFS_CAP,
    C_SCRATCH,
    C_SCRATCH_WORDS,
    C_SUB_REF_COUNT,
    C_SUB_REFS,
    C_SUB_TOLD,
    C_SUBS,
    CHUNK,
    D_AT_HIGH,
    D_AT_LOW,
    D_EVENT_AT,
    D_EVENT_CORNERS,
    D_EVENT_CORNERS_AT,
    D_EVENT_LISTS,
    D_EVENT_SEQ,
    D_EVENT_SHAPE,
    D_EVENT_UNTIL,
    D_EVENT_UNTIL_HIGH,
    D_EVENTS,
    D_KEY_OFFSETS,
    D_PLACES,
    D_SINCE_LOW,
    D_SUB_CORNERS,
    D_SUB_CORNERS_AT,
    D_SUB_FLAGS,
    D_SUB_LISTS,
    D_SUB_SEQ,
    D_SUB_SHAPE,
    D_SUB_SINCE,
    D_SUB_UNTIL,
    D_SUBS,
    D_UNTIL_HIGH,
    DONE,
    E_ACTIVE_COUNT,
    E_COMPONENT_COUNT,
    E_HEAP,
    E_HEAP_WORDS,
    E_REUSED,
    E_WORDS,
    EVENT_BLOB,
    EVENT_STAMP,
    EVENT_WORDS,
    EVENTS,
    F_CANCELLED,
    F_COND,
    F_GHOST,
    F_SHAPE,
    F_TOMB,
    F_UNSEEN,
    F_VOID,
    FOREVER,
    LOW16,
    LOW32,
    LOW40,
    LOW48,
    MAYBE,
    NEED_OUTPUT,
    NEED_SCRATCH,
    ON_DISK,
    R_BODY,
    R_LENGTHS,
    R_TEXT,
    SEQ,
    SHAPE_WORDS,
    SINCE,
    STAMP,
    SUB_BLOB,
    SUB_WORDS,
    SUBS,
    UNTIL,
    W_WORDS,
)
from tideline.kernels.polygon import polygon_meets
from tideline.kernels.slots import chunk_used, fetch_chunk, find_slot, heads
from tideline.kernels.tables import find_tomb
from tideline.kernels.views import doubles, halves, words

TREE = 256  # words of scratch for the nodes of one key
SKIPPED = F_CANCELLED | F_TOMB | F_VOID | F_GHOST  # records that no event answers
GONE = F_VOID | F_CANCELLED  # events that nobody finds


# ---- scratch: [0, TREE) and [TREE, 2 TREE) nodes, [512, half) slots, [half, end) references


@inline
def slots_scratch(c):
    half = c[C_SCRATCH_WORDS] >> 1
    return words(c[C_SCRATCH] + 4096, half - 512), half - 512


@inline
def refs_scratch(c):
    half = c[C_SCRATCH_WORDS] >> 1
    return words(c[C_SCRATCH] + half * 8, half), half


# ---- emitting ---------------------------------------------------------------------


@jit
def sub_code(c, h, o):
    """The code of a heap subscription in this call's answers, or -1 when there is no room."""
    stamp = h[o + STAMP]
    if stamp >> 32 == c[C_EPOCH]:
        return stamp & LOW32
    code = new_code(c, SUBS, o)
    if code >= 0:
        h[o + STAMP] = (c[C_EPOCH] << 32) | code
    return code


@jit
def event_code(c, h, o):
    stamp = h[o + EVENT_STAMP]
    if stamp >> 32 == c[C_EPOCH]:
        return stamp & LOW32
    code = new_code(c, EVENTS, o)
    if code >= 0:
        h[o + EVENT_STAMP] = (c[C_EPOCH] << 32) | code
    return code


@jit
def new_code(c, side, ref):
    """A new code for a record; also for one without a stamp: on disk, or the row itself."""
    count = C_SUB_REF_COUNT if side == SUBS else C_EVENT_REF_COUNT
    code = c[count]
    if code >= c[C_REFS_CAP]:
        return -1
    words(c[C_SUB_REFS if side == SUBS else C_EVENT_REFS], c[C_REFS_CAP])[code] = ref
    words(c[C_SUB_TOLD if side == SUBS else C_EVENT_TOLD], 2 * c[C_REFS_CAP])[2 * code] = 0
    c[count] = code + 1
    return code


@jit
def forget_codes(c, answers, subs, events):
    """Take back what was emitted since; the stamps given since then must not count any more."""
    c[C_ANSWER_COUNT] = answers
    c[C_SUB_REF_COUNT] = subs
    c[C_EVENT_REF_COUNT] = events
    c[C_EPOCH] = (c[C_EPOCH] + 1) & 0x7FFFFFFF
    # A record may now get a second code in this call: its id would stand twice.
    words(c[C_SUBS], E_WORDS)[E_REUSED] = 1
    words(c[C_EVENTS], E_WORDS)[E_REUSED] = 1


# ---- shapes -----------------------------------------------------------------------


# A shape is kind, a, b, c, d and, of a polygon, where the numbers of its corners are (polygon.py).
# They stand behind the texts of a row and of a blob, from a whole word on, with their count before
# them; in a component they are a column.


@jit
def heap_shape(e, h, blob):
    """The shape of a heap record."""
    if blob & F_SHAPE == 0:
        return 0, 0.0, 0.0, 0.0, 0.0, 0
    b = blob & LOW48
    at = b + BLOB_TEXT
    f = doubles(e[E_HEAP], e[E_HEAP_WORDS])
    corners = 0
    if h[at] == POLYGON:
        corners = e[E_HEAP] + 8 * (at + SHAPE_WORDS + text_words(h[b]) + 1)
    return h[at], f[at + 1], f[at + 2], f[at + 3], f[at + 4], corners


@jit
def text_words(lengths):
    """The words that the id, the user and the text of a blob fill."""
    total = (lengths & LOW16) + ((lengths >> 16) & LOW16) + (lengths >> 32)
    return (total + 7) >> 3


@jit
def disk_shape(d, side, index):
    """The shape of a disk record: a fixed-size list of five doubles, and maybe corners."""
    address = d[D_SUB_SHAPE if side == SUBS else D_EVENT_SHAPE]
    if address == 0:
        return 0, 0.0, 0.0, 0.0, 0.0, 0
    count = d[D_SUBS if side == SUBS else D_EVENTS]
    f = doubles(address, count * 5)
    at = index * 5
    kind = int(f[at])
    corners = 0
    if kind == POLYGON:
        begins = words(d[D_SUB_CORNERS_AT if side == SUBS else D_EVENT_CORNERS_AT], count + 1)
        corners = d[D_SUB_CORNERS if side == SUBS else D_EVENT_CORNERS] + 8 * begins[index]
    return kind, f[at + 1], f[at + 2], f[at + 3], f[at + 4], corners


@jit
def row_shape(address, row, p):
    kind = row[p + R_TEXT] >> 32
    if kind == 0:
        return 0, 0.0, 0.0, 0.0, 0.0, 0
    f = doubles(address + (p + R_BODY) * 8, 4)
    corners = 0
    if kind == POLYGON:
        lengths = row[p + R_LENGTHS]
        total = ((lengths & LOW16) + 7) & ~7
        total += ((lengths >> 16) & LOW16) + ((lengths >> 32) & LOW16) + (row[p + R_TEXT] & LOW32)
        corners = address + 8 * (p + R_BODY + 4 + ((total + 7) >> 3) + 1)
    return kind, f[0], f[1], f[2], f[3], corners


@jit
def same_shape(s, t):
    if s[0] != t[0] or s[1] != t[1] or s[2] != t[2] or s[3] != t[3] or s[4] != t[4]:
        return False
    if s[0] != POLYGON:
        return True
    # The numbers of a polygon say how many they are: rings, and where the last one ends.
    rings = int(doubles(s[5], 1)[0])
    count = 1 + rings + 2 * int(abs(doubles(s[5], 1 + rings)[rings]))
    one = doubles(s[5], count)
    if one[0] != doubles(t[5], 1)[0]:
        return False
    other = doubles(t[5], 1 + rings)
    for i in range(1 + rings):
        if one[i] != other[i]:
            return False
    other = doubles(t[5], count)
    for i in range(1 + rings, count):
        if one[i] != other[i]:
            return False
    return True


@jit
def meet(s, t):
    if not shapes_meet(s[0], s[1], s[2], s[3], s[4], t[0], t[1], t[2], t[3], t[4]):
        return False
    if s[0] != POLYGON and t[0] != POLYGON:
        return True
    return polygon_meets(
        s[0], s[1], s[2], s[3], s[4], s[5], t[0], t[1], t[2], t[3], t[4], t[5]
    )  # fmt: skip


# ---- an event looks for subscriptions ----------------------------------------------


@jit
def answer_subscriptions(c, e, h, key, start, tree, count, at, now, shape):
    """Emit every subscription an arriving event answers. Returns (status, unseen)."""
    unseen = False
    lists, room = slots_scratch(c)
    exact = shape[0] != 0
    answers = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    k = c[C_ANSWER_COUNT]
    cap = c[C_ANSWER_CAP]
    found = heads(e, h, SUBS, tree, count, at, at, now, lists, room)
    if found < 0:
        return NEED_SCRATCH, unseen
    for j in range(found):
        chunk = lists[j]
        while chunk > 0:
            o = chunk + CHUNK
            if h[chunk] & LOW40:
                fetch_chunk(e, h[chunk] & LOW40, 32)
            for _ in range(chunk_used(h, chunk)):
                if h[o + SINCE] <= at and at < h[o + UNTIL] and now < h[o + UNTIL]:
                    blob = h[o + SUB_BLOB]
                    if blob & SKIPPED == 0 and (not exact or meet(shape, heap_shape(e, h, blob))):
                        code = sub_code(c, h, o)
                        if code < 0 or k >= cap:
                            return NEED_OUTPUT, unseen
                        if blob & (F_COND | F_UNSEEN):
                            if blob & F_COND:
                                code |= MAYBE
                                c[C_MAYBES] = 256
                            if blob & F_UNSEEN:
                                unseen = True
                        answers[k] = code
                        k += 1
                o += SUB_WORDS
            chunk = h[chunk] & LOW40
    ranges, _ = slots_scratch(c)
    for n in range(e[E_COMPONENT_COUNT]):
        d = component(e, n)
        if d[D_SUBS] == 0 or d[D_UNTIL_HIGH] <= now or d[D_UNTIL_HIGH] <= at:
            continue
        if d[D_SINCE_LOW] > at:
            continue
        found = place_ranges(e, d, key, start, tree, count, ranges)
        lists = words(d[D_SUB_LISTS], d[D_PLACES] + 1)
        sinces = words(d[D_SUB_SINCE], d[D_SUBS])
        untils = words(d[D_SUB_UNTIL], d[D_SUBS])
        flags = words(d[D_SUB_FLAGS], d[D_SUBS])
        seqs = words(d[D_SUB_SEQ], d[D_SUBS])
        for j in range(found):
            for x in range(lists[ranges[2 * j]], lists[ranges[2 * j + 1]]):
                if sinces[x] <= at and at < untils[x] and now < untils[x]:
                    if flags[x] & SKIPPED or find_tomb(e, seqs[x]) != FOREVER:
                        continue
                    if exact and not meet(shape, disk_shape(d, SUBS, x)):
                        continue
                    code = new_code(c, SUBS, ON_DISK + (n << 40) + x)
                    if code < 0 or k >= cap:
                        return NEED_OUTPUT, unseen
                    if flags[x] & F_COND:
                        code |= MAYBE
                        c[C_MAYBES] = 256
                    answers[k] = code
                    k += 1
                    if flags[x] & F_UNSEEN:
                        unseen = True
    c[C_ANSWER_COUNT] = k
    return DONE, unseen


# ---- a subscription looks for events ---------------------------------------------------


@jit
def answer_events(
    c, e, h, key, start, tree, count, since, until, now, after, shape, same_place, maybe
):
    """Emit every valid event a window finds. Returns a status.

    `maybe` is MAYBE when the question has a condition, else 0.
    """
    lists, room = slots_scratch(c)
    exact = shape[0] != 0
    answers = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    k = c[C_ANSWER_COUNT]
    cap = c[C_ANSWER_CAP]
    if same_place:
        found = heads_here(e, h, tree, count, lists)
    else:
        found = heads(e, h, EVENTS, tree, count, since, until, now, lists, room)
    if found < 0:
        return NEED_SCRATCH
    for j in range(found):
        chunk = lists[j]
        while chunk > 0:
            o = chunk + CHUNK
            for _ in range(chunk_used(h, chunk)):
                if (
                    since <= h[o + AT]
                    and h[o + AT] < until
                    and now < h[o + UNTIL]
                    and h[o + SEQ] > after
                ):
                    blob = h[o + EVENT_BLOB]
                    if blob & GONE == 0 and shape_fits(exact, same_place, shape, e, h, blob):
                        code = event_code(c, h, o)
                        if code < 0 or k >= cap:
                            return NEED_OUTPUT
                        answers[k] = code | maybe
                        k += 1
                o += EVENT_WORDS
            chunk = h[chunk] & LOW40
    ranges, _ = slots_scratch(c)
    for n in range(e[E_COMPONENT_COUNT]):
        d = component(e, n)
        if d[D_EVENTS] == 0 or d[D_EVENT_UNTIL_HIGH] <= now:
            continue
        if d[D_AT_HIGH] < since or d[D_AT_LOW] >= until:
            continue
        found = place_ranges(e, d, key, start, tree, count, ranges)
        lists = words(d[D_EVENT_LISTS], d[D_PLACES] + 1)
        ats = words(d[D_EVENT_AT], d[D_EVENTS])
        untils = words(d[D_EVENT_UNTIL], d[D_EVENTS])
        seqs = words(d[D_EVENT_SEQ], d[D_EVENTS])
        offsets = words(d[D_KEY_OFFSETS], d[D_PLACES] + 1)
        for j in range(found):
            first = ranges[2 * j]
            last = ranges[2 * j + 1]
            if same_place:
                length = offsets[first + 1] - offsets[first]
                if length != tree[3 * count - 1]:
                    continue  # an ancestor, not the place itself
                last = first + 1
            for x in range(lists[first], lists[last]):
                if since <= ats[x] and ats[x] < until and now < untils[x] and seqs[x] > after:
                    if find_tomb(e, seqs[x]) != FOREVER:
                        continue
                    other = disk_shape(d, EVENTS, x)
                    if same_place:
                        if not same_shape(shape, other):
                            continue
                    elif exact and not meet(shape, other):
                        continue
                    code = new_code(c, EVENTS, ON_DISK + (n << 40) + x)
                    if code < 0 or k >= cap:
                        return NEED_OUTPUT
                    answers[k] = code | maybe
                    k += 1
    c[C_ANSWER_COUNT] = k
    if maybe and k > 0:
        c[C_MAYBES] = 256
    return DONE


@jit
def heads_here(e, h, tree, count, out):
    """The lists of events at one place and no other, one a window."""
    active = active_of(e)
    found = 0
    for i in range(e[E_ACTIVE_COUNT]):
        slot = find_slot(e, active[i] * W_WORDS, tree[3 * count - 3], tree[3 * count - 2])
        if slot > 0 and h[slot + EVENTS] > 0:
            out[found] = h[slot + EVENTS]
            found += 1
    return found


@jit
def shape_fits(exact, same_place, shape, e, h, blob):
    if same_place:
        return same_shape(shape, heap_shape(e, h, blob))
    return not exact or meet(shape, heap_shape(e, h, blob))
