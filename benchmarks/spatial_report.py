"""The page and the picture of benchmarks/spatial.py, written from its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common import Results, markdown_table

__all__ = ["page", "write"]

Data = dict[str, Any]


def write(results: Results) -> list[Path]:
    """Write spatial.md and, where points were stored, spatial.png."""
    written = [results.folder / "spatial.md"]
    written[0].write_text(page(results.parts))
    grown = results.get("ingest")
    if grown:
        written.append(results.folder / "spatial.png")
        _draw(grown, written[-1])
    return written


def page(parts: Data) -> str:
    """The results as Markdown; a part that was not run is left out."""
    tables = {"static": static, "pieces": pieces, "ingest": ingest, "store": store}
    text = ["# Places\n\nWritten by `python benchmarks/spatial.py`. The points are made up.\n"]
    for name, table in tables.items():
        if name in parts:
            part = parts[name]
            machine = ", ".join(f"{key} {value}" for key, value in part["facts"].items())
            text.append(table(part["data"]))
            text.append(f"Commit {part['commit']}, {part['date']}; {machine}.\n")
    return "\n".join(text)


def static(data: Data) -> str:
    """Static trees, in microseconds and as ratios to ours."""
    asked = [name for name in data if "hits" in name or "nearest" in name]
    rows = []
    for name, seconds in data["build_s"].items():
        row = [name, f"{seconds:.2f}"]
        for each in asked:
            us = data[each]["us"]
            ratio = "" if name not in us else f"{us[name]:.1f} ({us[name] / us['tideline']:.1f}x)"
            row.append(ratio)
        rows.append(row)
    head = ["", "build, s", *(_asked(data, each) for each in asked)]
    left = "".join(f"\n`{name}` is not there: {why}.\n" for name, why in data["missing"].items())
    title = f"## One tree of {data['points']:,} points\n\n"
    return title + markdown_table(head, rows) + left


def pieces(data: Data) -> str:
    """By the number of components."""
    asked = [name for name in data if "hits" in name]
    rows = []
    for number in data[asked[0]]["us"]:
        spent = [(data[each]["us"][number], data[each]["us"]["1"]) for each in asked]
        rows.append([number, *(f"{us:.1f} ({us / one:.1f}x)" for us, one in spent)])
    title = f"## {data['points']:,} points in several components\n\n"
    return title + markdown_table(["components", *(_asked(data, each) for each in asked)], rows)


def _asked(data: Data, name: str) -> str:
    hits = data[name].get("hits")
    return f"{name}, us" if hits is None else f"{hits:,.0f} hits, us"


def ingest(data: Data) -> str:
    """Inserts and questions while an index grows."""
    rows = []
    ours = data["curve"]["tideline"]
    for name, curve in sorted(data["curve"].items(), key=lambda one: one[0] != "tideline"):
        insert = sum(step[1] for step in curve) / len(curve)
        base = sum(step[1] for step in ours) / len(ours)
        rows.append([
            name, f"{insert:.2f} ({insert / base:.1f}x)", f"{curve[0][1]:.2f}",
            f"{curve[-1][1]:.2f}", f"{curve[0][2]:.0f}", f"{curve[-1][2]:.0f}",
        ])  # fmt: skip
    head = ["", "insert, us", "in the first tenth", "in the last", "question, us, after the first",
            "after the last"]  # fmt: skip
    left = "".join(f"\n`{name}` is not there: {why}.\n" for name, why in data["missing"].items())
    title = f"## {data['points']:,} points, {data['batch']:,} a call\n\n"
    return title + markdown_table(head, rows) + left


def store(data: Data) -> str:
    """Documents in a collection."""
    put = data["put_us"]
    rows = [[name, f"{us:.2f}", f"{us / put['no index']:.2f}x"] for name, us in put.items()]
    title = f"## {data['documents']:,} documents\n\n"
    text = title + markdown_table(["put_many", "us a document", ""], rows) + "\n"
    rows = []
    for name, found in data["find_us"].items():
        for peer, us in found.items():
            base = found["tideline, as text" if "as text" in peer else "tideline"]
            rows.append([f"{name}: {peer}", f"{us:.0f}", f"{us / base:.1f}x"])
    missing = data.get("missing", {})
    left = "".join(f"\n`{name}` is not there: {why}.\n" for name, why in missing.items())
    return text + markdown_table(["documents in a box", "us", ""], rows) + left


def _draw(data: Data, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(10, 4))
    for axes, column, title in ((both[0], 1, "insert"), (both[1], 2, "question of 100 hits")):
        for name, curve in data["curve"].items():
            axes.plot([step[0] for step in curve], [step[column] for step in curve], label=name)
        axes.set_yscale("log")
        axes.set_xlabel("points")
        axes.set_ylabel(f"{title}, microseconds")
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
