"""Places in conditions: shapes as operands, points in bodies, the arithmetic between.

    $geoWithin  {"$box": [[west, south], [east, north]]}
                {"$polygon": [[lon, lat], ...]}
                {"$centerSphere": [[lon, lat], radians]}
                {"$geometry": {"type": "Polygon", "coordinates": [[[lon, lat], ...], ...]}}
    $near       {"$geometry": {"type": "Point", "coordinates": [lon, lat]},
                 "$maxDistance": metres, "$minDistance": metres}, or [lon, lat] with the
                distances beside it; `$nearSphere` is the same

A point is `[lon, lat]` or a GeoJSON Point (an altitude is ignored) with lon in -180..180 and
lat in -90..90; anything else is no point and lies in no shape. Edges and rims are inside, those
of a hole too. The edges of a box and a polygon are straight lines in longitude and latitude,
as GeoJSON has them; nothing crosses the antimeridian but a ring. Distances are along the
great circle on the sphere of `tideline.space`.

Every target does this arithmetic in this order, so that a point on a rim has one answer.
Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tideline.errors import InvalidRequest
from tideline.space.shapes import EARTH_RADIUS_M
from tideline.where.tree import Inside
from tideline.where.values import Place, place_text

__all__ = ["distance_m", "inside", "near", "point_of", "within"]

POINTS_LIMIT = 1_000  # of a polygon: a test costs a step for each
_NUMBERS = frozenset((int, float))
_RADIANS = math.pi / 180.0


# --- points and shapes ---


def point_of(value: object) -> tuple[float, float] | None:
    """The point a value is, or None.

    >>> point_of([2, 48.5]), point_of({"type": "Point", "coordinates": [2, 48.5, 35]})
    ((2.0, 48.5), (2.0, 48.5))
    >>> point_of([200, 0]), point_of(["2", "48"]), point_of([1, 2, 3])
    (None, None, None)
    """
    if type(value) is dict:
        if value.get("type") != "Point":
            return None
        value = value.get("coordinates")
        if type(value) is not list or len(value) not in (2, 3):
            return None
        if len(value) == 3 and type(value[2]) not in _NUMBERS:
            return None
    elif type(value) is not list or len(value) != 2:
        return None
    lon, lat = value[0], value[1]
    if type(lon) not in _NUMBERS or type(lat) not in _NUMBERS:
        return None
    if not (-180 <= lon <= 180 and -90 <= lat <= 90):
        return None
    return float(lon), float(lat)


def distance_m(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """Metres between two points along the great circle; as `kernels.geo.haversine_m`.

    >>> round(distance_m(-73.97, 40.76, -73.97, 40.77))
    1112
    """
    high = math.sin((lat2 - lat1) * _RADIANS * 0.5)
    wide = math.sin((lon2 - lon1) * _RADIANS * 0.5)
    h = high * high + (math.cos(lat1 * _RADIANS) * math.cos(lat2 * _RADIANS)) * (wide * wide)
    return 2.0 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, h)))


def inside(test: Inside) -> Callable[[object], bool]:
    """Whether a value is a point inside the shape, as a function of the value.

    >>> inside(Inside("box", (0.0, 0.0, 2.0, 2.0)))([2, 1])
    True
    """
    numbers = test.numbers
    if test.kind == "box":
        west, south, east, north = numbers

        def in_box(value: object) -> bool:
            point = point_of(value)
            return point is not None and west <= point[0] <= east and south <= point[1] <= north

        return in_box
    if test.kind == "ring":
        lon, lat, least, greatest = numbers

        def in_ring(value: object) -> bool:
            point = point_of(value)
            return point is not None and least <= distance_m(lon, lat, *point) <= greatest

        return in_ring

    bounds = min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])

    def in_polygon(value: object) -> bool:
        point = point_of(value)
        if point is None:
            return False
        x, y = point
        if not (bounds[0] <= x <= bounds[2] and bounds[1] <= y <= bounds[3]):
            return False
        return covers(numbers, test.rings, x, y)

    return in_polygon


def covers(numbers: tuple[float, ...], rings: tuple[int, ...], x: float, y: float) -> bool:
    """Whether a polygon covers a point: on an edge of any ring, or inside by even-odd.

    A ray to the right crosses an edge that goes from at or below the point to above it, or
    back; an odd number of crossings, over all rings, is inside.

    >>> covers((0, 0, 4, 0, 4, 4, 0, 4), (8,), 2, 1), covers((0, 0, 4, 0, 4, 4), (6,), 1, 3)
    (True, False)
    """
    odd = False
    start = 0
    for limit in rings:
        ax, ay = numbers[limit - 2], numbers[limit - 1]
        for at in range(start, limit, 2):
            bx, by = numbers[at], numbers[at + 1]
            if (ay <= y <= by) or (by <= y <= ay):
                # Twice the area of the triangle: its sign is the side the point is on.
                side = (bx - ax) * (y - ay) - (x - ax) * (by - ay)
                if side == 0.0 and min(ax, bx) <= x <= max(ax, bx):
                    return True
                if (ay > y) != (by > y) and (side > 0.0) == (by > ay):
                    odd = not odd
            ax, ay = bx, by
        start = limit
    return odd


# --- operands ---


def within(operand: object, place: Place) -> Inside:
    """The operand of `$geoWithin` as a test.

    >>> within({"$centerSphere": [[2, 48], 0]}, "where.at.$geoWithin")
    Inside(kind='ring', numbers=(2.0, 48.0, 0.0, 0.0), rings=())
    """
    if not isinstance(operand, dict) or len(operand) != 1:
        raise _bad(place, "must hold one of $box, $polygon, $centerSphere, $geometry")
    ((name, shape),) = operand.items()
    place = (place, name)
    if name == "$box":
        corners = _list(shape, place, "two corners, [[west, south], [east, north]]", 2)
        west, south = _point(corners[0], (place, 0))
        east, north = _point(corners[1], (place, 1))
        if west > east or south > north:
            raise _bad(
                place,
                "must be [[west, south], [east, north]]; one that crosses the antimeridian: "
                "two boxes in an $or",
            )
        return Inside("box", (west, south, east, north))
    if name == "$polygon":
        return _polygon([(shape, place)])
    if name == "$centerSphere":
        center, radius = _list(shape, place, "[[lon, lat], radians]", 2)
        lon, lat = _point(center, (place, 0))
        return Inside("ring", (lon, lat, 0.0, _distance(radius, (place, 1)) * EARTH_RADIUS_M))
    if name == "$geometry":
        kind, coordinates = _geometry(shape, place)
        if kind != "Polygon":
            raise _bad((place, "type"), "must be 'Polygon'", type=kind)
        place = (place, "coordinates")
        rings = _list(coordinates, place, "a list of rings", None)
        for number, ring in enumerate(rings):
            if not isinstance(ring, list) or len(ring) < 4 or ring[0] != ring[-1]:
                raise _bad((place, number), "must be a ring of 4 points or more, closed")
        if not rings:
            raise _bad(place, "must be a list of rings")
        return _polygon([(ring, (place, number)) for number, ring in enumerate(rings)])
    raise _bad(place, "is not a shape; supported are $box, $polygon, $centerSphere, $geometry")


def near(operand: object, beside: dict[str, object], place: Place, holder: Place) -> Inside:
    """The operand of `$near` as a test; `beside` are the operators next to it.

    >>> near([2, 48], {"$maxDistance": 5}, "where.at.$near", "where.at")
    Inside(kind='ring', numbers=(2.0, 48.0, 0.0, 5.0), rings=())
    """
    if isinstance(operand, dict):
        for name in operand:
            if name not in ("$geometry", "$maxDistance", "$minDistance"):
                raise _bad((place, name), "is none of $geometry, $maxDistance, $minDistance")
        kind, center = _geometry(operand.get("$geometry"), (place, "$geometry"))
        if kind != "Point":
            raise _bad(((place, "$geometry"), "type"), "must be 'Point'", type=kind)
        lon, lat = _point(center, ((place, "$geometry"), "coordinates"))
        distances, holder = operand, place
    else:
        lon, lat = _point(operand, place)
        distances = beside
    if "$maxDistance" not in distances and "$minDistance" not in distances:
        raise _bad(place, "needs a $maxDistance or a $minDistance, in metres")
    least = _distance(distances.get("$minDistance", 0), (holder, "$minDistance"))
    greatest = math.inf
    if "$maxDistance" in distances:
        greatest = _distance(distances["$maxDistance"], (holder, "$maxDistance"))
    return Inside("ring", (lon, lat, least, greatest))


def _polygon(rings: list[tuple[object, Place]]) -> Inside:
    numbers: list[float] = []
    ends: list[int] = []
    for ring, place in rings:
        points = [
            _point(point, (place, number))
            for number, point in enumerate(_list(ring, place, "a list of points", None))
        ]
        if points[:1] == points[-1:]:  # closed by its first point or not, it means the same
            points.pop()
        if len(points) < 3:
            raise _bad(place, "must have 3 different points or more")
        numbers += [number for point in points for number in point]
        ends.append(len(numbers))
        if len(numbers) > 2 * POINTS_LIMIT:
            raise _bad(place, f"has too many points; at most {POINTS_LIMIT} are allowed")
    return Inside("polygon", tuple(numbers), tuple(ends))


def _geometry(value: object, place: Place) -> tuple[object, object]:
    if not isinstance(value, dict) or value.keys() != {"type", "coordinates"}:
        raise _bad(place, "must be GeoJSON, {'type': ..., 'coordinates': ...}", value=value)
    return value["type"], value["coordinates"]


def _list(value: object, place: Place, wanted: str, length: int | None) -> list[object]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise _bad(place, f"must be {wanted}", value=value)
    return value


def _point(value: object, place: Place) -> tuple[float, float]:
    point = point_of(value) if isinstance(value, list) else None
    if point is None:
        raise _bad(place, "must be [lon, lat] within -180..180, -90..90", value=value)
    return point


def _distance(value: object, place: Place) -> float:
    if type(value) not in _NUMBERS or not isinstance(value, (int, float)) or value < 0:
        raise _bad(place, "must be a number, 0 or more", value=value)
    return float(value)


def _bad(place: Place, message: str, **values: object) -> InvalidRequest:
    return InvalidRequest(f"{place_text(place)} {message}", **values)
