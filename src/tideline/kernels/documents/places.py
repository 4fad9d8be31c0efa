"""Places: what a search of an index of entries goes through, newest first.

A *place* is a memory or a component, as a row of P_* words. A component's rows are sorted
by value; a *fence* of the prefixes of every STRIDE-th value leads to the few rows a value
can be among. Beside the fence stands, for composites, the largest seq of the same rows.

Reads only; safe from any thread while the components are open.
"""

from __future__ import annotations

from tideline.kernels import inline, jit
from tideline.kernels.documents.octets import (
    first_not_below,
    hash_bytes,
    order_bytes,
    prefix_of,
    same_bytes,
)
from tideline.kernels.views import words
from tideline.kernels.words import Layout

PLACE = Layout("place", "P_", "a memory or a component of entries", globals())
P_MEMORY = PLACE.address("state of a memory; 0: a component")
P_PARTIAL = PLACE.word("eager: 1 when older places may have entries of a value that is in here")
P_ROWS = PLACE.count("rows: values, or entries of a composite")
P_VALUE_OFFSETS = PLACE.address("where each value begins")
P_VALUES = PLACE.address("bytes of the values")
P_LISTS = PLACE.address("offsets of the lists; 0: one entry a row (composite)")
P_COUNT = PLACE.count("entries")
P_SEQS = PLACE.address("seqs of the entries")
P_KEY_OFFSETS = PLACE.address("where each key begins")
P_KEYS = PLACE.address("bytes of the keys")
P_FENCE = PLACE.address("prefixes of the values of every STRIDE-th row")
P_FENCES = PLACE.count("how many")
P_NEWEST = PLACE.address("the largest seqs of STRIDE rows each (composite)")
P_BLOOM = PLACE.address("bloom of the values")
P_BLOOM_BLOCKS = PLACE.count("its blocks; 0: there is none")
P_WORDS = PLACE.end(spare=1)
STRIDE = 64
BLOOM_SEED = 0x7469646C696E65
BLOOM_BITS = 6  # set for a value
SPREAD = -4417276706812531889
LOW32 = (1 << 32) - 1


@inline
def place_at(places, number):
    return words(places + number * P_WORDS * 8, P_WORDS)


@jit
def first_row(p, at, size, wanted, beyond):
    """The first row whose value is not below the one at `at`, or with `beyond` is above it.

    `wanted` is the prefix of that value.
    """
    fence = words(p[P_FENCE], p[P_FENCES])
    low = first_not_below(fence, 0, p[P_FENCES], wanted)
    row = max(low - 1, 0) * STRIDE  # rows before it have smaller prefixes
    high = p[P_FENCES]
    while low < high:
        middle = (low + high) >> 1
        if fence[middle] <= wanted:
            low = middle + 1
        else:
            high = middle
    limit = min(low * STRIDE, p[P_ROWS])
    offsets = words(p[P_VALUE_OFFSETS], p[P_ROWS] + 1)
    while row < limit:
        middle = (row + limit) >> 1
        own, own_size = p[P_VALUES] + offsets[middle], offsets[middle + 1] - offsets[middle]
        have = prefix_of(own, own_size)
        if have != wanted:
            below = have < wanted
        else:
            side = order_bytes(own, own_size, at, size)
            below = side < 0 or (side == 0 and beyond)
        if below:
            row = middle + 1
        else:
            limit = middle
    return row


@jit
def find_row(p, at, size):
    """The row that has just this value, or -1; -2 when the bloom filter says there is none."""
    if not may_have(p, at, size):
        return -2
    row = first_row(p, at, size, prefix_of(at, size), False)
    if row < p[P_ROWS]:
        offsets = words(p[P_VALUE_OFFSETS], p[P_ROWS] + 1)
        if offsets[row + 1] - offsets[row] == size and same_bytes(
            p[P_VALUES] + offsets[row], at, size
        ):
            return row
    return -1


@jit
def first_below(seqs, start, limit, bound):
    """The first of seqs[start:limit), which fall, that is below a bound."""
    while start < limit:
        middle = (start + limit) >> 1
        if seqs[middle] >= bound:
            start = middle + 1
        else:
            limit = middle
    return start


# ---- bloom filters: blocks of 512 bits, BLOOM_BITS of them for a value -----------------------


@inline
def bloom_bit(hashed, n):
    """The n-th bit of a value inside its block; the block comes from the hash's upper half."""
    return ((hashed * SPREAD) >> (9 * n + 8)) & 511


@inline
def bloom_block(hashed, blocks):
    return (((hashed >> 32) & LOW32) * blocks) >> 32


@jit
def may_have(p, at, size):
    """Whether a component can have a value, as its bloom filter says."""
    blocks = p[P_BLOOM_BLOCKS]
    if blocks == 0:
        return True
    bits = words(p[P_BLOOM], blocks * 8)
    hashed = hash_bytes(at, size, BLOOM_SEED)
    base = bloom_block(hashed, blocks) * 8
    for n in range(BLOOM_BITS):
        bit = bloom_bit(hashed, n)
        if (bits[base + (bit >> 6)] >> (bit & 63)) & 1 == 0:
            return False
    return True


@jit
def make_bloom(value_at, value_sizes, count, bits_at, blocks):
    """Set the bits of `count` values."""
    addresses = words(value_at, count)
    sizes = words(value_sizes, count)
    bits = words(bits_at, blocks * 8)
    for i in range(count):
        hashed = hash_bytes(addresses[i], sizes[i], BLOOM_SEED)
        base = bloom_block(hashed, blocks) * 8
        for n in range(BLOOM_BITS):
            bit = bloom_bit(hashed, n)
            bits[base + (bit >> 6)] |= 1 << (bit & 63)


# ---- when a component is opened and checked --------------------------------------------------


@jit
def make_fence(address):
    """Fill the fence of a component and, of composites, the largest seqs."""
    p = place_at(address, 0)
    fence = words(p[P_FENCE], p[P_FENCES])
    offsets = words(p[P_VALUE_OFFSETS], p[P_ROWS] + 1)
    for i in range(p[P_FENCES]):
        at = offsets[i * STRIDE]
        fence[i] = prefix_of(p[P_VALUES] + at, offsets[i * STRIDE + 1] - at)
    if p[P_LISTS] == 0:
        newest = words(p[P_NEWEST], p[P_FENCES])
        seqs = words(p[P_SEQS], p[P_COUNT])
        for i in range(p[P_FENCES]):
            high = seqs[i * STRIDE]
            for j in range(i * STRIDE, min((i + 1) * STRIDE, p[P_COUNT])):
                high = max(high, seqs[j])
            newest[i] = high


@jit
def key_order(p, row, q, other):
    """How the key of a row of one component of composites compares with one of another."""
    mine = words(p[P_KEY_OFFSETS], p[P_COUNT] + 1)
    its = words(q[P_KEY_OFFSETS], q[P_COUNT] + 1)
    return order_bytes(p[P_KEYS] + mine[row], mine[row + 1] - mine[row],
                       q[P_KEYS] + its[other], its[other + 1] - its[other])  # fmt: skip


@jit
def check_place(address):
    """What is wrong with the order of a component: 0 nothing, 1 values, 2 lists, 3 seqs, 4 keys."""
    p = place_at(address, 0)
    rows, count = p[P_ROWS], p[P_COUNT]
    offsets = words(p[P_VALUE_OFFSETS], rows + 1)
    keys = words(p[P_KEY_OFFSETS], count + 1)
    seqs = words(p[P_SEQS], count)
    lists = words(p[P_LISTS], rows + 1 if p[P_LISTS] != 0 else 0)
    for row in range(rows):
        if offsets[row + 1] < offsets[row]:
            return 1
    for i in range(count):
        if keys[i + 1] < keys[i]:
            return 4
    for row in range(1, rows):
        before, at = offsets[row - 1], offsets[row]
        side = order_bytes(
            p[P_VALUES] + before, at - before, p[P_VALUES] + at, offsets[row + 1] - at
        )
        if side > 0 or (side == 0 and p[P_LISTS] != 0):
            return 1
        if side == 0 and key_order(p, row - 1, p, row) >= 0:
            return 4
    if p[P_LISTS] != 0:
        if lists[0] != 0 or lists[rows] != count:
            return 2
        for row in range(rows):
            if lists[row + 1] <= lists[row]:
                return 2
            for i in range(lists[row] + 1, lists[row + 1]):
                if seqs[i] >= seqs[i - 1]:
                    return 3
    return 0
