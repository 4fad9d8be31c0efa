"""The newest records with a value, by a stand-alone index, in one call.

    found.search   the newest candidates (seq, key) of a range
    records.take   those of them that count: their key's newest version has their seq
    records.deliver   their documents

Mostly every candidate counts, and the first chunk of k is enough. Where many were replaced since,
chunks grow fourfold up to what the call has room for.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.found import search
from tideline.kernels.documents.layout import (
    S_FOUND_SIZE,
    S_INDEX_BLOCKS,
    S_K,
    S_OUT_COUNT,
    S_WORDS,
)
from tideline.kernels.documents.newest import (
    C_BELOW,
    C_BLOCKS,
    C_PLACE,
    C_WORDS,
    EVERYTHING,
    Q_WORDS,
)
from tideline.kernels.documents.records import deliver, take
from tideline.kernels.views import words

__all__ = ["lookup"]


@jit
def lookup(state, places, count, text, low_size, high_size, flags, k, call, room_limit):
    """Find the `k` newest; their documents go to S_REPLY, S_FOUND_SIZE says how many bytes.

    The call has room for `room_limit` candidates, and what was found for k. Returns how many.
    """
    facts = words(state, S_WORDS)
    facts[S_K] = k
    facts[S_OUT_COUNT] = 0
    c = words(call, C_WORDS)
    base = call + (C_WORDS + Q_WORDS) * 8
    place, below, room = 0, EVERYTHING, min(k, room_limit)
    while place < count and facts[S_OUT_COUNT] < k:
        # No room for keys: they are read where they stand.
        some = search(places, count, text, low_size, high_size, flags, place, below, room, call, 0)
        facts[S_INDEX_BLOCKS] += c[C_BLOCKS]
        seqs = words(base, room)
        addresses = words(base + room * 8, room)
        lengths = words(base + 2 * room * 8, room)
        for i in range(some):
            if take(state, addresses[i], lengths[i], seqs[i]) >= k:
                break
        place, below = c[C_PLACE], c[C_BELOW]
        room = min(4 * room, room_limit)
    facts[S_FOUND_SIZE] = deliver(state, facts[S_OUT_COUNT])
    return facts[S_OUT_COUNT]
