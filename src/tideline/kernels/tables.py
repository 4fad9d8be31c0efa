"""The tables of an engine that outlive its windows: ids, tombs, and the sweeping of stale entries.

    ids         hash of an id -> its record
    tombs       seq of a sealed record -> the seq of its end: see tombs.py
    directory   place -> slot: see heap.py; swept and moved here as the ids are

An entry whose window is gone is stale: it is never matched, and left out when its table is swept
or moved.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.heap import engine, windows_of
from tideline.kernels.layout import (
    DIR_ENTRY,
    E_DIR,
    E_DIR_CAP,
    E_DIR_USED,
    E_IDS,
    E_IDS_CAP,
    E_IDS_USED,
    E_LIMBO_COUNT,
    E_REUSED,
    E_TOMBS,
    E_TOMBS_CAP,
    E_TOMBS_USED,
    F_VOID,
    FOREVER,
    SUB_BLOB,
    W_GEN,
)
from tideline.kernels.slots import ENTRY_REF, GOLDEN, entry_window, pack_entry, put_entry
from tideline.kernels.views import prefetch, words

# ---- ids ---------------------------------------------------------------------------


@jit
def put_id(e, id_hash, ref, w):
    enter_id(e, id_hash, pack_entry(ref, w, windows_of(e)[w + W_GEN]))


@jit
def enter_id(e, id_hash, packed):
    table = words(e[E_IDS], e[E_IDS_CAP] * 2)
    mask = e[E_IDS_CAP] - 1
    i = id_hash & mask
    while table[2 * i] != 0:
        i = (i + 1) & mask
    table[2 * i] = id_hash
    table[2 * i + 1] = packed
    e[E_IDS_USED] += 1


@jit
def take_over_id(e, id_hash, ref, before):
    """Let the record that was entered last have the entry of the record `before` it, in memory.

    An id that is given again and again would else leave a long row of entries, and every search
    for it would walk along them. Returns what stood in the entry, or 0 if there was none.
    """
    table = words(e[E_IDS], e[E_IDS_CAP] * 2)
    mask = e[E_IDS_CAP] - 1
    i = id_hash & mask
    old = -1
    while table[2 * i] != 0:
        if table[2 * i] == id_hash and entry_window(e, table[2 * i + 1]) >= 0:
            record = table[2 * i + 1] & ENTRY_REF
            if record == before and old < 0:
                old = i
            elif record == ref and old >= 0:
                packed = table[2 * old + 1]
                table[2 * old + 1] = table[2 * i + 1]
                # The cell was free before this call, and nothing was entered since.
                table[2 * i] = 0
                e[E_IDS_USED] -= 1
                return packed
        i = (i + 1) & mask
    return 0


@jit
def give_back_id(e, id_hash, ref, packed):
    """The record that took an entry over has it no more."""
    table = words(e[E_IDS], e[E_IDS_CAP] * 2)
    mask = e[E_IDS_CAP] - 1
    i = id_hash & mask
    while table[2 * i] != 0:
        if table[2 * i] == id_hash and table[2 * i + 1] & ENTRY_REF == ref:
            if entry_window(e, table[2 * i + 1]) >= 0:
                table[2 * i + 1] = packed
                return
        i = (i + 1) & mask


# ---- the table of tombs: see tombs.py ---------------------------------------------------
#
# An entry: seq + 1 | seq of the end, FOREVER if it was taken back | until | its record, or 0


@jit
def find_tomb(e, seq):
    """The seq at which a sealed record ended, or FOREVER."""
    if e[E_TOMBS_USED] == 0:
        return FOREVER
    table = words(e[E_TOMBS], e[E_TOMBS_CAP] * 4)
    mask = e[E_TOMBS_CAP] - 1
    i = (seq * GOLDEN >> 20) & mask
    while table[4 * i] != 0:
        if table[4 * i] == seq + 1:
            return table[4 * i + 1]
        i = (i + 1) & mask
    return FOREVER


@jit
def put_tomb(e, seq, ended, until, record):
    table = words(e[E_TOMBS], e[E_TOMBS_CAP] * 4)
    mask = e[E_TOMBS_CAP] - 1
    i = (seq * GOLDEN >> 20) & mask
    while table[4 * i] != 0:
        if table[4 * i] == seq + 1:
            if table[4 * i + 1] == FOREVER:  # one that was taken back
                table[4 * i + 1] = ended
                table[4 * i + 2] = until
                table[4 * i + 3] = record
            return
        i = (i + 1) & mask
    table[4 * i] = seq + 1
    table[4 * i + 1] = ended
    table[4 * i + 2] = until
    table[4 * i + 3] = record
    e[E_TOMBS_USED] += 1


@jit
def take_tomb_back(e, h, seq):
    """The cancel was not logged: its tomb says nothing any more."""
    table = words(e[E_TOMBS], e[E_TOMBS_CAP] * 4)
    mask = e[E_TOMBS_CAP] - 1
    i = (seq * GOLDEN >> 20) & mask
    while table[4 * i] != 0:
        if table[4 * i] == seq + 1:
            table[4 * i + 1] = FOREVER
            if table[4 * i + 3] > 0:
                h[table[4 * i + 3] + SUB_BLOB] |= F_VOID
            return
        i = (i + 1) & mask


@jit
def bury(address, seq, ended, until):
    """Load a tomb that a sealed component holds."""
    put_tomb(engine(address), seq, ended, until, 0)


# ---- tables without their stale entries: swept in place, or moved to a new one ------------
#
# A sweep starts behind a free cell and enters every entry anew, in order. Its home lies
# before it with no free cell between, and its own cell has just been freed: so it never
# moves on, and entries that are still to come are not in the way.


@jit
def sweep_dir(address):
    """Clear the stale entries of the directory, where it is."""
    e = engine(address)
    table = words(e[E_DIR], e[E_DIR_CAP] * DIR_ENTRY)
    mask = e[E_DIR_CAP] - 1
    free = 0
    while table[DIR_ENTRY * free + 2] != 0:
        free += 1
    e[E_DIR_USED] = 0
    for n in range(1, mask + 1):
        at = DIR_ENTRY * ((free + n) & mask)
        packed = table[at + 2]
        if packed != 0:
            table[at + 2] = 0
            if entry_window(e, packed) >= 0:
                put_entry(e, table[at], table[at + 1], packed, table[at + 3], table[at + 4])


@jit
def sweep_ids(address):
    """The same for the id table."""
    e = engine(address)
    table = words(e[E_IDS], e[E_IDS_CAP] * 2)
    mask = e[E_IDS_CAP] - 1
    free = 0
    while table[2 * free] != 0:
        free += 1
    e[E_IDS_USED] = 0
    for n in range(1, mask + 1):
        at = 2 * ((free + n) & mask)
        id_hash = table[at]
        if id_hash != 0:
            table[at] = 0
            if entry_window(e, table[at + 1]) >= 0:
                enter_id(e, id_hash, table[at + 1])
    if e[E_LIMBO_COUNT] > 0:
        e[E_REUSED] = 1  # what was left out might have told


@jit
def rebuild_dir(address, old_address, old_cap):
    """Move the entries that still count from an old directory into the engine's new one."""
    e = engine(address)
    old = words(old_address, old_cap * DIR_ENTRY)
    e[E_DIR_USED] = 0
    mask = e[E_DIR_CAP] - 1
    limit = old_cap * DIR_ENTRY
    for i in range(0, limit, DIR_ENTRY):
        ahead = i + 16 * DIR_ENTRY  # the new places lie all over: begin to load those to come
        if ahead < limit and old[ahead + 2] != 0:
            k1 = old[ahead]
            prefetch(e[E_DIR] + 8 * DIR_ENTRY * ((k1 ^ (k1 >> 32)) & mask))
        packed = old[i + 2]
        if packed != 0 and entry_window(e, packed) >= 0:
            put_entry(e, old[i], old[i + 1], packed, old[i + 3], old[i + 4])


@jit
def rebuild_ids(address, old_address, old_cap):
    """The same for the id table."""
    e = engine(address)
    old = words(old_address, old_cap * 2)
    mask = e[E_IDS_CAP] - 1
    e[E_IDS_USED] = 0
    for i in range(old_cap):
        if i + 32 < old_cap and old[2 * i + 64] != 0:
            prefetch(e[E_IDS] + 16 * (old[2 * i + 64] & mask))
        if old[2 * i] != 0 and entry_window(e, old[2 * i + 1]) >= 0:
            enter_id(e, old[2 * i], old[2 * i + 1])
    if e[E_LIMBO_COUNT] > 0:
        e[E_REUSED] = 1  # what was left out might have told


@jit
def rebuild_tombs(address, old_address, old_cap, now):
    """The same for the tombs; those that nobody asks for any more are left out."""
    e = engine(address)
    old = words(old_address, old_cap * 4)
    e[E_TOMBS_USED] = 0
    for i in range(old_cap):
        if old[4 * i] != 0 and old[4 * i + 2] > now:
            put_tomb(e, old[4 * i] - 1, old[4 * i + 1], old[4 * i + 2], old[4 * i + 3])
