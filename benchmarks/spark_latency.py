"""How long it takes from an event to its answer, in a streaming pipeline at a steady rate.

    python benchmarks/spark.py --only latency [--size small|full] [--rate EVENTS_PER_S]

A process of its own makes events by the clock and writes a JSON file every `FILE_S`; a pipeline
follows the folder; subscribers in the pipeline's process wait on their handles. An event is created
at the time its row says, so the wait for its file counts. The clock runs after a warm-up at the
same rate, from when all of that is stored. The way of each event that a subscriber got is cut at

    created | trigger of its batch | handed to the subscriber

The cut is what Spark reports about its micro-batch, and so is what a micro-batch spends where: each
part is Spark's name for it, and `addBatch` is the query with our sink. The floor is the same of a
query that reads the same files into nothing, alone.
"""

from __future__ import annotations

import bisect
import json
import multiprocessing
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from benchmarks.common import say
from benchmarks.spark_common import started

__all__ = ["RATE", "STAGES", "measure"]

RATE = 20_000  # events a second
SECONDS = {"tiny": 2.0, "small": 30.0, "full": 90.0}
WARM_S = {"tiny": 1.0, "small": 15.0, "full": 15.0}
FILE_S = 0.1
PLACES = 2_000
HANDLES = 16
SUBSCRIPTIONS = 4_000  # two answers an event
STAGES = ("source wait", "micro-batch")
KINDS = ("jam", "ice", "fog", "fire")


def produce(folder: str, name: str, rate: int, start: float, seconds: float) -> None:
    """Write files of events by the clock; each appears whole."""
    random = np.random.default_rng(3)
    count = round(rate * FILE_S)
    for number in range(round(seconds / FILE_S)):
        first = start + number * FILE_S
        places = random.integers(0, PLACES, count)
        lines = [
            f'{{"id":"{name}-{number}-{row}","at":"{_text(first + row / rate)}","road":"{place}",'
            f'"kind":"{KINDS[place % 4]}","speed":{place % 120}}}\n'
            for row, place in enumerate(places.tolist())
        ]
        time.sleep(max(0.0, first + FILE_S - time.time()))
        half = Path(folder) / f".{number}"
        half.write_text("".join(lines))
        half.rename(Path(folder) / f"{name}-{number:06}.json")


def _text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")


def config(folder: Path, checkpoint: Path) -> dict[str, Any]:
    """What the pipeline is told."""
    return {
        "name": "latency",
        "source": {"format": "json", "path": str(folder)},
        "schema": {
            "id": "string", "at": "timestamp", "road": "string", "kind": "string", "speed": "int",
        },
        "clean": {"kind": {"required": True}, "speed": {"min": 0, "max": 200}},
        "place": {"column": "road"},
        "store": {"channel": "roads", "space": {"kind": "flat"}},
        "operation": {"id": "id", "ttl_s": 20.0, "body": ["kind", "speed"]},
        "run": {"checkpoint": str(checkpoint), "every_s": 0.0},
    }  # fmt: skip


class Subscribers:
    """Threads that wait on handles and note when they get an event."""

    def __init__(self, channel: Any) -> None:
        self.got: list[tuple[str, float, float]] = []  # event, created, received
        day = 86_400.0
        for number in range(SUBSCRIPTIONS - HANDLES):
            channel.subscribe(str(number % PLACES), user=f"u{number}", until_s=day)
        self.handles = [
            channel.subscribe(str(number), user=f"h{number}", until_s=day)
            for number in range(HANDLES)
        ]
        self.threads = [
            threading.Thread(target=self._wait, args=(handle,), daemon=True)
            for handle in self.handles
        ]
        for thread in self.threads:
            thread.start()

    def _wait(self, handle: Any) -> None:
        for event in handle:
            self.got.append((event.id, event.at_us / 1e6, time.time()))

    def end(self) -> None:
        for handle in self.handles:
            handle.cancel()
        for thread in self.threads:
            thread.join()


def run(rate: int, seconds: float, warm_s: float) -> dict[str, Any]:
    """One run in a session of its own process."""
    import tideline
    from tideline.spark.pipeline import Pipeline

    batches: dict[int, dict[str, Any]] = {}

    def note(batch: Any) -> None:
        batches[batch.number] = {"seconds": batch.seconds, "rows": batch.stored}

    with common.scratch() as folder, started("local[2]", folder / "tmp") as spark:
        files = folder / "files"
        files.mkdir()
        with tideline.open(folder / "db") as db:
            channel = db.channel("roads", space=tideline.Flat())
            subscribers = Subscribers(channel)
            pipeline = Pipeline(config(files, folder / "checkpoint"))
            thread = threading.Thread(
                target=lambda: pipeline.run(db, spark=spark, on_batch=note), daemon=True
            )
            thread.start()
            wanted = 0
            for name, span_s in (("warm", warm_s), ("timed", seconds)):
                start = time.time() + 2.0  # by then the process is there
                producer = multiprocessing.get_context("spawn").Process(
                    target=produce, args=(str(files), name, rate, start, span_s)
                )
                producer.start()
                producer.join()
                wanted += round(rate * FILE_S) * round(span_s / FILE_S)
                _drain(batches, wanted)
            (query,) = spark.streams.active
            progress = [json.loads(one.json) for one in query.recentProgress]
            pipeline.stop()
            thread.join()
            subscribers.end()
        floor = _floor(spark, files, folder / "nothing")
    began = {one["batchId"]: _moment(one["timestamp"]) for one in progress}
    moments = sorted(began.values())
    samples = [
        _way(created, received, moments)
        for _, created, received in subscribers.got
        if created >= start and received >= moments[0]
    ]
    return {
        "samples": samples,
        "parts_ms": _parts([one for one in progress if _moment(one["timestamp"]) >= start]),
        "floor_ms": _parts(floor),
        "batches": [
            {**one, "number": number}
            for number, one in sorted(batches.items())
            if began.get(number, 0) >= start
        ],
    }


def _floor(spark: Any, files: Path, checkpoint: Path) -> list[dict[str, Any]]:
    """The progress of a query that reads some files a batch, and writes nothing."""
    schema = ", ".join(f"`{name}` {kind}" for name, kind in config(files, files)["schema"].items())
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 5).json(str(files))
    into = source.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = into.trigger(availableNow=True).start()
    query.awaitTermination()
    return [json.loads(one.json) for one in query.recentProgress][2:]  # the first are slower


def _parts(progress: list[dict[str, Any]]) -> dict[str, float]:
    """What micro-batches spent where, in the mean, in milliseconds."""
    spent = [one["durationMs"] for one in progress if one["numInputRows"]]
    names = list(dict.fromkeys(name for one in spent for name in one))
    return {name: float(np.mean([one.get(name, 0) for one in spent])) for name in names}


def _drain(batches: dict[int, Any], rows: int) -> None:
    """Wait until all that was written is stored."""
    patience = time.monotonic() + 90
    while sum(one["rows"] for one in list(batches.values())) < rows:
        if time.monotonic() > patience:
            raise SystemExit("the pipeline does not keep up, or has failed")
        time.sleep(0.05)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _way(created: float, received: float, moments: list[float]) -> list[float]:
    """The seconds of each stage, for one event; its batch is the last that had begun."""
    began = moments[bisect.bisect_right(moments, received) - 1]
    return [began - created, received - began]


def measure(size: str, rate: int = RATE) -> dict[str, Any]:
    """Median and p99 of the whole way, and how much of it each stage takes."""
    outcome = common.alone(run, rate, SECONDS[size], WARM_S[size])
    ways = np.array(outcome["samples"])
    whole = ways.sum(axis=1)
    median, p99 = np.percentile(whole, [50, 99])
    slow = whole >= p99
    batches = outcome["batches"]
    say(f"latency: median {median:.3f} s, p99 {p99:.3f} s over {len(whole):,} answers")
    return {
        "rate": rate,
        "seconds": SECONDS[size],
        "answers": len(whole),
        "median_s": float(median),
        "p99_s": float(p99),
        "most_s": float(whole.max()),
        "mean_s": dict(zip(STAGES, ways.mean(axis=0).tolist(), strict=True)),
        "mean_of_slowest_s": dict(zip(STAGES, ways[slow].mean(axis=0).tolist(), strict=True)),
        "parts_ms": outcome["parts_ms"],
        "floor_ms": outcome["floor_ms"],
        "batches": len(batches),
        "batch_rows": float(np.median([one["rows"] for one in batches])),
    }
