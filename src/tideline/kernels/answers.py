"""The answers of a call as columns: one pass over the codes, texts only once per record."""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.disk import component
from tideline.kernels.heap import engine, heap_bytes, heap_of
from tideline.kernels.layout import (
    BLOB_TEXT,
    C_ANSWER_CAP,
    C_ANSWERS,
    C_ROW_CODES,
    C_ROW_COUNTS,
    C_ROWS,
    C_ROWS_WORDS,
    C_WORDS,
    D_EVENT_ID_OFFSETS,
    D_EVENT_IDS,
    D_EVENTS,
    D_SUB_ID_OFFSETS,
    D_SUB_IDS,
    D_SUB_USER_HASH,
    D_SUB_USER_OFFSETS,
    D_SUB_USERS,
    D_SUBS,
    E_HEAP,
    EVENT_BLOB,
    F_SHAPE,
    FOREVER,
    IN_ROW,
    LOW16,
    LOW48,
    MAYBE,
    ON_DISK,
    PUBLISH,
    REF_COMPONENT,
    REF_INDEX,
    SHAPE_WORDS,
    SUB_BLOB,
    USER,
)
from tideline.kernels.store import row_parts, user_hash_of
from tideline.kernels.text import copy
from tideline.kernels.views import halves, octets, prefetch, put_word, word_at, words

FAR, NEAR = 24, 12  # records between the first look at one, the second, and packing it


@jit
def fill_answers(address, starts, first, limit, offset, row, sub, event, live, asked):
    """Columns for the answers of the rows [first, limit) of a call.

    `row` counts from `offset`. An answer holds one code, of the other record; the row's own
    stands once. Returns how many answers there are.
    """
    c = words(address, C_WORDS)
    codes = halves(c[C_ANSWERS], c[C_ANSWER_CAP])
    counts = words(c[C_ROW_COUNTS], limit)
    own_codes = words(c[C_ROW_CODES], limit)
    rows = words(c[C_ROWS], c[C_ROWS_WORDS])
    k = 0
    for i in range(first, limit):
        own = own_codes[i]
        count = counts[i]
        for j in range(k, k + count):
            row[j] = offset + i
            asked[j] = codes[j] & MAYBE != 0
        if rows[starts[i]] & 0xFF == PUBLISH:
            for j in range(k, k + count):
                sub[j] = codes[j] & ~MAYBE
                event[j] = own
                live[j] = 1
        else:
            for j in range(k, k + count):
                sub[j] = own
                event[j] = codes[j] & ~MAYBE
                live[j] = 0
        k += count
    return k


@jit
def pack_subscriptions(
    address, call, refs, starts, table, offsets, data, users, user_offsets, user_data
):
    """The ids of subscriptions and of their users as Arrow string buffers.

    Every subscription has an id of its own; each user stands once, and `users` gets the number
    of each subscription's. `table` is zeroed scratch, two words an entry: a power of two of
    entries, twice as many as subscriptions or more. Users are told apart by the hash that
    `unseen` tells them apart by. Returns how many users there are; -1 when a text does not fit.
    """
    e = engine(address)
    h = heap_of(e)
    heap = heap_bytes(e)
    c = words(call, C_WORDS)
    rows = words(c[C_ROWS], c[C_ROWS_WORDS])
    octet = octets(c[C_ROWS], c[C_ROWS_WORDS] * 8)
    mask = (table.shape[0] >> 1) - 1
    scratch = np.int64(table.ctypes.data)
    count = 0
    used = 0
    user_used = 0
    offsets[0] = 0
    user_offsets[0] = 0
    for k in range(refs.shape[0]):
        fetch(e, h, refs, k, SUB_BLOB)
        if k + NEAR < refs.shape[0] and refs[k + NEAR] < IN_ROW:
            hashed = h[refs[k + NEAR] + USER]
            prefetch(scratch + 16 * ((hashed ^ (hashed >> 32)) & mask))
        ref = refs[k]
        if ref >= ON_DISK:
            d = component(e, (ref >> 40) & REF_COMPONENT)
            x = ref & REF_INDEX
            hashed = words(d[D_SUB_USER_HASH], d[D_SUBS])[x]
            ids = words(d[D_SUB_ID_OFFSETS], d[D_SUBS] + 1)
            used = add(data, used, octets(d[D_SUB_IDS], FOREVER), ids[x], ids[x + 1])
            source = octets(d[D_SUB_USERS], FOREVER)
            start = words(d[D_SUB_USER_OFFSETS], d[D_SUBS] + 1)[x]
            limit = words(d[D_SUB_USER_OFFSETS], d[D_SUBS] + 1)[x + 1]
        elif ref >= IN_ROW:
            _, key, ident, start, limit, _ = row_parts(rows, starts[ref - IN_ROW])
            source = octet
            hashed = user_hash_of(e, octet, start, limit)
            used = add_short(data, used, octet, ident, start)
        else:
            ident, start, limit = blob_texts(h, h[ref + SUB_BLOB])
            source = heap
            hashed = h[ref + USER]
            used = add_short(data, used, heap, ident, start)
        offsets[k + 1] = used
        i = (hashed ^ (hashed >> 32)) & mask
        while table[2 * i] != 0 and table[2 * i] != hashed:
            i = (i + 1) & mask
        if table[2 * i] == 0:
            table[2 * i] = hashed
            table[2 * i + 1] = count
            if ref >= ON_DISK:  # nothing may be read behind a column
                user_used = add(user_data, user_used, source, start, limit)
            else:
                user_used = add_short(user_data, user_used, source, start, limit)
            count += 1
            user_offsets[count] = user_used
        if used < 0 or user_used < 0:
            return -1
        users[k] = table[2 * i + 1]
    return count


@jit
def pack_events(address, call, refs, starts, offsets, data):
    """The ids of events as Arrow string buffers. Returns the bytes used; -1 if they do not fit."""
    e = engine(address)
    h = heap_of(e)
    heap = heap_bytes(e)
    c = words(call, C_WORDS)
    rows = words(c[C_ROWS], c[C_ROWS_WORDS])
    octet = octets(c[C_ROWS], c[C_ROWS_WORDS] * 8)
    used = 0
    offsets[0] = 0
    for k in range(refs.shape[0]):
        fetch(e, h, refs, k, EVENT_BLOB)
        ref = refs[k]
        if ref >= ON_DISK:
            d = component(e, (ref >> 40) & REF_COMPONENT)
            x = ref & REF_INDEX
            ids = words(d[D_EVENT_ID_OFFSETS], d[D_EVENTS] + 1)
            used = add(data, used, octets(d[D_EVENT_IDS], FOREVER), ids[x], ids[x + 1])
        elif ref >= IN_ROW:
            _, key, ident, user, text, _ = row_parts(rows, starts[ref - IN_ROW])
            used = add_short(data, used, octet, ident, user)
        else:
            ident, user, text = blob_texts(h, h[ref + EVENT_BLOB])
            used = add_short(data, used, heap, ident, user)
        if used < 0:
            return -1
        offsets[k + 1] = used
    return used


@jit
def fetch(e, h, refs, k, blob):
    """Records and blobs lie all over the heap: begin to load those that come soon."""
    if k + FAR < refs.shape[0] and refs[k + FAR] < IN_ROW:
        prefetch(e[E_HEAP] + 8 * (refs[k + FAR] + blob))
    if k + NEAR < refs.shape[0] and refs[k + NEAR] < IN_ROW:
        at = e[E_HEAP] + 8 * (h[refs[k + NEAR] + blob] & LOW48)
        prefetch(at)
        prefetch(at + 40)  # most texts end by then, in the next line or not


@jit
def blob_texts(h, blob):
    """Where the id, the user and the text of a heap record begin, in bytes."""
    b = blob & LOW48
    ident = (b + BLOB_TEXT + (SHAPE_WORDS if blob & F_SHAPE else 0)) * 8
    user = ident + (h[b] & LOW16)
    return ident, user, user + ((h[b] >> 16) & LOW16)


@jit
def add(data, used, source, start, limit):
    """Add the bytes [start, limit) of `source`; returns the bytes used, -1 if they do not fit."""
    if used < 0 or used + limit - start > data.shape[0]:
        return -1
    copy(data, used, source, start, limit - start)
    return used + limit - start


@jit
def add_short(data, used, source, start, limit):
    """`add`, quicker for a text of up to 16 bytes: words are copied, whatever stands behind it.

    What is copied too much is written over by the next text, or stands behind the last.
    """
    if used >= 0 and used + 16 <= data.shape[0] and start + 16 <= source.shape[0]:
        if limit - start <= 16:
            put_word(data, used, word_at(source, start))
            put_word(data, used + 8, word_at(source, start + 8))
            return used + limit - start
    return add(data, used, source, start, limit)


@jit
def take_codes(codes, at, out):
    """out[k] = codes[at[k]]."""
    for k in range(at.shape[0]):
        out[k] = codes[at[k]]
