"""The sessions with curl in docs/guide/server.md and docs/start/server.md work as printed.

A ```sh block is typed into one shell, line by line; what it prints must be what the page says,
`...` standing for anything. Only the port is another one, so that tests may run beside a server.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_session import type_session
from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "guide" / "server.md", ROOT / "docs" / "start" / "server.md"]
SESSION = re.compile(r"^```sh\n(\$ tideline serve .*?)^```", re.MULTILINE | re.DOTALL)
CASES = [(page, text) for page in PAGES for text in SESSION.findall(page.read_text("utf-8"))]


@pytest.mark.parametrize(("page", "session"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_a_session_works_as_printed(page: Path, session: str, tmp_path: Path) -> None:
    type_session(page, session.replace("8080", str(free_port())), tmp_path)


def test_there_is_a_session() -> None:
    assert CASES
