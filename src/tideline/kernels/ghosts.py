"""What stays of subscriptions when their window goes: see store.py on ghosts."""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.export import log_ghost
from tideline.kernels.heap import (
    chunk_used,
    engine,
    ghost_end,
    has_room,
    heap_bytes,
    heap_of,
    next_slot,
    slot_key_length,
    windows_of,
)
from tideline.kernels.layout import (
    C_ANSWER_COUNT,
    C_EVENT_REF_COUNT,
    C_EVENTS,
    C_EXTRA_USED,
    C_SCRATCH,
    C_STATUS,
    C_SUB_REF_COUNT,
    C_SUBS,
    C_WORDS,
    CHUNK,
    DONE,
    E_LOG,
    E_MODE,
    E_SEED1,
    E_SEED2,
    F_GHOSTED,
    F_TOMB,
    F_UNKNOWN_KEEP,
    F_VOID,
    KEEP,
    LOW40,
    NEED_MEMORY,
    NEED_OUTPUT,
    SINCE,
    SLOT_KEY,
    SUB_BLOB,
    SUB_WORDS,
    SUBS,
    UNTIL,
    W_LOG,
    W_SLOTS,
    W_WORDS,
)
from tideline.kernels.match import TREE, answer_events, forget_codes, heap_shape
from tideline.kernels.store import copy_ghost
from tideline.kernels.text import nodes
from tideline.kernels.views import words


@jit
def collect_ghosts(address, number, now, sealing):
    """Leave ghosts for the subscriptions of a window that is dropped or was sealed.

    When it asks for memory it may be called again: a ghost is left only once.
    """
    c = words(address, C_WORDS)
    e = engine(c[C_SUBS])
    h = heap_of(e)
    ee = engine(c[C_EVENTS])
    he = heap_of(ee)
    tree = words(c[C_SCRATCH], TREE)
    c[C_STATUS] = DONE
    slot = windows_of(e)[number * W_WORDS + W_SLOTS]
    # A sealed subscription is skipped by recovery, so its ghost gets a row of its own.
    first_log = e[E_LOG] if sealing else windows_of(e)[number * W_WORDS + W_LOG]
    while slot > 0:
        chunk = h[slot + SUBS]
        while chunk > 0:
            o = chunk + CHUNK
            for _ in range(chunk_used(h, chunk)):
                blob = h[o + SUB_BLOB]
                if blob & (F_TOMB | F_VOID) == 0:
                    if blob & F_UNKNOWN_KEEP:
                        status, keep = latest_end(c, e, h, ee, he, slot, o, now, tree)
                        if status != DONE:
                            c[C_STATUS] = status
                            return
                        h[o + KEEP] = keep
                        h[o + SUB_BLOB] = (blob & ~F_UNKNOWN_KEEP) | F_GHOSTED
                    if h[o + KEEP] > (h[o + UNTIL] if sealing else now):
                        if not has_room(e):
                            c[C_STATUS] = NEED_MEMORY
                            return
                        # Logged first: a ghost that is there is never logged again.
                        used = c[C_EXTRA_USED]
                        if sealing:
                            if not log_ghost(c, e, h, o, ghost_end(h[o + KEEP], now)):
                                c[C_STATUS] = NEED_OUTPUT
                                return
                            h[o + SUB_BLOB] |= F_GHOSTED  # the seal may yet fail
                        if not copy_ghost(e, h, o, h[o + KEEP], now, tree, first_log):
                            c[C_EXTRA_USED] = used
                o += SUB_WORDS
            chunk = h[chunk] & LOW40
        slot = next_slot(h, slot)


@jit
def count_kept(address, number, now):
    """How many subscriptions of a window were answered with an event that is valid after `now`."""
    c = words(address, C_WORDS)
    e = engine(c[C_SUBS])
    h = heap_of(e)
    slot = windows_of(e)[number * W_WORDS + W_SLOTS]
    kept = 0
    while slot > 0:
        chunk = h[slot + SUBS]
        while chunk > 0:
            o = chunk + CHUNK
            for _ in range(chunk_used(h, chunk)):
                if h[o + KEEP] > now:
                    kept += 1
                o += SUB_WORDS
            chunk = h[chunk] & LOW40
        slot = next_slot(h, slot)
    return kept


@jit
def latest_end(c, e, h, ee, he, slot, o, now, tree):
    """The latest end of a valid event that a subscription may have been answered with."""
    octet = heap_bytes(e)
    start = (slot + SLOT_KEY) * 8
    limit = start + slot_key_length(h, slot)
    count = nodes(octet, start, limit, e[E_MODE], e[E_SEED1], e[E_SEED2], tree)
    answers = c[C_ANSWER_COUNT]
    subs = c[C_SUB_REF_COUNT]
    events = c[C_EVENT_REF_COUNT]
    status, keep = answer_events(
        c,
        ee,
        he,
        octet,
        start,
        tree,
        count,
        h[o + SINCE],
        h[o + UNTIL],
        now,
        -1,
        heap_shape(e, h, h[o + SUB_BLOB]),
        False,
        0,
    )
    forget_codes(c, answers, subs, events)
    return status, keep
