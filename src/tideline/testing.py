"""Tools for tests of programs that use Tideline: a clock that moves by hand.

>>> clock = ManualClock(100)
>>> clock.advance(2.5)
>>> clock.now()
102500000
"""

from __future__ import annotations

import threading
import weakref

from tideline.clock import SECOND
from tideline.errors import InvalidRequest

__all__ = ["ManualClock"]


class ManualClock:
    """A clock that stands still until `advance` moves it. Safe from any thread."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = round(start_s * SECOND)
        self._lock = threading.Lock()
        self._waiting: weakref.WeakSet[threading.Condition] = weakref.WeakSet()

    def now(self) -> int:
        """Microseconds since 1970."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move time on and wake whoever waits for it."""
        if not seconds >= 0:
            raise InvalidRequest("time only moves forward", seconds=seconds)
        with self._lock:
            self._now += round(seconds * SECOND)
            waiting = list(self._waiting)
        for condition in waiting:
            with condition:
                condition.notify_all()

    def wait(self, condition: threading.Condition, until: int) -> None:
        """Wait on a held condition until it is notified or time reaches `until`."""
        with self._lock:
            self._waiting.add(condition)
        if self._now < until:
            condition.wait()
