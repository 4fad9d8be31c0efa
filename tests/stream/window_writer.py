"""Appends to a window until it is killed; prints the number of each batch that was acknowledged.

Run by test_window_kill.py: window_writer.py FOLDER FIRST
"""

from __future__ import annotations

import sys

import tideline
from tideline.testing import ManualClock

ROWS = 50
SLIDE_S, PANES = 10, 4


def main(folder: str, first: int) -> None:
    with tideline.open(folder, clock=ManualClock(0)) as db:
        window = db.window(
            "w", span_s=SLIDE_S * PANES, slide_s=SLIDE_S, key=("batch", "n"),
            values={"v": "int64", "at": "point", "text": "text"}, time="t", keep="all",
            max_ahead_s=float("inf"), indexes={"at": "spatial", "text": "words"},
        )  # fmt: skip
        window._engine._disk_bytes = 2_000
        window._engine._memory_bytes = 20_000
        for batch in range(first, 1_000_000):
            # Half of the rows are late by a sub-window.
            window.append(
                {"batch": [batch] * ROWS, "n": list(range(ROWS)),
                 "v": [batch * n for n in range(ROWS)],
                 "at": [[n / 10, batch % 90] for n in range(ROWS)],
                 "text": [f"batch {batch} has {n}" for n in range(ROWS)],
                 "t": [batch + 20 - SLIDE_S * (n % 2) for n in range(ROWS)]},
                once=("writer", batch),
            )  # fmt: skip
            print(batch, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
