"""From hits to the newest versions of documents, without a copy of a key.

    hits (search.py) -> of AHEAD of them: seq, and where the key stands -> documents/candidates.py

Entries of a memory lie in the order of their arrival, its places in Hilbert order: so those of the
next hits are loaded while these are followed.

No Python objects, no state of its own; releases the GIL.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.documents.candidates import AHEAD, T_KEY, T_SIZE, T_WORDS, some
from tideline.kernels.documents.layout import S_COUNTS, S_OUT_COUNT, S_STEPS, S_WORDS
from tideline.kernels.spatial.layout import (
    P_COUNT,
    P_IDS,
    P_KEY_OFFSETS,
    P_KEYS,
    P_SEQS,
    P_WORDS,
    PLACE_SHIFT,
    PLACES,
    POSITION,
)
from tideline.kernels.views import prefetch, words

__all__ = ["follow"]


@jit
def _load(places, hits, first, limit):
    """Begin to load what is known of some entries."""
    for i in range(first, limit):
        p = words(places + 8 * P_WORDS * ((hits[i] >> PLACE_SHIFT) & PLACES), P_WORDS)
        if p[P_IDS]:
            entry = words(p[P_IDS], p[P_COUNT])[hits[i] & POSITION]
            prefetch(p[P_SEQS] + 8 * entry)
            prefetch(p[P_KEY_OFFSETS] + 8 * entry)


@jit
def follow(state, places, hits_at, count, below):
    """Put those hits of writes with a seq below that count among what was found: how many."""
    facts = words(state, S_WORDS)
    steps, seqs = words(facts[S_STEPS], AHEAD * T_WORDS), words(facts[S_COUNTS], AHEAD)
    hits = words(hits_at, count)
    _load(places, hits, 0, min(AHEAD, count))
    for first in range(0, count, AHEAD):
        limit = min(first + AHEAD, count)
        _load(places, hits, limit, min(limit + AHEAD, count))
        taken = 0
        for i in range(first, limit):
            p = words(places + 8 * P_WORDS * ((hits[i] >> PLACE_SHIFT) & PLACES), P_WORDS)
            entry = hits[i] & POSITION
            if p[P_IDS]:
                entry = words(p[P_IDS], p[P_COUNT])[entry]
            seq = words(p[P_SEQS], entry + 1)[entry]
            if seq < below:
                offsets = words(p[P_KEY_OFFSETS], entry + 2)
                steps[T_WORDS * taken + T_KEY] = p[P_KEYS] + offsets[entry]
                steps[T_WORDS * taken + T_SIZE] = offsets[entry + 1] - offsets[entry]
                seqs[taken] = seq
                taken += 1
        some(state, seqs, 0, taken)
    return facts[S_OUT_COUNT]
