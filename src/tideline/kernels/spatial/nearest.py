"""The nearest first, from all places of a view: best first, over nodes and entries alike.

A heap has what is to be looked at next, by the least haversine that anything in it can have. What
comes off it first is a result when its own haversine is known; else it is opened: a node into its
children, an entry into its haversine. So as much is read as the results need, and the search goes
on from call to call.

    heap    pairs (haversine: float64, item)    item    kind << KIND_SHIFT | place | index

The bound of a box takes no sine: the gap in latitude and the gap in longitude each give a part of
the haversine, and both parts are at least what a few terms of their series say.

No Python objects; all release the GIL.
"""

from __future__ import annotations

import math

from tideline.kernels import jit
from tideline.kernels.spatial import outline
from tideline.kernels.spatial.layout import (
    FAN,
    LEAF,
    N_CAP,
    N_HEAP,
    N_SIZE,
    N_WORDS,
    P_COUNT,
    P_EAST,
    P_IDS,
    P_LEVEL,
    P_NODES,
    P_NORTH,
    P_SHAPE_OFFSETS,
    P_SHAPES,
    P_SOUTH,
    P_TOP,
    P_WEST,
    P_WORDS,
    PLACE_SHIFT,
    PLACES,
    POSITION,
)
from tideline.kernels.views import doubles, singles, words

__all__ = ["begin_nearest", "next_nearest"]

KIND_SHIFT = 60
_EXACT, _ENTRY = 1, 2  # kinds of items; a node of level l is 3 + l ... up to 7 in four bits
_NODE = 3
_LEVEL_SHIFT = 36  # of a node: where its level stands in the index
_RADIANS = math.pi / 180.0
_MARGIN = 1.0 - 1e-12


@jit
def _least_cosine(y: float) -> float:
    """At most the cosine of a latitude."""
    square = y * y * (_RADIANS * _RADIANS)
    return max(0.0, 1.0 - square * (0.5 - square * (1.0 / 24.0 - square * (1.0 / 720.0))))


@jit
def _least_square(gap: float) -> float:
    """At most the square of the sine of half a gap of 0 to 180 degrees."""
    half = gap * (0.5 * _RADIANS)
    sine = half * (1.0 - half * half * (1.0 / 6.0))
    return sine * sine


@jit
def _bound(lon, lat, cosine, w, s, e, n):
    """At most the haversine of the distance to any point of a box."""
    high = 0.0
    if lat < s:
        high = s - lat
    elif lat > n:
        high = lat - n
    wide = 0.0
    if lon < w:
        wide = min(w - lon, lon + 360.0 - e)
    elif lon > e:
        wide = min(lon - e, w + 360.0 - lon)
    found = _least_square(high)
    if wide > 0.0:
        low = min(_least_cosine(s), _least_cosine(n))
        found += cosine * low * _least_square(wide)
    return found * _MARGIN


@jit
def _bound_of_point(lon, lat, cosine, x, y):
    """The same of a point."""
    wide = abs(lon - x)
    wide = min(wide, 360.0 - wide)
    found = _least_square(abs(lat - y)) + cosine * _least_cosine(y) * _least_square(wide)
    return found * _MARGIN


@jit
def _push(near, h, item):
    """Put something on the heap; there is room."""
    size = near[N_SIZE]
    keys = doubles(near[N_HEAP], 2 * near[N_CAP])
    items = words(near[N_HEAP], 2 * near[N_CAP])
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if keys[2 * parent] <= h:
            break
        keys[2 * at] = keys[2 * parent]
        items[2 * at + 1] = items[2 * parent + 1]
        at = parent
    keys[2 * at] = h
    items[2 * at + 1] = item
    near[N_SIZE] = size + 1


@jit
def _pop(near):
    """Take the first off the heap."""
    size = near[N_SIZE] - 1
    near[N_SIZE] = size
    last = 2 * size
    h = doubles(near[N_HEAP], 2 * near[N_CAP])[last]
    _replace(near, h, words(near[N_HEAP], 2 * near[N_CAP])[last + 1])


@jit
def _replace(near, h, item):
    """Put something in the place of the first on the heap."""
    keys = doubles(near[N_HEAP], 2 * near[N_CAP])
    items = words(near[N_HEAP], 2 * near[N_CAP])
    size = near[N_SIZE]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and keys[2 * child + 2] < keys[2 * child]:
            child += 1
        if h <= keys[2 * child]:
            break
        keys[2 * at] = keys[2 * child]
        items[2 * at + 1] = items[2 * child + 1]
        at = child
    keys[2 * at] = h
    items[2 * at + 1] = item


@jit
def begin_nearest(places, number, near_at, lon, lat):
    """Put the roots of all places on an empty heap, which has room for `number`."""
    near = words(near_at, N_WORDS)
    near[N_SIZE] = 0
    for i in range(number):
        p = words(places + 8 * P_WORDS * i, P_WORDS)
        if p[P_COUNT]:
            level = p[P_TOP] if p[P_NODES] else 15
            _push(near, 0.0, (_NODE << KIND_SHIFT) | (i << PLACE_SHIFT) | (level << _LEVEL_SHIFT))


@jit
def _exact_h(p, at, lon, lat):
    """The haversine of the distance to an entry."""
    entries = p[P_COUNT]
    if p[P_EAST] == 0:
        x, y = doubles(p[P_WEST], entries)[at], doubles(p[P_SOUTH], entries)[at]
        return outline.haversine_of(lon, lat, x, y)
    entry = at if p[P_IDS] == 0 else words(p[P_IDS], entries)[at]
    own = p[P_SHAPES] + words(p[P_SHAPE_OFFSETS], entry + 1)[entry]
    return outline.nearest_h(own, lon, lat)


@jit
def _push_entries(near, p, mark, first, limit, lon, lat, cosine, most):
    entries = p[P_COUNT]
    west, south = doubles(p[P_WEST], entries), doubles(p[P_SOUTH], entries)
    if p[P_EAST] == 0:
        for i in range(first, limit):
            h = _bound_of_point(lon, lat, cosine, west[i], south[i])
            if h <= most:
                _push(near, h, (_ENTRY << KIND_SHIFT) | mark | i)
        return
    east, north = doubles(p[P_EAST], entries), doubles(p[P_NORTH], entries)
    for i in range(first, limit):
        h = _bound(lon, lat, cosine, west[i], south[i], east[i], north[i])
        if h <= most:
            _push(near, h, (_ENTRY << KIND_SHIFT) | mark | i)


@jit
def next_nearest(places, near_at, lon, lat, least, most, hits_at, found_at, room):
    """The next hits, nearest first, with their haversines, from `least` to `most`; how many.

    Fewer than there is room for: there are no more. -1 - n: n were found, and the heap needs room
    for N_SIZE and as many as a place without a tree has, or 64; call again for the rest.
    """
    near = words(near_at, N_WORDS)
    hits, found = words(hits_at, room), doubles(found_at, room)
    cosine = max(0.0, math.cos(lat * _RADIANS))
    count = 0
    while count < room and near[N_SIZE]:
        h = doubles(near[N_HEAP], 1)[0]
        item = words(near[N_HEAP], 2)[1]
        if h > most:
            near[N_SIZE] = 0
            break
        kind = item >> KIND_SHIFT
        mark = item & (PLACES << PLACE_SHIFT)
        p = words(places + 8 * P_WORDS * (mark >> PLACE_SHIFT), P_WORDS)
        if kind == _EXACT:
            _pop(near)
            if h >= least:
                hits[count] = item & ((PLACES << PLACE_SHIFT) | POSITION)
                found[count] = h
                count += 1
            continue
        if kind == _ENTRY:
            h = _exact_h(p, item & POSITION, lon, lat)
            if h <= most:
                _replace(near, h, (_EXACT << KIND_SHIFT) | (item & ((1 << KIND_SHIFT) - 1)))
            else:
                _pop(near)
            continue
        level = (item >> _LEVEL_SHIFT) & 15
        node = item & ((1 << _LEVEL_SHIFT) - 1)
        if level == 15:
            if near[N_SIZE] + p[P_COUNT] > near[N_CAP]:
                return -1 - count
            _pop(near)
            _push_entries(near, p, mark, 0, p[P_COUNT], lon, lat, cosine, most)
            continue
        if near[N_SIZE] + 64 > near[N_CAP]:
            return -1 - count
        _pop(near)
        if level == 0:
            limit = min((node + 1) * LEAF, p[P_COUNT])
            _push_entries(near, p, mark, node * LEAF, limit, lon, lat, cosine, most)
            continue
        start = p[P_LEVEL + level - 1]
        limit = min((node + 1) * FAN, p[P_LEVEL + level] - start)
        boxes = singles(p[P_NODES], 4 * p[P_LEVEL + p[P_TOP] + 1])
        for child in range(node * FAN, limit):
            at = 4 * (start + child)
            h = _bound(lon, lat, cosine, boxes[at], boxes[at + 1], boxes[at + 2], boxes[at + 3])
            if h <= most:
                index = ((level - 1) << _LEVEL_SHIFT) | child
                _push(near, h, (_NODE << KIND_SHIFT) | mark | index)
    return count
