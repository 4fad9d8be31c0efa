"""A batch of operations as PostgreSQL is told it: columns in its binary format, split by table.

    operations --> subs:   Copy (all columns), arrays (what a search needs)
               --> events: the same

The columns `seq`, `now` and `bucket` depend on what came before, so they are put in when the batch
is applied. A bucket is the partition of a row: see postgres.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.peers import postgres_sql
from benchmarks.peers.postgres_wire import Copy, array_bytes
from tideline.clock import FOREVER
from tideline.space.shapes import EARTH_RADIUS_M

__all__ = ["ARRAYS", "ARRAY_OF", "Batch", "Side", "bucket_of", "buckets_of", "operation"]

Numbers = NDArray[np.int64]
ARRAYS = {"bigint": 1016, "float8": 1022, "bool": 1000, "text": 1009}
"""PostgreSQL's numbers of the types of arrays."""


class _Array(bytes):
    """A parameter that is in the server's format already."""


ARRAY_OF = {kind: type(f"_{kind}Array", (_Array,), {}) for kind in ARRAYS}


@dataclass
class Side:
    """The rows of a batch that go to one table."""

    rows: Numbers
    """Their places in the batch."""
    ends: Numbers
    values: dict[str, Any]
    """By column; `seq`, `now` and `bucket` are put in when they are applied."""
    copy: Copy
    sent: dict[str, Any]
    """What a search is told of them, in the server's format."""


@dataclass
class Batch:
    at: Numbers
    sides: dict[str, Side]
    """By table; a table without rows is not there."""
    one: dict[str, Any] | None = None
    """The arguments of a call, when it is a single operation."""

    @classmethod
    def of(cls, operations: pa.RecordBatch, shapes: bool) -> Batch:
        """Operations as `tideline.Channel.apply` takes them."""
        event = pc.equal(operations["op"], "publish").to_numpy(zero_copy_only=False)
        values = _values(operations, shapes)
        sides: dict[str, Side] = {}
        for table, mask in (("subs", ~event), ("events", event)):
            if mask.any():
                names = postgres_sql.columns(shapes)[table]
                chosen = {name: _chosen(values[name], mask) for name in names}
                sides[table] = _side(table, np.flatnonzero(mask), chosen, shapes)
        if len(event) != 1:
            return cls(values["at"], sides)
        [side] = sides.values()
        one = {
            name: value.item() if isinstance(value, np.ndarray) else value[0].as_py()
            for name, value in side.values.items()
        }
        return cls(values["at"], sides, one | {"arrived": int(values["at"][0])})


def _values(operations: pa.RecordBatch, shapes: bool) -> dict[str, Any]:
    """All columns of both tables."""
    names = operations.schema.names
    zeros = np.zeros(operations.num_rows, np.int64)
    at = _times(operations["at"], 0)
    values: dict[str, Any] = {"seq": zeros, "now": zeros, "bucket": zeros, "at": at, "since": at}
    values["id"] = pc.cast(operations["id"], pa.int64())
    values["until"] = _times(operations["until"], FOREVER)
    if "since" in names:
        since = operations["since"]
        values["since"] = np.where(since.is_null(), at, _times(since, 0))
    values["unseen"] = np.zeros(operations.num_rows, np.bool_)
    if "unseen" in names:
        unseen = pc.fill_null(operations["unseen"].cast(pa.bool_()), False)
        values["unseen"] = unseen.to_numpy(zero_copy_only=False)
    for name, column in (("username", "user"), ("body", "body"), ("place", "place")):
        if column in names:
            values[name] = operations[column]
    return values | _circles(operations) if shapes else values


def _side(table: str, rows: Numbers, values: dict[str, Any], shapes: bool) -> Side:
    kinds = postgres_sql.columns(shapes)[table]
    asked = [name for name in postgres_sql.asked(table, shapes) if name not in ("r", "now")]
    sent = {name: ARRAY_OF[kinds[name]](array_bytes(values[name])) for name in asked}
    return Side(rows, values["until"], values, Copy([values[name] for name in kinds]), sent)


def buckets_of(ends: Numbers, arrived: Numbers, span: int) -> Numbers:
    """The bucket of each row: after its end and after it arrived, for a few partitions a life."""
    ends = np.maximum(ends, arrived + 1)
    life = np.maximum(ends - arrived, max(span, 2)) // 2
    _, power = np.frexp(np.minimum(life, 1 << 52).astype(np.float64))
    width = np.int64(1) << power.astype(np.int64)
    return np.where(ends >= FOREVER, FOREVER, -(-ends // width) * width)


def bucket_of(end: int, arrived: int) -> int:
    """The same of one row."""
    end = max(end, arrived + 1)
    width = 1 << min(max(end - arrived, 2) // 2, 1 << 52).bit_length()
    return FOREVER if end >= FOREVER else -(-end // width) * width


def _chosen(values: Any, mask: NDArray[np.bool_]) -> Any:
    if isinstance(values, np.ndarray):
        return values[mask]
    chosen = values.filter(pa.array(mask))
    return chosen.to_numpy() if pa.types.is_integer(chosen.type) else chosen


def _times(column: pa.Array, missing: int) -> Numbers:
    us = pc.fill_null(column.cast(pa.timestamp("us")).view(pa.int64()), missing)
    return np.asarray(us.to_numpy(zero_copy_only=False), np.int64)


def _circles(operations: pa.RecordBatch) -> dict[str, NDArray[np.float64]]:
    """Points and circles, with bounds that are no smaller than the circle."""
    lon, lat, radius = (
        pc.fill_null(operations[name], 0.0).to_numpy(zero_copy_only=False)
        for name in ("lon", "lat", "radius_m")
    )
    angle = np.minimum(radius / EARTH_RADIUS_M * (1 + 1e-8) + 1e-9, np.pi)
    high = np.degrees(angle)
    with np.errstate(invalid="ignore", divide="ignore"):
        wide = np.degrees(np.arcsin(np.sin(angle) / np.cos(np.radians(lat))))
    pole = np.abs(lat) + high >= 90.0
    # A circle that holds a pole or crosses the date line may be at any longitude.
    around = pole | np.isnan(wide) | (lon - wide < -180.0) | (lon + wide > 180.0)
    west, east = np.where(around, -180.0, lon - wide), np.where(around, 180.0, lon + wide)
    bounds = {"w": west, "s": lat - high, "e": east, "n": lat + high}
    return {"lon": lon, "lat": lat, "radius": radius} | bounds


def operation(op: str, number: int, at: int, shapes: bool) -> pa.RecordBatch:
    """One operation at a place of its own, for `deliver`."""
    place = {"lon": [0.0], "lat": [0.0], "radius_m": [1.0]} if shapes else {"place": ["deliver"]}
    moments = {"at": at, "since": at, "until": at + 3_600_000_000}
    row = {"op": [op], "id": [str(number)], "user": ["deliver"], "body": ["{}"], **place}
    times = {name: pa.array([us], pa.timestamp("us", "UTC")) for name, us in moments.items()}
    return pa.RecordBatch.from_pydict(row | times)
