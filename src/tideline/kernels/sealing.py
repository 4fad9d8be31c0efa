"""A window as columns, to be sealed: its places, and the subscriptions and events at each.

An exporter may run while the window is frozen and records in it are being ended (tombs.py).
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.export import corner_words
from tideline.kernels.heap import engine, heap_bytes, heap_of, windows_of
from tideline.kernels.layout import (
    AT,
    BLOB_TEXT,
    CHUNK,
    EVENT_BLOB,
    EVENT_WORDS,
    EVENTS,
    F_CANCELLED,
    F_SHAPE,
    F_TOMB,
    F_VOID,
    FOREVER,
    LOW16,
    LOW40,
    LOW48,
    MADE,
    ROOT,
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
    W_SLOTS,
    W_WORDS,
)
from tideline.kernels.match import heap_shape
from tideline.kernels.slots import chunk_used, next_slot, slot_key_length
from tideline.kernels.store import id_hash_of
from tideline.kernels.text import copy
from tideline.kernels.views import doubles

# ---- a window as columns ------------------------------------------------------------------------


@jit
def list_slots(address, number, slots, key_lengths):
    """The slots of a window that hold records, with the lengths of their keys. Returns how many."""
    e = engine(address)
    h = heap_of(e)
    slot = windows_of(e)[number * W_WORDS + W_SLOTS]
    found = 0
    while slot > 0:
        if h[slot + SUBS] > 0 or h[slot + EVENTS] > 0:
            slots[found] = slot
            key_lengths[found] = slot_key_length(h, slot)
            found += 1
        slot = next_slot(h, slot)
    return found


@jit
def copy_keys(address, slots, offsets, data):
    """The keys of slots, end to end."""
    e = engine(address)
    heap = heap_bytes(e)
    for i in range(slots.shape[0]):
        copy(data, offsets[i], heap, (slots[i] + SLOT_KEY) * 8, offsets[i + 1] - offsets[i])


@jit
def measure(address, slots, sub_lists, event_lists):
    """List lengths per slot (as running offsets), the bytes of the five texts, and how many numbers
    the corners of subscriptions and of events are."""
    e = engine(address)
    h = heap_of(e)
    sub_ids = 0
    users = 0
    wheres = 0
    event_ids = 0
    bodies = 0
    sub_corners = 0
    event_corners = 0
    subs = 0
    events = 0
    sub_lists[0] = 0
    event_lists[0] = 0
    for i in range(slots.shape[0]):
        chunk = h[slots[i] + SUBS]
        while chunk > 0:
            for j in range(chunk_used(h, chunk)):
                o = chunk + CHUNK + j * SUB_WORDS
                if h[o + SUB_BLOB] & F_VOID:
                    continue
                lengths = h[h[o + SUB_BLOB] & LOW48]
                sub_ids += lengths & LOW16
                users += (lengths >> 16) & LOW16
                wheres += lengths >> 32
                sub_corners += max(corner_words(heap_shape(e, h, h[o + SUB_BLOB])) - 1, 0)
                subs += 1
            chunk = h[chunk] & LOW40
        chunk = h[slots[i] + EVENTS]
        while chunk > 0:
            for j in range(chunk_used(h, chunk)):
                o = chunk + CHUNK + j * EVENT_WORDS
                if h[o + EVENT_BLOB] & F_VOID == 0:
                    lengths = h[h[o + EVENT_BLOB] & LOW48]
                    event_ids += lengths & LOW16
                    bodies += lengths >> 32
                    shape = heap_shape(e, h, h[o + EVENT_BLOB])
                    event_corners += max(corner_words(shape) - 1, 0)
                    events += 1
            chunk = h[chunk] & LOW40
        sub_lists[i + 1] = subs
        event_lists[i + 1] = events
    return sub_ids, users, wheres, event_ids, bodies, sub_corners, event_corners


@jit
def put_text(target, offsets, k, source, start, length):
    copy(target, offsets[k], source, start, length)
    offsets[k + 1] = offsets[k] + length


@jit
def put_shape(shapes, corners, corner_at, k, shape):
    """A shape, and the numbers of a polygon's corners behind those of the records before it."""
    shapes[k, 0] = shape[0]
    shapes[k, 1] = shape[1]
    shapes[k, 2] = shape[2]
    shapes[k, 3] = shape[3]
    shapes[k, 4] = shape[4]
    count = max(corner_words(shape) - 1, 0)
    at = corner_at[k]
    if count > 0:
        numbers = doubles(shape[5], count)
        for i in range(count):
            corners[at + i] = numbers[i]
    corner_at[k + 1] = at + count


@jit
def fill_subs(
    address, slots, numbers, shapes, ids, id_at, users, user_at, wheres, where_at, corners,
    corner_at,
):  # fmt: skip
    """Subscriptions of slots into columns.

    `numbers` rows: since, until, seq, made, root, ended, flags, user hash, id hash.
    """
    e = engine(address)
    h = heap_of(e)
    heap = heap_bytes(e)
    k = 0
    for i in range(slots.shape[0]):
        chunk = h[slots[i] + SUBS]
        while chunk > 0:
            for j in range(chunk_used(h, chunk)):
                o = chunk + CHUNK + j * SUB_WORDS
                if h[o + SUB_BLOB] & F_VOID:
                    continue
                blob = h[o + SUB_BLOB]
                b = blob & LOW48
                numbers[0, k] = h[o + SINCE]
                numbers[1, k] = h[o + UNTIL]
                numbers[2, k] = h[o + SEQ]
                numbers[3, k] = h[o + MADE]
                numbers[4, k] = h[o + ROOT]
                ended = blob & (F_CANCELLED | F_TOMB) != 0
                numbers[5, k] = h[o + STAMP] if ended else FOREVER
                numbers[6, k] = blob & ~LOW48
                numbers[7, k] = h[o + USER]
                if shapes.shape[0] > 0:
                    put_shape(shapes, corners, corner_at, k, heap_shape(e, h, blob))
                start = (b + BLOB_TEXT + (SHAPE_WORDS if blob & F_SHAPE else 0)) * 8
                length = h[b] & LOW16
                numbers[8, k] = id_hash_of(e, SUBS, heap, start, start + length)
                put_text(ids, id_at, k, heap, start, length)
                start += length
                length = (h[b] >> 16) & LOW16
                put_text(users, user_at, k, heap, start, length)
                put_text(wheres, where_at, k, heap, start + length, h[b] >> 32)
                k += 1
            chunk = h[chunk] & LOW40


@jit
def fill_events(
    address, slots, numbers, shapes, ids, id_at, bodies, body_at, corners, corner_at
):  # fmt: skip
    """Events of slots into columns. `numbers` rows: at, until, seq, made, id hash."""
    e = engine(address)
    h = heap_of(e)
    heap = heap_bytes(e)
    k = 0
    for i in range(slots.shape[0]):
        chunk = h[slots[i] + EVENTS]
        while chunk > 0:
            for j in range(chunk_used(h, chunk)):
                o = chunk + CHUNK + j * EVENT_WORDS
                blob = h[o + EVENT_BLOB]
                if blob & F_VOID:
                    continue
                b = blob & LOW48
                numbers[0, k] = h[o + AT]
                numbers[1, k] = h[o + UNTIL]
                numbers[2, k] = h[o + SEQ]
                numbers[3, k] = h[o + MADE]
                if shapes.shape[0] > 0:
                    put_shape(shapes, corners, corner_at, k, heap_shape(e, h, blob))
                start = (b + BLOB_TEXT + (SHAPE_WORDS if blob & F_SHAPE else 0)) * 8
                length = h[b] & LOW16
                numbers[4, k] = id_hash_of(e, EVENTS, heap, start, start + length)
                put_text(ids, id_at, k, heap, start, length)
                put_text(bodies, body_at, k, heap, start + length, h[b] >> 32)
                k += 1
            chunk = h[chunk] & LOW40
