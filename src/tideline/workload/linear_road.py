"""The input of the Linear Road benchmark: cars on expressways that say where they are.

    a second t --> the cars whose turn it is (every 30th second of each) --> moved on by 30 s
               --> their reports, and requests of some of them: one Arrow batch

An expressway has two directions of 100 segments of a mile. A car enters in lane 0, speeds up,
drives in lanes 1 to 3, is slower where there are many, and leaves with one report in lane 4. Some
come back later. From time to time two cars stand at one place for 10 to 20 minutes, an accident;
seldom one stands alone for some minutes, which is none.

Numbers of cars and their routes follow what is known of the published generators: 16 to 46 cars
enter an expressway in a second, most in the middle of the three hours; most of those that enter
before downtown (the middle third) leave there; a tenth comes back.

What happens on expressway x is a function of the seed and of x, however many others there are. So
parts can be made apart. One thread an iteration; making two at once is fine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.workload.shape import mix

__all__ = ["BALANCE", "DAYS", "EXIT", "EXPENDITURE", "REPORT", "SCHEMA", "SEGMENTS", "LinearRoad"]

Numbers = NDArray[np.int64]
Words = NDArray[np.uint64]

REPORT, BALANCE, EXPENDITURE = 0, 2, 3
"""Types of rows: where a car is; what it owes; what it paid on a day."""
SEGMENTS, LANES, EXIT = 100, 3, 4
DAYS = 69
"""Days of the past that expenditures are known of: 1 is yesterday."""
WHOLE_S = 10_800
"""Three hours."""
_MILE, _EVERY_S = 5_280, 30
_MOST_CARS = 1 << 20  # of an expressway
_LIMIT, _RAMP, _ENTRY = 70, 40, 10  # miles an hour
_FULL, _FULLER = 72, 87  # cars in a segment from which on all are slower
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_WARM_S = 3_600  # before a start in the middle: the longest drives take about so long

SCHEMA = pa.schema(
    [("type", pa.int8()), ("time", pa.int32()), ("vid", pa.int32()), ("speed", pa.int16()),
     ("xway", pa.int16()), ("lane", pa.int8()), ("dir", pa.int8()), ("seg", pa.int8()),
     ("pos", pa.int32()), ("qid", pa.int32()), ("day", pa.int8())]
)  # fmt: skip


@dataclass(frozen=True)
class LinearRoad:
    """Reports and requests, second by second.

    >>> road = LinearRoad(expressways=1, duration_s=120, seed=7)
    >>> batches = list(road.seconds())
    >>> len(batches), batches[0].column("type").to_pylist()[:3]
    (120, [0, 0, 0])
    >>> again = list(LinearRoad(expressways=1, duration_s=120, seed=7).seconds())
    >>> again == batches
    True
    """

    expressways: int = 1
    duration_s: int = WHOLE_S
    seed: int = 0
    start_s: int = 0
    """Second of the three hours to begin with; the road is then as full as it is at that time."""
    first: int = 0
    """The number of the first expressway."""

    def __post_init__(self) -> None:
        if not 1 <= self.expressways <= 1024 or not 0 <= self.first <= 1024:
            raise InvalidRequest("there are 1 to 1024 expressways", expressways=self.expressways)
        if self.duration_s < 1 or self.start_s < 0 or self.start_s + self.duration_s > WHOLE_S:
            raise InvalidRequest(
                f"a run is a part of {WHOLE_S} seconds",
                start_s=self.start_s, duration_s=self.duration_s,
            )  # fmt: skip
        if self.seed < 0:
            raise InvalidRequest("seed must not be negative", seed=self.seed)

    def arrivals(self) -> Numbers:
        """New cars: a row for each expressway, a column for each second of the three hours."""
        hill = np.sin(np.pi * np.arange(WHOLE_S) / WHOLE_S) + 0.8
        drawn = [
            np.random.default_rng([self.seed, self.first + x]).random(WHOLE_S)
            for x in range(self.expressways)
        ]
        return np.ceil(20 * (hill + np.array(drawn) / 2)).astype(np.int64)

    def cars(self) -> Numbers:
        """How many cars each expressway has numbered by the end: car n of x is `x << 20 | n`."""
        counts: Numbers = self.arrivals()[:, : self.start_s + self.duration_s].sum(1)
        return counts

    def expenditure(self, vid: Any, day: Any) -> Numbers:
        """What cars paid on a day of the past, on the expressway where they drive: 10 to 99.

        >>> LinearRoad(seed=7).expenditure([0, 1], [69, 1]).tolist()
        [86, 75]
        """
        numbers = np.asarray(vid, np.int64) * 128 + np.asarray(day, np.int64)
        return (10 + _draw(numbers, self.seed, 3) % np.uint64(90)).astype(np.int64)

    def history(self, x: int, rows: int = 50_000) -> Iterator[tuple[Numbers, NDArray[np.int16]]]:
        """Cars of an expressway, and of each what it paid on the days 1 to 69."""
        count = int(self.cars()[x - self.first])
        for at in range(0, count, rows):
            vids = (x << 20) + np.arange(at, min(at + rows, count))
            paid = self.expenditure(vids[:, None], np.arange(1, DAYS + 1)[None, :])
            yield vids, paid.astype(np.int16)

    def seconds(self) -> Iterator[pa.RecordBatch]:
        """A batch for each second, with the columns of `SCHEMA`: reports, then requests."""
        traffic = _Traffic(self)
        for time in range(max(0, self.start_s - _WARM_S), self.start_s + self.duration_s):
            batch = traffic.second(time)
            if time >= self.start_s:
                yield batch


class _Traffic:
    """All cars at a moment, in 30 groups by the second in which they report."""

    def __init__(self, road: LinearRoad) -> None:
        self._road = road
        self._arrivals = road.arrivals()
        self._numbered = np.zeros(road.expressways, np.int64)
        self._numbered += self._arrivals[:, : max(0, road.start_s - _WARM_S)].sum(1)
        self._groups = [_nobody() for _ in range(_EVERY_S)]
        self._back: dict[int, list[Numbers]] = {}  # by second: cars that come back then
        self._load = np.zeros(road.expressways * 2 * SEGMENTS, np.int64)  # cars of a segment
        self._slowed = np.zeros(len(self._load), np.int64)  # by accidents
        self._cleared: list[tuple[int, int]] = []  # when, and in which segment
        self._chance = [
            np.random.default_rng([road.seed, road.first + x, 1]) for x in range(road.expressways)
        ]
        begun = max(0, road.start_s - _WARM_S)
        self._due = [begun + int(draw.integers(300, 900)) for draw in self._chance]
        self._asked = np.zeros(road.expressways, np.int64)

    def second(self, time: int) -> pa.RecordBatch:
        """Move those whose turn it is, let cars in, and report."""
        for at, place in [each for each in self._cleared if each[0] <= time]:
            self._cleared.remove((at, place))
            self._slowed[place] -= 20
        here = self._groups[time % _EVERY_S]
        gone = here["lane"] == EXIT
        if gone.any():
            self._leave(here["vid"][gone], time)
            here = {name: column[~gone] for name, column in here.items()}
        before = self._places(here)
        drawn = _draw(here["vid"] * 16_384 + time, self._road.seed, 1)
        self._move(here, drawn, before, time)
        self._accidents(here, time)
        self._load -= np.bincount(before, minlength=len(self._load))
        fresh, others = self._entering(time)
        here = {name: np.concatenate([here[name], fresh[name]]) for name in here}
        staying = here["lane"] != EXIT
        self._load += np.bincount(self._places(here)[staying], minlength=len(self._load))
        self._groups[time % _EVERY_S] = here
        return self._reported(here, np.concatenate([drawn, others]), time)

    def _places(self, cars: dict[str, Numbers]) -> Numbers:
        return (cars["x"] * 2 + cars["dir"]) * SEGMENTS + cars["pos"] // _MILE

    def _move(self, cars: dict[str, Numbers], drawn: Words, places: Numbers, time: int) -> None:
        """Half a minute of everybody's drive, in place."""
        load = self._load[places]
        slower = 10 * (load > _FULL) + 10 * (load > _FULLER) + self._slowed[places]
        ramp = cars["lane"] == 0
        noise = _bits(drawn, 0, 8) % 21 - 10
        target = np.where(ramp, _RAMP + noise // 2, _LIMIT + noise) - slower
        target = np.clip(target, 5, 100)
        most = cars["speed"] + 20 + _bits(drawn, 8, 5)
        speed = np.minimum(target, most)
        # Very seldom a car stands alone for some minutes.
        alone = (_bits(drawn, 16, 16) == 7) & ~ramp
        cars["until"] = np.where(
            alone & (cars["until"] <= time), time + 120 + 30 * _bits(drawn, 8, 3), cars["until"]
        )
        standing = cars["until"] > time
        speed = np.where(standing, 0, speed)
        way = np.where(standing, 0, 22 * (cars["speed"] + speed))
        pos = cars["pos"] + np.where(cars["dir"] == 0, way, -way)
        pos = np.clip(pos, 0, SEGMENTS * _MILE - 1)
        seg = pos // _MILE
        inside = np.where(cars["dir"] == 0, seg >= cars["out"], seg <= cars["out"]) & ~standing
        change = (_bits(drawn, 32, 8) < 102) | (ramp & (seg != cars["in"]))
        lane = np.where(
            change & ~(ramp & (seg == cars["in"])) & ~standing,
            1 + _bits(drawn, 40, 8) % LANES, cars["lane"],
        )  # fmt: skip
        cars["lane"] = np.where(inside, EXIT, lane)
        cars["speed"] = np.where(inside, np.minimum(speed, _ENTRY), speed)
        cars["pos"] = pos

    def _accidents(self, cars: dict[str, Numbers], time: int) -> None:
        """Where one is due, two cars that are near each other stop at one place."""
        for x, due in enumerate(self._due):
            if due > time:
                continue
            able = (cars["x"] == x) & (cars["lane"] > 0) & (cars["lane"] < EXIT)
            rows = np.flatnonzero(able & (cars["until"] <= time))
            places = self._places(cars)[rows]
            order = np.lexsort((cars["pos"][rows], places))
            rows, places = rows[order], places[order]
            near = np.flatnonzero(
                (places[1:] == places[:-1]) & (np.diff(cars["pos"][rows]) < 1_000)
            )
            if not len(near):
                continue
            draw = self._chance[x]
            at = int(near[draw.integers(len(near))])
            one, other = int(rows[at]), int(rows[at + 1])
            until = time + int(draw.integers(600, 1_201))
            for name in ("pos", "lane"):
                cars[name][other] = cars[name][one]
            for each in (one, other):
                cars["speed"][each], cars["until"][each] = 0, until
            self._slowed[places[at]] += 20
            self._cleared.append((until, int(places[at])))
            self._due[x] = until + int(draw.integers(300, 900))

    def _leave(self, vids: Numbers, time: int) -> None:
        drawn = _draw(vids * 16_384 + time, self._road.seed, 4)
        back = _bits(drawn, 0, 16) < 6_554
        when = time + 1_000 + _bits(drawn, 16, 16) % 1_000
        for at in np.unique(when[back]):
            self._back.setdefault(int(at), []).append(vids[back & (when == at)])

    def _entering(self, time: int) -> tuple[dict[str, Numbers], Words]:
        """New cars and those that come back, at the beginning of their first segment."""
        counts = self._arrivals[:, time]
        x = np.repeat(np.arange(self._road.expressways), counts)
        number = np.arange(len(x)) - np.repeat(counts.cumsum() - counts, counts)
        fresh = ((self._road.first + x) << 20) + self._numbered[x] + number
        self._numbered += counts
        # In an order that does not depend on how many expressways there are.
        again = np.sort(np.concatenate([fresh[:0], *self._back.pop(time, [])]))
        vids = np.concatenate([fresh, again])
        drawn = _draw(vids * 16_384 + time, self._road.seed, 2)
        way = _bits(drawn, 0, 1)
        start = _bits(drawn, 1, 16) % (SEGMENTS - 2)  # counted in the direction of the drive
        third = SEGMENTS // 3
        out = start + 2 + _bits(drawn, 17, 16) % (SEGMENTS - 2 - start + 1)
        downtown = third + _bits(drawn, 33, 16) % third
        out = np.where((start < third) & (_bits(drawn, 49, 8) < 205), downtown, out)
        out = np.clip(np.maximum(out, start + 1), 0, SEGMENTS - 1)
        seg = np.where(way == 0, start, SEGMENTS - 1 - start)
        return {
            "vid": vids, "x": (vids >> 20) - self._road.first, "dir": way, "in": seg,
            "out": np.where(way == 0, out, SEGMENTS - 1 - out),
            "pos": seg * _MILE + np.where(way == 0, 0, _MILE - 1),
            "speed": np.full(len(vids), _ENTRY), "lane": np.zeros(len(vids), np.int64),
            "until": np.zeros(len(vids), np.int64),
        }, _draw(drawn.astype(np.int64), self._road.seed, 5)  # fmt: skip

    def _reported(self, cars: dict[str, Numbers], drawn: Words, time: int) -> pa.RecordBatch:
        """Where they are; one in two hundred asks what it owes, one in a thousand what it paid."""
        share = _bits(drawn, 48, 16)
        asks = np.flatnonzero(share < 328 + 66)
        owes = share[asks] < 328
        rows = np.concatenate([np.arange(len(share)), asks])
        kinds = np.concatenate(
            [np.zeros(len(share), np.int64), np.where(owes, BALANCE, EXPENDITURE)]
        )
        count = len(share)
        qid = np.full(len(rows), -1, np.int64)
        qid[count:] = self._numbers(cars["x"][asks])
        day = np.full(len(rows), -1, np.int64)
        day[count:] = np.where(owes, -1, 1 + _bits(drawn[asks], 0, 32) % DAYS)
        columns = {
            "type": kinds, "time": np.full(len(rows), time), "vid": cars["vid"][rows],
            "speed": cars["speed"][rows], "xway": cars["x"][rows] + self._road.first,
            "lane": cars["lane"][rows], "dir": cars["dir"][rows], "seg": cars["pos"][rows] // _MILE,
            "pos": cars["pos"][rows], "qid": qid, "day": day,
        }  # fmt: skip
        return pa.record_batch(
            [pa.array(columns[f.name].astype(f.type.to_pandas_dtype())) for f in SCHEMA],
            schema=SCHEMA,
        )

    def _numbers(self, x: Numbers) -> Numbers:
        """A number for each request: expressway x counts from `x << 20`."""
        order = np.argsort(x, kind="stable")
        counts = np.bincount(x, minlength=len(self._asked))
        place = np.empty(len(x), np.int64)
        place[order] = np.arange(len(x)) - np.repeat(counts.cumsum() - counts, counts)
        found: Numbers = ((self._road.first + x) << 20) + self._asked[x] + place
        self._asked += counts
        return found


def _nobody() -> dict[str, Numbers]:
    names = ("vid", "x", "dir", "in", "out", "pos", "speed", "lane", "until")
    return {name: np.zeros(0, np.int64) for name in names}


def _draw(numbers: Numbers, seed: int, lane: int) -> Words:
    """64 random bits for each number; `lane` makes them others."""
    salt = mix(np.array([(seed << 3) + lane + 1], np.uint64) * _GOLDEN)[0]
    found: Words = mix((numbers.astype(np.uint64) + salt) * _GOLDEN)
    return found


def _bits(drawn: Words, at: int, count: int) -> Numbers:
    """Some of the bits as numbers."""
    found = (drawn >> np.uint64(at)) & np.uint64((1 << count) - 1)
    return found.astype(np.int64)
