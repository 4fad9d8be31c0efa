"""Index entries out of documents: many JSON texts in, columns of value bytes out.

    texts -> one pass (where/paths.py) -> what lies at every field -> bytes (where/keys.py)
    rows the pass leaves open (arrays, escapes, odd numbers) -> decoded, `entries`

Invariants:
1. The entries of a field are the scalars among `where.order.entries`, each once a document;
   missing reads as null. A document whose path meets an array has the entry `ARRAYS` too.
2. An object, and an array as a whole, has no entry: no search asks an index for them.
3. The same document gives the same entries, whichever way was taken: recovery extracts again
   what the log does not hold.
4. A field may be several, "road,speed": an entry is then a value of each (compound.py), of all
   pairs that a document with arrays has.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index.compound import OTHER, SEPARATOR, joined, parts_of
from tideline.index.kind import Entries
from tideline.index.texts import Texts
from tideline.kernels import jsonpath as at
from tideline.kernels.documents import keys as twin
from tideline.where import order
from tideline.where.keys import encode
from tideline.where.paths import Paths

__all__ = ["ARRAYS", "Scanned", "encoded", "extract", "has_parallel_arrays", "of_document"]

ARRAYS = b"\xff"
"""A value no JSON scalar has and that sorts after all: the entry of a document in which the
indexed path meets an array. Whether there is one decides how ranges of a field are joined."""

Words = NDArray[np.int64]
_SCALARS = frozenset((type(None), bool, int, float, str))


def extract(docs: Texts, fields: Sequence[str]) -> list[Entries]:
    """The entries of every field; the documents are good, and an empty one is none.

    >>> found = extract(Texts.of([b'{"a": 1}', b'{"a": ["x", "x"]}']), ["a"])[0]
    >>> found.row.tolist(), [found.values[i] for i in (1, 2)]
    ([0, 1, 1], [b'\\x02x', b'\\xff'])
    """
    scanned = Scanned(docs, fields)
    gone = docs.offsets[1:] == docs.offsets[:-1]
    return [scanned.entries(field, gone) for field in fields]


def of_document(document: Any, field: str) -> list[bytes]:
    """The entries of one decoded document.

    >>> of_document({"a": [{"b": "x"}, {"b": "x"}]}, "a.b")
    [b'\\x02x', b'\\xff']
    """
    if SEPARATOR in field:
        return _compound([of_document(document, part) for part in parts_of(field)])
    if "." not in field:  # the common case, quick
        value = document.get(field)
        if type(value) in _SCALARS:
            return [encode(value)]
        if type(value) is not list:
            return []
    found = {encode(one): None for one in order.entries(document, field) if type(one) in _SCALARS}
    if _meets_array(document, field.split(".")):
        found[ARRAYS] = None
    return list(found)


def _compound(values: Sequence[list[bytes]]) -> list[bytes]:
    """The entries of several fields, from those of each."""
    some = [[one for one in each if one != ARRAYS] or [OTHER] for each in values]
    found = {joined(one): None for one in product(*some)}
    if any(each and each[-1] == ARRAYS for each in values):
        found[ARRAYS] = None
    return list(found)


def has_parallel_arrays(document: Any, field: str) -> bool:
    """Whether two of the fields of an index meet an array, which is one too many.

    >>> has_parallel_arrays({"a": [1], "b": [2]}, "a,b")
    True
    """
    return sum(_meets_array(document, part.split(".")) for part in parts_of(field)) > 1


def _meets_array(value: Any, path: Sequence[str]) -> bool:
    for part in path:
        if type(value) is list:
            return True
        if type(value) is not dict:
            return False
        value = value.get(part)
    return type(value) is list


class Scanned:
    """What lies at some fields of many documents.

    `unread` are the rows that are no object, not JSON, or not read by the fast way: `document`
    decodes them, or raises what msgspec raises.
    """

    def __init__(self, docs: Texts, fields: Sequence[str]) -> None:
        self.docs = docs
        self._paths = _paths(tuple(part for field in fields for part in parts_of(field)))
        count = len(docs.offsets) - 1
        shape = (len(self._paths.paths), count)
        self._tags, self._values = np.empty(shape, np.int64), np.empty(shape, np.int64)
        if count:
            self.unread = self._paths.read(docs.data, docs.offsets, self._tags, self._values)
        else:
            self.unread = np.empty(0, np.int64)
        self._decoded: dict[int, Any] = {}
        self.arrays: set[str] = set()
        """The fields that `entries` found an array at."""

    def at(self, field: str) -> tuple[Words, Words]:
        """Tags and values of a field, a row a document (kernels/jsonpath.py)."""
        node = self._paths.numbers[tuple(field.split("."))]
        return self._tags[node], self._values[node]

    def document(self, row: int) -> Any:
        """One document decoded."""
        found = self._decoded.get(row)
        if found is None:
            found = self._decoded[row] = msgspec.json.decode(bytes(self.docs[row]))
        return found

    def entries(self, field: str, skip: NDArray[np.bool_] | None = None) -> Entries:
        """The entries of a field, without those of rows to `skip`."""
        if SEPARATOR in field:
            return self._compound(field, skip)
        tags, values = self.at(field)
        kinds = tags & 255
        plain = (kinds != at.UNSURE) & (kinds != at.ESCAPED) & (kinds != at.ARRAY)
        slow = ~plain
        plain &= kinds != at.OBJECT
        if skip is not None:
            plain &= ~skip
            slow &= ~skip
        fast_rows = np.flatnonzero(plain)
        found = Entries(fast_rows, encoded(self.docs, tags, values, fast_rows))
        if not slow.any():
            return found
        rows: list[int] = []
        texts: list[bytes] = []
        for row in np.flatnonzero(slow).tolist():
            for value in of_document(self.document(row), field):
                rows.append(row)
                texts.append(value)
                if value == ARRAYS:
                    self.arrays.add(field)
        return _joined(found, Entries(np.array(rows, np.int64), Texts.of(texts)))

    def parallel(self, field: str, skip: NDArray[np.bool_] | None = None) -> list[int]:
        """The rows in which two of the fields of an index meet an array."""
        counts: Counter[int] = Counter()
        for part in parts_of(field):
            found = self.entries(part, skip)
            if part in self.arrays:
                rows, texts = found.row.tolist(), found.values.to_list()
                counts.update(r for r, text in zip(rows, texts, strict=True) if text == ARRAYS)
        return [row for row, count in counts.items() if count > 1]

    def _compound(self, field: str, skip: NDArray[np.bool_] | None) -> Entries:
        """The entries of several fields."""
        parts = [self.entries(part, skip) for part in parts_of(field)]
        count = len(self.docs.offsets) - 1
        wanted = np.arange(count) if skip is None else np.flatnonzero(~skip)
        if all(np.array_equal(part.row, wanted) for part in parts) and not (
            self.arrays & set(parts_of(field))
        ):
            lists = [part.values.to_list() for part in parts]
            return Entries(wanted, Texts.of([joined(one) for one in zip(*lists, strict=True)]))
        values: dict[int, list[list[bytes]]] = {row: [] for row in wanted.tolist()}
        for number, part in enumerate(parts):
            for each in values.values():
                each.append([])
            for row, value in zip(part.row.tolist(), part.values.to_list(), strict=True):
                values[row][number].append(value)
        rows: list[int] = []
        texts: list[bytes] = []
        for row, each in values.items():
            found = _compound(each)
            rows += [row] * len(found)
            texts += found
            if found[-1] == ARRAYS:
                self.arrays.add(field)
        return Entries(np.array(rows, np.int64), Texts.of(texts))


def encoded(docs: Texts, tags: Words, values: Words, rows: Words) -> Texts:
    """The value bytes of rows that hold one plain scalar."""
    sizes = np.where(tags & 255 == at.TEXT, tags >> 8, 0)[rows]
    room = int(np.minimum(sizes, twin.LIMIT).sum()) + twin.ROOM * (len(rows) + 1)
    offsets, out = np.empty(len(rows) + 1, np.int64), np.empty(room, np.uint8)
    used = twin.encode_column(address_of(docs.data), tags, values, rows, offsets, out)
    return Texts(offsets, out[:used])


def _joined(a: Entries, b: Entries) -> Entries:
    """Both, in the order of rows."""
    rows = np.concatenate([a.row, b.row])
    places = np.argsort(rows, kind="stable")
    return Entries(rows[places], Texts.join([a.values, b.values]).take(places))


@lru_cache(maxsize=64)
def _paths(fields: tuple[str, ...]) -> Paths:
    return Paths(tuple(field.split(".")) for field in fields)
