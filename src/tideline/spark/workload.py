"""Workloads made by Spark: as a frame, or as files.

    tweets(spark, 180_000_000)       a frame of tweets
    operations(spark, 15_000_000)    a frame of operations, as `Channel.apply` takes them
    numbered(frame, workload)        the rows of a workload for a frame, or a stream, of numbers
    save(spark, workload, ...)       files, each written by the worker that makes its rows

A partition is a range of row numbers, and a row is a function of its number
(workload/tweets.py): the partitions need nothing of each other, and the same seed gives the same
rows whatever their number. Partition i holds the rows before those of partition i + 1.

A worker makes whole Arrow batches. `save` lets it write them as well, with Arrow's own writer;
a batch that goes through the JVM to Spark's writer takes several times as long. For a place that
workers cannot open as a path, write the frame with Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from tideline.clock import to_us
from tideline.errors import InvalidRequest
from tideline.spark.failures import failures
from tideline.workload.parts import PART_ROWS, Parts, bounds_of
from tideline.workload.shape import Shape, new_york
from tideline.workload.tweets import BATCH_ROWS, START_US, Operations, Tweets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["numbered", "operations", "save", "tweets"]

Batches = Iterator[pa.RecordBatch]


def tweets(
    spark: SparkSession, count: int, *, seed: int = 0, first: int = 0,
    partitions: int | None = None, shape: Shape | None = None, start: datetime | None = None,
) -> DataFrame:  # fmt: skip
    """Tweets: id, user, at, lon, lat, cell, text; in order of time.

    `first` is the number of the first row: a workload can be made in pieces. `shape` says what
    tweets are like (`workload.shape.learn` reads it off real ones), `start` when they begin.

    >>> tweets(spark, 3, seed=7).select("id", "cell").show()
    +---+-------+
    | id|   cell|
    +---+-------+
    |  0|219.379|
    |  1|269.222|
    |  2| 55.373|
    +---+-------+
    <BLANKLINE>
    """
    workload = Tweets(seed, new_york() if shape is None else shape, _start(start))
    return _frame(spark, workload, count, first, partitions)


def operations(
    spark: SparkSession, count: int, *, seed: int = 0, first: int = 0,
    partitions: int | None = None, shape: Shape | None = None, start: datetime | None = None,
    subscriptions: int = 3, events: int = 1, back_s: float = 10.0, ahead_s: float = 10.0,
    valid_s: float = 20.0, place: str = "cell",
) -> DataFrame:  # fmt: skip
    """The tweets as operations, `subscriptions` to `events` of them, in order of time.

    See `workload.tweets.Operations` for what they mean.

    >>> operations(spark, 1000, seed=7).groupBy("op").count().orderBy("op").show()
    +---------+-----+
    |       op|count|
    +---------+-----+
    |  publish|  251|
    |subscribe|  749|
    +---------+-----+
    <BLANKLINE>
    """
    workload = Operations(
        seed, new_york() if shape is None else shape, _start(start), subscriptions, events,
        back_s, ahead_s, valid_s, place,
    )  # fmt: skip
    return _frame(spark, workload, count, first, partitions)


def numbered(frame: DataFrame, workload: Tweets, column: str = "value") -> DataFrame:
    """The rows of a workload whose numbers a column holds; the frame may be a stream.

    With Spark's source `rate` this is a stream of tweets: its `value` counts from 0.

    >>> numbered(spark.range(2, 4), Tweets(seed=7), "id").select("id", "cell").collect()
    [Row(id='2', cell='55.373'), Row(id='3', cell='40.370')]
    """
    from pyspark.sql import functions as F

    if column not in frame.columns:
        raise InvalidRequest("no such column", column=column, columns=frame.columns)

    def make(batches: Batches) -> Batches:
        for batch in batches:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield workload.rows(batch.column(0).slice(start, BATCH_ROWS).to_numpy())

    return _mapped(frame.select(F.col(column).cast("long")), make, workload.schema)


def save(spark: SparkSession, parts: Parts) -> int:
    """Make the parts of a folder that are missing; returns the bytes of all of them.

    The folder must be one that every worker sees under the same path.
    """
    missing = parts.claim()

    def make(batches: Batches) -> Batches:
        for batch in batches:
            rows = [parts.write(missing[task]) for task in batch.column(0).to_pylist()]
            yield pa.record_batch([pa.array(rows, pa.int64())], ["rows"])

    if missing:
        tasks = spark.range(0, len(missing), 1, len(missing))
        with failures("not all files were written; the same call goes on where it stopped"):
            tasks.mapInArrow(make, "rows long").collect()
    return parts.finish()


def _frame(
    spark: SparkSession, workload: Tweets, count: int, first: int, partitions: int | None
) -> DataFrame:
    for name, value in (("count", count), ("first", first)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidRequest(f"{name} must be a whole number, not negative", **{name: value})
    workload.check(first + count)
    if partitions is None:
        partitions = max(spark.sparkContext.defaultParallelism, -(-count // PART_ROWS))
    if not isinstance(partitions, int) or partitions < 1:
        raise InvalidRequest("partitions must be a whole number from 1", partitions=partitions)
    total = partitions

    def make(batches: Batches) -> Batches:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                start, limit = bounds_of(part, total, count, first)
                for row in range(start, limit, BATCH_ROWS):
                    yield workload.batch(row, min(BATCH_ROWS, limit - row))

    return _mapped(spark.range(0, total, 1, total), make, workload.schema)


def _mapped(frame: DataFrame, make: Callable[[Batches], Batches], schema: pa.Schema) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    return frame.mapInArrow(make, from_arrow_schema(schema))


def _start(start: datetime | None) -> int:
    return START_US if start is None else to_us(start, "start")
