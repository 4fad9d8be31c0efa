"""Packed rows as MessagePack, by seq: what Python makes its objects of, in C and in one go.

    subscriptions    [[id, user], ...]
    events           [[id, place, at, until, seq, body], ...]

The place of an event:

    named            its key as text
    otherwise        its key as bytes; [lon, lat] of a point; [key, kind, four numbers] of a shape,
                     and a seventh, the bytes of its corners, of a polygon

A row has a head of 56 bytes and its texts, and what is written of it is never more. So a `room` of
`room_words` is enough: first where the rows begin, a word each, then from `listed_at` on the list.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.geo import POINT, POLYGON
from tideline.kernels.layout import (
    LOW16,
    LOW32,
    R_AT,
    R_BODY,
    R_LENGTHS,
    R_SEQ,
    R_TEXT,
    R_UNTIL,
)
from tideline.kernels.store import row_parts
from tideline.kernels.text import copy
from tideline.kernels.views import octets, words

__all__ = ["list_events", "list_subscribers", "listed_at", "room_words"]

_ARRAY32, _TWO, _SIX, _SEVEN = 0xDD, 0x92, 0x96, 0x97
_TEXT, _TEXT8, _TEXT16 = 0xA0, 0xD9, 0xDA
_BYTES16, _BYTES32, _INT64, _FLOAT64 = 0xC5, 0xC6, 0xD3, 0xCB
_FEW = 24  # so many are sorted by insertion


def room_words(words: int) -> int:
    """How much room the list of so many words of rows takes at most."""
    return words + words // R_BODY + 2


def listed_at(words: int) -> int:
    """Where in the room the list begins, in bytes."""
    return words // R_BODY * 8


@jit
def list_subscribers(rows, room):
    """Who stands in rows of subscriptions. Returns the bytes written."""
    starts, out = parts(rows, room)
    texts = octets(np.int64(rows.ctypes.data), rows.shape[0] * 8)
    p = put_head(out, 0, _ARRAY32, starts.shape[0], 4)
    for start in starts:
        lengths = rows[start + R_LENGTHS]
        ident = (start + body_of(rows, start)) * 8 + (((lengths & LOW16) + 7) & ~7)
        user = ident + ((lengths >> 16) & LOW16)
        out[p] = _TWO
        p = put_text(out, p + 1, texts, ident, user)
        p = put_text(out, p, texts, user, user + ((lengths >> 32) & LOW16))
    return p


@jit
def list_events(rows, room, named):
    """Rows of events, whose keys are their places' names or not. Returns the bytes written."""
    starts, out = parts(rows, room)
    texts = octets(np.int64(rows.ctypes.data), rows.shape[0] * 8)
    p = put_head(out, 0, _ARRAY32, starts.shape[0], 4)
    for start in starts:
        lengths = rows[start + R_LENGTHS]
        key = (start + body_of(rows, start)) * 8
        ident = key + (((lengths & LOW16) + 7) & ~7)
        user = ident + ((lengths >> 16) & LOW16)
        body = user + ((lengths >> 32) & LOW16)
        size = rows[start + R_TEXT] & LOW32
        out[p] = _SIX
        p = put_text(out, p + 1, texts, ident, user)
        if named:
            p = put_text(out, p, texts, key, key + (lengths & LOW16))
        else:
            p = put_place(out, p, rows, start, texts, key, lengths & LOW16)
        p = put_head(out, p, _INT64, rows[start + R_AT], 8)
        p = put_head(out, p, _INT64, rows[start + R_UNTIL], 8)
        p = put_head(out, p, _INT64, rows[start + R_SEQ], 8)
        p = put_head(out, p, _BYTES32, size, 4)
        copy(out, p, texts, body, size)
        p += size
    return p


@jit
def put_place(out, p, rows, start, texts, key, size):
    """The place of a row, for Python to make what the user gave of it."""
    kind = rows[start + R_TEXT] >> 32
    numbers = start + R_BODY
    if kind == POINT:
        out[p] = _TWO
        p = put_head(out, p + 1, _FLOAT64, rows[numbers], 8)
        return put_head(out, p, _FLOAT64, rows[numbers + 1], 8)
    if kind != 0:
        out[p] = _SEVEN if kind == POLYGON else _SIX
        p += 1
    p = put_head(out, p, _BYTES16, size, 2)
    copy(out, p, texts, key, size)
    p += size
    if kind != 0:
        out[p] = kind  # a number below 128 stands for itself
        p += 1
        for i in range(4):
            p = put_head(out, p, _FLOAT64, rows[numbers + i], 8)
    if kind == POLYGON:
        _, _, _, _, _, limit = row_parts(rows, start)
        at = (limit + 7) >> 3
        count = 8 * (1 + rows[at])
        p = put_head(out, p, _BYTES32, count, 4)
        copy(out, p, texts, 8 * at, count)
        p += count
    return p


@jit
def parts(rows, room):
    """Where rows begin, by seq, and where the list goes."""
    base = np.int64(room.ctypes.data)
    before = rows.shape[0] // R_BODY
    count = in_order(rows, words(base, before))
    return words(base, count), octets(base + 8 * before, (room.shape[0] - before) * 8)


@jit
def body_of(rows, start):
    """Where the texts of a row begin, in words from its start."""
    return R_BODY + (4 if rows[start + R_TEXT] >> 32 != 0 else 0)


@jit
def put_text(out, p, texts, start, limit):
    """A text with its size before it; returns where the next goes."""
    size = limit - start
    if size < 32:
        out[p] = _TEXT | size
        p += 1
    elif size < 256:
        p = put_head(out, p, _TEXT8, size, 1)
    else:
        p = put_head(out, p, _TEXT16, size, 2)
    copy(out, p, texts, start, size)
    return p + size


@jit
def put_head(out, p, kind, number, size):
    """A kind and a number of `size` bytes, the highest first; returns where the next goes."""
    out[p] = kind
    for i in range(size):
        out[p + 1 + i] = (number >> (8 * (size - 1 - i))) & 255
    return p + 1 + size


# ---- by seq -----------------------------------------------------------------------


@jit
def in_order(rows, starts):
    """Find where rows begin and sort that by their seqs; returns how many there are."""
    count = 0
    p = 0
    while p < rows.shape[0]:
        starts[count] = p
        count += 1
        p += rows[p] >> 32
    if count <= _FEW:
        for i in range(1, count):
            start = starts[i]
            j = i
            while j > 0 and rows[starts[j - 1] + R_SEQ] > rows[start + R_SEQ]:
                starts[j] = starts[j - 1]
                j -= 1
            starts[j] = start
        return count
    for i in range(count // 2 - 1, -1, -1):
        sink(rows, starts, i, count)
    for last in range(count - 1, 0, -1):
        starts[0], starts[last] = starts[last], starts[0]
        sink(rows, starts, 0, last)
    return count


@jit
def sink(rows, starts, at, count):
    """Put one of a heap, the newest first, where it belongs below."""
    start = starts[at]
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and rows[starts[child + 1] + R_SEQ] > rows[starts[child] + R_SEQ]:
            child += 1
        if rows[starts[child] + R_SEQ] <= rows[start + R_SEQ]:
            break
        starts[at] = starts[child]
        at = child
    starts[at] = start
