"""A batch of operations, given as columns, turned into rows (see kernels/layout.py)."""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.geo import POLYGON
from tideline.kernels.layout import (
    CANCEL,
    PUBLISH,
    R_AT,
    R_BODY,
    R_ENTRY,
    R_LENGTHS,
    R_NOW,
    R_REPLACES,
    R_SEQ,
    R_TARGET,
    R_TEXT,
    R_UNTIL,
    REPLACES_WORDS,
    RETRACT,
    SUBSCRIBE,
    VOID,
)
from tideline.kernels.views import doubles, octets, put_word, word_at

_PUBLISH, _SUBSCRIBE, _CANCEL, _RETRACT = (
    tuple(op) for op in (b"publish", b"subscribe", b"cancel", b"retract")
)


@jit
def kinds_of(data, offsets, kinds):
    """What each row is, by its `op`; VOID for anything else."""
    for i in range(kinds.shape[0]):
        start = offsets[i]
        size = offsets[i + 1] - start
        kinds[i] = VOID
        if size == 7 and says(data, start, _PUBLISH):
            kinds[i] = PUBLISH
        elif size == 9 and says(data, start, _SUBSCRIBE):
            kinds[i] = SUBSCRIBE
        elif size == 6 and says(data, start, _CANCEL):
            kinds[i] = CANCEL
        elif size == 7 and says(data, start, _RETRACT):
            kinds[i] = RETRACT


@jit
def says(data, start, text):
    for j in range(len(text)):
        if data[start + j] != text[j]:
            return False
    return True


@jit
def encode_rows(
    kinds,
    flags,
    now,
    first,
    until,
    keys,
    key_at,
    shape_kinds,
    shapes,
    ids,
    id_at,
    users,
    user_at,
    bodies,
    body_at,
    wheres,
    where_at,
    corners,
    corner_at,
    out,
    out_address,
    starts,
):
    """Write n rows end to end into `out` and where each starts into `starts`. Returns the words.

    The texts are byte columns with n + 1 offsets. A row of kind VOID gets only its head. Corners
    of polygons are words; when no row has any, `corner_at` is empty.
    """
    octet = octets(out_address, out.shape[0] * 8)
    p = 0
    for i in range(kinds.shape[0]):
        starts[i] = p
        kind = kinds[i]
        if kind == VOID:
            for j in range(R_BODY):
                out[p + j] = 0
            out[p] = R_BODY << 32
            p += R_BODY
            continue
        key_length = key_at[i + 1] - key_at[i]
        id_length = id_at[i + 1] - id_at[i]
        if kind == PUBLISH:
            user_length = 0
            text_length = body_at[i + 1] - body_at[i]
        else:
            user_length = user_at[i + 1] - user_at[i]
            text_length = where_at[i + 1] - where_at[i]
        shape = shape_kinds[i]
        body = R_BODY + (4 if shape != 0 else 0)
        padded = (key_length + 7) & ~7
        total = padded + id_length + user_length + text_length
        used = body + ((total + 7) >> 3)
        corner_count = 0
        if shape == POLYGON:
            corner_count = corner_at[i + 1] - corner_at[i]
        size = used + corner_count
        if flags[i] & R_REPLACES:
            size += REPLACES_WORDS
            out[p + size + R_ENTRY] = 0
            out[p + size + R_TARGET] = 0
        out[p] = kind | (flags[i] << 8) | (size << 32)
        out[p + R_SEQ] = 0
        out[p + R_NOW] = now[i]
        out[p + R_AT] = first[i]
        out[p + R_UNTIL] = until[i]
        out[p + R_LENGTHS] = key_length | (id_length << 16) | (user_length << 32)
        out[p + R_TEXT] = text_length | (shape << 32)
        if shape != 0:
            f = doubles(out_address + (p + R_BODY) * 8, 4)
            for j in range(4):
                f[j] = shapes[i, j]
        at = (p + body) * 8
        spill(octet, at, keys, key_at[i], key_length)
        clear_after(out, at, key_length)
        at += padded
        spill(octet, at, ids, id_at[i], id_length)
        at += id_length
        if kind == PUBLISH:
            spill(octet, at, bodies, body_at[i], text_length)
        else:
            spill(octet, at, users, user_at[i], user_length)
            spill(octet, at + user_length, wheres, where_at[i], text_length)
        clear_after(out, (p + body) * 8, total)
        for j in range(corner_count):
            out[p + used + j] = corners[corner_at[i] + j]
        p += size
    return p


@jit
def spill(target, at, source, start, count):
    """Copy bytes by words: up to seven more than `count` are written, for the next to overwrite."""
    limit = start + count
    while start < limit:
        if start + 8 <= source.shape[0] and at + 8 <= target.shape[0]:
            put_word(target, at, word_at(source, start))
        else:
            for i in range(limit - start):
                target[at + i] = source[start + i]
            return
        start += 8
        at += 8


@jit
def clear_after(out, at, count):
    """Zero what was spilled into the last word of `count` bytes at byte `at` (a whole word)."""
    if count & 7:
        out[(at + count) >> 3] &= (1 << (8 * (count & 7))) - 1
