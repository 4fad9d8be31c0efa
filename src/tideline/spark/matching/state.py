"""The second stage of a stream: a bucket's packets run, its rows kept in Spark's state store.

    head       one value a bucket: which segments there are, and who ran the bucket last
    segments   number -> rows, end to end, as a log would hold them

A micro-batch adds the rows that still count at its end, in one segment for each class of
time they have left (`_CLASSES`), so that rows which end together lie together. A segment whose
rows have all ended is dropped without being read. What long and short lives leave behind inside
segments is compacted: when what was added since the last time has grown as large as what was
left then, everything is read, and what still counts is written anew. So over its life a row is
written about twice at most, and the state is about twice what counts at most. A bucket that no
row reaches any more is cleared whole, by a timer, when its last row has ended.

The channel itself lives in the memory of a Python worker. Spark hands a bucket now to this
worker, now to that one, repeats tasks and kills workers, so memory is never trusted: each
micro-batch writes a new random *token* into the head, and a worker's bucket counts only if its
token is in the head's trail. Then it follows: the segments written since are replayed into it.
If not, it is built from the segments. Either way it stands where the head stands, exactly.

    task repeated after its state was lost     token is not in the trail   -> built anew
    another worker ran the last micro-batches  token is in the trail       -> follows
    restart from a checkpoint                  no bucket in memory         -> built anew

Runs in Spark's Python workers.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from tideline.clock import FOREVER
from tideline.errors import Conflict, Corruption
from tideline.index.memory import Budget
from tideline.kernels import layout as at
from tideline.spark.matching.answers import ANSWERS, answers_of, conflicts_of, rejected_of
from tideline.spark.matching.bucket import Bucket, Ran, Words, in_order, rows_of
from tideline.spark.matching.settings import BAD, Settings
from tideline.spark.worker import settle

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import (
        MapState,
        StatefulProcessorHandle,
        ValueState,
    )

__all__ = ["Head", "Matcher"]

FORMAT = 2
_TRAIL = 64  # micro-batches that a bucket in memory may be behind and still follow
_LEAST_BYTES = 1 << 20  # added since the last time: below this compacting is not worth it
_MOST_SEGMENTS = 256
_CLASSES = np.array([60, 600, 7_200], np.int64) * 1_000_000  # time left, where a class ends
_SEGMENT_BYTES = 8 << 20  # of one value in the state store
_HELD = 512  # buckets that a worker keeps at most


class Head(msgspec.Struct):
    """What the state of a bucket begins with."""

    format: int
    fixed: str
    """`Settings.fixed` of whoever made it."""
    lineage: bytes
    """Names this bucket in the memory of workers."""
    newest: int = -FOREVER
    next_seq: int = 1
    last: int = -FOREVER
    """When the last row ends."""
    timer: int = 0
    """The timer that is set, in milliseconds; 0 for none."""
    deltas: bool = False
    next: int = 0
    """The number of the next segment."""
    segments: list[tuple[int, int, int]] = []  # msgspec copies it
    """Number, when its last row ends, and bytes."""
    compacted: int = 0
    """Segments before this one were left by the last compaction."""
    trail: list[tuple[bytes, int]] = []
    """The tokens of the last micro-batches, and `next` as each left it."""


class Matcher:
    """The work on one bucket at a time: Spark's state at hand, `processor.py` calls."""

    def __init__(
        self, settings: Settings, handle: StatefulProcessorHandle, heads: ValueState,
        segments: MapState,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.handle = handle
        self.heads = heads
        self.segments = segments

    # ---- rows ------------------------------------------------------------------------------

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
        head = self._head()
        bucket = self._bucket(head)
        bucket.advance(now)
        ran = in_order(packets)
        try:
            for table in bucket.run(ran, deltas=deltas):
                yield answers_of(table, ran)
            if ran.rejected:
                yield from conflicts_of(ran, self.settings)
            self._keep(head, bucket, ran)
        except BaseException:
            bucket.close()
            raise
        held.put(head.lineage, head.trail[-1][0], bucket)

    def expired(self, timer_ms: int, now: int) -> None:
        """Clear a bucket in which everything has ended; the timer for `timer_ms` rang."""
        head = self._stored()
        if head is None:
            return
        if head.last <= now:
            self.segments.clear()
            self.heads.clear()
            held.drop(head.lineage)
        elif head.timer == timer_ms:  # rows came since it was set
            head.timer = 0
            self._set_timer(head)
            self.heads.update((msgspec.msgpack.encode(head),))

    # ---- head and segments -------------------------------------------------------------------

    def _stored(self) -> Head | None:
        found = self.heads.get()
        if found is None:
            return None
        head = msgspec.msgpack.decode(found[0], type=Head)
        if head.format != FORMAT or head.fixed != self.settings.fixed:
            raise Conflict(
                "the checkpoint was made with other settings: space, buckets, levels, unseen and "
                "the columns of places must stay; start with a new checkpoint to change them",
                checkpoint=head.fixed, now=self.settings.fixed,
            )  # fmt: skip
        return head

    def _head(self) -> Head:
        head = self._stored()
        if head is None:
            return Head(FORMAT, self.settings.fixed, secrets.token_bytes(12))
        return head

    def _read(self, numbers: Iterable[int]) -> list[Words]:
        parts = []
        for number in numbers:
            found = self.segments.getValue((number,))
            if found is None:
                raise Corruption("a segment of the state is missing", file=f"segment {number}")
            parts.append(np.frombuffer(found[0], np.int64))
        return parts

    def _bucket(self, head: Head) -> Bucket:
        """The bucket as the head describes it, from memory if there is one to start from."""
        token, bucket = held.take(head.lineage)
        start = 0
        if bucket is not None:
            if self.settings.cached and token == head.trail[-1][0]:
                return bucket
            known = dict(head.trail).get(token) if self.settings.cached else None
            if known is None:
                bucket.close()
                bucket = None
            else:
                start = known
        if bucket is None:
            bucket = Bucket(self.settings, budget(self.settings.memory_mb), head.lineage)
        try:
            missed = [number for number, _, _ in head.segments if number >= start]
            bucket.replay(self._read(missed), head.newest, head.next_seq)
            if head.deltas:
                bucket.engine.watch_deltas()
        except BaseException:
            bucket.close()
            raise
        return bucket

    def _keep(self, head: Head, bucket: Bucket, ran: Ran) -> None:
        """Write what a micro-batch has left."""
        head.newest = bucket.newest
        head.next_seq = bucket.engine.next_seq
        head.deltas = bucket.engine.deltas
        self._add(head, bucket.lasting(ran))
        self._drop_ended(head)
        added = sum(size for number, _, size in head.segments if number >= head.compacted)
        before = sum(size for number, _, size in head.segments if number < head.compacted)
        if added >= max(before, _LEAST_BYTES) or len(head.segments) > _MOST_SEGMENTS:
            self._compact(head, bucket)
        head.trail.append((secrets.token_bytes(12), head.next))
        del head.trail[:-_TRAIL]
        head.last = max((last for _, last, _ in head.segments), default=head.newest)
        self._set_timer(head)
        self.heads.update((msgspec.msgpack.encode(head),))

    def _add(self, head: Head, rows: Ran) -> None:
        """Write rows, those that have about as long to live together."""
        until = rows.rows[rows.starts + at.R_UNTIL]
        classes = np.searchsorted(_CLASSES, until - head.newest)
        # A cancel comes after what it cancels, and counts as long: it joins the longest-lived.
        classes[rows.kinds == at.CANCEL] = len(_CLASSES)
        for number in range(len(_CLASSES) + 1):
            picked = np.flatnonzero(classes == number)
            if len(picked):
                self._write(head, rows.picked(picked), int(until[picked].max()))

    def _write(self, head: Head, rows: Ran, last: int) -> None:
        """Write rows as segments, none larger than a value of the state store should be."""
        for part in rows.parts(_SEGMENT_BYTES):
            self.segments.updateValue((head.next,), (part.tobytes(),))
            head.segments.append((head.next, last, part.nbytes))
            head.next += 1

    def _drop_ended(self, head: Head) -> None:
        """Remove segments in which nothing counts any more, without reading them."""
        ended = [number for number, last, _ in head.segments if last <= head.newest]
        for number in ended:
            self.segments.removeKey((number,))
        head.segments = [each for each in head.segments if each[1] > head.newest]

    def _compact(self, head: Head, bucket: Bucket) -> None:
        """Write what counts anew, in place of all segments."""
        old = [number for number, _, _ in head.segments]
        rows = bucket.lasting(rows_of(self._read(old)).by_seq(), cancels=False)
        head.segments = []
        self._add(head, rows)
        head.compacted = head.next
        head.trail.clear()  # whoever is behind cannot follow: the rows have other numbers now
        for number in old:
            self.segments.removeKey((number,))

    def _set_timer(self, head: Head) -> None:
        """Be woken when everything here has ended; too early is mended then."""
        if not head.timer and head.last < FOREVER:
            head.timer = max(1, -(-head.last // 1000))
            self.handle.registerTimer(head.timer)


# ---- what a worker process holds --------------------------------------------------------------


class Held:
    """Buckets in the memory of this worker, by lineage; the one used longest ago goes first."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[bytes, tuple[bytes, Bucket]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, lineage: bytes) -> tuple[bytes, Bucket | None]:
        """The bucket, no longer held: if the task fails, nobody uses it again."""
        return self._buckets.pop(lineage, (b"", None))

    def put(self, lineage: bytes, token: bytes, bucket: Bucket) -> None:
        self._buckets[lineage] = (token, bucket)
        while len(self._buckets) > _HELD or (len(self._buckets) > 1 and _crowded()):
            _, (_, oldest) = self._buckets.popitem(last=False)
            oldest.close()

    def drop(self, lineage: bytes) -> None:
        _, bucket = self.take(lineage)
        if bucket is not None:
            bucket.close()

    def clear(self) -> None:
        """Forget everything."""
        while self._buckets:
            self.drop(next(iter(self._buckets)))


held = Held()
_budgets: dict[int, Budget] = {}


def budget(memory_mb: int) -> Budget:
    """The memory that all buckets of this worker share."""
    if memory_mb not in _budgets:
        _budgets[memory_mb] = Budget(memory_mb << 20)
    return _budgets[memory_mb]


def _crowded() -> bool:
    """Whether buckets that may never be asked for again take memory from those that are."""
    return any(
        sum(member.segments_used for member in each.members) * 2 > each.segments
        for each in _budgets.values()
    )


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """A table as pandas sees it, without touching a value."""
    return pd.DataFrame(
        {
            name: pd.Series(pd.arrays.ArrowExtensionArray(table[name]), copy=False)
            for name in ANSWERS.names
        },
        copy=False,
    )
