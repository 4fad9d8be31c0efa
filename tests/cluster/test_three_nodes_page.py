"""The sessions of docs/guide/three-nodes.md work as printed: three servers, one of them killed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_session import ROOT, type_session
from ports import free_port

PAGE = ROOT / "docs" / "guide" / "three-nodes.md"
SESSION = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.long  # a dozen processes
def test_the_page_works_as_printed(tmp_path: Path) -> None:
    session = "".join(SESSION.findall(PAGE.read_text(encoding="utf-8")))
    # The last digit of a port is the number of its node: ten in a row that are free.
    for first in ("740", "808"):
        session = session.replace(first, _ten_free())
    type_session(PAGE, session, tmp_path)


def _ten_free() -> str:
    """The beginning of ports of which those that end with 1, 2 and 3 are free."""
    import socket

    while True:
        begin = str(free_port())[:-1]
        try:
            for last in "123":
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", int(begin + last)))
        except OSError:
            continue
        return begin
