"""Take records out of an engine: as rows, or as references to what is live."""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.disk import component, place_of
from tideline.kernels.geo import POLYGON
from tideline.kernels.heap import active_of, engine, heap_bytes, heap_of, windows_of
from tideline.kernels.layout import (
    AT,
    BLOB_TEXT,
    C_ANSWER_CAP,
    C_ANSWER_COUNT,
    C_ANSWERS,
    C_EVENT_REFS,
    C_EVENTS,
    C_PACKED,
    C_PACKED_CAP,
    C_PACKED_USED,
    C_REFS_CAP,
    C_SUB_REFS,
    C_SUBS,
    C_WORDS,
    CHUNK,
    D_EVENT_AT,
    D_EVENT_BODIES,
    D_EVENT_BODY_OFFSETS,
    D_EVENT_ID_OFFSETS,
    D_EVENT_IDS,
    D_EVENT_MADE,
    D_EVENT_SEQ,
    D_EVENT_UNTIL,
    D_EVENTS,
    D_KEY_BYTES,
    D_KEY_OFFSETS,
    D_KEYS,
    D_PLACES,
    D_SUB_FLAGS,
    D_SUB_ID_OFFSETS,
    D_SUB_IDS,
    D_SUB_MADE,
    D_SUB_ROOT,
    D_SUB_SEQ,
    D_SUB_SINCE,
    D_SUB_UNTIL,
    D_SUB_USER_OFFSETS,
    D_SUB_USERS,
    D_SUB_WHERE_OFFSETS,
    D_SUB_WHERES,
    D_SUBS,
    E_ACTIVE_COUNT,
    E_COMPONENT_COUNT,
    EVENT_BLOB,
    EVENT_WORDS,
    EVENTS,
    F_COND,
    F_SHAPE,
    F_UNSEEN,
    FOREVER,
    LOW16,
    LOW40,
    LOW48,
    MADE,
    MAYBE,
    ON_DISK,
    PROLONGED_WORDS,
    PUBLISH,
    R_ASKED,
    R_AT,
    R_BODY,
    R_COND,
    R_LENGTHS,
    R_NOW,
    R_PROLONGED,
    R_ROOT,
    R_SEQ,
    R_TARGET,
    R_TEXT,
    R_UNSEEN,
    R_UNTIL,
    REF_COMPONENT,
    REF_INDEX,
    ROOT,
    SEQ,
    SHAPE_WORDS,
    SLOT_KEY,
    SUB_BLOB,
    SUB_WORDS,
    SUBS,
    SUBSCRIBE,
    UNTIL,
    W_SLOTS,
    W_WORDS,
)
from tideline.kernels.match import GONE, SKIPPED, disk_shape, heap_shape
from tideline.kernels.slots import chunk_used, next_slot, slot_key_length
from tideline.kernels.tables import find_tomb
from tideline.kernels.text import copy
from tideline.kernels.views import doubles, halves, octets, words

# ---- records as rows ---------------------------------------------------------------------


@jit
def record_row(e, h, side, ref, out, out_bytes, out_address, p, room):
    """Write one record as a row at word p. Returns its words, or -1 when it does not fit."""
    heap = heap_bytes(e)
    if ref >= ON_DISK:
        d = component(e, (ref >> 40) & REF_COMPONENT)
        x = ref & REF_INDEX
        place = place_of(d, side, x)
        key_offsets = words(d[D_KEY_OFFSETS], d[D_PLACES] + 1)
        key = octets(d[D_KEYS], d[D_KEY_BYTES])
        key_start = key_offsets[place]
        key_length = key_offsets[place + 1] - key_start
        if side == SUBS:
            n = d[D_SUBS]
            first = words(d[D_SUB_SINCE], n)[x]
            until = words(d[D_SUB_UNTIL], n)[x]
            seq = words(d[D_SUB_SEQ], n)[x]
            made = words(d[D_SUB_MADE], n)[x]
            flags = words(d[D_SUB_FLAGS], n)[x]
            shape = disk_shape(d, SUBS, x)
            offsets = words(d[D_SUB_ID_OFFSETS], n + 1)
            ids = octets(d[D_SUB_IDS], FOREVER)
            user_offsets = words(d[D_SUB_USER_OFFSETS], n + 1)
            users = octets(d[D_SUB_USERS], FOREVER)
            text_offsets = words(d[D_SUB_WHERE_OFFSETS], n + 1)
            texts = octets(d[D_SUB_WHERES], FOREVER)
            root = words(d[D_SUB_ROOT], n)[x]
            user_start = user_offsets[x]
            user_length = user_offsets[x + 1] - user_start
        else:
            n = d[D_EVENTS]
            first = words(d[D_EVENT_AT], n)[x]
            until = words(d[D_EVENT_UNTIL], n)[x]
            seq = words(d[D_EVENT_SEQ], n)[x]
            made = words(d[D_EVENT_MADE], n)[x]
            flags = 0
            shape = disk_shape(d, EVENTS, x)
            offsets = words(d[D_EVENT_ID_OFFSETS], n + 1)
            ids = octets(d[D_EVENT_IDS], FOREVER)
            users = ids
            user_start = 0
            user_length = 0
            text_offsets = words(d[D_EVENT_BODY_OFFSETS], n + 1)
            texts = octets(d[D_EVENT_BODIES], FOREVER)
            root = seq
        id_start = offsets[x]
        id_length = offsets[x + 1] - id_start
        text_start = text_offsets[x]
        text_length = text_offsets[x + 1] - text_start
    else:
        first = h[ref]
        until = h[ref + UNTIL]
        seq = h[ref + SEQ]
        made = h[ref + MADE]
        flags = h[ref + (SUB_BLOB if side == SUBS else EVENT_BLOB)]
        root = h[ref + ROOT] if side == SUBS else seq
        b = flags & LOW48
        shape = heap_shape(e, h, flags)
        slot = h[b + 1]
        key = heap
        key_start = (slot + SLOT_KEY) * 8
        key_length = slot_key_length(h, slot)
        ids = heap
        users = heap
        texts = heap
        id_start = (b + BLOB_TEXT + (SHAPE_WORDS if flags & F_SHAPE else 0)) * 8
        id_length = h[b] & LOW16
        user_start = id_start + id_length
        user_length = (h[b] >> 16) & LOW16
        text_start = user_start + user_length
        text_length = h[b] >> 32
    padded = (key_length + 7) & ~7
    total = padded + id_length + user_length + text_length
    body = R_BODY + (4 if shape[0] != 0 else 0)
    used = body + ((total + 7) >> 3)
    corners = corner_words(shape)
    size = used + corners + (PROLONGED_WORDS if root != seq else 0)
    if p + size > room:
        return -1
    kind = PUBLISH
    if side == SUBS:
        kind = SUBSCRIBE
        if flags & F_COND:
            kind |= R_COND << 8
        if flags & F_UNSEEN:
            kind |= R_UNSEEN << 8
        if root != seq:
            kind |= R_PROLONGED << 8
            out[p + size + R_ROOT] = root
            out[p + size + R_ASKED] = 0
            out[p + size + R_TARGET] = 0
    out[p] = kind | (size << 32)
    out[p + R_SEQ] = seq
    out[p + R_NOW] = made
    out[p + R_AT] = first
    out[p + R_UNTIL] = until
    out[p + R_LENGTHS] = key_length | (id_length << 16) | (user_length << 32)
    out[p + R_TEXT] = text_length | (shape[0] << 32)
    if shape[0] != 0:
        f = doubles(out_address + (p + R_BODY) * 8, 4)
        f[0] = shape[1]
        f[1] = shape[2]
        f[2] = shape[3]
        f[3] = shape[4]
    if total > 0:
        out[p + used - 1] = 0
    if key_length > 0:
        out[p + body + (padded >> 3) - 1] = 0
    at = (p + body) * 8
    copy(out_bytes, at, key, key_start, key_length)
    at += padded
    copy(out_bytes, at, ids, id_start, id_length)
    at += id_length
    copy(out_bytes, at, users, user_start, user_length)
    at += user_length
    copy(out_bytes, at, texts, text_start, text_length)
    if corners > 0:
        out[p + used] = corners - 1
        numbers = words(shape[5], corners - 1)
        for i in range(corners - 1):
            out[p + used + 1 + i] = numbers[i]
    return size


@jit
def corner_words(shape):
    """The words of the corners of a shape, their count among them; 0 when it is no polygon."""
    if shape[0] != POLYGON:
        return 0
    rings = int(doubles(shape[5], 1)[0])
    return 2 + rings + 2 * int(abs(doubles(shape[5], 1 + rings)[rings]))


@jit
def pack_rows(address, side, refs_address, count, out_address, room):
    """Records as rows, end to end. Returns the words used, or -1 when `room` is too small."""
    e = engine(address)
    h = heap_of(e)
    refs = words(refs_address, count)
    out = words(out_address, room)
    out_bytes = octets(out_address, room * 8)
    p = 0
    for k in range(count):
        size = record_row(e, h, side, refs[k], out, out_bytes, out_address, p, room)
        if size < 0:
            return -1
        p += size
    return p


@jit
def pack_answers(address, side):
    """Put the records that answer the one row of a call into C_PACKED, as rows."""
    c = words(address, C_WORDS)
    e = engine(c[C_SUBS] if side == SUBS else c[C_EVENTS])
    h = heap_of(e)
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    refs = words(c[C_SUB_REFS] if side == SUBS else c[C_EVENT_REFS], c[C_REFS_CAP])
    room = c[C_PACKED_CAP]
    out = words(c[C_PACKED], room)
    out_bytes = octets(c[C_PACKED], room * 8)
    c[C_PACKED_USED] = -1
    p = 0
    for k in range(c[C_ANSWER_COUNT]):
        ref = refs[codes[k] & ~MAYBE]
        size = record_row(e, h, side, ref, out, out_bytes, c[C_PACKED], p, room)
        if size < 0:
            return
        p += size
    c[C_PACKED_USED] = p


# ---- looking through everything --------------------------------------------------------------


@jit
def list_records(address, side, now, low, high, out_address, room):
    """References to the live records of a side whose time meets [low, high). -1: no room.

    The time of an event is when it happened, that of a subscription its window.
    """
    e = engine(address)
    h = heap_of(e)
    out = words(out_address, room)
    ws = windows_of(e)
    active = active_of(e)
    size = SUB_WORDS if side == SUBS else EVENT_WORDS
    blob = SUB_BLOB if side == SUBS else EVENT_BLOB
    found = 0
    for i in range(e[E_ACTIVE_COUNT]):
        slot = ws[active[i] * W_WORDS + W_SLOTS]
        while slot > 0:
            chunk = h[slot + side]
            while chunk > 0:
                o = chunk + CHUNK
                for _ in range(chunk_used(h, chunk)):
                    end = h[o + UNTIL] if side == SUBS else h[o + AT] + 1
                    if (
                        h[o + UNTIL] > now
                        and h[o + blob] & SKIPPED == 0
                        and h[o] < high
                        and end > low
                    ):
                        if found >= room:
                            return -1
                        out[found] = o
                        found += 1
                    o += size
                chunk = h[chunk] & LOW40
            slot = next_slot(h, slot)
    for n in range(e[E_COMPONENT_COUNT]):
        d = component(e, n)
        if side == SUBS:
            count = d[D_SUBS]
            starts = words(d[D_SUB_SINCE], count)
            untils = words(d[D_SUB_UNTIL], count)
            flags = words(d[D_SUB_FLAGS], count)
            seqs = words(d[D_SUB_SEQ], count)
        else:
            count = d[D_EVENTS]
            starts = words(d[D_EVENT_AT], count)
            untils = words(d[D_EVENT_UNTIL], count)
            flags = untils  # a sealed event has none
            seqs = words(d[D_EVENT_SEQ], count)
        for x in range(count):
            end = untils[x] if side == SUBS else starts[x] + 1
            if untils[x] > now and starts[x] < high and end > low:
                if side == SUBS and flags[x] & SKIPPED != 0:
                    continue
                if find_tomb(e, seqs[x]) == FOREVER:
                    if found >= room:
                        return -1
                    out[found] = ON_DISK + (n << 40) + x
                    found += 1
    return found


@jit
def count_live(address, now):
    """(live subscriptions, live events) at `now`, memory and disk."""
    e = engine(address)
    h = heap_of(e)
    ws = windows_of(e)
    active = active_of(e)
    subs = 0
    events = 0
    for i in range(e[E_ACTIVE_COUNT]):
        slot = ws[active[i] * W_WORDS + W_SLOTS]
        while slot > 0:
            chunk = h[slot + SUBS]
            while chunk > 0:
                o = chunk + CHUNK
                for _ in range(chunk_used(h, chunk)):
                    if h[o + UNTIL] > now and h[o + SUB_BLOB] & SKIPPED == 0:
                        subs += 1
                    o += SUB_WORDS
                chunk = h[chunk] & LOW40
            chunk = h[slot + EVENTS]
            while chunk > 0:
                o = chunk + CHUNK
                for _ in range(chunk_used(h, chunk)):
                    if h[o + UNTIL] > now and h[o + EVENT_BLOB] & GONE == 0:
                        events += 1
                    o += EVENT_WORDS
                chunk = h[chunk] & LOW40
            slot = next_slot(h, slot)
    for n in range(e[E_COMPONENT_COUNT]):
        d = component(e, n)
        untils = words(d[D_SUB_UNTIL], d[D_SUBS])
        flags = words(d[D_SUB_FLAGS], d[D_SUBS])
        seqs = words(d[D_SUB_SEQ], d[D_SUBS])
        for x in range(d[D_SUBS]):
            if untils[x] > now and flags[x] & SKIPPED == 0 and find_tomb(e, seqs[x]) == FOREVER:
                subs += 1
        ends = words(d[D_EVENT_UNTIL], d[D_EVENTS])
        seqs = words(d[D_EVENT_SEQ], d[D_EVENTS])
        for x in range(d[D_EVENTS]):
            if ends[x] > now and find_tomb(e, seqs[x]) == FOREVER:
                events += 1
    return subs, events
