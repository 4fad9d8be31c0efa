"""The format `traffic`: drivers and incidents over New York State, as they happen.

    spark.readStream.format("traffic").option("drivers", 5000).load()

An offset is a time, and what lies between two of them is a function of those two alone
(workload/fleet.py): a micro-batch that Spark reads again is the same. Rows are operations,
with the columns of `Channel.apply`. The demo reads it (demo_spark.py).

`most_s` bounds a batch to so many seconds of traffic. What a late batch cannot hold is not made:
traffic stands still for as long, and the stream never falls behind. So the load is what the machine
keeps up with. An offset then says how long it stood still as well:

    offset := us (of traffic)  start_us (the time that is 0 us)
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as D

from tideline.errors import InvalidRequest
from tideline.workload.fleet import Fleet

__all__ = ["TrafficSource"]

_SCHEMA = (
    "op string, id string, lon double, lat double, radius_m double, user string, at timestamp, "
    "since timestamp, until timestamp, body string, unseen boolean"
)
_NUMBERS = {"drivers": int, "seed": int, "start_us": int, "drivers_s": float,
            "incidents_s": float, "radius_m": float, "ahead_s": float, "hurry": float,
            "spread_m": float, "most_s": float}  # fmt: skip
_TEXTS = ("name",)


class TrafficSource(D.DataSource):
    """Options are the fields of `Fleet`; `start_us` is the time of the first row (now).

    `most_s`: a batch holds at most so many seconds of traffic (no bound).
    """

    @classmethod
    def name(cls) -> str:
        return "traffic"

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: object) -> TrafficReader:  # noqa: N802
        return TrafficReader(self.options)


class Stretch(D.InputPartition):
    """What one task makes: the rows of a stretch of time."""

    def __init__(self, first_us: int, limit_us: int, start_us: int) -> None:
        self.first_us = first_us
        self.limit_us = limit_us
        self.start_us = start_us


class TrafficReader(D.DataSourceStreamReader):
    """Makes what has happened since the offset before."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given: dict[str, Any] = {}
        for name, text in options.items():
            if name.lower() in _TEXTS:
                given[name.lower()] = text
                continue
            kind = {key.lower(): (key, kind) for key, kind in _NUMBERS.items()}.get(name.lower())
            if kind is None:
                raise InvalidRequest(
                    f"the format traffic has no option {name}: it has "
                    + ", ".join((*_NUMBERS, *_TEXTS))
                )
            try:
                given[kind[0]] = kind[1](text)
            except ValueError:
                raise InvalidRequest(f"the option {name} must be a number", given=text) from None
        self._start_us = given.pop("start_us", None)
        most_s = given.pop("most_s", math.inf)
        if not most_s > 0:
            raise InvalidRequest("the option most_s must be over 0", given=most_s)
        self._most_us = most_s * 1e6
        self._fleet = Fleet(**given)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        # Without start_us the stream begins now, and the checkpoint remembers when that was.
        now_us = time.time_ns() // 1000
        return {"us": 0, "start_us": now_us if self._start_us is None else self._start_us}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802
        now_us, began = time.time_ns() // 1000, start["start_us"]
        us = max(start["us"], now_us - began)
        if us - start["us"] > self._most_us:
            us = start["us"] + round(self._most_us)
            began = now_us - us
        return {"us": us, "start_us": began}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Stretch]:
        if start["us"] == end["us"]:
            return []
        return [Stretch(start["us"], end["us"], end["start_us"])]

    def read(self, partition: D.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretch)
        yield self._fleet.operations(partition.first_us, partition.limit_us, partition.start_us)
