"""The pipeline: from any source of Spark's into a channel, once, with counts that add up.

    config.py   the TOML file, checked, with lines     locate.py keys.py check.py fits.py
    explain.py  what a config would do, in words         preflight.py
    source.py   where rows come from                    generator.py
    stages.py   what Spark does with a row              parse.py, clean.py, reasons.py, ../place.py
    sift.py     what happens to each row                seen.py
    state.py    the checkpoint                          faults.py
    feed.py     a batch into the store                  feeder.py, counts.py
    run.py      all of it together                      surroundings.py
    progress.py what the terminal shows

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

from tideline.errors import InvalidRequest
from tideline.space import Flat
from tideline.spark.pipeline.config import Config, Problems, make_config, read_config
from tideline.spark.pipeline.counts import Batch, Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tideline.channel import Channel
    from tideline.database import Database
    from tideline.model import Applied
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
        from tideline.spark.session import check_pyspark

        check_pyspark()  # before what needs it is imported: it names what to install
        from tideline.spark.pipeline.explain import explain

        return explain(self.config)

    def check(self) -> None:
        """Raise what a run would refuse because of what is there now, with the line.

        What the config says wrong by itself was raised when it was read. Starts nothing.
        """
        from tideline.spark.session import check_pyspark

        check_pyspark()
        from tideline.spark.pipeline.preflight import preflight

        preflight(self.config)

    def analyse(self, spark: SparkSession | None = None) -> list[str]:
        """Have Spark look at the source and at every expression; returns the source's columns.

        Reads no rows, but the names of a CSV file, and stores nothing.
        """
        from tideline.spark.session import check_pyspark

        check_pyspark()
        from tideline.spark.pipeline.run import Watch, look

        return look(self._session(spark, Watch()), self.config)

    def stop(self) -> None:
        """Ask a run (in another thread) to end after the batch it is at."""
        self._stop.set()

    def run(
        self, db: Database | None = None, *, spark: SparkSession | None = None,
        source: DataFrame | None = None,
        on_batch: Callable[[Batch, Applied], None] | None = None, watch: Watch | None = None,
    ) -> Summary:  # fmt: skip
        """Run until the source is at its end, or until stopped (Ctrl-C, `stop`).

        `db` is an open database to store in; without it the config's folder is opened. `source`
        is a frame to read instead of the config's source. `on_batch(batch, applied)` is called
        for each batch that is done, with what `Channel.apply` gave.
        """
        from tideline.spark.session import ready

        if spark is None:
            ready()  # before anything else: what is not installed is said first
        from tideline.spark.pipeline.run import Runner, Watch
        from tideline.spark.pipeline.source import identity
        from tideline.spark.pipeline.state import State
        from tideline.spark.pipeline.surroundings import stop_on_signals

        config = self.config
        watch = Watch() if watch is None else watch
        self._stop.clear()
        self.progress.clear()
        summary = Summary(config.name, dead_letters=str(config.dead_folder))
        started = time.perf_counter()

        def done(batch: Batch, applied: Applied) -> None:
            self.progress.append(batch)
            if on_batch is not None:
                on_batch(batch, applied)

        with ExitStack() as stack:
            watch.phase("opening the store")
            channel = self._channel(stack, db)
            given = {"name": config.name, "source": identity(config), "channel": channel.name}
            if source is not None:
                given["source"] = {"format": "frame", "stream": source.isStreaming}
            state = State(config.checkpoint, given, channel.clock.now())
            stack.callback(state.close)
            summary.totals.update(state.totals)
            runner = Runner(config, channel, state, summary, watch, done, self._stop)
            runner.catch_up()
            session = self._session(spark, watch)
            with stop_on_signals(self._stop):
                runner.run(session, source)
        summary.elapsed_s = time.perf_counter() - started
        return summary

    def _channel(self, stack: ExitStack, db: Database | None) -> Channel:
        """The channel to store in, made if it is not there."""
        from tideline.database import open as open_database
        from tideline.spark.pipeline.check import space_of

        config, store = self.config, self.config.store
        if db is None:
            if store.url is not None:
                return self._served(stack)
            if store.folder is None:
                raise config.wrong(
                    ("store",), "[store] needs a folder or a url, or run an open database"
                )
            db = stack.enter_context(
                open_database(
                    config.resolve(store.folder), memory_mb=store.memory_mb,
                    durability=store.durability,
                )
            )  # fmt: skip
        space = space_of(config)
        if store.channel not in db.channels():  # look before a channel of the wrong kind is made
            self._check(space or Flat())
        channel = db.channel(
            store.channel, space=space, journal_s=store.journal_s, max_ahead_s=store.max_ahead_s
        )
        if channel.layout == "poll":
            raise InvalidRequest("a channel with layout 'poll' takes no batches once", **{
                "channel": channel.name})  # fmt: skip
        self._check(channel.space)
        return channel

    def _check(self, space: Any) -> None:
        from tideline.spark.pipeline.check import check_space

        problems = Problems(self.config.file, self.config.lines)
        check_space(self.config, space, problems)
        problems.check()

    def _served(self, stack: ExitStack) -> Channel:
        """The channel of a server, as far as the pipeline needs it."""
        import os

        from tideline.client import connect
        from tideline.spark.pipeline.check import space_of
        from tideline.spark.pipeline.remote import ServedChannel

        store = self.config.store
        assert store.url is not None
        token = store.token or os.environ.get("TIDELINE_TOKEN")
        remote = stack.enter_context(connect(store.url, token=token))
        found = remote.channel(
            store.channel, space=space_of(self.config), journal_s=store.journal_s,
            max_ahead_s=store.max_ahead_s,
        )  # fmt: skip
        if found.layout == "poll":
            raise InvalidRequest("a channel with layout 'poll' takes no batches once", **{
                "channel": found.name})  # fmt: skip
        self._check(found.space)
        channel: Any = ServedChannel(found)
        return channel  # type: ignore[no-any-return]

    def _session(self, spark: SparkSession | None, watch: Watch) -> SparkSession:
        from tideline.spark.session import session

        if spark is not None:
            return spark.newSession()
        watch.phase("starting Spark")
        given = self.config.spark
        settings = {name: str(value) for name, value in (given.config or {}).items()}
        if given.packages:
            settings["spark.jars.packages"] = ",".join(given.packages)
        made = session(
            master=given.master, memory=given.memory, app=f"tideline {self.config.name}",
            config=settings,
        )  # fmt: skip
        return made.newSession()
