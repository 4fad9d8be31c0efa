"""The pictures of benchmarks/side_by_side.py: speed, single calls, growth."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import Results, draw_all
from benchmarks.side_common import SYSTEMS

__all__ = ["plots"]

COLORS = {
    "tideline": "#1b6ca8", "tideline-server": "#74b3dd", "sqlite": "#8a6fb0", "rocksdb": "#a5673f",
    "postgres": "#3d8b6e", "redis": "#c8473f", "nats": "#8c8c8c",
}  # fmt: skip
NAMES = {
    "tideline": "Tideline", "sqlite": "SQLite", "rocksdb": "RocksDB",
    "tideline-server": "Tideline\nserver", "postgres": "PostgreSQL", "redis": "Redis",
    "nats": "NATS",
}  # fmt: skip


def plots(results: Results) -> list[Path]:
    """Draw what there is."""
    draws = {"speed": _speed, "single": _single, "growth": _growth}
    wanted = [(part, part, partial(_of_systems, draw)) for part, draw in draws.items()]
    return draw_all(results, "side-by-side", wanted)


def _of_systems(draw: Any, plt: Any, data: Any) -> Any:
    return draw(plt, data["systems"])


def _bars(axis: Any, values: dict[str, float], title: str, unit: str) -> None:
    keys = [key for key in SYSTEMS if values.get(key)]
    heights = [values[key] for key in keys]
    bars = axis.bar([NAMES[key] for key in keys], heights, color=[COLORS[key] for key in keys])
    axis.bar_label(bars, [f"{v:,.0f}" for v in heights], fontsize=8, padding=2)
    axis.set_yscale("log")
    if heights:
        axis.set_ylim(min(heights) / 3, max(heights) * 3)
    axis.set_title(title, fontsize=10)
    axis.set_ylabel(unit, fontsize=9)
    axis.tick_params(axis="x", labelsize=8, rotation=30)
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)


def _speed(plt: Any, data: Any) -> Any:
    figure, axes = plt.subplots(
        1, len(data), figsize=(11, 4.2), layout="constrained", squeeze=False
    )
    for axis, mix in zip(axes[0], sorted(data, reverse=True), strict=True):
        rates = {key: one["operations_per_s"] for key, one in data[mix].items()}
        _bars(axis, rates, f"{mix} subscriptions to events, in batches", "operations/s (log)")
    return figure


def _single(plt: Any, data: Any) -> Any:
    verbs = ("publish", "subscribe", "deliver")
    figure, axes = plt.subplots(2, 3, figsize=(13, 8), layout="constrained")
    for row, which in zip(axes, ("p50", "p99"), strict=True):
        for axis, verb in zip(row, verbs, strict=True):
            measured = {key: one.get(verb) for key, one in data.items()}
            values = {k: one[f"{which}_us"] for k, one in measured.items() if isinstance(one, dict)}
            _bars(axis, values, f"{verb}, {which}", "us (log)")
    return figure


def _growth(plt: Any, data: Any) -> Any:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for axis, what, unit in (
        (axes[0], "operations_per_s", "operations/s (log)"),
        (axes[1], "memory_mb", "memory, MB (log)"),
    ):  # fmt: skip
        for key in SYSTEMS:
            sizes = data.get(key, {}).get("sizes", [])
            if sizes:
                server = SYSTEMS[key].where == "server"
                axis.plot(
                    [one["subscriptions"] for one in sizes], [one[what] for one in sizes],
                    "o--" if server else "o-", color=COLORS[key],
                    label=NAMES[key].replace("\n", ", "),
                )  # fmt: skip
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("live subscriptions")
        axis.set_ylabel(unit, fontsize=9)
        axis.grid(alpha=0.3)
    if axes[0].lines:
        axes[0].legend(fontsize=8)
    return figure
