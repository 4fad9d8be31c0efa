"""What clauses are made of: checks, tokens, ways.

Values; safe from any thread.
"""

from __future__ import annotations

import struct

import msgspec

__all__ = [
    "KIND",
    "VALUE",
    "Check",
    "Clause",
    "Column",
    "Token",
    "Way",
    "bits_of",
]

VALUE, KIND = range(2)
_pack_double, _unpack_word = struct.Struct("<d").pack, struct.Struct("<q").unpack

Column = tuple[int, str]
"""A view (kernels/standing/layout.py) and a dotted path."""


class Check(msgspec.Struct, frozen=True, gc=False):
    """A check of a kernel; `text`: where its text stands in that of the condition, and its size."""

    op: int
    column: Column
    operands: tuple[int, ...] = ()
    text: tuple[int, int] | None = None
    rough: tuple[int, int, int, int] | None = None
    """Of a place: op, two operands and a word more of the same check, quick and perhaps unsure."""


class Token(msgspec.Struct, frozen=True, gc=False):
    """A shape and two words."""

    kind: int
    column: Column
    level: int
    a: int
    b: int = 0


class Way(msgspec.Struct, frozen=True):
    """Tokens to file a clause under; what each of them verifies, if it is one check."""

    tokens: list[Token]
    verify: list[Check] | None = None
    group: int = -1
    """The group of checks that these verify one by one."""


class Clause:
    """Groups of checks, and ways to file them."""

    __slots__ = ("groups", "ranges", "sure", "ways")

    def __init__(self, sure: bool) -> None:
        self.sure = sure
        self.groups: list[list[Check]] = []
        self.ways: tuple[list[Way], list[Way]] = [], []
        """Those that narrow most, by a value or a place; those that narrow least, by a kind."""
        self.ranges: list[tuple[Column, float, float]] = []
        """Numbers between two, or on one side of another: a way each, which narrows less than
        values and more than kinds."""


def bits_of(number: float) -> int:
    """The bits of a double, -0.0 as 0.0."""
    bits: int = _unpack_word(_pack_double(number + 0.0))[0]
    return bits
