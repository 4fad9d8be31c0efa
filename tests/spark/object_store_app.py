"""What test_object_store.py runs: a pipeline whose paths are all in an object store, and Avro.

    object_store_app.py FOLDER JARS ENDPOINT

A program of its own, for its session has other packages than that of the other tests.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

import tideline
from tideline.errors import InvalidRequest
from tideline.spark import bulk_load, session, share
from tideline.spark.pipeline import Pipeline

FOLDER, JARS, ENDPOINT = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
BASE = "s3a://tideline/work"
COUNT = 200
S3A = {
    "endpoint": ENDPOINT, "endpoint.region": "us-east-1", "access.key": "key",
    "secret.key": "secret", "path.style.access": "true", "connection.ssl.enabled": "false",
}  # fmt: skip
RECORD = {
    "type": "record", "name": "sighting",
    "fields": [
        {"name": "id", "type": "string"}, {"name": "place", "type": "string"},
        {"name": "at", "type": "string"}, {"name": "speed", "type": "int"},
    ],
}  # fmt: skip
SCHEMA = {"id": "string", "place": "string", "at": "timestamp", "speed": "int"}
ROWS = [
    {"id": f"e{n}", "place": f"p{n % 5}", "at": f"2026-01-01T00:00:{n / 10:04.1f}Z", "speed": n}
    for n in range(COUNT)
]  # fmt: skip

spark = session(
    master="local[2]",
    config={"spark.jars": JARS, **{f"spark.hadoop.fs.s3a.{name}": S3A[name] for name in S3A}},
)


def pipeline(name: str, **sections: Any) -> Pipeline:
    """One with everything it writes in the object store, but the store."""
    document = {
        "name": name,
        "source": {"format": "text", "path": f"{BASE}/in", "options": {"maxFilesPerTrigger": 1}},
        "parse": {"format": "json"}, "schema": SCHEMA, "place": {"column": "place"},
        "store": {"folder": str(FOLDER / "data"), "channel": name},
        "operation": {"id": "id", "at": "at", "ttl_s": 1e8},
        "run": {"checkpoint": f"{BASE}/checkpoint-{name}"},
        "archive": {"folder": f"{BASE}/archive-{name}"},
        "dead_letters": {"folder": f"{BASE}/dead-{name}"},
    }  # fmt: skip
    return Pipeline({**document, **sections})


def lines(rows: list[Any]) -> None:
    """One more file of JSON lines in the source."""
    texts = [(row if isinstance(row, str) else json.dumps(row),) for row in rows]
    frame = spark.createDataFrame(texts, "value string").coalesce(1)
    frame.write.mode("append").text(f"{BASE}/in")


def counts(summary: Any) -> dict[str, int]:
    return {name: count for name, count in summary.counts.items() if count}


def letters(name: str) -> dict[str, int]:
    found = spark.read.parquet(f"{BASE}/dead-{name}").groupBy("stage").count().collect()
    return {row["stage"]: row["count"] for row in found}


# A source, a checkpoint, an archive and dead letters in the object store; each row once.
lines([*ROWS[:100], "{broken"])
assert counts(pipeline("text").run(spark=spark)) == {"read": 101, "stored": 100, "dead": 1}
# What the store refuses, it refuses after Spark has checked: such rows become dead letters, too.
taken = {**ROWS[0], "speed": -1}
drifted = {**ROWS[101], "place": ["p"], "speed": {"km/h": 5}}
lines([*ROWS[100:], taken, drifted])
again = pipeline("text").run(spark=spark)
assert again.counts["read"] == 102, again.counts
assert again.counts["dead"] == 2, again.counts
assert again.totals["stored"] == COUNT, again.totals
assert letters("text").keys() == {"parse", "store"}, letters("text")
assert counts(pipeline("text").run(spark=spark)) == {}
archive = spark.read.parquet(f"{BASE}/archive-text")
assert archive.select("id").distinct().count() == COUNT

# Avro: one record in the bytes of a column, and files of Spark's Avro format.
sightings = spark.createDataFrame(ROWS).withColumn("speed", F.col("speed").cast("int"))
record = F.struct("id", "place", "at", "speed")
packed = sightings.select(to_avro(record, json.dumps(RECORD)).alias("value"))
broken = spark.createDataFrame([(bytearray(b"\xff\xff"),)], "value binary")
packed.union(broken).coalesce(1).write.parquet(f"{BASE}/packed")
parse = {"format": "avro", "options": {"schema": json.dumps(RECORD)}}
found = pipeline("packed", source={"format": "parquet", "path": f"{BASE}/packed"}, parse=parse)
assert counts(found.run(spark=spark)) == {"read": COUNT + 1, "stored": COUNT, "dead": 1}
sightings.coalesce(1).write.format("avro").save(f"{BASE}/avro")
found = pipeline(
    "files", source={"format": "avro", "path": f"{BASE}/avro"}, parse={"format": "columns"}
)
assert counts(found.run(spark=spark)) == {"read": COUNT, "stored": COUNT}

with tideline.open(FOLDER / "data") as db:
    share(db)
    for name in ("text", "packed", "files"):
        events = sorted((e["id"], json.loads(e["body"])["speed"])
                        for e in db.channel(name).scan("events").to_pylist())  # fmt: skip
        assert events == sorted((row["id"], row["speed"]) for row in ROWS), name
    # Out of the store into the object store, and back in bulk.
    where = str(db.path)
    read = spark.read.format("tideline").option("channel", "text").load(f"file:{where}")
    read.drop("seq").write.parquet(f"{BASE}/out")
    copy = db.channel("copy")
    assert bulk_load(spark.read.parquet(f"{BASE}/out"), copy).rows == COUNT
    documents = db.collection("documents", key="id", indexes={"place": "lazy"})
    assert bulk_load(sightings, f"file://{where}", "documents").rows == COUNT
    assert len(documents.lookup("place", "p3")) == COUNT // 5
    # Rejected rows go by pyarrow: what it cannot write is refused before anything lands.
    bad = spark.createDataFrame([("x", "p"), ("y", "")], "id string, place string").select(
        "*", F.to_timestamp(F.lit("2026-01-01")).alias("at"), F.lit("{}").alias("body")
    )

    def save(rejected: str) -> None:
        writer = bad.write.format("tideline").option("channel", "bad").option("rejected", rejected)
        writer.option("space", '{"kind":"topics"}').mode("append").save(where)

    with pytest.raises(Exception, match="rejected rows are written by pyarrow"):
        save(f"{BASE}/bad")
    assert "bad" not in db.channels()
    save(f"file:{FOLDER}/bad")
    assert [row.id for row in spark.read.parquet(f"file:{FOLDER}/bad").collect()] == ["y"]
    save(f"s3://tideline/bad?endpoint_override={quote(ENDPOINT, safe='')}")
    assert [row.id for row in spark.read.parquet("s3a://tideline/bad").collect()] == ["y"]
    with pytest.raises(Exception, match="the path must be the folder of a store"):
        spark.read.format("tideline").option("channel", "text").load(BASE).count()
    with pytest.raises(InvalidRequest, match="the path must be the folder of a store"):
        bulk_load(sightings, BASE, "documents")
spark.stop()
print("all of it")
