"""What clauses are made of: checks, tokens, ways.

Values; safe from any thread.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = [
    "BETWEEN",
    "KIND",
    "SIDE",
    "VALUE",
    "Check",
    "Clause",
    "Column",
    "Token",
    "Way",
    "bits_of",
]

VALUE, BETWEEN, SIDE, KIND = range(4)
_DOUBLE, _WORD = struct.Struct("<d"), struct.Struct("<q")

Column = tuple[int, str]
"""A view (kernels/standing/layout.py) and a dotted path."""


class Check(NamedTuple):
    """A check of a kernel; `text`: where its text stands in that of the condition, and its size."""

    op: int
    column: Column
    operands: tuple[int, ...] = ()
    text: tuple[int, int] | None = None
    rough: tuple[int, int, int, int] | None = None
    """Of a place: op, two operands and a word more of the same check, quick and perhaps unsure."""


class Token(NamedTuple):
    """A shape and two words."""

    kind: int
    column: Column
    level: int
    a: int
    b: int = 0


class Way(NamedTuple):
    """Tokens to file a clause under; what each of them verifies, if it is one check."""

    tokens: list[Token]
    verify: list[Check] | None = None
    group: int = -1
    """The group of checks that these verify one by one."""


class Clause:
    """Groups of checks, and ways to file them."""

    def __init__(self, sure: bool) -> None:
        self.sure = sure
        self.groups: list[list[Check]] = []
        self.ways: list[list[Way]] = [[], [], [], []]
        """By how much they narrow: one value or place, numbers between two, numbers on one side
        of another, all values of a kind."""
        self.ranges: list[tuple[Column, float, float]] = []


def bits_of(number: float) -> int:
    """The bits of a double, -0.0 as 0.0."""
    bits: int = _WORD.unpack(_DOUBLE.pack(number + 0.0))[0]
    return bits
