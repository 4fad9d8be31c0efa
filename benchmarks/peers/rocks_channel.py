"""RocksDB in this process (PyPI rocksdict): composite keys, one table for both sides.

    key := place (16 bytes) | side (S=1, E=2) | time | time | id | user       (all big-endian)
           subscription: until, since         event: at, until
    told := 0xff * 16 | 3 | user | event -> until of the event     only when unseen is asked for

The value of an event is its body, of a subscription whether it wants unseen events only. A
subscription is keyed by its end, so the scan for a new event starts after all that have expired; an
event by its time, so the scan for a new subscription starts at `since`. What an answer needs is in
the key: scans copy no values. The settings, and why, are those of peers/rocks.py, which runs the
same design on the numbers of a file; here places are texts.

- A WriteBatch holds the writes of many operations and is written just before the first scan that
  would miss one of them, and at the end of the call. The write-ahead log is on and not synced, so a
  killed process loses nothing that was acknowledged.
- Expiry: RocksDB's own TTL follows the wall clock in whole seconds, so what has expired is swept
  out by one pass over the keys when as many records were written as were left by the last pass: a
  record is passed twice on average, however many there are.
- Circles: RocksDB knows no shapes, only ranges of keys.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from benchmarks.peers.base import Cannot, Given
from benchmarks.peers.columns import (
    InProcess,
    answer_array,
    flags,
    microseconds,
    numbers,
)

__all__ = ["RocksPeer"]

SUBSCRIPTION, EVENT, TOLD = b"\1", b"\2", b"\3"
PLACE_BYTES = 16
_PREFIX = PLACE_BYTES + 1
_REST = Struct(">qqQQ")
_TIME = Struct(">q")
_PAIR = Struct(">QQ")
_TOLD = b"\xff" * PLACE_BYTES + TOLD
_A, _B = _PREFIX, _PREFIX + 8  # where the two times and the id begin
_ID, _USER = _PREFIX + 16, _PREFIX + 24
_KEY_TYPE = np.dtype(
    [("place", f"V{_PREFIX}"), ("a", ">i8"), ("b", ">i8"), ("id", ">u8"), ("user", ">u8")]
)
_MANY = 40  # from here on numpy filters
_FEWEST = 50_000  # records written between two sweeps


class RocksPeer(InProcess):
    """Both sides in one column family."""

    name: ClassVar[str] = "RocksDB"

    @classmethod
    def missing(cls) -> str | None:
        try:
            import rocksdict  # noqa: F401
        except ImportError:
            return "rocksdict (pip install rocksdict)"
        return None

    @classmethod
    def version(cls) -> str:
        from importlib import metadata

        return f"RocksDB, rocksdict {metadata.version('rocksdict')}"

    def __init__(self, given: Given) -> None:
        import rocksdict

        if given.shapes:
            raise Cannot("RocksDB has ranges of keys, no shapes")
        self._rocks = rocksdict
        self._folder = given.folder
        self._unseen = given.unseen
        self._db = rocksdict.Rdict(str(given.folder / "db"), _options(given.memory_mb))
        self._read = rocksdict.ReadOptions()
        self._read.set_prefix_same_as_start(True)
        self._read_all = rocksdict.ReadOptions()
        self._read_all.set_total_order_seek(True)
        self._newest = 0
        self._loading = False
        self._written = 0
        self._left = _FEWEST
        self._new_batch()

    # ---- the peer -----------------------------------------------------------------------------

    def prepare(self, operations: pa.RecordBatch) -> Any:
        at = microseconds(operations, "at")
        now = np.maximum.accumulate(np.maximum(at, self._newest))
        self._newest = int(now[-1])
        since = microseconds(operations, "since")
        publish = operations.column("op").to_numpy(zero_copy_only=False) == "publish"
        places = [place.encode().ljust(PLACE_BYTES, b"\0") for place in
                  operations.column("place").to_pylist()]  # fmt: skip
        if any(len(place) > PLACE_BYTES for place in places):
            raise ValueError(f"a place is over {PLACE_BYTES} bytes")
        bodies = [b"" if body is None else body.encode()
                  for body in operations.column("body").to_pylist()]  # fmt: skip
        columns = (
            publish, places, numbers(operations, "id"), numbers(operations, "user"), at, now,
            np.where(since, since, at), microseconds(operations, "until"), bodies,
            flags(operations),
        )  # fmt: skip
        return [column if isinstance(column, list) else column.tolist() for column in columns]

    def apply(self, prepared: Any) -> Any:
        found, counts = [], []
        for publish, place, id, user, at, now, since, until, body, unseen in zip(
            *prepared, strict=True
        ):
            if publish:
                got = self._publish(place, id, at, now, until, body)
            else:
                got = self._subscribe(place, id, user, now, since, until, unseen)
            found.append(got)
            counts.append(len(got) // _KEY_TYPE.itemsize)
        self._flush()
        self._written += len(counts)
        if self._written >= self._left and not self._loading:
            self._sweep(prepared[5][-1])
        if len(counts) == 1:  # for a few ids numpy takes longer than it saves
            [keys] = found
            starts = range(_ID, len(keys), _KEY_TYPE.itemsize)
            other: Any = [int.from_bytes(keys[at : at + 8], "big") for at in starts]
        else:
            other = np.frombuffer(b"".join(found), _KEY_TYPE)["id"].astype(np.int64)
        return prepared[0], prepared[2], other, counts

    def answers(self, outcome: Any) -> np.ndarray:
        publish, ids, other, counts = outcome
        row = np.repeat(np.arange(len(counts)), counts)
        own, told = np.array(ids, np.int64)[row], np.array(publish, bool)[row]
        return answer_array(row, np.where(told, other, own), np.where(told, own, other))

    def load(self, subscriptions: pa.RecordBatch) -> None:
        self._loading = True
        try:
            self.apply(self.prepare(subscriptions))
        finally:
            self._loading = False
            self._left += subscriptions.num_rows

    def close(self) -> None:
        self._db.close()

    # ---- one operation ------------------------------------------------------------------------

    def _publish(self, place: bytes, id: int, at: int, now: int, until: int, body: bytes) -> bytes:
        # s.until lies past both `at` and now, and since <= at.
        keys = self._scan(place + SUBSCRIPTION, max(now, at) + 1)
        if len(keys) > _MANY:
            joined = b"".join(keys)
            many = np.frombuffer(joined, _KEY_TYPE)
            wanted = many["b"] <= at
            found = joined if wanted.all() else many[wanted].tobytes()
        else:
            last = _TIME.pack(at)
            found = b"".join([key for key in keys if key[_B:_ID] <= last])
        if self._unseen:
            found = self._first_of_each(found, id, until)
        key = place + EVENT + _REST.pack(at, until, id, 0)
        self._put(key, body)
        return found

    def _subscribe(
        self, place: bytes, id: int, user: int, now: int, since: int, until: int, unseen: bool
    ) -> bytes:
        keys = self._scan(place + EVENT, since)
        if len(keys) > _MANY:
            joined = b"".join(keys)
            many = np.frombuffer(joined, _KEY_TYPE)
            wanted = (many["a"] < until) & (now < many["b"])
            found = joined if wanted.all() else many[wanted].tobytes()
        else:
            first, last = _TIME.pack(now), _TIME.pack(until)
            found = b"".join([key for key in keys if key[_A:_B] < last and first < key[_B:_ID]])
        if self._unseen:
            found = self._not_told(found, user, unseen)
        key = place + SUBSCRIPTION + _REST.pack(until, since, id, user)
        self._put(key, b"1" if unseen else b"")
        return found

    def _scan(self, prefix: bytes, time_us: int) -> list[bytes]:
        """The keys of a place and side whose first time is `time_us` or later."""
        if self._loading:
            return []
        if prefix in self._pending:
            self._flush()
        return list(self._db.keys(from_key=prefix + _TIME.pack(time_us), read_opt=self._read))

    def _put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)
        self._pending.add(key[:_PREFIX])

    def _new_batch(self) -> None:
        self._batch = self._rocks.WriteBatch(raw_mode=True)
        self._pending: set[bytes] = set()

    def _flush(self) -> None:
        if self._pending:
            self._db.write(self._batch)
            self._new_batch()

    # ---- unseen -------------------------------------------------------------------------------

    def _first_of_each(self, found: bytes, event: int, until: int) -> bytes:
        """Without the unseen ones that came after another of the same user; ids rise."""
        size = _KEY_TYPE.itemsize
        keys = [found[at : at + size] for at in range(0, len(found), size)]
        keys.sort(key=lambda key: key[_ID:_USER])
        users: set[bytes] = set()
        kept = []
        for key in keys:
            user = key[_USER:]
            if user not in users or not self._db.get(key):
                kept.append(key)
            users.add(user)
        for user in users:
            self._put(_TOLD + user + _PAIR.pack(0, event)[8:], _TIME.pack(until))
        return b"".join(kept)

    def _not_told(self, found: bytes, user: int, unseen: bool) -> bytes:
        """Without the events the user was told of, for an unseen one; and note the others."""
        if _TOLD in self._pending:
            self._flush()
        size = _KEY_TYPE.itemsize
        kept = []
        for at in range(0, len(found), size):
            key = found[at : at + size]
            told = _TOLD + _PAIR.pack(user, int.from_bytes(key[_ID:_USER], "big"))
            if unseen and self._db.get(told) is not None:
                continue
            kept.append(key)
            self._put(told, key[_B:_ID])
        return b"".join(kept)

    # ---- expiry -------------------------------------------------------------------------------

    def _sweep(self, now_us: int) -> None:
        """Delete what has expired."""
        now = _TIME.pack(now_us)
        batch = self._rocks.WriteBatch(raw_mode=True)
        left = 0
        for key in self._db.keys(read_opt=self._read_all):
            side = key[PLACE_BYTES:_PREFIX]
            if side == TOLD:
                until = self._db[key]
            else:
                until = key[_A:_B] if side == SUBSCRIPTION else key[_B:_ID]
            if until <= now:
                batch.delete(key)
            else:
                left += 1
        self._db.write(batch)
        self._written, self._left = 0, max(left, _FEWEST)


def _options(memory_mb: int | None) -> Any:
    """The settings of peers/rocks.py, or a quarter of the memory each for cache and memtables."""
    import rocksdict as rd

    part = 256 << 20 if memory_mb is None else memory_mb << 18
    table = rd.BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(rd.Cache(part))
    options = rd.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(rd.DBCompressionType.none())
    options.set_prefix_extractor(rd.SliceTransform.create_fixed_prefix(_PREFIX))
    options.set_memtable_prefix_bloom_ratio(0.1)
    options.set_write_buffer_size(part)
    options.set_max_write_buffer_number(4 if memory_mb is None else 2)
    options.set_max_background_jobs(2)
    return options
