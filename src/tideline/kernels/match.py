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
from tideline.kernels.disk import component, place_of, place_ranges
from tideline.kernels.geo import shapes_meet
from tideline.kernels.heap import (
    active_of,
    chunk_used,
    fetch_chunk,
    find_slot,
    gather_slots,
    heads,
    heap_bytes,
    slot_key_length,
    windows_of,
)
from tideline.kernels.layout import (
    AT,
    BLOB_TEXT,
    C_ANSWER_CAP,
    C_ANSWER_COUNT,
    C_ANSWERS,
    C_EPOCH,
    C_EVENT_REF_COUNT,
    C_EVENT_REFS,
    C_EVENTS,
    C_MAYBES,
    C_PAIR_ANSWER,
    C_PAIR_CAP,
    C_PAIR_COUNT,
    C_PAIR_SUB,
    C_REFS_CAP,
    C_SCRATCH,
    C_SCRATCH_WORDS,
    C_SUB_REF_COUNT,
    C_SUB_REFS,
    C_SUBS,
    CHUNK,
    D_AT_HIGH,
    D_AT_LOW,
    D_EVENT_AT,
    D_EVENT_LISTS,
    D_EVENT_MADE,
    D_EVENT_SEQ,
    D_EVENT_SHAPE,
    D_EVENT_UNTIL,
    D_EVENT_UNTIL_HIGH,
    D_EVENTS,
    D_KEEP_HIGH,
    D_KEY_BYTES,
    D_KEY_OFFSETS,
    D_KEYS,
    D_PLACES,
    D_SINCE_LOW,
    D_SUB_ENDED,
    D_SUB_FLAGS,
    D_SUB_KEEP,
    D_SUB_LISTS,
    D_SUB_MADE,
    D_SUB_SEQ,
    D_SUB_SHAPE,
    D_SUB_SINCE,
    D_SUB_UNTIL,
    D_SUB_USER_HASH,
    D_SUBS,
    D_UNTIL_HIGH,
    DONE,
    E_ACTIVE_COUNT,
    E_COMPONENT_COUNT,
    E_HEAP,
    E_HEAP_WORDS,
    E_MODE,
    E_REUSED,
    E_SEED1,
    E_SEED2,
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
    GHOSTS,
    IN_ROW,
    KEEP,
    LOW32,
    LOW40,
    LOW48,
    MADE,
    MAYBE,
    NEED_OUTPUT,
    NEED_SCRATCH,
    ON_DISK,
    R_BODY,
    R_TEXT,
    REF_COMPONENT,
    REF_INDEX,
    SEQ,
    SINCE,
    SLOT_KEY,
    STAMP,
    SUB_BLOB,
    SUB_WORDS,
    SUBS,
    UNTIL,
    USER,
    W_GHOSTS,
    W_SUBS,
    W_WORDS,
)
from tideline.kernels.tables import find_tomb
from tideline.kernels.text import nodes
from tideline.kernels.views import doubles, halves, octets, words

TREE = 256  # words of scratch for the nodes of one key
SKIPPED = F_CANCELLED | F_TOMB | F_VOID | F_GHOST  # records that no event answers


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


@jit
def heap_shape(e, h, blob):
    """The shape of a heap record: kind, a, b, c, d."""
    if blob & F_SHAPE == 0:
        return 0, 0.0, 0.0, 0.0, 0.0
    at = (blob & LOW48) + BLOB_TEXT
    f = doubles(e[E_HEAP], e[E_HEAP_WORDS])
    return h[at], f[at + 1], f[at + 2], f[at + 3], f[at + 4]


@jit
def disk_shape(address, count, index):
    """The shape of a disk record: a fixed-size list of five doubles."""
    if address == 0:
        return 0, 0.0, 0.0, 0.0, 0.0
    f = doubles(address, count * 5)
    at = index * 5
    return int(f[at]), f[at + 1], f[at + 2], f[at + 3], f[at + 4]


@jit
def row_shape(address, row, p):
    kind = row[p + R_TEXT] >> 32
    if kind == 0:
        return 0, 0.0, 0.0, 0.0, 0.0
    f = doubles(address + (p + R_BODY) * 8, 4)
    return kind, f[0], f[1], f[2], f[3]


@jit
def same_shape(s, t):
    return s[0] == t[0] and s[1] == t[1] and s[2] == t[2] and s[3] == t[3] and s[4] == t[4]


@jit
def meet(s, t):
    return shapes_meet(s[0], s[1], s[2], s[3], s[4], t[0], t[1], t[2], t[3], t[4])


# ---- an event looks for subscriptions ----------------------------------------------


@jit
def answer_subscriptions(c, e, h, key, start, tree, count, at, until, now, shape):
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
                        # An unseen one may yet yield: `note_kept` sees to those that stay.
                        if until > h[o + KEEP] and blob & F_UNSEEN == 0:
                            h[o + KEEP] = until
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
                    if exact and not meet(shape, disk_shape(d[D_SUB_SHAPE], d[D_SUBS], x)):
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
    """Emit every valid event a window finds. Returns (status, latest end).

    `maybe` is MAYBE when the question has a condition, else 0.
    """
    keep = -FOREVER
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
        return NEED_SCRATCH, keep
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
                    if blob & F_VOID == 0 and shape_fits(exact, same_place, shape, e, h, blob):
                        code = event_code(c, h, o)
                        if code < 0 or k >= cap:
                            return NEED_OUTPUT, keep
                        answers[k] = code | maybe
                        k += 1
                        if h[o + UNTIL] > keep:
                            keep = h[o + UNTIL]
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
                    other = disk_shape(d[D_EVENT_SHAPE], d[D_EVENTS], x)
                    if same_place:
                        if not same_shape(shape, other):
                            continue
                    elif exact and not meet(shape, other):
                        continue
                    code = new_code(c, EVENTS, ON_DISK + (n << 40) + x)
                    if code < 0 or k >= cap:
                        return NEED_OUTPUT, keep
                    answers[k] = code | maybe
                    k += 1
                    if untils[x] > keep:
                        keep = untils[x]
    c[C_ANSWER_COUNT] = k
    if maybe and k > 0:
        c[C_MAYBES] = 256
    return DONE, keep


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


# ---- unseen: what the same user was told before -------------------------------------------


@jit
def gather_user(c, e, h, key, start, tree, count, user, before, now):
    """References to a user's earlier subscriptions (and ghosts) whose places meet a place.

    They go to the references scratch; returns how many, or -1 when there is no room. Ghosts count
    until their `keep`, sealed subscriptions until their `until`: then their ghosts are asked, and
    tombs are kept no longer (tombs.py). Those in memory count as long as they are there.
    """
    ws = windows_of(e)
    active = active_of(e)
    slots, room = slots_scratch(c)
    refs, most = refs_scratch(c)
    total = 0
    for i in range(e[E_ACTIVE_COUNT]):
        w = active[i] * W_WORDS
        if ws[w + W_SUBS] + ws[w + W_GHOSTS] == 0:
            continue
        found = gather_slots(e, h, w, tree, count, slots, room)
        if found < 0:
            return -1
        for j in range(found):
            for side in (SUBS, GHOSTS):
                chunk = h[slots[j] + side]
                while chunk > 0:
                    o = chunk + CHUNK
                    for _ in range(chunk_used(h, chunk)):
                        if (
                            h[o + USER] == user
                            and h[o + SEQ] < before
                            and h[o + SUB_BLOB] & (F_TOMB | F_VOID) == 0
                            and (side == SUBS or h[o + KEEP] > now)
                        ):
                            if total >= most:
                                return -1
                            refs[total] = o
                            total += 1
                        o += SUB_WORDS
                    chunk = h[chunk] & LOW40
    ranges, _ = slots_scratch(c)
    for n in range(e[E_COMPONENT_COUNT]):
        d = component(e, n)
        if d[D_UNTIL_HIGH] <= now and d[D_KEEP_HIGH] <= now:
            continue
        found = place_ranges(e, d, key, start, tree, count, ranges)
        lists = words(d[D_SUB_LISTS], d[D_PLACES] + 1)
        untils = words(d[D_SUB_UNTIL], d[D_SUBS])
        keeps = words(d[D_SUB_KEEP], d[D_SUBS])
        users = words(d[D_SUB_USER_HASH], d[D_SUBS])
        seqs = words(d[D_SUB_SEQ], d[D_SUBS])
        flags = words(d[D_SUB_FLAGS], d[D_SUBS])
        for j in range(found):
            for x in range(lists[ranges[2 * j]], lists[ranges[2 * j + 1]]):
                if users[x] == user and seqs[x] < before and flags[x] & F_TOMB == 0:
                    if (keeps[x] if flags[x] & F_GHOST else untils[x]) <= now:
                        continue
                    if total >= most:
                        return -1
                    refs[total] = ON_DISK + (n << 40) + x
                    total += 1
    return total


@jit
def had(e, h, ref, at, until, seq, made, shape):
    """Whether an earlier subscription got an event: 0 no, 1 yes, 2 if its condition holds."""
    if ref >= ON_DISK:
        d = component(e, (ref >> 40) & REF_COMPONENT)
        x = ref & REF_INDEX
        count = d[D_SUBS]
        s_since = words(d[D_SUB_SINCE], count)[x]
        s_until = words(d[D_SUB_UNTIL], count)[x]
        s_seq = words(d[D_SUB_SEQ], count)[x]
        s_made = words(d[D_SUB_MADE], count)[x]
        flags = words(d[D_SUB_FLAGS], count)[x]
        ended = find_tomb(e, s_seq)
        if flags & F_CANCELLED:
            ended = words(d[D_SUB_ENDED], count)[x]
        other = disk_shape(d[D_SUB_SHAPE], count, x)
    else:
        s_since = h[ref + SINCE]
        s_until = h[ref + UNTIL]
        s_seq = h[ref + SEQ]
        s_made = h[ref + MADE]
        flags = h[ref + SUB_BLOB]
        ended = h[ref + STAMP] if flags & F_CANCELLED else find_tomb(e, s_seq)
        other = heap_shape(e, h, flags)
    if not (s_since <= at and at < s_until):
        return 0
    if seq < s_seq:
        if until <= s_made:
            return 0
    elif seq > ended or made >= s_until:
        return 0
    if shape[0] != 0 and not meet(shape, other):
        return 0
    return 2 if flags & F_COND else 1


@jit
def add_pair(c, answer, e, h, ref):
    """Ask Python to check the condition of an earlier subscription. False when there is no room."""
    k = c[C_PAIR_COUNT]
    code = (
        sub_code(c, h, ref)
        if ref < IN_ROW and h[ref + SUB_BLOB] & F_CANCELLED == 0
        else (new_code(c, SUBS, ref))
    )
    if code < 0 or k >= c[C_PAIR_CAP]:
        return False
    words(c[C_PAIR_ANSWER], c[C_PAIR_CAP])[k] = answer
    words(c[C_PAIR_SUB], c[C_PAIR_CAP])[k] = code
    c[C_PAIR_COUNT] = k + 1
    c[C_MAYBES] = 256
    return True


@jit
def leave_out_seen(c, es, hs, ee, he, first, user, before, now):
    """Take the answers [first, count) back that `user` was told before. Returns a status."""
    answers = c[C_ANSWER_COUNT]
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    event_refs = words(c[C_EVENT_REFS], c[C_REFS_CAP])
    refs, _ = refs_scratch(c)
    tree = words(c[C_SCRATCH] + TREE * 8, TREE)
    kept = first
    total = -1
    for k in range(first, answers):
        ref = event_refs[codes[k] & ~MAYBE]
        if ref >= ON_DISK:
            d = component(ee, (ref >> 40) & REF_COMPONENT)
            x = ref & REF_INDEX
            count = d[D_EVENTS]
            at = words(d[D_EVENT_AT], count)[x]
            until = words(d[D_EVENT_UNTIL], count)[x]
            seq = words(d[D_EVENT_SEQ], count)[x]
            made = words(d[D_EVENT_MADE], count)[x]
            shape = disk_shape(d[D_EVENT_SHAPE], count, x)
            place = place_of(d, EVENTS, x)
            offsets = words(d[D_KEY_OFFSETS], d[D_PLACES] + 1)
            key = octets(d[D_KEYS], d[D_KEY_BYTES])
            start = offsets[place]
            limit = offsets[place + 1]
        else:
            at = he[ref + AT]
            until = he[ref + UNTIL]
            seq = he[ref + SEQ]
            made = he[ref + MADE]
            blob = he[ref + EVENT_BLOB]
            shape = heap_shape(ee, he, blob)
            slot = he[(blob & LOW48) + 1]
            key = heap_bytes(ee)
            start = (slot + SLOT_KEY) * 8
            limit = start + slot_key_length(he, slot)
        if total < 0 or es[E_MODE] != 0:  # in a flat space every answer is at one place
            count = nodes(key, start, limit, es[E_MODE], es[E_SEED1], es[E_SEED2], tree)
            total = gather_user(c, es, hs, key, start, tree, count, user, before, now)
            if total < 0:
                return NEED_SCRATCH
        seen = False
        pairs = c[C_PAIR_COUNT]
        for t in range(total):
            told = had(es, hs, refs[t], at, until, seq, made, shape)
            if told == 1:
                seen = True
                break
            if told == 2 and not add_pair(c, kept, es, hs, refs[t]):
                return NEED_OUTPUT
        if seen:
            c[C_PAIR_COUNT] = pairs
        else:
            codes[kept] = codes[k]
            kept += 1
    c[C_ANSWER_COUNT] = kept
    return DONE


@jit
def sub_facts(c, e, h, code):
    """(user hash, seq, flags) of a subscription that is an answer of this call."""
    ref = words(c[C_SUB_REFS], c[C_REFS_CAP])[code]
    if ref >= ON_DISK:
        d = component(e, (ref >> 40) & REF_COMPONENT)
        x = ref & REF_INDEX
        return (
            words(d[D_SUB_USER_HASH], d[D_SUBS])[x],
            words(d[D_SUB_SEQ], d[D_SUBS])[x],
            words(d[D_SUB_FLAGS], d[D_SUBS])[x],
        )
    return h[ref + USER], h[ref + SEQ], h[ref + SUB_BLOB]


@jit
def yield_to_earlier(c, e, h, first):
    """One event, several subscriptions of a user: an unseen one yields to an earlier. Status."""
    answers = c[C_ANSWER_COUNT]
    subs = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    sub_refs = words(c[C_SUB_REFS], c[C_REFS_CAP])
    scratch, most = refs_scratch(c)
    n = answers - first
    size = 4
    while size < 2 * n:
        size *= 2
    if 5 * n + 2 * size > most:
        return NEED_SCRATCH
    # [0, 4n) user, seq, flags, record of each; [4n, 5n) those with a condition;
    # then a table: user -> the first of their subscriptions that has none
    asked = 4 * n
    asking = 0
    table = 5 * n
    for i in range(table, table + 2 * size):
        scratch[i] = 0
    for k in range(n):
        code = subs[first + k] & ~MAYBE
        user, seq, flags = sub_facts(c, e, h, code)
        scratch[4 * k] = user
        scratch[4 * k + 1] = seq
        scratch[4 * k + 2] = flags
        scratch[4 * k + 3] = sub_refs[code]
        if flags & F_COND:
            scratch[asked + asking] = k
            asking += 1
        else:
            at = find_user(scratch, table, size, user)
            if scratch[at] == 0 or seq < scratch[at + 1]:
                scratch[at] = user
                scratch[at + 1] = seq
    kept = first
    for k in range(n):
        gone = False
        pairs = c[C_PAIR_COUNT]
        user = scratch[4 * k]
        seq = scratch[4 * k + 1]
        if scratch[4 * k + 2] & F_UNSEEN:
            at = find_user(scratch, table, size, user)
            gone = scratch[at] != 0 and scratch[at + 1] < seq
            if not gone:
                for i in range(asking):
                    j = scratch[asked + i]
                    if scratch[4 * j] == user and scratch[4 * j + 1] < seq:
                        if not add_pair(c, kept, e, h, scratch[4 * j + 3]):
                            return NEED_OUTPUT
        if gone:
            c[C_PAIR_COUNT] = pairs
        else:
            subs[kept] = subs[first + k]
            kept += 1
    c[C_ANSWER_COUNT] = kept
    return DONE


@jit
def note_kept(c, h, first, until):
    """Unseen subscriptions that did not yield have been answered with an event until then."""
    subs = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_SUB_REFS], c[C_REFS_CAP])
    for k in range(first, c[C_ANSWER_COUNT]):
        o = refs[subs[k] & ~MAYBE]
        if o < IN_ROW and until > h[o + KEEP]:
            h[o + KEEP] = until


@jit
def latest_kept(c, h, e, first):
    """The latest end of the events among the answers [first, count)."""
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_EVENT_REFS], c[C_REFS_CAP])
    keep = -FOREVER
    for k in range(first, c[C_ANSWER_COUNT]):
        ref = refs[codes[k] & ~MAYBE]
        if ref >= ON_DISK:
            d = component(e, (ref >> 40) & REF_COMPONENT)
            until = words(d[D_EVENT_UNTIL], d[D_EVENTS])[ref & REF_INDEX]
        else:
            until = h[ref + UNTIL]
        if until > keep:
            keep = until
    return keep


@jit
def find_user(scratch, table, size, user):
    """Where a user stands in the table, or would."""
    i = (user ^ (user >> 29)) & (size - 1)
    while scratch[table + 2 * i] != 0 and scratch[table + 2 * i] != user:
        i = (i + 1) & (size - 1)
    return table + 2 * i
