"""How many live subscriptions each user has, so that one user cannot fill a channel.

Counted by end: a sorted list of ends a user, so that what has expired goes away by itself. What a
channel holds when the server starts is counted then; what programs add with `apply` is not, they
act for any user and are trusted with that.

Everything here is on the event loop, except `load`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any

from tideline.clock import FOREVER
from tideline.server.refusals import Refused

__all__ = ["Quotas"]

_SWEEP = 1024  # users


class Quotas:
    """The ends of the live subscriptions of one channel, by user.

    >>> quotas = Quotas(2)
    >>> quotas.add("ann", 10); quotas.add("ann", 20)
    >>> quotas.check("ann", now=5)
    Traceback (most recent call last):
        ...
    tideline.server.refusals.Refused: the user has 2 live subscriptions in this channel, the most
    >>> quotas.check("ann", now=15)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ends: dict[str, list[int]] = {}
        self._sweep_at = _SWEEP

    @classmethod
    def load(cls, channel: Any, most: int) -> Quotas:
        """Count what a channel holds (any thread)."""
        quotas = cls(most)
        if channel.layout != "poll":
            table = channel.scan("subscriptions").select(["user", "until"])
            for batch in table.to_batches():
                ends = batch.column("until").cast("int64").fill_null(FOREVER).to_pylist()
                for user, end in zip(batch.column("user").to_pylist(), ends, strict=True):
                    quotas._ends.setdefault(user, []).append(end)
            for ends in quotas._ends.values():
                ends.sort()
        return quotas

    def check(self, user: str, now: int) -> None:
        """Refuse one more when there are enough."""
        if len(self._ends) >= self._sweep_at:  # users whose windows are all over are let go
            live = ((name, ends) for name, ends in self._ends.items() if ends and ends[-1] > now)
            self._ends = dict(live)
            self._sweep_at = _SWEEP + 2 * len(self._ends)
        ends = self._ends.get(user)
        if ends is None or len(ends) < self._most:
            return
        del ends[: bisect_right(ends, now)]
        if len(ends) >= self._most:
            raise Refused(
                429, "TooMany",
                f"the user has {self._most} live subscriptions in this channel, the most",
            )  # fmt: skip

    def add(self, user: str, until_us: int) -> None:
        """One more."""
        insort(self._ends.setdefault(user, []), min(until_us, FOREVER))

    def remove(self, user: str, until_us: int) -> None:
        """One less, if it was counted."""
        ends = self._ends.get(user, [])
        at = bisect_left(ends, until_us)
        if at < len(ends) and ends[at] == until_us:
            del ends[at]
            if not ends:
                del self._ends[user]
