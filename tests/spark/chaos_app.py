"""A stream of files into a channel, and a `match` of files: to the end, or until it is killed.

Run by test_cluster_chaos.py with spark-submit. What is there of both checkpoints goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tideline import Flat
from tideline.spark import match, session


def files(spark: Any, folder: Path) -> Any:
    schema = spark.read.parquet(str(folder)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1")
    return reader.parquet(str(folder))


def main(url: str, folder: Path) -> None:
    spark = session()
    events = files(spark, folder / "events")
    stored = (
        events.writeStream.format("tideline").options(url=url, channel="roads")
        .option("checkpointLocation", str(folder / "stored")).trigger(availableNow=True).start()
    )  # fmt: skip
    answers = match(files(spark, folder / "subscriptions"), events, space=Flat(), buckets=2)
    matched = (
        answers.writeStream.format("parquet").option("path", str(folder / "answers"))
        .option("checkpointLocation", str(folder / "matched")).trigger(availableNow=True).start()
    )  # fmt: skip
    stored.awaitTermination()
    matched.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
