"""Where things stand in the memory that kernels share with Python.

Everything is int64 words. An *engine* is one place-ordered memory with its disk
components (layout `dual` has one, `two` has two: one a side).

    engine   state words E_*: addresses and counters
    heap     segments of SEGMENT words, each owned by one window and chained
    window   W_* words: one expiry bucket; holds slots, chunks, records, blobs
    entry    of the directory: 0, 1 hashes | 2 slot, window | 3, 4 heads of both lists
    slot     a place inside a window: three list heads, a chain, the key
             0 subscriptions | 1 events | 2 ghosts | 3 next slot + key length << 48
             4 first child   | 5 next sibling | 6.. key bytes
    chunk    0 next chunk + used << 40 + capacity << 52 | 1.. records
    record   subscription or ghost (8 words)      event (6 words)
             0 since | 1 until | 2 seq            0 at | 1 until | 2 seq
             3 made  | 4 user hash                3 made
             5 blob + flags                       4 blob + flags
             6 keep  | 7 stamp, or ended          5 stamp
    blob     0 id length + user length << 16 + text length << 32 | 1 slot
             [2..6 shape: kind, a, b, c, d] then id, user, text bytes

`made` is the channel's time when the record arrived; `keep` the latest end of an
event the subscription was answered with, or until when a ghost counts; `ended` the
seq of its cancel; `stamp`
the code the record got in the answers of the running call (epoch << 32 + code).

A *row* is one operation as bytes: what a call hands to a kernel, what the log
holds, what recovery replays and what comes back out (docs/internals/log.md):

    0 kind + flags << 8 + row words << 32
    1 seq | 2 now | 3 at, since (cancel: seq of the target) | 4 until
    5 key length + id length << 16 + user length << 32
    6 text length + shape kind << 32
    [7..10 shape a, b, c, d when the kind is not 0] then the key, filled up to whole
    words with zeros, then id, user and text bytes, filled up likewise
    a ghost's row ends with two more words: keep and ended
    a tomb's row: 1 seq of the subscription | 3 seq of its end | 4 until, and the key alone
    a note's row stands in the log only and stores nothing (channel/notes.py)
"""

from __future__ import annotations

FOREVER = 1 << 62

# ---- engine state -------------------------------------------------------------
(
    E_HEAP,
    E_HEAP_WORDS,
    E_FREE,  # address of the stack of free segments
    E_FREE_COUNT,
    E_HIGH,  # segments ever used: [0, E_HIGH)
    E_LIMIT,  # segments there may be
    E_DIR,
    E_DIR_CAP,
    E_DIR_USED,
    E_IDS,
    E_IDS_CAP,
    E_IDS_USED,
    E_WINDOWS,
    E_ACTIVE,  # address of the numbers of the active windows
    E_ACTIVE_COUNT,
    E_COMPONENTS,
    E_COMPONENT_COUNT,
    E_TOMBS,
    E_TOMBS_CAP,
    E_TOMBS_USED,
    E_MODE,
    E_SEED1,
    E_SEED2,
    E_NEXT_GEN,
    E_LOG,  # the log segment that new records go to
    E_NEXT_EXPIRY,  # the first moment at which a window can be dropped
    E_READS,  # component reads so far
    E_LIMBO,  # address of segments whose windows were dropped during the running call
    E_LIMBO_COUNT,
    E_REUSED,  # 1 when an id may have been given to two records of the running call
    E_DIR_FULL,  # entries (stale ones too) at which the directory is rebuilt
    E_IDS_FULL,  # the same for the id table
    E_SEARCHED,  # address: windows with live subscriptions, then those with live events
    E_SEARCHED_SUBS,  # how many there are of each
    E_SEARCHED_EVENTS,
    E_FILTERS,  # address of the filters of all windows
) = range(36)
E_WORDS = 40

DIR_ENTRY = 5  # words: two hashes, slot + window, heads of both lists
SEGMENT = 32_768  # words: 256 KiB
SPARE = 8  # free segments that must be there before a row is stored
WINDOWS = 256
FILTER_WORDS = 2_048  # of a window's filter: a bit for a place, by its hash
FILTER_PLACES = 65_536  # with more places than that, too many bits are set for it to help

# ---- window --------------------------------------------------------------------
FREE, OPEN, FROZEN = 0, 1, 2
(
    W_STATE,
    W_GEN,
    W_WIDTH,
    W_LIMIT,  # every record in here has until <= W_LIMIT
    W_SEGMENT,
    W_POS,
    W_FIRST,
    W_SEGMENTS,
    W_SUBS,
    W_EVENTS,
    W_GHOSTS,
    W_SINCE_LOW,
    W_UNTIL_HIGH,
    W_AT_LOW,
    W_AT_HIGH,
    W_EVENT_UNTIL_HIGH,
    W_LOG,
    W_SLOTS,
    W_SLOT_COUNT,
    W_DROP,  # when it may be dropped: at its limit, or later if it lingers
    W_FILTER,  # address of its filter of places
) = range(21)
W_WORDS = 21

# ---- slot, chunk, record -------------------------------------------------------
SUBS, EVENTS, GHOSTS = 0, 1, 2
SLOT_NEXT, SLOT_CHILD, SLOT_SIBLING, SLOT_KEY = 3, 4, 5, 6
LOW48 = (1 << 48) - 1
LOW32 = (1 << 32) - 1
LOW16 = (1 << 16) - 1
LOW40 = (1 << 40) - 1
CHUNK = 1
CHUNK_MOST = 128

SINCE, UNTIL, SEQ, MADE, USER, SUB_BLOB, KEEP, STAMP = range(8)
AT = 0
EVENT_BLOB, EVENT_STAMP = 4, 5
SUB_WORDS, EVENT_WORDS = 8, 6

F_COND = 1 << 48
F_UNSEEN = 1 << 49
F_CANCELLED = 1 << 50
F_SHAPE = 1 << 51
F_TOMB = 1 << 52
F_UNKNOWN_KEEP = 1 << 53  # recovered: what it was answered with is not known
F_VOID = 1 << 54  # taken back: its log write failed
F_GHOST = 1 << 55  # sealed ghost: counts only for unseen
F_GHOSTED = 1 << 56  # in memory: it may have ghosts, see tombs.cancel

BLOB_TEXT = 2
SHAPE_WORDS = 5

# ---- row -----------------------------------------------------------------------
VOID, PUBLISH, SUBSCRIBE, CANCEL, FIND, GHOST, NOTE, TOMB = range(8)
R_HEAD, R_SEQ, R_NOW, R_AT, R_UNTIL, R_LENGTHS, R_TEXT, R_BODY = range(8)
R_COND, R_UNSEEN, R_SAME = 1, 2, 4  # row flags
N_MARK, N_ANSWERS, N_LISTED = 1, 2, 4  # flags of a note: what it says, see channel/notes.py

# ---- call state: what one call reads and gives back -----------------------------
(
    C_SUBS,  # address of the engine of subscriptions
    C_EVENTS,  # address of the engine of events
    C_NEWEST,
    C_NEXT_SEQ,
    C_EPOCH,
    C_ROWS,  # address of the rows
    C_ROWS_WORDS,
    C_POS,  # in: where to start; out: the first row not done
    C_STATUS,
    C_ANSWERS,  # address (int32): codes of the records that answer, row after row
    C_ROW_COUNTS,  # address: per row, how many of them are its own
    C_ROW_CODES,  # address: per row, the code of the row itself
    C_ANSWER_CAP,
    C_ANSWER_COUNT,
    C_SUB_REFS,
    C_EVENT_REFS,
    C_REFS_CAP,
    C_SUB_REF_COUNT,
    C_EVENT_REF_COUNT,
    C_PAIR_ANSWER,  # pairs to check in Python: this answer falls if
    C_PAIR_SUB,  # this earlier subscription of the same user has the event
    C_PAIR_CAP,
    C_PAIR_COUNT,
    C_SCRATCH,
    C_SCRATCH_WORDS,
    C_DUPLICATES,  # address: per row, the record that has the id already
    C_OWN,  # address: per row, the record it stored (to take it back)
    C_ROW,  # number of the row at C_POS
    C_AFTER,  # find: only events with a larger seq
    C_LATE,
    C_EXTRA,  # address: rows of ghosts that the log must have too
    C_EXTRA_CAP,
    C_EXTRA_USED,
    C_MAYBES,  # 256 when an answer of this call needs its condition checked
    C_PACKED,  # address: where the records that answer one row go
    C_PACKED_CAP,
    C_PACKED_USED,  # words, or -1 when they do not fit
) = range(37)
C_WORDS = 40

DONE, NEED_MEMORY, NEED_OUTPUT, NEED_DROP, NEED_SCRATCH, NEED_READER = range(6)

STORED, FRAMED = 512, 1024  # added to the result of a single row: see rows.run_one

MAYBE = 1 << 30  # set in an answer's code: the condition is still to be checked

# ---- references to records --------------------------------------------------------
# heap word offset | ON_DISK + component << 40 + index | IN_ROW + row number
ON_DISK = 1 << 61
IN_ROW = 1 << 60
REF_INDEX = (1 << 40) - 1
REF_COMPONENT = (1 << 20) - 1

# ---- component: addresses of the columns of one disk component ---------------------
(
    D_PLACES,
    D_KEY_OFFSETS,
    D_KEYS,
    D_KEY_BYTES,
    D_SINCE_LOW,
    D_UNTIL_HIGH,
    D_AT_LOW,
    D_AT_HIGH,
    D_EVENT_UNTIL_HIGH,
    D_SUB_LISTS,
    D_SUBS,
    D_SUB_SINCE,
    D_SUB_UNTIL,
    D_SUB_SEQ,
    D_SUB_MADE,
    D_SUB_USER_HASH,
    D_SUB_FLAGS,
    D_SUB_ENDED,
    D_SUB_SHAPE,
    D_SUB_ID_HASH,
    D_SUB_BY_ID,
    D_SUB_ID_OFFSETS,
    D_SUB_IDS,
    D_SUB_USER_OFFSETS,
    D_SUB_USERS,
    D_SUB_WHERE_OFFSETS,
    D_SUB_WHERES,
    D_EVENT_LISTS,
    D_EVENTS,
    D_EVENT_AT,
    D_EVENT_UNTIL,
    D_EVENT_SEQ,
    D_EVENT_MADE,
    D_EVENT_FLAGS,
    D_EVENT_SHAPE,
    D_EVENT_ID_HASH,
    D_EVENT_BY_ID,
    D_EVENT_ID_OFFSETS,
    D_EVENT_IDS,
    D_EVENT_BODY_OFFSETS,
    D_EVENT_BODIES,
    D_SEQ_HIGH,
    D_SUB_KEEP,
    D_KEEP_HIGH,  # no ghost counts after this
) = range(44)
D_WORDS = 44
