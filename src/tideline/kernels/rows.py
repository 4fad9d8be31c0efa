"""Run rows: match, store, number. The one entry for single calls and batches (again.py: recovery).

`run_rows` does rows in order until the end or until it needs something only Python
can give (memory, a larger table or buffer): it then says
what in C_STATUS, with the row at C_POS not begun, and is called again.

Whoever is told something leaves a mark (told.py): right away, or, when conditions have still to be
checked, in `told.settle`.

A row that cannot be stored (id taken, cancel of something unknown) is turned VOID
in place: the log keeps its bytes but recovery skips it. C_DUPLICATES tells why.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.ahead import AHEAD, NEAR, RING, look_ahead, look_closer
from tideline.kernels.export import pack_answers
from tideline.kernels.frames import put_header
from tideline.kernels.heap import engine, heap_of
from tideline.kernels.layout import (
    C_AFTER,
    C_ANSWER_COUNT,
    C_ANSWERED,
    C_DUPLICATES,
    C_EPOCH,
    C_EVENT_REF_COUNT,
    C_EVENT_REFS,
    C_EVENTS,
    C_EXTRA_USED,
    C_FRAME_WORDS,
    C_LATE,
    C_MAYBES,
    C_NEWEST,
    C_NEWEST_LOGGED,
    C_NEXT_SEQ,
    C_OWN,
    C_POS,
    C_REFS_CAP,
    C_REMEMBER,
    C_ROW,
    C_ROW_CODES,
    C_ROW_COUNTS,
    C_ROWS,
    C_ROWS_ROOM,
    C_ROWS_WORDS,
    C_SCRATCH,
    C_STATUS,
    C_SUB_REF_COUNT,
    C_SUB_REFS,
    C_SUBS,
    C_TOLD,
    C_TOLD_USED,
    C_TOLD_WANTED,
    C_WORDS,
    CANCEL,
    DONE,
    E_MODE,
    E_NEXT_EXPIRY,
    E_REUSED,
    E_SEED1,
    E_SEED2,
    E_TOLD_CAP,
    EVENT_STAMP,
    EVENTS,
    EXPIRED,
    FIND,
    FOREVER,
    FRAMED,
    IN_ROW,
    LOW16,
    MAYBE,
    NEED_MEMORY,
    NEED_OUTPUT,
    NEED_TOLD,
    NEED_VERDICT,
    ON_DISK,
    PUBLISH,
    R_ASKED,
    R_AT,
    R_COND,
    R_ENTRY,
    R_LENGTHS,
    R_NOW,
    R_PROLONGED,
    R_REPLACES,
    R_ROOT,
    R_SAME,
    R_SEQ,
    R_TARGET,
    R_UNSEEN,
    R_UNTIL,
    RETRACT,
    STAMP,
    STORED,
    SUBS,
    SUBSCRIBE,
    VOID,
)
from tideline.kernels.match import (
    TREE,
    answer_events,
    answer_subscriptions,
    forget_codes,
    new_code,
    row_shape,
)
from tideline.kernels.runs import (
    finish_told_row,
    no_runs,
    room_for,
)
from tideline.kernels.slots import has_room
from tideline.kernels.store import (
    find_id,
    id_hash_of,
    row_parts,
    store_event,
    store_subscription,
    user_hash_of,
)
from tideline.kernels.tables import take_over_id
from tideline.kernels.text import nodes
from tideline.kernels.told import (
    leave_in_answered,
    leave_out_told,
    tell_published,
    tell_subscribed,
    yield_to_earlier,
)
from tideline.kernels.tombs import (
    cancel,
    retract,
)
from tideline.kernels.views import octets, words

UNKNOWN = -1  # C_DUPLICATES: a cancel that names nothing


@jit
def run_rows(address, rows_words, fresh):
    """Run rows, from the first (`fresh`) or from C_POS on. See the module's docstring.

    Returns the status, 256 if an answer needs its condition checked, EXPIRED if a window may be
    dropped, and the number of answers from bit 16 on.
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
        c[C_TOLD_WANTED] = 0
        counts[c[C_ROW]] = 0
        codes[c[C_ROW]] = 0
        own[c[C_ROW]] = 0
        duplicates[c[C_ROW]] = 0
        if kind != VOID:
            ref = 0
            prolongs = kind == SUBSCRIBE and (row[p] >> 8) & R_PROLONGED != 0
            replaces = kind == PUBLISH and (row[p] >> 8) & R_REPLACES != 0
            if kind != PUBLISH and (row[p] >> 8) & R_UNSEEN:
                if ee[E_TOLD_CAP] == 0:
                    c[C_STATUS] = NEED_TOLD
                    break
                if c[C_MAYBES]:
                    c[C_STATUS] = NEED_VERDICT
                    break
            if kind != FIND:
                given = row[p + R_NOW]
                now = max(given, c[C_NEWEST])
                ref = holder(es, hs, ee, he, kind, row, octet, p, now)
                # A row that does not land does not move the channel's time either.
                if not replaces and (ref == 0) == (kind == CANCEL or kind == RETRACT or prolongs):
                    duplicates[c[C_ROW]] = ref if ref else UNKNOWN
                    make_void(row, p)
                    p += row[p] >> 32
                    c[C_ROW] += 1
                    continue
                if not has_room(es) or not has_room(ee):
                    c[C_STATUS] = NEED_MEMORY
                    break
                c[C_NEWEST] = now
            answers = c[C_ANSWER_COUNT]
            subs = c[C_SUB_REF_COUNT]
            events = c[C_EVENT_REF_COUNT]
            maybes = c[C_MAYBES]
            c[C_MAYBES] = 0
            if kind == PUBLISH:
                status = run_publish(c, es, hs, ee, he, row, octet, p, ref, now, tree)
            elif kind == SUBSCRIBE:
                status = run_subscribe(c, es, hs, ee, he, row, octet, p, ref, now, tree)
            elif kind == CANCEL:
                status = run_cancel(c, es, hs, row, p, ref, now, tree)
            elif kind == RETRACT:
                status = run_retract(c, ee, he, row, p, ref, now, tree)
            else:
                status = run_find(c, es, hs, ee, he, row, octet, p, tree)
            if status != DONE:
                forget_codes(c, answers, subs, events)
                c[C_MAYBES] = maybes
                c[C_STATUS] = status
                break
            c[C_MAYBES] |= maybes
            counts[c[C_ROW]] = c[C_ANSWER_COUNT] - answers
            if prolongs or replaces:
                duplicates[c[C_ROW]] = ref  # what it replaced, to be taken back
            if kind != FIND:
                if given < now:
                    c[C_LATE] += 1
                row[p + R_NOW] = now
        p += row[p] >> 32
        c[C_ROW] += 1
    c[C_POS] = p
    result = c[C_STATUS] | c[C_MAYBES] | (c[C_ANSWER_COUNT] << 16)
    if c[C_NEWEST] >= es[E_NEXT_EXPIRY] or c[C_NEWEST] >= ee[E_NEXT_EXPIRY]:
        result |= EXPIRED
    return result


@jit
def run_one(address, rows_words, fresh):
    """`run_rows` for one row: answers packed unless a condition is to be checked, and framed.

    The two words before the row are the header of its frame in the log; the marks of its answers
    come behind it. Adds STORED when there is something to log, and FRAMED when the frame is
    complete as it stands, with C_FRAME_WORDS words.
    """
    result = run_rows(address, rows_words, fresh)
    if result & 0xFF == DONE:
        c = words(address, C_WORDS)
        kind = words(c[C_ROWS], 1)[0] & 0xFF
        if result >> 16 > 0 and result & 0x1FF == DONE:
            pack_answers(address, SUBS if kind == PUBLISH else EVENTS)
        if kind != VOID:
            result |= STORED
            told = c[C_TOLD_USED] if result >> 16 > 0 and c[C_REMEMBER] else 0
            if c[C_EXTRA_USED] == 0 and (result & 256) == 0 and rows_words + told <= c[C_ROWS_ROOM]:
                if told:
                    finish_told_row(c, c[C_ANSWERED] + (result >> 16))
                    out = words(c[C_ROWS], c[C_ROWS_ROOM])
                    marks = words(c[C_TOLD], told)
                    for i in range(told):
                        out[rows_words + i] = marks[i]
                put_header(c[C_ROWS] - 16, rows_words + told)
                c[C_FRAME_WORDS] = rows_words + told
                result |= FRAMED
    return result


@jit
def begin(c, rows_words):
    """A new call: nothing answered yet, and codes of earlier calls mean nothing."""
    c[C_ROWS_WORDS] = rows_words
    c[C_POS] = 0
    c[C_ROW] = 0
    clear(c)
    logged(c)


@jit
def begin_part(address, is_logged):
    """Go on in the middle of a call; what was answered so far has been taken away."""
    c = words(address, C_WORDS)
    clear(c)
    if is_logged:
        logged(c)


@jit
def logged(c):
    """What the log had to have beside the rows, it has."""
    c[C_EXTRA_USED] = 0
    no_runs(c)
    c[C_NEWEST_LOGGED] = c[C_NEWEST]


@jit
def clear(c):
    c[C_ANSWER_COUNT] = 0
    c[C_SUB_REF_COUNT] = 0
    c[C_EVENT_REF_COUNT] = 0
    c[C_MAYBES] = 0
    engine(c[C_SUBS])[E_REUSED] = 0
    engine(c[C_EVENTS])[E_REUSED] = 0
    c[C_EPOCH] = (c[C_EPOCH] + 1) & 0x7FFFFFFF


@jit
def holder(es, hs, ee, he, kind, row, octet, p, now):
    """The record that has the id of a row already, or 0."""
    _, key, ident, user, text, limit = row_parts(row, p)
    if kind == PUBLISH or kind == RETRACT:
        id_hash = id_hash_of(ee, EVENTS, octet, ident, user)
        return find_id(ee, he, EVENTS, id_hash, octet, ident, user, now, -1)
    id_hash = id_hash_of(es, SUBS, octet, ident, user)
    return find_id(es, hs, SUBS, id_hash, octet, ident, user, now, -1)


@jit
def lookup(address, now):
    """The record whose id the first row of the call names, or 0.

    An event if the row is one that publishes or retracts, else a subscription.
    """
    c = words(address, C_WORDS)
    es = engine(c[C_SUBS])
    ee = engine(c[C_EVENTS])
    size = words(c[C_ROWS], 1)[0] >> 32
    row = words(c[C_ROWS], size)
    octet = octets(c[C_ROWS], size * 8)
    return holder(es, heap_of(es), ee, heap_of(ee), row[0] & 0xFF, row, octet, 0, now)


@jit
def make_void(row, p):
    row[p] = (row[p] >> 8) << 8


@jit
def run_publish(c, es, hs, ee, he, row, octet, p, replaced, now, tree):
    """Store an event; one that replaces (R_REPLACES) ends the record `replaced`, if it is not 0."""
    kind, key, ident, user, text, limit = row_parts(row, p)
    own_refs = words(c[C_OWN], c[C_ROW] + 1)
    count = nodes(
        octet, key, key + (row[p + R_LENGTHS] & LOW16), es[E_MODE], es[E_SEED1], es[E_SEED2], tree
    )
    shape = row_shape(c[C_ROWS], row, p)
    until = row[p + R_UNTIL]
    first = c[C_ANSWER_COUNT]
    status, unseen = answer_subscriptions(
        c, es, hs, octet, key, tree, count, row[p + R_AT], now, shape
    )
    if status != DONE:
        return status
    settled = c[C_MAYBES] == 0  # else when the conditions have been checked
    if unseen and settled:
        status = yield_to_earlier(c, es, hs, first)
        if status != DONE:
            return status
    limit = c[C_ANSWER_COUNT]
    tells = settled and limit > first and until > now and c[C_REMEMBER] != 0
    if tells:
        status = room_for(c, ee, 2 * (limit - first) if unseen else limit - first, False)
        if status != DONE:
            return status
    code = -1
    if c[C_ANSWER_COUNT] > first:
        code = new_code(c, EVENTS, IN_ROW + c[C_ROW])
        if code < 0:
            return NEED_OUTPUT
        words(c[C_ROW_CODES], c[C_ROW] + 1)[c[C_ROW]] = code
    seq = c[C_NEXT_SEQ]
    replaces = (row[p] >> 8) & R_REPLACES != 0
    end = p + (row[p] >> 32)
    if replaces:
        row[end + R_ENTRY] = 0
        row[end + R_TARGET] = 0
        if replaced != 0:
            other = words(c[C_SCRATCH] + TREE * 8, TREE)
            target = retract(c, ee, he, replaced, seq, now, other, True)
            if target < 0:
                return NEED_OUTPUT
            row[end + R_TARGET] = target
    c[C_NEXT_SEQ] = seq + 1
    row[p + R_SEQ] = seq
    if until > now:
        o = store_event(ee, he, row, octet, p, seq, now, tree, count)
        if replaces and 0 < replaced < ON_DISK:
            id_hash = id_hash_of(ee, EVENTS, octet, ident, user)
            row[end + R_ENTRY] = take_over_id(ee, id_hash, o, replaced)
        own_refs[c[C_ROW]] = o
        if code >= 0:
            he[o + EVENT_STAMP] = (c[C_EPOCH] << 32) | code
            words(c[C_EVENT_REFS], c[C_REFS_CAP])[code] = o
    if tells:
        tell_published(c, es, hs, ee, he, first, limit, 0, unseen, seq, until, now)
    return DONE


@jit
def run_subscribe(c, es, hs, ee, he, row, octet, p, replaced, now, tree):
    """Store a subscription; a prolonged one takes the place of the record `replaced`."""
    kind, key, ident, user, text, limit = row_parts(row, p)
    own_refs = words(c[C_OWN], c[C_ROW] + 1)
    count = nodes(
        octet, key, key + (row[p + R_LENGTHS] & LOW16), es[E_MODE], es[E_SEED1], es[E_SEED2], tree
    )
    shape = row_shape(c[C_ROWS], row, p)
    flags = row[p] >> 8
    until = row[p + R_UNTIL]
    end = p + (row[p] >> 32)
    first = c[C_ANSWER_COUNT]
    seq = c[C_NEXT_SEQ]
    status = answer_events(
        c, ee, he, octet, key, tree, count,
        max(row[p + R_AT], row[end + R_ASKED]) if flags & R_PROLONGED else row[p + R_AT],
        until, now, -1, shape, False, MAYBE if flags & R_COND else 0,
    )  # fmt: skip
    if status != DONE:
        return status
    user_hash = user_hash_of(es, octet, user, text)
    if flags & R_UNSEEN:
        leave_out_told(c, ee, he, first, user_hash)
    if c[C_ANSWER_COUNT] == first:
        c[C_MAYBES] = 0
    limit = c[C_ANSWER_COUNT]
    tells = c[C_MAYBES] == 0 and limit > first and c[C_REMEMBER] != 0
    if tells:
        status = room_for(c, ee, 2 * (limit - first) if flags & R_UNSEEN else limit - first, True)
        if status != DONE:
            return status
    code = -1
    if c[C_ANSWER_COUNT] > first:
        code = new_code(c, SUBS, IN_ROW + c[C_ROW])
        if code < 0:
            return NEED_OUTPUT
        words(c[C_ROW_CODES], c[C_ROW] + 1)[c[C_ROW]] = code
    root = seq
    if flags & R_PROLONGED:
        other = words(c[C_SCRATCH] + TREE * 8, TREE)
        target = cancel(c, es, hs, replaced, seq, now, other, True)
        if target < 0:
            return NEED_OUTPUT
        root = row[end + R_ROOT]
        row[end + R_TARGET] = target
    c[C_NEXT_SEQ] = seq + 1
    row[p + R_SEQ] = seq
    if until > now:
        o = store_subscription(es, hs, row, octet, p, seq, now, tree, count, root)
        own_refs[c[C_ROW]] = o
        if code >= 0:
            hs[o + STAMP] = (c[C_EPOCH] << 32) | code
            words(c[C_SUB_REFS], c[C_REFS_CAP])[code] = o
    if tells:
        unseen = flags & R_UNSEEN != 0
        tell_subscribed(c, es, hs, ee, he, first, limit, 0, user_hash, root, unseen)
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
def run_retract(c, ee, he, row, p, ref, now, tree):
    seq = c[C_NEXT_SEQ]
    target = retract(c, ee, he, ref, seq, now, tree, True)
    if target < 0:
        return NEED_OUTPUT
    c[C_NEXT_SEQ] = seq + 1
    row[p + R_SEQ] = seq
    row[p + R_AT] = target
    words(c[C_OWN], c[C_ROW] + 1)[c[C_ROW]] = ref
    return DONE


@jit
def run_find(c, es, hs, ee, he, row, octet, p, tree):
    """A question that is not stored. With R_UNSEEN, only what the subscription R_SEQ (its root)
    was answered with."""
    kind, key, ident, user, text, limit = row_parts(row, p)
    count = nodes(
        octet, key, key + (row[p + R_LENGTHS] & LOW16), ee[E_MODE], ee[E_SEED1], ee[E_SEED2], tree
    )
    shape = row_shape(c[C_ROWS], row, p)
    flags = row[p] >> 8
    first = c[C_ANSWER_COUNT]
    status = answer_events(
        c, ee, he, octet, key, tree, count, row[p + R_AT], row[p + R_UNTIL], row[p + R_NOW],
        c[C_AFTER], shape, (flags & R_SAME) != 0, MAYBE if flags & R_COND else 0,
    )  # fmt: skip
    if status == DONE and flags & R_UNSEEN:
        leave_in_answered(c, ee, he, first, row[p + R_SEQ])
    return status
