"""Whether a geometry lies wholly within an area, in exact fractions: for the few that touch it.

Where edges of the two meet, points where they cross decide, and those are no floats. Every edge is
cut into pieces where it meets others; a piece then lies on one side of everything, so the point in
its middle decides for it:

1. Each point, and the middle of each piece of each edge of the geometry, is in the area; and where
   the geometry is on a side of the piece, the area is there, too.
2. No piece of an edge of the area that runs inside the geometry has the outside of the area on
   one of its sides. That is how a hole would show.

Slow: milliseconds for a hundred edges that touch. Pure functions; safe from any thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

__all__ = ["within"]

_RING, _POINTS = 3, 1

Number = Fraction | float
Part = tuple[int, int, list[tuple[float, float]]]
"""Kind, area, points: see space/outline.py."""


class Edge(NamedTuple):
    """From a to b."""

    ax: Fraction
    ay: Fraction
    bx: Fraction
    by: Fraction

    def at(self, part: Fraction) -> tuple[Fraction, Fraction]:
        """The point that far along it."""
        return self.ax + part * (self.bx - self.ax), self.ay + part * (self.by - self.ay)

    def side(self, x: Fraction, y: Fraction) -> Fraction:
        """Over 0 when a point is to the left."""
        return (self.bx - self.ax) * (y - self.ay) - (x - self.ax) * (self.by - self.ay)

    def has(self, x: Fraction, y: Fraction) -> bool:
        """Whether a point lies on it."""
        return (
            min(self.ax, self.bx) <= x <= max(self.ax, self.bx)
            and min(self.ay, self.by) <= y <= max(self.ay, self.by)
            and self.side(x, y) == 0
        )


def within(parts: Sequence[Part], shape: Sequence[Part]) -> bool:
    """Whether all of a geometry is in the area that a shape is.

    >>> area = [(3, 0, [(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0)])]
    >>> within([(2, 0, [(0.0, 0.0), (4.0, 0.0), (2.0, 3.0)])], area)
    True
    """
    walls = [edge for part in shape for edge in _edges(part)]
    for part in parts:
        points = part[2] if part[0] == _POINTS else []
        if not all(_covers(walls, Fraction(lon), Fraction(lat)) for lon, lat in points):
            return False
        for edge in _edges(part):
            near = [wall for wall in walls if _boxes_meet(edge, wall)]
            for x, y in _middles(edge, near):
                on = any(wall.has(x, y) for wall in near)
                if not on and not _is_inside(walls, x, y):
                    return False
    areas: dict[int, list[Edge]] = {}
    for part in parts:
        if part[0] == _RING:
            areas.setdefault(part[1], []).extend(_edges(part))
    return not any(_leaves(walls, area) or _shows_outside(walls, area) for area in areas.values())


def _leaves(walls: list[Edge], area: list[Edge]) -> bool:
    """Whether the shape is missing on a side of an edge of an area where the area is."""
    for edge in area:
        others = [each for each in (*walls, *area) if _boxes_meet(edge, each)]
        flat = edge.ay == edge.by
        for x, y in _middles(edge, others):
            here, there = _sides(area, flat, x, y), _sides(walls, flat, x, y)
            if any(mine and not its for mine, its in zip(here, there, strict=True)):
                return True
    return False


def _shows_outside(walls: list[Edge], area: list[Edge]) -> bool:
    """Whether an edge of the shape that runs inside an area has its outside on a side."""
    low_x, high_x = _span(edge.ax for edge in area)
    low_y, high_y = _span(edge.ay for edge in area)
    for wall in walls:
        if (
            max(wall.ax, wall.bx) < low_x or min(wall.ax, wall.bx) > high_x
            or max(wall.ay, wall.by) < low_y or min(wall.ay, wall.by) > high_y
        ):  # fmt: skip
            continue
        others = [edge for edge in (*walls, *area) if _boxes_meet(wall, edge)]
        for x, y in _middles(wall, others):
            if any(edge.has(x, y) for edge in area) or not _is_inside(area, x, y):
                continue
            if not all(_sides(walls, wall.ay == wall.by, x, y)):
                return True
    return False


def _sides(edges: list[Edge], flat: bool, x: Fraction, y: Fraction) -> tuple[bool, bool]:
    """Whether an area is on either side of a point of an edge, where none crosses.

    Right and left of it, or above and below when the edge is flat.
    """
    through = [each for each in edges if each.has(x, y)]
    rest = [each for each in edges if not each.has(x, y)]
    if not flat:
        right = _is_inside(rest, x, y)
        return right, right != bool(len(through) % 2)
    above = below = False
    for edge in rest:
        toward = (edge.side(x, y) > 0) == (edge.by > edge.ay)
        above ^= (edge.ay > y) != (edge.by > y) and toward
        below ^= (edge.ay >= y) != (edge.by >= y) and toward
    return above, below


def _edges(part: Part) -> list[Edge]:
    kind, _, points = part
    if kind == _POINTS:
        return []
    exact = [(Fraction(x), Fraction(y)) for x, y in points]
    pairs = list(itertools.pairwise(exact))
    if kind == _RING:
        pairs.append((exact[-1], exact[0]))
    return [Edge(*a, *b) for a, b in pairs]


def _span(numbers: Iterable[Fraction]) -> tuple[Fraction, Fraction]:
    found = list(numbers)
    return min(found), max(found)


def _boxes_meet(a: Edge, b: Edge) -> bool:
    return (
        min(a.ax, a.bx) <= max(b.ax, b.bx)
        and min(b.ax, b.bx) <= max(a.ax, a.bx)
        and min(a.ay, a.by) <= max(b.ay, b.by)
        and min(b.ay, b.by) <= max(a.ay, a.by)
    )


def _middles(edge: Edge, others: Sequence[Edge]) -> Iterable[tuple[Fraction, Fraction]]:
    """The middle of each piece of an edge that others cut; of one without a length, the point."""
    if edge.ax == edge.bx and edge.ay == edge.by:
        yield edge.ax, edge.ay
        return
    cuts = {Fraction(0), Fraction(1)}
    for other in others:
        one, two = edge.side(other.ax, other.ay), edge.side(other.bx, other.by)
        if one != two:
            part = one / (one - two)  # of the other, where it meets the line of this
            if 0 <= part <= 1:
                cuts.add(_part_of(edge, *other.at(part)))
        elif one == 0:
            cuts.add(_part_of(edge, other.ax, other.ay))
            cuts.add(_part_of(edge, other.bx, other.by))
    ordered = sorted(cut for cut in cuts if 0 <= cut <= 1)
    for first, last in itertools.pairwise(ordered):
        yield edge.at((first + last) / 2)


def _part_of(edge: Edge, x: Fraction, y: Fraction) -> Fraction:
    """How far along an edge a point of its line lies."""
    if edge.ax != edge.bx:
        return (x - edge.ax) / (edge.bx - edge.ax)
    return (y - edge.ay) / (edge.by - edge.ay)


def _covers(edges: Sequence[Edge], x: Fraction, y: Fraction) -> bool:
    return any(edge.has(x, y) for edge in edges) or _is_inside(edges, x, y)


def _is_inside(edges: Iterable[Edge], x: Fraction, y: Fraction) -> bool:
    """Whether an odd number of edges parts a point, which is on none of them, from afar."""
    odd = False
    for edge in edges:
        if (edge.ay > y) != (edge.by > y) and (edge.side(x, y) > 0) == (edge.by > edge.ay):
            odd = not odd
    return odd
