"""Records by key: the table of a memory, and the newest version of a key over all sources.

Sources come newest first: memories, then components. A key is looked for in one after the other;
the first that has it has the newest version. A memory says so by its hash table; a component by
the range of its keys, then its bloom, and only then by a search among its keys.

A writer may be adding to the first memory meanwhile. Its table then leads to rows that the reader's
view does not have (X_ROWS and up); from those, `previous` leads back to the newest that it has. Of
a row that the view does not have nothing but that word is read. The writer stores it, and the row,
before it stores the row into the table (barrier.py).

Which candidates of an index count: candidates.py.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.documents.barrier import loads_done, stores_done
from tideline.kernels.documents.fence import row_key, row_of
from tideline.kernels.documents.layout import (
    EXPIRES,
    S_BLOOM_CHECKS,
    S_BLOOM_FALSE,
    S_ENDS,
    S_FOUND,
    S_FOUND_SIZE,
    S_KEY,
    S_KEY_SIZE,
    S_NOW,
    S_OUT_ROWS,
    S_OUT_SOURCES,
    S_PRIMARY_BLOCKS,
    S_REPLY,
    S_REPLY_CAP,
    S_SEED,
    S_SOURCE_COUNT,
    S_SOURCES,
    S_UNTIL,
    S_WORDS,
    TOMB,
    X_BLOOM,
    X_BLOOM_LINES,
    X_DOC_OFFSETS,
    X_DOCS,
    X_FLAGS,
    X_HIGH,
    X_LATER,
    X_LOW,
    X_PREVIOUS,
    X_ROWS,
    X_SEQS,
    X_TABLE,
    X_TABLE_CAP,
    X_TABLE_USED,
    X_UNTILS,
    X_WORDS,
)  # fmt: skip
from tideline.kernels.documents.octets import (
    copy_bytes,
    hash_bytes,
    prefix_of,
    same_bytes,
)  # fmt: skip
from tideline.kernels.lanes import get8, get32, get64, high_product, hot
from tideline.kernels.views import halves, octets, prefetch, words

__all__ = [
    "bloom_bits", "bloom_line", "copy_docs", "copy_keys", "deliver", "find_many", "find_one",
    "find_row", "in_bloom", "in_view", "insert", "is_gone", "measure_rows", "newest_rows",
    "replaced", "row_key", "until_of",
]  # fmt: skip

LOW32 = 0xFFFFFFFF
_P2 = -4417276706812531889
_OPEN, _COMMA, _CLOSE = 91, 44, 93  # as in JSON
_AHEAD = 16  # records that are copied are loaded so many before
_LOADED = 1024  # bytes of a document that are loaded ahead; the processor goes on by itself


# ---- blooms of keys -------------------------------------------------------------


@hot
def bloom_line(h, lines):
    """Which line of 512 bits a hash falls in."""
    return np.int64(high_product(np.uint64(h), np.uint64(lines)))


@hot
def bloom_bits(h):
    """Seven numbers of nine bits each."""
    g = (h ^ ((h >> 31) & 0x1FFFFFFFF)) * _P2
    return g ^ ((g >> 33) & 0x7FFFFFFF)


@jit
def in_bloom(bloom, lines, h):
    """Whether a hash may be in a bloom."""
    line = bloom + 64 * bloom_line(h, lines)
    g = bloom_bits(h)
    for _ in range(7):
        if not (get64(line + ((g >> 6) & 7) * 8) >> (g & 63)) & 1:
            return False
        g >>= 9
    return True


# ---- one source -----------------------------------------------------------------


@hot
def in_view(source, row):
    """The newest version of a row's key that a memory has for this reader, or -1."""
    rows = get64(source + 8 * X_ROWS)
    while row >= rows:
        loads_done()
        row = get32(get64(source + 8 * X_PREVIOUS) + 4 * row) - 1
    return row


@hot
def until_of(source, row):
    """The time at which a record expires; 0 when it does not."""
    untils = get64(source + 8 * X_UNTILS)
    if untils and get8(get64(source + 8 * X_FLAGS) + row) & EXPIRES:
        return get64(untils + 8 * row)
    return 0


@hot
def is_gone(source, row, now):
    """Whether a record is a delete, or has expired by a time; at time 0 none has."""
    flags = get8(get64(source + 8 * X_FLAGS) + row)
    if flags == 0:
        return False
    if flags & TOMB:
        return True
    until = until_of(source, row)
    return until != 0 and until <= now


@jit
def find_row(state, source, key, size, h, prefix):
    """The row of the newest version of a key in one source, or -1."""
    cap = get64(source + 8 * X_TABLE_CAP)
    if cap:
        table = get64(source + 8 * X_TABLE)
        tag = (h >> 32) & LOW32
        i = h & (cap - 1)
        while True:
            entry = get64(table + 8 * i)
            if entry == 0:
                return -1
            if (entry >> 32) & LOW32 == tag:
                row = in_view(source, (entry & LOW32) - 1)
                if row >= 0:
                    there, there_size = row_key(source, row)
                    if there_size == size and same_bytes(there, key, size):
                        return row
            i = (i + 1) & (cap - 1)
    if prefix < get64(source + 8 * X_LOW) or prefix > get64(source + 8 * X_HIGH):
        return -1
    count = words(state, S_WORDS)
    count[S_BLOOM_CHECKS] += 1
    if not in_bloom(get64(source + 8 * X_BLOOM), get64(source + 8 * X_BLOOM_LINES), h):
        return -1
    count[S_PRIMARY_BLOCKS] += 1
    row = row_of(source, key, size)
    if row >= 0:
        return row
    count[S_BLOOM_FALSE] += 1
    return -1


@jit
def insert(source, first, limit, seed):
    """Put the rows [first, limit) into the table of a memory; it has room for them.

    Called again with the same rows, it changes nothing. `later` is 0 where no row was yet.
    """
    facts = words(source, X_WORDS)
    cap = facts[X_TABLE_CAP]
    table = words(facts[X_TABLE], cap)
    previous, later = halves(facts[X_PREVIOUS], limit), halves(facts[X_LATER], limit)
    low, high = facts[X_LOW], facts[X_HIGH]
    used = facts[X_TABLE_USED]
    for row in range(first, limit):
        key, size = row_key(source, row)
        prefix = prefix_of(key, size)
        low, high = min(low, prefix), max(high, prefix)
        h = hash_bytes(key, size, seed)
        tag = (h >> 32) & LOW32
        entry = tag << 32 | (row + 1)
        i = h & (cap - 1)
        before = 0
        while True:
            there = table[i]
            if there == 0:
                used += 1
                break
            if (there >> 32) & LOW32 == tag:
                other, other_size = row_key(source, (there & LOW32) - 1)
                if other_size == size and same_bytes(other, key, size):
                    before = there & LOW32
                    break
            i = (i + 1) & (cap - 1)
        if before > row:  # it is there already
            continue
        previous[row] = before
        if before:
            later[before - 1] = row + 1
        stores_done()
        table[i] = entry
    facts[X_TABLE_USED] = used
    facts[X_LOW], facts[X_HIGH] = low, high


@jit
def newest_rows(source, out):
    """The rows of a memory that are the newest of their key, in no order. Returns how many.

    `out` has room for X_ROWS of them.
    """
    cap = get64(source + 8 * X_TABLE_CAP)
    table = words(get64(source + 8 * X_TABLE), cap)
    count = 0
    for i in range(cap):
        row = in_view(source, (table[i] & LOW32) - 1)
        if row >= 0:
            out[count] = row
            count += 1
    return count


# ---- all sources ------------------------------------------------------------------


@jit
def find_one(state):
    """Find the newest version of the key at S_KEY; its document goes to S_REPLY.

    Returns the size of the document, or -1 when there is none. A document that is too large
    for the reply stays where S_FOUND says.
    """
    facts = words(state, S_WORDS)
    key, size = facts[S_KEY], facts[S_KEY_SIZE]
    h = hash_bytes(key, size, facts[S_SEED])
    prefix = prefix_of(key, size)
    sources = facts[S_SOURCES]
    for number in range(facts[S_SOURCE_COUNT]):
        source = get64(sources + 8 * number)
        row = find_row(state, source, key, size, h, prefix)
        if row >= 0:
            if is_gone(source, row, facts[S_NOW]):
                return -1
            facts[S_UNTIL] = until_of(source, row)
            at = get64(source + 8 * X_DOC_OFFSETS) + 8 * row
            start = get64(at)
            length = get64(at + 8) - start
            facts[S_FOUND] = get64(source + 8 * X_DOCS) + start
            facts[S_FOUND_SIZE] = length
            if length <= facts[S_REPLY_CAP]:
                copy_bytes(facts[S_REPLY], facts[S_FOUND], length)
            return length
    return -1


@jit
def find_many(state, offsets_at, base, count, out_sources, out_rows):
    """For each key the source and row of its newest version; source -1 when there is none."""
    facts = words(state, S_WORDS)
    offsets = words(offsets_at, count + 1)
    sources = facts[S_SOURCES]
    for i in range(count):
        key = base + offsets[i]
        size = offsets[i + 1] - offsets[i]
        h = hash_bytes(key, size, facts[S_SEED])
        prefix = prefix_of(key, size)
        out_sources[i] = -1
        for number in range(facts[S_SOURCE_COUNT]):
            source = get64(sources + 8 * number)
            row = find_row(state, source, key, size, h, prefix)
            if row >= 0:
                if not is_gone(source, row, facts[S_NOW]):
                    out_sources[i] = number
                    out_rows[i] = row
                break


@jit
def replaced(state, upto, key, size):
    """Whether a source newer than number `upto` has the key."""
    facts = words(state, S_WORDS)
    h = hash_bytes(key, size, facts[S_SEED])
    prefix = prefix_of(key, size)
    for number in range(upto):
        source = get64(facts[S_SOURCES] + 8 * number)
        if find_row(state, source, key, size, h, prefix) >= 0:
            return True
    return False


# ---- records out -------------------------------------------------------------------


@jit
def deliver(state, count, listed):
    """Copy the documents of the first `count` of what was found to S_REPLY.

    `listed` is 1 for one JSON array: the next document begins behind a comma; 0 for documents and
    nothing else. S_ENDS gets where each ends. Returns the bytes of all, which may be more than
    there is room for: then nothing is copied.
    """
    facts = words(state, S_WORDS)
    numbers = words(facts[S_OUT_SOURCES], count)
    rows = words(facts[S_OUT_ROWS], count)
    ends = words(facts[S_ENDS], count)
    end = 0
    for i in range(count):
        source = get64(facts[S_SOURCES] + 8 * numbers[i])
        at = get64(source + 8 * X_DOC_OFFSETS) + 8 * rows[i]
        start, size = get64(at), get64(at + 8) - get64(at)
        for line in range(min(size, _LOADED) // 64 + 1):
            prefetch(get64(source + 8 * X_DOCS) + start + 64 * line)
        end += listed + size
        ends[i] = end
    if end + listed > facts[S_REPLY_CAP]:
        return end + listed
    reply = octets(facts[S_REPLY], end + listed)
    start = 0
    for i in range(count):
        source = get64(facts[S_SOURCES] + 8 * numbers[i])
        doc = get64(get64(source + 8 * X_DOC_OFFSETS) + 8 * rows[i])
        if listed:
            reply[start] = _COMMA
            start += 1
        copy_bytes(facts[S_REPLY] + start, get64(source + 8 * X_DOCS) + doc, ends[i] - start)
        start = ends[i]
    if listed:
        reply[0] = _OPEN
        reply[end] = _CLOSE
    return end + listed


@jit
def measure_rows(sources, numbers, rows, seqs, key_offsets, doc_offsets):
    """Seqs of records, and where their keys and documents will stand when copied."""
    key_offsets[0] = 0
    doc_offsets[0] = 0
    for i in range(len(rows)):
        source = sources[numbers[i]]
        row = rows[i]
        seqs[i] = get64(get64(source + 8 * X_SEQS) + 8 * row)
        _, size = row_key(source, row)
        key_offsets[i + 1] = key_offsets[i] + size
        at = get64(source + 8 * X_DOC_OFFSETS) + 8 * row
        doc_offsets[i + 1] = doc_offsets[i] + get64(at + 8) - get64(at)


@jit
def copy_keys(sources, numbers, rows, key_offsets, keys, flags):
    """Copy keys and flags to where `measure_rows` said."""
    keys_at = np.int64(keys.ctypes.data)
    count = len(rows)
    for i in range(count):
        later = min(i + _AHEAD, count - 1)
        prefetch(row_key(sources[numbers[later]], rows[later])[0])
        source = sources[numbers[i]]
        key, size = row_key(source, rows[i])
        copy_bytes(keys_at + key_offsets[i], key, size)
        flags[i] = get8(get64(source + 8 * X_FLAGS) + rows[i])


@jit
def copy_docs(sources, numbers, rows, doc_offsets, first, limit, docs):
    """Copy the documents of the records [first, limit), one after the other.

    Runs of records that stand one after the other in one source are copied at once.
    """
    at = np.int64(docs.ctypes.data)
    i = first
    while i < limit:
        source = sources[numbers[i]]
        run = i + 1
        while run < limit and numbers[run] == numbers[i] and rows[run] == rows[run - 1] + 1:
            run += 1
        later = min(run + _AHEAD, limit - 1)
        other = sources[numbers[later]]
        doc = get64(get64(other + 8 * X_DOC_OFFSETS) + 8 * rows[later])
        for line in range(min(doc_offsets[later + 1] - doc_offsets[later], _LOADED) // 64 + 1):
            prefetch(get64(other + 8 * X_DOCS) + doc + 64 * line)
        start = get64(get64(source + 8 * X_DOC_OFFSETS) + 8 * rows[i])
        size = doc_offsets[run] - doc_offsets[i]
        copy_bytes(at, get64(source + 8 * X_DOCS) + start, size)
        at += size
        i = run
