"""The kernels of documents that Python calls, with the types it calls them with."""

from __future__ import annotations

from typing import Any

from numba.core import types as t

from tideline.kernels.documents import (
    blocks,
    build,
    candidates,
    entries,
    fence,
    found,
    keys,
    lookup,
    merge,
    objects,
    order,
    places,
    points,
    records,
    search,
)

__all__ = ["first", "rest"]

_I, _F, _Q = t.int64, t.float64, t.boolean
_W = t.Array(t.int64, 1, "C")
_W2 = t.Array(t.int64, 2, "C")
_B = t.Array(t.uint8, 1, "C")
_I32 = t.Array(t.int32, 1, "C")


def first() -> list[tuple[Any, tuple[Any, ...]]]:
    """What putting and finding documents needs while they are in memory."""
    return [
        (keys.encode_column, (_I, _W, _W, _W, _W, _B)),
        (records.insert, (_I, _I, _I, _I)),
        (records.newest_rows, (_I, _W)),
        (records.find_one, (_I,)),
        (records.find_many, (_I, _I, _I, _I, _W, _W)),
        (candidates.newest, (_I,) * 5),
        (candidates.settle, (_I, _I, _Q)),
        (records.deliver, (_I, _I, _I)),
        (records.measure_rows, (_W,) * 6),
        (records.copy_keys, (_W, _W, _W, _W, _B, _B)),
        (records.copy_docs, (_W, _W, _W, _W, _I, _I, _B)),
        (merge.seek, (_I, _I, _I, _I)),
        (merge.is_sorted, (_I, _I, _I)),
        (merge.merge_next, (_I, _I, _Q, _I, _W, _W)),
    ]


def rest() -> list[tuple[Any, tuple[Any, ...]]]:
    """Everything else: indexes, sealing, merging."""
    return [
        (points.count_points, (_I, _W, _W2, _W2, _W, _I, _F, _F, _F, _F, _W2, _W)),
        (keys.extremes, (_I, _I, _I, _W)),
        (blocks.key_bloom, (_I, _I, _I, _I, _I, _W)),
        (blocks.index_blocks, (_I32, _I, _I, _W, _I, _I, _W, _W, _W, _W, _I, _W, _W, _W, _W)),
        (fence.fence_words, (_I,)),
        (fence.common_bytes, (_I, _I, _I)),
        (fence.make_fence, (_I, _I, _I, _I, _W)),
        (search.catch_up, (_I, _I, _I)),
        (search.count_blocks, (_I, _I, _W)),
        (objects.write_keys, (_I, _I, _I, _I32, _B)),
        (objects.write_objects, (_I, _W2, _W, _B)),
        (objects.write_arrays, (_W, _W2, _W, _B)),
        (entries.add, (_I,) * 13),
        (entries.rehash, (_I,)),
        (order.sort_ties, (_I,) * 6),
        (order.merge_orders, (_I,) * 6),
        (build.plan_memory, (_I, _I, _I, _Q, _I)),
        (build.plan_merge, (_I, _I, _Q, _I)),
        (build.keep_entries, (_I, _Q, _I)),
        (places.make_bloom, (_I,) * 5),
        (places.make_fence, (_I,)),
        (places.check_place, (_I,)),
        (found.search, (_I,) * 12),
        (found.count_matches, (_I,) * 7),
        (lookup.lookup, (_I,) * 10),
        (lookup.lookup_embedded, (_I,)),
        (found.gather, (_I,) * 4),
    ]
