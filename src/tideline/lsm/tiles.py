"""Points of a plane in parts that hardly overlap: how components are cut apart by space.

    str   sort-tile-recursive: by x into slices, each slice by y into tiles
    z     by the z-value, whose bits are those of x and of y by turns

Both give parts of about the same number of points. Tiles of `str` overlap in nothing but their
edges; parts of `z` do not overlap on the curve, and little in the plane.

Coordinates are degrees: what lies outside of [-180, 180] x [-90, 90] counts as on the edge.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PARTITIONS", "parts", "z_value", "z_values"]

PARTITIONS = ("str", "z")
_BITS = 31  # of each coordinate: both together are a positive int64

Words = NDArray[np.int64]


def parts(x: Any, y: Any, count: int, partition: str) -> list[Words]:
    """The rows of points in `count` parts of about the same size; none is empty.

    >>> x, y = np.array([0.0, 9.0, 1.0, 8.0]), np.array([0.0, 0.0, 9.0, 9.0])
    >>> [part.tolist() for part in parts(x, y, 4, "str")]
    [[0], [2], [1], [3]]
    >>> [part.tolist() for part in parts(x, y, 2, "z")]
    [[0, 1], [2, 3]]
    """
    rows = len(x)
    count = max(1, min(count, rows))
    if not rows:
        return []
    if count == 1:
        return [np.arange(rows)]
    if partition == "z":
        return _split(np.argsort(z_values(x, y), kind="stable"), count)
    found = []
    slices = math.isqrt(count - 1) + 1  # the root, rounded up
    sizes = [len(each) for each in np.array_split(np.arange(count), slices)]  # tiles of each
    ends = np.cumsum(sizes) * rows // count
    by_x = np.argsort(x, kind="stable")
    start = 0
    for end, tiles in zip(ends.tolist(), sizes, strict=True):
        mine = by_x[start:end]
        found += _split(mine[np.argsort(y[mine], kind="stable")], tiles)
        start = end
    return found


def _split(rows: Words, count: int) -> list[Words]:
    return [part for part in np.array_split(rows, count) if len(part)]


def z_value(x: float, y: float) -> int:
    """The place of a point on the z-curve.

    >>> z_value(-180, -90), z_value(-73.97, 40.76) < z_value(2.35, 48.86) < z_value(180, 90)
    (0, True)
    """
    return int(z_values(np.array([x], float), np.array([y], float))[0])


def z_values(x: Any, y: Any) -> Words:
    """The same of many."""
    return _spread(_cell(x, 180.0)) << 1 | _spread(_cell(y, 90.0))


def _cell(values: Any, most: float) -> Words:
    share = (np.clip(np.asarray(values, np.float64), -most, most) + most) / (2 * most)
    return np.minimum(share * (1 << _BITS), (1 << _BITS) - 1).astype(np.int64)


def _spread(bits: Words) -> Words:
    """A bit of nothing before each bit."""
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333), (1, 0x5555555555555555),
    ):  # fmt: skip
        bits = (bits | bits << shift) & mask
    return bits
