"""The kernels of places that Python calls, with the types it calls them with."""

from __future__ import annotations

from typing import Any

from numba.core import types as t

from tideline.kernels.spatial import build, found, nearest, outline, search, texts

__all__ = ["kernels"]

_I, _F, _Q = t.int64, t.float64, t.boolean


def kernels() -> list[tuple[Any, tuple[Any, ...]]]:
    """All of them."""
    return [
        (build.hilbert_keys, (_I,) * 6),
        (build.order_by_key, (_I,) * 6),
        (build.take_doubles, (_I,) * 5),
        (build.ranked, (_I,)),
        (build.level_words, (_I, _I)),
        (build.node_boxes, (_I,) * 6),
        (search.search_box, (_I, _I, _F, _F, _F, _F, _Q, _I, _I)),
        (search.count_box, (_I, _I, _F, _F, _F, _F)),
        (search.refine, (_I,) * 7),
        (search.keep_below, (_I,) * 5),
        (search.gather, (_I,) * 5),
        (search.gather_below, (_I,) * 8),
        (found.follow, (_I,) * 5),
        (search.check_place, (_I,)),
        (nearest.next_nearest, (_I, _I, _I, _I, _F, _F, _F, _F, _I, _I, _I)),
        (outline.meets, (_I, _I, _F, _F, _F, _F)),
        (outline.within, (_I, _I, _F, _F, _F, _F)),
        (outline.nearest_m, (_I, _F, _F)),
        (outline.farthest_m, (_I, _F, _F)),
        (texts.read_points, (_I,) * 7),
    ]
