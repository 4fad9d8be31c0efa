"""Tweets and operations by row number: any part of a workload without the parts before it.

    row number --> times of its minute        --> at
        |
        +-> draws: mix(seed, lane, row) ------> user, cell, point in the cell, text, op

Invariants:
1. A row is a function of its number and of the workload's settings. How many rows there are, how
   they are split into batches or partitions, and in which order they are made changes nothing.
2. `at` never falls from one row to the next.
3. The number of rows in a second is uniform from 0 to twice the rate. The 60 seconds of a minute
   are 30 of random size and 30 that fill each of these up to twice the rate, in a random order; so
   a minute has exactly 60 * rate rows, and the minute of a row is a division.
4. A point lies inside the cell that is named beside it.

Whole columns at a time, numpy and pyarrow only, so that a Spark worker needs nothing else. What
tweets are like is a `Shape` (shape.py). Frozen; safe from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.workload.shape import LENGTH_LIMIT, Choice, Draws, Shape, mix, new_york
from tideline.workload.words import WORDS

__all__ = ["BATCH_ROWS", "START_US", "Numbers", "Operations", "Tweets"]

START_US = 1_700_000_000_000_000
BATCH_ROWS = 1 << 15
"""Rows at a time that keep the columns being made inside the processor's cache."""

_LIMIT_US = 253_402_300_800_000_000  # the year 10000
_SEED_LIMIT = 1 << 63
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_MINUTE = 60
_USER, _CELL, _POINT, _TEXT, _LENGTH, _MOMENT, _SECOND, _ORDER, _POOL, _RADIUS = range(10)
_TIME = pa.timestamp("us", "UTC")
_POOL_BYTES = 1 << 20
_INLINE = 12  # a text of so many bytes stands inside its view
_HALF = np.uint64(32)

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Tweets:
    """Tweets: who, when, where and what.

    >>> first = Tweets(seed=7).batch(0, 1_000)
    >>> first.schema.names
    ['id', 'user', 'at', 'lon', 'lat', 'cell', 'text']
    >>> Tweets(seed=7).batch(990, 20).slice(0, 10) == first.slice(990)
    True
    """

    seed: int = 0
    shape: Shape = field(default_factory=new_york)
    start_us: int = START_US
    """When the first minute begins."""

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise InvalidRequest("seed must be a whole number", seed=self.seed)
        if not 0 <= self.seed < _SEED_LIMIT:
            raise InvalidRequest("seed must be from 0 to 2^63 - 1", seed=self.seed)
        if not isinstance(self.start_us, int) or not 0 <= self.start_us < _LIMIT_US:
            raise InvalidRequest("start must be from 1970 to 9999", start_us=self.start_us)

    @property
    def schema(self) -> pa.Schema:
        """The columns of a batch."""
        text, number = pa.string(), pa.float64()
        where = {"lon": number, "lat": number, "cell": text}
        return pa.schema({"id": text, "user": text, "at": _TIME, **where, "text": text})

    def batch(self, first: int, count: int) -> pa.RecordBatch:
        """The rows `[first, first + count)`."""
        if first < 0 or count < 0:
            raise InvalidRequest("first and count must not be negative", first=first, count=count)
        return self.rows(np.arange(first, first + count))

    def rows(self, numbers: Numbers) -> pa.RecordBatch:
        """The rows of these numbers, in any order."""
        user = tables_of(self.shape).users.pick(self._draws(numbers, _USER))
        cell, lon, lat = self._places(numbers)
        columns = [
            decimal(numbers),
            decimal(user),
            _timestamps(self._times(numbers)),
            pa.array(lon),
            pa.array(lat),
            tables_of(self.shape).names.take(pa.array(cell)),
            self._texts(numbers, None),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def check(self, limit: int) -> None:
        """`InvalidRequest` unless the rows below `limit` end before the year 10000."""
        if self.start_us + (limit // self.shape.rate + 2 * _MINUTE) * 1_000_000 > _LIMIT_US:
            raise InvalidRequest(
                "the workload must end before the year 10000: raise the rate",
                rows=limit, rate=self.shape.rate,
            )  # fmt: skip

    def settings(self) -> dict[str, Any]:
        """What the rows depend on, as JSON can hold it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": type(self).__name__.lower(), **values, "shape": self.shape.digest}

    # ---- columns ------------------------------------------------------------------------

    def _draws(self, numbers: Numbers, lane: int) -> Draws:
        """A random number for each row, others in every lane."""
        keys = np.array([(self.seed * _GOLDEN + lane + 1) & _WORD], np.uint64)
        return mix(numbers.view(np.uint64) * np.uint64(_GOLDEN) + mix(keys * np.uint64(_GOLDEN)))

    def _times(self, numbers: Numbers) -> Numbers:
        """When each row happens, in microseconds."""
        if not len(numbers):
            return np.zeros(0, np.int64)
        rate = self.shape.rate
        self.check(int(numbers.max()))
        minutes = _distinct(numbers // (_MINUTE * rate))
        seconds = minutes[:, None] * _MINUTE + np.arange(_MINUTE)
        half = _MINUTE // 2
        size = self._draws(seconds[:, :half].ravel(), _SECOND).reshape(-1, half) >> _HALF
        size = size * np.uint64(2 * rate + 1) >> _HALF
        sizes = np.hstack((size.view(np.int64), 2 * rate - size.view(np.int64)))
        order = np.argsort(self._draws(seconds.ravel(), _ORDER).reshape(seconds.shape), axis=1)
        sizes = np.take_along_axis(sizes, order, axis=1)
        starts = np.cumsum(sizes, axis=1) - sizes + minutes[:, None] * (_MINUTE * rate)

        second = np.searchsorted(starts.ravel(), numbers, "right") - 1
        rank = numbers - starts.ravel()[second]
        jitter = (self._draws(numbers, _MOMENT) >> _HALF) * np.uint64(1_000_000) >> _HALF
        within = (rank * 1_000_000 + jitter.view(np.int64)) // sizes.ravel()[second]
        found: Numbers = seconds.ravel()[second] * 1_000_000 + within + self.start_us
        return found

    def _places(self, numbers: Numbers) -> tuple[Numbers, NDArray[np.float64], NDArray[np.float64]]:
        """Cell number, longitude and latitude of each row."""
        grid = self.shape.grid
        west, south, east, north = grid.bounds
        cell = tables_of(self.shape).cells.pick(self._draws(numbers, _CELL))
        draws = self._draws(numbers, _POINT)
        row, col = np.divmod(cell, grid.cols)
        x = col + ((draws >> _HALF) + 0.5) * 2.0**-32
        y = row + ((draws & np.uint64(0xFFFFFFFF)) + 0.5) * 2.0**-32
        lon, lat = west + x * ((east - west) / grid.cols), south + y * ((north - south) / grid.rows)
        return cell, lon, lat

    def _texts(self, numbers: Numbers, wanted: NDArray[np.bool_] | None) -> pa.Array:
        """A text for each row that is wanted, null for the others."""
        pool = word_pool()
        size = tables_of(self.shape).lengths.pick(self._draws(numbers, _LENGTH))
        words = np.uint64(len(pool.starts))
        word = ((self._draws(numbers, _TEXT) >> _HALF) * words >> _HALF).view(np.int64)
        start = pool.starts[word]
        size = np.maximum(pool.ends[start + size], pool.first_ends[word]) - start
        if wanted is not None:
            size *= wanted
        return pool.slices(start, size, wanted)


@dataclass(frozen=True)
class Operations(Tweets):
    """The tweets as operations, as the table `Channel.apply` takes.

    Each tweet is a subscription of its user or an event, `subscriptions` to `events` of them.
    A subscription watches from `back_s` before its time to `ahead_s` after it; an event stays
    valid for `valid_s`. The place is the cell's name. With `place="circle"` an event is at its
    point and a subscription watches a circle around its own, a quarter of a cell's side to four
    sides wide.

    >>> batch = Operations(seed=7).batch(0, 4)
    >>> batch.schema.names
    ['op', 'id', 'place', 'user', 'at', 'since', 'until', 'body']
    >>> batch.column("op").to_pylist()
    ['subscribe', 'subscribe', 'publish', 'publish']
    """

    subscriptions: int = 3
    events: int = 1
    back_s: float = 10.0
    ahead_s: float = 10.0
    valid_s: float = 20.0
    place: str = "cell"

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = (self.subscriptions, self.events)
        if not all(isinstance(n, int) and 0 <= n <= 1_000_000 for n in shares) or not any(shares):
            raise InvalidRequest(
                "subscriptions and events must be whole numbers, not both 0",
                subscriptions=self.subscriptions, events=self.events,
            )  # fmt: skip
        if not (self.back_s >= 0 and self.ahead_s > 0 and self.valid_s > 0):
            raise InvalidRequest(
                "back_s must not be negative, ahead_s and valid_s must be positive",
                back_s=self.back_s, ahead_s=self.ahead_s, valid_s=self.valid_s,
            )  # fmt: skip
        if self.place not in ("cell", "circle"):
            raise InvalidRequest("place must be 'cell' or 'circle'", place=self.place)

    @property
    def schema(self) -> pa.Schema:
        text, number = pa.string(), pa.float64()
        circle = {"lon": number, "lat": number, "radius_m": number}
        place = {"place": text} if self.place == "cell" else circle
        times = {"at": _TIME, "since": _TIME, "until": _TIME}
        return pa.schema({"op": text, "id": text, **place, "user": text, **times, "body": text})

    def rows(self, numbers: Numbers) -> pa.RecordBatch:
        tables = tables_of(self.shape)
        shares = np.uint64(self.subscriptions + self.events)
        # The low half: the high half of this draw is the moment.
        side = (self._draws(numbers, _MOMENT) & np.uint64(0xFFFFFFFF)) * shares >> _HALF
        event = side >= np.uint64(self.subscriptions)
        at = self._times(numbers)
        user = tables.users.pick(self._draws(numbers, _USER))
        cell, lon, lat = self._places(numbers)
        if self.place == "cell":
            place = [tables.names.take(pa.array(cell))]
        else:
            place = [pa.array(lon), pa.array(lat), self._radii(numbers, event)]
        back, ahead, valid = (round(s * 1e6) for s in (self.back_s, self.ahead_s, self.valid_s))
        body = pc.binary_join_element_wise('{"text":"', self._texts(numbers, event), '"}', "")
        columns = [
            pa.array(["subscribe", "publish"]).take(pa.array(event.view(np.int8))),
            decimal(numbers),
            *place,
            decimal(user, event),
            _timestamps(at),
            _timestamps(at - back, event),
            _timestamps(at + np.where(event, valid, ahead)),
            body,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _radii(self, numbers: Numbers, event: NDArray[np.bool_]) -> pa.Array:
        """How far each subscription sees, in metres: the side of a cell, doubled or halved."""
        _, south, _, north = self.shape.grid.bounds
        side_m = round((north - south) / self.shape.grid.rows * 111_195)
        step = (self._draws(numbers, _RADIUS) >> _HALF) * np.uint64(5) >> _HALF
        return pa.array(side_m * np.array([0.25, 0.5, 1, 2, 4])[step.view(np.int64)], mask=event)


def _distinct(numbers: Numbers) -> Numbers:
    """The distinct numbers in order; quick when they are few and close together."""
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < 256:
        return np.arange(low, high + 1)
    return np.unique(numbers)


def decimal(numbers: Numbers, null: NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(numbers, mask=null).cast(pa.string())


def _timestamps(us: Numbers, null: NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(us, mask=null).cast(_TIME)


class _Tables:
    """What draws are looked up in."""

    def __init__(self, shape: Shape) -> None:
        self.users = Choice(shape.users)
        self.cells = Choice(shape.cells)
        self.lengths = Choice(shape.lengths)
        row, col = np.divmod(np.arange(len(shape.cells)), shape.grid.cols)
        self.names = pc.binary_join_element_wise(decimal(row), decimal(col), ".")


@lru_cache(maxsize=4)
def tables_of(shape: Shape) -> _Tables:
    return _Tables(shape)


class _Pool:
    """A stretch of words, of which every text is a piece, from one word to another.

    >>> pool = word_pool()
    >>> pool.slices(pool.starts[:2], pool.first_ends[:2] - pool.starts[:2], None).to_pylist()
    ['this', 'and']
    """

    def __init__(self) -> None:
        ranks = np.arange(len(WORDS))
        often = Choice(np.rint((1 << 20) / (ranks + 3.0)).astype(np.int64))
        numbers = np.arange(_POOL_BYTES // 4, dtype=np.int64).view(np.uint64)
        picked = often.pick(mix(numbers * np.uint64(_GOLDEN) + np.uint64(_POOL)))
        text = " ".join([WORDS[word] for word in picked])[:_POOL_BYTES].encode()
        self.bytes = np.frombuffer(text, np.uint8)
        spaces = np.flatnonzero(self.bytes == ord(" "))
        # The last word end at or before each byte.
        ends = np.zeros(len(self.bytes), np.int64)
        ends[spaces] = spaces
        self.ends = np.maximum.accumulate(ends)
        usable = int(np.searchsorted(spaces, len(self.bytes) - LENGTH_LIMIT - 64))
        self.starts = np.concatenate(([0], spaces[: usable - 1] + 1))
        self.first_ends = spaces[:usable]

    def slices(self, start: Numbers, size: Numbers, valid: NDArray[np.bool_] | None) -> pa.Array:
        """The pieces as texts: views of the pool first, copied row by row by Arrow."""
        count = len(start)
        views = np.zeros((count, 4), np.int32)
        views[:, 0] = size
        data = self.bytes
        words = np.ndarray((len(data) - 3,), "<i4", data, strides=(1,))
        views[:, 1] = words[start]
        views[:, 3] = start
        views[size == 0] = 0
        short = np.flatnonzero((size > 0) & (size <= _INLINE))
        inside = data[start[short, None] + np.arange(_INLINE)]
        inside = inside * (np.arange(_INLINE) < size[short, None])
        views[short, 1:] = inside.astype(np.uint8).view("<i4")
        there = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        buffers = [there, pa.py_buffer(views), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.string_view(), count, buffers).cast(pa.string())


@lru_cache(maxsize=1)
def word_pool() -> _Pool:
    return _Pool()
