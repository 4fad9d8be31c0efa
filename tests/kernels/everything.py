"""Use every kernel once, in every way Python calls it; print the signatures there are then.

Run by test_warm.py, with an empty folder as argument.
"""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tideline
from tideline.kernels import warm
from tideline.space.place import meets
from tideline.testing import ManualClock
from tideline.where import parse
from tideline.where.batch import matching

BOUNDS = (0.0, 0.0, 8.0, 8.0)
SPACES: list[tuple[Any, list[Any]]] = [
    (tideline.Flat(), ["a", "b"]),
    (tideline.Topics(), ["a/b", "a"]),
    (
        tideline.Grid(bounds=BOUNDS, rows=4, cols=4),
        [(1.0, 2.0), tideline.Circle((1, 2), 100)],
    ),
    (
        tideline.QuadTree(bounds=BOUNDS, depth=3),
        [(1, 2), tideline.Circle((1.0, 2.0), 5_000.0), tideline.Box(1, 1, 2, 3), "1.2"],
    ),
]
WHERE = {"kind": "x"}


def table(start_s: float, first: int, rows: int, columns: dict[str, list[Any]]) -> pa.Table:
    """Subscriptions, events and cancels of some of the subscriptions, one a second."""
    ops = [("subscribe", "publish", "publish", "cancel")[n % 4] for n in range(rows)]
    ids = [f"t{first + (n - 3 if op == 'cancel' else n)}" for n, op in enumerate(ops)]
    at = [datetime.fromtimestamp(start_s + n / 1000, UTC) for n in range(rows)]
    return pa.table(
        {
            "op": ops,
            "id": ids,
            "user": ["ann" if op == "subscribe" else None for op in ops],
            "at": at,
            "since": [t - timedelta(hours=1) if op == "subscribe" else None
                      for op, t in zip(ops, at, strict=True)],
            "until": [None if op == "cancel" else t + timedelta(hours=1)
                      for op, t in zip(ops, at, strict=True)],
            "body": ['{"kind": "x"}' if op == "publish" else None for op in ops],
            "where": ['{"kind": "x"}' if n % 8 == 0 else None for n in range(rows)],
            "unseen": [n % 16 == 0 for n in range(rows)],
            **{name: (values * rows)[:rows] for name, values in columns.items()},
        }
    )  # fmt: skip


def tables(space: Any) -> list[dict[str, list[Any]]]:
    if isinstance(space, (tideline.Flat, tideline.Topics)):
        return [{"place": ["a", "b", "c"]}]
    return [
        {"lon": [1.0, 2.5], "lat": [2.0, 3.0]},
        {"lon": [1.0, 2.5], "lat": [2.0, 3.0], "radius_m": [100.0, None]},
        {"place": ["1.2"]},
        {"lon": [1, 2], "lat": [2, 3]},
    ]


def ask(channel: Any, places: list[Any], mark: str) -> None:
    """Every verb."""
    poll = channel.layout == "poll"
    encoded = [channel.space.encode(place) for place in places]
    for one in encoded:
        meets(channel.space, one, encoded[0])
    for n, place in enumerate(places):
        channel.publish(place, {"kind": "x"}, id=f"{mark}e{n}", ttl_s=3000, related=True)
        channel.publish(place, {"kind": "x"}, id=f"{mark}e{n}", ttl_s=3000)
        channel.subscribe(place, user="ann", id=f"{mark}s{n}", since_s=-60, until_s=3000)
        channel.subscribe(place, user="bob", since_s=-60, until_s=3000, where=WHERE)
        if not poll:
            channel.subscribe(place, user="ann", since_s=-60, until_s=3000, unseen=True)
            unseen = channel.subscribe(place, user="ann", id=f"{mark}u{n}", since_s=-60,
                                       until_s=3000, unseen=True, where=WHERE)  # fmt: skip
            channel.resume(f"{mark}s{n}")
        channel.publish(place, {"kind": "x"}, ttl_s=5)
        channel.find(place)
        channel.find(place, where=WHERE, limit=1)
        if not poll:
            unseen.cancel()
            channel.cancel(f"{mark}s{n}")
    channel.subscriptions()
    channel.scan("events", place=places[0], where=WHERE)
    channel.stats()


def outlive(channel: Any, clock: ManualClock) -> None:
    """An event that is valid for longer than the subscriptions it answered."""
    channel.publish("a", 1, ttl_s=300)
    channel.subscribe("a", user="ann", since_s=-10, until_s=5)
    for seconds in (8, 60):
        clock.advance(seconds)
        channel.publish("b", 1, ttl_s=9)
    for part in range(12):  # as many live records at every moment: tables with stale entries
        places = [f"place {n}" for n in range(1_500)]
        channel.apply(table(clock.now() / 1e6, 10_000 * part, 1_500, {"place": places}))
        clock.advance(2 * 3600)


def use(folder: str, clock: ManualClock) -> None:
    with tideline.open(folder, clock=clock, memory_mb=8) as database:
        outlive(database.channel("flat"), clock)
        database.drop_channel("flat")
        for layout in ("dual", "two", "poll"):
            for number, (space, places) in enumerate(SPACES):
                channel = database.channel(f"{layout}{number}", space=space, layout=layout)
                ask(channel, places, "1-")
                for part, columns in enumerate(tables(space)):
                    rows = table(clock.now() / 1e6, 1000 * part, 300, columns)
                    channel.apply(pa.concat_tables([rows.slice(0, 7), rows.slice(7)]))
                    channel.apply(rows.slice(5, 1))
                    channel.apply(rows.slice(0, 0))
                    channel.apply(rows.combine_chunks().to_batches()[0])
                if layout != "poll":
                    kept = [channel.subscribe(places[0], user="eve", until_s=3000).id
                            for _ in range(200)]  # fmt: skip
                channel.seal()
                ask(channel, places, "2-")
                if layout != "poll":
                    for name in kept:
                        channel.cancel(name)
                channel.seal()
                channel.maintain()
                ask(channel, places, "3-")
        clock.advance(10)
    if folder == ":memory:":
        return
    with tideline.open(folder, clock=clock, memory_mb=8) as database:
        for name in database.channels():
            channel = database.channel(name)
            ask(channel, SPACES[int(name[-1])][1], "4-")
        database.check()
        clock.advance(7200)
        for name in database.channels():
            channel = database.channel(name)
            ask(channel, SPACES[int(name[-1])][1], "5-")
            channel.maintain()


def overfill(folder: str, clock: ManualClock) -> None:
    """More than memory holds in one batch; then a write that cannot be logged."""
    with tideline.open(folder, clock=clock, memory_mb=1) as database:
        channel = database.channel("roads")
        for part in range(4):
            places = [f"place {n}" for n in range(5_000)]
            channel.apply(table(clock.now() / 1e6, 30_000 * part, 30_000, {"place": places}))
        log = channel._engine.store.log

        def fail(*_: Any) -> Any:
            raise OSError("full")

        log.append, kept = fail, log.append
        with contextlib.suppress(tideline.TidelineError, OSError):
            channel.publish("a", 1, ttl_s=9)
        with contextlib.suppress(tideline.TidelineError, OSError):
            channel.apply(table(clock.now() / 1e6, 200_000, 8, {"place": ["a"]}))
        log.append = kept


def filter_bodies() -> None:
    """Every way to look at bodies in a batch, in arrays of every make."""
    texts = ['{"a": 1, "b": {"c": "x"}}', '{"a": 2.5, "b": [1]}', '{"b": {"c": "longer"}}', None]
    wheres: list[dict[str, Any]] = [
        {"a": {"$gt": 1}}, {"a": 1 << 63}, {"a": {"$lte": 0.5}}, {"b.c": "x"},
        {"b.c": {"$lt": "é"}}, {"b.c": {"$regex": "o.g"}}, {"a": {"$exists": True}},
        {"a": {"$in": list(range(20))}},
    ]  # fmt: skip
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        for bodies in (
            pa.array(texts * 50, kind),
            pa.array(texts, kind).slice(1),
            pa.array([], kind),
        ):
            for where in wheres:
                matching(parse(where), bodies)


def deduplicate() -> None:
    """Keys of a pipeline: judged, grown, and taken in after a restart."""
    from tideline.spark.pipeline.seen import Seen

    seen, again = Seen(within_us=10), Seen(within_us=10, newest=2_000)
    keys = np.arange(2_000)
    again.add(seen.judge(keys, keys, keys, np.zeros(2_000, np.uint8)))


def main(folder: Path) -> None:
    filter_bodies()
    deduplicate()
    use(":memory:", ManualClock(1_000_000))
    use(str(folder / "all"), ManualClock(1_000_000))
    overfill(str(folder / "full"), ManualClock(1_000_000))
    found = {
        f"{kernel.py_func.__module__}.{kernel.py_func.__name__}": [
            str(signature) for signature in kernel.signatures
        ]
        for kernel, _ in warm.kernels()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
