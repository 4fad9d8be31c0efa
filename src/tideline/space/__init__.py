"""Spaces: how places relate, and how a place becomes a key in a tree.

    Flat()                   texts; a place meets only itself
    Topics()                 paths "sports/soccer"; meets ancestors and descendants
    Grid(bounds, rows, cols) cells "12.40", points, circles, boxes, polygons on a map
    QuadTree(bounds, depth)  cells "1.4.2", points, circles, boxes, polygons on a map

`place.py` says what the index sees of a place. Importing this loads neither numba nor
pyarrow nor numpy: `import tideline` should not wait for them.
"""

from __future__ import annotations

from typing import Any

from tideline.errors import InvalidRequest
from tideline.space.cells import Grid, QuadTree
from tideline.space.flat import Flat
from tideline.space.place import (
    BOX,
    CELL,
    CELLS,
    CIRCLE,
    FLAT,
    KEY_LIMIT_BYTES,
    NONE,
    POINT,
    POLYGON,
    TOPICS,
    Place,
    Places,
    Space,
    meets,
)
from tideline.space.polygon import MultiPolygon, Polygon
from tideline.space.shapes import Box, Circle
from tideline.space.topics import Topics

__all__ = [
    "BOX",
    "CELL",
    "CELLS",
    "CIRCLE",
    "FLAT",
    "KEY_LIMIT_BYTES",
    "NONE",
    "POINT",
    "POLYGON",
    "TOPICS",
    "Box",
    "Circle",
    "Flat",
    "Grid",
    "MultiPolygon",
    "Place",
    "Places",
    "Polygon",
    "QuadTree",
    "Space",
    "Topics",
    "meets",
    "space_from_spec",
]

_KINDS: dict[str, type[Any]] = {
    "flat": Flat,
    "topics": Topics,
    "grid": Grid,
    "quadtree": QuadTree,
}


def space_from_spec(spec: dict[str, Any]) -> Space:
    """The space that `Space.spec` described.

    >>> space_from_spec({"kind": "quadtree", "bounds": [-80, 40, -72, 48], "depth": 9})
    QuadTree(bounds=(-80.0, 40.0, -72.0, 48.0), depth=9)
    """
    settings = dict(spec)
    kind = _KINDS.get(str(settings.pop("kind", None)))
    if kind is None:
        raise InvalidRequest(f"a space's kind must be one of {', '.join(_KINDS)}", spec=spec)
    try:
        space: Space = kind(**settings)
    except TypeError:
        raise InvalidRequest("a space's settings do not fit its kind", spec=spec) from None
    return space
