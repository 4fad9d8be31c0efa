"""A condition as clauses: what must hold together, in checks that a kernel can decide.

    condition -> boxes (where/bounds.py) -> clauses: groups of checks, and ways to file them

A clause holds when one check of each of its groups holds. It is *sure* when that is all there is
to say; else the predicate is asked about the rows that meet it. A *way* is a list of tokens: every
document that meets the clause makes at least one of them, so filing the clause under those of one
way is enough. Which way, `filing.py` decides.

A token is a shape (kernels/standing/layout.py) and two words:

    EQUAL     a value of a column, or a word of its texts       hash
    CELL      a number between two others: cells of a width      number of the cell
    ABOVE     a number from another on; BELOW: up to another     none; the bucket is the level
    GRID      a point near another: cells of degrees             numbers of the cell
    PREFIX    a text that begins so                              hash
    GRAM      a text that has a piece, of up to four bytes       the bytes
    BRACKET   a value of a kind                                  kind

Pure functions but for the seed of the hashes; safe from any thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tideline.addresses import address_of
from tideline.kernels.standing import layout as at
from tideline.kernels.standing import values
from tideline.standing.grams import add_grams
from tideline.standing.parts import (
    KIND,
    VALUE,
    Check,
    Clause,
    Column,
    Token,
    Way,
    bits_of,
)
from tideline.standing.places import add_place
from tideline.where import Condition
from tideline.where.bounds import BOXES_LIMIT, Bounds, Box, Need, Range, bounds, need_of
from tideline.where.tree import (
    DELTA,
    All,
    At,
    Contains,
    ElemMatch,
    Equals,
    Fuzzy,
    In,
    Inside,
    Jaccard,
    Mod,
    Node,
    Not,
    Order,
    Regex,
    Size,
    Test,
    Words,
)

__all__ = ["Value", "bucket_of", "clauses", "one_of", "range_tokens"]

CLAUSES_LIMIT = 16
PREFIX_LIMIT = 16  # bytes of a prefix that are hashed: few shapes
_EXACT = float(1 << 53)
_BEYOND = float(1 << 64)
_LONGEST = 1 << 64  # characters: no word is longer
_LOWER = (1 << 63) - 1
_PLAIN = frozenset((Equals, Order, Inside))
_NUMBERS = frozenset((int, float))
_POINTS = _NUMBERS | {str}
Value = tuple[Check, Token, bool]
"""A check, the token of what meets it, and whether the check is exact."""
_BRACKET_KINDS = {"text": at.K_TEXT, "object": at.K_OBJECT, "array": at.K_ARRAY}


def bucket_of(number: float) -> int:
    """The bucket of a number, as `kernels.standing.tokens.bucket`."""
    bits = bits_of(number)
    return (bits ^ (_LOWER if bits < 0 else 0)) >> at.BUCKET


def clauses(condition: Condition, seed: int) -> list[Clause]:
    """The clauses of a condition, one of which a document must meet.

    >>> from tideline.where import parse
    >>> one, = clauses(parse({"shop": 7, "total": {"$gte": 20, "$lt": 40}}), seed=1)
    >>> one.sure, one.ranges
    (True, [((0, 'total'), 20.0, 39.99999999999999)])
    """
    maker = _Maker(condition.text, seed)
    tree = condition.tree
    together = tree.nodes if type(tree) is All else (tree,)
    if all(map(_is_plain, together)):
        plain = maker.plain(together)
        return [] if plain is None else [plain]
    parts = list(_parts(tree))
    found = bounds(condition)
    nots = [part.node for part in parts if isinstance(part, Not) and _is_checked(part.node)]
    rest = All(tuple(p for p in parts if not (isinstance(p, Not) and _is_checked(p.node))))
    sure = _captured(rest)[0]
    boxes = found.boxes
    if len(boxes) > CLAUSES_LIMIT:
        boxes, sure = (_common(found),), False
    made = [maker.clause(box, sure) for box in boxes]
    for clause in made:
        if clause is not None:
            for one in nots:
                maker.deny(clause, one)
    return [clause for clause in made if clause is not None]


def one_of(condition: Condition, seed: int) -> list[Value] | None:
    """The numbers and texts of a condition that wants one of these at a path, and no more."""
    node = condition.tree
    if type(node) is not At or node.path[0] == DELTA:
        return None
    test = node.test
    if type(test) is Equals:
        wanted: tuple[object, ...] = (test.value,)
    elif type(test) is In and not test.patterns:
        wanted = test.values
    else:
        return None
    if not wanted or not _POINTS.issuperset(map(type, wanted)):
        return None
    maker, column = _Maker(condition.text, seed), (at.VALUES, _dotted(node.path))
    return [maker.value(column, each) for each in wanted]


def _dotted(path: tuple[str, ...]) -> str:
    return path[0] if len(path) == 1 else ".".join(path)


def _is_plain(node: Node) -> bool:
    """Whether a node is a comparison or a place, as most are: they need no normal form."""
    if not isinstance(node, At):
        return False
    test = node.test
    return type(test) in _PLAIN or (isinstance(test, In) and not test.patterns)


def _parts(node: Node) -> Iterator[Node]:
    """What must hold together."""
    if isinstance(node, All):
        for part in node.nodes:
            yield from _parts(part)
    else:
        yield node


def _is_checked(node: Node) -> bool:
    """Whether a kernel can check that a test does not hold."""
    if not isinstance(node, At):
        return False
    return isinstance(node.test, (Equals, Order)) or (
        isinstance(node.test, In) and not node.test.patterns
    )


def _captured(node: Node) -> tuple[bool, int]:
    """Whether the boxes say all that a tree does, and how many they are."""
    if isinstance(node, At):
        return node.path[:1] != (DELTA,) and not isinstance(node.test, ElemMatch), 1
    if isinstance(node, Not):
        return False, 1
    parts = [_captured(part) for part in node.nodes]
    counts = [count for _, count in parts]
    count = math.prod(counts) if isinstance(node, All) else sum(counts)
    return all(whole for whole, _ in parts) and count <= BOXES_LIMIT, count


def _common(found: Bounds) -> Box:
    """What all boxes need, as one."""
    first, *others = found.boxes
    needs: dict[str, tuple[Need, ...]] = {}
    for path, each in first.needs.items():
        kept = tuple(n for n in each if all(n in box.needs.get(path, ()) for box in others))
        if kept:
            needs[path] = kept
    return Box(needs)


class _Maker:
    def __init__(self, text: bytes, seed: int) -> None:
        self._text = text
        self._seed = seed

    def clause(self, box: Box, sure: bool) -> Clause | None:
        """The clause of a box, or None when nothing meets it."""
        made = Clause(sure)
        for path, needs in box.needs.items():
            column = at.VALUES, path
            low, high = -math.inf, math.inf
            for need in map(_without_orders_of_booleans, needs):
                if not need:
                    return None
                if len(need) == 1 and need[0].bracket == "number" and not need[0].point:
                    least, greatest, exact = _closed(need[0])
                    low, high = max(low, least), min(high, greatest)
                    made.sure = made.sure and exact
                else:
                    self._need(made, column, need)
            if low > -math.inf or high < math.inf:
                _range(made, column, low, high)
        for path, tests in box.tests.items():
            for test in tests:
                self._test(made, path, test)
        return made

    def plain(self, parts: tuple[Any, ...]) -> Clause | None:
        """The clause of comparisons and places that must hold together: as that of its box."""
        made = Clause(True)
        ranges: dict[str, tuple[float, float]] = {}
        for part in parts:
            path, test = _dotted(part.path), part.test
            kind = type(test)
            if kind is Inside:
                add_place(made, (at.POINT, path), test)
                continue
            # What comes most often needs no range of values.
            if kind is Equals and type(test.value) in _POINTS:
                self._add(made, (self.value((at.VALUES, path), test.value),))
                continue
            if kind is In and test.values and _POINTS.issuperset(map(type, test.values)):
                column = at.VALUES, path
                self._add(made, [self.value(column, value) for value in test.values])
                continue
            if kind is Order and type(test.value) in _NUMBERS:
                low, high = ranges.get(path, (-math.inf, math.inf))
                is_open = len(test.operator) == 3  # $gt, $lt
                if test.operator[1] == "g":
                    least, exact = _low_end(test.value, is_open)
                    low = max(low, least)
                else:
                    greatest, exact = _high_end(test.value, is_open)
                    high = min(high, greatest)
                ranges[path] = low, high
                made.sure = made.sure and exact
                continue
            need, _ = need_of(test)
            need = _without_orders_of_booleans(need or ())
            if not need:
                return None
            self._need(made, (at.VALUES, path), need)
        for path, (low, high) in ranges.items():
            _range(made, (at.VALUES, path), low, high)
        return made

    def deny(self, made: Clause, node: Node) -> None:
        """A comparison that must not hold, for any value: checks, and no way to file."""
        assert isinstance(node, At)
        alone = Clause(True)
        column = at.VALUES, ".".join(node.path)
        need, _ = need_of(node.test)
        need = _without_orders_of_booleans(need or ())
        if need:
            self._need(alone, column, need)
        if not alone.sure:
            made.sure = False
            return
        for group in alone.groups:
            denied = [msgspec.structs.replace(check, op=check.op | at.NOT) for check in group]
            made.groups += [[check] for check in denied]

    def _need(self, made: Clause, column: Column, need: Need) -> None:
        self._add(made, [self._one(column, one) for one in need])

    def _add(self, made: Clause, found: Sequence[Value]) -> None:
        """A group of checks, and the way that their tokens are."""
        checks, tokens, sure, narrow = [], [], made.sure, VALUE
        for check, token, exact in found:
            checks.append(check)
            tokens.append(token)
            sure = sure and exact
            if token.kind == at.BRACKET:
                narrow = KIND
        if checks in made.groups:
            return
        made.sure = sure
        made.ways[narrow].append(Way(tokens, checks, len(made.groups)))
        made.groups.append(checks)

    def _one(self, column: Column, one: Range) -> Value:
        """A check of a range of values, its token, and whether the check is exact."""
        if one.bracket == "null":
            return *_of_kind(column, at.K_NULL, at.EQUAL), True
        if one.bracket == "boolean":
            kind = at.K_TRUE if one.low else at.K_FALSE
            return *_of_kind(column, kind, at.EQUAL), True
        if type(one.low) in _POINTS and one.point:
            return self.value(column, one.low)
        if isinstance(one.low, str) and one.high is not None:  # only a pattern gives both ends
            return self._begins(column, one.low)
        if one.bracket == "number":
            low, high, exact = _closed(one)
            check = Check(at.OP_RANGE, column, (bits_of(low), bits_of(high)))
            return check, Token(at.BRACKET, column, 0, at.K_NUMBER), exact
        kind = _BRACKET_KINDS[one.bracket]
        return *_of_kind(column, kind, at.BRACKET), False

    def value(self, column: Column, value: Any) -> Value:
        """The same of one number or text."""
        if type(value) is not str:
            number, exact = _near(value)
            bits = bits_of(number)
            return Check(at.OP_NUMBER, column, (bits,)), Token(at.EQUAL, column, 0, bits), exact
        data = value.encode()
        hashed = self.hash_text(data)
        token = Token(at.EQUAL, column, 0, hashed)
        where = self._where(data)
        if where is None:
            return Check(at.OP_HASH, column, (hashed,)), token, False
        return Check(at.OP_TEXT, column, (hashed,), where), token, True

    def _begins(self, column: Column, start: str) -> Value:
        data = start.encode()
        short = data[:PREFIX_LIMIT]
        token = Token(at.PREFIX, column, len(short), self.hash_text(short))
        where = self._where(data)
        if where is None:
            return Check(at.OP_KIND, column, (at.K_TEXT,)), token, False
        return Check(at.OP_PREFIX, column, (0,), where), token, True

    def _where(self, data: bytes) -> tuple[int, int] | None:
        """Where bytes stand in the text of the condition; not when they have escapes there."""
        if msgspec.json.encode(data.decode())[1:-1] != data:
            return None
        first = self._text.find(data)
        return None if first < 0 else (first, len(data))

    def hash_text(self, data: bytes) -> int:
        """The hash of a text."""
        found: int = values.hash_text(address_of(data), len(data), self._seed)
        return found

    def _test(self, made: Clause, path: str, test: Test) -> None:
        values_of, kind = (at.VALUES, path), 0
        if isinstance(test, Inside):
            add_place(made, (at.POINT, path), test)
            return
        made.sure = False
        if isinstance(test, Words):
            self._words(made, path, test.words)
        elif isinstance(test, (Regex, Fuzzy, Contains, Jaccard)):
            kind = at.K_TEXT
            if isinstance(test, Fuzzy):  # those that must be met exactly are words as others are
                exact = tuple(one.word for one in test.words if not one.limit(_LONGEST))
                self._words(made, path, exact)
            if not isinstance(test, Regex):
                add_grams(made, path, test)
        elif isinstance(test, Mod):
            kind = at.K_NUMBER
        elif isinstance(test, Size):
            kind = at.K_ARRAY
        if kind:
            made.ways[KIND].append(Way([Token(at.BRACKET, values_of, 0, kind)]))

    def _words(self, made: Clause, path: str, wanted: tuple[str, ...]) -> None:
        column = at.WORDS, path
        for word in wanted:
            data = word.encode()
            hashed: int = values.hash_word(address_of(data), len(data), self._seed)
            made.ways[VALUE].append(Way([Token(at.EQUAL, column, 0, hashed)]))
            made.groups.append([Check(at.OP_HASH, column, (hashed,))])


def _without_orders_of_booleans(need: Need) -> Need:
    for one in need:
        if one.bracket == "boolean" and not one.point:
            break
    else:
        return need
    found: list[Range] = []
    for one in need:
        if one.bracket == "boolean":
            found += [Range("boolean", value, value) for value in (False, True) if one.holds(value)]
        else:
            found.append(one)
    return tuple(found)


def _of_kind(column: Column, kind: int, shape: int) -> tuple[Check, Token]:
    return Check(at.OP_KIND, column, (kind,)), Token(shape, column, 0, kind)


# --- numbers ---


def _near(number: Any) -> tuple[float, bool]:
    """The double nearest to a number, and whether comparing doubles with it is exact.

    Whole numbers of a document are compared as doubles too: those from 2**53 on may be rounded,
    but not to below it. So bounds below that are exact, and those that no such number reaches.
    """
    near = float(number)
    return near, -_EXACT < near < _EXACT or abs(near) > _BEYOND


def _closed(one: Range) -> tuple[float, float, bool]:
    """The least and the greatest double of a range, and whether that is exact."""
    low, high, exact, high_exact = -math.inf, math.inf, True, True
    if one.low is not None:
        low, exact = _low_end(one.low, one.low_open)
    if one.high is not None:
        high, high_exact = _high_end(one.high, one.high_open)
    return low, high, exact and high_exact


def _low_end(number: object, is_open: bool) -> tuple[float, bool]:
    """The least double of a range that begins so, and whether that is exact."""
    low, exact = _near(number)
    if exact and not is_open:
        return low, True
    return math.nextafter(low, math.inf if exact else -math.inf), exact


def _high_end(number: object, is_open: bool) -> tuple[float, bool]:
    """The greatest double of a range that ends so, and whether that is exact."""
    high, exact = _near(number)
    if exact and not is_open:
        return high, True
    return math.nextafter(high, -math.inf if exact else math.inf), exact


def _range(made: Clause, column: Column, low: float, high: float) -> None:
    """A check and the ways of a range of numbers."""
    made.groups.append([Check(at.OP_RANGE, column, (bits_of(low), bits_of(high)))])
    if low > high:  # only two numbers of an array can meet it
        made.ways[KIND].append(Way([Token(at.BRACKET, column, 0, at.K_NUMBER)]))
        return
    made.ranges.append((column, low, high))


def range_tokens(column: Column, low: float, high: float) -> Iterator[Token]:
    """The tokens of a range: cells as wide as it is or wider, or a bucket."""
    if low == -math.inf:
        yield Token(at.BELOW, column, bucket_of(high), 0)
    elif high == math.inf:
        yield Token(at.ABOVE, column, bucket_of(low), 0)
    else:
        level, cells = _cells(low, high)
        for cell in cells:
            yield Token(at.CELL, column, level, cell)


def _cells(low: float, high: float) -> tuple[int, list[int]]:
    """The level of an interval and its one or two cells, each as the bits of its number."""
    level = math.frexp(high - low)[1] if high - low < math.inf else 1000
    if low == high:
        level = -1000
    largest = math.frexp(max(abs(low), abs(high)))[1]
    level = min(max(level, largest - 50, -1000), 1000)
    scale = 2.0**-level
    first, last = math.floor(low * scale), math.floor(high * scale)
    return level, [bits_of(float(cell)) for cell in range(first, last + 1)]
