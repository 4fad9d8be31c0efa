"""Operations on a hierarchy: cells of a quad tree of any level, or circles.

    tweet --level--> the cell of that level that holds its point     `Levels`
          --radius-> the smallest cell that holds the whole circle   `Circles`

Both sides, events and subscriptions, have an extent. A place is the path of a cell from the root,
`"0/1/4/2"`: the first part is the root, the others say which quarter, numbered as in
`tideline.space.QuadTree`. In a space of topics such a place meets its ancestors and descendants:
*variable granularity*, one operation each. `fixed` makes of every operation one copy for each leaf
that it covers, with the leaf as its place: *fixed granularity*, as a store must do that knows
nothing of the tree. A copy has the id of its operation, a point and a number: `"17.3"`.

Invariants:
1. Rows of `batch` have the columns of `Operations` with text places, and their numbers say all:
   see `tweets.py`.
2. Two cells share a leaf exactly if one is above the other (or they are the same). So with
   `Levels`, fixed and variable granularity have the same pairs, each once for every leaf shared.
3. With `Circles`, every leaf that a circle touches is below its cell. So what shares a touched leaf
   also has cells that meet, but not the other way: variable granularity finds more.

Distances are on a sphere, as everywhere in Tideline. Frozen; safe from any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.workload.shape import Choice
from tideline.workload.tweets import Numbers, Operations, decimal

__all__ = ["RADII", "Circles", "Levels"]

RADII = (4.0, 2.0, 1.0, 0.5, 0.25)
"""Radii of circles, in sides of a leaf."""

_LEVEL, _SIZE = 20, 21  # lanes of their own
_DEPTH_LIMIT = 8
_EARTH_M = 6_371_008.8

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Tree(Operations, ABC):
    """What both share: a quad tree over the bounds of the shape, and copies for its leaves."""

    subscriptions: int = 1
    depth: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.depth, int) or not 1 <= self.depth <= _DEPTH_LIMIT:
            raise InvalidRequest(
                f"depth must be a whole number from 1 to {_DEPTH_LIMIT}", depth=self.depth
            )
        if self.place != "cell":
            raise InvalidRequest("places of a hierarchy are cells", place=self.place)

    def rows(self, numbers: Numbers) -> pa.RecordBatch:
        level, col, row = self._cells(numbers)
        names = _names(self.depth)
        places = names.take(pa.array(_index(level, col, row)))
        table = super().rows(numbers)
        return table.set_column(table.schema.names.index("place"), "place", places)

    def fixed(self, first: int, count: int) -> pa.RecordBatch:
        """The rows `[first, first + count)` of fixed granularity: copies, in order."""
        numbers = np.arange(first, first + count)
        owner, col, row = self.leaves(numbers)
        names = _names(self.depth)
        places = names.take(pa.array(_index(np.full(len(col), self.depth), col, row)))
        sizes = np.bincount(owner, minlength=count)
        copy = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        table = super().rows(numbers).take(pa.array(owner))
        ids = pc.binary_join_element_wise(table.column("id"), decimal(copy), ".")
        at = table.schema.names.index
        return table.set_column(at("place"), "place", places).set_column(at("id"), "id", ids)

    @abstractmethod
    def leaves(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Which leaves the operations cover: (index into `numbers`, column, row) of each."""

    @abstractmethod
    def _cells(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Level, column and row of the cell of each operation, counted in cells of its level."""

    def _leaf(self, lon: Floats, lat: Floats) -> tuple[Numbers, Numbers]:
        """Column and row of the leaf that holds a point; what lies beyond joins the outer ones."""
        west, south, east, north = self.shape.grid.bounds
        most = (1 << self.depth) - 1
        col = np.floor((lon - west) / (east - west) * (most + 1)).astype(np.int64)
        row = np.floor((lat - south) / (north - south) * (most + 1)).astype(np.int64)
        return np.clip(col, 0, most), np.clip(row, 0, most)


@dataclass(frozen=True)
class Levels(_Tree):
    """Every operation is on the cell that holds its point, of a level that is drawn.

    The leaves' level is the most frequent one, the level above half as frequent, and so on up to
    the first level below the root.

    >>> batch = Levels(seed=7).batch(0, 4)
    >>> batch.column("place").to_pylist()
    ['0/4/2/1/1/3', '0/1/4', '0/4/3/4/2/2', '0/4/3/4']
    >>> Levels(seed=7).fixed(0, 4).column("id").to_pylist()[:4]  # 1 copy, then 64
    ['0.0', '1.0', '1.1', '1.2']
    """

    def levels(self, numbers: Numbers) -> Numbers:
        """The level of each operation: 1 to depth."""
        weights = 1 << np.arange(self.depth)
        return Choice(weights).pick(self._draws(numbers, _LEVEL)) + 1

    def leaves(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        level, col, row = self._cells(numbers)
        side = 1 << (self.depth - level)
        owner = np.repeat(np.arange(len(numbers)), side * side)
        first = np.cumsum(side * side) - side * side
        line, step = np.divmod(np.arange(len(owner)) - first[owner], side[owner])
        return owner, (col * side)[owner] + step, (row * side)[owner] + line

    def _cells(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        level = self.levels(numbers)
        _, lon, lat = self._places(numbers)
        col, row = self._leaf(lon, lat)
        return level, col >> (self.depth - level), row >> (self.depth - level)


@dataclass(frozen=True)
class Circles(_Tree):
    """Every operation is on a circle around its point, of one of five radii.

    >>> circles = Circles(seed=7)
    >>> lon, lat, radius_m = circles.circles(np.arange(3))
    >>> (radius_m / circles.side_m).tolist()
    [0.5, 1.0, 2.0]
    >>> circles.batch(0, 3).column("place").to_pylist()
    ['0/4', '0/1/4/4', '0/4']
    """

    radii: tuple[float, ...] = field(default=RADII)
    """In sides of a leaf."""

    @property
    def side_m(self) -> float:
        """The side of a leaf from south to north, in metres."""
        _, south, _, north = self.shape.grid.bounds
        return float(np.radians((north - south) / (1 << self.depth)) * _EARTH_M)

    def sizes(self, numbers: Numbers) -> Numbers:
        """Which of the radii each operation has."""
        return Choice(np.ones(len(self.radii), np.int64)).pick(self._draws(numbers, _SIZE))

    def circles(self, numbers: Numbers) -> tuple[Floats, Floats, Floats]:
        """Longitude, latitude and radius in metres of each operation."""
        _, lon, lat = self._places(numbers)
        return lon, lat, np.array(self.radii)[self.sizes(numbers)] * self.side_m

    def leaves(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        lon, lat, radius_m = self.circles(numbers)
        low, high = self._corners(lon, lat, radius_m)
        wide, tall = high[0] - low[0] + 1, high[1] - low[1] + 1
        owner = np.repeat(np.arange(len(numbers)), wide * tall)
        first = np.cumsum(wide * tall) - wide * tall
        line, step = np.divmod(np.arange(len(owner)) - first[owner], wide[owner])
        col, row = low[0][owner] + step, low[1][owner] + line
        touched = self._touches(lon[owner], lat[owner], radius_m[owner], col, row)
        return owner[touched], col[touched], row[touched]

    def _cells(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        low, high = self._corners(*self.circles(numbers))
        apart = (low[0] ^ high[0]) | (low[1] ^ high[1])
        up = np.ceil(np.log2(apart + 1)).astype(np.int64)  # bits of a number below 256: exact
        return self.depth - up, low[0] >> up, low[1] >> up

    def _corners(
        self, lon: Floats, lat: Floats, radius_m: Floats
    ) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]]:
        """The leaves of the south-west and north-east corner of the box around each circle."""
        reach = radius_m / _EARTH_M * (1 + 1e-8)
        turn = np.degrees(np.arcsin(np.sin(reach) / np.cos(np.radians(lat))))
        high = np.degrees(reach)
        return self._leaf(lon - turn, lat - high), self._leaf(lon + turn, lat + high)

    def _touches(
        self, lon: Floats, lat: Floats, radius_m: Floats, col: Numbers, row: Numbers
    ) -> NDArray[np.bool_]:
        """Whether the nearest point of a leaf is within the circle.

        The nearest point lies on the centre's own meridian if the leaf spans that, else on the
        nearer of its two side edges, where the great circle meets it or at an end.
        """
        west, south, east, north = self.shape.grid.bounds
        wide, tall = (east - west) / (1 << self.depth), (north - south) / (1 << self.depth)
        left, bottom = west + col * wide, south + row * tall
        side = np.clip(lon, left, left + wide)
        phi = np.radians(lat)
        top = np.degrees(np.arctan2(np.sin(phi), np.cos(phi) * np.cos(np.radians(side - lon))))
        return _distance_m(lon, lat, side, np.clip(top, bottom, bottom + tall)) <= radius_m


def _distance_m(lon1: Floats, lat1: Floats, lon2: Floats, lat2: Floats) -> Floats:
    """Metres between points along the great circle."""
    phi1, phi2 = np.radians(lat1), np.radians(lat2)
    high = np.sin((phi2 - phi1) / 2) ** 2
    wide = np.sin(np.radians(lon2 - lon1) / 2) ** 2
    found: Floats = 2 * _EARTH_M * np.arcsin(np.sqrt(high + np.cos(phi1) * np.cos(phi2) * wide))
    return found


def _index(level: Numbers, col: Numbers, row: Numbers) -> Numbers:
    """The number of a cell among all cells of the tree, level by level."""
    found: Numbers = (4**level - 1) // 3 + (row << level) + col
    return found


@lru_cache(maxsize=4)
def _names(depth: int) -> pa.Array:
    """The paths of all cells down to a depth, by number."""
    names = ["0"]
    above = [["0"]]
    for level in range(1, depth + 1):
        side = 1 << level
        here = [
            [
                # Quarters count as they are read: from the north-west.
                f"{above[row >> 1][col >> 1]}/{3 + (col & 1) - 2 * (row & 1)}"
                for col in range(side)
            ]
            for row in range(side)
        ]
        names += [name for line in here for name in line]
        above = here
    return pa.array(names)
