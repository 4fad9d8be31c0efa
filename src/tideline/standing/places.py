"""Places in clauses: an exact check, a quick one for the entries of lists, and cells of a grid.

A geometry that is no point makes the tokens of all cells that the box around it touches, and each
check of it says perhaps: the predicate decides. Of one that touches very many cells every condition
on places is asked (index.py).

Pure functions; safe from any thread.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from tideline.kernels.standing import layout as at
from tideline.space.outline import outline_of
from tideline.space.shapes import EARTH_RADIUS_M
from tideline.standing.parts import KIND, VALUE, Check, Clause, Column, Token, Way, bits_of
from tideline.where.geo import point_of, shape_of
from tideline.where.nearest import lying_at
from tideline.where.tree import At, ElemMatch, Inside, Node, Not

__all__ = ["add_place", "asks_places", "boxes_at", "cells_of"]

_CELLS_LIMIT = 2_000
Bounds = tuple[float, float, float, float]

_SINGLES, _SINGLE = struct.Struct("<ff"), struct.Struct("<f")
_WORD, _HALF = struct.Struct("<q"), struct.Struct("<I")
_DOUBLES, _WORDS = struct.Struct("<4d"), struct.Struct("<4q")


def asks_places(node: Node) -> bool:
    """Whether a tree asks for places anywhere."""
    if isinstance(node, At):
        inner = node.test
        return isinstance(inner, Inside) or (
            isinstance(inner, ElemMatch) and asks_places(inner.node)
        )
    if isinstance(node, Not):
        return asks_places(node.node)
    return any(map(asks_places, node.nodes))


def boxes_at(document: Any, path: Sequence[str]) -> list[Bounds]:
    """The boxes around what lies at a path of a document, of geometries that are no points."""
    found = []
    for value in lying_at(document, path):
        if type(value) is dict and point_of(value) is None:
            outline = outline_of(value)
            if outline is not None:
                found.append(outline.box)
    return found


def cells_of(box: Bounds, levels: Iterable[int]) -> list[tuple[int, int, int, int, int]] | None:
    """A value for each cell that a box touches, of some levels; None when these are too many.

    >>> len(cells_of((0.5, 0.5, 1.5, 0.5), [0, 4]))  # two, one, and the one for its kind
    4
    """
    west, south, east, north = box
    made = [(at.K_SHAPED, at.NO_LEVEL, bits_of(west), bits_of(south), 0)]
    for level in levels:
        scale = 2.0**-level
        cols = range(math.floor(west * scale), math.floor(east * scale) + 1)
        rows = range(math.floor(south * scale), math.floor(north * scale) + 1)
        if len(made) + len(cols) * len(rows) > _CELLS_LIMIT:
            return None
        made += [
            (at.K_SHAPED, level, bits_of((x + 0.5) / scale), bits_of((y + 0.5) / scale), 0)
            for x in cols
            for y in rows
        ]
    return made


def add_place(made: Clause, column: Column, test: Inside) -> None:
    """Add a test of a place to a clause."""
    numbers = test.numbers
    if test.kind == "ring":
        lon, lat, least, greatest = numbers
        half = min(greatest / EARTH_RADIUS_M, math.pi) / 2
        limit = _HALF.unpack(_SINGLE.pack(math.sin(half) ** 2))[0]
        op = at.OP_CIRCLE if least <= 0 else at.OP_NEAR_RING
        words = _WORDS.unpack(_DOUBLES.pack(lon + 0.0, lat + 0.0, least + 0.0, greatest + 0.0))
        rough = op, words[0], words[1], limit
        made.groups.append([Check(at.OP_RING, column, words, rough=rough)])
        edges = _circle_bounds(lon, lat, greatest)
    else:
        if test.kind != "box":
            made.sure = False
            numbers = shape_of(test).box
        west, south, east, north = numbers
        edges = west, south, east, north
        low = _WORD.unpack(_SINGLES.pack(_single(west, -1), _single(south, -1)))[0]
        high = _WORD.unpack(_SINGLES.pack(_single(east, 1), _single(north, 1)))[0]
        rough = at.OP_NEAR_BOX, low, high, 0
        made.groups.append([Check(at.OP_BOX, column, tuple(map(bits_of, numbers)), rough=rough)])
    west, south, east, north = edges
    if east - west > 360.0 and north - south > 179.0:
        made.ways[KIND].append(Way([Token(at.BRACKET, column, 0, at.K_POINT)]))
        return
    level = max(math.frexp(max(east - west, north - south))[1], -30)
    scale = 2.0**-level
    columns = range(math.floor(west * scale), math.floor(east * scale) + 1)
    rows = range(math.floor(south * scale), math.floor(north * scale) + 1)
    ys = [bits_of(float(y)) for y in rows]
    tokens = [
        Token(at.GRID, column, level, x, y)
        for x in [bits_of(float(x)) for x in columns]
        for y in ys
    ]
    made.ways[VALUE].append(Way(tokens))


def _single(number: float, towards: int) -> float:
    """A float32 at or beyond a number."""
    found: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
    if (found - number) * towards < 0:
        if found == 0.0:
            return towards * 1e-45
        bits = _HALF.unpack(_SINGLE.pack(found))[0]
        bits += 1 if (found > 0) == (towards > 0) else -1
        found = _SINGLE.unpack(_HALF.pack(bits))[0]
    return found


def _circle_bounds(lon: float, lat: float, radius_m: float) -> tuple[float, float, float, float]:
    """West, south, east, north around a circle, a trifle too large (as kernels/geo.py)."""
    reach = min(radius_m / EARTH_RADIUS_M, 4.0) * (1.0 + 1e-8) + 1e-11
    if reach > 3.0:
        return -361.0, -90.0, 361.0, 90.0
    south, north = lat - math.degrees(reach), lat + math.degrees(reach)
    if south <= -90.0 or north >= 90.0:
        return -180.0, max(south, -90.0), 180.0, min(north, 90.0)
    phi = math.radians(lat)
    beside = math.sqrt(max(0.0, math.cos(phi + reach) * math.cos(phi - reach)))
    turn = math.degrees(math.atan2(math.sin(reach), beside)) * (1.0 + 1e-9) + 1e-9
    if lon - turn <= -180.0 or lon + turn >= 180.0:
        return -180.0, south, 180.0, north
    return lon - turn, south, lon + turn, north
