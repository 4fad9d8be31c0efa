"""What is set while a pipeline runs, and put back afterwards: settings, signals."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tideline.spark.pipeline.files import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["settings", "stop_on_signals", "untold"]

_LOGGER = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
_PARTS, _MANY = "spark.sql.shuffle.partitions", "200"  # as Spark has it when nobody said
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextlib.contextmanager
def settings(spark: SparkSession, given: Mapping[str, Any] | None = None) -> Iterator[None]:
    """The settings a pipeline relies on, and those of its config; put back afterwards."""
    wanted = {
        "spark.sql.ansi.enabled": "false",  # one bad row must not end a batch
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.json.enablePartialResults": "true",  # a bad field must not hide the others
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        # A batch without rows would only remove keys; the next one with rows does that too.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        # Java never compiles a method of more than 8000 bytes: rather several smaller ones.
        "spark.sql.codegen.hugeMethodLimit": "8000",
    }
    if not is_connect(spark) and spark.conf.get(_PARTS) == _MANY:
        # A small store of keys for each of 200 would cost more than the rows do.
        wanted[_PARTS] = str(max(2, spark.sparkContext.defaultParallelism))
    wanted |= {name: str(value) for name, value in (given or {}).items() if ".sql." in name}
    wanted = {name: value for name, value in wanted.items() if spark.conf.isModifiable(name)}
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # Spark may be gone
            for name, old in before.items():
                spark.conf.unset(name) if old is None else spark.conf.set(name, old)


@contextlib.contextmanager
def untold(spark: SparkSession) -> Iterator[None]:
    """While a query is waited for, or stopped: what ends it is raised, and not logged as well."""
    java: Any = spark._jvm
    log4j = java.org.apache.logging.log4j
    before = log4j.LogManager.getLogger(_LOGGER).getLevel()
    log4j.core.config.Configurator.setLevel(_LOGGER, log4j.Level.OFF)
    try:
        yield
    finally:
        log4j.core.config.Configurator.setLevel(_LOGGER, before)


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C (or SIGTERM) asks to stop; a second one ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {name: signal.signal(name, asked) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
