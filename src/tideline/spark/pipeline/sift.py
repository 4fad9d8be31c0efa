"""A batch as it came from Spark, sorted into what happens to each row.

    bad         -> dead letters
    far ahead   -> dead letters, as the store would reject them
    late, twice -> counted
    unwanted    -> counted
    the rest    -> operations, in the order of their time

The operations of a batch are given to the store in the order of `at`; rows of one time stay in
the order they came in. Pure but for `Seen`, which learns.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.channel.ahead import Ahead
from tideline.spark.pipeline.config import Config
from tideline.spark.pipeline.seen import DUPLICATE, LATE, NEW, PASSED, Keys, Seen
from tideline.spark.pipeline.stages import OPERATION

__all__ = ["DEAD", "Sifted", "dead_rows", "refused_rows", "sift"]

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


def sift(
    table: pa.Table, config: Config, seen: Seen | None, now_us: int, max_ahead_s: float = math.inf
) -> Sifted:
    """Decide every row of a batch that is read at `now_us`.

    A row that is too far ahead of the clock would move the channel's time, and what `seen` takes
    for late. It is decided here and not left to the store, so that a batch that is stored again
    after a kill has the same rows and the same dead letters.
    """
    n = table.num_rows
    verdict = np.zeros(n, np.uint8)
    bad = table["_problem"].is_valid().to_numpy()
    ahead = Ahead.of(max_ahead_s, now_us)
    far = np.zeros(n, np.bool_) if ahead is None else _far(table, ahead) & ~bad
    verdict[bad | far] = PASSED
    keys = None
    if seen is not None:
        high, low, time = (_numbers(table[name]) for name in ("_high", "_low", "_time"))
        keys = seen.judge(high, low, time, verdict)
    if "_met" in table.column_names:
        met = pc.fill_null(table["_met"], False).to_numpy()
        verdict[((verdict == NEW) | far) & ~met] = _FILTERED
        far &= met
    kept = verdict == NEW
    names = [name for name in (*OPERATION, "_area") if name in table.column_names]
    if config.parsed_as != "columns":
        names.append("_text")
    given = table.select(names)
    if "op" not in names:
        given = given.add_column(0, "op", pa.repeat(pa.scalar(config.operation.op), n))
    operations = _in_order(given if kept.all() else given.filter(pa.array(kept)))
    letters = []
    if bad.any():
        rows = table.select(["_problem", "_text"]).filter(pa.array(bad))
        stages, reasons = _split(rows["_problem"].to_pylist())
        letters.append(dead_rows(stages, reasons, rows["_text"], now_us))
    if ahead is not None and far.any():
        refused = given.filter(pa.array(far))
        letters.append(refused_rows(refused, [ahead.reason] * refused.num_rows, now_us))
    dead = pa.concat_tables(letters) if letters else None
    counts = {
        "read": n,
        "duplicate": int((verdict == DUPLICATE).sum()),
        "late": int((verdict == LATE).sum()),
        "filtered": int((verdict == _FILTERED).sum()),
        "dead": int(bad.sum() + far.sum()),
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


def refused_rows(operations: pa.Table, reasons: list[str], now_us: int) -> pa.Table:
    """Dead letters of operations that the store does not take."""
    if "_text" in operations.column_names:
        texts = operations["_text"]
    else:  # no text there ever was: the operation, as JSON
        names = [name for name in operations.column_names if name[0] != "_"]
        plain = pa.table({name: _bytes(operations[name]) for name in names})
        texts = pa.array([_json(row) for row in plain.to_pylist()], pa.large_string())
    return dead_rows(["store"] * len(reasons), reasons, texts, now_us)


def _bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, a text as its bytes: they may be no UTF-8."""
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return column.cast(pa.large_binary()) if is_text else column


def _json(row: dict[str, Any]) -> str:
    """The values that are there; a byte that is no text becomes the sign for that."""

    def plain(value: Any) -> Any:
        return value.decode(errors="replace") if isinstance(value, bytes) else value.isoformat()

    return json.dumps({name: value for name, value in row.items() if value is not None},
                      default=plain, ensure_ascii=False)  # fmt: skip


def _split(problems: list[str]) -> tuple[list[str], list[str]]:
    parts = [problem.partition(": ") for problem in problems]
    return [part[0] for part in parts], [part[2] for part in parts]


def _far(table: pa.Table, ahead: Ahead) -> NDArray[np.bool_]:
    """Which rows bring a time that is too far ahead, to the store or to `Seen`."""
    far = ahead.beyond(_numbers(table["at"]))
    return far | ahead.beyond(_numbers(table["_time"])) if "_time" in table.column_names else far


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
