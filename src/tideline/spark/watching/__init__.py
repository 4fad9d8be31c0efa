"""Live queries on Spark: `watch(queries, writes, grid=...)`; see frames.py."""

from tideline.spark.watching.frames import watch

__all__ = ["watch"]
