"""What tweets are like: who writes, where, how much and how often.

A shape is the part of a set of tweets that a larger set must share with it, as whole-number
weights:

    users     how many tweets each user wrote, the busiest first
    cells     how many came from each cell of a grid over the bounds
    lengths   how many had a text of so many characters
    rate      tweets a second, on average

`new_york()` is a shape made from the towns and roads of New York State, of the size of three weeks
of tweets: 18 million by 600 thousand users, 35 a second. `learn(...)` reads the shape of a set of
real tweets. Whoever draws from a shape (tweets.py) gets a set of any size with the same shares:
the busiest hundredth of the users writes the same part of all tweets, and the cells around a town
hold the same part of them.

Weights are whole numbers and everything made from them is whole-number arithmetic, so a draw does
not depend on how a processor rounds an exponential. Everything here is immutable after it is made
and safe from any thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.space import Grid
from tideline.workload.newyork import BOUNDS, CITIES, OUTLINE, ROADS

__all__ = ["LENGTH_LIMIT", "Choice", "Shape", "learn", "mix", "new_york"]

Weights = NDArray[np.int64]
Draws = NDArray[np.uint64]

SIDE = 500
LENGTH_LIMIT = 1_000
"""The longest text; a longer one of a seed set counts as this long."""
RATE_LIMIT = 500_000
USERS_LIMIT = 1 << 26
_TOTAL = 1 << 26  # coarse, so that the last bits of an exponential do not show
_LOW = np.uint64(0xFFFFFFFF)


def mix(numbers: Draws) -> Draws:
    """Every 64-bit number to another that looks random: the mixer of SplitMix64.

    >>> mix(np.array([1, 2], np.uint64)) >> np.uint64(48)
    array([22162, 56274], dtype=uint64)
    """
    z = numbers ^ (numbers >> np.uint64(30))
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


class Choice:
    """Numbers below n, each as likely as its weight says: one table read a draw.

    Walker's alias method. Slot i keeps number i with some chance and gives another, its alias,
    otherwise; a draw is a slot and a chance. Built in one sweep: what light numbers leave free of
    their slots is filled by the heavy ones in order, and a heavy one that is used up leaves the
    rest of its own slot to the next.

    >>> choice = Choice(np.array([1, 0, 3]))
    >>> np.bincount(choice.pick(mix(np.arange(100_000, dtype=np.uint64))))
    array([25130,     0, 74870])
    """

    __slots__ = ("_count", "_slots")

    def __init__(self, weights: Weights) -> None:
        count, total = len(weights), int(weights.sum())
        surplus = weights * count - total
        light, heavy = np.flatnonzero(surplus < 0), np.flatnonzero(surplus >= 0)
        free = np.concatenate(([0], np.cumsum(-surplus[light])))
        given = np.cumsum(surplus[heavy])
        kept = np.empty(count, np.int64)
        alias = np.arange(count)
        kept[light] = weights[light] * count
        alias[light] = heavy[np.searchsorted(given, free[:-1], "right")]
        kept[heavy] = total + given - free[np.searchsorted(free, given)]
        alias[heavy[:-1]] = heavy[1:]
        alias[kept == total] = np.flatnonzero(kept == total)
        chance = np.minimum(kept / total * 2.0**32, 2.0**32 - 1).astype(np.uint64)
        self._count = np.uint64(count)
        self._slots = (chance << np.uint64(32)) | alias.astype(np.uint64)

    def pick(self, draws: Draws) -> NDArray[np.int64]:
        """A number for each random 64-bit number."""
        slot = (draws >> np.uint64(32)) * self._count >> np.uint64(32)
        entry = self._slots[slot.view(np.int64)]
        keep = (draws & _LOW) < (entry >> np.uint64(32))
        return np.where(keep, slot, entry & _LOW).view(np.int64)


@dataclass(frozen=True, eq=False)
class Shape:
    """The shares of a set of tweets; equal shapes have equal `digest`."""

    grid: Grid
    users: Weights
    cells: Weights
    """By cell number: row * cols + col, from the south and from the west."""
    lengths: Weights
    """By length of the text, from 0."""
    rate: int
    tweets: int
    """How many tweets the shape stands for: what a scale is relative to."""
    digest: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.rate, int) or not 1 <= self.rate <= RATE_LIMIT:
            raise InvalidRequest(
                f"rate must be a whole number from 1 to {RATE_LIMIT:,}", rate=self.rate
            )
        parts = [repr((self.grid, self.rate, self.tweets)).encode()]
        parts += [w.tobytes() for w in (self.users, self.cells, self.lengths)]
        object.__setattr__(self, "digest", hashlib.sha256(b"|".join(parts)).hexdigest()[:16])

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Shape) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def with_users(self, count: int) -> Shape:
        """The same shape with so many users: the curve from busy to quiet is stretched.

        >>> shape = new_york()
        >>> few = shape.with_users(1_000)
        >>> for users in (shape.users, few.users):  # what the busiest tenth writes
        ...     print(round(users[: len(users) // 10].sum() / users.sum(), 3))
        0.777
        0.777
        """
        if not isinstance(count, int) or not 1 <= count <= USERS_LIMIT:
            raise InvalidRequest(
                f"users must be a whole number from 1 to {USERS_LIMIT:,}", users=count
            )
        marks = np.concatenate(([0], np.cumsum(self.users)))
        ranks = np.arange(count + 1) * (len(self.users) / count)
        # Enough to tell the quietest users apart, and no more than `Choice` can add up.
        total = min(1 << 42, (1 << 61) // count)
        at = np.interp(ranks, np.arange(len(marks)), marks) * (total / marks[-1])
        return replace(self, users=np.maximum(np.diff(np.rint(at).astype(np.int64)), 1))

    def with_rate(self, rate: int) -> Shape:
        """The same shape with other tweets a second, on average."""
        return replace(self, rate=rate)


@lru_cache(maxsize=1)
def new_york() -> Shape:
    """Tweets as they come from New York State: many near few towns, some along the roads.

    >>> shape = new_york()
    >>> len(shape.users), shape.rate, shape.tweets
    (600000, 35, 18000000)
    """
    grid = Grid(bounds=BOUNDS, rows=SIDE, cols=SIDE)
    lon, lat = _centres(grid)
    width_km, height_km = 111.32 * np.cos(np.radians(lat)), 110.57
    density = np.full(len(lon), 0.05 / len(lon))
    attraction = sum(city[2] for city in CITIES.values())
    for west, south, people in CITIES.values():
        far_km = np.hypot((lon - west) * width_km, (lat - south) * height_km)
        reach_km = 1.0 + 0.7 * people**0.5
        for share, reach in ((0.70, reach_km), (0.20, 4 * reach_km)):  # the town and around it
            around = np.exp(-far_km / reach)
            density += share * people / attraction * around / around.sum()
    roads = _roads(grid)
    density += 0.05 * roads / roads.sum()
    # Neighbouring cells differ, as streets and parks do.
    rough = mix(np.arange(len(lon), dtype=np.uint64)) >> np.uint64(40)
    density *= np.where(_inside(lon, lat), 0.25 + 1.5 * rough / 2.0**24, 0.0)
    cells = np.rint(density / density.sum() * _TOTAL).astype(np.int64)

    ranks = np.arange(600_000)
    users = np.rint(20.0 * (1 << 24) / (ranks + 20.0)).astype(np.int64)
    length = np.arange(141)
    lengths = np.rint((length - 7) * np.exp(-length / 32) * 1e6).astype(np.int64)
    lengths[:8] = 0
    lengths[136:] += lengths.sum() // 60  # those that say as much as they may
    return Shape(grid, users, cells, lengths, rate=35, tweets=18_000_000)


def learn(tweets: pa.Table | Iterable[pa.RecordBatch], *, grid: Grid | None = None) -> Shape:
    """The shape of a set of tweets with the columns user, lon, lat, text and at.

    The set is read once, a batch at a time. Tweets outside the grid count for everything but
    where they are. Without a grid: 500 by 500 cells over New York State.

    >>> from datetime import datetime
    >>> at = pa.array([datetime(2026, 1, 2, 3, 4, second) for second in (0, 1, 2)])
    >>> shape = learn(pa.table({"user": ["ann", "bob", "ann"], "lon": [-74.0, -74.0, -78.8],
    ...     "lat": [40.7, 40.7, 42.9], "text": ["so", "late", "rain"], "at": at}))
    >>> shape.users, shape.lengths[:5], shape.rate, sorted(shape.cells)[-2:]
    (array([2, 1]), array([0, 0, 1, 0, 2]), 2, [np.int64(1), np.int64(2)])
    """
    import pyarrow.compute as pc

    grid = grid or Grid(bounds=BOUNDS, rows=SIDE, cols=SIDE)
    cells = np.zeros(grid.rows * grid.cols, np.int64)
    lengths = np.zeros(LENGTH_LIMIT + 1, np.int64)
    users: list[pa.Table] = []
    count, times = 0, []
    for batch in tweets.to_batches() if isinstance(tweets, pa.Table) else tweets:
        columns = _columns(batch)
        found = columns["user"].value_counts()
        users.append(pa.table({"user": found.field("values"), "n": found.field("counts")}))
        cells += _cell_counts(grid, columns["lon"], columns["lat"])
        characters = pc.utf8_length(columns["text"]).drop_null().to_numpy(zero_copy_only=False)
        lengths += np.bincount(np.minimum(characters, LENGTH_LIMIT), minlength=len(lengths))
        times.append(columns["at"].cast(pa.timestamp("us")).drop_null().cast(pa.int64()))
        count += batch.num_rows
    at = np.concatenate([part.to_numpy() for part in times]) if times else np.zeros(0)
    if len(at) < 2 or not cells.any() or not lengths.any():
        raise InvalidRequest(
            "a seed set needs two tweets with times, and one inside the bounds with a text",
            tweets=count, inside=int(cells.sum()), bounds=grid.bounds,
        )  # fmt: skip
    wrote = pa.concat_tables(users).group_by("user").aggregate([("n", "sum")]).column("n_sum")
    rate = max(1, min(RATE_LIMIT, round(count * 1_000_000 / max(1, int(at.max() - at.min())))))
    by_user = np.sort(wrote.to_numpy())[::-1].astype(np.int64)
    return Shape(grid, by_user, cells, lengths, rate=rate, tweets=count)


def _columns(batch: pa.RecordBatch) -> dict[str, Any]:
    """The columns of a seed set, of the types that are expected."""
    wanted = {"user": pa.string(), "lon": pa.float64(), "lat": pa.float64(), "text": pa.string()}
    missing = [name for name in (*wanted, "at") if name not in batch.schema.names]
    if missing:
        raise InvalidRequest(
            "a seed set needs the columns user, lon, lat, text and at",
            missing=missing, columns=batch.schema.names,
        )  # fmt: skip
    if not pa.types.is_timestamp(batch.schema.field("at").type):
        kind = str(batch.schema.field("at").type)
        raise InvalidRequest("at must be a timestamp", column="at", type=kind)
    columns = {"at": batch.column("at")}
    for name, kind in wanted.items():
        try:
            columns[name] = batch.column(name).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidRequest(f"{name} must be {kind}: {error}", column=name) from None
    return columns


def _cell_counts(grid: Grid, lon: pa.Array, lat: pa.Array) -> Weights:
    west, south, east, north = grid.bounds
    x = lon.to_numpy(zero_copy_only=False)
    y = lat.to_numpy(zero_copy_only=False)
    within = (x >= west) & (x <= east) & (y >= south) & (y <= north)  # a null is NaN: no
    col = np.minimum((x[within] - west) / (east - west) * grid.cols, grid.cols - 1)
    row = np.minimum((y[within] - south) / (north - south) * grid.rows, grid.rows - 1)
    cell = row.astype(np.int64) * grid.cols + col.astype(np.int64)
    return np.bincount(cell, minlength=grid.rows * grid.cols)


def _centres(grid: Grid) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    west, south, east, north = grid.bounds
    row, col = np.divmod(np.arange(grid.rows * grid.cols), grid.cols)
    lon = west + (col + 0.5) * ((east - west) / grid.cols)
    return lon, south + (row + 0.5) * ((north - south) / grid.rows)


def _roads(grid: Grid) -> NDArray[np.float64]:
    """How much road each cell has, the roads between large towns counted more."""
    west, south, east, north = grid.bounds
    found = np.zeros((grid.rows, grid.cols))
    for _, start, end, between in ROADS:
        points = np.array([CITIES[start][:2], *between, CITIES[end][:2]])
        traffic = (CITIES[start][2] * CITIES[end][2]) ** 0.25
        for here, there in pairwise(points):
            steps = int(np.abs(there - here).max() / 0.004) + 1
            lon, lat = (here + (there - here) * (np.arange(steps)[:, None] / steps)).T
            col = ((lon - west) / (east - west) * grid.cols).astype(np.int64)
            row = ((lat - south) / (north - south) * grid.rows).astype(np.int64)
            np.add.at(found, (row, col), traffic)
    return found.ravel()


def _inside(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> NDArray[np.bool_]:
    """`newyork.inside` for many points."""
    odd = np.zeros(len(lon), bool)
    for (lon1, lat1), (lon2, lat2) in zip(OUTLINE, [*OUTLINE[1:], OUTLINE[0]], strict=True):
        if lat1 != lat2:
            crossing = lon1 + (lat - lat1) / (lat2 - lat1) * (lon2 - lon1)
            odd ^= ((lat1 > lat) != (lat2 > lat)) & (lon < crossing)
    return odd
