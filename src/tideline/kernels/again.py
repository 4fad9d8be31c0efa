"""Rows of the log once more: stored again after a restart, taken back when they were not logged.

`replay_rows` looks for no answers. `take_back` undoes what `run_rows` (rows.py) stored.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.heap import engine, heap_of
from tideline.kernels.layout import (
    C_DUPLICATES,
    C_EVENTS,
    C_NEWEST,
    C_NEWEST_LOGGED,
    C_NEXT_SEQ,
    C_OWN,
    C_POS,
    C_ROWS,
    C_ROWS_WORDS,
    C_SCRATCH,
    C_STATUS,
    C_SUBS,
    C_TOLD_WANTED,
    C_WORDS,
    CANCEL,
    DONE,
    E_MODE,
    E_SEED1,
    E_SEED2,
    EVENT_BLOB,
    EVENTS,
    F_CANCELLED,
    F_VOID,
    FOREVER,
    GHOST,
    LOW16,
    N_MARK,
    NEED_MEMORY,
    NEED_READER,
    NOTE,
    ON_DISK,
    PUBLISH,
    R_AT,
    R_ENTRY,
    R_EVENT,
    R_LENGTHS,
    R_NOW,
    R_PROLONGED,
    R_REPLACES,
    R_SEQ,
    R_TARGET,
    R_UNTIL,
    RETRACT,
    STAMP,
    SUB_BLOB,
    SUBS,
    SUBSCRIBE,
    TOLD,
    TOMB,
    UNTIL,
    VOID,
)
from tideline.kernels.match import (
    TREE,
)
from tideline.kernels.runs import (
    replay_told,
    take_told_back,
)
from tideline.kernels.slots import has_room
from tideline.kernels.store import (
    find_id,
    id_hash_of,
    row_parts,
    store_event,
    store_subscription,
)
from tideline.kernels.tables import give_back_id, take_over_id, take_tomb_back
from tideline.kernels.text import nodes
from tideline.kernels.told import (
    root_of,
)
from tideline.kernels.tombs import (
    cancel,
    is_cancelled,
    is_retracted,
    replay_tomb,
    retract,
    retract_back,
)
from tideline.kernels.views import octets, words

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
        c[C_TOLD_WANTED] = 0
        if kind == NOTE:
            if (row[p] >> 8) & N_MARK:
                c[C_STATUS] = NEED_READER
                break
        elif kind == TOLD:
            c[C_STATUS] = replay_told(c, ee, he, row, p)
            if c[C_STATUS] != DONE:
                break
        elif kind != VOID and kind != GHOST:
            now = row[p + R_NOW]
            seq = row[p + R_SEQ]
            if now > c[C_NEWEST]:
                c[C_NEWEST] = now
            if not has_room(es) or not has_room(ee):
                c[C_STATUS] = NEED_MEMORY
                break
            _, key, ident, user, text, limit = row_parts(row, p)
            limit = key + (row[p + R_LENGTHS] & LOW16)
            count = nodes(octet, key, limit, es[E_MODE], es[E_SEED1], es[E_SEED2], tree)
            until = row[p + R_UNTIL]
            # What has expired by what is known of the channel's time need not come back.
            counts = until > now and until > c[C_NEWEST]
            if kind == PUBLISH:
                ended = 0
                if (row[p] >> 8) & R_REPLACES:
                    target = row[p + (row[p] >> 32) + R_TARGET]
                    ended = retract_again(c, ee, he, octet, ident, user, target, seq, now)
                if counts and not known(ee, he, EVENTS, octet, ident, user, now, seq):
                    o = store_event(ee, he, row, octet, p, seq, now, tree, count)
                    if 0 < ended < ON_DISK:
                        id_hash = id_hash_of(ee, EVENTS, octet, ident, user)
                        take_over_id(ee, id_hash, o, ended)
            elif kind == SUBSCRIBE:
                if (row[p] >> 8) & R_PROLONGED:
                    target = row[p + (row[p] >> 32) + R_TARGET]
                    end_again(c, es, hs, octet, ident, user, target, seq, now)
                if counts and not known(es, hs, SUBS, octet, ident, user, now, seq):
                    root = root_of(row, p)
                    store_subscription(es, hs, row, octet, p, seq, now, tree, count, root)
            elif kind == TOMB:
                if (row[p] >> 8) & R_EVENT:
                    replay_tomb(ee, he, row, octet, p, key, tree, count, c[C_NEWEST])
                else:
                    replay_tomb(es, hs, row, octet, p, key, tree, count, c[C_NEWEST])
            elif kind == RETRACT:
                retract_again(c, ee, he, octet, ident, user, row[p + R_AT], seq, now)
            else:
                end_again(c, es, hs, octet, ident, user, row[p + R_AT], seq, now)
            if seq >= c[C_NEXT_SEQ]:
                c[C_NEXT_SEQ] = seq + 1
        p += row[p] >> 32
    c[C_POS] = p


@jit
def end_again(c, e, h, octet, ident, user, target, seq, now):
    """End the subscription with the seq `target` again, unless it is gone or has ended."""
    id_hash = id_hash_of(e, SUBS, octet, ident, user)
    ref = find_id(e, h, SUBS, id_hash, octet, ident, user, now, target)
    if ref != 0 and not is_cancelled(e, h, ref):
        cancel(c, e, h, ref, seq, now, words(c[C_SCRATCH] + TREE * 8, TREE), False)


@jit
def retract_again(c, e, h, octet, ident, user, target, seq, now):
    """End the event with the seq `target` again, unless it is gone or has ended. Its record, or 0.

    With the rows of the log, tombs come back on their own.
    """
    if target == 0:
        return 0
    id_hash = id_hash_of(e, EVENTS, octet, ident, user)
    ref = find_id(e, h, EVENTS, id_hash, octet, ident, user, now, target)
    if ref != 0 and not is_retracted(e, h, ref):
        retract(c, e, h, ref, seq, now, words(c[C_SCRATCH] + TREE * 8, TREE), False)
    return ref


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
    replaced = words(c[C_DUPLICATES], limit)
    for i in range(first, limit):
        kind = row[p] & 0xFF
        ref = own[i]
        if kind == PUBLISH:
            if (row[p] >> 8) & R_REPLACES:
                event_back(ee, he, row, octets(c[C_ROWS], c[C_ROWS_WORDS] * 8), p, ref, replaced[i])
            if ref > 0:
                he[ref + EVENT_BLOB] |= F_VOID
                he[ref + UNTIL] = -FOREVER
        elif kind == RETRACT and ref > 0:
            retract_back(ee, he, ref, row[p + R_AT])
        elif kind == SUBSCRIBE:
            if ref > 0:
                hs[ref + SUB_BLOB] |= F_VOID
                hs[ref + UNTIL] = -FOREVER
            if (row[p] >> 8) & R_PROLONGED:
                cancel_back(es, hs, replaced[i], row[p + (row[p] >> 32) + R_TARGET])
        elif kind == CANCEL and ref > 0:
            cancel_back(es, hs, ref, row[p + R_AT])
        p += row[p] >> 32
    take_told_back(c, ee, he)
    c[C_NEWEST] = c[C_NEWEST_LOGGED]


@jit
def event_back(e, h, row, octet, p, ref, replaced):
    """The event that a row replaced did not end after all; `ref` is the one that replaced it."""
    end = p + (row[p] >> 32)
    if row[end + R_TARGET] == 0:
        return
    retract_back(e, h, replaced, row[end + R_TARGET])
    if ref > 0 and row[end + R_ENTRY] != 0:
        _, key, ident, user, text, limit = row_parts(row, p)
        give_back_id(e, id_hash_of(e, EVENTS, octet, ident, user), ref, row[end + R_ENTRY])


@jit
def cancel_back(e, h, ref, seq):
    """A subscription did not end after all."""
    take_tomb_back(e, h, seq)
    if ref < ON_DISK:
        h[ref + SUB_BLOB] &= ~F_CANCELLED
        h[ref + STAMP] = 0
