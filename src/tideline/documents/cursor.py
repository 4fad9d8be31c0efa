"""Going through what a condition finds without having all of it in memory.

    hits of one view -> their keys in order -> documents, some at a time, of the same view

In the order of keys, documents are read as they are scanned. In any other order the keys of all
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
from tideline.documents.types import Found
from tideline.index.texts import Texts
from tideline.where.order import sort_keys

__all__ = ["BATCH", "read"]

BATCH = 1_000
"""How many documents are read at once, unless told otherwise."""
_decode = msgspec.json.Decoder().decode


def read(
    hits: Hits, key: str, order: Order, skip: int, limit: int | None, batch: int = BATCH
) -> Iterator[Found]:
    """The documents of hits in order, at most `batch` at a time, with their seqs and keys."""
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
            yield hits.view.fetch(keys.slice(start, min(start + batch, end)))
        if left is not None:
            left -= end - first
            if left <= 0:
                return


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
