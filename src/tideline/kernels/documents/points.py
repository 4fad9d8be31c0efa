"""Where documents are on a grid: the points at one path of many JSON texts, counted by cell.

A point is `[lon, lat]` or a GeoJSON Point (where/geo.py). Rows that are neither, or not sure, are
handed back: Python looks at them.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.geo import cell_number
from tideline.kernels.jsonends import ARRAY, MISSING, NULL, OBJECT, TEXT
from tideline.kernels.jsonnumber import double_of
from tideline.kernels.lanes import get64
from tideline.kernels.standing.values import point_at, text_is_point

__all__ = ["count_points"]


@jit
def count_points(
    base, offsets, tags, values, nodes, found, west, south, east, north, counts, left
):  # fmt: skip
    """Count the points within the bounds into `counts[row, col]`; how many rows are in `left`.

    `tags` and `values` are what `jsonpath.scan` found, by node; `nodes` are the numbers of the
    place, of its `type` and of its `coordinates`. `base` is the address that offsets are from, with
    room behind; `found` that of scratch of five words.
    """
    lines, cols = counts.shape
    many = 0
    for row in range(len(offsets) - 1):
        tag, value = tags[nodes[0], row], values[nodes[0], row]
        kind = tag & 255
        limit = base + offsets[row + 1]
        is_point = -1
        if kind == ARRAY:
            is_point = point_at(base + (tag >> 8), limit, value, 2, found)
        elif kind == OBJECT:
            tag, value = tags[nodes[1], row], values[nodes[1], row]
            if tag & 255 == TEXT and text_is_point(tag, base + value):
                tag, value = tags[nodes[2], row], values[nodes[2], row]
                if tag & 255 == ARRAY:
                    is_point = point_at(base + (tag >> 8), limit, value, 3, found)
        elif kind == MISSING or kind == NULL:
            is_point = 0
        if is_point < 1:
            if is_point < 0 or kind == ARRAY:  # an array may hold points
                left[many] = row
                many += 1
            continue
        lon, lat = double_of(get64(found + 16)), double_of(get64(found + 24))
        if west <= lon <= east and south <= lat <= north:
            counts[cell_number(lat, south, north, lines), cell_number(lon, west, east, cols)] += 1
    return many
