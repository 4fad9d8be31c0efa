"""Entries of a stand-alone index in memory: a value leads to (seq, primary key), newest first.

    memory   state words M_*: addresses, capacities and counters of the parts
    table    open addressing: 0 empty | high half of the hash of a value + number + 1
    value    V_* words: 0 prefix | 1 where its bytes are | 2 length + entries << 32 | 3 newest entry
    entry    N_* words: 0 seq | 1 where its key is + length << 48 | 2 next older entry + value << 32
    arena    the bytes of values (once each) and keys

Entries in V_HEAD and N_LINK are numbers + 1, so that 0 is the end of a chain.

Invariants:
1. The chain of a value is in falling order of seq. Seqs of the calls of `add` rise.
2. Unless some were borrowed (M_BORROWED), entries as a whole are in rising order of seq.
3. Eager: a value that is new here begins with a copy of what older places have of it, so its
   chain is all there is of it.

One writer at a time, while readers read. A reader has a copy of the state words as they were at
some moment between two calls of `add` (entrymemory.py), and passes over what came later:

- a value with a number from M_VALUE_COUNT on is not there; all others have their words and bytes;
- of what changes under it, V_HEAD is stored after the entry it leads to (barrier.py), and entries
  that came later have a seq that its view has not; V_SIZE tells at least as many as there are;
- a part that grows is replaced by a larger copy, and the old one is not written any more. VALUES is
  replaced whenever ENTRIES is: so V_HEAD never leads out of the entries beside it.
"""

from __future__ import annotations

from tideline.kernels import inline, jit
from tideline.kernels.documents.barrier import loads_done, stores_done
from tideline.kernels.documents.octets import copy_bytes, hash_bytes, prefix_of, same_bytes
from tideline.kernels.documents.places import (
    P_COUNT,
    P_KEY_OFFSETS,
    P_KEYS,
    P_LISTS,
    P_MEMORY,
    P_PARTIAL,
    P_ROWS,
    P_SEQS,
    find_row,
    first_below,
    place_at,
)
from tideline.kernels.views import prefetch, words
from tideline.kernels.words import Layout

AHEAD = 32  # hashes of values that a running call keeps
MEMORY = Layout("memory of entries", "M_", "a stand-alone index in memory", globals())
M_TABLE = MEMORY.address("open addressing: 0, or high half of the hash of a value + number + 1")
M_TABLE_CAP = MEMORY.count("there is room for, a power of two")
M_VALUES = MEMORY.address("V_WORDS words for each value")
M_VALUE_CAP = MEMORY.count("values there is room for")
M_ENTRIES = MEMORY.address("N_WORDS words for each entry")
M_ENTRY_CAP = MEMORY.count("entries there is room for")
M_ARENA = MEMORY.address("bytes of values (once each) and keys")
M_ARENA_CAP = MEMORY.count("bytes there is room for")
M_SEED = MEMORY.word("seed of the hashes of values")
M_VALUE_COUNT = MEMORY.count("values")
M_ENTRY_COUNT = MEMORY.count("entries")
M_BORROWED = MEMORY.count("entries copied from older places")
M_ORDER = MEMORY.address("of a reader: numbers of the first M_ORDERED values in order")
M_ORDERED = MEMORY.count("how many of them are in order")
M_ARENA_USED = MEMORY.count("of the writer, this and the rest: bytes")
M_LOW_SEQ = MEMORY.word("the smallest seq in here")
M_HIGH_SEQ = MEMORY.word("the largest seq in here")
M_NEED_ENTRIES = MEMORY.count("out: entries that a call that stopped half way wants room for")
M_NEED_BYTES = MEMORY.count("out: bytes, likewise")
MEMORY.also("unused", "free")
M_HASHES = MEMORY.word("the hashes of the values of a running call: AHEAD words")
M_WORDS = MEMORY.end(spare=AHEAD - 1)
M_PARTS = 8  # words of the parts: where each is, and how much fits

VALUE = Layout("value", "V_", "a value of a memory of entries", globals())
V_PREFIX = VALUE.word("prefix of its bytes")
V_AT = VALUE.word("where its bytes are in the arena")
V_SIZE = VALUE.word("length + entries << 32")
V_HEAD = VALUE.word("newest entry + 1")
V_WORDS = VALUE.end()
NODE = Layout("entry", "N_", "an entry of a memory of entries", globals())
N_SEQ = NODE.word("seq")
N_KEY = NODE.word("where its key is in the arena + length << 48")
N_LINK = NODE.word("next older entry + 1, or 0, + value << 32")
N_WORDS = NODE.end()
LOW32 = (1 << 32) - 1
LOW48 = (1 << 48) - 1


@inline
def memory(address):
    return words(address, M_WORDS)


@inline
def table_of(m):
    return words(m[M_TABLE], m[M_TABLE_CAP])


@inline
def values_of(m):
    return words(m[M_VALUES], m[M_VALUE_CAP] * V_WORDS)


@inline
def entries_of(m):
    return words(m[M_ENTRIES], m[M_ENTRY_CAP] * N_WORDS)


@jit
def find_value(m, at, size, hashed):
    """The number of a value, or -1 - (free place in the table)."""
    table = table_of(m)
    values = values_of(m)
    mask = m[M_TABLE_CAP] - 1
    slot = hashed & mask
    while True:
        word = table[slot]
        if word == 0:
            return -1 - slot
        if (word ^ hashed) >> 32 == 0:
            number = (word & LOW32) - 1
            base = number * V_WORDS
            if (
                number < m[M_VALUE_COUNT]
                and values[base + V_SIZE] & LOW32 == size
                and same_bytes(m[M_ARENA] + values[base + V_AT], at, size)
            ):
                return number
        slot = (slot + 1) & mask


@jit
def has_room(m, entries, size):
    """Whether so many entries of one value and so many bytes fit; else says what is needed."""
    if (
        m[M_ENTRY_COUNT] + entries <= m[M_ENTRY_CAP]
        and m[M_VALUE_COUNT] < m[M_VALUE_CAP]
        and m[M_VALUE_COUNT] * 8 < m[M_TABLE_CAP] * 5
        and m[M_ARENA_USED] + size <= m[M_ARENA_CAP]
    ):
        return True
    m[M_NEED_ENTRIES] = entries
    m[M_NEED_BYTES] = size
    return False


@jit
def put_bytes(m, at, size):
    """Copy bytes into the arena; where they are in it."""
    where = m[M_ARENA_USED]
    copy_bytes(m[M_ARENA] + where, at, size)
    m[M_ARENA_USED] = where + size
    return where


@jit
def make_value(m, at, size, hashed, slot):
    """A new value without entries; its number."""
    number = m[M_VALUE_COUNT]
    m[M_VALUE_COUNT] = number + 1
    table_of(m)[slot] = (hashed & ~LOW32) | (number + 1)
    values = values_of(m)
    base = number * V_WORDS
    values[base + V_PREFIX] = prefix_of(at, size)
    values[base + V_AT] = put_bytes(m, at, size)
    values[base + V_SIZE] = size
    values[base + V_HEAD] = 0
    return number


@jit
def put_entry(m, number, entry, seq, older, at, size):
    """Write an entry of a value; `older` is the number + 1 of the next older one."""
    entries = entries_of(m)
    base = entry * N_WORDS
    entries[base + N_SEQ] = seq
    entries[base + N_KEY] = put_bytes(m, at, size) | (size << 48)
    entries[base + N_LINK] = older | (number << 32)


@jit
def add(address, value_offsets, value_data, count, key_offsets, key_data, row_count,
        seqs_at, first_seq, rows_at, start, older_at, older_count):  # fmt: skip
    """Add entries [start, count): value i with the key and the seq of row rows[i].

    Without rows, entry i is of row i; without seqs, row i has seq first_seq + i.

    Returns how many are done: fewer than `count` when room must be made first (M_NEED_*);
    -1 when the seqs do not rise, and then nothing was done. With older places (eager) a value
    that is new here begins with what they have of it.
    """
    m = memory(address)
    offsets = words(value_offsets, count + 1)
    keys = words(key_offsets, row_count + 1)
    seqs = words(seqs_at, row_count if seqs_at != 0 else 0)
    rows = words(rows_at, count if rows_at != 0 else 0)
    hashes = words(address + M_HASHES * 8, AHEAD)
    values = values_of(m)
    if start == 0:
        last = m[M_HIGH_SEQ]
        for i in range(count):
            row = rows[i] if rows_at != 0 else i
            seq = seqs[row] if seqs_at != 0 else first_seq + row
            if seq < last:
                return -1
            last = seq
    done = start
    while done < count:
        block = min(AHEAD, count - done)
        for j in range(block):
            at = offsets[done + j]
            hashed = hash_bytes(value_data + at, offsets[done + j + 1] - at, m[M_SEED])
            hashes[j] = hashed
            prefetch(m[M_TABLE] + (hashed & (m[M_TABLE_CAP] - 1)) * 8)
        for j in range(block):
            at, size = value_data + offsets[done], offsets[done + 1] - offsets[done]
            row = rows[done] if rows_at != 0 else done
            seq = seqs[row] if seqs_at != 0 else first_seq + row
            key_size = keys[row + 1] - keys[row]
            if not has_room(m, 1, size + key_size):
                return done
            number = find_value(m, at, size, hashes[j])
            if number < 0:
                slot = -1 - number
                if older_count == 0:
                    number = make_value(m, at, size, hashes[j], slot)
                else:
                    number = borrow(m, at, size, hashes[j], slot, key_size, older_at, older_count)
                    if number < 0:
                        return done
            entry = m[M_ENTRY_COUNT]
            base = number * V_WORDS
            put_entry(m, number, entry, seq, values[base + V_HEAD],
                      key_data + keys[row], key_size)  # fmt: skip
            stores_done()
            values[base + V_HEAD] = entry + 1
            values[base + V_SIZE] += 1 << 32
            m[M_ENTRY_COUNT] = entry + 1
            m[M_HIGH_SEQ] = seq
            m[M_LOW_SEQ] = min(m[M_LOW_SEQ], seq)
            done += 1
    return done


@jit
def rehash(address):
    """Fill an empty table from the values."""
    m = memory(address)
    table = table_of(m)
    values = values_of(m)
    mask = m[M_TABLE_CAP] - 1
    for number in range(m[M_VALUE_COUNT]):
        base = number * V_WORDS
        hashed = hash_bytes(
            m[M_ARENA] + values[base + V_AT], values[base + V_SIZE] & LOW32, m[M_SEED]
        )
        slot = hashed & mask
        while table[slot] != 0:
            slot = (slot + 1) & mask
        table[slot] = (hashed & ~LOW32) | (number + 1)


# ---- eager -----------------------------------------------------------------------------------


@jit
def borrow(m, at, size, hashed, slot, more, older_at, older_count):
    """Make a value that begins with what older places have of it; -1: no room.

    `more` bytes must find room after it.
    """
    total, total_bytes = list_older(m, -1, at, size, hashed, older_at, older_count, 0)
    if not has_room(m, total + 1, size + more + total_bytes):
        return -1
    number = make_value(m, at, size, hashed, slot)
    if total > 0:
        list_older(m, number, at, size, hashed, older_at, older_count, total)
        values = values_of(m)
        values[number * V_WORDS + V_HEAD] = m[M_ENTRY_COUNT] + total
        values[number * V_WORDS + V_SIZE] += total << 32
        m[M_ENTRY_COUNT] += total
        m[M_BORROWED] += total
    return number


@jit
def list_older(m, number, at, size, hashed, older_at, older_count, total):
    """Go through what older places have of a value, newest first, up to one that has it all.

    Returns how many entries and bytes of keys; with a number of a value of `m`, the entries
    are written as its oldest `total`. Of two lists the older adds what is older than all of
    the newer one: that one began with the rest of it, or has left it out as superseded.
    """
    base = m[M_ENTRY_COUNT]
    count = 0
    key_bytes = 0
    last = (1 << 63) - 1
    for n in range(older_count):
        p = place_at(older_at, n)
        if p[P_MEMORY] != 0:
            other = memory(p[P_MEMORY])
            found = find_value(other, at, size, hashed)
            if found < 0:
                continue
            entries = entries_of(other)
            link = values_of(other)[found * V_WORDS + V_HEAD]
            loads_done()
            while link != 0:
                entry = (link - 1) * N_WORDS
                link = entries[entry + N_LINK] & LOW32
                if entries[entry + N_SEQ] < last:
                    last = entries[entry + N_SEQ]
                    word = entries[entry + N_KEY]
                    if number >= 0:
                        place = total - 1 - count
                        put_entry(m, number, base + place, last, base + place if place > 0 else 0,
                                  other[M_ARENA] + (word & LOW48), word >> 48)  # fmt: skip
                    count += 1
                    key_bytes += word >> 48
        else:
            row = find_row(p, at, size)
            if row < 0:
                continue
            lists = words(p[P_LISTS], p[P_ROWS] + 1)
            offsets = words(p[P_KEY_OFFSETS], p[P_COUNT] + 1)
            seqs = words(p[P_SEQS], p[P_COUNT])
            first = first_below(seqs, lists[row], lists[row + 1], last)
            for i in range(first, lists[row + 1]):
                last = seqs[i]
                if number >= 0:
                    place = total - 1 - count
                    put_entry(m, number, base + place, last, base + place if place > 0 else 0,
                              p[P_KEYS] + offsets[i], offsets[i + 1] - offsets[i])  # fmt: skip
                count += 1
                key_bytes += offsets[i + 1] - offsets[i]
        if p[P_PARTIAL] == 0:
            break
    if number >= 0:
        m[M_LOW_SEQ] = min(m[M_LOW_SEQ], last)
    return count, key_bytes
