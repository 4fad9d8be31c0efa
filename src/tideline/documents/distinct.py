"""The different values of a field, over many documents.

    texts -> one pass (index/extract.py) -> value bytes -> each once -> values
    arrays, objects and what the pass leaves open -> decoded

As MongoDB's `distinct`: an array counts by its elements, a missing field not at all, null does. 1
and 1.0 are one value. A path goes through arrays, or picks an element by its number.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tideline.index.extract import Scanned, encoded
from tideline.index.texts import Texts
from tideline.kernels import jsonpath as at
from tideline.where.keys import LIMIT, decode
from tideline.where.order import sort_key
from tideline.where.values import index_of

__all__ = ["distinct_values"]

_PLAIN = (at.NULL, at.FALSE, at.TRUE, at.INT, at.FLOAT)


def distinct_values(parts: Iterable[Texts], field: str) -> list[Any]:
    """The values, in their order.

    >>> docs = [b'{"a": 2}', b'{"a": [1, "x", 2.0]}', b'{"b": 5}', b'{"a": null}']
    >>> distinct_values([Texts.of(docs)], "a")
    [None, 1, 2, 'x']
    """
    path = field.split(".")
    found: dict[Any, Any] = {}
    for docs in parts:
        scanned = Scanned(docs, [field])
        tags, values = scanned.at(field)
        kinds = tags & 255
        plain = np.isin(kinds, _PLAIN) | ((kinds == at.TEXT) & (tags >> 8 < LIMIT - 1))
        texts = encoded(docs, tags, values, np.flatnonzero(plain)).to_arrow()
        for data in pc.unique(texts).to_pylist():
            value = decode(data)
            found.setdefault(sort_key(value), value)
        for row in np.flatnonzero(~plain & (kinds != at.MISSING)).tolist():
            for value in _values(scanned.document(row), path, 0):
                found.setdefault(sort_key(value), value)
    return [found[key] for key in sorted(found)]


def _values(value: Any, path: list[str], place: int) -> Iterator[Any]:
    """Every value at a path."""
    if place == len(path):
        if type(value) is list:
            yield from value
        else:
            yield value
    elif type(value) is dict:
        if path[place] in value:
            yield from _values(value[path[place]], path, place + 1)
    elif type(value) is list:
        number = index_of(path[place])
        if number >= 0:
            if number < len(value):
                yield from _values(value[number], path, place + 1)
        else:
            for one in value:
                if type(one) is dict:
                    yield from _values(one, path, place)
