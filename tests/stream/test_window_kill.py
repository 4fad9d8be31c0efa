"""What was acknowledged is there after `kill -9`; what was not is there whole or not at all."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from window_writer import PANES, ROWS, SLIDE_S

import tideline
from tideline.testing import ManualClock

WRITER = Path(__file__).with_name("window_writer.py")
SOURCE = Path(tideline.__file__).resolve().parents[1]


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(7)
    first = 0
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, str(WRITER), str(tmp_path / "db"), str(first)],
            stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(SOURCE), "HOME": "/root"},
        )  # fmt: skip
        assert writer.stdout is not None
        last = first - 1
        for _ in range(rng.randint(20, 120)):
            last = int(writer.stdout.readline())
        writer.kill()
        rest = writer.stdout.read().split()
        last = int(rest[-1]) if rest else last
        writer.wait()
        writer.stdout.close()
        first = look(tmp_path / "db", last)


def look(folder: Path, last: int) -> int:
    """Compare with what was acknowledged; the number of the next batch."""
    with tideline.open(folder, clock=ManualClock(0)) as db:
        window = db.window("w")
        rows = window.range().to_pylist()
        counts = Counter(row["batch"] for row in rows)
        newest = max(counts)
        assert newest in (last, last + 1)
        open_pane = (newest + 20) // SLIDE_S
        expected: Counter[int] = Counter()
        for batch in range(newest + 1):
            for n in range(ROWS):
                if (batch + 20 - SLIDE_S * (n % 2)) // SLIDE_S > open_pane - PANES:
                    expected[batch] += 1
        assert counts == expected
        assert all(row["v"] == row["batch"] * row["n"] for row in rows)
        assert all(row["at"] == [row["n"] / 10, row["batch"] % 90] for row in rows)
        for where, meant in (
            ({"text": {"$words": "7"}}, lambda row: 7 in (row["batch"], row["n"])),
            ({"at": {"$geoWithin": {"$box": [[0, 0], [1.5, 40]]}}},
             lambda row: row["n"] <= 15 and row["batch"] % 90 <= 40),
        ):  # fmt: skip
            assert window.find(where).to_pylist() == [row for row in rows if meant(row)]
        assert window.append(
            [{"batch": 0, "n": 0, "v": 0, "at": [0, 0], "text": "", "t": 0}],
            once=("writer", newest),
        ).repeated
        db.check()
        return newest + 1
