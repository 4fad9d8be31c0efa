"""Sort keys: any two JSON values have an order, and any two documents.

The order is MongoDB's: null and missing, numbers, text, objects, arrays, booleans; within a
bracket that of `values.compare`, so sorting and `$gt` agree. Objects are compared by their
names in sorted order.

A field that holds an array sorts by its least element, in descending order by its greatest; an
empty array comes before null. A path that goes through an array has the entries of all its
elements. The primary key comes last, so no two documents of a collection are equal.

Keys are tuples: made once a document, compared by Python alone. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from tideline.errors import InvalidRequest
from tideline.where.build import path_of
from tideline.where.nearest import MARK, Near
from tideline.where.values import MISSING, RANK, index_of

__all__ = ["Key", "entries", "key_of_plain", "plain_of_key", "sort_key", "sort_keys"]

Key = tuple[Any, ...]
_EMPTY: Key = (-1,)  # an empty array
_NULL: Key = (0,)
# Deeper than any document people write: below, containers sort by their canonical text.
_DEPTH_LIMIT = 100
_text = msgspec.json.Encoder(order="deterministic").encode


def sort_key(value: object, depth: int = 0) -> Key:
    """A key that orders JSON values.

    >>> sorted([True, "b", 2, None, [1], {"a": 1}, "a", 1.5], key=sort_key)
    [None, 1.5, 2, 'a', 'b', {'a': 1}, [1], True]
    """
    rank = RANK[type(value)]
    if rank == 0:
        return _NULL
    if type(value) is list:
        if depth == _DEPTH_LIMIT:
            return (rank, _text(value))
        return (rank, tuple([sort_key(part, depth + 1) for part in value]))
    if type(value) is dict:
        if depth == _DEPTH_LIMIT:
            return (rank, _text(value))
        parts = []
        for name in sorted(value):
            # MongoDB: the bracket of the value first, then the name, then the value.
            key = sort_key(value[name], depth + 1)
            parts.append((key[0], name, *key[1:]))
        return (rank, tuple(parts))
    return (rank, value)


class _Descending:
    """A key turned round."""

    __slots__ = ("key",)

    def __init__(self, key: Key) -> None:
        self.key = key

    def __lt__(self, other: _Descending) -> bool:
        return other.key < self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.key == other.key

    __hash__ = None  # type: ignore[assignment]


Spec = Mapping[str, int] | Iterable[tuple[str, int]]


def sort_keys(spec: Spec, primary_key: str) -> Callable[[object], Key]:
    """The key of a document as a function: each path, 1 up or -1 down, then the primary key.

    >>> by_speed = sort_keys({"speed": -1}, "id")
    >>> cars = [{"id": 1, "speed": 5}, {"id": 2, "speed": [1, 9]}, {"id": 3, "speed": 5}]
    >>> [car["id"] for car in sorted(cars, key=by_speed)]
    [2, 1, 3]
    """
    pairs = list(spec.items() if isinstance(spec, Mapping) else spec)
    parts: list[tuple[tuple[str, ...], bool]] = []
    for name, direction in pairs:
        if not isinstance(name, str):
            raise InvalidRequest("sort: names of fields must be text", name=name)
        if name.startswith(MARK):
            return _by_distance(Near.of(name), primary_key)
        if type(direction) is not int or direction not in (1, -1):
            raise InvalidRequest(f"sort.{name} must be 1 or -1", direction=direction)
        parts.append((path_of(name, ("sort", name)), direction < 0))
    if len({path for path, _ in parts}) < len(parts):
        raise InvalidRequest("sort names a field twice", sort=pairs)
    if all(path != (primary_key,) for path, _ in parts):
        parts.append((path_of(primary_key, ("sort", primary_key)), False))
    made = [_down(path) if down else _up(path) for path, down in parts]
    return lambda document: tuple([make(document) for make in made])


def _by_distance(near: Near, primary_key: str) -> Callable[[object], Key]:
    """Nearest first, then by the primary key; what has no distance comes last."""
    by_key = _up((primary_key,))

    def key(document: object) -> Key:
        metres = near.metres(document)
        return (1, 0.0) if metres is None else (0, metres), by_key(document)

    return key


def plain_of_key(key: Key) -> list[Any]:
    """The key of a document as JSON can hold it, to be stored: see `key_of_plain`."""
    return [part.key if isinstance(part, _Descending) else part for part in key]


def key_of_plain(plain: Any, spec: Spec, primary_key: str) -> Key:
    """The same key, made from what JSON gives back; `InvalidRequest` if it is of another order.

    >>> spec = {"speed": -1}
    >>> first, second = map(sort_keys(spec, "id"), ({"id": 1, "speed": 5}, {"id": 2}))
    >>> key_of_plain(plain_of_key(first), spec, "id") < second
    True
    """
    pairs = list(spec.items() if isinstance(spec, Mapping) else spec)
    down = [direction < 0 for _, direction in pairs]
    if all(name != primary_key for name, _ in pairs):
        down.append(False)
    if not isinstance(plain, list) or len(plain) != len(down):
        raise InvalidRequest("this is no place in this order")
    keys = [_tuples(part) for part in plain]
    return tuple(_Descending(key) if turn else key for key, turn in zip(keys, down, strict=True))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _up(path: tuple[str, ...]) -> Callable[[object], Any]:
    field = path[0] if len(path) == 1 else None

    def least(document: object) -> Any:
        if field is not None and type(document) is dict:
            value = document.get(field)
            if type(value) is not list:
                return sort_key(value)
        return min(_keys(document, path))

    return least


def _down(path: tuple[str, ...]) -> Callable[[object], Any]:
    return lambda document: _Descending(max(_keys(document, path)))


def _keys(document: object, path: tuple[str, ...]) -> list[Key]:
    found: list[Key] = []
    for value in _reached(document, path, 0):
        if type(value) is list:
            found += [sort_key(part) for part in value] if value else [_EMPTY]
        else:
            found.append(sort_key(value))
    return found or [_NULL]


def _reached(value: object, path: tuple[str, ...], at: int) -> list[object]:
    """What lies at a path, every array on the way entered; what leads nowhere is missing."""
    while at < len(path):
        if type(value) is list:
            number = index_of(path[at])
            if 0 <= number < len(value):
                return _reached(value[number], path, at + 1)
            found: list[object] = []
            for part in value:
                found += _reached(part, path, at) if type(part) is dict else [MISSING]
            return found
        if type(value) is not dict:
            return [MISSING]
        value = value.get(path[at], MISSING)
        at += 1
    return [value]


def entries(document: object, dotted: str) -> list[object]:
    """Every value a test at the path would see: candidates, whole and by element.

    This is what an index on the path has to hold for `bounds.py`; missing reads as null.

    >>> entries({"a": [{"b": 1}, {"b": [2, 3]}, {}]}, "a.b")
    [1, [2, 3], 2, 3, None]
    """
    found: list[object] = []

    def walk(value: object, path: tuple[str, ...]) -> None:
        for at, part in enumerate(path):
            if type(value) is dict:
                value = value.get(part, MISSING)
            elif type(value) is list:
                enter(value, path[at:])
                return
            else:
                value = MISSING
                break
        found.append(None if value is MISSING else value)
        if type(value) is list:
            found.extend(value)

    def enter(array: list[object], path: tuple[str, ...]) -> None:
        number = index_of(path[0])
        for at, value in enumerate(array):
            if type(value) is dict:
                walk(value, path)
            if at == number:
                if len(path) == 1:
                    found.append(value)
                elif type(value) is dict:
                    walk(value, path[1:])
                elif type(value) is list:
                    enter(value, path[1:])

    walk(document, tuple(dotted.split(".")))
    return found
