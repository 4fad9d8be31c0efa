"""The second stage of a stream: a bucket's packets run, its rows kept in Spark's state store.

A bucket's segments (segments.py) are the rows that still counted at the end of their micro-batch,
one segment for each class of time they have left (`_CLASSES`), so that rows which end together lie
together. A segment whose rows have all ended is dropped without being read. What long and short
lives leave behind inside segments goes when they are compacted. A bucket that no row reaches any
more is cleared whole, by a timer, when its last row has ended.

Runs in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from tideline.clock import FOREVER
from tideline.index.memory import Budget
from tideline.kernels import layout as at
from tideline.spark.matching.answers import ANSWERS, answers_of, conflicts_of, rejected_of
from tideline.spark.matching.bucket import Bucket, Ran, Words, in_order, rows_of
from tideline.spark.matching.settings import BAD, Settings
from tideline.spark.segments import Head as AnyHead
from tideline.spark.segments import Held, Segments
from tideline.spark.worker import settle

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import (
        MapState,
        StatefulProcessorHandle,
        ValueState,
    )

__all__ = ["Head", "Matcher"]

_CLASSES = np.array([60, 600, 7_200], np.int64) * 1_000_000  # time left, where a class ends
_HELD = 512  # buckets that a worker keeps at most
_STAYS = "space, buckets, levels, unseen and the columns of places must stay"


class Head(AnyHead):
    """What the state of a bucket begins with."""

    newest: int = -FOREVER
    next_seq: int = 1
    last: int = -FOREVER
    """When the last row ends."""
    timer: int = 0
    """The timer that is set, in milliseconds; 0 for none."""
    deltas: bool = False


class Matcher:
    """The work on one bucket at a time: Spark's state at hand, `processor.py` calls."""

    def __init__(
        self, settings: Settings, handle: StatefulProcessorHandle, heads: ValueState,
        parts: MapState,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.handle = handle
        self.segments = Segments(heads, parts, Head, settings.fixed, _STAYS)

    def rows(self, bucket: int, rows: Iterator[pd.DataFrame], now: int) -> Iterator[pd.DataFrame]:
        """Run the packets of one bucket."""
        packets: list[bytes] = []
        deltas = False
        for frame in rows:
            packets.extend(frame["data"])
            deltas = deltas or bool(frame["deltas"].any())
        if bucket == BAD:
            for packet in packets:
                yield to_pandas(rejected_of(packet))
            return
        for table in self.run(packets, deltas, now):
            yield to_pandas(table)
        settle("matching")

    def run(self, packets: list[bytes], deltas: bool, now: int) -> Iterator[pa.Table]:
        """Run packets when the whole stream has come to `now`; yields answers."""
        head = self.segments.head()
        bucket = self._bucket(head)
        bucket.advance(now)
        ran = in_order(packets)
        try:
            for table in bucket.run(ran, deltas=deltas):
                yield answers_of(table, ran)
            if ran.rejected:
                yield from conflicts_of(ran, self.settings)
            token = self._keep(head, bucket, ran)
        except BaseException:
            bucket.close()
            raise
        if self.settings.cached:
            held.put(head, token, bucket)
        else:
            bucket.close()

    def expired(self, timer_ms: int, now: int) -> None:
        """Clear a bucket in which everything has ended; the timer for `timer_ms` rang."""
        head = self.segments.stored()
        if head is None:
            return
        if head.last <= now:
            self.segments.clear()
            held.drop(head.lineage)
        elif head.timer == timer_ms:  # rows came since it was set
            head.timer = 0
            self._set_timer(head)
            self.segments.save(head)

    def _bucket(self, head: Head) -> Bucket:
        """The bucket as the head describes it, from memory if there is one to start from."""
        bucket, start = held.take(head) or (None, 0)
        if bucket is None:
            bucket = Bucket(self.settings, budget(self.settings.memory_mb), head.lineage)
        try:
            bucket.replay(self._read(head, start), head.newest, head.next_seq)
            if head.deltas:
                bucket.engine.watch_deltas()
        except BaseException:
            bucket.close()
            raise
        return bucket

    def _read(self, head: Head, start: int = 0) -> list[Words]:
        return [np.frombuffer(data, np.int64) for data in self.segments.read(head, start)]

    def _keep(self, head: Head, bucket: Bucket, ran: Ran) -> bytes:
        """Write what a micro-batch has left; its token."""
        head.newest = bucket.newest
        head.next_seq = bucket.engine.next_seq
        head.deltas = bucket.engine.deltas
        self._add(head, bucket.lasting(ran))
        self.segments.drop_ended(head, head.newest)
        if head.is_grown:
            rows = bucket.lasting(rows_of(self._read(head)).by_seq(), cancels=False)
            with self.segments.compacting(head):
                self._add(head, rows)
        head.last = max((last for _, last, _ in head.segments), default=head.newest)
        self._set_timer(head)
        token = self.segments.step(head)
        self.segments.save(head)
        return token

    def _add(self, head: Head, rows: Ran) -> None:
        """Write rows, those that have about as long to live together."""
        until = rows.rows[rows.starts + at.R_UNTIL]
        classes = np.searchsorted(_CLASSES, until - head.newest)
        # A cancel comes after what it cancels, and counts as long: it joins the longest-lived.
        classes[rows.kinds == at.CANCEL] = len(_CLASSES)
        for number in range(len(_CLASSES) + 1):
            picked = np.flatnonzero(classes == number)
            if len(picked):
                last = int(until[picked].max())
                for part in rows.picked(picked).parts(self.segments.most_bytes):
                    self.segments.write(head, part.tobytes(), last)

    def _set_timer(self, head: Head) -> None:
        """Be woken when everything here has ended; too early is mended then."""
        if not head.timer and head.last < FOREVER:
            head.timer = max(1, -(-head.last // 1000))
            self.handle.registerTimer(head.timer)


# ---- what a worker process holds --------------------------------------------------------------

_budgets: dict[int, Budget] = {}


def budget(memory_mb: int) -> Budget:
    """The memory that all buckets of this worker share."""
    if memory_mb not in _budgets:
        _budgets[memory_mb] = Budget(memory_mb << 20)
    return _budgets[memory_mb]


def is_crowded() -> bool:
    """Whether buckets that may never be asked for again take memory from those that are."""
    return any(
        sum(member.segments_used for member in each.members) * 2 > each.segments
        for each in _budgets.values()
    )


def new_held() -> Held[Bucket]:
    """What holds the buckets of a worker."""
    return Held(_HELD, Bucket.close, is_crowded)


held = new_held()


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """A table as pandas sees it, without touching a value."""
    return pd.DataFrame(
        {
            name: pd.Series(pd.arrays.ArrowExtensionArray(table[name]), copy=False)
            for name in ANSWERS.names
        },
        copy=False,
    )
