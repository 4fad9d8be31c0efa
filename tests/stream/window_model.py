"""A stream window as lists: every question is answered by looking at every row."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

SLIDE_S = 10
PANES = 3
Key = tuple[Any, ...]
Row = tuple[Key, dict[str, Any]]


class Model:
    """Rows by sub-window, in the order in which they came."""

    def __init__(self, keep: str, panes: int = PANES, slide_s: float = SLIDE_S) -> None:
        self.keep = keep
        self.panes = panes
        self.slide_s = slide_s
        self.rows: dict[int, list[Row]] = {}
        self.pane: int | None = None
        self.late = 0
        self.told: list[tuple[int, dict[int, list[Row]]]] = []
        """Of each slide: the sub-window that closed, and what the window was then."""

    def pane_of(self, time_s: float) -> int:
        return math.floor(time_s / self.slide_s)

    def slide(self, pane: int) -> None:
        """A later sub-window opens."""
        if self.pane is not None:
            for closed in range(self.pane, min(pane, self.pane + self.panes + 1)):
                there = {n: list(rows) for n, rows in self.rows.items()
                         if closed - self.panes < n <= closed}  # fmt: skip
                self.told.append((closed, there))
        self.pane = pane
        self.rows = {n: rows for n, rows in self.rows.items() if n > pane - self.panes}

    def append(self, rows: list[tuple[float, Key, dict[str, Any]]]) -> tuple[int, int]:
        """Rows with their times, one by one; how many were stored and how many were late."""
        stored = late = 0
        for time_s, key, values in rows:
            pane = self.pane_of(time_s)
            if self.pane is None or pane > self.pane:
                self.slide(pane)
            assert self.pane is not None
            if pane <= self.pane - self.panes:
                late += 1
                continue
            self.rows.setdefault(pane, []).append((key, values))
            stored += 1
        self.late += late
        return stored, late

    def kept(self, rows: list[Row]) -> list[Row]:
        """What a sub-window keeps, in the order of keys."""
        if self.keep == "last":
            rows = list(dict(rows).items())
        return sorted(rows, key=lambda row: row[0])

    def found(
        self, meant: Any, panes: int | None = None, of: dict[int, list[Row]] | None = None,
        upto: int | None = None,
    ) -> list[tuple[int, Key, dict[str, Any]]]:  # fmt: skip
        """(sub-window, key, values) of what is meant, by sub-window, then key."""
        there = self.rows if of is None else of
        last = self.pane if upto is None else upto
        if last is None:
            return []
        low = last - (panes or self.panes)
        return [
            (pane, key, values)
            for pane in sorted(there)
            if low < pane <= last
            for key, values in self.kept(there[pane])
            if meant(key)
        ]


def begins(prefix: Key) -> Any:
    """Keys that begin like this."""
    return lambda key: key[: len(prefix)] == prefix


def between(low: Key | None, high: Key | None) -> Any:
    """Keys in [low, high), as tuples compare."""
    return lambda key: (low is None or key >= low) and (high is None or key < high)


def mapped(name: str, rows: list[tuple[int, Key, dict[str, Any]]]) -> Any:
    """What a mapper makes of rows."""
    if name == "count":
        return len(rows)
    which, field = name.rstrip(")").split("(")
    if which == "top":
        count, field = field.split(", ")
        best = sorted(((-values[field], key) for _, key, values in rows))[: int(count)]
        return [(key, -value) for value, key in best]
    values = [values[field] for _, _, values in rows]
    exact = sum(map(Fraction, values))
    if which == "sum":
        return float(exact) if any(isinstance(v, float) for v in values) else int(exact)
    if which == "mean":
        return float(exact / len(values)) if values else None
    return {"min": min, "max": max}[which](values) if values else None


def ranked(q: float, values: list[float]) -> float | None:
    """The value that a quantile is about."""
    return sorted(values)[math.floor(q * (len(values) - 1))] if values else None
