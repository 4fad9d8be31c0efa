"""What `$near` orders by: how far the places of a document are.

    Near        the `$near` of a condition that has one, and so an order
    lying_at    what lies at a path of a document, as `At` collects it (tree.py)

A document may have several places on a path through arrays. Its distance is that of the nearest of
those that the `$near` is met by.

Values and pure functions; safe from any thread.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tideline.where.geo import distance_of
from tideline.where.values import index_of

__all__ = ["MARK", "Near", "lying_at"]

MARK = "$near "
"""How the name begins that an order by distance has; no field begins so."""


class Near(NamedTuple):
    """Nearest first, from a point."""

    path: tuple[str, ...]
    lon: float
    lat: float
    least: float = 0.0
    greatest: float = math.inf

    @property
    def order(self) -> list[tuple[str, int]]:
        """Nearest first, as an order that `where.order.sort_keys` takes.

        >>> Near.of(Near(("at",), 2.0, 48.5).order[0][0])
        Near(path=('at',), lon=2.0, lat=48.5, least=0.0, greatest=inf)
        """
        greatest = None if self.greatest == math.inf else self.greatest
        numbers = [".".join(self.path), self.lon, self.lat, self.least, greatest]
        return [(MARK + json.dumps(numbers), 1)]

    @classmethod
    def of(cls, name: str) -> Near:
        """What the name in an order says."""
        path, lon, lat, least, greatest = json.loads(name.removeprefix(MARK))
        return cls(
            tuple(path.split(".")), lon, lat, least, math.inf if greatest is None else greatest
        )

    def metres(self, document: object) -> float | None:
        """How far the document is; None when it has no place there, or only others.

        >>> Near(("at",), 0.0, 0.0).metres({"at": [0, 0]})
        0.0
        """
        found = [
            metres
            for value in lying_at(document, self.path)
            if (metres := distance_of(value, self.lon, self.lat)) is not None
            and self.least <= metres <= self.greatest
        ]
        return min(found, default=None)


def lying_at(document: object, path: Sequence[str]) -> Iterator[object]:
    """What lies at a path, the same object once; nothing for what is missing.

    >>> list(lying_at({"stops": [{"at": 1}, {"at": 2}, 3]}, ("stops", "at")))
    [1, 2]
    """
    known: set[tuple[int, int]] = set()

    def walk(value: object, at: int) -> Iterator[object]:
        while at < len(path):
            if type(value) is list:
                yield from enter(value, at)
                return
            if type(value) is not dict or path[at] not in value:
                return
            value = value[path[at]]
            at += 1
        if (id(value), at) not in known:
            known.add((id(value), at))
            yield value

    def enter(array: list[object], at: int) -> Iterator[object]:
        if (id(array), at) in known:
            return
        known.add((id(array), at))
        number = index_of(path[at])
        if 0 <= number < len(array):
            picked = array[number]
            if at + 1 == len(path):
                yield from walk(picked, at + 1)
            elif type(picked) is list:
                yield from enter(picked, at + 1)
            elif type(picked) is dict:
                yield from walk(picked, at + 1)
        for value in array:
            if type(value) is dict:
                yield from walk(value, at)

    if type(document) is dict:
        yield from walk(document, 0)
