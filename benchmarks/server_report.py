"""The page and the plot of benchmarks/server.py, written from its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common import Results, machine_of, markdown_table, pyplot

__all__ = ["CURVE", "page", "write"]

CURVE = [0, 1, 5, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 100]
"""The percentiles a latency is kept at."""

_GOAL_MS = 10.0
_GOAL_BATCH = 100_000
_TITLES = {
    "latency": "From publish to delivery",
    "deliver": "As many answers as it can",
    "publish": "Publishing",
}
_WAYS = {
    "http 1": "HTTP, one connection, one event a request",
    "http 8": "HTTP, eight connections",
    "tideline 1": "WebSocket, each after the reply to the last",
    "tideline 100": "WebSocket, up to 100 without a reply",
    "batch, nobody listens": "`apply`, tables of {batch:,} events, nobody listens",
    "batch, each answers one": "`apply`, the same, each event delivered to one of 10,000",
    "redis 1": "Redis, each after the reply to the last",
    "redis 100": "Redis, up to 100 without a reply",
}


def write(results: Results) -> list[Path]:
    """Write server.md and, when there is something to show, server.png."""
    written = [results.folder / "server.md"]
    written[0].write_text(page(results.parts))
    latency, publish = results.get("latency"), results.get("publish")
    if latency and publish:
        written.append(results.folder / "server.png")
        _plot(latency, publish, written[1])
    return written


def page(parts: dict[str, Any]) -> str:
    """The results as Markdown; a part that was not run is left out."""
    tables = {"latency": _latency, "deliver": _deliver, "publish": _publish}
    text = [
        "# Server benchmarks\n\nWritten by `python benchmarks/server.py`. One server process; the "
        "publisher and the listener are processes of their own on the same machine and share its "
        "cores with the server. Events have bodies of about 120 bytes; Tideline stores them and "
        "writes its log, Redis pub/sub keeps nothing.\n"
    ]
    for name, table in tables.items():
        if name in parts:
            part = parts[name]
            machine = machine_of(part)
            text.append(
                f"## {_TITLES[name]}\n\n{table(part['data'])}\n"
                f"Commit {part['commit']}, {part['date']}; {machine}, "
                f"Redis {part['data']['redis']}.\n"
            )
    return "\n".join(text)


def _latency(data: dict[str, Any]) -> str:
    rows = []
    for size, systems in data["sizes"].items():
        for name, one in systems.items():
            rows.append([
                f"{int(size):,}", "Redis" if name == "redis" else "Tideline",
                *(f"{one[f'p{p}_ms']:.2f}" for p in (50, 90, 99, 99.9)),
                f"{one['max_ms']:.1f}", f"{one['open_s']:.1f}",
                f"{one['server_cores']:.2f}", f"{one['others_cores']:.2f}",
                "yes" if one["right"] else "**no**",
            ])  # fmt: skip
    head = ["open subscriptions", "", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "most ms"]
    head += ["opened in s", "cores of the server", "of others", "each once"]
    return (
        f"{data['rate']:,} events/s on one WebSocket (Redis: one connection), each answers one "
        f"subscription; the subscriptions are spread over 100 connections. Milliseconds from when "
        f"the event was due to be sent to its arrival, one clock; {data['rounds']} rounds of "
        f"{data['seconds']:g} s each, by turns; a run in which other programs, or the "
        "host of this machine, took more than 0.15 cores, or kept the publisher "
        "(which does little) from its work for more than 6 ms, is made again up to five times, and "
        "the one with the least late publisher counts, for both systems. Goal: p99 under "
        f"{_GOAL_MS:g} ms with 100,000.\n\n" + markdown_table(head, rows)
    )


def _deliver(data: dict[str, Any]) -> str:
    rows = []
    for fanout, systems in data["fanouts"].items():
        ours, theirs = systems["tideline"], systems["redis"]
        rows.append([
            fanout, f"{ours['answers_per_s']:,.0f}", f"{ours['events_per_s']:,.0f}",
            f"{theirs['answers_per_s']:,.0f}", f"{theirs['events_per_s']:,.0f}",
            f"{ours['answers_per_s'] / theirs['answers_per_s']:.0%}",
            "yes" if ours["right"] and theirs["right"] else "**no**",
        ])  # fmt: skip
    head = ["listeners an event", "Tideline answers/s", "events/s", "Redis answers/s", "events/s"]
    head += ["to Redis", "each once"]
    return (
        "One publisher with up to 100 events under way, every event answered on each of so many "
        "connections; the median of the rounds. The listener, one Python process, reads what both "
        "send: where Redis is as fast as it, the figure is the listener's.\n\n"
        + markdown_table(head, rows)
    )


def _publish(data: dict[str, Any]) -> str:
    rates = data["events_per_s"]
    rows = [
        [text.format(batch=data["batch"]), f"{rates[way]:,.0f}"]
        for way, text in _WAYS.items()
        if way in rates
    ]
    return (
        f"Events/s, the median of the rounds. Goal: {_GOAL_BATCH:,} in batches.\n\n"
        + markdown_table(["way in", "events/s"], rows)
    )


def _plot(latency: dict[str, Any], publish: dict[str, Any], path: Path) -> None:
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    # A percentile that is as far from 100 as the last one, in tenths, is as far to the right.
    shown = [(place, p) for place, p in enumerate(CURVE) if 50 <= p <= 99.9]
    for k, (size, systems) in enumerate(latency["sizes"].items()):
        for name, style in (("tideline", "-"), ("redis", "--")):
            values = [systems[name]["curve"][place] for place, _ in shown]
            label = f"{'Redis' if name == 'redis' else 'Tideline'}, {int(size):,}"
            left.plot(range(len(shown)), values, style, color=f"C{k}", marker=".", label=label)
    left.axhline(_GOAL_MS, color="grey", linewidth=1, linestyle=":")
    left.text(0, _GOAL_MS * 1.08, "goal for p99", color="grey", fontsize=8)
    left.set_yscale("log")
    left.set_xticks(range(len(shown)), [f"p{p:g}" for _, p in shown], rotation=45)
    left.set_ylabel("ms from publish to delivery (log)")
    left.set_title(f"{latency['rate']:,} events/s, by open subscriptions")
    left.legend(fontsize=8)

    names = {
        "http 1": "HTTP, 1 connection", "http 8": "HTTP, 8 connections",
        "tideline 1": "WebSocket, one by one", "tideline 100": "WebSocket, 100 under way",
        "batch, each answers one": "apply, each delivered", "batch, nobody listens": "apply",
        "redis 1": "Redis, one by one", "redis 100": "Redis, 100 under way",
    }  # fmt: skip
    ways = [way for way in reversed(names) if way in publish["events_per_s"]]
    rates = [publish["events_per_s"][way] for way in ways]
    colors = ["C7" if way.startswith("redis") else "C0" for way in ways]
    bars = right.barh([names[way] for way in ways], rates, color=colors)
    right.bar_label(bars, [f" {rate / 1000:,.1f}k" for rate in rates], fontsize=8)
    right.axvline(_GOAL_BATCH, color="grey", linewidth=1, linestyle=":")
    right.text(
        _GOAL_BATCH, 1.01, "goal for batches", color="grey", fontsize=8, ha="center",
        transform=right.get_xaxis_transform(),
    )  # fmt: skip
    right.set_xscale("log")
    right.set_xlim(right=max(rates) * 3)
    right.set_xlabel("published events/s (log)")
    figure.savefig(path, dpi=120)
    plt.close(figure)
