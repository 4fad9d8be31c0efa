"""How a condition is filed, in words.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from typing import Any

from tideline.kernels.standing import layout as at
from tideline.standing.parts import Column

__all__ = ["explained"]

_BY = {
    at.ALWAYS: "always looked at", at.EQUAL: "value", at.CELL: "range", at.ABOVE: "lower bound",
    at.BELOW: "upper bound", at.GRID: "place", at.PREFIX: "prefix", at.BRACKET: "type",
    at.GRAM: "piece of a text", at.PAIR: "value and range", at.PAIR_ABOVE: "value and lower bound",
    at.PAIR_BELOW: "value and upper bound",
}  # fmt: skip


def explained(
    postings: list[tuple[list[int], int, int]], columns: dict[Column, int]
) -> dict[str, Any]:
    """What `Tables.postings` gives, as a document."""
    names = {number: column for column, number in columns.items()}
    filed: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    flags_of_all = 0
    for (kind, first, second, *_), length, flags in postings:
        by = _BY[kind]
        fields: tuple[str, ...] = ()
        if kind != at.ALWAYS:
            view, path = names[first]
            fields = (path, names[second][1]) if kind >= at.PAIR else (path,)
            if kind == at.EQUAL and view == at.WORDS:
                by = "word"
        filed.setdefault((by, fields), []).append(length)
        flags_of_all |= flags
    return {
        "filed": [
            {"by": by, "fields": list(fields), "tokens": len(lengths), "longest": max(lengths)}
            for (by, fields), lengths in filed.items()
        ],
        "decided": "predicate" if flags_of_all & at.F_MAYBE else "kernel",
        "always_looked_at": any(by == _BY[at.ALWAYS] for by, _ in filed),
    }
