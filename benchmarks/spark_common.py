"""What the Spark benchmarks share: a session of their own, a timed query, its answers."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["answer_keys", "match", "run_stream", "started", "stream", "write_file"]

Column = np.ndarray[Any, np.dtype[Any]]


@contextmanager
def started(master: str, tmp: Path, **config: str) -> Iterator[SparkSession]:
    """A session with the settings a user of Tideline gets; call it in a process of its own."""
    from tideline.spark import session

    spark = session(master=master, tmp=tmp, config=config)
    try:
        yield spark
    finally:
        spark.stop()


def write_file(table: pa.Table, path: Path, number: int) -> None:
    """A Parquet file; Spark takes the oldest first, so it comes in the order of numbers."""
    pq.write_table(table, path)
    os.utime(path, (1_700_000_000 + number,) * 2)


def stream(spark: SparkSession, folder: Path, files_per_batch: int = 1) -> DataFrame:
    """The files of a folder as a stream, the oldest first."""
    schema = spark.read.parquet(str(folder)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", str(files_per_batch))
    return reader.parquet(str(folder))


def match(subscriptions: DataFrame, events: DataFrame) -> DataFrame:
    """What is measured."""
    from tideline.space import Flat
    from tideline.spark.matching import match as measured

    return measured(subscriptions, events, space=Flat())


def run_stream(answers: DataFrame, folder: Path) -> dict[str, Any]:
    """Run a query to the end of its input, answers into Parquet: how long, and every batch.

    The time is of the whole query: from its start, over all batches, to its end.
    """
    shutil.rmtree(folder, ignore_errors=True)
    begin = time.perf_counter()
    query = (
        answers.writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(folder / "answers"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spent_s = time.perf_counter() - begin
    batches = [json.loads(progress.json) for progress in query.recentProgress]
    return {"spent_s": spent_s, "batches": batches}


def answer_keys(folder: Path) -> Column:
    """The answers a run wrote: subscription << 32 | event, sorted; one given twice shows twice."""
    table = ds.dataset(folder, format="parquet", exclude_invalid_files=False).to_table(
        columns=["subscription", "event"]
    )
    sub, event = (
        table[name].cast(pa.string()).cast(pa.int64()).to_numpy()
        for name in ("subscription", "event")
    )
    return np.sort(sub << 32 | event)
