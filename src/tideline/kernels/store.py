"""Put one row into an engine's memory: events, subscriptions, ids."""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.disk import component, find_disk_id
from tideline.kernels.geo import POLYGON
from tideline.kernels.heap import allocate, heap_bytes, note_event, note_subscription, pick_window
from tideline.kernels.layout import (
    BLOB_TEXT,
    E_COMPONENT_COUNT,
    E_IDS,
    E_IDS_CAP,
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
    LOW16,
    LOW32,
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
    ROOT,
    SEQ,
    SHAPE_WORDS,
    SINCE,
    STAMP,
    SUB_BLOB,
    SUB_WORDS,
    SUBS,
    UNTIL,
    USER,
)
from tideline.kernels.slots import append_record, entry_slot, entry_window, reach_entry
from tideline.kernels.tables import put_id
from tideline.kernels.text import hash_id, hash_user, same
from tideline.kernels.views import words

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
    """Copy a row's shape, texts and corners into a window; returns where, with flags."""
    kind, key, ident, user, text, limit = row_parts(row, p)
    texts = (limit - ident + 7) >> 3
    if kind == POLYGON:
        texts += 1 + row[(limit + 7) >> 3]  # the corners, their count first
    size = BLOB_TEXT + (SHAPE_WORDS if kind != 0 else 0) + texts
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
    for i in range(texts):
        h[at + i] = row[source + i]
    return blob | flags


@jit
def store_event(e, h, row, octet, p, seq, now, tree, count):
    """Store a published event; returns its record."""
    kind, key, ident, user, text, limit = row_parts(row, p)
    until = row[p + R_UNTIL]
    w = pick_window(e, EVENTS, until, now)
    at = reach_entry(e, h, w, octet, key, tree, count)
    slot = entry_slot(e, at)
    blob = make_blob(e, h, w, slot, row, octet, p)
    o = append_record(e, h, w, at, EVENTS, EVENT_WORDS)
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
def store_subscription(e, h, row, octet, p, seq, now, tree, count, root):
    """Store a subscription; returns its record."""
    kind, key, ident, user, text, limit = row_parts(row, p)
    until = row[p + R_UNTIL]
    w = pick_window(e, SUBS, until, now)
    at = reach_entry(e, h, w, octet, key, tree, count)
    slot = entry_slot(e, at)
    blob = make_blob(e, h, w, slot, row, octet, p)
    row_flags = row[p] >> 8
    if row_flags & R_COND:
        blob |= F_COND
    if row_flags & R_UNSEEN:
        blob |= F_UNSEEN
    o = append_record(e, h, w, at, SUBS, SUB_WORDS)
    h[o + SINCE] = row[p + R_AT]
    h[o + UNTIL] = until
    h[o + SEQ] = seq
    h[o + MADE] = now
    h[o + USER] = user_hash_of(e, octet, user, text)
    h[o + SUB_BLOB] = blob
    h[o + ROOT] = root
    h[o + STAMP] = 0
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
