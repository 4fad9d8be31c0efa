"""What the demo tells its terminal: a table that stays in place, a line a second, a summary.

The figures are the page's, from the same feed (figures.py), and Spark's, from its process
(spark_feed.py). Bodies are whatever visitors publish: `describe` makes a short plain text of any.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tideline.cli.output import clean

if TYPE_CHECKING:
    from tideline.cli.figures import Figures
    from tideline.cli.spark_feed import SparkFeed
    from tideline.cli.traffic import Traffic

__all__ = ["Story", "describe"]

_SETTLE_S = 5.0
_LAST_S = 5.0
_SLOW = 0.9  # a pace below this is said


class Story:
    """What has happened so far. Any thread may look."""

    def __init__(
        self, database: Any, drivers: int, figures: Figures, traffic: Traffic, spark: SparkFeed,
        url: str,
    ) -> None:  # fmt: skip
        self._database = database
        self._drivers = drivers
        self._figures = figures
        self._traffic = traffic
        self._spark = spark
        self._url = url
        self._begun = time.perf_counter()
        self._ended: float | None = None

    @property
    def elapsed_s(self) -> float:
        ended = time.perf_counter() if self._ended is None else self._ended
        return ended - self._begun

    def end(self) -> None:
        """The demo stops: its time is over."""
        self._ended = time.perf_counter()

    def status(self) -> str:
        """What Spark does, for the page and the terminal."""
        spark = self._spark
        if spark.state == "starting":
            text = "Spark: starting…"
        elif spark.state == "feeding":
            rows = sum(batch["stored"] for batch in spark.last(_LAST_S)) / _LAST_S
            text = f"Spark: feeding {rows:,.0f} rows/s" if rows >= 1 else "Spark: feeding"
        else:
            text = f"Spark: off, {clean(spark.why, 200)}"
        pace = self._traffic.pace
        return text if pace >= _SLOW else f"{text} · traffic at {pace:.0%}: this machine is busy"

    def _facts(self) -> dict[str, str]:
        last = self._spark.last(_LAST_S)
        memory, disk = self._sizes()
        return {
            "Spark, a batch": _batch(last),
            "Spark, rows a batch": _rows(last),
            "memory": memory,
            "disk": disk,
        }

    def _sizes(self) -> tuple[str, str]:
        """Of all channels there are: visitors may have made others."""
        stats = list(self._database.stats().values())
        memory = sum(each.bytes_memory for each in stats)
        disk = sum(each.bytes_disk + getattr(each, "bytes_log", 0) for each in stats)
        return _size(memory), _size(disk)

    def table(self, width: int) -> Group:
        """All of it, for a terminal."""
        facts = [*self._figures.facts().items(), *self._facts().items()]
        numbers = Table.grid(padding=(0, 3))
        for (left, one), (right, other) in zip(facts[::2], facts[1::2], strict=True):
            numbers.add_row(left, one, right, other)
        for column in (1, 3):
            numbers.columns[column].justify = "right"
            numbers.columns[column].min_width = 10
        recent = Table(title="last events", title_justify="left", expand=False)
        # Fixed widths: the table must neither jump about nor lose its right edge.
        widths = {"when": 8, "what": 14, "where": 0, "who was told": 14}
        widths["where"] = min(46, max(10, width - sum(widths.values()) - 3 * len(widths) - 1))
        for name, chars in widths.items():
            recent.add_column(name, no_wrap=True, width=chars)
        for happened in self._figures.recent():
            what, where = describe(happened.body)
            row = happened.when, what, where, _told(happened.told)
            recent.add_row(*(Text(text) for text in row))  # no markup: it is a visitor's text
        head = (
            f"New York State, {self.elapsed_s:.0f} s, {self._drivers:,} drivers; map: {self._url}"
        )
        return Group(
            Text(head), Text(self.status()), numbers, recent, Text("Ctrl-C ends the demo.")
        )

    def line(self) -> str:
        """The same in a line."""
        facts = self._figures.facts()
        last = ""
        for happened in self._figures.recent()[:1]:
            what, where = describe(happened.body)
            last = f" | {what}{where and ', '}{where}: {_told(happened.told)}"
        return (
            f"{self.elapsed_s:5.1f} s | {facts['events/s']} events/s,"
            f" {facts['subscriptions/s']} subscriptions/s, {facts['answers/s']} answers/s"
            f" | {facts['valid events']} valid, {facts['open subscriptions']} open"
            f" | latency {facts['latency p50 / p99']} | {self.status()}{last}"
        )

    def summary(self) -> str:
        """What it came to."""
        spark, figures = self._spark, self._figures
        batches = [batch for _, batch in spark.batches]
        horizon = spark.batches[0][0] + _SETTLE_S if batches else 0.0
        # The first batches compile and load: they say nothing about the others.
        settled = [batch for when, batch in list(spark.batches) if when >= horizon]
        took = max(self.elapsed_s, 0.001)
        counted = ", ".join(
            f"{figures.count(name):,} {name}" for name in ("subscriptions", "events", "answers")
        )
        facts = figures.facts()
        memory, disk = self._sizes()
        lines = [
            "",
            f"{took:.1f} s, {self._drivers:,} drivers",
            f"  the server: {counted} ({figures.count('answers') / took:,.0f} answers/s)",
            f"  to a socket p50 / p99 {figures.latency()}",
            f"  at the end: {facts['valid events']} valid events,"
            f" {facts['open subscriptions']} open subscriptions",
        ]
        if batches:
            rows = ", ".join(f"{count:,} {name}" for name, count in spark.counts.items())
            lines += [
                f"  Spark: {len(batches):,} batches; rows: {rows}",
                f"    a batch: {_batch(settled or batches)}, {_rows(settled or batches)} rows",
            ]
        elif spark.why:
            lines.append(f"  Spark: off, {clean(spark.why, 200)}")
        else:
            lines.append("  Spark: it had not started when the demo ended")
        return "\n".join((*lines, f"  memory {memory}, disk {disk}"))


def describe(body: Any) -> tuple[str, str]:
    """What happened, and where, of any JSON that a visitor may publish; short plain texts.

    >>> describe({"kind": "fire", "road": "I-90", "near": "Utica"})
    ('fire', 'I-90 near Utica')
    >>> describe({"kind": "snow"}), describe([1, None]), describe(None)
    (('snow', ''), ('[1,null]', ''), ('null', ''))
    """
    if not isinstance(body, dict):
        return _short(body), ""
    what = _short(body["kind"]) if "kind" in body else _short(body)
    parts = [_short(body.get("road", "")), _short(body.get("near", ""))]
    return what, " near ".join(part for part in parts if part)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode(errors="replace")
    return clean(text, 60)


def _told(count: int) -> str:
    return f"{count:,} told" if count else "nobody near"


def _batch(batches: list[dict[str, Any]]) -> str:
    """How long a batch takes."""
    if not batches:
        return "-"
    return f"{sorted(batch['seconds'] for batch in batches)[len(batches) // 2] * 1000:,.0f} ms"


def _rows(batches: list[dict[str, Any]]) -> str:
    """How many rows a batch has."""
    if not batches:
        return "-"
    return f"{sorted(batch['read'] for batch in batches)[len(batches) // 2]:,}"


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
