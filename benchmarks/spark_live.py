"""How `tideline.spark.watch` grows from one core to two: by queries and by writes.

    python benchmarks/spark_live.py [--size small|full] [--batches N] [--results DIR] [--help]

The workload is that of InvaliDB's section 6: documents with five texts and five numbers, one of
them random; queries ask for a range of it. Each query is met by one write in a thousand.

    queries     1,000 writes each, more queries:  grid (1, 1) on one core, (2, 1) on two
    writes      1,000 queries, more writes each: grid (1, 1) on one core, (1, 2) on two
    broadcast   the same writes without a grid, on one core and on two

A session is a process of its own and runs all its sizes. The first micro-batches warm up; of the
others the median counts, with everything: reading the file, both shuffles, the state, the Parquet
file of changes. How many changes there are is compared with numpy. Writes spark-live.json, .md and
.png to benchmarks/results/. Needs Java and `pip install 'tideline[spark,bench]'`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import markdown_table, pyplot, say
from benchmarks.spark_common import run_stream, started, stream, write_file

SIZES = {
    "tiny": {"queries": [20], "writes": [50]},
    "small": {"queries": [1_000, 10_000, 100_000], "writes": [1_000, 20_000, 200_000]},
    "full": {"queries": [1_000, 10_000, 300_000], "writes": [1_000, 50_000, 500_000]},
}
FIXED = 1_000
SPACE = 1_000_000  # random numbers lie below
WIDTH = SPACE // 1_000  # of a query's range: met by one write in a thousand
WARM = 2  # micro-batches that do not count
SLA_S = 1.0
CONFIGS = [
    ("queries", "local[1]", (1, 1)), ("queries", "local[2]", (2, 1)),
    ("writes", "local[1]", (1, 1)), ("writes", "local[2]", (1, 2)),
    ("broadcast", "local[1]", None), ("broadcast", "local[2]", None),
]  # fmt: skip


def ranges(count: int) -> np.ndarray[Any, Any]:
    """Where the queries' ranges begin."""
    return np.random.default_rng(7).integers(0, SPACE - WIDTH, count)


def batch_of(number: int, count: int) -> tuple[pa.Table, np.ndarray[Any, Any]]:
    """The writes of a micro-batch, all of new keys, and their random numbers."""
    draw = np.random.default_rng(1_000 + number)
    found = draw.integers(0, SPACE, count)
    first = number * count
    texts = '"a":"abcdefghij","b":"bcdefghijk","c":"cdefghijkl","d":"defghijklm","e":"efghijklmn"'
    documents = [
        f'{{"id":{first + n},"random":{value},{texts},"n":{n},"m":{n % 7},"o":1,"p":2}}'
        for n, value in enumerate(found.tolist())
    ]
    table = pa.table({
        "key": [str(first + n) for n in range(count)],
        "seq": pa.array(range(first + 1, first + count + 1), pa.int64()),
        "op": ["u"] * count, "document": documents, "before": pa.nulls(count, pa.string()),
    })  # fmt: skip
    return table, found


def one_session(
    master: str, grid: tuple[int, int] | None, pairs: list[tuple[int, int]], batches: int
) -> list[dict[str, Any]]:  # fmt: skip
    """All sizes of queries and writes, one after the other, in a session."""
    from tideline.spark import watch

    lines = []
    parallel = {"spark.sql.shuffle.partitions": master[-2]}
    with common.scratch() as folder, started(master, folder / "tmp", **parallel) as spark:
        for turn, (queries, writes) in enumerate([pairs[0], *pairs]):  # the first warms up
            here = folder / str(turn)
            (here / "writes").mkdir(parents=True)
            lows = ranges(queries)
            want = 0
            for number in range(WARM + batches):
                table, found = batch_of(number, writes)
                # As many files as tasks may read at a time, in one micro-batch.
                half = -(-writes // 2)
                for part in (0, 1):
                    path = here / "writes" / f"{number:04}-{part}.parquet"
                    write_file(table.slice(part * half, half), path, number)
                begun = np.searchsorted(np.sort(lows), found, "right").sum()
                want += int(begun - np.searchsorted(np.sort(lows) + WIDTH, found, "right").sum())
            asked = pa.table({
                "id": [f"q{n}" for n in range(queries)],
                "where": [f'{{"random":{{"$gte":{low},"$lt":{low + WIDTH}}}}}'
                          for low in lows.tolist()],
            })  # fmt: skip
            told = stream(spark, here / "writes", files_per_batch=2)
            done = run_stream(watch(spark.createDataFrame(asked), told, grid=grid), here / "out")
            times = [e["batchDuration"] / 1000 for e in done["batches"] if e["numInputRows"]]
            got = spark.read.parquet(str(here / "out" / "answers")).count()
            if turn:
                lines.append({
                    "queries": queries, "writes": writes, "changes": got, "right": got == want,
                    "batch_s": statistics.median(times[WARM:]), "every_s": times,
                })  # fmt: skip
    return lines


def measure(size: str, batches: int) -> dict[str, Any]:
    """Seconds of a micro-batch by axis, session and size."""
    chosen = SIZES[size]
    found: list[dict[str, Any]] = []
    for axis, master, grid in CONFIGS:
        if axis == "queries":
            pairs = [(count, FIXED) for count in chosen["queries"]]
        else:
            pairs = [(FIXED, count) for count in chosen["writes"]]
        for line in common.alone(one_session, master, grid, pairs, batches):
            line |= {"axis": axis, "master": master, "grid": grid}
            found.append(line)
            say(
                f"{axis:9} {master} grid {grid}: {line['queries']:,} queries, {line['writes']:,} "
                f"writes: {line['batch_s']:.2f} s{'' if line['right'] else ', WRONG'}"
            )
    return {"lines": found, "batches": batches, "size": size}


def write(results: common.Results) -> Path:
    """The page and the plot."""
    part = results.parts["live"]
    data, facts = part["data"], part["facts"]
    rows = []
    for line in data["lines"]:
        spent, grid = line["batch_s"], line["grid"]
        per_batch = line["changes"] / (WARM + data["batches"])
        other = _other(line, data["lines"])
        rows.append([
            line["axis"], line["master"], "none" if grid is None else str(tuple(grid)),
            f"{line['queries']:,}", f"{line['writes']:,}", f"{per_batch:,.0f}",
            f"{line['every_s'][0]:.1f}", f"{spent:.2f}",
            f"{line['writes'] / spent:,.0f}",
            "" if other is None else f"{other['batch_s'] / spent:.2f}",
            "yes" if line["right"] else "NO",
        ])  # fmt: skip
    head = ["axis", "cores", "grid", "queries", "writes", "changes", "first s", "seconds",
            "writes/s", "to one core", "right"]  # fmt: skip
    text = (
        "# Live queries on Spark, from one core to two\n\nWritten by "
        "`python benchmarks/spark_live.py`.\n\nA micro-batch of so many writes against so many "
        f"standing queries: its median time of {data['batches']}, from reading the file to the "
        "Parquet file of changes. *first s*: the first micro-batch of all, which files the "
        "queries. *to one core*: how many times the writes a second of one core, "
        "with as many queries and writes. The changes were counted by numpy as well.\n\n"
        + markdown_table(head, rows)
        + f"\nWithin a micro-batch of {SLA_S:.0f} s, of the sizes that were run:\n\n"
        + markdown_table(["axis", "cores", "most"], _sustained(data["lines"]))
        + "\n![Seconds of a micro-batch by queries and by writes](spark-live.png)\n"
        + f"\n{facts['cpu']}, {facts['cores']} cores, load {data['load']:.1f} before the run; "
        + f"{part['date']}, commit {part['commit']}.\n"
    )
    path = results.folder / "spark-live.md"
    path.write_text(text, encoding="utf-8")
    _plot(data["lines"], results.folder / "spark-live.png")
    return path


def _other(line: dict[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The same on one core."""
    if line["master"] == "local[1]":
        return None
    wanted = {**line, "master": "local[1]"}
    names = ("axis", "queries", "writes", "master")
    return next(each for each in lines if all(each[name] == wanted[name] for name in names))


def _sustained(lines: list[dict[str, Any]]) -> list[list[str]]:
    best: dict[tuple[str, str], int] = {}
    for line in lines:
        count = line["queries"] if line["axis"] == "queries" else line["writes"]
        key = (line["axis"], line["master"])
        best[key] = max(best.get(key, 0), count if line["batch_s"] <= SLA_S else 0)
    return [[*key, f"{most:,}" if most else "none"] for key, most in best.items()]


def _plot(lines: list[dict[str, Any]], path: Path) -> None:
    plt = pyplot()
    figure, panes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for pane, axis in zip(panes, ("queries", "writes"), strict=True):
        for kind, master, _ in CONFIGS:
            some = [line for line in lines if (line["axis"], line["master"]) == (kind, master)]
            if kind == axis or (kind, axis) == ("broadcast", "writes"):
                grid = some[0]["grid"]
                label = f"{master}, " + ("no grid" if grid is None else f"grid {tuple(grid)}")
                pane.plot([line[axis] for line in some], [line["batch_s"] for line in some],
                          marker="o", label=label)  # fmt: skip
        pane.axhline(SLA_S, color="grey", linewidth=0.8, linestyle=":")
        pane.set_xscale("log")
        pane.set_yscale("log")
        pane.set_xlabel(axis if axis == "queries" else "writes a micro-batch")
        pane.set_ylabel("seconds of a micro-batch")
        pane.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> None:
    """Measure, keep and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--batches", type=int, default=5, help="micro-batches that count")
    parser.add_argument("--results", type=Path, default=common.RESULTS, metavar="DIR")
    given = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    results = common.Results(given.results, "spark-live")
    results.put("live", {**measure(given.size, given.batches), "load": load})
    say(f"wrote {write(results)}")


if __name__ == "__main__":
    main()
