"""Geometries of documents: GeoJSON as numbers, and how one lies to another.

    value -> `outline_of` -> Outline -> meets, within, nearest_m, farthest_m

A geometry is `[lon, lat]` or GeoJSON: a Point, MultiPoint, LineString, MultiLineString, Polygon,
MultiPolygon or GeometryCollection, with lon in -180..180 and lat in -90..90; altitudes are left
out. Lines have two points or more, rings four or more with the first again at the end. Anything
else, a part of a collection too, makes the whole value no geometry, and an empty one is none.
Edges are straight lines in longitude and latitude and belong to it, and nothing crosses the
antimeridian: what should is split there. Inside an area is what an odd number of its edges parts
from afar; all rings of a Polygon or MultiPolygon are one area. So neither the order of corners
nor rings that cross make a geometry invalid.

    outline := parts | kind, area, end in points of each part | lon, lat of each point    (float64)

Outlines are stored in files: never change them. What two geometries have in common is exact: the
sides of points on lines are (`side`, kernels/orient.py). A coordinate that is nearer to 0 than
1e-130 counts as 0 in them.

Frozen values and pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "RING", "TINY", "Bounds", "Outline", "box_outline", "farthest_m", "from_bytes", "meets",
    "nearest_m", "of_point", "outline_of", "shared", "side", "within",
]  # fmt: skip

POINTS, LINE, RING = 1, 2, 3
TINY = 1e-130
_ROUNDING = 3.3306690738754716e-16
_NUMBERS = frozenset((int, float))
_DEPTH = 32  # collections in collections

Bounds = tuple[float, float, float, float]
"""West, south, east, north."""


class Outline(NamedTuple):
    """A geometry as numbers, and the box around it."""

    numbers: NDArray[np.float64]
    box: Bounds

    @property
    def parts(self) -> list[tuple[int, int, list[tuple[float, float]]]]:
        """Kind, area and points of each part."""
        numbers = self.numbers.tolist()
        count = int(numbers[0])
        heads = [numbers[1 + 3 * n : 4 + 3 * n] for n in range(count)]
        points = list(zip(numbers[1 + 3 * count :: 2], numbers[2 + 3 * count :: 2], strict=True))
        found, start = [], 0
        for kind, area, end in heads:
            found.append((int(kind), int(area), points[start : int(end)]))
            start = int(end)
        return found


class _Wrong(Exception):
    """No geometry."""


class _Parts:
    """Parts as they are found."""

    def __init__(self) -> None:
        self.heads: list[float] = []
        self.points: list[float] = []
        self.areas = 0

    def add(self, kind: int, points: list[tuple[float, float]], area: int = 0) -> None:
        for point in points:
            self.points += point
        self.heads += (kind, area, len(self.points) // 2)

    def outline(self) -> Outline | None:
        if not self.heads:
            return None
        import numpy as np  # clients read conditions without it

        numbers = np.array([len(self.heads) // 3, *self.heads, *self.points], np.float64)
        lons, lats = self.points[::2], self.points[1::2]
        return Outline(numbers, (min(lons), min(lats), max(lons), max(lats)))


def outline_of(value: object) -> Outline | None:
    """The geometry that a value is, or None.

    >>> outline_of({"type": "LineString", "coordinates": [[0, 0], [2, 1, 35]]}).box
    (0.0, 0.0, 2.0, 1.0)
    >>> outline_of({"type": "LineString", "coordinates": [[0, 0]]}) is None
    True
    """
    found = _Parts()
    try:
        if type(value) is dict:
            _geometry(value, found, _DEPTH)
        elif type(value) is list and len(value) == 2:
            found.add(POINTS, [_point(value)])
    except _Wrong:
        return None
    return found.outline()


def from_bytes(data: bytes) -> Outline:
    """The outline whose numbers these are."""
    import numpy as np  # clients read conditions without it

    numbers = np.frombuffer(data, np.float64)
    first = 1 + 3 * int(numbers[0])
    lons, lats = numbers[first::2], numbers[first + 1 :: 2]
    box = float(lons.min()), float(lats.min()), float(lons.max()), float(lats.max())
    return Outline(numbers, box)


def of_point(lon: float, lat: float) -> Outline:
    """The outline of one point."""
    lon, lat = (0.0 if -TINY < each < TINY else each for each in (lon, lat))
    import numpy as np  # clients read conditions without it

    return Outline(np.array([1.0, POINTS, 0.0, 1.0, lon, lat]), (lon, lat, lon, lat))


def box_outline(west: float, south: float, east: float, north: float) -> Outline:
    """The area between four edges.

    >>> box_outline(0.0, 0.0, 2.0, 1.0).parts
    [(3, 0, [(0.0, 0.0), (2.0, 0.0), (2.0, 1.0), (0.0, 1.0)])]
    """
    ring = [west, south, east, south, east, north, west, north]
    import numpy as np  # clients read conditions without it

    return Outline(np.array([1.0, RING, 0.0, 4.0, *ring]), (west, south, east, north))


def _geometry(value: object, found: _Parts, depth: int) -> None:
    if type(value) is not dict or not depth:
        raise _Wrong
    if value.get("type") == "GeometryCollection":
        for one in _list(value.get("geometries")):
            _geometry(one, found, depth - 1)
        return
    add = _KINDS.get(value["type"]) if type(value.get("type")) is str else None
    if add is None:
        raise _Wrong
    add(_list(value.get("coordinates")), found)


def _list(value: object) -> list[object]:
    if type(value) is not list:
        raise _Wrong
    return value


def _point(value: object) -> tuple[float, float]:
    if type(value) is not list or len(value) not in (2, 3):
        raise _Wrong
    for number in value:
        if type(number) not in _NUMBERS:
            raise _Wrong
    lon, lat = value[0], value[1]
    if not (-180 <= lon <= 180 and -90 <= lat <= 90):
        raise _Wrong
    return (
        0.0 if -TINY < lon < TINY else float(lon),
        0.0 if -TINY < lat < TINY else float(lat),
    )


def _line(value: object) -> list[tuple[float, float]]:
    points = [_point(each) for each in _list(value)]
    if len(points) < 2:
        raise _Wrong
    return points


def _add_area(rings: list[object], found: _Parts) -> None:
    for ring in rings:
        points = [_point(each) for each in _list(ring)]
        if len(points) < 4 or points[0] != points[-1]:
            raise _Wrong
        found.add(RING, points[:-1], found.areas)


def _add_polygons(polygons: list[object], found: _Parts) -> None:
    for rings in polygons:
        if not _list(rings):
            raise _Wrong
        _add_area(_list(rings), found)
    found.areas += 1


def _add_points(points: list[object], found: _Parts) -> None:
    if points:
        found.add(POINTS, [_point(each) for each in points])


def _add_lines(lines: list[object], found: _Parts) -> None:
    for line in lines:
        found.add(LINE, _line(line))


_KINDS: dict[str, Callable[[list[object], _Parts], None]] = {
    "Point": lambda value, found: found.add(POINTS, [_point(value)]),
    "MultiPoint": _add_points,
    "LineString": lambda value, found: found.add(LINE, _line(value)),
    "MultiLineString": _add_lines,
    "Polygon": lambda value, found: _add_polygons([value] if value else [], found),
    "MultiPolygon": _add_polygons,
}


# --- one to another ---


def side(ax: float, ay: float, bx: float, by: float, x: float, y: float) -> float:
    """Over 0 when a point lies to the left of the line from a to b, 0 on it: exactly.

    As `kernels.orient.orient`.

    >>> side(0.0, 0.0, 1.0, 1.0, 0.5, 0.5), side(0.0, 0.0, 0.3, 0.9, 0.1, 0.3) == 0.0
    (0.0, False)
    """
    left = (bx - ax) * (y - ay)
    right = (x - ax) * (by - ay)
    found = left - right
    if abs(found) > _ROUNDING * (abs(left) + abs(right)):
        return found
    a, b = Fraction(ax), Fraction(ay)
    exact = (Fraction(bx) - a) * (Fraction(y) - b) - (Fraction(x) - a) * (Fraction(by) - b)
    return float((exact > 0) - (exact < 0))


def shared(one: Bounds, other: Bounds) -> Bounds | None:
    """What two boxes have in common, or None.

    >>> shared((0.0, 0.0, 2.0, 2.0), (1.0, 2.0, 5.0, 5.0))
    (1.0, 2.0, 2.0, 2.0)
    """
    west, south = max(one[0], other[0]), max(one[1], other[1])
    east, north = min(one[2], other[2]), min(one[3], other[3])
    return (west, south, east, north) if west <= east and south <= north else None


def meets(one: Outline, other: Outline) -> bool:
    """Whether two geometries have a point in common.

    >>> line = outline_of({"type": "LineString", "coordinates": [[0, 0], [4, 4]]})
    >>> meets(line, box_outline(1.0, 1.0, 2.0, 3.0)), meets(line, box_outline(2.5, 0.0, 4.0, 2.0))
    (True, False)
    """
    both = shared(one.box, other.box)
    if both is None:
        return False
    from tideline.addresses import address_of  # numba is slow to import: only when needed
    from tideline.kernels.spatial import outline

    found: bool = outline.meets(address_of(one.numbers), address_of(other.numbers), *both)
    return found


def within(one: Outline, shape: Outline) -> bool:
    """Whether a geometry lies wholly in a shape, which is an area; edges belong to both.

    >>> line = outline_of({"type": "LineString", "coordinates": [[0, 0], [4, 4]]})
    >>> within(line, box_outline(0.0, 0.0, 4.0, 4.0)), within(line, box_outline(0.0, 0.0, 4.0, 3.0))
    (True, False)
    """
    both = shared(one.box, shape.box)
    if both != one.box:
        return False
    from tideline.addresses import address_of
    from tideline.kernels.spatial import outline

    found: int = outline.within(address_of(one.numbers), address_of(shape.numbers), *both)
    if found != outline.OPEN:
        return found == outline.YES
    from tideline.space.exact import within as exactly_within

    return exactly_within(one.parts, shape.parts)


def nearest_m(one: Outline, lon: float, lat: float) -> float:
    """Metres from a point to the nearest point of a geometry; 0 within its areas.

    >>> round(nearest_m(box_outline(0.0, 0.0, 2.0, 2.0), 3.0, 0.0))
    111195
    """
    from tideline.addresses import address_of
    from tideline.kernels.spatial import outline

    found: float = outline.nearest_m(address_of(one.numbers), lon, lat)
    return found


def farthest_m(one: Outline, lon: float, lat: float) -> float:
    """Metres from a point to the farthest point of a geometry.

    >>> round(farthest_m(box_outline(0.0, 0.0, 2.0, 0.0), 0.0, 0.0))
    222390
    """
    from tideline.addresses import address_of
    from tideline.kernels.spatial import outline

    found: float = outline.farthest_m(address_of(one.numbers), lon, lat)
    return found
