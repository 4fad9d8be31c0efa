"""Where rows come from: a stream that Spark follows, or a frame that is read once.

    files, Kafka, rate, generator   a stream: Spark cuts it into batches
    what Spark cannot follow        a frame: everything is batch 0

Texts (`json`, `csv`) are read as texts and parsed in stages.py, so that a bad row is still
there as it came.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tideline.errors import NotFound
from tideline.spark.pipeline import generator
from tideline.spark.pipeline.config import FILES, Config
from tideline.spark.pipeline.parse import csv_header, header_fields, option_text

__all__ = ["Opened", "identity", "is_endless", "open_source"]

_DEFAULTS = {"kafka": {"startingOffsets": "earliest"}}  # Spark's own would begin with what is new
_OF_FILES = {"maxFileAge": "36500d"}  # Spark's own passes over files a week older than the newest
_IDENTITY = ("subscribe", "subscribePattern", "assign", "dbtable", "query", "url", "table")


@dataclass
class Opened:
    """A frame: one that grows, which Spark cuts into batches, or one that is read as one batch."""

    frame: DataFrame
    fields: list[str] | None = None
    """Those of a CSV line, in order."""
    limit: int | None = None
    """How many rows there will be; None when nobody knows."""


def identity(config: Config) -> dict[str, Any]:
    """What makes a source the one it is; limits on the size of a batch may change."""
    options = config.source.options or {}
    names = generator.OPTIONS if config.source.format == "generator" else _IDENTITY
    given = {name: options[name] for name in names if name in options}
    found: dict[str, Any] = {"format": config.source.format, "stream": config.source.stream}
    if config.paths:
        found["path"] = config.paths
    return {**found, **given}


def is_endless(config: Config) -> bool:
    """Whether Spark sees no end of the source (a generator ends by its count of rows)."""
    return config.source.format in ("generator", "rate", "rate-micro-batch", "socket")


def open_source(spark: SparkSession, config: Config, started_us: int) -> Opened:
    """The source of a config; errors of Spark's come as they are (see faults.py)."""
    kind = config.source.format
    if kind == "generator":
        return _generator(spark, config.source.options or {}, started_us)
    read_as = "text" if kind in ("json", "csv") and config.parsed_as == kind else kind
    options = {name: option_text(value) for name, value in (config.source.options or {}).items()}
    for name, value in _DEFAULTS.get(kind, _OF_FILES if kind in FILES else {}).items():
        options.setdefault(name, value)
    paths: Any = config.paths
    paths = paths[0] if len(paths) == 1 else paths or None
    fields = None
    header: str | None = None
    if csv_header(config) and read_as == "text":
        first = spark.read.text(paths).first()
        if first is None:
            raise NotFound(
                f"{config.place_of('source', 'path')}: there is no CSV file yet to take the names "
                "of the columns from", path=config.source.path,
            )  # fmt: skip
        header = str(first[0])
        fields = header_fields(config, header)

    def prepared(frame: DataFrame) -> DataFrame:
        return frame if header is None else frame.filter(frame["value"] != header)

    if config.source.stream:
        try:
            stream = _stream(spark, read_as, options, paths)
            return Opened(prepared(stream), fields)
        except Exception as error:
            if "does not support streamed reading" not in str(error):
                raise
    return Opened(prepared(_load(spark.read.format(read_as).options(**options), paths)), fields)


def _stream(spark: SparkSession, kind: str, options: dict[str, str], paths: Any) -> DataFrame:
    """Spark's stream; the columns of files are those of the files that are there."""
    reader = spark.readStream.format(kind).options(**options)
    if kind in FILES and kind != "text":
        # What limits a batch means nothing to a reader of everything.
        limits = ("maxFileAge", "maxFilesPerTrigger", "maxBytesPerTrigger")
        known = {name: value for name, value in options.items() if name not in limits}
        reader = reader.schema(_load(spark.read.format(kind).options(**known), paths).schema)
    if isinstance(paths, list):  # a stream follows one path
        return functools.reduce(DataFrame.unionByName, [_load(reader, path) for path in paths])
    return _load(reader, paths)


def _load(reader: Any, paths: Any) -> DataFrame:
    frame: DataFrame = reader.load() if paths is None else reader.load(paths)
    return frame


def _generator(spark: SparkSession, options: Mapping[str, Any], started_us: int) -> Opened:
    """Numbers from Spark's own generators: by the clock, or batches of one size."""
    rows, rate = options.get("rows"), options.get("rows_per_second")
    if rate is not None:
        reader = spark.readStream.format("rate").option("rowsPerSecond", rate)
        at, step_us = F.unix_micros("timestamp"), 1e6 / rate
    else:
        size = generator.option(options, "batch_rows")
        reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", size)
        # A hundred thousand a second, up to now: the rows of a fast run are not ahead of the clock.
        at, step_us = F.lit(started_us) + (F.col("n") - (rows or 0)) * 10, 10.0
    numbers = reader.load().withColumnRenamed("value", "n")
    if rows is not None:
        numbers = numbers.filter(F.col("n") < rows)
    return Opened(generator.frame(numbers, options, at, step_us), limit=rows)
