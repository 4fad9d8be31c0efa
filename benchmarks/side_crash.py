"""kill -9 in the middle of the work: is everything there that was acknowledged?

A process applies small batches and says after each that it is done; at a moment nobody chose it is
told to kill the system, from another thread, while the next batch is under way. For a system inside
the process that is the process itself. Then the system is started again on the same folder, and
asked place by place: a new subscription must be given every acknowledged event, a new event must
be told to every acknowledged subscription.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import common
from benchmarks.peers.base import Given
from benchmarks.side_common import SYSTEMS, reason
from benchmarks.side_host import hosted
from tideline.workload.tweets import START_US

__all__ = ["try_kill"]

ROWS = 200
PLACES = 40
HOUR_US = 3_600_000_000
_TIME = pa.timestamp("us", "UTC")


def batch(number: int, at_us: int) -> pa.RecordBatch:
    """Batch `number`: subscriptions with even ids, events with odd ones."""
    row = np.arange(number * ROWS, (number + 1) * ROWS)
    return _rows(row, row % 2 == 1, (row // 2) % PLACES, at_us)


def probes(first: int, at_us: int) -> pa.RecordBatch:
    """One subscription and one event at every place."""
    row = np.arange(first, first + 2 * PLACES)
    return _rows(row, row - first >= PLACES, (row - first) % PLACES, at_us)


def _rows(row: np.ndarray, publish: np.ndarray, place: np.ndarray, at_us: int) -> pa.RecordBatch:
    count = len(row)
    at = np.full(count, at_us)
    return pa.record_batch({
        "op": pa.array(np.where(publish, "publish", "subscribe")),
        "id": pa.array(row).cast(pa.string()), "place": pa.array(place).cast(pa.string()),
        "user": pa.array(row, mask=publish).cast(pa.string()), "at": pa.array(at).cast(_TIME),
        "since": pa.array(at - HOUR_US, mask=publish).cast(_TIME),
        "until": pa.array(at + HOUR_US).cast(_TIME),
        "body": pa.array(np.where(publish, '{"n":1}', None), pa.string()),
    })  # fmt: skip


def work(pipe: Any, key: str, folder: str) -> None:
    """Apply batches and acknowledge each, until killed (own process)."""
    peer = SYSTEMS[key].load()(Given(Path(folder)))

    def crash() -> None:
        pipe.recv()
        peer.crash()
        os._exit(9)

    threading.Thread(target=crash, daemon=True).start()
    number = 0
    try:
        while True:
            at = time.time_ns() // 1000 if peer.wall_clock else START_US + number
            peer.apply(peer.prepare(batch(number, at)))
            pipe.send(number)
            number += 1
    except Exception:
        time.sleep(60)  # the system is gone: the other thread ends this process


def ask(pipe: Any, key: str, folder: str, batches: int) -> None:
    """Start it again and ask at every place: the answers as pairs (own process)."""
    try:
        begin = time.perf_counter()
        peer = SYSTEMS[key].load()(Given(Path(folder)))
        at = time.time_ns() // 1000 if peer.wall_clock else START_US + batches + 1
        outcome = peer.apply(peer.prepare(probes((batches + 2) * ROWS, at)))
        took = time.perf_counter() - begin
        found = peer.answers(outcome)
        pipe.send((took, list(zip(*(found[name].tolist() for name in
                                    ("subscription", "event")), strict=True))))  # fmt: skip
        peer.close()
    except Exception as error:
        pipe.send((0.0, f"does not start again: {type(error).__name__}: {reason(error)}"))


def try_kill(key: str, work_s: float, timeout_s: float) -> str:
    """yes, or wrong with what was lost."""
    with common.scratch() as folder:
        acknowledged = -1
        with hosted(work, key, str(folder)) as (pipe, _):
            limit = time.monotonic() + timeout_s
            crash_at = None
            try:
                while True:
                    if not pipe.poll(0.05):
                        if time.monotonic() > limit:
                            return f"no: nothing acknowledged within {timeout_s:.0f} s"
                    else:
                        acknowledged = pipe.recv()
                        crash_at = crash_at or time.monotonic() + work_s
                    if crash_at and time.monotonic() > crash_at:
                        pipe.send("crash")
                        crash_at = limit
            except EOFError:
                pass  # it is dead, and what it sent before has been read
        if acknowledged < 0:
            return "no: it ended before anything was acknowledged"
        with hosted(ask, key, str(folder), acknowledged + 1) as (pipe, _):
            if not pipe.poll(timeout_s):
                return f"no: not started again within {timeout_s:.0f} s"
            took, found = pipe.recv()
    if isinstance(found, str):
        return f"wrong: {found}"
    return judge(found, acknowledged, took)


def judge(found: list[tuple[int, int]], acknowledged: int, took: float) -> str:
    """Whether the answers hold every acknowledged record."""
    count = (acknowledged + 1) * ROWS
    first = (acknowledged + 3) * ROWS
    events = {event for sub, event in found if sub >= first and event < first}
    subs = {sub for sub, event in found if event >= first and sub < first}
    lost = set(range(0, count, 2)) - subs, set(range(1, count, 2)) - events
    if lost[0] or lost[1]:
        return (
            f"wrong: of {count:,} acknowledged lost {len(lost[0]):,} subscriptions and "
            f"{len(lost[1]):,} events"
        )
    return f"yes: {count:,} acknowledged, all there; back in {took:.1f} s"
