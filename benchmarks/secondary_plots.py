"""The pictures of benchmarks/secondary.py, one a question."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import Results, draw_all

__all__ = ["plots"]

COLORS = {
    "none": "tab:gray", "embedded": "tab:green", "lazy": "tab:blue", "composite": "tab:orange",
    "eager": "tab:red", "SQLite": "tab:purple", "RocksDB": "tab:brown",
}  # fmt: skip
_HIGH = (10, 4)


def plots(results: Results) -> list[Path]:
    """Draw what there is."""
    wanted: list[tuple[str, str, Callable[[Any, Any], Any]]] = [
        ("speed", "speed", _speed), ("static", "basic", _basic), ("static", "put", _put),
        ("static", "user", lambda p, d: _queries(p, d, "user")),
        ("static", "time", lambda p, d: _queries(p, d, "time")),
        ("mixed", "mixed", _mixed), ("bloom", "bloom", _bloom),
    ]  # fmt: skip
    return draw_all(results, "secondary", wanted)


def _bars(axes: Any, names: list[str], values: list[float], title: str) -> None:
    bars = axes.bar(names, values, color=[COLORS[name] for name in names])
    axes.bar_label(bars, [f"{v:,.0f}" if v >= 100 else f"{v:.1f}" for v in values], fontsize=7)
    axes.set_title(title, fontsize=9)
    axes.tick_params(axis="x", rotation=45, labelsize=8)


def _speed(plt: Any, data: Any) -> Any:
    figure, axes = plt.subplots(1, 4, figsize=(13, 4), layout="constrained")
    names = [name for name in COLORS if name in data["size_mb"]]
    _bars(axes[0], names, [data["put"][n]["calls_per_s"] / 1000 for n in names],
          "put_many, thousand a second")  # fmt: skip
    for axis, (what, one) in zip(axes[1:], data["ask"].items(), strict=False):
        asked = [name for name in names if name in one["us"]]
        _bars(axis, asked, [one["us"][name] for name in asked], f"{what}, us")
    return figure


def _basic(plt: Any, data: Any) -> Any:
    figure, axes = plt.subplots(1, 3, figsize=_HIGH, layout="constrained")
    for axis, what in zip(axes, ("size", "put", "get"), strict=True):
        labels, values, colors = [], [], []
        for store in data["stores"]:
            name = (store["kind"], store["field"])
            if what == "size":
                value = store["size_mb"]
            elif what == "put":
                times = [p["cpu_us"] for p in data["parts"] if tuple(p["store"]) == name]
                value = median(times)
            else:
                value = next(
                    g["us"][2] for g in data["get"] if (g["kind"], g["field"]) == name
                )  # fmt: skip
            labels.append(" ".join(name))
            values.append(value)
            colors.append(COLORS[name[0]])
        axis.bar(labels, values, color=colors)
        title = {"size": "size, MB", "put": "put, us", "get": "get, median us"}[what]
        axis.set_title(title)
        axis.tick_params(axis="x", rotation=90, labelsize=7)
    return figure


def _put(plt: Any, data: Any) -> Any:
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for store in data["stores"]:
        name = (store["kind"], store["field"])
        parts = [p for p in data["parts"] if tuple(p["store"]) == name]
        rows = [p["rows"] for p in parts]
        shown = ["user", "time"] if not name[1] else [name[1]]
        for field in shown:
            axes[("user", "time").index(field)].plot(
                rows, [p["cpu_us"] for p in parts], color=COLORS[name[0]], label=name[0]
            )
        if name[0] not in ("none", "embedded"):
            axes[2].plot(
                rows, [p["index_mb"] for p in parts], color=COLORS[name[0]],
                linestyle="-" if name[1] == "user" else "--", label=" ".join(name),
            )  # fmt: skip
    for axis, title in zip(
        axes, ("us a put, index on user", "us a put, index on time", "index written, MB"),
        strict=True,
    ):  # fmt: skip
        axis.set_title(title)
        axis.set_xlabel("tweets")
        axis.legend(fontsize=7)
        axis.grid(alpha=0.3)
    return figure


def _queries(plt: Any, data: Any, field: str) -> Any:
    cells = [c for c in data["queries"] if c["field"] == field]
    widths = list(dict.fromkeys(c["width"] for c in cells))
    kinds = list(dict.fromkeys(c["kind"] for c in cells))
    limits = list(dict.fromkeys(c["k"] for c in cells))
    figure, axes = plt.subplots(1, len(widths), figsize=(13, 4), layout="constrained")
    for axis, width in zip(axes, widths, strict=True):
        for shift, kind in enumerate(kinds):
            boxes = []
            for k in limits:
                us = next(
                    c["us"] for c in cells
                    if c["width"] == width and c["k"] == k and c["kind"] == kind
                )  # fmt: skip
                reach = 1.5 * (us[3] - us[1])
                boxes.append({
                    "med": us[2], "q1": us[1], "q3": us[3], "fliers": [],
                    "whislo": max(us[0], us[1] - reach), "whishi": min(us[4], us[3] + reach),
                })  # fmt: skip
            drawn = axis.bxp(
                boxes, positions=[n * (len(kinds) + 1) + shift for n in range(len(limits))],
                widths=0.8, patch_artist=True, showfliers=False, manage_ticks=False,
            )  # fmt: skip
            for box in drawn["boxes"]:
                box.set_facecolor(COLORS[kind])
            drawn["boxes"][0].set_label(kind)
        axis.set_yscale("log")
        middle = (len(kinds) - 1) / 2
        axis.set_xticks(
            [n * (len(kinds) + 1) + middle for n in range(len(limits))],
            [f"k={k}" if k else "all" for k in limits],
        )
        unit = "users" if field == "user" else "minutes"
        axis.set_title(f"{width} {unit}" if width else f"one {field}", fontsize=9)
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("us (log)")
    axes[0].legend(fontsize=7)
    return figure


def _mixed(plt: Any, data: Any) -> Any:
    figure, axes = plt.subplots(3, 4, figsize=(13, 9), layout="constrained")
    for row, (name, lines) in zip(axes, data["mixes"].items(), strict=True):
        for kind in dict.fromkeys(line["kind"] for line in lines):
            mine = [line for line in lines if line["kind"] == kind]
            done = [line["operations"] for line in mine]
            total = 0
            read = []
            for line in mine:
                total += line["blocks"]["lookup"]
                read.append(total)
            shown = [
                [line["us"] for line in mine], [line["sort_us"]["put"] for line in mine],
                [line["written_mb"] for line in mine], read,
            ]  # fmt: skip
            for axis, values in zip(row, shown, strict=True):
                axis.plot(done, values, color=COLORS[kind], label=kind)
        titles = ("us an operation", "us a put", "seals and merges, MB", "blocks of lookups")
        for axis, title in zip(row, titles, strict=True):
            axis.set_title(f"{name}: {title}", fontsize=9)
            axis.grid(alpha=0.3)
        row[0].legend(fontsize=7)
    return figure


def _bloom(plt: Any, data: Any) -> Any:
    figure, axes = plt.subplots(1, 3, figsize=_HIGH, layout="constrained")
    bits = [line["bits"] for line in data["lines"]]
    for axis, title, values in (
        (axes[0], "mean lookup, us", [line["us"][5] for line in data["lines"]]),
        (axes[1], "blocks a lookup", [line["blocks"] for line in data["lines"]]),
        (axes[2], "size, MB", [line["size_mb"] for line in data["lines"]]),
    ):
        axis.plot(bits, values, "o-", color=COLORS["embedded"])
        axis.set_xscale("log")
        axis.set_xlabel("bits an entry")
        axis.set_ylim(bottom=0)
        axis.set_title(title)
        axis.grid(alpha=0.3)
    return figure
