"""The second stage of a batch: the packets of whole buckets run, one bucket after the other.

A partition's packets are put aside by bucket; each bucket is then run from the first moment
to the last in a channel of its own, which is thrown away.

Runs in Spark's Python workers; imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tideline.index.memory import Budget
from tideline.spark.matching.answers import answers_of, conflicts_of, rejected_of
from tideline.spark.matching.bucket import Bucket, in_order
from tideline.spark.matching.settings import BAD, Settings
from tideline.spark.worker import settle

__all__ = ["run_batches"]


def run_batches(batches: Iterator[pa.RecordBatch], settings: Settings) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` calls: packets in, answers out."""
    packets: dict[int, list[pa.Buffer]] = {}
    deltas: set[int] = set()
    for batch in batches:
        labels, flags = batch["bucket"].to_pylist(), batch["deltas"].to_pylist()
        for label, flag, value in zip(labels, flags, batch["data"], strict=True):
            packets.setdefault(label, []).append(value.as_buffer())
            if flag:
                deltas.add(label)
    for packet in packets.pop(BAD, []):
        yield from rejected_of(packet.to_pybytes()).to_batches()
    budget = Budget(settings.memory_mb << 20)
    for label in list(packets):
        ran = in_order(packets.pop(label))
        bucket = Bucket(settings, budget)
        try:
            for table in bucket.run(ran, deltas=label in deltas):
                yield from answers_of(table, ran).to_batches()
            if ran.rejected:
                for table in conflicts_of(ran, settings):
                    yield from table.to_batches()
        finally:
            bucket.close()
    settle("matching")
