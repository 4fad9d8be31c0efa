"""Boxes that a test of a place looks into.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import math

from tideline.space.outline import TINY, Bounds
from tideline.space.shapes import EARTH_RADIUS_M
from tideline.where.geo import shape_of
from tideline.where.tree import Inside

__all__ = ["ring_boxes", "windows_of", "with_tiny"]

_EVERYTHING = (-180.0, -90.0, 180.0, 90.0)


def windows_of(test: Inside) -> list[Bounds] | None:
    """The boxes that what meets a test reaches into; None when that is everything.

    >>> windows_of(Inside("box", (0.0, 0.0, 2.0, 1.0)))
    [(0.0, 0.0, 2.0, 1.0)]
    """
    numbers = test.numbers
    if test.kind == "box":
        west, south, east, north = numbers
        return [(west, south, east, north)]
    if test.kind == "polygon":
        return [(min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2]))]
    if test.kind == "outline":
        return [with_tiny(shape_of(test).box)]
    if test.kind == "ring":
        lon, lat, _, greatest = numbers
        found = ring_boxes(lon, lat, greatest)
        return None if found == [_EVERYTHING] else found
    return None


def with_tiny(box: Bounds) -> Bounds:
    """A box with the points in it that count as 0: an outline has them as 0, entries as they are.

    >>> with_tiny((0.0, 1.0, 0.0, 2.0))
    (-1e-130, 1.0, 1e-130, 2.0)
    """
    west, south, east, north = box
    return (
        -TINY if west == 0.0 else west, -TINY if south == 0.0 else south,
        TINY if east == 0.0 else east, TINY if north == 0.0 else north,
    )  # fmt: skip


def ring_boxes(lon: float, lat: float, radius_m: float) -> list[Bounds]:
    """Boxes that together have all within a distance, a trifle too large (as kernels/geo.py).

    Two where the antimeridian is crossed.

    >>> [round(each) for each in ring_boxes(0.0, 0.0, 111_195.0)[0]]
    [-1, -1, 1, 1]
    >>> [(round(w), round(e)) for w, _, e, _ in ring_boxes(179.0, 0.0, 222_390.0)]
    [(177, 180), (-180, -179)]
    """
    reach = min(radius_m / EARTH_RADIUS_M, 4.0) * (1.0 + 1e-8) + 1e-11
    if reach > 3.0:
        return [_EVERYTHING]
    south, north = lat - math.degrees(reach), lat + math.degrees(reach)
    if south <= -90.0 or north >= 90.0:
        return [(-180.0, max(south, -90.0), 180.0, min(north, 90.0))]
    phi = math.radians(lat)
    beside = math.sqrt(max(0.0, math.cos(phi + reach) * math.cos(phi - reach)))
    turn = math.degrees(math.atan2(math.sin(reach), beside)) * (1.0 + 1e-9) + 1e-9
    west, east = lon - turn, lon + turn
    if turn >= 180.0:
        return [(-180.0, south, 180.0, north)]
    if west <= -180.0:
        return [(-180.0, south, east, north), (west + 360.0 - 1e-9, south, 180.0, north)]
    if east >= 180.0:
        return [(west, south, 180.0, north), (-180.0, south, east - 360.0 + 1e-9, north)]
    return [(west, south, east, north)]
