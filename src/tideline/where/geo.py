"""Places in conditions: shapes as operands, geometries in bodies, the arithmetic between.

    $geoWithin      {"$box": [[west, south], [east, north]]}
                    {"$polygon": [[lon, lat], ...]}
                    {"$centerSphere": [[lon, lat], radians]}
                    {"$geometry": a GeoJSON Polygon or MultiPolygon}
    $geoIntersects  {"$geometry": any GeoJSON geometry}, or one of the other three
    $near           {"$geometry": {"type": "Point", "coordinates": [lon, lat]},
                     "$maxDistance": metres, "$minDistance": metres}, or [lon, lat] with the
                    distances beside it; `$nearSphere` is the same

What lies at the path is a geometry as space/outline.py has it: `[lon, lat]` or GeoJSON of any
type. Anything else is none, and lies in no shape. `$geoWithin` asks that all of it is in the shape,
`$geoIntersects` that some point is, and `$near` how far its nearest point is, which is 0 from
within an area. Edges and rims are inside, those of a hole too. Edges are straight lines in
longitude and latitude, as GeoJSON has them; nothing crosses the antimeridian but a ring. Distances
are along the great circle on the sphere of `tideline.space`.

Whether a point lies on an edge, left or right of it, is decided exactly. Distances are computed
by every target in the same order, so that a point on a rim has one answer.
Pure functions.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

from tideline.errors import InvalidRequest
from tideline.space import outline as outlines
from tideline.space.outline import Outline, outline_of, side
from tideline.space.shapes import EARTH_RADIUS_M
from tideline.where.tree import Inside
from tideline.where.values import Place, place_text

__all__ = [
    "check_radians", "covers", "distance_m", "distance_of", "inside", "intersects", "metres_of",
    "near", "point_of", "shape_of", "within",
]  # fmt: skip

GEOMETRIES = (
    "Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon",
    "GeometryCollection",
)  # fmt: skip
POINTS_LIMIT = 1_000  # of a shape: a test costs a step for each
_NUMBERS = frozenset((int, float))
_RADIANS = math.pi / 180.0
_FARTHEST = 4.0  # radians; nothing is farther than pi


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


def metres_of(haversine: float) -> float:
    """The distance that has a haversine.

    >>> round(metres_of(1.0))
    20015114
    """
    return 2.0 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, haversine)))


def distance_of(value: object, lon: float, lat: float) -> float | None:
    """Metres from a point to the nearest point of the geometry that a value is, or None.

    >>> round(distance_of([0, 1], 0.0, 0.0)), distance_of("here", 0.0, 0.0)
    (111195, None)
    """
    point = point_of(value)
    if point is not None:
        return distance_m(lon, lat, *point)
    found = outline_of(value)
    return None if found is None else outlines.nearest_m(found, lon, lat)


def shape_of(test: Inside) -> Outline:
    """The shape of a test, if it is no ring, as an outline."""
    numbers = test.numbers
    if test.kind == "box":
        west, south, east, north = numbers
        return outlines.box_outline(west, south, east, north)
    if test.kind == "outline":
        return outlines.from_bytes(array("d", numbers).tobytes())
    heads = [part for end in test.rings for part in (outlines.RING, 0, end // 2)]
    return outlines.from_bytes(array("d", [len(test.rings), *heads, *numbers]).tobytes())


def inside(test: Inside) -> Callable[[object], bool]:
    """Whether a value is a geometry that lies to the shape as asked, as a function of the value.

    >>> inside(Inside("box", (0.0, 0.0, 2.0, 2.0)))([2, 1])
    True
    """
    has_point, has_outline = _of_points(test), _of_outlines(test)

    def lies(value: object) -> bool:
        point = point_of(value)
        if point is not None:
            return has_point(*point)
        if type(value) is not dict:
            return False
        found = outline_of(value)
        return found is not None and has_outline(found)

    return lies


def _of_points(test: Inside) -> Callable[[float, float], bool]:
    """Whether a point lies in the shape."""
    numbers = test.numbers
    if test.kind == "box":
        west, south, east, north = numbers
        return lambda x, y: west <= x <= east and south <= y <= north
    if test.kind == "ring":
        lon, lat, least, greatest = numbers
        return lambda x, y: least <= distance_m(lon, lat, x, y) <= greatest
    if test.kind == "outline":
        shape = shape_of(test)
        return lambda x, y: outlines.meets(outlines.of_point(x, y), shape)
    bounds = min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])

    def in_polygon(x: float, y: float) -> bool:
        if not (bounds[0] <= x <= bounds[2] and bounds[1] <= y <= bounds[3]):
            return False
        return covers(numbers, test.rings, x, y)

    return in_polygon


def _of_outlines(test: Inside) -> Callable[[Outline], bool]:
    """Whether a geometry that is no single point lies to the shape as asked."""
    if test.kind == "ring":
        lon, lat, least, greatest = test.numbers
        if test.how == "within":
            return lambda found: least <= outlines.farthest_m(found, lon, lat) <= greatest
        return lambda found: least <= outlines.nearest_m(found, lon, lat) <= greatest
    shape = shape_of(test)
    if test.how == "meets":
        return lambda found: outlines.meets(found, shape)
    if test.kind == "box":
        return lambda found: outlines.shared(found.box, shape.box) == found.box
    return lambda found: outlines.within(found, shape)


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
                turn = side(ax, ay, bx, by, x, y)
                if turn == 0.0 and min(ax, bx) <= x <= max(ax, bx):
                    return True
                if (ay > y) != (by > y) and (turn > 0.0) == (by > ay):
                    odd = not odd
            ax, ay = bx, by
        start = limit
    return odd


# --- operands ---


def within(operand: object, place: Place) -> Inside:
    """The operand of `$geoWithin` as a test.

    >>> within({"$centerSphere": [[2, 48], 0]}, "where.at.$geoWithin")
    Inside(kind='ring', numbers=(2.0, 48.0, 0.0, 0.0), rings=(), how='within')
    """
    name, shape, place = _only(operand, place)
    if name != "$geometry":
        return _plain_shape(name, shape, place)
    kind, coordinates = _geometry(shape, place)
    if kind not in ("Polygon", "MultiPolygon"):
        raise _bad((place, "type"), "must be 'Polygon' or 'MultiPolygon'", type=kind)
    return _area(kind, coordinates, (place, "coordinates"))


def intersects(operand: object, place: Place) -> Inside:
    """The operand of `$geoIntersects` as a test.

    >>> intersects({"$box": [[0, 0], [1, 1]]}, "where.at.$geoIntersects").how
    'meets'
    """
    name, shape, place = _only(operand, place)
    if name != "$geometry":
        found = _plain_shape(name, shape, place)
    else:
        kind, coordinates = _geometry(shape, place)
        if kind in ("Polygon", "MultiPolygon"):
            found = _area(kind, coordinates, (place, "coordinates"))
        else:
            found = _any_geometry(kind, shape, place)
    return Inside(found.kind, found.numbers, found.rings, "meets")


def _only(operand: object, place: Place) -> tuple[str, object, Place]:
    """The one shape of an operand: name, shape, where it stands."""
    if not isinstance(operand, dict) or len(operand) != 1:
        raise _bad(place, "must hold one of $box, $polygon, $centerSphere, $geometry")
    ((name, shape),) = operand.items()
    if name not in ("$box", "$polygon", "$centerSphere", "$geometry"):
        raise _bad(
            (place, name), "is not a shape; supported are $box, $polygon, $centerSphere, $geometry"
        )
    return name, shape, (place, name)


def _plain_shape(name: str, shape: object, place: Place) -> Inside:
    """A shape that is no GeoJSON."""
    if name == "$box":
        corners = _list(shape, place, "two corners, [[west, south], [east, north]]", 2)
        west, south = _point(corners[0], (place, 0))
        east, north = _point(corners[1], (place, 1))
        if west > east or south > north:
            raise _bad(
                place,
                "must be [[west, south], [east, north]]; one that crosses the antimeridian: "
                "two boxes in an $or",
                value=shape,
            )
        return Inside("box", (west, south, east, north))
    if name == "$polygon":
        return _polygon([(shape, place)])
    center, radius = _list(shape, place, "[[lon, lat], radians]", 2)
    lon, lat = _point(center, (place, 0))
    return Inside("ring", (lon, lat, 0.0, _distance(radius, (place, 1)) * EARTH_RADIUS_M))


def check_radians(test: Inside, place: Place) -> None:
    """`InvalidRequest` for a `$centerSphere` that is larger than the earth: metres were meant."""
    radians = test.numbers[3] / EARTH_RADIUS_M if test.kind == "ring" else 0.0
    if radians > _FARTHEST:
        raise _bad(
            ((place, "$centerSphere"), 1),
            f"is in radians, and half around the earth is 3.14: divide metres by "
            f"{EARTH_RADIUS_M:.0f}",
            value=round(radians, 6),
        )


def _area(kind: object, coordinates: object, place: Place) -> Inside:
    """A Polygon or MultiPolygon: all its rings."""
    if kind == "Polygon":
        polygons = [(coordinates, place)]
    else:
        several = _list(coordinates, place, "a list of polygons", None)
        polygons = [(one, (place, number)) for number, one in enumerate(several)]
    found: list[tuple[object, Place]] = []
    for polygon, there in polygons:
        rings = _list(polygon, there, "a list of rings", None)
        for number, ring in enumerate(rings):
            if not isinstance(ring, list) or len(ring) < 4 or ring[0] != ring[-1]:
                raise _bad(
                    (there, number),
                    "must be a ring of 4 points or more, the last one the first",
                    value=ring,
                )
            found.append((ring, (there, number)))
        if not rings:
            raise _bad(there, "must be a list of rings")
    if not found:
        raise _bad(place, "must be a list of polygons")
    return _polygon(found)


def _any_geometry(kind: object, shape: object, place: Place) -> Inside:
    """Any other geometry."""
    if kind not in GEOMETRIES:
        raise _bad((place, "type"), f"must be one of {', '.join(GEOMETRIES)}", type=kind)
    found = outline_of(shape)
    if found is None:
        raise _bad(
            place,
            f"is no {kind}: its positions must be [lon, lat] within -180..180, -90..90, two or "
            "more in a line; one that crosses the antimeridian: split it there",
            value=shape,
        )
    points = int(found.numbers[3 * int(found.numbers[0])])
    if points > POINTS_LIMIT:
        raise _bad(place, f"has too many points; at most {POINTS_LIMIT} are allowed")
    return Inside("outline", tuple(found.numbers.tolist()))


def near(operand: object, beside: dict[str, object], place: Place, holder: Place) -> Inside:
    """The operand of `$near` as a test; `beside` are the operators next to it.

    >>> near([2, 48], {"$maxDistance": 5}, "where.at.$near", "where.at")
    Inside(kind='ring', numbers=(2.0, 48.0, 0.0, 5.0), rings=(), how='near')
    """
    if isinstance(operand, dict):
        for name in operand:
            if name not in ("$geometry", "$maxDistance", "$minDistance"):
                raise _bad(
                    (place, name),
                    "is none of $geometry, $maxDistance, $minDistance: a point is [lon, lat], or "
                    "{'$geometry': {'type': 'Point', 'coordinates': [lon, lat]}}",
                )
        kind, center = _geometry(operand.get("$geometry"), (place, "$geometry"))
        if kind != "Point":
            raise _bad(((place, "$geometry"), "type"), "must be 'Point'", type=kind)
        lon, lat = _point(center, ((place, "$geometry"), "coordinates"))
        distances, holder = operand, place
    else:
        lon, lat = _point(operand, place)
        distances = beside
    least = _distance(distances.get("$minDistance", 0), (holder, "$minDistance"))
    greatest = math.inf
    if "$maxDistance" in distances:
        greatest = _distance(distances["$maxDistance"], (holder, "$maxDistance"))
    return Inside("ring", (lon, lat, least, greatest), how="near")


def _polygon(rings: list[tuple[object, Place]]) -> Inside:
    numbers: list[float] = []
    ends: list[int] = []
    for ring, place in rings:
        points = [
            _point(point, (place, number))
            for number, point in enumerate(_list(ring, place, "a list of points", None))
        ]
        if (
            points and points[0] == points[-1]
        ):  # closed by its first point or not, it means the same
            points.pop()
        if len(points) < 3:
            raise _bad(place, "must have 3 different points or more")
        numbers += [number for point in points for number in point]
        ends.append(len(numbers))
        if len(numbers) > 2 * POINTS_LIMIT:
            raise _bad(place, f"has too many points; at most {POINTS_LIMIT} are allowed")
    return Inside("polygon", tuple(numbers), tuple(ends))


def _geometry(value: object, place: Place) -> tuple[object, object]:
    collects = isinstance(value, dict) and value.get("type") == "GeometryCollection"
    wanted = "geometries" if collects else "coordinates"
    if not isinstance(value, dict) or value.keys() != {"type", wanted}:
        raise _bad(place, f"must be GeoJSON, {{'type': ..., {wanted!r}: ...}}", value=value)
    return value["type"], value[wanted]


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
