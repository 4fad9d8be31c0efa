"""The types of Spark columns a condition can speak of; part of `column.py`.

A condition compares JSON values. Structs are objects, arrays are arrays, and these types have
values that are JSON values; a condition on any other is refused, because it would have to be
given a meaning first: is a timestamp a text, or a number of seconds, or of microseconds?

Imports pyspark; only `column.py` and `exact.py` import this, and only when they are called.
"""

from __future__ import annotations

from pyspark.sql import types as T

from tideline.errors import InvalidRequest
from tideline.where.tree import All, ElemMatch, Node, Not, Some

__all__ = ["REAL", "WHOLE", "check_types", "quoted"]

WHOLE: dict[type[T.DataType], int] = {
    T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64,
}  # fmt: skip
"""Types of whole numbers and their bits."""
REAL = (T.FloatType, T.DoubleType)
_TEXT = (T.StringType, T.CharType, T.VarcharType)
_JSON: tuple[type[T.DataType], ...] = (*WHOLE, *REAL, *_TEXT, T.BooleanType, T.NullType)


def quoted(name: str) -> str:
    """The name of a column as Spark reads it, whatever is in it.

    >>> quoted("a.b")
    '`a.b`'
    """
    return "`" + name.replace("`", "``") + "`"


def check_types(node: Node, kind: T.DataType, place: str = "where") -> None:
    """Refuse a condition on columns of types that no JSON value has.

    >>> from tideline.where import parse
    >>> schema = T.StructType([T.StructField("day", T.DateType())])
    >>> check_types(parse({"day": {"$gt": "2024-05-01"}}).tree, schema)
    Traceback (most recent call last):
    tideline.errors.InvalidRequest: where.day: a date is no JSON value; cast the column first
    """
    if isinstance(node, (All, Some)):
        for part in node.nodes:
            check_types(part, kind, place)
    elif isinstance(node, Not):
        check_types(node.node, kind, place)
    else:
        place = ".".join([place, *node.path])
        for reached in _reached(node.path, kind):
            if isinstance(node.test, ElemMatch) and isinstance(reached, T.ArrayType):
                check_types(node.test.node, reached.elementType, f"{place}.$elemMatch")
                continue
            foreign = _foreign(reached)
            if foreign is not None:
                name = foreign.simpleString()
                raise InvalidRequest(f"{place}: a {name} is no JSON value; cast the column first")


def _reached(path: tuple[str, ...], kind: T.DataType) -> list[T.DataType]:
    """The types a path can lead to, through arrays too."""
    if not path or _foreign(kind) is kind:
        return [kind]
    if isinstance(kind, T.ArrayType):
        picked = _reached(path[1:], kind.elementType) if path[0].isdecimal() else []
        inner = isinstance(kind.elementType, T.StructType)
        return picked + (_reached(path, kind.elementType) if inner else [])
    if not isinstance(kind, T.StructType):
        return []
    named = [field.dataType for field in kind.fields if field.name == path[0]]
    return [reached for inner in named for reached in _reached(path[1:], inner)]


def _foreign(kind: T.DataType) -> T.DataType | None:
    """The first type inside that no JSON value has."""
    if isinstance(kind, T.ArrayType):
        return _foreign(kind.elementType)
    if isinstance(kind, T.StructType):
        inside = (_foreign(field.dataType) for field in kind.fields)
        return next((found for found in inside if found is not None), None)
    return None if isinstance(kind, _JSON) else kind
