"""The session with curl in docs/guide/server.md (and in README.md, if it has one) works as printed.

A ```sh block is typed into one shell, line by line; what it prints must be what the page says,
`...` standing for anything. Only the port is another one, so that tests may run beside a server.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "guide" / "server.md", ROOT / "README.md"]
SESSION = re.compile(r"^```sh\n(\$ tideline serve .*?)^```", re.MULTILINE | re.DOTALL)
CASES = [(page, text) for page in PAGES for text in SESSION.findall(page.read_text("utf-8"))]


class Shell:
    """A bash that is typed into."""

    def __init__(self, folder: Path) -> None:
        command = folder / "bin" / "tideline"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tideline "$@"\n')
        command.chmod(0o755)
        env = {
            **os.environ,
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.environ.get("PYTHONPATH") or str(ROOT / "src"),
        }
        self._process = subprocess.Popen(
            ["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, cwd=folder, env=env, bufsize=1,
        )  # fmt: skip

    def type(self, line: str, lines: int) -> str:
        """What a command prints; one in the background: its first lines."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        if line.endswith("&"):
            process.stdin.write(f"{line}\n")
            return "".join(process.stdout.readline() for _ in range(lines))
        process.stdin.write(f"{line}\necho; echo --end--\n")
        printed = ""
        while not printed.endswith("\n--end--\n"):
            read = process.stdout.readline()
            assert read, printed
            printed += read
        return printed.removesuffix("\n--end--\n")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("kill $(jobs -p) 2>/dev/null; wait; exit\n")
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


@pytest.mark.parametrize(("page", "session"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_a_session_works_as_printed(page: Path, session: str, tmp_path: Path) -> None:
    session = session.replace("8080", str(free_port()))
    shell = Shell(tmp_path)
    try:
        for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
            typed, _, wanted = part.partition("\n")
            printed = shell.type(typed, wanted.count("\n"))
            if wanted and not printed.endswith("\n"):
                printed += "\n"
            same = doctest.OutputChecker().check_output(wanted, printed, doctest.ELLIPSIS)
            assert same, f"$ {typed}\nprinted\n{printed}\n{page.name} says\n{wanted}"
    finally:
        shell.close()


def test_there_is_a_session() -> None:
    assert CASES
