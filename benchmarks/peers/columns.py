"""What in-process peers share: operations as plain columns, answers out of them, and their end."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peers.base import Peer, answer_type

__all__ = ["InProcess", "answer_array", "flags", "folder_bytes", "microseconds", "numbers"]


def microseconds(operations: pa.RecordBatch, name: str) -> np.ndarray:
    """A column of times; 0 where there is none."""
    column = operations.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return np.asarray(column.fill_null(0))


def numbers(operations: pa.RecordBatch, name: str) -> np.ndarray:
    """A column of numbers written out; 0 where there is none."""
    return np.asarray(operations.column(name).cast(pa.int64()).fill_null(0))


def flags(operations: pa.RecordBatch) -> np.ndarray:
    """Which rows ask for unseen events only."""
    if "unseen" not in operations.schema.names:
        return np.zeros(operations.num_rows, bool)
    return np.asarray(operations.column("unseen").fill_null(False))


def answer_array(
    row: Sequence[int] | Any, subscription: Sequence[int] | Any, event: Sequence[int] | Any
) -> np.ndarray:
    """Answers from three columns."""
    found = np.empty(len(row), answer_type)
    found["row"], found["subscription"], found["event"] = row, subscription, event
    return found


def folder_bytes(folder: Path) -> int:
    """What the files of a folder take on disk; a file that goes meanwhile counts nothing."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


class InProcess(Peer):
    """A system that lives in this process; its files are in `_folder`."""

    _folder: Path

    def processes(self) -> list[int]:
        return [os.getpid()]

    def disk_bytes(self) -> int:
        return folder_bytes(self._folder)

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
