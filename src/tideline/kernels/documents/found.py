"""Search for entries: the newest ones with a value in a range, over memories and components.

Places are searched newest first. Those of `lazy` and `composite` hold disjoint ranges of
seq, so what one place gives comes before all that the next one gives, and the search stops
as soon as there is enough. A place of `eager` has the whole list of a value, unless it is
partial: the newest one that has it ends a search for one value, and a range takes all
places as one.

A search goes on where it stopped: entries of place C_PLACE with a seq below C_BELOW are
next. An entry with the seq of one already given is the same record under another value
and is left out. Blocks are counted as if values and lists lay one after the other in
blocks of 4 KiB.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.entries import memory
from tideline.kernels.documents.inmemory import count_in_memory, in_memory
from tideline.kernels.documents.newest import (
    ALL,
    C_BELOW,
    C_BLOCKS,
    C_BYTES,
    C_COUNT,
    C_HEAPED,
    C_LEFT,
    C_PLACE,
    C_WORDS,
    EAGER,
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
    Q_WORDS,
    ask,
    heapify,
    offer,
    sort_falling,
)
from tideline.kernels.documents.octets import copy_bytes
from tideline.kernels.documents.places import (
    P_COUNT,
    P_FENCES,
    P_KEY_OFFSETS,
    P_KEYS,
    P_LISTS,
    P_MEMORY,
    P_NEWEST,
    P_PARTIAL,
    P_ROWS,
    P_SEQS,
    P_VALUE_OFFSETS,
    STRIDE,
    find_row,
    first_below,
    first_row,
    place_at,
)
from tideline.kernels.views import words

BLOCK = 12  # bits of a position inside a block


@jit
def rows_of(c, p, q):
    """The rows of a component with values in the range asked for, as (first, limit).

    Counts a block for a search that finds nothing although the filters let it through.
    """
    if p[P_ROWS] == 0:
        return 0, 0
    if q[Q_FLAGS] & POINT != 0 and p[P_LISTS] != 0:
        row = find_row(p, q[Q_LOW], q[Q_LOW_SIZE])
        if row >= 0:
            return row, row + 1
        c[C_BLOCKS] += 1 if row == -1 else 0
        return 0, 0
    first = first_row(p, q[Q_LOW], q[Q_LOW_SIZE], q[Q_LOW_PREFIX], q[Q_FLAGS] & LOW_OPEN != 0)
    limit = p[P_ROWS]
    if q[Q_FLAGS] & NO_HIGH == 0:
        limit = first_row(
            p, q[Q_HIGH], q[Q_HIGH_SIZE], q[Q_HIGH_PREFIX], q[Q_FLAGS] & HIGH_OPEN == 0
        )
    if limit <= first:
        c[C_BLOCKS] += 1 if 0 < first < p[P_ROWS] else 0
        return 0, 0
    return first, limit


@jit
def position(p, row, entry):
    """Where an entry would be if values and lists lay one after the other."""
    values = words(p[P_VALUE_OFFSETS], p[P_ROWS] + 1)
    keys = words(p[P_KEY_OFFSETS], p[P_COUNT] + 1)
    if p[P_LISTS] == 0:
        return values[row] + keys[row] + 24 * row
    return values[row] + 16 * row + keys[entry] + 16 * entry


@jit
def in_rows(c, p, first, limit, below, seqs, addresses, lengths, base, room):
    """Offer rows of a component of composites.

    From the last stretch of STRIDE rows back, because larger keys are often newer; one whose
    newest entry is older than all that are kept is left out.
    """
    mine = words(p[P_SEQS], p[P_COUNT])
    keys = words(p[P_KEY_OFFSETS], p[P_COUNT] + 1)
    newest = words(p[P_NEWEST], p[P_FENCES])
    unread = 1 << 62
    for stretch in range((limit - 1) // STRIDE, first // STRIDE - 1, -1):
        start, end = max(first, stretch * STRIDE), min(limit, (stretch + 1) * STRIDE)
        if c[C_COUNT] == room:
            c[C_LEFT] = 1
            if c[C_HEAPED] == 0:
                heapify(seqs, addresses, lengths, base, room)
                c[C_HEAPED] = 1
            if newest[stretch] <= seqs[base]:
                continue
        for i in range(start, end):
            if mine[i] < below:
                offer(c, seqs, addresses, lengths, base, room,
                      mine[i], p[P_KEYS] + keys[i], keys[i + 1] - keys[i])  # fmt: skip
        block = position(p, start, start) >> BLOCK
        c[C_BLOCKS] += max(min(position(p, end - 1, end - 1) >> BLOCK, unread - 1) - block + 1, 0)
        unread = min(unread, block)


@jit
def in_component(c, p, q, below, seqs, addresses, lengths, base, room):
    """Offer what a component has. Returns whether there was any of it."""
    first, limit = rows_of(c, p, q)
    if first == limit:
        return False
    if p[P_LISTS] == 0:
        in_rows(c, p, first, limit, below, seqs, addresses, lengths, base, room)
        return True
    mine = words(p[P_SEQS], p[P_COUNT])
    keys = words(p[P_KEY_OFFSETS], p[P_COUNT] + 1)
    lists = words(p[P_LISTS], p[P_ROWS] + 1)
    read = -1  # the last block that was read
    for row in range(first, limit):
        start, end = lists[row], lists[row + 1]
        if mine[start] >= below:
            start = first_below(mine, start, end, below)
            read = max(read, position(p, row, start - 1) >> BLOCK)  # in the chunk before this one
        at = start
        while at < end:
            if q[Q_FLAGS] & POINT != 0 and c[C_COUNT] == room:
                c[C_LEFT] = 1
                break
            if not offer(c, seqs, addresses, lengths, base, room,
                         mine[at], p[P_KEYS] + keys[at], keys[at + 1] - keys[at]):  # fmt: skip
                break
            at += 1
        block = position(p, row, start) >> BLOCK
        last = position(p, row, max(at - 1, start)) >> BLOCK
        c[C_BLOCKS] += max(last - max(block - 1, read), 0)
        read = max(read, last)
    return True


@jit
def in_places(c, places, first, limit, q, below, seqs, addresses, lengths, base, room):
    """Offer what places have, up to the first one that ends the search. Returns the next place."""
    while first < limit:
        p = place_at(places, first)
        first += 1
        if p[P_MEMORY] != 0:
            m = memory(p[P_MEMORY])
            some = in_memory(c, m, q, below, seqs, addresses, lengths, base, room)
        else:
            some = in_component(c, p, q, below, seqs, addresses, lengths, base, room)
        if q[Q_FLAGS] & EAGER == 0:
            break
        if some and q[Q_FLAGS] & POINT != 0 and p[P_PARTIAL] == 0:
            return limit
    return first


@jit
def search(places, count, text, low_size, high_size, flags, limit,
           place, below, room, call, size):  # fmt: skip
    """Find up to `room` entries from (place, below) on, with seqs below `limit`.

    The call has `size` bytes.

    With flag ALL there is room for all, and they are given as they come, without their keys.
    """
    c = words(call, C_WORDS)
    q = words(call + C_WORDS * 8, Q_WORDS)
    base = call + (C_WORDS + Q_WORDS) * 8
    seqs = words(base, room)
    addresses = words(base + room * 8, room)
    lengths = words(base + 2 * room * 8, room)
    ask(q, text, low_size, high_size, flags)
    c[C_BLOCKS] = 0
    found = 0
    while place < count and found < room:
        c[C_COUNT] = 0
        c[C_HEAPED] = 0
        c[C_LEFT] = 0
        after = in_places(c, places, place, count, q, below,
                          seqs, addresses, lengths, found, room - found)  # fmt: skip
        if flags & ALL != 0:
            found += c[C_COUNT]
        else:
            found += sort_falling(c, seqs, addresses, lengths, found)
        if c[C_LEFT] != 0:
            below = seqs[found - 1]
            break
        below = limit
        place = after
    c[C_PLACE] = place
    c[C_BELOW] = below
    if flags & ALL != 0:
        return found
    offsets = words(base + 3 * room * 8, room + 1)
    offsets[0] = 8 * (C_WORDS + Q_WORDS + 4 * room + 1)
    for i in range(found):
        offsets[i + 1] = offsets[i] + lengths[i]
    c[C_BYTES] = offsets[found] - offsets[0]
    if offsets[found] <= size:
        for i in range(found):
            copy_bytes(call + offsets[i], addresses[i], lengths[i])
    return found


@jit
def count_matches(places, count, text, low_size, high_size, flags, call):
    """How many entries each place has in the range, and in how many blocks.

    After the words of the call there are two for each place.
    """
    c = words(call, C_WORDS)
    q = words(call + C_WORDS * 8, Q_WORDS)
    out = words(call + (C_WORDS + Q_WORDS) * 8, 2 * count)
    ask(q, text, low_size, high_size, flags)
    for i in range(2 * count):
        out[i] = 0
    for n in range(count):
        p = place_at(places, n)
        c[C_BLOCKS] = 0
        if p[P_MEMORY] != 0:
            out[2 * n] = count_in_memory(memory(p[P_MEMORY]), q)
        else:
            first, limit = rows_of(c, p, q)
            if first < limit:
                entry, end = first, limit
                if p[P_LISTS] != 0:
                    lists = words(p[P_LISTS], p[P_ROWS] + 1)
                    entry, end = lists[first], lists[limit]
                out[2 * n] = end - entry
                block = position(p, first, entry) >> BLOCK
                c[C_BLOCKS] = (position(p, limit - 1, end - 1) >> BLOCK) - block + 1
        out[2 * n + 1] = c[C_BLOCKS]
        if flags & (EAGER | POINT) == EAGER | POINT and out[2 * n] > 0 and p[P_PARTIAL] == 0:
            break


@jit
def gather(addresses_at, offsets_at, count, data_at):
    """Copy the bytes at `count` addresses to data[offsets[i] : offsets[i + 1])."""
    addresses = words(addresses_at, count)
    offsets = words(offsets_at, count + 1)
    for i in range(count):
        copy_bytes(data_at + offsets[i], addresses[i], offsets[i + 1] - offsets[i])
