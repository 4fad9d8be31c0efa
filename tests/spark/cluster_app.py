"""An application as somebody submits it: it writes to a server, reads and matches.

Run by test_cluster.py with spark-submit; prints what it saw as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tideline import Flat
from tideline.spark import match, session

ROWS = 2_000


def where(batches: Any) -> Any:
    """On an executor: where the package was found."""
    import pyarrow as pa

    import tideline

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [tideline.__file__]})


def asked(spark: Any) -> Any:
    """A subscription for every tenth event; every second one says `unseen`."""
    return spark.range(ROWS // 10).selectExpr(
        "concat('s', id) id", "concat('u', id) user", "concat('p', id) place", "id % 2 = 0 unseen",
        "timestamp'2026-01-01 00:00:00' at", "timestamp'2027-01-01 00:00:00' until",
    )  # fmt: skip


def told(spark: Any) -> Any:
    return spark.range(ROWS).selectExpr(
        "concat('e', id) id", f"concat('p', id % {ROWS // 10}) place", "'{}' body",
        "timestamp'2026-01-02 00:00:00' + make_dt_interval(0, 0, 0, id) at",
    )  # fmt: skip


def matched_as_stream(spark: Any, folder: Path, buckets: int) -> None:
    """Match the same as two streams, whose answers go to the folder `answers`."""
    asked(spark).write.parquet(str(folder / "asked"))
    told(spark).write.parquet(str(folder / "told"))
    streams = [
        spark.readStream.schema(spark.read.parquet(str(folder / side)).schema)
        .parquet(str(folder / side))
        for side in ("asked", "told")
    ]  # fmt: skip
    answers = match(*streams, space=Flat(), buckets=buckets)
    query = (
        answers.writeStream.format("parquet").option("path", str(folder / "answers"))
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()


def main(url: str, folder: Path) -> None:
    started = time.monotonic()
    before = dict(os.environ)
    spark = session()
    names = ("master", "app.name", "driver.memory", "executor.memory", "sql.session.timeZone")
    said: dict[str, Any] = {"settings": [spark.conf.get(f"spark.{name}") for name in names]}
    said["page"] = spark.sparkContext.uiWebUrl is not None
    said["environment"] = dict(os.environ) == before

    files = spark.range(2, numPartitions=2).mapInArrow(where, "file string").collect()
    said["files"] = sorted({Path(row["file"]).parts[-3] for row in files})

    options = {"url": url, "channel": "roads"}
    told(spark).repartition(4).write.format("tideline").options(**options).mode("append").save()
    rows = spark.read.format("tideline").options(**options).load()
    said["read"] = [rows.count(), rows.where("place = 'p7'").count(), rows.count()]

    said["matched"] = match(asked(spark), told(spark), space=Flat(), buckets=4).count()
    matched_as_stream(spark, folder, buckets=4)
    said["streamed"] = spark.read.parquet(str(folder / "answers")).distinct().count()
    said["took_s"] = round(time.monotonic() - started, 1)
    print(json.dumps(said))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
