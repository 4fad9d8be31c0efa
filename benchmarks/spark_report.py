"""The page and the plot of benchmarks/spark.py, written from its results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import Results, machine_of, markdown_table, pyplot
from benchmarks.spark_match import BATCH, MATCH, STREAMS

__all__ = ["page", "write"]

Part = dict[str, Any]
GOAL_LOAD = 300_000
GOAL_MATCH = 150_000
_ENGINES = (MATCH, f"{MATCH}, local[1]", *STREAMS[1:], *BATCH)


def write(results: Results) -> list[Path]:
    """Write spark.md, and spark.png with a panel for each part that was run."""
    written = [results.folder / "spark.md"]
    written[0].write_text(page(results.parts))
    shown = {name: results.get(name) for name in _PANELS if results.get(name)}
    if shown:
        written.append(results.folder / "spark.png")
        _plot(shown, written[1])
    return written


def page(parts: dict[str, Any]) -> str:
    """The results as Markdown; a part that was not run is left out."""
    text = ["# Spark benchmarks\n\nWritten by `python benchmarks/spark.py`.\n"]
    for name, (title, section) in _SECTIONS.items():
        if name in parts:
            part = parts[name]
            machine = machine_of(part)
            text.append(
                f"## {title}\n\n{section(part['data'])}\n"
                f"Size {part['data']['size']}, commit {part['commit']}, {part['date']}; "
                f"{machine}, {part['data']['versions']}.\n"
            )
    return "\n".join(text)


# --- the page ---


def _load(data: Part) -> str:
    operations = data["operations"]
    pipeline = data["pipeline"]
    rows = [
        ["the pipeline, files to store", f"{pipeline['operations_per_s']:,.0f}", _yes(pipeline)],
        ["Spark alone, files to Arrow", f"{data['Spark']['operations_per_s']:,.0f}", ""],
        ["the store alone, Arrow to log", f"{data['store']['operations_per_s']:,.0f}",
         _yes(data["store"])],
    ]  # fmt: skip
    names = {
        "spark": "Spark: read, stages, to Arrow",
        "sift": "sift: sort, queue",
        "store": "store: `Channel.apply`",
        "write": "write: what came of the batch",
    }
    parts = [
        [title, f"{spent:.2f}", f"{spent / pipeline['spent_s']:.0%}", f"{operations / spent:,.0f}"]
        for name, title in names.items()
        if name in pipeline.get("parts_s", ())
        for spent in [pipeline["parts_s"][name]]
    ]
    inside = (
        f"\nInside the pipeline ({pipeline['spent_s']:.2f} s from call to return). Spark reads a "
        "batch while the store takes the one before, so the parts overlap:\n\n"
        + markdown_table(["part", "s", "of the whole", "operations/s"], parts)
    )
    return (
        f"{operations:,} operations in {data['files']} Parquet files, "
        f"{'a file' if parts else 'four files'} a batch, three "
        f"subscriptions to an event, {data['answers'] / operations:.0f} answers an operation; "
        f"two tasks; the median of {data['rounds']} rounds by turns. "
        f"Goal: {GOAL_LOAD:,} operations/s.\n\n"
        + markdown_table(["what", "operations/s", "right answers"], rows)
        + (inside if parts else "")
    )


def _match(data: Part) -> str:
    engines = data["engines"]
    head = ["engine", "rows/s", "micro-batch ms", "running, rows/s", "answers", "right answers"]
    batch_rows = 2 * data["per_side"] / data["files"]

    def running(batch_ms: float) -> list[str]:
        return [f"{batch_ms:,.0f}", f"{batch_rows / batch_ms * 1e3:,.0f}"] if batch_ms else ["", ""]

    rows = [
        [name, f"{one['rows_per_s']:,.0f}", *running(one["batch_ms"]), f"{one['answers']:,}",
         _yes(one)]
        for name in _ENGINES for one in [engines[name]]
    ]  # fmt: skip
    ratios = [[name, f"{ratio:.2f}"] for name, ratio in data["ratios"].items()]
    return (
        f"{data['per_side']:,} subscriptions and as many events at {data['places']:,} places over "
        f"{data['seconds']:.0f} s, windows of 10 s back and 10 s ahead, {data['files']} "
        f"micro-batches; two tasks unless said otherwise; the median of {data['rounds']} rounds by "
        "turns. A rate is rows of both sides over the time of the whole query, from its start to "
        "its end, answers in Parquet; `running` is that of the median micro-batch, which is "
        f"what a stream that goes on for hours sees. Goal: {GOAL_MATCH:,} rows/s and 3 times the "
        "join on RocksDB.\n\n"
        + markdown_table(head, rows)
        + "\nHow many times as fast, inside one round:\n\n"
        + markdown_table(["`match`", "times"], ratios)
    )


def _state(data: Part) -> str:
    size = [count / 1e6 for count in data["bytes"]]
    picked = sorted({0, 1, 3, *range(4, len(size), max(1, len(size) // 8)), len(size) - 1})
    rows = [
        [str(number + 1), f"{(number + 1) * data['batch_s']:.0f}", f"{size[number]:.1f}",
         f"{data['batch_ms'][number]:,.0f}"]
        for number in picked if number < len(size)
    ]  # fmt: skip
    half = size[len(size) // 2 :]
    return (
        f"{data['rows_per_batch']:,} rows a micro-batch of {data['batch_s']:.0f} s; a window is "
        f"open for 20 s, an event valid for 20 s. Over the second half of the stream state is "
        f"{min(half):.1f} to {max(half):.1f} MB, the last {half[-1]:.1f} MB. "
        f"Right answers: {_yes(data)}.\n\n"
        + markdown_table(["micro-batch", "stream s", "state MB", "took ms"], rows)
    )


def _latency(data: Part) -> str:
    rows = [
        [stage, f"{data['mean_s'][stage] * 1000:,.0f}",
         f"{data['mean_s'][stage] / sum(data['mean_s'].values()):.0%}",
         f"{data['mean_of_slowest_s'][stage] * 1000:,.0f}"]
        for stage in data["mean_s"]
    ]  # fmt: skip
    return (
        f"{data['rate']:,} events/s for {data['seconds']:.0f} s as JSON files every 100 ms, two "
        f"answers an event; {data['answers']:,} answers timed, from when an event was created to "
        f"when its subscriber had it: **median {data['median_s']:.2f} s, p99 {data['p99_s']:.2f} "
        f"s**, most {data['most_s']:.2f} s. {data['batches']} micro-batches, the median one of "
        f"{data['batch_rows']:,.0f} rows.\n\n"
        + markdown_table(["stage", "mean ms", "share", "mean ms of the slowest 1%"], rows)
        + "\n\nWhat a micro-batch spends where, by Spark's names, in the mean; `addBatch` is the "
        "query with our sink. The floor is a query that reads the same files into nothing.\n\n"
        + markdown_table(
            ["part", "pipeline, ms", "floor, ms"],
            [
                [name, f"{spent:,.0f}", f"{data['floor_ms'].get(name, 0):,.0f}"]
                for name, spent in data["parts_ms"].items()
            ],
        )
    )


def _yes(part: Part) -> str:
    return "yes" if part["right"] else "**no**"


_SECTIONS: dict[str, tuple[str, Callable[[Part], str]]] = {
    "load": ("Into the store", _load),
    "match": ("Matching", _match),
    "state": ("State of a stream", _state),
    "latency": ("From event to answer", _latency),
}

# --- the plot ---

_OURS, _OTHER, _GOAL = "#1f6f8b", "#b8b8b8", "#c44536"


def _plot(data: dict[str, Part], path: Path) -> None:
    plt = pyplot()
    lines = -(-len(data) // 2)
    figure, axes = plt.subplots(
        lines, min(len(data), 2), figsize=(12, 3.8 * lines), layout="constrained", squeeze=False
    )
    for panel in axes.flat[len(data) :]:
        panel.set_visible(False)
    for panel, (name, part) in zip(axes.flat, data.items(), strict=False):
        _PANELS[name](panel, part)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _bars(panel: Any, rates: dict[str, float], ours: set[str], goal: float, unit: str) -> None:
    names = list(rates)[::-1]
    colors = [_OURS if name in ours else _OTHER for name in names]
    bars = panel.barh(names, [rates[name] / 1000 for name in names], color=colors)
    panel.bar_label(bars, [f" {rates[name] / 1000:,.0f}k" for name in names])
    panel.axvline(goal / 1000, color=_GOAL, linestyle="--", linewidth=1)
    panel.annotate(
        f"goal {goal / 1000:,.0f}k", (goal / 1000, 1.0), xycoords=("data", "axes fraction"),
        xytext=(3, -2), textcoords="offset points", color=_GOAL, fontsize=9, va="top",
    )  # fmt: skip
    panel.set_xlim(0, max([goal, *rates.values()]) / 1000 * 1.18)
    panel.set_xlabel(unit)


def _load_panel(panel: Any, data: Part) -> None:
    rates = {
        "pipeline": data["pipeline"]["operations_per_s"],
        "Spark alone": data["Spark"]["operations_per_s"],
        "store alone": data["store"]["operations_per_s"],
    }
    _bars(panel, rates, {"pipeline"}, GOAL_LOAD, "thousand operations/s")
    panel.set_title("From Parquet into the store")


def _match_panel(panel: Any, data: Part) -> None:
    rates = {
        name.replace(", ", ",\n"): data["engines"][name]["rows_per_s"]
        for name in _ENGINES
        if name not in BATCH
    }
    ours = {name for name in rates if name.startswith("match")}
    _bars(panel, rates, ours, GOAL_MATCH, "thousand rows/s")
    ratio = data["ratios"]["to the join on RocksDB"]
    panel.set_title(f"Matching streams: {ratio:.1f} times the join on RocksDB")


def _state_panel(panel: Any, data: Part) -> None:
    size = [count / 1e6 for count in data["bytes"]]
    moments = [(number + 1) * data["batch_s"] for number in range(len(size))]
    panel.plot(moments, size, color=_OURS, marker="o", markersize=3)
    panel.axvline(20, color=_GOAL, linestyle="--", linewidth=1)
    panel.annotate(
        "first windows expire", (20, 0.02), xycoords=("data", "axes fraction"), xytext=(4, 0),
        textcoords="offset points", color=_GOAL, fontsize=9,
    )  # fmt: skip
    panel.set_ylim(bottom=0)
    panel.set_xlim(left=0)
    panel.set_xlabel("seconds of the stream")
    panel.set_ylabel("MB of state")
    panel.set_title("State of match over a stream")


def _latency_panel(panel: Any, data: Part) -> None:
    import matplotlib.pyplot as plt

    colors = plt.get_cmap("viridis")
    kinds = {"all": data["mean_s"], "slowest 1%": data["mean_of_slowest_s"]}
    for place, parts in enumerate(kinds.values()):
        left = 0.0
        for number, stage in enumerate(parts):
            color = colors(number / max(len(parts) - 1, 1))
            label = stage if not place else None
            width = max(parts[stage], 0.0)
            panel.barh(place, width, left=left, color=color, label=label, height=0.55)
            left += width
    panel.set_yticks(range(len(kinds)), list(kinds))
    panel.set_ylim(-0.6, 1.9)
    panel.set_xlabel("seconds since the event was created, mean")
    panel.legend(ncols=3, fontsize=8, loc="upper left", frameon=False)
    panel.set_title(
        f"Event to answer at {data['rate']:,}/s: "
        f"median {data['median_s']:.2f} s, p99 {data['p99_s']:.2f} s"
    )


_PANELS: dict[str, Callable[[Any, Part], None]] = {
    "load": _load_panel,
    "match": _match_panel,
    "state": _state_panel,
    "latency": _latency_panel,
}
