"""What the benchmarks measured: benchmarks/results as pages, and the list of them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "results"
HEAD = """# All results

What each script in `benchmarks/` wrote when it last ran, with the machine, the versions and the
date. `make bench` writes them again, in small; `make bench-full` in full.
[How to read them](../how-fast.md).

| result | picture |
|---|---|
"""


def pages() -> dict[str, str]:
    """A page for each result, and the list."""
    made = {}
    rows = []
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if not text.startswith("# "):
            text = f"# {path.stem.replace('_', ' ').replace('-', ' ').capitalize()}\n\n{text}"
        found = re.search(r"^# (.*)$", text, re.MULTILINE)
        title = found[1] if found else path.stem
        shown = (
            f"[![]({path.stem}.png)](./{path.name})" if path.with_suffix(".png").exists() else ""
        )
        rows.append(f"| [{title}]({path.name}) | {shown} |\n")
        made[f"results/{path.name}"] = text
    return made | {"results/index.md": HEAD + "".join(rows)}


def pictures() -> dict[str, Path]:
    """The plots, by their names on the site."""
    return {f"results/{path.name}": path for path in sorted(FOLDER.glob("*.png"))}
