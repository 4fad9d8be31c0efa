"""Where the rows of a micro-batch go: what Spark calls by `foreachBatch`.

    good rows    -> the writer of format("tideline"): tasks stage, this process commits, at most
                    once by `writer` and `number`
    bad rows     -> dead letters, Parquet in a folder of the batch, written over
    good rows    -> the archive, Parquet by day and area, this batch's files written over
    counts       -> the ledger

Every part may be done again, by a retry of the batch or after a kill, and leaves the same. No row
comes into this process: tasks write them. One pass over the batch is enough when all rows are good
and there is no archive; another is made for what else there is.

A `Sink` is plain data, so that Spark Connect can send it to its server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tideline.spark.pipeline.counts import Batch
from tideline.spark.pipeline.files import folder_of
from tideline.spark.source import TidelineSource
from tideline.spark.writer import Batch as Writer
from tideline.spark.writer import Staged

__all__ = ["GOOD", "Sink", "dead_rows"]

_REASONS = 5
GOOD = "_problem IS NULL AND _met"
"""Which rows are for the store."""


@dataclass(frozen=True)
class Sink:
    """What is done with a batch of the columns that `Stages` makes."""

    name: str
    checkpoint: str
    dead: str
    archive: str | None
    options: dict[str, str] = field(repr=False)
    """Of the format `tideline`; `path` is the folder of a store."""
    dropping: bool
    """Whether Spark drops rows before: then the batch must not be read twice."""

    def __call__(self, frame: DataFrame, number: int) -> Batch:
        """Write a batch; what became of the rows that came here."""
        started = time.perf_counter()
        if self.dropping or self.archive is not None:
            frame = frame.localCheckpoint(eager=False)
        seen = Observation()
        good, bad = F.expr(GOOD), F.expr("_problem IS NOT NULL")
        at = F.unix_micros("at") if "at" in frame.columns else F.lit(None).cast("bigint")
        observed = frame.observe(
            seen, F.count(F.lit(1)).alias("rows"), F.count_if(good).alias("good"),
            F.count_if(bad).alias("bad"), F.count_if(good & F.col("_expired")).alias("expired"),
            F.max(F.when(good, at)).alias("newest_us"),
        )  # fmt: skip
        columns = [name for name in frame.columns if name[0] != "_"]
        self._store(observed.filter(GOOD).select(*columns), number)
        told = seen.get
        rejected = self._rejected(frame, number)
        reasons: tuple[str, ...] = ()
        refused = 0
        if told["bad"] or rejected is not None:
            refused, reasons = self._bury(frame, rejected, number)
        if self.archive is not None and told["good"]:
            self._keep(frame.filter(GOOD), columns, number)
        return Batch(
            number=number, read=told["rows"], stored=told["good"] - refused,
            filtered=told["rows"] - told["good"] - told["bad"], dead=told["bad"] + refused,
            expired=told["expired"], seconds=time.perf_counter() - started,
            newest_us=told["newest_us"], reasons=reasons,
        )  # fmt: skip

    def _store(self, rows: DataFrame, number: int) -> None:
        options = {
            "writer": self.name, "number": str(number), "rejected": "./rejected", **self.options,
        }  # fmt: skip
        writer = TidelineSource(options).writer(rows.schema, overwrite=False)
        made = rows.mapInArrow(_staging(writer), "job string, part int, token string")
        try:
            staged: list[Any] = [Staged(*row) for row in made.collect()]
        except BaseException:
            writer.abort([])
            raise
        writer.keep = partial(self._save, rows.sparkSession)
        writer.commit(staged)

    def _save(self, spark: SparkSession, batches: Iterator[pa.RecordBatch], name: str) -> None:
        """Keep rows that the store rejected where Spark can write: the checkpoint may be on S3."""
        mode, path = "overwrite", f"{self.checkpoint}/rejected/{name}"
        for batch in batches:
            found = spark.createDataFrame(pa.Table.from_batches([batch]))
            found.write.mode(mode).parquet(path)
            mode = "append"

    def _rejected(self, frame: DataFrame, number: int) -> DataFrame | None:
        """What the store did not take of this batch, with the reason."""
        name = f"rejected/rejected-{quote(self.name, safe='')}-{number}.parquet"  # as of Writing
        folder = folder_of(frame.sparkSession, self.checkpoint)
        if not folder.has(name):
            return None
        return frame.sparkSession.read.parquet(f"{self.checkpoint}/{name}")

    def _bury(
        self, frame: DataFrame, rejected: DataFrame | None, number: int
    ) -> tuple[int, tuple[str, ...]]:
        """Write dead letters; how many the store refused, and the first reasons."""
        dead = dead_rows(frame)
        refused = 0
        if rejected is not None:
            refused = rejected.count()
            row = F.to_json(F.struct(*(n for n in rejected.columns if n != "reason")))
            dead = dead.unionAll(
                rejected.select(F.lit("store").alias("stage"), "reason", row.alias("text"),
                                F.current_timestamp().alias("at"))
            )  # fmt: skip
        path = f"{self.dead}/batch={number}"
        dead.write.mode("overwrite").parquet(path)
        # Of reasons that differ in numbers only one is shown.
        kind = F.regexp_replace("reason", "[-0-9.]+|'[^']*'", "#").alias("kind")
        letters = frame.sparkSession.read.parquet(path).groupBy("stage", kind)
        found = letters.agg(F.count("*").alias("n"), F.min("reason").alias("reason"))
        first = found.orderBy(F.desc("n"), "stage", "reason").limit(_REASONS).collect()
        return refused, tuple(f"{row['stage']}: {row['reason']}" for row in first)

    def _keep(self, rows: DataFrame, columns: list[str], number: int) -> None:
        """The archive: this batch's files in the folders of its days and areas."""
        assert self.archive is not None
        at = F.col("at") if "at" in columns else F.current_timestamp()
        by = {"day": F.date_format(at, "yyyy-MM-dd")}
        if "_area" in rows.columns:
            by["area"] = F.col("_area")
        rows = rows.select(*columns, *(value.alias(name) for name, value in by.items()),
                           F.lit(number).alias("batch"))  # fmt: skip
        writer = rows.repartition(*by).write.mode("overwrite").partitionBy(*by, "batch")
        writer.option("partitionOverwriteMode", "dynamic").parquet(self.archive)


def _staging(writer: Writer) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its rows; it gives one row, what it staged.

    `write.format("tideline")` does the same, but Spark starts three processes a batch for it.
    """

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = writer.write(batches)
        row = {"job": [done.job], "part": pa.array([done.part], pa.int32()), "token": [done.token]}
        yield pa.RecordBatch.from_pydict(row)

    return stage


def dead_rows(frame: DataFrame) -> DataFrame:
    """The bad rows of the frame of `Stages` as dead letters: stage, reason, text, at."""
    problem = F.col("_problem")
    return frame.filter(problem.isNotNull()).select(
        F.substring_index(problem, ": ", 1).alias("stage"),
        F.expr("substring(_problem, instr(_problem, ': ') + 2)").alias("reason"),
        F.col("_text").alias("text"), F.current_timestamp().alias("at"),
    )  # fmt: skip
