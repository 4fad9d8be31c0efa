"""How many live subscriptions each user has, and how heavy their conditions are, so that one user
can neither fill a channel nor make every event in it costly.

Counted by end: a sorted list of (end, weight) a user, so that what has expired goes away by itself.
What a channel holds when the server starts is counted then; what programs add with `apply` is not,
they act for any user and are trusted with that. The weight of a condition is `Cost.weight`
(where/cost.py); none weighs nothing.

Everything here is on the event loop, except `load`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from typing import Any

from tideline.clock import FOREVER
from tideline.server.refusals import Refused
from tideline.where import parse_text

__all__ = ["Quotas"]

_SWEEP = 1024  # users


class Quotas:
    """The live subscriptions of one channel, by user.

    >>> quotas = Quotas(2, 100)
    >>> quotas.add("ann", 10, 60); quotas.add("ann", 20, 0)
    >>> quotas.check("ann", now=5)
    Traceback (most recent call last):
        ...
    tideline.server.refusals.Refused: the user has 2 live subscriptions in this channel, the most
    >>> quotas.check("ann", now=15, weight=100)
    """

    def __init__(self, most: int, most_weight: int) -> None:
        self._most = most
        self._most_weight = most_weight
        self._ends: dict[str, list[tuple[int, int]]] = {}
        self._weights: Counter[str] = Counter()
        self._sweep_at = _SWEEP

    @classmethod
    def load(cls, channel: Any, most: int, most_weight: int) -> Quotas:
        """Count what a channel holds (any thread)."""
        quotas = cls(most, most_weight)
        if channel.layout != "poll":
            table = channel.scan("subscriptions").select(["user", "until", "where"])
            for batch in table.to_batches():
                ends = batch.column("until").cast("int64").fill_null(FOREVER).to_pylist()
                wheres = batch.column("where").to_pylist()
                users = batch.column("user").to_pylist()
                for user, end, where in zip(users, ends, wheres, strict=True):
                    weight = parse_text(where, delta=True).cost.weight if where else 0
                    quotas._ends.setdefault(user, []).append((end, weight))
                    quotas._weights[user] += weight
            for found in quotas._ends.values():
                found.sort()
        return quotas

    def check(self, user: str, now: int, weight: int = 0) -> None:
        """Refuse one more when there are enough, or when they are heavy enough."""
        if weight > self._most_weight:
            raise Refused(
                413, "TooLarge",
                f"the condition weighs {weight}, more than {self._most_weight}: a plain clause is"
                " 1, an instruction of a pattern 8",
            )  # fmt: skip
        if len(self._ends) >= self._sweep_at:  # users whose windows are all over are let go
            for name in list(self._ends):
                self._expire(name, now)
            self._sweep_at = _SWEEP + 2 * len(self._ends)
        ends = self._ends.get(user)
        if ends is None or (len(ends) < self._most and self._fits(user, weight)):
            return
        self._expire(user, now)
        if len(self._ends.get(user, ())) >= self._most:
            raise Refused(
                429, "TooMany",
                f"the user has {self._most} live subscriptions in this channel, the most",
            )  # fmt: skip
        if not self._fits(user, weight):
            raise Refused(
                429, "TooMany",
                f"the standing conditions of the user would weigh {self._weights[user] + weight} in"
                f" this channel, more than {self._most_weight}: a plain clause is 1, an"
                " instruction of a pattern 8",
            )  # fmt: skip

    def _fits(self, user: str, weight: int) -> bool:
        return not weight or self._weights[user] + weight <= self._most_weight

    def _expire(self, user: str, now: int) -> None:
        ends = self._ends.get(user, [])
        over = bisect_left(ends, (now + 1, -1))
        self._weights[user] -= sum(weight for _, weight in ends[:over])
        del ends[:over]
        if not ends:
            self._ends.pop(user, None)
            del self._weights[user]

    def add(self, user: str, until_us: int, weight: int = 0) -> None:
        """One more."""
        insort(self._ends.setdefault(user, []), (min(until_us, FOREVER), weight))
        self._weights[user] += weight

    def remove(self, user: str, until_us: int, weight: int = 0) -> None:
        """One less, if it was counted."""
        ends = self._ends.get(user, [])
        entry = (min(until_us, FOREVER), weight)
        at = bisect_left(ends, entry)
        if at < len(ends) and ends[at] == entry:
            del ends[at]
            self._weights[user] -= weight
            if not ends:
                del self._ends[user], self._weights[user]
