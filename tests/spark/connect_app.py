"""A client of Spark Connect: it writes to a server of Tideline's, reads and matches.

Run by test_connect.py with SPARK_REMOTE set; prints what it saw as a line of JSON. There is no
Java here, and `sparkContext` does not exist.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cluster_app import asked, matched_as_stream, told

from tideline import Flat
from tideline.spark import match, session


def main(url: str, folder: Path) -> None:
    spark = session()
    assert session() is spark
    said: dict[str, Any] = {"kind": type(spark).__module__}
    options = {"url": url, "channel": "roads"}
    told(spark).write.format("tideline").options(**options).mode("append").save()
    rows = spark.read.format("tideline").options(**options).load()
    said["read"] = [rows.count(), rows.where("place = 'p7'").count(), rows.count()]
    said["matched"] = match(asked(spark), told(spark), space=Flat(), buckets=2).count()

    rocks = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocks)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    matched_as_stream(spark, folder, buckets=2)
    said["streamed"] = spark.read.parquet(str(folder / "answers")).count()
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
