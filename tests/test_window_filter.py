"""Windows with more places than their filters are asked for, and window numbers used again."""

from __future__ import annotations

import pyarrow as pa

import tideline
from tideline.kernels.layout import FILTER_PLACES
from tideline.testing import ManualClock


def _table(op: str, first: int, count: int, until_s: float, at_s: float) -> pa.Table:
    numbers = range(first, first + count)
    time = pa.timestamp("us", "UTC")
    return pa.table({
        "op": [op] * count, "id": [f"{op}{n}" for n in numbers],
        "place": [f"p{n - first}" for n in numbers],
        "user": ["ann" if op == "subscribe" else None] * count,
        "at": pa.array([int(at_s * 1e6)] * count, time),
        "until": pa.array([int(until_s * 1e6)] * count, time),
        "body": ["{}" if op == "publish" else None] * count,
    })  # fmt: skip


def test_every_place_of_a_large_window_is_found() -> None:
    """Past the limit of its filter, and up to it."""
    count = FILTER_PLACES + 5_000
    with tideline.open(":memory:", clock=ManualClock(1000)) as db:
        roads = db.channel("roads")
        roads.apply(_table("subscribe", 0, count, 2000, 1000))
        answers = roads.apply(_table("publish", 0, count, 1900, 1000)).answers
        told = answers["subscription"].cast(pa.string()).to_pylist()
        assert sorted(told) == sorted(f"subscribe{n}" for n in range(count))


def test_a_window_that_is_made_again_knows_its_own_places() -> None:
    """Numbers of windows come round as windows are dropped; every round finds its own."""
    clock = ManualClock(1000)
    with tideline.open(":memory:", clock=clock) as db:
        roads = db.channel("roads")
        for turn in range(30):
            now = clock.now() / 1e6
            roads.apply(_table("subscribe", 1000 * turn, 40 + turn, now + 4, now))
            answers = roads.apply(_table("publish", 1000 * turn, 80, now + 3, now)).answers
            told = answers["subscription"].cast(pa.string()).to_pylist()
            assert sorted(told) == sorted(f"subscribe{1000 * turn + n}" for n in range(40 + turn))
            clock.advance(10)
