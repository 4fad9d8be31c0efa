"""Places as other programs have them: GeoJSON, and `{"lon", "lat"}`.

    {"type": "Point", "coordinates": [lon, lat]}          a point; a height behind them is left out
    {"type": "Polygon", "coordinates": [[[lon, lat], ...]]}   a box, if it is a rectangle along the
                                                          axes (four corners, the first one again)
    {"type": "Feature", "geometry": ...}                  its geometry
    {"lon": lon, "lat": lat}                              a point
    {"circle": [lon, lat, radius_m]}, {"box": [w, s, e, n]}   as JSON says them (plain.py)
    an object with `__geo_interface__`                    what that says; shapely's have it

Every failure is `InvalidRequest` that says what was meant. Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tideline.errors import InvalidRequest
from tideline.space.shapes import Box, Circle, number

__all__ = ["from_mapping", "interface_of"]

_NEAR = {
    "lng": "lon", "long": "lon", "longitude": "lon", "x": "lon", "latitude": "lat", "y": "lat",
    "Lon": "lon", "Lat": "lat", "LON": "lon", "LAT": "lat",
}  # fmt: skip
_FORMS = (
    'a GeoJSON Point or Polygon, {"lon": , "lat": }, {"circle": [lon, lat, radius_m]} or '
    '{"box": [west, south, east, north]}'
)


def interface_of(value: object) -> Mapping[str, Any] | None:
    """A place that says what it is in GeoJSON; None for everything else.

    >>> interface_of({"lon": 1, "lat": 2}), interface_of((1, 2))
    ({'lon': 1, 'lat': 2}, None)
    """
    if isinstance(value, Mapping):
        return value
    said = getattr(value, "__geo_interface__", None)
    return said if isinstance(said, Mapping) else None


def from_mapping(value: Mapping[str, Any]) -> tuple[float, float] | Circle | Box:
    """The point, circle or box that a mapping says.

    >>> from_mapping({"type": "Point", "coordinates": [-73.98, 40.75]})
    (-73.98, 40.75)
    >>> from_mapping({"lon": -73.98, "lat": 40.75})
    (-73.98, 40.75)
    >>> corners = [[0, 0], [2, 0], [2, 1], [0, 1], [0, 0]]
    >>> from_mapping({"type": "Polygon", "coordinates": [corners]})
    Box(west=0.0, south=0.0, east=2.0, north=1.0)
    >>> from_mapping({"lng": -73.98, "lat": 40.75})
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: a point is {"lon": , "lat": }: 'lng' is not known (did you ...
    """
    names = set(value)
    if names == {"lon", "lat"}:
        return number(value["lon"], "lon"), number(value["lat"], "lat")
    if names == {"circle"}:
        lon, lat, radius_m = _numbers(value["circle"], 3, '{"circle": [lon, lat, radius_m]}', value)
        return Circle((lon, lat), radius_m=radius_m)
    if names == {"box"}:
        return Box(*_numbers(value["box"], 4, '{"box": [west, south, east, north]}', value))
    if "type" in value:
        return _geometry(value)
    for name in value:
        if name in _NEAR:
            raise InvalidRequest(
                f'a point is {{"lon": , "lat": }}: {name!r} is not known '
                f"(did you mean {_NEAR[name]!r}?)",
                place=value,
            )
    raise InvalidRequest(f"a place must be {_FORMS}", place=value)


def _geometry(value: Mapping[str, Any]) -> tuple[float, float] | Circle | Box:
    kind = value["type"]
    if kind == "Feature" and isinstance(value.get("geometry"), Mapping):
        value = value["geometry"]
        kind = value.get("type")
    if kind == "Point":
        lon, lat, *_ = _numbers(value.get("coordinates"), 2, "coordinates [lon, lat]", value, 3)
        return lon, lat
    if kind == "Polygon":
        return _box(value)
    near = " (did you mean Point?)" if str(kind).lower() == "point" else ""
    raise InvalidRequest(f"of GeoJSON, a place is a Point or a Polygon{near}", place=value)


def _box(value: Mapping[str, Any]) -> Box:
    """A polygon that is a rectangle along the axes."""
    rings = value.get("coordinates")
    if not isinstance(rings, Sequence) or isinstance(rings, str) or len(rings) < 1:
        raise InvalidRequest("a Polygon's coordinates must be a list of rings", place=value)
    ring = rings[0]
    if isinstance(ring, Sequence) and not isinstance(ring, str):
        corners = [_numbers(each, 2, "corners [lon, lat]", value, 3)[:2] for each in ring]
        lons = sorted({lon for lon, _ in corners})
        lats = sorted({lat for _, lat in corners})
        sides = all((one[0] == two[0]) != (one[1] == two[1]) for one, two in pairwise(corners))
        closed = len(corners) == 5 and corners[0] == corners[4] and len(set(corners)) == 4
        if closed and sides and len(rings) == 1 and len(lons) == len(lats) == 2:
            return Box(lons[0], lats[0], lons[1], lats[1])
    raise InvalidRequest(
        "a Polygon must be a rectangle along the axes: five corners, the last one the first again. "
        "Other polygons: take the box around them, and look closer at what it finds",
        place=value,
    )


def _numbers(
    values: Any, count: int, form: str, place: Mapping[str, Any], most: int = 0
) -> tuple[float, ...]:
    right = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
    if not right or not count <= len(values) <= max(count, most):
        raise InvalidRequest(f"expected {form}", place=place)
    return tuple(number(each, "a coordinate") for each in values)
