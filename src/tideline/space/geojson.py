"""Places as other programs have them: GeoJSON, and `{"lon", "lat"}`.

    {"type": "Point", "coordinates": [lon, lat]}          a point; a height behind them is left out
    {"type": "Polygon", "coordinates": [[[lon, lat], ...]]}   a polygon; a box, if it is a rectangle
                                                          along the axes without holes
    {"type": "MultiPolygon", "coordinates": [...]}        several polygons as one place
    {"type": "Feature", "geometry": ...}                  its geometry
    {"lon": lon, "lat": lat}                              a point
    {"circle": [lon, lat, radius_m]}, {"box": [w, s, e, n]}   as JSON says them (plain.py)
    an object with `__geo_interface__`                    what that says; shapely's have it

Every failure is `InvalidRequest` that says what was meant. Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tideline.errors import InvalidRequest
from tideline.space.polygon import MultiPolygon, Polygon, Ring, rectangle
from tideline.space.shapes import Box, Circle, number

__all__ = ["from_json", "from_mapping", "interface_of"]

Found = tuple[float, float] | Circle | Box | Polygon | MultiPolygon

_NEAR = {
    "lng": "lon", "long": "lon", "longitude": "lon", "x": "lon", "latitude": "lat", "y": "lat",
    "Lon": "lon", "Lat": "lat", "LON": "lon", "LAT": "lat",
}  # fmt: skip
_FORMS = (
    'a GeoJSON Point, Polygon or MultiPolygon, {"lon": , "lat": }, '
    '{"circle": [lon, lat, radius_m]} or {"box": [west, south, east, north]}'
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


def from_json(text: str) -> Found:
    """The place that a text of JSON says.

    >>> from_json('{"lon": -73.98, "lat": 40.75}')
    (-73.98, 40.75)
    """
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRequest(f"the place is not JSON: {error}", place=text) from None
    if not isinstance(found, dict):
        raise InvalidRequest(f"a place must be {_FORMS}", place=text)
    return from_mapping(found)


def from_mapping(value: Mapping[str, Any]) -> Found:
    """The point or shape that a mapping says.

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


def _geometry(value: Mapping[str, Any]) -> Found:
    kind = value["type"]
    if kind == "Feature" and isinstance(value.get("geometry"), Mapping):
        value = value["geometry"]
        kind = value.get("type")
    if kind == "Point":
        lon, lat, *_ = _numbers(value.get("coordinates"), 2, "coordinates [lon, lat]", value, 3)
        return lon, lat
    if kind == "Polygon":
        return _polygon(value.get("coordinates"), value)
    if kind == "MultiPolygon":
        parts = _list(value.get("coordinates"), "polygons as coordinates of a MultiPolygon", value)
        return MultiPolygon(tuple(Polygon(*_rings(part, value)) for part in parts))
    named = {"point": "Point", "polygon": "Polygon", "multipolygon": "MultiPolygon"}
    near = named.get(str(kind).lower())
    hint = f" (did you mean {near}?)" if near else ""
    raise InvalidRequest(
        f"of GeoJSON, a place is a Point, a Polygon or a MultiPolygon{hint}", place=value
    )


def _polygon(rings: Any, value: Mapping[str, Any]) -> Polygon | Box:
    """A polygon; a box, if it is a rectangle along the axes."""
    shell, holes = _rings(rings, value)
    box = None if holes else rectangle(shell[:-1])
    return Polygon(shell, holes) if box is None else box


def _rings(rings: Any, value: Mapping[str, Any]) -> tuple[Ring, tuple[Ring, ...]]:
    """The shell and the holes, closed as GeoJSON has them."""
    found = []
    for ring in _list(rings, "rings as coordinates of a Polygon", value):
        corners = [
            _numbers(each, 2, "corners [lon, lat]", value, 3)
            for each in _list(ring, "corners [lon, lat] as a ring", value)
        ]
        made = tuple((lon, lat) for lon, lat, *_ in corners)
        if len(made) < 4 or made[0] != made[-1]:
            raise InvalidRequest(
                "a ring of a Polygon has four corners or more, the last one the first again",
                place=value,
            )
        found.append(made)
    return found[0], tuple(found[1:])


def _list(values: Any, what: str, place: Mapping[str, Any]) -> Sequence[Any]:
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)) or not values:
        raise InvalidRequest(f"expected a list of {what}", place=place)
    return values


def _numbers(
    values: Any, count: int, form: str, place: Mapping[str, Any], most: int = 0
) -> tuple[float, ...]:
    right = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
    if not right or not count <= len(values) <= max(count, most):
        raise InvalidRequest(f"expected {form}", place=place)
    return tuple(number(each, "a coordinate") for each in values)
