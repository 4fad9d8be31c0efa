"""Make components of entries: what is in them and in which order, then the bytes.

A *plan* is a component without its bytes: for every row the address and the length of its
value, for every entry its seq and the address and the length of its key. Sealing plans from
a memory, merging from components; `found.gather` then copies the bytes, once.

    plan   value addresses | value lengths | lists (offsets; not for composite)
           seqs | key addresses | key lengths

Left out: entries of which the same value and key has a newer one.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.entries import (
    LOW32,
    LOW48,
    M_ARENA,
    N_KEY,
    N_LINK,
    N_SEQ,
    N_WORDS,
    V_AT,
    V_HEAD,
    V_SIZE,
    V_WORDS,
    entries_of,
    memory,
    values_of,
)
from tideline.kernels.documents.octets import hash_bytes, order_bytes, prefix_of, same_bytes
from tideline.kernels.documents.order import sort_run
from tideline.kernels.documents.places import (
    P_COUNT,
    P_KEY_OFFSETS,
    P_KEYS,
    P_LISTS,
    P_ROWS,
    P_SEQS,
    P_VALUE_OFFSETS,
    P_VALUES,
    first_below,
    key_order,
    place_at,
)
from tideline.kernels.views import octets, words
from tideline.kernels.words import Layout

PLAN = Layout("plan", "B_", "a component of entries without its bytes", globals())
B_VALUE_AT = PLAN.address("addresses of the values")
B_VALUE_SIZE = PLAN.address("their lengths")
B_LISTS = PLAN.address("offsets of the lists")
B_SEQS = PLAN.address("seqs of the entries")
B_KEY_AT = PLAN.address("addresses of their keys")
B_KEY_SIZE = PLAN.address("their lengths")
B_TABLE = PLAN.address("room for twice the longest list, a power of two")
B_SCRATCH = PLAN.address("3 words an entry (sealing composites), 5 a place (merging)")
B_CAP = PLAN.count("entries and rows there is room for")
B_ROWS = PLAN.count("out: rows")
B_COUNT = PLAN.count("out: entries")
B_WORDS = PLAN.end(spare=1)


@jit
def leave_superseded(b, first, count):
    """Of the entries [first, count) of one value, newest first, leave out older ones of a key.

    Returns where they end now.
    """
    n = count - first
    if n < 2:
        return count
    seqs = words(b[B_SEQS], b[B_CAP])
    addresses = words(b[B_KEY_AT], b[B_CAP])
    sizes = words(b[B_KEY_SIZE], b[B_CAP])
    size = 4
    while size < 2 * n:
        size *= 2
    table = words(b[B_TABLE], size)
    for i in range(size):
        table[i] = 0
    put = first
    for i in range(first, count):
        at, length = addresses[i], sizes[i]
        hashed = hash_bytes(at, length, 0)
        slot = hashed & (size - 1)
        new = True
        while table[slot] != 0:
            if (table[slot] ^ hashed) >> 32 == 0:
                other = first + (table[slot] & LOW32) - 1
                if sizes[other] == length and same_bytes(addresses[other], at, length):
                    new = False
                    break
            slot = (slot + 1) & (size - 1)
        if new:
            table[slot] = (hashed & ~LOW32) | (put - first + 1)
            seqs[put] = seqs[i]
            addresses[put] = at
            sizes[put] = length
            put += 1
    return put


@jit
def plan_memory(address, order_at, count, composite, plan_at):
    """Plan a component of a memory whose values are in order[count]."""
    m = memory(address)
    b = words(plan_at, B_WORDS)
    order = words(order_at, count)
    values = values_of(m)
    entries = entries_of(m)
    seqs = words(b[B_SEQS], b[B_CAP])
    addresses = words(b[B_KEY_AT], b[B_CAP])
    sizes = words(b[B_KEY_SIZE], b[B_CAP])
    value_at = words(b[B_VALUE_AT], b[B_CAP])
    value_size = words(b[B_VALUE_SIZE], b[B_CAP])
    lists = words(b[B_LISTS], b[B_CAP] + 1)
    put = 0
    lists[0] = 0
    for n in range(count):
        base = order[n] * V_WORDS
        first = put
        at = values[base + V_HEAD]
        while at != 0:
            entry = (at - 1) * N_WORDS
            key = entries[entry + N_KEY]
            seqs[put] = entries[entry + N_SEQ]
            addresses[put] = m[M_ARENA] + (key & LOW48)
            sizes[put] = key >> 48
            put += 1
            at = entries[entry + N_LINK] & LOW32
        put = leave_superseded(b, first, put)
        where = m[M_ARENA] + values[base + V_AT]
        length = values[base + V_SIZE] & LOW32
        if composite:
            by_key(b, first, put)
            for i in range(first, put):
                value_at[i] = where
                value_size[i] = length
        else:
            value_at[n] = where
            value_size[n] = length
            lists[n + 1] = put
    b[B_ROWS] = put if composite else count
    b[B_COUNT] = put


@jit
def by_key(b, first, limit):
    """Put the entries [first, limit) in the order of their keys."""
    n = limit - first
    if n < 2:
        return
    cap = b[B_CAP]
    seqs = words(b[B_SEQS], cap)
    addresses = words(b[B_KEY_AT], cap)
    sizes = words(b[B_KEY_SIZE], cap)
    prefixes = words(b[B_SCRATCH], n)
    order = words(b[B_SCRATCH] + 8 * n, n)
    scratch = words(b[B_SCRATCH] + 16 * n, n)
    for i in range(n):
        length = sizes[first + i]
        prefixes[i] = prefix_of(addresses[first + i], length)
        order[i] = i
    own_addresses = words(b[B_KEY_AT] + 8 * first, n)
    own_sizes = words(b[B_KEY_SIZE] + 8 * first, n)
    sort_run(order, scratch, 0, n, prefixes, own_addresses, own_sizes)
    for column in (seqs, addresses, sizes):
        for i in range(n):
            scratch[i] = column[first + order[i]]
        for i in range(n):
            column[first + i] = scratch[i]


# ---- merging -------------------------------------------------------------------------------

HEAD = Layout("head", "H_", "the next row of a component that is merged", globals())
H_ROW = HEAD.word("its number")
H_PREFIX = HEAD.word("prefix of its value")
H_AT = HEAD.address("its value")
H_SIZE = HEAD.count("bytes of its value")
H_WORDS = HEAD.end()


@jit
def load_head(p, heads, n, row):
    """Look at a row of component n: where its value is."""
    heads[H_WORDS * n + H_ROW] = row
    if row < p[P_ROWS]:
        offsets = words(p[P_VALUE_OFFSETS], p[P_ROWS] + 1)
        at, size = p[P_VALUES] + offsets[row], offsets[row + 1] - offsets[row]
        heads[H_WORDS * n + H_PREFIX] = prefix_of(at, size)
        heads[H_WORDS * n + H_AT] = at
        heads[H_WORDS * n + H_SIZE] = size


@jit
def head_order(places, heads, n, best, composite):
    """How the next row of component n compares with that of another."""
    mine, its = heads[H_WORDS * n + H_PREFIX], heads[H_WORDS * best + H_PREFIX]
    if mine != its:
        return -1 if mine < its else 1
    side = order_bytes(heads[H_WORDS * n + H_AT], heads[H_WORDS * n + H_SIZE],
                       heads[H_WORDS * best + H_AT], heads[H_WORDS * best + H_SIZE])  # fmt: skip
    if side == 0 and composite:
        return key_order(place_at(places, n), heads[H_WORDS * n + H_ROW],
                         place_at(places, best), heads[H_WORDS * best + H_ROW])  # fmt: skip
    return side


@jit
def plan_merge(places, count, composite, plan_at):
    """Plan a component of several, newest first.

    Composites: every (value, key) once, the newest. Lists: of two lists of a value, the older
    adds what is older than all of the newer one (all of it, unless the index is eager).
    """
    b = words(plan_at, B_WORDS)
    heads = words(b[B_SCRATCH], H_WORDS * count)
    same = words(b[B_SCRATCH] + 32 * count, count)  # components whose next row is the best one
    seqs = words(b[B_SEQS], b[B_CAP])
    addresses = words(b[B_KEY_AT], b[B_CAP])
    sizes = words(b[B_KEY_SIZE], b[B_CAP])
    value_at = words(b[B_VALUE_AT], b[B_CAP])
    value_size = words(b[B_VALUE_SIZE], b[B_CAP])
    lists = words(b[B_LISTS], b[B_CAP] + 1)
    for n in range(count):
        load_head(place_at(places, n), heads, n, 0)
    put = 0
    rows = 0
    lists[0] = 0
    while True:
        sharing = 0
        for n in range(count):
            if heads[H_WORDS * n + H_ROW] >= place_at(places, n)[P_ROWS]:
                continue
            side = head_order(places, heads, n, same[0], composite) if sharing > 0 else -1
            if side < 0:
                sharing = 0
            if side <= 0:
                same[sharing] = n
                sharing += 1
        if sharing == 0:
            break
        value_at[rows] = heads[H_WORDS * same[0] + H_AT]
        value_size[rows] = heads[H_WORDS * same[0] + H_SIZE]
        first = put
        for i in range(sharing):
            n = same[i]
            p = place_at(places, n)
            row = heads[H_WORDS * n + H_ROW]
            load_head(p, heads, n, row + 1)
            if composite and i > 0:
                continue
            mine = words(p[P_SEQS], p[P_COUNT])
            offsets = words(p[P_KEY_OFFSETS], p[P_COUNT] + 1)
            start, limit = row, row + 1
            if not composite:
                own = words(p[P_LISTS], p[P_ROWS] + 1)
                start, limit = own[row], own[row + 1]
                if put > first:
                    start = first_below(mine, start, limit, seqs[put - 1])
            for j in range(start, limit):
                seqs[put] = mine[j]
                addresses[put] = p[P_KEYS] + offsets[j]
                sizes[put] = offsets[j + 1] - offsets[j]
                put += 1
        if not composite and sharing > 1:
            put = leave_superseded(b, first, put)
        rows += 1
        lists[rows] = put
    b[B_ROWS] = rows
    b[B_COUNT] = put


@jit
def keep_entries(kept_at, composite, plan_at):
    """Leave out of a plan the entries whose byte is 0, and rows that have none left."""
    b = words(plan_at, B_WORDS)
    kept = octets(kept_at, b[B_COUNT])
    seqs = words(b[B_SEQS], b[B_CAP])
    addresses = words(b[B_KEY_AT], b[B_CAP])
    sizes = words(b[B_KEY_SIZE], b[B_CAP])
    value_at = words(b[B_VALUE_AT], b[B_CAP])
    value_size = words(b[B_VALUE_SIZE], b[B_CAP])
    lists = words(b[B_LISTS], b[B_CAP] + 1)
    put = 0
    rows = 0
    start = 0
    for row in range(b[B_ROWS]):
        first = put
        limit = start + 1 if composite else lists[row + 1]
        for i in range(start, limit):
            if kept[i] != 0:
                seqs[put] = seqs[i]
                addresses[put] = addresses[i]
                sizes[put] = sizes[i]
                put += 1
        start = limit
        if put > first:
            value_at[rows] = value_at[row]
            value_size[rows] = value_size[row]
            rows += 1
            if not composite:
                lists[rows] = put
    b[B_ROWS] = rows
    b[B_COUNT] = put
