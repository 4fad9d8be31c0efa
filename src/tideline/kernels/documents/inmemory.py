"""Search in a memory of entries: one value by its hash, a range by the order of values.

`m` is a reader's copy of the state of the memory, to which a writer may be adding (entries.py).
Entries that the reader's view has not have seqs from `below` on.

Values are brought into order when a search for a range finds many new ones (M_ORDERED);
those that came after are looked at one by one. When a range has far more values than the
search wants entries, all entries are looked at instead, newest first, for a while.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.barrier import loads_done
from tideline.kernels.documents.entries import (
    LOW32,
    LOW48,
    M_ARENA,
    M_BORROWED,
    M_ENTRY_COUNT,
    M_ORDER,
    M_ORDERED,
    M_SEED,
    M_VALUE_COUNT,
    N_KEY,
    N_LINK,
    N_SEQ,
    N_WORDS,
    V_AT,
    V_HEAD,
    V_PREFIX,
    V_SIZE,
    V_WORDS,
    entries_of,
    find_value,
    values_of,
)
from tideline.kernels.documents.newest import (
    C_COUNT,
    C_LEFT,
    HIGH_OPEN,
    LOW_OPEN,
    NO_HIGH,
    POINT,
    Q_FLAGS,
    Q_HIGH,
    Q_HIGH_PREFIX,
    Q_HIGH_SIZE,
    Q_LOW,
    Q_LOW_PREFIX,
    Q_LOW_SIZE,
    offer,
)
from tideline.kernels.documents.octets import hash_bytes, order_bytes
from tideline.kernels.views import words


@jit
def walk_chain(c, m, number, alone, below, seqs, addresses, lengths, base, room):
    """Offer the entries of a value, newest first; `alone`: no other value is asked for."""
    entries = entries_of(m)
    at = values_of(m)[number * V_WORDS + V_HEAD]
    loads_done()
    while at != 0:
        entry = (at - 1) * N_WORDS
        at = entries[entry + N_LINK] & LOW32
        if entries[entry + N_SEQ] < below:
            if alone and c[C_COUNT] == room:
                c[C_LEFT] = 1
                break
            seq, key = entries[entry + N_SEQ], entries[entry + N_KEY]
            if not offer(c, seqs, addresses, lengths, base, room,
                         seq, m[M_ARENA] + (key & LOW48), key >> 48):  # fmt: skip
                break


@jit
def is_inside(m, number, q):
    """Whether a value in memory lies in the range asked for."""
    values = values_of(m)
    base = number * V_WORDS
    own = values[base + V_PREFIX]
    if own < q[Q_LOW_PREFIX]:
        return False
    at, size = m[M_ARENA] + values[base + V_AT], values[base + V_SIZE] & LOW32
    if own == q[Q_LOW_PREFIX]:
        side = order_bytes(at, size, q[Q_LOW], q[Q_LOW_SIZE])
        if side < 0 or (side == 0 and q[Q_FLAGS] & LOW_OPEN != 0):
            return False
    if q[Q_FLAGS] & NO_HIGH != 0:
        return True
    if own > q[Q_HIGH_PREFIX]:
        return False
    if own == q[Q_HIGH_PREFIX]:
        side = order_bytes(at, size, q[Q_HIGH], q[Q_HIGH_SIZE])
        if side > 0 or (side == 0 and q[Q_FLAGS] & HIGH_OPEN != 0):
            return False
    return True


@jit
def first_value(m, at, size, wanted, beyond):
    """The first of the ordered values of a memory that is not below another, or is above it."""
    values = values_of(m)
    order = words(m[M_ORDER], m[M_ORDERED])
    low, high = 0, m[M_ORDERED]
    while low < high:
        middle = (low + high) >> 1
        base = order[middle] * V_WORDS
        have = values[base + V_PREFIX]
        if have != wanted:
            below = have < wanted
        else:
            side = order_bytes(
                m[M_ARENA] + values[base + V_AT], values[base + V_SIZE] & LOW32, at, size
            )
            below = side < 0 or (side == 0 and beyond)
        if below:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def ordered_range(m, q):
    """The range of the ordered values of a memory that is asked for, as (first, limit)."""
    first = first_value(m, q[Q_LOW], q[Q_LOW_SIZE], q[Q_LOW_PREFIX], q[Q_FLAGS] & LOW_OPEN != 0)
    limit = m[M_ORDERED]
    if q[Q_FLAGS] & NO_HIGH == 0:
        limit = first_value(
            m, q[Q_HIGH], q[Q_HIGH_SIZE], q[Q_HIGH_PREFIX], q[Q_FLAGS] & HIGH_OPEN == 0
        )
    return first, max(first, limit)


@jit
def newest_first(c, m, q, below, seqs, addresses, lengths, base, room, budget):
    """Look at all entries of a memory, newest first, until there are enough.

    False when that took more than `budget` of them: then nothing is offered.
    """
    entries = entries_of(m)
    low, high = 0, m[M_ENTRY_COUNT]
    while low < high:  # entries are in rising order of seq
        middle = (low + high) >> 1
        if entries[middle * N_WORDS + N_SEQ] < below:
            low = middle + 1
        else:
            high = middle
    for number in range(low - 1, max(low - 1 - budget, -1), -1):
        entry = number * N_WORDS
        if is_inside(m, entries[entry + N_LINK] >> 32, q):
            key = entries[entry + N_KEY]
            offer(c, seqs, addresses, lengths, base, room,
                  entries[entry + N_SEQ], m[M_ARENA] + (key & LOW48), key >> 48)  # fmt: skip
            if c[C_COUNT] == room:
                c[C_LEFT] = 1
                return True
    if low <= budget:
        return True
    c[C_COUNT] = 0
    return False


@jit
def in_memory(c, m, q, below, seqs, addresses, lengths, base, room):
    """Offer what a memory has. Returns whether there was any of it."""
    if q[Q_FLAGS] & POINT != 0:
        hashed = hash_bytes(q[Q_LOW], q[Q_LOW_SIZE], m[M_SEED])
        number = find_value(m, q[Q_LOW], q[Q_LOW_SIZE], hashed)
        if number < 0:
            return False
        walk_chain(c, m, number, True, below, seqs, addresses, lengths, base, room)
        return True
    first, limit = ordered_range(m, q)
    many = limit - first
    if (
        many > 4 * room
        and m[M_BORROWED] == 0
        and newest_first(c, m, q, below, seqs, addresses, lengths, base, room, many)
    ):
        return True
    order = words(m[M_ORDER], m[M_ORDERED])
    for i in range(first, limit):
        walk_chain(c, m, order[i], False, below, seqs, addresses, lengths, base, room)
    for number in range(m[M_ORDERED], m[M_VALUE_COUNT]):
        if is_inside(m, number, q):
            many += 1
            walk_chain(c, m, number, False, below, seqs, addresses, lengths, base, room)
    return many > 0


@jit
def count_in_memory(m, q):
    values = values_of(m)
    if q[Q_FLAGS] & POINT != 0:
        hashed = hash_bytes(q[Q_LOW], q[Q_LOW_SIZE], m[M_SEED])
        number = find_value(m, q[Q_LOW], q[Q_LOW_SIZE], hashed)
        return values[number * V_WORDS + V_SIZE] >> 32 if number >= 0 else 0
    first, limit = ordered_range(m, q)
    order = words(m[M_ORDER], m[M_ORDERED])
    total = 0
    for i in range(first, limit):
        total += values[order[i] * V_WORDS + V_SIZE] >> 32
    for number in range(m[M_ORDERED], m[M_VALUE_COUNT]):
        if is_inside(m, number, q):
            total += values[number * V_WORDS + V_SIZE] >> 32
    return total
