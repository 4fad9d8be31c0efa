"""How fast documents and events get through Spark: the sink against a bulk load, and reads.

    python benchmarks/spark_bulk.py [--rows N] [--rounds N] [--against CLONE] [--help]

A round runs by turns, in one session of two tasks, from Parquet:

    sink          frame.write.format("tideline") into a collection with two indexes
    bulk load     tideline.spark.bulk_load of the same frame; also with rows spread by keys first
    ..., channel  the same two with as many events into a channel
    in the store  of these, rows a second of the processor in the process that has the store, until
                  everything is sealed: what it has left for others
    handed over   the same frame given to Python's tasks, which look at nothing: what Spark takes
    collection    spark.read of such a collection, as it comes and in four tasks
    channel       spark.read of a channel with as many events, the same
    any source    a Python source that hands out batches it has: what Spark itself takes for that

A round is a process of its own: a turn that warms up, then some that count. With `--against`, a
clone of the project at another commit, every other process runs its code. Writes spark-bulk.json,
spark-bulk.md and spark-bulk.png to benchmarks/results/. A process takes about a minute. Needs Java
and `pip install 'tideline[spark]'`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import common
from benchmarks.common import markdown_table, pyplot, say
from benchmarks.spark_common import started

INDEXES = {"user": "lazy", "place": "composite"}
BATCH = 65_536
FOUR = {"partitions": "4"}
READS = {
    "collection": {"collection": "read"}, "channel": {"channel": "roads"},
    "collection, 4 tasks": {"collection": "read"} | FOUR,
    "channel, 4 tasks": {"channel": "roads"} | FOUR,
}  # fmt: skip
Rates = dict[str, list[float]]


def measure(rows: int, turns: int) -> Rates:
    """Rows a second by what was done, a number a turn; what this code cannot do is left out."""
    import tideline
    from tideline.spark import share

    found: Rates = {}
    with common.scratch() as folder, started("local[2]", folder) as spark:
        made = spark.range(rows).selectExpr(
            "id", "id * 7919 % 10007 as user", "concat('p', id % 5000) as place",
            "repeat('words of a tweet ', 6) as text",
        )  # fmt: skip
        made.repartition(4).write.parquet(str(folder / "in"))
        frame = spark.read.parquet(str(folder / "in"))
        with tideline.open(folder / "db") as db:
            share(db)
            path = str(db.path)
            db.channel("roads")
            events = frame.selectExpr(
                "cast(id as string) id", "place",
                "timestamp_micros(unix_micros(current_timestamp()) - id) at",
                "to_json(struct(text)) body",
            )  # fmt: skip
            events.write.format("tideline").option("channel", "roads").mode("append").save(path)

            def sink(name: str) -> None:
                writer = frame.write.format("tideline").option("collection", name)
                writer.mode("append").save(path)

            def bulk(name: str) -> None:
                from tideline.spark import bulk_load

                bulk_load(frame, path, name)

            def clustered(name: str) -> None:
                from tideline.spark import bulk_load

                bulk_load(frame, path, name, clustered=True)

            saved = str(folder / "events")
            events.write.parquet(saved)

            def channel_sink(name: str) -> None:
                writer = spark.read.parquet(saved).write.format("tideline")
                writer.option("channel", name).mode("append").save(path)

            def channel_bulk(name: str) -> None:
                from tideline.spark import bulk_load

                bulk_load(spark.read.parquet(saved), path, channel=name)

            def any_source(rows: int) -> None:
                spark.dataSource.register(_any_source())
                table = spark.read.format("any").option("rows", rows).load()
                table.write.format("noop").mode("overwrite").save()

            def read(options: dict[str, str]) -> None:
                table = spark.read.format("tideline").options(**options).load(path)
                table.write.format("noop").mode("overwrite").save()

            def handed(rows: int) -> None:
                frame.mapInArrow(_counted, "rows long").collect()

            def timed(
                name: str, work: Callable[[Any], None], given: Any,
                settle: Callable[[], None] | None = None,
            ) -> None:  # fmt: skip
                start, busy = time.perf_counter(), time.process_time()
                try:
                    work(given)
                except Exception as error:
                    if "TIDELINE_BENCHMARK_OTHER" not in os.environ:
                        raise
                    say(f"{name}: {str(error).splitlines()[0][:100]}")
                    return
                found.setdefault(name, []).append(rows / (time.perf_counter() - start))
                if settle is not None:
                    settle()
                    rate = rows / (time.process_time() - busy)
                    found.setdefault(f"{name}, in the store", []).append(rate)

            db.collection("read", key="id", indexes=INDEXES)
            timed("fill", sink, "read")
            del found["fill"]
            for turn in range(turns + 1):  # the first warms everything up
                for name, work in (
                    ("sink", sink), ("bulk load", bulk), ("bulk load, clustered", clustered),
                ):  # fmt: skip
                    into = db.collection(f"{work.__name__}{turn}", key="id", indexes=INDEXES)
                    timed(name, work, into.name, into._engine.seal)
                    assert name not in found or into.count() == rows
                for name, work in (
                    ("sink, channel", channel_sink), ("bulk load, channel", channel_bulk),
                ):  # fmt: skip
                    channel = db.channel(f"{work.__name__}{turn}")
                    timed(name, work, channel.name, channel.seal)
                    if name in found and channel.stats().events != rows:
                        raise SystemExit(f"{name}: not all is there")
                    db.drop_channel(channel.name)
                for name, options in READS.items():
                    timed(name, read, options)
                timed("any source", any_source, rows)
                timed("handed over", handed, rows)
    return {name: rates[1:] for name, rates in found.items()}


def _counted(batches: Any) -> Any:
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def _any_source() -> Any:
    """A source of ready batches, as wide as the events of the channel."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Ready(DataSourceReader):
        def __init__(self, rows: int) -> None:
            self._rows = rows

        def read(self, partition: InputPartition) -> Any:
            text = '{"text":"' + "words of a tweet " * 6 + '"}'
            moment = pa.scalar(10**15, pa.timestamp("us", "UTC"))
            columns = {
                "id": [f"{n}" for n in range(BATCH)],
                "place": [f"p{n % 5000}" for n in range(BATCH)],
                "at": pa.repeat(moment, BATCH), "until": pa.repeat(moment, BATCH),
                "body": [text] * BATCH, "seq": range(BATCH),
            }  # fmt: skip
            batch = pa.RecordBatch.from_pydict(columns)
            for first in range(0, self._rows, BATCH):
                yield batch.slice(0, min(BATCH, self._rows - first))

    class AnySource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "any"

        def schema(self) -> str:
            return "id string, place string, at timestamp, until timestamp, body string, seq long"

        def reader(self, schema: Any) -> Ready:
            return Ready(int(self.options["rows"]))

    return AnySource


def run(rows: int, turns: int, clone: Path | None) -> Rates:
    """The same in a process of its own, with the code of this clone or of another."""
    source = (clone or common.ROOT) / "src"
    env = {**os.environ, "PYTHONPATH": str(source)}
    if clone:
        env["TIDELINE_BENCHMARK_OTHER"] = "1"
    command = [sys.executable, __file__, "--rows", str(rows), "--turns", str(turns), "--one"]
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    *said, last = done.stdout.splitlines()
    for line in said:
        say(line)
    found: Rates = json.loads(last)
    return found


def write(results: common.Results) -> Path:
    """The page of results."""
    part = results.parts["bulk"]
    data, facts = part["data"], part["facts"]
    now, before = ({name: statistics.median(rates) for name, rates in data[when].items()}
                   for when in ("now", "before"))  # fmt: skip
    head = ["", "thousand rows/s", "least", "most"]
    lines = []
    for name, rate in now.items():
        every = data["now"][name]
        line = [name, *(f"{each / 1000:.0f}" for each in (rate, min(every), max(every)))]
        if before:
            there = before.get(name)
            line += ["", ""] if there is None else [f"{there / 1000:.0f}", f"{rate / there:.2f}"]
        lines.append(line)
    if before:
        head += [f"commit {data['against']}", "ratio"]
    text = (
        "# Documents and events through Spark\n\nWritten by `python benchmarks/spark_bulk.py`.\n\n"
        f"{data['rows']:,} rows from Parquet into a collection with two indexes or into a channel,"
        " and back; two tasks at a time. Medians of rounds that were run by turns. A bulk load"
        " gives"
        f" {now['bulk load'] / now['sink']:.2f} times the rows a second of the sink into a"
        f" collection, {now['bulk load, channel'] / now['sink, channel']:.2f} times into a"
        " channel.\n\n"
        + markdown_table(head, lines)
        + "\n![Thousand rows a second](spark-bulk.png)\n"
        + f"\n{facts['cpu']}, {facts['cores']} cores, load {data['load']:.1f} before the run;"
        + f" {part['date']}, commit {part['commit']}.\n"
    )
    path = results.folder / "spark-bulk.md"
    path.write_text(text, encoding="utf-8")
    _plot(now, before, results.folder / "spark-bulk.png")
    return path


def _plot(now: dict[str, float], before: dict[str, float], path: Path) -> None:
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    names = list(now)[::-1]
    for rates, label, shift in ((now, "now", 0.2), (before, "before", -0.2)):
        there = [at for at, name in enumerate(names) if name in rates]
        if there:
            axes.barh([at + shift for at in there], [rates[names[at]] / 1000 for at in there], 0.38,
                      label=label)  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("thousand rows a second")
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, keep and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2, help="processes")
    parser.add_argument("--turns", type=int, default=2, help="turns of a process")
    parser.add_argument("--against", type=Path, help="a clone at another commit")
    parser.add_argument("--one", action="store_true", help="one process, print its figures")
    parser.add_argument("--out", type=Path, default=common.RESULTS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.rows, given.turns)))
        return
    load = os.getloadavg()[0]
    data: dict[str, Any] = {"rows": given.rows, "load": load, "now": {}, "before": {}}
    sides: dict[str, Path | None] = {"now": None}
    if given.against:
        git = ["git", "-C", str(given.against), "rev-parse", "--short", "HEAD"]
        data["against"] = subprocess.check_output(git, text=True).strip()
        sides["before"] = given.against
    for _ in range(given.rounds):
        for when, clone in sides.items():
            for name, rates in run(given.rows, given.turns, clone).items():
                data[when].setdefault(name, []).extend(rates)
                say(f"{when:7} {name:20} " + " ".join(f"{rate / 1000:.0f}" for rate in rates))
    results = common.Results(given.out, "spark-bulk")
    results.put("bulk", data)
    say(f"wrote {write(results)}")


if __name__ == "__main__":
    main()
