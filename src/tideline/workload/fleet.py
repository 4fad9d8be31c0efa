"""Traffic as a function of time: where every driver is, and what has happened, at any moment.

Row n is made from n and the seed alone, so any part of the stream can be made again, by
any process, in any order:

    row n of drivers      driver n % drivers, at n / drivers_s seconds, asks about a circle
    row n of incidents    something happens at n / incidents_s seconds beside a road

A driver goes back and forth on a route of several roads; `workload/newyork.py` has the roads.
Columns are those of `Channel.apply`.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.workload.newyork import BOUNDS, NewYork

__all__ = ["OPERATIONS", "Fleet", "rows_between"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
_ROUTES = 512  # distinct routes that the drivers share
_ROADS = 6  # roads of a route
_BACK_US = 600_000_000
_TIME = pa.timestamp("us", "UTC")
OPERATIONS = pa.schema(
    [("op", pa.string()), ("id", pa.string()), ("lon", pa.float64()), ("lat", pa.float64()),
     ("radius_m", pa.float64()), ("user", pa.string()), ("at", _TIME), ("since", _TIME),
     ("until", _TIME), ("body", pa.string()), ("unseen", pa.bool_())]
)  # fmt: skip


@dataclass(frozen=True)
class Fleet:
    """Drivers on the roads of New York State, and incidents beside them.

    >>> fleet = Fleet(drivers=100, seed=1)
    >>> lon, lat = fleet.places(np.arange(3), np.array([0.0, 60.0, 60.0]))
    >>> len(lon), bool((abs(lon) > 70).all())
    (3, True)
    >>> fleet.operations(0, 2_000_000).num_rows
    210
    >>> Fleet(drivers=1, name="west-").operations(0, 1).column("id").to_pylist()
    ['west-i0', 'west-q0']
    """

    drivers: int = 5_000
    seed: int = 7
    drivers_s: float = 100.0
    """Drivers that ask, in a second."""
    incidents_s: float = 5.0
    """Incidents in a second."""
    radius_m: float = 3_000.0
    ahead_s: float = 60.0
    """How long a driver's question stays open."""
    hurry: float = 20.0
    """Drivers are this much faster than real ones, so that something is seen."""
    spread_m: float = 0.0
    """Drivers keep to ways beside the roads: about so far off, each its own distance."""
    name: str = ""
    """Put before every id and user: fleets of different names share a channel."""
    _routes: tuple[Floats, Floats, Floats, Floats] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.drivers <= 10_000_000:
            raise InvalidRequest("drivers must be 1 to 10,000,000", drivers=self.drivers)
        for name in ("drivers_s", "incidents_s"):
            if not 0 < getattr(self, name) <= 10_000_000:
                raise InvalidRequest(f"{name} must be over 0", **{name: getattr(self, name)})
        if not 0 <= self.spread_m <= 20_000:  # else they leave the map
            raise InvalidRequest("spread_m must be 0 to 20,000", spread_m=self.spread_m)
        object.__setattr__(self, "_routes", _routes(self.seed))

    def places(self, drivers: Numbers, seconds: Floats) -> tuple[Floats, Floats]:
        """Where some drivers are at some times."""
        marks, lons, lats, lengths = self._routes
        route = (_hash(drivers, self.seed, 1) % _ROUTES).astype(np.int64)
        speed = (18 + 15 * _share(drivers, self.seed, 2)) * self.hurry
        length = lengths[route]
        metres = (2 * length * _share(drivers, self.seed, 3) + speed * seconds) % (2 * length)
        metres = np.where(metres > length, 2 * length - metres, metres)
        # Routes lie end to end on one line, so one search finds every driver's stretch.
        at = metres + np.concatenate(([0.0], np.cumsum(lengths + 1)))[route]
        i = np.clip(np.searchsorted(marks, at, side="right") - 1, 0, len(marks) - 2)
        share = (at - marks[i]) / (marks[i + 1] - marks[i])
        lon = lons[i] + (lons[i + 1] - lons[i]) * share
        lat = lats[i] + (lats[i + 1] - lats[i]) * share
        if self.spread_m:
            angle = 2 * np.pi * _share(drivers, self.seed, 4)
            north = self.spread_m / 111_195 * _share(drivers, self.seed, 5) * 2
            lon = lon + north * np.cos(angle) / np.cos(np.radians(lat))
            lat = lat + north * np.sin(angle)
            west, south, east, top = BOUNDS
            lon, lat = np.clip(lon, west, east), np.clip(lat, south, top)
        return lon, lat

    def operations(self, first_us: int, limit_us: int, start_us: int = 0) -> pa.RecordBatch:
        """What happens in [first, limit), counted from row 0, which is at `start_us`."""
        asked = self._asked(*rows_between(self.drivers_s, first_us, limit_us), start_us)
        happened = self._happened(*rows_between(self.incidents_s, first_us, limit_us), start_us)
        both = pa.Table.from_batches([asked, happened]).combine_chunks()
        return both.sort_by([("at", "ascending"), ("id", "ascending")]).to_batches()[0] if len(
            both
        ) else pa.RecordBatch.from_pylist([], schema=OPERATIONS)  # fmt: skip

    def _asked(self, first: int, limit: int, start_us: int) -> pa.RecordBatch:
        n = np.arange(first, limit, dtype=np.int64)
        driver = n % self.drivers
        at_us = np.rint(n * (1e6 / self.drivers_s)).astype(np.int64)
        lon, lat = self.places(driver, at_us / 1e6)
        at_us += start_us
        count = len(n)
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat("subscribe", count),
                _texts(f"{self.name}q", n),
                pa.array(lon),
                pa.array(lat),
                pa.repeat(self.radius_m, count),
                _texts(f"{self.name}driver-", driver),
                _times(at_us),
                _times(at_us - _BACK_US),
                _times(at_us + round(self.ahead_s * 1e6)),
                pa.nulls(count, pa.string()),
                pa.repeat(True, count),
            ],
            schema=OPERATIONS,
        )

    def _happened(self, first: int, limit: int, start_us: int) -> pa.RecordBatch:
        rows = []
        state = _state(self.seed)
        for n in range(first, limit):
            # One incident, from a generator of its own: cheap enough for the few there are.
            state._random.seed(f"{self.seed}-{n}")
            incident = state.incident()
            at_us = start_us + round(n * 1e6 / self.incidents_s)
            rows.append(
                (
                    "publish", f"{self.name}i{n}", *incident.place, None, None, at_us, None,
                    at_us + round(incident.ttl_s * 1e6), json.dumps(incident.body), None,
                )
            )  # fmt: skip
        columns = list(zip(*rows, strict=True)) or [()] * len(OPERATIONS)
        arrays = [
            pa.array(column, pa.int64()).cast(each.type) if each.type == _TIME
            else pa.array(column, each.type)
            for column, each in zip(columns, OPERATIONS, strict=True)
        ]  # fmt: skip
        return pa.RecordBatch.from_arrays(arrays, schema=OPERATIONS)


_STATES: dict[int, NewYork] = {}


def _state(seed: int) -> NewYork:
    if seed not in _STATES:
        _STATES[seed] = NewYork(drivers=1, seed=seed)
    return _STATES[seed]


def rows_between(rate: float, first_us: int, limit_us: int) -> tuple[int, int]:
    """The rows whose time lies in [first, limit)."""

    def row(us: int) -> int:
        n = max(0, int(us * rate / 1e6) - 1)
        while round(n * 1e6 / rate) < us:
            n += 1
        return n

    return row(first_us), row(limit_us)


def _routes(seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """(metres, lon, lat) of all points of all routes on one line, and each route's length."""
    state = NewYork(drivers=_ROUTES, seed=seed)
    pick = random.Random(seed)
    marks: list[Floats] = []
    lons: list[Floats] = []
    lats: list[Floats] = []
    lengths: list[float] = []
    begin = 0.0
    for driver in state.drivers:
        points: list[tuple[float, float]] = []
        metres: list[float] = []
        for _ in range(_ROADS):
            road = state.roads[driver.road]
            there = list(zip(road.points, road.marks, strict=True))
            if not driver.forward:
                there = [(point, road.length_m - mark) for point, mark in reversed(there)]
            done = metres[-1] if metres else 0.0
            for point, mark in there[1 if points else 0 :]:
                points.append(point)
                metres.append(done + mark)
            state._random.seed(pick.random())
            state._turn(driver, road.ends[1] if driver.forward else road.ends[0])
        lengths.append(metres[-1])
        marks.append(np.array(metres) + begin)
        lons.append(np.array([lon for lon, _ in points]))
        lats.append(np.array([lat for _, lat in points]))
        begin += metres[-1] + 1
    return np.concatenate(marks), np.concatenate(lons), np.concatenate(lats), np.array(lengths)


def _hash(numbers: Numbers, seed: int, lane: int) -> NDArray[np.uint64]:
    """A well mixed number for each (splitmix64)."""
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) + np.uint64((seed * 1_000_003 + lane) % (1 << 63))
        z = z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _share(numbers: Numbers, seed: int, lane: int) -> Floats:
    """A number in [0, 1) for each."""
    return (_hash(numbers, seed, lane) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _texts(prefix: str, numbers: Numbers) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def _times(us: Numbers) -> pa.Array:
    return pa.array(us, pa.int64()).cast(_TIME)
