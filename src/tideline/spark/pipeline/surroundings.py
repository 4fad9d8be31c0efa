"""What is set while a pipeline runs, and put back afterwards: settings, logs, signals."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tideline.spark.failures import query_loggers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["quiet", "settings", "stop_on_signals"]

_LOGGERS = (
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.util.Utils",
)


@contextlib.contextmanager
def settings(spark: SparkSession, given: Mapping[str, Any] | None = None) -> Iterator[None]:
    """The settings a pipeline relies on, and those of its config; put back afterwards."""
    wanted = {
        "spark.sql.ansi.enabled": "false",  # one bad row must not end a batch
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.json.enablePartialResults": "true",  # a bad field must not hide the others
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        # Java never compiles a method of more than 8000 bytes: rather several smaller ones.
        "spark.sql.codegen.hugeMethodLimit": "8000",
    }
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
def quiet(spark: SparkSession) -> Iterator[None]:
    """No Java stacks on the terminal for what `understood` says in a sentence."""
    java: Any = spark._jvm
    log4j = java.org.apache.logging.log4j
    before = {name: log4j.LogManager.getLogger(name).getLevel() for name in _LOGGERS}
    python = {logger: logger.disabled for logger in query_loggers()}
    try:
        for name in _LOGGERS:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
        for logger in python:
            logger.disabled = True
        yield
    finally:
        for logger, disabled in python.items():
            logger.disabled = disabled
        with contextlib.suppress(Exception):
            for name, level in before.items():
                log4j.core.config.Configurator.setLevel(name, level)


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
