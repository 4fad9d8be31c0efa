"""The names of Spark's types, checked without Spark.

    type_problem("array<int>")   None: it is a type
    type_problem("sting")        "there is no type 'sting': did you mean 'string'?"
    kind_of("decimal(12,2)")     "number"

Only the grammar: `decimal(12,2)`, `array<...>`, `map<..., ...>`, `struct<name: ..., ...>`.
"""

from __future__ import annotations

import re

from tideline.near import nearest

__all__ = ["WHOLE", "kind_of", "type_problem"]

_PLAIN = (
    "string", "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint",
    "long", "float", "real", "double", "decimal", "date", "timestamp", "timestamp_ntz", "binary",
    "variant",
)  # fmt: skip
WHOLE = {
    "tinyint": 8, "byte": 8, "smallint": 16, "short": 16, "int": 32, "integer": 32, "bigint": 64,
    "long": 64,
}  # fmt: skip
"""The types of whole numbers, with their bits."""
_KINDS = {
    "string": "text", "boolean": "flag", "float": "number", "real": "number", "double": "number",
    "decimal": "number", "timestamp": "time", "timestamp_ntz": "time", "date": "day",
    **dict.fromkeys(WHOLE, "whole"),
}  # fmt: skip
_MEANT = {
    "str": "string", "text": "string", "varchar": "string", "bool": "boolean", "number": "double",
    "int64": "bigint", "int32": "int", "float64": "double", "datetime": "timestamp",
    "time": "timestamp", "list": "array<...>", "object": "struct<...>", "dict": "struct<...>",
}  # fmt: skip
_WORD = re.compile(r"[a-z_0-9]+")
_NAME = re.compile(r"\s*(?:`[^`]+`|[A-Za-z_][A-Za-z0-9_]*)\s*:?\s*")
_DECIMAL = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def type_problem(text: str) -> str | None:
    """What is wrong with the name of a type; `None` when it is one.

    >>> type_problem("struct<lon: double, lat: double>")
    >>> type_problem("flaot")
    "there is no type 'flaot': did you mean 'float'?"
    """
    try:
        rest = _type(text.strip().lower())
    except _Wrong as error:
        return str(error)
    return f"a type ends before {rest.strip()!r}" if rest.strip() else None


def kind_of(text: str) -> str:
    """What values of a type are: text, whole, number, flag, time, day, or other.

    >>> kind_of("decimal(12,2)"), kind_of("array<int>")
    ('number', 'other')
    """
    found = _WORD.match(text.strip().lower())
    return _KINDS.get(found.group() if found else "", "other")


class _Wrong(Exception):
    pass


def _type(text: str) -> str:
    """Read one type; returns what is left of the text."""
    found = _WORD.match(text)
    word = found.group() if found else ""
    rest = text[len(word) :].lstrip()
    if word == "array":
        return _expect(_type(_expect(rest, "<", word)), ">", word)
    if word == "map":
        rest = _expect(_type(_expect(rest, "<", word)), ",", word)
        return _expect(_type(rest), ">", word)
    if word == "struct":
        rest = _expect(rest, "<", word)
        while True:
            name = _NAME.match(rest)
            if name is None:
                raise _Wrong("a struct is written struct<name: type, ...>")
            rest = _type(rest[name.end() :]).lstrip()
            if not rest.startswith(","):
                return _expect(rest, ">", word)
            rest = rest[1:]
    if word == "decimal" and rest.startswith("("):
        size = _DECIMAL.match(rest)
        if size is None or not 1 <= int(size[1]) <= 38 or int(size[2] or 0) > int(size[1]):
            raise _Wrong("a decimal is written decimal(digits, digits after the point), at most 38")
        return rest[size.end() :]
    if word not in _PLAIN:
        raise _Wrong(f"there is no type {(word or text)!r}{_meant(word)}")
    return rest


def _expect(text: str, sign: str, word: str) -> str:
    if not text.lstrip().startswith(sign):
        raise _Wrong(f"the type {word} needs {sign!r} here: {text.strip()!r}")
    return text.lstrip()[1:].lstrip()


def _meant(word: str) -> str:
    meant = _MEANT.get(word) or nearest(word, _PLAIN)
    return f": did you mean {meant!r}?" if meant else f"; types are {', '.join(_PLAIN)}"
