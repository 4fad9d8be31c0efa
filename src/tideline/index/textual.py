"""Texts out of documents, folded, for indexes on text.

    documents -> one pass (where/paths.py) -> plain ASCII texts, folded by a kernel
                                           -> other texts, folded by where/words.py
    rows the pass leaves open (arrays, escapes) -> decoded, each text among the entries of the path

Each text is an entry of its own: of an array, each element. As `words`, an entry is the words of a
text with one space between them; else it is the folded text. A text without anything left has none.

With `raw`, a text that is not ASCII has a second entry, in which only A to Z are folded: a
pattern knows letters and no folding, and what it finds must be found in an entry.

Pure functions; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.index.extract import Scanned
from tideline.index.kind import Entries
from tideline.index.texts import Texts
from tideline.kernels import jsonpath as at
from tideline.kernels.inverted.folding import fold_rows
from tideline.where import order
from tideline.where.words import fold, folded

__all__ = ["extract", "folded_texts"]

Words = NDArray[np.int64]


def extract(docs: Texts, fields: Sequence[str], *, words: bool, raw: bool = False) -> list[Entries]:
    """The texts of some fields of documents, folded.

    >>> [found] = extract(Texts.of([b'{"a": "Flat TIRE!"}', b'{"a": ["x", 1]}']), ["a"], words=True)
    >>> found.row.tolist(), found.values.to_list()
    ([0, 1], [b'flat tire', b'x'])
    """
    scanned = Scanned(docs, fields)
    gone = docs.offsets[1:] == docs.offsets[:-1]
    return [_of_field(scanned, field, gone, words, raw) for field in fields]


def folded_texts(value: Any, words: bool, raw: bool) -> list[bytes]:
    """The entries of one text.

    >>> folded_texts("Straße 5", False, True)
    [b'strasse 5', b'stra\\xc3\\x9fe 5']
    """
    if words:
        found = [" ".join(folded(value)).encode()]
    else:
        found = [fold(value).encode()]
        if raw and not value.isascii():
            found.append(value.encode().lower())  # of bytes: A to Z alone
    return [one for one in dict.fromkeys(found) if one]


def _of_field(
    scanned: Scanned, field: str, gone: NDArray[np.bool_], words: bool, raw: bool
) -> Entries:
    tags, values = scanned.at(field)
    kinds = tags & 255
    rows = np.flatnonzero((kinds == at.TEXT) & ~gone)
    sizes = tags[rows] >> 8
    offsets, out = np.empty(len(rows) + 1, np.int64), np.empty(int(sizes.sum()) + 1, np.uint8)
    left = np.empty(len(rows), np.uint8)
    data_at = address_of(scanned.docs.data)
    fold_rows(
        data_at, *map(address_of, (tags, values, rows)), len(rows), int(words),
        *map(address_of, (offsets, out, left)),
    )  # fmt: skip
    texts = Texts(offsets, out)
    more_rows: list[int] = []
    more: list[bytes] = []
    for place in np.flatnonzero(left).tolist():
        row = int(rows[place])
        start = int(values[row])
        text = scanned.docs.data[start : start + int(sizes[place])].tobytes().decode()
        found = folded_texts(text, words, raw)
        more_rows += [row] * len(found)
        more += found
    open_ = (kinds == at.UNSURE) | (kinds == at.ESCAPED) | (kinds == at.ARRAY)
    for row in np.flatnonzero(open_ & ~gone).tolist():
        for one in order.entries(scanned.document(row), field):
            if isinstance(one, str):
                found = folded_texts(one, words, raw)
                more_rows += [row] * len(found)
                more += found
    some = np.flatnonzero(np.diff(offsets))
    if not more and len(some) == len(rows):
        return Entries(rows, texts)
    both = np.concatenate([rows[some], np.array(more_rows, np.int64)])
    places = np.argsort(both, kind="stable")
    return Entries(both[places], Texts.join([texts.take(some), Texts.of(more)]).take(places))
