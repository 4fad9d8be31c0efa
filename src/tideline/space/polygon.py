"""Polygons on the map: what a user names, and the numbers that records have of them.

A polygon is a shell and holes in it, each a ring of corners (lon, lat). Edges are straight lines
in longitude and latitude, as GeoJSON has them, and belong to the polygon, those of its holes too.
A point is inside when a ray from it crosses an odd number of edges. So the order of corners
(clockwise or not) makes no difference, and a ring that crosses itself has a meaning: what it goes
around twice is outside. `$geoWithin` in conditions has the same rule (where/geo.py).

    corners := count (int64) | numbers (float64, count of them)
    numbers := rings | end of each ring, in points; negative for a hole | lon, lat of each point

The last point of a ring is not its first again. Corners are stored in files: never change them.

Frozen values and pure functions; safe from any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tideline.errors import InvalidRequest
from tideline.space.shapes import Box, number

__all__ = [
    "CORNERS_LIMIT", "MultiPolygon", "Polygon", "Ring", "bounds_of", "corners_of", "from_corners",
    "rectangle",
]  # fmt: skip

CORNERS_LIMIT = 1_000  # of a place: a test costs a step for each

Ring = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Polygon:
    """An area within straight edges, which belong to it, with holes or without.

    shell: three corners or more, (lon, lat); the first one may stand at the end again.
    holes: rings like it.

    >>> Polygon([(0, 0), (4, 0), (0, 3)])
    Polygon(shell=((0.0, 0.0), (4.0, 0.0), (0.0, 3.0)), holes=())
    """

    shell: Ring
    holes: tuple[Ring, ...] = ()

    def __post_init__(self) -> None:
        holes: Any = self.holes
        if not isinstance(holes, Sequence) or isinstance(holes, (str, bytes)):
            raise InvalidRequest("holes must be a list of rings", holes=holes)
        rings = [_ring(self.shell, "shell"), *(_ring(hole, "a hole") for hole in holes)]
        _check_count(rings)
        object.__setattr__(self, "shell", rings[0])
        object.__setattr__(self, "holes", tuple(rings[1:]))

    @property
    def __geo_interface__(self) -> dict[str, Any]:
        """This polygon as GeoJSON.

        >>> Polygon([(0, 0), (4, 0), (0, 3)]).__geo_interface__["coordinates"]
        [[[0.0, 0.0], [4.0, 0.0], [0.0, 3.0], [0.0, 0.0]]]
        """
        return {"type": "Polygon", "coordinates": _coordinates(self)}


@dataclass(frozen=True, slots=True)
class MultiPolygon:
    """Several polygons as one place, such as an island country.

    >>> one, other = Polygon([(0, 0), (4, 0), (0, 3)]), Polygon([(9, 9), (8, 9), (9, 8)])
    >>> len(MultiPolygon([one, other]).polygons)
    2
    """

    polygons: tuple[Polygon, ...]

    def __post_init__(self) -> None:
        given: Any = self.polygons
        right = isinstance(given, Sequence) and not isinstance(given, (str, bytes))
        if not right or not given or not all(isinstance(each, Polygon) for each in given):
            raise InvalidRequest("polygons must be a list of Polygon, one or more", polygons=given)
        object.__setattr__(self, "polygons", tuple(given))
        _check_count([ring for ring, _ in _rings(self)])

    @property
    def __geo_interface__(self) -> dict[str, Any]:
        """These polygons as GeoJSON."""
        return {"type": "MultiPolygon", "coordinates": [_coordinates(p) for p in self.polygons]}


def corners_of(shape: Polygon | MultiPolygon) -> bytes:
    """The numbers that a record has of a polygon.

    >>> corners = corners_of(Polygon([(0, 0), (4, 0), (0, 3)]))
    >>> struct.unpack("<q8d", corners)
    (8, 1.0, 3.0, 0.0, 0.0, 4.0, 0.0, 0.0, 3.0)
    >>> from_corners(corners)
    Polygon(shell=((0.0, 0.0), (4.0, 0.0), (0.0, 3.0)), holes=())
    """
    ends: list[float] = []
    points: list[float] = []
    for ring, hole in _rings(shape):
        for lon, lat in ring:
            points += (lon, lat)
        end = len(points) / 2
        ends.append(-end if hole else end)
    numbers = [float(len(ends)), *ends, *points]
    return struct.pack(f"<q{len(numbers)}d", len(numbers), *numbers)


def from_corners(corners: bytes) -> Polygon | MultiPolygon:
    """The polygon that a record has; nothing is checked again."""
    count = len(corners) // 8 - 1
    numbers = struct.unpack_from(f"<{count}d", corners, 8)
    first = 1 + int(numbers[0])
    points = tuple(zip(numbers[first::2], numbers[first + 1 :: 2], strict=True))
    parts: list[list[Ring]] = []
    start = 0
    for end in numbers[1:first]:
        limit = int(abs(end))
        if end > 0:
            parts.append([])
        parts[-1].append(points[start:limit])
        start = limit
    polygons = tuple(_made(rings) for rings in parts)
    if len(polygons) == 1:
        return polygons[0]
    found = object.__new__(MultiPolygon)
    object.__setattr__(found, "polygons", polygons)
    return found


def rectangle(ring: Ring) -> Box | None:
    """The box that a ring without its first point at the end is, if it is one along the axes.

    >>> rectangle(((0.0, 0.0), (4.0, 0.0), (4.0, 3.0), (0.0, 3.0)))
    Box(west=0.0, south=0.0, east=4.0, north=3.0)
    """
    lons, lats = sorted({lon for lon, _ in ring}), sorted({lat for _, lat in ring})
    if len(ring) != 4 or len(set(ring)) != 4 or len(lons) != 2 or len(lats) != 2:
        return None
    sides = zip(ring, (*ring[1:], ring[0]), strict=True)
    if not all((one[0] == two[0]) != (one[1] == two[1]) for one, two in sides):
        return None
    return Box(lons[0], lats[0], lons[1], lats[1])


def bounds_of(shape: Polygon | MultiPolygon) -> tuple[float, float, float, float]:
    """West, south, east, north of a polygon.

    >>> bounds_of(Polygon([(0, 0), (4, 0), (0, 3)]))
    (0.0, 0.0, 4.0, 3.0)
    """
    points = [point for ring, hole in _rings(shape) for point in ring]
    lons, lats = [lon for lon, _ in points], [lat for _, lat in points]
    return min(lons), min(lats), max(lons), max(lats)


def _made(rings: Sequence[Ring]) -> Polygon:
    found = object.__new__(Polygon)
    object.__setattr__(found, "shell", rings[0])
    object.__setattr__(found, "holes", tuple(rings[1:]))
    return found


def _rings(shape: Polygon | MultiPolygon) -> Iterable[tuple[Ring, bool]]:
    """All rings, and whether each is a hole."""
    for polygon in (shape,) if isinstance(shape, Polygon) else shape.polygons:
        yield polygon.shell, False
        for hole in polygon.holes:
            yield hole, True


def _coordinates(polygon: Polygon) -> list[list[list[float]]]:
    rings = (polygon.shell, *polygon.holes)
    return [[[lon, lat] for lon, lat in (*ring, ring[0])] for ring in rings]


def _ring(value: Any, name: str) -> Ring:
    """A ring, checked, without its first point at the end."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise InvalidRequest(f"{name} must be a list of corners (lon, lat)", ring=value)
    ring = tuple(_corner(each, name) for each in value)
    if len(ring) > 1 and ring[0] == ring[-1]:
        ring = ring[:-1]
    if len(set(ring)) < 3:
        raise InvalidRequest(f"{name} must have three different corners or more", ring=value)
    before = ring[-1][0]
    for lon, _ in ring:
        if abs(lon - before) > 180.0:
            raise InvalidRequest(
                f"an edge of {name} spans more than 180 degrees of longitude; a polygon that "
                "crosses the antimeridian: split it there, and give a MultiPolygon",
                edge=(before, lon),
            )
        before = lon
    return ring


def _corner(value: Any, name: str) -> tuple[float, float]:
    right = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    if not right or not 2 <= len(value) <= 3:  # a height is left out
        raise InvalidRequest(f"a corner of {name} must be two numbers (lon, lat)", corner=value)
    lon, lat = number(value[0], "lon"), number(value[1], "lat")
    if not (-180.0 <= lon <= 180.0 and -90.0 <= lat <= 90.0):
        raise InvalidRequest(
            "a corner must be (lon, lat) within -180..180, -90..90; a polygon that crosses the "
            "antimeridian: split it there, and give a MultiPolygon",
            corner=(lon, lat),
        )
    return lon, lat


def _check_count(rings: Sequence[Ring]) -> None:
    count = sum(map(len, rings))
    if count > CORNERS_LIMIT:
        raise InvalidRequest(
            f"a polygon has at most {CORNERS_LIMIT} corners: simplify it, or split it",
            corners=count,
        )
