"""Search by an embedded index: source by source, newest first.

An embedded index has no structure of its own. Of a component, the groups of blocks whose zone map
and bloom let the range pass are looked at, in those the blocks that pass, and in those the
records. A memory has zone maps too; equal values are found by its chains, which are made by
whoever searches first after a write (`catch_up`), so that writing costs next to nothing. One at
a time catches up, while others may search: a head is stored after what it leads to (barrier.py),
zones only widen, and records that a reader's view does not have are passed over.

Of a record that meets the range, the sources that are newer are asked in memory whether they have
its key: if one does, the record is not the newest.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.barrier import loads_done, stores_done
from tideline.kernels.documents.blocks import block_bit, step_of
from tideline.kernels.documents.layout import (
    DONE,
    F_BLOOM,
    F_BLOOM_STARTS,
    F_CHAIN,
    F_CHAINED,
    F_GROUP_BLOOM,
    F_GROUP_HIGHS,
    F_GROUP_LOWS,
    F_GROUP_STARTS,
    F_HEADS,
    F_HEADS_CAP,
    F_HIGH,
    F_HIGHS,
    F_LISTS,
    F_LOW,
    F_LOWS,
    F_OFFSETS,
    F_PROBES,
    F_ROW_OF,
    F_VALUES,
    F_WORDS,
    GROUP,
    HIGH_OPEN,
    LOW_OPEN,
    MEMORY_BLOCK,
    NEED_OUTPUT,
    S_AT_BLOCK,
    S_AT_SOURCE,
    S_BLOOM_CHECKS,
    S_BLOOM_FALSE,
    S_FIELD,
    S_HIGH,
    S_HIGH_SIZE,
    S_K,
    S_LOW,
    S_LOW_SIZE,
    S_NOW,
    S_OPEN,
    S_OUT_CAP,
    S_OUT_COUNT,
    S_OUT_ROWS,
    S_OUT_SEQS,
    S_OUT_SOURCES,
    S_PRIMARY_BLOCKS,
    S_SEED,
    S_SKIPPED,
    S_SOURCE_COUNT,
    S_SOURCES,
    S_WORDS,
    X_BLOCKS,
    X_FIELDS,
    X_ROWS,
    X_SEQ_HIGH,
    X_SEQS,
    X_STARTS,
    X_TABLE_CAP,
)  # fmt: skip
from tideline.kernels.documents.octets import hash_bytes, order_bytes, prefix_of
from tideline.kernels.documents.records import find_row, in_bloom, is_gone, replaced, row_key
from tideline.kernels.lanes import get8, get32, get64, hot
from tideline.kernels.views import halves, words

__all__ = ["catch_up", "count_blocks", "search"]

_LEAST, _MOST = -9223372036854775808, 9223372036854775807


@jit
def catch_up(field, rows, seed):
    """Take the records of a memory up to `rows` into the zone maps and chains of a field."""
    facts = words(field, F_WORDS)
    cap = facts[F_HEADS_CAP]
    heads = halves(facts[F_HEADS], cap)
    for row in range(facts[F_CHAINED], rows):
        block = row // MEMORY_BLOCK
        zone_low = words(facts[F_LOWS], block + 1)
        zone_high = words(facts[F_HIGHS], block + 1)
        if row % MEMORY_BLOCK == 0:
            zone_low[block] = _MOST
            zone_high[block] = _LEAST
        for entry in range(get32(facts[F_LISTS] + 4 * row), get32(facts[F_LISTS] + 4 * row + 4)):
            start = get64(facts[F_OFFSETS] + 8 * entry)
            size = get64(facts[F_OFFSETS] + 8 * entry + 8) - start
            at = facts[F_VALUES] + start
            prefix = prefix_of(at, size)
            zone_low[block] = min(zone_low[block], prefix)
            zone_high[block] = max(zone_high[block], prefix)
            slot = hash_bytes(at, size, seed) & (cap - 1)
            halves(facts[F_CHAIN], entry + 1)[entry] = heads[slot]
            halves(facts[F_ROW_OF], entry + 1)[entry] = row
            stores_done()
            heads[slot] = entry + 1
    facts[F_CHAINED] = max(facts[F_CHAINED], rows)


@hot
def _meets(at, size, facts):
    """Whether a value lies in the range that is looked for."""
    side = order_bytes(at, size, facts[S_LOW], facts[S_LOW_SIZE])
    if side < 0 or (side == 0 and facts[S_OPEN] & LOW_OPEN):
        return False
    side = order_bytes(at, size, facts[S_HIGH], facts[S_HIGH_SIZE])
    return side < 0 or (side == 0 and not facts[S_OPEN] & HIGH_OPEN)


@hot
def _value_meets(facts, field, entry):
    offsets = get64(field + 8 * F_OFFSETS) + 8 * entry
    start = get64(offsets)
    return _meets(get64(field + 8 * F_VALUES) + start, get64(offsets + 8) - start, facts)


@jit
def _row_meets(state, field, row):
    """Whether one of a record's values lies in the range."""
    facts = words(state, S_WORDS)
    lists = get64(field + 8 * F_LISTS)
    for entry in range(get32(lists + 4 * row), get32(lists + 4 * row + 4)):
        if _value_meets(facts, field, entry):
            return True
    return False


@jit
def _passes(field, block, low, high, equal, h, step, state):
    """Whether the zone map and the bloom of a block let it pass."""
    if get64(get64(field + 8 * F_HIGHS) + 8 * block) < low:
        return False
    if get64(get64(field + 8 * F_LOWS) + 8 * block) > high:
        return False
    if not equal:
        return True
    words(state, S_WORDS)[S_BLOOM_CHECKS] += 1
    starts = get64(field + 8 * F_BLOOM_STARTS) + 8 * block
    first = get64(starts)
    bits = (get64(starts + 8) - first) * 64
    bloom = get64(field + 8 * F_BLOOM) + 8 * first
    for probe in range(get64(field + 8 * F_PROBES)):
        bit = block_bit(h, step, probe, bits)
        if not (get64(bloom + 8 * (bit >> 6)) >> (bit & 63)) & 1:
            return False
    return True


@jit
def _group_passes(field, group, low, high, equal, h):
    """The same of a group of blocks."""
    if get64(get64(field + 8 * F_GROUP_HIGHS) + 8 * group) < low:
        return False
    if get64(get64(field + 8 * F_GROUP_LOWS) + 8 * group) > high:
        return False
    if not equal:
        return True
    starts = get64(field + 8 * F_GROUP_STARTS) + 8 * group
    first = get64(starts)
    return in_bloom(get64(field + 8 * F_GROUP_BLOOM) + 64 * first, get64(starts + 8) - first, h)


@jit
def _take(state, number, source, row):
    """Put a record that meets the range among what was found, if it is the newest."""
    facts = words(state, S_WORDS)
    key, size = row_key(source, row)
    if get64(source + 8 * X_TABLE_CAP):
        h = hash_bytes(key, size, facts[S_SEED])
        if find_row(state, source, key, size, h, 0) != row:
            return
    if replaced(state, number, key, size):
        return
    count, cap = facts[S_OUT_COUNT], facts[S_OUT_CAP]
    words(facts[S_OUT_SOURCES], cap)[count] = number
    words(facts[S_OUT_ROWS], cap)[count] = row
    words(facts[S_OUT_SEQS], cap)[count] = get64(get64(source + 8 * X_SEQS) + 8 * row)
    facts[S_OUT_COUNT] = count + 1


@jit
def _search_chain(state, number, source, field, h):
    """Equal values in a memory, newest first. S_AT_BLOCK is the value to go on with, plus 1."""
    facts = words(state, S_WORDS)
    entry = facts[S_AT_BLOCK]
    if entry == 0:
        entry = get32(get64(field + 8 * F_HEADS) + 4 * (h & (get64(field + 8 * F_HEADS_CAP) - 1)))
        loads_done()
    rows = get64(source + 8 * X_ROWS)
    last = -1
    while entry and facts[S_OUT_COUNT] < facts[S_K]:
        if facts[S_OUT_COUNT] == facts[S_OUT_CAP]:
            facts[S_AT_BLOCK] = entry
            return NEED_OUTPUT
        row = get32(get64(field + 8 * F_ROW_OF) + 4 * (entry - 1))
        if row < rows and row != last and _value_meets(facts, field, entry - 1):
            last = row
            if not is_gone(source, row, facts[S_NOW]):
                _take(state, number, source, row)
        entry = get32(get64(field + 8 * F_CHAIN) + 4 * (entry - 1))
    facts[S_AT_BLOCK] = 0
    return DONE


@jit
def _search_memory(state, number, source, field, low, high):
    """A range in a memory, newest first. S_AT_BLOCK is how many blocks are done."""
    facts = words(state, S_WORDS)
    rows = get64(source + 8 * X_ROWS)
    blocks = (rows + MEMORY_BLOCK - 1) // MEMORY_BLOCK
    for done in range(facts[S_AT_BLOCK], blocks):
        block = blocks - 1 - done
        if facts[S_OUT_COUNT] >= facts[S_K]:
            break
        if get64(get64(field + 8 * F_HIGHS) + 8 * block) < low:
            continue
        if get64(get64(field + 8 * F_LOWS) + 8 * block) > high:
            continue
        if facts[S_OUT_COUNT] + MEMORY_BLOCK > facts[S_OUT_CAP]:
            facts[S_AT_BLOCK] = done
            return NEED_OUTPUT
        first = block * MEMORY_BLOCK
        for row in range(min(first + MEMORY_BLOCK, rows) - 1, first - 1, -1):
            if not is_gone(source, row, facts[S_NOW]) and _row_meets(state, field, row):
                _take(state, number, source, row)
    facts[S_AT_BLOCK] = 0
    return DONE


@jit
def _search_component(state, number, source, field, low, high, equal, h, step):
    """A range in a component, in key order. S_AT_BLOCK is the block to go on with."""
    facts = words(state, S_WORDS)
    blocks = get64(source + 8 * X_BLOCKS)
    block = facts[S_AT_BLOCK]
    while block < blocks:
        if block % GROUP == 0 and not _group_passes(field, block // GROUP, low, high, equal, h):
            block += GROUP
            continue
        if not _passes(field, block, low, high, equal, h, step, state):
            block += 1
            continue
        starts = get64(source + 8 * X_STARTS) + 8 * block
        first = get64(starts)
        limit = get64(starts + 8)
        if facts[S_OUT_COUNT] + limit - first > facts[S_OUT_CAP]:
            facts[S_AT_BLOCK] = block
            return NEED_OUTPUT
        facts[S_PRIMARY_BLOCKS] += 1
        met = False
        for row in range(first, limit):
            if not is_gone(source, row, facts[S_NOW]) and _row_meets(state, field, row):
                met = True
                _take(state, number, source, row)
        if equal and not met:
            facts[S_BLOOM_FALSE] += 1
        block += 1
    facts[S_AT_BLOCK] = 0
    return DONE


@hot
def _is_point(facts):
    return (
        facts[S_OPEN] == 0
        and facts[S_LOW_SIZE] == facts[S_HIGH_SIZE]
        and order_bytes(facts[S_LOW], facts[S_LOW_SIZE], facts[S_HIGH], facts[S_HIGH_SIZE]) == 0
    )


@jit
def _oldest(facts):
    """The smallest seq of what was found."""
    count = facts[S_OUT_COUNT]
    seqs = words(facts[S_OUT_SEQS], count)
    oldest = _MOST
    for i in range(count):
        oldest = min(oldest, seqs[i])
    return oldest


@jit
def search(state):
    """Find the records with a value in the range, source by source, newest first.

    Memories are caught up with. With S_K of them, sources without a newer write than these are
    left out. NEED_OUTPUT when there is no room: call it again with more, it goes on where it was.
    """
    facts = words(state, S_WORDS)
    low = prefix_of(facts[S_LOW], facts[S_LOW_SIZE])
    high = prefix_of(facts[S_HIGH], facts[S_HIGH_SIZE])
    equal = _is_point(facts)
    h = hash_bytes(facts[S_LOW], facts[S_LOW_SIZE], facts[S_SEED])
    step = step_of(h)
    for number in range(facts[S_AT_SOURCE], facts[S_SOURCE_COUNT]):
        facts[S_AT_SOURCE] = number
        source = get64(facts[S_SOURCES] + 8 * number)
        if facts[S_AT_BLOCK] == 0 and facts[S_OUT_COUNT] >= facts[S_K]:
            if get64(source + 8 * X_SEQ_HIGH) < _oldest(facts):
                continue
        if facts[S_SKIPPED] and get8(facts[S_SKIPPED] + number):
            continue
        field = get64(source + 8 * X_FIELDS) + 8 * F_WORDS * facts[S_FIELD]
        if get64(field + 8 * F_LISTS) == 0:
            continue
        if get64(field + 8 * F_HIGH) < low or get64(field + 8 * F_LOW) > high:
            continue
        status = DONE
        if get64(source + 8 * X_TABLE_CAP):
            if equal:
                status = _search_chain(state, number, source, field, h)
            else:
                status = _search_memory(state, number, source, field, low, high)
        else:
            status = _search_component(state, number, source, field, low, high, equal, h, step)
        if status != DONE:
            return status
    return DONE


@jit
def count_blocks(state, source, out):
    """How many blocks of a component the range lets pass, and their records: into `out`."""
    facts = words(state, S_WORDS)
    low = prefix_of(facts[S_LOW], facts[S_LOW_SIZE])
    high = prefix_of(facts[S_HIGH], facts[S_HIGH_SIZE])
    equal = _is_point(facts)
    h = hash_bytes(facts[S_LOW], facts[S_LOW_SIZE], facts[S_SEED])
    step = step_of(h)
    field = get64(source + 8 * X_FIELDS) + 8 * F_WORDS * facts[S_FIELD]
    starts = get64(source + 8 * X_STARTS)
    out[0] = 0
    out[1] = 0
    block = 0
    while block < get64(source + 8 * X_BLOCKS):
        if block % GROUP == 0 and not _group_passes(field, block // GROUP, low, high, equal, h):
            block += GROUP
            continue
        if _passes(field, block, low, high, equal, h, step, state):
            out[0] += 1
            out[1] += get64(starts + 8 * block + 8) - get64(starts + 8 * block)
        block += 1
