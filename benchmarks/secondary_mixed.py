"""Mixes of puts, gets and lookups from an empty collection on, and the length of bloom filters.

Only `user` is indexed. The kinds take turns, a part of the operations each. An operation is one
call of `put`, `get` or `lookup` (k=10), with its time and the blocks it read; what seals and
merges wrote is counted apart, as its own column. What is pending in the background at the end of
a part is waited for, and its time counts for the puts of the part.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks import common
from benchmarks.common import say
from benchmarks.secondary_speed import Ours
from benchmarks.secondary_static import blocks_since, fill, open_store, quartiles
from tideline.workload.documents import Documents
from tideline.workload.queries import GET, LOOKUP, MIXES, PUT, UPDATE, Batch, Mixed, Static

__all__ = ["KINDS", "measure", "measure_bloom"]

KINDS = ("none", "embedded", "lazy", "composite")
NAMES = {PUT: "put", UPDATE: "put", GET: "get", LOOKUP: "lookup"}
PARTS = 10
K = 10


def measure(operations: int) -> dict[str, Any]:
    """Every mix: of every part and kind, what each sort of operation took and read."""
    outcome = {}
    for name, shares in MIXES.items():
        tweets = Documents.of(operations, 2)
        mixed = Mixed(tweets, shares, seed=2)
        lines = []
        with common.scratch() as folder:
            stores = {kind: open_store(folder / kind, kind, "user") for kind in KINDS}
            for part in range(PARTS):
                first = operations * part // PARTS
                batch = mixed.batch(first, operations * (part + 1) // PARTS - first)
                texts = batch.documents.to_pylist()
                answers = {}
                for kind, store in stores.items():
                    line, answers[kind] = _run(store, kind, batch, texts)
                    lines.append({"kind": kind, "operations": first + len(batch.kind)} | line)
                right = all(answers[kind] == answers["lazy"] for kind in KINDS if kind != "none")
                for line in lines[-len(stores) :]:
                    line["same"] = right
            for store in stores.values():
                store.close()
        outcome[name] = lines
        says = ", ".join(
            f"{kind} {_mean(lines, kind):.1f}" for kind in KINDS
        )  # fmt: skip
        say(f"{name}, us an operation: {says}")
    return {"operations": operations, "mixes": outcome}


def _mean(lines: list[dict[str, Any]], kind: str) -> float:
    mine = [line for line in lines if line["kind"] == kind]
    return sum(line["us"] for line in mine) / len(mine)


def _run(store: Ours, kind: str, batch: Batch, texts: list[str]) -> tuple[dict[str, Any], int]:
    """One part on one collection: times and blocks by sort, and a sum over all answers.

    Without an index the lookups are left out: each would read everything.
    """
    spent = {"put": 0.0, "get": 0.0, "lookup": 0.0}
    counts = {"put": 0, "get": 0, "lookup": 0}
    blocks = {"put": 0, "get": 0, "lookup": 0}
    collection = store.collection
    clock = time.perf_counter
    documents = iter(texts)
    answers = 0
    for sort, value in zip(batch.kind.tolist(), batch.value.tolist(), strict=True):
        name = NAMES[sort]
        if name == "lookup" and kind == "none":
            continue
        counts[name] += 1
        if name == "put":
            text = next(documents)
            begin = clock()
            collection.put(text)
            spent[name] += clock() - begin
            continue
        before = blocks_since(store)
        if name == "get":
            begin = clock()
            found = collection.get(value)
            spent[name] += clock() - begin
            answers += 0 if found is None else found["time"]
        else:
            begin = clock()
            several = collection.lookup("user", value, k=K)
            spent[name] += clock() - begin
            answers += sum((n + 1) * one["id"] for n, one in enumerate(several))
        read = blocks_since(store, before)
        blocks[name] += read["primary_blocks"] + read["index_blocks"]
    begin = clock()
    store.engine.drain()
    spent["put"] += clock() - begin
    written = store.engine.stats()["written_bytes"]
    return {
        "us": sum(spent.values()) / sum(counts.values()) * 1e6,
        "sort_us": {name: spent[name] / max(1, counts[name]) * 1e6 for name in spent},
        "blocks": blocks,
        "counts": counts,
        "written_mb": sum(written.values()) / 1e6,
    }, answers


# ---- bloom filters -------------------------------------------------------------------------


def measure_bloom(count: int, lookups: int, bits: tuple[int, ...]) -> dict[str, Any]:
    """Embedded indexes on `user` that differ in the length of their filters."""
    tweets = Documents.of(count, 3)
    users = Static(tweets, count, 3).values("user", lookups)
    with common.scratch() as folder:
        stores = {
            each: open_store(folder / f"b{each}", "embedded", "user", bloom_bits=each)
            for each in bits
        }
        fill(stores, tweets, count, parts=5)
        before = {each: blocks_since(store) for each, store in stores.items()}
        spent: dict[int, list[float]] = {each: [] for each in bits}
        for at in range(0, lookups, 50):
            for each, store in stores.items():
                for user in users[at : at + 50]:
                    begin = time.perf_counter_ns()
                    store.lookup("user", user, K)
                    spent[each].append((time.perf_counter_ns() - begin) / 1000)
        lines = []
        for each, store in stores.items():
            read = blocks_since(store, before[each])
            lines.append({
                "bits": each, "size_mb": store.engine.stats()["component_bytes"] / 1e6,
                "us": quartiles(spent[each]), "blocks": read["primary_blocks"] / lookups,
                "checks": read["bloom_checks"] / lookups,
                "false": read["bloom_false"] / max(1, read["bloom_checks"]),
            })  # fmt: skip
            say(f"bloom {each} bits: {lines[-1]}")
            store.close()
    return {"count": count, "lookups": lookups, "lines": lines}
