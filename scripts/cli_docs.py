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
    "watch", "nearest", "publish", "subscribe", "find", "event", "retract", "subscriptions",
    "cancel", "prolong", "move", "resume", "apply", "window create", "window list",
    "window append", "window get", "window range", "window watch", "window stats", "window drop",
    "session", "shell", "stats", "check", "drop", "serve", "token create", "token list",
    "token revoke", "backup", "restore", "warm", "demo", "pipeline run", "pipeline check",
    "pipeline export", "workload tweets", "workload operations", "heatmap",
]  # fmt: skip


def unlisted() -> list[str]:
    """Commands that `COMMANDS` lacks: each has its help on the page."""
    import typer

    from tideline.cli.main import app

    found: list[str] = []
    left = [("", typer.main.get_command(app))]
    while left:
        name, command = left.pop()
        inner = getattr(command, "commands", None)
        if inner is None:
            found.append(name)
        else:
            left += [(f"{name} {each}".strip(), inner[each]) for each in inner]
    return sorted(set(found) - set(COMMANDS))


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
    if lacking := unlisted():
        print(f"COMMANDS of scripts/cli_docs.py lacks: {', '.join(lacking)}")
        return 1
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
