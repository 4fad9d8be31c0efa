"""The page and the plot of benchmarks/live.py, written from its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common import Results, machine_of, markdown_table, pyplot
from benchmarks.live_served import BOUNDS_MS, PAPER

__all__ = ["page", "write"]

Part = dict[str, Any]


def write(results: Results) -> list[Path]:
    """Write live.md, and live.png with a panel for each part that was run."""
    written = [results.folder / "live.md"]
    written[0].write_text(page(results.parts), encoding="utf-8")
    shown = {name: results.get(name) for name in _PANELS if results.get(name)}
    if shown:
        written.append(results.folder / "live.png")
        _plot(shown, written[1])
    return written


def page(parts: dict[str, Any]) -> str:
    """The results as Markdown; a part that was not run is left out."""
    text = ["# Live queries\n\nWritten by `python benchmarks/live.py`.\n"]
    for name, (title, section) in _SECTIONS.items():
        if name in parts:
            part = parts[name]
            machine = machine_of(part)
            text.append(
                f"## {title}\n\n{section(part['data'])}\nSize {part['data']['size']}, commit "
                f"{part['commit']}, {part['date']}; {machine}.\n"
            )
    if any(name in parts for name in _PANELS):
        text.append("![The same as pictures](live.png)\n")
    return "\n".join(text)


# ---- the page ------------------------------------------------------------------------------------


def _matching(data: Part) -> str:
    head = ["standing queries", "updates/s", "updates/CPU s", "limit/CPU s", "of the limit",
            "put, us", "without, us", "register, us", "cancel, us", "bytes a query"]  # fmt: skip
    lines = []
    for one in data["sizes"]:
        best, limit = max(one["updates_per_cpu_s"]), max(one["limit_per_cpu_s"], default=0)
        lines.append([
            f"{one['queries']:,}", f"{max(one['updates_per_s']):,.0f}", f"{best:,.0f}",
            f"{limit:,.0f}" if limit else "", f"{best / limit:.0%}" if limit else "",
            f"{one['put_us']:.0f}", f"{one['put_alone_us']:.0f}", f"{one['register_us']:.1f}",
            f"{one['cancel_us']:.1f}", f"{one['bytes']:,.0f}",
        ])  # fmt: skip
    first, last = data["sizes"][0], data["sizes"][-1]
    ratio = max(first["updates_per_cpu_s"]) / max(last["updates_per_cpu_s"])
    return (
        "Mixed queries, updates by `put_many` until each is matched; the limit matches rows that "
        "are decoded already, and stores nothing. The best of the rounds.\n\n"
        + markdown_table(head, lines)
        + f"\nA write with {last['queries']:,} queries costs {ratio:.1f} times what it costs with "
        f"{first['queries']:,}.\n"
    )


def _step_line(step: Part, axis: str) -> list[str]:
    shown = [f"{step[name]:.1f}" if name in step else "" for name in
             ("avg_ms", "std_ms", "p50_ms", "p99_ms", "max_ms")]  # fmt: skip
    return [f"{step[axis]:,}", f"{step['written_per_s']:,.0f}", *shown,
            "yes" if step["right"] else "no"]  # fmt: skip


def _sustained(found: dict[str, int], paper: dict[int, int]) -> str:
    return markdown_table(
        ["p99 below", "here", "the paper's 16 nodes"],
        [[f"{bound} ms", f"{found[str(bound)]:,}", f"{paper[bound]:,}" if bound in paper else ""]
         for bound in BOUNDS_MS],
    )  # fmt: skip


def _paper(data: Part) -> str:
    head = ["written/s", "avg. ms", "std. dev.", "p50", "p99", "max", "all came"]
    lone = data["alone"]
    return (
        f"Section 6 of the paper, {data['seconds']:g} s a step. Queries at {data['rate']:,} "
        "writes/s (figure 4, table 3a):\n\n"
        + markdown_table(["queries", *head], [_step_line(s, "queries") for s in data["queries"]])
        + "\n"
        + _sustained(data["sustained_queries"], PAPER["queries"])
        + "\nWrites with 1,000 queries (figure 5, table 3b):\n\n"
        + markdown_table(["writes/s", *head], [_step_line(s, "rate") for s in data["writes"]])
        + "\n"
        + _sustained(data["sustained_writes"], PAPER["writes"])
        + f"\nWithout a server (figure 6), {lone['queries']:,} queries at {lone['rate']:,} writes/s"
        f" by `put`, until the filter stage has told: avg. {lone['avg_ms']:.1f} ms, p99 "
        f"{lone['p99_ms']:.1f} ms, max {lone['max_ms']:.1f} ms.\n"
    )


def _million(data: Part) -> str:
    lines = []
    for name, title in (("quiet", "updates alone"), ("churned", "with registering beside")):
        one = data[name]
        churned = one["churn"]
        lines.append([
            title, f"{one['written_per_s']:,.0f}", f"{one['changes_per_s']:,.0f}",
            *(f"{one[key]:.1f}" if key in one else "" for key in ("p50_ms", "p99_ms", "max_ms")),
            f"{one['resets']:,}", f"{churned['per_s']:,.0f}" if churned else "",
            f"{one['server_cores']:.2f}",
        ])  # fmt: skip
    head = ["", "updates/s", "changes/s", "p50 ms", "p99", "max", "resets",
            "registered and cancelled/s", "server's cores"]  # fmt: skip
    return (
        f"{data['queries']:,} mixed queries on {data['connections']} connections, "
        f"{data['rate']:,} updates/s for {data['seconds']:g} s. Registering took "
        f"{data['register_us']:.0f} us a query, and {data['bytes']:,.0f} bytes of the server. "
        f"Wanted beside: {data['churn']:,} registered and cancelled a second; alone "
        f"{data['churn_alone']['per_s']:,.0f}.\n\n" + markdown_table(head, lines)
    )


def _peers(data: Part) -> str:
    engines = sorted({name for found in data["filter"].values() for name in found},
                     key=lambda name: name != "tideline")  # fmt: skip
    lines = [
        [f"{int(count):,}", *(f"{found[name]:,.0f}" if name in found else "" for name in engines)]
        for count, found in data["filter"].items()
    ]
    ordered = data["sorted"]
    return (
        "Documents a second, matched to standing queries (user, one of three products, category "
        "with prices). All found the same matches. Tideline and PostgreSQL store them, too.\n\n"
        + markdown_table(["standing queries", *engines], lines)
        + f"\nSorted queries, {ordered['queries']:,} with limit {ordered['limit']}; all have the "
        "same results.\n\n"
        + markdown_table(
            ["", "documents/s"],
            [[name, f"{rate:,.0f}"] for name, rate in ordered["documents_per_s"].items()],
        )
        + f"\nPolling: `find` answers {data['poll']['finds_per_s']:,.0f} of these queries a "
        "second, with indexes; so many can be asked again each second, and are a second late. "
        f"Versions: {', '.join(f'{k} {v}' for k, v in data['versions'].items())}.\n"
    )


_SECTIONS = {
    "matching": ("Matching", _matching),
    "paper": ("The paper's section 6, over the server", _paper),
    "million": ("Many queries on many connections", _million),
    "peers": ("Peers", _peers),
}


# ---- the plot ------------------------------------------------------------------------------------


def _draw_matching(axes: Any, data: Part) -> None:
    sizes = [one["queries"] for one in data["sizes"]]
    axes.loglog(sizes, [max(one["updates_per_cpu_s"]) for one in data["sizes"]], "o-", label="ours")
    limits = [max(one["limit_per_cpu_s"], default=0) for one in data["sizes"]]
    if all(limits):
        axes.loglog(sizes, limits, "s--", label="limit")
    axes.set(xlabel="standing queries", ylabel="updates a CPU second", title="matching")
    axes.legend()


def _draw_paper(axes: Any, data: Part) -> None:
    for name, axis, style in (("queries", "queries", "o-"), ("writes", "rate", "s-")):
        steps = [step for step in data[name] if "p99_ms" in step]
        label = "queries, 1,000 writes/s" if name == "queries" else "writes/s, 1,000 queries"
        axes.loglog([s[axis] for s in steps], [s["p99_ms"] for s in steps], style, label=label)
    axes.axhline(30, color="grey", linewidth=0.8)
    axes.set(xlabel="queries, or writes a second", ylabel="p99, ms", title="the paper's section 6")
    axes.legend()


def _draw_peers(axes: Any, data: Part) -> None:
    engines = {name for found in data["filter"].values() for name in found}
    for name in sorted(engines):
        points = [(int(n), found[name]) for n, found in data["filter"].items() if name in found]
        axes.loglog(*zip(*points, strict=True), "o-", label=name)
    axes.set(xlabel="standing queries", ylabel="documents/s", title="peers")
    axes.legend()


_PANELS = {"matching": _draw_matching, "paper": _draw_paper, "peers": _draw_peers}


def _plot(shown: dict[str, Part], path: Path) -> None:
    plt = pyplot()
    figure, grid = plt.subplots(
        1, len(shown), figsize=(5 * len(shown), 3.6), layout="constrained", squeeze=False
    )
    for axes, (name, data) in zip(grid[0], shown.items(), strict=True):
        _PANELS[name](axes, data)
    figure.savefig(path, dpi=110)
    plt.close(figure)
