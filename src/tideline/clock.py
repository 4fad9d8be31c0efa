"""Time: integer microseconds since 1970, read from a clock that is passed in.

This is the one module that reads the wall clock. `FOREVER` is the limit of a
window that never ends; no valid time reaches it. What happens, happens in
[EARLIEST, LATEST).

A clock also knows how to wait, so that a test can move time by hand
(`tideline.testing.ManualClock`) and a waiting subscriber notices.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from tideline.errors import InvalidRequest

__all__ = [
    "EARLIEST",
    "FOREVER",
    "LATEST",
    "SECOND",
    "WAIT_S",
    "Clock",
    "Seconds",
    "SystemClock",
    "from_us",
    "span_s",
    "span_us",
    "to_us",
]

SECOND = 1_000_000
FOREVER = 1 << 62
EARLIEST = -62_135_596_800 * SECOND  # the year 1, where datetimes begin
LATEST = 250_000_000_000 * SECOND  # in the year 9892: they end soon after
Seconds = float | timedelta
"""A span of time, wherever one is taken: a number of seconds, or a timedelta."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIMIT = 253_402_300_799 * SECOND  # the last second datetime can name


class Clock(Protocol):
    """What a database asks of its clock. Safe from any thread."""

    def now(self) -> int:
        """Microseconds since 1970."""
        ...

    def wait(self, condition: threading.Condition, until: int) -> None:
        """Wait on a held condition until it is notified or `now() >= until`."""
        ...


WAIT_S = 1.0
"""No wait is longer: a signal that comes just before one, Ctrl-C say, is handled when it ends."""


class SystemClock:
    """The machine's clock.

    >>> SystemClock().now() > 1_700_000_000 * SECOND
    True
    """

    def now(self) -> int:
        return time.time_ns() // 1000

    def wait(self, condition: threading.Condition, until: int) -> None:
        left_s = (until - self.now()) / SECOND
        if left_s > 0:
            condition.wait(min(left_s, WAIT_S))


def to_us(value: datetime, name: str) -> int:
    """A datetime as microseconds; one without a zone is read as UTC.

    >>> to_us(datetime(1970, 1, 1, 0, 0, 1), "at")
    1000000
    """
    if not isinstance(value, datetime):
        raise InvalidRequest(f"{name} must be a datetime", **{name: value})
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    since = value - _EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds


def from_us(value: int) -> datetime | None:
    """Microseconds as a datetime in UTC; `None` for a time that never comes, or that never was.

    >>> from_us(1_000_000).isoformat()
    '1970-01-01T00:00:01+00:00'
    >>> from_us(FOREVER) is None, from_us(-FOREVER) is None
    (True, True)
    """
    if not EARLIEST <= value <= _LIMIT:
        return None
    return _EPOCH + timedelta(microseconds=value)


def span_us(value: Any, name: str) -> int:
    """A span as microseconds: a finite number of seconds, or a timedelta.

    >>> span_us(1.5, "ttl_s"), span_us(timedelta(minutes=-1), "since_s")
    (1500000, -60000000)
    """
    if type(value) is int and -100_000_000_000 < value < 100_000_000_000:
        return value * SECOND
    if isinstance(value, timedelta):
        us = value // timedelta(microseconds=1)
        if abs(us) < 100_000_000_000 * SECOND:
            return us
        raise InvalidRequest(f"{name} is too long", **{name: value})
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidRequest(f"{name} must be a number of seconds or a timedelta", **{name: value})
    if not -1e11 < value < 1e11:  # also false for NaN
        words = f"{name} must be a finite number of seconds below 1e11"
        raise InvalidRequest(words, **{name: value})
    return round(value * SECOND)


def span_s(value: Any, name: str) -> float:
    """A span as seconds, for what is sent or stored as a number; checked as `span_us` does.

    >>> span_s(timedelta(minutes=1), "until_s"), span_s(90, "until_s")
    (60.0, 90)
    """
    us = span_us(value, name)
    if isinstance(value, timedelta):
        return us / SECOND
    seconds: float = value
    return seconds
