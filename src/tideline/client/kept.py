"""The result of a live query as a client keeps it: what changes do to it, and two compared.

    ordered       a list; changes name positions
    not ordered   documents by key, the newest first: what is written goes to the front

A result of groups is ordered; its keys are the value that it is grouped by, or a tuple of them.

Values of one thread at a time; what is applied is checked: `Gap` says that a change does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from tideline.errors import Unavailable
from tideline.model import LiveChange

__all__ = ["Gap", "Kept", "differences", "group_reader", "key_reader"]

Document = dict[str, Any]
KeyOf = Callable[[Document], Any]
_encode = msgspec.json.Encoder(order="deterministic").encode
_text = msgspec.json.Encoder().encode


class Gap(Unavailable):
    """A change that does not fit what is kept: something is missing."""


def key_reader(key: str) -> KeyOf:
    """What reads the key of a document.

    >>> key_reader("id")({"id": 7})
    7
    """
    return lambda document: document[key]


def group_reader(by: str | Sequence[str]) -> KeyOf:
    """What reads the key of a group.

    >>> group_reader("shop")({"shop": 7, "count": 2}), group_reader(["shop"])({"shop": 7})
    (7, (7,))
    """
    if isinstance(by, str):
        return lambda document: document.get(by)
    return lambda document: tuple(document.get(field) for field in by)


def _hashed(key: Any) -> Any:
    """A key as one that a dict takes; 1 and "1" differ, and so do 1 and true."""
    return key if type(key) in (int, str) else _encode(key)


class Kept:
    """A result, and how changes alter it."""

    __slots__ = ("_by_key", "_list", "key_of", "ordered", "version")

    def __init__(
        self, key_of: KeyOf, ordered: bool, documents: list[Document], version: int
    ) -> None:
        self.key_of = key_of
        self.ordered = ordered
        self.version = version
        self._by_key: dict[Any, Document] = {}  # not ordered: the oldest first
        self._list: list[Document] | None = documents if ordered else None
        if not ordered:
            for document in reversed(documents):
                self._by_key[_hashed(key_of(document))] = document

    @property
    def documents(self) -> list[Document]:
        """The documents, in order: a list of the caller's own."""
        if self._list is None:
            self._list = list(reversed(self._by_key.values()))
        return list(self._list)

    def __len__(self) -> int:
        return len(self._by_key) if self._list is None else len(self._list)

    def copy(self) -> Kept:
        """The same, to go on by itself."""
        return Kept(self.key_of, self.ordered, self.documents, self.version)

    def told(self, wire: list[Any]) -> LiveChange:
        """A change as the server writes it, for who has this result."""
        try:
            return self._told(wire)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise Gap(f"a change that does not fit: {error!r}") from None

    def _told(self, wire: list[Any]) -> LiveChange:
        kind, version = wire[0], wire[1]
        if kind == "add":
            index, document = wire[2], wire[3]
            return change_of("add", self.key_of(document), version, None, index, document, None)
        if kind == "remove":
            index, key = wire[2], _key(wire[3])
            old = self._at(index, key)
            return change_of("remove", key, version, index, None, None, old)
        if kind == "change":
            _, _, index, key, fields, gone = wire
            old_index = index
        else:
            _, _, old_index, index, key, fields, gone = wire
        key = _key(key)
        old = self._at(old_index, key)
        document = {**old, **fields}
        for name in gone:
            document.pop(name, None)
        return change_of(kind, key, version, old_index, index, document, old)

    def told_whole(self, wire: list[Any]) -> LiveChange:
        """A change with its whole documents, for who has no result."""
        kind, version, document, before = wire[0], wire[1], None, None
        if kind == "add":
            old_index, index, document = None, wire[2], wire[3]
            key = self.key_of(document)
        elif kind == "remove":
            old_index, index, key, before = wire[2], None, _key(wire[3]), wire[4]
        else:
            *places, key, _, _, document, before = wire[2:]
            old_index, index, key = places[0], places[-1], _key(key)
        return change_of(kind, key, version, old_index, index, document, before)

    def _at(self, index: int | None, key: Any) -> Document:
        if not self.ordered:
            return self._by_key[_hashed(key)]
        assert self._list is not None
        if type(index) is not int or not 0 <= index < len(self._list):
            raise ValueError(f"no document at {index}")
        found = self._list[index]
        if _shown(self.key_of(found)) != key:
            raise ValueError(f"another document at {index}")
        return found

    def apply(self, change: LiveChange) -> None:
        """Do what a change tells."""
        if not self.ordered:
            self._list = None
            self._by_key.pop(_hashed(change.key), None)
            if change.document is not None:
                self._by_key[_hashed(change.key)] = change.document
        else:
            assert self._list is not None
            if change.old_index is not None:
                del self._list[change.old_index]
            if change.document is not None:
                index = change.index
                assert index is not None
                if index > len(self._list):
                    raise Gap(f"no place {index} in {len(self._list)} documents")
                self._list.insert(index, change.document)
        self.version = change.version

    def replace(self, newer: Kept) -> None:
        """Be another one; documents that did not change stay the same objects."""
        self._by_key, self._list, self.version = newer._by_key, newer._list, newer.version

    def take_over(self, older: Kept) -> None:
        """Have the same objects as another one, where documents are equal."""
        known = {_hashed(older.key_of(one)): one for one in older.documents}

        def same(document: Document) -> Document:
            old = known.get(_hashed(self.key_of(document)))
            return old if old is not None and equal(old, document) else document

        if self.ordered:
            assert self._list is not None
            self._list = [same(one) for one in self._list]
        else:
            self._by_key = {key: same(one) for key, one in self._by_key.items()}
            self._list = None


def equal(one: Document, other: Document) -> bool:
    """Whether two documents are the same as JSON: 1, 1.0 and true are three values."""
    return one == other and _encode(one) == _encode(other)


def differences(old: Kept, new: Kept) -> Iterator[LiveChange]:
    """The changes that make the one result of the other, in the order to apply them.

    >>> of = key_reader("id")
    >>> one = Kept(of, True, [{"id": 1}, {"id": 2}, {"id": 3}], 7)
    >>> for change in differences(one, Kept(of, True, [{"id": 3}, {"id": 1, "n": 0}], 9)):
    ...     print(change.kind, change.key, change.old_index, change.index)
    remove 2 1 None
    changeIndex 3 1 0
    change 1 1 1
    """
    version, before, after = new.version, old.documents, new.documents
    wanted = {_hashed(new.key_of(one)): one for one in after}
    keys = [_hashed(old.key_of(one)) for one in before]
    ordered = old.ordered
    for index in range(len(before) - 1, -1, -1):
        if keys[index] not in wanted:
            gone = before.pop(index)
            del keys[index]
            place = index if ordered else None
            yield change_of("remove", old.key_of(gone), version, place, None, None, gone)
    have = dict(zip(keys, before, strict=True))
    if not ordered:
        yield from _newer(have, new)
        return
    from tideline.live.remaining import Remaining

    places, remaining = {key: place for place, key in enumerate(keys)}, Remaining(len(keys))
    for index, document in enumerate(after):
        key = _hashed(new.key_of(document))
        known = have.get(key)
        if known is None:
            yield change_of("add", new.key_of(document), version, None, index, document, None)
            continue
        from_index = index + remaining.take(places[key])
        if from_index != index or not equal(known, document):
            yield change_of(
                "change" if from_index == index else "changeIndex", new.key_of(document), version,
                from_index, index, document, known,
            )  # fmt: skip


def _newer(have: dict[Any, Document], new: Kept) -> Iterator[LiveChange]:
    """What came and what changed without positions; `have` is newest first.

    What was written again with the same content is newer than before: it is told, too.
    """
    places = {key: -place for place, key in enumerate(have)}
    last, told = -len(have), False
    for document in reversed(new.documents):
        key = _hashed(new.key_of(document))
        known = have.get(key)
        if known is not None and not told and places[key] >= last and equal(known, document):
            last = places[key]
            continue
        told = True  # what comes later is newer than this
        kind = "add" if known is None else "change"
        yield change_of(
            kind, new.key_of(document), new.version, None, None, document, known
        )  # fmt: skip


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def _shown(key: Any) -> Any:
    """A key as changes have it: of a group, an array or an object is its text."""
    if isinstance(key, tuple):
        return tuple(map(_shown, key))
    return _text(key).decode() if isinstance(key, (list, dict)) else key


def change_of(
    kind: Any, key: Any, version: int, old_index: int | None, index: int | None,
    document: Document | None, before: Document | None,
) -> LiveChange:  # fmt: skip
    """A change of documents that are decoded already."""
    return LiveChange(
        kind, _shown(key), version, old_index, index,
        None if document is None else _text(document),
        None if before is None else _text(before), document, before,
    )  # fmt: skip
