"""The static workload: all tweets are put, then gets, lookups and range lookups are run.

For each kind of index there is one collection with an index on `user` and one with an index on
`time`, so that what an index costs can be told apart; and one collection without. All are filled
by turns, a part each, and asked by turns. The time of a part counts until everything that the
puts set off in the background is done.

Every answer is compared with what the generator says it must be. Blocks are what the engine
counted; beside them stand the formulas of the cost analysis, with these inputs:

    K'   documents that were found          L    components of the index
    M    blocks of the index in the range   fp   the measured false positives of the bloom filters
    B    blocks of all documents
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import common
from benchmarks.common import say
from benchmarks.secondary_speed import Ours
from tideline.workload.documents import Documents
from tideline.workload.queries import Static

__all__ = ["KINDS", "LEVELED", "MEMORY_MB", "Truth", "blocks_since", "measure", "open_store"]

KINDS = ("embedded", "lazy", "composite", "eager")
FIELDS = ("user", "time")
WIDTHS = {"user": (10, 100, 1000), "time": (1, 10, 100)}
LIMITS = (10, 100, None)
PARTS = 20
BATCH = 10_000
MEMORY_MB = 16
LEVELED = {"name": "leveled", "first_bytes": 8 << 20, "ratio": 10, "max_count": 4}
COUNTERS = ("primary_blocks", "index_blocks", "bloom_checks", "bloom_false")
_LEAST = 3


def open_store(folder: Path, kind: str, *fields: str, **settings: Any) -> Ours:
    """A collection that seals and merges as a small LevelDB would."""
    indexes = {} if kind == "none" else dict.fromkeys(fields, kind)
    return Ours(
        folder, kind, indexes=indexes, policy=LEVELED, memory_mb=MEMORY_MB, **settings
    )  # fmt: skip


class Truth:
    """What the answers are, by the generator."""

    def __init__(self, tweets: Documents, count: int) -> None:
        rows = np.arange(count)
        self._values = {"user": tweets.users(rows), "time": tweets.seconds(rows)}
        self._order = {name: np.argsort(v, kind="stable") for name, v in self._values.items()}
        self._sorted = {name: v[self._order[name]] for name, v in self._values.items()}

    def newest(self, field: str, low: int, high: int) -> NDArray[np.int64]:
        """The ids with a value in the range, newest first."""
        first, limit = np.searchsorted(self._sorted[field], [low, high + 1])
        found: NDArray[np.int64] = np.sort(self._order[field][first:limit])[::-1]
        return found


def measure(options: Any) -> dict[str, Any]:
    """Fill, get, look up: (3.8), (3.9), (3.10), (3.11)."""
    count = options.count
    tweets = Documents.of(count, 1)
    with common.scratch() as folder:
        stores = {("none", ""): open_store(folder / "none", "none")}
        for kind in KINDS:
            for field in FIELDS:
                stores[kind, field] = open_store(folder / f"{kind}-{field}", kind, field)
        curve = fill(stores, tweets, count)
        outcome = {
            "count": count,
            "parts": curve,
            "stores": [_facts(kind, field, store) for (kind, field), store in stores.items()],
        }
        static, truth = Static(tweets, count, 1), Truth(tweets, count)
        outcome["get"] = _gets(stores, static.keys(options.gets))
        cells = []
        for field in FIELDS:
            those = {kind: store for (kind, name), store in stores.items() if name in ("", field)}
            cells += _queries(those, field, static, truth, options)
        outcome["queries"] = cells
        for store in stores.values():
            store.close()
    return outcome


# ---- filling ------------------------------------------------------------------------------


def fill(
    stores: dict[Any, Ours], tweets: Documents, count: int, parts: int = PARTS
) -> list[dict[str, Any]]:
    """All stores by turns; of every part: microseconds a put, and megabytes written so far."""
    curve = []
    names = list(stores)
    for part in range(parts):
        first, limit = count * part // parts, count * (part + 1) // parts
        texts = [tweets.texts(at, min(BATCH, limit - at)) for at in range(first, limit, BATCH)]
        turn = part % len(names)
        for name in names[turn:] + names[:turn]:
            store = stores[name]
            begin, cpu = time.perf_counter(), time.process_time()
            for text in texts:
                store.put_many(pa.table({"document": text}))
            called = time.perf_counter() - begin
            store.engine.drain()
            spent = time.perf_counter() - begin
            cpu = time.process_time() - cpu
            written = store.engine.stats()["written_bytes"]
            curve.append({
                "store": name, "rows": limit,
                "us": spent / (limit - first) * 1e6, "called_us": called / (limit - first) * 1e6,
                "cpu_us": cpu / (limit - first) * 1e6,
                "primary_mb": _written(written, primary=True),
                "index_mb": _written(written, primary=False),
            })  # fmt: skip
        if part % 5 == 4:
            say(f"filled: {limit:,} of {count:,}")
    for store in stores.values():
        store.settle()
    return curve


def _written(written: dict[str, int], *, primary: bool) -> float:
    found = [n for name, n in written.items() if name.startswith("primary ") == primary]
    return sum(found) / 1e6


def _facts(kind: str, field: str, store: Ours) -> dict[str, Any]:
    stats = store.engine.stats()
    components = stats["components"]
    index = components.get(field, [])
    return {
        "kind": kind, "field": field, "size_mb": stats["component_bytes"] / 1e6,
        "primary_components": len(components["primary"]), "index_components": len(index),
        "index_mb": sum(c["bytes"] for c in index) / 1e6,
        "primary_written_mb": _written(stats["written_bytes"], primary=True),
        "index_written_mb": _written(stats["written_bytes"], primary=False),
    }  # fmt: skip


# ---- asking --------------------------------------------------------------------------------


def blocks_since(store: Ours, before: dict[str, int] | None = None) -> dict[str, int]:
    """The counters, or how much they grew."""
    now = store.engine.counters()
    return {name: int(now[name] - (before[name] if before else 0)) for name in COUNTERS}


def _gets(stores: dict[Any, Ours], keys: list[int]) -> list[dict[str, Any]]:
    spent: dict[Any, list[float]] = {name: [] for name in stores}
    before = {name: blocks_since(store) for name, store in stores.items()}
    right = True
    for at in range(0, len(keys), 500):
        for name, store in stores.items():
            for key in keys[at : at + 500]:
                begin = time.perf_counter_ns()
                found = store.get(key)
                spent[name].append((time.perf_counter_ns() - begin) / 1000)
                right = right and found is not None and found["id"] == key
    say(f"gets: {'right' if right else 'WRONG'}")
    return [
        {
            "kind": kind, "field": field, "us": quartiles(spent[kind, field]), "right": right,
            "blocks": _each(blocks_since(store, before[kind, field]), len(keys)),
        }
        for (kind, field), store in stores.items()
    ]  # fmt: skip


def _queries(
    stores: dict[str, Ours], field: str, static: Static, truth: Truth, options: Any
) -> list[dict[str, Any]]:
    cells = []
    for width in (0, *WIDTHS[field]):
        if width:
            ranges = static.ranges(field, options.lookups, width)
        else:
            ranges = [(value, value) for value in static.values(field, options.lookups)]
        for k in LIMITS:
            for kind, store in stores.items():
                cell = _cell(store, kind, field, width, k, ranges, truth, options.cell_s)
                cells.append(cell)
        line = ", ".join(f"{c['kind']} {c['us'][2]:,.0f}" for c in cells[-len(stores) :])
        say(f"{field}, {width or 'one value'}, no limit, median us: {line}"
            f"{'' if all(c['right'] for c in cells) else ' WRONG ANSWERS'}")  # fmt: skip
    return cells


def _cell(
    store: Ours, kind: str, field: str, width: int, k: int | None,
    ranges: list[tuple[int, int]], truth: Truth, budget_s: float,
) -> dict[str, Any]:  # fmt: skip
    """Queries of one sort on one collection, until they are done or their time is over."""
    ask = _asker(store, kind, field, width, k)
    before = blocks_since(store)
    spent: list[float] = []
    found = matched = 0
    right = True
    end = time.perf_counter() + budget_s
    for low, high in ranges:
        begin = time.perf_counter_ns()
        documents = ask(low, high)
        spent.append((time.perf_counter_ns() - begin) / 1000)
        found += len(documents)
        ids = [document["id"] for document in documents]
        wanted = truth.newest(field, low, high)
        matched += len(wanted)
        right = right and bool(np.array_equal(ids, wanted[:k]))
        if time.perf_counter() > end and len(spent) >= _LEAST:
            break
    count = len(spent)
    blocks = blocks_since(store, before)
    each = _each(blocks, count)
    return {
        "field": field, "kind": kind, "width": width, "k": k, "queries": count,
        "us": quartiles(spent), "found": found / count, "blocks": each, "right": right,
        "formula": _formula(store, kind, field, width, found / count, matched / count, blocks),
    }  # fmt: skip


def _asker(
    store: Ours, kind: str, field: str, width: int, k: int | None
) -> Callable[[int, int], list[Any]]:
    collection = store.collection
    if kind == "none":
        if width:
            return lambda low, high: collection.find({field: {"$gte": low, "$lte": high}}, limit=k)
        return lambda low, _: collection.find({field: low}, limit=k)
    if width:
        return lambda low, high: collection.range_lookup(field, low, high, k=k)
    return lambda low, _: collection.lookup(field, low, k=k)


def _formula(
    store: Ours, kind: str, field: str, width: int, found: float, matched: float,
    blocks: dict[str, int],
) -> float:  # fmt: skip
    """Blocks that the cost analysis expects at worst (tables 3.3 and 3.5)."""
    stats = store.engine.stats()
    components = stats["components"]
    everything = sum(c["bytes"] for c in components["primary"]) / 4096
    if kind == "none":
        return everything
    if kind == "embedded":
        if width and field == "user":
            return everything
        if width:
            return found
        false = blocks["bloom_false"] / max(1, blocks["bloom_checks"])
        return found + false * everything
    if width:
        index = sum(c["bytes"] for c in components[field]) / 4096
        return found + max(1.0, index * matched / stats["seq"])
    return found + (1 if kind == "eager" else len(components[field]))


def quartiles(spent: list[float]) -> list[float]:
    """Least, quarter, half, three quarters, most; then the mean."""
    return [*np.percentile(spent, [0, 25, 50, 75, 100]).tolist(), float(np.mean(spent))]


def _each(blocks: dict[str, int], count: int) -> dict[str, float]:
    return {name: value / count for name, value in blocks.items()}
