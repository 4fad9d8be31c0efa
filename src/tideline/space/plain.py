"""Places as JSON and as text, for the ways in and out: server, client, command line.

    JSON   "key"     [lon, lat]   {"circle": [lon, lat, radius_m]}   {"box": [w, s, e, n]}
           a polygon as GeoJSON; and, read only, other GeoJSON and {"lon", "lat"} (geojson.py)
    text   the key   LON,LAT      circle:LON,LAT,RADIUS_M            box:W,S,E,N

In a flat or topics channel every text is a key: "1,2" is not a point there. What a place may be is
the space's to judge; here only its form is read.

Pure functions; every failure is `InvalidRequest` naming the value.
"""

from __future__ import annotations

import re
from typing import Any

from tideline.errors import InvalidRequest
from tideline.space.flat import Flat
from tideline.space.geojson import from_json, from_mapping
from tideline.space.polygon import MultiPolygon, Polygon
from tideline.space.shapes import Box, Circle
from tideline.space.topics import Topics

__all__ = ["from_plain", "from_text", "parse_numbers", "to_plain"]

_POINT = re.compile(r"^\s*[-+]?[\d.]+(e[-+]?\d+)?\s*,", re.IGNORECASE)


def to_plain(place: Any) -> Any:
    """A place as JSON that `from_plain` reads back.

    >>> to_plain(Circle((-73.98, 40.75), radius_m=500))
    {'circle': [-73.98, 40.75, 500.0]}
    >>> to_plain((-73.98, 40.75)), to_plain("sports/soccer")
    ([-73.98, 40.75], 'sports/soccer')
    """
    if isinstance(place, Circle):
        return {"circle": [*place.center, place.radius_m]}
    if isinstance(place, Box):
        return {"box": [place.west, place.south, place.east, place.north]}
    if isinstance(place, (Polygon, MultiPolygon)):
        return place.__geo_interface__
    if isinstance(place, tuple):
        return list(place)
    return place


def from_plain(value: Any) -> Any:
    """A place from JSON; a text stays as it is.

    >>> from_plain({"box": [-74, 40, -73, 41]})
    Box(west=-74.0, south=40.0, east=-73.0, north=41.0)
    >>> from_plain("sports/soccer")
    'sports/soccer'
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        lon, lat = _numbers(value, 2, "[lon, lat]")
        return (lon, lat)
    if isinstance(value, dict):
        return from_mapping(value)
    raise InvalidRequest("place must be text, [lon, lat], a circle, a box or GeoJSON", place=value)


def from_text(text: str, space: Any) -> Any:
    """A place from text, as the space of a channel reads it.

    >>> from tideline.space import QuadTree
    >>> from_text("-73.98,40.75", QuadTree(bounds=(-80, 40, -70, 46), depth=4))
    (-73.98, 40.75)
    >>> from_text("1,2", Flat())
    '1,2'
    """
    if isinstance(space, (Flat, Topics)):
        return text
    if text.startswith("circle:"):
        lon, lat, radius_m = parse_numbers(text[len("circle:") :], 3, "circle:LON,LAT,RADIUS_M")
        return Circle((lon, lat), radius_m=radius_m)
    if text.startswith("box:"):
        return Box(*parse_numbers(text[len("box:") :], 4, "box:WEST,SOUTH,EAST,NORTH"))
    if _POINT.match(text):
        lon, lat = parse_numbers(text, 2, "LON,LAT")
        return (lon, lat)
    if text.startswith("{"):  # no cell is called so: GeoJSON, or {"lon": ..., "lat": ...}
        return from_json(text)
    return text


def parse_numbers(text: str, count: int, form: str) -> tuple[float, ...]:
    """Numbers between commas.

    >>> parse_numbers("1,2.5", 2, "LON,LAT")
    (1.0, 2.5)
    """
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != count:
        raise InvalidRequest(f"expected {form}, {count} numbers between commas", given=text)
    return numbers


def _numbers(values: Any, count: int, form: str) -> tuple[float, ...]:
    if (
        not isinstance(values, (list, tuple))
        or len(values) != count
        or not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    ):
        raise InvalidRequest(f"expected {form}", given=values)
    try:
        return tuple(float(v) for v in values)
    except OverflowError:
        raise InvalidRequest(f"expected {form} of finite numbers", given=values) from None
