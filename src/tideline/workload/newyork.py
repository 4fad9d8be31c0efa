"""Drivers and incidents on the main roads of New York State.

    CITIES    where roads meet, with real coordinates and how much they attract
    ROADS     between two cities, by way of points that keep to the land
    OUTLINE   a coarse outline of the state; no position lies outside it

A `NewYork` is made from a seed and is then a function of the times it is asked about: the same
seed and times give the same drivers, turns and incidents. Positions are worked out when asked
for, so a driver nobody asks about costs nothing.

Pure Python over numbers, nothing of a database in it. One thread at a time.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

__all__ = ["BOUNDS", "CITIES", "OUTLINE", "ROADS", "Driver", "Incident", "NewYork", "inside"]

Point = tuple[float, float]

BOUNDS = (-79.8, 40.4, -71.8, 45.1)

# name: (lon, lat, attraction); attraction is roughly the people in the area, in 100,000.
CITIES: dict[str, tuple[float, float, float]] = {
    "New York": (-73.980, 40.750, 84.0),
    "Yonkers": (-73.870, 40.935, 10.0),
    "Hempstead": (-73.619, 40.706, 14.0),
    "Islip": (-73.210, 40.740, 12.0),
    "Riverhead": (-72.662, 40.917, 3.0),
    "White Plains": (-73.770, 41.040, 8.0),
    "Newburgh": (-74.015, 41.503, 3.0),
    "Middletown": (-74.423, 41.446, 2.0),
    "Poughkeepsie": (-73.921, 41.700, 3.0),
    "Kingston": (-73.997, 41.927, 2.0),
    "Albany": (-73.770, 42.653, 9.0),
    "Schenectady": (-73.940, 42.814, 3.0),
    "Saratoga Springs": (-73.785, 43.083, 2.0),
    "Glens Falls": (-73.660, 43.310, 1.0),
    "Plattsburgh": (-73.480, 44.699, 1.0),
    "Oneonta": (-75.064, 42.453, 1.0),
    "Utica": (-75.233, 43.101, 3.0),
    "Syracuse": (-76.147, 43.048, 7.0),
    "Watertown": (-75.911, 43.975, 1.5),
    "Massena": (-74.910, 44.900, 0.5),
    "Ithaca": (-76.497, 42.444, 1.0),
    "Binghamton": (-75.918, 42.120, 3.0),
    "Elmira": (-76.808, 42.100, 1.0),
    "Corning": (-77.055, 42.143, 1.0),
    "Rochester": (-77.611, 43.157, 10.0),
    "Batavia": (-78.188, 42.998, 1.0),
    "Buffalo": (-78.850, 42.886, 11.0),
    "Niagara Falls": (-79.020, 43.095, 2.0),
    "Jamestown": (-79.235, 42.110, 1.0),
}

# name, from, to, and the points on the way.
ROADS: list[tuple[str, str, str, list[Point]]] = [
    ("I-87 Major Deegan", "New York", "Yonkers", [(-73.915, 40.850)]),
    ("I-495 Long Island Expressway", "New York", "Hempstead", [(-73.800, 40.735)]),
    ("Southern State Parkway", "Hempstead", "Islip", [(-73.420, 40.715)]),
    ("NY 27 Sunrise Highway", "Islip", "Riverhead", [(-72.930, 40.810)]),
    ("Saw Mill River Parkway", "Yonkers", "White Plains", []),
    ("US 9", "White Plains", "Poughkeepsie", [(-73.870, 41.200), (-73.910, 41.450)]),
    ("I-87 Thruway", "White Plains", "Newburgh", [(-73.900, 41.080), (-74.080, 41.300)]),
    ("I-84", "Newburgh", "Middletown", []),
    ("I-87 Thruway", "Newburgh", "Kingston", [(-74.060, 41.740)]),
    ("US 9", "Poughkeepsie", "Albany", [(-73.850, 42.100), (-73.720, 42.400)]),
    ("NY 17", "Middletown", "Binghamton", [(-74.720, 41.680), (-75.150, 41.960)]),
    ("I-87 Thruway", "Kingston", "Albany", [(-73.900, 42.250)]),
    ("I-90 Thruway", "Albany", "Schenectady", []),
    ("I-87 Northway", "Albany", "Saratoga Springs", []),
    ("I-87 Northway", "Saratoga Springs", "Glens Falls", []),
    ("I-87 Northway", "Glens Falls", "Plattsburgh", [(-73.760, 43.800), (-73.520, 44.300)]),
    ("I-90 Thruway", "Schenectady", "Utica", [(-74.350, 42.930), (-74.850, 43.030)]),
    ("I-88", "Schenectady", "Oneonta", [(-74.480, 42.670)]),
    ("I-88", "Oneonta", "Binghamton", [(-75.500, 42.280)]),
    ("I-90 Thruway", "Utica", "Syracuse", [(-75.700, 43.080)]),
    ("NY 12", "Utica", "Watertown", [(-75.350, 43.480)]),
    ("I-81", "Syracuse", "Watertown", [(-76.080, 43.550)]),
    ("US 11", "Watertown", "Massena", [(-75.480, 44.330), (-75.000, 44.680)]),
    ("NY 11B", "Massena", "Plattsburgh", [(-74.300, 44.800)]),
    ("I-81", "Syracuse", "Binghamton", [(-76.180, 42.600)]),
    ("NY 13", "Syracuse", "Ithaca", [(-76.350, 42.800)]),
    ("NY 13", "Ithaca", "Elmira", []),
    ("I-86", "Binghamton", "Elmira", [(-76.350, 42.080)]),
    ("I-86", "Elmira", "Corning", []),
    ("I-86", "Corning", "Jamestown", [(-77.800, 42.250), (-78.430, 42.120)]),
    ("I-90 Thruway", "Syracuse", "Rochester", [(-76.900, 42.970), (-77.350, 43.000)]),
    ("I-390", "Rochester", "Corning", [(-77.690, 42.700), (-77.400, 42.350)]),
    ("I-490", "Rochester", "Batavia", []),
    ("I-90 Thruway", "Batavia", "Buffalo", [(-78.500, 42.960)]),
    ("I-190", "Buffalo", "Niagara Falls", [(-78.890, 42.990)]),
    ("NY 60", "Buffalo", "Jamestown", [(-78.950, 42.680), (-79.250, 42.450)]),
]

OUTLINE: list[Point] = [
    (-79.762, 42.000), (-79.762, 42.270), (-79.100, 42.690), (-78.910, 42.860),
    (-78.930, 42.960), (-79.070, 43.080), (-79.060, 43.262), (-78.000, 43.370),
    (-77.500, 43.270), (-76.800, 43.310), (-76.230, 43.540), (-76.200, 43.950),
    (-76.320, 44.180), (-75.800, 44.450), (-75.000, 44.960), (-74.700, 45.000),
    (-73.345, 45.010), (-73.390, 44.500), (-73.320, 44.200), (-73.430, 43.650),
    (-73.250, 43.550), (-73.270, 42.750), (-73.508, 42.050), (-73.490, 41.210),
    (-73.730, 41.100), (-73.655, 40.995), (-73.790, 40.830), (-73.750, 40.870),
    (-73.100, 40.970), (-72.600, 40.985), (-72.280, 41.160), (-72.450, 40.960),
    (-71.860, 41.085), (-72.400, 40.840), (-73.300, 40.620), (-74.030, 40.560),
    (-74.255, 40.495), (-74.200, 40.640), (-74.020, 40.700), (-73.900, 41.000),
    (-74.700, 41.360), (-75.050, 41.600), (-75.350, 42.000),
]  # fmt: skip

# kind: (share, shortest and longest time to live in seconds, lanes, severities)
_KINDS: dict[str, tuple[float, int, int, int, tuple[int, int]]] = {
    "accident": (0.34, 300, 1200, 3, (2, 5)),
    "stalled car": (0.26, 120, 600, 1, (1, 2)),
    "roadwork": (0.18, 600, 1200, 2, (1, 3)),
    "debris": (0.10, 60, 300, 1, (1, 3)),
    "flooding": (0.07, 600, 1200, 4, (3, 5)),
    "fire": (0.05, 300, 900, 4, (4, 5)),
}

_EARTH_RADIUS_M = 6_371_008.8


@dataclass(slots=True)
class Driver:
    """Somebody on a road: `metres` along it, forward or back, as of `seen_s`."""

    user: str
    road: int
    metres: float
    forward: bool
    speed_mps: float
    seen_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that happened at a point, and for how long it matters."""

    place: Point
    body: dict[str, Any]
    ttl_s: float


class _Road:
    """A road as the points it passes and the metres at which it passes them."""

    __slots__ = ("ends", "length_m", "marks", "name", "points")

    def __init__(self, name: str, start: str, end: str, between: list[Point]) -> None:
        self.name = name
        self.ends = (start, end)
        self.points = [CITIES[start][:2], *between, CITIES[end][:2]]
        steps = [_metres(a, b) for a, b in pairwise(self.points)]
        self.marks = [0.0, *accumulate(steps)]
        self.length_m = self.marks[-1]

    def at(self, metres: float) -> Point:
        """The point so many metres from the start."""
        i = min(max(bisect_right(self.marks, metres) - 1, 0), len(self.points) - 2)
        share = (metres - self.marks[i]) / (self.marks[i + 1] - self.marks[i])
        (lon, lat), (lon2, lat2) = self.points[i], self.points[i + 1]
        return (lon + (lon2 - lon) * share, lat + (lat2 - lat) * share)


class NewYork:
    """The state's roads with drivers on them and incidents beside them.

    >>> state = NewYork(drivers=2, seed=1)
    >>> inside(state.move(state.drivers[0], 60.0))
    True
    >>> sorted(state.incident().body)
    ['kind', 'lanes', 'near', 'road', 'severity']
    """

    def __init__(self, *, drivers: int, seed: int, hurry: float = 1.0) -> None:
        """`hurry` multiplies every speed, so that a short demo shows movement."""
        self._random = random.Random(seed)
        self._hurry = hurry
        self.roads = [_Road(*road) for road in ROADS]
        self._leaving: dict[str, list[int]] = {city: [] for city in CITIES}
        for number, road in enumerate(self.roads):
            for city in road.ends:
                self._leaving[city].append(number)
        # Traffic is where the people are: a road's share grows with its ends and its length.
        self._traffic = [
            math.sqrt(CITIES[road.ends[0]][2] * CITIES[road.ends[1]][2] * road.length_m)
            for road in self.roads
        ]
        self.drivers = [self._new_driver(number) for number in range(drivers)]

    def move(self, driver: Driver, now_s: float) -> Point:
        """Where a driver is now, turning into another road at each city on the way."""
        metres = driver.speed_mps * self._hurry * max(now_s - driver.seen_s, 0.0)
        driver.seen_s = max(now_s, driver.seen_s)
        while True:
            road = self.roads[driver.road]
            left = road.length_m - driver.metres if driver.forward else driver.metres
            if metres < left:
                driver.metres += metres if driver.forward else -metres
                return road.at(driver.metres)
            metres -= left
            self._turn(driver, road.ends[1] if driver.forward else road.ends[0])

    def incident(self) -> Incident:
        """Something happens, somewhere near a road."""
        pick = self._random
        road = self._pick_road()
        metres = pick.random() * road.length_m
        lon, lat = road.at(metres)
        place = (
            round(lon + pick.gauss(0.0, 0.003), 6),
            round(lat + pick.gauss(0.0, 0.002), 6),
        )
        if not inside(place):
            place = (round(lon, 6), round(lat, 6))
        kind = pick.choices(list(_KINDS), [share for share, *_ in _KINDS.values()])[0]
        _, shortest, longest, lanes, severity = _KINDS[kind]
        near = road.ends[0] if metres < road.length_m / 2 else road.ends[1]
        body = {
            "kind": kind,
            "lanes": pick.randint(1, lanes),
            "severity": pick.randint(*severity),
            "road": road.name,
            "near": near,
        }
        return Incident(place=place, body=body, ttl_s=float(pick.randint(shortest, longest)))

    def _new_driver(self, number: int) -> Driver:
        pick = self._random
        road = pick.choices(range(len(self.roads)), self._traffic)[0]
        return Driver(
            user=f"driver-{number}",
            road=road,
            metres=pick.random() * self.roads[road].length_m,
            forward=pick.random() < 0.5,
            speed_mps=pick.uniform(18.0, 33.0),
        )

    def _pick_road(self) -> _Road:
        return self._random.choices(self.roads, self._traffic)[0]

    def _turn(self, driver: Driver, city: str) -> None:
        """Leave a city by one of its roads, rarely by the one just taken."""
        options = self._leaving[city]
        weights = []
        for number in options:
            start, end = self.roads[number].ends
            pull = CITIES[end if start == city else start][2]
            weights.append(pull * (0.05 if number == driver.road else 1.0))
        driver.road = self._random.choices(options, weights)[0]
        road = self.roads[driver.road]
        driver.forward = road.ends[0] == city
        driver.metres = 0.0 if driver.forward else road.length_m


def inside(place: Point) -> bool:
    """Whether a point lies inside the outline of the state.

    >>> inside((-73.98, 40.75)), inside((-75.16, 39.95))
    (True, False)
    """
    lon, lat = place
    odd = False
    for (lon1, lat1), (lon2, lat2) in pairwise([*OUTLINE, OUTLINE[0]]):
        if (lat1 > lat) != (lat2 > lat):
            crossing = lon1 + (lat - lat1) / (lat2 - lat1) * (lon2 - lon1)
            odd ^= lon < crossing
    return odd


def _metres(a: Point, b: Point) -> float:
    """Distance over short stretches, where the earth is flat enough."""
    x = math.radians(b[0] - a[0]) * math.cos(math.radians((a[1] + b[1]) / 2))
    return math.hypot(x, math.radians(b[1] - a[1])) * _EARTH_RADIUS_M
