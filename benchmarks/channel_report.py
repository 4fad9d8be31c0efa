"""The page and the plot of benchmarks/channel.py, written from its results."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.common import Results, machine_of, markdown_table, pyplot

__all__ = ["page", "write"]

_TITLES = {
    "workloads": "Beside the limit and RocksDB",
    "single": "Single calls",
    "memory": "Memory",
    "recovery": "Recovery",
    "big": "Many subscriptions in little memory",
}


def write(results: Results) -> list[Path]:
    """Write channel.md and, when there are workloads to show, channel.png."""
    written = [results.folder / "channel.md"]
    written[0].write_text(page(results.parts))
    if results.get("workloads"):
        written.append(results.folder / "channel.png")
        _plot(results.get("workloads"), written[1])
    return written


def page(parts: dict[str, Any]) -> str:
    """The results as Markdown; a part that was not run is left out."""
    tables = {
        "workloads": _workloads,
        "single": _single,
        "memory": _memory,
        "recovery": _recovery,
        "big": _big,
    }
    text = ["# Channel benchmarks\n\nWritten by `python benchmarks/channel.py`.\n"]
    for name, table in tables.items():
        if name in parts:
            part = parts[name]
            machine = machine_of(part)
            text.append(
                f"## {_TITLES[name]}\n\n{table(part['data'])}\n"
                f"Commit {part['commit']}, {part['date']}; {machine}.\n"
            )
    return "\n".join(text)


def _workloads(data: dict[str, Any]) -> str:
    rows = []
    notes = []
    for name, runs in data.items():
        row = [name]
        for who in ("limit", "ours", "peer"):
            run = runs.get(who)
            row.append(f"{run['operations_per_s']:,.0f}" if run else "")
            if run and not run["right"]:
                notes.append(f"**{name}: {who} gave a wrong number of answers.**")
        one = runs.get("ours") or runs.get("limit") or runs.get("peer")
        row.append(f"{one['answers_per_operation']:.1f}" if one else "")
        for who, form in (("limit", "{:.0%}"), ("peer", "{:.1f}x")):
            row.append(
                form.format(_ratio(runs["ours"], runs[who])) if {"ours", who} <= {*runs} else ""
            )
        same = runs.get("same_answers")
        row.append("" if same is None else "yes" if same else "**no**")
        rows.append(row)
    head = ["workload", "limit", "ours", "RocksDB", "answers an operation"]
    head += ["of the limit", "to RocksDB", "same answers"]
    text = (
        "Operations/s, the median of interleaved rounds; a ratio is the median of those inside a "
        "round. The limit is C++ on bare integers; "
        "ours is `Channel.apply` in batches of 10,000 with the log on, from Arrow to Arrow; "
        "RocksDB is `benchmarks/peers/rocks.py`, timed on the operations after the warm-up.\n\n"
    )
    return text + markdown_table(head, rows) + "".join(f"\n{note}\n" for note in notes)


def _ratio(one: dict[str, Any], other: dict[str, Any]) -> float:
    """How many times as fast, inside a round: what the machine does beside is in both."""
    return statistics.median(a / b for a, b in zip(one["rounds"], other["rounds"], strict=True))


def _single(data: dict[str, Any]) -> str:
    rows = [
        [
            kind,
            f"{data[kind]['calls']:,}",
            f"{data[kind]['median_us']:.1f}",
            f"{data[kind]['p99_us']:.1f}",
            f"{data[kind]['kernel_us']:.1f}",
            f"{data[kind]['median_us'] - data[kind]['kernel_us']:.1f}",
        ]
        for kind in ("publish", "subscribe")
    ]
    head = ["call", "calls", "median us", "p99 us", "bare kernel us", "over the kernel us"]
    runs = data.get("runs", [data])
    over = "; ".join(
        f"{kind} "
        + ", ".join(f"{run[kind]['median_us'] - run[kind]['kernel_us']:.1f}" for run in runs)
        for kind in ("publish", "subscribe")
    )
    text = (
        "The least disturbed of some runs: that whose kernels took the least. Goal: a median of at "
        "most 8 us over the kernel.\n\n"
    )
    text += markdown_table(head, rows) + f"\nOver the kernel in all runs, us: {over}.\n"
    if data.get("parts"):
        steps = [[name, f"{took:.2f}"] for name, took in data["parts"].items()]
        text += (
            "\nThe steps of a publish around the kernel, each alone; the call itself, and that it "
            "finds colder caches, make up the rest. The last one is only done when somebody looks."
            "\n\n" + markdown_table(["step", "us"], steps)
        )
    return text


def _memory(data: dict[str, Any]) -> str:
    rows = [
        [
            "event, body of 100 bytes" if kind == "publish" else "subscription",
            f"{one['records']:,}",
            *(f"{one[f'{name}_per_record']:.0f}" for name in ("uss", "rss", "stats")),
            f"{one['left_uss_mb']:.1f}",
            f"{one['left_stats_mb']:.1f}",
        ]
        for kind, one in data.items()
    ]
    head = ["record", "live", "USS bytes each", "RSS bytes each", "stats() bytes each"]
    head += ["USS MB left after expiry", "stats() MB left"]
    return markdown_table(head, rows)


def _recovery(data: dict[str, Any]) -> str:
    names = {"replay": "after a kill, all in the log", "open": "closed, memory_mb=256"}
    rows = [
        [
            names[name],
            f"{one['records']:,}",
            f"{one['size_mb']:,.0f}",
            f"{one['open_s']:.2f}",
            f"{one['first_answer_s']:.2f}",
            f"{one['records_per_s']:,.0f}",
            "yes" if one["right"] else "**no**",
        ]
        for name, one in data.items()
    ]
    head = ["folder", "records", "MB", "open s", "first answer s", "records/s", "all there"]
    return markdown_table(head, rows)


def _big(data: dict[str, Any]) -> str:
    row = [
        f"{data['subscriptions']:,}",
        f"{data['operations_per_s']:,.0f}",
        f"{data['publish_ms']:.2f}",
        f"{data['peak_rss_mb']:,.0f}",
        f"{data['disk_mb']:,.0f}",
        "yes" if data["right"] else "**no**",
    ]
    head = ["live subscriptions", "operations/s", "publish ms (100 answers)", "peak RSS MB"]
    head += ["disk MB", "right answers"]
    return "With `memory_mb=512`.\n\n" + markdown_table(head, [row])


def _plot(data: dict[str, Any], path: Path) -> None:
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    names = {"limit": "C++ limit", "ours": "Tideline", "peer": "RocksDB"}
    for shift, (who, label) in enumerate(names.items()):
        rates = [runs.get(who, {}).get("operations_per_s", 0) for runs in data.values()]
        places = [k + (shift - 1) * 0.27 for k in range(len(data))]
        bars = axes.bar(places, rates, 0.25, label=label)
        axes.bar_label(bars, [f"{rate / 1000:,.0f}k" if rate else "" for rate in rates], fontsize=8)
    axes.set_yscale("log")
    axes.set_xticks(range(len(data)), list(data))
    axes.set_ylabel("operations/s (log)")
    axes.set_title("Publish and subscribe through apply, log on")
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
