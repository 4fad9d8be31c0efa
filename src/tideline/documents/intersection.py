"""Several indexes at once: what all of them lead to is looked at, and nothing else.

    plan    indexes by the entries they have, fewest first; one more as long as that is cheaper
    run     candidates of the first, then of the next ones: those stay that have the same number
            (the seq of a write); only what is left is followed to documents

An entry counts when the newest version of its key has its seq, and a version has one seq in every
index. So the versions that meet a condition on two fields are among those whose seq both indexes
give, and candidates are intersected by whole numbers, without a look at a document.

Invariants:
1. The candidates of a way lead to every document that meets its box: an intersection of such sets
   does, too. What is left is held against the condition: the estimates decide about time alone.
2. A search is never much dearer than by its first index alone: when that has fewer candidates than
   was expected, so that following them costs less than to gather those of the next, it ends there.
3. Two indexes on one field are not intersected: the one says little that the other does not.

How many are expected in all of several is what would be if their fields had nothing to do with each
other. Pure functions of what they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tideline.documents.ways import FOLLOWED, GATHERED, Span, Way
from tideline.index.compound import parts_of
from tideline.index.kind import Chunk, Estimate, IndexKind
from tideline.index.texts import Texts

__all__ = ["candidates", "intersected", "intersection"]

_SET_UP = 16.0
"""What it costs to begin: a few dozen candidates are followed sooner than intersected."""

_NONE = Chunk(np.zeros(0, np.int64), Texts.of([]))

Gather = Callable[[str, tuple[Any, ...], Span], Chunk]


def intersection(
    ways: Sequence[Way], indexes: Mapping[str, IndexKind], documents: float, limit: int | None
) -> Way | None:
    """The intersection of some of these ways through indexes that costs least; None without two.

    `documents` is how many there are, `limit` how many are wanted, with what is tried for them.
    """
    usable = [way for way in ways if way.kind == "index" and not indexes[way.field or ""].within]
    usable.sort(key=lambda way: way.estimate.entries)
    taken: list[Way] = []
    fields: set[str] = set()
    left = gathered = blocks = cost = 0.0
    for way in usable:
        names = set(parts_of(way.field or ""))
        if names & fields:
            continue
        entries = way.estimate.entries
        share = min(1.0, entries / max(documents, 1.0))
        more = gathered + gather_cost(way)
        fewer = left * share if taken else entries
        followed = fewer if limit is None else min(fewer, float(limit))
        total = _SET_UP + more + FOLLOWED * followed
        if len(taken) > 1 and total >= cost:
            break
        taken.append(way)
        fields |= names
        gathered, left, cost = more, fewer, total
        blocks += way.estimate.blocks
    if len(taken) < 2:
        return None
    return Way(
        "intersection", None, (), taken[0].filter, Estimate(left, blocks), cost,
        parts=tuple(taken),
    )  # fmt: skip


def gather_cost(way: Way) -> float:
    """What it costs to have all candidates of a way through an index, and no documents."""
    return GATHERED * way.estimate.entries + len(way.asks)


def intersected(way: Way, gather: Gather) -> tuple[Chunk, tuple[int, ...]]:
    """What is left of the candidates of an intersection, newest first; how many each index gave.

    An index that was not asked, because what the ones before it have left is soon looked at, has
    no number.
    """
    found: Chunk = _NONE
    counts: list[int] = []
    for part in way.parts:
        if counts and gather_cost(part) >= FOLLOWED * len(found.seqs):
            break
        given = gather(part.field, part.asks, part.filter)
        counts.append(len(given.seqs))
        found = _in_both(found, given) if len(counts) > 1 else given
    return found, tuple(counts)


def _in_both(one: Chunk, other: Chunk) -> Chunk:
    """Those of one whose number the other has, too; both are newest first, each once."""
    rows = np.flatnonzero(np.isin(one.seqs, other.seqs, assume_unique=True, kind="sort"))
    return one if len(rows) == len(one.seqs) else Chunk(one.seqs[rows], one.keys.take(rows))


def candidates(chunks: Sequence[Chunk]) -> Chunk:
    """Chunks as one, newest first, each once.

    >>> one = Chunk(np.array([3, 1]), Texts.of([b"c", b"a"]))
    >>> both = candidates([one, Chunk(np.array([5, 3]), Texts.of([b"e", b"c"]))])
    >>> both.seqs.tolist(), both.keys.to_list()
    ([5, 3, 1], [b'e', b'c', b'a'])
    """
    if not chunks:
        return _NONE
    if len(chunks) == 1 and bool((chunks[0].seqs[1:] < chunks[0].seqs[:-1]).all()):
        return chunks[0]
    seqs, rows = np.unique(np.concatenate([chunk.seqs for chunk in chunks]), return_index=True)
    return Chunk(seqs[::-1].copy(), Texts.join([chunk.keys for chunk in chunks]).take(rows[::-1]))
