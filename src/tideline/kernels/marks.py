"""Marks, the table of marks, and which marks a window has. What they are for: told.py.

table    mark -> is it there; open addressing, a word each, 0 for none
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.disk import first_hash
from tideline.kernels.heap import engine, heap_of, windows_of
from tideline.kernels.layout import (
    CHUNK,
    E_TOLD,
    E_TOLD_CAP,
    E_TOLD_COMPONENT_COUNT,
    E_TOLD_COMPONENTS,
    E_TOLD_USED,
    LOW40,
    T_COUNT,
    T_MARKS,
    T_UNTIL_HIGH,
    T_WORDS,
    W_TOLD_HEAD,
    W_WORDS,
)
from tideline.kernels.runs import (
    BY_ASKER,
    HEAP_RUN,
    OF_SUB,
    REF,
    VOID,
    run_words,
)
from tideline.kernels.slots import GOLDEN, chunk_used
from tideline.kernels.views import words

ODD = -4658895280553007687


# ---- marks -----------------------------------------------------------------------------


@jit
def mix(x):
    x = (x ^ (x >> 30)) * ODD
    x = (x ^ (x >> 27)) * GOLDEN
    return x ^ (x >> 31)


@jit
def user_mark(user, event):
    """The mark that a user was told an event."""
    mark = mix(user + event * GOLDEN)
    return mark if mark >> 1 != 0 else mark + 2


@jit
def sub_mark(root, event):
    """The mark that an unseen subscription was answered with an event."""
    mark = mix(mix(root + ODD) + event * GOLDEN)
    return mark if mark >> 1 != 0 else mark + 2


@jit
def mark_of(kind, fixed, word):
    """The mark that one word of a run says."""
    asker = fixed if kind & BY_ASKER else word
    event = word if kind & BY_ASKER else fixed
    return sub_mark(asker, event) if kind & OF_SUB else user_mark(asker, event)


# ---- the table -------------------------------------------------------------------------


@jit
def place_in_table(e, mark):
    """Where a mark stands in the table, or would."""
    table = words(e[E_TOLD], e[E_TOLD_CAP])
    mask = e[E_TOLD_CAP] - 1
    i = (mark ^ (mark >> 32)) & mask
    while table[i] != 0 and table[i] != mark:
        i = (i + 1) & mask
    return i


@jit
def in_table(e, mark):
    return words(e[E_TOLD], e[E_TOLD_CAP])[place_in_table(e, mark)] == mark


@jit
def put_mark(e, mark):
    """Enter a mark; False when it is there already."""
    table = words(e[E_TOLD], e[E_TOLD_CAP])
    i = place_in_table(e, mark)
    if table[i] == mark:
        return False
    table[i] = mark
    e[E_TOLD_USED] += 1
    return True


@jit
def was_told(e, mark, until):
    """Whether there is a mark, of an event that ends at `until`, in memory or on disk."""
    if in_table(e, mark):
        return True
    for n in range(e[E_TOLD_COMPONENT_COUNT]):
        d = words(e[E_TOLD_COMPONENTS] + n * T_WORDS * 8, T_WORDS)
        if d[T_UNTIL_HIGH] < until:
            continue
        marks = words(d[T_MARKS], d[T_COUNT])
        at = first_hash(marks, d[T_COUNT], mark)
        if at < d[T_COUNT] and marks[at] == mark:
            return True
    return False


@jit
def enter_marks(address, marks, count):
    """Enter the first `count` marks of an array into the table."""
    e = engine(address)
    for i in range(count):
        put_mark(e, marks[i])


@jit
def list_marks(address, number, out):
    """The marks of a window, some perhaps twice. Returns how many."""
    e = engine(address)
    h = heap_of(e)
    chunk = windows_of(e)[number * W_WORDS + W_TOLD_HEAD]
    found = 0
    while chunk > 0:
        at = chunk + CHUNK
        limit = at + chunk_used(h, chunk)
        while at < limit:
            kind = h[at]
            count = run_words(kind)
            first = h[at + HEAP_RUN] if kind & REF else at + HEAP_RUN
            if kind & VOID == 0:
                for i in range(first, first + count):
                    out[found] = mark_of(kind, h[at + 1], h[i])
                    found += 1
            at += HEAP_RUN + (1 if kind & REF else count)
        chunk = h[chunk] & LOW40
    return found
