"""Pages of results: a table a part, the machine under each, and a picture of curves.

For benchmarks whose parts say what they are by themselves: `write` puts the pieces together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import Results, machine_of, pyplot

__all__ = ["Plot", "Took", "by_turns", "check_same", "draw", "percentiles", "write"]

Curves = Mapping[str, Sequence[tuple[float, float]]]


class Plot(NamedTuple):
    """One picture: its curves, and what stands at the axes."""

    title: str
    across: str
    up: str
    curves: Curves
    log_across: bool = False
    log_up: bool = True


def write(
    results: Results, name: str, title: str, about: str,
    tables: Mapping[str, Callable[[Any], str]], plots: Callable[[dict[str, Any]], list[Plot]],
) -> list[Path]:  # fmt: skip
    """Write NAME.md and, where there is something to draw, NAME.png; the files."""
    text = [f"# {title}\n\n{about}\n"]
    for part, table in tables.items():
        if part in results.parts:
            found = results.parts[part]
            machine = machine_of(found)
            text.append(table(found["data"]))
            text.append(f"Commit {found['commit']}, {found['date']}; {machine}.\n")
    written = [results.folder / f"{name}.md"]
    written[0].write_text("\n".join(text))
    pictures = plots({part: found["data"] for part, found in results.parts.items()})
    if pictures:
        written.append(results.folder / f"{name}.png")
        draw(pictures, written[-1])
    return written


def draw(plots: list[Plot], path: Path) -> None:
    """Pictures side by side, at most three in a row."""
    plt = pyplot()
    wide = min(len(plots), 3)
    high = -(-len(plots) // wide)
    figure, grid = plt.subplots(high, wide, figsize=(5 * wide, 4 * high), squeeze=False)
    for axes in grid.ravel()[len(plots) :]:
        axes.set_visible(False)
    for axes, plot in zip(grid.ravel(), plots, strict=False):
        for name, points in plot.curves.items():
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
        if plot.log_across:
            axes.set_xscale("log")
        if plot.log_up:
            axes.set_yscale("log")
        axes.set_title(plot.title, fontsize=9)
        axes.set_xlabel(plot.across)
        axes.set_ylabel(plot.up)
        axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


class Took(NamedTuple):
    """What a question says itself: how long it took where it was answered, in another process."""

    us: float


def by_turns(asked: Mapping[str, Sequence[Callable[[], Any]]], rounds: int) -> dict[str, Any]:
    """Microseconds of each question, the median of rounds in which all take turns."""
    spent: dict[str, list[list[float]]] = {name: [] for name in asked}
    for _ in range(rounds + 1):  # the first one loads what is used
        for name, questions in asked.items():
            took = []
            for question in questions:
                begun = time.perf_counter()
                own = question()
                us = (time.perf_counter() - begun) * 1e6
                took.append(own.us if isinstance(own, Took) else us)
            spent[name].append(took)
    return {name: np.median(rows[1:], axis=0) for name, rows in spent.items()}


def percentiles(us: Any) -> dict[str, float]:
    """What a table says of the times of many questions.

    >>> percentiles([1.0, 2.0, 9.0])["median"]
    2.0
    """
    return {
        "median": float(np.median(us)),
        "mean": float(np.mean(us)),
        "p95": float(np.percentile(us, 95)),
    }


def check_same(what: str, wanted: Any, found: Mapping[str, Any]) -> None:
    """Refuse figures of wrong answers."""
    for name, its in found.items():
        if its != wanted:
            raise SystemExit(f"{what}: {name} answered {its!r:.200}, wanted {wanted!r:.200}")
