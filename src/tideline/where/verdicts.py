"""A tree as a function of many bodies at once: half of the batch target.

A verdict is a byte a row, NO < UNSURE < YES, so that for arrays of them

    All is minimum      Some is maximum      Not is YES - verdict

A verdict that is not UNSURE is what the predicate says of the row; the other rows are
decoded and asked one by one (`batch.py`). So a test may leave whatever it likes open, and
this module only has to be right where it commits itself.

A test commits itself by the *kind* of what lies at its path: for most kinds its verdict
does not depend on the value (no regex finds a number), and then the predicate itself is
asked about one value of that kind. The kinds a test looks into are listed in `_looks_into`;
of these, numbers are compared with a range, texts byte by byte, and what else is asked of
texts is asked of each distinct one once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.kernels import jsonpath as at
from tideline.kernels import judge
from tideline.kernels.jsonpath import ARRAY, ESCAPED, FLOAT, INT, OBJECT, TEXT
from tideline.where import patterns
from tideline.where.candidates import candidate
from tideline.where.tree import (
    All,
    At,
    Contains,
    ElemMatch,
    Equals,
    Exists,
    Fuzzy,
    In,
    Inside,
    IsType,
    Jaccard,
    Mod,
    Node,
    Not,
    Order,
    Regex,
    Size,
    Test,
    Words,
)  # fmt: skip
from tideline.where.values import MISSING

__all__ = ["NO", "UNSURE", "YES", "PathValues", "Verdicts", "verdicts"]

NO, UNSURE, YES = 0, 1, 2
Verdicts = NDArray[np.uint8]
Rows = NDArray[np.int64]

# One value of every kind, for the tests that do not look into it.
_SAMPLES: dict[int, object] = {
    at.MISSING: MISSING, at.NULL: None, at.FALSE: False, at.TRUE: True, INT: 0, FLOAT: 0.5,
    TEXT: "", ESCAPED: "", ARRAY: [], OBJECT: {},
}  # fmt: skip
_NUMBERS, _TEXTS = {INT, FLOAT, ARRAY}, {TEXT, ESCAPED, ARRAY}
_INT_LOW, _INT_HIGH = -(1 << 63), (1 << 63) - 1
_EXACT = 1 << 53  # whole numbers up to here are floats
_PARTS = 8  # an In of at most so many values is as many comparisons

# For a text that sorts before the wanted one, with it, after it.
_BY_ORDER = {
    "$eq": (NO, YES, NO), "$gt": (NO, NO, YES), "$gte": (NO, YES, YES), "$lt": (YES, NO, NO),
    "$lte": (YES, YES, NO),
}  # fmt: skip


class PathValues:
    """What lies at some nodes in some rows, as `kernels.jsonpath.scan` left it."""

    def __init__(
        self, data: NDArray[np.uint8], tags: NDArray[np.int64], values: NDArray[np.int64]
    ) -> None:
        self.base = address_of(data)  # an address: where a text begins counts from there
        self.limit = self.base + len(data)
        self.tags = tags
        self.values = values
        self.floats = values.view(np.float64)
        self._texts: dict[int, tuple[NDArray[np.int64], Any]] = {}

    @property
    def rows(self) -> int:
        """How many rows."""
        return int(self.tags.shape[1])

    def texts(self, node: int, rows: Rows) -> tuple[NDArray[np.int64], Any]:
        """(the number of each row's text, the distinct texts); the rows must be all the TEXT."""
        if node not in self._texts:
            offsets = np.zeros(len(rows) + 1, np.int64)
            np.cumsum(self.tags[node][rows] >> 8, out=offsets[1:])
            data = np.empty(offsets[-1], np.uint8)
            judge.copy_texts(self.base, self.values[node][rows], offsets, data)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            texts = pa.Array.from_buffers(pa.large_string(), len(rows), buffers)
            encoded = texts.dictionary_encode()
            self._texts[node] = encoded.indices.to_numpy(), encoded.dictionary
        return self._texts[node]


Judge = Callable[[PathValues], Verdicts]
Look = Callable[[PathValues, int, Rows], NDArray[np.bool_]]  # whether the test holds, in those rows


def verdicts(tree: Node, nodes: dict[tuple[str, ...], int]) -> Judge:
    """The tree as a function of what was found; `nodes` says at which node each path ends."""
    if isinstance(tree, At):
        return _test(tree.test, nodes[tree.path])
    if isinstance(tree, Not):
        inner = verdicts(tree.node, nodes)
        return lambda found: np.subtract(YES, inner(found), dtype=np.uint8)
    parts = [verdicts(part, nodes) for part in tree.nodes]
    return _joined(np.minimum, YES, parts) if isinstance(tree, All) else _some(parts)


def _some(parts: list[Judge]) -> Judge:
    return _joined(np.maximum, NO, parts)


def _joined(join: Any, empty: int, parts: list[Judge]) -> Judge:
    if not parts:
        return lambda found: np.full(found.rows, empty, np.uint8)
    return lambda found: reduce(join, (part(found) for part in parts))


def _test(test: Test, node: int) -> Judge:
    """A test on what lies at a node."""
    table = _table(test)
    if isinstance(test, (Equals, Order)):
        operator = test.operator if isinstance(test, Order) else "$eq"
        if isinstance(test.value, str):
            return _against_text(table, node, operator, test.value)
        if type(test.value) in (int, float):
            return _in_range(table, node, *_range(operator, test.value))
    elif isinstance(test, In) and len(test.values) + len(test.patterns) <= _PARTS:
        alone: list[Test] = [*map(Equals, test.values), *test.patterns]
        return _some([_test(part, node) for part in alone])
    return _looking(table, node, _looks(test))


# --- by kind ---


def _looks_into(test: Test) -> set[int]:
    """The kinds whose verdict depends on the value."""
    if isinstance(test, (Equals, Order)):
        return _compared(test.value)
    if isinstance(test, In):
        found = {ARRAY}.union(*map(_compared, test.values))
        return found | _TEXTS if test.patterns else found
    return _LOOKS_INTO[type(test)]


def _compared(value: object) -> set[int]:
    """The kinds a comparison with a value looks into."""
    by_type = {int: _NUMBERS, float: _NUMBERS, str: _TEXTS, dict: {OBJECT, ARRAY}}
    return by_type.get(type(value), {ARRAY})


_LOOKS_INTO: dict[type, set[int]] = {
    Exists: set(), IsType: {INT, ARRAY}, Regex: _TEXTS, Mod: _NUMBERS, Size: {ARRAY},
    ElemMatch: {ARRAY}, Inside: {ARRAY, OBJECT}, Words: _TEXTS, Fuzzy: _TEXTS,
    Contains: _TEXTS, Jaccard: _TEXTS,
}  # fmt: skip


def _table(test: Test) -> Verdicts:
    """The verdict of every kind, as the predicate gives it; UNSURE for those looked into."""
    tested, looked_into = candidate(test), _looks_into(test)
    table = np.full(at.KINDS, UNSURE, np.uint8)
    for kind, sample in _SAMPLES.items():
        if kind not in looked_into:
            table[kind] = YES if tested(sample) else NO
    return table


def _looking(table: Verdicts, node: int, looks: dict[int, Look]) -> Judge:
    """By the table, except for the kinds that are looked into."""

    def judged(found: PathValues) -> Verdicts:
        given = np.empty(found.rows, np.uint8)
        judge.judge_kinds(found.tags[node], table, given)
        for kind, look in looks.items():
            rows = np.flatnonzero(found.tags[node] & 255 == kind)
            if len(rows):
                given[rows] = np.where(look(found, node, rows), YES, NO)
        return given

    return judged


def _looks(test: Test) -> dict[int, Look]:
    """How to look into the kinds for which that is worth it; the others stay UNSURE."""
    if isinstance(test, In):
        return {
            INT: _among(np.int64, test.values),
            FLOAT: _among(np.float64, test.values),
            TEXT: _distinct(_asked(test)),
        }
    if isinstance(test, Regex):
        return {TEXT: _distinct(_found_by(test))}
    if isinstance(test, (Words, Fuzzy, Contains, Jaccard)):
        return {TEXT: _distinct(_asked(test))}
    if isinstance(test, IsType):
        return {INT: _int_type(test)}
    if isinstance(test, Size):
        return {ARRAY: lambda found, node, rows: found.values[node][rows] == test.count}
    if isinstance(test, Mod) and abs(test.divisor) <= _EXACT:
        return _remainders(test)
    return {}


# --- numbers ---


def _range(operator: str, value: Any) -> tuple[int, int, float, float]:
    """Where a number must lie: the least and the greatest int64, then float64.

    Exact: no whole number is compared as a float.

    >>> _range("$gt", 2.5)
    (3, 9223372036854775807, 2.5000000000000004, inf)
    >>> _range("$eq", (1 << 53) + 1)
    (9007199254740993, 9007199254740993, inf, -inf)
    """
    low, high, float_low, float_high = _INT_LOW, _INT_HIGH, -math.inf, math.inf
    near = float(value)
    if operator in ("$eq", "$gt", "$gte"):
        beyond = operator == "$gt"
        low = max(low, math.floor(value) + 1 if beyond else math.ceil(value))
        short = near < value or (beyond and near == value)
        float_low = math.nextafter(near, math.inf) if short else near
    if operator in ("$eq", "$lt", "$lte"):
        beyond = operator == "$lt"
        high = min(high, math.ceil(value) - 1 if beyond else math.floor(value))
        short = near > value or (beyond and near == value)
        float_high = math.nextafter(near, -math.inf) if short else near
    if low > high:
        low, high = 1, 0
    if float_low > float_high:
        float_low, float_high = math.inf, -math.inf
    return low, high, float_low, float_high


def _in_range(
    table: Verdicts, node: int, low: int, high: int, float_low: float, float_high: float
) -> Judge:
    def judged(found: PathValues) -> Verdicts:
        given = np.empty(found.rows, np.uint8)
        judge.judge_numbers(
            found.tags[node], found.values[node], found.floats[node], table,
            low, high, float_low, float_high, given,
        )  # fmt: skip
        return given

    return judged


def _among(kind: Any, values: tuple[object, ...]) -> Look:
    """Whether a number is one of those among the values that are exactly of its kind."""
    kept = []
    for value in values:
        if type(value) in (int, float):
            low, high, float_low, float_high = _range("$eq", value)
            if low <= high if kind is np.int64 else float_low <= float_high:
                kept.append(low if kind is np.int64 else float_low)
    wanted = np.array(kept, kind)
    return lambda found, node, rows: np.isin(found.values[node][rows].view(kind), wanted)


def _remainders(test: Mod) -> dict[int, Look]:
    divisor, remainder = abs(test.divisor), test.remainder

    def leaves(numbers: NDArray[Any]) -> NDArray[np.bool_]:
        holds: NDArray[np.bool_] = np.fmod(numbers, divisor) == remainder
        return holds

    return {
        INT: lambda found, node, rows: leaves(found.values[node][rows]),
        FLOAT: lambda found, node, rows: leaves(np.trunc(found.floats[node][rows])),
    }


def _int_type(test: IsType) -> Look:
    """MongoDB's names tell apart whole numbers that fit 32 bits and larger ones."""
    small, large = map(candidate(test), (0, 1 << 31))

    def look(found: PathValues, node: int, rows: Rows) -> NDArray[np.bool_]:
        values = found.values[node][rows]
        return np.where((values >= -(1 << 31)) & (values < 1 << 31), small, large)

    return look


# --- texts ---


def _against_text(table: Verdicts, node: int, operator: str, value: str) -> Judge:
    encoded = value.encode()
    wanted = np.frombuffer(encoded + bytes(8), np.uint8).copy()
    by_order = np.array(_BY_ORDER[operator], np.uint8)

    def judged(found: PathValues) -> Verdicts:
        given = np.empty(found.rows, np.uint8)
        judge.judge_texts(
            found.base, found.limit, found.tags[node], found.values[node], table,
            wanted, len(encoded), by_order, given,
        )  # fmt: skip
        return given

    return judged


def _distinct(hold: Callable[[Any], NDArray[np.bool_]]) -> Look:
    """Ask of each distinct text once; `hold` takes an Arrow array of them."""

    def look(found: PathValues, node: int, rows: Rows) -> NDArray[np.bool_]:
        codes, texts = found.texts(node, rows)
        return hold(texts)[codes]

    return look


def _asked(test: Test) -> Callable[[Any], NDArray[np.bool_]]:
    """The predicate, text by text."""
    tested = candidate(test)
    return lambda texts: np.fromiter(map(tested, texts.to_pylist()), np.bool_, len(texts))


def _found_by(test: Regex) -> Callable[[Any], NDArray[np.bool_]]:
    """Arrow's RE2 where it cannot differ from the predicate's: in ASCII.

    The two may be of different years, with different tables of Unicode.
    """
    pattern, asked = patterns.plain(test), _asked(test)

    def hold(texts: Any) -> NDArray[np.bool_]:
        holds: NDArray[np.bool_] = _numpy(pc.match_substring_regex(texts, pattern)).copy()
        others = np.flatnonzero(~_numpy(pc.string_is_ascii(texts)))
        if len(others):
            holds[others] = asked(texts.take(pa.array(others)))
        return holds

    return hold


def _numpy(array: Any) -> NDArray[np.bool_]:
    numbers: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return numbers
