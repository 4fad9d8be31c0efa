"""How fast documents and events get through Spark: the sink against a bulk load, and reads.

    python benchmarks/spark_bulk.py [--rows N] [--rounds N]

A round runs by turns, in one session of two tasks, from Parquet:

    sink      frame.write.format("tideline") into a collection with two indexes
    bulk      tideline.spark.bulk_load of the same frame
    read      spark.read of that collection, and of a channel with as many events, in one task and
              in four

Prints rows a second, all rounds and the median. Needs Java and `pip install 'tideline[spark]'`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # also from a clone that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks.spark_common import started

INDEXES = {"user": "lazy", "place": "composite"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        started("local[2]", Path(folder)) as spark,
    ):
        for name, rates in measure(spark, Path(folder), given.rows, given.rounds).items():
            every = " ".join(f"{rate / 1000:.0f}" for rate in rates)
            print(f"{name:22} {statistics.median(rates) / 1000:6.0f} thousand rows/s   ({every})")


def measure(spark: Any, folder: Path, rows: int, rounds: int) -> dict[str, list[float]]:
    """Rows a second by what was done, a number a round."""
    import tideline
    from tideline.spark import bulk_load, share

    made = spark.range(rows).selectExpr(
        "id", "id * 7919 % 10007 as user", "concat('p', id % 5000) as place",
        "repeat('words of a tweet ', 6) as text",
    )  # fmt: skip
    made.repartition(4).write.parquet(str(folder / "in"))
    frame = spark.read.parquet(str(folder / "in"))
    found: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], Any]) -> None:
        start = time.perf_counter()
        work()
        found.setdefault(name, []).append(rows / (time.perf_counter() - start))

    with tideline.open(folder / "db") as db:
        share(db)
        path = str(db.path)
        db.channel("roads")
        events = frame.selectExpr(
            "cast(id as string) id",
            "place",
            "timestamp_micros(unix_micros(current_timestamp()) - id) at",
            "to_json(struct(text)) body",
        )
        events.write.format("tideline").option("channel", "roads").mode("append").save(path)

        def read(**options: str) -> None:
            table = spark.read.format("tideline").options(**options).load(path)
            table.write.format("noop").mode("overwrite").save()

        for number in range(rounds + 1):  # the first warms everything up
            for name in ("sink", "bulk"):
                into = db.collection(f"{name}{number}", key="id", indexes=INDEXES)
                if name == "sink":
                    writer = frame.write.format("tideline").option("collection", into.name)
                    timed(name, lambda writer=writer: writer.mode("append").save(path))  # type: ignore[misc]
                else:
                    timed(name, lambda into=into: bulk_load(frame, into))  # type: ignore[misc]
                assert into.count() == rows
            for parts in ("1", "4"):
                timed(f"collection, {parts} tasks",
                      lambda parts=parts: read(collection="bulk0", partitions=parts))  # type: ignore[misc]  # fmt: skip
                timed(f"channel, {parts} tasks",
                      lambda parts=parts: read(channel="roads", partitions=parts))  # type: ignore[misc]  # fmt: skip
    return {name: rates[1:] for name, rates in found.items()}


if __name__ == "__main__":
    main()
