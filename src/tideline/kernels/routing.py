"""Hot loops of matching on Spark, compiled: which buckets a row goes to, and rows put in order.

Rows are those of `tideline.kernels.layout`. A *tile* is a cell of the space's tree at the
level that routing looks at; a tile belongs to one bucket, by a hash that no setting changes:
checkpoints hold the outcome.

Invariant: when two places meet, the buckets of one and the buckets of the other have one
in common. For keys it is plain: one is a prefix of the other. For shapes: a point that both
have lies in one leaf, the range of leaves that `first_last` gives for a shape holds every
leaf whose closed extent touches it, and a tile is a block of leaves.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.geo import cell_number, circle_bounds, edge
from tideline.kernels.layout import (
    CANCEL,
    LOW16,
    PUBLISH,
    R_BODY,
    R_LENGTHS,
    R_NOW,
    R_TEXT,
    SUBSCRIBE,
    VOID,
)

FLAT, CELLS, TOPICS = 0, 1, 2  # tideline.space.place; tests hold them equal
CIRCLE, BOX, POLYGON = 3, 4, 5
SHORT = 16  # rows of one time that are put in order by insertion

_PRIME = 1099511628211
_START = -3750763034362895579
_MIX = -7046029254386353131


@jit
def hashed(data, start, limit):
    """A number of 62 bits from some bytes."""
    h = _START
    for i in range(start, limit):
        h = (h ^ data[i]) * _PRIME
    h = (h ^ (h >> 29)) * _MIX
    return (h ^ (h >> 32)) & 0x3FFFFFFFFFFFFFFF


@jit
def tile_bucket(col, line, buckets):
    """The bucket of a tile."""
    h = (col * _PRIME + line + 1) * _MIX
    h = (h ^ (h >> 29)) * _PRIME
    return ((h ^ (h >> 32)) & 0x3FFFFFFFFFFFFFFF) % buckets


@jit
def first_last(low_value, high_value, low, high, count):
    """The leaves in one direction whose closed extent touches an interval."""
    first = cell_number(low_value, low, high, count)
    if first > 0 and low_value <= edge(low, high, count, first):
        first -= 1
    return first, cell_number(high_value, low, high, count)


@jit
def mark(seen, stamp, bucket, found):
    """Note a bucket of the row numbered `stamp`; returns how many it has now."""
    if seen[bucket] != stamp:
        seen[bucket] = stamp
        return found + 1
    return found


@jit
def cover(
    i, key_data, key_at, shape_kinds, shapes, mode, west, south, east, north, cols, rows, depth,
    levels, buckets, seen, stamp,
):  # fmt: skip
    """Mark in `seen` the buckets that the place of row i is in. Returns how many."""
    start, limit = key_at[i], key_at[i + 1]
    if mode == FLAT:
        return mark(seen, stamp, hashed(key_data, start, limit) % buckets, 0)
    if mode == TOPICS:
        end = start
        left = levels
        while end < limit and left > 0:
            if key_data[end] == 0:  # the end of a segment, and nothing else
                left -= 1
            end += 1
        if left == 0:
            return mark(seen, stamp, hashed(key_data, start, end) % buckets, 0)
        for bucket in range(buckets):  # a path above the level: it has descendants anywhere
            seen[bucket] = stamp
        return buckets
    kind = shape_kinds[i]
    if kind in (CIRCLE, BOX, POLYGON):
        w, s, e, n = shapes[i, 0], shapes[i, 1], shapes[i, 2], shapes[i, 3]
        if kind == CIRCLE:
            w, s, e, n = circle_bounds(shapes[i, 0], shapes[i, 1], shapes[i, 2])
        col, col_last = first_last(w, e, west, east, cols)
        line, line_last = first_last(s, n, south, north, rows)
    else:  # a point or a named cell: the key says which leaves
        col = line = 0
        for at in range(start, limit):
            digit = key_data[at] - 1
            col = col * 2 + (digit & 1)
            line = line * 2 + (1 - (digit >> 1))
        below = depth - (limit - start)
        col, line = col << below, line << below
        col_last, line_last = col + (1 << below) - 1, line + (1 << below) - 1
    shift = depth - levels
    found = 0
    for tile_col in range(col >> shift, (col_last >> shift) + 1):
        for tile_line in range(line >> shift, (line_last >> shift) + 1):
            found = mark(seen, stamp, tile_bucket(tile_col, tile_line, buckets), found)
            if found == buckets:
                return found
    return found


@jit
def route(
    kinds, key_data, key_at, shape_kinds, shapes, users, user_at, mode, west, south, east, north,
    cols, rows, depth, levels, buckets, wide, seen, out_row, out_bucket,
):  # fmt: skip
    """Say for every row which buckets it goes to, as pairs (row, bucket) in order of rows.

    Buckets [0, buckets) are by place. If `wide`, an event in several of them goes instead to
    all of [buckets, 2 * buckets), which are by user, and a subscription also to its user's.
    A cancel names no place: it goes everywhere. Returns the number of pairs, or minus the
    room that is needed when there is too little.
    """
    n = kinds.shape[0]
    most = 2 * buckets if wide else buckets
    used = 0
    for i in range(n):
        kind = kinds[i]
        if kind == VOID:
            continue
        if used + most > out_row.shape[0]:
            return -(used + most * (n - i))
        if kind == CANCEL:
            for bucket in range(most):
                out_row[used] = i
                out_bucket[used] = bucket
                used += 1
            continue
        found = cover(
            i, key_data, key_at, shape_kinds, shapes, mode, west, south, east, north, cols, rows,
            depth, levels, buckets, seen, i + 1,
        )  # fmt: skip
        if kind == PUBLISH and found > 1:
            for bucket in range(buckets, most):
                out_row[used] = i
                out_bucket[used] = bucket
                used += 1
            continue
        for bucket in range(buckets):
            if seen[bucket] == i + 1:
                out_row[used] = i
                out_bucket[used] = bucket
                used += 1
        if wide and kind == SUBSCRIBE:
            out_row[used] = i
            out_bucket[used] = buckets + hashed(users, user_at[i], user_at[i + 1]) % buckets
            used += 1
    return used


@jit
def gather(rows, starts, picked, out):
    """Copy the picked rows end to end into `out`; returns the words, or -1 if they do not fit."""
    used = 0
    for k in range(picked.shape[0]):
        p = starts[picked[k]]
        size = rows[p] >> 32
        if used + size > out.shape[0]:
            return -1
        for j in range(size):
            out[used + j] = rows[p + j]
        used += size
    return used


@jit
def walk(rows, starts):
    """Where the rows that lie end to end start. Returns how many; stops when `starts` is full."""
    p = count = 0
    while p < rows.shape[0] and count < starts.shape[0]:
        starts[count] = p
        count += 1
        p += rows[p] >> 32
    return count


@jit
def id_of(row, p):
    """Where the id of a row lies, in bytes."""
    body = R_BODY + (4 if row[p + R_TEXT] >> 32 != 0 else 0)
    lengths = row[p + R_LENGTHS]
    start = (p + body) * 8 + (((lengths & LOW16) + 7) & ~7)
    return start, start + ((lengths >> 16) & LOW16)


@jit
def before(row, octet, p, q):
    """Whether the row at p comes before the row at q of the same time.

    Who asks comes before what happens, a cancel last; then the id decides.
    """
    one, other = row[p] & 0xFF, row[q] & 0xFF
    if one != other:
        return one == SUBSCRIBE or other == CANCEL
    a, a_limit = id_of(row, p)
    b, b_limit = id_of(row, q)
    while a < a_limit and b < b_limit:
        if octet[a] != octet[b]:
            return octet[a] < octet[b]
        a += 1
        b += 1
    return a == a_limit and b < b_limit


@jit
def settle(rows, octet, starts, order, spare):
    """Put rows of the same time in order; `order` has them by time already. Stable.

    `spare` is as long as `order`.
    """
    n = order.shape[0]
    first = 0
    while first < n:
        now = rows[starts[order[first]] + R_NOW]
        limit = first + 1
        while limit < n and rows[starts[order[limit]] + R_NOW] == now:
            limit += 1
        if limit - first > 1:
            sort_run(rows, octet, starts, order, spare, first, limit)
        first = limit


@jit
def sort_run(rows, octet, starts, order, spare, first, limit):
    """Merge sort of order[first:limit], beginning with short runs sorted by insertion."""
    low = first
    while low < limit:
        high = min(low + SHORT, limit)
        for i in range(low + 1, high):
            one = order[i]
            j = i
            while j > low and before(rows, octet, starts[one], starts[order[j - 1]]):
                order[j] = order[j - 1]
                j -= 1
            order[j] = one
        low = high
    width = SHORT
    while width < limit - first:
        low = first
        while low < limit:
            middle = min(low + width, limit)
            high = min(low + 2 * width, limit)
            i, j = low, middle
            for k in range(low, high):
                if i == middle or (
                    j < high and before(rows, octet, starts[order[j]], starts[order[i]])
                ):
                    spare[k] = order[j]
                    j += 1
                else:
                    spare[k] = order[i]
                    i += 1
            low = high
        for k in range(first, limit):
            order[k] = spare[k]
        width *= 2
