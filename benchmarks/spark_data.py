"""The data of the Spark benchmarks, as Parquet files in the order they are to be read.

Subscriptions and events come evenly over time, each at a place drawn from many. A subscription
looks `BACK_S` back and `AHEAD_S` ahead of its `at`; an event stays valid for `VALID_S`. One file
is one micro-batch. Times begin at `START`, ids are numbers as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.spark_common import write_file

__all__ = ["AHEAD_S", "BACK_S", "START", "VALID_S", "MatchData", "make", "pairs"]

BACK_S = 10
AHEAD_S = 10
VALID_S = 20
START = datetime(2024, 1, 1, tzinfo=UTC)
_SECOND_US = 1_000_000
Column = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class MatchData:
    """Where the files are, and what was drawn: `at` in microseconds after START."""

    folder: Path
    files: int
    sub_at: Column
    sub_place: Column
    event_at: Column
    event_place: Column

    @property
    def rows(self) -> int:
        return len(self.sub_at) + len(self.event_at)


def make(
    folder: Path, per_side: int, *, places: int, seconds: float, files: int, seed: int = 42
) -> MatchData:
    """Write `folder/subscriptions` and `folder/events`."""
    random = np.random.default_rng(seed)
    span_us = int(seconds * _SECOND_US)
    drawn = {}
    for kind in ("subscriptions", "events"):
        at = np.sort(random.integers(0, span_us, per_side))
        drawn[kind] = (at, random.integers(0, places, per_side))
        (folder / kind).mkdir(parents=True)
        ends = np.searchsorted(at, np.arange(files + 1) * (span_us / files))
        for number in range(files):
            rows = slice(int(ends[number]), int(ends[number + 1]))
            table = _table(kind, *(column[rows] for column in drawn[kind]), rows)
            write_file(table, folder / kind / f"{number:04}.parquet", number)
    return MatchData(folder, files, *drawn["subscriptions"], *drawn["events"])


def _table(kind: str, at: Column, place: Column, rows: slice) -> pa.Table:
    number = pa.array(np.arange(rows.start, rows.stop))
    columns = {"id": number.cast(pa.string()), "place": pa.array(place).cast(pa.string())}
    if kind == "subscriptions":
        columns["user"] = pa.array(number.to_numpy() % 100_000).cast(pa.string())
        times = {"at": 0, "since": -BACK_S, "until": AHEAD_S}
    else:
        columns["body"] = pa.repeat('{"kind":"jam","speed":20}', len(at))
        times = {"at": 0, "until": VALID_S}
    start_us = int(START.timestamp()) * _SECOND_US
    for name, shift_s in times.items():
        columns[name] = pa.array(start_us + at + shift_s * _SECOND_US, pa.timestamp("us", "UTC"))
    return pa.table(columns)


def pairs(data: MatchData) -> Column:
    """What the contract asks for, worked out by numpy: subscription << 32 | event, sorted."""
    wide = 1 << 42  # more microseconds than a run has
    by_place = np.lexsort((data.event_at, data.event_place))
    have = data.event_place[by_place] * wide + data.event_at[by_place]
    base = data.sub_place * wide + data.sub_at
    first = np.searchsorted(have, base - BACK_S * _SECOND_US, "left")
    first = np.maximum(first, np.searchsorted(have, data.sub_place * wide, "left"))
    limit = np.searchsorted(have, base + AHEAD_S * _SECOND_US, "left")
    count = limit - first
    subs = np.repeat(np.arange(len(base)), count)
    start = np.repeat(first - (np.cumsum(count) - count), count)
    events = by_place[start + np.arange(len(subs))]
    return np.sort(subs << 32 | events)
