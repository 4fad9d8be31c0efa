"""The kernels of stream windows that Python calls, with the types it calls them with."""

from __future__ import annotations

from typing import Any

from numba.core import types as t

from tideline.kernels.stream import fold, runs, sort

__all__ = ["kernels"]

_I, _F = t.int64, t.float64


def kernels() -> list[tuple[Any, tuple[Any, ...]]]:
    """All of them."""
    return [
        (sort.extent, (_I,) * 4),
        (sort.sort, (_I,) * 9),
        (runs.direct, (_I,)),
        (runs.seek, (_I,) * 4),
        (runs.find_many, (_I,) * 4),
        (runs.scan, (_I,) * 6),
        (fold.add_up, (_I,) * 4),
        (fold.extremes, (_I,) * 4),
        (fold.buckets, (_I, _I, _F, _I)),
    ]
