"""One thread that watches the database's clock for everybody.

A subscription's end is a matter of the database's clock, which a test may move by hand, so the
event loop's own timers cannot tell it. Here each open subscription leaves its time; those that fall
due together are rung together on the loop.

Invariant: nothing is kept alive by waiting here. A subscription whose reader has gone may have a
window of years, and its handle would collect every event until then.

Threads: `at` from any.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import weakref
from collections import deque
from typing import Protocol

from tideline.clock import FOREVER, Clock

__all__ = ["Alarm", "Rings"]

_SWEEP = 1024  # entries, and as many again, before those of the gone are thrown out


class Rings(Protocol):
    """What can be told that it is time."""

    def ring(self) -> None:
        """It is time; called on the loop."""
        ...


class Alarm:
    """Rings those who left a time, on a loop, when a clock has reached it."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._due: list[tuple[int, int, weakref.ref[Rings]]] = []
        self._sweep_at = _SWEEP
        self._ringing: deque[weakref.ref[Rings]] = deque()
        self._count = 0
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="tideline-alarm", daemon=True)
        self._thread.start()

    def at(self, time_us: int, who: Rings) -> None:
        """Ring when it is that time, if `who` is still there. One that never comes is forgotten."""
        if time_us >= FOREVER:
            return
        with self._changed:
            self._count += 1
            if len(self._due) >= self._sweep_at:
                self._due = [entry for entry in self._due if entry[2]() is not None]
                heapq.heapify(self._due)
                self._sweep_at = _SWEEP + 2 * len(self._due)
            heapq.heappush(self._due, (time_us, self._count, weakref.ref(who)))
            if self._due[0][1] == self._count:
                self._changed.notify_all()

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def catch_up(self) -> None:
        """Ring now what is due by now, on the loop: nobody has to wait for the thread."""
        with self._changed:
            self._take(self._clock.now())
        self._ring()

    def _run(self) -> None:
        with self._changed:
            while not self._stopped:
                if self._take(self._clock.now()):
                    self._loop.call_soon_threadsafe(self._ring)
                self._clock.wait(self._changed, self._due[0][0] if self._due else FOREVER)

    def _take(self, now: int) -> bool:
        """Move what is due to what rings next (the condition is held)."""
        found = False
        while self._due and self._due[0][0] <= now:
            self._ringing.append(heapq.heappop(self._due)[2])
            found = True
        return found

    def _ring(self) -> None:
        while self._ringing:
            who = self._ringing.popleft()()
            if who is not None:
                who.ring()
