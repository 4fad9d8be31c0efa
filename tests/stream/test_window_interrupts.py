"""A window's calls are whole or not at all, whatever is thrown into them; nothing stays locked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interrupting import try_every_place

import tideline
from tideline.testing import ManualClock

ROWS = 6


pytestmark = pytest.mark.usefixtures("watchdog", "silent_cuts")


class Model:
    """A window, and how many rows of each batch must be in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(0)
        self.counts: dict[int, int] = {}
        self.made = 0
        self.time = 5
        self.open()

    def open(self) -> None:
        self.db = tideline.open(self.folder, clock=self.clock)
        self.window = self.db.window(
            "w", span_s=10_000, slide_s=10, key=("batch", "n"), values={"v": "int32"}, time="t",
            keep="all", max_ahead_s=float("inf"),
        )  # fmt: skip
        self.watch = self.window.watch(map="count()")

    def rows(self, slides: int) -> dict[str, list[int]]:
        """A batch: half of it before a slide, half behind."""
        self.made += 1
        before, self.time = self.time, self.time + 10 * slides
        return {
            "batch": [self.made] * ROWS, "n": list(range(ROWS)), "v": [self.made] * ROWS,
            "t": [before if n < ROWS // 2 else self.time for n in range(ROWS)],
        }  # fmt: skip

    def agree(self) -> None:
        found = self.window.range(map=lambda state, batch, n, v: [*state, batch], initial=[])
        counts = {batch: found.count(batch) for batch in dict.fromkeys(found)}
        assert counts == self.counts
        self.made += 1
        assert self.window.append({"batch": self.made, "n": 0, "v": 0, "t": self.time}).stored == 1
        self.counts[self.made] = 1
        assert self.window.range((self.made,), map="count()") == 1

    def tidy(self) -> None:
        """Few rows, so that looking stays quick."""
        if len(self.counts) > 40:
            self.watch.close()
            self.db.drop_window("w")
            self.db.close()
            self.counts = {}
            self.open()


def appending(slides: int) -> Callable[[Model], Any]:
    def operation(model: Model) -> Any:
        rows = model.rows(slides)
        batch = rows["batch"][0]

        def after(hit: bool) -> None:
            count = model.window.range((batch,), map="count()")
            assert count in (0, ROWS)
            assert count or hit
            if count:
                model.counts[batch] = count

        return lambda: model.window.append(rows), after

    return operation


def sealing(model: Model) -> Any:
    rows = model.rows(1)
    model.window.append(rows)
    model.counts[rows["batch"][0]] = ROWS
    return model.window.seal, lambda hit: None


def reopening(model: Model) -> Any:
    """What was cut is as whole in the files."""
    rows = model.rows(2)
    batch = rows["batch"][0]

    def after(hit: bool) -> None:
        model.watch.close()
        model.db.close()
        model.open()
        count = model.window.range((batch,), map="count()")
        assert count in (0, ROWS)
        assert count or hit
        if count:
            model.counts[batch] = count

    return lambda: model.window.append(rows), after


@pytest.mark.parametrize("kind", ["line", "call"])
@pytest.mark.parametrize(
    ("operation", "step"),
    [(appending(0), 1), (appending(3), 1), (sealing, 7), (reopening, 23)],
    ids=["append", "slide", "seal", "reopen"],
)
def test_a_call_that_is_cut_anywhere_is_whole_or_nothing(
    kind: str, operation: Any, step: int, tmp_path: Path
) -> None:
    model = Model(tmp_path / "db")
    try:
        assert try_every_place(model, operation, kind, step) > step
    finally:
        model.watch.close()
        model.db.close()
