"""How far ahead of the clock a batch may bring a channel's time.

The rows of a batch move the channel's time by their `at`, and time never goes back: one row of
next year would expire everything that ends before next year. So a channel has `max_ahead_s`, and
a row that is further ahead of the clock than that is rejected, before it moves anything.

Single calls happen at the clock's time, whatever the `at` of their event: a forecast moves nothing.

    facts["max_ahead_us"]    whole microseconds, `FOREVER` for no limit; absent: the default

Pure functions; safe from any thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tideline.clock import FOREVER, SECOND, Seconds, span_us
from tideline.errors import InvalidRequest

if TYPE_CHECKING:  # the client comes here too, and has no use for numpy
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DEFAULT_S", "Ahead", "ahead_s", "ahead_us", "check_max_ahead_s"]

DEFAULT_S = 60.0
"""Clocks that are set by hand are off by less than a minute; a wrong day or year is not."""


@dataclass(frozen=True)
class Ahead:
    """The latest `at` that a row may have now, and why a later one is rejected.

    >>> import numpy as np
    >>> ahead = Ahead.of(60, now=100 * SECOND)
    >>> ahead.beyond(np.array([100, 160, 161]) * SECOND).tolist(), ahead.reason
    ([False, False, True], 'at is more than 60 s ahead of the clock (max_ahead_s of the channel)')
    >>> Ahead.of(math.inf, now=0) is None
    True
    """

    latest: int
    reason: str

    @classmethod
    def of(cls, max_ahead_s: float, now: int) -> Ahead | None:
        """The limit at `now`; None when there is none."""
        if max_ahead_s == math.inf:
            return None
        return cls(
            now + ahead_us(max_ahead_s),
            f"at is more than {max_ahead_s:.12g} s ahead of the clock (max_ahead_s of the channel)",
        )

    def beyond(self, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these times are too far ahead."""
        return at > self.latest


def check_max_ahead_s(max_ahead_s: Any) -> None:
    """`InvalidRequest` for what is no `max_ahead_s` of a channel.

    >>> check_max_ahead_s(0), check_max_ahead_s(math.inf)
    (None, None)
    """
    if max_ahead_s == math.inf:
        return
    if span_us(max_ahead_s, "max_ahead_s") < 0:
        raise InvalidRequest("max_ahead_s must not be negative", max_ahead_s=max_ahead_s)


def ahead_us(max_ahead_s: Seconds) -> int:
    """A checked `max_ahead_s` as it is stored."""
    return FOREVER if max_ahead_s == math.inf else span_us(max_ahead_s, "max_ahead_s")


def ahead_s(facts: Mapping[str, Any]) -> float:
    """The `max_ahead_s` of a stored channel."""
    stored = facts.get("max_ahead_us")
    if stored is None:  # made before there was a limit
        return DEFAULT_S
    return math.inf if stored >= FOREVER else float(stored) / SECOND
