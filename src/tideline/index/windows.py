"""Boxes that a test of a place looks into.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import math

from tideline.space.shapes import EARTH_RADIUS_M
from tideline.where.geo import shape_of
from tideline.where.tree import Inside

__all__ = ["windows_of"]

Box = tuple[float, float, float, float]


def windows_of(test: Inside) -> list[Box] | None:
    """The boxes that what meets a test reaches into; None when that is nearly everything.

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
        west, south, east, north = shape_of(test).box
        return [(west, south, east, north)]
    if test.kind == "ring":
        lon, lat, _, greatest = numbers
        return _around(lon, lat, greatest)
    return None


def _around(lon: float, lat: float, radius_m: float) -> list[Box] | None:
    """The boxes around a circle, a trifle too large (as kernels/geo.py)."""
    reach = min(radius_m / EARTH_RADIUS_M, 4.0) * (1.0 + 1e-8) + 1e-11
    if reach > 3.0:
        return None
    south, north = lat - math.degrees(reach), lat + math.degrees(reach)
    if south <= -90.0 or north >= 90.0:
        return [(-180.0, max(south, -90.0), 180.0, min(north, 90.0))]
    phi = math.radians(lat)
    beside = math.sqrt(max(0.0, math.cos(phi + reach) * math.cos(phi - reach)))
    turn = math.degrees(math.atan2(math.sin(reach), beside)) * (1.0 + 1e-9) + 1e-9
    if turn >= 180.0:
        return [(-180.0, south, 180.0, north)]
    west, east = lon - turn, lon + turn
    if west < -180.0:
        return [(-180.0, south, east, north), (west + 360.0, south, 180.0, north)]
    if east > 180.0:
        return [(west, south, 180.0, north), (-180.0, south, east - 360.0, north)]
    return [(west, south, east, north)]
