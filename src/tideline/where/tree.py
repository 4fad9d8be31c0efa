"""The tree of a condition: what it means, apart from how it is evaluated.

    node := All(node, ...)          every child holds; All() always holds
          | Some(node, ...)         at least one child holds
          | Not(node)               the child does not hold
          | At(path, test)          the test holds for what lies at the path

    test := Equals | Order | In | Exists | IsType | Regex | Mod | Size | ElemMatch
          | Inside | Words | Fuzzy | Contains | Jaccard

The parser removes everything that is only another way to say the same: `$ne` is a Not
of Equals, `$nin` a Not of In, `$nor` a Not of Some, `$all` an All of tests at one path,
`$delta` a test at a path below `DELTA`. So a target knows these nodes and no operator.

`At` reads a path as MongoDB does, part by part, and collects candidates:

    an object   gives what lies at its field; without the field, `MISSING`
    an array    a part goes into every element that is an object; a part that is a whole
                number ("0", "12", not "01") also picks that element, if there is one
    the rest    no part leads into null, text, a number or a boolean: as the value of a field
                it gives `MISSING`, as an element of an array nothing. So `{"a": 1}` has one
                candidate at `a.b`, and `{"a": []}` and `{"a": [1]}` have none
    the end     what was reached is a candidate

An array inside an array is entered only by a number. A candidate that is an array is tested
whole and, where the test says `elements = True`, by each element too (one level) - but whole
only if the last part picked it by number. `At` holds when any candidate does. `MISSING` meets
what null meets (Equals, Order, In) and nothing else. The empty path has one candidate, the
value itself, tested whole only.

All this is what MongoDB 7 and 8 do, quirks included: `{"a": [{"b": 1}]}` meets `{"a.0": null}`,
because the object in the array has no field "0".

A body that is not an object meets `All(())` and no other tree, Not included; inside
`ElemMatch`, see there.

Values are canonical JSON values (`values.canonical`). Nodes are immutable.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import msgspec

__all__ = [
    "DELTA", "All", "At", "Contains", "ElemMatch", "Equals", "Exists", "Fuzzy", "In", "Inside",
    "IsType", "Jaccard", "Mod", "Near", "Node", "Not", "Order", "Regex", "Size", "Some", "Test",
    "Words", "on_element",
]  # fmt: skip

DELTA = "\0delta"
"""A part no stored body has: what lies below it is how much a field has changed."""


class All(msgspec.Struct, frozen=True):
    """Every child holds."""

    nodes: tuple[Node, ...]


class Some(msgspec.Struct, frozen=True):
    """At least one child holds."""

    nodes: tuple[Node, ...]


class Not(msgspec.Struct, frozen=True):
    """The child does not hold."""

    node: Node


class At(msgspec.Struct, frozen=True):
    """A test on what lies at a path."""

    path: tuple[str, ...]
    test: Test


class Equals(msgspec.Struct, frozen=True):
    """The same value; null equals a missing field too."""

    elements: ClassVar[bool] = True
    value: object


class Order(msgspec.Struct, frozen=True):
    """A value of the same bracket that is `$gt`, `$gte`, `$lt` or `$lte` the given one."""

    elements: ClassVar[bool] = True
    operator: str
    value: object


class In(msgspec.Struct, frozen=True):
    """One of these values, or a text that one of these patterns finds."""

    elements: ClassVar[bool] = True
    values: tuple[object, ...]
    patterns: tuple[Regex, ...] = ()


class Exists(msgspec.Struct, frozen=True):
    """Something lies there, null included."""

    elements: ClassVar[bool] = False


class IsType(msgspec.Struct, frozen=True):
    """A value of one of these types, by their MongoDB names.

    "double", "string", "object", "array", "bool", "null", "int" (a whole number of 32 bits),
    "long" (any other whole number) or "number". JSON tells a whole number from a double by
    its text: `3` is an int, `3.0` and `3e0` are doubles.
    """

    elements: ClassVar[bool] = True
    names: tuple[str, ...]


class Regex(msgspec.Struct, frozen=True):
    """A text in which the pattern is found; `options` of `imsx`, sorted."""

    elements: ClassVar[bool] = True
    pattern: str
    options: str = ""


class Mod(msgspec.Struct, frozen=True):
    """A number whose whole part leaves this remainder, with the sign of the number."""

    elements: ClassVar[bool] = True
    divisor: int
    remainder: int


class Size(msgspec.Struct, frozen=True):
    """An array of so many elements."""

    elements: ClassVar[bool] = False
    count: int


class ElemMatch(msgspec.Struct, frozen=True):
    """An array with an element for which the node holds.

    `on_element(node)` tells the two forms apart. If it is true, the tests in the node stand
    at the empty path and are on the element itself. Else the element is the document: it
    must be an object, or an array, which reads as the object {"0": ..., "1": ...}.
    """

    elements: ClassVar[bool] = False
    node: Node


class Inside(msgspec.Struct, frozen=True):
    """A geometry, `[lon, lat]` or GeoJSON, that lies to a shape as asked.

    `kind` is "box" (west, south, east, north), "polygon" (lon, lat, ... of rings; `rings`
    says where each ends, in numbers), "ring" (lon, lat, least and greatest distance in
    metres) or "outline" (the numbers of any geometry, space/outline.py). Edges and rims are
    inside. `how` is "within" (all of it in the shape), "meets" (a point of it) or, of a ring,
    "near" (its nearest point). Of a point these are the same. The exact arithmetic is in `geo.py`.
    """

    elements: ClassVar[bool] = False
    kind: str
    numbers: tuple[float, ...]
    rings: tuple[int, ...] = ()
    how: str = "within"


class Words(msgspec.Struct, frozen=True):
    """A text that has every one of these words, and the words of each phrase one after the other.

    Words are folded. Those of phrases are among `words`, too.
    """

    elements: ClassVar[bool] = True
    words: tuple[str, ...]
    phrases: tuple[tuple[str, ...], ...] = ()


class Near(msgspec.Struct, frozen=True):
    """The words near a word: within an edit distance, or at least so similar."""

    word: str
    distance: int | None = None
    similarity: Fraction | None = None

    def limit(self, longest: int) -> int:
        """The greatest edit distance allowed when the longer of two words has so many characters.

        >>> [Near("word", similarity=Fraction("0.8")).limit(longest) for longest in (4, 5, 9, 10)]
        [0, 1, 1, 2]
        """
        if self.similarity is None:
            return self.distance or 0
        return int((1 - self.similarity) * longest)  # not negative, so this is the floor


class Fuzzy(msgspec.Struct, frozen=True):
    """A text that has, for each of these, a word near it."""

    elements: ClassVar[bool] = True
    words: tuple[Near, ...]


class Contains(msgspec.Struct, frozen=True):
    """A text that contains this one, both folded."""

    elements: ClassVar[bool] = True
    text: str


class Jaccard(msgspec.Struct, frozen=True):
    """A text that shares so large a part of its grams with this one, both folded."""

    elements: ClassVar[bool] = True
    text: str
    grams: int
    similarity: Fraction


Test = (
    Equals | Order | In | Exists | IsType | Regex | Mod | Size | ElemMatch | Inside | Words | Fuzzy
    | Contains | Jaccard
)  # fmt: skip
Node = All | Some | Not | At


def on_element(node: Node) -> bool:
    """Whether the node of an `ElemMatch` tests the element itself, not its fields.

    >>> on_element(Not(At((), Equals(1)))), on_element(At(("a",), Equals(1)))
    (True, False)
    """
    if isinstance(node, At):
        return not node.path
    if isinstance(node, Not):
        return on_element(node.node)
    return any(map(on_element, node.nodes))
