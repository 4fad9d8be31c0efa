"""Several sources as one, in key order, each key once and in its newest version.

A cursor a source, newest source first (layout.py). The next record is the one with the least key;
where several have it, the first. As long as one source stays below all others, which is the rule
when keys grow with time, only that one is looked at.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.layout import (
    M_LIMIT,
    M_POS,
    M_PREFIX,
    M_SOURCE,
    M_WORDS,
    X_ORDER,
)  # fmt: skip
from tideline.kernels.documents.octets import order_bytes, prefix_of
from tideline.kernels.documents.records import is_gone, row_key
from tideline.kernels.lanes import get64, hot
from tideline.kernels.views import words

__all__ = ["is_sorted", "merge_next", "seek"]

_LAST = 9223372036854775807


@hot
def _row_at(source, position):
    order = get64(source + 8 * X_ORDER)
    return get64(order + 8 * position) if order else position


@jit
def seek(source, rows, key, size):
    """The first position, of `rows` in key order, whose key is not before the given one."""
    low = 0
    high = rows
    while low < high:
        middle = (low + high) >> 1
        there, there_size = row_key(source, _row_at(source, middle))
        if order_bytes(there, there_size, key, size) < 0:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def is_sorted(offsets_at, base, count):
    """Whether keys are in strictly growing order."""
    offsets = words(offsets_at, count + 1)
    for i in range(count - 1):
        a = base + offsets[i]
        b = base + offsets[i + 1]
        if order_bytes(a, offsets[i + 1] - offsets[i], b, offsets[i + 2] - offsets[i + 1]) >= 0:
            return False
    return True


@hot
def _load(cursor):
    """The prefix of the key a cursor stands at; the last one when it is at its end."""
    if cursor[M_POS] >= cursor[M_LIMIT]:
        cursor[M_PREFIX] = _LAST
    else:
        key, size = row_key(cursor[M_SOURCE], _row_at(cursor[M_SOURCE], cursor[M_POS]))
        cursor[M_PREFIX] = prefix_of(key, size)


@jit
def _compare(a, b):
    """Order of the keys two cursors stand at, when their prefixes are equal."""
    if a[M_POS] >= a[M_LIMIT]:
        return 0 if b[M_POS] >= b[M_LIMIT] else 1
    if b[M_POS] >= b[M_LIMIT]:
        return -1
    x, x_size = row_key(a[M_SOURCE], _row_at(a[M_SOURCE], a[M_POS]))
    y, y_size = row_key(b[M_SOURCE], _row_at(b[M_SOURCE], b[M_POS]))
    return order_bytes(x, x_size, y, y_size)


@jit
def merge_next(cursors, count, tombs, now, out_sources, out_rows):
    """Fill `out_sources` and `out_rows` with the next records; returns how many (0: the end).

    `tombs`: whether deletes are among them, and what has expired by `now`.
    """
    for number in range(count):
        _load(words(cursors + 8 * M_WORDS * number, M_WORDS))
    made = 0
    while made < len(out_rows):
        best = words(cursors, M_WORDS)
        best_number = 0
        second = _LAST  # the least prefix of the others
        for number in range(1, count):
            other = words(cursors + 8 * M_WORDS * number, M_WORDS)
            if other[M_PREFIX] > best[M_PREFIX]:
                second = min(second, other[M_PREFIX])
                continue
            if other[M_PREFIX] < best[M_PREFIX] or _compare(other, best) < 0:
                second = min(second, best[M_PREFIX])
                best = other
                best_number = number
            else:
                second = min(second, other[M_PREFIX])
        if best[M_POS] >= best[M_LIMIT]:
            return made
        source = best[M_SOURCE]
        # All others that stand at the same key have older versions of it.
        if second == best[M_PREFIX]:
            for number in range(best_number + 1, count):
                other = words(cursors + 8 * M_WORDS * number, M_WORDS)
                if other[M_PREFIX] == best[M_PREFIX] and _compare(other, best) == 0:
                    if other[M_POS] < other[M_LIMIT]:
                        other[M_POS] += 1
                        _load(other)
            row = _row_at(source, best[M_POS])
            if tombs or not is_gone(source, row, now):
                out_sources[made] = best_number
                out_rows[made] = row
                made += 1
            best[M_POS] += 1
            _load(best)
            continue
        while best[M_PREFIX] < second and best[M_POS] < best[M_LIMIT] and made < len(out_rows):
            row = _row_at(source, best[M_POS])
            if tombs or not is_gone(source, row, now):
                out_sources[made] = best_number
                out_rows[made] = row
                made += 1
            best[M_POS] += 1
            _load(best)
    return made
