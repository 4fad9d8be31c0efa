"""The list of decisions: number, title, and the beginning of the problem."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "decisions"
HEAD = """# Decisions

Why things are as they are. A decision says the problem, the choice, the alternatives (doing nothing
is always one), the cost, and what would change our mind. It is superseded by a later one, never
rewritten.

| | decision |
|--:|---|
"""


def pages() -> dict[str, str]:
    """The one page."""
    rows = []
    for path in sorted(FOLDER.glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        found = re.search(r"^# (.*)$", text, re.MULTILINE)
        title = re.sub(r"^[\d.:\s]+", "", found[1] if found else path.stem)
        later = " (superseded)" if re.search(r"^Status: superseded", text, re.MULTILINE) else ""
        rows.append(f"| {int(path.name[:4])} | [{title}]({path.name}){later} |\n")
    return {"decisions/index.md": HEAD + "".join(rows)}
