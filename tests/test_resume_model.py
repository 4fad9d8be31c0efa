"""However a window moves and a reader is cut, resuming gives what an uncut handle got."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from cuts import HandleReader, Step, World, steps
from hypothesis import given

import tideline
from tideline.testing import ManualClock

LAYOUTS = ["dual", "two"]


def run(layout: str, story: list[Step]) -> None:
    clock = ManualClock(1_000)
    opened: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:

        def open_again() -> Any:
            while opened:
                opened.pop().close()
            opened.append(tideline.open(Path(folder) / "data", clock=clock, memory_mb=16))
            return opened[-1].channel("c", layout=layout)

        World(open_again(), clock, HandleReader, open_again).run(story)
        opened.pop().close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cut_reader_gets_what_an_uncut_one_got(layout: str) -> None:
    @given(story=steps(reopens=True))
    def check(story: list[Step]) -> None:
        run(layout, story)

    check()
