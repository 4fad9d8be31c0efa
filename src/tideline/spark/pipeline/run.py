"""A pipeline that runs: one Structured Streaming query, watched until its end.

    source -> stages -> dropDuplicatesWithinWatermark -> foreachBatch(sink)

    Spark's thread:   `_callback`, once a batch: sink.py writes, ledger.py notes the counts
    caller's thread:  waits, shows progress, hears Ctrl-C

What Spark drops, it tells in the progress of the batch, after the batch: the next batch closes the
counts of the one before, ahead of its own first row. Under Spark Connect the sink runs on the
server; the caller's thread closes the counts there.

Stopping lets the batch come to its end: the next one waits, writes nothing, and is run again by the
next run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tideline.errors import Closed, Unavailable
from tideline.space import Flat
from tideline.spark.pipeline.check import space_of
from tideline.spark.pipeline.config import Config
from tideline.spark.pipeline.counts import Batch, Summary
from tideline.spark.pipeline.faults import is_lost_worker, understandable
from tideline.spark.pipeline.files import is_connect
from tideline.spark.pipeline.ledger import Ledger
from tideline.spark.pipeline.sink import Sink
from tideline.spark.pipeline.source import Opened, identity, is_endless, open_source
from tideline.spark.pipeline.stages import Stages, deduplicated
from tideline.spark.pipeline.surroundings import settings, untold
from tideline.spark.pipeline.target import Target, check_landed

__all__ = ["Runner", "Watch", "look"]

_TRIES = 3  # a query that lost a worker is started so often
_LOOK_S = 0.1


class Watch:
    """Who looks on while a pipeline runs. These are called from several threads."""

    def phase(self, text: str) -> None:
        """What happens now, before the first batch."""

    def batch(self, batch: Batch, summary: Summary) -> None:
        """A batch is done."""

    def tick(self) -> None:
        """Time passes; from the thread that called `run`."""


class Runner:
    """One run."""

    def __init__(
        self, config: Config, spark: SparkSession, target: Target, summary: Summary, watch: Watch,
        on_batch: Callable[[Batch], None], stop: threading.Event,
    ) -> None:  # fmt: skip
        self.config = config
        self.spark = spark
        self.target = target
        self.summary = summary
        self.watch = watch
        self._on_batch = on_batch
        self._stop = stop
        self._ledger = Ledger(spark, config.checkpoint)
        self._connect = is_connect(spark)
        self._lock = threading.RLock()  # around the counts
        self._last = -1  # the last batch that is counted
        self._open: Batch | None = None  # the one that waits for its progress
        self._failure: BaseException | None = None
        self._query: Any = None
        self._working = threading.Event()
        self._parked = threading.Event()  # a batch waits for the query to be stopped
        self._limit: int | None = None  # rows of the source, where that is known
        self._reading = 0.0  # when reading began

    def run(self, source: DataFrame | None, now_us: int) -> None:
        """Read the source until its end, or until told to stop."""
        with settings(self.spark, self.config.spark.config), understandable(self.config):
            self._run(source, now_us)

    def _run(self, source: DataFrame | None, now_us: int) -> None:
        config = self.config
        given = identity(config)
        if source is not None:
            given = {"format": "frame", "stream": source.isStreaming}
        whose = {"name": config.name, "source": given, "target": self.target.name}
        started_us = self._ledger.recognise(whose, now_us)
        self._restore(check=True)
        self.watch.phase("looking at the source")
        opened = open_source(self.spark, config, started_us) if source is None else Opened(source)
        frame = Stages(config, self.target.space, opened, self.target.max_ahead_s)(opened.frame)
        sink = Sink(
            config.name, config.checkpoint, config.dead_folder,
            config.resolve(config.archive.folder) if config.archive else None,
            self.target.options, dropping=config.deduplicate is not None,
        )  # fmt: skip
        self._reading = time.perf_counter()
        if opened.frame.isStreaming:
            self.watch.phase("reading")
            self._limit = opened.limit
            self._follow(frame, sink)
        elif self._last < 0:
            self.watch.phase("reading everything as one batch")
            self._once(frame, sink)
        else:
            self.watch.phase("nothing to do: the source is one batch, and it is stored")

    def _restore(self, *, check: bool = False) -> None:
        """Where the checkpoint says that the pipeline is."""
        self._last, totals = self._ledger.reopen()
        self._open = None
        if check:
            stored = self._ledger.load(self._last, open=False)[0].stored if self._last >= 0 else 0
            check_landed(self.target, self.config, self._ledger, self._last, stored)
            self.summary.totals.update(totals)

    # ---- one batch ---------------------------------------------------------------------------

    def _once(self, frame: DataFrame, sink: Sink) -> None:
        """A frame that does not grow."""
        for left in reversed(range(_TRIES)):
            read = Observation()
            counted = frame.observe(read, F.count(F.lit(1)).alias("read"))
            try:
                batch = sink(deduplicated(counted, self.config), 0)
                break
            except Exception as error:
                if not left or not is_lost_worker(error):
                    raise
        total = read.get["read"]
        batch = dataclasses.replace(batch, read=total, duplicate=total - batch.read)
        self._count(batch)

    # ---- a stream ------------------------------------------------------------------------------

    def _follow(self, frame: DataFrame, sink: Sink) -> None:
        """Take batches as Spark cuts them, up to `limit` rows if that is known."""
        frame = deduplicated(frame, self.config)
        for left in reversed(range(_TRIES)):
            if self._is_over():
                return
            try:
                self._query = self._start(frame, sink)
                self._await(self._query)
                return
            except Exception as error:
                if not left or not is_lost_worker(error):
                    raise
                self._restore()

    def _start(self, frame: DataFrame, sink: Sink) -> Any:
        every_s = self.config.run.every_s
        if every_s is None and is_endless(self.config):
            every_s = 0.0
        called: Any = _Noted(sink) if self._connect else partial(self.callback, sink=sink)
        writer = frame.writeStream.foreachBatch(called)
        writer = writer.option("checkpointLocation", f"{self.config.checkpoint}/spark")
        writer = writer.queryName(self.config.name)
        if every_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
        self._failure = None
        return writer.start()

    def _await(self, query: Any) -> None:
        try:
            while not _ended(query):
                self.watch.tick()
                self._close(query)
                if self._halting():
                    self.summary.stopped = self._stop.is_set()
                    self._halt(query)
        except BaseException:  # a second Ctrl-C: do not wait for the batch
            query.stop()
            raise
        self._close(query)
        if self._failure is not None and not isinstance(self._failure, _Stopped):
            raise self._failure
        error = None if self._halting() else query.exception()
        if error is not None:
            raise error

    def callback(self, frame: DataFrame, number: int, sink: Sink) -> None:
        """What Spark calls for each batch, in this process."""
        self._working.set()
        try:
            if number > 0 and self._query is not None:
                self._close(self._query, number - 1)
            if self._halting():
                self._parked.set()
                while self._query is None or self._query.isActive:
                    time.sleep(0.01)
                raise _Stopped("the pipeline is stopping")
            batch = sink(frame, number)
            with self._lock:
                if number <= self._last:
                    pass  # counted before a kill: Spark had not noted that the batch was done
                elif sink.dropping:
                    self._ledger.note(batch, self.summary.totals, open=True)
                    self._open = batch
                else:
                    self._count(batch)
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._working.clear()

    def _close(self, query: Any, wanted: int | None = None) -> None:
        """Count the batches whose progress has come; `wanted` must be among them."""
        with self._lock:
            if self._connect:
                for progress in query.recentProgress:
                    number = progress["batchId"]
                    if number > self._last and self._ledger.is_open(number):
                        batch, _ = self._ledger.load(number, open=True)
                        self._count(_told(batch, progress, self.config.deduplicate is not None))
                return
            if self._open is None:
                return
            progress = query.lastProgress
            if progress is not None and progress["batchId"] == self._open.number:
                batch, self._open = self._open, None
                self._count(_told(batch, progress, dropping=True))
            elif wanted is not None:
                raise Unavailable("Spark has not told what became of a batch", batch=wanted)

    def _count(self, batch: Batch) -> None:
        """A batch is done: note its counts, and tell them."""
        with self._lock:
            self._ledger.note(batch, self.summary.totals, open=False)
            self._last = batch.number
            if not batch.read:
                return
            self.summary.add(batch)
            self.summary.reading_s = time.perf_counter() - self._reading
            self.watch.batch(batch, self.summary)
            self._on_batch(batch)

    def _is_over(self) -> bool:
        """Whether all the rows are read that there will be."""
        return self._limit is not None and self.summary.totals["read"] >= self._limit

    def _halting(self) -> bool:
        return self._is_over() or self._stop.is_set()

    def _halt(self, query: Any) -> None:
        """Stop a query between two batches."""
        while query.isActive and not self._parked.is_set():
            idle = not query.status["isTriggerActive"] and not self._working.is_set()
            if idle and self._open is None:
                break
            self.watch.tick()
            self._close(query)
            time.sleep(_LOOK_S / 2)
        with contextlib.nullcontext() if self._connect else untold(self.spark):
            query.stop()


class _Stopped(Closed):
    """A batch was not begun, as the pipeline is stopping."""


@dataclasses.dataclass
class _Noted:
    """The sink on a server of Spark Connect: its counts are left in the checkpoint."""

    sink: Sink

    def __call__(self, frame: DataFrame, number: int) -> None:
        batch = self.sink(frame, number)
        Ledger(frame.sparkSession, self.sink.checkpoint).note(batch, {}, open=True)


def _told(batch: Batch, progress: Any, dropping: bool) -> Batch:
    """A batch with what its progress tells of rows that were dropped."""
    if not dropping:
        return batch
    told = json.loads(progress.json)
    read = _number(told["observedMetrics"]["tideline"])
    late = sum(int(each["numRowsDroppedByWatermark"]) for each in told["stateOperators"])
    dropped = read - batch.read
    late = min(late, dropped)
    return dataclasses.replace(batch, read=read, late=late, duplicate=dropped - late)


def _number(observed: Any) -> int:
    """The one number that was observed: Spark Connect wraps it otherwise than Spark does.

    >>> _number({"read": 5}), _number({"values": [{"read": 5}]})
    (5, 5)
    """
    while not isinstance(observed, int):
        inner = observed.values() if isinstance(observed, dict) else observed
        observed = next(each for each in inner if isinstance(each, (dict, list, int)))
    return observed


def look(spark: SparkSession, config: Config) -> list[str]:
    """Have Spark look at the source and at every expression, without reading any row."""
    with settings(spark, config.spark.config), understandable(config):
        opened = open_source(spark, config, 0)
        Stages(config, space_of(config) or Flat(), opened)(opened.frame)
    return opened.frame.columns


def _ended(query: Any) -> bool:
    """Wait a little for a query; whether it has ended, well or not."""
    try:
        return bool(query.awaitTermination(_LOOK_S))
    except Exception:  # `_await` says why
        if query.isActive:
            raise
        return True
