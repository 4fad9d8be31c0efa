"""Rows as columns: what a table of events or subscriptions is built from.

`measure` counts, Python makes the arrays, `fill` fills them. Rows of other kinds are
passed over, so the rows of a log frame can be given as they are.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.layout import (
    LOW16,
    R_AT,
    R_BODY,
    R_LENGTHS,
    R_NOW,
    R_SEQ,
    R_UNTIL,
)
from tideline.kernels.store import row_parts
from tideline.kernels.text import copy
from tideline.kernels.views import doubles, octets, words


@jit
def measure(address, count, kind, sizes):
    """How many rows are of a kind, and the bytes of their keys, ids, users and texts."""
    row = words(address, count)
    found = 0
    sizes[:] = 0
    p = 0
    while p < count:
        if row[p] & 0xFF == kind:
            _, key, ident, user, text, limit = row_parts(row, p)
            found += 1
            sizes[0] += row[p + R_LENGTHS] & LOW16
            sizes[1] += user - ident
            sizes[2] += text - user
            sizes[3] += limit - text
        p += row[p] >> 32
    return found


@jit
def fill(
    address, count, kind, numbers, shapes, key_at, keys, id_at, ids, user_at, users, text_at, texts
):
    """Fill the columns of the rows of a kind, as `measure` counted them.

    `numbers`: row flags, seq, now, at or since, until, kind of shape, where
    the row begins; `shapes`: a, b, c, d.
    """
    row = words(address, count)
    octet = octets(address, count * 8)
    double = doubles(address, count)
    n = 0
    p = 0
    while p < count:
        if row[p] & 0xFF == kind:
            shape, key, ident, user, text, limit = row_parts(row, p)
            numbers[0, n] = (row[p] >> 8) & 0xFF
            numbers[1, n] = row[p + R_SEQ]
            numbers[2, n] = row[p + R_NOW]
            numbers[3, n] = row[p + R_AT]
            numbers[4, n] = row[p + R_UNTIL]
            numbers[5, n] = shape
            numbers[6, n] = p
            for i in range(4):
                shapes[i, n] = double[p + R_BODY + i] if shape != 0 else 0.0
            length = row[p + R_LENGTHS] & LOW16
            copy(keys, key_at[n], octet, key, length)
            key_at[n + 1] = key_at[n] + length
            copy(ids, id_at[n], octet, ident, user - ident)
            id_at[n + 1] = id_at[n] + user - ident
            copy(users, user_at[n], octet, user, text - user)
            user_at[n + 1] = user_at[n] + text - user
            copy(texts, text_at[n], octet, text, limit - text)
            text_at[n + 1] = text_at[n] + limit - text
            n += 1
        p += row[p] >> 32
