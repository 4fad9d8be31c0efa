"""What a condition costs: the work of evaluating it on a body, known before it is done.

    steps on a body  <=  fixed + per_value * values + per_byte * bytes

A step is about a nanosecond of this code on a common machine; what counts is that the number
depends on the condition and the body alone, never on time or load. `values` are the values in the
body, as far as separators tell (`values_in`); `bytes` is its length as JSON text.

    a clause     looks at what lies at its path: every element of an array on the way
    a pattern    at worst a few steps for each of its instructions and each byte (patterns.py)
    `$fuzzy`     an edit distance for every word and each that is asked for; `$words`, `$contains`
                 and `$jaccard` fold the text
    `$in`        compares every array or object with each of those it names

`weight` says how much a condition that stands adds to every event, in one number: a plain clause is
one, and an instruction of a pattern eight.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from typing import NamedTuple

from tideline.where import patterns
from tideline.where.tree import (
    All,
    At,
    Contains,
    ElemMatch,
    Equals,
    Fuzzy,
    In,
    Inside,
    Jaccard,
    Node,
    Not,
    Order,
    Regex,
    Some,
    Test,
    Words,
)

__all__ = ["FREE", "Cost", "cost_of", "values_in"]

_CLAUSE = 200
_VALUE = 500
_CALL = 1_500  # of the pattern engine
_INSTRUCTION = 4  # on a byte
_EASY_BYTE = 20  # of a pattern that needs no engine
_WORDS_BYTE = 100
_FUZZY_BYTE = 2_000
_GRAM_BYTE = 400
_DEEP = 700  # a comparison of arrays or objects
_CORNER = 100


class Cost(NamedTuple):
    """The steps of a condition; costs add up."""

    fixed: int = 0
    per_value: int = 0
    per_byte: int = 0

    def plus(self, other: Cost) -> Cost:
        """Both, one after the other."""
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    def steps(self, size_bytes: int, values: int) -> int:
        """On a body of so many bytes and values.

        >>> Cost(200, 500, 3).steps(100, 2)
        1500
        """
        return self.fixed + self.per_value * values + self.per_byte * size_bytes

    @property
    def weight(self) -> int:
        """What it adds to every event while it stands; a plain clause is one."""
        return max(1, self.fixed // _CLAUSE) + 2 * self.per_byte + self.per_value // 2_000


FREE = Cost()


def values_in(text: bytes) -> int:
    """At most so many values are in a JSON text.

    >>> values_in(b'{"a":[1,2,{"b":3}]}')
    6
    """
    return text.count(b",") + text.count(b"[") + text.count(b"{") + 1


def cost_of(node: Node) -> Cost:
    """The cost of a tree.

    >>> cost_of(At(("speed",), Order("$gt", 50)))
    Cost(fixed=200, per_value=500, per_byte=0)
    """
    if isinstance(node, At):
        return _test(node.test, max(len(node.path), 1))
    if isinstance(node, Not):
        return cost_of(node.node)
    assert isinstance(node, (All, Some))
    total = FREE
    for part in node.nodes:
        total = total.plus(cost_of(part))
    return total


def _test(test: Test, parts: int) -> Cost:
    plain = Cost(_CLAUSE, _VALUE * parts, 0)
    if isinstance(test, Regex):
        return plain.plus(_pattern(test))
    if isinstance(test, In):
        deep = sum(type(value) in (list, dict) for value in test.values)
        total = plain.plus(Cost(0, _DEEP * deep, 0))
        for pattern in test.patterns:
            total = total.plus(_pattern(pattern))
        return total
    if isinstance(test, (Equals, Order)):
        return plain.plus(Cost(0, _DEEP, 0)) if type(test.value) in (list, dict) else plain
    if isinstance(test, (Words, Contains)):
        return plain.plus(Cost(0, 0, _WORDS_BYTE))
    if isinstance(test, Fuzzy):
        return plain.plus(Cost(0, 0, _FUZZY_BYTE * len(test.words)))
    if isinstance(test, Jaccard):
        return plain.plus(Cost(0, 0, _GRAM_BYTE))
    if isinstance(test, Inside):
        corners = len(test.numbers) // 2
        return plain.plus(Cost(_CORNER * corners, _CORNER * corners, 0))
    if isinstance(test, ElemMatch):
        inner = cost_of(test.node)  # once for every element
        return plain.plus(Cost(0, inner.fixed + inner.per_value, inner.per_byte))
    return plain


def _pattern(test: Regex) -> Cost:
    if patterns.easy(test):
        return Cost(0, 0, _EASY_BYTE)
    return Cost(0, _CALL, _INSTRUCTION * patterns.program_size(test))
