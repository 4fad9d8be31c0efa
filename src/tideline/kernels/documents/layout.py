"""Where things stand in the memory that kernels of documents share with Python.

A *source* is a set of records: a memory or a component. Both have the same columns, which is
why one kernel searches both:

    key_offsets, keys     record r has the key keys[key_offsets[r] : key_offsets[r + 1]]
    seqs, flags           its place in the order of writes; TOMB for a delete
    doc_offsets, docs     its JSON text

The records of a component are sorted by key, each key once. Those of a memory stand in the order
of arrival, a key as often as it was written; a hash table has the newest of each, `previous` leads
from a record to the one before it with the same key, and `later` to the one after it. Records from
X_ROWS on are not there: a reader has a copy of these words that ends where its view does, while a
writer adds more.

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

from tideline.kernels.words import Layout

# ---- source ---------------------------------------------------------------------
SOURCE = Layout("source", "X_", "a set of records: a memory or a component", globals())
X_ROWS = SOURCE.count("records")
X_KEY_OFFSETS = SOURCE.address("where each key begins")
X_KEYS = SOURCE.address("bytes of the keys")
X_SEQS = SOURCE.address("seqs")
X_FLAGS = SOURCE.address("uint8: TOMB for a delete, EXPIRES for one that has a time in X_UNTILS")
X_DOC_OFFSETS = SOURCE.address("where each document begins")
X_DOCS = SOURCE.address("bytes of the documents")
X_TABLE = SOURCE.address("of a memory: hash table, 0 or row + 1 + (upper half of the hash) << 32")
X_TABLE_CAP = SOURCE.count("entries there is room for, a power of two; 0 for a component")
X_TABLE_USED = SOURCE.count("entries")
X_ORDER = SOURCE.address("rows in key order, or 0 when they stand in it")
X_BLOOM = SOURCE.address("bloom of the keys: lines of 512 bits")
X_BLOOM_LINES = SOURCE.count("lines of it")
X_BLOCKS = SOURCE.count("blocks")
X_STARTS = SOURCE.address("first record of each block, and the end")
X_LOW = SOURCE.word("prefix of the least key")
X_HIGH = SOURCE.word("prefix of the greatest key")
X_SEQ_LOW = SOURCE.word("the least seq")
X_SEQ_HIGH = SOURCE.word("the greatest seq")
X_FIELDS = SOURCE.address("F_WORDS words for each embedded index")
X_FIELD_COUNT = SOURCE.count("embedded indexes")
X_FENCE = SOURCE.address("of a component: fence.py")
X_COMMON = SOURCE.count("bytes that all its keys begin with")
X_PREVIOUS = SOURCE.address("int32, a record of a memory: the one before with its key, plus 1")
X_LATER = SOURCE.address("int32, a record of a memory: the next one with its key, plus 1; or 0")
X_UNTILS = SOURCE.address("the time at which each record expires, or 0: none of them does")
X_WORDS = SOURCE.end()
TOMB, EXPIRES = 1, 2

# ---- field ----------------------------------------------------------------------
FIELD = Layout("field", "F_", "what a source knows of an embedded index", globals())
F_LISTS = FIELD.address("int32: where the values of each record begin; 0: not known of this source")
F_OFFSETS = FIELD.address("where each value begins")
F_VALUES = FIELD.address("bytes of the values")
F_LOWS = FIELD.address("by block, the prefix of the least value")
F_HIGHS = FIELD.address("by block, the prefix of the greatest value")
F_BLOOM_STARTS = FIELD.address("first word of each block's bloom, and the end")
F_BLOOM = FIELD.address("words of the blooms of blocks")
F_PROBES = FIELD.count("bits that a value sets in a bloom")
F_GROUP_LOWS = FIELD.address("by group, the prefix of the least value")
F_GROUP_HIGHS = FIELD.address("by group, the prefix of the greatest value")
F_GROUP_STARTS = FIELD.address("first line of each group's bloom, and the end")
F_GROUP_BLOOM = FIELD.address("lines of the blooms of groups")
F_LOW = FIELD.word("prefix of the least value of all")
F_HIGH = FIELD.word("prefix of the greatest value of all")
F_CHAIN = FIELD.address("int32, a value of a memory: the value before it on the same head, plus 1")
F_ROW_OF = FIELD.address("int32, a value of a memory: its record")
F_HEADS = FIELD.address("int32: the newest value of each, plus 1")
F_HEADS_CAP = FIELD.count("heads, a power of two")
F_CHAINED = FIELD.count("records of a memory that are in zones and chains: in its own words")
F_WORDS = FIELD.end(spare=1)
GROUP = 64
MEMORY_BLOCK = 64

# ---- state of a reader --------------------------------------------------------
STATE = Layout("reader", "S_", "its sources, one question, what was found", globals())
S_SOURCES = STATE.address("addresses of sources, newest first")
S_SOURCE_COUNT = STATE.count("sources")
S_SEED = STATE.word("seed of the hashes of keys")
S_PRIMARY_BLOCKS = STATE.count("blocks of records read")
S_INDEX_BLOCKS = STATE.count("blocks of stand-alone indexes read")
S_BLOOM_CHECKS = STATE.count("blooms asked")
S_BLOOM_FALSE = STATE.count("a bloom said yes and was wrong")
S_ZONE_CHECKS = STATE.count("zone maps asked")
S_KEY = STATE.address("one key to find")
S_KEY_SIZE = STATE.count("its bytes")
S_REPLY = STATE.address("where its document goes")
S_REPLY_CAP = STATE.count("bytes there is room for")
S_FOUND = STATE.address("the document")
S_FOUND_SIZE = STATE.count("its bytes")
S_FIELD = STATE.word("number of the field to search")
S_LOW = STATE.address("least value of the range")
S_LOW_SIZE = STATE.count("its bytes")
S_HIGH = STATE.address("greatest value of the range")
S_HIGH_SIZE = STATE.count("its bytes")
S_OPEN = STATE.word("LOW_OPEN, HIGH_OPEN")
S_K = STATE.count("as many as are wanted")
S_SKIPPED = STATE.address("uint8, a source: 1 when its filter says that nothing in it is wanted")
S_OUT_SOURCES = STATE.address("of what was found: the source")
S_OUT_ROWS = STATE.address("its row")
S_OUT_SEQS = STATE.address("its seq")
S_OUT_CAP = STATE.count("there is room for")
S_OUT_COUNT = STATE.count("found")
S_AT_SOURCE = STATE.word("source to go on at")
S_AT_BLOCK = STATE.word("block to go on at")
S_SPARE = STATE.address("a word for each of what was found, to sort with")
S_COUNTS = STATE.address("COUNTS words for a while, to sort with for example")
S_ENDS = STATE.address("where each document that is delivered ends in the reply")
S_LIMIT = STATE.word("the first seq that is not in the view")
S_NOW = STATE.word("the time of the view: what expires until then is not there; 0: nothing does")
S_UNTIL = STATE.word("when the one record that was found expires, or 0")
S_STEPS = STATE.address("what is known of candidates that are followed side by side")
S_WORDS = STATE.end(spare=1)
COUNTS = 1 << 11
LOW_OPEN, HIGH_OPEN = 1, 2
DONE, NEED_OUTPUT = 0, 1

# ---- cursor -----------------------------------------------------------------------
CURSOR = Layout("cursor", "M_", "walks a source in key order", globals())
M_SOURCE = CURSOR.address("the source")
M_POS = CURSOR.word("row it stands at")
M_LIMIT = CURSOR.word("row at which it ends")
M_PREFIX = CURSOR.word("prefix of the key of that row")
M_WORDS = CURSOR.end()
