"""What a terminal shows while a pipeline runs, and the summary at the end.

    Lively    a table that is redrawn, on a terminal
    Plain     a line a second at most, for a pipe, a log or TERM=dumb
    Lines     a line of JSON for each batch, for programs

They are told of batches by Spark's thread or the caller's, and draw in the caller's.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from dataclasses import asdict
from typing import Any

from tideline.clock import SystemClock
from tideline.spark.pipeline.counts import FATES, Batch, Summary
from tideline.spark.pipeline.run import Watch

__all__ = ["Lines", "Lively", "Plain", "ago", "summary_text", "watch_for_terminal"]

_RECENT_S = 5.0  # rates are those of the last seconds


class _Rate:
    """Rows a second, lately. One lock: two threads come here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, int]] = deque()
        self._started = time.monotonic()

    def add(self, batch: Batch) -> None:
        with self._lock:
            self._recent.append((time.monotonic(), batch.read))

    def now(self) -> float:
        """Rows a second."""
        with self._lock:
            now = time.monotonic()
            while len(self._recent) > 1 and self._recent[0][0] < now - _RECENT_S:
                self._recent.popleft()
            span = max(min(now - self._started, _RECENT_S), 0.2)
            return sum(rows for when, rows in self._recent if when >= now - _RECENT_S) / span


class _Shown(Watch):
    """What both kinds keep."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rate = _Rate()
        self.started = time.monotonic()
        self.last: Batch | None = None
        self.summary: Summary | None = None
        self.phase_text = "starting"

    def phase(self, text: str) -> None:
        self.phase_text = text

    def batch(self, batch: Batch, summary: Summary) -> None:
        self.rate.add(batch)
        self.last, self.summary = batch, summary

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Plain(_Shown):
    """Plain lines."""

    def __init__(self, name: str, every_s: float = 1.0) -> None:
        super().__init__(name)
        self._every_s = every_s
        self._said: Batch | None = None
        self._next = 0.0

    def phase(self, text: str) -> None:
        super().phase(text)
        self._say(f"{self.name}: {text}")

    def tick(self) -> None:
        batch, summary = self.last, self.summary
        if batch is None or summary is None or batch is self._said:
            return
        now = time.monotonic()
        if now >= self._next:
            self._said, self._next = batch, now + self._every_s
            counts = ", ".join(f"{name} {summary.counts[name]:,}" for name in _fates(summary))
            self._say(
                f"batch {batch.number} | {self.rate.now():,.0f} rows/s | {batch.seconds:.2f} s"
                f" | {counts} | newest row {lag(batch)}"
            )

    def _say(self, text: str) -> None:
        print(text, flush=True)


class Lines(_Shown):
    """A line of JSON for each batch."""

    def batch(self, batch: Batch, summary: Summary) -> None:
        sys.stdout.write(json.dumps({"kind": "batch", **asdict(batch)}) + "\n")
        sys.stdout.flush()


class Lively(_Shown):
    """A table that is redrawn."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(name)
        self._live = Live(console=Console(), auto_refresh=False, transient=True)
        self._next = 0.0

    def phase(self, text: str) -> None:
        super().phase(text)
        self._draw()

    def tick(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 0.25
            self._draw()

    def __enter__(self) -> Lively:
        self._live.__enter__()
        return self

    def __exit__(self, *given: Any) -> None:
        self._live.__exit__(*given)

    def _draw(self) -> None:
        from rich.console import Group
        from rich.table import Table

        elapsed = time.monotonic() - self.started
        head = f"[bold]{self.name}[/bold]  {self.phase_text}  {elapsed:.0f} s"
        batch, summary = self.last, self.summary
        if batch is None or summary is None:
            self._live.update(Group(head), refresh=True)
            return
        table = Table.grid(padding=(0, 3))
        left = {
            "rows/s": f"{self.rate.now():,.0f}",
            "batch": f"{batch.number:,} of {batch.read:,} rows",
            "batch time": f"{batch.seconds:.2f} s",
            "newest row": lag(batch),
        }
        right = {name: f"{summary.counts[name]:,}" for name in ("read", *_fates(summary))}
        pairs = list(right.items()) + [("", "")] * max(0, len(left) - len(right))
        firsts = list(left.items()) + [("", "")] * max(0, len(right) - len(left))
        for (one, value), (other, count) in zip(firsts, pairs, strict=True):
            table.add_row(one, value, other, count)
        table.columns[3].justify = "right"
        parts: list[Any] = [head, table, "Ctrl-C stops after the current batch."]
        if summary.counts["dead"]:
            parts.insert(2, f"dead letters are in {summary.dead_letters}")
        self._live.update(Group(*parts), refresh=True)


def watch_for_terminal(name: str, *, as_json: bool) -> Any:
    """What suits standard output."""
    if as_json:
        return Lines(name)
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        return Lively(name)
    return Plain(name)


def summary_text(summary: Summary) -> str:
    """The end of a run, for people."""
    rows_s = summary.counts["read"] / summary.reading_s if summary.reading_s else 0.0
    ended = "stopped" if summary.stopped else "done"
    lines = [
        f"{summary.name}: {ended} after {summary.elapsed_s:.1f} s, {summary.batches:,} batches,"
        f" {rows_s:,.0f} rows/s while reading"
    ]
    names = ("read", *_fates(summary))
    table = [("", *names), ("this run", *(f"{summary.counts[name]:,}" for name in names))]
    if summary.totals != summary.counts:
        table.append(("all runs", *(f"{summary.totals.get(name, 0):,}" for name in names)))
    widths = [max(len(row[n]) for row in table) for n in range(len(names) + 1)]
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join(cells).rstrip())
    if summary.counts["expired"]:
        lines.append(
            f"  {summary.counts['expired']:,} of the stored had ended before they came: no reader "
            "finds them"
        )
    if summary.totals.get("dead"):
        lines.append(f"  dead letters, with reason and text: {summary.dead_letters}")
        lines += [f"    {reason}" for reason in summary.reasons]
    return "\n".join(lines)


def lag(batch: Batch) -> str:
    """How old the newest row of a batch is."""
    if batch.newest_us is None:
        return "none"
    return ago((SystemClock().now() - batch.newest_us) / 1e6)


def ago(seconds: float) -> str:
    """A span in words.

    >>> ago(2.34), ago(7200), ago(-3)
    ('2.3 s ago', '2.0 hours ago', '3.0 s ahead')
    """
    side = "ago" if seconds >= 0 else "ahead"
    amount = abs(seconds)
    for size, name in ((86_400 * 365.25, "years"), (86_400, "days"), (3600, "hours"), (60, "min")):
        if amount >= 2 * size or (name == "hours" and amount >= size):
            return f"{amount / size:.1f} {name} {side}"
    return f"{amount:.1f} s {side}"


def _fates(summary: Summary) -> list[str]:
    """The counts to show: filtered only where something was."""
    return [name for name in FATES if name != "filtered" or summary.totals.get(name)]
