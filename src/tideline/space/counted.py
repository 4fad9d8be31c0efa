"""Counts on a grid as a table: what `aggregate_grid` gives, and what a heat map is drawn from.

Pure functions over numpy and pyarrow; safe from any thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.space.cells import SIDE_LIMIT, Grid

__all__ = ["COLUMNS", "cell_numbers", "counted"]

COLUMNS = ["row", "col", "west", "south", "east", "north", "count"]

Words = NDArray[np.int64]


def counted(grid: Grid, row: Words, col: Words, counts: Words) -> pa.Table:
    """The cells that have any: row, col, edges, count."""
    west, south, east, north = grid.bounds
    columns = [
        pa.array(row, pa.int32()),
        pa.array(col, pa.int32()),
        pa.array(_edges(col, west, east, grid.cols)),
        pa.array(_edges(row, south, north, grid.rows)),
        pa.array(_edges(col + 1, west, east, grid.cols)),
        pa.array(_edges(row + 1, south, north, grid.rows)),
        pa.array(counts, pa.int64()),
    ]
    return pa.table(columns, names=COLUMNS)


def cell_numbers(x: NDArray[np.float64], low: float, high: float, count: int) -> NDArray[np.int64]:
    """The cells of coordinates within the bounds: `_cell_number` of space/cells.py for many."""
    assert count <= SIDE_LIMIT
    span = high - low
    i = np.minimum(((x - low) / span * count).astype(np.int64), count - 1)
    i -= x < low + span * i / count  # rounding may be one cell off
    i += (i + 1 < count) & (x >= low + span * (i + 1) / count)
    return i


def _edges(i: Words, low: float, high: float, count: int) -> Any:
    return np.where(i >= count, high, low + (high - low) * i / count)
