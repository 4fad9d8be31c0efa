"""Documents as JSON, each decoded when it is looked at: what `find_lazily` gives.

    text    [{"id": 1},{"id": 2},{"id": 3}]
    ends    0         9         18        27    where each ends, and where the first begins, minus 1

A part of them is the same text with fewer ends. Never changes; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, overload

import msgspec

__all__ = ["Documents"]

Document = dict[str, Any]
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Documents(Sequence[Document]):
    """A sequence of documents that are JSON inside.

    A document is decoded each time it is looked at. Looked at often, it is better kept; all of
    them are decoded soonest by `list`.

    >>> found = Documents.of([b'{"id":1}', b'{"id":2}', b'{"id":3}'])
    >>> len(found), found[1], found[-1], [one["id"] for one in found[1:]]
    (3, {'id': 2}, {'id': 3}, [2, 3])
    >>> found[1:].json, found.texts()[0]
    (b'[{"id":2},{"id":3}]', b'{"id":1}')
    """

    __slots__ = ("_ends", "_project", "_text")

    def __init__(
        self, text: bytes, ends: Sequence[int], project: Callable[[Document], Document] | None
    ) -> None:
        self._text = text
        self._ends = ends
        self._project = project

    @classmethod
    def of(cls, texts: Iterable[bytes], project: Any = None) -> Documents:
        """Of the JSON text of each."""
        each = list(texts)
        ends = accumulate([1 + len(text) for text in each], initial=0)
        return cls(b"[" + b",".join(each) + b"]", list(ends), project)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, number: int) -> Document: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Document]: ...
    def __getitem__(self, number: int | slice) -> Document | Sequence[Document]:
        """One of them, decoded; or a part of them, which is not."""
        where = range(len(self._ends) - 1)[number]
        if isinstance(where, range):
            if where.step == 1:
                ends = self._ends[where.start : where.stop + 1] if where else [0]
                return Documents(self._text, ends, self._project)
            return [self[one] for one in where]
        found = _decode(self._text[self._ends[where] + 1 : self._ends[where + 1]])
        return found if self._project is None else self._project(found)

    def __iter__(self) -> Iterator[Document]:
        found = map(_decode, self._each())
        return found if self._project is None else map(self._project, found)

    def texts(self) -> list[bytes]:
        """Each as JSON."""
        if self._project is not None:
            return [_encode(one) for one in self]
        return [text.rstrip() for text in self._each()]  # some are stored with a line end

    @property
    def json(self) -> bytes:
        """All of them as one JSON array, perhaps with white space between them."""
        if self._project is not None:
            return _encode(list(self))
        return b"[" + self._text[self._ends[0] + 1 : self._ends[-1]] + b"]"

    def _each(self) -> Iterator[bytes]:
        text = self._text
        return (text[end + 1 : limit] for end, limit in pairwise(self._ends))

    def __repr__(self) -> str:
        return f"<Documents: {len(self)}>"
