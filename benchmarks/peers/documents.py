"""The peers of a collection: SQLite, and RocksDB with indexes made by hand.

    SQLite     tweets(id INTEGER PRIMARY KEY, user, time, document TEXT), an index on user, one on
               time; write-ahead log, one transaction a batch, synchronous=NORMAL: a commit
               outlives the process, not the machine, as with our default
    RocksDB    p | id          -> document
               u | user | ~id  -> empty     so that a scan forward has the newest first
               t | time | ~id  -> empty

What is done to be fair to them: fields are given to them ready (SQLite) or as columns (RocksDB),
ours reads them out of the JSON; keys of RocksDB are made a batch at a time, and one WriteBatch is
written a batch; SQLite's cache and RocksDB's memtable and block cache are 256 MB each. `id` rises
with every write of these workloads, so it stands for the order of writes and they need no number
of their own for it. Documents come back decoded by msgspec, as ours do.

One thread at a time.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from struct import Struct
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import rocksdict as rd

__all__ = ["Rocks", "Sqlite"]

_decode = msgspec.json.decode
_PRIMARY = Struct(">cQ")
_INDEX = Struct(">cQQ")
_INDEX_TYPE = np.dtype([("side", "S1"), ("value", ">u8"), ("id", ">u8")])
_TOP = (1 << 64) - 1
_SIDES = {"user": b"u", "time": b"t"}
_CACHE_MB = 256


class Sqlite:
    """Documents in a table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._db = sqlite3.connect(folder / "tweets.db", isolation_level=None)
        for line in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=NORMAL",
            f"PRAGMA cache_size=-{_CACHE_MB * 1024}",
            "PRAGMA mmap_size=17179869184",
            "CREATE TABLE tweets(id INTEGER PRIMARY KEY, user INT, time INT, document TEXT)",
            "CREATE INDEX by_user ON tweets(user)",
            "CREATE INDEX by_time ON tweets(time)",
        ):
            self._db.execute(line)

    @staticmethod
    def prepare(batch: pa.RecordBatch, texts: pa.Array) -> list[tuple[Any, ...]]:
        """What `put_many` takes, made outside the time that counts."""
        columns = [batch[name].to_pylist() for name in ("id", "user", "time")]
        return list(zip(*columns, texts.to_pylist(), strict=True))

    def put_many(self, rows: list[tuple[Any, ...]]) -> None:
        """One transaction."""
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR REPLACE INTO tweets VALUES (?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def settle(self) -> None:
        """Everything into the table's own file."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def get(self, key: int) -> Any:
        """A document by its key."""
        found = self._db.execute("SELECT document FROM tweets WHERE id = ?", (key,)).fetchone()
        return None if found is None else _decode(found[0])

    def lookup(self, field: str, value: int, k: int | None = None) -> list[Any]:
        """The newest with a value."""
        line = f"SELECT document FROM tweets WHERE {field} = ? ORDER BY id DESC LIMIT ?"
        found = self._db.execute(line, (value, -1 if k is None else k))
        return [_decode(text) for (text,) in found]

    def close(self) -> None:
        """Done."""
        self._db.close()


class Rocks:
    """Documents and composite keys in one key space."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        options = rd.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_CACHE_MB << 20)
        options.set_max_background_jobs(2)
        options.set_compression_type(rd.DBCompressionType.none())
        table = rd.BlockBasedOptions()
        table.set_block_cache(rd.Cache(_CACHE_MB << 20))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        self._db = rd.Rdict(str(folder), options)

    @staticmethod
    def prepare(batch: pa.RecordBatch, texts: pa.Array) -> tuple[Any, ...]:
        """The columns and the documents as bytes."""
        columns = [batch[name].to_numpy() for name in ("id", "user", "time")]
        return (*columns, texts.cast(pa.binary()).to_pylist())

    def put_many(self, rows: tuple[Any, ...]) -> None:
        """One WriteBatch, its keys made here."""
        ids, users, times, documents = rows
        batch = rd.WriteBatch(raw_mode=True)
        for key, document in zip(ids.tolist(), documents, strict=True):
            batch.put(_PRIMARY.pack(b"p", key), document)
        for side, values in ((b"u", users), (b"t", times)):
            keys = np.empty(len(ids), _INDEX_TYPE)
            keys["side"], keys["value"], keys["id"] = side, values, _TOP - ids.astype(np.uint64)
            data = keys.tobytes()
            for at in range(0, len(data), _INDEX.size):
                batch.put(data[at : at + _INDEX.size], b"")
        self._db.write(batch)

    def settle(self) -> None:
        """Memtables to disk."""
        self._db.flush()

    def get(self, key: int) -> Any:
        """A document by its key."""
        found = self._db.get(_PRIMARY.pack(b"p", key))
        return None if found is None else _decode(found)

    def lookup(self, field: str, value: int, k: int | None = None) -> list[Any]:
        """The newest with a value: a scan of keys, then a get each."""
        first = _INDEX.pack(_SIDES[field], value, 0)
        prefix = first[:9]
        get = self._db.get
        found: list[Any] = []
        for key in self._db.keys(from_key=first):
            if key[:9] != prefix or len(found) == k:
                break
            id = _TOP - int.from_bytes(key[9:], "big")
            found.append(_decode(get(_PRIMARY.pack(b"p", id))))
        return found

    def close(self) -> None:
        """Done."""
        self._db.close()
