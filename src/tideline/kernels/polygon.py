"""Whether a polygon meets another shape, compiled.

A polygon comes as the address of its numbers (space/polygon.py):

    rings | end of each ring, in points; negative for a hole | lon, lat of each point

Edges are straight lines in longitude and latitude and belong to it; inside is what an odd number
of edges parts from afar. A shape that no edge meets lies in one piece of the plane: then any one
point of it decides. That holds for rings that touch or cross, too. The sides of points on lines are
exact (orient.py), so only what circles have to do with edges is subject to rounding.

Invariants:
1. Every test is symmetric in its two shapes, to the last bit.
2. `covers` says what its twin in `tideline.where.geo` says.

No Python objects, no state; all release the GIL.
"""

from __future__ import annotations

import math

from tideline.kernels import jit
from tideline.kernels.geo import (
    CIRCLE,
    EARTH_RADIUS_M,
    NONE,
    POINT,
    POLYGON,
    bend_of,
    circle_bounds,
    haversine_m,
)
from tideline.kernels.orient import apart, orient, same_side
from tideline.kernels.views import doubles

__all__ = ["polygon_meets"]

_MOST_HALVINGS = 52


@jit
def polygon_meets(
    kind1: int,
    a1: float,
    b1: float,
    c1: float,
    d1: float,
    corners1: int,
    kind2: int,
    a2: float,
    b2: float,
    c2: float,
    d2: float,
    corners2: int,
) -> bool:
    """Whether two shapes meet, of which one is a polygon at least.

    The four numbers of a polygon are its bounding box, and `corners` is where its numbers are.
    """
    if kind2 != POLYGON:
        return _meets(corners1, kind2, a2, b2, c2, d2)
    if kind1 != POLYGON:
        return _meets(corners2, kind1, a1, b1, c1, d1)
    if _any_ring_inside(corners1, corners2) or _any_ring_inside(corners2, corners1):
        return True
    return _edges_meet(
        corners1, corners2, max(a1, a2), max(b1, b2), min(c1, c2), min(d1, d2)
    )  # fmt: skip


@jit
def _meets(corners: int, kind: int, a: float, b: float, c: float, d: float) -> bool:
    """Whether a polygon meets a shape that is none."""
    if kind == NONE:
        return True
    if kind == POINT:
        return covers(corners, a, b)
    if kind == CIRCLE:
        return covers(corners, a, b) or _near(corners, a, b, c)
    return covers(corners, a, b) or _edge_in_box(corners, a, b, c, d)


@jit
def covers(corners: int, x: float, y: float) -> bool:
    """Whether a polygon covers a point: on an edge of any ring, or inside by even-odd."""
    f = doubles(corners, 1)
    rings = int(f[0])
    f = doubles(corners, 1 + rings)
    points = int(abs(f[rings]))
    p = doubles(corners + 8 * (1 + rings), 2 * points)
    odd = False
    start = 0
    for ring in range(rings):
        limit = int(abs(f[1 + ring]))
        ax, ay = p[2 * limit - 2], p[2 * limit - 1]
        for i in range(start, limit):
            bx, by = p[2 * i], p[2 * i + 1]
            if (ay <= y and y <= by) or (by <= y and y <= ay):
                side = orient(ax, ay, bx, by, x, y)
                if side == 0.0 and min(ax, bx) <= x and x <= max(ax, bx):
                    return True
                if (ay > y) != (by > y) and (side > 0.0) == (by > ay):
                    odd = not odd
            ax, ay = bx, by
        start = limit
    return odd


@jit
def _any_ring_inside(corners: int, other: int) -> bool:
    """Whether the first point of a ring is covered by another polygon."""
    rings = int(doubles(corners, 1)[0])
    f = doubles(corners, 1 + rings)
    p = doubles(corners + 8 * (1 + rings), 2 * int(abs(f[rings])))
    start = 0
    for ring in range(rings):
        if covers(other, p[2 * start], p[2 * start + 1]):
            return True
        start = int(abs(f[1 + ring]))
    return False


@jit
def _edges_meet(corners: int, other: int, w: float, s: float, e: float, n: float) -> bool:
    """Whether an edge of one polygon meets one of another. They can only within w, s, e, n."""
    rings = int(doubles(corners, 1)[0])
    f = doubles(corners, 1 + rings)
    p = doubles(corners + 8 * (1 + rings), 2 * int(abs(f[rings])))
    start = 0
    for ring in range(rings):
        limit = int(abs(f[1 + ring]))
        ax, ay = p[2 * limit - 2], p[2 * limit - 1]
        for i in range(start, limit):
            bx, by = p[2 * i], p[2 * i + 1]
            west, east = min(ax, bx), max(ax, bx)
            south, north = min(ay, by), max(ay, by)
            if west <= e and w <= east and south <= n and s <= north:
                if _edge_meets(other, ax, ay, bx, by, west, south, east, north):
                    return True
            ax, ay = bx, by
        start = limit
    return False


@jit
def _edge_meets(
    corners: int, ax: float, ay: float, bx: float, by: float,
    west: float, south: float, east: float, north: float,
) -> bool:  # fmt: skip
    """Whether the segment from a to b, with its bounding box, meets an edge of a polygon."""
    rings = int(doubles(corners, 1)[0])
    f = doubles(corners, 1 + rings)
    p = doubles(corners + 8 * (1 + rings), 2 * int(abs(f[rings])))
    start = 0
    for ring in range(rings):
        limit = int(abs(f[1 + ring]))
        cx, cy = p[2 * limit - 2], p[2 * limit - 1]
        for i in range(start, limit):
            dx, dy = p[2 * i], p[2 * i + 1]
            if (
                min(cy, dy) <= north
                and south <= max(cy, dy)
                and min(cx, dx) <= east
                and west <= max(cx, dx)
                and not apart(ax, ay, bx, by, cx, cy, dx, dy)
            ):
                return True
            cx, cy = dx, dy
        start = limit
    return False


@jit
def _edge_in_box(corners: int, w: float, s: float, e: float, n: float) -> bool:
    """Whether an edge of a polygon meets a closed box: no axis and no line parts the two."""
    rings = int(doubles(corners, 1)[0])
    f = doubles(corners, 1 + rings)
    p = doubles(corners + 8 * (1 + rings), 2 * int(abs(f[rings])))
    start = 0
    for ring in range(rings):
        limit = int(abs(f[1 + ring]))
        ax, ay = p[2 * limit - 2], p[2 * limit - 1]
        for i in range(start, limit):
            bx, by = p[2 * i], p[2 * i + 1]
            if min(ax, bx) <= e and w <= max(ax, bx) and min(ay, by) <= n and s <= max(ay, by):
                one = orient(ax, ay, bx, by, w, s)
                if not (
                    same_side(one, orient(ax, ay, bx, by, e, s))
                    and same_side(one, orient(ax, ay, bx, by, e, n))
                    and same_side(one, orient(ax, ay, bx, by, w, n))
                ):
                    return True
            ax, ay = bx, by
        start = limit
    return False


# ---- circles ----------------------------------------------------------------------


@jit
def _near(corners: int, lon: float, lat: float, radius_m: float) -> bool:
    """Whether an edge of a polygon comes within `radius_m` of a point."""
    w, s, e, n = circle_bounds(lon, lat, radius_m)
    rings = int(doubles(corners, 1)[0])
    f = doubles(corners, 1 + rings)
    p = doubles(corners + 8 * (1 + rings), 2 * int(abs(f[rings])))
    start = 0
    for ring in range(rings):
        limit = int(abs(f[1 + ring]))
        ax, ay = p[2 * limit - 2], p[2 * limit - 1]
        for i in range(start, limit):
            bx, by = p[2 * i], p[2 * i + 1]
            if (
                min(ax, bx) <= e
                and w <= max(ax, bx)
                and min(ay, by) <= n
                and s <= max(ay, by)
                and _edge_near(lon, lat, radius_m, ax, ay, bx, by)
            ):
                return True
            ax, ay = bx, by
        start = limit
    return False


@jit
def _edge_near(
    lon: float, lat: float, radius_m: float, ax: float, ay: float, bx: float, by: float
) -> bool:
    """Whether a straight edge comes within `radius_m` of a point, on the globe.

    The edge is no great circle, so no formula has its nearest point. The haversine of the distance
    bends by at most half of `bend_of` the edge: between two points it
    stays over the lower of both less a sixteenth of that. So halves of the edge are looked
    at until both ends of one are near enough, or none can be.
    """
    wide, high = bx - ax, by - ay
    curve = bend_of(ax, ay, bx, by)
    turn = math.sin(min(radius_m / EARTH_RADIUS_M, math.pi) * 0.5)
    least = turn * turn  # the haversine of the radius
    level, i = 0, 0
    while True:
        part = 1.0 / (1 << level)
        first, last = i * part, (i + 1) * part
        one = haversine_m(lon, lat, ax + wide * first, ay + high * first)
        x = bx if last == 1.0 else ax + wide * last
        y = by if last == 1.0 else ay + high * last
        other = haversine_m(lon, lat, x, y)
        if one <= radius_m or other <= radius_m:
            return True
        turn = math.sin(min(one, other) / EARTH_RADIUS_M * 0.5)
        bend = curve * part * part * 0.0625
        # Less than that and both ends are the nearest point, to a part in a thousand million.
        if bend > 1e-9 * least and turn * turn - bend <= least and level < _MOST_HALVINGS:
            level += 1
            i *= 2
            continue
        i += 1
        while level > 0 and i & 1 == 0:
            i >>= 1
            level -= 1
        if level == 0:
            return False
