"""Going through what a condition finds without having all of it in memory.

    hits of one view -> their keys in order -> documents, some at a time, of the same view

In the order of keys, documents are read as they are scanned. What one index decides (`Hits.whole`)
is followed as it is asked for, newest first. In any other order the keys of all
hits are kept, about 30 bytes each (several times that for a sort), and documents are read as they
are asked for. Everything is of the moment at which the cursor was made. As long as it is used,
that moment is kept: files that were merged since take their space until then.

A cursor is for one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from tideline.documents import rows
from tideline.documents.finding import Hits
from tideline.documents.search import Hit, Order
from tideline.index.kind import Chunk
from tideline.index.sorted import Gathered
from tideline.index.texts import Texts
from tideline.where.order import sort_keys

__all__ = ["BATCH", "read"]

BATCH = 1_000
"""How many documents are read at once, unless told otherwise."""
_decode = msgspec.json.Decoder().decode


def read(
    hits: Hits, key: str, order: Order, skip: int, limit: int | None, batch: int = BATCH
) -> Iterator[Gathered]:
    """The documents of hits in order, at most `batch` at a time, with their seqs and keys."""
    if order is None and hits.whole is not None:
        yield from _followed(hits.view, hits.whole(), skip, limit, batch)
        return
    if order is not None and order[0] == (key, 1) and hits.in_key_order:
        parts: Iterator[Texts] = (_keys(part, key) for part in hits.parts)
    else:
        parts = iter([_ordered(hits.parts, key, order)])
    left = limit
    for keys in parts:
        first = min(skip, keys.count)
        skip -= first
        end = keys.count if left is None else min(keys.count, first + left)
        for start in range(first, end, batch):
            found = hits.view.fetch(keys.slice(start, min(start + batch, end)))
            flags = np.zeros(len(found.docs), np.uint8)
            yield Gathered(Texts.of(list(found.keys)), found.seqs, flags, Texts.of(found.docs))
        if left is not None:
            left -= end - first
            if left <= 0:
                return


def _followed(
    view: Any, found: Chunk, skip: int, limit: int | None, batch: int
) -> Iterator[Gathered]:  # fmt: skip
    """Candidates that are newest first, without those that do not count."""
    left = len(found.seqs) if limit is None else limit
    for start in range(0, len(found.seqs), batch):
        if not left:
            return
        seqs = found.seqs[start : start + batch]
        made = view.follow_columns(Chunk(seqs, found.keys.slice(start, start + len(seqs))))
        first = min(skip, len(made.seqs))
        skip -= first
        end = min(len(made.seqs), first + left)
        left -= end - first
        if (first, end) != (0, len(made.seqs)):
            made = Gathered(
                made.keys.slice(first, end), made.seqs[first:end], made.flags[first:end],
                made.docs.slice(first, end),
            )  # fmt: skip
        yield made


def _keys(part: list[Hit], key: str) -> Texts:
    return rows.keys_of(Texts.of([text for _, text in part]), key)


def _ordered(parts: Iterator[list[Hit]], key: str, order: Order) -> Texts:
    """The keys of hits: newest first, or in an order."""
    make: Callable[[object], Any] | None = None if order is None else sort_keys(order, key)
    keys: list[Texts] = []
    seqs: list[int] = []
    made: list[Any] = []
    for part in parts:
        keys.append(_keys(part, key))
        if make is None:
            seqs += [seq for seq, _ in part]
        else:
            made += [make(_decode(text)) for _, text in part]
    if not keys:
        return Texts.of([])
    if make is None:
        places = np.argsort(np.array(seqs, np.int64))[::-1]
    else:
        places = np.array(sorted(range(len(made)), key=made.__getitem__), np.int64)
    return Texts.join(keys).take(places)
