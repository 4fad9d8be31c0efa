"""The process that test_pipeline_state.py kills: batches through the queue into the store.

    python feed_worker.py FOLDER BATCHES ROWS

Goes on where the last one ended, as a pipeline does, without Spark in front of it. Prints a line
when it is ready, and one for each batch that is done.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pipelines import config, time_of

import tideline
from tideline.spark.pipeline.feeder import Feeder
from tideline.spark.pipeline.run import check_store
from tideline.spark.pipeline.seen import NEW, Seen
from tideline.spark.pipeline.sift import sift
from tideline.spark.pipeline.state import State


def told(folder: Path) -> Any:
    return config(
        folder,
        deduplicate={"by": ["id"], "within_s": 10_000},
        archive={"folder": "archive"},
    )


def batch(number: int, rows: int) -> pa.Table:
    """Rows as Spark hands them over: of ten, one is bad, one repeats, one the store rejects."""
    n = np.arange(number * rows, (number + 1) * rows)
    ids = np.where(n % 10 == 3, n - 1, n)  # the row before once more
    at = pa.array([time_of(int(i) // 100) for i in n], pa.timestamp("us", "UTC"))
    bad = n % 10 == 5
    return pa.table({
        "_problem": pa.array(np.where(bad, "clean: bad", None), pa.string()),
        "_text": pa.array([f"row {i}" if b else None for i, b in zip(n, bad, strict=True)]),
        "_high": ids, "_low": ids, "_time": at.view(pa.int64()),
        "id": [f"e{i}" for i in ids], "place": [f"p{i % 7}" for i in n], "at": at,
        "until": pa.array([time_of(10**8)] * len(n), pa.timestamp("us", "UTC")),
        "body": ["{no JSON" if i % 10 == 7 else f'{{"n": {i}}}' for i in n],
    })  # fmt: skip


def main(folder: Path, batches: int, rows: int) -> None:
    settings = told(folder)
    with tideline.open(folder / "data") as db:
        channel = db.channel("c")
        state = State(settings.checkpoint, {"name": settings.name}, 0)
        check_store(channel, settings, state)
        seen = Seen(10_000_000_000, state.last.get("newest"))
        for keys in state.known_keys():
            seen.add(keys)
        feeder = Feeder(
            channel, state, settings, lambda done, applied: print(done.number, flush=True)
        )
        print("ready", flush=True)
        feeder.catch_up()
        feeder.start()
        for number in range(state.queued + 1, batches):
            sifted = sift(batch(number, rows), settings, seen, 1)
            facts = {**sifted.counts, "newest": seen.newest, "read_us": 1, "spark_s": 0.0,
                     "sift_s": 0.0}  # fmt: skip
            state.queue(number, sifted.operations, sifted.dead, sifted.keys, facts, sync=False)
            feeder.put((number, sifted.operations, sifted.dead, facts))
        feeder.finish()
        state.close()


assert NEW == 0
if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
