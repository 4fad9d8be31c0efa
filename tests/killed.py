"""A folder as a killed process leaves it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tideline.channel.channel import Channel

__all__ = ["copy_as_killed"]


def copy_as_killed(channel: Channel, folder: Path, target: Path) -> None:
    """Copy the folder of a database that is open, at a moment when no file is being replaced."""
    for _ in range(2):  # a seal has its manifest saved by a job of its own, after it
        channel.core.engine.drain()
    shutil.copytree(folder, target)
