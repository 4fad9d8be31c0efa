"""The nearest first, from all places of a view: best first, over nodes and entries.

A heap has what is still to be opened, by the least haversine that anything in it can have. What
comes off it is opened: a node into its children, a leaf into its entries, of which the best that
were seen are *candidates*. Once there are as many candidates as are asked for, and none of them can
be farther than what is next on the heap, their haversines are computed, and they are results. So as
much is read as the results need, and the search goes on from call to call.

    heap          pairs (haversine: float64, item)
    item          kind << KIND_SHIFT | place << PLACE_SHIFT | level << LEVEL_SHIFT | number
    candidates    where the results will be; when there are enough, a heap with the worst on top

Of a leaf only entries go on that are better than the worst candidate. The others stay in it: it
goes back on the heap with the least bound that they have, which says where to go on, too.

The bound of a box or a point takes no sine: the gap in latitude and the gap in longitude each give
a part of the haversine, and both parts are at least what a few terms of their series say. Of a
point it is nearly the haversine itself: so hardly any is computed that is no result.

No Python objects; all release the GIL.
"""

from __future__ import annotations

import math

import numpy as np

from tideline.kernels import jit
from tideline.kernels.spatial import outline
from tideline.kernels.spatial.layout import (
    FAN,
    LEAF,
    LEVEL_SHIFT,
    N_BOUNDS,
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
from tideline.kernels.views import doubles, prefetch, singles, words

__all__ = ["next_nearest"]

KIND_SHIFT = 60
_NODE, _REST, _ENTRY, _EXACT = 0, 1, 2, 3  # kinds of items; _REST: what is left of a leaf
_TAIL = 15  # the level of a place without a tree
_ITEM = (1 << KIND_SHIFT) - 1
_RADIANS = math.pi / 180.0
_NEVER = 9.0  # more than any haversine
_FEW = 160  # candidates that are quicker counted than sorted
_MARGIN = 1.0 - 1e-12
_AROUND = 360.0 - 1e-12  # a gap around the globe is a difference that was rounded


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
    high = max(max(s - lat, lat - n), 0.0)
    # East or west of it, or around the globe.
    wide = min(max(w - lon, lon - e), _AROUND - max(e - lon, lon - w))
    wide = max(wide, 0.0)
    low = min(_least_cosine(s), _least_cosine(n))
    return (_least_square(high) + cosine * low * _least_square(wide)) * _MARGIN


@jit
def _bound_of_point(lon, lat, cosine, x, y):
    """The same of a point."""
    wide = abs(lon - x)
    wide = min(wide, max(_AROUND - wide, 0.0))
    found = _least_square(abs(lat - y)) + cosine * _least_cosine(y) * _least_square(wide)
    return found * _MARGIN


@jit
def _bounds_of_nodes(boxes, first, count, lon, lat, cosine, bounds):
    if count == FAN:  # of a number that is known, several are computed at once
        for i in range(FAN):
            at = 4 * (first + i)
            bounds[i] = _bound(
                lon, lat, cosine, boxes[at], boxes[at + 1], boxes[at + 2], boxes[at + 3]
            )
        return
    for i in range(count):
        at = 4 * (first + i)
        bounds[i] = _bound(lon, lat, cosine, boxes[at], boxes[at + 1], boxes[at + 2], boxes[at + 3])


@jit
def _bounds_of_entries(p, first, count, lon, lat, cosine, bounds):
    entries = p[P_COUNT]
    west, south = doubles(p[P_WEST], entries), doubles(p[P_SOUTH], entries)
    if p[P_EAST]:
        east, north = doubles(p[P_EAST], entries), doubles(p[P_NORTH], entries)
        for i in range(count):
            k = first + i
            bounds[i] = _bound(lon, lat, cosine, west[k], south[k], east[k], north[k])
    elif count == LEAF:
        for i in range(LEAF):
            bounds[i] = _bound_of_point(lon, lat, cosine, west[first + i], south[first + i])
    else:
        for i in range(count):
            bounds[i] = _bound_of_point(lon, lat, cosine, west[first + i], south[first + i])


@jit
def _push(near_at, h, item):
    """Put something on the heap; there is room."""
    near = words(near_at, N_WORDS)
    size = near[N_SIZE]
    near[N_SIZE] = size + 1
    heap = near_at + 8 * N_WORDS
    keys, items = doubles(heap, 2 * size + 2), words(heap, 2 * size + 2)
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


@jit
def _pop(near_at):
    """Take the first off the heap."""
    near = words(near_at, N_WORDS)
    size = near[N_SIZE] - 1
    near[N_SIZE] = size
    heap = near_at + 8 * N_WORDS
    keys, items = doubles(heap, 2 * size + 2), words(heap, 2 * size + 2)
    h, item = keys[2 * size], items[2 * size + 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size:
            child += np.int64(keys[2 * child + 2] < keys[2 * child])
        if h <= keys[2 * child]:
            break
        keys[2 * at] = keys[2 * child]
        items[2 * at + 1] = items[2 * child + 1]
        at = child
    keys[2 * at] = h
    items[2 * at + 1] = item


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
def _sink(found, items, first, at, count, h, item):
    """Put a candidate where `at` is, in a heap with the worst on top, or further down."""
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count:
            child += np.int64(found[first + child + 1] > found[first + child])
        if h >= found[first + child]:
            break
        found[first + at] = found[first + child]
        items[first + at] = items[first + child]
        at = child
    found[first + at] = h
    items[first + at] = item


@jit
def _offer(near_at, found, items, first, taken, wanted, h, item):
    """A candidate; of too many the worst goes on the heap. How many there are."""
    if taken < wanted:
        found[first + taken] = h
        items[first + taken] = item
        taken += 1
        if taken == wanted:
            for at in range(wanted // 2 - 1, -1, -1):
                _sink(found, items, first, at, wanted, found[first + at], items[first + at])
    elif h < found[first]:
        _push(near_at, found[first], items[first])
        _sink(found, items, first, 0, wanted, h, item)
    else:
        _push(near_at, h, item)
    return taken


@jit
def _rank(found, items, first, count, scratch):
    """Few candidates by their haversines: each goes where so many are before it, without a branch.

    `scratch` has room for them: behind the heap, on which they would fit.
    """
    into_h, into = doubles(scratch, 2 * count), words(scratch, 2 * count)
    for i in range(count):
        h = found[first + i]
        place = 0
        for j in range(i):
            place += np.int64(found[first + j] <= h)
        for j in range(i + 1, count):
            place += np.int64(found[first + j] < h)
        into_h[2 * place] = h
        into[2 * place + 1] = items[first + i]
    for i in range(count):
        found[first + i] = into_h[2 * i]
        items[first + i] = into[2 * i + 1]


@jit
def _sort(found, items, first, count):
    """Candidates by their haversines."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap:
        for i in range(first + gap, first + count):
            h, item = found[i], items[i]
            at = i
            while at >= first + gap and found[at - gap] > h:
                found[at], items[at] = found[at - gap], items[at - gap]
                at -= gap
            found[at], items[at] = h, item
        gap //= 3


@jit
def _load(places, item):
    """Begin to load what an item of the heap leads to."""
    p = words(places + 8 * P_WORDS * ((item >> PLACE_SHIFT) & PLACES), P_WORDS)
    level, node = (item >> LEVEL_SHIFT) & 15, item & ((1 << LEVEL_SHIFT) - 1)
    if level == 0:
        for skip in range(0, 8 * LEAF, 64):
            prefetch(p[P_WEST] + 8 * LEAF * node + skip)
            prefetch(p[P_SOUTH] + 8 * LEAF * node + skip)
    elif level < _TAIL:
        for skip in range(0, 16 * FAN, 64):
            prefetch(p[P_NODES] + 16 * (p[P_LEVEL + level - 1] + FAN * node) + skip)


@jit
def _open_leaf(
    near_at, p, mark, first, count, after, most, lon, lat, cosine, found, items, base, taken, wanted
):
    """Offer the entries of a leaf that are good enough; the others stay in it. How many candidates.

    `after`: those before it have been offered.
    """
    bounds = doubles(near_at + 8 * N_BOUNDS, LEAF)
    _bounds_of_entries(p, first, count, lon, lat, cosine, bounds)
    worst = found[base] if taken == wanted else most
    rest = _NEVER
    for i in range(count):
        h = bounds[i]
        if h > worst:
            rest = min(rest, h)
        elif h >= after:
            item = (_ENTRY << KIND_SHIFT) | mark | (first + i)
            taken = _offer(near_at, found, items, base, taken, wanted, h, item)
    if rest <= most:
        _push(near_at, rest, (_REST << KIND_SHIFT) | mark | (first // LEAF))
    return taken


@jit
def _open_node(near_at, p, mark, level, node, most, lon, lat, cosine):
    """Put the children of a node on the heap."""
    level -= 1
    start = p[P_LEVEL + level] + node * FAN
    count = min(FAN, p[P_LEVEL + level + 1] - start)
    boxes = singles(p[P_NODES], 4 * p[P_LEVEL + p[P_TOP] + 1])
    bounds = doubles(near_at + 8 * N_BOUNDS, LEAF)
    _bounds_of_nodes(boxes, start, count, lon, lat, cosine, bounds)
    for i in range(count):
        if bounds[i] <= most:
            _push(near_at, bounds[i], mark | (level << LEVEL_SHIFT) | (node * FAN + i))


@jit
def next_nearest(places, number, near_at, cap, lon, lat, least, most, hits_at, found_at, room):
    """The next hits, nearest first, with their haversines, from `least` to `most`; how many.

    `number`: of the places in which it begins; 0: it goes on. Fewer than there is room for: there
    are no more. -1 - n: n were found, and the heap, which has room for `cap` items behind N_WORDS,
    has to be larger; copy it and call again for the rest.
    """
    near = words(near_at, N_WORDS)
    heap = near_at + 8 * N_WORDS
    keys, items = doubles(heap, 2), words(heap, 2)  # the first
    hits, found = words(hits_at, room), doubles(found_at, room)
    cosine = max(0.0, math.cos(lat * _RADIANS))
    if number:
        near[N_SIZE] = 0
    for i in range(number):
        p = words(places + 8 * P_WORDS * i, P_WORDS)
        if p[P_COUNT]:
            level = p[P_TOP] if p[P_NODES] else _TAIL
            _push(near_at, 0.0, (i << PLACE_SHIFT) | (level << LEVEL_SHIFT))
    count = 0
    while count < room:
        taken, wanted = 0, room - count
        while near[N_SIZE]:
            h, item = keys[0], items[1]
            if h > most or (taken == wanted and h >= found[count]):
                break
            kind, mark = item >> KIND_SHIFT, item & (PLACES << PLACE_SHIFT)
            if kind >= _ENTRY:
                _pop(near_at)
                taken = _offer(near_at, found, hits, count, taken, wanted, h, item)
                continue
            p = words(places + 8 * P_WORDS * (mark >> PLACE_SHIFT), P_WORDS)
            level, node = (item >> LEVEL_SHIFT) & 15, item & ((1 << LEVEL_SHIFT) - 1)
            first, limit = node * LEAF, min((node + 1) * LEAF, p[P_COUNT])
            if level == _TAIL:
                limit = p[P_COUNT]
            # Room for what comes, and for the candidates: they may have to go back.
            if near[N_SIZE] + taken + 2 * LEAF + (2 * limit if level == _TAIL else 0) > cap:
                for i in range(count, count + taken):
                    _push(near_at, found[i], hits[i])
                return -1 - count
            _pop(near_at)
            if near[N_SIZE] and items[1] >> KIND_SHIFT <= _REST:
                _load(places, items[1])  # while this one is looked at
            if level and level != _TAIL:
                _open_node(near_at, p, mark, level, node, most, lon, lat, cosine)
                continue
            after = h if kind == _REST else 0.0
            for start in range(first, limit, LEAF):
                taken = _open_leaf(
                    near_at, p, mark, start, min(LEAF, limit - start), after, most,
                    lon, lat, cosine, found, hits, count, taken, wanted,
                )  # fmt: skip
        farthest = _NEVER  # of those that are surely next
        if near[N_SIZE] and taken == wanted:
            farthest = keys[0]
        else:
            near[N_SIZE] = 0
        for i in range(count, count + taken):
            if hits[i] >> KIND_SHIFT == _ENTRY:
                mark = hits[i] & (PLACES << PLACE_SHIFT)
                p = words(places + 8 * P_WORDS * (mark >> PLACE_SHIFT), P_WORDS)
                found[i] = _exact_h(p, hits[i] & POSITION, lon, lat)
                hits[i] = (_EXACT << KIND_SHIFT) | (hits[i] & _ITEM)
        if taken <= _FEW:
            _rank(found, hits, count, taken, heap + 16 * near[N_SIZE])
        else:
            _sort(found, hits, count, taken)
        for i in range(count, count + taken):
            h = found[i]
            if h > farthest:
                _push(near_at, h, hits[i])
            elif least <= h and h <= most:
                found[count] = h
                hits[count] = hits[i] & ((PLACES << PLACE_SHIFT) | POSITION)
                count += 1
        if near[N_SIZE] == 0:
            break
    return count
