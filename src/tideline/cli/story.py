"""What the demo tells its terminal: a table that stays in place, a line a second, a summary.

The figures above the line are the page's, from the same feed (figures.py). Those below it are the
pipeline's: what a batch took, and how old rows were when they were stored.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table

if TYPE_CHECKING:
    from tideline.cli.figures import Figures
    from tideline.model import Applied
    from tideline.spark.pipeline import Batch

__all__ = ["Story"]

_SETTLE_S = 5.0


class Story:
    """What has happened so far. Batches come from one thread, looks from another."""

    def __init__(self, roads: Any, drivers: int, figures: Figures, url: str) -> None:
        self._roads = roads
        self._figures = figures
        self._url = url
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
        stats = self._roads.stats()
        return {
            "happened to stored p50 / p99": _latency(last),
            "a batch: Spark / store": _parts(last),
            "memory": _size(stats.bytes_memory),
            "disk": _size(stats.bytes_disk + stats.bytes_log),
        }

    def table(self, width: int) -> Group:
        """All of it, for a terminal."""
        facts = [*self._figures.facts().items(), *self._facts().items()]
        numbers = Table.grid(padding=(0, 3))
        for (left, one), (right, other) in zip(facts[::2], facts[1::2], strict=True):
            numbers.add_row(left, one, right, other)
        for column in (1, 3):
            numbers.columns[column].justify = "right"
            numbers.columns[column].min_width = 10
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
            f"New York State, {self.elapsed_s:.0f} s, {self._drivers:,} drivers; map: {self._url}",
            numbers, recent, "Ctrl-C ends the demo.",
        )  # fmt: skip

    def line(self) -> str:
        """The same in a line."""
        facts = {**self._figures.facts(), **self._facts()}
        last = ""
        with self._lock:
            if self._recent:
                _, body, _, told = self._recent[-1]
                last = f" | {body['kind']} near {body['near']}: " + (
                    f"{told:,} told" if told else "nobody near"
                )
        return (
            f"{self.elapsed_s:5.1f} s | {facts['events/s']} events/s,"
            f" {facts['subscriptions/s']} subscriptions/s, {facts['answers/s']} answers/s"
            f" | {facts['valid events']} valid, {facts['open subscriptions']} open"
            f" | latency {facts['latency p50 / p99']}"
            f" | happened to stored {facts['happened to stored p50 / p99']}{last}"
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
                f"  at the end: {stats.events:,} valid incidents, {stats.subscriptions:,} open"
                " subscriptions",
                f"  the server: {self._figures.summary()}",
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
