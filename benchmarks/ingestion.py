"""Writing with indexes: by their kinds, by policy, and ranges asked while one writes.

    python benchmarks/ingestion.py [--only PART ...] [--size tiny|small|full] [--help]

    kinds     tweets a second without an index, with one of each kind, with all, and with more and
              more plain ones (figure 4.3)
    policies  prefix, constant and none: tweets a second, what was sealed and merged (table 4.2)
    ranges    a range of numbers with 10 to 10,000 results, while one writes, afterwards, and with
              everything in one component (table 4.3)

The tables are those of the study (003, 4.4.1), on one machine and not on a cluster. Tweets are made
up (tweets_data.py), put 10,000 a call, 16 MB of memory; a run ends when what is due has been sealed
and merged. Writes benchmarks/results/ingestion.json, .md and .png.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import numpy as np

import tideline
from benchmarks import common, pages
from benchmarks.common import markdown_table, say
from benchmarks.pages import Plot
from benchmarks.tweets_data import tweets

PARTS = ["kinds", "policies", "ranges"]
SIZES = {"tiny": (2_000, 4), "small": (100_000, 40), "full": (2_000_000, 500)}  # tweets, questions
CARDINALITIES = (10, 100, 1_000, 10_000)
_BATCH, _MEMORY_MB = 10_000, 16
_PREFIX = {"name": "prefix", "max_bytes": 64 << 20, "max_count": 5}
_KINDS: dict[str, Any] = {
    "no index": {},
    "composite": {"user": "composite"},
    "spatial": {"at": "spatial"},
    "words": {"text": "words"},
    "ngrams": {"text": {"kind": "ngrams", "n": 3}},
    "fuzzy": {("at", "text"): "fuzzy"},
    "composite, spatial, words": {"user": "composite", "at": "spatial", "text": "words"},
}


def written(count: int, batches: list[list[str]], **settings: Any) -> dict[str, Any]:
    """Put all batches into a new collection; what it took and what was written."""
    with common.scratch() as folder, tideline.open(folder / "d", memory_mb=_MEMORY_MB) as db:
        docs = db.collection("tweets", key="id", **{"policy": _PREFIX, **settings})
        begun = time.perf_counter()
        for batch in batches:
            docs.put_many(batch)
        put = time.perf_counter() - begun
        docs._engine.seal()
        whole = time.perf_counter() - begun
        stats = docs.stats()
        sealed = stats.bytes_sealed + sum(one.bytes_sealed for one in stats.indexes)
        merged = stats.bytes_merged + sum(one.bytes_merged for one in stats.indexes)
        return {
            "put_s": put, "whole_s": whole, "per_s": count / whole, "sealed": sealed,
            "merged": merged, "components": stats.components,
        }  # fmt: skip


def _batches(count: int) -> list[list[str]]:
    firsts = range(0, count, _BATCH)
    return [tweets(first, min(_BATCH, count - first), pad=600) for first in firsts]


def kinds(size: str) -> dict[str, Any]:
    """By the kinds of its indexes."""
    count, _ = SIZES[size]
    batches = _batches(count)
    made = {name: {"indexes": indexes} for name, indexes in _KINDS.items()}
    plain = ("user", "time", "lang", "friends")
    made |= {f"{n} composite": {"indexes": dict.fromkeys(plain[:n], "composite")} for n in (2, 4)}
    return {"tweets": count, "rows": _compared(count, batches, made)}


def policies(size: str) -> dict[str, Any]:
    """By policy."""
    count, _ = SIZES[size]
    given: dict[str, Any] = {
        "prefix": _PREFIX, "constant": {"name": "constant", "k": 3}, "none": "none"
    }  # fmt: skip
    made = {
        name: {"policy": policy, "indexes": {"user": "composite"}} for name, policy in given.items()
    }
    return {"tweets": count, "rows": _compared(count, _batches(count), made)}


def _compared(
    count: int, batches: list[list[str]], made: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Each twice, by turns; the better one, because another program slows and never speeds up."""
    for settings in made.values():  # what is loaded the first time takes longer than all the rest
        written(100, [batches[0][:100]], **settings)
    rows: dict[str, Any] = {}
    for _ in range(2):
        for name, settings in made.items():
            found = written(count, batches, **settings)
            if name not in rows or found["per_s"] > rows[name]["per_s"]:
                rows[name] = found
    for name, row in rows.items():
        say(f"  {name}: {row['per_s']:,.0f} a second")
    return rows


def ranges(size: str) -> dict[str, Any]:
    """Ranges of a number that is drawn at random."""
    count, number = SIZES[size]
    draw = np.random.default_rng(2)
    outcome: dict[str, Any] = {"tweets": count, "us": {}, "components": {}}
    with common.scratch() as folder, tideline.open(folder / "d", memory_mb=_MEMORY_MB) as db:
        one = {"name": "constant", "k": 2}
        docs, whole = (
            db.collection(name, key="id", indexes={"n": "composite"}, policy=policy)
            for name, policy in (("several", _PREFIX), ("one", one))
        )
        numbers = draw.permutation(2 * count).tolist()
        batches = [
            [f'{{"n":{n},{text[1:]}' for n, text in zip(numbers[first:], batch, strict=False)]
            for first, batch in zip(range(0, 2 * count, _BATCH), _batches(2 * count), strict=False)
        ]
        half = len(batches) // 2
        for batch in batches[:half]:
            docs.put_many(batch)
        done, stop = threading.Event(), threading.Event()

        def write() -> None:
            for batch in batches[half:]:
                docs.put_many(batch)
            done.set()
            while not stop.is_set():  # the same again, as long as one asks
                docs.put_many(batches[half])

        asked = [
            (wide, int(low))
            for wide in CARDINALITIES
            if 4 * wide < count
            for low in draw.integers(2 * count - wide, size=number)
        ]
        draw.shuffle(asked)
        thread = threading.Thread(target=write)
        thread.start()
        try:
            outcome["us"]["while one writes"] = _asked(docs, asked)
        finally:
            stop.set()
            thread.join()
        docs._engine.seal()
        outcome["us"]["afterwards"] = _asked(docs, asked, exact=True)
        for batch in batches:
            whole.put_many(batch)
        whole._engine.seal()
        outcome["us"]["all in one component"] = _asked(whole, asked, exact=True)
        for name, each in (("afterwards", docs), ("all in one component", whole)):
            [index] = each.stats().indexes
            outcome["components"][name] = [each.stats().components - index.components,
                                           index.components]  # fmt: skip
    return outcome


def _asked(docs: Any, asked: list[Any], exact: bool = False) -> dict[str, float]:
    """The mean of microseconds by how many are found."""
    spent: dict[int, list[float]] = {}
    for wide, low in asked:
        begun = time.perf_counter()
        found = len(docs.find({"n": {"$gte": int(low), "$lt": int(low + wide)}}))
        spent.setdefault(int(wide), []).append((time.perf_counter() - begun) * 1e6)
        if found > wide or (exact and found != wide):
            raise SystemExit(f"{found} found of {wide}")
    return {str(wide): float(np.mean(us)) for wide, us in sorted(spent.items())}


# ---- the page ------------------------------------------------------------------------------------


def _rates(title: str, data: dict[str, Any]) -> str:
    first = next(iter(data["rows"].values()))
    rows = [
        [
            name, f"{row['per_s']:,.0f} ({row['per_s'] / first['per_s']:.2f}x)",
            f"{row['put_s'] / data['tweets'] * 1e6:.2f}", f"{row['sealed'] / 1e6:,.0f}",
            f"{row['merged'] / 1e6:,.0f}", str(row["components"]),
        ]
        for name, row in data["rows"].items()
    ]  # fmt: skip
    head = ["", "tweets a second", "put_many, us a tweet", "sealed, MB", "merged, MB", "components"]
    return f"## {title}: {data['tweets']:,} tweets\n\n" + markdown_table(head, rows)


def _ranges(data: dict[str, Any]) -> str:
    wides = list(next(iter(data["us"].values())))
    rows = [[when, *(f"{us[wide]:,.0f}" for wide in wides)] for when, us in data["us"].items()]
    head = ["mean us", *(f"{int(wide):,} found" for wide in wides)]
    several, one = data["components"].values()
    said = (
        f"\nComponents of documents and index: {several[0]} and {several[1]} afterwards, {one[0]} "
        f"and {one[1]} in the last row.\n"
    )
    title = f"## Ranges (table 4.3): {2 * data['tweets']:,} tweets\n\n"
    return title + markdown_table(head, rows) + said


def plots(parts: dict[str, Any]) -> list[Plot]:
    """Ranges by result size."""
    if "ranges" not in parts:
        return []
    curves = {
        when: [(float(wide), found) for wide, found in us.items()]
        for when, us in parts["ranges"]["us"].items()
    }
    return [Plot("ranges", "documents found", "mean us", curves, log_across=True)]


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for and write the results."""
    options = common.parser(__doc__, parts=PARTS, sizes=SIZES).parse_args(arguments)
    results = common.Results(options.results, "ingestion")
    for part in options.only or PARTS:
        say(part)
        measured = {"kinds": kinds, "policies": policies, "ranges": ranges}[part](options.size)
        results.put(part, {**measured, "size": options.size})
    about = (
        "Written by `python benchmarks/ingestion.py`, whose head says what is done. The tweets are "
        "made up. A rate is that until everything due was sealed and merged."
    )
    tables = {
        "kinds": partial(_rates, "Kinds of index (figure 4.3)"),
        "policies": partial(_rates, "Policies (table 4.2)"), "ranges": _ranges,
    }  # fmt: skip
    for path in pages.write(results, "ingestion", "Writing with indexes", about, tables, plots):
        say(f"wrote {path}")


if __name__ == "__main__":
    main()
