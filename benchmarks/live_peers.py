"""What do other ways to be told of changes cost, doing the same work?

    python benchmarks/live.py --only peers

    filter   documents a second, held against queries without an order (user, one of three products,
             category with prices): `put_many` while they are watched, Lucene Monitor, mingo,
             PostgreSQL with a trigger and NOTIFY. Tideline and PostgreSQL store the documents, too;
             the others only match what is decoded already
    sorted   documents a second, held against sorted queries with a limit, some updated twice: ours
             while they are watched, RxDB's event-reduce
    poll     how many queries a second `find` answers: so many can be asked again each second

How many matches there are, and what the sorted results are, must be the same for all before a
time counts. A peer that is not to be had is left out, and that is said.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from benchmarks.common import say
from benchmarks.live_matching import documents as documents_of
from benchmarks.live_matching import mixed, rows
from benchmarks.peers import postgres_cluster, standing

__all__ = ["SIZES", "measure"]

LIMIT = 20
# standing queries: documents for the quick ones, documents for those that scan
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"filter": {300: (300, 100)}, "sorted": (20, 500), "polls": 50},
    "small": {
        "filter": {1_000: (50_000, 500), 10_000: (50_000, 200), 100_000: (50_000, 20)},
        "sorted": (1_000, 20_000), "polls": 500,
    },
    "full": {
        "filter": {1_000: (100_000, 2_000), 10_000: (100_000, 500), 100_000: (100_000, 100)},
        "sorted": (10_000, 50_000), "polls": 2_000,
    },
}  # fmt: skip
_DENSE = 100_000  # queries, of which 0.7 concern a document; fewer are spread less
_SLOW = 25  # PostgreSQL and Lucene get one part of the documents in so many
Queries = list[dict[str, Any]]


def _conditions(count: int) -> Queries:
    """Mixed conditions without circles, which not every peer has; no two are alike."""
    random = np.random.default_rng(21)
    made = mixed(count * 2, random, count / _DENSE)
    found = {str(where): where for where in made if "at" not in where}
    return list(found.values())[:count]


def _documents(count: int, queries: int) -> Queries:
    return documents_of(rows(count, np.random.default_rng(22), queries / _DENSE))


def ours(folder: Path, queries: Queries, documents: Queries) -> tuple[int, float]:
    """`put_many` while the queries are watched, until every match is told."""
    import tideline

    with tideline.open(folder / "db") as db:
        orders = db.collection("orders", key="id")
        orders.put_many([{"id": -1}])
        handles = [orders.watch(where, first=False) for where in queries]
        matches = 0

        def told(block: Any) -> None:
            nonlocal matches
            matches += len(block.notes)

        orders.hub.listeners.append(told)
        begin = time.perf_counter()
        for first in range(0, len(documents), 10_000):
            orders.put_many(documents[first : first + 10_000])
        orders.hub.advance()
        spent = time.perf_counter() - begin
        for handle in handles:
            handle.cancel()
        return matches, len(documents) / spent


def poll(folder: Path, queries: Queries, documents: Queries, polls: int) -> float:
    """How many of the queries `find` answers in a second, with an index on each field."""
    import tideline

    with tideline.open(folder / "db") as db:
        indexes = ["user", "product", "category", "price"]
        orders = db.collection("orders", key="id", indexes=indexes)
        orders.put_many(documents)
        asked = queries[:polls]
        for where in asked[:20]:
            orders.find(where)
        begin = time.perf_counter()
        for where in asked:
            orders.find(where)
        return len(asked) / (time.perf_counter() - begin)


# ---- sorted --------------------------------------------------------------------------------------


def _events(count: int, shops: int) -> Queries:
    """Documents of shops; every other one is an update of an earlier one."""
    random = np.random.default_rng(23)
    prices = random.permutation(count * 10)[:count].tolist()
    shop = random.integers(0, shops, count).tolist()
    made: Queries = []
    for n in range(count):
        if n % 2 and n > 10:
            before = made[int(random.integers(0, n))]
            made.append({**before, "price": prices[n]})
        else:
            made.append({"id": n, "shop": shop[n], "price": prices[n], "text": "some words"})
    return made


def ours_sorted(folder: Path, queries: Queries, events: Queries) -> tuple[list[Any], float]:
    """`put_many` a hundred at a time while sorted queries are watched, each read every time."""
    import tideline

    with tideline.open(folder / "db") as db:
        orders = db.collection("orders", key="id")
        handles = [
            orders.watch(where, sort=[("price", -1), ("id", 1)], limit=LIMIT) for where in queries
        ]
        begin = time.perf_counter()
        for first in range(0, len(events), 1_000):
            orders.put_many(events[first : first + 1_000])
            for handle in handles:
                handle.take()
        spent = time.perf_counter() - begin
        results = [[one["id"] for one in handle.result] for handle in handles]
    return results, len(events) / spent


# ---- all -----------------------------------------------------------------------------------------


def _filter(count: int, many: int, few: int) -> dict[str, float]:
    """Documents a second by engine, where all found the same."""
    queries, documents = _conditions(count), _documents(many, count)
    expected: dict[int, int] = {}
    found: dict[str, float] = {}
    peers = {
        "tideline": (ours, many), "lucene": (standing.lucene, max(many // _SLOW, few)),
        "postgres": (standing.postgres, max(many // _SLOW, few)), "mingo": (standing.mingo, few),
    }  # fmt: skip
    for name, (match, most) in peers.items():
        with common.scratch() as folder:
            outcome = match(folder, queries, documents[:most])
        if outcome is None:
            continue
        matches, rate = outcome
        if most not in expected:
            with common.scratch() as folder:
                expected[most] = matches if name == "tideline" else ours(
                    folder, queries, documents[:most]
                )[0]  # fmt: skip
        if matches != expected[most]:
            raise SystemExit(f"{name} found {matches} matches, not {expected[most]}")
        found[name] = rate
        say(f"filter, {count:,} queries: {name} {rate:,.0f} documents/s, {matches:,} matches")
    return found


def _sorted(count: int, events: int) -> dict[str, float]:
    queries = [{"shop": shop} for shop in range(count)]
    given = _events(events, count)
    found: dict[str, float] = {}
    with common.scratch() as folder:
        results, found["tideline"] = ours_sorted(folder, queries, given)
    with common.scratch() as folder:
        peer = standing.event_reduce(folder, queries, given, LIMIT)
    if peer is not None:
        if peer[0] != results:
            raise SystemExit("event-reduce has other results")
        found["event-reduce"] = peer[1]
    for name, rate in found.items():
        say(f"sorted, {count:,} queries: {name} {rate:,.0f} documents/s")
    return found


def measure(size: str) -> dict[str, Any]:
    """All three."""
    given = SIZES[size]
    matched = {str(n): common.alone(_filter, n, *most) for n, most in given["filter"].items()}
    most = max(given["filter"])
    with common.scratch() as folder:
        polled = poll(folder, _conditions(most), _documents(given["filter"][most][0], most),
                      given["polls"])  # fmt: skip
    say(f"poll: {polled:,.0f} finds/s")
    return {
        "filter": matched, "poll": {"queries": most, "finds_per_s": polled},
        "sorted": {"queries": given["sorted"][0], "limit": LIMIT,
                   "documents_per_s": common.alone(_sorted, *given["sorted"])},
        "versions": {**standing.VERSIONS, "postgres": postgres_cluster.server_version()},
    }  # fmt: skip
