"""What a cluster and a server cost: rows from Parquet into the store, here and there.

    python benchmarks/spark_served.py [--rows N] [--turns N] [--help]

The same frames are written by the format `tideline`, into a channel and into a collection with two
indexes, and read back:

    local      a session of two tasks, the store's folder shared by its driver
    cluster    a master and two workers of one core, without the package; the store behind a server

Each is a process of its own: a turn that warms up, then some that count; the processes take turns.
Writes spark-served.json and spark-served.md to benchmarks/results/. Takes about two minutes. Needs
Java and `pip install 'tideline[spark,server,client]'`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import markdown_table, say

INDEXES = {"user": "lazy", "place": "composite"}
WHERE = ("local", "cluster")
WHAT = ("write channel", "write collection", "read channel", "read collection")
LEAST = 0.6
Rates = dict[str, list[float]]


def measure(where: str, rows: int, turns: int) -> Rates:
    """Rows a second by what was done, a number a turn."""
    import tideline
    from tideline.server import running
    from tideline.spark import session, share

    found: Rates = {what: [] for what in WHAT}
    with common.scratch() as folder, contextlib.ExitStack() as stack:
        master = "local[2]"
        if where == "cluster":
            sys.path[:0] = [str(common.ROOT / "tests")]
            from spark_cluster import Cluster

            (folder / "cluster").mkdir()
            cluster = Cluster(folder / "cluster")
            stack.callback(cluster.stop)
            cluster.start()
            master = cluster.url
            os.environ["PYSPARK_PYTHON"] = str(cluster.python)
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        spark = session(master=master, config={"spark.ui.showConsoleProgress": "false"})
        stack.callback(spark.stop)
        db = stack.enter_context(tideline.open(folder / "db"))
        if where == "cluster":
            store = {"url": stack.enter_context(running(db))}
        else:
            share(db)
            store = {"path": str(db.path)}
        text = "repeat('words of a tweet ', 6)"
        frames = {
            "channel": spark.range(rows).selectExpr(
                "cast(id as string) id", "concat('p', id % 5000) place",
                "timestamp_micros(unix_micros(current_timestamp()) - id) at",
                f"to_json(struct({text} as text)) body",
            ),
            "collection": spark.range(rows).selectExpr(
                "id", "id * 7919 % 10007 as user", "concat('p', id % 5000) as place",
                f"{text} as text",
            ),
        }  # fmt: skip
        for kind, frame in frames.items():
            frame.repartition(4).write.parquet(str(folder / kind))
            frames[kind] = spark.read.parquet(str(folder / kind))
        for turn in range(turns + 1):  # the first warms everything up
            for kind, frame in frames.items():
                name = f"{kind}{turn}"
                made: Any
                if kind == "channel":
                    made = db.channel(name)
                else:
                    made = db.collection(name, key="id", indexes=INDEXES)
                options = {**store, kind: name}
                start = time.perf_counter()
                frame.write.format("tideline").options(**options).mode("append").save()
                found[f"write {kind}"].append(rows / (time.perf_counter() - start))
                table = spark.read.format("tideline").options(**options).load()
                start = time.perf_counter()
                table.write.format("noop").mode("overwrite").save()
                found[f"read {kind}"].append(rows / (time.perf_counter() - start))
                count = made.stats().events if kind == "channel" else made.count()
                if count != rows:
                    raise SystemExit(f"{where}: {count} of {rows} rows are there")
    return {what: rates[1:] for what, rates in found.items()}


def main() -> None:
    """Measure, keep and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=1, help="processes of each")
    parser.add_argument("--turns", type=int, default=3, help="turns of a process")
    parser.add_argument("--one", choices=WHERE, help="one process, print its figures")
    parser.add_argument("--out", type=Path, default=common.RESULTS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.rows, given.turns)))
        return
    load = os.getloadavg()[0]
    data: dict[str, Any] = {"rows": given.rows, "load": load, "local": {}, "cluster": {}}
    sizes = ["--rows", str(given.rows), "--turns", str(given.turns)]
    for _ in range(given.rounds):
        for where in WHERE:
            command = [sys.executable, __file__, *sizes, "--one", where]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            for what, rates in json.loads(done.stdout.splitlines()[-1]).items():
                data[where].setdefault(what, []).extend(rates)
                say(f"{where:8} {what:18} " + " ".join(f"{rate / 1000:.0f}" for rate in rates))
    results = common.Results(given.out, "spark-served")
    results.put("served", data)
    say(f"wrote {write(results)}")


def write(results: common.Results) -> Path:
    """The page of results."""
    part = results.parts["served"]
    data, facts = part["data"], part["facts"]
    here, there = ({what: statistics.median(data[where][what]) for what in WHAT} for where in WHERE)
    lines = [
        [what, f"{here[what] / 1000:.0f}", f"{there[what] / 1000:.0f}",
         f"{there[what] / here[what]:.2f}"]
        for what in WHAT
    ]  # fmt: skip
    text = (
        "# A cluster and a server against one process\n\nWritten by"
        f" `python benchmarks/spark_served.py`.\n\n{data['rows']:,} rows between Parquet and the"
        " store, medians of turns: a local session of two tasks beside the store, and a standalone"
        " cluster of two workers of one core, on the same machine, with the store behind a server."
        f" Asked for is a ratio of {LEAST} at least.\n\n"
        + markdown_table(["", "local, thousand rows/s", "cluster, thousand rows/s", "ratio"], lines)
        + f"\n{facts['cpu']}, {facts['cores']} cores, load {data['load']:.1f} before the run;"
        f" {part['date']}, commit {part['commit']}.\n"
    )
    path = results.folder / "spark-served.md"
    path.write_text(text, encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
