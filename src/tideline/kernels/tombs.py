"""The ends of records that lie where nothing can be marked: tombs.

A subscription in memory that is cancelled (or prolonged: its record ends, another begins) is
marked. A component cannot be written to. So of a sealed subscription a *tomb* is left instead: a
record with the seq of the subscription and the seq of its end, at the same place, and an entry in a
table that everybody asks who meets a record that is not marked (`tables.find_tomb`). It lasts as
long as the subscription would have: it lies in the window of that time, is sealed, merged and
dropped like any record of that time, and goes from the table when that time has come
(`tables.rebuild_tombs`).

In the log a tomb has a row of its own after the row of the cancel: by the time it is read, the
subscription may be gone, and its place with it. A merge that meets a sealed record with a tomb
writes the end into the record (index/sealed.py).

While a window is being sealed, a cancel of anything in memory leaves a tomb as well as a mark: the
mark may have come too late for the copy.

Events that are retracted or replaced end in the same way (`retract`). One in memory is marked
F_VOID, as if it had never been stored: it is not sealed. While a window is being sealed it is
marked F_CANCELLED, which whoever seals does not look at, and leaves a tomb. A sealed event has no
flags: only its tomb says that it is gone. The tomb lies in the engine of events, among its
subscriptions, which in layout `two` has no others.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.disk import component, place_of
from tideline.kernels.heap import (
    active_of,
    allocate,
    heap_bytes,
    note_subscription,
    pick_window,
    windows_of,
)
from tideline.kernels.layout import (
    BLOB_TEXT,
    C_EXTRA,
    C_EXTRA_CAP,
    C_EXTRA_USED,
    D_EVENT_SEQ,
    D_EVENT_UNTIL,
    D_EVENTS,
    D_KEY_BYTES,
    D_KEY_OFFSETS,
    D_KEYS,
    D_PLACES,
    D_SUB_FLAGS,
    D_SUB_SEQ,
    D_SUB_UNTIL,
    D_SUBS,
    E_ACTIVE_COUNT,
    E_MODE,
    E_SEED1,
    E_SEED2,
    EVENT_BLOB,
    EVENTS,
    F_CANCELLED,
    F_TOMB,
    F_VOID,
    FOREVER,
    FROZEN,
    LOW48,
    MADE,
    ON_DISK,
    R_AT,
    R_BODY,
    R_EVENT,
    R_LENGTHS,
    R_NOW,
    R_SEQ,
    R_TEXT,
    R_UNTIL,
    REF_COMPONENT,
    REF_INDEX,
    ROOT,
    SEQ,
    SINCE,
    SLOT_KEY,
    STAMP,
    SUB_BLOB,
    SUB_WORDS,
    SUBS,
    TOMB,
    UNTIL,
    USER,
    W_STATE,
    W_WORDS,
)
from tideline.kernels.slots import append_record, entry_slot, reach_entry, slot_key_length
from tideline.kernels.tables import find_tomb, put_tomb, take_tomb_back
from tideline.kernels.text import copy, nodes
from tideline.kernels.views import octets, words


@jit
def _lies(e, h, side, ref):
    """(keys, begin and end of its key, seq, until, whether a tomb has to say its end)."""
    if ref < ON_DISK:
        slot = h[(h[ref + (SUB_BLOB if side == SUBS else EVENT_BLOB)] & LOW48) + 1]
        start = (slot + SLOT_KEY) * 8
        limit = start + slot_key_length(h, slot)
        return heap_bytes(e), start, limit, h[ref + SEQ], h[ref + UNTIL], any_frozen(e)
    d = component(e, (ref >> 40) & REF_COMPONENT)
    index = ref & REF_INDEX
    place = place_of(d, side, index)
    offsets = words(d[D_KEY_OFFSETS], d[D_PLACES] + 1)
    count = d[D_SUBS if side == SUBS else D_EVENTS]
    seq = words(d[D_SUB_SEQ if side == SUBS else D_EVENT_SEQ], count)[index]
    until = words(d[D_SUB_UNTIL if side == SUBS else D_EVENT_UNTIL], count)[index]
    keys = octets(d[D_KEYS], d[D_KEY_BYTES])
    return keys, offsets[place], offsets[place + 1], seq, until, True


@jit
def cancel(c, e, h, ref, ended, now, tree, logged):
    """End a subscription wherever it lies. Returns its seq, or -1 when there is no room to log.

    Nothing has happened when it returns -1.
    """
    key, start, limit, seq, until, unmarked = _lies(e, h, SUBS, ref)
    if unmarked:
        count = nodes(key, start, limit, e[E_MODE], e[E_SEED1], e[E_SEED2], tree)
        if logged and not log_tomb(c, seq, ended, until, now, key, start, limit, 0):
            return -1
        leave_tomb(e, h, seq, ended, until, now, key, start, tree, count)
    if ref < ON_DISK:
        h[ref + STAMP] = ended  # before the flag: an exporter may be reading
        h[ref + SUB_BLOB] |= F_CANCELLED
    return seq


@jit
def retract(c, e, h, ref, ended, now, tree, logged):
    """End an event wherever it lies. Returns its seq, or -1 when there is no room to log.

    Nothing has happened when it returns -1.
    """
    key, start, limit, seq, until, unmarked = _lies(e, h, EVENTS, ref)
    if unmarked:
        count = nodes(key, start, limit, e[E_MODE], e[E_SEED1], e[E_SEED2], tree)
        if logged and not log_tomb(c, seq, ended, until, now, key, start, limit, R_EVENT):
            return -1
        leave_tomb(e, h, seq, ended, until, now, key, start, tree, count)
    if ref < ON_DISK:
        h[ref + EVENT_BLOB] |= F_CANCELLED if unmarked else F_VOID
    return seq


@jit
def retract_back(e, h, ref, seq):
    """An event did not end after all."""
    take_tomb_back(e, h, seq)
    if ref < ON_DISK:
        h[ref + EVENT_BLOB] &= ~(F_CANCELLED | F_VOID)


@jit
def any_frozen(e):
    ws = windows_of(e)
    active = active_of(e)
    for i in range(e[E_ACTIVE_COUNT]):
        if ws[active[i] * W_WORDS + W_STATE] == FROZEN:
            return True
    return False


@jit
def leave_tomb(e, h, seq, ended, until, now, key, start, tree, count):
    """Store a tomb at a place (the last of `count` nodes), and enter it in the table."""
    w = pick_window(e, SUBS, until, now)
    at = reach_entry(e, h, w, key, start, tree, count)
    slot = entry_slot(e, at)
    blob = allocate(e, h, w, BLOB_TEXT)
    h[blob] = 0
    h[blob + 1] = slot
    o = append_record(e, h, w, at, SUBS, SUB_WORDS)
    h[o + SINCE] = until  # no event happens in there: searches may skip a window of tombs
    h[o + UNTIL] = until
    h[o + SEQ] = seq
    h[o + MADE] = now
    h[o + USER] = 0
    h[o + SUB_BLOB] = blob | F_TOMB
    h[o + ROOT] = seq
    h[o + STAMP] = ended
    put_tomb(e, seq, ended, until, o)
    note_subscription(e, w, until, until)


@jit
def log_tomb(c, seq, ended, until, now, key, start, limit, flags):
    """Write a tomb as a row, for the log. False when there is no room."""
    p = c[C_EXTRA_USED]
    out = words(c[C_EXTRA], c[C_EXTRA_CAP])
    size = R_BODY + ((limit - start + 7) >> 3)
    if p + size > c[C_EXTRA_CAP]:
        return False
    out[p + size - 1] = 0
    out[p] = TOMB | (flags << 8) | (size << 32)
    out[p + R_SEQ] = seq
    out[p + R_NOW] = now
    out[p + R_AT] = ended
    out[p + R_UNTIL] = until
    out[p + R_LENGTHS] = limit - start
    out[p + R_TEXT] = 0
    copy(octets(c[C_EXTRA], c[C_EXTRA_CAP] * 8), (p + R_BODY) * 8, key, start, limit - start)
    c[C_EXTRA_USED] = p + size
    return True


@jit
def replay_tomb(e, h, row, octet, p, key, tree, count, newest):
    """Bring back a tomb from its row, unless it is there or nobody will ask for it again."""
    if row[p + R_UNTIL] > newest and find_tomb(e, row[p + R_SEQ]) == FOREVER:
        leave_tomb(
            e,
            h,
            row[p + R_SEQ],
            row[p + R_AT],
            row[p + R_UNTIL],
            row[p + R_NOW],
            octet,
            key,
            tree,
            count,
        )


@jit
def is_cancelled(e, h, ref):
    """Whether a subscription has been cancelled, wherever it lies."""
    if ref >= ON_DISK:
        d = component(e, (ref >> 40) & REF_COMPONENT)
        index = ref & REF_INDEX
        if words(d[D_SUB_FLAGS], d[D_SUBS])[index] & F_CANCELLED:
            return True
        return find_tomb(e, words(d[D_SUB_SEQ], d[D_SUBS])[index]) != FOREVER
    return h[ref + SUB_BLOB] & F_CANCELLED != 0


@jit
def is_retracted(e, h, ref):
    """Whether an event has been retracted or replaced, wherever it lies."""
    if ref >= ON_DISK:
        d = component(e, (ref >> 40) & REF_COMPONENT)
        return find_tomb(e, words(d[D_EVENT_SEQ], d[D_EVENTS])[ref & REF_INDEX]) != FOREVER
    return h[ref + EVENT_BLOB] & (F_CANCELLED | F_VOID) != 0
