"""The page and the picture of benchmarks/fuzzy.py, written from its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.common import Results, markdown_table
from benchmarks.pages import Plot

__all__ = ["write"]

Data = dict[str, Any]
_US = ["median, us", "mean", "95th of 100"]
_ABOUT = (
    "Written by `python benchmarks/fuzzy.py`. Windows of 30 km around an object, two of its three "
    "keywords, similarity 0.8: a word is near when its edit distance is at most a fifth of the "
    "longer word, rounded down. All answers of one table are the same but where a recall below 1 "
    "is told."
)


def write(results: Results) -> list[Path]:
    """Write fuzzy.md and fuzzy.png."""
    tables = {
        "speed": _speed, "lookup": _lookup, "placements": _placements, "budget": _budget,
        "scale": _scale, "threshold": _threshold, "mhr": _mhr,
    }  # fmt: skip
    return pages.write(results, "fuzzy", "Where, and roughly what", _ABOUT, tables, _plots)


def _times(us: Data, base: float) -> list[str]:
    return [f"{us['median']:,.0f} ({us['median'] / base:,.1f}x)", f"{us['mean']:,.0f}",
            f"{us['p95']:,.0f}"]  # fmt: skip


def _beside(data: Data) -> str:
    base = data["us"]["tideline"]["median"]
    rows = [
        [
            name,
            f"{data['build_s'][name]:.1f}" if name in data["build_s"] else "",
            *_times(us, base),
            f"{data['recall'][name]:.3f}" if name in data["recall"] else "",
        ]
        for name, us in data["us"].items()
    ]
    left = "".join(f"\n`{name}` is not there: {why}.\n" for name, why in data["missing"].items())
    return markdown_table(["", "build, s", *_US, "recall"], rows) + left


def _speed(data: Data) -> str:
    return (
        f"## {data['objects']:,} objects, {data['distinct']:,} distinct words\n\nData: "
        f"{data['source']}. {data['answers']:.1f} answers a question; ours is a file of "
        f"{data['bytes'] / 1e6:,.0f} MB. *By the ceiling* allows a fifth of the longer word "
        "rounded up, so its answers are others.\n\n" + _beside(data)
    )


def _lookup(data: Data) -> str:
    return f"## Words alone: {data['words']:,} words\n\n" + _beside(data)


def _rows(data: Data) -> str:
    base = next(iter(data["rows"].values()))["us"]["median"]
    rows = [
        [
            name, f"{row['nodes']:,}", f"{row['words']:,}", f"{row['bytes'] / 1e6:.1f}",
            f"{row['file_bytes'] / 1e6:.1f}", f"{row['build_s']:.1f}", *_times(row["us"], base),
        ]
        for name, row in data["rows"].items()
    ]  # fmt: skip
    head = ["", "nodes", "words in dictionaries", "dictionaries, MB", "file, MB", "build, s", *_US]
    return markdown_table(head, rows)


def _title(data: Data, what: str) -> str:
    return (
        f"## {what}: {data['objects']:,} objects, {data['distinct']:,} distinct words\n\n"
        f"Data: {data['source']}.\n\n"
    )


def _placements(data: Data) -> str:
    return _title(data, "Placements (figures 3.7 and 3.8)") + _rows(data)


def _budget(data: Data) -> str:
    size = f"{data['root_bytes'] / 1e6:.1f} MB"
    whole = f"A number is a budget, in parts of a dictionary at the root ({size}).\n\n"
    return _title(data, "Space budget (figure 3.9)") + whole + _rows(data)


def _scale(data: Data) -> str:
    return "\n".join(
        _title(step, "Scale (figures 3.10 and 3.11)") + _rows(step) for step in data["steps"]
    )


def _threshold(data: Data) -> str:
    said = "A number is the part of a node's children that a word of VLF is in to go up.\n\n"
    return _title(data, "Threshold (figure 3.12)") + said + _rows(data)


def _mhr(data: Data) -> str:
    base = data["rows"]["auto"]["us"]["median"]
    rows = [
        [
            name, f"{row['recall']:.3f}", f"{row['bytes'] / 1e6:.2f}", f"{row['build_s']:.1f}",
            *_times(row["us"], base),
        ]
        for name, row in data["rows"].items()
    ]  # fmt: skip
    said = (
        f"Words within {data['edits']} edits, {data['answers']:.1f} answers a question. The number "
        "is how many least grams a node keeps. MB of an MHR-tree are its boxes and signatures, of "
        "the others their dictionaries.\n\n"
    )
    head = ["", "recall", "MB", "build, s", *_US]
    title = _title(data, "MHR-tree (figures 3.5 and 3.6)")
    return title + said + markdown_table(head, rows)


def _plots(parts: dict[str, Data]) -> list[Plot]:
    plots = []
    if "placements" in parts:
        points = {
            name: [(row["bytes"] / 1e6, row["us"]["median"])]
            for name, row in parts["placements"]["rows"].items()
        }
        plots.append(Plot("placements", "dictionaries, MB", "median us", points, log_up=False))
    if "budget" in parts:
        curves: dict[str, list[tuple[float, float]]] = {}
        for name, row in parts["budget"]["rows"].items():
            point = (row["bytes"] / 1e6, row["us"]["median"])
            curves.setdefault("FL" if name.startswith("FL") else name.split()[0], []).append(point)
        curves = {name: sorted(points) for name, points in curves.items()}
        plots.append(Plot("space budget", "dictionaries, MB", "median us", curves, log_up=False))
    if "scale" in parts:
        grown: dict[str, list[tuple[float, float]]] = {}
        for step in parts["scale"]["steps"]:
            for name, row in step["rows"].items():
                grown.setdefault(name, []).append((step["objects"], row["us"]["median"]))
        plots.append(Plot("scale", "objects", "median us", grown, log_up=False))
    if "mhr" in parts:
        signed = [
            (int(name.split()[-1]), row)
            for name, row in parts["mhr"]["rows"].items() if name.startswith("MHR")
        ]  # fmt: skip
        recall = {"MHR-tree": [(number, row["recall"]) for number, row in signed]}
        us = {"MHR-tree": [(number, row["us"]["median"]) for number, row in signed]}
        whole = parts["mhr"]["rows"]["VLF"]["us"]["median"]
        us["VLF"] = [(signed[0][0], whole), (signed[-1][0], whole)]
        for what, curves, up in (("recall", recall, "recall"), ("time", us, "median us")):
            plots.append(Plot(f"MHR-tree: {what}", "signature", up, curves, log_up=False))
    return plots
