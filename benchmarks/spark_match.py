"""How fast `tideline.spark.match` is on streams and tables, beside Spark's own joins in Java.

    python benchmarks/spark.py --only match [--size small|full] [--rounds N]

One data set for all (benchmarks/spark_data.py), one file a micro-batch. In a round each engine runs
by turns in a Spark session of two tasks, after a warm-up on little data; `match` also in one of one
task. Each session is a process of its own: what an engine leaves in Java's heap slows none of the
others. All answers are compared with those numpy gives.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import common, spark_data
from benchmarks.common import say
from benchmarks.spark_common import answer_keys, match, run_stream, started, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BATCH", "MATCH", "STREAMS", "measure"]

# What a micro-batch costs whatever it holds weighs little at 200,000 rows: the small size has fewer
# micro-batches than the full one, of the same rows.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"per_side": 2_000, "places": 500, "seconds": 400.0, "files": 2},
    "small": {"per_side": 400_000, "places": 250_000, "seconds": 160.0, "files": 4},
    "full": {"per_side": 1_000_000, "places": 250_000, "seconds": 400.0, "files": 10},
}
DELAY_S = 0  # rows come in order: the least state that the join can do with

MATCH = "match"
STREAMS = (MATCH, "interval join, RocksDB", "interval join, Java heap")
BATCH = ("batch match", "batch range join")


def _stream_engine(spark: SparkSession, name: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    """Streams of subscriptions and events to answers, by the engine of that name."""
    from benchmarks.peers import spark_join

    store = spark_join.HEAP if name.endswith("heap") else spark_join.ROCKS
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    if name == MATCH:
        return match
    return lambda subscriptions, events: spark_join.interval_join(
        subscriptions, events, back_s=spark_data.BACK_S, ahead_s=spark_data.AHEAD_S,
        delay_s=DELAY_S,
    )  # fmt: skip


def _range_join(subscriptions: DataFrame, events: DataFrame) -> DataFrame:
    from benchmarks.peers import spark_join

    return spark_join.range_join(
        subscriptions, events, back_s=spark_data.BACK_S, ahead_s=spark_data.AHEAD_S
    )


def _run(spark: SparkSession, name: str, data: Path, out: Path) -> dict[str, Any]:
    """One run of an engine over a folder of data."""
    sides = [data / "subscriptions", data / "events"]
    if name in BATCH:
        tables = [spark.read.parquet(str(side)) for side in sides]
        engine = match if name == BATCH[0] else _range_join
        begin = time.perf_counter()
        engine(*tables).write.mode("overwrite").parquet(str(out / "answers"))
        return {"spent_s": time.perf_counter() - begin, "batches": []}
    engine = _stream_engine(spark, name)
    return run_stream(engine(*(stream(spark, side) for side in sides)), out)


def one_session(
    master: str, name: str, data: str, warm: str, want: str, out: str
) -> dict[str, Any]:
    """An engine once in a session of its own process, after a warm-up."""
    folder = Path(out)
    with started(master, folder / "tmp") as spark:
        if warm:
            _run(spark, name, Path(warm), folder / "warm")
        line = _run(spark, name, Path(data), folder / "run")
        got = answer_keys(folder / "run" / "answers")
        line["answers"] = len(got)
        line["right"] = bool(np.array_equal(got, np.load(want)))
    return line


def measure(size: str, rounds: int) -> dict[str, Any]:
    """Rows a second of every engine: the median of rounds, and the ratios inside a round."""
    chosen = SIZES[size]
    runs: dict[str, list[dict[str, Any]]] = {}
    with common.scratch() as folder:
        data = spark_data.make(folder / "data", **chosen)
        np.save(folder / "want.npy", spark_data.pairs(data))
        paths = [str(folder / name) for name in ("data", "warm", "want.npy", "out")]
        if size == "tiny":
            paths[1] = ""  # nobody looks at its times
        else:
            warm = {"per_side": chosen["per_side"] // 10, "files": 3}
            spark_data.make(folder / "warm", **(chosen | warm))
        for number in range(rounds):
            turn = [*STREAMS[number % 3 :], *STREAMS[: number % 3], *BATCH]
            for master, name in (*(("local[2]", name) for name in turn), ("local[1]", MATCH)):
                line = common.alone(one_session, master, name, *paths)
                label = name if master == "local[2]" else f"{name}, {master}"
                line["rows_per_s"] = data.rows / line["spent_s"]
                runs.setdefault(label, []).append(line)
                say(f"match round {number + 1}: {label}: {line['rows_per_s']:,.0f} rows/s")
    return {
        **chosen,
        "rounds": rounds,
        "engines": {label: _summary(lines) for label, lines in runs.items()},
        "ratios": _ratios(runs),
    }


def _summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [line["rows_per_s"] for line in lines]
    return {
        "rows_per_s": statistics.median(rates),
        "all_rows_per_s": rates,
        "answers": lines[0]["answers"],
        "right": all(line["right"] for line in lines),
        # The last micro-batch has no rows, it only tells that time has gone on: it is left out.
        "batch_ms": statistics.median(
            [
                b["durationMs"]["triggerExecution"]
                for line in lines
                for b in line["batches"]
                if b["numInputRows"]
            ]
            or [0]
        ),
    }


def _ratios(runs: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """How many times as fast as another engine, the median over rounds."""

    def ratio(one: str, other: str) -> float:
        both = zip(runs[one], runs[other], strict=True)
        return statistics.median(a["rows_per_s"] / b["rows_per_s"] for a, b in both)

    return {
        "to the join on RocksDB": ratio(MATCH, STREAMS[1]),
        "to the join in the heap": ratio(MATCH, STREAMS[2]),
        "local[2] to local[1]": ratio(MATCH, f"{MATCH}, local[1]"),
        "batch to the range join": ratio(BATCH[0], BATCH[1]),
    }
