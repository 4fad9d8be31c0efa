"""Limits on callers: operations a second, open connections.

A caller is a token, or an address where there are no tokens. One that has too much itself is told
429; when the server is full, whoever comes is told 503. Rates are token buckets that hold one
second's worth. Everything here is on the event loop.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import Any

from tideline.server.refusals import Refused
from tideline.server.settings import Settings

__all__ = ["Limits"]


class Limits:
    """What each caller has used."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._left: dict[str, tuple[float, float]] = {}  # by caller: what is left, and when it was
        self._open: Counter[str] = Counter()

    def spend(self, caller: Any, operations: float = 1.0) -> None:
        """Count operations of a caller; refuses when there were too many within a second."""
        rate, now, key = self._settings.rate_per_s, time.monotonic(), caller.key
        left, then = self._left.get(key) or (rate, now)
        left += (now - then) * rate
        if left > rate:
            left = rate
        if left <= 0.0:
            self._left[key] = (left, now)
            raise _slow_down(rate, left)
        # A batch may overdraw: it is let through whole, and what follows waits.
        self._left[key] = (left - operations, now)

    def check_paid(self, caller: Any) -> None:
        """Refuse a single call that was let in, if others of its caller have cost much since."""
        rate = self._settings.rate_per_s
        left, then = self._left.get(caller.key, (rate, 0.0))
        left += (time.monotonic() - then) * rate
        if left < -1.0:  # one is the call's own
            raise _slow_down(rate, left)

    def charge(self, caller: Any, operations: float) -> None:
        """Count what a call turned out to cost, after it (any thread)."""
        rate, now = self._settings.rate_per_s, time.monotonic()
        left, then = self._left.get(caller.key, (rate, now))
        left = min(rate, left + (now - then) * rate)
        self._left[caller.key] = (left - operations, now)

    def connect(self, caller: Any) -> None:
        """Count a connection; refuses when there are too many."""
        if self._open.total() >= self._settings.connections:
            raise Refused(
                503, "Unavailable", "too many open connections: try later", retry_after="1"
            )
        if self._open[caller.key] >= self._settings.connections_per_caller:
            raise Refused(429, "TooMany", "too many open connections of this caller")
        self._open[caller.key] += 1

    def disconnect(self, caller: Any) -> None:
        """A connection has ended."""
        self._open[caller.key] -= 1
        if not self._open[caller.key]:
            del self._open[caller.key]

    @property
    def connections(self) -> int:
        """Open ones."""
        return self._open.total()

    def forget(self) -> None:
        """Let go of callers that have been quiet for a while."""
        limit = time.monotonic() - 60.0
        self._left = {key: entry for key, entry in self._left.items() if entry[1] > limit}


def _slow_down(rate: float, left: float) -> Refused:
    return Refused(
        429, "TooMany", f"more than {rate:g} operations a second: slow down",
        retry_after=str(max(1, math.ceil(-left / rate))),
    )  # fmt: skip
