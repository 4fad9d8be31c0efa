"""Run rows: match, store, number. The one entry for single calls, batches and recovery.

`run_rows` does rows in order until the end or until it needs something only Python
can give (memory, a larger table or buffer, an expired window dropped): it then says
what in C_STATUS, with the row at C_POS not begun, and is called again.

A row that cannot be stored (id taken, cancel of something unknown) is turned VOID
in place: the log keeps its bytes but recovery skips it. C_DUPLICATES tells why.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.ahead import AHEAD, NEAR, RING, look_ahead, look_closer
from tideline.kernels.disk import component, place_of
from tideline.kernels.export import log_ghost, pack_answers
from tideline.kernels.frames import put_header
from tideline.kernels.heap import (
    allocate,
    append_record,
    engine,
    entry_slot,
    ghost_end,
    has_room,
    heap_of,
    note_ghost,
    pick_window,
    reach_entry,
)
from tideline.kernels.layout import (
    BLOB_TEXT,
    C_AFTER,
    C_ANSWER_CAP,
    C_ANSWER_COUNT,
    C_ANSWERS,
    C_DUPLICATES,
    C_EPOCH,
    C_EVENT_REF_COUNT,
    C_EVENT_REFS,
    C_EVENTS,
    C_EXTRA_USED,
    C_LATE,
    C_MAYBES,
    C_NEWEST,
    C_NEXT_SEQ,
    C_OWN,
    C_PAIR_COUNT,
    C_POS,
    C_REFS_CAP,
    C_ROW,
    C_ROW_CODES,
    C_ROW_COUNTS,
    C_ROWS,
    C_ROWS_WORDS,
    C_SCRATCH,
    C_STATUS,
    C_SUB_REF_COUNT,
    C_SUB_REFS,
    C_SUBS,
    C_WORDS,
    CANCEL,
    D_KEY_BYTES,
    D_KEY_OFFSETS,
    D_KEYS,
    D_PLACES,
    D_SUB_FLAGS,
    D_SUB_MADE,
    D_SUB_SEQ,
    D_SUB_SHAPE,
    D_SUB_SINCE,
    D_SUB_UNTIL,
    D_SUB_USER_HASH,
    D_SUB_WHERE_OFFSETS,
    D_SUB_WHERES,
    D_SUBS,
    DONE,
    E_MODE,
    E_NEXT_EXPIRY,
    E_REUSED,
    E_SEED1,
    E_SEED2,
    EVENT_BLOB,
    EVENT_STAMP,
    EVENTS,
    F_CANCELLED,
    F_SHAPE,
    F_UNKNOWN_KEEP,
    F_VOID,
    FIND,
    FOREVER,
    FRAMED,
    GHOST,
    GHOSTS,
    IN_ROW,
    KEEP,
    LOW16,
    MADE,
    MAYBE,
    N_MARK,
    NEED_DROP,
    NEED_MEMORY,
    NEED_OUTPUT,
    NEED_READER,
    NOTE,
    ON_DISK,
    PUBLISH,
    R_AT,
    R_COND,
    R_LENGTHS,
    R_NOW,
    R_SAME,
    R_SEQ,
    R_UNSEEN,
    R_UNTIL,
    REF_COMPONENT,
    REF_INDEX,
    SEQ,
    SHAPE_WORDS,
    SINCE,
    STAMP,
    STORED,
    SUB_BLOB,
    SUB_WORDS,
    SUBS,
    SUBSCRIBE,
    TOMB,
    UNTIL,
    USER,
    VOID,
)
from tideline.kernels.match import (
    TREE,
    answer_events,
    answer_subscriptions,
    disk_shape,
    forget_codes,
    latest_kept,
    leave_out_seen,
    new_code,
    note_kept,
    row_shape,
    yield_to_earlier,
)
from tideline.kernels.store import (
    find_id,
    has_ghost,
    id_hash_of,
    row_parts,
    store_event,
    store_subscription,
    user_hash_of,
)
from tideline.kernels.tables import take_tomb_back
from tideline.kernels.text import copy, nodes
from tideline.kernels.tombs import cancel, is_cancelled, replay_tomb
from tideline.kernels.views import doubles, halves, octets, words

UNKNOWN = -1  # C_DUPLICATES: a cancel that names nothing


@jit
def run_rows(address, rows_words, fresh):
    """Run rows, from the first (`fresh`) or from C_POS on. See the module's docstring.

    Returns the status, 256 if an answer needs its condition checked, and the number of
    answers from bit 16 on.
    """
    c = words(address, C_WORDS)
    if fresh:
        begin(c, rows_words)
    es = engine(c[C_SUBS])
    ee = engine(c[C_EVENTS])
    hs = heap_of(es)
    he = heap_of(ee)
    row = words(c[C_ROWS], c[C_ROWS_WORDS])
    octet = octets(c[C_ROWS], c[C_ROWS_WORDS] * 8)
    tree = words(c[C_SCRATCH], TREE)
    counts = words(c[C_ROW_COUNTS], FOREVER)
    codes = words(c[C_ROW_CODES], FOREVER)
    own = words(c[C_OWN], FOREVER)
    duplicates = words(c[C_DUPLICATES], FOREVER)
    c[C_STATUS] = DONE
    p = c[C_POS]
    flat = es[E_MODE] == 0 and c[C_ROWS_WORDS] > 1024
    ring = words(c[C_SCRATCH] + RING * 8, 4 * AHEAD)
    ahead = p
    step = 0
    while p < c[C_ROWS_WORDS]:
        if flat:
            # Memory is slow and the rows to come are known: begin to load what they will touch.
            while step < AHEAD:
                ahead = look_ahead(c, es, ee, row, octet, ahead, ring, step)
                step += 1
            look_closer(es, ee, ring, step - AHEAD + NEAR)
            ahead = look_ahead(c, es, ee, row, octet, ahead, ring, step)
            step += 1
        kind = row[p] & 0xFF
        counts[c[C_ROW]] = 0
        codes[c[C_ROW]] = 0
        own[c[C_ROW]] = 0
        duplicates[c[C_ROW]] = 0
        if kind != VOID:
            ref = 0
            if kind != FIND:
                given = row[p + R_NOW]
                now = max(given, c[C_NEWEST])
                ref = holder(es, hs, ee, he, kind, row, octet, p, now)
                # A row that does not land does not move the channel's time either.
                if (ref == 0) == (kind == CANCEL):
                    duplicates[c[C_ROW]] = ref if ref else UNKNOWN
                    make_void(row, p)
                    p += row[p] >> 32
                    c[C_ROW] += 1
                    continue
                c[C_NEWEST] = now
                if now >= es[E_NEXT_EXPIRY] or now >= ee[E_NEXT_EXPIRY]:
                    c[C_STATUS] = NEED_DROP
                    break
                if not has_room(es) or not has_room(ee):
                    c[C_STATUS] = NEED_MEMORY
                    break
            answers = c[C_ANSWER_COUNT]
            subs = c[C_SUB_REF_COUNT]
            events = c[C_EVENT_REF_COUNT]
            pairs = c[C_PAIR_COUNT]
            if kind == PUBLISH:
                status = run_publish(c, es, hs, ee, he, row, octet, p, now, tree)
            elif kind == SUBSCRIBE:
                status = run_subscribe(c, es, hs, ee, he, row, octet, p, now, tree)
            elif kind == CANCEL:
                status = run_cancel(c, es, hs, row, p, ref, now, tree)
            else:
                status = run_find(c, es, hs, ee, he, row, octet, p, tree)
            if status != DONE:
                forget_codes(c, answers, subs, events)
                c[C_PAIR_COUNT] = pairs
                c[C_STATUS] = status
                break
            counts[c[C_ROW]] = c[C_ANSWER_COUNT] - answers
            if kind != FIND:
                if given < now:
                    c[C_LATE] += 1
                row[p + R_NOW] = now
        p += row[p] >> 32
        c[C_ROW] += 1
    c[C_POS] = p
    return c[C_STATUS] | c[C_MAYBES] | (c[C_ANSWER_COUNT] << 16)


@jit
def run_one(address, rows_words, fresh):
    """`run_rows` for one row: answers packed unless a condition is to be checked, and framed.

    The two words before the row are the header of its frame in the log. Adds STORED when there
    is something to log, and FRAMED when the frame is complete as it stands.
    """
    result = run_rows(address, rows_words, fresh)
    if result & 0xFF == DONE:
        c = words(address, C_WORDS)
        kind = words(c[C_ROWS], 1)[0] & 0xFF
        if result >> 16 > 0 and result & 0x1FF == DONE:
            pack_answers(address, SUBS if kind == PUBLISH else EVENTS)
        if kind != VOID:
            result |= STORED
            if c[C_EXTRA_USED] == 0:
                put_header(c[C_ROWS] - 16, rows_words)
                result |= FRAMED
    return result


@jit
def begin(c, rows_words):
    """A new call: nothing answered yet, and codes of earlier calls mean nothing."""
    c[C_ROWS_WORDS] = rows_words
    c[C_POS] = 0
    c[C_ROW] = 0
    clear(c)


@jit
def begin_part(address):
    """Go on in the middle of a call; what was answered so far has been taken away."""
    clear(words(address, C_WORDS))


@jit
def clear(c):
    c[C_ANSWER_COUNT] = 0
    c[C_SUB_REF_COUNT] = 0
    c[C_EVENT_REF_COUNT] = 0
    c[C_PAIR_COUNT] = 0
    c[C_EXTRA_USED] = 0
    c[C_MAYBES] = 0
    engine(c[C_SUBS])[E_REUSED] = 0
    engine(c[C_EVENTS])[E_REUSED] = 0
    c[C_EPOCH] = (c[C_EPOCH] + 1) & 0x7FFFFFFF


@jit
def holder(es, hs, ee, he, kind, row, octet, p, now):
    """The record that has the id of a row already, or 0."""
    _, key, ident, user, text, limit = row_parts(row, p)
    if kind == PUBLISH:
        id_hash = id_hash_of(ee, EVENTS, octet, ident, user)
        return find_id(ee, he, EVENTS, id_hash, octet, ident, user, now, -1)
    id_hash = id_hash_of(es, SUBS, octet, ident, user)
    return find_id(es, hs, SUBS, id_hash, octet, ident, user, now, -1)


@jit
def lookup(address, now):
    """The subscription whose id the first row of the call names, or 0."""
    c = words(address, C_WORDS)
    e = engine(c[C_SUBS])
    h = heap_of(e)
    size = words(c[C_ROWS], 1)[0] >> 32
    row = words(c[C_ROWS], size)
    octet = octets(c[C_ROWS], size * 8)
    return holder(e, h, e, h, CANCEL, row, octet, 0, now)


@jit
def make_void(row, p):
    row[p] = (row[p] >> 8) << 8


@jit
def run_publish(c, es, hs, ee, he, row, octet, p, now, tree):
    kind, key, ident, user, text, limit = row_parts(row, p)
    own_refs = words(c[C_OWN], c[C_ROW] + 1)
    count = nodes(
        octet, key, key + (row[p + R_LENGTHS] & LOW16), es[E_MODE], es[E_SEED1], es[E_SEED2], tree
    )
    shape = row_shape(c[C_ROWS], row, p)
    until = row[p + R_UNTIL]
    first = c[C_ANSWER_COUNT]
    status, unseen = answer_subscriptions(
        c, es, hs, octet, key, tree, count, row[p + R_AT], until, now, shape
    )
    if status != DONE:
        return status
    status = keep_sealed(c, es, hs, first, until, now)
    if status != DONE:
        return status
    if unseen:
        status = yield_to_earlier(c, es, hs, first)
        if status != DONE:
            return status
        note_kept(c, hs, first, until)
    code = -1
    if c[C_ANSWER_COUNT] > first:
        code = new_code(c, EVENTS, IN_ROW + c[C_ROW])
        if code < 0:
            return NEED_OUTPUT
        words(c[C_ROW_CODES], c[C_ROW] + 1)[c[C_ROW]] = code
    seq = c[C_NEXT_SEQ]
    c[C_NEXT_SEQ] = seq + 1
    row[p + R_SEQ] = seq
    if until > now:
        o = store_event(ee, he, row, octet, p, seq, now, tree, count)
        own_refs[c[C_ROW]] = o
        if code >= 0:
            he[o + EVENT_STAMP] = (c[C_EPOCH] << 32) | code
            words(c[C_EVENT_REFS], c[C_REFS_CAP])[code] = o
    return DONE


@jit
def run_subscribe(c, es, hs, ee, he, row, octet, p, now, tree):
    kind, key, ident, user, text, limit = row_parts(row, p)
    own_refs = words(c[C_OWN], c[C_ROW] + 1)
    count = nodes(
        octet, key, key + (row[p + R_LENGTHS] & LOW16), es[E_MODE], es[E_SEED1], es[E_SEED2], tree
    )
    shape = row_shape(c[C_ROWS], row, p)
    flags = row[p] >> 8
    until = row[p + R_UNTIL]
    first = c[C_ANSWER_COUNT]
    seq = c[C_NEXT_SEQ]
    status, keep = answer_events(
        c,
        ee,
        he,
        octet,
        key,
        tree,
        count,
        row[p + R_AT],
        until,
        now,
        -1,
        shape,
        False,
        MAYBE if flags & R_COND else 0,
    )
    if status != DONE:
        return status
    if flags & R_UNSEEN and c[C_ANSWER_COUNT] > first:
        user_hash = user_hash_of(es, octet, user, text)
        status = leave_out_seen(c, es, hs, ee, he, first, user_hash, seq, now)
        if status != DONE:
            return status
        # What an earlier subscription of the user has is that one's to remember.
        keep = latest_kept(c, he, ee, first)
    code = -1
    if c[C_ANSWER_COUNT] > first:
        code = new_code(c, SUBS, IN_ROW + c[C_ROW])
        if code < 0:
            return NEED_OUTPUT
        words(c[C_ROW_CODES], c[C_ROW] + 1)[c[C_ROW]] = code
    c[C_NEXT_SEQ] = seq + 1
    row[p + R_SEQ] = seq
    if until > now or keep > now:
        o = store_subscription(es, hs, row, octet, p, seq, now, tree, count, keep, 0, until <= now)
        own_refs[c[C_ROW]] = o
        if code >= 0:
            hs[o + STAMP] = (c[C_EPOCH] << 32) | code
            words(c[C_SUB_REFS], c[C_REFS_CAP])[code] = o
    return DONE


@jit
def run_cancel(c, es, hs, row, p, ref, now, tree):
    seq = c[C_NEXT_SEQ]
    target = cancel(c, es, hs, ref, seq, now, tree, True)
    if target < 0:
        return NEED_OUTPUT
    c[C_NEXT_SEQ] = seq + 1
    row[p + R_SEQ] = seq
    row[p + R_AT] = target
    words(c[C_OWN], c[C_ROW] + 1)[c[C_ROW]] = ref
    return DONE


@jit
def run_find(c, es, hs, ee, he, row, octet, p, tree):
    """A question that is not stored. R_SEQ is the asking subscription's, for unseen."""
    kind, key, ident, user, text, limit = row_parts(row, p)
    count = nodes(
        octet, key, key + (row[p + R_LENGTHS] & LOW16), ee[E_MODE], ee[E_SEED1], ee[E_SEED2], tree
    )
    shape = row_shape(c[C_ROWS], row, p)
    flags = row[p] >> 8
    first = c[C_ANSWER_COUNT]
    status, keep = answer_events(
        c,
        ee,
        he,
        octet,
        key,
        tree,
        count,
        row[p + R_AT],
        row[p + R_UNTIL],
        row[p + R_NOW],
        c[C_AFTER],
        shape,
        (flags & R_SAME) != 0,
        MAYBE if flags & R_COND else 0,
    )
    if status == DONE and flags & R_UNSEEN and c[C_ANSWER_COUNT] > first:
        user_hash = user_hash_of(es, octet, user, text)
        status = leave_out_seen(c, es, hs, ee, he, first, user_hash, row[p + R_SEQ], row[p + R_NOW])
    return status


# ---- ghosts --------------------------------------------------------------------------


@jit
def keep_sealed(c, e, h, first, until, now):
    """Sealed subscriptions cannot note what they were answered with: leave ghosts for them."""
    subs = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_SUB_REFS], c[C_REFS_CAP])
    tree = words(c[C_SCRATCH] + TREE * 8, TREE)
    for k in range(first, c[C_ANSWER_COUNT]):
        ref = refs[subs[k] & ~MAYBE]
        if ref < ON_DISK:
            continue
        d = component(e, (ref >> 40) & REF_COMPONENT)
        x = ref & REF_INDEX
        if until <= words(d[D_SUB_UNTIL], d[D_SUBS])[x]:
            continue
        if not has_room(e):
            return NEED_MEMORY
        # Logged first: a ghost that is there is never logged again.
        used = c[C_EXTRA_USED]
        if not log_ghost(c, e, h, ref, ghost_end(until, now)):
            return NEED_OUTPUT
        if not ghost_of_sealed(e, h, d, x, until, now, tree):
            c[C_EXTRA_USED] = used
    return DONE


@jit
def ghost_of_sealed(e, h, d, x, keep, now, tree):
    count = d[D_SUBS]
    seq = words(d[D_SUB_SEQ], count)[x]
    place = place_of(d, SUBS, x)
    offsets = words(d[D_KEY_OFFSETS], d[D_PLACES] + 1)
    keys = octets(d[D_KEYS], d[D_KEY_BYTES])
    start = offsets[place]
    n = nodes(keys, start, offsets[place + 1], e[E_MODE], e[E_SEED1], e[E_SEED2], tree)
    w = pick_window(e, GHOSTS, keep, now)
    at = reach_entry(e, h, w, keys, start, tree, n)
    slot = entry_slot(e, at)
    if has_ghost(h, slot, seq, keep):
        return False
    flags = words(d[D_SUB_FLAGS], count)[x]
    where = words(d[D_SUB_WHERE_OFFSETS], count + 1)
    length = where[x + 1] - where[x]
    shape = disk_shape(d[D_SUB_SHAPE], count, x)
    size = BLOB_TEXT + (SHAPE_WORDS if shape[0] != 0 else 0)
    blob = allocate(e, h, w, size + ((length + 7) >> 3))
    h[blob] = length << 32
    h[blob + 1] = slot
    if shape[0] != 0:
        f = doubles(e[0], e[1])
        h[blob + BLOB_TEXT] = shape[0]
        f[blob + BLOB_TEXT + 1] = shape[1]
        f[blob + BLOB_TEXT + 2] = shape[2]
        f[blob + BLOB_TEXT + 3] = shape[3]
        f[blob + BLOB_TEXT + 4] = shape[4]
    heap = octets(e[0], e[1] * 8)
    copy(heap, (blob + size) * 8, octets(d[D_SUB_WHERES], FOREVER), where[x], length)
    o = append_record(e, h, w, at, GHOSTS, SUB_WORDS)
    h[o + SINCE] = words(d[D_SUB_SINCE], count)[x]
    h[o + UNTIL] = words(d[D_SUB_UNTIL], count)[x]
    h[o + SEQ] = seq
    h[o + MADE] = words(d[D_SUB_MADE], count)[x]
    h[o + USER] = words(d[D_SUB_USER_HASH], count)[x]
    h[o + SUB_BLOB] = blob | (flags & ~F_SHAPE) | (F_SHAPE if shape[0] != 0 else 0)
    h[o + KEEP] = ghost_end(keep, now)
    h[o + STAMP] = 0
    note_ghost(e, w)
    return True


# ---- recovery and taking back -------------------------------------------------------------


@jit
def replay_rows(address):
    """Store rows from the log again, without looking for answers."""
    c = words(address, C_WORDS)
    es = engine(c[C_SUBS])
    ee = engine(c[C_EVENTS])
    hs = heap_of(es)
    he = heap_of(ee)
    row = words(c[C_ROWS], c[C_ROWS_WORDS])
    octet = octets(c[C_ROWS], c[C_ROWS_WORDS] * 8)
    tree = words(c[C_SCRATCH], TREE)
    c[C_STATUS] = DONE
    p = c[C_POS]
    while p < c[C_ROWS_WORDS]:
        kind = row[p] & 0xFF
        if kind == NOTE:
            if (row[p] >> 8) & N_MARK:
                c[C_STATUS] = NEED_READER
                break
        elif kind != VOID:
            now = row[p + R_NOW]
            seq = row[p + R_SEQ]
            if now > c[C_NEWEST]:
                c[C_NEWEST] = now
            # Nothing is dropped before the end: what a subscription was answered with may
            # still come, and decides whether it leaves a ghost.
            if not has_room(es) or not has_room(ee):
                c[C_STATUS] = NEED_MEMORY
                break
            _, key, ident, user, text, limit = row_parts(row, p)
            count = nodes(
                octet,
                key,
                key + (row[p + R_LENGTHS] & LOW16),
                es[E_MODE],
                es[E_SEED1],
                es[E_SEED2],
                tree,
            )
            until = row[p + R_UNTIL]
            if kind == GHOST:
                keep = row[p + (row[p] >> 32) - 2]
                ended = row[p + (row[p] >> 32) - 1]
                if keep > c[C_NEWEST]:
                    o = store_subscription(
                        es, hs, row, octet, p, seq, now, tree, count, keep, 0, True
                    )
                    if ended != FOREVER:
                        hs[o + SUB_BLOB] |= F_CANCELLED
                        hs[o + STAMP] = ended
            elif kind == PUBLISH:
                if until > now and not known(ee, he, EVENTS, octet, ident, user, now, seq):
                    store_event(ee, he, row, octet, p, seq, now, tree, count)
            elif kind == SUBSCRIBE:
                if until > now:
                    if not known(es, hs, SUBS, octet, ident, user, now, seq):
                        store_subscription(
                            es,
                            hs,
                            row,
                            octet,
                            p,
                            seq,
                            now,
                            tree,
                            count,
                            -FOREVER,
                            F_UNKNOWN_KEEP,
                            False,
                        )
                else:
                    c[C_STATUS] = run_expired(c, es, hs, ee, he, row, octet, p, now, tree, count)
                    if c[C_STATUS] != DONE:
                        break
            elif kind == TOMB:
                replay_tomb(es, hs, row, octet, p, key, tree, count, c[C_NEWEST])
            else:
                id_hash = id_hash_of(es, SUBS, octet, ident, user)
                ref = find_id(es, hs, SUBS, id_hash, octet, ident, user, now, row[p + R_AT])
                # One that has expired with its component is gone; for its ghosts, the row of
                # its tomb follows.
                if ref != 0 and not is_cancelled(es, hs, ref):
                    cancel(c, es, hs, ref, seq, now, tree, False)
            if seq >= c[C_NEXT_SEQ]:
                c[C_NEXT_SEQ] = seq + 1
        p += row[p] >> 32
    c[C_POS] = p


@jit
def run_expired(c, es, hs, ee, he, row, octet, p, now, tree, count):
    """A subscription that looked into the past only: it may have to stay as a ghost."""
    status, keep = answer_events(
        c,
        ee,
        he,
        octet,
        row_parts(row, p)[1],
        tree,
        count,
        row[p + R_AT],
        row[p + R_UNTIL],
        now,
        -1,
        row_shape(c[C_ROWS], row, p),
        False,
        0,
    )
    forget_codes(c, 0, 0, 0)
    if status == DONE and keep > now:
        store_subscription(es, hs, row, octet, p, row[p + R_SEQ], now, tree, count, keep, 0, True)
    return status


@jit
def known(e, h, side, octet, ident, user, now, seq):
    """Whether a component already holds what the log still has (sealed, log not yet cut)."""
    id_hash = id_hash_of(e, side, octet, ident, user)
    return find_id(e, h, side, id_hash, octet, ident, user, now, seq) != 0


@jit
def take_back(address, p, first, limit):
    """Undo rows [first, limit) (the first lies at word p): what they stored never counts."""
    c = words(address, C_WORDS)
    es = engine(c[C_SUBS])
    ee = engine(c[C_EVENTS])
    hs = heap_of(es)
    he = heap_of(ee)
    row = words(c[C_ROWS], c[C_ROWS_WORDS])
    own = words(c[C_OWN], limit)
    for i in range(first, limit):
        kind = row[p] & 0xFF
        ref = own[i]
        if kind == PUBLISH and ref > 0:
            he[ref + EVENT_BLOB] |= F_VOID
            he[ref + UNTIL] = -FOREVER
        elif kind == SUBSCRIBE and ref > 0:
            hs[ref + SUB_BLOB] |= F_VOID
            hs[ref + UNTIL] = -FOREVER
        elif kind == CANCEL and ref > 0:
            take_tomb_back(es, hs, row[p + R_AT])
            if ref < ON_DISK:
                hs[ref + SUB_BLOB] &= ~F_CANCELLED
                hs[ref + STAMP] = 0
        p += row[p] >> 32
