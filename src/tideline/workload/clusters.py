"""Points in clusters, and boxes that hold about so many of them: all of it made up.

    row number --> cluster (by weight) --> its centre + up to a quarter of a degree --> point

Like a study's records, which had city and state: some 4,500 places of different weight, and around
each a square of half a degree. Centres and weights are made up here: the centres lie in the box
around the United States without Alaska and Hawaii, the weights fall as 1 / rank.

A box for a query lies inside the square of one cluster, chosen at random. It is larger where fewer
points are, and it counts on the points of all clusters that reach into the square. A cluster with
fewer points than asked for is drawn again; if there are hardly others, the box is a whole square.

A point is a function of its number and of the settings. Frozen; safe from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tideline.workload.shape import mix
from tideline.workload.tweets import Numbers

__all__ = ["BOUNDS", "Clusters"]

Floats = NDArray[np.float64]

BOUNDS = (-125.0, 25.0, -66.0, 49.0)
"""West, south, east, north of the centres."""
_TRIES = 200
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Clusters:
    """Points and boxes.

    >>> clusters = Clusters(seed=7)
    >>> lon, lat = clusters.points(0, 1_000)
    >>> len(lon), bool((clusters.points(990, 10)[0] == lon[990:]).all())
    (1000, True)
    >>> boxes = clusters.boxes(20, hits=50, of=1_000)
    >>> boxes.shape, bool((boxes[:, 0] < boxes[:, 2]).all())
    ((20, 4), True)
    """

    seed: int = 0
    count: int = 4_500
    reach: float = 0.25
    """How far a point is from its centre at most, in degrees."""

    def points(self, start: int, count: int) -> tuple[Floats, Floats]:
        """Longitudes and latitudes of some rows."""
        rows = np.arange(start, start + count)
        lon, lat, ends = _centres(self.seed, self.count)
        which = np.searchsorted(ends, self._share(rows, 0), side="right")
        return (
            lon[which] + self.reach * (2 * self._share(rows, 1) - 1),
            lat[which] + self.reach * (2 * self._share(rows, 2) - 1),
        )

    def boxes(self, count: int, *, hits: int, of: int, seed: int = 0) -> Floats:
        """West, south, east and north of boxes that hold about `hits` of the first `of` points."""
        draw = np.random.default_rng([self.seed, seed])
        lon, lat, ends = _centres(self.seed, self.count)
        weights = np.diff(ends, prepend=0.0)
        made = np.empty((count, 4))
        width = 2 * self.reach
        for number in range(count):
            for mine in draw.integers(0, self.count, _TRIES):
                # What of each cluster's square lies in the square of this one.
                over = (np.clip(width - np.abs(lon - lon[mine]), 0, None) / width) * (
                    np.clip(width - np.abs(lat - lat[mine]), 0, None) / width
                )
                inside = of * float((weights * over).sum())
                if inside >= hits:
                    break
            side = width * min(1.0, (hits / max(inside, 1e-9)) ** 0.5)
            west = lon[mine] - self.reach + draw.random() * (width - side)
            south = lat[mine] - self.reach + draw.random() * (width - side)
            made[number] = west, south, west + side, south + side
        return made

    def _share(self, rows: Numbers, lane: int) -> Floats:
        """A number from 0 to 1 for each row."""
        salt = np.uint64((self.seed * 4 + lane + 1) * _GOLDEN & _WORD)
        drawn = mix(rows.astype(np.uint64) + mix(np.array([salt], np.uint64))[0])
        return (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53


@lru_cache(maxsize=4)
def _centres(seed: int, count: int) -> tuple[Floats, Floats, Floats]:
    """Centres, and where the share of each cluster ends."""
    draw = np.random.default_rng([seed, count])
    west, south, east, north = BOUNDS
    weights = 1.0 / np.arange(1, count + 1)
    ends = np.cumsum(weights / weights.sum())
    return draw.uniform(west, east, count), draw.uniform(south, north, count), ends
