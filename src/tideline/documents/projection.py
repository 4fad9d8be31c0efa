"""Which fields of a document are wanted: MongoDB's projections.

    ["speed", "place.road"]               these, and the key
    {"speed": 1, "place.road": 1}         the same
    {"text": 0, "place.note": 0}          all but these
    {"speed": 1, "id": 0}                 the key may be left out
    {"metres": {"$meta": "geoNearDistance"}}   how far it is, where the condition has a `$near`;
                                          beside others, or alone with the whole document

A path goes through arrays into every element. To include, elements that are no objects are left
out; to exclude, they stay. A path that leads nowhere includes nothing. Pure; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tideline.errors import InvalidRequest
from tideline.where.build import path_of
from tideline.where.nearest import Near

__all__ = ["Projection", "parse_fields", "projection_of"]

Document = dict[str, Any]
Projection = Callable[[Document], Document]
Tree = dict[str, Any]
"""Names with what is asked below them; None for a whole value."""

_SHAPE = "fields must be names like ['speed', 'place.road'], or {'text': 0} for all but these"


def parse_fields(fields: Any, key: str, near: Near | None = None) -> Projection | None:
    """A projection of documents that are known by `key`; None when all is wanted.

    >>> parse_fields(["a.b"], "id")({"id": 1, "a": [{"b": 2, "c": 3}, 4], "d": 5})
    {'id': 1, 'a': [{'b': 2}]}
    >>> from tideline.where import parse
    >>> near = parse({"at": {"$near": [0, 0]}}).near
    >>> parse_fields({"metres": {"$meta": "geoNearDistance"}}, "id", near)({"id": 1, "at": [0, 0]})
    {'id': 1, 'at': [0, 0], 'metres': 0.0}
    >>> parse_fields({"a.b": 0, "d": 0}, "id")({"id": 1, "a": [{"b": 2, "c": 3}, 4], "d": 5})
    {'id': 1, 'a': [{'c': 3}, 4]}
    """
    if fields is None:
        return None
    if isinstance(fields, Mapping):
        given = dict(fields)
        metas = [name for name, wanted in given.items() if isinstance(wanted, Mapping)]
        if metas:
            plain = {name: wanted for name, wanted in given.items() if name not in metas}
            return _with_metres(plain, {name: given[name] for name in metas}, key, near)
    elif isinstance(fields, Iterable) and not isinstance(fields, (str, bytes)):
        given = {}
        for name in fields:
            if not isinstance(name, str):
                raise InvalidRequest(_SHAPE, fields=fields)
            given[name] = 1
        if not given:
            given = {key: 1}
    else:
        raise InvalidRequest(_SHAPE, fields=fields)
    for name, wanted in given.items():
        if not isinstance(name, str):
            raise InvalidRequest(_SHAPE, fields=fields)
        if not isinstance(wanted, (int, float)) or wanted not in (0, 1):
            raise InvalidRequest(f"fields.{name} must be 1 or 0", given=wanted)
    return projection_of({name: bool(wanted) for name, wanted in given.items()}, key)


def _with_metres(
    plain: Document, metas: Document, key: str, near: Near | None
) -> Projection:  # fmt: skip
    """What is wanted of a document, and how far it is."""
    for name, wanted in metas.items():
        if dict(wanted) != {"$meta": "geoNearDistance"} or "." in name:
            raise InvalidRequest(
                f"fields.{name} must be 1, 0 or {{'$meta': 'geoNearDistance'}} at the top",
                given=wanted,
            )
        path_of(name, ("fields", name))
        if near is None:
            raise InvalidRequest(
                f"fields.{name}: there is a distance where the condition has one $near"
            )
    project = parse_fields(plain, key) if plain else None

    def projected(document: Document) -> Document:
        assert near is not None
        found = dict(document) if project is None else project(document)
        metres = near.metres(document)
        return found | dict.fromkeys(metas, metres)

    return projected


def projection_of(wanted: dict[str, bool], key: str | None) -> Projection | None:
    """The same of checked values; `key` is included unless it is said not to be."""
    others = {name: include for name, include in wanted.items() if name != key}
    if len(set(others.values())) > 1:
        some = next(name for name, include in others.items() if not include)
        meant = f", did you mean {{{key!r}: 0}}?" if some == "_id" and key is not None else ""
        raise InvalidRequest(
            f"fields includes some and excludes {some}: only the key may be excluded beside others"
            f"{meant}"
        )
    includes = next(iter(others.values()), None)
    if includes is None:  # nothing but the key, or nothing at all
        includes = bool(key is not None and wanted.get(key, False))
    tree = _tree(others)
    if key is not None and (wanted.get(key, includes) if includes else not wanted.get(key, True)):
        tree[key] = None
    if not wanted:
        return None
    return (lambda document: _included(document, tree)) if includes else (
        lambda document: _excluded(document, tree)
    )  # fmt: skip


def _tree(names: Iterable[str]) -> Tree:
    tree: Tree = {}
    for name in names:
        *parents, last = path_of(name, ("fields", name))
        at = tree
        for part in parents:
            at = at.setdefault(part, {})
            if at is None:
                raise InvalidRequest(f"fields.{name} is a part of another field that is named")
        if last in at:
            raise InvalidRequest(f"fields.{name} is named twice, or has parts that are named")
        at[last] = None
    return tree


def _included(document: Document, tree: Tree) -> Document:
    found: Document = {}
    for name, value in document.items():
        if name in tree:
            below = tree[name]
            if below is None:
                found[name] = value
            elif type(value) is dict:
                found[name] = _included(value, below)
            elif type(value) is list:
                found[name] = _included_elements(value, below)
    return found


def _included_elements(array: list[Any], tree: Tree) -> list[Any]:
    found: list[Any] = []
    for one in array:
        if type(one) is dict:
            found.append(_included(one, tree))
        elif type(one) is list:
            found.append(_included_elements(one, tree))
    return found


def _excluded(value: Any, tree: Tree) -> Any:
    if type(value) is list:
        return [_excluded(one, tree) for one in value]
    if type(value) is not dict:
        return value
    found: Document = {}
    for name, part in value.items():
        if name not in tree:
            found[name] = part
        elif tree[name] is not None:
            found[name] = _excluded(part, tree[name])
    return found
