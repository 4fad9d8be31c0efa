"""Couriers and incidents on the streets of Manhattan: what a map of one city shows.

    GRID       a corner is where an avenue meets a street: a plane laid on three measured corners,
               good to about a hundred metres
    Couriers   each goes round a block of its own in Midtown, and asks about the circle around it;
               something happens at a corner every few seconds

Like a `Fleet` it is a function of time: row n is made from n and the seed alone. Columns are those
of `Channel.apply`.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tideline.errors import InvalidRequest
from tideline.workload.fleet import OPERATIONS, rows_between

__all__ = ["AVENUES", "BROADWAY", "CENTRE", "PARK", "STREETS", "Couriers", "corner"]

Point = tuple[float, float]

# Metres west of 5 Avenue.
AVENUES: dict[str, float] = {
    "12 Av": 1744, "11 Av": 1500, "10 Av": 1256, "9 Av": 1012, "8 Av": 768, "7 Av": 524,
    "6 Av": 280, "5 Av": 0, "Madison Av": -141, "Park Av": -282, "Lexington Av": -412,
    "3 Av": -553, "2 Av": -770, "1 Av": -998, "York Av": -1210,
}  # fmt: skip
STREETS = range(14, 156)
PARK = (59, 110, "5 Av", "8 Av")
"""Central Park: from street to street, from avenue to avenue."""
BROADWAY = [(14, -330.0), (23, 0.0), (34, 280.0), (45, 524.0), (59, 768.0), (72, 1012.0),
            (79, 1140.0), (110, 1200.0), (155, 1100.0)]  # fmt: skip
"""Where it meets a street, and how many metres west of 5 Avenue."""
CENTRE: Point = (-73.9870, 40.7560)
"""Times Square."""

_ORIGIN = (-73.99936, 40.72672)
_NORTH = (0.000451279, 0.000637451)  # degrees a street
_WEST = (-1.0466e-5, 4.2499e-6)  # degrees a metre

_KINDS = ("road closed", "double parking", "burst main", "street fair", "crash", "film crew")
_TOWN = ("10 Av", "9 Av", "8 Av", "7 Av", "6 Av", "5 Av", "Madison Av", "Lexington Av", "3 Av")
_FIRST, _LAST = 34, 57


def corner(avenue: str | float, street: float) -> Point:
    """Longitude and latitude of a corner; an avenue is a name, or metres west of 5 Avenue.

    >>> corner("7 Av", 45)
    (-73.984537, 40.757632)
    """
    metres = AVENUES[avenue] if isinstance(avenue, str) else avenue
    return (
        round(_ORIGIN[0] + _NORTH[0] * street + _WEST[0] * metres, 6),
        round(_ORIGIN[1] + _NORTH[1] * street + _WEST[1] * metres, 6),
    )


@dataclass(frozen=True)
class Couriers:
    """Couriers in Midtown, and what happens there.

    >>> couriers = Couriers(seed=1)
    >>> rows = couriers.operations(0, 2_000_000)
    >>> rows.num_rows, rows.column("op").unique().to_pylist()
    (31, ['subscribe', 'publish'])
    >>> couriers.operations(0, 2_000_000).equals(rows)
    True
    """

    couriers: int = 60
    seed: int = 7
    asked_s: float = 15.0
    """Couriers that ask, in a second."""
    happen_s: float = 0.5
    """Incidents in a second."""
    radius_m: float = 500.0
    ahead_s: float = 8.0
    back_s: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.couriers <= 10_000:
            raise InvalidRequest("couriers must be 1 to 10,000", couriers=self.couriers)

    def place(self, courier: int, seconds: float) -> Point:
        """Where a courier is: some way round its block, at 12 to 24 metres a second."""
        pick = random.Random(f"{self.seed}-courier-{courier}")
        low = pick.randrange(_FIRST, _LAST - 6)
        high = low + pick.randrange(3, min(12, _LAST - low))
        at = pick.randrange(len(_TOWN) - 2)
        west, east = (AVENUES[_TOWN[n]] for n in (at, at + pick.randrange(1, 3)))
        turns = [(west, low), (west, high), (east, high), (east, low), (west, low)]
        sides = [abs(b[0] - a[0]) + abs(b[1] - a[1]) * 80.4 for a, b in pairwise(turns)]
        left = (pick.random() * sum(sides) + (12 + 12 * pick.random()) * seconds) % sum(sides)
        for (a, b), side in zip(pairwise(turns), sides, strict=True):
            if left <= side:
                share = left / side
                return corner(a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share)
            left -= side
        return corner(west, low)

    def operations(self, first_us: int, limit_us: int, start_us: int = 0) -> pa.RecordBatch:
        """What happens in [first, limit), counted from row 0, which is at `start_us`."""
        rows = [self._asks(n, start_us)
                for n in range(*rows_between(self.asked_s, first_us, limit_us))]  # fmt: skip
        rows += [self._happens(n, start_us)
                 for n in range(*rows_between(self.happen_s, first_us, limit_us))]  # fmt: skip
        return pa.RecordBatch.from_pylist(rows, schema=OPERATIONS)

    def _asks(self, n: int, start_us: int) -> dict[str, Any]:
        courier, seconds = n % self.couriers, n / self.asked_s
        lon, lat = self.place(courier, seconds)
        at = _time(start_us, seconds)
        return {
            "op": "subscribe", "id": f"city-q{n}", "lon": lon, "lat": lat,
            "radius_m": self.radius_m, "user": f"courier {courier}", "at": at,
            "since": at - timedelta(seconds=self.back_s),
            "until": at + timedelta(seconds=self.ahead_s), "unseen": True,
        }  # fmt: skip

    def _happens(self, n: int, start_us: int) -> dict[str, Any]:
        pick = random.Random(f"{self.seed}-incident-{n}")
        avenue, street = pick.choice(_TOWN), pick.randrange(_FIRST, _LAST + 1)
        lon, lat = corner(avenue, street)
        at = _time(start_us, n / self.happen_s)
        side = "W" if AVENUES[avenue] >= 0 else "E"
        body = {"kind": pick.choice(_KINDS), "severity": pick.randrange(1, 6),
                "road": f"{avenue} and {side} {street} St"}  # fmt: skip
        return {
            "op": "publish", "id": f"city-i{n}", "lon": lon, "lat": lat, "at": at,
            "until": at + timedelta(seconds=pick.randrange(20, 60)), "body": json.dumps(body),
        }  # fmt: skip


def _time(start_us: int, seconds: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=start_us + round(seconds * 1e6))
