"""What a kill leaves of a batch: the rows up to where docs/guide/batches.md says it may be cut."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tideline

ROWS = 12


def table() -> pa.Table:
    now = datetime.now(UTC)
    return pa.table({
        "op": ["publish"] * ROWS, "id": [f"e{n:03d}" for n in range(ROWS)], "place": ["a"] * ROWS,
        "at": pa.array([now] * ROWS, pa.timestamp("us", "UTC")),
        "until": pa.array([now + timedelta(hours=1)] * ROWS, pa.timestamp("us", "UTC")),
        "body": ['{"n": 1}'] * ROWS,
    })  # fmt: skip


def killed_in_apply(folder: Path, frames: int) -> bool:
    """Apply a batch in a child that is killed before its n-th frame; False if it ended."""
    child = os.fork()
    if child == 0:
        try:
            with tideline.open(folder, memory_mb=16) as db:
                left = frames
                real = os.writev

                def writev(*arguments: Any) -> int:
                    nonlocal left
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return real(*arguments)

                os.writev = writev  # type: ignore[assignment]
                db.channel("c").apply(table())
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("delta", [False, True], ids=["usual", "with a change"])
def test_a_killed_batch_is_there_up_to_where_it_may_be_cut(tmp_path: Path, delta: bool) -> None:
    seen = set()
    for frames in range(1, ROWS + 2):
        folder = tmp_path / f"{frames}"
        with tideline.open(folder, memory_mb=16) as db:
            channel = db.channel("c")
            if delta:
                channel.subscribe("b", user="u", where={"n": {"$delta": {"$lt": -5}}}, until_s=60)
        killed = killed_in_apply(folder, frames)
        with tideline.open(folder, memory_mb=16) as db:
            found = sorted(event.id for event in db.channel("c").find("a"))
            db.check()
        assert found == [f"e{n:03d}" for n in range(len(found))]
        seen.add(len(found))
        if not killed:
            break
    assert seen == (set(range(ROWS + 1)) if delta else {0, ROWS})
