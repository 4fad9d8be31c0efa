"""The peer: a channel on PostgreSQL 15, with PostGIS for circles, with Tideline's contract.

    prepare   columns in PostgreSQL's binary format, split into subscriptions and events
    apply     begin | partitions that are missing | COPY subscriptions, COPY events
              | clock | who answers the new events | what answers the new subscriptions
              | partitions whose last row has expired are dropped | commit
    answers   three arrays of numbers a search, read in place

A single operation is one call of a function that does the same (postgres_sql.py), one round trip.
Its settings, and how durable they are: postgres_cluster.py. `PostgresSyncedPeer` is the same with
fsync on: a commit also survives a power cut, which is more than Tideline's default promises.

What was tried for 10,000 operations in order, 3 subscriptions to 1 event, 5 answers an operation,
about 65 thousand rows stored (2 cores, small runs of some seconds, operations a second):

    COPY into both tables, then one join for each side           66 to 116 thousand   kept
    one statement: arrays, two inserts and joins in CTEs,
      the batch joined with itself by row number                 64 to 86 thousand
    a plpgsql function that loops over arrays                    6 thousand
    a prepared call of a function for each row, in a pipeline    4 thousand

Range of the first: hash join 116, the planner's choice 79, nested loop over an index 66 to 68. So
the join is chosen here: hash joins read the stored rows in a row and win while these are fewer than
about 50 for each new one; above that the index wins (600 thousand stored rows, 10,000 operations:
100 ms against 185). A plan with parallel workers waited 57 ms for its first row.
Indexes, by nested loop: hash (place) 66 to 68, b-tree (place) 73, b-tree (place, until) 57, with
INCLUDE 71 thousand at this size, which is within the noise; b-trees take longer to fill (COPY 29 to
44 ms, hash 25 to 33), and at 60 answers an operation hash was first: 16 thousand against 13 and 9.
The loop appends to arrays, which may be a part of its cost. Circles: bounds in a GiST index and
then the distance, 465 to 770 ms for the past of a batch; ST_DWithin on geography 1,325 ms. Single
calls, one run each: 0.31 ms where functions keep one plan (force_generic_plan), 0.42 ms where the
server chooses between that and planning anew.

Expiry: a row lies in the partition of its bucket, a time not before its end. Buckets are half as
wide as rows live (or as a batch spans, if that is more), rounded up to a power of two: so there are
a few partitions for each length of life, whatever lives are. An expired partition is dropped as a
file, no row is looked at. A subscription is kept until the events have expired that came while it
was valid, because `unseen` asks for what it was answered with.

Invariants:
1. All of a batch, its partitions and the clock are one transaction.
2. `_partitions` and the clock here are what is committed; one writer at a time. After an error the
   peer must be started again.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.peers import postgres_cluster, postgres_sql
from benchmarks.peers.base import Given, Peer, answer_type
from benchmarks.peers.postgres_batch import (
    ARRAY_OF,
    ARRAYS,
    Batch,
    Side,
    bucket_of,
    buckets_of,
    operation,
)
from benchmarks.peers.postgres_wire import array_bytes, numbers_of
from tideline.clock import FOREVER

__all__ = ["PostgresPeer", "PostgresSyncedPeer"]

Numbers = NDArray[np.int64]
_PROBE = 50
"""A search in an index costs about as much as a look at so many rows in a row."""
_LOAD_ROWS = 500_000


@dataclass
class _Partition:
    rows: int
    first: int
    """Channel time when its first row arrived."""


class PostgresPeer(Peer):
    """A channel in an own cluster; one thread at a time."""

    name: ClassVar[str] = "PostgreSQL"
    fsync: ClassVar[bool] = False

    @classmethod
    def missing(cls) -> str | None:
        return postgres_cluster.missing()

    @classmethod
    def version(cls) -> str:
        return postgres_cluster.server_version()

    def __init__(self, given: Given) -> None:
        self._shapes = given.shapes
        self._columns = postgres_sql.columns(given.shapes)
        self._cluster = postgres_cluster.Cluster(given.folder, given.memory_mb, fsync=self.fsync)
        try:
            self._db = self._cluster.connect()
            _adapt(self._db)
            self._db.execute("set enable_mergejoin = off; set max_parallel_workers_per_gather = 0")
            if self._db.execute("select to_regclass('clock')").fetchone()[0] is None:
                with self._db.transaction():
                    self._db.execute(postgres_sql.schema(given.shapes))
            self._recall()
        except BaseException:
            self._cluster.close()
            raise
        self._searches = {
            "events": _search("events", postgres_sql.live, given.shapes),
            "subs": _search("subs", postgres_sql.past, given.shapes),
        }
        self._calls = {"events": self._call("events"), "subs": self._call("subs")}

    def _call(self, table: str) -> str:
        names = [n for n in self._columns[table] if n not in ("seq", "now")]
        if table == "subs":
            names.append("arrived")
        verb = "publish" if table == "events" else "subscribe"
        return f"{verb}({', '.join(f'%({name})s' for name in names)})"

    def _recall(self) -> None:
        """Channel time and partitions, as they were committed."""
        self._newest, self._seq = self._db.execute("select newest, seq from clock").fetchone()
        self._partitions: dict[str, dict[int, _Partition]] = {"subs": {}, "events": {}}
        for table, known in self._partitions.items():
            found = self._db.execute(
                f"select bucket, count(*), min(now) from {table} group by bucket"
            )
            known.update({bucket: _Partition(rows, now) for bucket, rows, now in found})
            names = self._db.execute(
                "select inhrelid::regclass::text from pg_inherits"
                " where inhparent = %s::regclass", [table],
            )  # fmt: skip
            for (name,) in names:
                known.setdefault(_bucket_in(name), _Partition(0, FOREVER))

    # ---- apply -------------------------------------------------------------------------------

    def prepare(self, operations: pa.RecordBatch) -> Batch:
        return Batch.of(operations, self._shapes)

    def apply(self, prepared: Batch) -> list[tuple[int, Any]]:
        if prepared.one is not None:
            return self._apply_one(prepared)
        if not len(prepared.at):
            return []
        now = np.maximum(np.maximum.accumulate(prepared.at), self._newest)
        with self._db.transaction():
            self._store(prepared, now)
            found = [self._find(table, side, now) for table, side in prepared.sides.items()]
            oldest = int(now[-1])
            dropped = self._drop(oldest)
        return self._done(oldest, len(now), dropped, found)

    def _done(self, newest: int, rows: int, dropped: list[tuple[str, int]], found: Any) -> Any:
        """After the commit."""
        first, self._seq, self._newest = self._seq, self._seq + rows, newest
        for table, bucket in dropped:
            del self._partitions[table][bucket]
        return [(first, found) for found in found]

    def _store(self, batch: Batch, now: Numbers) -> None:
        """COPY the rows of both tables; move the clock."""
        self._db.execute(
            "update clock set newest = %s, seq = %s", [int(now[-1]), self._seq + len(now)]
        )
        span = int(now[-1] - now[0])
        for table, side in batch.sides.items():
            kinds = list(self._columns[table])
            arrived = now[side.rows]
            buckets = buckets_of(side.ends, arrived, span)
            side.copy.set(kinds.index("seq"), side.rows + self._seq)
            side.copy.set(kinds.index("now"), arrived)
            side.copy.set(kinds.index("bucket"), buckets)
            self._room(table, buckets, arrived)
            statement = f"copy {table} ({', '.join(kinds)}) from stdin (format binary)"
            with self._db.cursor().copy(statement) as copy:
                copy.write(memoryview(side.copy.data))

    def _room(self, table: str, buckets: Numbers, arrived: Numbers) -> None:
        """A partition for each bucket, and what is known of it."""
        known = self._partitions[table]
        found, first, counts = np.unique(buckets, return_index=True, return_counts=True)
        for bucket, row, count in zip(found.tolist(), first, counts.tolist(), strict=True):
            if bucket not in known:
                self._db.execute(
                    f'create table "{table}_{bucket}" partition of {table}'
                    f" for values in ('{bucket}')"
                )
                known[bucket] = _Partition(0, int(arrived[row]))
            known[bucket].rows += count
            known[bucket].first = min(known[bucket].first, int(arrived[row]))

    def _find(self, table: str, side: Side, now: Numbers) -> Any:
        """The answers of the new rows of a table."""
        other = "subs" if table == "events" else "events"
        stored = sum(part.rows for part in self._partitions[other].values())
        nested = self._shapes or stored > _PROBE * len(side.rows)
        # Of partitions this young the planner has no statistics, so it is told.
        self._db.execute(_BY_INDEX if nested else _BY_HASH)
        big = ARRAY_OF["bigint"]
        given = side.sent | {
            "r": big(array_bytes(side.rows + self._seq)),
            "now": big(array_bytes(now[side.rows])),
            "oldest": self._newest,
        }
        statement = self._searches[table]
        # Not prepared: a plan that is kept would keep the join of another size of batch.
        return self._db.execute(statement, given, binary=True, prepare=False).fetchone()

    def _drop(self, newest: int) -> list[tuple[str, int]]:
        """Drop what nobody can ask for any more."""
        events = self._partitions["events"]
        gone = [("events", bucket) for bucket in events if bucket <= newest]
        first = min(
            (part.first for bucket, part in events.items() if bucket > newest), default=FOREVER
        )
        # A subscription that expired is asked for by `unseen` while an event lives that it had.
        gone += [("subs", b) for b in self._partitions["subs"] if b <= min(newest, first)]
        if gone:
            names = ", ".join(f'"{table}_{bucket}"' for table, bucket in gone)
            self._db.execute(f"drop table {names}")
        return gone

    def _apply_one(self, prepared: Batch) -> Any:
        [table] = prepared.sides
        given, newest = self._one(prepared, table)
        statement = "select " + self._calls[table]
        found = self._db.execute(statement, given, binary=True, prepare=True).fetchone()[0]
        dropped = [] if newest == self._newest else self._drop(newest)
        return self._done(newest, 1, dropped, [(table, given["id"], found)])

    def _one(self, prepared: Batch, table: str) -> tuple[dict[str, Any], int]:
        """The arguments of a call, and channel time after it; its partition is there."""
        given = prepared.one
        assert given is not None
        newest = max(given["arrived"], self._newest)
        bucket = bucket_of(given["until"], newest)
        given["bucket"] = bucket
        known = self._partitions[table].get(bucket)
        if known is None:
            self._room(table, np.array([bucket]), np.array([newest]))
        else:
            known.rows += 1
            known.first = min(known.first, newest)
        return given, newest

    def answers(self, outcome: Any) -> np.ndarray:
        parts = []
        for first, found in outcome:
            if isinstance(found[0], str):  # of a single operation
                table, own, ids = found[0], found[1], numbers_of(found[2])
                same = np.full(len(ids), own)
                pair = (same, ids) if table == "subs" else (ids, same)
                columns = [np.full(len(ids), first), *pair]
            else:
                columns = [numbers_of(part) for part in found]
            made = np.empty(len(columns[0]), answer_type)
            made["row"], made["subscription"], made["event"] = columns[0] - first, *columns[1:]
            parts.append(made)
        return np.concatenate(parts) if parts else np.empty(0, answer_type)

    def load(self, subscriptions: pa.RecordBatch) -> None:
        for start in range(0, subscriptions.num_rows, _LOAD_ROWS):
            batch = self.prepare(subscriptions.slice(start, _LOAD_ROWS))
            now = np.maximum(np.maximum.accumulate(batch.at), self._newest)
            with self._db.transaction():
                self._store(batch, now)
            self._done(int(now[-1]), len(now), [], [])

    # ---- telling -----------------------------------------------------------------------------

    def deliver(self, count: int) -> list[float]:
        """Seconds from publishing an event to the word of it at a connection that listens.

        The event is stored and its subscriptions are notified (NOTIFY) in one transaction.
        """
        heard: queue.Queue[float] = queue.Queue()
        listener = self._cluster.connect()
        listener.execute("listen told")

        def listen() -> None:
            for _ in listener.notifies(stop_after=count, timeout=60):
                heard.put(time.perf_counter())

        hearer = threading.Thread(target=listen)
        hearer.start()
        times = []
        try:
            start = max(self._newest, 0)
            self.apply(self.prepare(operation("subscribe", -1, start, self._shapes)))
            for number in range(count):
                batch = self.prepare(operation("publish", -2 - number, start, self._shapes))
                given, _ = self._one(batch, "events")
                statement = (
                    "select pg_notify('told', told::text || ' ' || %(id)s)"
                    f" from unnest({self._calls['events']}) told where told = -1"
                )
                before = time.perf_counter()
                self._db.execute(statement, given, prepare=True)
                times.append(heard.get(timeout=60) - before)
                self._done(start, 1, [], [])
        finally:
            hearer.join()
            listener.close()
        return times

    # ---- the processes -----------------------------------------------------------------------

    def processes(self) -> list[int]:
        return self._cluster.processes()

    def disk_bytes(self) -> int:
        return self._cluster.disk_bytes()

    def crash(self) -> None:
        self._cluster.crash()
        self._db.close()

    def close(self) -> None:
        self._db.close()
        self._cluster.close()


class PostgresSyncedPeer(PostgresPeer):
    """The same, where a commit waits until the disk has it."""

    name = "PostgreSQL, fsync"
    fsync = True


_SET = "set local enable_nestloop = {}; set local enable_hashjoin = {}"
_BY_HASH, _BY_INDEX = _SET.format("off", "on"), _SET.format("on", "off")


def _search(table: str, search: Any, shapes: bool) -> str:
    """The statement that finds the answers of a batch's rows, given as arrays."""
    names = postgres_sql.asked(table, shapes)
    arrays = ", ".join(f"%({name})s" for name in names)
    rows = f"(select * from unnest({arrays}) as given({', '.join(names)}))"
    found = search(rows, "%(oldest)s", shapes)
    return f"select array_agg(r), array_agg(subscription), array_agg(event) from ({found}) a"


def _adapt(db: Any) -> None:
    """Arrays pass as they are, in both directions."""
    from psycopg.adapt import Dumper, Loader
    from psycopg.pq import Format

    class Whole(Dumper):
        format = Format.BINARY

        def dump(self, value: bytes) -> bytes:
            return value

    class Raw(Loader):
        format = Format.BINARY

        def load(self, data: Any) -> bytes:
            return bytes(data)

    for kind, oid in ARRAYS.items():
        db.adapters.register_dumper(ARRAY_OF[kind], type(f"_{kind}", (Whole,), {"oid": oid}))
    db.adapters.register_loader(ARRAYS["bigint"], Raw)


def _bucket_in(name: str) -> int:
    return int(name.strip('"').split("_", 1)[1])
