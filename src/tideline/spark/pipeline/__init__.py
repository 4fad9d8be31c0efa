"""The pipeline: from any source of Spark's into a channel, once, with counts that add up.

    config.py   the TOML file, checked, with lines     locate.py keys.py check.py fits.py
    explain.py  what a config would do, in words         preflight.py
    source.py   where rows come from                    generator.py
    stages.py   what Spark does with a row              parse.py, clean.py, reasons.py, ../place.py
    sink.py     where the rows of a batch go            target.py
    ledger.py   the counts of the batches               counts.py, files.py
    run.py      all of it together                      surroundings.py, faults.py
    sdp.py      as a project of Spark's declarative pipelines

docs/guide/pipeline.md is the guide, docs/internals/spark-pipeline.md says why it is so.
Importing this needs neither pyspark nor Java. `Pipeline.run` needs both, `explain` and `check`
pyspark.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tideline.clock import SystemClock
from tideline.errors import InvalidRequest
from tideline.spark.pipeline.config import Config, make_config, read_config
from tideline.spark.pipeline.counts import Batch, Summary
from tideline.spark.session import check_pyspark, ready, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tideline.database import Database
    from tideline.spark.pipeline.run import Watch

__all__ = ["Batch", "Config", "Pipeline", "Summary"]


class Pipeline:
    """A pipeline, from a config. `tideline pipeline` is its twin.

    >>> pipeline = Pipeline({
    ...     "name": "roads",
    ...     "source": {"format": "generator", "options": {"rows": 1000}},
    ...     "place": {"point": ["lon", "lat"]},
    ...     "store": {"folder": "data", "channel": "roads", "space": {
    ...         "kind": "quadtree", "bounds": [-79.8, 40.4, -71.8, 45.1], "depth": 9}},
    ...     "operation": {"id": "id", "ttl_s": 600},
    ...     "run": {"checkpoint": "checkpoint"},
    ... })
    >>> print(pipeline.explain().splitlines()[0])
    The pipeline roads
    """

    def __init__(self, config: Config | Mapping[str, Any]) -> None:
        self.config = config if isinstance(config, Config) else make_config(config)
        self.progress: deque[Batch] = deque(maxlen=10_000)
        """The batches of the last run, the newest last."""
        self._stop = threading.Event()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Pipeline:
        """The pipeline of a TOML file; `InvalidRequest` names the line of every mistake."""
        return cls(read_config(path))

    def explain(self) -> str:
        """What it would do, in words, stage by stage. Starts nothing."""
        check_pyspark()  # before what needs it is imported: it names what to install
        from tideline.spark.pipeline.explain import explain

        return explain(self.config)

    def check(self) -> None:
        """Raise what a run would refuse because of what is there now, with the line.

        What the config says wrong by itself was raised when it was read. Starts nothing.
        """
        check_pyspark()
        from tideline.spark.pipeline.preflight import preflight

        preflight(self.config)

    def analyse(self, spark: SparkSession | None = None) -> list[str]:
        """Have Spark look at the source and at every expression; returns the source's columns.

        Reads no rows, but the names of a CSV file, and stores nothing.
        """
        check_pyspark()
        from tideline.spark.pipeline.run import Watch, look

        return look(self._session(spark, Watch()), self.config)

    def export(self, folder: str | os.PathLike[str], *, to: str = "sdp") -> list[str]:
        """Write it as a project of Spark's declarative pipelines; returns the files, spec first."""
        check_pyspark()
        from tideline.spark.pipeline.sdp import export

        if to != "sdp":
            raise InvalidRequest("a pipeline can be exported to sdp only", to=to)
        return export(self.config, folder)

    def stop(self) -> None:
        """Ask a run (in another thread) to end after the batch it is at."""
        self._stop.set()

    def run(
        self, db: Database | None = None, *, spark: SparkSession | None = None,
        source: DataFrame | None = None, on_batch: Callable[[Batch], None] | None = None,
        watch: Watch | None = None,
    ) -> Summary:  # fmt: skip
        """Run until the source is at its end, or until stopped (Ctrl-C, `stop`).

        `db` is an open database to store in; without it the config's folder is opened. `source`
        is a frame to read instead of the config's source. `on_batch(batch)` is called for each
        batch that is done, with its counts.
        """
        if spark is None:
            ready()  # before anything else: what is not installed is said first
        from tideline.spark.pipeline.files import is_connect
        from tideline.spark.pipeline.run import Runner, Watch
        from tideline.spark.pipeline.surroundings import stop_on_signals, untold
        from tideline.spark.pipeline.target import open_target

        config = self.config
        watch = Watch() if watch is None else watch
        self._stop.clear()
        self.progress.clear()
        summary = Summary(config.name, dead_letters=config.dead_folder)
        started = time.perf_counter()

        def done(batch: Batch) -> None:
            self.progress.append(batch)
            if on_batch is not None:
                on_batch(batch)

        with ExitStack() as stack:
            watch.phase("opening the store")
            target = open_target(config, db, stack)
            running = self._session(spark, watch)
            if spark is None and not is_connect(running):  # nobody else's query runs in it
                stack.enter_context(untold(running))
            runner = Runner(config, running, target, summary, watch, done, self._stop)
            with stop_on_signals(self._stop):
                runner.run(source, SystemClock().now())
        summary.elapsed_s = time.perf_counter() - started
        return summary

    def _session(self, spark: SparkSession | None, watch: Watch) -> SparkSession:
        if spark is not None:
            return spark
        watch.phase("starting Spark")
        given = self.config.spark
        settings = {name: str(value) for name, value in (given.config or {}).items()}
        if given.packages:
            settings["spark.jars.packages"] = ",".join(given.packages)
        return session(
            master=given.master, memory=given.memory, app=f"tideline {self.config.name}",
            config=settings,
        )  # fmt: skip
