"""How many live subscriptions each user has, and how heavy their conditions are, so that one user
can neither fill a channel nor make every event in it costly.

    single subscribes   every one counts, with the weight of its condition
    batches             rows with a condition count as single ones do (counted.py); rows without are
                        not counted: programs that send batches are trusted with their number
    at the start        what the channel holds

Counted by end: a sorted list of (end, weight, id) a user, so that what has expired goes away by
itself. The weight of a condition is `Cost.weight` (where/cost.py); none weighs nothing, and has no
id here: only what weighs is looked up by its id, when a batch cancels it. What a batch is about to
store is reserved first, so that two calls at a time do not both take the room that is left.

Safe from any thread.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import Counter
from typing import Any, NamedTuple

from tideline.clock import FOREVER
from tideline.server.refusals import Refused
from tideline.where import parse_text

__all__ = ["Counted", "Quotas"]

_SWEEP = 1024  # users
_Entry = tuple[int, int, str]


class Counted(NamedTuple):
    """How a subscription was counted."""

    user: str
    until_us: int
    weight: int


class Quotas:
    """The live subscriptions of one channel, by user.

    >>> quotas = Quotas(2, 100)
    >>> quotas.add("ann", 10, 60, "s1"); quotas.add("ann", 20)
    >>> quotas.check("ann", now=5)
    Traceback (most recent call last):
        ...
    tideline.server.refusals.Refused: the user has 2 live subscriptions in this channel, the most
    >>> quotas.check("ann", now=15, weight=100)
    """

    def __init__(self, most: int, most_weight: int) -> None:
        self._most = most
        self._most_weight = most_weight
        self._lock = threading.Lock()
        self._ends: dict[str, list[_Entry]] = {}
        self._weights: Counter[str] = Counter()
        self._weighed: dict[str, tuple[str, _Entry]] = {}  # by id, with the user
        self._reserved: Counter[str] = Counter()  # subscriptions, by user
        self._reserved_weights: Counter[str] = Counter()
        self._sweep_at = _SWEEP

    @classmethod
    def load(cls, channel: Any, most: int, most_weight: int) -> Quotas:
        """Count what a channel holds."""
        quotas = cls(most, most_weight)
        if channel.layout != "poll":
            table = channel.scan("subscriptions").select(["user", "until", "where", "id"])
            for batch in table.to_batches():
                ends = batch.column("until").cast("int64").fill_null(FOREVER).to_pylist()
                rest = (batch.column(name).to_pylist() for name in ("where", "user", "id"))
                for end, where, user, id in zip(ends, *rest, strict=True):
                    weight = parse_text(where, delta=True).cost.weight if where else 0
                    entry = end, weight, id if weight else ""
                    quotas._ends.setdefault(user, []).append(entry)
                    quotas._weights[user] += weight
                    if weight:
                        quotas._weighed[id] = user, entry
            for found in quotas._ends.values():
                found.sort()
        return quotas

    def check(self, user: str, now: int, weight: int = 0) -> None:
        """Refuse one more when there are enough, or when they are heavy enough."""
        with self._lock:
            self._check(user, now, weight)

    def reserve(self, user: str, now: int, weight: int) -> None:
        """Check, and keep room for one that is about to be stored; `release` gives it back."""
        with self._lock:
            self._check(user, now, weight)
            self._reserved[user] += 1
            self._reserved_weights[user] += weight

    def release(self, user: str, weight: int) -> None:
        """It is stored, and added, or it is not."""
        with self._lock:
            self._reserved[user] -= 1
            self._reserved_weights[user] -= weight
            if not self._reserved[user]:
                del self._reserved[user], self._reserved_weights[user]

    def add(self, user: str, until_us: int, weight: int = 0, id: str = "") -> None:
        """One more."""
        entry = min(until_us, FOREVER), weight, id if weight else ""
        with self._lock:
            if weight:
                self._forget(id)  # one that had the id ended without a word
                self._weighed[id] = user, entry
            insort(self._ends.setdefault(user, []), entry)
            self._weights[user] += weight

    def remove(self, user: str, until_us: int, weight: int = 0, id: str = "") -> None:
        """One less, if it was counted."""
        with self._lock:
            if weight:
                self._forget(id)
            else:
                self._drop(user, (min(until_us, FOREVER), 0, ""))

    def forget(self, id: str) -> Counted | None:
        """One less: the subscription with this id, if it was counted with a weight."""
        if id not in self._weighed:
            return None
        with self._lock:
            found = self._weighed.get(id)
            self._forget(id)
        return None if found is None else Counted(found[0], *found[1][:2])

    # ---- the lock is held ------------------------------------------------------------------------

    def _check(self, user: str, now: int, weight: int) -> None:
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
        if self._count(user) < self._most and self._fits(user, weight):
            return
        self._expire(user, now)
        if self._count(user) >= self._most:
            raise Refused(
                429, "TooMany",
                f"the user has {self._most} live subscriptions in this channel, the most",
            )  # fmt: skip
        if not self._fits(user, weight):
            raise Refused(
                429, "TooMany",
                f"the standing conditions of the user would weigh {self._weight(user) + weight} in"
                f" this channel, more than {self._most_weight}: a plain clause is 1, an"
                " instruction of a pattern 8",
            )  # fmt: skip

    def _count(self, user: str) -> int:
        return len(self._ends.get(user, ())) + self._reserved[user]

    def _weight(self, user: str) -> int:
        return self._weights[user] + self._reserved_weights[user]

    def _fits(self, user: str, weight: int) -> bool:
        return not weight or self._weight(user) + weight <= self._most_weight

    def _expire(self, user: str, now: int) -> None:
        ends = self._ends.get(user, [])
        over = bisect_left(ends, (now + 1, -1, ""))
        for entry in ends[:over]:
            self._weights[user] -= entry[1]
            if entry[1]:
                del self._weighed[entry[2]]
        del ends[:over]
        self._tidy(user)

    def _forget(self, id: str) -> None:
        found = self._weighed.pop(id, None)
        if found is not None:
            self._drop(*found)

    def _drop(self, user: str, entry: _Entry) -> None:
        ends = self._ends.get(user, [])
        at = bisect_left(ends, entry)
        if at < len(ends) and ends[at] == entry:
            del ends[at]
            self._weights[user] -= entry[1]
            self._tidy(user)

    def _tidy(self, user: str) -> None:
        if not self._ends.get(user):
            self._ends.pop(user, None)
            del self._weights[user]
