"""Processes that are killed, and a folder as one leaves it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tideline.channel.channel import Channel

__all__ = ["copy_as_killed", "script"]


@contextmanager
def script(file: Path, *arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """A script of the tests in a process of its own, which is killed in the end."""
    process = subprocess.Popen(
        [sys.executable, str(file), *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def copy_as_killed(channel: Channel, folder: Path, target: Path) -> None:
    """Copy the folder of a database that is open, at a moment when no file is being replaced."""
    for _ in range(2):  # a seal has its manifest saved by a job of its own, after it
        channel.core.engine.drain()
    shutil.copytree(folder, target)
