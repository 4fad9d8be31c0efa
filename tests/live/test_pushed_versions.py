"""What subscribers are told up to a version is the result at that version, renewals included."""

from __future__ import annotations

import random
import time
from typing import Any

import tideline
from tideline.live.query import Query


class Told:
    """A subscriber that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[Any], int]] = []

    def changed(self, entry: Any, changes: Any, version: int) -> None:
        self.calls.append((list(changes), version))

    def lost(self, entry: Any) -> None:
        raise AssertionError("nothing is lost here")

    def ended(self, entry: Any, why: str) -> None:
        pass


def test_a_query_that_lacks_something_is_not_told_of_a_later_version() -> None:
    """With slack 0 a window often lacks a document, and waits until it may be found again."""
    where, asked = {"shop": {"$ne": 2}}, {"sort": [("total", -1)], "limit": 3}
    for seed in range(4):
        pick = random.Random(seed)
        with tideline.open(":memory:") as db:
            orders = db.collection("orders", key="id")
            told = Told()
            joined = orders.hub.join(Query.of("id", where, slack=0, **asked), told)
            rows = [item.document for item in joined.items or []]
            states = {0: rows[:]}
            for n in range(60):
                key = pick.randrange(9)
                if pick.random() < 0.2:
                    orders.delete(key)
                else:
                    orders.put({"id": key, "shop": pick.randrange(3), "total": pick.randrange(90)})
                states[orders.position()] = orders.find(where, **asked)
                if n % 5 == 0:
                    time.sleep(0.003)  # now and then the hub's own thread comes in between
            orders.hub.advance(renew=True)
            for changes, version in told.calls:
                for change in changes:
                    if change.old_index is not None:
                        assert rows.pop(change.old_index) == change.before
                    if change.index is not None:
                        rows.insert(change.index, change.document)
                assert rows == states[version]
            assert rows == states[max(states)]
