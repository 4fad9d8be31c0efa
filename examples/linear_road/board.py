"""What people see of a run: two collections for pages, and a picture in the terminal.

    collection `segments`    a document a segment, written anew at every simulated minute
                             {"id": "0-1-42", "x", "d", "s", "speed" (or null), "cars", "toll",
                              "accident", "minute"}
    collection `road`        one document, {"id": "now", "minute", "second", "cars", "reports",
                             "tolls", "accidents", "worst_ms", "L"}, some times a second

Live queries on these are all that a page needs. For one thread.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rich.text import Text

from examples.linear_road.drive import Run
from examples.linear_road.tolls import Tolls
from tideline.workload.linear_road import SEGMENTS

__all__ = ["Board"]

_EVERY_S = 0.2  # of the wall
_SHOWN = 4  # expressways in the terminal
_SPEEDS = ((25, "red"), (40, "dark_orange"), (55, "yellow"), (1_000, "green"))
_TOLLS = " .:-=+*#%@"  # by the root of the toll


class Board:
    """Keeps the collections of a run up to date."""

    def __init__(self, db: Any, app: Tolls, expressways: int) -> None:
        self._segments = db.collection("segments", key="id")
        self._road = db.collection("road", key="id")
        self._app = app
        self._count = expressways
        self._minute = -1
        self._last = -1e9
        numbers = np.arange(app.places)
        self._names = [
            {"id": f"{x}-{d}-{s}", "x": x, "d": d, "s": s}
            for x, d, s in zip(
                (numbers // 200).tolist(), (numbers // 100 % 2).tolist(), (numbers % 100).tolist(),
                strict=True,
            )
        ]  # fmt: skip

    def write(self, run: Run, *, last: bool = False) -> bool:
        """Write what has changed; whether it is time for a new picture."""
        now = time.perf_counter()
        if self._app.now.minute != self._minute:
            self._minute = self._app.now.minute
            self._segments.put_many(self._documents())
        elif not last and now - self._last < _EVERY_S:
            return False
        self._last = now
        self._road.put({
            "id": "now", "minute": self._minute, "second": run.second, "cars": self._app.on_road(),
            "reports": run.reports, "tolls": run.tolls,
            "accidents": int(self._app.accidents.sum()), "worst_ms": round(run.worst_ms, 1),
            "L": self._count,
        })  # fmt: skip
        return True

    def _documents(self) -> list[dict[str, Any]]:
        now = self._app.now
        there = (self._app.accidents > 0).tolist()
        speeds = [None if speed != speed else round(speed, 1) for speed in now.speed.tolist()]
        return [
            {**name, "speed": speed, "cars": cars, "toll": toll, "accident": accident,
             "minute": now.minute}
            for name, speed, cars, toll, accident in zip(
                self._names, speeds, now.cars.tolist(), now.toll.tolist(), there, strict=True
            )
        ]  # fmt: skip

    # ---- the terminal ------------------------------------------------------------------------

    def line(self, run: Run) -> str:
        """Where nothing can be drawn."""
        return (
            f"minute {self._minute}: {self._app.on_road():,} cars, {run.reports:,} reports, "
            f"{run.tolls:,} tolls told, {int(self._app.accidents.sum())} accidents, "
            f"longest response {run.worst_s:.2f} simulated s"
        )

    def picture(self, run: Run, width: int) -> Text:
        """The first expressways: a column a segment (or two), speeds in colour, tolls below."""
        text = Text(f"second {run.second:,}, {self.line(run)}\n", no_wrap=True)
        step = 1 if width >= SEGMENTS + 12 else 2
        now = self._app.now
        shape = (-1, 2, SEGMENTS)
        speeds, tolls = now.speed.reshape(shape), now.toll.reshape(shape)
        there = self._app.accidents.reshape(shape) > 0
        axis = "".join(f"{at:<{25 // step}}" for at in range(0, SEGMENTS, 25))
        text.append(f"\n  segment  {axis}", "dim")
        for x in range(min(self._count, _SHOWN)):
            for d, way in ((0, "→"), (1, "←")):
                self._strip(text, f"\n{x} {way} speed  ", speeds[x, d], there[x, d], step)
                text.append(f"\n    toll   {_marks(tolls[x, d], step)}", "cyan")
        if self._count > _SHOWN:
            text.append(f"\nand {self._count - _SHOWN} expressways more")
        text.append("\n\nmiles an hour: ")
        for (limit, colour), low in zip(_SPEEDS, (0, 25, 40, 55), strict=True):
            text.append(f"█ {low}-{limit if limit < 999 else ''} ", colour)
        text.append("  X accident", "bold magenta")
        text.append("   toll: . little  @ most")
        return text

    def _strip(self, text: Text, label: str, speeds: Any, there: Any, step: int) -> None:
        text.append(label)
        for at in range(0, SEGMENTS, step):
            known = speeds[at : at + step]
            known = known[~np.isnan(known)]
            if there[at : at + step].any():
                text.append("X", "bold magenta")
            elif not len(known):
                text.append("·", "dim")
            else:
                slowest = float(known.min())
                text.append("█", next(colour for limit, colour in _SPEEDS if slowest < limit))


def _marks(tolls: Any, step: int) -> str:
    most = max(1.0, float(tolls.max())) ** 0.5
    return "".join(
        _TOLLS[round(float(tolls[at : at + step].max()) ** 0.5 / most * (len(_TOLLS) - 1))]
        for at in range(0, SEGMENTS, step)
    )
