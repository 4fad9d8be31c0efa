"""The demo's own traffic: a thread that makes it and stores it, as fast as the machine allows.

    fleet (workload/fleet.py) --a tick--> rows --Channel.apply--> channel `roads`

Traffic is a function of its own time, which runs with the clock as long as the machine keeps up. A
tick makes at most `_MOST_S` of it and rests at least as long as it worked. One that took longer
makes the next ones smaller, and they grow again while they are quick. So on a busy machine the
drivers slow down, and nothing piles up. `pace` says how far, 1.0 is full speed.

The channel belongs to the demo. If a visitor drops it, or puts another one in its place, the next
tick makes it again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from tideline.errors import TidelineError

__all__ = ["Traffic"]


class Moving(Protocol):
    """What is driven: a function of time (workload/fleet.py, workload/manhattan.py)."""

    def operations(self, first_us: int, limit_us: int, start_us: int) -> pa.RecordBatch:
        """What happens in [first, limit), counted from a row that is at `start_us`."""
        ...


_EVERY_S = 0.25
_MOST_S = 0.5
_LEAST = 0.01
_PACE_S = 5.0  # the pace is that of the last seconds


class Traffic:
    """Makes traffic from `start` to `stop`. Any thread may ask for its pace."""

    def __init__(self, channel: Callable[[], Any], fleet: Moving) -> None:
        """`channel()` gives the channel to store in; it is asked for again when that one fails."""
        self._channel = channel
        self._fleets: list[tuple[Moving, int]] = [
            (fleet, 0)
        ]  # with the traffic's time at which each began
        self._us = 0  # the traffic's time
        self._ticks: deque[tuple[float, float]] = deque([(time.monotonic(), 0.0)])
        self._stop = threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._run, name="tideline-traffic", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the current tick."""
        self._stop.set()
        self._thread.join()

    def add(self, fleet: Moving) -> None:
        """Drive these as well, from now on."""
        self._fleets = [*self._fleets, (fleet, self._us)]

    @property
    def pace(self) -> float:
        """Seconds of traffic made in a second of the last few, at most 1."""
        (first, made), (last, total) = self._ticks[0], self._ticks[-1]
        return min(1.0, (total - made) / (last - first)) if last - first > 1 else 1.0

    def _run(self) -> None:
        roads: Any = None
        before = time.monotonic() - _MOST_S  # something is to be seen at once
        share = 1.0  # of what is due, so that a tick does not take long
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                roads = self._channel() if roads is None else roads
                self._tick(roads, share * min(began - before, _MOST_S))
            except Exception as error:  # the demo goes on, whatever became of the channel
                roads = None
                self._say(error)
            before = began
            took = time.monotonic() - began
            share = max(_LEAST, share * _MOST_S / took) if took > _MOST_S else min(1.0, share * 1.2)
            self._stop.wait(max(_EVERY_S - took, took))

    def _tick(self, roads: Any, seconds: float) -> None:
        first_us, self._us = self._us, self._us + round(seconds * 1e6)
        start_us = time.time_ns() // 1000 - self._us
        rows = [
            fleet.operations(max(0, first_us - since), self._us - since, start_us + since)
            for fleet, since in self._fleets
            if self._us > since
        ]
        roads.apply(pa.Table.from_batches(rows).sort_by([("at", "ascending")]))
        self._ticks.append((time.monotonic(), self._us / 1e6))
        while self._ticks[-1][0] - self._ticks[0][0] > _PACE_S and len(self._ticks) > 2:
            self._ticks.popleft()

    def _say(self, error: Exception) -> None:
        """What is no error of ours is a bug: said once, in full."""
        if isinstance(error, TidelineError) or self._told:
            return
        self._told = True
        text = f"tideline: the demo's traffic failed, and goes on: {type(error).__name__}: {error}"
        print(text, file=sys.stderr, flush=True)
