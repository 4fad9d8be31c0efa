"""Whether speed stays when there are ten, a hundred, a thousand times as many live subscriptions.

Subscriptions are loaded, ten to a place, so that places grow with them and an event meets ten at
every size. At each a mix of one event to one subscription at random places is timed; those live
for a second of channel time, a thousand at once, so that they hardly add to the answers. Each
system is alone in a fresh process, and is measured at the size it had reached when its time to load
was up.

The answers are known without a second store: the ten that were loaded at the place, and what
embedded Tideline says of the mix alone. Of a system that follows the wall clock only the former
are compared.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import common
from benchmarks.common import say
from benchmarks.peers.base import Given, Peer
from benchmarks.peers.columns import answer_array
from benchmarks.peers.tideline import TidelinePeer
from benchmarks.side_common import SYSTEMS, Size, System, Verdict, opened, reason
from benchmarks.side_room import disk_bytes, held_bytes, placed, records
from tideline.workload.tweets import START_US

__all__ = ["measure"]

EACH = 10
"""Subscriptions at a place."""
DAY_US = 86_400_000_000
LIVE_US = 1_000_000
RATE = 1_000
"""Mixed operations a second of channel time."""
MIXED = 1 << 40
"""Ids of the mix begin here."""
CHUNK = 50_000
_TIME = pa.timestamp("us", "UTC")


def loaded(first: int, count: int, at_us: int) -> pa.RecordBatch:
    """The subscriptions [first, first + count): ten to a place, valid for a day."""
    number = np.arange(first, first + count)
    at, until = (pa.array(np.full(count, us)).cast(_TIME) for us in (at_us, at_us + DAY_US))
    text = pa.array(number).cast(pa.string())
    return pa.record_batch({
        "op": pa.array(["subscribe"] * count), "id": text,
        "place": pa.array(number // EACH).cast(pa.string()),
        "user": pa.array(number % 1_000_000).cast(pa.string()),
        "at": at, "since": at, "until": until, "body": pa.nulls(count, pa.string()),
    })  # fmt: skip


class Mix:
    """One event to one subscription, at random among the places that are loaded."""

    def __init__(self, at_us: int, peer: Peer) -> None:
        self._rng = np.random.default_rng(5)
        self._at = at_us
        self._made = 0
        self._peer = peer

    def rows(self, count: int, places: int) -> tuple[pa.RecordBatch, np.ndarray]:
        """Operations, and the answers due from what was loaded; then the truth of the mix."""
        number = np.arange(self._made, self._made + count)
        self._made += count
        if self._peer.wall_clock:
            at = np.full(count, time.time_ns() // 1000)
        else:
            at = self._at + number * (1_000_000 // RATE)
        publish = self._rng.random(count) < 0.5
        place = self._rng.integers(0, places, count)
        rows = pa.record_batch({
            "op": pa.array(np.where(publish, "publish", "subscribe")),
            "id": pa.array(number + MIXED).cast(pa.string()),
            "place": pa.array(place).cast(pa.string()),
            "user": pa.array(number % 1_000_000, mask=publish).cast(pa.string()),
            "at": pa.array(at).cast(_TIME),
            "since": pa.array(at - LIVE_US, mask=publish).cast(_TIME),
            "until": pa.array(at + LIVE_US).cast(_TIME),
            "body": pa.array(np.where(publish, '{"n":1}', None), pa.string()),
        })  # fmt: skip
        row = np.repeat(np.flatnonzero(publish), EACH)
        told = (place[publish][:, None] * EACH + np.arange(EACH)).ravel()
        return rows, answer_array(row, told, row + number[0] + MIXED)


def measure(systems: list[System], size: Size) -> dict[str, Any]:
    """Every system, one after the other, each in a process of its own."""
    outcome = {}
    for system in systems:
        try:
            outcome[system.key] = common.alone(grow, system.key, size)
        except Exception as error:
            outcome[system.key] = {"sizes": [], "stopped": reason(error)}
        for one in outcome[system.key]["sizes"]:
            say(
                f"growth {system.key:16} {one['subscriptions']:>10,} live: "
                f"{one['operations_per_s']:>10,.0f} operations/s, "
                f"{one['answers_per_operation']:.1f} answers each; {one['verdict']['text']}"
            )
        if outcome[system.key]["stopped"]:
            say(f"growth {system.key:16} {outcome[system.key]['stopped']}")
    return outcome


def grow(key: str, size: Size) -> dict[str, Any]:
    """One system, from size to size (own process)."""
    system = SYSTEMS[key]
    sizes: list[dict[str, Any]] = []
    stopped = ""
    with common.scratch() as folder, opened(system) as peer:
        truth = TidelinePeer(Given(folder))
        at = time.time_ns() // 1000 if peer.wall_clock else START_US
        # A system may have to know how long events live before the first one is asked for.
        first = records("publish", MIXED - 1, 1, at, at + LIVE_US, places=1)
        peer.apply(peer.prepare(placed(first, "first")))
        mix = Mix(at, peer)
        live, load_s = 0, 0.0
        try:
            for wanted in size.grow:
                begin = time.perf_counter()
                while live < wanted and load_s + time.perf_counter() - begin < size.load_s:
                    count = min(CHUNK, wanted - live, max(EACH, peer.batch))
                    peer.load(loaded(live, count, at))
                    live += count
                load_s += time.perf_counter() - begin
                if live < wanted:
                    stopped = f"{live:,} subscriptions loaded in the {size.load_s:.0f} s allowed"
                if sizes and sizes[-1]["subscriptions"] == live:
                    break
                sizes.append(timed(peer, truth, mix, live, size) | {"load_s": load_s})
                if stopped:
                    break
        except Exception as error:
            stopped = f"failed after {live:,} subscriptions: {reason(error)}"
        truth.close()
    return {"sizes": sizes, "stopped": stopped}


def timed(peer: Peer, truth: TidelinePeer, mix: Mix, live: int, size: Size) -> dict[str, Any]:
    """The mix at one size; the first tenth of the time is not counted."""
    verdict = Verdict()
    spent_s, operations, answers, speed = 0.0, 0, 0, 0.0
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    warm_s = size.grow_s / 10
    end = time.perf_counter() + 4 * size.grow_s
    while spent_s < size.grow_s and operations < size.grow_operations:
        count = max(50, min(peer.batch, int(speed * size.grow_s / 4), size.grow_operations))
        rows, told = mix.rows(count, live // EACH)
        prepared = peer.prepare(rows)
        begin = time.perf_counter()
        outcome = peer.apply(prepared)
        spent = time.perf_counter() - begin
        got = peer.answers(outcome)
        if peer.wall_clock:  # what of the mix still lives is the clock's to say
            pairs.append((got[got["subscription"] < MIXED], told))
        else:
            own = truth.answers(truth.apply(truth.prepare(rows)))
            verdict.compare(got, np.concatenate([told, own]), count)
        speed = count / spent
        if warm_s > 0:
            warm_s -= spent
        else:
            spent_s += spent
            operations += count
            answers += len(got)
        if time.perf_counter() > end and operations:
            break
    if pairs:
        got, told = (np.concatenate(some) for some in zip(*pairs, strict=True))
        got["row"] = told["row"] = 0
        verdict.compare(got, told, operations)
    return {
        "subscriptions": live,
        "operations": operations,
        "operations_per_s": operations / spent_s,
        "answers_per_operation": answers / operations,
        "memory_mb": held_bytes(peer.processes()) / 1e6,
        "disk_mb": disk_bytes(peer) / 1e6,
        "verdict": verdict.record(),
    }
