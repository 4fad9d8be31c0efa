"""Operations as the columns that Redis commands are made of, and replies back as columns.

    member of a subscription := since | id | user [| until | lon | lat | radius]   score: until
    member of an event       := until | id        [| at | lon | lat]               score: at
    (8 bytes each, big end first; on a map the score is Redis's geohash, and `x` keys have until)

Everything an answer needs is in the member, so one range read answers, and numpy reads the joined
members in place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.peers.base import Cannot
from tideline.clock import FOREVER

__all__ = ["EVENT", "SUBSCRIPTION", "TIME", "Found", "Rows", "read_rows", "select"]

TIME = Struct(">q").pack
EVENT = (Struct(">qq").pack, Struct(">qqqdd").pack)
"""Of a key, of a point."""
SUBSCRIPTION = (Struct(">qqq").pack, Struct(">qqqqddd").pack)
"""Of a key, of a circle."""
_EVENT_TYPE = (
    np.dtype([("until", ">i8"), ("id", ">i8")]),
    np.dtype([("until", ">i8"), ("id", ">i8"), ("at", ">i8"), ("lon", ">f8"), ("lat", ">f8")]),
)
_SUBSCRIPTION_TYPE = (
    np.dtype([("since", ">i8"), ("id", ">i8"), ("user", ">i8")]),
    np.dtype([
        ("since", ">i8"), ("id", ">i8"), ("user", ">i8"), ("until", ">i8"), ("lon", ">f8"),
        ("lat", ">f8"), ("radius", ">f8"),
    ]),
)  # fmt: skip
EARTH_RADIUS_M = 6_371_008.8


@dataclass(frozen=True)
class Rows:
    """The columns of a batch. Times in microseconds; `place` for keys, `lon`... for a map."""

    event: np.ndarray
    id: np.ndarray
    user: list[int]
    at: np.ndarray
    since: np.ndarray
    until: np.ndarray
    body: list[bytes | None]
    place: list[bytes]
    lon: np.ndarray
    lat: np.ndarray
    radius: np.ndarray
    unseen: list[bool]

    def __len__(self) -> int:
        return len(self.event)


@dataclass(frozen=True)
class Found:
    """Answers: the row, and the other side's id."""

    rows: Rows
    row: np.ndarray
    other: np.ndarray


def read_rows(batch: pa.RecordBatch, *, shapes: bool) -> Rows:
    """The columns of a batch of operations."""
    names = batch.schema.names
    count = batch.num_rows

    def numbers(name: str, missing: int | np.ndarray) -> np.ndarray:
        if name not in names:
            return np.broadcast_to(np.asarray(missing, np.int64), count)
        column = batch.column(name).cast(pa.int64())
        filled = column.fill_null(0).to_numpy(zero_copy_only=False)
        return np.where(column.is_valid().to_numpy(zero_copy_only=False), filled, missing)

    def metres(name: str) -> np.ndarray:
        if not shapes or name not in names:
            return np.full(count, math.nan)
        column = batch.column(name).cast(pa.float64()).fill_null(math.nan)
        return column.to_numpy(zero_copy_only=False)

    op = batch.column("op").cast(pa.string())
    event = pc.equal(op, "publish").to_numpy(zero_copy_only=False)
    if not pc.all(pc.is_in(op, pa.array(["publish", "subscribe"]))).as_py():
        raise Cannot("the operations of a side-by-side run are publish and subscribe")
    at = numbers("at", 0)
    users = batch.column("user").to_pylist() if "user" in names else [None] * count
    place = [] if shapes else [text.encode() for text in batch.column("place").to_pylist()]
    body = batch.column("body").to_pylist() if "body" in names else [None] * count
    unseen = [False] * count
    if "unseen" in names:
        unseen = batch.column("unseen").fill_null(False).to_pylist()
    return Rows(
        event, numbers("id", 0), [_user(text) for text in users], at, numbers("since", at),
        numbers("until", FOREVER), [None if text is None else text.encode() for text in body],
        place, metres("lon"), metres("lat"), metres("radius_m"), unseen,
    )  # fmt: skip


def _user(text: str | None) -> int:
    """A user as 8 bytes: the number that is written, else a hash of the text."""
    if text is None:
        return 0
    if text.isdecimal() and len(text) < 19:
        return int(text)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def select(rows: Rows, now: np.ndarray, lists: list[list[bytes]], radii: int) -> Found:
    """Of the members that the ranges gave, those that answer.

    `lists` has one for each row; on a map (`radii` is not 0) so many for each event.
    """
    shapes = radii > 0
    row_of = np.repeat(np.arange(len(rows)), np.where(rows.event, radii, 1) if shapes else 1)
    if len(row_of) != len(lists):
        raise RuntimeError("Redis gave another number of lists than it was asked for")
    sizes = np.fromiter(map(len, lists), np.int64, len(lists))
    parts = []
    for event in (True, False):
        chosen = np.flatnonzero((rows.event[row_of] == event) & (sizes > 0))
        mine = [lists[number] for number in chosen.tolist()]
        row = np.repeat(row_of[chosen], sizes[chosen])
        kinds: Any = _SUBSCRIPTION_TYPE if event else _EVENT_TYPE
        size = kinds[shapes].itemsize
        joined = b"".join(chain.from_iterable(mine))
        if len(joined) != size * len(row):  # some were stored with a tail, for `unseen`
            joined = b"".join([member[:size] for member in chain.from_iterable(mine)])
        member = np.frombuffer(joined, kinds[shapes])
        parts.append(_sieve(rows, now, event, row, member, shapes))
    return Found(rows, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _sieve(
    rows: Rows, now: np.ndarray, event: bool, row: np.ndarray, member: np.ndarray, shapes: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Row and id of those members that answer."""
    good = member["since"] <= rows.at[row] if event else member["until"] > now[row]
    if shapes:
        mine, theirs = (rows.lon[row], rows.lat[row]), (member["lon"], member["lat"])
        radius = member["radius"] if event else rows.radius[row]
        good = good & (_metres(*mine, *theirs) <= radius)
        if event:
            good &= member["until"] > now[row]
        else:
            good &= (member["at"] >= rows.since[row]) & (member["at"] < rows.until[row])
    return row[good], member["id"][good].astype(np.int64)


def _metres(lon1: Any, lat1: Any, lon2: Any, lat2: Any) -> np.ndarray:
    """Great-circle distances."""
    x1, y1, x2, y2 = (np.radians(degrees.astype(float)) for degrees in (lon1, lat1, lon2, lat2))
    h = np.sin((y2 - y1) / 2) ** 2 + np.cos(y1) * np.cos(y2) * np.sin((x2 - x1) / 2) ** 2
    far: np.ndarray = 2.0 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.minimum(1.0, h)))
    return far
