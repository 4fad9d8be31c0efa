"""The page of benchmarks/secondary.py, written from its results; pictures in secondary_plots."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import Results, machine_of, markdown_table
from benchmarks.secondary_plots import plots

__all__ = ["page", "write"]

KINDS = ("none", "embedded", "lazy", "composite", "eager")
Data = dict[str, Any]


def write(results: Results) -> list[Path]:
    """Write secondary.md and a picture a question."""
    written = [results.folder / "secondary.md"]
    written[0].write_text(page(results.parts))
    return written + plots(results)


def page(parts: Data) -> str:
    """The results as Markdown; a part that was not run is left out."""
    sections = {
        "speed": [("Beside SQLite and RocksDB", speed)],
        "static": [
            ("Size, put and get by kind", basic),
            ("Puts and what merges write, over time", over_time),
            ("Lookups of `user`, which time says nothing about", lambda d: queries(d, "user")),
            ("Lookups of `time`, which rises with the writes", lambda d: queries(d, "time")),
        ],
        "mixed": [("Mixes of puts, gets and lookups", mixed)],
        "bloom": [("The length of bloom filters", bloom)],
    }
    text = ["# Index benchmarks\n\nWritten by `python benchmarks/secondary.py`.\n"]
    for name, tables in sections.items():
        if name in parts:
            part = parts[name]
            machine = machine_of(part)
            for title, table in tables:
                text.append(f"## {title}\n\n{table(part['data'])}")
            text.append(f"Commit {part['commit']}, {part['date']}; {machine}.\n")
    return "\n".join(text)


# ---- beside others ---------------------------------------------------------------------------


def speed(data: Data) -> str:
    """Puts, gets, lookups and sizes of ours and the peers."""
    put, ask = data["put"], data["ask"]
    rows = []
    base = put["SQLite"]
    for name in (*KINDS, "SQLite", "RocksDB"):
        if name not in put:
            continue
        one = put[name]
        row = [
            name if name in ("SQLite", "RocksDB") else f"ours, {name}",
            f"{one['calls_per_s']:,.0f}", f"{one['calls_per_s'] / base['calls_per_s']:.1f}x",
            f"{one['settled_per_s']:,.0f}", f"{one['settled_per_s'] / base['settled_per_s']:.1f}x",
            f"{data['size_mb'][name]:,.0f}",
        ]  # fmt: skip
        row += [f"{what['us'][name]:.1f}" if name in what["us"] else "" for what in ask.values()]
        rows.append(row)
    head = ["store", "put_many/s", "to SQLite", "settled/s", "to SQLite", "MB"]
    head += [f"{what}, us" for what in ask]
    wrong = [f"{n}: {w}" for w, one in ask.items() for n, same in one["same"].items() if not same]
    text = (
        f"{data['count']:,} tweets of {put['document_bytes']:.0f} bytes, batches of "
        f"{data['batch']:,}, indexes on `user` and `time` (but for `none`). `put_many/s` counts "
        "the calls; `settled` also the time until memory is on disk and merges are done, five "
        "times a run. Gets are of 1,000 records over and over; documents are decoded. A lookup of "
        f"`user` finds {ask['lookup user, k=10']['found']:.1f}. "
        + ("**Other answers: " + "; ".join(wrong) + "**" if wrong else "All answers are the same.")
        + "\n\n"
    )
    none, embedded = put["none"], put["embedded"]
    sizes = data["size_mb"]
    calls, settled = (embedded[k] / none[k] - 1 for k in ("calls_per_s", "settled_per_s"))
    tail = (
        f"\nEmbedded beside no index: {calls:+.0%} puts/s by calls, {settled:+.0%} settled, "
        f"{sizes['embedded'] / sizes['none'] - 1:+.1%} size.\n"
    )
    return text + markdown_table(head, rows) + tail


# ---- static ----------------------------------------------------------------------------------


def basic(data: Data) -> str:
    """Figure 3.8: size, put and get."""
    stores = {(s["kind"], s["field"]): s for s in data["stores"]}
    gets = {(g["kind"], g["field"]): g for g in data["get"]}
    cpu = {name: [p["cpu_us"] for p in data["parts"] if tuple(p["store"]) == name]
           for name in stores}  # fmt: skip
    base, size = median(cpu["none", ""]), stores["none", ""]["size_mb"]
    more = {
        name: median([mine - without for mine, without in zip(each, cpu["none", ""], strict=True)])
        for name, each in cpu.items()
    }
    rows = []
    for kind in KINDS:
        user, time = (kind, "user"), (kind, "time")
        if kind == "none":
            user = time = ("none", "")
        if user not in stores:
            continue
        got = [gets[user], gets[time]]
        rows.append([
            kind,
            f"{stores[user]['size_mb'] - size:+.1f}", f"{stores[time]['size_mb'] - size:+.1f}",
            f"{more[user]:+.2f}", f"{more[time]:+.2f}",
            " / ".join(f"{g['us'][2]:.1f}" for g in got),
            " / ".join(f"{g['blocks']['primary_blocks']:.2f}" for g in got),
            " / ".join(str(stores[s]["primary_components"]) for s in (user, time)),
            " / ".join(str(stores[s]["index_components"]) for s in (user, time)),
        ])  # fmt: skip
    head = ["kind", "index on user, MB", "on time, MB", "put, user index, us", "time index, us"]
    head += ["get median us", "blocks a get", "components", "of the index"]
    wrong = "" if all(g["right"] for g in data["get"]) else "**Wrong answers.** "
    return (
        f"{data['count']:,} tweets, {size:,.0f} MB without index, {base:.2f} us a put without "
        "index: processor time of all threads, in batches, with seals and merges, the median of "
        f"{len(cpu['none', ''])} parts. An index's size and time are what a collection with it has "
        "more than one without, its time part by part and then the median. Pairs are: index on "
        f"user / on time. {wrong}The formula "
        "expects 1 block a get.\n\n" + markdown_table(head, rows) + "\n"
    )


def over_time(data: Data) -> str:
    """Figure 3.9: puts as the collection grows, and what was written."""
    rows = []
    facts = {(s["kind"], s["field"]): s for s in data["stores"]}
    for name, fact in facts.items():
        parts = [p for p in data["parts"] if tuple(p["store"]) == name]
        quarter = len(parts) // 4
        ends = (parts[:quarter], parts[-quarter:])
        index = fact["index_mb"]
        rows.append([
            f"{name[0]}, {name[1]}" if name[1] else name[0],
            *(f"{median([p['cpu_us'] for p in some]):.2f}" for some in ends),
            f"{fact['primary_written_mb']:,.0f}",
            f"{fact['index_written_mb']:,.1f}" if index else "",
            f"{fact['index_written_mb'] / index:.1f}" if index else "",
            f"{fact['primary_written_mb'] / (fact['size_mb'] - index):.1f}",
        ])  # fmt: skip
    head = ["kind, field", "us a put, first quarter", "last quarter", "documents written MB"]
    head += ["index written MB", "index: written / size", "documents: written / size"]
    return markdown_table(head, rows) + "\n"


def queries(data: Data, field: str) -> str:
    """Figures 3.10 and 3.11: times, then blocks beside the formulas."""
    cells = [c for c in data["queries"] if c["field"] == field]
    kinds = [kind for kind in KINDS if any(c["kind"] == kind for c in cells)]
    groups: dict[tuple[int, Any], dict[str, Data]] = {}
    for cell in cells:
        groups.setdefault((cell["width"], cell["k"]), {})[cell["kind"]] = cell
    times, blocks = [], []
    unit = "users" if field == "user" else "min"
    for (width, k), by_kind in groups.items():
        what = [f"{width:,} {unit}" if width else "one value", "all" if k is None else str(k)]
        found = f"{by_kind[kinds[-1]]['found']:,.1f}"
        best = min(cell["us"][2] for cell in by_kind.values())
        row, read = [*what, found], [*what, found]
        for kind in kinds:
            cell = by_kind[kind]
            middle = f"{cell['us'][2]:,.0f}"
            row.append(f"**{middle}**" if cell["us"][2] <= 1.05 * best else middle)
            row[-1] += "" if cell["right"] else " WRONG"
            if kind != "none":
                one = cell["blocks"]
                read.append(f"{one['primary_blocks']:,.1f} + {one['index_blocks']:,.1f}")
                read[-1] += f" ({cell['formula']:,.0f})"
        times.append(row)
        blocks.append(read)
    wrong = "All answers are right. " if all(c["right"] for c in cells) else "**Wrong answers.** "
    head = ["query", "k", "found"]
    return (
        f"Median microseconds, documents decoded; the best and what is within 5 % of it in bold. "
        f"{wrong.strip()}\n\n"
        + markdown_table([*head, *kinds], times)
        + "\nBlocks read, of documents + of the index, a query, and in brackets the formula of the "
        "cost analysis for them together.\n\n"
        + markdown_table([*head, *(kind for kind in kinds if kind != "none")], blocks) + "\n"
    )  # fmt: skip


# ---- mixes and blooms ------------------------------------------------------------------------


def mixed(data: Data) -> str:
    """Figures 3.12 to 3.15."""
    rows = []
    for name, lines in data["mixes"].items():
        kinds = list(dict.fromkeys(line["kind"] for line in lines))
        for kind in kinds:
            mine = [line for line in lines if line["kind"] == kind]
            half = mine[len(mine) // 2 :]
            sorts = ("put", "get", "lookup")
            counts = {s: sum(line["counts"][s] for line in mine) for s in sorts}
            rows.append([
                f"{name}, {kind}", f"{_mean([line['us'] for line in mine]):.1f}",
                f"{_mean([line['us'] for line in half]):.1f}",
                *(f"{_mean([line['sort_us'][s] for line in mine]):.1f}" if counts[s] else ""
                  for s in sorts),
                *(f"{sum(line['blocks'][s] for line in mine) / counts[s]:.2f}" if counts[s] else ""
                  for s in ("get", "lookup")),
                f"{mine[-1]['written_mb']:,.1f}",
            ])  # fmt: skip
    same = all(line["same"] for lines in data["mixes"].values() for line in lines)
    head = ["mix, kind", "us an operation", "second half", "put us", "get us", "lookup us"]
    head += ["blocks a get", "blocks a lookup", "written by seals and merges MB"]
    return (
        f"{data['operations']:,} operations a mix from an empty collection on, one call each; "
        "index on `user`, k=10; without an index lookups are left out. Answers of the kinds are "
        f"{'the same' if same else '**not the same**'}.\n\n" + markdown_table(head, rows) + "\n"
    )


def bloom(data: Data) -> str:
    """Table B.1."""
    rows = [
        [
            str(line["bits"]), f"{line['size_mb']:,.1f}", f"{line['false']:.3%}",
            f"{line['us'][5]:,.1f}", f"{line['us'][2]:,.1f}", f"{line['blocks']:.1f}",
            f"{line['checks']:,.0f}",
        ]
        for line in data["lines"]
    ]  # fmt: skip
    head = ["bits an entry", "MB", "false positives", "mean lookup us", "median us"]
    head += ["blocks a lookup", "filters checked"]
    return (
        f"Embedded index on `user`, {data['count']:,} tweets, {data['lookups']} lookups with "
        "k=10.\n\n"
        + markdown_table(head, rows) + "\n"
    )  # fmt: skip


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
