"""Shapes a user names: points, circles and boxes on the globe, checked when made.

Polygons are in polygon.py.

Longitudes lie in -180..180 and latitudes in -90..90 degrees, radii are in metres on a
sphere of `EARTH_RADIUS_M`. A box is a rectangle in longitude and latitude, edges
included; it never crosses the antimeridian. A circle may, and may hold a pole.

Frozen values; safe from any thread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from tideline.errors import InvalidRequest

__all__ = ["EARTH_RADIUS_M", "RADIUS_LIMIT_M", "Box", "Circle", "number", "pair_of"]

EARTH_RADIUS_M = 6_371_008.8
RADIUS_LIMIT_M = math.pi * EARTH_RADIUS_M  # half the circumference: the whole globe


@dataclass(frozen=True, slots=True)
class Circle:
    """Everything within `radius_m` of a point, the rim included.

    >>> Circle((-73.97, 40.76), radius_m=800)
    Circle(center=(-73.97, 40.76), radius_m=800.0)
    """

    center: tuple[float, float]
    radius_m: float

    def __post_init__(self) -> None:
        lon, lat = pair_of(self.center)
        if not (-180.0 <= lon <= 180.0 and -90.0 <= lat <= 90.0):
            raise InvalidRequest(
                "a circle's center must be (lon, lat) within -180..180, -90..90",
                center=(lon, lat),
            )
        radius_m = number(self.radius_m, "radius_m")
        if not 0.0 < radius_m <= RADIUS_LIMIT_M:
            raise InvalidRequest(
                f"radius_m must be over 0 and at most {RADIUS_LIMIT_M:.1f}", radius_m=radius_m
            )
        object.__setattr__(self, "center", (lon, lat))
        object.__setattr__(self, "radius_m", radius_m)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in longitude and latitude, edges included.

    >>> Box(-74, 40, -73, 41)
    Box(west=-74.0, south=40.0, east=-73.0, north=41.0)
    """

    west: float
    south: float
    east: float
    north: float

    def __post_init__(self) -> None:
        for name in ("west", "south", "east", "north"):
            object.__setattr__(self, name, number(getattr(self, name), name))
        if self.west > self.east:
            raise InvalidRequest(
                "a box needs west <= east; one that crosses the antimeridian: "
                "split it at the antimeridian",
                west=self.west,
                east=self.east,
            )
        if self.south > self.north:
            raise InvalidRequest("a box needs south <= north", south=self.south, north=self.north)
        if self.west < -180.0 or self.east > 180.0 or self.south < -90.0 or self.north > 90.0:
            raise InvalidRequest(
                "a box must lie within lon -180..180, lat -90..90",
                box=(self.west, self.south, self.east, self.north),
            )


def number(value: object, name: str) -> float:
    """A finite number as a float; a truth value or a text is none.

    >>> number(3, "radius_m")
    3.0
    """
    if type(value) is not float:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidRequest(f"{name} must be a number", **{name: value})
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
    if not math.isfinite(value):
        raise InvalidRequest(f"{name} must be a finite number", **{name: value})
    return value


def pair_of(value: object) -> tuple[float, float]:
    """Two numbers `(lon, lat)` from any sequence of two; their range is not checked.

    >>> pair_of([1, 2.5])
    (1.0, 2.5)
    """
    # NaN is let through on this fast path: it fails every range check that follows.
    if type(value) is tuple and len(value) == 2:
        lon, lat = value
        if type(lon) is float and type(lat) is float:
            return value
    if not isinstance(value, Sequence):
        tolist = getattr(value, "tolist", None)  # numpy arrays are no Sequence
        value = tolist() if callable(tolist) else value
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or len(value) != 2:
        raise InvalidRequest("a point must be two numbers (lon, lat)", point=value)
    return number(value[0], "lon"), number(value[1], "lat")
