"""Workload files of the limit reference: a flat channel's operations as columns.

    file   := header | t i64[n] | uid u64[n] | cell u32[n] | doff u32[n] | dlen u16[n]
              | type u8[n] (0 = subscribe, 1 = publish) | pool u8[pool_len]
    header := n u64 | pool_len u64 | warm u64 | 0 u64                 all little-endian

Row i is operation i at time `t[i]` (us) in cell `cell[i]` by user `uid[i]`; the text of
an event is `pool[doff:doff+dlen]`, letters a to z and spaces. A subscription's window
is [t - BACK_US, t + AHEAD_US); an event is valid for VALID_US. The first `warm`
operations fill the store and are not timed.

The columns are views of a memory map; nothing here writes to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.errors import InvalidRequest

__all__ = [
    "AHEAD_US",
    "BACK_US",
    "VALID_US",
    "LimitFile",
    "count_answers",
    "read",
    "table",
    "write",
]

BACK_US = 10_000_000
AHEAD_US = 10_000_000
VALID_US = 20_000_000
START_US = 1_700_000_000_000_000
_SIDE = 500  # cells along one side of the map
_HEADER_BYTES = 32
_COLUMNS = {"t": "<i8", "uid": "<u8", "cell": "<u4", "doff": "<u4", "dlen": "<u2", "type": "u1"}
_ROW_BYTES = sum(np.dtype(kind).itemsize for kind in _COLUMNS.values())
Column = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class LimitFile:
    """The columns of one file, in order of time."""

    n: int
    warm: int
    t: Column
    uid: Column
    cell: Column
    doff: Column
    dlen: Column
    type: Column
    pool: Column


def read(path: str | Path) -> LimitFile:
    """Map a workload file; `InvalidRequest` if it is not one."""
    data = np.memmap(path, np.uint8, mode="r")
    if len(data) < _HEADER_BYTES:
        raise InvalidRequest("not a workload file: too short", path=str(path))
    n, pool_len, warm, _ = (int(x) for x in data[:_HEADER_BYTES].view("<u8"))
    if len(data) != _HEADER_BYTES + n * _ROW_BYTES + pool_len:
        raise InvalidRequest("not a workload file: its length is wrong", path=str(path), n=n)
    position = _HEADER_BYTES
    columns: dict[str, Column] = {}
    for name, kind in _COLUMNS.items():
        columns[name] = np.frombuffer(data, kind, n, position)
        position += columns[name].nbytes
    pool = np.frombuffer(data, np.uint8, pool_len, position)
    if not (((pool >= ord("a")) & (pool <= ord("z"))) | (pool == ord(" "))).all():
        raise InvalidRequest("not a workload file: texts must be a-z and spaces", path=str(path))
    return LimitFile(n=n, warm=warm, pool=pool, **columns)


def table(workload: LimitFile, start: int, limit: int) -> pa.Table:
    """Operations [start, limit) as the table `Channel.apply` takes.

    Ids are row numbers, places are cell numbers, both as text.
    """
    rows = slice(start, limit)
    t = workload.t[rows]
    event = workload.type[rows] == 1
    names = pa.array(["subscribe", "publish"])
    body = pc.binary_join_element_wise(
        pa.scalar('{"text":"'), _texts(workload, rows, event), pa.scalar('"}'), pa.scalar("")
    )
    return pa.table(
        {
            "op": names.take(pa.array(workload.type[rows])),
            "id": pa.array(np.arange(start, start + len(t))).cast(pa.string()),
            "place": pa.array(workload.cell[rows]).cast(pa.string()),
            "user": pa.array(workload.uid[rows], mask=event).cast(pa.string()),
            "at": _times(t),
            "since": _times(t - BACK_US, mask=event),
            "until": _times(t + np.where(event, VALID_US, AHEAD_US)),
            "body": body,
        }
    )


def _texts(workload: LimitFile, rows: slice, event: Column) -> pa.Array:
    """The texts of events, null for subscriptions, gathered from the pool at once."""
    sizes = np.where(event, workload.dlen[rows], 0).astype(np.int64)
    ends = np.cumsum(sizes)
    shift = np.repeat(workload.doff[rows].astype(np.int64) - (ends - sizes), sizes)
    data = workload.pool[shift + np.arange(len(shift))]
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    valid = np.packbits(event, bitorder="little")
    return pa.StringArray.from_buffers(
        len(sizes), pa.py_buffer(offsets), pa.py_buffer(data), pa.py_buffer(valid)
    )


def _times(us: Column, mask: Column | None = None) -> pa.Array:
    return pa.array(us.astype("datetime64[us]"), pa.timestamp("us"), mask=mask)


def count_answers(
    workload: LimitFile, start: int, limit: int, *, until_closed: bool = False
) -> Column:
    """How many answers each operation of [start, limit) gets when all before it ran.

    Follows from the contract: here an event and a subscription of one cell meet
    when the later comes within 10 s. `until_closed` counts a subscription at the very
    moment it ends, as limit.cpp does.
    """
    t, cell, event = workload.t[:limit], workload.cell[:limit], workload.type[:limit] == 1
    base = np.int64(workload.t[0]) - BACK_US - AHEAD_US

    def keys(chosen: Column, shift_us: int) -> Column:
        # One integer that sorts by cell, then time.
        return (cell[chosen].astype(np.int64) << 40) + (t[chosen] - base + shift_us)

    counts = np.zeros(limit, np.int64)
    for asking, stored, back_us, side in [
        (event, ~event, AHEAD_US, "left" if until_closed else "right"),
        (~event, event, BACK_US, "left"),  # since <= at: closed
    ]:
        have = np.sort(keys(stored, 0))
        first = np.searchsorted(have, keys(asking, -back_us), side)  # type: ignore[call-overload]
        counts[asking] = np.searchsorted(have, keys(asking, 0), "left") - first
    return counts[start:]


def write(path: str | Path, n: int, *, rate: float, subscriptions: float, seed: int = 42) -> None:
    """Make a workload like the limit tool's, for machines without a C++ compiler.

    `rate` operations a second of simulated time, `subscriptions` of them (0 to 1)
    subscribe. Zipf-Mandelbrot (s=1, q=20) over 500x500 cells, hot cells side by side as
    in cities. The same distribution as the limit tool's, not the same bytes.
    """
    random = np.random.default_rng(seed)
    cities = np.vstack(
        [[440, 60, 1.0], *random.uniform((0, 0, 0.05), (_SIDE, _SIDE, 0.3), (12, 3))]
    )
    y, x = np.divmod(np.arange(_SIDE * _SIDE), _SIDE)
    far = np.min([np.hypot(x - cx, y - cy) / weight for cx, cy, weight in cities], axis=0)
    by_rank = np.argsort(far * random.uniform(0.3, 1.7, len(x)), kind="stable")
    share = np.cumsum(1 / (np.arange(len(x)) + 1 + 20.0))
    ranks = np.searchsorted(share, random.random(n) * share[-1])

    pool_len = 1 << 20
    pool = random.integers(ord("a"), ord("z") + 1, pool_len).astype(np.uint8)
    pool[np.cumsum(random.integers(3, 12, pool_len // 12))] = ord(" ")
    warm = int(min(n / 3, rate * VALID_US / 1e6))
    with Path(path).open("wb") as file:
        for column in (
            np.array([n, pool_len, warm, 0], "<u8"),
            (START_US + np.arange(n) * 1e6 / rate).astype("<i8"),
            random.integers(0, 1_000_000, n).astype("<u8"),
            by_rank[ranks].astype("<u4"),
            random.integers(0, pool_len - 200, n).astype("<u4"),
            random.integers(60, 141, n).astype("<u2"),
            (random.random(n) >= subscriptions).astype("u1"),
            pool,
        ):
            file.write(column.tobytes())
