"""What is said of the rows of a frame: a Column, or the same for all rows; part of `column.py`.

Constants are folded here, so that a Column is made, and evaluated for every row, only where
rows differ. Imports pyspark; only `column.py` and `exact.py` import this, when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["Said", "as_column", "every", "negate", "some"]

Said = Column | bool


def as_column(said: Said) -> Column:
    """As a Column in any case."""
    return F.lit(said) if isinstance(said, bool) else said


def negate(said: Said) -> Said:
    """The opposite."""
    return not said if isinstance(said, bool) else ~said


def every(parts: Iterable[Said]) -> Said:
    """All of these.

    >>> every([F.col("a"), True, F.col("b")]), every([F.col("a"), False])
    (Column<'and(a, b)'>, False)
    """
    return _joined(parts, neutral=True, both=lambda a, b: a & b)


def some(parts: Iterable[Said]) -> Said:
    """At least one of these.

    >>> some([F.col("a"), False]), some([])
    (Column<'a'>, False)
    """
    return _joined(parts, neutral=False, both=lambda a, b: a | b)


def _joined(parts: Iterable[Said], neutral: bool, both: Callable[[Column, Column], Column]) -> Said:
    columns: list[Column] = []
    decided = False
    for said in parts:  # to the end: making a part may show that it is not exact
        if not isinstance(said, bool):
            columns.append(said)
        elif said is not neutral:
            decided = True
    if decided:
        return not neutral
    if not columns:
        return neutral
    while len(columns) > 1:  # in pairs: Spark walks a tree of expressions by recursion
        pairs = [both(*columns[at : at + 2]) for at in range(0, len(columns) - 1, 2)]
        columns = pairs + columns[2 * len(pairs) :]
    return columns[0]
