"""Text from the command line or a JSON line, as places, times and values.

    PLACE := key or path                  flat, topics; quad path "1.4.2"
           | LON,LAT                      a point
           | circle:LON,LAT,RADIUS_M
           | box:WEST,SOUTH,EAST,NORTH
           | GeoJSON                      {"type": "Polygon", "coordinates": ...}

In a flat or topics channel every text is a key: "1,2" is not a point there. In JSON a place may
also be written as it is printed: [lon, lat], {"circle": [lon, lat, radius_m]},
{"box": [west, south, east, north]} or GeoJSON.

Pure functions; every failure is `InvalidRequest` naming the value.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from tideline.errors import InvalidRequest
from tideline.space import Flat, Grid, QuadTree, Topics
from tideline.space.plain import from_plain, from_text, parse_numbers

__all__ = ["parse_json", "parse_numbers", "parse_place", "parse_space", "parse_time"]


def parse_place(value: Any, space: Any) -> Any:
    """A place from text or JSON, as the space of a channel reads it.

    >>> parse_place("-73.98,40.75", QuadTree(bounds=(-80, 40, -70, 46), depth=4))
    (-73.98, 40.75)
    >>> parse_place([-73.98, 40.75], Flat())
    (-73.98, 40.75)
    """
    return from_text(value, space) if isinstance(value, str) else from_plain(value)


def parse_time(value: str | float | None, name: str) -> datetime | None:
    """ISO 8601 text or seconds since 1970, as a datetime; one without a zone is UTC.

    >>> parse_time("2026-01-02T03:04:05Z", "at").isoformat()
    '2026-01-02T03:04:05+00:00'
    >>> parse_time("0", "at").year
    1970
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = None
    try:
        if seconds is not None:
            return datetime.fromtimestamp(seconds, UTC)
        moment = datetime.fromisoformat(str(value))
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(
            f"{name} must be ISO 8601 or seconds since 1970", **{name: value}
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_json(text: str, name: str) -> Any:
    """A JSON value.

    >>> parse_json('{"lanes": 2}', "body")
    {'lanes': 2}
    """
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise InvalidRequest(f"{name} is nested too deeply", **{name: text}) from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidRequest(
            f"{name} must be JSON: {error} (text needs its own double quotes)", **{name: text}
        ) from None


def parse_space(
    kind: str, bounds: str | None, depth: int | None, rows: int | None, cols: int | None
) -> Any:
    """A space from the options of `tideline channel create`.

    >>> parse_space("topics", None, None, None, None)
    Topics()
    """
    given = {"--bounds": bounds, "--depth": depth, "--rows": rows, "--cols": cols}
    takes = {
        "flat": set(),
        "topics": set(),
        "grid": {"--bounds", "--rows", "--cols"},
        "quadtree": {"--bounds", "--depth"},
    }
    if kind not in takes:
        raise InvalidRequest("space must be flat, topics, grid or quadtree", space=kind)
    for option, value in given.items():
        if value is not None and option not in takes[kind]:
            raise InvalidRequest(f"a {kind} space takes no {option}", given=value)
        if value is None and kind == "grid" and option in takes[kind]:
            raise InvalidRequest(f"a {kind} space needs {option}")
    if kind == "flat":
        return Flat()
    if kind == "topics":
        return Topics()
    if bounds is None:
        return QuadTree() if depth is None else QuadTree(depth=depth)
    west, south, east, north = parse_numbers(bounds, 4, "WEST,SOUTH,EAST,NORTH")
    if kind == "grid":
        assert rows is not None
        assert cols is not None
        return Grid(bounds=(west, south, east, north), rows=rows, cols=cols)
    return QuadTree(bounds=(west, south, east, north), depth=9 if depth is None else depth)
