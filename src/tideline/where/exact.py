"""A tree as a Spark Column that says exactly the same about a row; part of `column.py`.

The document of a row (`rows.py`) has no nulls among its fields: a column that is null, or a
double that is NaN or infinite, is a field that is missing. The schema says which bracket a
field that is there falls in, so most of a test is decided before a row is seen.

Invariants:
1. A Column is true or false for every row, never null. A test reads `is there AND test` or
   `is not there OR test`, which Spark's three-valued logic turns into true or false.
2. What holds for every row or for none is folded to `True` or `False`, not made a Column.
3. Numbers are compared by value, as Python does: the literal is moved to the nearest number
   that the column's type can hold, the operator follows. Spark would round a long to a double.
4. Zero has two signs. Spark compares them as equal, but its readers of files skip a block of
   -0.0 when asked for 0.0. So `= 0` is asked as `>= -0.0 and <= 0.0`.
5. Text is ordered by bytes of UTF-8, which is the order of code points. Text with another
   collation is not exact.

Whatever is not exact raises `NotExact`, and the condition is checked on the document. Imports
pyspark; only `column.py` imports this, and only when it is called.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tideline.where.predicate import candidate
from tideline.where.said import Said, as_column, every, negate, some
from tideline.where.schema import REAL, WHOLE, quoted
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
    Some,
    Test,
    Words,
    on_element,
)  # fmt: skip
from tideline.where.values import MISSING

__all__ = ["NotExact", "exact"]

_GREATEST = sys.float_info.max
_BY_WORDS = (Words, Fuzzy, Contains, Jaccard)  # folded: Spark's cases are not ours
_PLAIN = frozenset("\\.^$*+?()[]{}|")  # everything else in a pattern stands for itself


class NotExact(Exception):
    """Spark cannot say this with our meaning."""


def exact(node: Node, schema: T.StructType) -> Said:
    """The node over the columns of a frame with this schema; raises `NotExact`.

    >>> schema = T.StructType([T.StructField("speed", T.IntegerType())])
    >>> exact(At(("speed",), Order("$gt", 50.5)), schema)
    Column<'and(isNotNull(speed), >=(speed, 51))'>
    >>> exact(At(("limit",), Equals(50)), schema)  # no row has a limit
    False
    """
    return _node(node, None, schema)


# --- nodes ---


def _node(node: Node, document: Column | None, kind: T.DataType) -> Said:
    """The node about a document, which is the row itself (`None`) or an element of an array."""
    if isinstance(node, All):
        return every(_node(part, document, kind) for part in node.nodes)
    if isinstance(node, Some):
        return some(_node(part, document, kind) for part in node.nodes)
    if isinstance(node, Not):
        return negate(_node(node.node, document, kind))
    assert isinstance(node, At)
    if not node.path:
        if document is None:
            raise NotExact("the row itself")
        return _at(node.test, document, kind, without=candidate(node.test)(None))
    without = candidate(node.test)(MISSING)
    found = _find(node.path, document, kind)
    return without if found is None else _at(node.test, *found, without)


def _find(
    path: tuple[str, ...], column: Column | None, kind: T.DataType
) -> tuple[Column, T.DataType] | None:
    """What lies at a path, `None` if it leads nowhere in any row."""
    for part in path:
        if isinstance(kind, T.ArrayType):
            raise NotExact("a path through an array")
        if not isinstance(kind, T.StructType):
            return None
        fields = [field for field in kind.fields if field.name == part]
        if not fields:
            return None
        if sum(field.name.lower() == part.lower() for field in kind.fields) > 1:
            raise NotExact("names that Spark does not tell apart")
        column = F.col(quoted(part)) if column is None else column.getField(part)
        kind = fields[0].dataType
    assert column is not None
    return None if isinstance(kind, T.NullType) else (column, kind)


def _at(test: Test, column: Column, kind: T.DataType, without: bool) -> Said:
    """The test on a value that may be null, for which the answer is `without`."""
    there = column.isNotNull()
    if isinstance(kind, REAL):
        there = there & (column >= -_GREATEST) & (column <= _GREATEST)  # NaN is above all
    holds = _value(test, column, kind)
    return some([~there, holds]) if without else every([there, holds])


def _value(test: Test, column: Column, kind: T.DataType) -> Said:
    """The test on a value that is there. The Column may be null where the value is."""
    if isinstance(test, Exists):
        return True
    if isinstance(kind, T.ArrayType):
        return _array(test, column, kind.elementType)
    if isinstance(kind, T.StructType):
        return _object(test, column, kind)
    if isinstance(kind, T.StringType):
        return _text(test, column, kind)
    if isinstance(kind, T.BooleanType):
        return _boolean(test, column)
    if type(kind) in WHOLE:
        return _whole(test, column, WHOLE[type(kind)])
    if isinstance(kind, REAL):
        return _real(test, column)
    raise NotExact(f"a {kind.simpleString()}")


# --- brackets ---


def _array(test: Test, column: Column, kind: T.DataType) -> Said:
    if isinstance(test, Size):
        return F.size(column) == test.count
    if isinstance(test, Inside):
        return every([F.size(column) == 2, _point(test, column, kind)])
    if isinstance(kind, T.ArrayType):
        raise NotExact("arrays in arrays")
    if isinstance(test, ElemMatch):
        if not on_element(test.node) and not isinstance(kind, T.StructType):
            return False  # only objects have fields
        return F.exists(column, lambda element: as_column(_matched(test, element, kind)))
    if any(isinstance(value, list) for value in _operands(test)):
        raise NotExact("an array as a whole")
    if isinstance(test, IsType) and "array" in test.names:
        return True
    null = candidate(test)(None)
    return F.exists(column, lambda element: as_column(_at(test, element, kind, null)))


def _matched(test: ElemMatch, element: Column, kind: T.DataType) -> Said:
    said = _node(test.node, element, kind)
    return said if on_element(test.node) else every([element.isNotNull(), said])


def _object(test: Test, column: Column, kind: T.StructType) -> Said:
    if any(isinstance(value, dict) for value in _operands(test)):
        raise NotExact("an object as a whole")
    if not isinstance(test, Inside):
        return isinstance(test, IsType) and "object" in test.names
    named = _find(("type",), column, kind)
    found = _find(("coordinates",), column, kind)
    collects = _find(("geometries",), column, kind) is not None
    inner = found[1].elementType if found and isinstance(found[1], T.ArrayType) else None
    if named is not None and (collects or isinstance(inner, T.ArrayType)):
        raise NotExact("a geometry that is no point")
    if named is None or found is None or not isinstance(found[1], T.ArrayType):
        return False
    points, number = found[0], found[1].elementType
    altitude = _at(Exists(), F.get(points, F.lit(2)), number, without=False)
    flat_or_high = some([F.size(points) == 2, every([F.size(points) == 3, altitude])])
    is_point = _at(Equals("Point"), *named, without=False)
    return every([points.isNotNull(), is_point, flat_or_high, _point(test, points, number)])


def _point(test: Inside, column: Column, kind: T.DataType) -> Said:
    """Whether the first two elements of an array lie in a box, the one shape of comparisons."""
    if test.kind != "box":
        raise NotExact("a shape with arithmetic")
    if not isinstance(kind, (*WHOLE, *REAL)):
        return False
    west, south, east, north = test.numbers
    lon, lat = F.get(column, F.lit(0)), F.get(column, F.lit(1))  # null past the end
    return every(
        _at(Order(operator, bound), number, kind, without=False)
        for number, operator, bound in (
            (lon, "$gte", west), (lon, "$lte", east), (lat, "$gte", south), (lat, "$lte", north),
        )
    )  # fmt: skip


def _boolean(test: Test, column: Column) -> Said:
    if isinstance(test, IsType):
        return "bool" in test.names
    if isinstance(test, Order):
        if not isinstance(test.value, bool):
            return False
        return _COMPARE[test.operator](column, test.value)
    return some(column == value for value in _operands(test) if isinstance(value, bool))


def _text(test: Test, column: Column, kind: T.StringType) -> Said:
    if not kind.isUTF8BinaryCollation() or isinstance(test, _BY_WORDS):
        raise NotExact("text by other rules")
    if isinstance(test, IsType):
        return "string" in test.names
    if isinstance(test, Regex):
        return _pattern(test, column)
    if isinstance(test, Order):
        if not isinstance(test.value, str):
            return False
        return _COMPARE[test.operator](column, test.value)
    found = [_pattern(pattern, column) for pattern in getattr(test, "patterns", ())]
    values = [value for value in _operands(test) if isinstance(value, str)]
    return some([*found, _one_of(column, values)])


def _pattern(test: Regex, column: Column) -> Said:
    """A pattern that is plain text, perhaps with `^` before or `$` after.

    Java's patterns are not ours (RE2), so no other pattern is left to Spark.
    """
    rest, literal = test.pattern, ""
    start, rest = rest.startswith("^"), rest.removeprefix("^")
    while rest and rest != "$":
        if rest[0] == "\\" and rest[1:2] and rest[1] in _PLAIN:
            rest = rest[1:]
        elif rest[0] in _PLAIN:
            raise NotExact("a pattern")
        literal, rest = literal + rest[0], rest[1:]
    end = rest == "$"
    if set(test.options) - set("ms") or ("m" in test.options and (start or end)):
        raise NotExact("a pattern with options")
    if start and end:
        return column == literal
    if not literal:
        return True
    if start:
        return column.startswith(literal)
    return column.endswith(literal) if end else column.contains(literal)


def _whole(test: Test, column: Column, bits: int) -> Said:
    limit = 1 << (bits - 1)  # values are in [-limit, limit)
    if isinstance(test, IsType):
        int32 = 1 << 31
        if "number" in test.names or {"int", "long"} <= set(test.names):
            return True
        if not {"int", "long"} & set(test.names):
            return False
        fits = every([_at_least(column, -int32, limit), _at_most(column, int32 - 1, limit)])
        return fits if "int" in test.names else negate(fits)
    if isinstance(test, Mod):
        return column.cast("long") % F.lit(test.divisor) == test.remainder
    if isinstance(test, Order):
        value = test.value
        if type(value) not in (int, float):
            return False
        assert isinstance(value, (int, float))
        if test.operator == "$gt":
            return _at_least(column, math.floor(value) + 1, limit)
        if test.operator == "$gte":
            return _at_least(column, math.ceil(value), limit)
        if test.operator == "$lt":
            return _at_most(column, math.ceil(value) - 1, limit)
        return _at_most(column, math.floor(value), limit)
    values = [
        int(value)
        for value in _numbers(test)
        if value == math.floor(value) and -limit <= value < limit
    ]
    return _one_of(column, values)


def _at_least(column: Column, bound: int, limit: int) -> Said:
    if bound <= -limit:
        return True
    return column >= bound if bound < limit else False


def _at_most(column: Column, bound: int, limit: int) -> Said:
    if bound >= limit - 1:
        return True
    return column <= bound if bound >= -limit else False


def _real(test: Test, column: Column) -> Said:
    column = column.cast("double")
    if isinstance(test, IsType):
        return bool({"double", "number"} & set(test.names))
    if isinstance(test, Mod):
        if float(test.divisor) != test.divisor or float(test.remainder) != test.remainder:
            raise NotExact("a divisor that is no double")
        whole = column - column % 1.0  # both steps are exact
        return whole % F.lit(float(test.divisor)) == float(test.remainder)
    if isinstance(test, Order):
        value = test.value
        if type(value) not in (int, float):
            return False
        assert isinstance(value, (int, float))
        below, above = _around(value)
        if test.operator == "$gt":
            return column > above if above == value else column >= above
        if test.operator == "$gte":
            return column >= (above or -0.0)
        if test.operator == "$lt":
            return column < below if below == value else column <= below
        return column <= below
    numbers = [float(value) for value in _numbers(test) if float(value) == value]
    found = _one_of(column, [number for number in numbers if number])
    if 0.0 in numbers:
        found = some([found, (column >= -0.0) & (column <= 0.0)])
    return found


def _around(value: float) -> tuple[float, float]:
    """The doubles next to a number, below and above; both are it when it is a double."""
    near = float(value)
    if near == value:
        return near, near
    if near < value:
        return near, math.nextafter(near, math.inf)
    return math.nextafter(near, -math.inf), near


# --- small parts ---

_COMPARE: dict[str, Callable[[Column, bool | str], Column]] = {
    "$gt": lambda column, value: column > value,
    "$gte": lambda column, value: column >= value,
    "$lt": lambda column, value: column < value,
    "$lte": lambda column, value: column <= value,
}


def _operands(test: Test) -> tuple[object, ...]:
    """The values a test compares with."""
    if isinstance(test, (Equals, Order)):
        return (test.value,)
    return test.values if isinstance(test, In) else ()


def _numbers(test: Test) -> list[int | float]:
    return [
        value
        for value in _operands(test)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]


def _one_of(column: Column, values: list[str] | list[int] | list[float]) -> Said:
    if not values:
        return False
    return column == values[0] if len(values) == 1 else column.isin(values)
