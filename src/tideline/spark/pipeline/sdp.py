"""A pipeline as a project of Spark's declarative pipelines: `spark-pipelines run` runs it.

    export(config, "project")
      project/spark-pipeline.yml            the spec
      project/transformations/roads.py      a sink for the store, one for dead letters, their flows

Spark runs the two flows as two queries with checkpoints of their own, in the project's storage;
each reads the source. Counts, archive and the checks of `run` are not part of it. The store must be
open where the tasks can reach it: a server, or a folder that a process shares.

    operations(spark, config)      the rows for the store
    dead_letters(spark, config)    stage, reason, text, at
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tideline.errors import InvalidRequest
from tideline.space import Flat
from tideline.spark.pipeline.check import space_of
from tideline.spark.pipeline.config import Config, is_uri
from tideline.spark.pipeline.sink import GOOD, dead_rows
from tideline.spark.pipeline.source import open_source
from tideline.spark.pipeline.stages import Stages, deduplicated

__all__ = ["dead_letters", "export", "operations", "sinks"]

_SPEC = """\
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.ansi.enabled: "false"
  spark.sql.session.timeZone: UTC
  spark.sql.json.enablePartialResults: "true"
  spark.sql.shuffle.partitions: "8"
"""
_CODE = '''\
"""The pipeline {name}, made by `tideline pipeline export` from {file}."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from tideline.spark.pipeline import Pipeline, sdp

config = Pipeline.from_file({path!r}).config
spark = SparkSession.active()
for name, (form, options) in sdp.sinks(config).items():
    dp.create_sink(name, form, options)
rows, letters = sdp.operations(spark, config), sdp.dead_letters(spark, config)


@dp.append_flow(target="store", name="operations")
def operations() -> DataFrame:
    return rows


@dp.append_flow(target="dead_letters", name="dead")
def dead() -> DataFrame:
    return letters
'''


def export(config: Config, folder: str | os.PathLike[str]) -> list[str]:
    """Write the project; returns its files. Those that are there already are written over."""
    if not config.file:
        raise InvalidRequest("only a pipeline of a TOML file can be exported")
    if not config.source.stream or config.source.format == "generator":
        raise config.wrong(("source",), "a declarative pipeline follows a stream of Spark's")
    sinks(config)
    root = Path(folder).resolve()
    name = re.sub(r"\W+", "_", config.name)
    storage = config.checkpoint if is_uri(config.checkpoint) else f"file://{config.checkpoint}"
    texts = {
        "spark-pipeline.yml": _SPEC.format(name=name, storage=f"{storage}/sdp"),
        f"transformations/{name}.py": _CODE.format(
            name=config.name, file=config.file, path=str(config.base / config.file)
        ),
    }
    for file, text in texts.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text, encoding="utf-8")
    return [str(root / file) for file in texts]


def sinks(config: Config) -> dict[str, tuple[str, dict[str, str]]]:
    """The formats and options of the sinks."""
    store = config.store
    folder = config.store_folder
    if store.url is None and folder is None:
        raise config.wrong(("store",), "[store] needs a url or a folder")
    where = {"url": store.url} if store.url else {"path": str(folder)}
    token = store.token or os.environ.get("TIDELINE_TOKEN")
    if store.url and token:
        where["token"] = token
    options = {**where, "rejected": "drop"}
    if store.collection is None:
        options["channel"] = str(store.channel)
    else:
        options |= {"collection": store.collection, "key": str(store.key_)}
        options |= {"version": store.version} if store.version else {}
    return {
        "store": ("tideline", {name: str(value) for name, value in options.items()}),
        "dead_letters": ("parquet", {"path": config.dead_folder}),
    }


def operations(spark: SparkSession, config: Config) -> DataFrame:
    """The rows for the store, without duplicates."""
    frame = deduplicated(_staged(spark, config), config, counted=False).filter(GOOD)
    return frame.select(*(name for name in frame.columns if name[0] != "_"))


def dead_letters(spark: SparkSession, config: Config) -> DataFrame:
    """The rows that could not be used, with the reason."""
    return dead_rows(_staged(spark, config))


def _staged(spark: SparkSession, config: Config) -> DataFrame:
    opened = open_source(spark, config, 0)
    assert opened.frame.isStreaming
    ahead_s = 60.0 if config.store.max_ahead_s is None else config.store.max_ahead_s
    return Stages(config, space_of(config) or Flat(), opened, ahead_s)(opened.frame)
