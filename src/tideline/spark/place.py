"""Points as cells of a map, in Spark's own expressions.

    inside(space, lon, lat)          whether a point lies within the bounds
    cell_numbers(space, lon, lat)    column and row of its leaf
    cell_name(space, lon, lat)       the leaf's name as the space writes it: "12.40" or "1.4.2"
    path_name(space, lon, lat, n)    the first n levels of its path in the tree of cells

Exactly as `tideline.space` encodes points, to the last bit: the same operations on the same
64-bit floats in the same order (`_cell_number` in space/cells.py). There, a loop moves a
cell number that rounding put beside the right one. Here it is one step each way, which is
enough: the quotient is off by at most 2^24 * 4 * 2^-53 of a cell, and an edge by 2^-45
degrees where a cell is at least 1e-9 wide. tests/spark/test_place.py compares the two.

No Python runs for a row: these are Columns, which Spark compiles. Null or NaN in, null out.
Importing this needs no pyspark; calling it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tideline.errors import InvalidRequest
from tideline.space import Grid, QuadTree, Space
from tideline.space.place import CELLS

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["cell_name", "cell_numbers", "depth_of", "inside", "path_name"]

_AT_ONCE = 4  # levels looked up in one table of 256 names


def inside(space: Space, lon: Column, lat: Column) -> Column:
    """True or false for every row: whether the space takes the point. Null is false.

    >>> frame = spark.sql("SELECT 1.0D AS lon, 9.0D AS lat")  # doctest: +SKIP
    >>> grid = Grid(bounds=(0, 0, 2, 2), rows=4, cols=4)  # doctest: +SKIP
    >>> frame.select(inside(grid, frame.lon, frame.lat).alias("held")).collect()  # doctest: +SKIP
    [Row(held=False)]
    """
    from pyspark.sql import functions as F

    west, south, east, north = _map(space).bounds
    held = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
    return F.coalesce(held, F.lit(False))


def cell_numbers(space: Space, lon: Column, lat: Column) -> tuple[Column, Column]:
    """Column (from the west) and row (from the south) of a point's leaf, as integers.

    Null for a point that is not within the bounds.

    >>> frame = spark.sql("SELECT 9.5D AS lon, 0.5D AS lat")  # doctest: +SKIP
    >>> grid = Grid(bounds=(0, 0, 10, 5), rows=5, cols=10)  # doctest: +SKIP
    >>> col, row = cell_numbers(grid, frame.lon, frame.lat)  # doctest: +SKIP
    >>> frame.select(col.alias("col"), row.alias("row")).collect()  # doctest: +SKIP
    [Row(col=9, row=0)]
    """
    from pyspark.sql import functions as F

    west, south, east, north = _map(space).bounds
    cols, rows, _ = _shape(space)
    held = inside(space, lon, lat)
    col = _cell_number(lon, west, east, cols)
    row = _cell_number(lat, south, north, rows)
    return F.when(held, col), F.when(held, row)


def cell_name(space: Space, lon: Column, lat: Column, level: int | None = None) -> Column:
    """The name of the cell a point lies in, which the space takes as a place.

    In a quad tree `level` asks for a larger cell; by default it is a leaf.

    >>> frame = spark.sql("SELECT -73.98D AS lon, 40.75D AS lat")  # doctest: +SKIP
    >>> tree = QuadTree(bounds=(-80, 40, -72, 48), depth=3)  # doctest: +SKIP
    >>> frame.select(cell_name(tree, frame.lon, frame.lat).alias("c")).collect()  # doctest: +SKIP
    [Row(c='4.4.3')]
    """
    from pyspark.sql import functions as F

    if isinstance(space, QuadTree):
        return path_name(space, lon, lat, space.depth if level is None else level)
    if level is not None:
        raise InvalidRequest("only a quad tree has levels", space=space, level=level)
    col, row = cell_numbers(space, lon, lat)
    return F.concat(row.cast("string"), F.lit("."), col.cast("string"))


def path_name(space: Space, lon: Column, lat: Column, level: int) -> Column:
    """The path of the cell at a level of the tree, such as "1.4.2"; level 0 is the empty text.

    A grid is part of such a tree too: its leaves are the grid's cells.

    >>> frame = spark.sql("SELECT 9.5D AS lon, 4.5D AS lat")  # doctest: +SKIP
    >>> grid = Grid(bounds=(0, 0, 10, 5), rows=5, cols=10)  # doctest: +SKIP
    >>> path = path_name(grid, frame.lon, frame.lat, 2)  # doctest: +SKIP
    >>> frame.select(path.alias("p")).collect()  # doctest: +SKIP
    [Row(p='4.1')]
    """
    from pyspark.sql import functions as F

    depth = depth_of(space)
    if not 0 <= level <= depth:
        raise InvalidRequest(f"level must be 0 to {depth}", level=level)
    col, row = cell_numbers(space, lon, lat)
    if level == 0:
        return F.when(col.isNotNull(), F.lit(""))
    col, row = F.shiftright(col, depth - level), F.shiftright(row, depth - level)
    names = []
    for low in range(0, level, _AT_ONCE):
        bits = min(_AT_ONCE, level - low)
        mask = (1 << bits) - 1
        index = F.shiftright(col, low).bitwiseAND(mask) * (1 << bits)
        index = index + F.shiftright(row, low).bitwiseAND(mask)
        names.append(F.get(F.split(F.lit(" ".join(_names(bits))), " "), index))
    parts: list[Column] = []
    for name in reversed(names):  # the last looked up are the first levels
        parts += [F.lit("."), name]
    return F.concat(*parts[1:])


def depth_of(space: Space) -> int:
    """How many levels the tree of cells has; of a grid, the tree it is part of.

    >>> depth_of(Grid(bounds=(0, 0, 10, 5), rows=5, cols=10))
    4
    """
    return _shape(space)[2]


def _names(bits: int) -> list[str]:
    """The paths of all cells of `bits` levels, by column and then row."""
    side = range(1 << bits)
    return [
        ".".join(str(3 + (col >> bit & 1) - 2 * (row >> bit & 1)) for bit in reversed(range(bits)))
        for col in side
        for row in side
    ]


def _cell_number(x: Column, low: float, high: float, count: int) -> Column:
    """The number of the cell of x, of `count` equal cells between two bounds."""
    from pyspark.sql import functions as F

    span, cells = high - low, F.lit(float(count))

    def edge(number: Column) -> Column:
        return F.lit(low) + F.lit(span) * number / cells

    number = F.least(F.floor((x - F.lit(low)) / F.lit(span) * cells).cast("int"), F.lit(count - 1))
    number = number - F.when(x < edge(number), 1).otherwise(0)
    above = (number + 1 < count) & (x >= edge(number + 1))
    number = number + F.when(above, 1).otherwise(0)
    return F.when(x <= low, 0).when(x >= high, count - 1).otherwise(number)


def _map(space: Space) -> Grid | QuadTree:
    if space.mode != CELLS or not isinstance(space, (Grid, QuadTree)):
        raise InvalidRequest("only a grid or a quad tree has cells", space=space)
    return space


def _shape(space: Space) -> tuple[int, int, int]:
    """Columns, rows and depth of the tree of cells."""
    tree = _map(space)
    if isinstance(tree, QuadTree):
        return 1 << tree.depth, 1 << tree.depth, tree.depth
    return tree.cols, tree.rows, (max(tree.rows, tree.cols) - 1).bit_length()
