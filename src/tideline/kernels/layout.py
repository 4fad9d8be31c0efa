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
    an event that replaces another (R_REPLACES) ends with two more words: the entry that its
    id had in the table of ids, and the seq of the event that it replaces, 0 when there is none
    a retract's row is that of a cancel, of an event
    a tomb's row: 1 seq of the record | 3 seq of its end | 4 until, and the key alone; R_EVENT
    says that the record is an event
    a told row: 3 answers given so far | 4 the latest end | 7.. runs of marks (runs.py)
    a note's row stands in the log only and stores nothing (channel/annotations.py)
"""

from __future__ import annotations

from tideline.kernels.words import Layout

FOREVER = 1 << 62

# ---- engine state -------------------------------------------------------------
ENGINE = Layout("engine", "E_", "one place-ordered memory with its disk components", globals())
E_HEAP = ENGINE.address("the heap: segments of SEGMENT words")
E_HEAP_WORDS = ENGINE.count("words of the heap")
E_FREE = ENGINE.address("stack of free segments")
E_FREE_COUNT = ENGINE.count("free segments on the stack")
E_HIGH = ENGINE.count("segments ever used: [0, E_HIGH)")
E_LIMIT = ENGINE.count("segments there may be")
E_DIR = ENGINE.address("directory: entries of DIR_ENTRY words")
E_DIR_CAP = ENGINE.count("entries there is room for, a power of two")
E_DIR_USED = ENGINE.count("entries, stale ones too")
E_IDS = ENGINE.address("table of ids: two words an entry, hash and packed record")
E_IDS_CAP = ENGINE.count("entries there is room for, a power of two")
E_IDS_USED = ENGINE.count("entries, stale ones too")
E_WINDOWS = ENGINE.address("WINDOWS windows of W_WORDS words")
E_ACTIVE = ENGINE.address("numbers of the active windows")
E_ACTIVE_COUNT = ENGINE.count("active windows")
E_COMPONENTS = ENGINE.address("D_WORDS words for each disk component")
E_COMPONENT_COUNT = ENGINE.count("disk components")
E_TOMBS = ENGINE.address("table of tombs: four words an entry (tables.py)")
E_TOMBS_CAP = ENGINE.count("tombs there is room for, a power of two")
E_TOMBS_USED = ENGINE.count("tombs")
E_MODE = ENGINE.word("how places relate: FLAT, CELLS or TOPICS")
E_SEED1 = ENGINE.word("seed of the first hash of a place")
E_SEED2 = ENGINE.word("seed of the second")
E_NEXT_GEN = ENGINE.word("generation of the next window")
E_LOG = ENGINE.word("number of the log segment that new records go to")
E_NEXT_EXPIRY = ENGINE.time("the first moment at which a window can be dropped")
E_READS = ENGINE.count("component reads so far")
E_LIMBO = ENGINE.address("segments whose windows were dropped during the running call")
E_LIMBO_COUNT = ENGINE.count("how many they are")
E_REUSED = ENGINE.word("1 when an id may have been given to two records of the running call")
E_DIR_FULL = ENGINE.count("entries (stale ones too) at which the directory is rebuilt")
E_IDS_FULL = ENGINE.count("the same for the table of ids")
E_SEARCHED = ENGINE.address("windows with live subscriptions; WINDOWS words on, with live events")
E_SEARCHED_SUBS = ENGINE.count("windows with live subscriptions")
E_SEARCHED_EVENTS = ENGINE.count("windows with live events")
E_FILTERS = ENGINE.address("filters of all windows, FILTER_WORDS words each")
E_TOLD = ENGINE.address("table of marks (told.py)")
E_TOLD_CAP = ENGINE.count("marks there is room for; 0 while nobody has asked what is unseen")
E_TOLD_USED = ENGINE.count("marks")
E_TOLD_COMPONENTS = ENGINE.address("T_WORDS words for each sealed component of marks")
E_TOLD_COMPONENT_COUNT = ENGINE.count("sealed components of marks")
E_WORDS = ENGINE.end(spare=3)

ENTRY = Layout("entry", "", "a place in a window, in the directory", globals())
ENTRY.also("hash", "of the place, with the generation of the window in it")
ENTRY.also("hash2", "of the place")
ENTRY.also("packed", "slot, window and the low bits of its generation; 0: empty")
ENTRY.also("subscriptions", "first chunk of its subscriptions, or 0")
ENTRY.also("events", "first chunk of its events, or 0")
DIR_ENTRY = ENTRY.end()

SEGMENT = 32_768  # words: 256 KiB
SPARE = 8  # free segments that must be there before a row is stored
WINDOWS = 256
FILTER_WORDS = 2_048  # of a window's filter: a bit for a place, by its hash
FILTER_PLACES = 65_536  # with more places than that, too many bits are set for it to help

# ---- window --------------------------------------------------------------------
FREE, OPEN, FROZEN = 0, 1, 2
WINDOW = Layout("window", "W_", "one expiry bucket", globals())
W_STATE = WINDOW.word("FREE, OPEN or FROZEN")
W_GEN = WINDOW.word("generation: tells it from windows that had its number before")
W_WIDTH = WINDOW.word("length in microseconds of the stretch of time; lowest bit set: for marks")
W_LIMIT = WINDOW.time("every record in here has until <= W_LIMIT")
W_SEGMENT = WINDOW.word("word of the heap at which its last segment begins, or -1")
W_POS = WINDOW.count("words used of the last segment")
W_FIRST = WINDOW.word("word of the heap at which its first segment begins, or -1")
W_SEGMENTS = WINDOW.count("segments")
W_SUBS = WINDOW.count("subscriptions in here")
W_EVENTS = WINDOW.count("events in here")
W_TOLD = WINDOW.count("marks in here")
W_SINCE_LOW = WINDOW.time("the least since of a subscription")
W_UNTIL_HIGH = WINDOW.time("the greatest until of a subscription")
W_AT_LOW = WINDOW.time("the least at of an event")
W_AT_HIGH = WINDOW.time("the greatest at of an event")
W_EVENT_UNTIL_HIGH = WINDOW.time("the greatest until of an event")
W_LOG = WINDOW.word("number of the log segment with its oldest record")
W_SLOTS = WINDOW.word("the first slot of a chain of all")
W_SLOT_COUNT = WINDOW.count("slots")
W_TOLD_HEAD = WINDOW.word("the first chunk of marks")
W_FILTER = WINDOW.address("its filter of places")
W_WORDS = WINDOW.end()

# ---- slot, chunk, record -------------------------------------------------------
SUBS, EVENTS, TOLD_SIDE = 0, 1, 2
SLOT = Layout("slot", "SLOT_", "a place inside a window", globals())
SLOT.also("SUBS", "first chunk of its subscriptions, or 0")
SLOT.also("EVENTS", "first chunk of its events, or 0")
SLOT_NEXT = SLOT.word("next slot of the window + key length << 48")
SLOT_CHILD = SLOT.word("first child, or 0")
SLOT_SIBLING = SLOT.word("next sibling, or 0")
SLOT_KEY = SLOT.word("first bytes of the key")
SLOT.end()
LOW48 = (1 << 48) - 1
LOW32 = (1 << 32) - 1
LOW16 = (1 << 16) - 1
LOW40 = (1 << 40) - 1
CHUNK = 1
CHUNK_MOST = 128

SUBSCRIPTION = Layout("subscription", "", "a record in the heap", globals())
SINCE = SUBSCRIPTION.time("begin of its window")
UNTIL = SUBSCRIPTION.time("end of its window")
SEQ = SUBSCRIPTION.word("its number in the order of writes")
MADE = SUBSCRIPTION.time("the channel's time when it arrived")
USER = SUBSCRIPTION.word("hash of the user")
SUB_BLOB = SUBSCRIPTION.word("blob + flags F_*")
ROOT = SUBSCRIPTION.word("seq of its first record: stays when it is prolonged")
STAMP = SUBSCRIPTION.word("epoch << 32 + code in the running call; seq of the cancel once ended")
SUB_WORDS = SUBSCRIPTION.end()
EVENT = Layout("event", "", "a record in the heap", globals())
AT = EVENT.time("when it happened")
EVENT.also("UNTIL", "end of its validity", "time")
EVENT.also("SEQ", "its number in the order of writes")
EVENT.also("MADE", "the channel's time when it arrived", "time")
EVENT_BLOB = EVENT.word("blob + flags F_*")
EVENT_STAMP = EVENT.word("epoch << 32 + code in the running call")
EVENT_WORDS = EVENT.end()

F_COND = 1 << 48
F_UNSEEN = 1 << 49
F_CANCELLED = 1 << 50
F_SHAPE = 1 << 51
F_TOMB = 1 << 52
F_VOID = 1 << 54  # taken back: its log write failed
F_GHOST = 1 << 55  # in components of format 4 and before: no subscription

BLOB = Layout("blob", "BLOB_", "the texts of a record, in the heap", globals())
BLOB.also("lengths", "id length + user length << 16 + text length << 32")
BLOB.also("slot", "slot of its place")
BLOB_TEXT = BLOB.word("[shape: kind, a, b, c, d] then id, user and text bytes, [corners]")
BLOB.end()
SHAPE_WORDS = 5

# ---- row -----------------------------------------------------------------------
VOID, PUBLISH, SUBSCRIBE, CANCEL, FIND, GHOST, NOTE, TOMB, TOLD, RETRACT = range(10)
# GHOST: old logs
ROW = Layout("row", "R_", "one operation as bytes", globals())
R_HEAD = ROW.word("kind + flags << 8 + row words << 32")
R_SEQ = ROW.word("seq")
R_NOW = ROW.time("the channel's time")
R_AT = ROW.word("at, since; cancel, retract: seq of the target; told: answers given so far")
R_UNTIL = ROW.time("until; told: the latest end")
R_LENGTHS = ROW.word("key length + id length << 16 + user length << 32")
R_TEXT = ROW.word("text length + shape kind << 32")
R_BODY = ROW.word("[shape] key, then id, user and text, [corners]; told: runs of marks")
ROW.end()
R_COND, R_UNSEEN, R_SAME, R_PROLONGED = 1, 2, 4, 8  # row flags
R_REPLACES, R_EVENT = 16, 32  # an event that replaces another; the tomb of an event
R_ROOT, R_ASKED, R_TARGET, PROLONGED_WORDS = -3, -2, -1, 3  # from the end of a prolonged row
R_ENTRY, REPLACES_WORDS = -2, 2  # from the end of a row that replaces; R_TARGET too
N_MARK, N_ANSWERS, N_LISTED = 1, 2, 4  # flags of a note: what it says, see channel/annotations.py

# ---- call state: what one call reads and gives back -----------------------------
CALL = Layout("call", "C_", "what one call of a channel reads and gives back", globals())
C_SUBS = CALL.address("engine of subscriptions")
C_EVENTS = CALL.address("engine of events")
C_NEWEST = CALL.time("the channel's time")
C_NEXT_SEQ = CALL.word("seq of the next record")
C_EPOCH = CALL.word("number of the call: a stamp of an earlier one is not valid")
C_ROWS = CALL.address("rows")
C_ROWS_WORDS = CALL.count("words of the rows")
C_POS = CALL.word("in: the word to start at; out: that of the first row not done")
C_STATUS = CALL.word("DONE or what is needed to go on")
C_ANSWERS = CALL.address("int32: codes of the records that answer, row after row")
C_ROW_COUNTS = CALL.address("per row, how many of them are its own")
C_ROW_CODES = CALL.address("per row, the code of the row itself")
C_ANSWER_CAP = CALL.count("codes there is room for")
C_ANSWER_COUNT = CALL.count("codes")
C_SUB_REFS = CALL.address("by code, the reference of a subscription")
C_EVENT_REFS = CALL.address("by code, the reference of an event")
C_REFS_CAP = CALL.count("references of each kind there is room for")
C_SUB_REF_COUNT = CALL.count("references of subscriptions")
C_EVENT_REF_COUNT = CALL.count("references of events")
C_SCRATCH = CALL.address("room to work in")
C_SCRATCH_WORDS = CALL.count("words of it")
C_DUPLICATES = CALL.address("per row, the record that has the id already")
C_OWN = CALL.address("per row, the record it stored (to take it back)")
C_ROW = CALL.word("number of the row at C_POS")
C_AFTER = CALL.word("find: only events with a larger seq")
C_LATE = CALL.count("rows stored whose time was behind the time of the channel")
C_EXTRA = CALL.address("rows of tombs that the log must have too")
C_EXTRA_CAP = CALL.count("words there is room for")
C_EXTRA_USED = CALL.count("words")
C_MAYBES = CALL.word("256 when an answer of this call needs its condition checked")
C_PACKED = CALL.address("where the records that answer one row go")
C_PACKED_CAP = CALL.count("words there is room for")
C_PACKED_USED = CALL.count("words, or -1 when they do not fit")
C_REMEMBER = CALL.word("1 when it is to be remembered who was told what")
C_TOLD = CALL.address("the row of marks that the log must have too (runs.py)")
C_TOLD_CAP = CALL.count("words there is room for")
C_TOLD_USED = CALL.count("words")
C_TOLD_RUN = CALL.word("where the run that is open begins, or -1")
C_TOLD_HEAP = CALL.word("the same in the heap")
C_TOLD_WINDOW = CALL.word("the window of marks that was written to last")
C_SUB_TOLD = CALL.address("by code of a subscription, where its word stands in a run (two words)")
C_EVENT_TOLD = CALL.address("the same of events")
C_TOLD_UNTIL = CALL.time("the latest end of an event among them")
C_TOLD_WANTED = CALL.count("words for which a row's marks need room, at most")
C_ANSWERED = CALL.count("answers given so far, in all calls")
C_FRAME_WORDS = CALL.count("words of the frame that `run_one` completed")
C_ROWS_ROOM = CALL.count("words there are behind C_ROWS")
C_NEWEST_LOGGED = CALL.time("C_NEWEST as the log has it: what is dropped by it need not come back")
C_WORDS = CALL.end()

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
COMPONENT = Layout("component", "D_", "columns of one disk component of a channel", globals())
D_PLACES = COMPONENT.count("places")
D_KEY_OFFSETS = COMPONENT.address("where each key begins")
D_KEYS = COMPONENT.address("bytes of the keys")
D_KEY_BYTES = COMPONENT.count("bytes of all keys")
D_SINCE_LOW = COMPONENT.time("the least since of a subscription")
D_UNTIL_HIGH = COMPONENT.time("the greatest until of a subscription")
D_AT_LOW = COMPONENT.time("the least at of an event")
D_AT_HIGH = COMPONENT.time("the greatest at of an event")
D_EVENT_UNTIL_HIGH = COMPONENT.time("the greatest until of an event")
D_SUB_LISTS = COMPONENT.address("by place, where its subscriptions begin")
D_SUBS = COMPONENT.count("subscriptions")
D_SUB_SINCE = COMPONENT.address("since")
D_SUB_UNTIL = COMPONENT.address("until")
D_SUB_SEQ = COMPONENT.address("seq")
D_SUB_MADE = COMPONENT.address("made")
D_SUB_USER_HASH = COMPONENT.address("hash of the user")
D_SUB_FLAGS = COMPONENT.address("flags")
D_SUB_ENDED = COMPONENT.address("seq of the cancel")
D_SUB_SHAPE = COMPONENT.address("five doubles a subscription, or 0")
D_SUB_ID_HASH = COMPONENT.address("hashes of ids, sorted")
D_SUB_BY_ID = COMPONENT.address("by sorted hash, the subscription")
D_SUB_ID_OFFSETS = COMPONENT.address("where each id begins")
D_SUB_IDS = COMPONENT.address("bytes of the ids")
D_SUB_USER_OFFSETS = COMPONENT.address("where each user begins")
D_SUB_USERS = COMPONENT.address("bytes of the users")
D_SUB_WHERE_OFFSETS = COMPONENT.address("where each condition begins")
D_SUB_WHERES = COMPONENT.address("bytes of the conditions")
D_EVENT_LISTS = COMPONENT.address("by place, where its events begin")
D_EVENTS = COMPONENT.count("events")
D_EVENT_AT = COMPONENT.address("at")
D_EVENT_UNTIL = COMPONENT.address("until")
D_EVENT_SEQ = COMPONENT.address("seq")
D_EVENT_MADE = COMPONENT.address("made")
D_EVENT_FLAGS = COMPONENT.address("flags")
D_EVENT_SHAPE = COMPONENT.address("five doubles an event, or 0")
D_EVENT_ID_HASH = COMPONENT.address("hashes of ids, sorted")
D_EVENT_BY_ID = COMPONENT.address("by sorted hash, the event")
D_EVENT_ID_OFFSETS = COMPONENT.address("where each id begins")
D_EVENT_IDS = COMPONENT.address("bytes of the ids")
D_EVENT_BODY_OFFSETS = COMPONENT.address("where each body begins")
D_EVENT_BODIES = COMPONENT.address("bytes of the bodies")
D_SEQ_HIGH = COMPONENT.word("the greatest seq")
D_SUB_ROOT = COMPONENT.address("root")
D_SUB_CORNERS_AT = COMPONENT.address("where the corners of each subscription begin, or 0")
D_SUB_CORNERS = COMPONENT.address("corners of polygons, as doubles")
D_EVENT_CORNERS_AT = COMPONENT.address("where the corners of each event begin, or 0")
D_EVENT_CORNERS = COMPONENT.address("corners of polygons, as doubles")
D_WORDS = COMPONENT.end()
MARKS = Layout("sealed marks", "T_", "a sealed component of marks", globals())
T_MARKS = MARKS.address("marks, sorted")
T_COUNT = MARKS.count("how many")
T_UNTIL_HIGH = MARKS.time("the latest end of an event among them")
T_WORDS = MARKS.end()
