"""What a system can do: each ability tried by a small scenario, through the same interface.

The outcome is "yes", "no: why" (it has no way, or it fails), or "wrong: what" (it answers, but not
what was due). Every scenario is alone in a fresh process, on a fresh folder, with a time limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import common
from benchmarks.common import say
from benchmarks.peers.base import Cannot, Peer
from benchmarks.side_common import (
    SYSTEMS,
    Run,
    Size,
    System,
    Truth,
    opened,
    reason,
    workload,
)
from benchmarks.side_crash import try_kill
from benchmarks.side_host import within
from benchmarks.side_room import HOUR_US, held_bytes, placed, records
from tideline.workload.tweets import START_US

__all__ = ["ABILITIES", "KILL", "measure"]

LARGE, STEP, PLACES = 4_000, 500, 64
Pairs = set[tuple[int, int]]
_SCHEMA = pa.schema({
    "op": pa.string(), "id": pa.string(), "place": pa.string(), "user": pa.string(),
    "at": pa.timestamp("us", "UTC"), "since": pa.timestamp("us", "UTC"),
    "until": pa.timestamp("us", "UTC"), "body": pa.string(), "unseen": pa.bool_(),
})  # fmt: skip


class Wrong(Exception):
    """It answered, but not what was due."""


class Play:
    """A scenario on the way: calls of one or few rows, times in seconds from its start."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._start_us = time.time_ns() // 1000 if peer.wall_clock else START_US
        self._start = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self._start_us)

    def expect(self, due: Pairs, *rows: dict[str, Any]) -> None:
        """Apply the rows in one call; `Wrong` unless these are the (subscription, event)."""
        if self._peer.wall_clock:
            late = self._start_us / 1e6 + rows[0]["at"] - time.time()
            time.sleep(max(0.0, late))
        batch = pa.RecordBatch.from_pylist([self._row(row) for row in rows], _SCHEMA)
        found = self._peer.answers(self._peer.apply(self._peer.prepare(batch)))
        got = [(int(one["subscription"]), int(one["event"])) for one in found]
        if set(got) != due or len(got) != len(due):
            raise Wrong(
                f"at {rows[0]['at']} s {sorted(got)} instead of {sorted(due)} (subscription, event)"
            )

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        times = {name: self._start + timedelta(seconds=row[name])
                 for name in ("at", "since", "until") if name in row}  # fmt: skip
        return {"unseen": False, **row, "id": str(row["id"]), **times}


def event(id: int, at: float, valid: float = 60, place: str = "p") -> dict[str, Any]:
    return {
        "op": "publish", "id": id, "place": place, "at": at, "until": at + valid, "body": "{}",
    }  # fmt: skip


def ask(id: int, at: float, until: float = 600, user: int = 7, **more: Any) -> dict[str, Any]:
    return {
        "op": "subscribe", "id": id, "place": "p", "user": str(user), "at": at, "since": at - 10,
        "until": until, **more,
    }  # fmt: skip


# ---- the scenarios -----------------------------------------------------------------------------


def past_and_future(system: System, size: Size) -> str:
    """One request is given what has happened and is told what happens."""
    with opened(system) as peer:
        play = Play(peer)
        play.expect(set(), event(1, 0), event(2, 0, place="q"))
        play.expect({(3, 1)}, ask(3, 0.2))
        play.expect({(3, 4)}, event(4, 0.4))
        play.expect(set(), event(5, 0.5, place="q"))
    return "yes"


def expiry(system: System, size: Size) -> str:
    """Neither an expired event nor an expired subscription is ever an answer."""
    with opened(system) as peer:
        play = Play(peer)
        play.expect(set(), ask(1, 0, until=1), event(2, 0, valid=1, place="q"))
        play.expect({(1, 3)}, event(3, 0.2, valid=1))
        play.expect({(4, 3)}, ask(4, 0.6, until=1.1))
        play.expect(set(), event(5, 1.5, valid=1))
        play.expect({(6, 5)}, ask(6, 1.8))
        play.expect(set(), ask(7, 1.9, place="q"))
    return "yes"


def own_end(system: System, size: Size) -> str:
    """Two events of one place, one of which ends before the other."""
    with opened(system) as peer:
        play = Play(peer)
        play.expect(set(), event(1, 0, valid=1), event(2, 0, valid=60))
        play.expect({(3, 1), (3, 2)}, ask(3, 0.3))
        play.expect({(4, 2)}, ask(4, 1.6))
    return "yes"


def unseen(system: System, size: Size) -> str:
    """A user who asks for unseen events gets none twice, whichever subscription it was."""
    with opened(system, unseen=True) as peer:
        play = Play(peer)
        play.expect(set(), event(1, 0))
        play.expect({(2, 1)}, ask(2, 0.1, until=1))
        play.expect(set(), ask(3, 0.2, unseen=True))
        play.expect({(4, 1)}, ask(4, 0.3, user=8, unseen=True))
        play.expect({(2, 5), (4, 5)}, event(5, 0.4))  # 3 yields to 2, of the same user
        play.expect({(3, 6), (4, 6)}, event(6, 1.5))  # 2 has expired
        play.expect(set(), ask(7, 1.6, unseen=True))
        play.expect({(8, 1), (8, 5), (8, 6)}, ask(8, 1.7, user=9, unseen=True))
    return "yes"


def circles(system: System, size: Size) -> str:
    """Events at points, subscriptions of circles, beside embedded Tideline."""
    operations = workload(size.rate, 3, 1, place="circle")
    with common.scratch() as folder, opened(system, shapes=True) as peer:
        truth = Truth(operations, folder)
        run = Run(system, peer, truth)
        if peer.wall_clock:
            run.by_clock(3.0)
        else:
            run.turn(10.0, min(size.warm, 5_000))
        truth.close()
    if run.failed:
        return f"no: {run.failed}"
    if not run.verdict.same:
        raise Wrong(run.verdict.text())
    return f"yes: {run.done:,} operations, {run.verdict.answers:,} answers"


def beyond_memory(system: System, size: Size) -> str:
    """Eight times as many bytes of live events as it may have memory, and all still found."""
    allowed = size.beyond_mb << 20
    count = 8 * allowed // LARGE // (2 * STEP) * (2 * STEP)
    with opened(system, memory_mb=size.beyond_mb) as peer:
        at = time.time_ns() // 1000 if peer.wall_clock else START_US
        large(peer, count, STEP, at, "w")  # loads all code
        before = held_bytes(peer.processes())
        rest: list[int] = []
        most = 0
        limit = time.monotonic() + size.timeout_s * 0.7
        for half in (0, count // 2):
            held = []
            for first in range(half, half + count // 2, STEP):
                large(peer, first, STEP, at, "p")
                if time.monotonic() > limit:
                    return f"no: only {first * LARGE / 1e6:,.0f} MB within the time"
                held.append(held_bytes(peer.processes()) - before)
            most = max(most, *held)
            # Merges in the background come and go: what is held between them.
            rest.append(min(*held[len(held) // 2 :], settled(peer, limit) - before))
        if peer.wall_clock:
            at = time.time_ns() // 1000
        since = at - HOUR_US // 2
        asked = records(
            "subscribe", 2 * count, PLACES, at, at + HOUR_US, places=PLACES, since_us=since
        )
        answers = peer.answers(peer.apply(peer.prepare(placed(asked, "p"))))
        if sorted(answers["event"].tolist()) != list(range(count)):
            raise Wrong(f"{len(answers):,} of {count:,} events found again")
    live = count * LARGE
    added = rest[1] - rest[0]
    taken, more, peak = (number / 1e6 for number in (rest[1], added, most))
    facts = (
        f"{live / 1e6:,.0f} MB live, {allowed / 1e6:,.0f} MB allowed, {taken:,.0f} MB taken, "
        f"of which {more:,.0f} MB for the second half, and {peak:,.0f} MB at most for a moment"
    )
    # What a system needs beside the data shows in the first half. One that keeps all in memory
    # would add half of it in the second: a quarter tells the two apart.
    return f"yes: {facts}" if added < live / 4 else f"no: {facts}"


def settled(peer: Peer, limit: float) -> int:
    """The bytes held once they have not fallen for a second: on a busy machine merges lag."""
    least, since = held_bytes(peer.processes()), time.monotonic()
    while time.monotonic() < min(since + 1.0, limit):
        time.sleep(0.05)
        now = held_bytes(peer.processes())
        if now < least:
            least, since = now, time.monotonic()
    return least


def large(peer: Peer, first: int, count: int, at: int, place: str) -> None:
    """Publish events of 4,000 bytes that cannot be made smaller by much."""
    rng = np.random.default_rng(first)
    noise = [f'{{"x":"{rng.bytes((LARGE - 8) // 2).hex()}"}}' for _ in range(count)]
    rows = records("publish", first, count, at, at + HOUR_US, places=PLACES)
    rows = rows.set_column(rows.schema.get_field_index("body"), "body", pa.array(noise))
    peer.apply(peer.prepare(placed(rows, place)))


ABILITIES: dict[str, Callable[[System, Size], str]] = {
    "past and future in one request": past_and_future,
    "expiry on both sides": expiry,
    "each event its own end": own_end,
    "unseen only": unseen,
    "circles": circles,
    "larger than memory": beyond_memory,
}
KILL = "kill -9 without loss"


def scenario(key: str, ability: str, size: Size) -> str:
    """One ability of one system (own process)."""
    try:
        return ABILITIES[ability](SYSTEMS[key], size)
    except Cannot as why:
        return f"no: {reason(why)}"
    except Wrong as what:
        return f"wrong: {reason(what)}"


def measure(systems: list[System], size: Size) -> dict[str, Any]:
    """Everything tried of every system."""
    outcome: dict[str, Any] = {}
    for system in systems:
        tried = outcome[system.key] = {}
        for ability in ABILITIES:
            try:
                tried[ability] = within(size.timeout_s, scenario, system.key, ability, size)
            except (TimeoutError, RuntimeError) as error:
                tried[ability] = f"no: {reason(error)}"
            say(f"can {system.key:16} {ability}: {tried[ability]}")
        kills = [try_kill(system.key, size.crash_s, size.timeout_s) for _ in range(size.kills)]
        # One loss is a loss.
        tried[KILL] = next((said for said in kills if not said.startswith("yes")), kills[-1])
        say(f"can {system.key:16} {KILL}: {tried[KILL]}")
    return outcome
