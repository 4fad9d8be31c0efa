"""Counts of events on a grid, without Spark: for what one process holds.

    events (a table) -> where each one is -> cell of the grid -> count a cell

Where an event is: its point; the centre of its circle or box; the centre of its cell when its
place is the name of one. An event without any of these, or outside the bounds, is not counted.
Cells are closed to the west and south, and the outer ones take in the edge of the bounds, as in a
`Grid`.

`aggregation.py` says the same in Spark's own expressions; a test holds the two against each other.
Pure functions over numpy and pyarrow; safe from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.space import Grid, QuadTree
from tideline.space.counted import COLUMNS, cell_numbers, counted

if TYPE_CHECKING:
    from tideline.space import Space

__all__ = ["COLUMNS", "cells_of", "count_cells", "make_grid", "map_space"]

Floats = NDArray[np.float64]


def map_space(space: Space | None) -> Grid | QuadTree | None:
    """The space if it is a map; `InvalidRequest` if its places lie nowhere."""
    if space is None or isinstance(space, (Grid, QuadTree)):
        return space
    raise InvalidRequest("only events on a map can be counted on a grid", space=space)


def make_grid(bounds: object, rows: int, cols: int, space: Space | None) -> Grid:
    """The grid to count on; without bounds, over the space's own."""
    if bounds is None:
        found = map_space(space)
        if found is None:
            raise InvalidRequest("bounds are missing: give (west, south, east, north)")
        bounds = found.bounds
    return Grid(bounds=bounds, rows=rows, cols=cols)  # type: ignore[arg-type]


def count_cells(events: pa.Table, grid: Grid, space: Space | None = None) -> pa.Table:
    """How many events each cell has, for the cells that have any: row, col, edges, count.

    >>> events = pa.table({"lon": [0.5, 0.6, 1.5, 9.0], "lat": [0.5, 0.5, 1.5, 9.0]})
    >>> counts = count_cells(events, Grid(bounds=(0, 0, 2, 2), rows=2, cols=2))
    >>> for row in counts.select(["row", "col", "count"]).to_pylist():
    ...     print(row)
    {'row': 0, 'col': 0, 'count': 2}
    {'row': 1, 'col': 1, 'count': 1}
    """
    located = cells_of(events, grid, space)
    row, col = (located.column(name).to_numpy() for name in ("row", "col"))
    cells, counts = np.unique(row.astype(np.int64) * grid.cols + col, return_counts=True)
    row, col = np.divmod(cells, grid.cols)
    return counted(grid, row, col, counts)


def cells_of(events: pa.Table, grid: Grid, space: Space | None = None) -> pa.Table:
    """Id, row and col of the events that lie inside the bounds; no id where there is none."""
    lon, lat = _centres(events, map_space(space))
    west, south, east, north = grid.bounds
    with np.errstate(invalid="ignore"):
        inside = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
    col = cell_numbers(lon[inside], west, east, grid.cols)
    row = cell_numbers(lat[inside], south, north, grid.rows)
    names = events.schema.names
    ids = events.column("id") if "id" in names else pa.nulls(events.num_rows, pa.string())
    return pa.table(
        {
            "id": ids.filter(pa.array(inside)),
            "row": pa.array(row, pa.int32()),
            "col": pa.array(col, pa.int32()),
        }
    )


def _centres(events: pa.Table, space: Grid | QuadTree | None) -> tuple[Floats, Floats]:
    """Longitude and latitude of every event, NaN for those that are nowhere."""
    names = events.schema.names
    if not ({"lon", "lat"} <= set(names) or ("place" in names and space is not None)):
        raise InvalidRequest(
            "events need the columns lon and lat, or place and a space", columns=names
        )
    lon = np.full(events.num_rows, np.nan)
    lat = lon.copy()
    if "place" in names and space is not None:
        lon, lat = _of_names(events.column("place"), space)
    if {"west", "south", "east", "north"} <= set(names):
        box = [_floats(events.column(name)) for name in ("west", "south", "east", "north")]
        lon = np.where(np.isnan(box[0]), lon, (box[0] + box[2]) / 2)
        lat = np.where(np.isnan(box[1]), lat, (box[1] + box[3]) / 2)
    if {"lon", "lat"} <= set(names):
        x, y = _floats(events.column("lon")), _floats(events.column("lat"))
        lon, lat = np.where(np.isnan(x), lon, x), np.where(np.isnan(y), lat, y)
    return lon, lat


def _of_names(places: pa.ChunkedArray, space: Grid | QuadTree) -> tuple[Floats, Floats]:
    """The centres of named cells and polygons; each distinct name is looked up once."""
    coded = places.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    centres = np.full((len(coded.dictionary) + 1, 2), np.nan)  # the last: no name
    for number, name in enumerate(coded.dictionary.to_pylist()):
        try:
            _, _, west, south, east, north, _ = space.encode(name)
        except InvalidRequest:
            continue
        centres[number] = (west + east) / 2, (south + north) / 2
    found = centres[coded.indices.fill_null(len(coded.dictionary)).to_numpy()]
    return found[:, 0], found[:, 1]


def _floats(column: pa.ChunkedArray) -> Floats:
    found: Floats = column.cast(pa.float64()).to_numpy()  # null becomes NaN
    return found
