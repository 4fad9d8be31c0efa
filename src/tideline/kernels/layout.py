"""Where things stand in the memory that kernels share with Python.

Everything is int64 words. An *engine* is one place-ordered memory with its disk
components (layout `dual` has one, `two` has two: one a side).

    engine   state words E_*: addresses and counters
    heap     segments of SEGMENT words, each owned by one window and chained
    window   W_* words: one expiry bucket; holds slots, chunks, records, blobs
    entry    of the directory: 0, 1 hashes | 2 slot, window | 3, 4 heads of both lists
    slot     a place inside a window: two list heads, a chain, the key
             0 subscriptions | 1 events | 2 next slot + key length << 48
             3 first child   | 4 next sibling | 5.. key bytes
    chunk    0 next chunk + used << 40 + capacity << 52 | 1.. records, or runs of marks (runs.py)
    record   subscription (8 words)               event (6 words)
             0 since | 1 until | 2 seq            0 at | 1 until | 2 seq
             3 made  | 4 user hash                3 made
             5 blob + flags                       4 blob + flags
             6 root  | 7 stamp, or ended          5 stamp
    blob     0 id length + user length << 16 + text length << 32 | 1 slot
             [2..6 shape: kind, a, b, c, d] then id, user, text bytes

`made` is the channel's time when the record arrived; `root` the seq of the first record of a
subscription, which stays when it is prolonged; `ended` the seq of its cancel; `stamp` the code
the record got in the answers of the running call (epoch << 32 + code).

A *row* is one operation as bytes: what a call hands to a kernel, what the log
holds, what recovery replays and what comes back out (docs/internals/log.md):

    0 kind + flags << 8 + row words << 32
    1 seq | 2 now | 3 at, since (cancel: seq of the target) | 4 until
    5 key length + id length << 16 + user length << 32
    6 text length + shape kind << 32
    [7..10 shape a, b, c, d when the kind is not 0] then the key, filled up to whole
    words with zeros, then id, user and text bytes, filled up likewise
    a subscription that is prolonged (R_PROLONGED) ends with three more words: its root, the
    time from which on events are new to it, and the seq of the record that it replaces
    a tomb's row: 1 seq of the subscription | 3 seq of its end | 4 until, and the key alone
    a told row: 3 answers given so far | 4 the latest end | 7.. runs of marks (runs.py)
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
    E_TOLD,  # address of the table of marks; see told.py
    E_TOLD_CAP,  # 0 while nobody has asked what is unseen
    E_TOLD_USED,
    E_TOLD_COMPONENTS,  # address: four words for each sealed component of marks
    E_TOLD_COMPONENT_COUNT,
) = range(41)
E_WORDS = 44

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
    W_TOLD,  # marks in here
    W_SINCE_LOW,
    W_UNTIL_HIGH,
    W_AT_LOW,
    W_AT_HIGH,
    W_EVENT_UNTIL_HIGH,
    W_LOG,
    W_SLOTS,
    W_SLOT_COUNT,
    W_TOLD_HEAD,  # the first chunk of marks
    W_FILTER,  # address of its filter of places
) = range(21)
W_WORDS = 21

# ---- slot, chunk, record -------------------------------------------------------
SUBS, EVENTS, TOLD_SIDE = 0, 1, 2
SLOT_NEXT, SLOT_CHILD, SLOT_SIBLING, SLOT_KEY = 2, 3, 4, 5
LOW48 = (1 << 48) - 1
LOW32 = (1 << 32) - 1
LOW16 = (1 << 16) - 1
LOW40 = (1 << 40) - 1
CHUNK = 1
CHUNK_MOST = 128

SINCE, UNTIL, SEQ, MADE, USER, SUB_BLOB, ROOT, STAMP = range(8)
AT = 0
EVENT_BLOB, EVENT_STAMP = 4, 5
SUB_WORDS, EVENT_WORDS = 8, 6

F_COND = 1 << 48
F_UNSEEN = 1 << 49
F_CANCELLED = 1 << 50
F_SHAPE = 1 << 51
F_TOMB = 1 << 52
F_VOID = 1 << 54  # taken back: its log write failed
F_GHOST = 1 << 55  # in components of format 4 and before: no subscription

BLOB_TEXT = 2
SHAPE_WORDS = 5

# ---- row -----------------------------------------------------------------------
VOID, PUBLISH, SUBSCRIBE, CANCEL, FIND, GHOST, NOTE, TOMB, TOLD = range(9)  # GHOST: old logs
R_HEAD, R_SEQ, R_NOW, R_AT, R_UNTIL, R_LENGTHS, R_TEXT, R_BODY = range(8)
R_COND, R_UNSEEN, R_SAME, R_PROLONGED = 1, 2, 4, 8  # row flags
R_ROOT, R_ASKED, R_TARGET, PROLONGED_WORDS = -3, -2, -1, 3  # from the end of a prolonged row
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
    C_SCRATCH,
    C_SCRATCH_WORDS,
    C_DUPLICATES,  # address: per row, the record that has the id already
    C_OWN,  # address: per row, the record it stored (to take it back)
    C_ROW,  # number of the row at C_POS
    C_AFTER,  # find: only events with a larger seq
    C_LATE,
    C_EXTRA,  # address: rows of tombs that the log must have too
    C_EXTRA_CAP,
    C_EXTRA_USED,
    C_MAYBES,  # 256 when an answer of this call needs its condition checked
    C_PACKED,  # address: where the records that answer one row go
    C_PACKED_CAP,
    C_PACKED_USED,  # words, or -1 when they do not fit
    C_REMEMBER,  # 1 when it is to be remembered who was told what
    C_TOLD,  # address: the row of marks that the log must have too; see runs.py
    C_TOLD_CAP,
    C_TOLD_USED,
    C_TOLD_RUN,  # where the run that is open begins, or -1
    C_TOLD_HEAP,  # the same in the heap
    C_TOLD_WINDOW,  # the window of marks that was written to last
    C_SUB_TOLD,  # address: for every code, where its word stands in a run (two words)
    C_EVENT_TOLD,
    C_TOLD_UNTIL,  # the latest end of an event among them
    C_TOLD_WANTED,  # words for which a row's marks need room, at most
    C_ANSWERED,  # answers given so far, in all calls
    C_FRAME_WORDS,  # words of the frame that `run_one` completed
    C_ROWS_ROOM,  # words there are behind C_ROWS
    C_NEWEST_LOGGED,  # C_NEWEST as the log has it: what is dropped by it need not come back
) = range(48)
C_WORDS = 48

(
    DONE,
    NEED_MEMORY,
    NEED_OUTPUT,
    NEED_SCRATCH,
    NEED_READER,
    NEED_VERDICT,  # conditions must be checked before it can go on
    NEED_TOLD,  # the table of marks must be made
) = range(7)

STORED, FRAMED = 512, 1024  # added to the result of a single row: see rows.run_one
EXPIRED = 2048  # added to a result when a window may be dropped

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
    D_SUB_ROOT,
) = range(43)
D_WORDS = 43
T_MARKS, T_COUNT, T_UNTIL_HIGH = range(3)  # a sealed component of marks
T_WORDS = 3
