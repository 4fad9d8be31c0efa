"""Put one row into an engine's memory: events, subscriptions, ghosts, cancels, ids.

A *ghost* is what stays of a subscription whose window was dropped or sealed while an
event it was answered with is still valid: an `unseen` subscription of the same user
must still find out about it.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.disk import component, find_disk_id, place_of
from tideline.kernels.heap import (
    active_of,
    allocate,
    append_record,
    chunk_used,
    entry_window,
    find_slot,
    find_tomb,
    heap_bytes,
    note_event,
    note_ghost,
    note_subscription,
    pick_window,
    put_id,
    put_tomb,
    reach_slot,
    slot_key_length,
    windows_of,
)
from tideline.kernels.layout import (
    BLOB_TEXT,
    CHUNK,
    D_KEY_BYTES,
    D_KEY_OFFSETS,
    D_KEYS,
    D_PLACES,
    D_SUB_FLAGS,
    D_SUB_SEQ,
    D_SUB_SINCE,
    D_SUB_UNTIL,
    D_SUBS,
    E_ACTIVE_COUNT,
    E_COMPONENT_COUNT,
    E_IDS,
    E_IDS_CAP,
    E_MODE,
    E_REUSED,
    E_SEED1,
    E_SEED2,
    EVENT_BLOB,
    EVENT_STAMP,
    EVENT_WORDS,
    EVENTS,
    F_CANCELLED,
    F_COND,
    F_SHAPE,
    F_TOMB,
    F_UNSEEN,
    F_VOID,
    FOREVER,
    FROZEN,
    GHOSTS,
    KEEP,
    LOW16,
    LOW32,
    LOW40,
    LOW48,
    MADE,
    ON_DISK,
    R_AT,
    R_BODY,
    R_COND,
    R_LENGTHS,
    R_TEXT,
    R_UNSEEN,
    R_UNTIL,
    REF_COMPONENT,
    REF_INDEX,
    SEQ,
    SHAPE_WORDS,
    SINCE,
    SLOT_KEY,
    STAMP,
    SUB_BLOB,
    SUB_WORDS,
    SUBS,
    UNTIL,
    USER,
    W_LOG,
    W_STATE,
    W_WORDS,
)
from tideline.kernels.text import copy, hash_id, hash_user, nodes, same
from tideline.kernels.views import octets, words

SIDE_SALT = 0x5DEECE66D


@jit
def row_parts(row, p):
    """(shape kind, key start, id start, user start, text start, limit) of a row, in bytes.

    The id begins at a whole word, so that id, user and text can be copied by words.
    """
    lengths = row[p + R_LENGTHS]
    kind = row[p + R_TEXT] >> 32
    key = (p + R_BODY + (4 if kind != 0 else 0)) * 8
    ident = key + (((lengths & LOW16) + 7) & ~7)
    user = ident + ((lengths >> 16) & LOW16)
    text = user + ((lengths >> 32) & LOW16)
    return kind, key, ident, user, text, text + (row[p + R_TEXT] & LOW32)


@jit
def id_hash_of(e, side, data, start, limit):
    return hash_id(data, start, limit, e[E_SEED1] ^ (SIDE_SALT * (side + 1)))


@jit
def user_hash_of(e, data, start, limit):
    return hash_user(data, start, limit, e[E_SEED2])


@jit
def make_blob(e, h, w, slot, row, octet, p):
    """Copy a row's shape, id, user and text into a window; returns where, with flags."""
    kind, key, ident, user, text, limit = row_parts(row, p)
    size = BLOB_TEXT + (SHAPE_WORDS if kind != 0 else 0) + ((limit - ident + 7) >> 3)
    blob = allocate(e, h, w, size)
    h[blob] = (user - ident) | ((text - user) << 16) | ((limit - text) << 32)
    h[blob + 1] = slot
    at = blob + BLOB_TEXT
    flags = 0
    if kind != 0:
        h[at] = kind
        for i in range(4):
            h[at + 1 + i] = row[p + R_BODY + i]
        at += SHAPE_WORDS
        flags = F_SHAPE
    source = ident >> 3
    for i in range((limit - ident + 7) >> 3):
        h[at + i] = row[source + i]
    return blob | flags


@jit
def store_event(e, h, row, octet, p, seq, now, tree, count):
    """Store a published event; returns its record."""
    kind, key, ident, user, text, limit = row_parts(row, p)
    until = row[p + R_UNTIL]
    w = pick_window(e, EVENTS, until, now)
    slot = reach_slot(e, h, w, octet, key, tree, count)
    blob = make_blob(e, h, w, slot, row, octet, p)
    o = append_record(e, h, w, slot, EVENTS, EVENT_WORDS, tree, count)
    h[o] = row[p + R_AT]
    h[o + UNTIL] = until
    h[o + SEQ] = seq
    h[o + MADE] = now
    h[o + EVENT_BLOB] = blob
    h[o + EVENT_STAMP] = 0
    note_event(e, w, row[p + R_AT], until)
    put_id(e, id_hash_of(e, EVENTS, octet, ident, user), o, w)
    return o


@jit
def store_subscription(e, h, row, octet, p, seq, now, tree, count, keep, extra, as_ghost):
    """Store a subscription (or only its ghost); returns its record."""
    kind, key, ident, user, text, limit = row_parts(row, p)
    until = row[p + R_UNTIL]
    w = pick_window(e, GHOSTS if as_ghost else SUBS, keep if as_ghost else until, now)
    slot = reach_slot(e, h, w, octet, key, tree, count)
    blob = make_blob(e, h, w, slot, row, octet, p) | extra
    row_flags = row[p] >> 8
    if row_flags & R_COND:
        blob |= F_COND
    if row_flags & R_UNSEEN:
        blob |= F_UNSEEN
    side = GHOSTS if as_ghost else SUBS
    o = append_record(e, h, w, slot, side, SUB_WORDS, tree, count)
    h[o + SINCE] = row[p + R_AT]
    h[o + UNTIL] = until
    h[o + SEQ] = seq
    h[o + MADE] = now
    h[o + USER] = user_hash_of(e, octet, user, text)
    h[o + SUB_BLOB] = blob
    h[o + KEEP] = keep
    h[o + STAMP] = 0
    if as_ghost:
        note_ghost(e, w)
    else:
        note_subscription(e, w, row[p + R_AT], until)
        put_id(e, id_hash_of(e, SUBS, octet, ident, user), o, w)
    return o


@jit
def find_id(e, h, side, id_hash, data, start, limit, now, wanted):
    """The record with this id: heap offset, ON_DISK reference, or 0.

    With `wanted` < 0: the one that still counts at `now`. Else (recovery): the one with
    that seq, whatever has become of it; an id may have been used again since.
    """
    table = words(e[E_IDS], e[E_IDS_CAP] * 2)
    mask = e[E_IDS_CAP] - 1
    i = id_hash & mask
    while table[2 * i] != 0:
        packed = table[2 * i + 1]
        if table[2 * i] == id_hash and entry_window(e, packed) < 0:
            e[E_REUSED] = 1
        elif table[2 * i] == id_hash:
            o = packed & ((1 << 36) - 1)
            blob = h[o + (SUB_BLOB if side == SUBS else EVENT_BLOB)]
            if wanted >= 0:
                right = h[o + SEQ] == wanted
            else:
                right = h[o + UNTIL] > now and blob & (F_CANCELLED | F_VOID | F_TOMB) == 0
            if right:
                b = blob & LOW48
                at = b + BLOB_TEXT + (SHAPE_WORDS if blob & F_SHAPE else 0)
                length = h[b] & LOW16
                if length == limit - start and same(heap_bytes(e), at * 8, data, start, length):
                    return o
            e[E_REUSED] = 1
        i = (i + 1) & mask
    for c in range(e[E_COMPONENT_COUNT]):
        index = find_disk_id(e, component(e, c), side, id_hash, data, start, limit, now, wanted)
        if index >= 0:
            return ON_DISK + (c << 40) + index
    return 0


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
def copy_ghost(e, h, source, keep, now, tree, first_log):
    """Keep a heap subscription as a ghost until `keep`, in the window that ends then."""
    blob = h[source + SUB_BLOB]
    b = blob & LOW48
    old = h[b + 1]
    octet = heap_bytes(e)
    start = (old + SLOT_KEY) * 8
    length = slot_key_length(h, old)
    count = nodes(octet, start, start + length, e[E_MODE], e[E_SEED1], e[E_SEED2], tree)
    w = pick_window(e, GHOSTS, keep, now)
    slot = reach_slot(e, h, w, octet, start, tree, count)
    ws = windows_of(e)
    # The log must keep the segment that can bring this ghost back.
    if first_log < ws[w + W_LOG]:
        ws[w + W_LOG] = first_log
    if has_ghost(h, slot, h[source + SEQ]):
        return False
    # Id and user are not needed any more, only the shape and the condition.
    size = BLOB_TEXT + (SHAPE_WORDS if blob & F_SHAPE else 0)
    lengths = h[b]
    text = lengths >> 32
    fresh = allocate(e, h, w, size + ((text + 7) >> 3))
    for i in range(size):
        h[fresh + i] = h[b + i]
    h[fresh] = text << 32
    h[fresh + 1] = slot
    start = (b + size) * 8 + (lengths & LOW16) + ((lengths >> 16) & LOW16)
    copy(octet, (fresh + size) * 8, octet, start, text)
    o = append_record(e, h, w, slot, GHOSTS, SUB_WORDS, tree, count)
    for i in range(SUB_WORDS):
        h[o + i] = h[source + i]
    h[o + SUB_BLOB] = fresh | (blob & ~LOW48)
    h[o + KEEP] = keep
    if blob & F_CANCELLED == 0:
        h[o + STAMP] = 0
    note_ghost(e, w)
    return True


@jit
def has_ghost(h, slot, seq):
    chunk = h[slot + GHOSTS]
    while chunk > 0:
        for i in range(chunk_used(h, chunk)):
            if h[chunk + CHUNK + i * SUB_WORDS + SEQ] == seq:
                return True
        chunk = h[chunk] & LOW40
    return False


@jit
def any_frozen(e):
    ws = windows_of(e)
    active = active_of(e)
    for i in range(e[E_ACTIVE_COUNT]):
        if ws[active[i] * W_WORDS + W_STATE] == FROZEN:
            return True
    return False


@jit
def mark_ghosts(e, h, seq, ended, tree, count):
    """A cancelled subscription may have left ghosts at its place: they end with it."""
    active = active_of(e)
    for i in range(e[E_ACTIVE_COUNT]):
        slot = find_slot(e, active[i] * W_WORDS, tree[3 * count - 3], tree[3 * count - 2])
        chunk = h[slot + GHOSTS] if slot > 0 else 0
        while chunk > 0:
            for j in range(chunk_used(h, chunk)):
                o = chunk + CHUNK + j * SUB_WORDS
                if h[o + SEQ] == seq:
                    h[o + SUB_BLOB] |= F_CANCELLED
                    h[o + STAMP] = ended
            chunk = h[chunk] & LOW40


@jit
def mark_ghosts_of(e, h, ref, ended, tree):
    """The same for a subscription in memory."""
    slot = h[(h[ref + SUB_BLOB] & LOW48) + 1]
    start = (slot + SLOT_KEY) * 8
    limit = start + slot_key_length(h, slot)
    count = nodes(heap_bytes(e), start, limit, e[E_MODE], e[E_SEED1], e[E_SEED2], tree)
    mark_ghosts(e, h, h[ref + SEQ], ended, tree, count)


@jit
def leave_tomb(e, h, seq, since, until, ended, now, data, start, limit, tree):
    """Record that a sealed (or just being sealed) subscription at a place is cancelled."""
    count = nodes(data, start, limit, e[E_MODE], e[E_SEED1], e[E_SEED2], tree)
    mark_ghosts(e, h, seq, ended, tree, count)
    w = pick_window(e, SUBS, until, now)
    slot = reach_slot(e, h, w, data, start, tree, count)
    blob = allocate(e, h, w, BLOB_TEXT)
    h[blob] = 0
    h[blob + 1] = slot
    o = append_record(e, h, w, slot, SUBS, SUB_WORDS, tree, count)
    h[o + SINCE] = since
    h[o + UNTIL] = until
    h[o + SEQ] = seq
    h[o + MADE] = now
    h[o + USER] = 0
    h[o + SUB_BLOB] = blob | F_TOMB
    h[o + KEEP] = 0
    h[o + STAMP] = ended
    put_tomb(e, seq, ended, until, o)
    note_subscription(e, w, since, until)


@jit
def cancel(e, h, ref, ended, now, tree):
    """End a subscription wherever it lies. Returns its seq."""
    if ref >= ON_DISK:
        d = component(e, (ref >> 40) & REF_COMPONENT)
        index = ref & REF_INDEX
        count = d[D_SUBS]
        place = place_of(d, SUBS, index)
        offsets = words(d[D_KEY_OFFSETS], d[D_PLACES] + 1)
        keys = octets(d[D_KEYS], d[D_KEY_BYTES])
        seq = words(d[D_SUB_SEQ], count)[index]
        leave_tomb(
            e,
            h,
            seq,
            words(d[D_SUB_SINCE], count)[index],
            words(d[D_SUB_UNTIL], count)[index],
            ended,
            now,
            keys,
            offsets[place],
            offsets[place + 1],
            tree,
        )
        return seq
    h[ref + STAMP] = ended  # before the flag: an exporter may be reading
    h[ref + SUB_BLOB] |= F_CANCELLED
    if any_frozen(e):  # it may have been copied out already, unmarked
        slot = h[(h[ref + SUB_BLOB] & LOW48) + 1]
        start = (slot + SLOT_KEY) * 8
        leave_tomb(
            e,
            h,
            h[ref + SEQ],
            h[ref + SINCE],
            h[ref + UNTIL],
            ended,
            now,
            heap_bytes(e),
            start,
            start + slot_key_length(h, slot),
            tree,
        )
    return h[ref + SEQ]
