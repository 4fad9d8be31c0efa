"""How many writes a second a collection takes while very many live queries stand.

    python benchmarks/live.py --only matching [--sizes N ...] [--limit DIR]

Documents of ten fields; queries are mixed: 40 % one user, 20 % one of three products, 25 % a
category with a range of prices (a third of them with a rating), 15 % a circle. Rounds by turns:

    put_many   updates by `put_many`, until every change is matched to the queries it concerns
    limit      the matching alone, on rows of numbers that are decoded already (`--limit`)
    put        one update at a time: the median of the call, with the queries and without any

The limit is a prototype outside of the project; without its folder it is left out.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import common
from benchmarks.common import say

__all__ = ["FIELDS", "METRES", "SIZES", "documents", "measure", "mixed", "rows"]

SIZES = {
    "tiny": [1_000],
    "small": [10_000, 100_000],
    "full": [10_000, 100_000, 1_000_000],
}
FIELDS = ("random", "user", "product", "category", "price", "rating", "x", "y", "f8", "f9")
UPDATES, BATCH, SINGLES = 100_000, 10_000, 3_000
HANDLES = 10_000  # the queries after these stand without a handle
TINY = 1_000  # queries; with so few, everything else is little, too
METRES = 1 / 111_195.0  # degrees a metre, near the equator
Rows = NDArray[np.int64]


def rows(count: int, random: np.random.Generator, spread: float = 1.0) -> Rows:
    """Documents as rows of numbers; with more `spread`, fewer queries concern one."""
    found = np.zeros((count, len(FIELDS)), np.int64)
    many, categories, side = _tops(spread)
    tops = (1 << 40, many, many, categories, 100_000, 50, side, side, 1_000, 1_000)
    for column, top in enumerate(tops):
        found[:, column] = random.integers(0, top, count)
    return found


def _tops(spread: float) -> tuple[int, int, int]:
    """How many users and products, categories, and metres of the box there are."""
    return (
        max(round(500_000 * spread), 1),
        max(round(1_000 * spread), 1),
        round(100_000 * spread**0.5),
    )


def moved(before: Rows, random: np.random.Generator) -> Rows:
    """The same a little later: of six in ten the price, of the others the place."""
    after = before.copy()
    count = len(after)
    priced = random.random(count) < 0.6
    step = random.integers(-2_000, 2_000, count)
    after[priced, 4] = np.clip(after[priced, 4] + step[priced], 0, 99_999)
    for column in (6, 7):
        after[~priced, column] += random.integers(-50, 50, count)[~priced]
    return after


def documents(found: Rows) -> list[dict[str, Any]]:
    """Rows as documents; a place is a point in a box of 100 km."""
    made = []
    for key, row in enumerate(found.tolist()):
        document = {"id": key, **dict(zip(FIELDS, row, strict=True))}
        document["at"] = [round(row[6] * METRES, 7), round(row[7] * METRES, 7)]
        made.append(document)
    return made


def mixed(count: int, random: np.random.Generator, spread: float = 1.0) -> list[dict[str, Any]]:
    """Conditions of live queries; a million of them concern 26 / `spread` to a document."""
    many, categories, side = _tops(spread)
    kinds = random.choice(4, count, p=[0.4, 0.2, 0.25, 0.15]).tolist()
    big = random.integers(0, many, (count, 3)).tolist()
    low = random.integers(0, 95_000, count).tolist()
    width = random.integers(500, 4_000, count).tolist()
    category = random.integers(0, categories, count).tolist()
    rated = np.where(random.random(count) < 1 / 3, random.integers(0, 50, count), -1).tolist()
    centre = (random.integers(0, side, (count, 2)) * METRES).round(7).tolist()
    radius = (random.integers(200, 1_000, count) / 6_371_008.8).tolist()
    made: list[dict[str, Any]] = []
    for i, kind in enumerate(kinds):
        if kind == 0:
            made.append({"user": big[i][0]})
        elif kind == 1:
            made.append({"product": {"$in": big[i]}})
        elif kind == 2:
            prices = {"$gte": low[i], "$lt": low[i] + width[i]}
            found: dict[str, Any] = {"category": category[i], "price": prices}
            made.append(found | ({"rating": {"$gte": rated[i]}} if rated[i] >= 0 else {}))
        else:
            made.append({"at": {"$geoWithin": {"$centerSphere": [centre[i], radius[i]]}}})
    return made


# ---- the limit -----------------------------------------------------------------------------------


def limit_folder(given: Path | None) -> Path | None:
    """Where the prototype is: given, or beside the project."""
    beside = [
        common.ROOT.parent / "shared" / "limit" / "live",
        common.ROOT.parent / "limit" / "live",
    ]
    places = [given] if given else beside
    return next((place for place in places if (place / "matcher.py").is_file()), None)


def _loaded(folder: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"limit_{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"limit_{name}"] = module
    spec.loader.exec_module(module)
    return module


class Limit:
    """The prototype with its own mixed queries."""

    def __init__(self, folder: Path, queries: int) -> None:
        self._matcher, gen = _loaded(folder, "matcher"), _loaded(folder, "gen")
        random = np.random.default_rng(7)
        self._rows, numbers = gen.mixed(queries, random)
        self._index = self._matcher.Index(queries, len(self._rows), len(self._rows) * 3 + 1024)
        self._matcher.sub_many(self._rows, numbers, 0, len(self._rows), *self._index.args(), True)
        self._row_of = np.zeros(queries, np.int64)
        self._row_of[numbers] = np.arange(len(self._rows))
        self._out, self._old = np.zeros(queries, np.int64), np.zeros(queries, np.int64)

    def updates(self, before: Rows, after: Rows) -> float:
        """Updates a second, of processor time."""
        index = self._index
        notes, counts = np.zeros((1 << 16, 2), np.int64), np.zeros(4, np.int64)
        index.stampA[:] = 0
        index.stampB[:] = 0
        begin = time.thread_time()
        self._matcher.run_updates(
            before, after, 0, len(after), index.slots, index.pool, index.shapes, index.ns[0],
            self._rows, self._row_of, index.stampA, index.stampB, self._out, self._old, notes,
            counts, np.zeros(4, np.int64),
        )  # fmt: skip
        return len(after) / (time.thread_time() - begin)


# ---- ours ----------------------------------------------------------------------------------------


def _singles(collection: Any, made: list[dict[str, Any]]) -> float:
    """The median of one `put`, in microseconds."""
    spent = []
    for document in made:
        begin = time.perf_counter()
        collection.put(document)
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent) * 1e6


def one_size(queries: int, rounds: int, folder: str | None) -> dict[str, Any]:
    """Everything with so many queries, in a process of its own."""
    import tideline
    from tideline.live.query import Query

    updates, batch, singles = (2_000, 500, 200) if queries <= TINY else (UPDATES, BATCH, SINGLES)
    random = np.random.default_rng(11)
    limit = None if folder is None else Limit(Path(folder), queries)
    before = rows(updates, random)
    with common.scratch() as place, tideline.open(place / "db") as db:
        orders = db.collection("orders", key="id")
        stored = documents(before)
        orders.put_many(stored)
        none_us = _singles(orders, stored[:singles])
        size = common.memory().uss
        wanted = mixed(queries, random)
        begin = time.process_time()
        handles = [orders.watch(where, first=False) for where in wanted[:HANDLES]]
        register_us = (time.process_time() - begin) / len(handles) * 1e6
        hub = orders.hub
        stand = [hub.enter(Query.of(orders.key, where)) for where in wanted[HANDLES:]]
        del wanted
        bytes_each = (common.memory().uss - size) / queries
        ours: list[float] = []
        processor: list[float] = []
        limits: list[float] = []
        for _ in range(rounds + 1):  # the first warms up
            after = moved(before, random)
            made = documents(after)
            begin, used = time.perf_counter(), time.process_time()
            for first in range(0, updates, batch):
                orders.put_many(made[first : first + batch])
            hub.advance()
            ours.append(updates / (time.perf_counter() - begin))
            processor.append(updates / (time.process_time() - used))
            if limit is not None:
                limits.append(limit.updates(before, after))
            before = after
        with_us = _singles(orders, documents(moved(before, random))[:singles])
        begin = time.process_time()
        for handle in handles:
            handle.cancel()
        cancel_us = (time.process_time() - begin) / len(handles) * 1e6
        assert hub.count >= len(stand) // 2  # equal queries stand once
    say(
        f"matching {queries:,}: {max(ours[1:]):,.0f} updates/s"
        + (f", limit {max(limits[1:]):,.0f}" if limits else "")
        + f"; put {with_us:.0f} us, without queries {none_us:.0f} us; register {register_us:.0f} "
        f"us, cancel {cancel_us:.0f} us, {bytes_each:,.0f} bytes each"
    )
    return {
        "queries": queries, "updates_per_s": ours[1:], "updates_per_cpu_s": processor[1:],
        "limit_per_cpu_s": limits[1:], "put_us": with_us, "put_alone_us": none_us,
        "register_us": register_us, "cancel_us": cancel_us, "bytes": bytes_each,
    }  # fmt: skip


def measure(sizes: list[int], rounds: int, limit: Path | None) -> dict[str, Any]:
    """All sizes."""
    folder = limit_folder(limit)
    if folder is None:
        say("the limit is not here: left out (give its folder with --limit)")
    text = None if folder is None else str(folder)
    return {"sizes": [common.alone(one_size, size, rounds, text) for size in sizes]}
