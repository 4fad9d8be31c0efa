"""Spark's part of the demo: a process of its own that feeds the server by a pipeline.

    python -m tideline.cli.demo_spark      started by spark_feed.py

    stdin    one line of JSON: url, folder, every_s, the traffic's options; its end means: stop
    stdout   a line of JSON for what happens: {"is": "feeding"}, {"is": "batch", ...}

It is a process of its own so that the demo can end it at any moment, whatever Spark is doing, and
so that Java and the server do not share a Python. It gives way to everything else on the machine:
a low priority, one core.

If a visitor drops the channel, the pipeline fails and is started again with a new checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tideline.errors import TidelineError
from tideline.workload.newyork import BOUNDS

__all__ = ["main"]

_NICE = 10
_TRIES = 100  # pipelines, one after the other
_PAUSE_S = 1.0
_END_S = 3.0


def main() -> None:
    """Feed until stdin ends."""
    given = json.loads(sys.stdin.readline())
    stop = threading.Event()
    os.nice(_NICE)
    feed = _Feed(given, stop)
    threading.Thread(target=_until_closed, args=(feed, stop), daemon=True).start()
    try:
        feed.run()
    except TidelineError as error:
        _say("failed", error=str(error))
        sys.exit(5)


class _Feed:
    """One pipeline after the other, on one session of Spark."""

    def __init__(self, given: dict[str, Any], stop: threading.Event) -> None:
        self._given = given
        self._stop = stop
        self._pipeline: Any = None

    def run(self) -> None:
        from tideline.spark.session import session

        spark = session(app="tideline demo", master="local[1]", memory="1g")
        from tideline.cli.demo_source import TrafficSource

        spark.dataSource.register(TrafficSource)
        try:
            for number in range(_TRIES):
                try:
                    self._feed(spark, number)
                except TidelineError:
                    if number + 1 == _TRIES:
                        raise
                if self._stop.wait(_PAUSE_S if not self._stop.is_set() else 0):
                    return
        finally:
            spark.stop()

    def _feed(self, spark: Any, number: int) -> None:
        from tideline.spark.pipeline import Pipeline

        options = {**self._given["options"], "name": f"spark{number or ''}-"}
        traffic = spark.readStream.format("traffic").options(**options).load()
        self._pipeline = pipeline = Pipeline(_config(self._given, options, number))
        if not self._stop.is_set():
            pipeline.run(spark=spark, source=traffic, on_batch=self._done)

    def _done(self, batch: Any) -> None:
        if self._stop.is_set():  # a stop that came before the run did
            self.stop()
        _say("batch", **asdict(batch))

    def stop(self) -> None:
        """End after the current batch (any thread)."""
        if self._pipeline is not None:
            self._pipeline.stop()


def _until_closed(feed: _Feed, stop: threading.Event) -> None:
    """The demo has ended, or wants this to end: do so, and if Spark does not, end without it."""
    sys.stdin.read()
    stop.set()
    feed.stop()
    time.sleep(_END_S)
    os._exit(1)


def _say(what: str, **more: Any) -> None:
    print(json.dumps({"is": what, **more}), flush=True)


def _config(given: dict[str, Any], options: dict[str, Any], number: int) -> dict[str, Any]:
    """The pipeline, as a TOML file would say it."""
    return {
        "name": f"demo-{number}",
        "source": {"format": "traffic", "options": options},
        "parse": {"format": "columns"},
        "clean": {
            "id": {"required": True},
            "at": {"required": True},
            "lon": {"min": BOUNDS[0], "max": BOUNDS[2]},
            "lat": {"min": BOUNDS[1], "max": BOUNDS[3]},
        },
        "place": {"point": ["lon", "lat"], "radius_m": "radius_m"},
        "deduplicate": {"by": ["id"], "within_s": 30},
        "operation": {
            "op_column": "op", "id": "id", "at": "at", "since": "since", "until": "until",
            "user": "user", "body_json": "body", "unseen": "unseen",
        },
        "store": {"url": given["url"], "channel": "roads"},
        "run": {
            "checkpoint": str(Path(given["folder"]) / f"checkpoint-{number}"),
            "every_s": given["every_s"],
        },
    }  # fmt: skip


if __name__ == "__main__":
    main()
