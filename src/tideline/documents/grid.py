"""How many documents are where: counted by the cells of a grid.

    box, rows, cols, where -> a condition -> the planner (finding.py) -> texts
    -> points read and counted in one pass (kernels/documents/points.py) -> a table

What meets the box as `$geoIntersects` says is counted, with an index and without: a point in its
cell, another geometry in the cell that is nearest to the middle of its bounds. A path through an
array of objects may lead to several places: each counts. Cells are closed to the west and south, as
those of a `Grid`, and the outer ones have the edge of the box.

Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tideline.addresses import address_of
from tideline.documents import checks
from tideline.errors import InvalidRequest
from tideline.index.compound import parts_of
from tideline.index.extract import Scanned
from tideline.index.kind import name_of
from tideline.index.texts import Texts
from tideline.kernels.documents.points import count_points
from tideline.kernels.jsonpath import PADDING
from tideline.kernels.standing.layout import VALUE
from tideline.space import Grid
from tideline.space.counted import cell_numbers, counted
from tideline.where.geo import inside, intersects, point_of
from tideline.where.order import entries

__all__ = ["CELLS_LIMIT", "condition_of", "count_on", "field_of", "grid_of"]

CELLS_LIMIT = 4_000_000
_POSITIONS = frozenset((int, float))


def grid_of(box: Any, rows: Any, cols: Any) -> Grid:
    """The cells to count in, checked."""
    grid = Grid(bounds=_bounds(box), rows=rows, cols=cols)
    if grid.rows * grid.cols > CELLS_LIMIT:
        raise InvalidRequest(f"a grid has at most {CELLS_LIMIT:,} cells", rows=rows, cols=cols)
    return grid


def _bounds(box: Any) -> Any:
    """West, south, east, north of a box: four numbers, or two corners as `$box` has them."""
    if isinstance(box, Mapping) and list(box) == ["$box"]:
        box = box["$box"]
    if hasattr(box, "west"):  # a Box
        return box.west, box.south, box.east, box.north
    listed = box if isinstance(box, (list, tuple)) else []
    if len(listed) == 2 and all(isinstance(one, (list, tuple)) and len(one) == 2 for one in listed):
        listed = [number for corner in listed for number in corner]
    if len(listed) != 4:
        raise InvalidRequest("box must be (west, south, east, north) in degrees", box=box)
    return tuple(listed)


def field_of(field: Any, indexes: Mapping[str, Any]) -> str:
    """The field that has places; when it is not named, the one that has a spatial index."""
    if field is not None:
        return checks.name_without_comma(field, "field")
    kinds = {name: name_of(spec) for name, spec in indexes.items()}
    found = [name for name, kind in kinds.items() if kind == "spatial"]
    if not found:
        found = [parts_of(name)[0] for name, kind in kinds.items() if kind == "fuzzy"]
    if len(found) != 1:
        raise InvalidRequest(
            "name the field of the places: field=...; without, there must be one spatial index",
            indexes=found,
        )  # fmt: skip
    return found[0]


def condition_of(where: Any, field: str, grid: Grid) -> Any:
    """What finds the documents to count: an index on the places may serve it."""
    box = {field: {"$geoIntersects": _box(grid)}}
    return {"$and": [where, box]} if where else box


def _box(grid: Grid) -> Any:
    west, south, east, north = grid.bounds
    return {"$box": [[west, south], [east, north]]}


def count_on(parts: Iterable[list[bytes]], field: str, grid: Grid) -> pa.Table:
    """Count texts of documents, some at a time.

    >>> docs = [b'{"at": [0.5, 0.5]}', b'{"at": {"type": "Point", "coordinates": [1.5, 0.1]}}']
    >>> table = count_on([docs], "at", Grid(bounds=(0, 0, 2, 2), rows=2, cols=2))
    >>> table.select(["row", "col", "count"]).to_pylist()
    [{'row': 0, 'col': 0, 'count': 1}, {'row': 0, 'col': 1, 'count': 1}]
    """
    counts = np.zeros((grid.rows, grid.cols), np.int64)
    scratch = np.zeros(VALUE, np.int64)
    west, south, east, north = grid.bounds
    names = [field, f"{field}.type", f"{field}.coordinates"]
    meets = inside(intersects(_box(grid), "box"))
    for texts in parts:
        docs = _padded(texts)
        scanned = Scanned(docs, names)
        found = [scanned.at(name) for name in names]
        tags, values = (np.stack(each) for each in zip(*found, strict=True))
        left = np.empty(len(texts), np.int64)
        many = count_points(
            address_of(docs.data), docs.offsets, tags, values, np.arange(3), address_of(scratch),
            west, south, east, north, counts, left,
        )  # fmt: skip
        places = [
            (lon, lat)
            for row in left[:many].tolist()
            for lon, lat in _places(scanned.document(row), field, meets)
        ]
        if places:
            x, y = np.array(places, np.float64).T
            x, y = np.clip(x, west, east), np.clip(y, south, north)
            lines = cell_numbers(y, south, north, grid.rows)
            np.add.at(counts, (lines, cell_numbers(x, west, east, grid.cols)), 1)
    rows, cols = np.nonzero(counts)
    return counted(grid, rows, cols, counts[rows, cols])


def _padded(texts: list[bytes]) -> Texts:
    """The texts, with room behind: the kernel reads past their ends."""
    made = Texts.of([*texts, bytes(PADDING)])
    return Texts(made.offsets[:-1].copy(), made.data)


def _places(
    document: Any, field: str, meets: Callable[[object], bool]
) -> Iterator[tuple[float, float]]:
    """The points that lie at a field and meet the box, and the middles of what else does."""
    found = iter(entries(document, field))
    for value in found:
        if meets(value):
            point = point_of(value)
            if point is None:
                assert isinstance(value, dict)  # what else is a geometry
                lons, lats = zip(*_corners(value), strict=True)
                point = (min(lons) + max(lons)) / 2, (min(lats) + max(lats)) / 2
            yield point
        if type(value) is list:  # a place is a whole array, never an element of it
            for _ in value:
                next(found)


def _corners(shape: dict[str, Any]) -> Iterator[tuple[float, float]]:
    """The positions of a GeoJSON geometry; none of what is none."""
    if shape.get("type") == "GeometryCollection":
        for part in shape.get("geometries") or ():
            if type(part) is dict:
                yield from _corners(part)
        return
    if shape.get("type") in _SHAPES:
        yield from _positions(shape.get("coordinates"))


_SHAPES = frozenset(
    ("LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", "Point")
)


def _positions(value: Any) -> Iterator[tuple[float, float]]:
    if type(value) is not list:
        return
    if len(value) >= 2 and type(value[0]) in _POSITIONS and type(value[1]) in _POSITIONS:
        if -180 <= value[0] <= 180 and -90 <= value[1] <= 90:
            yield float(value[0]), float(value[1])
        return
    for part in value:
        yield from _positions(part)
