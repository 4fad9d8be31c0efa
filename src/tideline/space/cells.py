"""Spaces on the map: a grid and a quad tree over the same tree of cells.

    +---+---+      A cell has four children, numbered as they are read: 1 north-west,
    | 1 | 2 |      2 north-east, 3 south-west, 4 south-east. A key is one byte 0x01..0x04
    +---+---+      a level; the root is b"". Columns count from the west, rows from the
    | 3 | 4 |      south; a level of the key is one bit of the column and one of the row.
    +---+---+

A grid of other than 2^n cells is the south-west part of such a tree; its leaves are the
grid's cells.

Invariants:
1. A point belongs to exactly one leaf: cells are closed to the west and south, open to
   the east and north, except that the outer cells take in the edge of the bounds.
2. The key of a circle, box or polygon is an ancestor of every leaf whose closed extent touches
   its bounding box, as if the outer cells reached on beyond the bounds. So if two shapes
   meet anywhere, even in one point of an edge, one's key is a prefix of the other's.
3. `edge` and `cell_number` agree: `edge(i) <= x < edge(i + 1)` for the cell i of x.

Frozen; safe from any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

from tideline.errors import InvalidRequest
from tideline.space.geojson import from_json, from_mapping, interface_of
from tideline.space.place import BOX, CELL, CELLS, CIRCLE, POINT, POLYGON, Place, Places
from tideline.space.polygon import (
    MultiPolygon,
    Polygon,
    bounds_of,
    corners_of,
    from_corners,
    rectangle,
)
from tideline.space.shapes import Box, Circle, number, pair_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Grid", "QuadTree"]

DEPTH_LIMIT = 24
DEPTH_WANTED = 16  # of a quad tree that is not told how deep it is, at most
LEAF_DEGREES = 0.01  # its leaves are no wider than this, about a kilometre, unless it is that deep
WORLD = (-180.0, -90.0, 180.0, 90.0)
SIDE_LIMIT = 65_536
# Under this a leaf would be so narrow that its edges round to each other.
CELL_LIMIT_DEGREES = 1e-9

_new = tuple.__new__  # see flat.py

# _SPREAD[i] has bit k of i as byte k, so a sum of three of these is a key of 12 levels.
_SPREAD = [0]
for _bit in range(12):
    _SPREAD += [_value + (1 << 8 * _bit) for _value in _SPREAD]


@dataclass(frozen=True, slots=True)
class _Cells:
    """The tree of cells itself: numbers of cells, their edges and their keys."""

    west: float
    south: float
    east: float
    north: float
    cols: int
    rows: int
    depth: int

    def cell(self, lon: float, lat: float) -> tuple[int, int]:
        """Column and row of the leaf of a point."""
        col = _cell_number(lon, self.west, self.east, self.cols)
        return col, _cell_number(lat, self.south, self.north, self.rows)

    def key(self, col: int, row: int) -> bytes:
        """The key of a leaf: each level is 3, plus 1 for east, minus 2 for north."""
        depth = self.depth
        south = ((1 << depth) - 1) ^ row
        if depth <= 12:
            spread = _SPREAD[(1 << depth) - 1] + _SPREAD[col] + 2 * _SPREAD[south]
            return spread.to_bytes(depth, "big")
        ones = (1 << depth) - 1
        high = _SPREAD[ones >> 12] + _SPREAD[col >> 12] + 2 * _SPREAD[south >> 12]
        low = _SPREAD[4095] + _SPREAD[col & 4095] + 2 * _SPREAD[south & 4095]
        return high.to_bytes(depth - 12, "big") + low.to_bytes(12, "big")

    def cover(self, west: float, south: float, east: float, north: float) -> bytes:
        """The key of the smallest cell that holds every leaf a closed box touches."""
        col, col_last = _touched(west, east, self.west, self.east, self.cols)
        row, row_last = _touched(south, north, self.south, self.north, self.rows)
        above = ((col ^ col_last) | (row ^ row_last)).bit_length()
        return self.key(col, row)[: self.depth - above]

    def corner(self, key: bytes) -> tuple[int, int]:
        """Column and row of the south-west leaf below a key."""
        col = row = 0
        for digit in key:
            col = col * 2 + (digit in (2, 4))
            row = row * 2 + (digit in (1, 2))
        below = self.depth - len(key)
        return col << below, row << below

    def extent(self, key: bytes) -> tuple[float, float, float, float]:
        """West, south, east, north of a cell."""
        col, row = self.corner(key)
        side = 1 << (self.depth - len(key))
        return (
            _edge(self.west, self.east, self.cols, col),
            _edge(self.south, self.north, self.rows, row),
            _edge(self.west, self.east, self.cols, col + side),
            _edge(self.south, self.north, self.rows, row + side),
        )


@dataclass(frozen=True)
class _Map(ABC):
    """What a grid and a quad tree share: points and shapes to keys and back."""

    mode: ClassVar[int] = CELLS
    plain: ClassVar[bool] = False
    allowed: ClassVar[str]

    bounds: tuple[float, float, float, float]
    _cells: _Cells = field(init=False, repr=False, compare=False)
    # bounds, cols, rows, depth: what the kernels take
    _tree: tuple[float, float, float, float, int, int, int] = field(
        init=False, repr=False, compare=False
    )

    @abstractmethod
    def spec(self) -> dict[str, Any]: ...

    @abstractmethod
    def _encode_text(self, text: str) -> Place: ...

    @abstractmethod
    def _text(self, key: bytes) -> str: ...

    def encode(self, value: object) -> Place:
        if isinstance(value, str):
            if value.startswith("{"):  # no cell is called so
                return self.encode(from_json(value))
            return self._encode_text(value)
        if isinstance(value, Circle):
            return self._encode_circle(value)
        cells = self._cells
        if isinstance(value, Box):
            west, south, east, north = value.west, value.south, value.east, value.north
            if east < cells.west or west > cells.east or north < cells.south or south > cells.north:
                raise InvalidRequest("a box must meet the bounds", box=value, bounds=self.bounds)
            key = cells.cover(west, south, east, north)
            return _new(Place, (key, BOX, west, south, east, north, b""))
        if isinstance(value, (Polygon, MultiPolygon)):
            return self._encode_polygon(value)
        try:
            lon, lat = pair_of(value)
        except InvalidRequest as error:
            said = interface_of(value)
            if said is not None:
                return self.encode(from_mapping(said))
            if isinstance(value, (tuple, list)) and len(value) == 2:
                raise InvalidRequest(
                    "a point (lon, lat) must be two finite numbers", place=value
                ) from error
            raise InvalidRequest(f"a place must be {self.allowed}", place=value) from error
        if not (cells.west <= lon <= cells.east and cells.south <= lat <= cells.north):
            within = cells.west <= lat <= cells.east and cells.south <= lon <= cells.north
            near = f" (did you mean ({lat!r}, {lon!r})?)" if within else ""
            raise InvalidRequest(
                f"a point (lon, lat) must lie within the bounds{near}",
                point=(lon, lat),
                bounds=self.bounds,
            )
        return _new(Place, (cells.key(*cells.cell(lon, lat)), POINT, lon, lat, 0.0, 0.0, b""))

    def encode_many(self, table: pa.Table, rows: int) -> Places:
        from tideline.space.columns import map_places

        return map_places(table, rows, self.encode, self._tree)

    def decode(
        self, key: bytes, kind: int, a: float, b: float, c: float, d: float, corners: bytes = b""
    ) -> object:
        if kind == POINT:
            return (a, b)
        if kind == CIRCLE:
            return Circle((a, b), c)
        if kind == BOX:
            return Box(a, b, c, d)
        if kind == POLYGON:
            return from_corners(corners)
        return self._text(key)

    def _encode_circle(self, circle: Circle) -> Place:
        # The kernel that encode_many uses, so both give the same key to the last bit.
        from tideline.kernels.geo import circle_cover

        (lon, lat), radius_m = circle.center, circle.radius_m
        col, row, level = circle_cover(lon, lat, radius_m, *self._tree)
        if level < 0:
            raise InvalidRequest("a circle must meet the bounds", circle=circle, bounds=self.bounds)
        key = self._cells.key(col, row)[:level]
        return _new(Place, (key, CIRCLE, lon, lat, radius_m, 0.0, b""))

    def _encode_polygon(self, shape: Polygon | MultiPolygon) -> Place:
        if isinstance(shape, Polygon) and not shape.holes:
            box = rectangle(shape.shell)
            if box is not None:  # the same area, quicker to compare
                return self.encode(box)
        cells = self._cells
        west, south, east, north = bounds_of(shape)
        if east < cells.west or west > cells.east or north < cells.south or south > cells.north:
            raise InvalidRequest(
                "a polygon must meet the bounds", around=(west, south, east, north),
                bounds=self.bounds,
            )  # fmt: skip
        key = cells.cover(west, south, east, north)
        return Place(key, POLYGON, west, south, east, north, corners_of(shape))

    def _set(self, bounds: object, cols: int, rows: int, depth: int) -> None:
        """Check the bounds and build the tree; from `__post_init__` of the two."""
        checked = _bounds(bounds)
        west, south, east, north = checked
        if min((east - west) / cols, (north - south) / rows) < CELL_LIMIT_DEGREES:
            raise InvalidRequest(
                f"a cell must be at least {CELL_LIMIT_DEGREES} degrees wide and high: "
                "widen the bounds or take fewer cells",
                bounds=checked,
                cols=cols,
                rows=rows,
            )
        object.__setattr__(self, "bounds", checked)
        object.__setattr__(self, "_cells", _Cells(*checked, cols, rows, depth))
        object.__setattr__(self, "_tree", (*checked, cols, rows, depth))


@dataclass(frozen=True)
class QuadTree(_Map):
    r"""Cells halved both ways, `depth` times; a cell's name is its path, such as `"1.4.2"`.

    >>> roads = QuadTree(bounds=(-80, 40, -72, 48), depth=3)
    >>> roads.encode((-73.98, 40.75)).key
    b'\x04\x04\x03'
    >>> roads.encode("4.4")
    Place(key=b'\x04\x04', kind=1, a=-74.0, b=40.0, c=-72.0, d=42.0, corners=b'')
    >>> roads.decode(*roads.encode("4.4"))
    '4.4'

    Without bounds it is the whole world. Without a depth, a leaf is about a kilometre wide, or as
    narrow as a depth of 16 makes it.

    >>> QuadTree(), QuadTree((-80, 40, -72, 48)).depth
    (QuadTree(bounds=(-180.0, -90.0, 180.0, 90.0), depth=16), 10)
    """

    allowed: ClassVar[str] = (
        "a quad path such as '1.4.2', a point (lon, lat), a Circle, a Box, a Polygon or GeoJSON"
    )

    bounds: tuple[float, float, float, float] = WORLD
    depth: int = cast(int, None)

    @classmethod
    def world(cls, depth: int = DEPTH_WANTED) -> QuadTree:
        """The quad tree of the whole world: its leaves are some 600 m wide at the equator.

        >>> QuadTree.world() == QuadTree(bounds=(-180, -90, 180, 90), depth=16)
        True
        """
        return cls(WORLD, depth)

    def __post_init__(self) -> None:
        if cast(object, self.depth) is None:
            depth = _depth_for(_bounds(self.bounds))
        else:
            depth = _count(self.depth, "depth", DEPTH_LIMIT)
        self._set(self.bounds, 1 << depth, 1 << depth, depth)
        object.__setattr__(self, "depth", depth)

    def spec(self) -> dict[str, Any]:
        return {"kind": "quadtree", "bounds": list(self.bounds), "depth": self.depth}

    def _encode_text(self, text: str) -> Place:
        digits = text.split(".")
        if not 1 <= len(digits) <= self.depth or not all(d in _QUARTERS for d in digits):
            raise InvalidRequest(
                f"a place here is a point, a shape, GeoJSON or a quad path, and a quad path is 1 to"
                f" {self.depth} of the digits 1 to 4 joined by '.'",
                place=text,
            )
        key = bytes(map(int, digits))
        return Place(key, CELL, *self._cells.extent(key))

    def _text(self, key: bytes) -> str:
        return ".".join(map(str, key))


@dataclass(frozen=True)
class Grid(_Map):
    r"""Equal cells; a cell's name is `"row.col"`, from the south and from the west.

    >>> grid = Grid(bounds=(0, 0, 10, 5), rows=5, cols=10)
    >>> grid.encode("4.9")
    Place(key=b'\x04\x01\x03\x04', kind=1, a=9.0, b=4.0, c=10.0, d=5.0, corners=b'')
    >>> grid.encode((9.5, 4.5)).key == grid.encode("4.9").key
    True
    """

    allowed: ClassVar[str] = (
        "a cell 'row.col' such as '12.40', a point (lon, lat), a Circle, a Box, a Polygon "
        "or GeoJSON"
    )

    rows: int
    cols: int

    def __post_init__(self) -> None:
        rows = _count(self.rows, "rows", SIDE_LIMIT)
        cols = _count(self.cols, "cols", SIDE_LIMIT)
        self._set(self.bounds, cols, rows, (max(rows, cols) - 1).bit_length())
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "cols", cols)

    def spec(self) -> dict[str, Any]:
        bounds = list(self.bounds)
        return {"kind": "grid", "bounds": bounds, "rows": self.rows, "cols": self.cols}

    def _encode_text(self, text: str) -> Place:
        row, dot, col = text.partition(".")
        if not (dot and _names(row, self.rows) and _names(col, self.cols)):
            raise InvalidRequest(
                f"a grid cell is 'row.col' with row 0 to {self.rows - 1}, "
                f"col 0 to {self.cols - 1}, without leading zeros",
                place=text,
            )
        key = self._cells.key(int(col), int(row))
        return Place(key, CELL, *self._cells.extent(key))

    def _text(self, key: bytes) -> str:
        col, row = self._cells.corner(key)
        return f"{row}.{col}"


_QUARTERS = frozenset("1234")


def _names(text: str, count: int) -> bool:
    """Whether a text is a number in [0, count), written as `str` writes it."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        return False
    return int(text) < count and str(int(text)) == text


def _count(value: object, name: str, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise InvalidRequest(f"{name} must be a whole number from 1 to {limit}", **{name: value})
    return value


def _depth_for(bounds: tuple[float, float, float, float]) -> int:
    """The depth of a quad tree that is not told how deep it is."""
    west, south, east, north = bounds
    extent = max(east - west, north - south)
    depth = 1
    while depth < DEPTH_WANTED and extent / (1 << depth) > LEAF_DEGREES:
        depth += 1
    return depth


def _bounds(value: object) -> tuple[float, float, float, float]:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or len(value) != 4:
        raise InvalidRequest("bounds must be (west, south, east, north)", bounds=value)
    west, south, east, north = (
        number(side, name)
        for side, name in zip(value, ("west", "south", "east", "north"), strict=True)
    )
    if not (-180.0 <= west < east <= 180.0 and -90.0 <= south < north <= 90.0):
        raise InvalidRequest(
            "bounds need west < east within -180..180 and south < north within -90..90",
            bounds=value,
        )
    return west, south, east, north


# The twins of `edge`, `cell_number` and `_touched` in kernels/geo.py: the same arithmetic
# in the same order. A single point should not pay for a compiled call three times over.


def _edge(low: float, high: float, count: int, i: int) -> float:
    if i >= count:
        return high
    return low + (high - low) * i / count


def _cell_number(x: float, low: float, high: float, count: int) -> int:
    if x <= low:
        return 0
    if x >= high:
        return count - 1
    span = high - low
    i = min(int((x - low) / span * count), count - 1)
    while x < low + span * i / count:  # rounding may be one cell off
        i -= 1
    while i + 1 < count and x >= low + span * (i + 1) / count:
        i += 1
    return i


def _touched(lo: float, hi: float, low: float, high: float, count: int) -> tuple[int, int]:
    first = _cell_number(lo, low, high, count)
    if first > 0 and lo <= _edge(low, high, count, first):
        first -= 1
    return first, _cell_number(hi, low, high, count)
