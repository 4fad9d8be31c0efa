"""The pictures of benchmarks/experiments.py, one a question."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import Results, draw_all

__all__ = ["plots"]

_COLORS = {
    "dual": "tab:blue", "two": "tab:orange", "poll": "tab:red",
    "variable": "tab:blue", "fixed": "tab:orange", "exact": "tab:green",
}  # fmt: skip
_TITLES = {"all": "any operation", "subscribe": "SUBSCRIBE", "publish": "PUBLISH"}


def plots(results: Results) -> list[Path]:
    """Draw what there is."""
    wanted: list[tuple[str, str, Callable[[Any, Any], Any]]] = [
        ("simple", "simple", _simple),
        ("selfjoin", "selfjoin", _selfjoin),
        ("hierarchy", "hierarchy", _hierarchy),
        ("hierarchy", "granularity", _granularity),
        ("reads", "reads", _reads),
        ("beyond", "beyond", lambda p, d: _simple(p, d["simple"])),
        ("beyond", "beyond-selfjoin", lambda p, d: _selfjoin(p, d["selfjoin"])),
        ("beyond", "beyond-granularity", lambda p, d: _granularity(p, d["hierarchy"])),
    ]
    return draw_all(results, "experiments", wanted)


def _lines(axes: Any, us: dict[str, list[float]], operations: int, title: str) -> None:
    """Microseconds an operation over the run, one point a section."""
    for name, values in us.items():
        done = [(section + 1) * operations / 1000 for section in range(len(values))]
        axes.plot(done, values, "o-", color=_COLORS[name], label=name)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("thousand operations")
    axes.set_ylabel("us an operation")
    axes.grid(alpha=0.3)


def _log(axis: Any) -> None:
    """A logarithmic axis with plain numbers."""
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    low, high = axis.get_ylim()
    # Few powers of ten are in sight: name what lies between them, too.
    axis.yaxis.set_minor_formatter("{x:g}" if high < 12 * low else "")
    axis.tick_params(axis="y", which="both", labelsize=8)


def _by_verb(plt: Any, data: Any, parts: tuple[str, str]) -> Any:
    """A line for each part: all operations by apply, then by calls in all and by verb."""
    figure, axes = plt.subplots(2, 4, figsize=(14, 7), layout="constrained")
    operations = data["run"]["operations"]
    for line, part in zip(axes, parts, strict=True):
        one = data[part]
        _lines(line[0], one["overall"]["us"], operations, f"{part}, any operation, by apply")
        for axis, (verb, title) in zip(line[1:], _TITLES.items(), strict=True):
            _lines(axis, one["verbs"]["us"][verb], operations, f"{part}, {title}, by calls")
        for axis in line:
            _log(axis)
        line[0].legend()
    return figure


def _simple(plt: Any, data: Any) -> Any:
    return _by_verb(plt, data, ("3:1", "1:3"))


def _selfjoin(plt: Any, data: Any) -> Any:
    figure, axes = plt.subplots(2, 3, figsize=(12, 7), layout="constrained")
    for line, ratio in zip(axes, ("3:1", "1:3"), strict=True):
        for axis, (verb, title) in zip(line, _TITLES.items(), strict=True):
            us = data[ratio]["us"][verb]
            _lines(axis, us, data["run"]["operations"], f"{ratio}, {title}")
            axis.set_ylim(bottom=0)
    axes[0][0].legend()
    return figure


def _hierarchy(plt: Any, data: Any) -> Any:
    return _by_verb(plt, data, ("levels", "circles"))


def _granularity(plt: Any, data: Any) -> Any:
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    for axis, what in zip(axes, ("levels", "circles"), strict=True):
        groups = data[what]["verbs"]["by"]
        names = [
            f"level {g['level']}" if "level" in g else f"{g['radius']:g} R" for g in groups
        ]  # fmt: skip
        ways = list(groups[0]["us"])
        for shift, way in enumerate(ways):
            places = [k + (shift - (len(ways) - 1) / 2) * 0.27 for k in range(len(groups))]
            values = [group["us"][way]["all"] for group in groups]
            bars = axis.bar(places, values, 0.25, label=way, color=_COLORS[way])
            axis.bar_label(bars, [f"{value:,.0f}" for value in values], fontsize=8)
        axis.set_xticks(range(len(groups)), names)
        _log(axis)
        axis.set_ylabel("us an operation, by calls (log)")
        axis.set_title(f"{what}, by {'level' if what == 'levels' else 'radius'}", fontsize=10)
        axis.legend()
    return figure


def _reads(plt: Any, data: Any) -> Any:
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    bars = [
        (f"{sort}\n{layout}\n{verb}", one["lookups"], one["there"], _COLORS[layout])
        for sort in ("simple", "selfjoin")
        for layout, found in data[sort].items()
        for verb, one in found["verbs"].items()
    ]
    names, reads, there, colors = zip(*bars, strict=True)
    drawn = axes[0].bar(names, reads, color=colors)
    axes[0].bar_label(drawn, [f"{value:.1f}" for value in reads], fontsize=8)
    axes[0].plot(names, there, "_", color="black", markersize=14, label="components there")
    axes[0].tick_params(axis="x", labelsize=6.5)
    axes[0].set_title("component look-ups an operation", fontsize=10)
    axes[0].legend(fontsize=8)
    levels = data["hierarchy"]["levels"]
    for way in ("variable", "fixed"):
        axes[1].plot(
            [f"level {one['level']}" for one in levels], [one[way] for one in levels], "o-",
            color=_COLORS[way], label=way,
        )  # fmt: skip
    _log(axes[1])
    axes[1].set_title("component look-ups an operation, by level (log)", fontsize=10)
    axes[1].grid(alpha=0.3)
    axes[1].legend()
    return figure
