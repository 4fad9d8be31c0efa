"""How much memory and disk live records take, and what is left of it when they have expired.

Each system is alone in a fresh process. Memory is what its processes hold that cannot be given back
without writing it somewhere: anonymous and shared memory, each shared page counted once (`Pss_Anon`
and `Pss_Shmem` of Linux). Pages of files are cache and do not count.
"""

from __future__ import annotations

import ctypes
import gc
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks import common
from benchmarks.common import say
from benchmarks.peers.base import Peer
from benchmarks.side_common import SYSTEMS, Size, System, opened, reason
from tideline.workload.tweets import START_US

__all__ = ["HOUR_US", "disk_bytes", "held_bytes", "measure", "placed", "records"]

HOUR_US = 3_600_000_000
BODY = '{"text":"' + "x" * 89 + '"}'
_TIME = pa.timestamp("us", "UTC")


def held_bytes(pids: list[int]) -> int:
    """What these processes and their children hold in memory."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what freed memory glibc keeps is not ours
    total = 0
    every = set(pids)
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            every |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
    for pid in every:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    total += int(line.split()[1]) * 1024
    return total


def disk_bytes(peer: Peer) -> int:
    """What its files take; looked at again when one of them went in the meantime."""
    for _ in range(50):
        with suppress(FileNotFoundError):
            return peer.disk_bytes()
        time.sleep(0.02)
    return peer.disk_bytes()


def records(
    op: str, first: int, count: int, at_us: int, until_us: int, *, places: int,
    since_us: int | None = None,
) -> pa.RecordBatch:  # fmt: skip
    """Events or subscriptions, spread over so many places; all live from `at_us` to `until_us`."""
    since_us = at_us if since_us is None else since_us
    number = np.arange(first, first + count)
    publish = op == "publish"

    def times(us: int) -> pa.Array:
        return pa.array(np.full(count, us)).cast(_TIME)

    none = pa.nulls(count, pa.string())
    return pa.record_batch({
        "op": pa.array([op] * count), "id": pa.array(number).cast(pa.string()),
        "place": pa.array(number % places).cast(pa.string()),
        "user": none if publish else pa.array(number % 1_000_000).cast(pa.string()),
        "at": times(at_us), "since": pa.nulls(count, _TIME) if publish else times(since_us),
        "until": times(until_us), "body": pa.array([BODY] * count) if publish else none,
    })  # fmt: skip


def placed(rows: pa.RecordBatch, prefix: str) -> pa.RecordBatch:
    """The same rows, their places named with a prefix."""
    names = pa.array([prefix + text for text in rows.column("place").to_pylist()])
    return rows.set_column(rows.schema.get_field_index("place"), "place", names)


def measure(systems: list[System], size: Size) -> dict[str, Any]:
    """Every system, one after the other."""
    outcome = {}
    for system in systems:
        try:
            outcome[system.key] = common.alone(room_of, system.key, size)
        except Exception as error:
            outcome[system.key] = {"failed": reason(error)}
        say(f"room {system.key:16} {outcome[system.key]}")
    return outcome


def room_of(key: str, size: Size) -> dict[str, Any]:
    """The room of one system (own process): subscriptions first, then events nobody waits for.

    Half of the time is for each; a system that is slower is measured with what it stored.
    """
    system = SYSTEMS[key]
    at = time.time_ns() // 1000 if system.load().wall_clock else START_US
    with opened(system) as peer:
        # A first few load all code.
        for first, op in ((1_000, "publish"), (0, "subscribe")):
            rows = placed(records(op, first, 100, at, at + HOUR_US, places=100), op)
            peer.apply(peer.prepare(rows))
        before, disk = held_bytes(peer.processes()), disk_bytes(peer)
        stored = store(peer, "subscribe", 10_000, size, at)
        middle = held_bytes(peer.processes())
        stored_events = store(peer, "publish", 10_000 + size.records, size, at)
        after, disk_after = held_bytes(peer.processes()), disk_bytes(peer)
        outcome = {
            "start_mb": before / 1e6,
            "subscriptions": stored,
            "events": stored_events,
            "bytes_per_subscription": (middle - before) / max(1, stored),
            "bytes_per_event": (after - middle) / max(1, stored_events),
            "mb": after / 1e6,
            "disk_mb": (disk_after - disk) / 1e6,
        }
        if not system.load().wall_clock:
            # Time moves on by an hour and then some. Some systems clean up as they work, so there
            # is work: half as many operations as there were records, valid for a moment.
            for first in range(0, size.records // 2, step := max(1, size.records // 20)):
                at += HOUR_US
                ids = 3 * size.records + 10_000 + first
                rows = records("publish", ids, step, at, at + 1, places=100)
                peer.apply(peer.prepare(rows))
            time.sleep(1.0)  # a moment for what works in the background
            outcome["left_mb"] = (held_bytes(peer.processes()) - before) / 1e6
            outcome["left_disk_mb"] = (disk_bytes(peer) - disk) / 1e6
        return outcome


def store(peer: Peer, op: str, first: int, size: Size, at: int) -> int:
    """Store records until there are enough or the time is up; how many there are.

    Subscriptions and events are at places of their own, so that there are no answers to keep.
    """
    begin, stored = time.perf_counter(), 0
    step = min(peer.batch, size.records)
    while stored < size.records and time.perf_counter() - begin < size.room_s / 2:
        count = min(step, size.records - stored)
        rows = records(op, first + stored, count, at, at + HOUR_US, places=size.records)
        if op == "publish":
            rows = placed(rows, "e")
        peer.apply(peer.prepare(rows))
        stored += count
    return stored
