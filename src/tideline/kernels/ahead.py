"""Looking ahead in a batch: begin to load what the rows to come will touch.

Memory is slow, and the rows of a batch are known. A place is looked at twice before its row runs:
AHEAD rows before, its entries in the directory and its id are asked for; NEAR rows before, when the
entries are here, the lists that they name. Nothing is decided here: a wrong guess costs a load.

For flat spaces, in which a place is one entry a window.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.heap import searched, windows_of
from tideline.kernels.layout import (
    C_ROWS_WORDS,
    DIR_ENTRY,
    E_DIR,
    E_DIR_CAP,
    E_HEAP,
    E_IDS,
    E_IDS_CAP,
    E_SEED1,
    EVENTS,
    LOW16,
    PUBLISH,
    R_LENGTHS,
    SUBS,
    SUBSCRIBE,
    VOID,
    W_GEN,
)
from tideline.kernels.slots import GOLDEN, may_have
from tideline.kernels.store import id_hash_of, row_parts
from tideline.kernels.text import step1
from tideline.kernels.views import prefetch, words

AHEAD, NEAR = 8, 3  # rows between the first look at a row, the second, and running it
RING = 128  # where in the scratch the rows to come are noted


@jit
def look_ahead(c, es, ee, row, octet, p, ring, step):
    """Note the place of a row to come and begin to load what it will look up first."""
    at = 4 * (step % AHEAD)
    ring[at] = VOID
    if p >= c[C_ROWS_WORDS]:
        return p
    kind = row[p] & 0xFF
    if kind == PUBLISH or kind == SUBSCRIBE:
        _, key, ident, user, text, limit = row_parts(row, p)
        h1 = es[E_SEED1]
        for i in range(key, key + (row[p + R_LENGTHS] & LOW16)):
            h1 = step1(h1, octet[i])
        ring[at] = kind
        ring[at + 1] = h1
        fetch_entries(es, h1, False, SUBS, kind == SUBSCRIBE)
        fetch_entries(ee, h1, False, EVENTS, kind == PUBLISH)
        if kind == PUBLISH:
            fetch_id(ee, id_hash_of(ee, EVENTS, octet, ident, user))
        else:
            fetch_id(es, id_hash_of(es, SUBS, octet, ident, user))
    return p + (row[p] >> 32)


@jit
def look_closer(es, ee, ring, step):
    """The directory's entries are here by now: begin to load the lists they name."""
    at = 4 * (step % AHEAD)
    if ring[at] != VOID:
        fetch_entries(es, ring[at + 1], True, SUBS, ring[at] == SUBSCRIBE)
        fetch_entries(ee, ring[at + 1], True, EVENTS, ring[at] == PUBLISH)


@jit
def fetch_entries(e, h1, near, side, last):
    """Begin to load what a search at a place (or, with `last`, a record there) will touch.

    First (`near` false) the entries of the directory, a few rows later the lists.
    """
    ws = windows_of(e)
    numbers, count = searched(e, side)
    table = words(e[E_DIR], e[E_DIR_CAP] * DIR_ENTRY)
    mask = e[E_DIR_CAP] - 1
    for i in range(max(count - 1, 0) if last else 0, count):
        w = numbers[i]
        # A record that is to be stored gets its entry there in any case.
        if (near or not last) and not may_have(ws, w, h1):
            continue
        k1 = h1 + ws[w + W_GEN] * GOLDEN
        at = DIR_ENTRY * ((k1 ^ (k1 >> 32)) & mask)
        if not near:
            prefetch(e[E_DIR] + 8 * at)
            prefetch(e[E_DIR] + 8 * (at + 3 + side))  # half of the entries stand in two lines
            continue
        if table[at] != k1 and table[at + 2] != 0:  # another entry is here: try the next one
            at = DIR_ENTRY * (((k1 ^ (k1 >> 32)) + 1) & mask)
        if table[at] == k1 and table[at + 3 + side] > 0:
            prefetch(e[E_HEAP] + 8 * table[at + 3 + side])
            prefetch(e[E_HEAP] + 8 * table[at + 3 + side] + 64)


@jit
def fetch_id(e, id_hash):
    prefetch(e[E_IDS] + 16 * (id_hash & (e[E_IDS_CAP] - 1)))
