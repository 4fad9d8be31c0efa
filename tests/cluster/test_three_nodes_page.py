"""The sessions of docs/guide/three-nodes.md work as printed: three servers, one of them killed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_session import ROOT, type_session
from ports import ten_ports

PAGE = ROOT / "docs" / "guide" / "three-nodes.md"
SESSION = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.long  # a dozen processes
def test_the_page_works_as_printed(tmp_path: Path) -> None:
    session = "".join(SESSION.findall(PAGE.read_text(encoding="utf-8")))
    # The last digit of a port is the number of its node: ten in a row that are free.
    for first in ("740", "808"):
        session = session.replace(first, str(ten_ports() // 10))
    type_session(PAGE, session, tmp_path)
