"""Who was told what: one *mark* for every answer, as long as its event is valid.

`unseen=True` promises that a user is never told an event twice, whatever has become of the
subscription that told it. So each answer leaves a mark when it is given:

    mark of (user, event)            the user was told the event
    mark of (subscription, event)    this unseen subscription was answered with the event: what
                                     `resume` gives again. It names the root, which stays when a
                                     subscription is prolonged

A mark is a hash of 64 bits of the two numbers, as users are told apart by a hash of 64 bits.

    memory   marks lie as runs (runs.py) in windows of their own, by the end of the event (wide
             ones: marks take little). A window that has expired is dropped whole
    table    mark -> is it there; over all windows. It is made when somebody first asks what is
             unseen, and again after a call was taken back
    disk     a sealed window of marks is one sorted column of hashes (index/told.py)
    log      the marks of a call are one row, in the frame of the rows that gave the answers

What is in the table is true, though it may be in no window any more: it was sealed, or its event
has expired and nobody asks for it again. The table is made anew from the windows when it is full.
While there is a table, a mark that is there already is not left again.

Conditions are checked in Python. A row whose answers may yet fall leaves its marks after that, in
`settle`; an unseen subscription waits for it (NEED_VERDICT). One event, several subscriptions of a
user: an unseen one yields to an earlier one that is answered.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.disk import component
from tideline.kernels.heap import engine, heap_of, windows_of
from tideline.kernels.layout import (
    C_ANSWER_CAP,
    C_ANSWER_COUNT,
    C_ANSWERS,
    C_EVENT_REFS,
    C_EVENTS,
    C_REFS_CAP,
    C_REMEMBER,
    C_ROW_COUNTS,
    C_ROWS,
    C_ROWS_WORDS,
    C_SUB_REFS,
    C_SUBS,
    C_TOLD,
    C_TOLD_CAP,
    C_TOLD_HEAP,
    C_TOLD_USED,
    C_TOLD_WINDOW,
    C_WORDS,
    D_EVENT_MADE,
    D_EVENT_SEQ,
    D_EVENT_UNTIL,
    D_EVENTS,
    D_SUB_FLAGS,
    D_SUB_ROOT,
    D_SUB_SEQ,
    D_SUB_USER_HASH,
    D_SUBS,
    DONE,
    E_TOLD_CAP,
    EVENTS,
    F_UNSEEN,
    FOREVER,
    LOW32,
    LOW40,
    MADE,
    MAYBE,
    NEED_SCRATCH,
    ON_DISK,
    PUBLISH,
    R_NOW,
    R_PROLONGED,
    R_ROOT,
    R_SEQ,
    R_UNSEEN,
    R_UNTIL,
    REF_COMPONENT,
    REF_INDEX,
    ROOT,
    SEQ,
    SUB_BLOB,
    SUBS,
    UNTIL,
    USER,
    W_EVENT_UNTIL_HIGH,
)
from tideline.kernels.marks import mark_of, put_mark, sub_mark, user_mark, was_told
from tideline.kernels.match import refs_scratch
from tideline.kernels.runs import (
    BY_ASKER,
    HEAP_RUN,
    LEAST_SHARED,
    MOST_WORDS,
    OF_SUB,
    add_shared,
    begin_run,
    end_run,
    finish_told_row,
    generation_of,
    room_for,
    room_of_chunk,
    shared_words,
    window_for,
)
from tideline.kernels.store import row_parts, user_hash_of
from tideline.kernels.views import halves, octets, words

# ---- the answers of a row --------------------------------------------------------------


@jit
def sub_facts(e, h, ref):
    """(user hash, seq, flags, root) of a subscription that is an answer of this call."""
    if ref >= ON_DISK:
        d = component(e, (ref >> 40) & REF_COMPONENT)
        x = ref & REF_INDEX
        return (
            words(d[D_SUB_USER_HASH], d[D_SUBS])[x],
            words(d[D_SUB_SEQ], d[D_SUBS])[x],
            words(d[D_SUB_FLAGS], d[D_SUBS])[x],
            words(d[D_SUB_ROOT], d[D_SUBS])[x],
        )
    return h[ref + USER], h[ref + SEQ], h[ref + SUB_BLOB], h[ref + ROOT]


@jit
def event_facts(e, h, ref):
    """(seq, until, when it was stored) of a stored event."""
    if ref >= ON_DISK:
        d = component(e, (ref >> 40) & REF_COMPONENT)
        x = ref & REF_INDEX
        return (
            words(d[D_EVENT_SEQ], d[D_EVENTS])[x],
            words(d[D_EVENT_UNTIL], d[D_EVENTS])[x],
            words(d[D_EVENT_MADE], d[D_EVENTS])[x],
        )
    return h[ref + SEQ], h[ref + UNTIL], h[ref + MADE]


@jit
def leave_out_told(c, ee, he, first, user):
    """Take the answers [first, count) back that a user was told before."""
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_EVENT_REFS], c[C_REFS_CAP])
    kept = first
    for k in range(first, c[C_ANSWER_COUNT]):
        seq, until, _ = event_facts(ee, he, refs[codes[k] & ~MAYBE])
        if not was_told(ee, user_mark(user, seq), until):
            codes[kept] = codes[k]
            kept += 1
    c[C_ANSWER_COUNT] = kept


@jit
def leave_in_answered(c, ee, he, first, root):
    """Take the answers [first, count) back that an unseen subscription was not answered with."""
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_EVENT_REFS], c[C_REFS_CAP])
    kept = first
    for k in range(first, c[C_ANSWER_COUNT]):
        seq, until, _ = event_facts(ee, he, refs[codes[k] & ~MAYBE])
        if was_told(ee, sub_mark(root, seq), until):
            codes[kept] = codes[k]
            kept += 1
    c[C_ANSWER_COUNT] = kept


@jit
def tell_published(c, es, hs, ee, he, first, limit, holds, unseen, seq, until, now):
    """The answers [first, limit) of an event are given; those only that hold (see `settle`).

    `unseen`: whether an unseen subscription may be among them.
    """
    tell(c, es, hs, ee, he, first, limit, holds, 0, seq, until, now)
    if unseen:
        tell(c, es, hs, ee, he, first, limit, holds, OF_SUB, seq, until, now)


@jit
def tell_subscribed(c, es, hs, ee, he, first, limit, holds, user, root, unseen):
    """The answers [first, limit) of a subscription are given; those only that hold."""
    tell(c, es, hs, ee, he, first, limit, holds, BY_ASKER, user, -FOREVER, 0)
    if unseen:
        tell(c, es, hs, ee, he, first, limit, holds, BY_ASKER | OF_SUB, root, -FOREVER, 0)


@jit
def tell(c, es, hs, ee, he, first, limit, holds, kind, fixed, until, made):
    """Leave the marks of one kind for the answers [first, limit): runs of `fixed`.

    By event, all of them go into one window; `until` is the event's end, `made` when it was stored.
    By asker, each goes into the window of its event, at any time the same, so that its word can
    be shared. While there is a table, only marks that are new to it are left. Without one, words
    that this call wrote before are shared.
    """
    by_asker = kind & BY_ASKER != 0
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_EVENT_REFS if by_asker else C_SUB_REFS], c[C_REFS_CAP])
    shared = shared_words(c, EVENTS if by_asker else SUBS)
    out = words(c[C_TOLD], c[C_TOLD_CAP])
    ws = windows_of(ee)
    listed = ee[E_TOLD_CAP] == 0
    shares = listed and kind != OF_SUB  # roots of subscriptions are nowhere else
    w = c[C_TOLD_WINDOW]
    generation = -1  # none yet, by asker
    if not by_asker:
        w = window_for(ee, w, until, made)
        generation = generation_of(ee, w)
    latest = until
    at = 0  # where the next word goes in the heap, in the log, and where the chunk ends
    used = 0
    end = 0
    k = first
    while k < limit:
        if falls(holds, k):
            k += 1
            continue
        code = codes[k] & ~MAYBE
        count = 0
        if shares and shared[2 * code] & ~LOW40 == generation:
            count = side_by_side(codes, shared, holds, k, limit)
        word = 0
        if by_asker and count < LEAST_SHARED:
            word, until, made = event_facts(ee, he, refs[code])
            there = window_for(ee, w, until, made)
            if there != w or generation == -1:
                end_run(c, ee, he, w, used - c[C_TOLD_USED], latest, used - c[C_TOLD_USED])
                w = there
                generation = generation_of(ee, w)
                latest = until
                at = end
                count = 0
                if shares and shared[2 * code] & ~LOW40 == generation:
                    count = side_by_side(codes, shared, holds, k, limit)
            latest = max(latest, until)
        if count >= LEAST_SHARED:
            end_run(c, ee, he, w, used - c[C_TOLD_USED], latest, used - c[C_TOLD_USED])
            at = end
            if by_asker:
                latest = max(latest, ws[w + W_EVENT_UNTIL_HIGH])
            place = shared[2 * code]
            in_row = shared[2 * code + 1]
            add_shared(c, ee, he, w, kind, fixed, latest, place & LOW40, in_row, count)
            k += count
            continue
        k += 1
        if not by_asker:
            user, _, flags, root = sub_facts(es, hs, refs[code])
            word = root if kind & OF_SUB else user
            if kind & OF_SUB and flags & F_UNSEEN == 0:
                continue
        if not listed and not put_mark(ee, mark_of(kind, fixed, word)):
            continue
        if at == end:
            end_run(c, ee, he, w, used - c[C_TOLD_USED], latest, used - c[C_TOLD_USED])
            begin_run(c, ee, he, w, kind, fixed)
            at = c[C_TOLD_HEAP] + HEAP_RUN
            end = room_of_chunk(ee, he, w)
            used = c[C_TOLD_USED]
        he[at] = word
        out[used] = word
        if count == 0 and shares:
            shared[2 * code] = generation | at
            shared[2 * code + 1] = used
        at += 1
        used += 1
    end_run(c, ee, he, w, used - c[C_TOLD_USED], latest, used - c[C_TOLD_USED])
    c[C_TOLD_WINDOW] = w


@jit
def side_by_side(codes, shared, holds, k, limit):
    """How many answers from k on have their words one after the other in the heap already."""
    at = shared[2 * (codes[k] & ~MAYBE)]
    count = 1
    while k + count < limit and count < MOST_WORDS and not falls(holds, k + count):
        if shared[2 * (codes[k + count] & ~MAYBE)] != at + count:
            break
        count += 1
    return count


@jit
def falls(holds, k):
    """Whether a condition took an answer back; `holds` is 0 when there was none to check."""
    return holds != 0 and octets(holds, k + 1)[k] == 0


# ---- yielding: one event, several subscriptions of a user ------------------------------


@jit
def find_user(scratch, table, size, user):
    """Where a user stands in the table, or would."""
    i = (user ^ (user >> 29)) & (size - 1)
    while scratch[table + 2 * i] != 0 and scratch[table + 2 * i] != user:
        i = (i + 1) & (size - 1)
    return table + 2 * i


@jit
def first_of_users(c, es, hs, first, limit, holds):
    """A table in the scratch: each user's first subscription among the answers of an event.

    `holds` is the address of what `settle` was given, or 0. Returns the size of the table, or
    0 when there is no room.
    """
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_SUB_REFS], c[C_REFS_CAP])
    scratch, most = refs_scratch(c)
    size = 4
    while size < 2 * (limit - first):
        size *= 2
    if 2 * size > most:
        return 0
    for i in range(2 * size):
        scratch[i] = 0
    for k in range(first, limit):
        if falls(holds, k):
            continue
        user, seq, _, _ = sub_facts(es, hs, refs[codes[k] & ~MAYBE])
        at = find_user(scratch, 0, size, user)
        if scratch[at] == 0 or seq < scratch[at + 1]:
            scratch[at] = user
            scratch[at + 1] = seq
    return size


@jit
def yields(es, hs, scratch, size, ref):
    """Whether a subscription is an unseen one, and not the first of its user's."""
    user, seq, flags, _ = sub_facts(es, hs, ref)
    return flags & F_UNSEEN != 0 and scratch[find_user(scratch, 0, size, user) + 1] < seq


@jit
def yield_to_earlier(c, es, hs, first):
    """Take the answers of an event back that yield. Returns a status."""
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_SUB_REFS], c[C_REFS_CAP])
    size = first_of_users(c, es, hs, first, c[C_ANSWER_COUNT], 0)
    if size == 0:
        return NEED_SCRATCH
    scratch, _ = refs_scratch(c)
    kept = first
    for k in range(first, c[C_ANSWER_COUNT]):
        if not yields(es, hs, scratch, size, refs[codes[k] & ~MAYBE]):
            codes[kept] = codes[k]
            kept += 1
    c[C_ANSWER_COUNT] = kept
    return DONE


# ---- when conditions have been checked -------------------------------------------------


@jit
def settle(address, starts, first, limit, holds_address):
    """Leave the marks of the rows [first, limit) whose conditions have been checked.

    `holds_address`: a byte for each of the call's answers, 1 when it holds; those that yield do
    not, afterwards. Returns a status; when it is not DONE, it may be called again.
    """
    c = words(address, C_WORDS)
    es = engine(c[C_SUBS])
    ee = engine(c[C_EVENTS])
    hs = heap_of(es)
    he = heap_of(ee)
    row = words(c[C_ROWS], c[C_ROWS_WORDS])
    octet = octets(c[C_ROWS], c[C_ROWS_WORDS] * 8)
    counts = words(c[C_ROW_COUNTS], limit)
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    subs = words(c[C_SUB_REFS], c[C_REFS_CAP])
    holds = octets(holds_address, c[C_ANSWER_COUNT])
    if c[C_REMEMBER]:
        status = room_for(c, ee, 2 * c[C_ANSWER_COUNT], True)
        if status != DONE:
            return status
    k = 0
    for i in range(first, limit):
        start = k
        end = k + counts[i]
        k = end
        asked = False
        for j in range(start, end):
            if codes[j] & MAYBE:
                asked = True
        if not asked:
            continue
        p = starts[i]
        now = row[p + R_NOW]
        if row[p] & 0xFF == PUBLISH:
            unseen = False
            for j in range(start, end):
                if holds[j] and sub_facts(es, hs, subs[codes[j] & ~MAYBE])[2] & F_UNSEEN:
                    unseen = True
            if unseen:
                size = first_of_users(c, es, hs, start, end, holds_address)
                if size == 0:
                    return NEED_SCRATCH
                scratch, _ = refs_scratch(c)
                for j in range(start, end):
                    if holds[j] and yields(es, hs, scratch, size, subs[codes[j] & ~MAYBE]):
                        holds[j] = 0
            until = row[p + R_UNTIL]
            if c[C_REMEMBER] and until > now:
                seq = row[p + R_SEQ]
                tell_published(
                    c, es, hs, ee, he, start, end, holds_address, unseen, seq, until, now
                )
        elif c[C_REMEMBER]:
            _, key, ident, user, text, _ = row_parts(row, p)
            told = user_hash_of(es, octet, user, text)
            asks = (row[p] >> 8) & R_UNSEEN != 0
            root = root_of(row, p)
            tell_subscribed(c, es, hs, ee, he, start, end, holds_address, told, root, asks)
    return DONE


@jit
def root_of(row, p):
    """The seq of the first record of the subscription that a row stores."""
    if (row[p] >> 8) & R_PROLONGED:
        return row[p + ((row[p] >> 32) & LOW32) + R_ROOT]
    return row[p + R_SEQ]


@jit
def told_row(address, answered):
    """Complete the row of the call's marks, which stands at C_TOLD. Returns its words."""
    return finish_told_row(words(address, C_WORDS), answered)
