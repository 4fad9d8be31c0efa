"""Values in the stages of `aggregate`, computed from a document.

    "$speed", "$place.road"     what lies at a path; through an array, of each of its objects
    "$$ROOT"                    the document itself
    {"$literal": value}         the value, whatever it looks like
    {"a": expression, ...}      an object; what is missing is left out
    [expression, ...]           an array; what is missing is null
    anything else               itself

A function gives `MISSING` for what is not there. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tideline.errors import InvalidRequest
from tideline.where.build import path_of
from tideline.where.values import MISSING

__all__ = ["Expression", "at_path", "expression", "field_path", "fields_used"]

Document = dict[str, Any]
Expression = Callable[[Document], Any]


def expression(given: Any, place: str) -> Expression:
    """A function of documents.

    >>> expression({"road": "$at.road", "n": 1}, "pipeline[0]")({"at": {"road": "A1"}})
    {'road': 'A1', 'n': 1}
    """
    if isinstance(given, str):
        if given == "$$ROOT":
            return lambda document: document
        if given.startswith("$$"):
            raise InvalidRequest(f"{place}: of variables there is $$ROOT alone", given=given)
        return at_path(field_path(given, place)) if given.startswith("$") else _constant(given)
    if isinstance(given, dict):
        if "$literal" in given and len(given) == 1:
            return _constant(given["$literal"])
        for name in given:
            if name.startswith("$"):
                raise InvalidRequest(
                    f"{place}.{name} is not supported; a value is a field like '$speed', an object "
                    "of such, or {'$literal': ...}"
                )
        return _object({name: expression(part, f"{place}.{name}") for name, part in given.items()})
    if isinstance(given, list):
        parts = [expression(part, f"{place}[{n}]") for n, part in enumerate(given)]
        return lambda document: [_or_null(part(document)) for part in parts]
    return _constant(given)


def fields_used(given: Any) -> set[str] | None:
    """The fields of a document, without what is below them, that expressions read; None for all.

    >>> sorted(fields_used({"_id": "$at.road", "n": {"$sum": ["$cars", 1]}}))
    ['at', 'cars']
    """
    if isinstance(given, str):
        if given == "$$ROOT":
            return None
        return {given[1:].split(".")[0]} if given.startswith("$") else set()
    parts: list[Any] = []
    if isinstance(given, dict):
        parts = [part for name, part in given.items() if name != "$literal"]
    elif isinstance(given, list):
        parts = given
    used: set[str] = set()
    for part in parts:
        found = fields_used(part)
        if found is None:
            return None
        used |= found
    return used


def field_path(given: Any, place: str) -> tuple[str, ...]:
    """The parts of a path that is written with a $ in front."""
    if not isinstance(given, str) or not given.startswith("$"):
        raise InvalidRequest(
            f"{place} must be a field with a $ in front, like '$tags'", given=given
        )
    return path_of(given[1:], place)


def at_path(path: tuple[str, ...]) -> Expression:
    """What lies at a path."""
    if len(path) == 1:
        name = path[0]
        return lambda document: document.get(name, MISSING)
    return lambda document: _walk(document, path, 0)


def _walk(value: Any, path: tuple[str, ...], at: int) -> Any:
    while at < len(path):
        if type(value) is list:
            found = (_walk(one, path, at) for one in value if type(one) is dict)
            return [one for one in found if one is not MISSING]
        if type(value) is not dict:
            return MISSING
        value = value.get(path[at], MISSING)
        at += 1
    return value


def _constant(value: Any) -> Expression:
    return lambda document: value


def _object(parts: dict[str, Expression]) -> Expression:
    def made(document: Document) -> Document:
        found = ((name, part(document)) for name, part in parts.items())
        return {name: value for name, value in found if value is not MISSING}

    return made


def _or_null(value: Any) -> Any:
    return None if value is MISSING else value
