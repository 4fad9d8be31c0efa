"""How much state `tideline.spark.match` keeps over the micro-batches of a long stream.

    python benchmarks/spark.py --only state [--size small|full]

Windows and events live for seconds and the stream goes on for minutes: once the first windows have
expired, state must stay as large as it is. After the run Spark's own reader of state says how many
bytes were kept after each micro-batch; the answers are compared with those numpy gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common, spark_data
from benchmarks.common import say
from benchmarks.spark_common import answer_keys, match, run_stream, started, stream

__all__ = ["measure"]

PER_BATCH = {"tiny": 300, "small": 20_000, "full": 50_000}  # subscriptions, and as many events
BATCHES = {"tiny": 4, "small": 40, "full": 60}
BATCH_S = 5.0  # of simulated time: a window is open for four batches


def run(data: str, want: str, batches: int) -> dict[str, Any]:
    """One stream in a session of its own process, and its state after every micro-batch."""
    with common.scratch() as folder, started("local[2]", folder / "tmp") as spark:
        sides = [stream(spark, Path(data) / kind) for kind in ("subscriptions", "events")]
        line = run_stream(match(*sides), folder / "run")
        right = np.array_equal(answer_keys(folder / "run" / "answers"), np.load(want))
        reader = spark.read.format("statestore").option("stateVarName", "segments")
        sizes = []
        for number in range(batches):
            state = reader.option("batchId", number).load(str(folder / "run" / "checkpoint"))
            row = state.selectExpr("sum(octet_length(user_map_value.data))").first()
            sizes.append(int(row[0] or 0) if row else 0)
    return {
        "bytes": sizes,
        "batch_ms": [one["durationMs"]["triggerExecution"] for one in line["batches"][:batches]],
        "right": bool(right),
    }


def measure(size: str) -> dict[str, Any]:
    """Bytes of state after every micro-batch."""
    batches = BATCHES[size]
    per_side = PER_BATCH[size] * batches
    with common.scratch() as folder:
        data = spark_data.make(
            folder / "data", per_side, places=per_side // 4, seconds=BATCH_S * batches,
            files=batches,
        )  # fmt: skip
        np.save(folder / "want.npy", spark_data.pairs(data))
        outcome = common.alone(run, str(folder / "data"), str(folder / "want.npy"), batches)
    outcome |= {"rows_per_batch": 2 * PER_BATCH[size], "batches": batches, "batch_s": BATCH_S}
    half = outcome["bytes"][batches // 2 :]
    say(f"state: {min(half) / 1e6:.1f} to {max(half) / 1e6:.1f} MB over the second half")
    return outcome
