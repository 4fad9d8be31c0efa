"""Threads write while others register, read and cancel: every version that a handle tells is right.

What each handle was told is kept, and compared in the end with the change log replayed.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from live_model import Asked, AskedGroups, History, Reader, same

import tideline
from tideline.model import LiveChange

QUERIES = [
    Asked({}), Asked({"n": {"$gte": 3}}), Asked({"shop": 1}, sort=[("n", -1)], limit=4),
    Asked({"n": {"$lt": 6}}, sort=[("shop", 1), ("n", 1)], limit=3, offset=2), Asked({}, limit=5),
    Asked({"shop": {"$ne": 2}}, sort=[("n", 1)]),
    AskedGroups({"n": {"$gt": 1}}, by="shop", count=True, sum="x", max="n"),
]  # fmt: skip


class Seen:
    """A handle that was read in a thread: what it began with, and what it was told."""

    def __init__(self, orders: Any, asked: Asked, rng: random.Random) -> None:
        more = {} if isinstance(asked, AskedGroups) else {"queue": rng.choice([2, 50, 10_000])}
        if asked.options.get("limit"):
            more["slack"] = rng.choice([0, 1, 4])
        self.live = asked.watch(orders, **more)
        self.asked = asked
        self.first, self.version = self.live.result, self.live.version
        self.told: list[LiveChange] = []

    def replay(self, history: History) -> None:
        reader = Reader.__new__(Reader)
        reader.live, reader.asked, reader.history = self.live, self.asked, history
        reader.rows, reader.version, reader.open = list(self.first), self.version, None
        reader.compare(self.version)
        for change in self.told:
            reader.see(change)
        assert same(self.live.result, reader.rows, ordered=True)
        if not self.live.ended:  # else it may have ended within a version
            reader.close_version()
            reader.compare(self.live.version)


def write(orders: Any, rng: random.Random, done: threading.Event) -> None:
    for turn in range(500):
        if turn > 50 and done.is_set():
            return
        what = rng.random()
        document = {"id": rng.randrange(25), "n": rng.randrange(9), "shop": rng.randrange(4),
                    "x": rng.choice([0.1, 1e16, 3, -0.3])}  # fmt: skip
        if what < 0.5:
            orders.put(document)
        elif what < 0.7:
            orders.delete(rng.randrange(25))
        elif what < 0.85:
            orders.update_many({"n": rng.randrange(9)}, {"$inc": {"n": 1}})
        else:
            orders.put_many([{**document, "id": (document["id"] + k) % 25} for k in range(6)])


def read(orders: Any, rng: random.Random, seen: list[Seen]) -> None:
    mine: list[Seen] = []
    for _ in range(20):
        mine.append(Seen(orders, rng.choice(QUERIES), rng))
        for one in rng.sample(mine, min(4, len(mine))):
            one.told += one.live.take(rng.choice([None, None, 1, 7]), timeout_s=0.001)
        if len(mine) > 8:
            one = mine.pop(rng.randrange(len(mine)))
            one.told += one.live.take(3)
            one.live.cancel()
            seen.append(one)
    seen += mine


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_threads_write_while_others_register(where: str, tmp_path: Path) -> None:
    with tideline.open(":memory:" if where == "memory" else tmp_path / "data") as db:
        orders = db.collection("orders", key="id", indexes=["shop"])
        log = orders.changes()
        done = threading.Event()
        seen: list[Seen] = []
        with ThreadPoolExecutor(6) as threads:
            writers = [
                threads.submit(write, orders, random.Random(seed), done) for seed in (1, 2, 3)
            ]
            readers = [
                threads.submit(read, orders, random.Random(seed), seen) for seed in (4, 5, 6)
            ]
            for reader in readers:
                reader.result()
            done.set()
            for writer in writers:
                writer.result()
        history = replayed(log)
        assert len(seen) == 60
        for one in seen:
            if not one.live.ended:
                one.told += one.live.take()
                assert one.live.version == len(history.states) - 1
            one.replay(history)


def replayed(log: Any) -> History:
    history = History()
    for change in log.take():
        state = dict(history.states[-1])
        state.pop(change.key, None)
        if change.after is not None:
            state[change.key] = change.seq, change.after
        history.states.append(state)
    return history
