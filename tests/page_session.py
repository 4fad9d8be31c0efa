"""A session of a page, typed into one shell line by line: what it prints is what the page says.

`...` stands for anything. The lines with `$` are typed; one that ends with `&` stays running.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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


def type_session(page: Path, session: str, folder: Path) -> None:
    """Type a session in a folder."""
    shell = Shell(folder)
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
