"""What is asked of a collection of tweets: a static workload, and mixes with writes.

    Static   all tweets are there; then gets, lookups or range lookups of one kind
    Mixed    puts, gets and lookups by turns, and puts that replace a tweet that is there

What is asked for follows what is there: the condition of a lookup is the value of a tweet taken at
random, so a user who writes much is asked for often. A range of users is so many user numbers, a
range of times so many minutes (of `documents.Documents`).

`MIXES` are the three mixes of the experiments: shares in a hundred operations.

Invariants:
1. Operation n is a function of n, the seed and the settings; a split into batches changes nothing.
2. Every hundred operations have exactly their shares, in a random order. So how many puts come
   before an operation is a division, and gets and lookups ask for what has been put by then.

Frozen; safe from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tideline.errors import InvalidRequest
from tideline.workload.documents import Documents
from tideline.workload.shape import mix
from tideline.workload.tweets import Numbers

__all__ = ["GET", "LOOKUP", "MIXES", "PUT", "UPDATE", "Batch", "Mix", "Mixed", "Static"]

PUT, GET, LOOKUP, UPDATE = range(4)
_HUNDRED = 100
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


class Mix(NamedTuple):
    """How many of a hundred operations are what."""

    put: int
    get: int
    lookup: int
    update: int


MIXES = {
    "write-heavy": Mix(80, 15, 5, 0),
    "read-heavy": Mix(20, 70, 10, 0),
    "update-heavy": Mix(40, 15, 5, 40),
}


@dataclass(frozen=True)
class Static:
    """Queries over the first `count` tweets.

    >>> static = Static(Documents.of(3_000), 3_000, seed=1)
    >>> static.ranges("user", 2, 10)
    [(66, 75), (1, 10)]
    >>> [high - low for low, high in static.ranges("time", 2, 1)]
    [59, 59]
    """

    tweets: Documents
    count: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidRequest("count must be at least 1", count=self.count)

    def keys(self, n: int) -> list[int]:
        """Keys of `n` tweets."""
        found: list[int] = self._rows(n, 1).tolist()
        return found

    def values(self, field: str, n: int) -> list[int]:
        """`n` values of a field, `user` or `time`."""
        found: list[int] = self._values(field, self._rows(n, 2)).tolist()
        return found

    def ranges(self, field: str, n: int, width: int) -> list[tuple[int, int]]:
        """`n` ranges, both ends included: of so many users, or of so many minutes."""
        if width < 1:
            raise InvalidRequest("width must be at least 1", width=width)
        values = self._values(field, self._rows(n, 3))
        wide = width * (60 if field == "time" else 1) - 1
        if field == "user":
            low = np.clip(values - wide // 2, 0, max(0, self.tweets.user_count - 1 - wide))
        else:
            ends = self._values(field, np.array([0, self.count - 1]))
            low = np.clip(values - wide // 2, ends[0], max(ends[0], ends[1] - wide))
        return [(one, one + wide) for one in low.tolist()]

    def _rows(self, n: int, lane: int) -> Numbers:
        return _below(np.arange(n), np.full(n, self.count), self.seed, lane)

    def _values(self, field: str, rows: Numbers) -> Numbers:
        if field == "user":
            return self.tweets.users(rows)
        if field == "time":
            return self.tweets.seconds(rows)
        raise InvalidRequest("field must be user or time", field=field)


class Batch(NamedTuple):
    """Operations in their order."""

    kind: NDArray[np.int8]
    """PUT, GET, LOOKUP or UPDATE."""
    value: Numbers
    """The key of a put, get or update; the user of a lookup."""
    documents: pa.Array
    """JSON texts, one a put or update, in their order."""


@dataclass(frozen=True)
class Mixed:
    """Operations by number, over `loaded` tweets that are there before the first.

    >>> mixed = Mixed(Documents.of(3_000), MIXES["write-heavy"], loaded=100)
    >>> batch = mixed.batch(0, 200)
    >>> np.bincount(batch.kind).tolist(), len(batch.documents)
    ([160, 30, 10], 160)
    """

    tweets: Documents
    mix: Mix
    loaded: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.mix) < 0 or sum(self.mix) != _HUNDRED:
            raise InvalidRequest("the shares of a mix must add up to 100", mix=tuple(self.mix))
        if self.loaded < 0:
            raise InvalidRequest("loaded must not be negative", loaded=self.loaded)

    def batch(self, first: int, count: int) -> Batch:
        """The operations `[first, first + count)`."""
        if first < 0 or count < 0:
            raise InvalidRequest("first and count must not be negative", first=first, count=count)
        start = first // _HUNDRED
        blocks = np.arange(start, (first + count + _HUNDRED - 1) // _HUNDRED)
        numbers = (blocks[:, None] * _HUNDRED + np.arange(_HUNDRED)).ravel()
        kind = self._kinds(numbers)
        wanted = slice(first - start * _HUNDRED, first - start * _HUNDRED + count)

        put = kind == PUT
        write = put | (kind == UPDATE)
        shares = self.mix
        # Of each operation: what has been put, and written, before it.
        puts = np.cumsum(put) - put + start * shares.put + self.loaded
        writes = np.cumsum(write) - write + start * (shares.put + shares.update) + self.loaded
        value = _below(numbers, np.maximum(puts, 1), self.seed, 5)
        value[put] = puts[put]
        asked = kind == LOOKUP
        rows = _below(numbers[asked], np.maximum(writes[asked], 1), self.seed, 6)
        value[asked] = self.tweets.users(rows)

        kind, value, writes = kind[wanted], value[wanted], writes[wanted]
        write = write[wanted]
        documents = self.tweets.documents(writes[write], value[write])
        return Batch(kind, value, documents)

    def _kinds(self, numbers: Numbers) -> NDArray[np.int8]:
        shares = np.repeat(np.arange(4, dtype=np.int8), self.mix)
        order = np.argsort(_draws(numbers, self.seed, 4).reshape(-1, _HUNDRED), axis=1)
        return shares[order].ravel()


def _draws(numbers: Numbers, seed: int, lane: int) -> NDArray[np.uint64]:
    key = mix(np.array([seed * 16 + lane], np.uint64) * _GOLDEN)
    return mix(numbers.view(np.uint64) * _GOLDEN + key)


def _below(numbers: Numbers, limits: Numbers, seed: int, lane: int) -> Numbers:
    drawn = (_draws(numbers, seed, lane) >> _HALF) * limits.view(np.uint64) >> _HALF
    return drawn.view(np.int64)
