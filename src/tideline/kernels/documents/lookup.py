"""The newest records with a value, in one call.

    by a stand-alone index    found.search     the newest candidates (seq, key) of a range
                              candidates.follow those that count: their key's newest version
                                               has their seq
    by an embedded index      search.search    places of records that count
    both                      records.deliver  their documents; of an embedded index, in order
                                               (candidates.settle)

Mostly every candidate of a stand-alone index counts, and the first chunk of k is enough. Where
many were replaced since, chunks grow fourfold up to what the call has room for.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.candidates import follow, settle
from tideline.kernels.documents.found import search
from tideline.kernels.documents.layout import (
    DONE,
    S_FOUND_SIZE,
    S_INDEX_BLOCKS,
    S_K,
    S_LIMIT,
    S_OUT_COUNT,
    S_WORDS,
)
from tideline.kernels.documents.newest import (
    C_BELOW,
    C_BLOCKS,
    C_PLACE,
    C_WORDS,
    Q_WORDS,
)
from tideline.kernels.documents.records import deliver
from tideline.kernels.documents.search import search as search_embedded
from tideline.kernels.views import words

__all__ = ["lookup", "lookup_embedded"]


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
    limit = facts[S_LIMIT]
    place, below, room = 0, limit, min(k, room_limit)
    while place < count and facts[S_OUT_COUNT] < k:
        # No room for keys: they are read where they stand.
        some = search(places, count, text, low_size, high_size, flags, limit,
                      place, below, room, call, 0)  # fmt: skip
        facts[S_INDEX_BLOCKS] += c[C_BLOCKS]
        seqs = words(base, room)
        addresses = words(base + room * 8, room)
        lengths = words(base + 2 * room * 8, room)
        follow(state, addresses, lengths, seqs, some)
        place, below = c[C_PLACE], c[C_BELOW]
        room = min(4 * room, room_limit)
    facts[S_FOUND_SIZE] = deliver(state, facts[S_OUT_COUNT], 1)
    return facts[S_OUT_COUNT]


@jit
def lookup_embedded(state):
    """Go on with a search of an embedded field; deliver what it found: at most S_K, newest first.

    Returns how many; -1 when there must be more room for what is found.
    """
    facts = words(state, S_WORDS)
    if search_embedded(state) != DONE:
        return -1
    return settle(state, facts[S_K], True)
