"""Who was told what: one word, a *mark*, for every answer, as long as its event is valid.

`unseen=True` promises that a user is never told an event twice, whatever has become of the
subscription that told it. So each answer leaves a mark when it is given:

    mark of (user, event)            the user was told the event
    mark of (subscription, event)    this unseen subscription was answered with the event: what
                                     `resume` gives again. It names the root, which stays when a
                                     subscription is prolonged

A mark is a hash of 64 bits of the two numbers, as users are told apart by a hash of 64 bits.

    memory   marks lie in windows of their own, by the end of the event (wide ones: a mark is
             small): a chain of chunks. A window that has expired is dropped whole
    table    mark -> is it there; over all windows. It is made when somebody first asks what is
             unseen; without it a mark only costs the eight bytes it is appended to
    disk     a sealed window of marks is one sorted column (index/told.py)
    log      the marks of a call are one row, in the frame of the rows that gave the answers:
             TOLD | now | answers so far | latest end | runs of: count + window << 32, until, marks

What is in the table is true, though it may be in no window any more: it was sealed, or its event
has expired and nobody asks for it again. The table is made anew from the windows when it is full.

Conditions are checked in Python. A row whose answers may yet fall leaves its marks after that, in
`settle`; an unseen subscription waits for it (NEED_VERDICT). One event, several subscriptions of a
user: an unseen one yields to an earlier one that is answered.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.disk import component, first_hash
from tideline.kernels.heap import (
    GOLDEN,
    LEAST_WIDTH,
    active_of,
    allocate,
    chunk_used,
    engine,
    free_segments,
    heap_of,
    pick_window,
    windows_of,
)
from tideline.kernels.layout import (
    C_ANSWER_CAP,
    C_ANSWER_COUNT,
    C_ANSWERED,
    C_ANSWERS,
    C_EVENT_REFS,
    C_EVENTS,
    C_NEWEST,
    C_REFS_CAP,
    C_REMEMBER,
    C_ROW_COUNTS,
    C_ROWS,
    C_ROWS_WORDS,
    C_SUB_REFS,
    C_SUBS,
    C_TOLD,
    C_TOLD_CAP,
    C_TOLD_RUN,
    C_TOLD_UNTIL,
    C_TOLD_USED,
    C_TOLD_WANTED,
    C_WORDS,
    CHUNK,
    D_EVENT_SEQ,
    D_EVENT_UNTIL,
    D_EVENTS,
    D_SUB_FLAGS,
    D_SUB_ROOT,
    D_SUB_SEQ,
    D_SUB_USER_HASH,
    D_SUBS,
    DONE,
    E_ACTIVE_COUNT,
    E_TOLD,
    E_TOLD_CAP,
    E_TOLD_COMPONENT_COUNT,
    E_TOLD_COMPONENTS,
    E_TOLD_USED,
    F_UNSEEN,
    LOW32,
    LOW40,
    MAYBE,
    NEED_MEMORY,
    NEED_OUTPUT,
    NEED_SCRATCH,
    ON_DISK,
    OPEN,
    PUBLISH,
    R_AT,
    R_BODY,
    R_LENGTHS,
    R_NOW,
    R_PROLONGED,
    R_ROOT,
    R_SEQ,
    R_TEXT,
    R_UNSEEN,
    R_UNTIL,
    REF_COMPONENT,
    REF_INDEX,
    ROOT,
    SEGMENT,
    SEQ,
    SPARE,
    SUB_BLOB,
    T_COUNT,
    T_MARKS,
    T_UNTIL_HIGH,
    T_WORDS,
    TOLD,
    TOLD_SIDE,
    UNTIL,
    USER,
    W_EVENT_UNTIL_HIGH,
    W_LIMIT,
    W_STATE,
    W_TOLD,
    W_TOLD_HEAD,
    W_WIDTH,
    W_WORDS,
)
from tideline.kernels.match import refs_scratch
from tideline.kernels.store import row_parts, user_hash_of
from tideline.kernels.views import halves, octets, words

TAKEN = 1  # in the table, where a mark was taken back; no mark is 0 or 1
CHUNK_MARKS = 2048  # marks of a large chunk
RUN = 2  # words before the marks of a run
ODD = -4658895280553007687


# ---- marks -----------------------------------------------------------------------------


@jit
def mix(x):
    x = (x ^ (x >> 30)) * ODD
    x = (x ^ (x >> 27)) * GOLDEN
    return x ^ (x >> 31)


@jit
def user_mark(user, event):
    """The mark that a user was told an event."""
    mark = mix(user + event * GOLDEN)
    return mark if mark >> 1 != 0 else mark + 2


@jit
def sub_mark(root, event):
    """The mark that an unseen subscription was answered with an event."""
    mark = mix(mix(root + ODD) + event * GOLDEN)
    return mark if mark >> 1 != 0 else mark + 2


# ---- the table -------------------------------------------------------------------------


@jit
def place_in_table(e, mark):
    """Where a mark stands in the table, or would."""
    table = words(e[E_TOLD], e[E_TOLD_CAP])
    mask = e[E_TOLD_CAP] - 1
    i = (mark ^ (mark >> 32)) & mask
    while table[i] != 0 and table[i] != mark:
        i = (i + 1) & mask
    return i


@jit
def in_table(e, mark):
    return words(e[E_TOLD], e[E_TOLD_CAP])[place_in_table(e, mark)] == mark


@jit
def put_mark(e, mark):
    """Enter a mark; False when it is there already."""
    table = words(e[E_TOLD], e[E_TOLD_CAP])
    i = place_in_table(e, mark)
    if table[i] == mark:
        return False
    table[i] = mark
    e[E_TOLD_USED] += 1
    return True


@jit
def take_mark(e, mark):
    if e[E_TOLD_CAP] > 0:
        table = words(e[E_TOLD], e[E_TOLD_CAP])
        i = place_in_table(e, mark)
        if table[i] == mark:
            table[i] = TAKEN


@jit
def was_told(e, mark, until):
    """Whether there is a mark, of an event that ends at `until`, in memory or on disk."""
    if in_table(e, mark):
        return True
    for n in range(e[E_TOLD_COMPONENT_COUNT]):
        d = words(e[E_TOLD_COMPONENTS] + n * T_WORDS * 8, T_WORDS)
        if d[T_UNTIL_HIGH] < until:
            continue
        marks = words(d[T_MARKS], d[T_COUNT])
        at = first_hash(marks, d[T_COUNT], mark)
        if at < d[T_COUNT] and marks[at] == mark:
            return True
    return False


@jit
def index_told(address):
    """Fill the table, which is empty, with the marks of all windows."""
    e = engine(address)
    h = heap_of(e)
    ws = windows_of(e)
    active = active_of(e)
    e[E_TOLD_USED] = 0
    for i in range(e[E_ACTIVE_COUNT]):
        chunk = ws[active[i] * W_WORDS + W_TOLD_HEAD]
        while chunk > 0:
            for j in range(chunk + CHUNK, chunk + CHUNK + chunk_used(h, chunk)):
                if h[j] != 0:
                    put_mark(e, h[j])
            chunk = h[chunk] & LOW40


# ---- windows of marks ------------------------------------------------------------------


@jit
def window_for(e, w, until, now):
    """The window for marks of an event that ends at `until`; often it is the last one, `w`."""
    ws = windows_of(e)
    if w >= 0 and ws[w + W_STATE] == OPEN:
        width = ws[w + W_WIDTH] & ~1
        left = until - now
        if until <= ws[w + W_LIMIT] and until > ws[w + W_LIMIT] - width:
            if left <= width and (left * 2 > width or width == LEAST_WIDTH):
                return w
    return pick_window(e, TOLD_SIDE, until, now)


@jit
def append_mark(e, h, w, mark, until):
    ws = windows_of(e)
    chunk = ws[w + W_TOLD_HEAD]
    used = chunk_used(h, chunk) if chunk > 0 else 0
    cap = h[chunk] >> 52 if chunk > 0 else 0
    if used == cap:
        cap = min(max(2 * cap, 16), CHUNK_MARKS - 1)
        fresh = allocate(e, h, w, CHUNK + cap)
        h[fresh] = chunk | (cap << 52)
        ws[w + W_TOLD_HEAD] = fresh
        chunk = fresh
        used = 0
    h[chunk + CHUNK + used] = mark
    h[chunk] += 1 << 40
    ws[w + W_TOLD] += 1
    if until > ws[w + W_EVENT_UNTIL_HIGH]:
        ws[w + W_EVENT_UNTIL_HIGH] = until


@jit
def room_for(c, e, count):
    """DONE when so many marks can be left, else what is needed. Nothing has happened then."""
    c[C_TOLD_WANTED] = count
    # A run may begin with every mark; a chunk may be left half empty in every window.
    if c[C_TOLD_USED] + (RUN + 1) * count + RUN > c[C_TOLD_CAP]:
        return NEED_OUTPUT
    if free_segments(e) < SPARE + 2 * count // SEGMENT:
        return NEED_MEMORY
    if e[E_TOLD_CAP] > 0 and (e[E_TOLD_USED] + count) * 5 >= e[E_TOLD_CAP] * 3:
        return NEED_MEMORY
    return DONE


@jit
def tell(c, e, h, w, mark, until):
    """Leave a mark in a window, in the table and for the log. Room is there."""
    if e[E_TOLD_CAP] > 0 and not put_mark(e, mark):
        return
    append_mark(e, h, w, mark, until)
    out = words(c[C_TOLD], c[C_TOLD_CAP])
    run = c[C_TOLD_RUN]
    if run < 0 or out[run] >> 32 != w:
        run = c[C_TOLD_USED]
        c[C_TOLD_RUN] = run
        c[C_TOLD_USED] = run + RUN
        out[run] = w << 32
        out[run + 1] = until
    elif until > out[run + 1]:
        out[run + 1] = until
    if until > c[C_TOLD_UNTIL]:
        c[C_TOLD_UNTIL] = until
    out[c[C_TOLD_USED]] = mark
    c[C_TOLD_USED] += 1
    out[run] += 1


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
    """(seq, until) of a stored event."""
    if ref >= ON_DISK:
        d = component(e, (ref >> 40) & REF_COMPONENT)
        x = ref & REF_INDEX
        return words(d[D_EVENT_SEQ], d[D_EVENTS])[x], words(d[D_EVENT_UNTIL], d[D_EVENTS])[x]
    return h[ref + SEQ], h[ref + UNTIL]


@jit
def leave_out_told(c, ee, he, first, user):
    """Take the answers [first, count) back that a user was told before."""
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_EVENT_REFS], c[C_REFS_CAP])
    kept = first
    for k in range(first, c[C_ANSWER_COUNT]):
        seq, until = event_facts(ee, he, refs[codes[k] & ~MAYBE])
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
        seq, until = event_facts(ee, he, refs[codes[k] & ~MAYBE])
        if was_told(ee, sub_mark(root, seq), until):
            codes[kept] = codes[k]
            kept += 1
    c[C_ANSWER_COUNT] = kept


@jit
def tell_published(c, es, hs, ee, he, first, limit, holds, seq, until, now):
    """The answers [first, limit) of an event are given; those only that hold (see `settle`)."""
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_SUB_REFS], c[C_REFS_CAP])
    w = pick_window(ee, TOLD_SIDE, until, now)
    for k in range(first, limit):
        if falls(holds, k):
            continue
        user, _, flags, root = sub_facts(es, hs, refs[codes[k] & ~MAYBE])
        tell(c, ee, he, w, user_mark(user, seq), until)
        if flags & F_UNSEEN:
            tell(c, ee, he, w, sub_mark(root, seq), until)


@jit
def tell_subscribed(c, ee, he, first, limit, holds, user, root, unseen, now):
    """The answers [first, limit) of a subscription are given; those only that hold."""
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_EVENT_REFS], c[C_REFS_CAP])
    w = -1
    for k in range(first, limit):
        if falls(holds, k):
            continue
        seq, until = event_facts(ee, he, refs[codes[k] & ~MAYBE])
        w = window_for(ee, w, until, now)
        tell(c, ee, he, w, user_mark(user, seq), until)
        if unseen:
            tell(c, ee, he, w, sub_mark(root, seq), until)


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
        status = room_for(c, ee, 2 * c[C_ANSWER_COUNT])
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
            size = 0
            for j in range(start, end):
                if holds[j] and sub_facts(es, hs, subs[codes[j] & ~MAYBE])[2] & F_UNSEEN:
                    size = 1
            if size:
                size = first_of_users(c, es, hs, start, end, holds_address)
                if size == 0:
                    return NEED_SCRATCH
                scratch, _ = refs_scratch(c)
                for j in range(start, end):
                    if holds[j] and yields(es, hs, scratch, size, subs[codes[j] & ~MAYBE]):
                        holds[j] = 0
            until = row[p + R_UNTIL]
            if c[C_REMEMBER] and until > now:
                tell_published(
                    c, es, hs, ee, he, start, end, holds_address, row[p + R_SEQ], until, now
                )
        elif c[C_REMEMBER]:
            _, key, ident, user, text, _ = row_parts(row, p)
            told = user_hash_of(es, octet, user, text)
            unseen = (row[p] >> 8) & R_UNSEEN != 0
            tell_subscribed(
                c, ee, he, start, end, holds_address, told, root_of(row, p), unseen, now
            )
    return DONE


@jit
def root_of(row, p):
    """The seq of the first record of the subscription that a row stores."""
    if (row[p] >> 8) & R_PROLONGED:
        return row[p + ((row[p] >> 32) & LOW32) + R_ROOT]
    return row[p + R_SEQ]


# ---- the log ---------------------------------------------------------------------------


@jit
def put_told_row(c, out, p, answered):
    """Write the marks of a call as a row at word p; there is room. Returns its words."""
    used = c[C_TOLD_USED]
    size = R_BODY + used
    out[p] = TOLD | (size << 32)
    out[p + R_SEQ] = 0
    out[p + R_NOW] = c[C_NEWEST]
    out[p + R_AT] = answered
    out[p + R_UNTIL] = c[C_TOLD_UNTIL]
    out[p + R_LENGTHS] = 0
    out[p + R_TEXT] = 0
    runs = words(c[C_TOLD], c[C_TOLD_CAP])
    for i in range(used):
        out[p + R_BODY + i] = runs[i]
    return size


@jit
def told_row(address, out, answered):
    """The same, for Python: the row of the call's marks. Returns its words."""
    return put_told_row(words(address, C_WORDS), out, 0, answered)


@jit
def replay_told(c, e, h, row, p):
    """Bring the marks of a row back, unless their event has expired or they are there. Status."""
    limit = p + (row[p] >> 32)
    at = p + R_BODY
    if row[p + R_AT] > c[C_ANSWERED]:
        c[C_ANSWERED] = row[p + R_AT]
    if row[p + R_UNTIL] <= c[C_NEWEST] or not c[C_REMEMBER]:
        return DONE
    status = room_for(c, e, limit - at)
    if status == NEED_MEMORY:
        return status
    w = -1
    while at < limit:
        count = row[at] & LOW32
        until = row[at + 1]
        if until > c[C_NEWEST]:
            w = window_for(e, w, until, row[p + R_NOW])
            for i in range(at + RUN, at + RUN + count):
                if e[E_TOLD_CAP] == 0 or put_mark(e, row[i]):
                    append_mark(e, h, w, row[i], until)
        at += RUN + count
    return DONE


@jit
def take_told_back(c, e, h):
    """The answers of the call were not given: their marks go."""
    ws = windows_of(e)
    out = words(c[C_TOLD], c[C_TOLD_CAP])
    at = 0
    while at < c[C_TOLD_USED]:
        count = out[at] & LOW32
        w = out[at] >> 32
        for i in range(at + RUN, at + RUN + count):
            take_mark(e, out[i])
            chunk = ws[w + W_TOLD_HEAD]
            found = False
            while chunk > 0 and not found:
                for j in range(chunk + CHUNK, chunk + CHUNK + chunk_used(h, chunk)):
                    if h[j] == out[i]:
                        h[j] = 0
                        found = True
                        break
                chunk = h[chunk] & LOW40
        at += RUN + count
    c[C_TOLD_USED] = 0
    c[C_TOLD_RUN] = -1


# ---- to disk ---------------------------------------------------------------------------


@jit
def list_marks(address, number, out):
    """The marks of a window. Returns how many."""
    e = engine(address)
    h = heap_of(e)
    chunk = windows_of(e)[number * W_WORDS + W_TOLD_HEAD]
    found = 0
    while chunk > 0:
        for j in range(chunk + CHUNK, chunk + CHUNK + chunk_used(h, chunk)):
            if h[j] != 0:
                out[found] = h[j]
                found += 1
        chunk = h[chunk] & LOW40
    return found
