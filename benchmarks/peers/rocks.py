"""The peer: a flat channel on RocksDB (PyPI rocksdict), with Tideline's contract.

    key := place (u32 be) | side (S=1, E=2) | time | time | id (u64 be) | user (u64 be)
           subscription: until, since          event: at, until
    value of an event: its body; of a subscription: empty

A subscription is keyed by its end, so the scan for a new event starts after all the
expired ones; an event by its time, so the scan for a new subscription starts at
`since`. Everything an answer needs is in the key, so scans read keys only: no value is
copied, as in our own answers.

What is done to be fair to RocksDB:
- one WriteBatch holds the writes of many operations. A scan must see the earlier
  writes of its own batch, so the batch is written just before the first scan that
  would miss one: a scan of a place and side that has pending writes;
- the prefix extractor is place and side, with prefix blooms in memtable and tables,
  and `prefix_same_as_start` bounds each scan, so no options are made per call;
- raw bytes, no compression, memtables of 256 MB, the write-ahead log on, not synced
  (our default durability), two background jobs;
- the expired are checked on read and swept out every `sweep_us` of channel time by
  one pass over the keys and one batch of deletes. RocksDB's own TTL follows the wall clock and
  whole seconds; range deletes, one a place and side, were not tried.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

import numpy as np
import rocksdict as rd

from tideline.workload.limitfile import AHEAD_US, BACK_US, VALID_US, LimitFile

__all__ = ["KEY_BYTES", "RocksChannel"]

SUBSCRIPTION, EVENT = 1, 2
_KEY = Struct(">IBqqQQ")
_SEEK = Struct(">IBq")
_TIME = Struct(">q")
_KEY_TYPE = np.dtype(
    [("place", ">u4"), ("side", "u1"), ("a", ">i8"), ("b", ">i8"), ("id", ">u8"), ("user", ">u8")]
)


KEY_BYTES = _KEY.size
_MANY = 40  # from here on numpy filters; a round figure, not tuned


class RocksChannel:
    """A flat channel; one thread at a time."""

    def __init__(self, folder: Path, *, sweep_us: int = 10_000_000) -> None:
        self._db = rd.Rdict(str(folder), _options())
        self._read = rd.ReadOptions()
        self._read.set_prefix_same_as_start(True)
        self._read_all = rd.ReadOptions()
        self._read_all.set_total_order_seek(True)
        self._loading = False
        self._sweep_us = sweep_us
        self._swept = 0
        self._now = 0
        self._new_batch()

    def _new_batch(self) -> None:
        self._batch = rd.WriteBatch(raw_mode=True)
        self._pending: set[bytes] = set()

    def _flush(self) -> None:
        if self._pending:
            self._db.write(self._batch)
            self._new_batch()

    def _scan(self, place: int, side: int, time_us: int) -> list[bytes]:
        """The keys of a place and side whose first time is `time_us` or later."""
        if self._loading:
            return []
        first = _SEEK.pack(place, side, time_us)
        if first[:5] in self._pending:
            self._flush()
        return list(self._db.keys(from_key=first, read_opt=self._read))

    def publish(self, place: int, id: int, at: int, until: int, body: bytes) -> bytes:
        """Store an event; the keys of the subscriptions it answers, KEY_BYTES each."""
        self._now = now = max(self._now, at)
        # s.until is past both `at` (rule 2) and now (rule 4), and since <= at.
        keys = self._scan(place, SUBSCRIPTION, now + 1)
        if len(keys) > _MANY:
            found = b"".join(keys)
            many = np.frombuffer(found, _KEY_TYPE)
            found = _chosen(found, many, many["b"] <= at)
        else:
            at_bytes = _TIME.pack(at)
            found = b"".join([key for key in keys if key[13:21] <= at_bytes])
        key = _KEY.pack(place, EVENT, at, until, id, 0)
        self._batch.put(key, body)
        self._pending.add(key[:5])
        return found

    def subscribe(self, place: int, id: int, user: int, at: int, since: int, until: int) -> bytes:
        """Store a subscription; the keys of the past events that answer it."""
        self._now = now = max(self._now, at)
        keys = self._scan(place, EVENT, since)
        if len(keys) > _MANY:
            found = b"".join(keys)
            many = np.frombuffer(found, _KEY_TYPE)
            found = _chosen(found, many, (many["a"] < until) & (now < many["b"]))
        else:
            now_bytes, until_bytes = _TIME.pack(now), _TIME.pack(until)
            found = b"".join(
                [key for key in keys if key[5:13] < until_bytes and now_bytes < key[13:21]]
            )
        key = _KEY.pack(place, SUBSCRIPTION, until, since, id, user)
        self._batch.put(key, b"")
        self._pending.add(key[:5])
        return found

    def load(self, workload: LimitFile, start: int, limit: int) -> None:
        """Store operations [start, limit) without answering them: a fast warm-up."""
        self._loading = True
        try:
            for first in range(start, limit, 10_000):
                self.apply(workload, first, min(first + 10_000, limit))
        finally:
            self._loading = False

    def apply(self, workload: LimitFile, start: int, limit: int) -> np.ndarray:
        """Run operations [start, limit); the answers as rows of (row, id, user).

        `id` is the other side's: the subscription's for a publish, the event's for a
        subscribe.
        """
        rows = slice(start, limit)
        pool = workload.pool.tobytes()
        found: list[bytes] = []
        counts: list[int] = []
        columns = (workload.t, workload.uid, workload.cell, workload.doff, workload.dlen)
        t, uid, cell, doff, dlen = (column[rows].tolist() for column in columns)
        for k, kind in enumerate(workload.type[rows].tolist()):
            at = t[k]
            if kind == 1:
                body = pool[doff[k] : doff[k] + dlen[k]]
                got = self.publish(cell[k], start + k, at, at + VALID_US, body)
            else:
                window = (at - BACK_US, at + AHEAD_US)
                got = self.subscribe(cell[k], start + k, uid[k], at, *window)
            found.append(got)
            counts.append(len(got) // KEY_BYTES)
        self._flush()
        if self._now - self._swept >= self._sweep_us:
            self._sweep()
        keys = np.frombuffer(b"".join(found), _KEY_TYPE)
        answers = np.empty(len(keys), [("row", "i8"), ("id", "i8"), ("user", "i8")])
        answers["row"] = np.repeat(np.arange(start, start + len(counts)), counts)
        answers["id"], answers["user"] = keys["id"], keys["user"]
        return answers

    def _sweep(self) -> None:
        """Delete what has expired."""
        now = _TIME.pack(self._now)
        batch = rd.WriteBatch(raw_mode=True)
        for key in self._db.keys(read_opt=self._read_all):
            until = key[5:13] if key[4] == SUBSCRIPTION else key[13:21]
            if until <= now:
                batch.delete(key)
        self._db.write(batch)
        self._swept = self._now

    def __len__(self) -> int:
        """How many records are stored, expired ones not yet swept included."""
        return sum(1 for _ in self._db.keys(read_opt=self._read_all))

    def close(self) -> None:
        """Write what is pending and close."""
        self._flush()
        self._db.close()


def _chosen(joined: bytes, keys: np.ndarray, wanted: np.ndarray) -> bytes:
    """The wanted ones of joined keys; most often all of them."""
    return joined if wanted.all() else keys[wanted].tobytes()


def _options() -> rd.Options:
    table = rd.BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(rd.Cache(256 << 20))
    options = rd.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(rd.DBCompressionType.none())
    options.set_prefix_extractor(rd.SliceTransform.create_fixed_prefix(5))
    options.set_memtable_prefix_bloom_ratio(0.1)
    options.set_write_buffer_size(256 << 20)
    options.set_max_write_buffer_number(4)
    options.set_max_background_jobs(2)
    return options
