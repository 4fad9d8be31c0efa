"""Rows made ready for a memory: cut into parts that fit, and with the entries of every index.

    rows -> in_parts -> completed -> log and memory

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tideline.documents.types import DELETE, Rows
from tideline.errors import InvalidRequest
from tideline.index.kind import Entries
from tideline.index.records import PART_BYTES, PART_ROWS
from tideline.index.texts import Texts

__all__ = ["DOC_LIMIT", "Extract", "between", "completed", "in_parts", "taken"]

Extract = Callable[[Texts, Sequence[str]], list[Entries]]
DOC_LIMIT = 16 << 20


def completed(
    rows: Rows, fields: Sequence[str], filter: str | None, extract: Extract,
    own: Mapping[str, Extract],
) -> Rows:  # fmt: skip
    """The rows with entries of `fields` and values of `filter`; extracted where there are none.

    `extract` gives the plain values of all fields at once; `own` has those fields whose index
    extracts something else.
    """
    missing = [field for field in fields if field not in rows.entries]
    wanted = filter is not None and rows.filter_values is None
    if not missing and not wanted:
        return rows
    gone = rows.ops == DELETE
    plain = [field for field in missing if field not in own]
    asked = [*plain, filter] if wanted and filter else plain
    found = [_without(gone, each) for each in extract(rows.docs, asked)] if asked else []
    values = found.pop().values if wanted else rows.filter_values
    entries = {**rows.entries, **dict(zip(plain, found, strict=True))}
    for field in missing:
        if field in own:
            entries[field] = _without(gone, own[field](rows.docs, [field])[0])
    return rows._replace(entries=entries, filter_values=values)


def in_parts(rows: Rows) -> Iterator[Rows]:
    """Rows in parts that a memory has room for."""
    if rows.count <= PART_ROWS and rows.docs.size_bytes + rows.keys.size_bytes <= PART_BYTES:
        yield rows
        return
    largest = int(np.diff(rows.docs.offsets).max())
    if largest > DOC_LIMIT:
        raise InvalidRequest("a document is too large", size_bytes=largest, limit=DOC_LIMIT)
    ends = rows.docs.offsets[1:] - rows.docs.offsets[0] + np.diff(rows.keys.offsets).cumsum()
    first = 0
    while first < rows.count:
        before = int(ends[first - 1]) if first else 0
        limit = int(np.searchsorted(ends, before + PART_BYTES, side="right"))
        limit = min(max(limit, first + 1), first + PART_ROWS, rows.count)
        yield between(rows, first, limit)
        first = limit


def between(rows: Rows, first: int, limit: int) -> Rows:
    """The rows [first, limit), in place."""
    if first == 0 and limit == rows.count:
        return rows
    entries = {}
    for name, each in rows.entries.items():
        a, b = np.searchsorted(each.row, [first, limit]).tolist()
        entries[name] = Entries(each.row[a:b] - first, each.values.slice(a, b))
    return Rows(
        rows.ops[first:limit], rows.keys.slice(first, limit), rows.docs.slice(first, limit),
        entries, rows.filter_values, None if rows.untils is None else rows.untils[first:limit],
    )  # fmt: skip


def taken(rows: Rows, kept: NDArray[np.int64]) -> Rows:
    """Some of the rows, by their numbers, which rise."""
    if len(kept) == rows.count:
        return rows
    numbers = np.full(rows.count, -1, np.int64)
    numbers[kept] = np.arange(len(kept))
    entries = {}
    for name, each in rows.entries.items():
        stay = np.flatnonzero(numbers[each.row] >= 0)
        entries[name] = Entries(numbers[each.row[stay]], each.values.take(stay))
    return Rows(
        rows.ops[kept], rows.keys.take(kept), rows.docs.take(kept), entries, rows.filter_values,
        None if rows.untils is None else rows.untils[kept],
    )  # fmt: skip


def _without(gone: NDArray[np.bool_], entries: Entries) -> Entries:
    """The entries of rows that are not gone."""
    keep = ~gone[entries.row]
    if keep.all():
        return entries
    return Entries(entries.row[keep], entries.values.take(np.flatnonzero(keep)))
