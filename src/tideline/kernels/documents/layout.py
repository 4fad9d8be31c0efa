"""Where things stand in the memory that kernels of documents share with Python.

A *source* is a set of records: a memory or a component. Both have the same columns, which is
why one kernel searches both:

    key_offsets, keys     record r has the key keys[key_offsets[r] : key_offsets[r + 1]]
    seqs, flags           its place in the order of writes; TOMB for a delete
    doc_offsets, docs     its JSON text

The records of a component are sorted by key, each key once. Those of a memory stand in the order
of arrival, a key as often as it was written; a hash table has the newest of each, and `previous`
leads from a record to the one before it with the same key. Records from X_ROWS on are not there:
a reader has a copy of these words that ends where its view does, while a writer adds more.

A *field* is what a source knows of an embedded index: the values of its records, and zone maps
and blooms of its blocks, which are runs of records, and of groups of GROUP blocks.

    lists                 int32: record r has the values [lists[r], lists[r + 1])
    offsets, values       their bytes (where/keys.py)
    lows, highs           a block's least and greatest value, as prefixes (octets.py)
    bloom_starts, bloom   the bloom of block b is the words [bloom_starts[b], bloom_starts[b + 1])
    group_*               the same of groups; their blooms are lines of 512 bits, as those of keys

A memory has blocks of MEMORY_BLOCK records, zone maps of them and, in place of blooms, chains of
values whose hashes fall on the same head: newest first, the records they belong to beside them.

A *cursor* walks a source in key order when several are merged.

Everything is int64 words unless said otherwise; addresses are absolute.
"""

from __future__ import annotations

# ---- source ---------------------------------------------------------------------
(
    X_ROWS,
    X_KEY_OFFSETS,
    X_KEYS,
    X_SEQS,
    X_FLAGS,  # uint8
    X_DOC_OFFSETS,
    X_DOCS,
    X_TABLE,  # a memory's hash table: 0, or row + 1 + (upper half of the hash) << 32
    X_TABLE_CAP,  # a power of two; 0 for a component
    X_TABLE_USED,
    X_ORDER,  # rows in key order, or 0 when they stand in it
    X_BLOOM,  # of the keys: lines of 512 bits
    X_BLOOM_LINES,
    X_BLOCKS,
    X_STARTS,  # first record of each block, and the end
    X_LOW,  # prefixes of the first and the last key
    X_HIGH,
    X_SEQ_LOW,
    X_SEQ_HIGH,
    X_FIELDS,
    X_FIELD_COUNT,
    X_FENCE,  # of a component: fence.py
    X_COMMON,  # bytes that all its keys begin with
    X_PREVIOUS,  # int32 a record of a memory: the one before with its key, plus 1
) = range(24)
X_WORDS = 24
TOMB = 1

# ---- field ----------------------------------------------------------------------
(
    F_LISTS,  # int32; 0 when this source knows nothing of the field
    F_OFFSETS,
    F_VALUES,
    F_LOWS,
    F_HIGHS,
    F_BLOOM_STARTS,
    F_BLOOM,
    F_PROBES,
    F_GROUP_LOWS,
    F_GROUP_HIGHS,
    F_GROUP_STARTS,  # first line of each group's bloom, and the end
    F_GROUP_BLOOM,
    F_LOW,  # prefixes of the least and the greatest value of all
    F_HIGH,
    F_CHAIN,  # int32 a value of a memory: the value before it on the same head, plus 1
    F_ROW_OF,  # int32 a value of a memory: its record
    F_HEADS,  # int32: the newest value of each, plus 1
    F_HEADS_CAP,  # a power of two
    F_CHAINED,  # records of a memory that are in zones and chains: in its own words only
) = range(19)
F_WORDS = 20
GROUP = 64
MEMORY_BLOCK = 64

# ---- state of a reader --------------------------------------------------------
(
    S_SOURCES,  # address of the addresses of sources, newest first
    S_SOURCE_COUNT,
    S_SEED,
    S_PRIMARY_BLOCKS,  # blocks of records read
    S_INDEX_BLOCKS,  # blocks of stand-alone indexes read
    S_BLOOM_CHECKS,
    S_BLOOM_FALSE,  # a bloom said yes and was wrong
    S_ZONE_CHECKS,
    S_KEY,  # one key to find
    S_KEY_SIZE,
    S_REPLY,  # where its document goes
    S_REPLY_CAP,
    S_FOUND,  # address of the document
    S_FOUND_SIZE,
    S_FIELD,  # number of the field to search
    S_LOW,  # range of its values
    S_LOW_SIZE,
    S_HIGH,
    S_HIGH_SIZE,
    S_OPEN,  # LOW_OPEN, HIGH_OPEN
    S_K,  # as many as are wanted
    S_SKIPPED,  # uint8 a source: 1 when its filter says that nothing in it is wanted
    S_OUT_SOURCES,  # where what was found stands
    S_OUT_ROWS,
    S_OUT_SEQS,
    S_OUT_CAP,
    S_OUT_COUNT,
    S_AT_SOURCE,  # where to go on
    S_AT_BLOCK,
    S_ENDS,  # where each document that is delivered ends in the reply
    S_LIMIT,  # the first seq that is not in the view
) = range(31)
S_WORDS = 32
LOW_OPEN, HIGH_OPEN = 1, 2
DONE, NEED_OUTPUT = 0, 1

# ---- cursor -----------------------------------------------------------------------
M_SOURCE, M_POS, M_LIMIT, M_PREFIX = range(4)
M_WORDS = 4
