"""`tideline demo`: traffic over New York State, through the Spark pipeline into a channel.

    format `traffic` -> pipeline on Spark -> channel `roads` -> answers

Drivers, as they move, ask about the circle around them: what happened there in the last ten
minutes that they were not told yet, and what happens in the next minute. Incidents appear
beside the roads. Spark reads both as a stream, cleans, deduplicates and places the rows; the
store matches them. Everything is real: the database has its log on, in a temporary folder.

On a terminal a live table; otherwise (a pipe, TERM=dumb) a plain line a second.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

import tideline
from tideline.cli.warm import warm_up
from tideline.errors import InvalidRequest
from tideline.space import QuadTree
from tideline.workload.newyork import BOUNDS

if TYPE_CHECKING:
    from tideline.model import Applied
    from tideline.spark.pipeline import Batch

__all__ = ["run_demo"]

_EVERY_S = 0.5  # how often Spark looks for what has happened
_JOURNAL_S = 60.0
_SETTLE_S = 5.0


def run_demo(
    *, seconds: float | None, drivers: int, incidents_s: float, radius_m: float, seed: int
) -> None:
    """Run until `seconds` are over or Ctrl-C, then print a summary."""
    from tideline.workload.fleet import Fleet

    if seconds is not None and not 0 < seconds < math.inf:
        raise InvalidRequest("seconds must be over 0", seconds=seconds)
    # Every driver asks every ten seconds. Made here to refuse wrong numbers before Spark starts.
    asking_s = drivers / 10
    Fleet(drivers=drivers, incidents_s=incidents_s, drivers_s=asking_s, radius_m=radius_m)
    console = Console()
    warm_up(quiet=True)
    with (
        tempfile.TemporaryDirectory(prefix="tideline-demo-") as folder,
        tideline.open(Path(folder) / "data") as database,
    ):
        space = QuadTree(bounds=BOUNDS, depth=9)
        roads = database.channel("roads", space=space, journal_s=_JOURNAL_S)
        story = Story(roads, drivers)
        options = {"drivers": drivers, "drivers_s": asking_s, "incidents_s": incidents_s,
                   "radius_m": radius_m, "seed": seed}  # fmt: skip
        _stream(database, folder, options, story, console, seconds)
        print(story.summary(), flush=True)


def _stream(
    database: Any, folder: str, options: dict[str, Any], story: Story, console: Console,
    seconds: float | None,
) -> None:  # fmt: skip
    """The pipeline, from the format `traffic` into the channel, until told to stop."""
    from tideline.spark import session
    from tideline.spark.pipeline import Pipeline
    from tideline.spark.pipeline.run import Watch
    from tideline.spark.traffic import TrafficSource

    pipeline = Pipeline(_config(folder, options))
    pretty = console.is_terminal and os.environ.get("TERM") != "dumb"

    class Screen(Watch):
        """Shows the story; stops the pipeline when its time is over."""

        shown = 0.0

        def tick(self) -> None:
            if story.started and seconds is not None and story.elapsed_s >= seconds:
                pipeline.stop()
            if time.perf_counter() - self.shown < (0.25 if pretty else 1.0) or not story.started:
                return
            self.shown = time.perf_counter()
            if pretty:
                live.update(story.table(console.width), refresh=True)
            else:
                print(story.line(), flush=True)

    with Live(console=console, auto_refresh=False, transient=True) if pretty else _Quiet() as live:
        if pretty:
            live.update("Spark starts, which takes some seconds ...", refresh=True)
        else:
            print("Spark starts, which takes some seconds ...", flush=True)
        spark = session(app="tideline demo")
        spark.dataSource.register(TrafficSource)
        traffic = spark.readStream.format("traffic").options(**options).load()
        try:
            pipeline.run(
                database, spark=spark, source=traffic, on_batch=story.batch, watch=Screen()
            )
        finally:
            with _patience():
                spark.stop()


def _config(folder: str, options: dict[str, Any]) -> dict[str, Any]:
    """The pipeline, as a TOML file would say it."""
    return {
        "name": "demo",
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
        "store": {"channel": "roads"},
        "run": {"checkpoint": str(Path(folder) / "checkpoint"), "every_s": _EVERY_S},
    }  # fmt: skip


class Story:
    """What has happened so far. Batches come from one thread, looks from another."""

    def __init__(self, roads: Any, drivers: int) -> None:
        self._roads = roads
        self._drivers = drivers
        self._lock = threading.Lock()
        self._position = roads.position()
        self._begun = 0.0
        self._batches: deque[tuple[float, Batch]] = deque(maxlen=4_000)
        self.operations = self.answers = self.past = self.live = 0
        self.started = False
        # when, incident, the first driver told, how many were
        self._recent: deque[tuple[str, dict[str, Any], str, int]] = deque(maxlen=8)

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._begun if self.started else 0.0

    def batch(self, batch: Batch, applied: Applied) -> None:
        """A batch is in the store."""
        kinds = applied.answers["kind"].to_pylist()
        told: dict[str, list[str]] = {}
        for event, user, kind in zip(
            applied.answers["event"].to_pylist(), applied.answers["user"].to_pylist(), kinds,
            strict=True,
        ):  # fmt: skip
            if kind == "live":
                told.setdefault(event, []).append(user)
        events, position = self._roads.journal("events", after=self._position)
        with self._lock:
            if not self.started:
                self.started, self._begun = True, time.perf_counter()
            self._position = position
            self._batches.append((time.perf_counter(), batch))
            self.operations += batch.stored
            self.answers += len(kinds)
            self.live += kinds.count("live")
            self.past += kinds.count("past")
            for event in events.slice(max(0, len(events) - 8)).to_pylist():
                users = told.get(event["id"], [])
                body = json.loads(event["body"])
                when = f"{event['at']:%H:%M:%S}"
                self._recent.append((when, body, users[0] if users else "", len(users)))

    def _last(self, seconds: float) -> list[Batch]:
        horizon = time.perf_counter() - seconds
        with self._lock:
            return [batch for when, batch in self._batches if when >= horizon]

    def _facts(self) -> dict[str, str]:
        last = self._last(5.0)
        took = min(5.0, max(self.elapsed_s, 0.5))
        stats = self._roads.stats()
        return {
            "operations/s": f"{sum(batch.stored for batch in last) / took:,.0f}",
            "answers/s": f"{sum(batch.answers for batch in last) / took:,.0f}",
            "happened to stored p50 / p99": _latency(last),
            "a batch: Spark / store": _parts(last),
            "live incidents": f"{stats.events:,}",
            "live subscriptions": f"{stats.subscriptions:,}",
            "memory": _size(stats.bytes_memory),
            "disk": _size(stats.bytes_disk + stats.bytes_log),
        }

    def table(self, width: int) -> Group:
        """All of it, for a terminal."""
        facts = list(self._facts().items())
        numbers = Table.grid(padding=(0, 3))
        for (left, one), (right, other) in zip(facts[:4], facts[4:], strict=True):
            numbers.add_row(left, one, right, other)
        for column in (1, 3):
            numbers.columns[column].justify = "right"
        recent = Table(title="last incidents", title_justify="left", expand=False)
        # Fixed widths: the table must neither jump about nor lose its right edge.
        widths = {"when": 8, "what": 11, "where": 0, "who was told": 26}
        widths["where"] = min(46, max(10, width - sum(widths.values()) - 3 * len(widths) - 1))
        for name, chars in widths.items():
            recent.add_column(name, no_wrap=True, width=chars)
        with self._lock:
            rows = list(self._recent)
        for when, body, user, told in reversed(rows):
            who = f"{user} and {told - 1:,} more" if told > 1 else user or "nobody near"
            recent.add_row(when, body["kind"], f"{body['road']} near {body['near']}", who)
        return Group(
            f"New York State, {self.elapsed_s:.0f} s, {self._drivers:,} drivers",
            numbers, recent, "Ctrl-C ends the demo.",
        )  # fmt: skip

    def line(self) -> str:
        """The same in a line."""
        facts = self._facts()
        last = ""
        with self._lock:
            if self._recent:
                _, body, _, told = self._recent[-1]
                last = f" | {body['kind']} near {body['near']}: " + (
                    f"{told:,} told" if told else "nobody near"
                )
        return (
            f"{self.elapsed_s:5.1f} s | {facts['operations/s']} operations/s,"
            f" {facts['answers/s']} answers/s"
            f" | happened to stored {facts['happened to stored p50 / p99']}"
            f" | live {facts['live incidents']} incidents,"
            f" {facts['live subscriptions']} subscriptions{last}"
        )

    def summary(self) -> str:
        """What it came to."""
        with self._lock:
            batches = [batch for _, batch in self._batches]
            # The first batches catch up with what happened while Spark started.
            settled = [b for when, b in self._batches if when >= self._begun + _SETTLE_S]
        counts = {
            name: sum(batch.counts[name] for batch in batches)
            for name in ("read", "stored", "duplicate", "late", "dead")
        }
        took = max(self.elapsed_s, 0.001)
        stats = self._roads.stats()
        return "\n".join(
            (
                "",
                f"{took:.1f} s, {self._drivers:,} drivers, {len(batches):,} batches through Spark",
                "  rows: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()),
                f"  {self.operations / took:,.0f} operations/s",
                f"  {self.answers:,} answers: {self.past:,} had happened already,"
                f" {self.live:,} told live ({self.answers / took:,.0f} answers/s)",
                f"  happened to stored p50 / p99 {_latency(settled or batches)}"
                + (f", after the first {_SETTLE_S:.0f} s" if settled else ""),
                f"  a batch: Spark / store       {_parts(settled or batches)}",
                f"  live at the end: {stats.events:,} incidents,"
                f" {stats.subscriptions:,} subscriptions",
                f"  memory {_size(stats.bytes_memory)} of the channel,"
                f" disk {_size(stats.bytes_disk + stats.bytes_log)}",
            )
        )


def _latency(batches: list[Batch]) -> str:
    """Median of the batches' medians, and the largest of their p99."""
    known = [batch.latency_s for batch in batches if batch.latency_s is not None]
    if not known:
        return "-"
    middle = sorted(median for median, _, _ in known)[len(known) // 2]
    return f"{middle * 1000:,.0f} / {max(late for _, late, _ in known) * 1000:,.0f} ms"


def _parts(batches: list[Batch]) -> str:
    """Where the time of a batch goes."""
    if not batches:
        return "-"
    spark = sorted(batch.spark_s for batch in batches)[len(batches) // 2]
    store = sorted(batch.store_s for batch in batches)[len(batches) // 2]
    return f"{spark * 1000:,.0f} / {store * 1000:,.1f} ms"


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Ctrl-C pressed again while Spark ends does not cut the summary off."""
    with contextlib.suppress(KeyboardInterrupt):
        yield


class _Quiet:
    """Stands in for the live table where there is no terminal."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None
