"""`tideline demo`: drivers over New York State, live in the terminal.

Each driver, as it moves, asks again about a circle around it: what happened there in the last
ten minutes that it was not told yet, and what happens in the next thirty seconds. Incidents
appear near the roads; whoever is near is told at once. Everything is a real single call of
`Channel.publish` or `Channel.subscribe` on a database in a temporary folder, with its log on,
one after the other from one thread, as fast as it goes.

On a terminal a live table; otherwise (a pipe, TERM=dumb) a plain line a second.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

import tideline
from tideline.cli.warm import warm_up
from tideline.errors import InvalidRequest
from tideline.space import Circle, QuadTree
from tideline.workload.newyork import BOUNDS, Incident, NewYork

__all__ = ["run_demo"]

_BACK_S, _AHEAD_S = -600, 5  # a driver asks again before that
_HURRY = 20.0  # the roads run twenty times faster than real ones, so that something is seen
_TURN = 64  # calls between two looks at the clock
_PER_DECADE = 40  # buckets of the histogram: each 6 % wide


class Histogram:
    """Times of calls, in buckets of equal ratio: small and never growing.

    >>> histogram = Histogram()
    >>> for ns in [1000] * 99 + [50_000]:
    ...     histogram.add(ns)
    >>> round(histogram.percentile(50)), round(histogram.percentile(99.5)) > 40
    (1, True)
    """

    def __init__(self) -> None:
        self.counts = [0] * (_PER_DECADE * 11)
        self.total = 0

    def add(self, ns: int) -> None:
        bucket = int(math.log10(ns or 1) * _PER_DECADE)
        self.counts[min(bucket, len(self.counts) - 1)] += 1
        self.total += 1

    def percentile(self, percent: float) -> float:
        """In microseconds; 0 when nothing was added."""
        left = self.total * percent / 100
        for bucket, count in enumerate(self.counts):
            left -= count
            if left < 0:
                return float(10 ** (bucket / _PER_DECADE) / 1000)
        return 0.0


@dataclass
class Story:
    """What has happened so far."""

    publishes: int = 0
    subscribes: int = 0
    live: int = 0
    past: int = 0
    publish_ns: Histogram = field(default_factory=Histogram)
    subscribe_ns: Histogram = field(default_factory=Histogram)
    # incident, the first driver told, how many were
    recent: deque[tuple[Incident, str, int]] = field(default_factory=lambda: deque(maxlen=8))

    @property
    def operations(self) -> int:
        return self.publishes + self.subscribes

    @property
    def answers(self) -> int:
        return self.live + self.past


def run_demo(
    *, seconds: float | None, drivers: int, incidents_s: float, radius_m: float, seed: int
) -> None:
    """Run until `seconds` are over or Ctrl-C, then print a summary."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise InvalidRequest("seconds must be over 0", seconds=seconds)
    if not 1 <= drivers <= 10_000_000:
        raise InvalidRequest("drivers must be 1 to 10,000,000", drivers=drivers)
    if not 0 < incidents_s < math.inf:
        raise InvalidRequest("incidents a second must be over 0", incidents_s=incidents_s)
    console = Console()
    warm_up(quiet=True)
    state = NewYork(drivers=drivers, seed=seed, hurry=_HURRY)
    story = Story()
    started = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="tideline-demo-") as folder,
        tideline.open(folder) as database,
    ):
        roads = database.channel("roads", space=QuadTree(bounds=BOUNDS, depth=9))
        with contextlib.suppress(KeyboardInterrupt):
            _drive(roads, state, story, console, seconds, incidents_s, radius_m)
        took_s = time.perf_counter() - started
        stats = roads.stats()
        print(_summary(story, stats, drivers, took_s), flush=True)


def _drive(
    roads: Any,
    state: NewYork,
    story: Story,
    console: Console,
    seconds: float | None,
    incidents_s: float,
    radius_m: float,
) -> None:
    """The loop: drivers in turn, incidents when they are due, a look at the clock now and then."""
    pretty = console.is_terminal and os.environ.get("TERM") != "dumb"
    started = shown = time.perf_counter()
    before = (0, 0)
    due = driver = 0
    every_s = 0.25 if pretty else 1.0
    with Live(console=console, auto_refresh=False, transient=True) if pretty else _Quiet() as live:
        while True:
            now = time.perf_counter()
            elapsed = now - started
            if seconds is not None and elapsed >= seconds:
                return
            while due < elapsed * incidents_s:
                _happen(roads, state, story)
                due += 1
            for _ in range(_TURN):
                _ask(roads, state, story, driver, elapsed, radius_m)
                driver = (driver + 1) % len(state.drivers)
            if now - shown >= every_s:
                rates = tuple(
                    (count - old) / (now - shown)
                    for count, old in zip((story.operations, story.answers), before, strict=True)
                )
                before, shown = (story.operations, story.answers), now
                stats = roads.stats()
                if pretty:
                    live.update(_table(story, stats, rates, elapsed, console.width), refresh=True)
                else:
                    print(_plain_line(story, stats, rates, elapsed), flush=True)


def _happen(roads: Any, state: NewYork, story: Story) -> None:
    """An incident: publish it, and remember who was told."""
    incident = state.incident()
    start = time.perf_counter_ns()
    told = roads.publish(incident.place, incident.body, ttl_s=incident.ttl_s)
    story.publish_ns.add(time.perf_counter_ns() - start)
    story.publishes += 1
    story.live += len(told.subscriptions)
    first = told.subscriptions[0].user if told.subscriptions else ""
    story.recent.append((incident, first, len(told.subscriptions)))


def _ask(
    roads: Any, state: NewYork, story: Story, driver: int, now_s: float, radius_m: float
) -> None:
    """A driver has moved: ask about the circle around it."""
    who = state.drivers[driver]
    here = Circle(state.move(who, now_s), radius_m=radius_m)
    start = time.perf_counter_ns()
    asked = roads.subscribe(here, user=who.user, since_s=_BACK_S, until_s=_AHEAD_S, unseen=True)
    story.past += len(asked.past)
    story.subscribe_ns.add(time.perf_counter_ns() - start)
    story.subscribes += 1


def _table(story: Story, stats: Any, rates: tuple[float, ...], elapsed: float, width: int) -> Group:
    numbers = Table.grid(padding=(0, 3))
    left = ("operations/s", "answers/s", "publish p50 / p99", "subscribe p50 / p99")
    right = ("live incidents", "live subscriptions", "memory", "disk")
    values = (
        f"{rates[0]:,.0f}",
        f"{rates[1]:,.0f}",
        _times(story.publish_ns),
        _times(story.subscribe_ns),
        f"{stats.events:,}",
        f"{stats.subscriptions:,}",
        _size(stats.bytes_memory),
        _size(stats.bytes_disk + stats.bytes_log),
    )
    for row in range(4):
        numbers.add_row(left[row], values[row], right[row], values[row + 4])
    for column in (1, 3):
        numbers.columns[column].justify = "right"
    recent = Table(title="last incidents", title_justify="left", expand=False)
    # Fixed widths: the table must neither jump about nor lose its right edge.
    widths = {"what": 11, "where": 0, "severity": 8, "who was told": 26}
    widths["where"] = min(46, max(10, width - sum(widths.values()) - 3 * len(widths) - 1))
    for name, chars in widths.items():
        recent.add_column(name, no_wrap=True, width=chars)
    for incident, user, told in reversed(story.recent):
        body = incident.body
        where = f"{body['road']} near {body['near']}"
        who = f"{user} and {told - 1:,} more" if told > 1 else user or "nobody near"
        recent.add_row(body["kind"], where, str(body["severity"]), who)
    return Group(f"New York State, {elapsed:.0f} s", numbers, recent, "Ctrl-C ends the demo.")


def _plain_line(story: Story, stats: Any, rates: tuple[float, ...], elapsed: float) -> str:
    last = ""
    if story.recent:
        incident, _, told = story.recent[-1]
        who = f"{told:,} told" if told else "nobody near"
        last = f" | {incident.body['kind']} near {incident.body['near']}: {who}"
    return (
        f"{elapsed:5.1f} s | {rates[0]:,.0f} operations/s, {rates[1]:,.0f} answers/s"
        f" | publish {_times(story.publish_ns)}, subscribe {_times(story.subscribe_ns)}"
        f" | live {stats.events:,} incidents, {stats.subscriptions:,} subscriptions{last}"
    )


def _summary(story: Story, stats: Any, drivers: int, took_s: float) -> str:
    operations = story.operations / took_s if took_s else 0.0
    answers = story.answers / took_s if took_s else 0.0
    return "\n".join(
        (
            "",
            f"{took_s:.1f} s, {drivers:,} drivers, one thread, single calls, log on",
            f"  {story.publishes:,} incidents published, {story.subscribes:,} questions asked:"
            f" {operations:,.0f} operations/s",
            f"  each driver asked every {took_s * drivers / max(story.subscribes, 1):.1f} s",
            f"  {story.answers:,} answers: {story.past:,} had happened already,"
            f" {story.live:,} told live ({answers:,.0f} answers/s)",
            f"  publish p50 / p99   {_times(story.publish_ns)}",
            f"  subscribe p50 / p99 {_times(story.subscribe_ns)}",
            f"  live at the end: {stats.events:,} incidents, {stats.subscriptions:,} subscriptions",
            f"  memory {_size(stats.bytes_memory)} of the channel, {_size(_resident_bytes())} of"
            f" the process; disk {_size(stats.bytes_disk + stats.bytes_log)}",
        )
    )


def _times(histogram: Histogram) -> str:
    return f"{histogram.percentile(50):.0f} / {histogram.percentile(99):.0f} us"


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


def _resident_bytes() -> int:
    """Memory of this process, where the system says so."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class _Quiet:
    """Stands in for the live table where there is no terminal."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None
