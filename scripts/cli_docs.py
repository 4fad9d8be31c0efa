"""Writes the help texts into docs/guide/cli.md, between its two markers.

    python scripts/cli_docs.py           write
    python scripts/cli_docs.py --check   exit 1 when the page is not what would be written

tests/test_docs.py runs the check, so the page cannot drift from the command.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "guide" / "cli.md"
START = "<!-- help: written by scripts/cli_docs.py -->"
END = "<!-- /help -->"
COMMANDS = [
    "channel create", "channels", "collection create", "collection list", "collection put",
    "collection get", "collection delete", "collection lookup", "collection range",
    "collection find", "collection count", "collection explain", "collection insert",
    "collection update", "collection update-many", "collection replace", "collection delete-where",
    "collection distinct", "collection aggregate", "collection index",
    "collection unindex", "collection advise", "collection stats", "collection drop", "changes",
    "publish", "subscribe", "find", "subscriptions", "cancel", "prolong", "resume", "apply",
    "session", "shell",
    "stats", "check", "drop", "serve", "token create", "token list", "token revoke", "backup",
    "restore", "warm", "demo", "pipeline run", "pipeline check", "workload tweets",
    "workload operations", "heatmap",
]  # fmt: skip


def help_text(words: list[str]) -> str:
    """What `tideline WORDS --help` prints, on a terminal of a fixed width."""
    from tideline.cli.main import main as tideline

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        tideline([*words, "--help"])
    return printed.getvalue().strip()


def page_with_help() -> str:
    """The page as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    after = rest.partition(END)[2]
    sections = [
        f"```text\n{help_text([])}\n```",
        *(f"### tideline {c}\n\n```text\n{help_text(c.split())}\n```" for c in COMMANDS),
    ]
    return f"{before}{START}\n\n" + "\n\n".join(sections) + f"\n\n{END}{after}"


def main() -> int:
    os.environ |= {"COLUMNS": "100", "TERM": "dumb"}
    os.environ.pop("DEMO_S", None)
    sys.path.insert(0, str(ROOT / "src"))
    wanted = page_with_help()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") != wanted:
            print("docs/guide/cli.md is out of date: run python scripts/cli_docs.py")
            return 1
        return 0
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
