"""What meets a box, in all places of a view in one call; and what of it meets more than a box.

A node that misses the box is passed over, one that lies inside it gives all its entries unread, the
others wait in a queue to be gone down into. All children of a node are held against the box at
once. What comes into the queue is prefetched, and as nodes of many places wait in it, most are in
the cache when it is their turn.

    queue    a ring of QUEUE words, place << PLACE_SHIFT | level << LEVEL_SHIFT | node each

The first that came is the first to be opened, so that there is time to load it. Beyond _MANY it is
the last that came: that bounds the queue, by FAN more for each level of a tree.

No Python objects, no state; all release the GIL.
"""

from __future__ import annotations

import numpy as np

from tideline.kernels import jit
from tideline.kernels.documents.octets import copy_bytes
from tideline.kernels.geo import haversine_m
from tideline.kernels.lanes import trailing_zeros
from tideline.kernels.spatial import outline
from tideline.kernels.spatial.layout import (
    FAN,
    LEAF,
    LEVEL_SHIFT,
    P_COUNT,
    P_EAST,
    P_IDS,
    P_KEY_OFFSETS,
    P_KEYS,
    P_LEVEL,
    P_NODES,
    P_NORTH,
    P_SEQS,
    P_SHAPE_OFFSETS,
    P_SHAPES,
    P_SOUTH,
    P_TOP,
    P_WEST,
    P_WORDS,
    PLACE_SHIFT,
    PLACES,
    POSITION,
    QUEUE,
    SURE,
)
from tideline.kernels.views import doubles, prefetch, singles, words

__all__ = [
    "check_place", "count_box", "gather", "gather_below", "keep_below", "refine", "search_box",
]  # fmt: skip

BOX, RING, AREA, OUTLINE = 0, 1, 2, 3
WITHIN, MEETS = 0, 1
_LEAF_BITS, _FAN_BITS = 5, 4  # LEAF and FAN as powers of two
_FEW, _MANY = 16, 256  # with fewer nodes in the queue, the next place is begun; the other: above
OPEN = 1 << 61  # of a hit: only exact fractions can say (space/exact.py)


@jit
def _points_in(west, south, first, count, w, s, e, n):
    """Which points lie in a closed box, bit by bit: no branch that could be guessed wrong."""
    met = 0
    if count == LEAF:  # of a number that is known, several are compared at once
        for i in range(LEAF):
            x, y = west[first + i], south[first + i]
            met |= np.int64((w <= x) & (x <= e) & (s <= y) & (y <= n)) << i
        return met
    for i in range(count):
        x, y = west[first + i], south[first + i]
        met |= np.int64((w <= x) & (x <= e) & (s <= y) & (y <= n)) << i
    return met


@jit
def _entries(p, mark, first, limit, w, s, e, n, whole, out, count, room):
    """The entries [first, limit) of a place that meet a box, or with `whole` lie in it."""
    hits = words(out, room)
    west, south = doubles(p[P_WEST], p[P_COUNT]), doubles(p[P_SOUTH], p[P_COUNT])
    if p[P_EAST] == 0:
        for start in range(first, limit, LEAF):
            met = _points_in(west, south, start, min(LEAF, limit - start), w, s, e, n)
            while met:
                if count < room:
                    hits[count] = mark | (start + trailing_zeros(met))
                count += 1
                met &= met - 1
        return count
    east, north = doubles(p[P_EAST], p[P_COUNT]), doubles(p[P_NORTH], p[P_COUNT])
    for i in range(first, limit):
        if west[i] <= e and w <= east[i] and south[i] <= n and s <= north[i]:
            inside = w <= west[i] and east[i] <= e and s <= south[i] and north[i] <= n
            if inside or not whole:
                if count < room:
                    hits[count] = mark | i | (SURE if inside else 0)
                count += 1
    return count


@jit
def _all_of(p, mark, first, limit, out, count, room):
    """The entries [first, limit) of a place, which lie in the box."""
    hits = words(out, room)
    if p[P_EAST]:
        mark |= SURE
    if count + limit - first <= room:
        for i in range(first, limit):
            hits[count + i - first] = mark | i
    else:
        for i in range(first, limit):
            if count + i - first < room:
                hits[count + i - first] = mark | i
    return count + limit - first


@jit
def _met(boxes, first, count, w, s, e, n):
    """Which nodes meet a box, bit by bit: no branch that could be guessed wrong."""
    met = 0
    if count == FAN:  # of a number that is known, several are compared at once
        for i in range(FAN):
            at = 4 * (first + i)
            meets = (boxes[at] <= e) & (w <= boxes[at + 2])
            meets &= (boxes[at + 1] <= n) & (s <= boxes[at + 3])
            met |= np.int64(meets) << i
        return met
    for i in range(count):
        at = 4 * (first + i)
        meets = (boxes[at] <= e) & (w <= boxes[at + 2])
        meets &= (boxes[at + 1] <= n) & (s <= boxes[at + 3])
        met |= np.int64(meets) << i
    return met


@jit
def _prefetch_all(address, size):
    """Begin to load the cache lines of so many bytes."""
    for skip in range(0, size, 64):
        prefetch(address + skip)


@jit
def search_box(places, number, w, s, e, n, whole, out, room):
    """Hits of all places that meet a closed box, or with `whole` lie in it; how many there are.

    Those there is no room for are counted only: then it is called again, with room for all.
    `out` has QUEUE more words behind the room.
    """
    queue = words(out + 8 * room, QUEUE)
    head, size, coming, count = 0, 0, 0, 0
    while True:
        while size < _FEW and coming < number:  # the next place
            mark = coming << PLACE_SHIFT
            p = words(places + 8 * P_WORDS * coming, P_WORDS)
            coming += 1
            top, entries = p[P_TOP], p[P_COUNT]
            if p[P_NODES] == 0:
                count = _entries(p, mark, 0, entries, w, s, e, n, whole, out, count, room)
            elif entries:
                boxes = singles(p[P_NODES], 4 * p[P_LEVEL + top + 1])
                if _met(boxes, p[P_LEVEL + top], 1, w, s, e, n):
                    queue[(head + size) & (QUEUE - 1)] = mark | (top << LEVEL_SHIFT)
                    size += 1
        if size == 0:
            return count
        size -= 1
        if size < _MANY:
            item = queue[head & (QUEUE - 1)]
            head += 1
        else:
            item = queue[(head + size) & (QUEUE - 1)]
        mark = item & (PLACES << PLACE_SHIFT)
        level, node = (item >> LEVEL_SHIFT) & 15, item & ((1 << LEVEL_SHIFT) - 1)
        p = words(places + 8 * P_WORDS * (mark >> PLACE_SHIFT), P_WORDS)
        below = level * _FAN_BITS + _LEAF_BITS  # entries under a node, as a power of two
        if level == 0:
            limit = min((node + 1) << below, p[P_COUNT])
            count = _entries(p, mark, node << below, limit, w, s, e, n, whole, out, count, room)
            continue
        level -= 1
        below -= _FAN_BITS
        node <<= _FAN_BITS
        boxes = singles(p[P_NODES], 4 * p[P_LEVEL + p[P_TOP] + 1])
        start = p[P_LEVEL + level] + node
        left = _met(boxes, start, min(FAN, p[P_LEVEL + level + 1] - start), w, s, e, n)
        while left:
            child = trailing_zeros(left)
            left &= left - 1
            at = 4 * (start + child)
            child += node
            if (
                w <= boxes[at] and boxes[at + 2] <= e
                and s <= boxes[at + 1] and boxes[at + 3] <= n
            ):  # fmt: skip
                limit = min((child + 1) << below, p[P_COUNT])
                count = _all_of(p, mark, child << below, limit, out, count, room)
                continue
            if level:
                above = p[P_LEVEL + level - 1] + (child << _FAN_BITS)
                _prefetch_all(p[P_NODES] + 16 * above, 16 * FAN)
            else:
                _prefetch_all(p[P_WEST] + 8 * LEAF * child, 8 * LEAF)
                _prefetch_all(p[P_SOUTH] + 8 * LEAF * child, 8 * LEAF)
            queue[(head + size) & (QUEUE - 1)] = mark | (level << LEVEL_SHIFT) | child
            size += 1


@jit
def count_box(places, number, w, s, e, n):
    """About how many entries meet a box, and how many leaves that takes: a look at nodes alone.

    A node that the box cuts is gone down into, a leaf that it cuts counts for the part of it.
    """
    found = 0.0
    leaves = 0
    for i in range(number):
        p = words(places + 8 * P_WORDS * i, P_WORDS)
        entries = p[P_COUNT]
        if entries == 0:
            continue
        if p[P_NODES] == 0:
            west, south = doubles(p[P_WEST], entries), doubles(p[P_SOUTH], entries)
            for k in range(entries):
                found += west[k] >= w and west[k] <= e and south[k] >= s and south[k] <= n
            leaves += entries // LEAF
            continue
        top = p[P_TOP]
        boxes = singles(p[P_NODES], 4 * p[P_LEVEL + top + 1])
        level, node, below = top, 0, LEAF
        for _ in range(top):
            below *= FAN
        while True:
            at = 4 * (p[P_LEVEL + level] + node)
            a, b, c, d = boxes[at], boxes[at + 1], boxes[at + 2], boxes[at + 3]
            if a <= e and w <= c and b <= n and s <= d:
                size = min((node + 1) * below, entries) - node * below
                if w <= a and c <= e and s <= b and d <= n:
                    found += size
                    leaves += -(-size // LEAF)
                elif level:
                    level -= 1
                    below //= FAN
                    node *= FAN
                    continue
                else:
                    wide, high = max(c - a, 1e-12), max(d - b, 1e-12)
                    part = (min(c, e) - max(a, w)) / wide * ((min(d, n) - max(b, s)) / high)
                    found += size * min(max(part, 1.0 / size), 1.0)
                    leaves += 1
            node += 1
            while level < top and (
                node % FAN == 0 or p[P_LEVEL + level] + node == p[P_LEVEL + level + 1]
            ):
                node = (node - 1) // FAN + 1
                level += 1
                below *= FAN
            if level == top:
                break
    return found, leaves


@jit
def _point_lies(kind, shape, lon, lat, least, greatest, x, y):
    if kind == RING:
        metres = haversine_m(lon, lat, x, y)
        return least <= metres and metres <= greatest
    if kind == AREA:
        return outline.covers(shape, 0, x, y) != 0
    return outline.point_meets(shape, x, y)


@jit
def refine(places, hits_at, count, kind, how, shape, numbers_at):
    """Keep the hits that lie to a shape as asked; how many. Those that stay OPEN are marked so.

    `numbers` of a ring: its center, least and greatest metres. Else the box of the shape, and
    `shape` is its outline. `how`: WITHIN, or MEETS, which of a ring looks at the nearest point.
    """
    hits, numbers = words(hits_at, count), doubles(numbers_at, 4)
    a, b, c, d = numbers[0], numbers[1], numbers[2], numbers[3]
    kept = 0
    for i in range(count):
        hit = hits[i]
        p = words(places + 8 * P_WORDS * ((hit >> PLACE_SHIFT) & PLACES), P_WORDS)
        at = hit & POSITION
        entries = p[P_COUNT]
        x, y = doubles(p[P_WEST], entries)[at], doubles(p[P_SOUTH], entries)[at]
        if p[P_EAST] == 0:
            stays = kind == BOX or _point_lies(kind, shape, a, b, c, d, x, y)
        elif kind == BOX and hit & SURE:
            stays = True
        else:
            entry = at if p[P_IDS] == 0 else words(p[P_IDS], entries)[at]
            own = p[P_SHAPES] + words(p[P_SHAPE_OFFSETS], entry + 1)[entry]
            e, n = doubles(p[P_EAST], entries)[at], doubles(p[P_NORTH], entries)[at]
            if kind == RING:
                if how == WITHIN:
                    metres = outline.farthest_m(own, a, b)
                else:
                    metres = outline.nearest_m(own, a, b)
                stays = c <= metres and metres <= d
            elif how == MEETS:
                stays = outline.meets(own, shape, max(x, a), max(y, b), min(e, c), min(n, d))
            else:
                found = outline.within(own, shape, x, y, e, n)
                stays = found != outline.NO
                if found == outline.OPEN:
                    hit |= OPEN
        if stays:
            hits[kept] = hit
            kept += 1
    return kept


@jit
def keep_below(places, hits_at, count, below, seqs_at):
    """Keep the hits of writes with a seq below; their seqs go beside them. How many, key bytes."""
    hits, seqs = words(hits_at, count), words(seqs_at, count)
    kept = 0
    size = 0
    for i in range(count):
        hit = hits[i]
        p = words(places + 8 * P_WORDS * ((hit >> PLACE_SHIFT) & PLACES), P_WORDS)
        entry = hit & POSITION
        if p[P_IDS]:
            entry = words(p[P_IDS], p[P_COUNT])[entry]
        seq = words(p[P_SEQS], entry + 1)[entry]
        if seq < below:
            hits[kept] = hit
            seqs[kept] = seq
            kept += 1
            offsets = words(p[P_KEY_OFFSETS], entry + 2)
            size += offsets[entry + 1] - offsets[entry]
            prefetch(p[P_KEYS] + offsets[entry])
    return kept, size


@jit
def gather(places, hits_at, count, offsets_at, data_at):
    """The keys of hits, one after the other."""
    hits, ends = words(hits_at, count), words(offsets_at, count + 1)
    used = 0
    ends[0] = 0
    for i in range(count):
        hit = hits[i]
        p = words(places + 8 * P_WORDS * ((hit >> PLACE_SHIFT) & PLACES), P_WORDS)
        entry = hit & POSITION
        if p[P_IDS]:
            entry = words(p[P_IDS], p[P_COUNT])[entry]
        offsets = words(p[P_KEY_OFFSETS], entry + 2)
        first, limit = offsets[entry], offsets[entry + 1]
        copy_bytes(data_at + used, p[P_KEYS] + first, limit - first)
        used += limit - first
        ends[i + 1] = used


@jit
def gather_below(places, hits_at, count, below, seqs_at, offsets_at, data_at, room):
    """`keep_below`, and `gather` when the keys have at most `room` bytes."""
    kept, size = keep_below(places, hits_at, count, below, seqs_at)
    if size <= room:
        gather(places, hits_at, kept, offsets_at, data_at)
    return kept, size


@jit
def check_place(place):
    """What is wrong with a place that has a tree: 0 nothing, 1 a box, 2 an entry."""
    p = words(place, P_WORDS)
    top, entries = p[P_TOP], p[P_COUNT]
    boxes = singles(p[P_NODES], 4 * p[P_LEVEL + top + 1])
    west, south = doubles(p[P_WEST], entries), doubles(p[P_SOUTH], entries)
    east, north = west, south
    if p[P_EAST]:
        east, north = doubles(p[P_EAST], entries), doubles(p[P_NORTH], entries)
    for i in range(entries):
        at = 4 * (i // LEAF)
        good = -180.0 <= west[i] and west[i] <= east[i] and east[i] <= 180.0
        if not (good and -90.0 <= south[i] and south[i] <= north[i] and north[i] <= 90.0):
            return 2
        good = boxes[at] <= west[i] and east[i] <= boxes[at + 2]
        if not (good and boxes[at + 1] <= south[i] and north[i] <= boxes[at + 3]):
            return 1
    for level in range(top):
        for node in range(p[P_LEVEL + level], p[P_LEVEL + level + 1]):
            own = 4 * node
            at = 4 * (p[P_LEVEL + level + 1] + (node - p[P_LEVEL + level]) // FAN)
            good = boxes[at] <= boxes[own] and boxes[own + 2] <= boxes[at + 2]
            if not (good and boxes[at + 1] <= boxes[own + 1] and boxes[own + 3] <= boxes[at + 3]):
                return 1
    return 0
