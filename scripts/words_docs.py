"""Writes the tables of words into docs/internals/words.md, between its two markers.

    python scripts/words_docs.py           write
    python scripts/words_docs.py --check   exit 1 when the page is not what would be written

tests/test_internals_docs.py runs the check, so the page cannot drift from the layouts.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "internals" / "words.md"
START = "<!-- words: written by scripts/words_docs.py -->"
END = "<!-- /words -->"
KERNELS = ROOT / "src" / "tideline" / "kernels"


def layouts() -> list[Any]:
    """All layouts, file by file."""
    from tideline.kernels import words

    files = [path for path in KERNELS.rglob("*.py") if " = Layout(" in path.read_text("utf-8")]
    modules = []
    for path in sorted(files, key=lambda path: (path.parent, path.name != "layout.py", path.name)):
        parts = path.relative_to(KERNELS).with_suffix("").parts
        if parts != ("words",):
            modules.append(".".join(("tideline.kernels", *parts)))
            importlib.import_module(modules[-1])
    return sorted(
        (layout for layout in words.LAYOUTS if layout.module in modules),
        key=lambda layout: modules.index(layout.module),
    )


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def section(layout: Any) -> str:
    """One layout as a table."""
    file = layout.module.removeprefix("tideline.").replace(".", "/") + ".py"
    spare = layout.size - len(layout.words)
    size = f"{layout.size} words" + (f", the last {spare} without a name" if spare else "")
    rows = "\n".join(
        f"| {place} | `{word.name}` | {'' if word.kind == 'word' else word.kind} | {word.meaning} |"
        for place, word in enumerate(layout.words)
    )
    return (
        f"### {capital(layout.name)}\n\n{capital(layout.meaning)} (`{file}`). {size}.\n\n"
        f"| | word | | |\n|---|---|---|---|\n{rows}"
    )


def page_with_words() -> str:
    """The page as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    after = rest.partition(END)[2]
    return f"{before}{START}\n\n" + "\n\n".join(map(section, layouts())) + f"\n\n{END}{after}"


def main() -> int:
    sys.path.insert(0, str(ROOT / "src"))
    wanted = page_with_words()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") != wanted:
            print("docs/internals/words.md is out of date: run python scripts/words_docs.py")
            return 1
        return 0
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
