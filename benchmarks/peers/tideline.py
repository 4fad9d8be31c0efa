"""Tideline inside this process: `Channel.apply`, and for one row `publish` or `subscribe`.

Durability is the default, `"os"`: the log's bytes are with the operating system before a call
returns. Expiry needs nothing: windows are dropped whole. Circles are Tideline's own, on the grid of
the workload.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, ClassVar

import msgspec
import numpy as np
import psutil
import pyarrow as pa

from benchmarks.peers.base import Given
from benchmarks.peers.columns import (
    InProcess,
    answer_array,
    flags,
    microseconds,
)

__all__ = [
    "CHANNEL",
    "Single",
    "TidelinePeer",
    "answers_of",
    "call",
    "delivered",
    "memory_of",
    "single",
    "space_of",
]

CHANNEL = "side"


class WorkloadClock:
    """The workload's time as the database's clock: a single call has no `at` of its own."""

    def __init__(self) -> None:
        self.us = 0

    def now(self) -> int:
        return self.us

    def wait(self, condition: threading.Condition, until: int) -> None:
        condition.wait(0.05)


@dataclass(frozen=True)
class Single:
    """One operation as the arguments of `publish` or `subscribe`."""

    publish: bool
    us: int
    place: Any
    body: Any
    options: dict[str, Any]


def space_of(given: Given) -> Any:
    """The space of the channel: flat keys, or the workload's grid."""
    if not given.shapes:
        return None
    from tideline.workload.shape import new_york

    return new_york().grid


def single(operations: pa.RecordBatch) -> Single:
    """A table of one row as a call."""
    from tideline.space import Circle

    [row] = operations.to_pylist()
    publish = row["op"] == "publish"
    if "lon" in row:
        place: Any = (row["lon"], row["lat"])
        if not publish:
            place = Circle(place, row["radius_m"])
    else:
        place = row["place"]
    options: dict[str, Any] = {"id": row["id"], "until": row["until"]}
    if publish:
        options["at"] = row["at"]
    else:
        options |= {"user": row["user"], "since": row["since"] or row["at"]}
        if bool(flags(operations)[0]):
            options["unseen"] = True
    body = msgspec.json.decode(row["body"]) if publish else None
    return Single(publish, int(microseconds(operations, "at")[0]), place, body, options)


def answers_of(outcome: Any) -> np.ndarray:
    """What `apply` of a table gave, or a single call: (subscriptions, events)."""
    if isinstance(outcome, tuple):
        told, found = outcome
        return answer_array([0] * len(told), [int(n) for n in told], [int(n) for n in found])
    if outcome.rejected.num_rows:
        raise AssertionError(f"rejected: {outcome.rejected.slice(0, 3).to_pylist()}")
    answers = outcome.answers
    columns = (
        answers[name].cast(pa.string()).cast(pa.int64()).to_numpy()
        for name in ("subscription", "event")
    )
    return answer_array(answers["row"].to_numpy(), *columns)


def memory_of(given: Given) -> int:
    """`memory_mb`, a quarter of the machine's memory unless said otherwise.

    The same as PostgreSQL gets. What fits in it is never sealed because of its size.
    """
    return given.memory_mb or psutil.virtual_memory().total // 4 >> 20


class TidelinePeer(InProcess):
    """A channel of a database in this process."""

    name: ClassVar[str] = "tideline"

    @classmethod
    def version(cls) -> str:
        return f"Tideline {metadata.version('tideline')}"

    def __init__(self, given: Given) -> None:
        import tideline

        self._folder = given.folder
        self._clock = WorkloadClock()
        self._database = tideline.open(
            given.folder / "db", clock=self._clock, memory_mb=memory_of(given)
        )
        self._channel = self._database.channel(CHANNEL, space=space_of(given), max_ahead_s=math.inf)

    def prepare(self, operations: pa.RecordBatch) -> Any:
        return single(operations) if operations.num_rows == 1 else operations

    def apply(self, prepared: Any) -> Any:
        if not isinstance(prepared, Single):
            return self._channel.apply(prepared)
        self._clock.us = prepared.us
        return call(self._channel, prepared)

    def answers(self, outcome: Any) -> np.ndarray:
        return answers_of(outcome)

    def deliver(self, count: int) -> list[float]:
        return delivered(self._channel, count)

    def close(self) -> None:
        self._database.close()


def call(channel: Any, one: Single) -> tuple[list[str], list[str]]:
    """Make a single call, look at its answers: the ids of subscriptions and events."""
    if one.publish:
        answer = channel.publish(one.place, one.body, **one.options)
        told = [other.id for other in answer.subscriptions]
        return told, [one.options["id"]] * len(told)
    past = [event.id for event in channel.subscribe(one.place, **one.options).past]
    return [one.options["id"]] * len(past), past


def delivered(channel: Any, count: int) -> list[float]:
    """Publish to an open subscription, one by one: the seconds until each event is there."""
    far = datetime(2100, 1, 1, tzinfo=UTC)
    handle = channel.subscribe("deliver", user="listener", until=far)
    arrived = iter(handle)
    taken = []
    for number in range(count):
        begin = time.perf_counter()
        channel.publish("deliver", {"n": number}, until=far)
        event = next(arrived)
        taken.append(time.perf_counter() - begin)
        if event.body != {"n": number}:
            raise RuntimeError(f"event {number} was not delivered, but {event.body!r}")
    handle.cancel()
    return taken
