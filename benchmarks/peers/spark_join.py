"""What Spark itself offers for matching: a join on equal places and a range of times, all in Java.

`interval_join` keeps both streams in Spark's state store until the watermark passes what
could still meet: the usual answer to "match two streams". The bounds on time must be constants for
state to leave, so it serves windows that are all equally wide around `at`, no conditions, and
flat places: far less than the contract. `range_join` is its twin for tables.

Both give the answers of the contract on such data: (subscription, event).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["HEAP", "ROCKS", "interval_join", "range_join"]

_STATE = "org.apache.spark.sql.execution.streaming.state."
ROCKS = _STATE + "RocksDBStateStoreProvider"
HEAP = _STATE + "HDFSBackedStateStoreProvider"


def _sides(subscriptions: DataFrame, events: DataFrame) -> tuple[DataFrame, DataFrame]:
    asked = subscriptions.select(
        F.col("id").alias("subscription"), F.col("place").alias("asked"), F.col("at").alias("t")
    )
    told = events.select(
        F.col("id").alias("event"), F.col("place").alias("told"), F.col("at").alias("e_t")
    )
    return asked, told


def _meet(back_s: int, ahead_s: int) -> Column:
    begin = F.col("e_t") >= F.col("t") - F.expr(f"INTERVAL {back_s} SECONDS")
    end = F.col("e_t") < F.col("t") + F.expr(f"INTERVAL {ahead_s} SECONDS")
    return (F.col("asked") == F.col("told")) & begin & end


def interval_join(
    subscriptions: DataFrame, events: DataFrame, *, back_s: int, ahead_s: int, delay_s: int
) -> DataFrame:
    """Streams in, answers out; `delay_s` is how late a row may be."""
    asked, told = _sides(subscriptions, events)
    delay = f"{delay_s} seconds"
    joined = asked.withWatermark("t", delay).join(
        told.withWatermark("e_t", delay), _meet(back_s, ahead_s), how="inner"
    )
    return joined.select("subscription", "event")


def range_join(
    subscriptions: DataFrame, events: DataFrame, *, back_s: int, ahead_s: int
) -> DataFrame:
    """Tables in, answers out."""
    asked, told = _sides(subscriptions, events)
    return asked.join(told, _meet(back_s, ahead_s), how="inner").select("subscription", "event")
