"""Geometry on the globe, compiled: distances, whether shapes meet, keys of many points.

Scalar functions in degrees and metres that other kernels call; the kinds and their
four numbers are those of `tideline.space.place`. The earth is a sphere here.

Invariants:
1. Every test is symmetric in its two shapes, to the last bit.
2. `edge` and `cell_number` do the same arithmetic in the same order as their twins in
   `tideline.space.cells`, so one row and one call agree on every key.
3. `circle_bounds` errs to the large side by more than `haversine_m` can err: what is
   within the circle by `haversine_m` is within its bounds.

No Python objects, no state; all release the GIL.
"""

from __future__ import annotations

import math

from tideline.kernels import jit

__all__ = [
    "cell_number",
    "circle_bounds",
    "circle_cover",
    "circle_meets_box",
    "edge",
    "haversine_m",
    "point_keys",
    "shapes_meet",
]

# Those of tideline.space, said again because kernels import nothing of ours;
# tests/space/test_geo.py holds them equal.
NONE, CELL, POINT, CIRCLE, BOX, POLYGON = 0, 1, 2, 3, 4, 5
EARTH_RADIUS_M = 6_371_008.8
RADIUS_LIMIT_M = math.pi * EARTH_RADIUS_M

_RADIANS = math.pi / 180.0
_DEGREES = 180.0 / math.pi


@jit
def haversine_m(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """Metres between two points along the great circle."""
    high = math.sin((lat2 - lat1) * _RADIANS * 0.5)
    wide = math.sin((lon2 - lon1) * _RADIANS * 0.5)
    h = high * high + (math.cos(lat1 * _RADIANS) * math.cos(lat2 * _RADIANS)) * (wide * wide)
    return 2.0 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, h)))


@jit
def bend_of(ax: float, ay: float, bx: float, by: float) -> float:
    """How fast a point on the globe turns that goes along a straight edge in one unit of time.

    Its second derivative, as a point in space, is at most the squares of the latitude's and the
    longitude's radians, that of the longitude by the cosine, and twice their product.
    """
    wide, high = abs(bx - ax) * _RADIANS, abs(by - ay) * _RADIANS
    cosine = 1.0
    if ay * by > 0.0:
        cosine = math.cos(min(abs(ay), abs(by)) * _RADIANS)
    return high * high + 2.0 * high * wide + cosine * wide * wide


@jit
def _turn(lon: float, target: float) -> float:
    """Degrees of longitude between two meridians, the short way: 0..180."""
    gap = abs(target - lon)
    return 360.0 - gap if gap > 180.0 else gap


@jit
def circle_meets_box(
    lon: float, lat: float, radius_m: float, w: float, s: float, e: float, n: float
) -> bool:
    """Whether any point of the closed box lies within `radius_m` of the center.

    At any one latitude the nearest point of the box is the one with the smallest turn
    in longitude. So it lies on the center's own meridian when the box spans that, and
    else on the nearer of the two side edges.
    """
    spans = w <= lon <= e or w <= lon - 360.0 <= e or w <= lon + 360.0 <= e
    if spans:
        return haversine_m(lon, lat, lon, min(max(lat, s), n)) <= radius_m
    side = w if _turn(lon, w) <= _turn(lon, e) else e
    # Along a meridian the cosine of the distance is A * cos(phi - top): its one maximum
    # is at `top`, and where that is out of reach the better end of the edge is nearest.
    if haversine_m(lon, lat, side, s) <= radius_m or haversine_m(lon, lat, side, n) <= radius_m:
        return True
    phi = lat * _RADIANS
    turned = math.cos(phi) * math.cos((side - lon) * _RADIANS)
    top = math.atan2(math.sin(phi), turned) * _DEGREES
    return s <= top <= n and haversine_m(lon, lat, side, top) <= radius_m


@jit
def _within(lon1: float, lat1: float, lon2: float, lat2: float, metres: float) -> bool:
    """Whether two points are at most so far apart.

    A degree of latitude is the same everywhere and never less than the distance it is part
    of, so most pairs are told apart without a sine (the margin is for rounding).
    """
    if abs(lat1 - lat2) * (_RADIANS * EARTH_RADIUS_M) > metres * 1.000001 + 0.001:
        return False
    return haversine_m(lon1, lat1, lon2, lat2) <= metres


@jit
def _boxes_meet(
    w1: float, s1: float, e1: float, n1: float, w2: float, s2: float, e2: float, n2: float
) -> bool:
    return w1 <= e2 and w2 <= e1 and s1 <= n2 and s2 <= n1


@jit
def shapes_meet(
    kind1: int,
    a1: float,
    b1: float,
    c1: float,
    d1: float,
    kind2: int,
    a2: float,
    b2: float,
    c2: float,
    d2: float,
) -> bool:
    """Whether two shapes meet, when the tree has already found their keys related.

    NONE with anything, CELL with CELL and CELL with POINT are decided by the tree
    alone, so they are true here: call this only for a pair found by walking the tree. Of a
    POLYGON only the box around it is looked at: polygon.py says the rest.
    """
    if kind1 > kind2:  # the smaller kind first: half the cases
        kind1, kind2 = kind2, kind1
        a1, a2 = a2, a1
        b1, b2 = b2, b1
        c1, c2 = c2, c1
        d1, d2 = d2, d1
    if kind1 == NONE:
        return True
    if kind1 == CELL:
        if kind2 == CIRCLE:
            return circle_meets_box(a2, b2, c2, a1, b1, c1, d1)
        if kind2 >= BOX:
            return _boxes_meet(a1, b1, c1, d1, a2, b2, c2, d2)
        return True
    if kind1 == POINT:
        if kind2 == POINT:
            return a1 == a2 and b1 == b2
        if kind2 == CIRCLE:
            return _within(a1, b1, a2, b2, c2)
        return a2 <= a1 <= c2 and b2 <= b1 <= d2
    if kind1 == CIRCLE:
        if kind2 == CIRCLE:
            return _within(a1, b1, a2, b2, c1 + c2)
        return circle_meets_box(a1, b1, c1, a2, b2, c2, d2)
    return _boxes_meet(a1, b1, c1, d1, a2, b2, c2, d2)


@jit
def circle_bounds(lon: float, lat: float, radius_m: float) -> tuple[float, float, float, float]:
    """West, south, east, north around a circle, a trifle too large.

    West and east are -360 and 360 when it holds a pole or meets the antimeridian: every
    longitude then. Close to the far side of the globe distances lose their precision,
    so there everything is within the bounds.
    """
    # 1e-8 of the radius and 0.06 mm: far over the rounding of haversine_m.
    reach = radius_m / EARTH_RADIUS_M * (1.0 + 1e-8) + 1e-11
    if reach > 3.0:
        return -360.0, -90.0, 360.0, 90.0
    south, north = lat - reach * _DEGREES, lat + reach * _DEGREES
    if south <= -90.0 or north >= 90.0:
        return -360.0, max(south, -90.0), 360.0, min(north, 90.0)
    # asin(sin(reach) / cos(lat)), in a form that keeps its precision close to the poles
    phi = lat * _RADIANS
    beside = math.sqrt(max(0.0, math.cos(phi + reach) * math.cos(phi - reach)))
    turn = math.atan2(math.sin(reach), beside) * _DEGREES * (1.0 + 1e-9) + 1e-9
    west, east = lon - turn, lon + turn
    if west <= -180.0 or east >= 180.0:
        return -360.0, south, 360.0, north
    return west, south, east, north


@jit
def edge(low: float, high: float, count: int, i: int) -> float:
    """Where cell `i` of `count` equal cells between low and high begins."""
    if i >= count:
        return high
    return low + (high - low) * i / count


@jit
def cell_number(x: float, low: float, high: float, count: int) -> int:
    """The cell `[edge(i), edge(i + 1))` that holds x; what lies beyond joins the outer ones."""
    if x <= low:
        return 0
    if x >= high:
        return count - 1
    i = min(int((x - low) / (high - low) * count), count - 1)
    while x < edge(low, high, count, i):  # rounding may be one cell off
        i -= 1
    while i + 1 < count and x >= edge(low, high, count, i + 1):
        i += 1
    return i


@jit
def _touched(lo: float, hi: float, low: float, high: float, count: int) -> tuple[int, int]:
    """First and last of the cells whose closed extent touches [lo, hi]."""
    first = cell_number(lo, low, high, count)
    if first > 0 and lo <= edge(low, high, count, first):
        first -= 1
    return first, cell_number(hi, low, high, count)


@jit
def circle_cover(
    lon: float,
    lat: float,
    radius_m: float,
    west: float,
    south: float,
    east: float,
    north: float,
    cols: int,
    rows: int,
    depth: int,
) -> tuple[int, int, int]:
    """The smallest cell that holds every leaf a circle touches.

    Returns column and row of one of its leaves and its level; level -1 when the circle
    lies wholly outside the bounds.
    """
    if not circle_meets_box(lon, lat, radius_m, west, south, east, north):
        return 0, 0, -1
    w, s, e, n = circle_bounds(lon, lat, radius_m)
    col, col_last = _touched(w, e, west, east, cols)
    line, line_last = _touched(s, n, south, north, rows)
    differ = (col ^ col_last) | (line ^ line_last)
    level = depth
    while differ > 0:
        differ >>= 1
        level -= 1
    return col, line, level


@jit
def point_keys(
    lon,
    lat,
    radius_m,
    codes,
    text_data,
    text_offsets,
    text_shapes,
    west,
    south,
    east,
    north,
    cols,
    rows,
    depth,
    data,
    offsets,
    kinds,
    shapes,
    bad,
):
    """Keys and shapes of many places of a cell tree, in one pass.

    `kinds` says what each row is: POINT and CIRCLE come from lon, lat and radius_m; CELL
    copies the place numbered `codes[row]`; NONE is an empty key. Writes `data` (room for
    depth bytes a row), `offsets`, `shapes`; a point or circle that is invalid or wholly
    outside becomes NONE with `bad[row]` set.
    """
    used = 0
    offsets[0] = 0
    for row in range(len(kinds)):
        kind = kinds[row]
        if kind == CELL:
            code = codes[row]
            for at in range(text_offsets[code], text_offsets[code + 1]):
                data[used] = text_data[at]
                used += 1
            for side in range(4):
                shapes[row, side] = text_shapes[code, side]
        elif kind != NONE:
            x, y, r = lon[row], lat[row], radius_m[row]
            col, line, levels = 0, 0, -1
            if kind == POINT:
                if west <= x <= east and south <= y <= north:
                    col = cell_number(x, west, east, cols)
                    line = cell_number(y, south, north, rows)
                    levels = depth
            elif -180.0 <= x <= 180.0 and -90.0 <= y <= 90.0 and 0.0 < r <= RADIUS_LIMIT_M:
                col, line, levels = circle_cover(
                    x, y, r, west, south, east, north, cols, rows, depth
                )
            if levels >= 0:
                for level in range(levels):
                    shift = depth - 1 - level
                    data[used] = 3 + ((col >> shift) & 1) - 2 * ((line >> shift) & 1)
                    used += 1
                shapes[row, 0] = x
                shapes[row, 1] = y
                if kind == CIRCLE:
                    shapes[row, 2] = r
            else:
                kinds[row] = NONE
                bad[row] = True
        offsets[row + 1] = used
