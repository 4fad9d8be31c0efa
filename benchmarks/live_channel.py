"""What do conditions of subscriptions cost an event? Many at one place, all different, 1 % hold.

    python benchmarks/live_channel.py [--rounds N]

`publish` with the index over conditions beside predicates one by one, by turns in one process; one
conditioned subscription and none are there to see that they pay nothing. Then `apply` of events,
and `subscribe` with many past events. Writes benchmarks/results/live-channel.json and .md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import pyarrow as pa

import tideline
from benchmarks import common
from benchmarks.common import say
from tideline.testing import ManualClock

SIZES = (0, 1, 10, 20, 100, 1_000, 10_000)
NEVER = 1 << 60
BUDGET_S = 1.0  # of a way and a size, in a round


def crowded(db: Any, name: str, count: int, many: int | None) -> Any:
    """A channel with so many conditions at one place, each met by 1 % of the events."""
    channel = db.channel(name)
    for n in range(count):
        where = {"shop": n % 100, "total": {"$gte": n // 100 + 0.5}}
        channel.subscribe("p", user=f"u{n}", until_s=1e6, where=where)
    if not count:
        channel.subscribe("p", user="u", until_s=1e6)
    if many is not None:
        channel.core.engine.conditions.many = many
    return channel


def publish_us(channel: Any, clock: ManualClock, first: int, seconds: float) -> float:
    """The median of one publish, in microseconds."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    n = first
    while time.perf_counter() < until or len(times) < 5:
        body = {"shop": n % 100, "total": 1_000, "note": "hello"}
        began = time.perf_counter()
        channel.publish("p", body, ttl_s=1)
        times.append(time.perf_counter() - began)
        clock.advance(2)
        n += 1
    return statistics.median(times) * 1e6


def publishing(rounds: int) -> list[dict[str, float]]:
    """One publish, both ways by turns."""
    found = []
    for count in SIZES:
        clock = ManualClock(1_000_000)
        with tideline.open(":memory:", clock=clock) as db:
            ways = {
                "one by one": crowded(db, "old", count, NEVER),
                "index": crowded(db, "new", count, None),
            }
            for n in range(100):  # conditions are filed when they have been asked some times
                ways["index"].publish("p", {"shop": n, "total": 1_000}, ttl_s=1)
            times: dict[str, list[float]] = {name: [] for name in ways}
            for turn in range(rounds):
                for name in list(ways)[:: 1 if turn % 2 else -1]:
                    times[name].append(publish_us(ways[name], clock, turn, BUDGET_S / 2))
        row = {name: statistics.median(each) for name, each in times.items()}
        found.append({"conditions": count, **row})
        say(f"publish, {count} conditions: {row}")
    return found


def batches(rounds: int) -> list[dict[str, Any]]:
    """200 events in one `apply`, and a subscribe that finds 10,000 past events."""
    clock = ManualClock(1_000_000)
    times: dict[tuple[str, str], list[float]] = {}
    with tideline.open(":memory:", clock=clock) as db:
        for turn in range(rounds + 2):  # the first two are for filing
            for way, many in (("one by one", NEVER), ("index", None))[:: 1 if turn % 2 else -1]:
                name = way.replace(" ", "-")
                channel = db.channel(name) if turn else crowded(db, name, 1_000, many)
                began = time.perf_counter()
                channel.apply(events("p", 200, clock.now(), turn))
                times.setdefault(("apply, 200 events on 1,000 conditions", way), []).append(
                    time.perf_counter() - began
                )
                if not turn:
                    channel.apply(events("past", 10_000, clock.now(), -1, ttl_us=10**12))
                began = time.perf_counter()
                where = {"shop": turn, "total": {"$gte": 7}}
                channel.subscribe("past", user="u", since_s=-1e5, until_s=9, where=where)
                times.setdefault(("subscribe, 10,000 past events", way), []).append(
                    time.perf_counter() - began
                )
            clock.advance(10)
    return [
        {"what": what, "way": way, "ms": 1e3 * statistics.median(each[2:])}
        for (what, way), each in times.items()
    ]


def events(place: str, count: int, now: int, turn: int, ttl_us: int = 10**6) -> Any:
    """A table of events."""
    time_type = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "op": ["publish"] * count,
            "id": [f"{place} {turn} {n}" for n in range(count)],
            "place": [place] * count,
            "at": pa.array([now] * count, time_type),
            "until": pa.array([now + ttl_us] * count, time_type),
            "body": [f'{{"shop": {n % 100}, "total": 1000}}' for n in range(count)],
        }
    )


def report(results: common.Results) -> str:
    """The page."""
    rows = [
        [f"{row['conditions']:,}", f"{row['one by one']:,.0f}", f"{row['index']:,.0f}",
         f"{row['one by one'] / row['index']:.2f}"]
        for row in results.get("publish") or []
    ]  # fmt: skip
    text = "# Conditions of subscriptions\n\nMicroseconds of one `publish` at a place with so many "
    text += "conditioned subscriptions, all different; 1 % hold.\n\n"
    text += common.markdown_table(["conditions", "one by one", "index", "times"], rows)
    rows = [[row["what"], row["way"], f"{row['ms']:,.1f}"] for row in results.get("batches") or []]
    return text + "\n" + common.markdown_table(["many at once", "way", "ms"], rows)


def main() -> None:
    """Run both parts and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=common.RESULTS)
    given = parser.parse_args()
    results = common.Results(given.results, "live-channel")
    results.put("publish", publishing(given.rounds))
    results.put("batches", batches(given.rounds))
    (given.results / "live-channel.md").write_text(report(results))
    say(report(results))


if __name__ == "__main__":
    main()
