"""How fast operations get from Parquet into the store: `tideline.spark.Pipeline`, part by part.

    python benchmarks/spark.py --only load [--size small|full] [--rounds N]

The workload is that of benchmarks/channel.py: subscriptions and events over 250,000 cells, ten
answers an operation. A round runs, by turns in one Spark session of two tasks:

    pipeline   the whole of it: files -> Spark -> tasks -> store, log on
    Spark      the stages of the pipeline alone, to Arrow in this process
    store      `Channel.apply` alone, from Arrow, batches of the same size

In the pipeline the tasks stage the rows of a batch, then the store takes them. The number of
answers of the store is compared with what numpy counts.
"""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import common
from benchmarks.common import say
from benchmarks.spark_common import started, write_file
from tideline.testing import ManualClock
from tideline.workload import limitfile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tideline.channel import Channel

__all__ = ["WHO", "measure"]

OPERATIONS = {"tiny": 4_000, "small": 1_000_000, "full": 3_000_000}
RATE = 5_000.0  # operations a simulated second
SUBSCRIPTIONS = 0.75
FILES = 4  # of a batch
FILE_ROWS = {"tiny": 2_000, "small": 250_000, "full": 250_000}
WHO = ("pipeline", "Spark", "store")
_COLUMNS = ("op", "id", "user", "at", "since", "until")


def config(files: Path, checkpoint: Path) -> dict[str, Any]:
    """What the pipeline is told."""
    return {
        "name": "load",
        "source": {
            "format": "parquet", "path": str(files), "options": {"maxFilesPerTrigger": FILES},
        },
        "place": {"column": "place"},
        "store": {"channel": "load", "space": {"kind": "flat"}},
        "operation": {
            "op_column": "op", "body_json": "body",
            **{name: name for name in _COLUMNS if name != "op"},
        },
        "run": {"checkpoint": str(checkpoint)},
    }  # fmt: skip


def run_pipeline(
    spark: SparkSession, files: Path, channel: Channel, db: Any, out: Path
) -> dict[str, Any]:
    """All of it, with what the pipeline says about its parts."""
    from tideline.spark.pipeline import Pipeline

    pipeline = Pipeline(config(files, out / "checkpoint"))
    begin = time.perf_counter()
    summary = pipeline.run(db, spark=spark)
    spent_s = time.perf_counter() - begin
    if summary.counts["stored"] != summary.counts["read"]:
        raise SystemExit(f"not all was stored: {summary.counts}")
    return {"spent_s": spent_s, "operations": summary.counts["stored"]}


def run_spark(
    spark: SparkSession, files: Path, channel: Channel, db: Any, out: Path
) -> dict[str, Any]:
    """The pipeline's stages and the way to Arrow, and nothing after that."""
    from tideline.spark.pipeline.config import make_config
    from tideline.spark.pipeline.source import Opened
    from tideline.spark.pipeline.stages import Stages

    paths = sorted(files.glob("*.parquet"))
    made = make_config(config(files, out))
    stages = Stages(made, channel.space, Opened(spark.read.parquet(str(paths[0]))))
    count = 0
    begin = time.perf_counter()
    for path in paths:
        count += stages(spark.read.parquet(str(path))).toArrow().num_rows
    return {"spent_s": time.perf_counter() - begin, "operations": count}


def run_store(
    spark: SparkSession, files: Path, channel: Channel, db: Any, out: Path
) -> dict[str, Any]:
    """The store without Spark."""
    spent_s = 0.0
    count = answers = 0
    for number, path in enumerate(sorted(files.glob("*.parquet"))):
        table = pq.read_table(path)
        begin = time.perf_counter()
        applied = channel.apply(table, once=("load", number))
        spent_s += time.perf_counter() - begin
        count += table.num_rows
        answers += applied.answers.num_rows
    return {"spent_s": spent_s, "operations": count, "answers": answers}


_RUNS = {"pipeline": run_pipeline, "Spark": run_spark, "store": run_store}


def one_session(files: str, warm: str, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """All rounds in a session of its own process."""
    import tideline

    runs: dict[str, list[dict[str, Any]]] = {who: [] for who in WHO}
    with common.scratch() as folder, started("local[2]", folder / "tmp") as spark:
        for number in range(-1, rounds):  # the first is the warm-up
            turn = [*WHO[number % 3 :], *WHO[: number % 3]]
            for who in turn:
                out = folder / f"{who}-{number}"
                clock = ManualClock(limitfile.START_US / 1e6)
                with tideline.open(out / "db", clock=clock) as db:
                    channel = db.channel("load", max_ahead_s=math.inf)
                    chosen = Path(warm if number < 0 else files)
                    line = _RUNS[who](spark, chosen, channel, db, out)
                if number >= 0:
                    runs[who].append(line)
                    rate = line["operations"] / line["spent_s"]
                    say(f"load round {number + 1}: {who}: {rate:,.0f} operations/s")
    return runs


def write_files(folder: Path, operations: int, step: int) -> int:
    """The workload as Parquet files; how many answers there are."""
    folder.mkdir(parents=True)
    binary = folder / "workload.bin"
    limitfile.write(binary, operations, rate=RATE, subscriptions=SUBSCRIPTIONS)
    workload = limitfile.read(binary)
    for number, first in enumerate(range(0, operations, step)):
        table = limitfile.table(workload, first, min(first + step, operations))
        for name in ("at", "since", "until"):  # Spark's timestamps have a zone
            at = table.column_names.index(name)
            table = table.set_column(at, name, table[name].cast(pa.timestamp("us", "UTC")))
        write_file(table, folder / f"{number:04}.parquet", number)
    binary.unlink()
    return int(limitfile.count_answers(workload, 0, operations).sum())


def measure(size: str, rounds: int) -> dict[str, Any]:
    """Operations a second of the whole and of each part: medians of rounds."""
    operations, step = OPERATIONS[size], FILE_ROWS[size]
    with common.scratch() as folder:
        want = write_files(folder / "files", operations, step)
        write_files(folder / "warm", operations // 2, step // 2)
        runs = common.alone(one_session, str(folder / "files"), str(folder / "warm"), rounds)
    outcome: dict[str, Any] = {
        "operations": operations,
        "files": -(-operations // step),
        "rounds": rounds,
        "answers": want,
    }
    for who, lines in runs.items():
        rates = [line["operations"] / line["spent_s"] for line in lines]
        outcome[who] = {
            "operations_per_s": statistics.median(rates),
            "all_operations_per_s": rates,
            "right": all(line.get("answers", want) == want for line in lines),
        }
    spent = statistics.median([line["spent_s"] for line in runs["pipeline"]])
    outcome["pipeline"] |= {"spent_s": spent}
    return outcome
