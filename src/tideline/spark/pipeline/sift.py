"""A batch as it came from Spark, sorted into what happens to each row.

    bad         -> dead letters
    late, twice -> counted
    unwanted    -> counted
    the rest    -> operations, in the order of their time

The operations of a batch are given to the store in the order of `at`; rows of one time stay in
the order they came in. Pure but for `Seen`, which learns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.spark.pipeline.config import Config
from tideline.spark.pipeline.seen import DUPLICATE, LATE, NEW, PASSED, Keys, Seen
from tideline.spark.pipeline.stages import OPERATION

__all__ = ["DEAD", "Sifted", "dead_rows", "sift"]

DEAD = pa.schema(
    [("stage", pa.string()), ("reason", pa.string()), ("text", pa.large_string()),
     ("at", pa.timestamp("us", "UTC"))]
)  # fmt: skip
"""The columns of a dead letter; `at` is when the row was found bad."""
_FILTERED = 4


@dataclass
class Sifted:
    """A batch, decided."""

    operations: pa.Table
    dead: pa.Table | None
    keys: Keys | None
    counts: dict[str, int]


def sift(table: pa.Table, config: Config, seen: Seen | None, now_us: int) -> Sifted:
    """Decide every row of a batch."""
    n = table.num_rows
    verdict = np.zeros(n, np.uint8)
    bad = table["_problem"].is_valid().to_numpy()
    verdict[bad] = PASSED
    keys = None
    if seen is not None:
        high, low, time = (_numbers(table[name]) for name in ("_high", "_low", "_time"))
        keys = seen.judge(high, low, time, verdict)
    if "_met" in table.column_names:
        met = pc.fill_null(table["_met"], False).to_numpy()
        verdict[(verdict == NEW) & ~met] = _FILTERED
    kept = verdict == NEW
    names = [name for name in (*OPERATION, "_area") if name in table.column_names]
    if config.parsed_as != "columns":
        names.append("_text")
    operations = table.select(names)
    if not kept.all():
        operations = operations.filter(pa.array(kept))
    operations = _in_order(operations)
    if "op" not in names:
        op = pa.repeat(pa.scalar(config.operation.op), operations.num_rows)
        operations = operations.add_column(0, "op", op)
    dead = None
    if bad.any():
        rows = table.select(["_problem", "_text"]).filter(pa.array(bad))
        stages, reasons = _split(rows["_problem"].to_pylist())
        dead = dead_rows(stages, reasons, rows["_text"], now_us)
    counts = {
        "read": n,
        "duplicate": int((verdict == DUPLICATE).sum()),
        "late": int((verdict == LATE).sum()),
        "filtered": int((verdict == _FILTERED).sum()),
        "dead": int(bad.sum()),
    }
    return Sifted(operations, dead, keys, counts)


def dead_rows(stages: list[str], reasons: list[str], texts: Any, now_us: int) -> pa.Table:
    """Dead letters."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    at = pa.array(np.full(len(stages), now_us), pa.int64()).cast(DEAD.field("at").type)
    return pa.Table.from_arrays(
        [pa.array(stages, pa.string()), pa.array(reasons, pa.string()),
         texts.cast(pa.large_string()), at], schema=DEAD,
    )  # fmt: skip


def _split(problems: list[str]) -> tuple[list[str], list[str]]:
    parts = [problem.partition(": ") for problem in problems]
    return [part[0] for part in parts], [part[2] for part in parts]


def _in_order(operations: pa.Table) -> pa.Table:
    """The rows by time; nothing moves when they are in order already."""
    time = _numbers(operations["at"])
    if len(time) < 2 or bool((time[1:] >= time[:-1]).all()):
        return operations
    order = pa.array(np.argsort(time, kind="stable"))
    return operations.combine_chunks().take(order)


def _numbers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """A column of whole numbers or times as an array of its own; null is 0."""
    if column.num_chunks != 1:
        column = pa.chunked_array([column.combine_chunks()], column.type)
    array = column.chunk(0)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64())
    return np.array(array.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
