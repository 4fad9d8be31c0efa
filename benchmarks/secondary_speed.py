"""How fast a collection is beside SQLite and RocksDB: the same tweets, indexed the same way.

All stores are filled in one run, a section each by turns, and then asked by turns; answers are
compared. Run by `benchmarks/secondary.py`.

`calls` counts the time of `put_many` alone. `settled` adds the time until everything that it set
off in the background is done and everything is in its place on disk, at the end of each section.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import common
from benchmarks.common import say
from tideline.workload.documents import Documents
from tideline.workload.queries import Static

__all__ = ["KINDS", "Ours", "folder_mb", "measure"]

KINDS = ("none", "embedded", "lazy", "composite")
SECTIONS = 5
BATCH = 10_000
HOT = 1_000  # records that are read again and again
AGAIN = 5  # times in a turn: the other stores have had the caches of the processor before it
ASKED = 500  # values looked up in a round
ROUNDS = 7


class Ours:
    """A collection as the peers are: a folder, a store, an index on user and one on time."""

    def __init__(self, folder: Path, kind: str, **settings: Any) -> None:
        import tideline

        self.folder = folder
        indexes = {} if kind == "none" else {"user": kind, "time": kind}
        memory_mb = settings.pop("memory_mb", 1024)
        self._db = tideline.open(folder, memory_mb=memory_mb)
        settings = {"indexes": indexes} | settings
        self.collection = self._db.collection("tweets", key="id", **settings)
        self.engine: Any = self.collection._engine
        self.get = self.collection.get
        self.lookup = self.collection.lookup

    @staticmethod
    def prepare(batch: pa.RecordBatch, texts: pa.Array) -> pa.Table:
        """A table with one column of JSON."""
        return pa.table({"document": texts})

    def put_many(self, rows: pa.Table) -> None:
        """Stored, or an error."""
        done = self.collection.put_many(rows)
        if done.stored != rows.num_rows:
            raise SystemExit(f"rejected: {done.rejected.slice(0, 3).to_pylist()}")

    def settle(self) -> None:
        """Memory to disk and all merges done."""
        self.engine.seal()

    def close(self) -> None:
        """Done."""
        self._db.close()


def folder_mb(folder: Path) -> float:
    """What is on disk."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def measure(count: int, seed: int = 1) -> dict[str, Any]:
    """Fill all stores, then ask them; everything interleaved."""
    from benchmarks.peers.documents import Rocks, Sqlite

    tweets = Documents.of(count, seed)
    with common.scratch() as folder:
        # A first small one loads all code.
        warm = Ours(folder / "warm", "lazy")
        warm.put_many(Ours.prepare(tweets.batch(0, 10), tweets.texts(0, 10)))
        warm.close()
        stores: dict[str, Any] = {kind: Ours(folder / kind, kind) for kind in KINDS}
        stores["SQLite"] = Sqlite(folder / "sqlite")
        stores["RocksDB"] = Rocks(folder / "rocks")
        outcome = {"count": count, "batch": BATCH, "put": _fill(stores, tweets, count)}
        for store in stores.values():
            store.settle()
        outcome["size_mb"] = {name: folder_mb(store.folder) for name, store in stores.items()}
        outcome |= _ask(stores, Static(tweets, count, seed))
        for store in stores.values():
            store.close()
    return outcome


def _fill(stores: dict[str, Any], tweets: Documents, count: int) -> dict[str, Any]:
    """Sections by turns; what each store took, the median of its sections and all together."""
    section = count // SECTIONS
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in stores}
    names = list(stores)
    document_bytes = 0
    for turn in range(SECTIONS):
        first = turn * section
        limit = count if turn == SECTIONS - 1 else first + section
        made = [tweets.batch(at, min(BATCH, limit - at)) for at in range(first, limit, BATCH)]
        texts = [Documents.as_json(batch) for batch in made]
        document_bytes += sum(text.nbytes for text in texts)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            store = stores[name]
            rows = [store.prepare(batch, text) for batch, text in zip(made, texts, strict=True)]
            gc.collect()
            begin = time.perf_counter()
            for part in rows:
                store.put_many(part)
            called = time.perf_counter() - begin
            del rows
            begin = time.perf_counter()
            store.settle()
            spent[name].append((called, called + time.perf_counter() - begin))
            rate = (limit - first) / called
            say(f"put, section {turn + 1}, {name:9} {rate:>9,.0f}/s, "
                f"{(limit - first) / spent[name][-1][1]:>9,.0f}/s settled")  # fmt: skip
    return {
        name: {
            "calls_per_s": count / sum(called for called, _ in times),
            "settled_per_s": count / sum(settled for _, settled in times),
            "sections": [section / called for called, _ in times],
        }
        for name, times in spent.items()
    } | {"document_bytes": document_bytes / count}


def _ask(stores: dict[str, Any], static: Static) -> dict[str, Any]:
    """Gets and lookups by turns: the median over rounds of the mean of a round, and answers."""
    keys, users, times = (
        static.keys(HOT),
        static.values("user", ASKED),
        static.values("time", ASKED),
    )
    indexed = {name: store for name, store in stores.items() if name != "none"}
    asked: dict[str, tuple[dict[str, Any], list[Any], Callable[[Any, Any], Any]]] = {
        "get": (stores, keys * AGAIN, lambda store, key: store.get(key)),
        "lookup user, k=10": (indexed, users, lambda store, user: store.lookup("user", user, 10)),
        "lookup time, k=10": (indexed, times, lambda store, at: store.lookup("time", at, 10)),
    }
    outcome: dict[str, Any] = {}
    for what, (those, arguments, call) in asked.items():
        wanted = [call(stores["SQLite"], one) for one in arguments]
        same = {
            name: all(call(store, x) == y for x, y in zip(arguments, wanted, strict=True))
            for name, store in those.items()
        }
        found = sum(map(len, wanted)) / len(wanted) if what != "get" else 1.0
        spent: dict[str, list[float]] = {name: [] for name in those}
        blocks: dict[str, float] = {}
        for _ in range(ROUNDS):
            for name, store in those.items():
                before = _blocks(store)
                spent[name].append(_timed(store, arguments, call))
                blocks[name] = (_blocks(store) - before) / len(arguments)
        outcome[what] = {
            "us": {name: statistics.median(times) for name, times in spent.items()},
            "same": same, "found": found,
            "blocks": {name: blocks[name] for name in those if name in KINDS},
        }  # fmt: skip
        for name in those:
            say(f"{what}: {name:9} {outcome[what]['us'][name]:6.1f} us, "
                f"{'the same' if same[name] else 'OTHER'} answers")  # fmt: skip
    return {"ask": outcome}


def _timed(store: Any, arguments: list[Any], call: Callable[[Any, Any], Any]) -> float:
    """Microseconds a call; answers are let go at once."""
    begin = time.perf_counter()
    for argument in arguments:
        call(store, argument)
    return (time.perf_counter() - begin) / len(arguments) * 1e6


def _blocks(store: Any) -> int:
    if not isinstance(store, Ours):
        return 0
    now = store.engine.counters()
    return int(now["primary_blocks"] + now["index_blocks"])
