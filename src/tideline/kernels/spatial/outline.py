"""How geometries lie to one another, compiled: exact for straight edges in longitude and latitude.

A geometry comes as the address of its *outline* (space/outline.py), float64 throughout:

    parts | of each part: kind, area, end in points | lon, lat of each point

    kind   POINTS, LINE, or RING: a closed line, whose first point is not its last again
    area   rings with one number are one area: inside is what an odd number of edges parts from
           afar; edges belong to it

What two geometries have in common is decided by the sides of points on lines alone, and those are
exact (kernels/orient.py). Distances are those of `haversine_m`; of an edge, which is no great
circle, the nearest point is found by halving; a point that lies on one is at 0 from it, exactly.

No Python objects, no state; all release the GIL.
"""

from __future__ import annotations

import math

from tideline.kernels import jit
from tideline.kernels.geo import EARTH_RADIUS_M, bend_of
from tideline.kernels.orient import apart, orient
from tideline.kernels.views import doubles

__all__ = ["covers", "farthest_m", "meets", "nearest_h", "nearest_m", "within"]

POINTS, LINE, RING = 1, 2, 3
NO, YES, OPEN = 0, 1, 2
_RADIANS = math.pi / 180.0
_MOST_HALVINGS = 48


@jit
def _parts(at: int) -> int:
    return int(doubles(at, 1)[0])


@jit
def _points_at(at: int, parts: int) -> int:
    """Where the points begin."""
    return at + 8 * (1 + 3 * parts)


@jit
def covers(at: int, area: int, x: float, y: float) -> int:
    """Whether an area has a point: 0 outside, 1 inside, 2 on an edge."""
    parts = _parts(at)
    f = doubles(at + 8, 3 * parts)
    p = doubles(_points_at(at, parts), 2 * int(f[3 * parts - 1]))
    odd = False
    start = 0
    for part in range(parts):
        limit = int(f[3 * part + 2])
        if f[3 * part] == RING and f[3 * part + 1] == area:
            ax, ay = p[2 * limit - 2], p[2 * limit - 1]
            for i in range(start, limit):
                bx, by = p[2 * i], p[2 * i + 1]
                if (ay <= y <= by) or (by <= y <= ay):
                    if x <= max(ax, bx):
                        if x < min(ax, bx):
                            side = 1.0 if by > ay else -1.0
                        else:
                            side = orient(ax, ay, bx, by, x, y)
                            if side == 0.0:
                                return 2
                        if (ay > y) != (by > y) and (side > 0.0) == (by > ay):
                            odd = not odd
                ax, ay = bx, by
        start = limit
    return 1 if odd else 0


@jit
def _covered(at: int, x: float, y: float) -> bool:
    """Whether any area has a point."""
    parts = _parts(at)
    f = doubles(at + 8, 3 * parts)
    last = -1
    for part in range(parts):
        if f[3 * part] == RING and int(f[3 * part + 1]) != last:
            last = int(f[3 * part + 1])
            if covers(at, last, x, y) != 0:
                return True
    return False


@jit
def _edge_meets(at: int, ax: float, ay: float, bx: float, by: float) -> bool:
    """Whether the edge from a to b, or a point when they are one, meets any point or edge."""
    west, east = min(ax, bx), max(ax, bx)
    south, north = min(ay, by), max(ay, by)
    parts = _parts(at)
    f = doubles(at + 8, 3 * parts)
    p = doubles(_points_at(at, parts), 2 * int(f[3 * parts - 1]))
    start = 0
    for part in range(parts):
        kind, limit = int(f[3 * part]), int(f[3 * part + 2])
        cx, cy = p[2 * start], p[2 * start + 1]
        if kind == RING:
            cx, cy = p[2 * limit - 2], p[2 * limit - 1]
        for i in range(start, limit):
            dx, dy = p[2 * i], p[2 * i + 1]
            if kind == POINTS:
                cx, cy = dx, dy
            if (
                min(cx, dx) <= east and west <= max(cx, dx)
                and min(cy, dy) <= north and south <= max(cy, dy)
                and not apart(ax, ay, bx, by, cx, cy, dx, dy)
            ):  # fmt: skip
                return True
            cx, cy = dx, dy
        start = limit
    return False


@jit
def _any_edge_meets(at: int, other: int, w: float, s: float, e: float, n: float) -> bool:
    """Whether a point or an edge of one meets one of the other; they can only within w, s, e, n."""
    parts = _parts(at)
    f = doubles(at + 8, 3 * parts)
    p = doubles(_points_at(at, parts), 2 * int(f[3 * parts - 1]))
    start = 0
    for part in range(parts):
        kind, limit = int(f[3 * part]), int(f[3 * part + 2])
        ax, ay = p[2 * start], p[2 * start + 1]
        if kind == RING:
            ax, ay = p[2 * limit - 2], p[2 * limit - 1]
        for i in range(start, limit):
            bx, by = p[2 * i], p[2 * i + 1]
            if kind == POINTS:
                ax, ay = bx, by
            if (
                min(ax, bx) <= e and w <= max(ax, bx) and min(ay, by) <= n and s <= max(ay, by)
                and _edge_meets(other, ax, ay, bx, by)
            ):  # fmt: skip
                return True
            ax, ay = bx, by
        start = limit
    return False


@jit
def _any_part_covered(at: int, other: int) -> bool:
    """Whether a part of one lies in an area of the other, when no edges meet.

    A line and a ring then lie inside whole, or outside, so their first point decides.
    """
    parts = _parts(at)
    f = doubles(at + 8, 3 * parts)
    p = doubles(_points_at(at, parts), 2 * int(f[3 * parts - 1]))
    start = 0
    for part in range(parts):
        limit = int(f[3 * part + 2])
        last = limit if f[3 * part] == POINTS else start + 1
        for i in range(start, last):
            if _covered(other, p[2 * i], p[2 * i + 1]):
                return True
        start = limit
    return False


@jit
def meets(at: int, other: int, w: float, s: float, e: float, n: float) -> bool:
    """Whether two geometries have a point in common. w, s, e, n: what their boxes share."""
    return (
        _any_edge_meets(at, other, w, s, e, n)
        or _any_part_covered(at, other)
        or _any_part_covered(other, at)
    )


@jit
def within(at: int, shape: int, w: float, s: float, e: float, n: float) -> int:
    """Whether a geometry lies wholly in area 0 of a shape: NO, YES, or OPEN.

    OPEN where edges of the two meet, or one of the shape lies in an area of the geometry: then
    `space/exact.py` says it. w, s, e, n is the box of the geometry.
    """
    parts = _parts(at)
    f = doubles(at + 8, 3 * parts)
    points = int(f[3 * parts - 1])
    p = doubles(_points_at(at, parts), 2 * points)
    for i in range(points):
        if covers(shape, 0, p[2 * i], p[2 * i + 1]) == 0:
            return NO
    start = 0
    for part in range(parts):
        kind, limit = int(f[3 * part]), int(f[3 * part + 2])
        if kind != POINTS:
            ax, ay = p[2 * start], p[2 * start + 1]
            if kind == RING:
                ax, ay = p[2 * limit - 2], p[2 * limit - 1]
            for i in range(start, limit):
                bx, by = p[2 * i], p[2 * i + 1]
                if _edge_meets(shape, ax, ay, bx, by):
                    return OPEN
                ax, ay = bx, by
        start = limit
    return OPEN if _any_part_covered(shape, at) else YES


@jit
def point_meets(at: int, x: float, y: float) -> bool:
    """Whether a geometry has a point, whose coordinates count as 0 where they nearly are."""
    if abs(x) < 1e-130:
        x = 0.0
    if abs(y) < 1e-130:
        y = 0.0
    return _edge_meets(at, x, y, x, y) or _covered(at, x, y)


# ---- distances ----------------------------------------------------------------------


@jit
def haversine_of(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """The haversine of a distance, as `geo.haversine_m` has it: it rises as the distance does."""
    high = math.sin((lat2 - lat1) * _RADIANS * 0.5)
    wide = math.sin((lon2 - lon1) * _RADIANS * 0.5)
    h = high * high + (math.cos(lat1 * _RADIANS) * math.cos(lat2 * _RADIANS)) * (wide * wide)
    return min(1.0, h)


@jit
def metres_of(h: float) -> float:
    """The distance that has a haversine; as `geo.haversine_m`."""
    return 2.0 * EARTH_RADIUS_M * math.asin(math.sqrt(h))


@jit
def _along(
    lon: float, lat: float, ax: float, ay: float, bx: float, by: float, best: float, far: bool
) -> float:
    """The lesser of `best` and the least haversine along an edge; `far`: greater and greatest.

    The haversine bends by at most half of `bend_of` the edge: between two points it stays over
    the lower of both less a sixteenth of that, and under the higher plus as much. Halves of the
    edge are looked at until none can change the result by more than a part in a hundred million.
    """
    sign = -1.0 if far else 1.0
    wide, high = bx - ax, by - ay
    curve = bend_of(ax, ay, bx, by)
    best *= sign
    level, i = 0, 0
    while True:
        part = 1.0 / (1 << level)
        first, last = i * part, (i + 1) * part
        one = sign * haversine_of(lon, lat, ax + wide * first, ay + high * first)
        x = bx if last == 1.0 else ax + wide * last
        y = by if last == 1.0 else ay + high * last
        other = sign * haversine_of(lon, lat, x, y)
        low = min(one, other)
        best = min(best, low)
        bend = curve * part * part * 0.0625
        if low - bend < best - 1e-8 * abs(best) - 1e-22 and level < _MOST_HALVINGS:
            level += 1
            i *= 2
            continue
        i += 1
        while level > 0 and i & 1 == 0:
            i >>= 1
            level -= 1
        if level == 0:
            return sign * best


@jit
def _extreme_h(at: int, lon: float, lat: float, far: bool) -> float:
    parts = _parts(at)
    f = doubles(at + 8, 3 * parts)
    p = doubles(_points_at(at, parts), 2 * int(f[3 * parts - 1]))
    best = -1.0 if far else 2.0
    start = 0
    for part in range(parts):
        kind, limit = int(f[3 * part]), int(f[3 * part + 2])
        ax, ay = p[2 * start], p[2 * start + 1]
        if kind == RING:
            ax, ay = p[2 * limit - 2], p[2 * limit - 1]
        for i in range(start, limit):
            bx, by = p[2 * i], p[2 * i + 1]
            if kind == POINTS:
                ax, ay = bx, by
            best = _along(lon, lat, ax, ay, bx, by, best, far)
            ax, ay = bx, by
        start = limit
    return best


@jit
def nearest_h(at: int, lon: float, lat: float) -> float:
    """The haversine of the distance from a point to the nearest point of a geometry."""
    return 0.0 if point_meets(at, lon, lat) else _extreme_h(at, lon, lat, False)


@jit
def nearest_m(at: int, lon: float, lat: float) -> float:
    """Metres from a point to the nearest point of a geometry; 0 within its areas."""
    return metres_of(nearest_h(at, lon, lat))


@jit
def farthest_m(at: int, lon: float, lat: float) -> float:
    """Metres from a point to the farthest point of a geometry."""
    opposite = lon - 180.0 if lon > 0.0 else lon + 180.0
    if _covered(at, opposite, -lat):
        return metres_of(1.0)
    return metres_of(_extreme_h(at, lon, lat, True))
