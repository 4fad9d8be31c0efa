"""A pipeline that runs: opens the store and the checkpoint, starts Spark, reads until the end.

    Spark's thread:  rows -> stages -> Arrow -> sift -> queue     (`_take`, once a batch)
    feeder's thread: queue -> store, dead letters, archive        (feeder.py, feed.py)
    caller's thread: waits, shows progress, hears Ctrl-C          (`_follow`)

What must hold after a kill at any moment is in state.py. Here it only matters that a batch is
queued before Spark hears that it is done with, and that a batch that is queued already is not
taken from Spark again.

Stopping waits for the batch that is being read: it is queued, and stays in Spark's callback
until the query has been told to stop. So Spark cannot begin another one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tideline.errors import Closed, Conflict
from tideline.space import Flat
from tideline.spark.pipeline.check import space_of
from tideline.spark.pipeline.config import Config
from tideline.spark.pipeline.counts import Batch, Summary
from tideline.spark.pipeline.faults import is_lost_worker, understood
from tideline.spark.pipeline.feeder import Feeder
from tideline.spark.pipeline.seen import Seen
from tideline.spark.pipeline.sift import sift
from tideline.spark.pipeline.source import Once, Stream, is_endless, open_source
from tideline.spark.pipeline.stages import Stages
from tideline.spark.pipeline.state import State
from tideline.spark.pipeline.surroundings import quiet, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tideline.channel import Channel
    from tideline.model import Applied

__all__ = ["Runner", "Watch", "look"]

_TRIES = 3  # a batch whose workers are lost is read so often
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
        self, config: Config, channel: Channel, state: State, summary: Summary, watch: Watch,
        on_batch: Callable[[Batch, Applied], None] | None, stop: threading.Event,
    ) -> None:  # fmt: skip
        self.config = config
        self.channel = channel
        self.state = state
        self.summary = summary
        self.watch = watch
        self._on_batch = on_batch
        self._stop = stop
        self._feeder = Feeder(channel, state, config, self._tell)
        self._seen: Seen | None = None
        self._failure: BaseException | None = None
        self._query: Any = None
        self._working = threading.Event()
        self._left: int | None = None  # rows until the source's end, where that is known
        self._ending = False
        self._reading = 0.0  # when reading began

    def catch_up(self) -> None:
        """Store what an earlier run had queued, and remember what it had seen."""
        check_store(self.channel, self.config, self.state)
        waiting = self.state.waiting()
        if waiting:
            self.watch.phase(f"storing {len(waiting)} batches that the last run had read")
        wanted = self.config.deduplicate
        if wanted is not None:
            self._seen = Seen(round(wanted.within_s * 1e6), self.state.last.get("newest"))
            for keys in self.state.known_keys():
                self._seen.add(keys)
        self._feeder.catch_up()

    def run(self, spark: SparkSession, source: DataFrame | None) -> None:
        """Read the source until its end, or until told to stop."""
        with quiet(spark), settings(spark, self.config.spark.config):
            try:
                self._read(spark, source)
            except Exception as error:
                self._feeder.finish()  # what the store says comes first: it may be the cause
                said = understood(error, self.config)
                if said is None:
                    raise
                raise said from error
            self._feeder.finish()

    def _read(self, spark: SparkSession, source: DataFrame | None) -> None:
        opened = self._open(spark, source)
        stages = Stages(self.config, self.channel.space, opened.names, opened.fields)
        frame = stages(opened.frame)
        self._feeder.start()
        self._reading = time.perf_counter()
        if isinstance(opened, Stream):
            self.watch.phase("reading")
            self._follow(frame, opened.limit)
        elif self.state.queued < 0:
            self.watch.phase("reading everything as one batch")
            self._take(frame, 0)
        else:
            self.watch.phase("nothing to do: the source is one batch, and it is stored")

    def _open(self, spark: SparkSession, source: DataFrame | None) -> Stream | Once:
        self.watch.phase("looking at the source")
        if source is None:
            return open_source(spark, self.config, self.state.started_us)
        return Stream(source) if source.isStreaming else Once(source)

    # ---- batches ---------------------------------------------------------------------------------

    def _take(self, frame: DataFrame, number: int) -> None:
        """A batch of Spark's into the queue."""
        if number <= self.state.queued:
            return  # decided before a restart
        if number > self.state.queued + 1:
            raise Conflict(
                "Spark's part of the checkpoint is ahead of the pipeline's: a part of the folder "
                "was put back from an older copy", spark=number, pipeline=self.state.queued,
            )  # fmt: skip
        started = time.perf_counter()
        table = self._collect(frame)
        read = time.perf_counter()
        now_us = self.channel.clock.now()
        sifted = sift(table, self.config, self._seen, now_us, self.channel.max_ahead_s)
        newest = None if self._seen is None else self._seen.newest
        facts = {**sifted.counts, "newest": newest, "read_us": now_us, "spark_s": read - started}
        facts["sift_s"] = 0.0
        sync = self.config.store.durability == "disk"
        self.state.queue(number, sifted.operations, sifted.dead, sifted.keys, facts, sync=sync)
        if self._left is not None:
            self._left -= sifted.counts["read"]
        facts = {**facts, "sift_s": time.perf_counter() - read}
        facts["offsets"] = self.state.offsets_mark(number)
        if not self._feeder.put((number, sifted.operations, sifted.dead, facts)):
            raise Closed("the store failed")  # said better by the feeder

    def _collect(self, frame: DataFrame) -> pa.Table:
        """The rows of a batch; a lost worker is tried again: reading changes nothing."""
        for left in reversed(range(_TRIES)):
            try:
                return frame.toArrow()
            except Exception as error:
                if not left or not is_lost_worker(error):
                    raise
        raise AssertionError

    def _tell(self, batch: Batch, applied: Applied) -> None:
        self.summary.add(batch)
        if self._reading:
            self.summary.reading_s = time.perf_counter() - self._reading
        self.watch.batch(batch, self.summary)
        if self._on_batch is not None:
            self._on_batch(batch, applied)

    # ---- a stream ----------------------------------------------------------------------------

    def _follow(self, frame: DataFrame, limit: int | None) -> None:
        """Take batches as Spark cuts them, up to `limit` rows if that is known."""
        self._left = None if limit is None else limit - self.state.read
        if self._left is not None and self._left <= 0:
            return
        every_s = self.config.run.every_s
        if every_s is None and is_endless(self.config):
            every_s = 0.0
        writer = frame.writeStream.foreachBatch(self._callback)
        writer = writer.option("checkpointLocation", str(self.state.spark))
        writer = writer.queryName(self.config.name)
        if every_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
        self._query = query = writer.start()
        try:
            while not _ended(query):
                self.watch.tick()
                if self._halting():
                    self.summary.stopped = self._stop.is_set()
                    self._halt(query)
        except BaseException:  # a second Ctrl-C: do not wait for the batch
            query.stop()
            raise
        self._raise(query)

    def _callback(self, frame: DataFrame, number: int) -> None:
        """What Spark calls for each batch."""
        self._working.set()
        try:
            self._take(frame, number)
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._working.clear()
        while self._halting() and (self._query is None or self._query.isActive):
            time.sleep(0.01)  # no other batch may begin: see the top of the file

    def _halting(self) -> bool:
        at_end = self._left is not None and self._left <= 0
        return at_end or self._ending or self._stop.is_set() or self._feeder.error is not None

    def _halt(self, query: Any) -> None:
        """Stop a query between two batches."""
        self._ending = True
        while self._working.is_set() and query.isActive:
            self.watch.tick()
            time.sleep(_LOOK_S)
        query.stop()

    def _raise(self, query: Any) -> None:
        """Why a query ended by itself, if it did not end well."""
        if self._ending or self._feeder.error is not None:
            return  # it was stopped; what the store says is said by `finish`
        if self._failure is not None:
            raise self._failure
        error = query.exception()
        if error is not None:
            raise error


def check_store(channel: Channel, config: Config, state: State) -> None:
    """Whether the channel has had just the batches that the checkpoint says it has."""
    landed = channel.landed
    if landed(config.name, state.queued + 1) != 0:
        if state.fresh:
            state.forget()
            message = (
                "this channel has had batches of a pipeline of this name, but the checkpoint is "
                "new: it was moved or removed. Point run.checkpoint to the old one, or give the "
                "pipeline another name to read the source from its beginning"
            )
        else:
            message = (
                "the channel has had later batches of this pipeline than the checkpoint knows of: "
                "the checkpoint was put back from an older copy"
            )
        raise Conflict(
            message, name=config.name, channel=channel.name, checkpoint=str(state.folder)
        )
    if state.done >= 0 and landed(config.name, state.done) is not None:
        raise Conflict(
            "the channel does not know the batches that this checkpoint says it had: it is another "
            "store, or was emptied or put back from an older copy. To read the source from its "
            "beginning, give run.checkpoint a new folder",
            name=config.name, channel=channel.name, batch=state.done, checkpoint=str(state.folder),
        )  # fmt: skip


def look(spark: SparkSession, config: Config) -> list[str]:
    """Have Spark look at the source and at every expression, without reading any row."""
    with quiet(spark), settings(spark, config.spark.config):
        try:
            opened = open_source(spark, config, 0)
            stages = Stages(config, space_of(config) or Flat(), opened.names, opened.fields)
            stages(opened.frame)
        except Exception as error:
            said = understood(error, config)
            if said is None:
                raise
            raise said from error
    return opened.names


def _ended(query: Any) -> bool:
    """Wait a little for a query; whether it has ended, well or not."""
    try:
        return bool(query.awaitTermination(_LOOK_S))
    except Exception:  # `_raise` says why
        if query.isActive:
            raise
        return True
